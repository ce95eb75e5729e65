//! Quality of tool search (`cargo xtask bench search`): collects the catalogs of public MCP servers, asks questions with
//! known answers, and compares gripfast's index with plain BM25 and with FastMCP's search.
//!
//! The index of gripfast is driven through `crates/core/examples/search.rs`, and FastMCP through a script, so that this
//! program contains the code of neither.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program talks to its terminal"
)]

mod bm25;
mod catalog;
mod drivers;
mod estimate;
mod gateway;
mod packages;
mod page;
mod quality;
mod question_set;
mod servers;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use gripfast_measure::figure::Figure;
use gripfast_measure::place::Place;
use gripfast_measure::{MeasureError, Result};

use catalog::Collected;
use drivers::IndexReport;
use estimate::EstimateError;
use gateway::GatewayInputs;
use packages::Packages;
use page::SearchReport;
use quality::{Candidate, Quality};
use question_set::{Half, Level, Question};

/// Fewest servers and tools of a valid run.
const MIN_SERVERS: usize = 40;
const MIN_TOOLS: usize = 600;

/// Fewest questions of both halves together, and of the judging half, whose tools could be listed.
const MIN_QUESTIONS: usize = 400;
const MIN_JUDGED: usize = 200;

/// Number of tools for the measurement of time and memory.
const MANY: usize = 10_000;

/// Measures the quality of tool search on the catalogs of public MCP servers, beside plain BM25 and FastMCP.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask bench search",
    after_help = "\
Installs the servers of crates/bench/search/servers.tsv from npm and PyPI under target/search, starts each, lists its \
tools and stops it. Needs npm, python3 and some ten minutes for the first run. Servers that do not start are named and \
left out."
)]
struct SearchArgs {
    /// Half of the questions to ask. Tune with `tuning` only
    #[arg(long, value_enum, default_value_t = Half::Judging)]
    half: Half,
    /// Use the catalogs of the last run instead of starting the servers
    #[arg(long)]
    keep_catalogs: bool,
    /// Measure only tokens and list changes of a gateway, with the catalogs of the last run
    #[arg(long)]
    gateway_only: bool,
    /// List the questions whose answer is not among the first five
    #[arg(long)]
    misses: bool,
    /// Write the report to this page
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Directory for installed servers and catalogs
    #[arg(long, value_name = "DIR", default_value = "target/search")]
    dir: PathBuf,
    /// Program that answers questions with gripfast's index
    #[arg(long, value_name = "PATH", default_value = "target/release/examples/search")]
    index: PathBuf,
    /// Gateway to measure
    #[arg(long, value_name = "PATH", default_value = "target/release/gripfast")]
    gripfast: PathBuf,
    /// Serve the collected catalog of this server on stdin and stdout
    #[arg(long, value_name = "SERVER", hide = true)]
    replay: Option<String>,
}

fn main() -> ExitCode {
    match run(&SearchArgs::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the run failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the measurement. True if all goals are met.
fn run(args: &SearchArgs) -> Result<bool> {
    if let Some(server) = &args.replay {
        gateway::replay(&args.dir, server)?;
        return Ok(true);
    }
    let inputs = GatewayInputs { gripfast: &args.gripfast, index: &args.index, dir: &args.dir };
    if args.gateway_only {
        let goals = page::gateway_goals(&gateway::measure(inputs, &Collected::read(&args.dir)?)?);
        print!("{}", goals.iter().map(Figure::to_text).collect::<String>());
        return Ok(goals.iter().all(|goal| goal.met));
    }
    let place = Place::detect("cargo xtask bench search", &["--index", "--gripfast", "--dir", "--write"]);
    let packages = Packages::prepare(&args.dir)?;
    let collected = if args.keep_catalogs {
        Collected::read(&args.dir)?
    } else {
        catalog::collect(&packages, &args.dir, servers::all()?)?
    };
    collected.check(MIN_SERVERS, MIN_TOOLS)?;
    let count = Half::ALL
        .iter()
        .map(|half| question_set::read(*half).map(|list| list.len()))
        .sum::<Result<usize>>()?;
    if count < MIN_QUESTIONS {
        return Err(MeasureError::new("questions", &format!("{count} are fewer than {MIN_QUESTIONS}")));
    }
    for half in Half::ALL {
        question_set::check(&question_set::read(half)?, &collected.tools)?;
    }
    let [tuning, judging] = Half::ALL.map(|half| question_set::answerable(half, &collected.tools));
    let (tuning, judging) = (tuning?, judging?);
    let questions = page::question_goal(tuning.len(), judging.len(), [MIN_QUESTIONS, MIN_JUDGED]);
    let answerable = match args.half {
        Half::Tuning => tuning,
        Half::Judging => judging,
    };
    let texts: Vec<String> = answerable.iter().map(|question| question.text.clone()).collect();
    let ours = drivers::gripfast(&args.index, &collected.tools, &texts, None)?;
    let many = drivers::gripfast(&args.index, &collected.tools, &texts, Some(MANY))?;
    let candidates = [
        Candidate::new("gripfast", &answerable, &ours.answers),
        Candidate::new("plain BM25", &answerable, &bm25::answers(&collected.tools, &texts)),
        Candidate::new("FastMCP", &answerable, &drivers::fastmcp(&packages, &collected.tools, &texts)?),
    ];
    if args.misses {
        list_misses(&answerable, &ours);
    }
    let quality = Quality::new(args.half, candidates);
    let gateway = gateway::measure(inputs, &collected)?;
    let estimate = EstimateError::measure(&args.index, &packages, &collected)?;
    let measured = SearchReport { quality, collected, ours, many, gateway, estimate, questions };
    print!("{}", measured.text());
    if let Some(file) = &args.write {
        std::fs::write(file, measured.markdown(&place))?;
    }
    Ok(measured.goals().iter().all(|goal| goal.met))
}

fn list_misses(questions: &[Question], ours: &IndexReport) {
    for (question, answer) in questions.iter().zip(&ours.answers) {
        let found = answer.iter().take(5).any(|tool| question.right.contains(tool));
        if !found {
            let Question { level, text, right } = question;
            let got = answer.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
            eprintln!("{}: {text}\n    right: {}\n    got: {got}", Level::word(*level), right.join(", "));
        }
    }
}

//! What `cargo xtask bench` runs: what a gateway costs in time, processor and memory, beside nginx in front of the
//! same server and beside a bare pipe.
//!
//! All of a figure is measured in one run, interleaved, and what counts are ratios: times belong to a machine and a
//! moment. It is a stranger to the gateway's code: it knows its command line, its config and MCP, so that any other
//! gateway can be put beside it.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program talks to its terminal"
)]

mod args;
mod calls;
mod client;
mod echo;
mod figure;
mod http1;
mod lists;
mod load;
mod observing;
mod order;
mod process;
mod report;
mod scale;
mod stage;
mod startup;

use std::fmt;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Output, Part};
use report::{Measured, Report};

/// Why a run cannot go on. Not a finding about a gateway: the bench itself is in trouble.
#[derive(Debug)]
pub(crate) struct Cannot(String);

impl Cannot {
    pub(crate) fn because(what: &str, why: &dyn fmt::Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}

impl fmt::Display for Cannot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<std::io::Error> for Cannot {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

pub(crate) type Result<T> = std::result::Result<T, Cannot>;

/// The middle one.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(Cannot::from).and_then(|runtime| match args.serve_pipes {
        Some(tools) => Ok(echo::over_pipes(tools)?),
        None if args.serve_http => Ok(runtime.block_on(echo::over_http(|port| println!("{port}")))?),
        None => runtime.block_on(measure(&args)),
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the run broke off: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(args: &Args) -> Result<()> {
    let order = args.order()?;
    let mut report = Report::begin();
    for part in args.parts() {
        eprintln!("{} …", part.word());
        report.add(match part {
            Part::Calls => Measured::Calls(calls::run(&order).await?),
            Part::Lists => Measured::Lists(lists::run(&order).await?),
            Part::Startup => Measured::Startup(startup::run(&order).await?),
            Part::Observing => Measured::Observing(observing::run(&order).await?),
            Part::Scale => Measured::Scale(scale::run(&order).await?),
        });
    }
    match args.output {
        Output::Text => print!("{}", report.to_text()),
        Output::Json => println!("{}", report.to_json()),
    }
    match &args.write {
        Some(file) => report.write(file),
        None => Ok(()),
    }
}

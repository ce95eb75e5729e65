//! Answers questions with the tool index, and measures it. `cargo xtask bench search` runs this program: the bench
//! itself contains none of our crates.
//!
//! stdin has `{"tools": […], "questions": […], "limit": 10}`; a tool has `server`, `name`, `title`, `description` and
//! `parameters`. stdout gets the answers and the measurements as JSON. With the arguments `scale COUNT` the tools are
//! copied until there are COUNT of them.
//!
//! With the argument `tokens`, stdin has lists of tool definitions, and stdout gets the estimated tokens of each list.

#![expect(clippy::print_stdout, reason = "a command line program writes to its terminal")]
#![expect(clippy::disallowed_methods, reason = "this program measures times")]

use std::error::Error;
use std::time::{Duration, Instant};

use gripfast_core::search::{ParameterText, ToolIndex, ToolText};
use gripfast_core::token_estimate::estimate_tokens;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Repetitions of an update, of which the median is reported.
const UPDATES: usize = 9;

#[derive(Debug, Deserialize)]
struct Input {
    tools: Vec<Tool>,
    questions: Vec<String>,
    limit: usize,
}

#[derive(Debug, Clone, Deserialize)]
struct Tool {
    server: String,
    name: String,
    title: Option<String>,
    description: Option<String>,
    parameters: Vec<Parameter>,
}

#[derive(Debug, Clone, Deserialize)]
struct Parameter {
    name: String,
    description: Option<String>,
}

#[derive(Debug, Serialize)]
struct Output {
    tools: usize,
    /// Keys of the tools that were found for each question.
    answers: Vec<Vec<String>>,
    build_ms: f64,
    /// Estimated by the index.
    heap_bytes: usize,
    /// Growth of the resident memory while the index was built.
    resident_bytes: u64,
    search_p50_us: f64,
    search_p99_us: f64,
    /// Replacement of all tools of the largest server by changed ones.
    update_tools: usize,
    update_ms: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args == ["tokens"] {
        let lists: Vec<Vec<Value>> = serde_json::from_reader(std::io::stdin())?;
        let tokens: Vec<usize> = lists.iter().map(|list| list.iter().map(tokens_of).sum()).collect();
        println!("{}", serde_json::to_string(&tokens)?);
        return Ok(());
    }
    let input: Input = serde_json::from_reader(std::io::stdin())?;
    let tools = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => input.tools,
        ["scale", count] => copies(&input.tools, count.parse()?),
        _ => return Err("usage: search [scale COUNT | tokens]".into()),
    };
    // The table of synonyms is read once per process and is no part of the index.
    let _ = ToolIndex::new().search("warm up", 1, None, |_| true);
    let before = resident_bytes();
    let start = Instant::now();
    let mut index = ToolIndex::new();
    for tool in &tools {
        insert(&mut index, tool, "");
    }
    let build = start.elapsed();
    let resident_bytes = resident_bytes().saturating_sub(before);
    let heap_bytes = index.heap_bytes();
    let mut times = Vec::new();
    let mut answers = Vec::new();
    for question in &input.questions {
        let start = Instant::now();
        let hits = index.search(question, input.limit, None, |_| true);
        times.push(start.elapsed());
        answers.push(hits.into_iter().map(|hit| hit.key).collect());
    }
    times.sort_unstable();
    let at = |share: f64| {
        let place = (times.len() as f64 * share) as usize;
        times.get(place).map_or(0.0, |time| milliseconds(*time) * 1000.0)
    };
    let (update_tools, update) = update_largest(&mut index, &tools);
    let output = Output {
        tools: tools.len(),
        answers,
        build_ms: milliseconds(build),
        heap_bytes,
        resident_bytes,
        search_p50_us: at(0.5),
        search_p99_us: at(0.99),
        update_tools,
        update_ms: milliseconds(update),
    };
    println!("{}", serde_json::to_string(&output)?);
    Ok(())
}

/// Estimated tokens of a tool: of its name, description and argument schema, as the gateway counts them.
fn tokens_of(tool: &Value) -> usize {
    let given = serde_json::json!({
        "name": tool["name"],
        "description": tool["description"],
        "inputSchema": tool["inputSchema"],
    });
    estimate_tokens(&given.to_string())
}

fn insert(index: &mut ToolIndex, tool: &Tool, prefix: &str) {
    let parameters: Vec<ParameterText<'_>> = tool
        .parameters
        .iter()
        .map(|parameter| ParameterText {
            name: &parameter.name,
            description: parameter.description.as_deref(),
        })
        .collect();
    let description = tool.description.as_ref().map(|text| format!("{prefix}{text}"));
    let text = ToolText {
        server: &tool.server,
        name: &tool.name,
        title: tool.title.as_deref(),
        description: description.as_deref(),
        parameters: &parameters,
    };
    index.insert(&format!("{}/{}", tool.server, tool.name), &text);
}

/// Changes every tool of the server with the most tools, as after a `list_changed`. Returns the median time.
fn update_largest(index: &mut ToolIndex, tools: &[Tool]) -> (usize, Duration) {
    let of = |server: &str| tools.iter().filter(|tool| tool.server == server).count();
    let mut servers: Vec<&str> = tools.iter().map(|tool| tool.server.as_str()).collect();
    servers.dedup();
    let Some(largest) = servers.into_iter().max_by_key(|server| of(server)) else {
        return (0, Duration::ZERO);
    };
    let mut times: Vec<Duration> = (0..UPDATES)
        .map(|round| {
            let start = Instant::now();
            for tool in tools.iter().filter(|tool| tool.server == largest) {
                insert(index, tool, &format!("Changed{round}. "));
            }
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    (of(largest), times[UPDATES / 2])
}

/// Copies of the tools under other server names, and with words of their own, until there are enough.
fn copies(tools: &[Tool], count: usize) -> Vec<Tool> {
    let copy = |number: usize| {
        let mut tool = tools[number % tools.len()].clone();
        let round = number / tools.len();
        if round > 0 {
            tool.server = format!("{}{round}", tool.server);
            tool.description = tool.description.map(|text| format!("{text} copy{number}"));
        }
        tool
    };
    (0..count).map(copy).collect()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Resident memory of this process; 0 where `/proc` does not exist.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    resident.unwrap_or(0) * 4096
}

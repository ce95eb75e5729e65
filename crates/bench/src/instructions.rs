//! Instructions, cache lines and allocations of one small call, counted by callgrind in a gateway that runs under
//! valgrind. The counts hardly depend on the load of the machine.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::calls::{GRIPFAST, PACKAGED, SMALL};
use crate::client::{BenchRequest, Client};
use crate::options::RunOptions;
use crate::processes::{self, FIRST, Gateway, GatewayDir, Server};
use gripfast_measure::{Era, MeasureError, Result};

/// Calls before the count, so that connections are open and memory is allocated.
const WARM_UP: usize = 60;
/// Calls that are counted.
const CALLS: usize = 300;

/// The counts of one kind of call.
#[derive(Debug, Serialize)]
pub(crate) struct CallCost {
    pub(crate) case: &'static str,
    /// Build of the gateway, by its lane.
    pub(crate) build: &'static str,
    pub(crate) instructions: f64,
    /// Lines of code and data that the first-level caches did not have.
    pub(crate) cache_lines: f64,
    /// `None` for a binary without symbols, in which the allocator cannot be found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allocations: Option<f64>,
}

/// Goals of a case: instructions, cache lines, allocations.
pub(crate) struct Goals {
    pub(crate) instructions: f64,
    pub(crate) cache_lines: f64,
    pub(crate) allocations: f64,
}

/// Names of the cases, the prefix of the server's tools, the format of the answer, and the goals for instructions of a
/// release build and of a packaged one.
const CASES: [(&str, &str, bool, [f64; 2]); 4] = [
    ("modern-json", "modern__", false, [65_000.0, 50_000.0]),
    ("modern-events", "modern__", true, [75_000.0, 58_000.0]),
    ("legacy-json", "bench__", false, [60_000.0, 47_000.0]),
    ("stdio", "pipe__", false, [50_000.0, 40_000.0]),
];

/// The goals of a case for a build, if it has any.
pub(crate) fn goals(case: &str, build: &str) -> Option<Goals> {
    let (_, _, _, instructions) = *CASES.iter().find(|(name, ..)| *name == case)?;
    let [instructions, cache_lines] = match build {
        GRIPFAST => [instructions[0], 4_500.0],
        PACKAGED => [instructions[1], 3_300.0],
        _ => return None,
    };
    Some(Goals { instructions, cache_lines, allocations: 35.0 })
}

pub(crate) async fn run(options: &RunOptions) -> Result<Vec<CallCost>> {
    let mut costs = count(GRIPFAST, &options.gripfast).await?;
    for build in &options.other_builds {
        costs.extend(count(build.lane, &build.gripfast).await?);
    }
    Ok(costs)
}

async fn count(build: &'static str, gripfast: &Path) -> Result<Vec<CallCost>> {
    let (server, home) = (Server::start()?, GatewayDir::new()?);
    let config = [
        server.entry(FIRST, 2, Era::Legacy),
        server.entry("modern", 2, Era::Modern),
        processes::stdio_entry("pipe", 2)?,
    ];
    let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    valgrind.map_err(|error| MeasureError::new("valgrind (hint: install Debian's `valgrind`)", &error))?;
    let counter = Callgrind { directory: home.path() };
    let gateway = Gateway::start_with(counter.command(gripfast), &home, &config.concat())?;
    let mut costs = Vec::new();
    for (case, prefix, events, _) in CASES {
        let address = crate::client::Address { prefix, ..gateway.address.clone() };
        let mut client = Client::connect(&address, Era::Legacy).await?;
        let question = if events { BenchRequest::Stream(SMALL) } else { BenchRequest::Call(SMALL) };
        let mut ready = client.prepare(question);
        for _ in 0..WARM_UP {
            client.send(&mut ready).await?;
        }
        counter.control("--zero", &gateway)?;
        for _ in 0..CALLS {
            client.send(&mut ready).await?;
        }
        counter.control("--dump", &gateway)?;
        let counts = parse(&counter.newest_dump()?)
            .ok_or_else(|| MeasureError::new("callgrind", &"its file has an unknown format"))?;
        let each = |count: u64| count as f64 / CALLS as f64;
        costs.push(CallCost {
            case,
            build,
            instructions: each(counts.instructions),
            cache_lines: each(counts.cache_lines),
            allocations: (counts.allocations > 0).then(|| each(counts.allocations)),
        });
    }
    Ok(costs)
}

/// A gateway under callgrind, with the files of callgrind in this directory.
struct Callgrind<'a> {
    directory: &'a Path,
}

impl Callgrind<'_> {
    fn command(&self, gripfast: &Path) -> Command {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--cache-sim=yes", "--combine-dumps=no"]);
        command.arg(format!("--callgrind-out-file={}", self.directory.join("callgrind").display()));
        command.arg(format!("--vgdb-prefix={}", self.directory.join("vgdb").display()));
        command.arg(gripfast);
        command
    }

    fn control(&self, verb: &str, gateway: &Gateway) -> Result<()> {
        let mut control = Command::new("callgrind_control");
        control.arg(format!("--vgdb-prefix={}", self.directory.join("vgdb").display())).arg(verb);
        control.args(gateway.pids().iter().map(u32::to_string)).stdin(Stdio::null());
        let output = control.output().map_err(|error| MeasureError::new("callgrind_control", &error))?;
        if output.status.success() && String::from_utf8_lossy(&output.stdout).contains("OK.") {
            return Ok(());
        }
        Err(MeasureError::new("callgrind_control", &String::from_utf8_lossy(&output.stderr)))
    }

    /// Dumps have numbers: `callgrind.1`, `callgrind.2`.
    fn newest_dump(&self) -> Result<String> {
        let numbers = std::fs::read_dir(self.directory)?.filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_prefix("callgrind.")?.parse::<u32>().ok()
        });
        let newest = numbers.max().ok_or_else(|| MeasureError::new("callgrind", &"it wrote no file"))?;
        Ok(std::fs::read_to_string(self.directory.join(format!("callgrind.{newest}")))?)
    }
}

/// Sums of one file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    instructions: u64,
    cache_lines: u64,
    allocations: u64,
}

/// Functions of the allocator that return new memory.
const ALLOCATING: [&str; 4] = ["mi_malloc", "mi_zalloc", "mi_realloc", "mi_calloc"];

/// Reads a file of callgrind. A name is `(number) name` where it occurs first, and `(number)` later.
fn parse(text: &str) -> Option<Counts> {
    let mut counts = Counts::default();
    let mut names: HashMap<&str, &str> = HashMap::new();
    let (mut events, mut totals): (Vec<&str>, Vec<u64>) = (Vec::new(), Vec::new());
    let (mut caller, mut called) = ("", "");
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("events:") {
            events = words.split_whitespace().collect();
        } else if let Some(words) = line.strip_prefix("totals:").or(line.strip_prefix("summary:")) {
            totals = words.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        } else if let Some(name) = line.strip_prefix("fn=") {
            caller = resolve(&mut names, name);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            called = resolve(&mut names, name);
        } else if let Some(call) = line.strip_prefix("calls=") {
            let is_allocation = ALLOCATING.iter().any(|start| called.starts_with(start));
            if is_allocation && !caller.starts_with("mi_") && !caller.starts_with("_mi_") {
                counts.allocations += call.split_whitespace().next()?.parse::<u64>().ok()?;
            }
        }
    }
    let total = |event: &str| events.iter().position(|name| *name == event).and_then(|at| totals.get(at));
    counts.instructions = *total("Ir")?;
    counts.cache_lines = ["I1mr", "D1mr", "D1mw"].iter().filter_map(|event| total(event)).sum();
    Some(counts)
}

fn resolve<'a>(names: &mut HashMap<&'a str, &'a str>, word: &'a str) -> &'a str {
    match word.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names.get(word).copied().unwrap_or(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_counted_once_and_names_are_resolved() {
        let text = "events: Ir Dr Dw I1mr D1mr D1mw\n\
                    fn=(1) main\n10 5\ncfn=(2) mi_malloc_aligned\ncalls=3 0\n10 40 1 1 1 1 1\n\
                    fn=(2)\ncfn=(3) mi_malloc\ncalls=3 0\n10 20\n\
                    fn=(4) other\ncfn=(2)\ncalls=2 0\n10 20\ncfn=(5) mi_free\ncalls=9 0\n1 1\n\
                    totals: 700 10 20 3 4 5\n";
        let counts = parse(text).expect("a known format");
        assert_eq!(counts, Counts { instructions: 700, cache_lines: 12, allocations: 5 });
        assert_eq!(parse("nothing of that"), None);
    }
}

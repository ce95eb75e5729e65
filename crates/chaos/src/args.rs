//! Command-line arguments.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::fault::{FAULTS, Fault, RunLength, Transport};
use crate::gateway::{Peer, Subject, ToolAccess};
use crate::plan::PlannedRow;
use crate::replicas::fault::{REPLICA_FAULTS, ReplicaFault};
use crate::row::{Progress, RunOptions};

/// Breaks servers behind a live gateway and counts the calls that its clients lose.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask chaos",
    after_help = "\
Times depend on this machine and this run: compare them with each other and with the server's own start-up, not with \
another run. Counts do not depend on the machine. The exit code is 1 if a count violates its limit.

A run takes about five minutes. Rows with a timing goal run alone, the others four at a time. With --write the page is \
written after every row, so that an interrupted run keeps its results.

With --long each fault lasts as long as in practice, and quick faults are repeated a thousand times. A row ends after \
five minutes (the column `strikes` has the number of strikes); a run takes about an hour.

With --against the same faults are applied to another gateway after gripfast. A shell runs COMMAND for each of them; \
`{config}` in it stands for a file with `mcpServers`, in which the one server is called `demo`, and `{port}`, also in \
the URL, for a free port. The other gateway gets ten calls a second and has the machine to itself in each row; a fault \
is not repeated if tools are not back after 20 s:
  cargo xtask chaos --against 'mcp-proxy --port {port} --named-server-config {config}' \\
      --url http://127.0.0.1:{port}/servers/demo/mcp --fault killed-idle --fault killed-in-call

Faults: `cargo xtask chaos --list`"
)]
pub struct Args {
    /// Run only this fault; can be repeated
    #[arg(long, value_name = "NAME", value_parser = fault)]
    fault: Vec<&'static str>,
    /// Run the faults of a service of three replicas instead; a fault of that list implies it
    #[arg(long, conflicts_with_all = ["against", "transport", "search"])]
    replicas: bool,
    /// Call every tool through `call_tool`, with `exposure = "search"`
    #[arg(long, conflicts_with = "against")]
    search: bool,
    /// Run only over this transport: stdio, http or sse
    #[arg(long, value_name = "T")]
    transport: Option<Transport>,
    /// Seed for the start times of calls
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of strikes per fault
    #[arg(long, value_name = "N")]
    repeats: Option<usize>,
    /// Use waits as long as in practice and up to a thousand strikes
    #[arg(long)]
    long: bool,
    /// Command of another gateway to compare with gripfast
    #[arg(long, value_name = "COMMAND", requires = "url")]
    against: Option<String>,
    /// URL at which the other gateway serves Streamable HTTP
    #[arg(long, requires = "against")]
    url: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Also write the report to this file, as Markdown
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Measure only the figures that need several servers or clients: an expiring session, one flapping server among
    /// many, and hostile clients and servers beside honest ones
    #[arg(long)]
    pub figures: bool,
    /// List the faults and exit
    #[arg(long)]
    pub list: bool,
    /// Path of the gripfast binary
    #[arg(long, value_name = "PATH", default_value = "target/release/gripfast")]
    gripfast: PathBuf,
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Tables.
    Text,
    /// One JSON object.
    Json,
}

fn fault(name: &str) -> Result<&'static str, String> {
    let of_servers = FAULTS.iter().map(|fault| fault.name);
    let names: Vec<&str> = of_servers.chain(REPLICA_FAULTS.iter().map(|fault| fault.name)).collect();
    let known = names.iter().copied().find(|known| *known == name);
    known.ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

impl Args {
    /// Options of the run.
    #[must_use]
    pub fn run_options(&self) -> RunOptions {
        // Some commands run in a directory of their own.
        let gripfast = std::path::absolute(&self.gripfast).unwrap_or_else(|_| self.gripfast.clone());
        let access = if self.search { ToolAccess::Search } else { ToolAccess::Listed };
        RunOptions {
            subject: Subject { gripfast, peer: None, access },
            length: if self.long { RunLength::Long } else { RunLength::Ordinary },
            repeats: self.repeats,
            seed: self.seed,
            progress: Progress::default(),
        }
    }

    /// Gateway to compare with.
    #[must_use]
    pub fn peer(&self) -> Option<Peer> {
        self.against.clone().zip(self.url.clone()).map(|(command, url)| Peer { command, url })
    }

    /// Planned rows (fault and transport), in the order of the table.
    #[must_use]
    pub fn plan(&self) -> Vec<PlannedRow> {
        if !self.plan_of_replicas().is_empty() {
            return Vec::new();
        }
        let wanted = |fault: &&Fault| self.fault.is_empty() || self.fault.contains(&fault.name);
        let fits = |transport: &&Transport| self.transport.is_none_or(|wanted| wanted == **transport);
        let parts = FAULTS.iter().filter(|_| !self.figures).filter(wanted).flat_map(|fault| {
            fault
                .transports
                .iter()
                .filter(fits)
                .map(move |transport| PlannedRow { fault, transport: *transport })
        });
        parts.collect()
    }

    /// Faults of a service of replicas, in the order of the table. If there is one, no other fault runs.
    #[must_use]
    pub fn plan_of_replicas(&self) -> Vec<&'static ReplicaFault> {
        let wanted = |fault: &&ReplicaFault| match self.fault.is_empty() {
            true => self.replicas,
            false => self.fault.contains(&fault.name),
        };
        REPLICA_FAULTS.iter().filter(wanted).collect()
    }

    /// True if the run has no filter, so that all figures can be computed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.fault.is_empty() && self.transport.is_none()
    }
}

//! Command-line arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::calls::{BEFORE, BEFORE_TO_PIPE, PACKAGED, PACKAGED_TO_PIPE};
use crate::options::{OtherBuild, RunOptions, Size};
use crate::processes;
use gripfast_measure::Result;

/// Measures the cost of gripfast in latency, CPU time and memory, compared with nginx in front of the same server and
/// with a plain pipe.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask bench",
    after_help = "\
Compare ratios, whose parts are measured interleaved in one run; times depend on this machine. A full run takes about \
nine minutes, with --quick about three.

With --against, a shell runs COMMAND; `{url}` in it stands for the URL of the test server, `{config}` for a file with \
`mcpServers` in which that server is called `bench`:
  cargo xtask bench calls --against 'some-gateway --config {config} --port 9000' --url http://127.0.0.1:9000/mcp

nginx must be installed; Debian's `nginx-light` is enough. The part `instructions` needs valgrind, the part `replicas` \
a store that `cargo xtask test` installs, or `valkey-server` or `redis-server` in PATH. It is measured only if it is \
named, and takes about five minutes:
  cargo xtask bench replicas --write docs/performance-replicas.md"
)]
pub(crate) struct Args {
    /// Parts to measure [default: all but `replicas`]
    #[arg(value_enum, value_name = "PART")]
    parts: Vec<Part>,
    /// Measure fewer cases, with less time for each
    #[arg(long)]
    quick: bool,
    /// Measure for a minimal time, to check that the program works
    #[arg(long, hide = true)]
    tiny: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// Command of another gateway to measure as well
    #[arg(long, value_name = "COMMAND", requires = "url")]
    against: Option<String>,
    /// URL at which the other gateway serves Streamable HTTP
    #[arg(long, requires = "against")]
    url: Option<String>,
    /// Another build of gripfast to compare with, such as the one before a change
    #[arg(long, value_name = "PATH")]
    before: Option<PathBuf>,
    /// The binary of a package, to compare it with its own goals
    #[arg(long, value_name = "PATH")]
    packaged: Option<PathBuf>,
    /// Update the measured sections of this page, and the plots beside it
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Path of the gripfast binary
    #[arg(long, value_name = "PATH", default_value = "target/release/gripfast")]
    gripfast: PathBuf,
    /// Serve as load for a profile-guided build, and measure nothing
    #[arg(long, hide = true)]
    pub(crate) train: bool,
    /// Run the test server over HTTP
    #[arg(long, hide = true)]
    pub(crate) serve_http: bool,
    /// Run the test server over stdio, with this many tools
    #[arg(long, hide = true, value_name = "TOOLS")]
    pub(crate) serve_pipes: Option<usize>,
}

/// A part of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Latency, throughput and CPU time of calls
    Calls,
    /// Listing of 200 tools
    Lists,
    /// Time from exec to the first complete list
    Startup,
    /// With and without ledger, audit log and a reader of metrics
    Observing,
    /// Instructions, cache lines and allocations of a call, counted by valgrind
    Instructions,
    /// Cost of many sessions, streams, servers and tools
    Scale,
    /// Several gateways as one service on a store; only if it is named
    Replicas,
}

impl Part {
    pub(crate) const ALL: [Self; 7] = [
        Self::Calls,
        Self::Instructions,
        Self::Lists,
        Self::Startup,
        Self::Observing,
        Self::Scale,
        Self::Replicas,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Lists => "lists",
            Self::Startup => "startup",
            Self::Observing => "observing",
            Self::Instructions => "instructions",
            Self::Scale => "scale",
            Self::Replicas => "replicas",
        }
    }
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

impl Args {
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part> {
        // Replicas have a page of their own.
        let is_default = |part: &Part| self.parts.is_empty() && *part != Part::Replicas;
        Part::ALL.into_iter().filter(move |part| is_default(part) || self.parts.contains(part))
    }

    pub(crate) fn run_options(&self) -> Result<RunOptions> {
        let (size, repeats, slice) = match (self.tiny, self.quick) {
            (true, _) => (Size::Tiny, 1, 20),
            (false, true) => (Size::Quick, 5, 150),
            (false, false) => (Size::Whole, 9, 200),
        };
        let builds = [(BEFORE, BEFORE_TO_PIPE, &self.before), (PACKAGED, PACKAGED_TO_PIPE, &self.packaged)];
        let other_builds = builds.into_iter().filter_map(|(lane, lane_to_pipe, path)| {
            let gripfast = processes::gripfast(path.as_deref()?);
            Some(gripfast.map(|gripfast| OtherBuild { lane, lane_to_pipe, gripfast }))
        });
        Ok(RunOptions {
            gripfast: processes::gripfast(&self.gripfast)?,
            other_builds: other_builds.collect::<Result<_>>()?,
            other: self.against.clone().zip(self.url.clone()),
            repeats,
            slice: Duration::from_millis(slice),
            size,
        })
    }
}

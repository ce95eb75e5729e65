//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::order::{Order, Size};
use crate::{Result, stage};

/// Measures what gripfast costs: time, processor and memory, beside nginx in front of the same server and beside a
/// bare pipe.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask bench",
    after_help = "\
What counts are ratios of figures that were taken in one run, in turns; times belong to this machine. A whole run takes \
about seven minutes, with --quick about three.

With --against, COMMAND is run by a shell; `{url}` in it stands for the URL of the server behind, `{config}` for a file \
with `mcpServers` in which that server is called `bench`:
  cargo xtask bench calls --against 'some-gateway --config {config} --port 9000' --url http://127.0.0.1:9000/mcp

nginx has to be there; Debian's `nginx-light` has all that is needed."
)]
pub(crate) struct Args {
    /// What to measure [default: everything]
    #[arg(value_enum, value_name = "PART")]
    parts: Vec<Part>,
    /// Fewer cases, less time for each
    #[arg(long)]
    quick: bool,
    /// Hardly any time for each, to see that it works
    #[arg(long, hide = true)]
    tiny: bool,
    /// What to print
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// Another gateway beside ours
    #[arg(long, value_name = "COMMAND", requires = "url")]
    against: Option<String>,
    /// Where the other gateway serves Streamable HTTP
    #[arg(long, requires = "against")]
    url: Option<String>,
    /// Another build of gripfast beside this one, such as the one before a change
    #[arg(long, value_name = "PATH")]
    before: Option<PathBuf>,
    /// Renew the sections of this page that were measured, and the plots beside it
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Our binary
    #[arg(long, value_name = "PATH", default_value = "target/release/gripfast")]
    gripfast: PathBuf,
    /// Be the server behind, over HTTP
    #[arg(long, hide = true)]
    pub(crate) serve_http: bool,
    /// Be the server behind, on our own pipes, with so many tools
    #[arg(long, hide = true, value_name = "TOOLS")]
    pub(crate) serve_pipes: Option<usize>,
}

/// A part of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Time, throughput and processor of calls
    Calls,
    /// A list of 200 tools
    Lists,
    /// From exec to the first list
    Startup,
    /// With ledger, audit log and a reader of metrics, and without
    Observing,
    /// Sessions, streams, upstreams, tools: what many of them cost
    Scale,
}

impl Part {
    pub(crate) const ALL: [Self; 5] = [Self::Calls, Self::Lists, Self::Startup, Self::Observing, Self::Scale];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Lists => "lists",
            Self::Startup => "startup",
            Self::Observing => "observing",
            Self::Scale => "scale",
        }
    }
}

/// What to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

impl Args {
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part> {
        Part::ALL.into_iter().filter(|part| self.parts.is_empty() || self.parts.contains(part))
    }

    pub(crate) fn order(&self) -> Result<Order> {
        let (size, repeats, slice) = match (self.tiny, self.quick) {
            (true, _) => (Size::Tiny, 1, 20),
            (false, true) => (Size::Quick, 5, 150),
            (false, false) => (Size::Whole, 7, 200),
        };
        Ok(Order {
            gripfast: stage::gripfast(&self.gripfast)?,
            before: self.before.as_deref().map(stage::gripfast).transpose()?,
            other: self.against.clone().zip(self.url.clone()),
            repeats,
            slice: Duration::from_millis(slice),
            size,
        })
    }
}

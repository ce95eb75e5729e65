//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::fault::{FAULTS, Fault, Form, Transport};
use crate::gateway::{Peer, Subject};
use crate::plan::Part;
use crate::row::{Order, Progress};

/// Breaks servers under a live gateway, in every way we know, and counts what its clients lose.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask chaos",
    after_help = "\
Times are of this machine and this run: compare them with each other and with the server's own start-up, not with \
another run. Counts hold everywhere. The exit code is 1 if one of them is not what it must be.

A run takes about five minutes. Rows that a promised time is read from run alone, the others four at a time. With \
--write the page is written after every row, so that a run that is broken off leaves what it has.

With --long each fault lasts as long as it is known for, and what is quick strikes a thousand times. No row goes on \
for more than five minutes (the column `times` says how often it struck), and a run for about an hour.

With --against the same faults strike another gateway too, after ours. COMMAND is run by a shell for each of them; \
`{config}` in it stands for a file with `mcpServers`, in which the one server is called `demo`, and `{port}`, in the \
URL too, for a free port. It is called ten times a second and has the machine to itself in each row; tools that are \
not back after 20 s are given up for that fault:
  cargo xtask chaos --against 'mcp-proxy --port {port} --named-server-config {config}' \\
      --url http://127.0.0.1:{port}/servers/demo/mcp --fault killed-idle --fault killed-in-call

Faults: `cargo xtask chaos --list`"
)]
pub struct Args {
    /// Only this fault; may be given several times
    #[arg(long, value_name = "NAME", value_parser = fault)]
    fault: Vec<&'static Fault>,
    /// Only over stdio, http or sse
    #[arg(long, value_name = "T")]
    transport: Option<Transport>,
    /// Decides when calls begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How often each fault strikes
    #[arg(long, value_name = "N")]
    repeats: Option<usize>,
    /// With waits as long as the faults are known for, and up to a thousand repeats
    #[arg(long)]
    long: bool,
    /// Another gateway, to compare with ours
    #[arg(long, value_name = "COMMAND", requires = "url")]
    against: Option<String>,
    /// Where the other gateway serves Streamable HTTP
    #[arg(long, requires = "against")]
    url: Option<String>,
    /// What to print
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Write the report here as well, as Markdown
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Only the figures that no single fault shows: an expiring session, one of many servers that flaps, and hostile
    /// clients and servers beside honest ones
    #[arg(long)]
    pub figures: bool,
    /// List the faults and end
    #[arg(long)]
    pub list: bool,
    /// Our binary
    #[arg(long, value_name = "PATH", default_value = "target/release/gripfast")]
    gripfast: PathBuf,
}

/// What to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Tables.
    Text,
    /// One JSON object.
    Json,
}

fn fault(name: &str) -> Result<&'static Fault, String> {
    Fault::named(name).ok_or_else(|| {
        let names: Vec<&str> = FAULTS.iter().map(|fault| fault.name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

impl Args {
    /// What is to be run.
    #[must_use]
    pub fn order(&self) -> Order {
        Order {
            subject: Subject { gripfast: self.gripfast.clone(), peer: None },
            form: if self.long { Form::Long } else { Form::Ordinary },
            repeats: self.repeats,
            seed: self.seed,
            progress: Progress::default(),
        }
    }

    /// The gateway to compare with.
    #[must_use]
    pub fn peer(&self) -> Option<Peer> {
        self.against.clone().zip(self.url.clone()).map(|(command, url)| Peer { command, url })
    }

    /// Faults and transports, in the order of the table.
    #[must_use]
    pub fn plan(&self) -> Vec<Part> {
        let wanted = |fault: &&Fault| {
            self.fault.is_empty() || self.fault.iter().any(|wanted| wanted.name == fault.name)
        };
        let fits = |transport: &&Transport| self.transport.is_none_or(|wanted| wanted == **transport);
        let parts = FAULTS.iter().filter(|_| !self.figures).filter(wanted).flat_map(|fault| {
            fault.transports.iter().filter(fits).map(move |transport| Part { fault, transport: *transport })
        });
        parts.collect()
    }

    /// Whether everything is run, and the figures can be drawn up.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.fault.is_empty() && self.transport.is_none()
    }
}

//! What may be typed after the verbs that use tools, and that look back at it.

use super::{Meant, Output};
use crate::cli::duration;
use clap::Args;
use gripfast::ledger::Query;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(mut_arg("url", |url| url.conflicts_with("config")))]
#[command(after_help = "\
Asks the gateway that runs. With --config no gateway is needed: the servers of that file are started, asked \
what they offer, and stopped again. A server that fails becomes an error row and the others are still \
listed. The exit code is 0 unless every server failed; 4 if there is no gateway.

Examples:
  gripfast tools
  gripfast tools github
  gripfast tools github create_issue
  gripfast tools --config gripfast.toml
  gripfast tools -o json | jq -r '.servers[].tools[]?.name'")]
pub(crate) struct ToolsArgs {
    /// Only this server
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,

    /// Only this tool of it, with its whole description and the schema of its arguments
    #[arg(value_name = "TOOL")]
    pub(crate) tool: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,

    /// How long a server may take to start and to list its tools; with --config
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "15s")]
    pub(crate) wait: Duration,

    #[command(flatten)]
    pub(crate) gateway: Meant,
}

#[derive(Debug, Args)]
#[command(mut_arg("url", |url| url.conflicts_with("config")))]
#[command(after_help = "\
Asks the gateway that runs. With --config no gateway is needed: the servers of that file are started, asked, and \
stopped again. Text is printed as it is, other content is described in a line. With `-o json` a resource is printed \
as the server sent it.

Examples:
  gripfast resources
  gripfast resources demo
  gripfast resources demo demo://greeting")]
pub(crate) struct ResourcesArgs {
    /// Only this server
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,

    /// Read this resource of it, by the server's own URI
    #[arg(value_name = "URI")]
    pub(crate) uri: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,

    /// How long a server may take to start and to list its resources; with --config
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "15s")]
    pub(crate) wait: Duration,

    #[command(flatten)]
    pub(crate) gateway: Meant,
}

#[derive(Debug, Args)]
#[command(mut_arg("url", |url| url.conflicts_with("config")))]
#[command(after_help = "\
Asks the gateway that runs. With --config no gateway is needed: the servers of that file are started, asked, and \
stopped again. With `-o json` a prompt is printed as the server sent it.

Examples:
  gripfast prompts
  gripfast prompts demo
  gripfast prompts demo greet name=Ann")]
pub(crate) struct PromptsArgs {
    /// Only this server
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,

    /// Get this prompt of it, by the server's own name
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,

    /// The arguments of the prompt, each as KEY=VALUE
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) arguments: Vec<String>,

    #[command(flatten)]
    pub(crate) output: Output,

    /// How long a server may take to start and to list its prompts; with --config
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "15s")]
    pub(crate) wait: Duration,

    #[command(flatten)]
    pub(crate) gateway: Meant,
}

#[derive(Debug, Args)]
#[command(mut_arg("url", |url| url.conflicts_with("config")))]
#[command(after_help = "\
Asks the gateway that runs. With --config no gateway is needed: the server of that file is started, called, \
and stopped again. Text is printed as it is, other content is described in a line. With `-o json` the result \
is printed as it came, byte for byte, and a failure as {\"error\":{\"code\":…,\"text\":…}}.

Exit codes: 0 the tool answered, 5 it answered with an error, 4 it or the gateway could not be reached or did \
not answer in time, 3 a login is needed, 6 the config denies it.

In KEY=VALUE a value that is JSON is taken as JSON, and any other as text; a value for an argument that the tool's \
schema has as text is text in any case. `gripfast tools SERVER TOOL` shows the schema.

At a terminal, forms that the server wants filled in are asked for field by field. Elsewhere the server is told \
that nobody can be asked.

A call that was sent and not answered is sent once more only where that does no harm: the tool is known as \
read-only or idempotent, or the config names it in `replay.safe`. Any other is never sent twice.

Examples:
  gripfast call demo add a=1 b=2
  gripfast call demo echo '{\"text\": \"hello\"}'
  gripfast call demo echo @arguments.json
  gripfast call --config gripfast.toml demo echo '{\"text\": \"hello\"}'
  jq -n '{text: \"hello\"}' | gripfast call demo echo - -o json")]
pub(crate) struct CallArgs {
    /// The server, by its name in the config
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,

    /// The tool, by the server's own name for it
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,

    /// The arguments: KEY=VALUE words, or a JSON object, `@FILE`, or `-` for stdin [default: none]
    #[arg(value_name = "ARGUMENT", allow_negative_numbers = true)]
    pub(crate) arguments: Vec<String>,

    /// Accept the forms that the server wants filled in, with their own defaults; with --config
    #[arg(long, requires = "config")]
    pub(crate) accept_defaults: bool,

    /// How long to wait for the server to be ready; with --config [default: its `timeouts.reconnect_wait`]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "config")]
    pub(crate) wait: Option<Duration>,

    #[command(flatten)]
    pub(crate) output: Output,

    #[command(flatten)]
    pub(crate) gateway: Meant,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Outcomes: done, failed (the server said so), refused (the server turned it away before acting), not sent (the \
server never saw it), unknown (it was sent, and nobody knows whether the server acted), in flight.

A running gateway is asked. If none listens at the default address, or with --state-dir alone, the ledger in \
the state directory is read; of the calls that were under way when their gateway was killed it says `unknown`. \
Arguments are there as a SHA-256 of what the caller wrote, unless `gateway.ledger` says otherwise.

Exit codes: 0 the calls are shown, also if there are none; 4 there is no gateway at --url.

Examples:
  gripfast calls
  gripfast calls --unknown --since 1h
  gripfast calls --server github -o json | jq -r '.calls[] | select(.outcome == \"unknown\") | .id'")]
pub(crate) struct CallsArgs {
    /// Only those of which nobody knows whether they were carried out
    #[arg(long)]
    pub(crate) unknown: bool,

    /// Only those of this server
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,

    /// Only those that came in the last so much time
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) since: Option<Duration>,

    /// The newest so many, up to 1000
    #[arg(long, value_name = "NUMBER", value_parser = limit, default_value_t = Query::USUAL)]
    pub(crate) limit: usize,

    #[command(flatten)]
    pub(crate) output: Output,

    #[command(flatten)]
    pub(crate) gateway: Meant,
}

fn limit(typed: &str) -> Result<usize, String> {
    let limit = typed.parse().ok().filter(|limit| *limit <= Query::MOST);
    limit.ok_or_else(|| format!("expected a number up to {}", Query::MOST))
}

//! Arguments of the commands that list and call tools, resources and prompts, and that show past calls.

use super::{GatewayTarget, OutputArgs};
use crate::cli::duration;
use clap::Args;
use gripfast::ledger::Query;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(mut_arg("url", |url| url.conflicts_with("config")))]
#[command(after_help = "\
Asks the running gateway. With --config no gateway is needed: the servers of that file are started, listed, and \
stopped again. A server that fails becomes an error row, and the others are still listed. The exit code is 0 unless \
every server failed; 4 if there is no gateway.

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

    /// Only this tool, with its full description and the schema of its arguments
    #[arg(value_name = "TOOL")]
    pub(crate) tool: Option<String>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Time limit for a server to start and to list its tools; with --config
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "15s")]
    pub(crate) wait: Duration,

    #[command(flatten)]
    pub(crate) gateway: GatewayTarget,
}

#[derive(Debug, Args)]
#[command(mut_arg("url", |url| url.conflicts_with("config")))]
#[command(after_help = "\
Asks the running gateway. With --config no gateway is needed: the servers of that file are started, asked, and \
stopped again. Text is printed as it is; other content is described in one line. With `-o json` a resource is printed \
as the server sent it.

Examples:
  gripfast resources
  gripfast resources demo
  gripfast resources demo demo://greeting")]
pub(crate) struct ResourcesArgs {
    /// Only this server
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,

    /// Read this resource, by the server's own URI
    #[arg(value_name = "URI")]
    pub(crate) uri: Option<String>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Time limit for a server to start and to list its resources; with --config
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "15s")]
    pub(crate) wait: Duration,

    #[command(flatten)]
    pub(crate) gateway: GatewayTarget,
}

#[derive(Debug, Args)]
#[command(mut_arg("url", |url| url.conflicts_with("config")))]
#[command(after_help = "\
Asks the running gateway. With --config no gateway is needed: the servers of that file are started, asked, and \
stopped again. With `-o json` a prompt is printed as the server sent it.

Examples:
  gripfast prompts
  gripfast prompts demo
  gripfast prompts demo greet name=Ann")]
pub(crate) struct PromptsArgs {
    /// Only this server
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,

    /// Get this prompt, by the server's own name
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,

    /// Arguments of the prompt, each as KEY=VALUE
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) arguments: Vec<String>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Time limit for a server to start and to list its prompts; with --config
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "15s")]
    pub(crate) wait: Duration,

    #[command(flatten)]
    pub(crate) gateway: GatewayTarget,
}

#[derive(Debug, Args)]
#[command(mut_arg("url", |url| url.conflicts_with("config")))]
#[command(after_help = "\
Asks the running gateway. With --config no gateway is needed: the server of that file is started, called, and stopped \
again. Text is printed as it is; other content is described in one line. With `-o json` the result is printed as it \
came, byte for byte, and a failure as {\"error\":{\"code\":…,\"text\":…}}.

Exit codes: 0 the tool answered, 5 it answered with an error, 4 the server or the gateway was unreachable or did not \
answer in time, 3 a login is needed, 6 the config denies the call.

In KEY=VALUE, a value that is valid JSON is sent as JSON, and any other value as text. An argument that the tool's \
schema declares as a string is always sent as text. `gripfast tools SERVER TOOL` shows the schema.

At a terminal, gripfast prompts for each field of a form that the server sends (elicitation). Without a terminal, the \
server learns that forms cannot be answered.

A call that was sent but not answered is repeated once, and only if that is safe: the tool is read-only or idempotent, \
or the config lists it in `replay.safe`. Any other call is never sent twice.

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

    /// The tool, by the server's own name
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,

    /// Arguments: KEY=VALUE words, a JSON object, `@FILE`, or `-` for stdin [default: none]
    #[arg(value_name = "ARGUMENT", allow_negative_numbers = true)]
    pub(crate) arguments: Vec<String>,

    /// Accept forms that the server sends, with their default values; with --config
    #[arg(long, requires = "config")]
    pub(crate) accept_defaults: bool,

    /// Time limit for the server to become ready; with --config [default: its `timeouts.reconnect_wait`]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "config")]
    pub(crate) wait: Option<Duration>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    #[command(flatten)]
    pub(crate) gateway: GatewayTarget,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Outcomes: done, failed (the server answered with an error), refused (the server rejected the call before acting), not \
sent (the server never received it), unknown (it was sent, and it is not known whether the server acted), in flight.

Asks the running gateway. If none listens at the default address, or with --state-dir alone, the command reads the \
ledger in the state directory; calls that were in flight when their gateway was killed are `unknown` there. Arguments \
are recorded as a SHA-256 digest of the caller's text, unless `gateway.ledger` says otherwise.

Exit codes: 0 the calls are shown, even if there are none; 4 there is no gateway at --url.

Examples:
  gripfast calls
  gripfast calls --unknown --since 1h
  gripfast calls --server github -o json | jq -r '.calls[] | select(.outcome == \"unknown\") | .id'")]
pub(crate) struct CallsArgs {
    /// Only calls with an unknown outcome
    #[arg(long)]
    pub(crate) unknown: bool,

    /// Only calls to this server
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,

    /// Only calls started within this duration
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) since: Option<Duration>,

    /// Number of newest calls to show, up to 1000
    #[arg(long, value_name = "NUMBER", value_parser = limit, default_value_t = Query::DEFAULT_LIMIT)]
    pub(crate) limit: usize,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    #[command(flatten)]
    pub(crate) gateway: GatewayTarget,
}

fn limit(typed: &str) -> Result<usize, String> {
    let limit = typed.parse().ok().filter(|limit| *limit <= Query::MAX_LIMIT);
    limit.ok_or_else(|| format!("expected a number up to {}", Query::MAX_LIMIT))
}

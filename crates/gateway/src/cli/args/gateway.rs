//! Arguments of the commands that inspect a running gateway and operate its servers.

use super::{GatewayTarget, OutputArgs};
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
States: ● ready, ○ idle (starts on first use), ◐ starting, ◍ degraded, ↻ reconnecting, ✗ parked (retried slowly) or \
config error, ! needs login, ‖ needs approval, ■ stopped, ⊘ disabled. A number of tools with a star is from the last \
time the server was listed. CALLS, ERR and RESTARTS count since the gateway started.

Exit codes: 0 the gateway answered, whatever the state of its servers; 1 it has no server of that name; 4 there is no \
gateway. With --watch the page is redrawn every second; in a file or a pipe, each change is written as one line.

Examples:
  gripfast status
  gripfast status github --watch
  gripfast status -o json | jq -r '.upstreams[] | select(.state != \"ready\") | .name'")]
pub(crate) struct StatusArgs {
    /// Only this server, with its last events and its stderr
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Refresh until Ctrl-C
    #[arg(short, long)]
    pub(crate) watch: bool,

    #[command(flatten)]
    pub(crate) gateway: GatewayTarget,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The command does not wait until the action is complete; `gripfast status NAME --watch` shows the progress. It reaches \
the gateway through the socket in the state directory and sends the admin token from there. If the gateway uses another \
config than this command, name its state directory with --state-dir.

Exit codes: 0 the gateway accepted the command, 1 it has no such server, 4 there is no gateway, or none with this state \
directory, 6 the admin token is wrong.")]
pub(crate) struct OperateArgs {
    /// The server, by its name in the config
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    #[command(flatten)]
    pub(crate) gateway: GatewayTarget,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without a NAME, the gateway reads its config file now instead of within seconds, and reports what it changed. With a \
NAME, that server forgets its failures and gets a new connection, which is opened before the old one is closed; the \
config is not read.

The command reaches the gateway through the socket in the state directory and sends the admin token from there. If the \
gateway uses another config than this command, name its state directory with --state-dir.

Exit codes: 0 done, 1 the gateway has no such server or no config file, 2 the config was refused or has an error, 4 \
there is no gateway, or none with this state directory, 6 the admin token is wrong.")]
pub(crate) struct ReloadArgs {
    /// The server, by its name in the config [default: the whole config]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    #[command(flatten)]
    pub(crate) gateway: GatewayTarget,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The gateway keeps the last 200 lines of each server, including lines of a process that has died. A server that is \
reached over HTTP has none. With `-o json` each line is an object: `server`, `number`, `text`.")]
pub(crate) struct LogsArgs {
    /// The server, by its name in the config
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// Print new lines as they come, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// Number of last lines to begin with
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 200)]
    pub(crate) lines: usize,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    #[command(flatten)]
    pub(crate) gateway: GatewayTarget,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The gateway keeps the last twenty events of each server, and of itself. With --follow, new events are printed as they \
happen; if the gateway goes away, the command waits for it. With `-o json` each event is an object as in the gateway's \
API: `at` (milliseconds since the Unix epoch), `server`, `kind`, `text`, and the fields of its kind.

Examples:
  gripfast events -f
  gripfast events github -o json | jq -r 'select(.kind == \"restarting\") | .at'")]
pub(crate) struct EventsArgs {
    /// Only events of this server
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Print new events as they happen, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    #[command(flatten)]
    pub(crate) gateway: GatewayTarget,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Prints a link and, at a terminal, opens it in a browser ($BROWSER, else the desktop's default). The link works once, \
within 60 s. It holds a one-time code and never the admin token. The browser stays signed in for at most 12 hours, or \
until its tab is closed, the gateway ends or `gripfast token rotate` replaces the token.

Exit codes: 0 the link was created, 4 there is no gateway, or none with this state directory, 6 the admin token is wrong.

Examples:
  gripfast dashboard
  gripfast dashboard --no-open")]
pub(crate) struct DashboardArgs {
    /// Print the link without opening a browser
    #[arg(long)]
    pub(crate) no_open: bool,

    #[command(flatten)]
    pub(crate) gateway: GatewayTarget,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Asks the running gateway. The config needs a table `cluster`. FORWARDS/S are the requests that a replica passes to \
others, STORE is the round trip of its heartbeat. Warnings tell of a store that is unreachable, of lost replicas, and of \
replicas with another config or version.

Exit codes: 0 the replicas are shown; 1 the gateway runs alone; 4 there is no gateway at --url.

Examples:
  gripfast replicas
  gripfast replicas -o json | jq -r '.[] | select(.self) | .name'")]
pub(crate) struct ReplicasArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayTarget,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

//! What may be typed after the verbs that look at a running gateway and operate its servers.

use super::{Meant, Output};
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
States: ● ready, ○ idle (starts on first use), ◐ starting, ◍ degraded, ↻ reconnecting, ✗ parked (tried again \
slowly) or config error, ! needs login, ‖ needs approval, ■ stopped, ⊘ disabled. A number of tools with a \
star is from when the server was last seen. CALLS, ERR and RESTARTS count since the gateway started.

The exit code is 0 whenever the gateway answers, however its servers do; 4 if there is no gateway, 1 if it \
has no server of that name. With --watch a page is drawn anew every second; into a file or a pipe a line is \
written for every change.

Examples:
  gripfast status
  gripfast status github --watch
  gripfast status -o json | jq -r '.upstreams[] | select(.state != \"ready\") | .name'")]
pub(crate) struct StatusArgs {
    /// Only this server, with its last events and what it wrote to stderr
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,

    /// Go on until Ctrl-C
    #[arg(short, long)]
    pub(crate) watch: bool,

    #[command(flatten)]
    pub(crate) gateway: Meant,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The gateway does it in its own time; `gripfast status NAME --watch` shows how it goes. It is reached \
through its socket in the state directory, and wants the token that it keeps there. Both are found by themselves where \
the command uses the same config, and with --state-dir otherwise.

Exit codes: 0 the gateway has taken note, 1 it has no such server, 4 there is no gateway, or none with this state \
directory, 6 it wants another token.")]
pub(crate) struct OperateArgs {
    /// The server, by its name in the config
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) output: Output,

    #[command(flatten)]
    pub(crate) gateway: Meant,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without a NAME the gateway looks at its config file now instead of within seconds, and says what it did about \
it. With one, that server forgets its failures and gets a new link, which is made before the old one is given \
up; the config is not looked at.

The gateway is reached through its socket in the state directory, and wants the token that it keeps there. Both are \
found by themselves where the command uses the same config, and with --state-dir otherwise.

Exit codes: 0 done, 1 the gateway has no such server or goes by no file, 2 the config was refused or has a mistake, 4 there is no \
gateway, or none with this state directory, 6 it wants another token.")]
pub(crate) struct ReloadArgs {
    /// The server, by its name in the config [default: the whole config]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,

    #[command(flatten)]
    pub(crate) gateway: Meant,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The gateway keeps the last 200 lines of each server, also those of a child that died. A server that is reached \
over HTTP writes none. With `-o json` each line is an object: `server`, `number`, `text`.")]
pub(crate) struct LogsArgs {
    /// The server, by its name in the config
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// Go on with what it writes, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// How many of the last lines to begin with
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 200)]
    pub(crate) lines: usize,

    #[command(flatten)]
    pub(crate) output: Output,

    #[command(flatten)]
    pub(crate) gateway: Meant,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The gateway remembers the last twenty events of each server, and of itself. With --follow what happens is shown as it \
happens; a gateway that goes away is waited for. With `-o json` each event is an object as in the gateway's \
API: `at` (milliseconds since the Unix epoch), `server`, `kind`, `text`, and what else the kind has.

Examples:
  gripfast events -f
  gripfast events github -o json | jq -r 'select(.kind == \"restarting\") | .at'")]
pub(crate) struct EventsArgs {
    /// Only those of this server
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Go on with what happens, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,

    #[command(flatten)]
    pub(crate) output: Output,

    #[command(flatten)]
    pub(crate) gateway: Meant,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Prints a link and, at a terminal, opens it in a browser ($BROWSER, else the desktop's). The link works once and for 60 s. It \
holds a one-time code and never the admin token. The browser stays signed in for 12 hours at most, until its tab is \
closed, the gateway ends or `gripfast token rotate` replaces the token.

Exit codes: 0 the link was made, 4 there is no gateway, or none with this state directory, 6 it wants another token.

Examples:
  gripfast dashboard
  gripfast dashboard --no-open")]
pub(crate) struct DashboardArgs {
    /// Print the link and start no browser
    #[arg(long)]
    pub(crate) no_open: bool,

    #[command(flatten)]
    pub(crate) gateway: Meant,
}

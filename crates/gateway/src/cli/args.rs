//! What may be typed: the definition that help, usage errors and suggestions are made from.

use super::add::{AddArgs, RemoveArgs};
use super::address::GatewayUrl;
use super::completions::CompletionsArgs;
use super::connect::ConnectArgs;
use super::demo_server::DemoServerArgs;
use super::doctor::DoctorArgs;
use super::duration;
use super::import::ImportArgs;
use super::serve::ServeArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use gripfast::ledger::Query;
use std::path::PathBuf;
use std::time::Duration;

const OVERVIEW: &str = "\
Watch servers crash and come back, without any config:
  gripfast serve --demo

Or with a server of your own, here the built-in sample:
  cat > gripfast.toml <<'END'
  [servers.demo]
  command = \"gripfast\"
  args = [\"demo-server\"]
  END
  gripfast check                               is the config right?
  gripfast serve                               serves it; in another terminal:
  gripfast status                              how do the servers do?
  gripfast tools                               what do they offer?
  gripfast call demo add '{\"a\": 1, \"b\": 2}'    prints 3

Config: --config, else $GRIPFAST_CONFIG, else ./gripfast.toml, else gripfast/gripfast.toml in the \
platform's config directory. TOML, `mcpServers` JSON and `mcp_servers` YAML are understood as they are.

stdout is data, stderr is talk. Exit codes:
  0  ok                   3  login needed                     6  denied
  1  general, or usage    4  unreachable, or no answer
  2  config invalid       5  the tool or its server reported an error

$GRIPFAST_LOG (error, warn, info, debug, trace) says how much is logged to stderr; $NO_COLOR is honoured.";

const SCHEMA: &str = "\
For TOML, editors with Taplo or Even Better TOML look at a first line `#:schema PATH`. In JSON it is the key \
`$schema`. The schema knows the keys of gripfast's own form; docs/reference/config.md has them for people.

Examples:
  gripfast schema > gripfast.schema.json
  sed -i '1i #:schema ./gripfast.schema.json' gripfast.toml";

/// The MCP host that never loses a server
#[derive(Debug, Parser)]
#[command(name = "gripfast", version, after_help = OVERVIEW, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    #[command(flatten)]
    pub(crate) global: Global,
}

/// What every verb understands.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's config directory]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,

    /// Where catalogs and the like are kept [default: `gateway.state_dir`, the platform's state directory]
    #[arg(long, value_name = "DIR", global = true, help_heading = "Global options")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Serve all servers of the config behind one MCP endpoint
    Serve(ServeArgs),
    /// Serve all servers of the config as one stdio MCP server
    Stdio,
    /// Show the servers of a running gateway, or one of them
    Status(StatusArgs),
    /// Replace the link of a server of a running gateway now
    Reconnect(OperateArgs),
    /// Have a running gateway take its changed config, or one server forget what went wrong and connect anew
    Reload(ReloadArgs),
    /// Stop a server of a running gateway until it is started
    Stop(OperateArgs),
    /// Start a server of a running gateway that was stopped
    Start(OperateArgs),
    /// Show what a server of a running gateway wrote to stderr
    Logs(LogsArgs),
    /// Show what happened to the servers of a running gateway
    Events(EventsArgs),
    /// Find out what is wrong with servers, and what to do about it
    Doctor(DoctorArgs),
    /// Validate a config without starting anything
    Check(CheckArgs),
    /// Take over the servers that other MCP clients on this machine have
    Import(ImportArgs),
    /// Point another MCP client on this machine at gripfast
    Connect(ConnectArgs),
    /// Add a server to the config
    Add(AddArgs),
    /// Take a server out of the config
    Remove(RemoveArgs),
    /// List the tools of the servers
    Tools(ToolsArgs),
    /// Call one tool of one server
    Call(CallArgs),
    /// Show what became of tool calls, also of those under way when a gateway died
    Calls(CallsArgs),
    /// Show and approve what tools say about themselves
    #[command(subcommand)]
    Pins(PinsVerb),
    /// Ask what the allow and deny lists of the config say
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// Make, list and remove the keys by which clients get in
    Keys(KeysArgs),
    /// Let gripfast use a server in your name, by a browser
    Login(LoginArgs),
    /// Forget the login of a server
    Logout(LogoutArgs),
    /// Print what a shell needs to complete words
    Completions(CompletionsArgs),
    /// Print the JSON Schema of the config, for editors
    #[command(after_help = SCHEMA)]
    Schema,
    /// Run the built-in sample MCP server, well-behaved or not
    // The flags are many, and the struct is built once.
    DemoServer(Box<DemoServerArgs>),
}

/// How data is written to stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    Text,
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = "\
States: ● ready, ○ idle (starts on first use), ◐ starting, ◍ degraded, ↻ reconnecting, ✗ parked (tried again \
slowly) or config error, ! needs login, ⏸ needs approval, ■ stopped, ⊘ disabled. A number of tools with a \
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

    /// How to print it; `json` is what the gateway's API says
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,

    /// Go on until Ctrl-C
    #[arg(short, long)]
    pub(crate) watch: bool,

    /// Where the gateway listens [default: $GRIPFAST_URL, `gateway.listen`, http://127.0.0.1:7331]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<GatewayUrl>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The gateway does it in its own time; `gripfast status NAME --watch` shows how it goes. It wants the token \
that it keeps in its state directory, which is found by itself where both use the same config, and with \
--state-dir otherwise.

Exit codes: 0 the gateway has taken note, 1 it has no such server, 4 there is no gateway, 6 it wants another \
token.")]
pub(crate) struct OperateArgs {
    /// The server, by its name in the config
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// How to print what became of it; `json` is what the gateway's API says
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,

    /// Where the gateway listens [default: $GRIPFAST_URL, `gateway.listen`, http://127.0.0.1:7331]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<GatewayUrl>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without a NAME the gateway looks at its config file now instead of within seconds, and says what it did about \
it. With one, that server forgets its failures and gets a new link, which is made before the old one is given \
up; the config is not looked at.

It wants the token that the gateway keeps in its state directory, which is found by itself where both use the \
same config, and with --state-dir otherwise.

Exit codes: 0 done, 1 the gateway has no such server or goes by no file, 2 the config was refused, 4 there is no \
gateway, 6 it wants another token.")]
pub(crate) struct ReloadArgs {
    /// The server, by its name in the config [default: the whole config]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// How to print what became of it; `json` is what the gateway's API says
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,

    /// Where the gateway listens [default: $GRIPFAST_URL, `gateway.listen`, http://127.0.0.1:7331]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<GatewayUrl>,
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

    /// How to print them
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,

    /// Where the gateway listens [default: $GRIPFAST_URL, `gateway.listen`, http://127.0.0.1:7331]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<GatewayUrl>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The gateway remembers the last twenty events of each server. With --follow what happens is shown as it \
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

    /// How to print them
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,

    /// Where the gateway listens [default: $GRIPFAST_URL, `gateway.listen`, http://127.0.0.1:7331]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<GatewayUrl>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Errors make the config, or one server in it, unusable: exit code 2. Warnings are about what is so right \
now: an unset variable, a command that is not on the PATH. That server would be `config_error`; the others \
work. Nothing is started and nothing is connected to.

Examples:
  gripfast check
  gripfast check ~/.cursor/mcp.json
  gripfast check -o json | jq '.findings[] | .message'")]
pub(crate) struct CheckArgs {
    /// The config file; the same as --config FILE
    #[arg(value_name = "FILE", conflicts_with = "config")]
    pub(crate) file: Option<PathBuf>,

    /// How to print the summary
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Asks the gateway that runs. With --config no gateway is needed: the servers of that file are started, asked \
what they offer, and stopped again. A server that fails becomes an error row and the others are still \
listed. The exit code is 0 unless every server failed; 4 if there is no gateway.

Examples:
  gripfast tools
  gripfast tools github
  gripfast tools --config gripfast.toml
  gripfast tools -o json | jq -r '.servers[].tools[]?.name'")]
pub(crate) struct ToolsArgs {
    /// Only this server
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,

    /// How to print the list; `json` has each tool as its server wrote it
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,

    /// How long a server may take to start and to list its tools; with --config
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "15s")]
    pub(crate) wait: Duration,

    /// Where the gateway listens [default: $GRIPFAST_URL, `gateway.listen`, http://127.0.0.1:7331]
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub(crate) url: Option<GatewayUrl>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Asks the gateway that runs. With --config no gateway is needed: the server of that file is started, called, \
and stopped again. Text is printed as it is, other content is described in a line. With `-o json` the result \
is printed as it came, byte for byte, and a failure as {\"error\":{\"code\":…,\"text\":…}}.

Exit codes: 0 the tool answered, 5 it answered with an error, 4 it or the gateway could not be reached or did \
not answer in time, 3 a login is needed, 6 the config denies it.

A call that was sent and not answered is sent once more only where that does no harm: the tool is known as \
read-only or idempotent, or the config names it in `replay.safe`. Any other is never sent twice.

Examples:
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

    /// The arguments: a JSON object, `@FILE`, or `-` for stdin [default: none]
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) arguments: Option<String>,

    /// Accept the forms that the server wants filled in, with their own defaults; with --config
    #[arg(long, requires = "config")]
    pub(crate) accept_defaults: bool,

    /// How to print the result
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,

    /// Where the gateway listens [default: $GRIPFAST_URL, `gateway.listen`, http://127.0.0.1:7331]
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub(crate) url: Option<GatewayUrl>,
}

/// What can be done about pins.
#[derive(Debug, Subcommand)]
pub(crate) enum PinsVerb {
    /// List the pinned tools
    Ls(PinsArgs),
    /// Show what changed since it was approved
    Diff(PinsArgs),
    /// Approve what a tool says now, or what all changed tools of a server say
    Approve(PinsApproveArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
A tool is pinned when it is first seen: its name, title, description, schemas and annotations. One that says \
something else later is listed as it was approved, and calls of it are refused (`schema_changed`) until somebody \
approves it. `pins = \"warn\"` or `\"off\"` of a server changes that.

A running gateway is asked; if none listens at the default address, what is kept in the state directory is shown.

Examples:
  gripfast pins ls
  gripfast pins diff github
  gripfast pins ls -o json | jq -r '.servers[] | .server as $s | .tools[] | select(.state == \"changed\") | \"\\($s) \\(.tool)\"'")]
pub(crate) struct PinsArgs {
    /// Only this server, by its name in the config
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,

    /// How to print it; `json` is what the gateway's API says
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,

    /// Where the gateway listens [default: http://127.0.0.1:7331, or else the state directory]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<GatewayUrl>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Look at `gripfast pins diff` first. With a running gateway the tool can be called at once, and clients are told \
that the list has changed.

Exit codes: 0 approved, 1 nothing to approve or no such server, 6 the gateway wants another token.

Examples:
  gripfast pins approve github create_issue
  gripfast pins approve github                 all changed tools of the server")]
pub(crate) struct PinsApproveArgs {
    /// The server, by its name in the config
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,

    /// Only this tool, by the server's own name for it
    #[arg(value_name = "TOOL")]
    pub(crate) tool: Option<String>,

    /// Where the gateway listens [default: http://127.0.0.1:7331, or else the state directory]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<GatewayUrl>,
}

/// What can be asked about policy.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Say whether a client may call a tool, and which entry of which list decides
    Test(PolicyTestArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Reads the config and what is stored of the server's tools; nothing is started and no gateway is asked. Without \
client authentication everybody on this machine is the client `local`. What a tool says about itself \
(`@read_only` and the like) is known once its server was listed with this state directory.

Exit codes: 0 the client may call it, 6 it may not, 1 there is no such server.

Examples:
  gripfast policy test local github delete_repo
  gripfast policy test ci github create_issue -o json | jq -r .reason")]
pub(crate) struct PolicyTestArgs {
    /// The client, by its name in the config
    #[arg(value_name = "CLIENT")]
    pub(crate) client: String,

    /// The server, by its name in the config
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,

    /// The tool, by the server's own name for it
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,

    /// How to print it
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,
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

    /// How to print them; `json` is what the gateway's API says
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,

    /// Where the gateway listens [default: $GRIPFAST_URL, `gateway.listen`, http://127.0.0.1:7331, or else
    /// the state directory]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<GatewayUrl>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A key stands for whoever it was made for: what that client may do, how much of it, and its sessions go by the \
name. Only a digest is kept, in the state directory; a running gateway notices by itself. Keys are asked for \
where the config says so:
  [gateway]
  auth = { keys = true }

Examples:
  gripfast keys add laptop
  gripfast keys ls
  gripfast keys rm laptop")]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) verb: KeysVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysVerb {
    /// Make a key and print it; it is not shown again
    Add {
        /// Whose it is
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List whose keys there are
    Ls {
        /// How to print them
        #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
        output: Form,
    },
    /// Remove a key: whoever has it is not let in any more
    Rm {
        /// Whose it is
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Prints the address at which you log in, opens it in a browser ($BROWSER, or what the platform has), and waits \
for the browser to come back. The login is kept in the state directory, for you alone, and used and renewed by \
every gripfast with the same state directory; one that runs already notices by itself.

Exit codes: 0 logged in, 3 not, 2 the config is wrong, 1 the server takes no login.

Examples:
  gripfast login notion
  gripfast login notion --no-browser     on a machine without one: open the address elsewhere, and paste the
                                         address at which that browser ends")]
pub(crate) struct LoginArgs {
    /// The server, by its name in the config
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// Start no browser, and take the address at which one came back from stdin too
    #[arg(long)]
    pub(crate) no_browser: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// The server, by its name in the config
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

fn limit(typed: &str) -> Result<usize, String> {
    let limit = typed.parse().ok().filter(|limit| *limit <= Query::MOST);
    limit.ok_or_else(|| format!("expected a number up to {}", Query::MOST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}

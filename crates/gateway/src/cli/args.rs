//! What may be typed: the definition that help, usage errors and suggestions are made from.

mod running;
mod trust;
mod using;

pub(crate) use running::{DashboardArgs, EventsArgs, LogsArgs, OperateArgs, ReloadArgs, StatusArgs};
pub(crate) use trust::{
    AuditVerb, KeysArgs, KeysVerb, LoginArgs, LogoutArgs, PinsApproveArgs, PinsArgs, PinsVerb,
    PolicyTestArgs, PolicyVerb, TokenVerb, TrustArgs,
};
pub(crate) use using::{CallArgs, CallsArgs, PromptsArgs, ResourcesArgs, ToolsArgs};

use super::add::{AddArgs, RemoveArgs, SwitchArgs};
use super::address::GatewayUrl;
use super::complete::CompleteArgs;
use super::completions::CompletionsArgs;
use super::connect::ConnectArgs;
use super::demo_server::DemoServerArgs;
use super::doctor::DoctorArgs;
use super::import::ImportArgs;
use super::serve::ServeArgs;
use super::stdio::StdioArgs;
use super::stop::Failure;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const OVERVIEW: &str = "\
Watch servers crash and come back, without any config:
  gripfast serve --demo

Or with a server of your own, here the built-in sample:
  gripfast add demo -- gripfast demo-server    writes ./gripfast.toml
  gripfast check                               is the config right?
  gripfast serve                               serves it; in another terminal:
  gripfast status                              how do the servers do?
  gripfast tools                               what do they offer?
  gripfast call demo add a=1 b=2               prints 3

Config: --config, else $GRIPFAST_CONFIG, else ./gripfast.toml, else gripfast/gripfast.toml in the \
platform's config directory. A ./gripfast.toml that gripfast did not write itself is used once you trust it \
(`gripfast trust`). TOML, `mcpServers` JSON and `mcp_servers` YAML are understood as they are.

stdout is data, stderr is talk. Exit codes:
  0  ok                   3  login needed                     6  denied
  1  general, or usage    4  unreachable, or no answer
  2  config invalid       5  the tool or its server reported an error

$GRIPFAST_LOG (error, warn, info, debug, trace) says how much is logged to stderr, $GRIPFAST_LOG_FORMAT (text, json) in which format; $NO_COLOR is honoured. $GRIPFAST_CA \
names a file with certificates to believe, for gateways that speak https.

Commands reach a gateway of this machine through a socket in its state directory, and send its admin token nowhere \
else. A gateway on another machine is sent $GRIPFAST_TOKEN, its admin token, over https. `tools` and `call` send \
$GRIPFAST_KEY, a client's key, to the gateway that --url or $GRIPFAST_URL names; to another machine over https, or where \
$GRIPFAST_CLEARTEXT is its host and port.";

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
    Stdio(StdioArgs),
    /// Show the servers of a running gateway, or one of them
    #[command(visible_alias = "ls")]
    Status(StatusArgs),
    /// Replace the link of a server of a running gateway now
    #[command(visible_alias = "restart")]
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
    /// Open the dashboard of a running gateway in a browser, signed in
    Dashboard(DashboardArgs),
    /// Find out what is wrong with servers, and what to do about it
    Doctor(DoctorArgs),
    /// Validate a config without starting anything
    Check(CheckArgs),
    /// Trust ./gripfast.toml for what it says now, so that other verbs use it
    Trust(TrustArgs),
    /// Take over the servers that other MCP clients on this machine have
    Import(ImportArgs),
    /// Point another MCP client on this machine at gripfast
    Connect(ConnectArgs),
    /// Add a server to the config
    Add(AddArgs),
    /// Take a server out of the config
    Remove(RemoveArgs),
    /// Use a server of the config again that was disabled
    Enable(SwitchArgs),
    /// Keep a server in the config without using it
    Disable(SwitchArgs),
    /// List the tools of the servers
    Tools(ToolsArgs),
    /// List the resources of the servers, or read one
    Resources(ResourcesArgs),
    /// List the prompts of the servers, or get one
    Prompts(PromptsArgs),
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
    /// Check that the audit log is as it was written
    #[command(subcommand)]
    Audit(AuditVerb),
    /// Replace the admin token of a state directory
    #[command(subcommand)]
    Token(TokenVerb),
    /// Let gripfast use a server in your name, by a browser
    Login(LoginArgs),
    /// Forget the login of a server
    Logout(LogoutArgs),
    /// Print what a shell needs to complete words
    Completions(CompletionsArgs),
    /// Print the names that complete a command line
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Print the JSON Schema of the config, for editors
    #[command(after_help = SCHEMA)]
    Schema,
    /// Print the version
    Version,
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

/// The form in which a verb prints its data.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Output {
    /// How to print it; docs/reference/json.md describes `json`
    #[arg(short = 'o', long = "output", value_name = "FORM", value_enum, default_value_t = Form::Text)]
    pub(crate) form: Form,
}

/// The gateway that a verb is about.
#[derive(Debug, Clone, Args)]
pub(crate) struct Meant {
    /// Where the gateway listens [default: $GRIPFAST_URL, `gateway.listen`, http://127.0.0.1:7331]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<GatewayUrl>,
}

impl Meant {
    /// Where it listens: as was said, or else as the environment and the config say.
    pub(crate) fn address(&self, global: &Global) -> Result<GatewayUrl, Failure> {
        GatewayUrl::meant(global, self.url.as_ref())
    }
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

    #[command(flatten)]
    pub(crate) output: Output,
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

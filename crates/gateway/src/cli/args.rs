//! Command-line definition: commands, options and help texts. The CLI reference is generated from it.

mod gateway;
mod tools;
mod trust;

pub(crate) use super::args::gateway::{
    DashboardArgs, EventsArgs, LogsArgs, OperateArgs, ReloadArgs, ReplicasArgs, StatusArgs,
};
pub(crate) use super::args::tools::{CallArgs, CallsArgs, PromptsArgs, ResourcesArgs, ToolsArgs};
pub(crate) use trust::{
    AuditVerb, KeysArgs, KeysVerb, LoginArgs, LogoutArgs, PinsApproveArgs, PinsArgs, PinsVerb,
    PolicyTestArgs, PolicyVerb, TokenVerb, TrustArgs,
};

use super::add::{AddArgs, RemoveArgs, SwitchArgs};
use super::address::GatewayUrl;
use super::complete::CompleteArgs;
use super::completions::CompletionsArgs;
use super::connect::ConnectArgs;
use super::demo_server::DemoServerArgs;
use super::doctor::DoctorArgs;
use super::error::FailureReport;
use super::import::ImportArgs;
use super::man::ManArgs;
use super::serve::ServeArgs;
use super::service::ServiceVerb;
use super::stdio::StdioArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const OVERVIEW: &str = "\
Watch servers crash and recover, without any config:
  gripfast serve --demo

Or with a server of your own, here the built-in sample:
  gripfast add demo -- gripfast demo-server    write ./gripfast.toml
  gripfast check                               validate the config
  gripfast serve                               start the gateway; in another terminal:
  gripfast status                              show the state of all servers
  gripfast tools                               list their tools
  gripfast call demo add a=1 b=2               call a tool: prints 3

Config: --config, else $GRIPFAST_CONFIG, else ./gripfast.toml, else gripfast/gripfast.toml in the \
platform's config directory. A ./gripfast.toml that gripfast did not write itself has to be trusted first \
(`gripfast trust`). The format is TOML; `mcpServers` JSON and `mcp_servers` YAML of other clients work as well.

Data goes to stdout, messages go to stderr. Exit codes:
  0  ok                             3  login needed                     6  denied
  1  other error, or wrong usage    4  unreachable, or no answer
  2  config invalid                 5  the tool or its server reported an error

$GRIPFAST_LOG (error, warn, info, debug, trace) sets the log level on stderr, $GRIPFAST_LOG_FORMAT (text, json) the \
log format. $NO_COLOR turns colours off. $GRIPFAST_CA names a PEM file with certificates to trust, for gateways that \
use https.

Commands reach a gateway on this machine through a socket in its state directory, and send its admin token nowhere \
else. To a gateway on another machine they send $GRIPFAST_TOKEN, its admin token, over https. `tools` and `call` send \
$GRIPFAST_KEY, a client key, to the gateway that --url or $GRIPFAST_URL names. If that is another machine, they need \
https, or the host and port of the gateway in $GRIPFAST_CLEARTEXT.";

const SCHEMA: &str = "\
In TOML, editors with Taplo or Even Better TOML read a first line `#:schema PATH`. In JSON, use the key `$schema`. \
The schema describes gripfast's own config format; docs/reference/config.md explains the same keys.

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
    pub(crate) global: GlobalArgs,
}

/// Options of all commands.
#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's config directory]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,

    /// Directory for catalogs, logins, keys and the ledger
    /// [default: `gateway.state_dir`, the platform's state directory]
    #[arg(long, value_name = "DIR", global = true, help_heading = "Global options")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Serve all configured servers at one MCP endpoint over HTTP
    Serve(ServeArgs),
    /// Run the gateway as a systemd service: install, remove and inspect it
    #[command(subcommand)]
    Service(ServiceVerb),
    /// Serve all configured servers as one stdio MCP server
    Stdio(StdioArgs),
    /// Show the state of all servers of a running gateway, or of one
    #[command(visible_alias = "ls")]
    Status(StatusArgs),
    /// Reconnect a server of a running gateway now
    #[command(visible_alias = "restart")]
    Reconnect(OperateArgs),
    /// Apply the changed config to a running gateway, or reset and reconnect one server
    Reload(ReloadArgs),
    /// Stop a server of a running gateway until `gripfast start`
    Stop(OperateArgs),
    /// Start a stopped server of a running gateway
    Start(OperateArgs),
    /// Show the stderr of a server of a running gateway
    Logs(LogsArgs),
    /// Show the events of a running gateway and its servers
    Events(EventsArgs),
    /// Open the dashboard of a running gateway in a browser, signed in
    Dashboard(DashboardArgs),
    /// Diagnose servers and suggest what to do
    Doctor(DoctorArgs),
    /// Validate a config without starting anything
    Check(CheckArgs),
    /// Trust ./gripfast.toml as it is now, so that other commands use it
    Trust(TrustArgs),
    /// Import the servers of other MCP clients on this machine
    Import(ImportArgs),
    /// Connect another MCP client on this machine to gripfast
    Connect(ConnectArgs),
    /// Add a server to the config
    Add(AddArgs),
    /// Remove a server from the config
    Remove(RemoveArgs),
    /// Enable a disabled server in the config
    Enable(SwitchArgs),
    /// Disable a server in the config without removing it
    Disable(SwitchArgs),
    /// List the tools of the servers
    Tools(ToolsArgs),
    /// List the resources of the servers, or read one
    Resources(ResourcesArgs),
    /// List the prompts of the servers, or get one
    Prompts(PromptsArgs),
    /// Call one tool of one server
    Call(CallArgs),
    /// Show the outcomes of tool calls, including calls in flight when a gateway died
    Calls(CallsArgs),
    /// Show, compare and approve pinned tool descriptions
    #[command(subcommand)]
    Pins(PinsVerb),
    /// Test the allow and deny lists of the config
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// List the gateways that act as one service with this one
    Replicas(ReplicasArgs),
    /// Create, list and remove the API keys of clients
    Keys(KeysArgs),
    /// Verify the audit log
    #[command(subcommand)]
    Audit(AuditVerb),
    /// Replace the admin token of a state directory
    #[command(subcommand)]
    Token(TokenVerb),
    /// Log in to a server with a browser (OAuth)
    Login(LoginArgs),
    /// Log out of a server
    Logout(LogoutArgs),
    /// Generate shell completions
    Completions(CompletionsArgs),
    /// Write man pages into a directory
    Man(ManArgs),
    /// Print the names that complete a command line, for the completion scripts
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Print the JSON Schema of the config, for editors
    #[command(after_help = SCHEMA)]
    Schema,
    /// Print the version
    Version,
    /// Run the built-in sample MCP server, with optional faults
    // Boxed because of its many flags.
    DemoServer(Box<DemoServerArgs>),
}

/// Output format of data on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Text,
    Json,
}

/// The option `--output` of a command.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// Output format; docs/reference/json.md describes `json`
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) form: OutputFormat,
}

/// The option `--url` of commands that ask a gateway.
#[derive(Debug, Clone, Args)]
pub(crate) struct GatewayTarget {
    /// URL of the gateway [default: $GRIPFAST_URL, `gateway.listen`, http://127.0.0.1:7331]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<GatewayUrl>,
}

impl GatewayTarget {
    /// The URL: as typed, else from the environment, else from the config.
    pub(crate) fn resolve(&self, global: &GlobalArgs) -> Result<GatewayUrl, FailureReport> {
        GatewayUrl::resolve(global, self.url.as_ref())
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Errors make the config, or one server in it, unusable: exit code 2. Warnings are about the environment as it is \
now: an unset variable, or a command that is not on the PATH. Such a server would be in state `config_error`; the \
others work. Nothing is started and no connection is made.

Examples:
  gripfast check
  gripfast check ~/.cursor/mcp.json
  gripfast check -o json | jq '.findings[] | .message'")]
pub(crate) struct CheckArgs {
    /// The config file; the same as --config FILE
    #[arg(value_name = "FILE", conflicts_with = "config")]
    pub(crate) file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
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

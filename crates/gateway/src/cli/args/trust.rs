//! Arguments of the commands about trust and access: config files, pins, policy, keys, the audit log, the admin token
//! and logins.

use super::{GatewayTarget, OutputArgs};
use crate::cli::duration;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "\
A gripfast.toml in the current directory may have come with a repository or an archive, and it names programs to run. \
gripfast uses it only while its content is trusted: after a change it is refused until it is trusted again (exit code \
2; at a terminal you are asked). `gripfast add`, `remove` and `import --write` keep the trust of a file that they \
change, and `gripfast reload` also trusts the file. A file that --config or $GRIPFAST_CONFIG names needs no trust, nor \
does the one in the platform's config directory.

Trust covers the content of the file, not the programs that it names. The list of trusted files is trusted.json in the \
platform's state directory; --state-dir does not change that.

Exit codes: 0 done, 2 the file or the list of trusted files cannot be used, 1 there is no home directory for the list.

Examples:
  gripfast check && gripfast trust
  gripfast trust --list
  gripfast trust --remove ./gripfast.toml")]
pub(crate) struct TrustArgs {
    /// The file [default: ./gripfast.toml]
    #[arg(value_name = "FILE", conflicts_with = "config")]
    pub(crate) file: Option<PathBuf>,

    /// List the trusted files
    #[arg(long, conflicts_with_all = ["file", "remove"])]
    pub(crate) list: bool,

    /// Stop trusting the file
    #[arg(long)]
    pub(crate) remove: bool,
}

/// Actions on pins.
#[derive(Debug, Subcommand)]
pub(crate) enum PinsVerb {
    /// List the pinned tools
    Ls(PinsArgs),
    /// Show the changes since the last approval
    Diff(PinsArgs),
    /// Approve the current description of a tool, or of all changed tools of a server
    Approve(PinsApproveArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
A tool is pinned when it is first listed: its name, title, description, schemas and annotations. If it changes later, \
clients still see the approved version, and calls to it are refused (`schema_changed`) until the change is approved. \
`pins = \"warn\"` or `\"off\"` in the table of a server changes that.

Asks the running gateway; if none listens at the default address, shows the pins stored in the state directory.

Examples:
  gripfast pins ls
  gripfast pins diff github
  gripfast pins ls -o json | jq -r '.servers[] | .server as $s | .tools[] | select(.state == \"changed\") | \"\\($s) \\(.tool)\"'")]
pub(crate) struct PinsArgs {
    /// Only this server, by its name in the config
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    #[command(flatten)]
    pub(crate) gateway: GatewayTarget,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Look at `gripfast pins diff` first. With a running gateway the tool can be called at once, and clients are notified \
that the list has changed.

Exit codes: 0 approved, 1 nothing to approve or no such server, 6 the admin token is wrong.

Examples:
  gripfast pins approve github create_issue
  gripfast pins approve github                 all changed tools of the server")]
pub(crate) struct PinsApproveArgs {
    /// The server, by its name in the config
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,

    /// Only this tool, by the server's own name
    #[arg(value_name = "TOOL")]
    pub(crate) tool: Option<String>,

    #[command(flatten)]
    pub(crate) gateway: GatewayTarget,
}

/// Queries about policy.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Show whether a client may call a tool, and which list entry decides
    Test(PolicyTestArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Reads the config and the stored tools of the server; nothing is started and no gateway is asked. Without client \
authentication, every client on this machine is the client `local`. The annotations of a tool (`@read_only` and the \
like) are known once its server was listed with this state directory.

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

    /// The tool, by the server's own name
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A key identifies a client by name. Permissions, budgets and sessions belong to that name. Only a digest of the key is \
stored, in the state directory; a running gateway notices changes by itself. The gateway asks for keys if the config \
says so:
  [gateway]
  auth = { keys = true }

Examples:
  gripfast keys add laptop
  gripfast keys add guest --expires 30d
  gripfast keys ls
  gripfast keys rm laptop")]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) verb: KeysVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysVerb {
    /// Create a key and print it; it is not shown again
    Add {
        /// Name of the client
        #[arg(value_name = "NAME")]
        name: String,
        /// Lifetime of the key; without it, the key is valid until it is removed
        #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
        expires: Option<Duration>,
    },
    /// List the keys with their expiry and last use
    Ls {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Remove a key: the gateway refuses it from then on
    Rm {
        /// Name of the client
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// Actions on the audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Check the audit log against its hash chain
    #[command(after_help = "\
Each line of the log holds a digest of itself and of the line before it. The command names a line that was changed, \
removed or inserted afterwards, with exit code 1. It cannot detect lines that were removed from the end of the newest \
file, and a user who can write the files can write a new chain: keep a copy elsewhere.

Examples:
  gripfast audit verify
  gripfast audit verify -o json | jq '.files[] | select(.finding != \"whole\")'")]
    Verify {
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// Actions on the admin token.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Create a new admin token; gateways refuse the old one from then on
    #[command(after_help = "\
The token is in the file `admin.token` of the state directory. Gateways that use the directory accept the new token \
from the next request on, without a restart. The dashboard asks for the new token at the next action, and scripts have \
to read the file again.

Examples:
  gripfast token rotate
  gripfast token rotate --state-dir /var/lib/gripfast")]
    Rotate,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Prints the login address, opens it in a browser ($BROWSER, else the desktop's default), and waits for the browser to \
return. The login is stored in the state directory, readable only by you. Every gripfast with the same state directory \
uses and renews it; a running gateway notices it by itself.

Exit codes: 0 logged in, 3 not logged in, 2 the config is invalid, 1 another failure, such as a server without logins.

Examples:
  gripfast login notion
  gripfast login notion --device         on any device: enter the code that is shown
  gripfast login notion --no-browser     open the address elsewhere, and paste the return address")]
pub(crate) struct LoginArgs {
    /// The server, by its name in the config
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// Do not start a browser; also accept the return address on stdin
    #[arg(long)]
    pub(crate) no_browser: bool,

    /// Log in on another device with a code, if the authorization server supports it
    #[arg(long, conflicts_with = "no_browser")]
    pub(crate) device: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// The server, by its name in the config
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

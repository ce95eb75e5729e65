//! What may be typed after the verbs about who is trusted with what: config files, pins, policy, keys, the admin token and
//! logins.

use super::{Meant, Output};
use crate::cli::duration;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "\
A gripfast.toml that lies in the current directory may have come with a repository or an archive, and it names \
programs to run. It is used only if it is trusted, for what it says: after a change it is refused until it is \
trusted again (exit code 2; on a terminal you are asked). `gripfast add`, `remove` and `import --write` keep \
the trust of what they write, and a running gateway that is told to reload it trusts it. A file that --config or \
$GRIPFAST_CONFIG names needs no trust, nor does the one in the platform's config directory.

Trust is for what the file says, not for the programs that it names. The list is trusted.json in the platform's \
state directory, whatever --state-dir says.

Exit codes: 0 done, 2 the file cannot be used, 1 the list cannot be kept.

Examples:
  gripfast check && gripfast trust
  gripfast trust --list
  gripfast trust --remove ./gripfast.toml")]
pub(crate) struct TrustArgs {
    /// The file [default: ./gripfast.toml]
    #[arg(value_name = "FILE", conflicts_with = "config")]
    pub(crate) file: Option<PathBuf>,

    /// List the files that are trusted
    #[arg(long, conflicts_with_all = ["file", "remove"])]
    pub(crate) list: bool,

    /// Trust the file no longer
    #[arg(long)]
    pub(crate) remove: bool,
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

    #[command(flatten)]
    pub(crate) output: Output,

    #[command(flatten)]
    pub(crate) gateway: Meant,
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

    #[command(flatten)]
    pub(crate) gateway: Meant,
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

    #[command(flatten)]
    pub(crate) output: Output,
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
  gripfast keys add guest --expires 30d
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
        /// How long it is good; without it, until it is removed
        #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
        expires: Option<Duration>,
    },
    /// List keys: whose they are, when they expire and when they were last used
    Ls {
        #[command(flatten)]
        output: Output,
    },
    /// Remove a key: whoever has it is not let in any more
    Rm {
        /// Whose it is
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// Actions on the audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Compare the audit log with its hash chain
    #[command(after_help = "\
Each line of the log holds a digest of itself and of the line before it. A line that was changed, taken out or put in \
afterwards is named, with exit code 1. Lines that were taken off the end of the newest file cannot be missed, and whoever \
can write the files can write a new chain: keep a copy elsewhere.

Examples:
  gripfast audit verify
  gripfast audit verify -o json | jq '.files[] | select(.finding != \"whole\")'")]
    Verify {
        #[command(flatten)]
        output: Output,
    },
}

/// Actions on the admin token.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Make a new admin token; gateways refuse the old one from then on
    #[command(after_help = "\
The token is in the file `admin.token` of the state directory. Gateways that use the directory take the new one with \
the next request; none has to be restarted. A dashboard asks for the new token at the next action, and scripts \
have to read the file again.

Examples:
  gripfast token rotate
  gripfast token rotate --state-dir /var/lib/gripfast")]
    Rotate,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Prints the address at which you log in, opens it in a browser ($BROWSER, or what the platform has), and waits \
for the browser to come back. The login is kept in the state directory, for you alone, and used and renewed by \
every gripfast with the same state directory; one that runs already notices by itself.

Exit codes: 0 logged in, 3 not, 2 the config is wrong, 1 the server takes no login.

Examples:
  gripfast login notion
  gripfast login notion --device         on any device: enter the code that is shown
  gripfast login notion --no-browser     on a machine without one: open the address elsewhere, and paste the
                                         address at which that browser ends")]
pub(crate) struct LoginArgs {
    /// The server, by its name in the config
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// Start no browser, and take the address at which one came back from stdin too
    #[arg(long)]
    pub(crate) no_browser: bool,

    /// Log in on another device, by a code that is shown here; where the authorization server has that
    #[arg(long, conflicts_with = "no_browser")]
    pub(crate) device: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// The server, by its name in the config
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

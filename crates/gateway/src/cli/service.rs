//! `gripfast service`: installs gripfast as a systemd service, removes it, and shows its state and log.

mod units;

use super::args::GlobalArgs;
use super::config;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::render::Screen;
use clap::{Args, Subcommand};
use etcetera::BaseStrategy;
use gripfast::config::GatewayConfig;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use units::{SERVICE, SOCKET, STATE_DIR, Scope, USER, Units};

/// Config of the system service.
const SYSTEM_CONFIG: &str = "/etc/gripfast/gripfast.toml";
/// Directory of units that the operator installs.
const SYSTEM_UNITS: &str = "/etc/systemd/system";
/// Directory of units of packages.
const PACKAGE_UNITS: &str = "usr/lib/systemd/system";

#[derive(Debug, Subcommand)]
pub(crate) enum ServiceVerb {
    /// Install gripfast as a systemd service, and start it
    #[command(after_help = "\
Writes gripfast.socket and gripfast.service, enables both and starts them. The socket outlives restarts of the service, \
so calls that arrive during a restart or an upgrade wait and do not fail.

Without --user, it installs a service of the machine, as root: it runs as the user `gripfast`, which is created, with \
the config /etc/gripfast/gripfast.toml and the state directory /var/lib/gripfast. With --user, it installs a service of \
yours with your config and your PATH.

Run it again after a change of `gateway.listen` or `gateway.shutdown_timeout`, or after gripfast has moved.

Examples:
  gripfast service install --user
  sudo gripfast service install --config /etc/gripfast/gripfast.toml")]
    Install(InstallArgs),
    /// Stop the service and remove its units; config and state stay
    Uninstall(ScopeArgs),
    /// Show whether the service runs: exit code 0 if it does, 4 if not
    Status(ScopeArgs),
    /// Show the log of the service
    Logs {
        /// Print new lines as they come, until Ctrl-C
        #[arg(short, long)]
        follow: bool,

        /// Number of last lines to begin with
        #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 200)]
        lines: usize,

        #[command(flatten)]
        scope: ScopeArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ScopeArgs {
    /// The service of the current user instead of the machine's
    #[arg(long)]
    user: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    scope: ScopeArgs,

    /// Only write the units for a package or an image below DIR, where gripfast is /usr/bin/gripfast; start nothing
    #[arg(long, value_name = "DIR", conflicts_with = "user")]
    root: Option<PathBuf>,
}

pub(crate) fn run(
    global: &GlobalArgs,
    verb: &ServiceVerb,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    match verb {
        ServiceVerb::Install(InstallArgs { root: Some(root), .. }) => write_for_package(global, root, screen),
        ServiceVerb::Install(InstallArgs { scope, root: None }) => install(global, scope.scope(), screen),
        ServiceVerb::Uninstall(scope) => uninstall(scope.scope(), screen),
        ServiceVerb::Status(scope) => {
            let ended = run_tool(scope.scope(), "systemctl", &["status", "--no-pager", SOCKET, SERVICE])?;
            Ok(if ended.success() { Exit::Ok } else { Exit::Unreachable })
        }
        ServiceVerb::Logs { follow, lines, scope } => {
            let lines = lines.to_string();
            let mut words = vec!["--no-pager", "--unit", SERVICE, "--lines", &lines];
            words.extend(follow.then_some("--follow"));
            let ended = run_tool(scope.scope(), "journalctl", &words)?;
            Ok(if ended.success() { Exit::Ok } else { Exit::General })
        }
    }
}

impl ScopeArgs {
    fn scope(&self) -> Scope {
        if self.user { Scope::User } else { Scope::System }
    }
}

/// Writes the units into a package, for its own paths.
fn write_for_package(global: &GlobalArgs, root: &Path, screen: &mut Screen) -> Result<Exit, CommandError> {
    let gateway = GatewayConfig::default();
    let units = Units {
        scope: Scope::System,
        program: Path::new("/usr/bin/gripfast"),
        config: global.config.as_deref().unwrap_or(Path::new(SYSTEM_CONFIG)),
        state_dir: global.state_dir.as_deref(),
        listen: gateway.listen,
        shutdown_timeout: gateway.shutdown_timeout,
        search_path: None,
    };
    write_units(&units, &root.join(PACKAGE_UNITS), screen)?;
    Ok(Exit::Ok)
}

fn install(global: &GlobalArgs, scope: Scope, screen: &mut Screen) -> Result<Exit, CommandError> {
    let directory = unit_directory(scope)?;
    require_systemd()?;
    let explicit = match (scope, &global.config) {
        (Scope::System, None) => Some(PathBuf::from(SYSTEM_CONFIG)),
        (_, config) => config.clone(),
    };
    let opened = config::open(&GlobalArgs { config: explicit, state_dir: global.state_dir.clone() }, screen)?;
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let state_dir = global.state_dir.as_deref().map(absolute);
    let units = Units {
        scope,
        program: &installed_program()?,
        config: &absolute(&opened.path),
        state_dir: state_dir.as_deref(),
        listen: opened.config.gateway.listen,
        shutdown_timeout: opened.config.gateway.shutdown_timeout,
        search_path: std::env::var("PATH").ok().filter(|_| scope == Scope::User),
    };
    if scope == Scope::System {
        create_user()?;
        warn_if_unreadable(units.config, screen)?;
    }
    let socket_changed = fs::read_to_string(directory.join(SOCKET)).is_ok_and(|old| old != units.socket());
    write_units(&units, &directory, screen)?;
    systemctl(scope, &["daemon-reload"])?;
    if socket_changed {
        // A running socket keeps its address, and a running service its socket.
        systemctl(scope, &["stop", SERVICE, SOCKET])?;
    }
    systemctl(scope, &["enable", SOCKET, SERVICE])?;
    systemctl(scope, &["start", SOCKET])?;
    systemctl(scope, &["restart", SERVICE])?;
    let flag = flag(scope).map(|flag| format!(" {flag}")).unwrap_or_default();
    screen.message(&format!(
        "the gateway runs at {}; `gripfast service status{flag}` shows its state, `gripfast service logs{flag}` its log",
        units.listen
    ))?;
    if scope == Scope::User {
        screen.message("it starts when you log in; to start it at boot, run: loginctl enable-linger")?;
    }
    Ok(Exit::Ok)
}

fn uninstall(scope: Scope, screen: &mut Screen) -> Result<Exit, CommandError> {
    let directory = unit_directory(scope)?;
    let files = [SERVICE, SOCKET].map(|unit| directory.join(unit));
    if !files.iter().any(|file| file.exists()) {
        let text = format!("no service is installed: `{}` does not exist", files[0].display());
        return Err(FailureReport::new(Exit::General, text)
            .with_hint("`--user` is about your own service; a package removes its service itself")
            .into());
    }
    require_systemd()?;
    systemctl(scope, &["disable", "--now", SERVICE, SOCKET])?;
    for file in &files {
        if let Err(error) = fs::remove_file(file)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(cannot("remove", file, &error).into());
        }
        screen.line(&format!("removed {}", file.display()))?;
    }
    systemctl(scope, &["daemon-reload"])?;
    let rest = match scope {
        Scope::System => format!(
            "config and state stay; to remove them too, run: rm -r /etc/gripfast {STATE_DIR} && userdel {USER}"
        ),
        Scope::User => match config::platform_state_dir() {
            Some(state) => format!("config and state stay; the state is in {}", state.display()),
            None => "config and state stay".to_owned(),
        },
    };
    screen.message(&rest)?;
    Ok(Exit::Ok)
}

/// The directory of the units. That of the machine is writable for root only.
fn unit_directory(scope: Scope) -> Result<PathBuf, FailureReport> {
    match scope {
        Scope::System if !is_root() => {
            Err(FailureReport::new(Exit::General, "a service of the machine can be changed by root only")
                .with_hint("run the command with sudo, or with `--user` for a service of your own"))
        }
        Scope::System => Ok(PathBuf::from(SYSTEM_UNITS)),
        Scope::User => {
            let platform = etcetera::choose_base_strategy().map_err(|error| {
                FailureReport::new(Exit::General, format!("there is no home directory: {error}"))
            })?;
            Ok(platform.config_dir().join("systemd/user"))
        }
    }
}

#[cfg(unix)]
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(not(unix))]
fn is_root() -> bool {
    false
}

fn write_units(units: &Units<'_>, directory: &Path, screen: &mut Screen) -> Result<(), CommandError> {
    fs::create_dir_all(directory).map_err(|error| cannot("create", directory, &error))?;
    for (name, text) in [(SOCKET, units.socket()), (SERVICE, units.service())] {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|error| cannot("write", &path, &error))?;
        screen.line(&format!("wrote {}", path.display()))?;
    }
    Ok(())
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> FailureReport {
    FailureReport::new(Exit::General, format!("cannot {what} `{}`: {error}", path.display()))
}

/// The path of this program, unless a runner removes it after use.
fn installed_program() -> Result<PathBuf, FailureReport> {
    let program = std::env::current_exe()
        .map_err(|error| FailureReport::new(Exit::General, format!("this program has no path: {error}")))?;
    if program.iter().any(|part| part == ".cache" || part == "_npx") {
        let text = format!("`{}` is a temporary copy of gripfast, which may be deleted", program.display());
        return Err(FailureReport::new(Exit::General, text).with_hint(
            "install gripfast first, for example with `uv tool install gripfast` or `npm install --global gripfast`",
        ));
    }
    Ok(program)
}

/// Creates the user of the system service, if there is none.
fn create_user() -> Result<(), FailureReport> {
    let known = Command::new("id").args(["-u", USER]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if known.is_ok_and(|known| known.success()) {
        return Ok(());
    }
    let mut command = Command::new("useradd");
    command.args(["--system", "--user-group", "--no-create-home", "--home-dir", STATE_DIR]);
    command.args(["--shell", "/usr/sbin/nologin", USER]);
    match command.status() {
        Ok(ended) if ended.success() => Ok(()),
        Ok(ended) => Err(format!("`useradd` failed ({ended})")),
        Err(error) => Err(format!("cannot run `useradd`: {error}")),
    }
    .map_err(|why| {
        FailureReport::new(Exit::General, format!("cannot create the user `{USER}`: {why}")).with_hint(
            format!("create a system user `{USER}` with the home directory {STATE_DIR}, and try again"),
        )
    })
}

/// Warns about a config that only root can read.
fn warn_if_unreadable(config: &Path, screen: &mut Screen) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if fs::metadata(config).is_ok_and(|found| found.mode() & 0o004 == 0 && found.gid() == 0) {
            let path = config.display();
            return screen.message(&format!(
                "the user `{USER}` cannot read {path}; run: chown root:{USER} {path} && chmod 640 {path}"
            ));
        }
    }
    #[cfg(not(unix))]
    let _ = (config, screen);
    Ok(())
}

fn flag(scope: Scope) -> Option<&'static str> {
    match scope {
        Scope::System => None,
        Scope::User => Some("--user"),
    }
}

/// Runs a program of systemd with the output of this process.
fn run_tool(scope: Scope, tool: &str, words: &[&str]) -> Result<ExitStatus, FailureReport> {
    let mut command = Command::new(tool);
    command.args(flag(scope)).args(words).stdin(Stdio::null());
    command.status().map_err(|error| no_systemd(tool, &error))
}

fn systemctl(scope: Scope, words: &[&str]) -> Result<(), FailureReport> {
    let ended = run_tool(scope, "systemctl", words)?;
    if ended.success() {
        return Ok(());
    }
    let flag = flag(scope).map(|flag| format!("{flag} ")).unwrap_or_default();
    let text = format!("`systemctl {flag}{}` failed ({ended})", words.join(" "));
    Err(FailureReport::new(Exit::General, text).with_hint(match scope {
        Scope::System => "`journalctl --unit gripfast` has the cause if the service itself failed",
        Scope::User => "`journalctl --user --unit gripfast` has the cause if the service itself failed",
    }))
}

/// Fails before anything is changed if this machine has no systemd.
fn require_systemd() -> Result<(), FailureReport> {
    let found = Command::new("systemctl").arg("--version").stdout(Stdio::null()).status();
    found.map(drop).map_err(|error| no_systemd("systemctl", &error))
}

fn no_systemd(tool: &str, error: &io::Error) -> FailureReport {
    FailureReport::new(Exit::General, format!("cannot run `{tool}`: {error}")).with_hint(
        "this machine seems to have no systemd; let its own service manager run `gripfast serve --config FILE`, and send \
         SIGTERM to stop it",
    )
}

//! Text of the systemd units: the socket, which outlives restarts, and the service.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

pub(crate) const SERVICE: &str = "gripfast.service";
pub(crate) const SOCKET: &str = "gripfast.socket";
/// User of the system service.
pub(crate) const USER: &str = "gripfast";
/// Home and state directory of that user.
pub(crate) const STATE_DIR: &str = "/var/lib/gripfast";

/// Time for the process to exit after the shutdown timeout, before systemd kills it.
const STOP_MARGIN: Duration = Duration::from_secs(6);

/// The service manager that runs the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// That of the machine.
    System,
    /// That of the user who installs the service.
    User,
}

/// Values in the units.
pub(crate) struct Units<'a> {
    pub(crate) scope: Scope,
    /// The gripfast binary.
    pub(crate) program: &'a Path,
    pub(crate) config: &'a Path,
    /// The typed state directory.
    pub(crate) state_dir: Option<&'a Path>,
    pub(crate) listen: SocketAddr,
    pub(crate) shutdown_timeout: Duration,
    /// `PATH` for the commands of a user's servers, which the service manager does not know.
    pub(crate) search_path: Option<String>,
}

impl Units<'_> {
    pub(crate) fn socket(&self) -> String {
        format!(
            "\
[Unit]
Description=Listening socket of the gripfast MCP gateway

# The socket outlives restarts of the service: connections wait in its queue meanwhile.
[Socket]
ListenStream={}

[Install]
WantedBy=sockets.target
",
            self.listen
        )
    }

    pub(crate) fn service(&self) -> String {
        // Commands, unlike variables, replace `$NAME`.
        let argument = |path: &Path| quoted(&path.display().to_string().replace('$', "$$"));
        let mut command = format!("{} serve --config {}", argument(self.program), argument(self.config));
        if let Some(directory) = self.state_dir {
            command += &format!(" --state-dir {}", argument(directory));
        }
        let stop = (self.shutdown_timeout + STOP_MARGIN).as_secs();
        let (environment, wanted_by) = match self.scope {
            Scope::System => (SYSTEM.to_owned(), "multi-user.target"),
            Scope::User => (self.user_environment(), "default.target"),
        };
        format!(
            "\
[Unit]
Description=gripfast MCP gateway
Documentation=man:gripfast(1)
Requires={SOCKET}
After={SOCKET} network.target
# Restarts are never given up.
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=1s
WatchdogSec=30s
TimeoutStopSec={stop}s
# Only gripfast gets SIGTERM. It stops its servers itself, after their calls.
KillMode=mixed
# A server that runs out of memory does not stop the gateway.
OOMPolicy=continue
LimitNOFILE=65536
UMask=0077
{environment}
[Install]
Also={SOCKET}
WantedBy={wanted_by}
"
        )
    }

    /// A user's service has the rights of the user, as if started in a shell.
    fn user_environment(&self) -> String {
        let mut lines =
            "# Variables that the config refers to, one NAME=VALUE per line.\nEnvironmentFile=-%E/gripfast/environment\n"
                .to_owned();
        if let Some(path) = &self.search_path {
            lines += &format!("Environment={}\n", quoted(&format!("PATH={path}")));
        }
        lines
    }
}

/// Rights of the system service. Servers run with the same rights, so some restrictions are absent on purpose:
/// `MemoryDenyWriteExecute=` stops node, `RestrictNamespaces=` and `SystemCallFilter=` stop browsers.
const SYSTEM: &str = "\
User=gripfast
Group=gripfast
StateDirectory=gripfast
StateDirectoryMode=0700
Environment=HOME=/var/lib/gripfast XDG_STATE_HOME=/var/lib
# Variables that the config refers to, one NAME=VALUE per line.
EnvironmentFile=-/etc/gripfast/environment

# Servers run with these rights too. `systemctl edit gripfast` loosens them, for example with ReadWritePaths=/srv/notes.
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX
";

/// One word of a unit's value: in quotes, without specifiers.
fn quoted(word: &str) -> String {
    let word = word.replace('%', "%%");
    if word.chars().all(|letter| letter.is_alphanumeric() || "/._-%$:=@+,".contains(letter)) {
        return word;
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(scope: Scope) -> Units<'static> {
        Units {
            scope,
            program: Path::new("/usr/bin/gripfast"),
            config: Path::new("/etc/gripfast/gripfast.toml"),
            state_dir: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 7331)),
            shutdown_timeout: Duration::from_secs(9),
            search_path: None,
        }
    }

    fn lines_of(text: &str, key: &str) -> Vec<String> {
        text.lines().filter(|line| line.starts_with(&format!("{key}="))).map(str::to_owned).collect()
    }

    #[test]
    fn the_socket_is_apart_from_the_service_so_that_it_outlives_it() {
        let system = units(Scope::System);
        assert_eq!(lines_of(&system.socket(), "ListenStream"), ["ListenStream=127.0.0.1:7331"]);
        assert_eq!(lines_of(&system.service(), "Requires"), ["Requires=gripfast.socket"]);
        assert_eq!(lines_of(&system.service(), "Type"), ["Type=notify"]);
    }

    #[test]
    fn the_stop_timeout_is_longer_than_that_of_the_gateway() {
        let mut slow = units(Scope::User);
        slow.shutdown_timeout = Duration::from_secs(60);
        assert_eq!(lines_of(&slow.service(), "TimeoutStopSec"), ["TimeoutStopSec=66s"]);
    }

    #[test]
    fn only_the_system_service_has_a_user_and_restrictions() {
        let (system, user) = (units(Scope::System).service(), units(Scope::User).service());
        assert_eq!(lines_of(&system, "User"), ["User=gripfast"]);
        assert_eq!(lines_of(&system, "ProtectSystem"), ["ProtectSystem=strict"]);
        for key in ["User", "ProtectSystem", "NoNewPrivileges"] {
            assert!(lines_of(&user, key).is_empty(), "{user}");
        }
    }

    #[test]
    fn words_with_spaces_and_specifiers_reach_the_program_as_they_are() {
        let mut odd = units(Scope::User);
        (odd.config, odd.state_dir) = (Path::new("/home/a b/50%$x.toml"), Some(Path::new("/s\"t")));
        odd.search_path = Some("/opt/my tools:/opt/$x:/usr/bin".to_owned());
        let service = odd.service();
        assert_eq!(
            lines_of(&service, "ExecStart"),
            [r#"ExecStart=/usr/bin/gripfast serve --config "/home/a b/50%%$$x.toml" --state-dir "/s\"t""#]
        );
        assert_eq!(
            lines_of(&service, "Environment"),
            [r#"Environment="PATH=/opt/my tools:/opt/$x:/usr/bin""#]
        );
    }
}

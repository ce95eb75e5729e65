//! Installation of the real MCP servers and clients that the tests use, and of the official conformance suite, into
//! `target/peers` in exact versions.
//!
//! Each set has a stamp file with the inputs of its installation; while the stamp matches, nothing is installed. The
//! versions are in `crates/testkit/peers`; the code that starts a peer in a test is in `crates/testkit/src`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::report::Outcome;
use super::{Install, Missing};
use crate::source::paths::paths_in;
use crate::source::tests_in::tests_in;
use crate::workspace::{Workspace, read, rust_files};

/// A group of peers that are installed together.
struct Set {
    /// The directory under `target/peers`.
    dir: &'static str,
    peers: &'static [Peer],
    /// The files under `crates/testkit/peers` that pin the versions.
    from: &'static [&'static str],
    runtime: Runtime,
    /// Programs that come from the package manager of the system.
    system: &'static [Program],
}

/// A program of the system and the Debian package that contains it.
struct Program {
    names: &'static [&'static str],
    package: &'static str,
}

/// A peer: its name in `GRIPFAST_MISSING_PEERS`, and the variant of [`ENUMS`] that tests use.
struct Peer {
    name: &'static str,
    variant: &'static str,
}

/// The enums in `testkit` that contain the variants.
const ENUMS: [&str; 10] = [
    "Peer",
    "Package",
    "Client",
    "Suite",
    "Browser",
    "Keyring",
    "ServiceManager",
    "StoreServer",
    "Balancer",
    "WallClock",
];

#[derive(Clone, Copy)]
enum Runtime {
    Node,
    Python,
    /// The set consists of system programs only.
    System,
}

const SETS: &[Set] = &[
    Set {
        dir: "npm",
        peers: &[
            Peer { name: "server-everything", variant: "ServerEverything" },
            Peer { name: "typescript-v1", variant: "TypeScriptV1" },
            Peer { name: "typescript-v2", variant: "TypeScriptV2" },
        ],
        from: &["package.json", "package-lock.json"],
        runtime: Runtime::Node,
        system: &[],
    },
    Set {
        dir: "conformance",
        peers: &[
            Peer { name: "conformance-0.1", variant: "V0_1" },
            Peer { name: "conformance-0.2", variant: "V0_2" },
        ],
        from: &["conformance/package.json", "conformance/package-lock.json"],
        runtime: Runtime::Node,
        system: &[],
    },
    Set {
        dir: "py1",
        peers: &[Peer { name: "python-v1", variant: "PythonV1" }],
        from: &["requirements-v1.txt"],
        runtime: Runtime::Python,
        system: &[],
    },
    Set {
        dir: "py2",
        peers: &[Peer { name: "python-v2", variant: "PythonV2" }],
        from: &["requirements-v2.txt"],
        runtime: Runtime::Python,
        system: &[],
    },
    Set {
        dir: "inspector",
        peers: &[Peer { name: "inspector", variant: "Inspector" }],
        from: &["inspector/package.json", "inspector/package-lock.json"],
        runtime: Runtime::Node,
        system: &[],
    },
    Set {
        dir: "npm-servers",
        peers: &[
            Peer { name: "server-filesystem", variant: "Filesystem" },
            Peer { name: "server-memory", variant: "Memory" },
        ],
        from: &["servers/package.json", "servers/package-lock.json"],
        runtime: Runtime::Node,
        system: &[],
    },
    Set {
        dir: "tokenizer",
        peers: &[Peer { name: "gpt-tokenizer", variant: "Tokenizer" }],
        from: &["tokenizer/package.json", "tokenizer/package-lock.json"],
        runtime: Runtime::Node,
        system: &[],
    },
    Set {
        dir: "py-servers",
        peers: &[
            Peer { name: "mcp-server-time", variant: "Time" },
            Peer { name: "mcp-server-git", variant: "Git" },
        ],
        from: &["requirements-servers.txt"],
        runtime: Runtime::Python,
        system: &[],
    },
    Set {
        dir: "py-sqlite",
        peers: &[Peer { name: "mcp-server-sqlite", variant: "Sqlite" }],
        from: &["requirements-sqlite.txt"],
        runtime: Runtime::Python,
        system: &[],
    },
    Set {
        dir: "py-schemathesis",
        peers: &[Peer { name: "schemathesis", variant: "Schemathesis" }],
        from: &["requirements-schemathesis.txt"],
        runtime: Runtime::Python,
        system: &[],
    },
    Set {
        dir: "py-kubernetes",
        peers: &[Peer { name: "kubernetes-validate", variant: "KubernetesValidate" }],
        from: &["requirements-kubernetes.txt"],
        runtime: Runtime::Python,
        system: &[],
    },
    Set {
        dir: "py-valkey",
        peers: &[Peer { name: "valkey", variant: "Valkey" }],
        from: &["requirements-valkey.txt"],
        runtime: Runtime::Python,
        system: &[],
    },
    Set {
        dir: "browser",
        peers: &[Peer { name: "chromium", variant: "Chromium" }],
        from: &["browser/package.json", "browser/package-lock.json"],
        runtime: Runtime::Node,
        system: &[Program { names: &["chromium", "chromium-browser", "google-chrome"], package: "chromium" }],
    },
    Set {
        dir: "keyring",
        peers: &[Peer { name: "gnome-keyring", variant: "Gnome" }],
        from: &[],
        runtime: Runtime::System,
        system: &[
            Program { names: &["dbus-daemon"], package: "dbus-daemon" },
            Program { names: &["gnome-keyring-daemon"], package: "gnome-keyring" },
            Program { names: &["secret-tool"], package: "libsecret-tools" },
        ],
    },
    Set {
        dir: "balancers",
        peers: &[Peer { name: "haproxy", variant: "Haproxy" }, Peer { name: "nginx", variant: "Nginx" }],
        from: &[],
        runtime: Runtime::System,
        system: &[
            Program { names: &["haproxy"], package: "haproxy" },
            Program { names: &["nginx"], package: "nginx-light" },
        ],
    },
    Set {
        dir: "redis",
        peers: &[Peer { name: "redis", variant: "Redis" }],
        from: &[],
        runtime: Runtime::System,
        system: &[
            Program { names: &["redis-server"], package: "redis-server" },
            Program { names: &["redis-sentinel"], package: "redis-sentinel" },
        ],
    },
    Set {
        dir: "systemd",
        peers: &[Peer { name: "systemd", variant: "Systemd" }],
        from: &[],
        runtime: Runtime::System,
        system: &[Program { names: &["systemd-socket-activate"], package: "systemd" }],
    },
    Set {
        dir: "wall-clock",
        peers: &[Peer { name: "faketime", variant: "Faketime" }],
        from: &[],
        runtime: Runtime::System,
        system: &[Program { names: &["faketime"], package: "faketime" }],
    },
];

/// The result of the installation, for the tests and for the summary.
pub(super) struct Installed {
    problems: Vec<(&'static Set, String)>,
}

pub(super) fn install(workspace: &Workspace, install: Install) -> Installed {
    let problems = SETS.iter().filter_map(|set| Some((set, set.install(workspace, install).err()?)));
    Installed { problems: problems.collect() }
}

impl Installed {
    /// The result if the installation thread panicked: no peer is available.
    pub(super) fn nothing() -> Self {
        Self { problems: SETS.iter().map(|set| (set, "the installation was aborted".to_owned())).collect() }
    }

    pub(super) fn missing(&self) -> Vec<&'static str> {
        self.problems.iter().flat_map(|(set, _)| set.peers).map(|peer| peer.name).collect()
    }

    pub(super) fn outcome(&self, workspace: &Workspace, missing: Missing) -> Result<Outcome, String> {
        if self.problems.is_empty() {
            return Ok(Outcome::Ok(String::new()));
        }
        let mut text = format!("peers {} cannot be installed", self.missing().join(", "));
        for (_, problem) in &self.problems {
            text.push_str("\n  ");
            text.push_str(&problem.replace('\n', "\n  "));
        }
        text.push_str("\ntests that need them:\n  ");
        text.push_str(&self.tests_left_out(workspace)?.join("\n  "));
        match missing {
            Missing::LeftOut => Ok(Outcome::LeftOut(text)),
            Missing::Fails => {
                text.push_str("\nhint: `cargo xtask test --allow-missing` runs the others");
                Err(text)
            }
        }
    }

    fn tests_left_out(&self, workspace: &Workspace) -> Result<Vec<String>, String> {
        let variants: Vec<_> =
            self.problems.iter().flat_map(|(set, _)| set.peers).map(|peer| peer.variant).collect();
        let mut left_out = BTreeSet::new();
        for package in &workspace.packages {
            for path in rust_files(&package.dir)? {
                left_out.extend(tests_that_name(&variants, &workspace.display(&path), &read(&path)?));
            }
        }
        Ok(left_out.into_iter().collect())
    }
}

/// Tests that use `Peer::Variant` or the like. For a helper function, the line is listed instead, since any test may call it.
fn tests_that_name(variants: &[&str], file: &str, text: &str) -> Vec<String> {
    let tests = tests_in(text);
    let names_peer =
        |pair: &[String]| ENUMS.iter().any(|name| pair[0] == *name) && variants.contains(&&*pair[1]);
    let paths = paths_in(text.parse().unwrap_or_default());
    let uses = paths.into_iter().filter(|(path, _)| path.windows(2).any(names_peer));
    let users =
        uses.map(|(_, line)| match tests.iter().find(|test| (test.lines.0..=test.lines.1).contains(&line)) {
            Some(test) => format!("{file}: {}", test.name),
            None => format!("{file}: tests that use line {line}"),
        });
    users.collect()
}

impl Set {
    fn install(&self, workspace: &Workspace, install: Install) -> Result<(), String> {
        for program in self.system {
            program.install(install)?;
        }
        let fixtures = workspace.root.join("crates/testkit/peers");
        let dir = workspace.target.join("peers").join(self.dir);
        let stamp = dir.join("installed-from");
        let wanted = self.stamp(&fixtures)?;
        if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(());
        }
        if install == Install::No {
            return Err(format!("{} is missing or out of date, and `--no-install` was given", dir.display()));
        }
        self.start_over(&dir)?;
        match self.runtime {
            Runtime::Node => {
                for file in self.from {
                    let name = Path::new(file).file_name().unwrap_or_default();
                    std::fs::copy(fixtures.join(file), dir.join(name))
                        .map_err(|error| format!("cannot copy {file}: {error}"))?;
                }
                quiet(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(&dir))?;
            }
            Runtime::Python => {
                quiet(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
                let mut pip = Command::new(python(&dir));
                pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
                for file in self.from {
                    pip.arg("-r").arg(fixtures.join(file));
                }
                quiet(&mut pip)?;
            }
            Runtime::System => {}
        }
        std::fs::write(&stamp, wanted).map_err(|error| format!("cannot write {}: {error}", stamp.display()))
    }

    /// The version of the runtime and the content of the files. A change of either causes a new installation.
    fn stamp(&self, fixtures: &Path) -> Result<String, String> {
        let mut stamp = match self.runtime {
            Runtime::Node => quiet(Command::new("node").arg("--version"))?,
            Runtime::Python => quiet(Command::new("python3").arg("--version"))?,
            Runtime::System => String::new(),
        };
        for file in self.from {
            stamp.push_str(&read(&fixtures.join(file))?);
        }
        Ok(stamp)
    }

    fn start_over(&self, dir: &Path) -> Result<(), String> {
        let emptied = match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => std::fs::create_dir_all(dir),
        };
        emptied.map_err(|error| format!("cannot empty {}: {error}", dir.display()))
    }
}

impl Program {
    /// Installs the program with `apt-get` unless the system has it.
    fn install(&self, install: Install) -> Result<(), String> {
        if self.is_installed() {
            return Ok(());
        }
        if install == Install::No {
            return Err(format!("`{}` is not in PATH, and `--no-install` was given", self.names[0]));
        }
        let apt = |args: &[&str]| {
            quiet(Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive"))
        };
        let install = ["install", "--yes", "--no-install-recommends", self.package];
        // The usual cause of a failure is a missing or old package index.
        let installed = apt(&install).or_else(|_| apt(&["update"]).and_then(|_| apt(&install)));
        match installed {
            Ok(_) if self.is_installed() => Ok(()),
            Ok(_) => Err(format!("`{}` was installed but is not in PATH", self.package)),
            Err(why) => Err(format!("`{}` is not in PATH and cannot be installed: {why}", self.names[0])),
        }
    }

    fn is_installed(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| self.names.iter().any(|name| dir.join(name).is_file()))
    }
}

fn python(venv: &Path) -> PathBuf {
    if cfg!(windows) { venv.join("Scripts").join("python.exe") } else { venv.join("bin").join("python") }
}

/// Runs a command without output, since the compiler prints at the same time. An error contains the end of the output.
fn quiet(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output();
    let shown = format!("{command:?}").replace('"', "");
    let output = output.map_err(|error| format!("cannot run `{shown}`: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(10)..].join("\n");
    Err(format!("`{shown}` failed ({}):\n{end}", output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_that_need_a_peer_are_listed() {
        let text = "fn any() -> Peer { Peer::PythonV1(Stdio) }\n\
                    #[test]\nfn python_revives() {\n    run(Peer::PythonV1(Http));\n}\n\
                    #[test]\nfn rmcp_revives() {\n    run(Peer::Rmcp(Http));\n}\n\
                    #[test]\nfn git_answers() {\n    run(Package::Git);\n}\n";
        assert_eq!(
            tests_that_name(&["PythonV1", "Git"], "x.rs", text),
            ["x.rs: tests that use line 1", "x.rs: python_revives", "x.rs: git_answers"]
        );
    }

    #[test]
    fn a_missing_program_is_an_error_without_installing() {
        let program = Program { names: &["no-such-program"], package: "no-such-package" };
        let error = program.install(Install::No).unwrap_err();
        assert_eq!(error, "`no-such-program` is not in PATH, and `--no-install` was given");
    }

    #[test]
    fn a_missing_runtime_is_named_in_the_error() {
        let error = quiet(Command::new("no-such-runtime").arg("--version")).unwrap_err();
        assert!(error.starts_with("cannot run `no-such-runtime --version`: "), "{error}");
    }

    #[test]
    #[cfg(unix)]
    fn the_error_of_a_failed_installation_has_the_end_of_its_output() {
        let error = quiet(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap_err();
        assert_eq!(error, "`sh -c echo out; echo err >&2; exit 3` failed (exit status: 3):\nout\nerr");
    }
}

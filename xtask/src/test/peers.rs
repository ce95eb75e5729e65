//! The real MCP servers and clients that the tests talk to, and the official conformance suite, installed into
//! `target/peers` in exact versions.
//!
//! Each set has a stamp with all that it was made from; while the stamp fits, nothing is done. The fixtures themselves,
//! and the versions, are in `crates/testkit/peers`; how a test starts one is in `crates/testkit/src`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Missing;
use super::report::Outcome;
use crate::source::{tests_in::tests_in, tokens};
use crate::workspace::{Workspace, read, rust_files};

/// Peers that are installed together.
struct Set {
    /// The directory under `target/peers`.
    dir: &'static str,
    peers: &'static [Peer],
    /// Under `crates/testkit/peers`: what decides the versions.
    from: &'static [&'static str],
    runtime: Runtime,
    /// What the system itself has to have.
    system: &'static [Program],
}

/// A program of the system's own, and Debian's name for it.
struct Program {
    names: &'static [&'static str],
    package: &'static str,
}

/// A peer by its name in `GRIPFAST_MISSING_PEERS`, and by the variant of [`ENUMS`] that tests say.
struct Peer {
    name: &'static str,
    variant: &'static str,
}

/// Where the variants are, in `testkit`.
const ENUMS: [&str; 6] = ["Peer", "Package", "Client", "Suite", "Browser", "Keyring"];

#[derive(Clone, Copy)]
enum Runtime {
    Node,
    Python,
    /// The system's own programs are all that it takes.
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
];

/// How the installation went, for the tests and for the summary.
pub(super) struct Installed {
    problems: Vec<(&'static Set, String)>,
}

pub(super) fn install(workspace: &Workspace) -> Installed {
    let problems = SETS.iter().filter_map(|set| Some((set, set.install(workspace).err()?)));
    Installed { problems: problems.collect() }
}

impl Installed {
    /// When nothing is known, nothing is there.
    pub(super) fn nothing() -> Self {
        Self { problems: SETS.iter().map(|set| (set, "the installation broke off".to_owned())).collect() }
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

/// Tests whose body says `Peer::Variant` or the like. Where a helper says it, any test of the file may be meant.
fn tests_that_name(variants: &[&str], file: &str, text: &str) -> Vec<String> {
    let tests = tests_in(text);
    let tokens = tokens(text);
    let says = tokens.windows(3).filter(|window| {
        ENUMS.iter().any(|name| window[0].is(name))
            && window[1].is("::")
            && variants.iter().any(|variant| window[2].is(variant))
    });
    let who = says.map(|window| {
        let line = window[0].line;
        match tests.iter().find(|test| (test.lines.0..=test.lines.1).contains(&line)) {
            Some(test) => format!("{file}: {}", test.name),
            None => format!("{file}: what uses line {line}"),
        }
    });
    who.collect()
}

impl Set {
    fn install(&self, workspace: &Workspace) -> Result<(), String> {
        for program in self.system {
            program.install()?;
        }
        let fixtures = workspace.root.join("crates/testkit/peers");
        let dir = workspace.target.join("peers").join(self.dir);
        let stamp = dir.join("installed-from");
        let wanted = self.stamp(&fixtures)?;
        if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(());
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

    /// The runtime's version and the content of the files: when either changes, everything is made anew.
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
    /// Takes it from the system, or has Debian's package manager fetch it where that is there and may.
    fn install(&self) -> Result<(), String> {
        if self.is_there() {
            return Ok(());
        }
        let apt = |args: &[&str]| {
            quiet(Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive"))
        };
        let install = ["install", "--yes", "--no-install-recommends", self.package];
        // Lists of packages that are missing or old are the usual cause.
        let installed = apt(&install).or_else(|_| apt(&["update"]).and_then(|_| apt(&install)));
        match installed {
            Ok(_) if self.is_there() => Ok(()),
            Ok(_) => Err(format!("`{}` was installed and is not in PATH", self.package)),
            Err(why) => {
                Err(format!("there is no `{}` in PATH, and it cannot be installed: {why}", self.names[0]))
            }
        }
    }

    fn is_there(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| self.names.iter().any(|name| dir.join(name).is_file()))
    }
}

fn python(venv: &Path) -> PathBuf {
    if cfg!(windows) { venv.join("Scripts").join("python.exe") } else { venv.join("bin").join("python") }
}

/// Runs beside the compiler, so it says nothing unless it fails; then the end of its output is in the error.
fn quiet(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output();
    let shown = format!("{command:?}").replace('"', "");
    let output = output.map_err(|error| format!("cannot run `{shown}`: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<_> = said.lines().collect();
    let end = lines[lines.len().saturating_sub(10)..].join("\n");
    Err(format!("`{shown}` failed ({}):\n{end}", output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_that_need_a_peer_are_named() {
        let text = "fn any() -> Peer { Peer::PythonV1(Stdio) }\n\
                    #[test]\nfn python_revives() {\n    run(Peer::PythonV1(Http));\n}\n\
                    #[test]\nfn rmcp_revives() {\n    run(Peer::Rmcp(Http));\n}\n\
                    #[test]\nfn git_answers() {\n    run(Package::Git);\n}\n";
        assert_eq!(
            tests_that_name(&["PythonV1", "Git"], "x.rs", text),
            ["x.rs: what uses line 1", "x.rs: python_revives", "x.rs: git_answers"]
        );
    }

    #[test]
    fn a_runtime_that_is_not_there_is_said_by_name() {
        let error = quiet(Command::new("no-such-runtime").arg("--version")).unwrap_err();
        assert!(error.starts_with("cannot run `no-such-runtime --version`: "), "{error}");
    }

    #[test]
    #[cfg(unix)]
    fn a_failed_installation_says_how_it_ended() {
        let error = quiet(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap_err();
        assert_eq!(error, "`sh -c echo out; echo err >&2; exit 3` failed (exit status: 3):\nout\nerr");
    }
}

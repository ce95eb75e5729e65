//! `cargo xtask audit`: checks all dependencies for known vulnerabilities. The advisory database needs the network, so this
//! is a separate command and not a step of `cargo xtask test`.

use std::process::{Command, Stdio};

use crate::test::{Install, tools};
use crate::workspace::Workspace;

/// The reaction to an unreachable database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreachable {
    Fails,
    LeftOut,
}

/// Checks all dependencies. The result is a summary.
pub(crate) fn run(workspace: &Workspace, unreachable: Unreachable) -> Result<String, String> {
    let tool = tools::cargo_deny(workspace, Install::Yes)?;
    let deny = |words: &[&str]| {
        let mut command = Command::new(&tool);
        let status = command.args(words).current_dir(&workspace.root).stdin(Stdio::null()).status();
        status.map_err(|error| format!("cannot start {}: {error}", tool.display()))
    };
    let fetched = deny(&["--log-level", "error", "fetch", "db"])?.success();
    match verdict(fetched, || Ok(deny(&["check", "--disable-fetch", "advisories"])?.success()))? {
        Verdict::Clean => Ok("no dependency has a known vulnerability".to_owned()),
        Verdict::Found => Err("a dependency has an advisory, see above".to_owned()),
        Verdict::NotChecked => {
            let what = "the advisory database is unreachable: nothing was checked";
            match unreachable {
                Unreachable::Fails => {
                    Err(format!("{what}\nhint: with `--allow-missing` this is not a failure"))
                }
                Unreachable::LeftOut => Ok(what.to_owned()),
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Clean,
    Found,
    NotChecked,
}

/// Without a fresh database there is no verdict, even if an old copy reports nothing.
fn verdict(fetched: bool, check: impl FnOnce() -> Result<bool, String>) -> Result<Verdict, String> {
    if !fetched {
        return Ok(Verdict::NotChecked);
    }
    check().map(|clean| if clean { Verdict::Clean } else { Verdict::Found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::read;

    #[test]
    fn without_a_database_nothing_counts_as_clean() {
        assert_eq!(verdict(false, || Ok(true)), Ok(Verdict::NotChecked));
        assert_eq!(verdict(true, || Ok(true)), Ok(Verdict::Clean));
        assert_eq!(verdict(true, || Ok(false)), Ok(Verdict::Found));
    }

    #[test]
    fn release_builds_of_the_pure_crates_check_for_overflow() {
        let manifest = read(&Workspace::find().unwrap().root.join("Cargo.toml")).unwrap();
        for pure in ["gripfast-core", "gripfast-wire"] {
            let profile = format!("[profile.release.package.{pure}]\n");
            let (_, keys) = manifest.split_once(&profile).unwrap_or_else(|| panic!("no {profile}"));
            let keys = keys.split("\n[").next().unwrap_or_default();
            assert!(keys.contains("overflow-checks = true"), "{profile}{keys}");
        }
    }
}

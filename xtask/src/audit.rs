//! `cargo xtask audit`: whether a crate that we link has a known vulnerability. The advisories are in a database on the
//! network, so this is a command of its own and no step of `cargo xtask test`.

use std::process::{Command, Stdio};

use crate::test::tools;
use crate::workspace::Workspace;

/// What to do where the database cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreachable {
    Fails,
    LeftOut,
}

/// Checks all dependencies; answers with a summary.
pub(crate) fn run(workspace: &Workspace, unreachable: Unreachable) -> Result<String, String> {
    let tool = tools::cargo_deny(workspace)?;
    let deny = |words: &[&str]| {
        let mut command = Command::new(&tool);
        let status = command.args(words).current_dir(&workspace.root).stdin(Stdio::null()).status();
        status.map_err(|error| format!("cannot start {}: {error}", tool.display()))
    };
    let fetched = deny(&["--log-level", "error", "fetch", "db"])?.success();
    match verdict(fetched, || Ok(deny(&["check", "--disable-fetch", "advisories"])?.success()))? {
        Verdict::Clean => Ok("no crate that we depend on has a known vulnerability".to_owned()),
        Verdict::Found => Err("a dependency has an advisory, see above".to_owned()),
        Verdict::NotChecked => {
            let what = "the advisory database cannot be reached: nothing was checked";
            match unreachable {
                Unreachable::Fails => Err(format!("{what}\nhint: `--allow-missing` makes that no failure")),
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

/// A database that could not be fetched says nothing, even if an old copy of it is clean.
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
    fn a_database_that_is_not_there_is_no_clean_bill() {
        assert_eq!(verdict(false, || Ok(true)), Ok(Verdict::NotChecked));
        assert_eq!(verdict(true, || Ok(true)), Ok(Verdict::Clean));
        assert_eq!(verdict(true, || Ok(false)), Ok(Verdict::Found));
    }

    #[test]
    fn sums_are_checked_in_the_released_pure_crates() {
        let manifest = read(&Workspace::find().unwrap().root.join("Cargo.toml")).unwrap();
        for pure in ["gripfast-core", "gripfast-wire"] {
            let profile = format!("[profile.release.package.{pure}]\n");
            let (_, keys) = manifest.split_once(&profile).unwrap_or_else(|| panic!("no {profile}"));
            let keys = keys.split("\n[").next().unwrap_or_default();
            assert!(keys.contains("overflow-checks = true"), "{profile}{keys}");
        }
    }
}

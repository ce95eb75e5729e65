//! Sets of scenarios that one client would be, and what came of them.

use gripfast_testkit::conformance::{self, Check, Form, Results, Status, Suite};
use std::collections::BTreeSet;
use std::process::Stdio;

/// All scenarios for servers that a version of the suite has for clients of one era.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    /// The older suite, which knows nothing else than the legacy era.
    Older,
    /// The newer suite as a legacy client.
    Legacy,
    /// The newer suite as a modern client, with the extensions that only this era has.
    Modern,
}

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// Extensions that came after the revision are in none of the suite's own sets, and run one by one.
const ONE_BY_ONE: [&str; 3] =
    ["sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest"];

/// The suite never looks at these.
const NEVER_LOOKED_AT: [&str; 1] = ["tasks-status-notifications"];

impl Set {
    /// The form of a server that its client would meet without a gateway.
    pub(crate) fn era(self) -> Form {
        match self {
            Self::Older | Self::Legacy => Form::Legacy,
            Self::Modern => Form::Modern,
        }
    }

    pub(crate) fn suite(self) -> Suite {
        match self {
            Self::Older => Suite::V0_1,
            Self::Legacy | Self::Modern => Suite::V0_2,
        }
    }

    /// Whether a scenario belongs to it of which the suite says that it is `of` these versions.
    pub(crate) fn has(self, of: &[String]) -> bool {
        match self {
            Self::Older | Self::Legacy => of.iter().any(|version| version == LEGACY),
            Self::Modern => of.iter().any(|version| version == MODERN || version == "extension"),
        }
    }

    /// The names of all scenarios that belong to it.
    pub(crate) fn scenarios(self) -> BTreeSet<String> {
        let listed = self.suite().scenarios("--server");
        listed.into_iter().filter(|(_, of)| self.has(of)).map(|(name, _)| name).collect()
    }

    /// Puts every scenario to the server at this address.
    pub(crate) fn run(self, url: &str) -> Results {
        let runs: Vec<Vec<&str>> = match self {
            Self::Older => vec![vec!["--suite", "all"]],
            Self::Legacy => vec![vec!["--suite", "all", "--spec-version", LEGACY]],
            Self::Modern => {
                let alone = ONE_BY_ONE.iter().map(|name| vec!["--scenario", *name]);
                std::iter::once(vec!["--requirements", MODERN]).chain(alone).collect()
            }
        };
        let dir = tempfile::tempdir().unwrap();
        let mut said = String::new();
        for run in runs {
            let args =
                [&["server", "--url", url, "--output-dir", dir.path().to_str().unwrap()], &*run].concat();
            let mut command = self.suite().command(&args);
            let output = command.stderr(Stdio::piped()).stdout(Stdio::piped()).output().unwrap();
            said.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        let results = conformance::results(dir.path());
        assert!(!results.is_empty(), "the suite does not run: {said}");
        results
    }
}

/// Every scenario in which something does not hold.
pub(crate) fn imperfections(results: &Results) -> Vec<String> {
    let mut found = Vec::new();
    for (scenario, checks) in results {
        if NEVER_LOOKED_AT.contains(&scenario.as_str()) {
            continue;
        }
        let bad = |check: &&Check| !matches!(check.status, Status::Success | Status::Info);
        found.extend(checks.iter().filter(bad).map(|check| format!("{scenario}: {check}")));
        if !checks.iter().any(|check| check.status == Status::Success) {
            found.push(format!("{scenario}: nothing holds"));
        }
    }
    found
}

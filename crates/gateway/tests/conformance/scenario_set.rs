//! Sets of scenarios for clients of one era, and the comparison of their results.

use gripfast_testkit::conformance::{self, Check, Results, ServerEra, Status, Suite};
use std::collections::BTreeSet;

/// All server scenarios that a version of the suite has for clients of one era.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScenarioSet {
    /// Older suite, which has only the legacy era.
    Older,
    /// Newer suite as a legacy client.
    Legacy,
    /// Newer suite as a modern client, with the extensions that only this era has.
    Modern,
}

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// Extensions newer than the revision. They are in no set of the suite and run one by one.
const ONE_BY_ONE: [&str; 3] =
    ["sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest"];

/// Scenarios in which the suite fails after half a second of silence, which a busy machine may exceed. They are
/// repeated; a real failure fails each time.
const TIMED: [&str; 1] = ["server-stateless"];
const ATTEMPTS: usize = 2;

/// Scenarios that the suite never checks.
const NEVER_LOOKED_AT: [&str; 1] = ["tasks-status-notifications"];

impl ScenarioSet {
    /// Era of the server that its client would use without a gateway.
    pub(crate) fn era(self) -> ServerEra {
        match self {
            Self::Older | Self::Legacy => ServerEra::Legacy,
            Self::Modern => ServerEra::Modern,
        }
    }

    pub(crate) fn suite(self) -> Suite {
        match self {
            Self::Older => Suite::V0_1,
            Self::Legacy | Self::Modern => Suite::V0_2,
        }
    }

    /// Returns true if a scenario that the suite lists as `of` these versions belongs to this set.
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

    /// Runs every scenario against the server at this URL.
    pub(crate) fn run(self, url: &str) -> Results {
        let all: &[&str] = match self {
            Self::Older => &["--suite", "all"],
            Self::Legacy => &["--suite", "all", "--spec-version", LEGACY],
            Self::Modern => &["--requirements", MODERN],
        };
        let mut results = self.run_some(url, all);
        if self == Self::Modern {
            for scenario in ONE_BY_ONE {
                results.extend(self.run_some(url, &["--scenario", scenario]));
            }
        }
        results
    }

    fn run_some(self, url: &str, which: &[&str]) -> Results {
        let dir = tempfile::tempdir().unwrap();
        let args = [&["server", "--url", url, "--output-dir", dir.path().to_str().unwrap()], which].concat();
        let output = self.suite().command(&args).output().unwrap();
        let results = conformance::results(dir.path());
        assert!(!results.is_empty(), "the suite does not run: {}", String::from_utf8_lossy(&output.stderr));
        results
    }

    /// Repeats the timed scenarios that are `bad`.
    pub(crate) fn give_time(
        self,
        url: &str,
        results: &mut Results,
        bad: impl Fn(&Results) -> BTreeSet<String>,
    ) {
        for _ in 0..ATTEMPTS {
            let again: Vec<_> =
                bad(results).into_iter().filter(|name| TIMED.contains(&name.as_str())).collect();
            for scenario in again {
                let which: &[&str] = match self {
                    Self::Older => &[],
                    Self::Legacy => &["--spec-version", LEGACY],
                    Self::Modern => &["--spec-version", MODERN],
                };
                results.extend(self.run_some(url, &[&["--scenario", &scenario], which].concat()));
            }
        }
    }
}

/// Check that passes directly and not through gripfast.
pub(crate) struct Regression {
    pub(crate) scenario: String,
    pub(crate) check: String,
    pub(crate) how: String,
}

/// Checks that do not pass: the scenario, and the text of the suite.
pub(crate) fn imperfections(results: &Results) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (scenario, checks) in results {
        if NEVER_LOOKED_AT.contains(&scenario.as_str()) {
            continue;
        }
        let bad = |check: &&Check| !matches!(check.status, Status::Success | Status::Info);
        found.extend(checks.iter().filter(bad).map(|check| (scenario.clone(), check.to_string())));
        if !checks.iter().any(|check| check.status == Status::Success) {
            found.push((scenario.clone(), "nothing holds".to_owned()));
        }
    }
    found
}

/// Checks that pass in `direct` and not in `through`. `Info` counts as passed: the suite reports it where a server is
/// free to behave differently.
pub(crate) fn regressions(direct: &Results, through: &Results) -> Vec<Regression> {
    let mut regressions = Vec::new();
    for (scenario, checks) in direct {
        let held: BTreeSet<&str> =
            checks.iter().filter(|check| check.status == Status::Success).map(|check| &*check.id).collect();
        let now = through.get(scenario).map_or(&[][..], Vec::as_slice);
        let mut lose = |check: &str, how: String| {
            regressions.push(Regression { scenario: scenario.clone(), check: check.to_owned(), how });
        };
        for id in &held {
            if !now.iter().any(|check| check.id == **id) {
                lose(id, "the suite did not get there".to_owned());
            }
        }
        for check in now {
            let looked_at = held.contains(&*check.id) || check.status != Status::Skipped;
            if looked_at && !matches!(check.status, Status::Success | Status::Info) {
                lose(&check.id, format!("{:?}: {}", check.status, check.text));
            }
        }
    }
    regressions
}

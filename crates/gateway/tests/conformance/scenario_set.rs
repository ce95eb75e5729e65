//! Sets of scenarios that one client would be, and what came of them.

use gripfast_testkit::conformance::{self, Check, Form, Results, Status, Suite};
use std::collections::BTreeSet;

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

/// Here the suite waits for half a second and takes silence for a failure. On a machine that has other things to do, that
/// is said of the machine; whatever is really wrong is wrong each time.
const TIMED: [&str; 1] = ["server-stateless"];
const ATTEMPTS: usize = 2;

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

    /// Puts scenarios with a clock of their own once more, if they are `bad` and nothing but time may be to blame.
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

/// What held directly and does not hold here: the scenario, and the check or that it is gone.
pub(crate) struct Loss {
    pub(crate) scenario: String,
    pub(crate) check: String,
    pub(crate) how: String,
}

/// Everything that does not hold: the scenario, and what the suite says.
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

/// What `direct` has and `through` has not. A check that only looked is as good as one that held: the suite says so
/// where a server is free to do otherwise.
pub(crate) fn losses(direct: &Results, through: &Results) -> Vec<Loss> {
    let mut losses = Vec::new();
    for (scenario, checks) in direct {
        let held: BTreeSet<&str> =
            checks.iter().filter(|check| check.status == Status::Success).map(|check| &*check.id).collect();
        let now = through.get(scenario).map_or(&[][..], Vec::as_slice);
        let mut lose = |check: &str, how: String| {
            losses.push(Loss { scenario: scenario.clone(), check: check.to_owned(), how });
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
    losses
}

//! Checks that pass directly and not through gripfast, each with its reason. An entry whose check passes fails the
//! test, and so does one whose scenario does not exist.

use crate::scenario_set::{Regression, ScenarioSet};
use crate::test_gateway::{Placement, Transport, Upstream};
use gripfast_testkit::conformance::ServerEra;

/// Scenarios excepted for one reason.
pub(crate) struct Exception {
    /// The era of the client.
    client: ServerEra,
    /// The server behind gripfast, and where it stands; `None` means any.
    server: Option<ServerEra>,
    transport: Option<Transport>,
    placement: Option<Placement>,
    pub(crate) why: &'static str,
    /// Each with the checks that do not pass. Without checks, the whole scenario does not apply, and any of its checks
    /// may pass or fail.
    pub(crate) scenarios: &'static [(&'static str, &'static [&'static str])],
}

impl Exception {
    pub(crate) fn applies(&self, set: ScenarioSet, upstream: Upstream) -> bool {
        self.client == set.era()
            && self.server.is_none_or(|form| form == upstream.form)
            && self.transport.is_none_or(|transport| transport == upstream.transport)
            && self.placement.is_none_or(|placement| placement == upstream.placement)
    }

    pub(crate) fn covers(&self, loss: &Regression) -> bool {
        self.scenarios.iter().any(|(scenario, checks)| {
            *scenario == loss.scenario && (checks.is_empty() || checks.contains(&&*loss.check))
        })
    }

    /// Checks that this entry names and that passed.
    pub(crate) fn stale(&self, regressions: &[Regression]) -> Vec<String> {
        let mut stale = Vec::new();
        for (scenario, checks) in self.scenarios {
            let lost: Vec<&str> = regressions
                .iter()
                .filter(|loss| loss.scenario == *scenario)
                .map(|loss| &*loss.check)
                .collect();
            if checks.is_empty() && lost.is_empty() {
                stale.push((*scenario).to_owned());
            }
            let holding = checks.iter().filter(|check| !lost.contains(check));
            stale.extend(holding.map(|check| format!("{scenario}: {check}")));
        }
        stale
    }
}

const ANY: Exception = Exception {
    client: ServerEra::Legacy,
    server: None,
    transport: None,
    placement: None,
    why: "",
    scenarios: &[],
};

pub(crate) const EXCEPTIONS: &[Exception] = &[
    Exception {
        client: ServerEra::Modern,
        server: Some(ServerEra::Legacy),
        why: "extensions belong to the modern era: a server of the legacy one has none that a client could be told of",
        scenarios: &[
            ("sep-2640-skills-directory", &[]),
            ("sep-2640-skills-enumeration", &[]),
            ("sep-2640-skills-manifest", &[]),
            ("tasks-capability-negotiation", &[]),
            ("tasks-dispatch-and-envelope", &[]),
            ("tasks-lifecycle", &[]),
            ("tasks-mrtr-composition", &[]),
            ("tasks-mrtr-input", &[]),
            ("tasks-request-headers", &[]),
            ("tasks-request-state-removal", &[]),
            ("tasks-required-task-error", &[]),
            ("tasks-wire-fields", &[]),
        ],
        ..ANY
    },
    Exception {
        client: ServerEra::Modern,
        server: Some(ServerEra::Legacy),
        why: "looks for the key under which a modern server asks; a question of a legacy server has no key, so it is ours",
        scenarios: &[(
            "input-required-result-basic-elicitation",
            &["sep-2322-elicitation-incomplete", "sep-2322-elicitation-complete"],
        )],
        ..ANY
    },
    Exception {
        client: ServerEra::Modern,
        server: Some(ServerEra::Legacy),
        why: "brings the answer before it was asked; a legacy server asks when it needs to know, and only then is there \
              something to answer",
        scenarios: &[("input-required-result-ignore-extra-params", &["sep-2322-ignore-unexpected-params"])],
        ..ANY
    },
    Exception {
        client: ServerEra::Modern,
        server: Some(ServerEra::Legacy),
        why: "a legacy server cannot see what each request declares: it asks while it works, is declined, and may well do \
              without; its answer is the answer",
        scenarios: &[(
            "server-stateless",
            &["sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400"],
        )],
        ..ANY
    },
    Exception {
        client: ServerEra::Modern,
        server: Some(ServerEra::Modern),
        why: "every item says in `_meta` whose it is, under the prefix `gripfast/`; the check takes it for a skill's own key",
        scenarios: &[("sep-2640-skills-manifest", &["sep-2640-meta-prefix"])],
        ..ANY
    },
];

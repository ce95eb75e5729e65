//! What holds directly and not through gripfast, with the reason. An entry that names a check which holds after all
//! fails the test, and so does a scenario that does not exist.

use crate::scene::{Company, Transport, Upstream};
use crate::set::{Loss, Set};
use gripfast_testkit::conformance::Form;

/// Scenarios that one reason is good for.
pub(crate) struct Exception {
    /// The era of the client.
    client: Form,
    /// The server behind gripfast, and where it stands; `None` means any.
    server: Option<Form>,
    transport: Option<Transport>,
    company: Option<Company>,
    pub(crate) why: &'static str,
    /// Each with the checks that do not hold. Where none is named, the scenario as a whole does not apply: some of it
    /// may hold, and all of it need not.
    pub(crate) scenarios: &'static [(&'static str, &'static [&'static str])],
}

impl Exception {
    pub(crate) fn applies(&self, set: Set, upstream: Upstream) -> bool {
        self.client == set.era()
            && self.server.is_none_or(|form| form == upstream.form)
            && self.transport.is_none_or(|transport| transport == upstream.transport)
            && self.company.is_none_or(|company| company == upstream.company)
    }

    pub(crate) fn covers(&self, loss: &Loss) -> bool {
        self.scenarios.iter().any(|(scenario, checks)| {
            *scenario == loss.scenario && (checks.is_empty() || checks.contains(&&*loss.check))
        })
    }

    /// What it names and was not lost.
    pub(crate) fn stale(&self, losses: &[Loss]) -> Vec<String> {
        let mut stale = Vec::new();
        for (scenario, checks) in self.scenarios {
            let lost: Vec<&str> =
                losses.iter().filter(|loss| loss.scenario == *scenario).map(|loss| &*loss.check).collect();
            if checks.is_empty() && lost.is_empty() {
                stale.push((*scenario).to_owned());
            }
            let holding = checks.iter().filter(|check| !lost.contains(check));
            stale.extend(holding.map(|check| format!("{scenario}: {check}")));
        }
        stale
    }
}

const ANY: Exception =
    Exception { client: Form::Legacy, server: None, transport: None, company: None, why: "", scenarios: &[] };

pub(crate) const EXCEPTIONS: &[Exception] = &[
    Exception {
        client: Form::Modern,
        server: Some(Form::Legacy),
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
        client: Form::Modern,
        server: Some(Form::Legacy),
        why: "looks for the key under which a modern server asks; a question of a legacy server has no key, so it is ours",
        scenarios: &[(
            "input-required-result-basic-elicitation",
            &["sep-2322-elicitation-incomplete", "sep-2322-elicitation-complete"],
        )],
        ..ANY
    },
    Exception {
        client: Form::Modern,
        server: Some(Form::Legacy),
        why: "brings the answer before it was asked; a legacy server asks when it needs to know, and only then is there \
              something to answer",
        scenarios: &[("input-required-result-ignore-extra-params", &["sep-2322-ignore-unexpected-params"])],
        ..ANY
    },
    Exception {
        client: Form::Modern,
        server: Some(Form::Legacy),
        why: "a legacy server cannot see what each request declares: it asks while it works, is declined, and may well do \
              without; its answer is the answer",
        scenarios: &[(
            "server-stateless",
            &["sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400"],
        )],
        ..ANY
    },
    Exception {
        client: Form::Modern,
        server: Some(Form::Modern),
        why: "every item says in `_meta` whose it is, under the prefix `gripfast/`; the check takes it for a skill's own key",
        scenarios: &[("sep-2640-skills-manifest", &["sep-2640-meta-prefix"])],
        ..ANY
    },
];

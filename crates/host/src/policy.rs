//! Who may see and use what of this host: the lists of its servers and of its clients, and the guard of the
//! program that embeds it. What lists mean is decided in `core`; here is who has a say.

use crate::client::Principal;
use gripfast_core::failure::recovery::ToolHints;
use gripfast_core::policy::Pattern;
pub use gripfast_core::policy::allow::{BadEntry, Decision, Kind, Lists, Policy};
use gripfast_core::policy::allow::{Subject, Whose, decide, decide_method};
use std::sync::Arc;

/// What a guard says about a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may be seen and called, if the lists agree.
    Allow,
    /// It may not, for this reason.
    Deny(String),
}

/// A program's own rule over the tools of all servers: it is asked with the server and the server's own name of
/// the tool. What it denies is not listed and cannot be called. It is asked whenever tools are listed or called,
/// so it should be quick.
pub(crate) type Guard = Arc<dyn Fn(&str, &str) -> Verdict + Send + Sync>;

/// What some clients may see and use.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientPolicy {
    /// Which clients, as a pattern over the names of principals. Where several fit a client, each of them must
    /// allow what it does.
    pub clients: String,
    /// Their lists.
    pub policy: Policy,
}

/// The rules of one server, for everybody.
#[derive(Default)]
pub(crate) struct Rules {
    pub(crate) policy: Policy,
    pub(crate) guard: Option<Guard>,
}

impl Rules {
    /// Whether there is nothing to decide.
    pub(crate) fn are_open(&self) -> bool {
        self.guard.is_none() && self.policy.is_open()
    }

    /// Whether everybody may see it.
    pub(crate) fn show(&self, subject: &Subject<'_>) -> bool {
        self.are_open() || self.decide(&Audience::default(), subject).allowed
    }

    /// Decides about a method that is not of the protocol.
    pub(crate) fn decide_method(&self, server: &str, audience: &Audience, method: &str) -> Decision {
        let server = (Whose::Server(server), &self.policy);
        decide_method(std::iter::once(server).chain(audience.lists()), method)
    }

    /// Decides for an audience, and says why.
    pub(crate) fn decide(&self, audience: &Audience, subject: &Subject<'_>) -> Decision {
        let server = (Whose::Server(subject.server), &self.policy);
        let clients = audience.lists();
        let policies: Vec<_> = std::iter::once(server).chain(clients).collect();
        let decision = decide(policies.iter().copied(), subject);
        match (&self.guard, subject.kind) {
            (Some(guard), Kind::Tool) if decision.allowed => match guard(subject.server, subject.name) {
                Verdict::Allow => decision,
                Verdict::Deny(reason) => {
                    Decision { allowed: false, reason: format!("denied by the program: {reason}") }
                }
            },
            (Some(_) | None, _) => decision,
        }
    }
}

/// The lists of all clients.
#[derive(Debug, Default)]
pub(crate) struct ClientLists(Vec<(Pattern, Policy)>);

impl ClientLists {
    pub(crate) fn new(policies: Vec<ClientPolicy>) -> Self {
        Self(policies.into_iter().map(|lists| (Pattern::new(lists.clients), lists.policy)).collect())
    }

    /// Whether there are none.
    pub(crate) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The lists that have a say about what this principal does. The program itself has no lists.
    pub(crate) fn concerning(self: &Arc<Self>, principal: Option<&Principal>) -> Audience {
        if self.0.is_empty() {
            return Audience::default();
        }
        let fits = |name: &Pattern| principal.is_some_and(|principal| name.matches(principal.name()));
        let concerned = self.0.iter().enumerate().filter(|(_, (name, _))| fits(name));
        Audience { places: concerned.map(|(at, _)| at).collect(), all: Some(Arc::clone(self)) }
    }
}

/// Whoever the same lists of clients are about. What they are shown is made once for all of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Audience {
    places: Vec<usize>,
    all: Option<Arc<ClientLists>>,
}

impl Audience {
    /// Whether no list of a client has a say.
    pub(crate) fn is_everybody(&self) -> bool {
        self.places.is_empty()
    }

    /// What tells it from other audiences.
    pub(crate) fn places(&self) -> &[usize] {
        &self.places
    }

    /// Whether the same lists, and not those of another config in the same places, are about both.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let of_same_config = match (&self.all, &other.all) {
            (Some(these), Some(those)) => Arc::ptr_eq(these, those),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        of_same_config && self.places == other.places
    }

    fn lists(&self) -> impl Iterator<Item = (Whose<'_>, &Policy)> {
        let all = self.all.as_deref();
        self.places.iter().filter_map(move |at| {
            let (name, policy) = all?.0.get(*at)?;
            Some((Whose::Client(name.text()), policy))
        })
    }

    /// Whether its lists let it see something that everybody may see.
    pub(crate) fn sees(&self, subject: &Subject<'_>) -> bool {
        let lists: Vec<_> = self.lists().collect();
        decide(lists.iter().copied(), subject).allowed
    }
}

/// A thing of a server's catalog.
pub(crate) fn subject<'a>(server: &'a str, kind: Kind, name: &'a str, hints: ToolHints) -> Subject<'a> {
    Subject { server, kind, name, hints }
}

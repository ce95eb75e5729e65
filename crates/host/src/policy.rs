//! Access policies of a host: the lists of its servers and of its clients, and the guard of the embedding program.
//! `core` evaluates a list; this module decides which lists apply.

use crate::client::Principal;
use gripfast_core::failure::recovery::ToolHints;
use gripfast_core::policy::Pattern;
pub use gripfast_core::policy::allow::{BadEntry, ItemKind, Lists, Policy, PolicyDecision};
use gripfast_core::policy::allow::{ListOwner, PolicyTarget, decide, decide_method};
use std::sync::Arc;

/// Decision of a guard about a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardVerdict {
    /// The tool may be seen and called, if the policies allow it too.
    Allow,
    /// The tool is denied, for this reason.
    Deny(String),
}

/// Custom rule of the embedding program for the tools of all servers. It is called with the server and the server's
/// own tool name whenever tools are listed or called, so it should be fast. A tool that it denies is not listed and
/// cannot be called.
pub(crate) type Guard = Arc<dyn Fn(&str, &str) -> GuardVerdict + Send + Sync>;

/// Policy of a group of clients.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientPolicy {
    /// Pattern for principal names. If several policies match a principal, all of them must allow an access.
    pub clients: String,
    /// The lists of these clients.
    pub policy: Policy,
}

/// The rules of one server that apply to all clients.
#[derive(Default)]
pub(crate) struct ServerRules {
    pub(crate) policy: Policy,
    pub(crate) guard: Option<Guard>,
}

impl ServerRules {
    /// Returns true if there are no restrictions.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.guard.is_none() && self.policy.is_unrestricted()
    }

    /// Returns true if the server's rules do not hide the item.
    pub(crate) fn is_visible(&self, target: &PolicyTarget<'_>) -> bool {
        self.is_unrestricted() || self.decide(&Audience::default(), target).allowed
    }

    /// Decides about a method that MCP does not define.
    pub(crate) fn decide_method(&self, server: &str, audience: &Audience, method: &str) -> PolicyDecision {
        let server = (ListOwner::Server(server), &self.policy);
        decide_method(std::iter::once(server).chain(audience.lists()), method)
    }

    /// Decides about an item for an audience, with the reason.
    pub(crate) fn decide(&self, audience: &Audience, target: &PolicyTarget<'_>) -> PolicyDecision {
        let server = (ListOwner::Server(target.server), &self.policy);
        let clients = audience.lists();
        let policies: Vec<_> = std::iter::once(server).chain(clients).collect();
        let decision = decide(policies.iter().copied(), target);
        match (&self.guard, target.kind) {
            (Some(guard), ItemKind::Tool) if decision.allowed => match guard(target.server, target.name) {
                GuardVerdict::Allow => decision,
                GuardVerdict::Deny(reason) => {
                    PolicyDecision { allowed: false, reason: format!("denied by the program: {reason}") }
                }
            },
            (Some(_) | None, _) => decision,
        }
    }
}

/// The policies of all clients.
#[derive(Debug, Default)]
pub(crate) struct ClientLists(Vec<(Pattern, Policy)>);

impl ClientLists {
    pub(crate) fn new(policies: Vec<ClientPolicy>) -> Self {
        Self(policies.into_iter().map(|lists| (Pattern::new(lists.clients), lists.policy)).collect())
    }

    /// Returns true if there are no client policies.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The policies that apply to this principal. None apply to the program itself.
    pub(crate) fn for_principal(self: &Arc<Self>, principal: Option<&Principal>) -> Audience {
        if self.0.is_empty() {
            return Audience::default();
        }
        let fits = |name: &Pattern| principal.is_some_and(|principal| name.matches(principal.name()));
        let concerned = self.0.iter().enumerate().filter(|(_, (name, _))| fits(name));
        Audience { indexes: concerned.map(|(at, _)| at).collect(), all: Some(Arc::clone(self)) }
    }
}

/// A set of client policies that apply together. Its view of the catalog is shared by all principals with the same
/// set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Audience {
    indexes: Vec<usize>,
    all: Option<Arc<ClientLists>>,
}

impl Audience {
    /// Returns true if no client policy applies.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.indexes.is_empty()
    }

    /// The indexes of the policies.
    pub(crate) fn indexes(&self) -> &[usize] {
        &self.indexes
    }

    /// Returns true if both have the same policies of the same config.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        let of_same_config = match (&self.all, &other.all) {
            (Some(these), Some(those)) => Arc::ptr_eq(these, those),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        of_same_config && self.indexes == other.indexes
    }

    fn lists(&self) -> impl Iterator<Item = (ListOwner<'_>, &Policy)> {
        let all = self.all.as_deref();
        self.indexes.iter().filter_map(move |at| {
            let (name, policy) = all?.0.get(*at)?;
            Some((ListOwner::Client(name.text()), policy))
        })
    }

    /// Returns true if the client policies do not hide the item.
    pub(crate) fn can_see(&self, target: &PolicyTarget<'_>) -> bool {
        let lists: Vec<_> = self.lists().collect();
        decide(lists.iter().copied(), target).allowed
    }
}

/// An item of a server's catalog as the target of a decision.
pub(crate) fn policy_target<'a>(
    server: &'a str,
    kind: ItemKind,
    name: &'a str,
    hints: ToolHints,
) -> PolicyTarget<'a> {
    PolicyTarget { server, kind, name, hints }
}

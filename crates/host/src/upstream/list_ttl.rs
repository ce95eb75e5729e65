//! TTLs of the lists of a server, and the refresh of expired ones.

use super::Upstream;
use gripfast_core::cache::Freshness;
use gripfast_core::supervise::upstream::Input;
use gripfast_core::time::Mono;
use gripfast_wire::results::List;

/// TTLs that a server declared with its lists, and when; `None` for a list that it does not have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ListTtls {
    pub(super) listed_at: Mono,
    pub(super) tools: Option<Freshness>,
    pub(super) resources: Option<Freshness>,
    pub(super) templates: Option<Freshness>,
    pub(super) prompts: Option<Freshness>,
}

impl ListTtls {
    pub(crate) fn of(&self, list: List) -> Option<Freshness> {
        match list {
            List::Tools => self.tools,
            List::Resources => self.resources,
            List::ResourceTemplates => self.templates,
            List::Prompts => self.prompts,
        }
    }

    /// The remaining TTL of a list.
    pub(crate) fn remaining(&self, list: List, now: Mono) -> Option<Freshness> {
        Some(self.of(list)?.aged(now.since(self.listed_at)))
    }
}

impl Upstream {
    /// Returns true if the server notifies of changes of this list.
    pub(crate) fn has_list_changes(&self, list: List) -> bool {
        let Some(connection) = self.connection() else { return false };
        let declared = connection.server.capabilities;
        match list {
            List::Tools => declared.tools_changes,
            List::Resources | List::ResourceTemplates => declared.resources_changes,
            List::Prompts => declared.prompts_changes,
        }
    }

    /// Lists the catalog again, unless a listing is running or scheduled.
    pub(crate) fn refresh_catalog(&self) {
        let Some(connection) = self.connection() else { return };
        let epoch = connection.epoch;
        if self.with_machine(|machine, _| machine.has_catalog(epoch) && !machine.is_listing(epoch)) {
            self.handle_input(Input::CatalogChanged { epoch });
        }
    }
}

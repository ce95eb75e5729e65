//! For how long the lists of a server are good, as it said when it was asked; and asking again.

use super::Upstream;
use gripfast_core::cache::Freshness;
use gripfast_core::supervise::upstream::Input;
use gripfast_core::time::Mono;
use gripfast_wire::results::List;

/// What a server said about how long its lists are good, and when; nothing of a list that it does not have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SaidOfLists {
    pub(super) at: Mono,
    pub(super) tools: Option<Freshness>,
    pub(super) resources: Option<Freshness>,
    pub(super) templates: Option<Freshness>,
    pub(super) prompts: Option<Freshness>,
}

impl SaidOfLists {
    pub(crate) fn of(&self, list: List) -> Option<Freshness> {
        match list {
            List::Tools => self.tools,
            List::Resources => self.resources,
            List::ResourceTemplates => self.templates,
            List::Prompts => self.prompts,
        }
    }

    /// What is left of that.
    pub(crate) fn left_of(&self, list: List, now: Mono) -> Option<Freshness> {
        Some(self.of(list)?.after(now.since(self.at)))
    }
}

impl Upstream {
    /// Whether the present session tells when a list has changed.
    pub(crate) fn tells_of_changes(&self, list: List) -> bool {
        let Some(live) = self.live() else { return false };
        let said = live.server.capabilities;
        match list {
            List::Tools => said.tools_changes,
            List::Resources | List::ResourceTemplates => said.resources_changes,
            List::Prompts => said.prompts_changes,
        }
    }

    /// Lists everything anew, unless that is under way or is to be tried again anyway.
    pub(crate) fn list_again(&self) {
        let Some(live) = self.live() else { return };
        let epoch = live.epoch;
        if self.with(|machine, _| machine.has_catalog(epoch) && !machine.is_listing(epoch)) {
            self.tell(Input::CatalogChanged { epoch });
        }
    }
}

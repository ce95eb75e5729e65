//! One server of the host: what its config says, and the instances that run it.

use crate::cache::CacheSpec;
use crate::client::Client;
use crate::config::ServerSpec;
use crate::instances::{Instances, Lease};
use crate::policy::{Kind, Rules, subject};
use crate::upstream::Upstream;
use gripfast_core::catalog::{Catalog, Item};
use gripfast_core::failure::recovery::ToolHints;
use gripfast_core::failure::{CallError, Code, Outcome as Fate};
use gripfast_core::policy::ReplayRules;
use gripfast_core::supervise::spec::WhenDown;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::Ask;
use std::sync::Arc;
use std::time::Duration;

/// One server of the host.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) rules: Rules,
    pub(crate) cache: CacheSpec,
    pub(crate) replay: ReplayRules,
    pub(crate) prefix: Option<String>,
    pub(crate) lazy: bool,
    pub(super) when_down: WhenDown,
    /// What its config says; unknown of one that is unusable.
    pub(crate) spec: Option<ServerSpec>,
    pub(crate) kind: EntryKind,
}

pub(crate) enum EntryKind {
    Running(Arc<Instances>),
    /// Its config is unusable; it is listed with its cause.
    Broken {
        cause: String,
    },
    /// Switched off in the config.
    Disabled,
}

impl Entry {
    /// The instance that all clients share, which knows the catalog.
    pub(crate) fn upstream(&self) -> Result<&Arc<Upstream>, CallError> {
        Ok(self.instances()?.base())
    }

    /// The instance for a call of `client`.
    pub(crate) fn lease(&self, client: Option<&Client>) -> Result<Lease, CallError> {
        self.instances()?.lease(client)
    }

    pub(crate) fn instances(&self) -> Result<&Instances, CallError> {
        match &self.kind {
            EntryKind::Running(instances) => Ok(instances),
            EntryKind::Broken { cause } => Err(CallError::new(
                Code::Unreachable,
                &self.name,
                Fate::NotSent,
                format!("upstream `{}` cannot work as configured: {cause}", self.name),
            )
            .hint(format!("`gripfast check` explains the config of `{}`", self.name))),
            EntryKind::Disabled => Err(CallError::new(
                Code::Stopped,
                &self.name,
                Fate::NotSent,
                format!("upstream `{}` is disabled in the config", self.name),
            )
            .hint(format!("remove `disabled` from `{}` in the config", self.name))),
        }
    }

    /// The catalog as it may be seen: denied tools are absent, and a withdrawn server offers nothing.
    pub(crate) fn visible(&self, catalog: Arc<Catalog>) -> Arc<Catalog> {
        let withdrawn = self.when_down == WhenDown::Withdraw
            && self.upstream().is_ok_and(|upstream| upstream.state() == State::Parked);
        if withdrawn {
            return Arc::default();
        }
        if self.rules.are_open() {
            return catalog;
        }
        let mut seen = Catalog::clone(&catalog);
        let shown =
            |kind| move |item: &Item| self.rules.show(&subject(&self.name, kind, &item.key, item.hints));
        seen.tools.retain(shown(Kind::Tool));
        seen.resources.retain(shown(Kind::Resource));
        seen.templates.retain(shown(Kind::Resource));
        seen.prompts.retain(shown(Kind::Prompt));
        Arc::new(seen)
    }

    /// How many tools it offers, as far as everybody may see them.
    pub(crate) fn count_tools(&self) -> usize {
        let Ok(upstream) = self.upstream() else { return 0 };
        let catalog = Arc::clone(&upstream.listing.borrow().catalog);
        let subject = |tool: &Item| self.rules.show(&subject(&self.name, Kind::Tool, &tool.key, tool.hints));
        catalog.tools.iter().filter(|tool| subject(tool)).count()
    }

    /// What something says about itself, as far as it is known; only tools do.
    pub(crate) fn hints(&self, kind: Kind, name: &str) -> ToolHints {
        match kind {
            Kind::Tool => self
                .upstream()
                .ok()
                .and_then(|upstream| Some(upstream.listing.borrow().catalog.tool(name)?.hints))
                .unwrap_or_default(),
            Kind::Resource | Kind::Prompt => ToolHints::default(),
        }
    }

    /// What a name may mean to this server: what it has listed, or whatever has names.
    pub(crate) fn kinds_named(&self, name: &str) -> Vec<Kind> {
        let mut kinds = Vec::new();
        if let Ok(upstream) = self.upstream() {
            let catalog = Arc::clone(&upstream.listing.borrow().catalog);
            kinds.extend(catalog.tool(name).map(|_| Kind::Tool));
            kinds.extend(catalog.prompts.iter().any(|prompt| prompt.key == name).then_some(Kind::Prompt));
        }
        if kinds.is_empty() { vec![Kind::Tool, Kind::Prompt] } else { kinds }
    }

    /// The whole program ends: calls in flight may go on for this long.
    pub(crate) fn leave(&self, within: Duration) {
        if let EntryKind::Running(instances) = &self.kind {
            instances.ask(Ask::Leave { within });
        }
    }

    pub(crate) async fn end(&self) {
        if let EntryKind::Running(instances) = &self.kind {
            instances.end().await;
        }
    }
}

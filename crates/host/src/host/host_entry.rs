//! One server of the host: its spec, its rules and the instances that run it.

use crate::client::Client;
use crate::config::ServerSpec;
use crate::instances::{InstanceLease, Instances};
use crate::policy::{ItemKind, ServerRules, policy_target};
use crate::upstream::Upstream;
use gripfast_core::catalog::{Catalog, Item};
use gripfast_core::failure::recovery::ToolHints;
use gripfast_core::failure::{CallError, CallOutcome, Code};
use gripfast_core::policy::ReplayRules;
use gripfast_core::supervise::spec::WhenDown;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::Command;
use std::sync::Arc;
use std::time::Duration;

/// A server of the host.
pub(crate) struct HostEntry {
    pub(crate) name: String,
    pub(crate) rules: ServerRules,
    pub(crate) replay: ReplayRules,
    /// `None` if the config is unusable.
    pub(crate) spec: Option<Arc<ServerSpec>>,
    pub(crate) kind: EntryKind,
}

pub(crate) enum EntryKind {
    Running(Arc<Instances>),
    /// The config is unusable; status shows the cause.
    Broken {
        cause: String,
    },
    /// Disabled in the config.
    Disabled,
}

impl HostEntry {
    /// The shared instance, which also knows the catalog.
    pub(crate) fn upstream(&self) -> Result<&Arc<Upstream>, CallError> {
        Ok(self.instances()?.shared())
    }

    /// Leases the instance that serves a call of `client`.
    pub(crate) fn lease(&self, client: Option<&Client>) -> Result<InstanceLease, CallError> {
        self.instances()?.lease(client)
    }

    /// The prefix of the names of its tools and prompts.
    pub(crate) fn prefix(&self) -> &str {
        self.spec.as_ref().and_then(|spec| spec.prefix.as_deref()).unwrap_or(&self.name)
    }

    pub(crate) fn instances(&self) -> Result<&Instances, CallError> {
        match &self.kind {
            EntryKind::Running(instances) => Ok(instances),
            EntryKind::Broken { cause } => Err(CallError::new(
                Code::Unreachable,
                &self.name,
                CallOutcome::NotSent,
                format!("server `{}` cannot work as configured: {cause}", self.name),
            )
            .with_hint(format!("`gripfast check` explains the config of `{}`", self.name))),
            EntryKind::Disabled => Err(CallError::new(
                Code::Stopped,
                &self.name,
                CallOutcome::NotSent,
                format!("server `{}` is disabled in the config", self.name),
            )
            .with_hint(format!("remove `disabled` from `{}` in the config", self.name))),
        }
    }

    /// The catalog without items that the policy hides. A parked server with `when_down = "withdraw"` offers nothing.
    pub(crate) fn visible_catalog(&self, catalog: Arc<Catalog>) -> Arc<Catalog> {
        let withdrawn =
            self.spec.as_ref().is_some_and(|spec| spec.supervision.when_down == WhenDown::Withdraw)
                && self.upstream().is_ok_and(|upstream| upstream.state() == State::Parked);
        if withdrawn {
            return Arc::default();
        }
        if self.rules.is_unrestricted() {
            return catalog;
        }
        let mut seen = Catalog::clone(&catalog);
        let shown = |kind| {
            move |item: &Item| self.rules.is_visible(&policy_target(&self.name, kind, &item.key, item.hints))
        };
        seen.tools.retain(shown(ItemKind::Tool));
        seen.resources.retain(shown(ItemKind::Resource));
        seen.templates.retain(shown(ItemKind::Resource));
        seen.prompts.retain(shown(ItemKind::Prompt));
        Arc::new(seen)
    }

    /// The number of tools that the server's policy does not hide.
    pub(crate) fn count_tools(&self) -> usize {
        let Ok(upstream) = self.upstream() else { return 0 };
        let catalog = Arc::clone(&upstream.listing.borrow().catalog);
        let subject = |tool: &Item| {
            self.rules.is_visible(&policy_target(&self.name, ItemKind::Tool, &tool.key, tool.hints))
        };
        catalog.tools.iter().filter(|tool| subject(tool)).count()
    }

    /// The annotations of a tool, as far as they are known; other items have none.
    pub(crate) fn tool_hints(&self, kind: ItemKind, name: &str) -> ToolHints {
        match kind {
            ItemKind::Tool => self
                .upstream()
                .ok()
                .and_then(|upstream| Some(upstream.listing.borrow().catalog.tool(name)?.hints))
                .unwrap_or_default(),
            ItemKind::Resource | ItemKind::Prompt => ToolHints::default(),
        }
    }

    /// The kinds of items that a name may refer to: those listed under it, or else tools and prompts.
    pub(crate) fn kinds_named(&self, name: &str) -> Vec<ItemKind> {
        let mut kinds = Vec::new();
        if let Ok(upstream) = self.upstream() {
            let catalog = Arc::clone(&upstream.listing.borrow().catalog);
            kinds.extend(catalog.tool(name).map(|_| ItemKind::Tool));
            kinds.extend(catalog.prompts.iter().any(|prompt| prompt.key == name).then_some(ItemKind::Prompt));
        }
        if kinds.is_empty() { vec![ItemKind::Tool, ItemKind::Prompt] } else { kinds }
    }

    /// Starts the shutdown of the program: calls in flight may continue for `within`.
    pub(crate) fn drain(&self, within: Duration) {
        if let EntryKind::Running(instances) = &self.kind {
            instances.send_command(Command::Shutdown { within });
        }
    }

    pub(crate) async fn shutdown(&self) {
        if let EntryKind::Running(instances) = &self.kind {
            instances.shutdown().await;
        }
    }
}

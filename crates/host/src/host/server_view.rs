//! Singleton servers of a host, and views of single servers, by which other replicas use them.

use super::builder::host_id;
use super::{EntryKind, Host, HostEntry, HostInner, HostRole};
use crate::cache::{AnswerCache, CacheLimits, CacheSpec};
use crate::call::CallBudgets;
use crate::catalog::CatalogCache;
use crate::config::{Isolation, Placement, ServerSpec};
use crate::observe::Feed;
use crate::policy::{ClientLists, Policy, ServerRules};
use crate::records::audit::{Audit, AuditOptions};
use crate::records::ledger::{Ledger, LedgerOptions};
use crate::security::Security;
use crate::singleton::SingletonServers;
use crate::store::{ApprovalCounts, MemoryStore};
use crate::sync::{Mutex, RwLock};
use gripfast_core::exposure::Exposure;
use gripfast_core::failure::CallError;
use gripfast_core::policy::ReplayRules;
use gripfast_core::supervise::upstream::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;

impl Host {
    /// The singleton servers of the host, present and future. Only the first call returns them, and only if the builder
    /// was told so ([`HostBuilder::place_singletons`](super::HostBuilder::place_singletons)).
    pub fn take_singletons(&self) -> Option<SingletonServers> {
        self.inner.singleton_servers.lock().take()
    }

    /// Connects a server again that waits, because the replica that runs it has changed.
    ///
    /// # Errors
    /// There is no server with this name, or its config is unusable.
    pub fn retry_connection(&self, server: &str) -> Result<(), CallError> {
        self.send_command(server, Command::CauseChanged)
    }

    /// The spec of a server as this host runs it. The processes of a singleton server could disturb each other, so
    /// there is one unless the config demands more.
    pub(crate) fn singleton_spec(&self, mut spec: ServerSpec) -> ServerSpec {
        let is_placed = self.inner.singletons.is_some() && spec.placement == Placement::One;
        if is_placed && spec.isolation == Isolation::Auto {
            spec.isolation = Isolation::Shared;
        }
        spec
    }

    /// A host that has only this server, under its own names, without policies, budgets, cache and records: another
    /// replica applies its own. It shares the instances with this host, and ends nothing when it is dropped.
    ///
    /// # Errors
    /// There is no server with this name, or it is disabled, or its config is unusable.
    pub fn server_view(&self, server: &str) -> Result<Self, CallError> {
        let entry = self.entry(server)?;
        entry.instances()?;
        let (EntryKind::Running(instances), Some(spec)) = (&entry.kind, &entry.spec) else {
            return Err(self.unknown_server(server));
        };
        let mut spec = ServerSpec::clone(spec);
        spec.prefix = Some(String::new());
        spec.policy = Policy::default();
        spec.cache = CacheSpec::default();
        spec.exposure = Some(Exposure::All);
        let viewed = HostEntry {
            name: entry.name.clone(),
            rules: ServerRules::default(),
            replay: ReplayRules::new(&spec.replay.safe, &spec.replay.never),
            spec: Some(Arc::new(spec)),
            kind: EntryKind::Running(Arc::clone(instances)),
        };
        let whole = &self.inner;
        let clock = whole.clock;
        Ok(Self {
            inner: Arc::new(HostInner {
                clock,
                id: host_id(),
                feed: Feed::new(),
                store: Arc::new(MemoryStore::default()),
                shared: None,
                witness: ApprovalCounts::new(None),
                ledger: Arc::new(Ledger::open(None, LedgerOptions::default(), clock)),
                logins: whole.logins.clone(),
                client_info: Arc::clone(&whole.client_info),
                capabilities: Arc::clone(&whole.capabilities),
                entries: RwLock::new(vec![Arc::new(viewed)]),
                replace_lock: Mutex::default(),
                change_signal: whole.change_signal.clone(),
                catalog_cache: CatalogCache::default(),
                guard: None,
                client_lists: RwLock::new(Arc::new(ClientLists::new(Vec::new()))),
                call_budgets: CallBudgets::new(Vec::new()),
                cache: Arc::new(AnswerCache::new(CacheLimits::default(), clock)),
                audit: Audit::open(None, AuditOptions::default(), clock),
                security: Security::default(),
                notification_sink: whole.notification_sink.clone(),
                shutdown_tasks: TaskTracker::new(),
                max_nesting: whole.max_nesting,
                embeddings: None,
                singletons: None,
                singleton_servers: Mutex::new(None),
                role: HostRole::View,
            }),
        })
    }

    /// Returns whether this host is a view of one server.
    pub fn is_view(&self) -> bool {
        self.inner.role == HostRole::View
    }

    /// Returns whether this view shows the server as `whole` runs it now: its config may have changed.
    pub fn is_current_view(&self, whole: &Self) -> bool {
        let entries = self.entries();
        let [viewed] = entries.as_slice() else { return false };
        let (EntryKind::Running(seen), Ok(entry)) = (&viewed.kind, whole.entry(&viewed.name)) else {
            return false;
        };
        matches!(&entry.kind, EntryKind::Running(runs) if Arc::ptr_eq(seen, runs))
    }

    /// Waits until the server of a view has been listed, and starts a lazy one.
    ///
    /// # Errors
    /// It could not be listed in time; the error has the cause.
    pub async fn until_viewed(&self, timeout: Duration) -> Result<(), CallError> {
        for server in self.server_names() {
            self.catalog(&server, timeout).await?;
        }
        Ok(())
    }
}

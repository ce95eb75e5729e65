//! Builder of a [`Host`]: every option has a default.

use super::{Host, HostInner, HostRole};
use crate::auth::Logins;
use crate::cache::{AnswerCache, CacheLimits};
use crate::call::{BudgetSpec, CallBudgets};
use crate::catalog::{CatalogCache, ChangeSignal};
use crate::clock::{self, Clock};
use crate::config::{ClientLimits, EmbeddingsConfig, LoginKey};
use crate::embeddings::ToolEmbeddings;
use crate::notification_sink::SinkSlot;
use crate::observe::Feed;
use crate::policy::{ClientLists, ClientPolicy, Guard, GuardVerdict};
use crate::private_files::{self, StrictModes};
use crate::records::audit::{Audit, AuditOptions};
use crate::records::ledger::{Ledger, LedgerOptions};
use crate::security::Security;
use crate::shared_state::SharedState;
use crate::singleton::SingletonRegistry;
use crate::store::{ApprovalCounts, LocalStore, MemoryStore, Store};
use crate::sync::{Mutex, RwLock};
use gripfast_core::exposure::ExposureSettings;
use gripfast_core::json_text::JsonText;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::task::TaskTracker;

/// Builds a [`Host`].
#[derive(Default)]
pub struct HostBuilder {
    state_dir: Option<PathBuf>,
    strict_modes: StrictModes,
    store: Option<Arc<dyn Store>>,
    ledger: LedgerOptions,
    logins: Option<Logins>,
    shared: Option<Arc<dyn SharedState>>,
    client: Option<(String, String)>,
    capabilities: Option<serde_json::Value>,
    guard: Option<Guard>,
    client_policies: Vec<ClientPolicy>,
    budgets: Vec<BudgetSpec>,
    cache: CacheLimits,
    audit: AuditOptions,
    max_nesting: Option<usize>,
    exposure: ExposureSettings,
    embeddings: Option<EmbeddingsConfig>,
    places_singletons: bool,
}

impl HostBuilder {
    /// Directory for catalogs, pins, logins, ledger and audit log. Without it, or if another user could have changed
    /// it, nothing is kept between runs.
    #[must_use]
    pub fn state_dir(mut self, directory: Option<PathBuf>) -> Self {
        self.state_dir = directory;
        self
    }

    /// Sets whether the host ignores a state directory that another user could have changed. On by default.
    #[must_use]
    pub fn strict_modes(mut self, strict: StrictModes) -> Self {
        self.strict_modes = strict;
        self
    }

    /// Custom store that replaces the one in the state directory.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// OAuth logins to use instead of those in [`HostBuilder::state_dir`], for example with another key or other
    /// leases ([`Logins::with_leases`]).
    #[must_use]
    pub fn logins(mut self, logins: Option<Logins>) -> Self {
        self.logins = logins;
        self
    }

    /// State that this host shares with others of one service: the pins of all servers hold for all hosts. A new tool is
    /// offered only once its pin is stored there. Without it, pins are kept in [`HostBuilder::state_dir`].
    #[must_use]
    pub fn shared_state(mut self, shared: Option<Arc<dyn SharedState>>) -> Self {
        self.shared = shared;
        self
    }

    /// Options of the ledger of tool calls. Needs a state directory.
    #[must_use]
    pub fn ledger(mut self, options: LedgerOptions) -> Self {
        self.ledger = options;
        self
    }

    /// Name and version that servers see.
    #[must_use]
    pub fn client_info(mut self, name: &str, version: &str) -> Self {
        self.client = Some((name.to_owned(), version.to_owned()));
        self
    }

    /// Client capabilities that are declared to servers (`elicitation`, `sampling`, `roots`). If there are any, the
    /// program answers with [`Listener::on_request`](crate::transport::Listener::on_request).
    #[must_use]
    pub fn capabilities(mut self, capabilities: serde_json::Value) -> Self {
        self.capabilities = Some(capabilities);
        self
    }

    /// Custom rule for the tools of all servers. It is called with the server and the server's own tool name whenever
    /// tools are listed or called. A tool that it denies is hidden; a tool that it allows must also be allowed by the
    /// policies.
    #[must_use]
    pub fn guard(mut self, guard: impl Fn(&str, &str) -> GuardVerdict + Send + Sync + 'static) -> Self {
        self.guard = Some(Arc::new(guard));
        self
    }

    /// Policies per client, in addition to those of the servers.
    #[must_use]
    pub fn client_policies(mut self, policies: Vec<ClientPolicy>) -> Self {
        self.client_policies = policies;
        self
    }

    /// Exposure of tools to clients. [`Host::set_exposure`] changes it later.
    #[must_use]
    pub fn exposure(mut self, settings: ExposureSettings) -> Self {
        self.exposure = settings;
        self
    }

    /// Endpoint that ranks tools by meaning, besides the ranking by words. [`HostBuilder::build`] must then be called in
    /// a Tokio runtime.
    #[must_use]
    pub fn embeddings(mut self, endpoint: Option<EmbeddingsConfig>) -> Self {
        self.embeddings = endpoint;
        self
    }

    /// Sets whether the program decides which replica runs a server with `placement = "one"`
    /// ([`Host::take_singletons`]). By default the host runs it like any other.
    #[must_use]
    pub fn place_singletons(mut self, places: bool) -> Self {
        self.places_singletons = places;
        self
    }

    /// Call budgets.
    #[must_use]
    pub fn budgets(mut self, budgets: Vec<BudgetSpec>) -> Self {
        self.budgets = budgets;
        self
    }

    /// Size limits of the answer cache.
    #[must_use]
    pub fn cache(mut self, limits: CacheLimits) -> Self {
        self.cache = limits;
        self
    }

    /// Options of the audit log of requests and decisions. Needs a state directory.
    #[must_use]
    pub fn audit(mut self, options: AuditOptions) -> Self {
        self.audit = options;
        self
    }

    /// Maximum JSON nesting of a result, or of a member of a server's request or notification. Default 128. A deeper
    /// result ends its call with [`Code::UpstreamProtocol`](crate::Code::UpstreamProtocol).
    #[must_use]
    pub fn max_nesting(mut self, levels: usize) -> Self {
        self.max_nesting = Some(levels);
        self
    }

    /// Builds the host. It runs on the Tokio runtime of the caller.
    #[must_use]
    pub fn build(self) -> Host {
        let clock = Clock::new();
        let state_dir = self.state_dir.filter(|directory| is_safe_state_dir(directory, self.strict_modes));
        let state_dir = state_dir.as_deref();
        let default_logins = || Logins::new(state_dir, LoginKey::default());
        let logins = self.logins.unwrap_or_else(default_logins);
        let audit = Audit::open(state_dir, self.audit, clock);
        let ledger = Arc::new(Ledger::open(state_dir, self.ledger, clock));
        let store = self.store.unwrap_or_else(|| state_dir.map_or_else(memory_store, disk_store));
        let (name, version) = self
            .client
            .unwrap_or_else(|| (env!("CARGO_PKG_NAME").to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        let capabilities = self.capabilities.unwrap_or_else(|| serde_json::json!({})).to_string();
        let capabilities = JsonText::parse(capabilities).expect("a JSON value prints as JSON");
        let client_info_json = serde_json::json!({ "name": name, "version": version });
        let client_info = JsonText::parse(client_info_json.to_string()).expect("a JSON value prints as JSON");
        let (singletons, servers) = self.places_singletons.then(SingletonRegistry::new).unzip();
        let host = Host {
            inner: Arc::new(HostInner {
                clock,
                id: host_id(),
                feed: Feed::new(),
                store,
                witness: ApprovalCounts::new(state_dir),
                ledger,
                logins,
                shared: self.shared,
                client_info: client_info.into(),
                capabilities: capabilities.into(),
                entries: RwLock::default(),
                replace_lock: Mutex::default(),
                change_signal: ChangeSignal::new(),
                catalog_cache: CatalogCache::default(),
                guard: self.guard,
                call_budgets: CallBudgets::new(self.budgets),
                audit,
                security: Security::default(),
                cache: Arc::new(AnswerCache::new(self.cache, clock)),
                client_lists: RwLock::new(Arc::new(ClientLists::new(self.client_policies))),
                notification_sink: SinkSlot::default(),
                shutdown_tasks: TaskTracker::new(),
                max_nesting: self.max_nesting.unwrap_or(ClientLimits::default().nesting as usize),
                embeddings: self.embeddings.map(|endpoint| ToolEmbeddings::new(endpoint, clock)),
                singletons,
                singleton_servers: Mutex::new(servers),
                role: HostRole::Whole,
            }),
        };
        host.set_exposure(self.exposure);
        if let Some(embeddings) = &host.inner.embeddings {
            embeddings.start(&host);
        }
        host.follow_shared_state();
        host
    }
}

/// A random id for a host.
pub(super) fn host_id() -> Arc<str> {
    let bytes: [u8; 16] = clock::secret_bytes().unwrap_or_default();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

/// Returns true if a state directory is safe to use, or is used although it is not; logs a warning or error
/// otherwise.
fn is_safe_state_dir(directory: &Path, strict: StrictModes) -> bool {
    match (private_files::check_state_directory(directory), strict) {
        (Ok(()), _) => true,
        (Err(found), StrictModes::Off) => {
            tracing::warn!("{found}; it is used because `strict_modes` is off");
            true
        }
        (Err(found), StrictModes::On) => {
            tracing::error!("{found}; state is kept in memory only and is lost at exit; {}", found.remedy());
            false
        }
    }
}

fn memory_store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// Opens the store on disk; falls back to memory with a warning if it cannot be used.
fn disk_store(directory: &Path) -> Arc<dyn Store> {
    match LocalStore::open(directory) {
        Ok((store, None)) => Arc::new(store),
        Ok((store, Some(backup))) => {
            tracing::warn!(moved_to = %backup.display(), "the state file was corrupt; a new one was created");
            Arc::new(store)
        }
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%error, cause, "state is kept in memory only and is lost at exit");
            memory_store()
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn g05_a_state_directory_that_others_can_write_is_used_only_without_strict_modes() {
        for (strict, kept) in [(StrictModes::On, false), (StrictModes::Off, true)] {
            let directory = tempfile::tempdir().unwrap();
            std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o770)).unwrap();
            let state_dir = Some(directory.path().to_owned());
            let host = Host::builder().state_dir(state_dir).strict_modes(strict).build();
            host.shutdown().await;
            let files = std::fs::read_dir(directory.path()).unwrap().count();
            assert_eq!(files > 0, kept, "{strict:?}: {files}");
        }
    }
}

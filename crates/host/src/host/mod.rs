//! The host: a registry of servers by name, and the public operations on them. Calls are in `call`, subscriptions in
//! `subscribe`.

mod builder;
mod host_entry;
mod server_view;

pub use builder::HostBuilder;
pub(crate) use host_entry::{EntryKind, HostEntry};

use crate::auth::{Credential, Logins};
use crate::cache::AnswerCache;
use crate::call::CallBudgets;
use crate::catalog::{CatalogCache, ChangeSignal};
use crate::client::Principal;
use crate::clock::Clock;
use crate::config::{Isolation, Placement, ServerSpec, Target, suggest};
use crate::embeddings::ToolEmbeddings;
use crate::instances::Instances;
use crate::notification_sink::{NotificationSink, SinkSlot};
use crate::observe::{EventCounts, Feed, UpstreamEvent};
use crate::policy::{Audience, ClientLists, ClientPolicy, Guard, ServerRules};
use crate::records::audit::{Audit, AuditStatus};
use crate::records::ledger::{Calls, Ledger, LedgerStatus, Query, Row};
use crate::security::Security;
use crate::shared_state::SharedState;
use crate::singleton::{SingletonRegistry, SingletonServers};
use crate::status::ServerStatus;
use crate::store::{ApprovalCounts, ServerStore, Store};
use crate::sync::{Mutex, RwLock};
use crate::transport::{Dialer, SingletonDialer, StderrLines, TargetDialer};
use crate::upstream::{ListingOrigin, UpstreamDeps};
use gripfast_core::catalog::Catalog;
use gripfast_core::failure::{CallError, CallOutcome, Code};
use gripfast_core::ids::ClientKey;
use gripfast_core::policy::ReplayRules;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::Command;
use gripfast_core::time::Mono;
use gripfast_wire::{Era, JsonText};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// A set of supervised MCP servers.
///
/// Cloning is cheap and gives another handle to the same host. [`Host::shutdown`] ends it in order; when the last
/// handle is dropped, the host ends its servers immediately.
#[derive(Clone)]
pub struct Host {
    pub(crate) inner: Arc<HostInner>,
}

pub(crate) struct HostInner {
    pub(crate) clock: Clock,
    id: Arc<str>,
    pub(crate) feed: Feed,
    store: Arc<dyn Store>,
    witness: ApprovalCounts,
    pub(crate) ledger: Arc<Ledger>,
    logins: Logins,
    pub(crate) shared: Option<Arc<dyn SharedState>>,
    client_info: Arc<JsonText>,
    capabilities: Arc<JsonText>,
    pub(crate) entries: RwLock<Vec<Arc<HostEntry>>>,
    /// Held while one entry is replaced.
    pub(crate) replace_lock: Mutex<()>,
    pub(crate) change_signal: ChangeSignal,
    pub(crate) catalog_cache: CatalogCache,
    guard: Option<Guard>,
    client_lists: RwLock<Arc<ClientLists>>,
    pub(crate) call_budgets: CallBudgets,
    pub(crate) cache: Arc<AnswerCache>,
    pub(crate) audit: Audit,
    pub(crate) security: Security,
    notification_sink: SinkSlot,
    /// The shutdown tasks of removed servers.
    pub(crate) shutdown_tasks: TaskTracker,
    /// Maximum JSON nesting of messages from servers.
    pub(crate) max_nesting: usize,
    /// Ranking of tools by embeddings.
    pub(crate) embeddings: Option<Arc<ToolEmbeddings>>,
    /// Registers servers that only one replica runs, if the program decides about them.
    singletons: Option<SingletonRegistry>,
    singleton_servers: Mutex<Option<SingletonServers>>,
    role: HostRole,
}

/// Role of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostRole {
    /// It runs its servers.
    Whole,
    /// A view of one server of another host ([`Host::server_view`]).
    View,
}

/// Options of [`Host::spawn_with`] beyond the spec.
#[derive(Default)]
pub struct SpawnOptions {
    /// Catalog that is shown until the server has been listed once, such as one shipped with a server card.
    pub initial_catalog: Option<Catalog>,
    /// Custom transport that replaces the target of the spec.
    pub dialer: Option<Arc<dyn Dialer>>,
}

/// Error of [`Host::spawn`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// A server with this name exists.
    #[error("a server named `{0}` already exists")]
    NameTaken(String),
}

/// The catalog of one server, or the reason why it is not known.
#[derive(Debug, Clone)]
pub struct DiscoveredServer {
    /// The server's name.
    pub server: String,
    /// Its catalog.
    pub catalog: Result<Arc<Catalog>, CallError>,
}

/// The protocol extensions that one server declared.
#[derive(Debug, Clone)]
pub struct ServerExtensions {
    /// The server's name.
    pub server: String,
    /// The era in which the server declared them.
    pub era: Era,
    /// `capabilities.extensions`, as the server declared them.
    pub extensions: JsonText,
}

impl Host {
    /// Creates a builder with the default options.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }

    /// Random id of this host, sent with the handshake over HTTP (header `gripfast-host-id`). A gateway that receives
    /// its own id has been configured as a server of itself.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Adds a server, starts it in the background and supervises it from then on.
    ///
    /// # Errors
    /// The name is taken.
    pub fn spawn(&self, name: &str, spec: ServerSpec) -> Result<(), SpawnError> {
        self.spawn_with(name, spec, SpawnOptions::default())
    }

    /// [`Host::spawn`] with options.
    ///
    /// # Errors
    /// The name is taken.
    pub fn spawn_with(&self, name: &str, spec: ServerSpec, options: SpawnOptions) -> Result<(), SpawnError> {
        let spec = Arc::new(self.singleton_spec(spec));
        let kind = if spec.disabled {
            EntryKind::Disabled
        } else {
            EntryKind::Running(Arc::new(self.start_server(name, &spec, options)))
        };
        self.add(self.new_entry(name, spec, kind))
    }

    /// Adds a server whose config is unusable, so that status shows it with its cause.
    ///
    /// # Errors
    /// The name is taken.
    pub fn spawn_broken(&self, name: &str, cause: &str) -> Result<(), SpawnError> {
        self.add(HostEntry {
            name: name.to_owned(),
            rules: ServerRules::default(),
            replay: ReplayRules::default(),
            spec: None,
            kind: EntryKind::Broken { cause: cause.to_owned() },
        })
    }

    pub(crate) fn start_server(
        &self,
        name: &str,
        spec: &Arc<ServerSpec>,
        options: SpawnOptions,
    ) -> Instances {
        let inner = &self.inner;
        let deps = UpstreamDeps {
            name: name.into(),
            clock: inner.clock,
            feed: inner.feed.clone(),
            counts: EventCounts::default(),
            change_signal: inner.change_signal.clone(),
            cache: Arc::clone(&inner.cache),
            ledger: Arc::clone(&inner.ledger),
            sink: inner.notification_sink.clone(),
            approved: Arc::default(),
            secrets: Arc::default(),
            host_id: Arc::clone(&inner.id),
            client_info: Arc::clone(&inner.client_info),
            capabilities: Arc::clone(&inner.capabilities),
            max_nesting: inner.max_nesting,
            dialer: options.dialer.unwrap_or_else(|| self.dialer(name, spec)),
            store: self.server_store(name, spec),
        };
        if let (Some(card), None) = (&options.initial_catalog, deps.store.catalog()) {
            deps.store.save_catalog(card);
        }
        Instances::start(Arc::clone(spec), deps)
    }

    /// The stored state of a server with the target of the spec.
    pub(crate) fn server_store(&self, name: &str, spec: &ServerSpec) -> ServerStore {
        let (store, witness) = (Arc::clone(&self.inner.store), self.inner.witness.clone());
        ServerStore::new(store, witness, name, &fingerprint(&spec.target))
            .with_shared(self.inner.shared.clone())
    }

    pub(crate) fn new_entry(&self, name: &str, spec: Arc<ServerSpec>, kind: EntryKind) -> HostEntry {
        HostEntry {
            name: name.to_owned(),
            rules: ServerRules { policy: spec.policy.clone(), guard: self.inner.guard.clone() },
            replay: ReplayRules::new(&spec.replay.safe, &spec.replay.never),
            spec: Some(spec),
            kind,
        }
    }

    pub(crate) fn dialer(&self, name: &str, spec: &ServerSpec) -> Arc<dyn Dialer> {
        let logins = &self.inner.logins;
        let credential =
            Credential::from_config(name, &spec.target, spec.oauth.as_ref(), logins, self.inner.clock);
        let target: Arc<dyn Dialer> =
            Arc::new(TargetDialer::new(spec.target.clone(), credential, spec.supervision.max_in_flight));
        match (&self.inner.singletons, spec.placement) {
            (Some(singletons), Placement::One) => {
                Arc::new(SingletonDialer::new(singletons.register(name, spec), target))
            }
            (_, Placement::Each) | (None, Placement::One) => target,
        }
    }

    fn add(&self, entry: HostEntry) -> Result<(), SpawnError> {
        self.load_names(&entry.name);
        let mut entries = self.inner.entries.write();
        if entries.iter().any(|known| known.name == entry.name) {
            if let EntryKind::Running(instances) = &entry.kind {
                instances.shared().shutdown();
            }
            return Err(SpawnError::NameTaken(entry.name));
        }
        entries.push(Arc::new(entry));
        drop(entries);
        self.refresh_searchable();
        self.inner.change_signal.notify();
        Ok(())
    }

    /// Removes a server and waits until its processes and connections have ended. The name is free after the first
    /// poll; dropping the future does not stop the removal.
    ///
    /// # Errors
    /// There is no server with this name.
    pub async fn remove_server(&self, server: &str) -> Result<(), CallError> {
        let _ = self.remove_entry(server)?.await;
        Ok(())
    }

    /// Removes a server without waiting for its end. Its name is free and its tools are gone immediately; its
    /// processes and connections end in the background, and [`Host::shutdown`] waits for them.
    ///
    /// # Errors
    /// There is no server with this name.
    pub fn remove_server_in_background(&self, server: &str) -> Result<(), CallError> {
        self.remove_entry(server).map(drop)
    }

    fn remove_entry(&self, server: &str) -> Result<JoinHandle<()>, CallError> {
        let entry = self.entry(server)?;
        self.inner.entries.write().retain(|known| known.name != server);
        self.refresh_searchable();
        self.inner.change_signal.notify();
        if let Ok(instances) = entry.instances() {
            instances.mark_removed();
        }
        Ok(self.spawn_shutdown(entry))
    }

    /// Ends the instances of a removed server in a background task.
    pub(crate) fn spawn_shutdown(&self, entry: Arc<HostEntry>) -> JoinHandle<()> {
        self.inner.shutdown_tasks.spawn(async move { entry.shutdown().await })
    }

    /// Stops a server until [`Host::start`]. Calls are then answered with [`Code::Stopped`].
    ///
    /// # Errors
    /// There is no server with this name, or its config is unusable.
    pub fn stop(&self, server: &str) -> Result<(), CallError> {
        self.send_command(server, Command::Stop)
    }

    /// Starts a stopped server.
    ///
    /// # Errors
    /// As [`Host::stop`].
    pub fn start(&self, server: &str) -> Result<(), CallError> {
        self.send_command(server, Command::Start)
    }

    /// Replaces the connection of a server now.
    ///
    /// # Errors
    /// As [`Host::stop`].
    pub fn reconnect(&self, server: &str) -> Result<(), CallError> {
        self.send_command(server, Command::Reconnect)
    }

    /// Resets the circuit and the restart budget of a server and replaces its connection now.
    ///
    /// # Errors
    /// As [`Host::stop`].
    pub fn reload(&self, server: &str) -> Result<(), CallError> {
        self.send_command(server, Command::Reload)
    }

    /// The spec of a running server.
    ///
    /// # Errors
    /// As [`Host::stop`].
    pub fn server_spec(&self, server: &str) -> Result<ServerSpec, CallError> {
        let entry = self.entry(server)?;
        entry.instances()?;
        entry.spec.as_deref().cloned().ok_or_else(|| self.unknown_server(server))
    }

    /// The stored OAuth logins. Servers of this host notice a login that is made through them.
    pub fn logins(&self) -> &Logins {
        &self.inner.logins
    }

    /// Removes a client: its dedicated instances end. Its calls in flight get the same grace period as with
    /// [`Host::stop`].
    pub fn remove_client(&self, client: &ClientKey) {
        for entry in self.entries() {
            if let EntryKind::Running(instances) = &entry.kind {
                instances.remove_client(client);
            }
        }
        self.inner.notification_sink.remove_client(client);
    }

    /// Notifies the legacy servers that asked this client for its roots that the roots have changed.
    pub fn notify_roots_changed(&self, client: &ClientKey) {
        for entry in self.entries() {
            if let EntryKind::Running(instances) = &entry.kind {
                instances.notify_roots_changed(client);
            }
        }
    }

    fn send_command(&self, server: &str, ask: Command) -> Result<(), CallError> {
        self.entry(server)?.instances()?.send_command(ask);
        // Only after the command: an answer that arrives in between would otherwise be served from the cache of a
        // stopped server.
        if matches!(ask, Command::Stop | Command::Reload) {
            self.inner.cache.invalidate_server(server);
        }
        Ok(())
    }

    /// Waits up to 2 s until the secrets that stored catalogs may contain are known: secret files may be on a slow
    /// volume.
    pub async fn wait_for_secrets(&self) {
        const WITHIN: Duration = Duration::from_secs(2);
        let all = async {
            for entry in self.entries() {
                if let Ok(upstream) = entry.upstream() {
                    upstream.secrets_ready.cancelled().await;
                }
            }
        };
        let _ = tokio::time::timeout(WITHIN, all).await;
    }

    /// Removes the secrets of a server from a text that it wrote. Shortly after the start they may not be known yet:
    /// see [`Host::wait_for_secrets`].
    ///
    /// # Errors
    /// There is no server with this name.
    pub fn redact(&self, server: &str, text: &str) -> Result<String, CallError> {
        Ok(self.entry(server)?.upstream()?.secrets.mask(text))
    }

    /// The catalog of a server, without items that its policy hides. Waits up to `timeout` for a server that was
    /// never listed, and starts a lazy one.
    ///
    /// # Errors
    /// The server could not be listed in time; the error has the cause.
    pub async fn catalog(&self, server: &str, timeout: Duration) -> Result<Arc<Catalog>, CallError> {
        let entry = self.entry(server)?;
        let upstream = entry.upstream()?;
        let mut listing = upstream.listing.subscribe();
        if listing.borrow().origin == ListingOrigin::Nothing {
            let _hold = upstream.keep_up();
            let until = self.now() + timeout;
            upstream.start_if_idle();
            let known = listing.wait_for(|listing| listing.origin != ListingOrigin::Nothing);
            tokio::select! {
                _ = known => {}
                error = upstream.wait_until_unusable() => return Err(error),
                () = tokio::time::sleep_until(self.inner.clock.instant(until)) => {
                    return Err(upstream.not_listed_error());
                }
            }
        }
        let catalog = Arc::clone(&upstream.listing.borrow().catalog);
        Ok(entry.visible_catalog(catalog))
    }

    /// The known catalog of a server, without items that its policy hides. Does not start the server and does not
    /// wait: a server that was never listed has an empty catalog.
    ///
    /// # Errors
    /// There is no server with this name, or its config is unusable.
    pub fn cached_catalog(&self, server: &str) -> Result<Arc<Catalog>, CallError> {
        let entry = self.entry(server)?;
        let catalog = Arc::clone(&entry.upstream()?.listing.borrow().catalog);
        Ok(entry.visible_catalog(catalog))
    }

    /// The catalogs of all servers, fetched in parallel; a server that fails is an entry with its error.
    pub async fn discover(&self, timeout: Duration) -> Vec<DiscoveredServer> {
        let asking = self.server_names().into_iter().map(|server| async move {
            let catalog = self.catalog(&server, timeout).await;
            DiscoveredServer { server, catalog }
        });
        futures_util::future::join_all(asking).await
    }

    /// The names of all servers, in the order in which they were added.
    pub fn server_names(&self) -> Vec<String> {
        self.entries().iter().map(|entry| entry.name.clone()).collect()
    }

    /// The status of all servers, in the order in which they were added.
    pub fn status(&self) -> Vec<ServerStatus> {
        self.entries().iter().map(|entry| self.entry_status(entry)).collect()
    }

    /// The status of one server. A remote server that has been silent for 10 s is also probed, so that the next
    /// status is current.
    ///
    /// # Errors
    /// There is no server with this name.
    pub fn server_status(&self, server: &str) -> Result<ServerStatus, CallError> {
        Ok(self.entry_status(&*self.entry(server)?))
    }

    /// The stderr lines of a server from line number `from` on, as far as they are kept. A server that is not a child
    /// process has none.
    ///
    /// # Errors
    /// There is no server with this name, or its config is unusable.
    pub fn server_stderr(&self, server: &str, from: u64) -> Result<StderrLines, CallError> {
        Ok(self.entry(server)?.upstream()?.stderr.lines_from(from))
    }

    fn entry_status(&self, entry: &HostEntry) -> ServerStatus {
        match &entry.kind {
            EntryKind::Running(instances) => {
                let status = ServerStatus::of(instances, entry, &self.catalog_snapshot().merged);
                instances.shared().note_status_read();
                status
            }
            EntryKind::Broken { cause } => ServerStatus::idle(entry, State::ConfigError, Some(cause.clone())),
            EntryKind::Disabled => ServerStatus::idle(entry, State::Disabled, None),
        }
    }

    /// Returns true if a connected server sends log messages.
    pub fn has_logging(&self) -> bool {
        let connection = |entry: &Arc<HostEntry>| entry.upstream().ok()?.connection();
        self.entries().iter().filter_map(connection).any(|connection| connection.server.capabilities.logging)
    }

    /// The protocol extensions of all connected servers.
    pub fn extensions(&self) -> Vec<ServerExtensions> {
        let declared = self.entries().into_iter().filter_map(|entry| {
            let connection = entry.upstream().ok()?.connection()?;
            let extensions = connection.server.extensions.clone()?;
            Some(ServerExtensions { server: entry.name.clone(), era: connection.session.era, extensions })
        });
        declared.collect()
    }

    /// Returns true if a connected server of this era supports tasks.
    pub fn has_tasks(&self, era: Era) -> bool {
        let connection = |entry: &Arc<HostEntry>| entry.upstream().ok()?.connection();
        self.entries().iter().filter_map(connection).filter(|connection| connection.session.era == era).any(
            |connection| match era {
                Era::Legacy => connection.server.capabilities.tasks,
                Era::Modern => connection.server.has_tasks(),
            },
        )
    }

    /// Returns true if a server is reached by a URL. Others are children of this process.
    pub fn is_remote(&self, server: &str) -> bool {
        let entry = self.entry(server).ok();
        let spec = entry.as_ref().and_then(|entry| entry.spec.as_ref());
        spec.is_some_and(|spec| matches!(spec.target, Target::Url { .. }))
    }

    /// Returns true if each client has an instance of its own of a server that this process runs: of this one, or of any
    /// without a name.
    pub fn is_per_client(&self, server: Option<&str>) -> bool {
        let is_per_client = |entry: &Arc<HostEntry>| {
            entry.spec.as_ref().is_some_and(|spec| {
                spec.isolation == Isolation::PerClient && spec.placement == Placement::Each
            })
        };
        match server {
            Some(server) => self.entry(server).is_ok_and(|entry| is_per_client(&entry)),
            None => self.entries().iter().any(is_per_client),
        }
    }

    /// Returns true if a server declares that a tool changes nothing.
    pub fn is_read_only(&self, server: &str, tool: &str) -> bool {
        let Ok(entry) = self.entry(server) else { return false };
        let Ok(upstream) = entry.upstream() else { return false };
        upstream.listing.borrow().catalog.tool(tool).is_some_and(|tool| tool.hints.read_only)
    }

    /// The era of a server: of its present connection, or of its last one.
    pub fn server_era(&self, server: &str) -> Option<Era> {
        let entry = self.entry(server).ok()?;
        Some(entry.upstream().ok()?.listing.borrow().era)
    }

    /// Sets the receiver of notifications about tasks and URL elicitations. Only the first call has an effect.
    pub fn set_notification_sink(&self, sink: Arc<dyn NotificationSink>) {
        match self.inner.role {
            HostRole::Whole => self.inner.notification_sink.set(sink),
            HostRole::View => self.inner.notification_sink.add_view(&sink),
        }
    }

    /// The instructions of all connected servers, by server.
    pub fn instructions(&self) -> Vec<(String, String)> {
        let declared = self.entries().into_iter().filter_map(|entry| {
            let instructions = entry.upstream().ok()?.instructions()?;
            Some((entry.name.clone(), instructions))
        });
        declared.collect()
    }

    /// The persistent store of this host. Programs may keep their own data in it.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner.store)
    }

    /// Tool calls from the ledger, newest first: those of this host and of all other hosts that use the same state
    /// directory, including past ones.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub async fn calls(&self, query: Query) -> std::io::Result<Calls> {
        self.inner.ledger.calls(query).await
    }

    /// Calls of the ledger that were sent, have not ended, and have run for `age`. `wanted` gets the number of each call
    /// in flight, and decides about its row.
    pub fn calls_in_flight(&self, age: Duration, wanted: impl FnMut(u64) -> bool) -> Vec<Row> {
        self.inner.ledger.calls_in_flight(age, wanted)
    }

    /// The status of the ledger.
    pub fn ledger_status(&self) -> LedgerStatus {
        self.inner.ledger.status()
    }

    /// The status of the audit log.
    pub fn audit_status(&self) -> AuditStatus {
        self.inner.audit.status()
    }

    /// Subscribes to the events of the servers and of the host itself, from now on.
    pub fn subscribe_events(&self) -> broadcast::Receiver<UpstreamEvent> {
        self.inner.feed.subscribe()
    }

    /// Ends all servers in parallel, waits for logins that are being renewed, and flushes the store. Calls in flight
    /// get a grace period before their connection is closed. Returns when no process or connection is left.
    pub async fn shutdown(&self) {
        self.shutdown_inner(None).await;
    }

    /// [`Host::shutdown`] with its own grace period: calls in flight may continue for `grace` and then end with an
    /// error that says that the gateway is shutting down.
    pub async fn shutdown_with_grace(&self, grace: Duration) {
        self.shutdown_inner(Some(grace)).await;
    }

    /// The number of calls in flight of each server that has any.
    pub fn in_flight_calls(&self) -> Vec<(String, u32)> {
        let of = |entry: &Arc<HostEntry>| {
            let upstream = entry.upstream().ok()?;
            let calls = upstream.with_machine(|machine, now| machine.status(now).in_flight);
            (calls > 0).then(|| (entry.name.clone(), calls))
        };
        self.entries().iter().filter_map(of).collect()
    }

    async fn shutdown_inner(&self, grace: Option<Duration>) {
        if let Some(embeddings) = &self.inner.embeddings {
            embeddings.stop();
        }
        let entries = std::mem::take(&mut *self.inner.entries.write());
        if let Some(within) = grace {
            entries.iter().for_each(|entry| entry.drain(within));
        }
        futures_util::future::join_all(entries.iter().map(|entry| entry.shutdown())).await;
        self.inner.shutdown_tasks.close();
        self.inner.shutdown_tasks.wait().await;
        self.inner.logins.wait_for_renewals().await;
        self.finish_reports();
        let store = Arc::clone(&self.inner.store);
        let inner = Arc::clone(&self.inner);
        let flush = move || {
            store.flush();
            inner.audit.flush();
        };
        let _ = tokio::task::spawn_blocking(flush).await;
    }

    pub(crate) fn now(&self) -> Mono {
        self.inner.clock.mono()
    }

    pub(crate) fn entry(&self, server: &str) -> Result<Arc<HostEntry>, CallError> {
        let found = {
            let entries = self.inner.entries.read();
            entries.iter().find(|entry| entry.name == server).cloned()
        };
        found.ok_or_else(|| self.unknown_server(server))
    }

    pub(crate) fn unknown_server(&self, server: &str) -> CallError {
        let error = CallError::new(
            Code::UnknownServer,
            server,
            CallOutcome::NotSent,
            format!("there is no server named `{server}`"),
        );
        let names = self.server_names();
        match suggest::nearest(server, names.iter().map(String::as_str)) {
            Some(near) => error.with_hint(format!("did you mean `{near}`?")),
            None => error.with_hint("`gripfast status` lists the servers"),
        }
    }

    /// Replaces the client policies.
    pub fn set_client_policies(&self, policies: Vec<ClientPolicy>) {
        let lists = Arc::new(ClientLists::new(policies));
        *self.inner.client_lists.write() = lists;
        self.inner.catalog_cache.clear_views();
        self.inner.change_signal.notify();
    }

    /// The client policies that apply to this principal.
    pub(crate) fn audience(&self, principal: Option<&Principal>) -> Audience {
        self.inner.client_lists.read().for_principal(principal)
    }

    /// Returns true if there are client policies, so that clients may see different catalogs.
    pub fn has_client_policies(&self) -> bool {
        !self.inner.client_lists.read().is_empty()
    }

    pub(crate) fn entries(&self) -> Vec<Arc<HostEntry>> {
        self.inner.entries.read().clone()
    }
}

impl Drop for HostInner {
    fn drop(&mut self) {
        if self.role == HostRole::View {
            return;
        }
        if let Some(embeddings) = &self.embeddings {
            embeddings.stop();
        }
        for entry in self.entries.get_mut() {
            if let EntryKind::Running(instances) = &entry.kind {
                instances.abort();
            }
        }
    }
}

/// Hash of the target as written in the config, before references are resolved.
fn fingerprint(target: &Target) -> String {
    let mut hash = Sha256::new();
    for template in target.templates() {
        hash.update(template.source().as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

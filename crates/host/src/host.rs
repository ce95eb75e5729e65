//! The host: upstreams by name, and the verbs over them.

use crate::audit::{Audit, AuditOptions, AuditStatus};
use crate::auth::Credential;
use crate::cache::{AnswerCache, CacheLimits, CacheSpec};
use crate::call::{BudgetSpec, Purse};
use crate::client::{Client, Principal};
use crate::clock::Clock;
use crate::config::{ServerSpec, Target, suggest};
use crate::instances::{Instances, Lease, Recipe};
use crate::ledger::{Calls, Ledger, LedgerOptions, LedgerStatus, Query};
use crate::menu::{Bell, Kitchen};
use crate::observe::{Feed, Tally, UpstreamEvent};
use crate::overheard::{Ears, Overhears};
use crate::policy::{Audience, ClientLists, ClientPolicy, Guard, Kind, Rules, Verdict, subject};
use crate::status::ServerStatus;
use crate::store::{LocalStore, MemoryStore, Shelf, Store};
use crate::transport::{Dialer, StderrLines, TargetDialer};
use crate::upstream::{Origin, ServerFacts, Settings, Upstream};
use gripfast_core::catalog::{Catalog, Item};
use gripfast_core::failure::recovery::ToolHints;
use gripfast_core::failure::{CallError, Code, Outcome as Fate};
use gripfast_core::ids::ClientKey;
use gripfast_core::policy::ReplayRules;
use gripfast_core::supervise::spec::WhenDown;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::Ask;
use gripfast_core::time::Mono;
use gripfast_wire::patch::Object;
use gripfast_wire::{Era, RawValue, tasks};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::broadcast;

/// A host of MCP servers that it never loses.
///
/// Cloning is cheap and gives another handle to the same host. [`Host::shutdown`] ends it in order; a host
/// whose last handle is dropped ends its servers at once.
#[derive(Clone)]
pub struct Host {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    clock: Clock,
    feed: Feed,
    store: Arc<dyn Store>,
    ledger: Ledger,
    /// The state directory whose logins are used.
    logins: Option<PathBuf>,
    client_info: Arc<RawValue>,
    capabilities: Arc<RawValue>,
    pub(crate) entries: RwLock<Vec<Arc<Entry>>>,
    pub(crate) bell: Bell,
    kitchen: Kitchen,
    guard: Option<Guard>,
    clients: RwLock<Arc<ClientLists>>,
    purse: Purse,
    cache: Arc<AnswerCache>,
    audit: Audit,
    ears: Ears,
}

/// One server of the host.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) rules: Rules,
    pub(crate) cache: CacheSpec,
    pub(crate) replay: ReplayRules,
    pub(crate) prefix: Option<String>,
    pub(crate) lazy: bool,
    when_down: WhenDown,
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

/// Builds a [`Host`].
#[derive(Default)]
pub struct HostBuilder {
    state_dir: Option<PathBuf>,
    store: Option<Arc<dyn Store>>,
    ledger: LedgerOptions,
    logins: Option<PathBuf>,
    client: Option<(String, String)>,
    capabilities: Option<serde_json::Value>,
    guard: Option<Guard>,
    clients: Vec<ClientPolicy>,
    budgets: Vec<BudgetSpec>,
    cache: CacheLimits,
    audit: AuditOptions,
}

impl HostBuilder {
    /// Where catalogs and the like are kept between runs. Without it nothing is kept.
    #[must_use]
    pub fn state_dir(mut self, directory: Option<PathBuf>) -> Self {
        self.state_dir = directory;
        self
    }

    /// A store of the program's own, instead of a directory.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// The state directory whose logins are used, if it is another than [`HostBuilder::state_dir`] or there is none.
    #[must_use]
    pub fn logins_of(mut self, directory: Option<PathBuf>) -> Self {
        self.logins = directory;
        self
    }

    /// What is noted down of tool calls, in the state directory. Without one, nothing is.
    #[must_use]
    pub fn ledger(mut self, options: LedgerOptions) -> Self {
        self.ledger = options;
        self
    }

    /// How the host introduces itself to servers.
    #[must_use]
    pub fn client_info(mut self, name: &str, version: &str) -> Self {
        self.client = Some((name.to_owned(), version.to_owned()));
        self
    }

    /// What servers may ask for on the way to an answer (`elicitation`, `sampling`, `roots`), as the
    /// capabilities of an MCP client. Whoever says more than nothing answers with
    /// [`Listener::asked`](crate::transport::Listener::asked).
    #[must_use]
    pub fn capabilities(mut self, capabilities: serde_json::Value) -> Self {
        self.capabilities = Some(capabilities);
        self
    }

    /// A rule of the program's own over the tools of all servers: it is asked with the server and the
    /// server's own name of the tool, whenever tools are listed or called. What it denies is as good as not
    /// there; what it allows must be allowed by the lists as well.
    #[must_use]
    pub fn guard(mut self, guard: impl Fn(&str, &str) -> Verdict + Send + Sync + 'static) -> Self {
        self.guard = Some(Arc::new(guard));
        self
    }

    /// What clients may see and use, besides what the lists of the servers say.
    #[must_use]
    pub fn clients(mut self, policies: Vec<ClientPolicy>) -> Self {
        self.clients = policies;
        self
    }

    /// How many calls there may be, of whom, to what.
    #[must_use]
    pub fn budgets(mut self, budgets: Vec<BudgetSpec>) -> Self {
        self.budgets = budgets;
        self
    }

    /// How many answers are kept at the most, to be given again.
    #[must_use]
    pub fn cache(mut self, limits: CacheLimits) -> Self {
        self.cache = limits;
        self
    }

    /// What is written down of requests and decisions, in the state directory.
    #[must_use]
    pub fn audit(mut self, options: AuditOptions) -> Self {
        self.audit = options;
        self
    }

    /// Makes the host. It runs on the tokio runtime that this is called on.
    #[must_use]
    pub fn build(self) -> Host {
        let clock = Clock::new();
        let audit = Audit::open(self.state_dir.as_deref(), self.audit, clock);
        let ledger = Ledger::open(self.state_dir.as_deref(), self.ledger, clock);
        let store = self.store.unwrap_or_else(|| self.state_dir.as_deref().map_or_else(in_memory, on_disk));
        let (name, version) = self
            .client
            .unwrap_or_else(|| (env!("CARGO_PKG_NAME").to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        let capabilities = self.capabilities.unwrap_or_else(|| serde_json::json!({})).to_string();
        let capabilities = RawValue::from_string(capabilities).expect("a JSON value prints as JSON");
        let introduction = serde_json::json!({ "name": name, "version": version });
        let client_info =
            RawValue::from_string(introduction.to_string()).expect("a JSON value prints as JSON");
        Host {
            inner: Arc::new(Inner {
                clock,
                feed: Feed::new(),
                store,
                ledger,
                logins: self.logins.or(self.state_dir),
                client_info: client_info.into(),
                capabilities: capabilities.into(),
                entries: RwLock::default(),
                bell: Bell::new(),
                kitchen: Kitchen::default(),
                guard: self.guard,
                purse: Purse::new(self.budgets),
                audit,
                cache: Arc::new(AnswerCache::new(self.cache, clock)),
                clients: RwLock::new(Arc::new(ClientLists::new(self.clients))),
                ears: Ears::default(),
            }),
        }
    }
}

fn in_memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// A store on disk; one that cannot be used is said aloud and done without.
fn on_disk(directory: &Path) -> Arc<dyn Store> {
    match LocalStore::open(directory) {
        Ok((store, None)) => Arc::new(store),
        Ok((store, Some(aside))) => {
            tracing::warn!(moved_to = %aside.display(), "the state file was corrupt; a new one was begun");
            Arc::new(store)
        }
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%error, cause, "no state is kept in this run");
            in_memory()
        }
    }
}

/// Options of [`Host::spawn_with`] beyond the spec.
#[derive(Default)]
pub struct SpawnOptions {
    /// A listing to show before the server was ever started, such as one shipped with a server card.
    pub card: Option<Catalog>,
    /// A transport of the program's own, instead of the spec's target.
    pub dialer: Option<Arc<dyn Dialer>>,
}

/// Why a server cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// There is one of this name already.
    #[error("there is a server named `{0}` already")]
    NameTaken(String),
}

/// What one server offers, or why that is not known.
#[derive(Debug, Clone)]
pub struct Discovered {
    /// The server's name.
    pub server: String,
    /// Its catalog.
    pub catalog: Result<Arc<Catalog>, CallError>,
}

/// A server that has extensions of the protocol.
#[derive(Debug, Clone)]
pub struct Extended {
    /// Its name.
    pub server: String,
    /// The era in which it declared them.
    pub era: Era,
    /// `capabilities.extensions`, as it declared them.
    pub extensions: Box<RawValue>,
}

impl Host {
    /// Begins to build a host.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }

    /// Adds a server and begins to keep it.
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
        let kind = if spec.disabled {
            EntryKind::Disabled
        } else {
            EntryKind::Running(Arc::new(self.start(name, &spec, options)))
        };
        self.add(self.entry_of(name, spec, kind))
    }

    /// Adds a server whose config is unusable, so that it is listed with its cause instead of missing.
    ///
    /// # Errors
    /// The name is taken.
    pub fn spawn_broken(&self, name: &str, cause: &str) -> Result<(), SpawnError> {
        self.add(Entry {
            name: name.to_owned(),
            cache: CacheSpec::default(),
            rules: Rules::default(),
            replay: ReplayRules::default(),
            prefix: None,
            lazy: false,
            when_down: WhenDown::Keep,
            spec: None,
            kind: EntryKind::Broken { cause: cause.to_owned() },
        })
    }

    pub(crate) fn start(&self, name: &str, spec: &ServerSpec, options: SpawnOptions) -> Instances {
        let settings = self.settings(name, spec, options.dialer);
        if let (Some(card), None) = (&options.card, settings.shelf.catalog()) {
            settings.shelf.keep_catalog(card);
        }
        let recipe = Recipe {
            name: name.into(),
            clock: self.inner.clock,
            feed: self.inner.feed.clone(),
            tally: Tally::default(),
            cache: Arc::clone(&self.inner.cache),
            bell: self.inner.bell.clone(),
            ears: self.inner.ears.clone(),
        };
        Instances::start(recipe, settings, spec.isolation, spec.max_instances as usize)
    }

    pub(crate) fn settings(
        &self,
        name: &str,
        spec: &ServerSpec,
        dialer: Option<Arc<dyn Dialer>>,
    ) -> Settings {
        Settings {
            supervision: spec.supervision.clone(),
            protocol: spec.protocol,
            max_message: spec.max_message,
            pins: spec.pins,
            restore: spec.restore.clone(),
            client_info: Arc::clone(&self.inner.client_info),
            capabilities: Arc::clone(&self.inner.capabilities),
            dialer: dialer.unwrap_or_else(|| self.dialer(name, spec)),
            shelf: Shelf::new(Arc::clone(&self.inner.store), name, &fingerprint(&spec.target)),
        }
    }

    pub(crate) fn entry_of(&self, name: &str, spec: ServerSpec, kind: EntryKind) -> Entry {
        Entry {
            name: name.to_owned(),
            cache: spec.cache.clone(),
            rules: Rules { policy: spec.policy.clone(), guard: self.inner.guard.clone() },
            replay: ReplayRules::new(&spec.replay.safe, &spec.replay.never),
            prefix: spec.prefix.clone(),
            lazy: spec.supervision.lazy,
            when_down: spec.supervision.when_down,
            spec: Some(spec),
            kind,
        }
    }

    fn dialer(&self, name: &str, spec: &ServerSpec) -> Arc<dyn Dialer> {
        let logins = self.inner.logins.as_deref();
        let credential = Credential::of(name, &spec.target, spec.oauth.as_ref(), logins, self.inner.clock);
        Arc::new(TargetDialer::new(spec.target.clone(), credential))
    }

    fn add(&self, entry: Entry) -> Result<(), SpawnError> {
        let mut entries = self.inner.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.iter().any(|known| known.name == entry.name) {
            if let EntryKind::Running(instances) = &entry.kind {
                instances.base().go_away();
            }
            return Err(SpawnError::NameTaken(entry.name));
        }
        entries.push(Arc::new(entry));
        drop(entries);
        self.inner.bell.ring();
        Ok(())
    }

    /// Ends a server for good and forgets it. Returns when nothing of it is left behind.
    ///
    /// # Errors
    /// There is none of this name.
    pub async fn remove(&self, server: &str) -> Result<(), CallError> {
        let entry = self.entry(server)?;
        self.inner
            .entries
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|known| known.name != server);
        self.inner.bell.ring();
        entry.end().await;
        Ok(())
    }

    /// Stops a server until [`Host::start_again`]. Calls are then answered with `stopped`.
    ///
    /// # Errors
    /// There is none of this name, or its config is unusable.
    pub fn stop(&self, server: &str) -> Result<(), CallError> {
        self.ask(server, Ask::Stop)
    }

    /// Starts a server that was stopped.
    ///
    /// # Errors
    /// As [`Host::stop`].
    pub fn start_again(&self, server: &str) -> Result<(), CallError> {
        self.ask(server, Ask::Start)
    }

    /// Replaces a server's link now.
    ///
    /// # Errors
    /// As [`Host::stop`].
    pub fn reconnect(&self, server: &str) -> Result<(), CallError> {
        self.ask(server, Ask::Reconnect)
    }

    /// Forgets all bad memories of a server (circuit, restart budget) and replaces its link now.
    ///
    /// # Errors
    /// As [`Host::stop`].
    pub fn reload(&self, server: &str) -> Result<(), CallError> {
        self.ask(server, Ask::Reload)
    }

    /// A client is gone: instances that servers have for it alone are ended. Calls of it that are under way
    /// have a while, as on [`Host::stop`].
    pub fn client_gone(&self, client: &ClientKey) {
        for entry in self.entries() {
            if let EntryKind::Running(instances) = &entry.kind {
                instances.leave(client);
            }
        }
        self.inner.ears.client_gone(client);
    }

    fn ask(&self, server: &str, ask: Ask) -> Result<(), CallError> {
        if matches!(ask, Ask::Stop | Ask::Reload) {
            self.inner.cache.forget_server(server);
        }
        self.entry(server)?.instances()?.ask(ask);
        Ok(())
    }

    /// What a server offers, as far as it may be seen. A server that was never listed is waited for, up to
    /// `patience`; a lazy one is started for it.
    ///
    /// # Errors
    /// It could not be listed in time; the error has the cause.
    pub async fn catalog(&self, server: &str, patience: Duration) -> Result<Arc<Catalog>, CallError> {
        let entry = self.entry(server)?;
        let upstream = entry.upstream()?;
        let mut listing = upstream.listing.subscribe();
        if listing.borrow().origin == Origin::Nothing {
            let _hold = upstream.hold();
            let until = self.now() + patience;
            upstream.want();
            let known = listing.wait_for(|listing| listing.origin != Origin::Nothing);
            tokio::select! {
                _ = known => {}
                error = upstream.hopeless() => return Err(error),
                () = tokio::time::sleep_until(self.inner.clock.instant(until)) => {
                    return Err(upstream.not_listed_yet());
                }
            }
        }
        let catalog = Arc::clone(&upstream.listing.borrow().catalog);
        Ok(entry.visible(catalog))
    }

    /// What a server is known to offer, as far as it may be seen. Asking does not start it, and nothing is
    /// waited for: a server that was never listed has an empty catalog.
    ///
    /// # Errors
    /// There is none of this name, or its config is unusable.
    pub fn known_catalog(&self, server: &str) -> Result<Arc<Catalog>, CallError> {
        let entry = self.entry(server)?;
        let catalog = Arc::clone(&entry.upstream()?.listing.borrow().catalog);
        Ok(entry.visible(catalog))
    }

    /// What all servers offer, asked in parallel; a failing one is a row with its error.
    pub async fn discover(&self, patience: Duration) -> Vec<Discovered> {
        let asking = self.names().into_iter().map(|server| async move {
            let catalog = self.catalog(&server, patience).await;
            Discovered { server, catalog }
        });
        futures_util::future::join_all(asking).await
    }

    /// The names of all servers, in the order in which they were added.
    pub fn names(&self) -> Vec<String> {
        self.entries().iter().map(|entry| entry.name.clone()).collect()
    }

    /// The facts about all servers, in the order in which they were added.
    pub fn status(&self) -> Vec<ServerStatus> {
        self.entries().iter().map(|entry| self.status_of_entry(entry)).collect()
    }

    /// The facts about one server.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn status_of(&self, server: &str) -> Result<ServerStatus, CallError> {
        Ok(self.status_of_entry(&*self.entry(server)?))
    }

    /// What a server wrote to stderr, from line number `from` on, as far as it is kept. A server that is not a
    /// child has written nothing.
    ///
    /// # Errors
    /// There is none of this name, or its config is unusable.
    pub fn stderr_of(&self, server: &str, from: u64) -> Result<StderrLines, CallError> {
        Ok(self.entry(server)?.upstream()?.stderr.from(from))
    }

    fn status_of_entry(&self, entry: &Entry) -> ServerStatus {
        match &entry.kind {
            EntryKind::Running(instances) => ServerStatus::of(instances, entry),
            EntryKind::Broken { cause } => {
                ServerStatus::idle(&entry.name, State::ConfigError, Some(cause.clone()))
            }
            EntryKind::Disabled => ServerStatus::idle(&entry.name, State::Disabled, None),
        }
    }

    /// Whether any of the servers that are up sends log messages.
    pub fn logs(&self) -> bool {
        let live = |entry: &Arc<Entry>| entry.upstream().ok()?.live();
        self.entries().iter().filter_map(live).any(|live| live.server.capabilities.logging)
    }

    /// The extensions of the protocol that the servers which are up have declared.
    pub fn extensions(&self) -> Vec<Extended> {
        let declared = self.entries().into_iter().filter_map(|entry| {
            let live = entry.upstream().ok()?.live()?;
            let extensions = live.server.extensions.clone()?;
            Some(Extended { server: entry.name.clone(), era: live.session.era, extensions })
        });
        declared.collect()
    }

    /// Whether any of the servers that are up has tasks, in the manner of this era.
    pub fn has_tasks(&self, era: Era) -> bool {
        let live = |entry: &Arc<Entry>| entry.upstream().ok()?.live();
        let extends = |server: &ServerFacts| {
            let extensions = server.extensions.as_deref().and_then(|said| Object::parse(said).ok());
            extensions.is_some_and(|extensions| extensions.get(tasks::EXTENSION).is_some())
        };
        self.entries().iter().filter_map(live).filter(|live| live.session.era == era).any(|live| match era {
            Era::Legacy => live.server.capabilities.tasks,
            Era::Modern => extends(&live.server),
        })
    }

    /// The era in which a server said what it offers: now, or when it was last up.
    pub fn era_of(&self, server: &str) -> Option<Era> {
        let entry = self.entry(server).ok()?;
        Some(entry.upstream().ok()?.listing.borrow().era)
    }

    /// From now on `ears` hears what servers say about what they began earlier. There can be one such listener.
    pub fn overhear(&self, ears: Arc<dyn Overhears>) {
        self.inner.ears.give(ears);
    }

    /// What the servers that are up tell their users, by server.
    pub fn instructions(&self) -> Vec<(String, String)> {
        let said = self.entries().into_iter().filter_map(|entry| {
            let live = entry.upstream().ok()?.live()?;
            Some((entry.name.clone(), live.server.instructions.clone()?))
        });
        said.collect()
    }

    /// Where this host keeps what outlives it, for what a program has to keep beside.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner.store)
    }

    /// What became of the tool calls of this host, and of all others that share its state directory, also of
    /// those that are gone. Newest first.
    ///
    /// # Errors
    /// There is a ledger, and it cannot be read.
    pub async fn calls(&self, query: Query) -> std::io::Result<Calls> {
        self.inner.ledger.calls(query).await
    }

    /// How the ledger does.
    pub fn ledger_status(&self) -> LedgerStatus {
        self.inner.ledger.status()
    }

    /// How the audit log does.
    pub fn audit_status(&self) -> AuditStatus {
        self.inner.audit.status()
    }

    /// Follows what happens to the servers from now on.
    pub fn events(&self) -> broadcast::Receiver<UpstreamEvent> {
        self.inner.feed.follow()
    }

    /// Ends all servers in parallel, each in order (calls in flight may finish for a while, then its link
    /// is closed), and flushes the store. Returns when nothing is left behind.
    pub async fn shutdown(&self) {
        let entries =
            std::mem::take(&mut *self.inner.entries.write().unwrap_or_else(PoisonError::into_inner));
        futures_util::future::join_all(entries.iter().map(|entry| entry.end())).await;
        let store = Arc::clone(&self.inner.store);
        let inner = Arc::clone(&self.inner);
        let flush = move || {
            store.flush();
            inner.audit.flush();
        };
        let _ = tokio::task::spawn_blocking(flush).await;
    }

    pub(crate) fn now(&self) -> Mono {
        self.inner.clock.now().mono
    }

    pub(crate) fn clock(&self) -> Clock {
        self.inner.clock
    }

    pub(crate) fn entry(&self, server: &str) -> Result<Arc<Entry>, CallError> {
        let found = {
            let entries = self.inner.entries.read().unwrap_or_else(PoisonError::into_inner);
            entries.iter().find(|entry| entry.name == server).cloned()
        };
        found.ok_or_else(|| self.unknown_server(server))
    }

    pub(crate) fn unknown_server(&self, server: &str) -> CallError {
        let error = CallError::new(
            Code::UnknownServer,
            server,
            Fate::NotSent,
            format!("there is no server named `{server}`"),
        );
        let names = self.names();
        match suggest::nearest(server, names.iter().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint("`gripfast status` lists the servers"),
        }
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.inner.ledger
    }

    /// Replaces the lists of the clients.
    pub fn set_clients(&self, policies: Vec<ClientPolicy>) {
        let lists = Arc::new(ClientLists::new(policies));
        *self.inner.clients.write().unwrap_or_else(PoisonError::into_inner) = lists;
        self.inner.kitchen.forget_views();
        self.inner.bell.ring();
    }

    /// Whoever the same lists of clients are about as this principal.
    pub(crate) fn audience(&self, principal: Option<&Principal>) -> Audience {
        self.inner.clients.read().unwrap_or_else(PoisonError::into_inner).concerning(principal)
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.inner.audit
    }

    pub(crate) fn purse(&self) -> &Purse {
        &self.inner.purse
    }

    pub(crate) fn cache(&self) -> &AnswerCache {
        &self.inner.cache
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.inner.bell
    }

    pub(crate) fn kitchen(&self) -> &Kitchen {
        &self.inner.kitchen
    }

    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        self.inner.entries.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for entry in self.entries.get_mut().unwrap_or_else(PoisonError::into_inner) {
            if let EntryKind::Running(instances) = &entry.kind {
                instances.abort();
            }
        }
    }
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

    fn instances(&self) -> Result<&Instances, CallError> {
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

    pub(crate) async fn end(&self) {
        if let EntryKind::Running(instances) = &self.kind {
            instances.end().await;
        }
    }
}

/// How a server is reached, without any value that the config only refers to.
fn fingerprint(target: &Target) -> String {
    let mut hash = Sha256::new();
    for template in target.templates() {
        hash.update(template.source().as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

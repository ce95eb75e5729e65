//! The host: upstreams by name, and the verbs over them.

mod builder;
mod entry;

pub use builder::HostBuilder;
pub(crate) use entry::{Entry, EntryKind};

use crate::audit::{Audit, AuditStatus};
use crate::auth::{Credential, Logins};
use crate::cache::{AnswerCache, CacheSpec};
use crate::call::Purse;
use crate::client::Principal;
use crate::clock::Clock;
use crate::config::{ServerSpec, Target, suggest};
use crate::instances::{Instances, Recipe};
use crate::ledger::{Calls, Ledger, LedgerStatus, Query};
use crate::menu::{Bell, Kitchen};
use crate::observe::{Feed, Tally, UpstreamEvent};
use crate::overheard::{Ears, Overhears};
use crate::pins::PinRules;
use crate::policy::{Audience, ClientLists, ClientPolicy, Guard, Rules};
use crate::security::Security;
use crate::status::ServerStatus;
use crate::store::{ApprovalWitness, Shelf, Store};
use crate::transport::{Dialer, StderrLines, TargetDialer};
use crate::upstream::{Origin, Settings};
use gripfast_core::catalog::Catalog;
use gripfast_core::failure::{CallError, Code, Outcome as Fate};
use gripfast_core::ids::ClientKey;
use gripfast_core::policy::ReplayRules;
use gripfast_core::supervise::spec::WhenDown;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::Ask;
use gripfast_core::time::Mono;
use gripfast_wire::{Era, RawValue};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

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
    id: Arc<str>,
    feed: Feed,
    store: Arc<dyn Store>,
    witness: ApprovalWitness,
    ledger: Arc<Ledger>,
    logins: Logins,
    client_info: Arc<RawValue>,
    capabilities: Arc<RawValue>,
    pub(crate) entries: RwLock<Vec<Arc<Entry>>>,
    /// Whose turn it is to replace one of them.
    pub(crate) replacing: Mutex<()>,
    pub(crate) bell: Bell,
    kitchen: Kitchen,
    guard: Option<Guard>,
    clients: RwLock<Arc<ClientLists>>,
    purse: Purse,
    cache: Arc<AnswerCache>,
    audit: Audit,
    pub(crate) security: Security,
    ears: Ears,
    /// The ends of servers that were let go.
    pub(crate) leaving: TaskTracker,
    /// Levels of nesting that what servers say may have.
    pub(crate) nesting: usize,
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

    /// A random name of this host, which it sends with the handshake over HTTP (header `gripfast-host-id`). A gateway in front of the
    /// host that receives it has been made a server of itself.
    pub fn id(&self) -> &str {
        &self.inner.id
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
            ledger: Arc::clone(&self.inner.ledger),
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
            nesting: self.inner.nesting,
            pins: PinRules { mode: spec.pins, most: spec.max_tools as usize },
            restore: spec.restore.clone(),
            host_id: Arc::clone(&self.inner.id),
            client_info: Arc::clone(&self.inner.client_info),
            capabilities: Arc::clone(&self.inner.capabilities),
            dialer: dialer.unwrap_or_else(|| self.dialer(name, spec)),
            shelf: Shelf::new(
                Arc::clone(&self.inner.store),
                self.inner.witness.clone(),
                name,
                &fingerprint(&spec.target),
            ),
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
        let logins = &self.inner.logins;
        let credential = Credential::of(name, &spec.target, spec.oauth.as_ref(), logins, self.inner.clock);
        Arc::new(TargetDialer::new(spec.target.clone(), credential))
    }

    fn add(&self, entry: Entry) -> Result<(), SpawnError> {
        self.load_names(&entry.name);
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

    /// Ends a server for good and forgets it. Returns when nothing of it is left behind. It is forgotten when
    /// this is first polled, and giving up on waiting does not keep it from ending.
    ///
    /// # Errors
    /// There is none of this name.
    pub async fn remove(&self, server: &str) -> Result<(), CallError> {
        let _ = self.strike(server)?.await;
        Ok(())
    }

    /// Ends a server for good and forgets it, without waiting for its end: its name is free and its tools are
    /// gone at once, what it leaves behind takes its time. [`Host::shutdown`] waits for it.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn let_go(&self, server: &str) -> Result<(), CallError> {
        self.strike(server).map(drop)
    }

    fn strike(&self, server: &str) -> Result<JoinHandle<()>, CallError> {
        let entry = self.entry(server)?;
        self.inner
            .entries
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|known| known.name != server);
        self.inner.bell.ring();
        if let Ok(instances) = entry.instances() {
            instances.note_removal();
        }
        Ok(self.ends(entry))
    }

    /// Has what was a server end in a task of its own.
    pub(crate) fn ends(&self, entry: Arc<Entry>) -> JoinHandle<()> {
        self.inner.leaving.spawn(async move { entry.end().await })
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

    /// What the config says about a server that is in use.
    ///
    /// # Errors
    /// As [`Host::stop`].
    pub fn spec_of(&self, server: &str) -> Result<ServerSpec, CallError> {
        let entry = self.entry(server)?;
        entry.instances()?;
        entry.spec.clone().ok_or_else(|| self.unknown_server(server))
    }

    /// The logins that its servers are used with: one that is made with these is noticed by them.
    pub fn logins(&self) -> &Logins {
        &self.inner.logins
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

    /// The roots of a client have changed: legacy servers that have asked for roots, and so may remember others, are told.
    pub fn roots_changed(&self, client: &ClientKey) {
        for entry in self.entries() {
            if let EntryKind::Running(instances) = &entry.kind {
                instances.roots_changed(client);
            }
        }
    }

    fn ask(&self, server: &str, ask: Ask) -> Result<(), CallError> {
        self.entry(server)?.instances()?.ask(ask);
        // Afterwards: an answer that came in between would be given again by a server that is stopped.
        if matches!(ask, Ask::Stop | Ask::Reload) {
            self.inner.cache.forget_server(server);
        }
        Ok(())
    }

    /// Waits until the secrets are known that stored catalogs may repeat, for a moment at the most: files may be far away.
    pub async fn secrets_known(&self) {
        const WITHIN: Duration = Duration::from_secs(2);
        let all = async {
            for entry in self.entries() {
                if let Ok(upstream) = entry.upstream() {
                    upstream.secrets_known.cancelled().await;
                }
            }
        };
        let _ = tokio::time::timeout(WITHIN, all).await;
    }

    /// A text that a server wrote, without the secrets that were filled in for the server. Shortly after the start they may
    /// not be known yet: [`Host::secrets_known`].
    ///
    /// # Errors
    /// There is no such server.
    pub fn redact(&self, server: &str, text: &str) -> Result<String, CallError> {
        Ok(self.entry(server)?.upstream()?.secrets.mask(text))
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

    /// The facts about one server. A remote server that was not heard of for 10 s is probed, for whoever reads next.
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
            EntryKind::Running(instances) => {
                let status = ServerStatus::of(instances, entry, &self.menu().menu);
                instances.base().status_was_read();
                status
            }
            EntryKind::Broken { cause } => ServerStatus::idle(entry, State::ConfigError, Some(cause.clone())),
            EntryKind::Disabled => ServerStatus::idle(entry, State::Disabled, None),
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
        self.entries().iter().filter_map(live).filter(|live| live.session.era == era).any(|live| match era {
            Era::Legacy => live.server.capabilities.tasks,
            Era::Modern => live.server.has_tasks(),
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
            let instructions = entry.upstream().ok()?.instructions()?;
            Some((entry.name.clone(), instructions))
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

    /// Follows what happens to the servers, and to the gateway as a whole, from now on.
    pub fn events(&self) -> broadcast::Receiver<UpstreamEvent> {
        self.inner.feed.follow()
    }

    /// Ends all servers in parallel, each in order (calls in flight may finish for a while, then its link
    /// is closed), waits for logins that are being renewed, and flushes the store. Returns when nothing is left behind.
    pub async fn shutdown(&self) {
        self.shutdown_calls_within(None).await;
    }

    /// [`Host::shutdown`] for the end of the program: calls in flight may go on for `calls`, and then end with an error
    /// that says so.
    pub async fn shutdown_within(&self, calls: Duration) {
        self.shutdown_calls_within(Some(calls)).await;
    }

    /// Calls in flight, by server, of those that have any.
    pub fn in_flight(&self) -> Vec<(String, u32)> {
        let of = |entry: &Arc<Entry>| {
            let upstream = entry.upstream().ok()?;
            let calls = upstream.with(|machine, now| machine.status(now).in_flight);
            (calls > 0).then(|| (entry.name.clone(), calls))
        };
        self.entries().iter().filter_map(of).collect()
    }

    async fn shutdown_calls_within(&self, calls: Option<Duration>) {
        let entries =
            std::mem::take(&mut *self.inner.entries.write().unwrap_or_else(PoisonError::into_inner));
        if let Some(within) = calls {
            entries.iter().for_each(|entry| entry.leave(within));
        }
        futures_util::future::join_all(entries.iter().map(|entry| entry.end())).await;
        self.inner.leaving.close();
        self.inner.leaving.wait().await;
        self.inner.logins.settled().await;
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

    /// Whether there are lists of clients, so that not all clients see and may use the same.
    pub fn tells_clients_apart(&self) -> bool {
        !self.inner.clients.read().unwrap_or_else(PoisonError::into_inner).are_none()
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

impl Inner {
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    pub(crate) fn feed(&self) -> &Feed {
        &self.feed
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

/// How a server is reached, without any value that the config only refers to.
fn fingerprint(target: &Target) -> String {
    let mut hash = Sha256::new();
    for template in target.templates() {
        hash.update(template.source().as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

//! The instances of one server: the shared one, which also lists the catalog, and dedicated ones for single clients.
//! `core` decides which instance serves a call; this module starts and ends them. Each instance is an upstream with
//! its own supervisor.

use crate::client::Client;
use crate::clock::Clock;
use crate::config::ServerSpec;
use crate::pins::{PinCounts, PinnedTool, Quarantined};
use crate::shared_state::{SharedState, StateError};
use crate::status::DedicatedStatus;
use crate::sync::Mutex;
use crate::upstream::{InstanceClient, InstanceRole, SessionState, Upstream, UpstreamDeps};
use gripfast_core::event::Event;
use gripfast_core::failure::{CallError, CallOutcome, Code};
use gripfast_core::ids::ClientKey;
use gripfast_core::isolation::{
    Assignment, CallNeeds, Caller, DedicatedFor, InstanceAllocator, InstanceNumber, InstanceOwner,
};
use gripfast_core::supervise::spec::WhenDown;
use gripfast_core::supervise::status::{State, UpstreamStatus};
use gripfast_core::supervise::upstream::{Command, Revision};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

/// All instances of one server.
pub(crate) struct Instances {
    shared: Arc<Upstream>,
    supervisor: Mutex<Option<JoinHandle<()>>>,
    dedicated: Arc<DedicatedInstances>,
}

/// The dedicated instances.
struct DedicatedInstances {
    clock: Clock,
    table: Mutex<Table>,
    /// Wakes the expiry task: an instance may have become idle.
    wake: Arc<Notify>,
}

struct Table {
    spec: Arc<ServerSpec>,
    deps: UpstreamDeps,
    allocator: InstanceAllocator,
    /// One per allocated instance.
    instances: BTreeMap<InstanceOwner, Instance>,
    /// Supervisors of instances that are ending; finished ones are dropped when the next one is added.
    ending: Vec<JoinHandle<()>>,
    /// Restarts of past instances.
    past_restarts: u64,
    /// Session state of each client, which outlives its instances as long as it has subscriptions.
    session_states: BTreeMap<InstanceOwner, Weak<SessionState>>,
    /// Task that ends idle instances; started with the first dedicated instance.
    expiry_task: Option<AbortOnDropHandle<()>>,
}

struct Instance {
    upstream: Arc<Upstream>,
    client: Arc<InstanceClient>,
    supervisor: JoinHandle<()>,
}

/// An instance that is kept running while this exists.
pub(crate) struct InstanceLease {
    upstream: Arc<Upstream>,
    dedicated: Option<(Arc<DedicatedInstances>, InstanceOwner, InstanceNumber)>,
}

impl InstanceLease {
    /// Returns true for the shared instance.
    pub(crate) fn is_shared(&self) -> bool {
        self.dedicated.is_none()
    }

    pub(crate) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }
}

impl Drop for InstanceLease {
    fn drop(&mut self) {
        if let Some((dedicated, owner, number)) = self.dedicated.take() {
            let now = dedicated.clock.mono();
            dedicated.table.lock().allocator.release(now, &owner, number);
            dedicated.wake.notify_one();
        }
    }
}

impl Instances {
    /// Starts the shared instance.
    pub(crate) fn start(spec: Arc<ServerSpec>, deps: UpstreamDeps) -> Self {
        let allocator = InstanceAllocator::new(
            spec.isolation,
            deps.store.dedicated_for(),
            spec.max_instances as usize,
            spec.supervision.idle_timeout,
        );
        let dedicated = Arc::new(DedicatedInstances {
            table: Mutex::new(Table {
                spec: Arc::clone(&spec),
                deps: deps.clone(),
                allocator,
                instances: BTreeMap::new(),
                ending: Vec::new(),
                past_restarts: 0,
                session_states: BTreeMap::new(),
                expiry_task: None,
            }),
            clock: deps.clock,
            wake: Arc::default(),
        });
        let weak = Arc::downgrade(&dedicated);
        let separate = move |apart| weak.upgrade().is_some_and(|dedicated| dedicated.separate(apart));
        let role = InstanceRole::Shared { separate: Box::new(separate) };
        let (shared, supervisor) = Upstream::start(spec, deps, role, None, Arc::default());
        Self { shared, supervisor: Mutex::new(Some(supervisor)), dedicated }
    }

    /// The shared instance, which lists the catalog.
    pub(crate) fn shared(&self) -> &Arc<Upstream> {
        &self.shared
    }

    /// Leases the instance for a call of `client` and starts it if necessary.
    pub(crate) fn lease(&self, client: Option<&Client>) -> Result<InstanceLease, CallError> {
        let shared = || InstanceLease { upstream: Arc::clone(&self.shared), dedicated: None };
        let Some(client) = client else { return Ok(shared()) };
        let needs = self.needs(client);
        if needs == CallNeeds::Exclusive
            && self.shared.may_send_requests()
            && self.dedicated.separate(DedicatedFor::Interactive)
        {
            self.shared.announce(self.dedicated.clock.now(), Event::ClientsIsolated);
        }
        let now = self.dedicated.clock.mono();
        let mut table = self.dedicated.table.lock();
        let Table { allocator, instances, .. } = &mut *table;
        let is_idle = |owner: &InstanceOwner| {
            instances.get(owner).is_none_or(|dedicated| dedicated.upstream.has_no_calls())
        };
        let (owner, number, upstream) = match allocator.assign(now, &client.caller, needs, is_idle) {
            Assignment::Shared => return Ok(shared()),
            Assignment::Full { retry_after } => {
                return Err(self
                    .exhausted_error(table.allocator.max_instances())
                    .with_retry_after(retry_after));
            }
            Assignment::Dedicated(owner, number) => {
                let instance = table.instances.get(&owner).expect("every allocated owner has an instance");
                instance.client.set_listener(client.listener.clone());
                let upstream = Arc::clone(&instance.upstream);
                (owner, number, upstream)
            }
            Assignment::NewDedicated(owner, number) => {
                let session_state = table.session_state_of(&owner);
                let instance = table.start_instance(client, number, session_state);
                let upstream = Arc::clone(&instance.upstream);
                table.instances.insert(owner.clone(), instance);
                let dedicated = Arc::downgrade(&self.dedicated);
                let wake = &self.dedicated.wake;
                table.expiry_task.get_or_insert_with(|| {
                    AbortOnDropHandle::new(tokio::spawn(run_expiry(dedicated, Arc::clone(wake))))
                });
                (owner, number, upstream)
            }
        };
        Ok(InstanceLease { upstream, dedicated: Some((Arc::clone(&self.dedicated), owner, number)) })
    }

    /// Returns true if calls of `client` use a dedicated instance.
    pub(crate) fn uses_dedicated(&self, client: &Client) -> bool {
        let needs = self.needs(client);
        self.dedicated.table.lock().allocator.is_dedicated(&client.caller, needs)
    }

    /// The isolation that a call of `client` needs. Anonymous clients must not answer each other's server requests,
    /// so where requests do not name their call each needs an exclusive instance.
    fn needs(&self, client: &Client) -> CallNeeds {
        match &client.caller {
            _ if !client.supports_input => CallNeeds::Nothing,
            Caller::Shared(_) if self.shared.has_ambiguous_requests() => CallNeeds::Exclusive,
            Caller::Shared(_) | Caller::Single(_) | Caller::Anonymous => CallNeeds::ServerRequests,
        }
    }

    /// Sends a command to all instances. A stopped server has no dedicated instances; they are started again on
    /// demand after the server is started.
    pub(crate) fn send_command(&self, ask: Command) {
        let mut table = self.dedicated.table.lock();
        match ask {
            Command::Stop => {
                table.allocator.stop();
                table.end_all();
            }
            Command::Start => table.allocator.start(),
            Command::Reconnect | Command::Reload | Command::CauseChanged | Command::Shutdown { .. } => {
                for instance in table.instances.values() {
                    instance.upstream.send_command(ask);
                }
            }
        }
        drop(table);
        self.shared.send_command(ask);
    }

    /// Applies a changed spec. Dedicated instances that it no longer allows end when they are idle.
    pub(crate) fn apply_spec(&self, spec: Arc<ServerSpec>, deps: UpstreamDeps, revision: Revision) {
        let mut table = self.dedicated.table.lock();
        table.allocator.reconfigure(
            spec.isolation,
            deps.store.dedicated_for(),
            spec.max_instances as usize,
            spec.supervision.idle_timeout,
        );
        for instance in table.instances.values() {
            instance.upstream.apply_spec(for_one_client(&spec), deps.clone(), revision);
        }
        (table.spec, table.deps) = (Arc::clone(&spec), deps.clone());
        drop(table);
        self.dedicated.wake.notify_one();
        self.shared.apply_spec(spec, deps, revision);
    }

    /// Notifies the instance that serves a client that the client's roots have changed. A request that the shared
    /// instance sends because of it belongs to no particular client.
    pub(crate) fn notify_roots_changed(&self, client: &ClientKey) {
        let owner = InstanceOwner::single(client.clone());
        let dedicated =
            self.dedicated.table.lock().instances.get(&owner).map(|instance| Arc::clone(&instance.upstream));
        dedicated.as_ref().unwrap_or(&self.shared).notify_roots_changed();
    }

    /// Ends the dedicated instances of a client.
    pub(crate) fn remove_client(&self, client: &ClientKey) {
        let mut table = self.dedicated.table.lock();
        for owner in table.allocator.remove_client(client) {
            table.end(&owner);
        }
    }

    /// The pinned tools of the server, with their changes.
    pub(crate) fn pins(&self) -> Vec<PinnedTool> {
        self.shared.screen_again();
        let _ = self.shared.instructions();
        self.dedicated.all().iter().for_each(|dedicated| dedicated.screen_again());
        self.shared.pins.list(&self.changes())
    }

    pub(crate) fn pin_counts(&self) -> PinCounts {
        PinCounts { pinned: self.shared.pins.count(), changed: self.changes().len() }
    }

    /// Changes of tools as the shared instance sees them, or else as the first dedicated instance does that differs
    /// from what was approved.
    fn changes(&self) -> Vec<Quarantined> {
        let mut changes = self.shared.pins.changes();
        for dedicated in self.dedicated.all() {
            for change in dedicated.pins.changes() {
                if changes.iter().all(|known| (known.kind, &known.tool) != (change.kind, &change.tool)) {
                    changes.push(change);
                }
            }
        }
        changes
    }

    /// Approves the present description of a tool, or of all changed tools in [`Instances::pins`]. Returns their
    /// names.
    pub(crate) fn approve(&self, tool: Option<&str>) -> Vec<String> {
        let mut approved = self.shared.approve(tool, &[]);
        let dedicated = self.dedicated.all();
        for dedicated in &dedicated {
            dedicated.screen_again();
            approved.extend(dedicated.approve(tool, &approved));
        }
        // Another instance may have a different description than the approved one.
        self.shared.screen_again();
        dedicated.iter().for_each(|dedicated| dedicated.screen_again());
        approved
    }

    /// Approves in the shared state what [`Self::approve`] approves in this host.
    pub(crate) async fn approve_shared(
        &self,
        shared: &dyn SharedState,
        tool: Option<&str>,
    ) -> Result<Vec<String>, StateError> {
        self.shared.screen_again();
        let mut approved = self.shared.approve_shared(shared, tool, &[]).await?;
        let dedicated = self.dedicated.all();
        for dedicated in &dedicated {
            dedicated.screen_again();
            approved.extend(dedicated.approve_shared(shared, tool, &approved).await?);
        }
        self.shared.screen_again();
        dedicated.iter().for_each(|dedicated| dedicated.screen_again());
        Ok(approved)
    }

    /// Applies changes of the shared pins.
    pub(crate) async fn shared_pins_changed(&self) {
        self.shared.shared_pins_changed().await;
        for dedicated in self.dedicated.all() {
            dedicated.shared_pins_changed().await;
        }
    }

    /// Summarises the dedicated instances and adds their counts to the status of the shared one.
    pub(crate) fn summary(&self, facts: &mut UpstreamStatus) -> DedicatedStatus {
        let table = self.dedicated.table.lock();
        let mut summary = DedicatedStatus {
            enabled: table.allocator.dedicates_instances(),
            max: table.allocator.max_instances(),
            states: Vec::new(),
            cause: None,
        };
        facts.restarts += table.past_restarts;
        for instance in table.instances.values() {
            let status = instance.upstream.with_machine(|machine, now| machine.status(now));
            facts.in_flight += status.in_flight;
            facts.waiting += status.waiting;
            facts.restarts += status.restarts;
            match summary.states.iter_mut().find(|(state, _)| *state == status.state) {
                Some((_, count)) => *count += 1,
                None => summary.states.push((status.state, 1)),
            }
            match status.state {
                State::Ready => {}
                // The operator approves tools per server, so the state is shown on the server.
                State::NeedsApproval if facts.state == State::Ready => {
                    facts.state = status.state;
                    facts.cause = status.cause;
                    facts.next_action = status.next_action;
                }
                State::NeedsApproval => {}
                State::Idle
                | State::Starting
                | State::Degraded
                | State::Reconnecting
                | State::Parked
                | State::NeedsLogin
                | State::ConfigError
                | State::Disabled
                | State::Stopped => summary.cause = summary.cause.or(status.cause),
            }
        }
        summary
    }

    /// Marks the server as removed, for the error that waiting callers get.
    pub(crate) fn mark_removed(&self) {
        self.shared.mark_removed();
        self.dedicated.all().iter().for_each(|dedicated| dedicated.mark_removed());
    }

    /// Ends all instances. Returns when no process or connection is left.
    pub(crate) async fn shutdown(&self) {
        self.shared.shutdown();
        let ending = {
            let mut table = self.dedicated.table.lock();
            table.allocator.stop();
            table.end_all();
            table.expiry_task = None;
            std::mem::take(&mut table.ending)
        };
        let shared = self.supervisor.lock().take();
        for supervisor in ending.into_iter().chain(shared) {
            let _ = supervisor.await;
        }
    }

    /// Ends all instances immediately, without waiting.
    pub(crate) fn abort(&self) {
        self.shared.shutdown();
        let mut table = self.dedicated.table.lock();
        table.allocator.stop();
        table.end_all();
        table.expiry_task = None;
        let shared = self.supervisor.lock().take();
        for supervisor in table.ending.drain(..).chain(shared) {
            supervisor.abort();
        }
    }

    fn exhausted_error(&self, max: usize) -> CallError {
        let name = &*self.shared.name;
        let text = format!("all {max} per-client instances of server `{name}` are in use (`max_instances`)");
        CallError::new(Code::Overloaded, name, CallOutcome::NotSent, text).with_hint(format!(
            "raise `max_instances` of `{name}`, or let its clients share with `isolation`"
        ))
    }
}

impl DedicatedInstances {
    /// Gives clients dedicated instances from now on, because a server request could not be attributed. Returns true
    /// if this is a change.
    fn separate(&self, apart: DedicatedFor) -> bool {
        let mut table = self.table.lock();
        let news = table.allocator.dedicate_for(apart);
        if news {
            table.deps.store.save_dedicated_for(apart);
        }
        news
    }

    /// The upstreams of all dedicated instances.
    fn all(&self) -> Vec<Arc<Upstream>> {
        self.table.lock().instances.values().map(|instance| Arc::clone(&instance.upstream)).collect()
    }
}

/// The spec of a dedicated instance.
fn for_one_client(spec: &ServerSpec) -> Arc<ServerSpec> {
    let mut spec = spec.clone();
    // It is started on demand and ends when it is idle. The shared instance lists the catalog.
    spec.supervision.lazy = false;
    spec.supervision.when_down = WhenDown::Keep;
    // A spare would mean two processes per client.
    spec.supervision.spare = false;
    Arc::new(spec)
}

impl Table {
    fn start_instance(
        &self,
        client: &Client,
        number: InstanceNumber,
        session_state: Arc<SessionState>,
    ) -> Instance {
        let client = Arc::new(InstanceClient::of(client));
        let role = InstanceRole::Dedicated { client: Arc::clone(&client) };
        let (upstream, supervisor) = Upstream::start(
            for_one_client(&self.spec),
            self.deps.clone(),
            role,
            Some(number.number()),
            session_state,
        );
        Instance { upstream, client, supervisor }
    }

    /// The session state of a client, kept from an earlier instance if that had subscriptions.
    fn session_state_of(&mut self, owner: &InstanceOwner) -> Arc<SessionState> {
        let known = self.session_states.get(owner).and_then(Weak::upgrade);
        let session_state = known.unwrap_or_default();
        self.session_states.retain(|_, session_state| session_state.strong_count() > 0);
        self.session_states.insert(owner.clone(), Arc::downgrade(&session_state));
        session_state
    }

    fn end(&mut self, owner: &InstanceOwner) {
        if let Some(Instance { upstream, supervisor, .. }) = self.instances.remove(owner) {
            self.past_restarts += upstream.with_machine(|machine, now| machine.status(now)).restarts;
            upstream.shutdown();
            self.ending.retain(|supervisor| !supervisor.is_finished());
            self.ending.push(supervisor);
        }
    }

    fn end_all(&mut self) {
        let owners: Vec<InstanceOwner> = self.instances.keys().cloned().collect();
        for owner in owners {
            self.end(&owner);
        }
    }
}

/// Ends dedicated instances that have been idle for long. Returns when the server is dropped.
async fn run_expiry(dedicated: Weak<DedicatedInstances>, wake: Arc<Notify>) {
    loop {
        let sleep = {
            let Some(dedicated) = dedicated.upgrade() else { return };
            let now = dedicated.clock.mono();
            let mut table = dedicated.table.lock();
            for owner in table.allocator.handle_timeout(now) {
                table.end(&owner);
            }
            table.allocator.poll_timeout().map(|at| tokio::time::sleep_until(dedicated.clock.instant(at)))
        };
        match sleep {
            Some(sleep) => tokio::select! {
                () = sleep => {}
                () = wake.notified() => {}
            },
            None => wake.notified().await,
        }
    }
}

//! One upstream: the supervision machine of `core` with its connections, tasks and timers.
//!
//! [`Upstream`] is shared by callers and the supervisor: the machine behind a short lock, the present connection, the
//! catalog. `supervisor` is the one task that performs the machine's actions. `call` sends one request. Callers never
//! repair a connection themselves.

mod answer;
mod attribution;
mod call;
mod call_watch;
mod connect;
mod handshake;
mod input_waits;
mod list_ttl;
mod listing;
mod notifications;
mod replies;
mod session_state;
mod standby;
mod supervisor;
mod waiters;

pub(crate) use crate::upstream::attribution::{InstanceClient, InstanceRole};
pub(crate) use crate::upstream::call::{UpstreamRequest, out_of_memory_error};
pub(crate) use crate::upstream::connect::RememberedRoute;
pub(crate) use crate::upstream::listing::{Listing, ListingOrigin, tool_item};
pub(crate) use crate::upstream::session_state::{SessionState, SubscriptionHandle};
pub use answer::Answer;

use self::input_waits::InputWaits;
use self::waiters::Waiters;
use crate::cache::{AnswerCache, CacheUse};
use crate::catalog::ChangeSignal;
use crate::client::Principal;
use crate::clock::Clock;
use crate::config::ServerSpec;
use crate::notification_sink::{InstanceSink, SinkSlot};
use crate::observe::{EndCounters, EventCounts, Feed, Observer, Stats};
use crate::pins::{InstancePins, PinSettings, ServerPins};
use crate::records::ledger::Ledger;
use crate::store::ServerStore;
use crate::sync::{Mutex, RwLock};
use crate::transport::{Dialer, InFlightCalls, Link, Route, Secrets, Session, StderrRing, UnsolicitedStream};
use crate::upstream::replies::{OpenQuestions, ReplySender};
use gripfast_core::cache::Freshness;
use gripfast_core::event::Event;
use gripfast_core::failure::crashes::Crashes;
use gripfast_core::failure::{CallError, CallOutcome, Code};
use gripfast_core::ids::Epoch;
use gripfast_core::isolation::ServedPrincipals;
use gripfast_core::session_state::Restored;
use gripfast_core::supervise::keepalive::Probe;
use gripfast_core::supervise::spec::WhenDown;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{
    Admission, CallEnd, Command, Input, Revision, UpstreamMachine as Machine,
};
use gripfast_core::time::{Mono, Now};
use gripfast_wire::era::RequestContext;
use gripfast_wire::{Era, JsonText, Object, tasks};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// State of one upstream, shared by callers and the supervisor.
pub(crate) struct Upstream {
    pub(crate) name: Arc<str>,
    pub(crate) clock: Clock,
    pub(crate) stats: Stats,
    pub(crate) ends: EndCounters,
    pub(crate) observer: Observer,
    pub(crate) stderr: Arc<StderrRing>,
    /// Principals served so far, on any connection.
    served_principals: Mutex<ServedPrincipals<Principal>>,
    /// Secrets that are masked in everything the server writes.
    pub(crate) secrets: Arc<Secrets>,
    /// Child processes that have not ended yet.
    children: TaskTracker,
    pub(crate) listing: watch::Sender<Listing>,
    pub(crate) pins: InstancePins,
    role: InstanceRole,
    /// Desired state of every session: log level, subscriptions, restore calls.
    session_state: Arc<SessionState>,
    change_signal: ChangeSignal,
    /// Cached answers, invalidated when the server reports a change.
    cache: Arc<AnswerCache>,
    /// Ledger for the calls that the host makes itself (`restore`).
    ledger: Arc<Ledger>,
    /// Sink for notifications about tasks and URL elicitations.
    notification_sink: Arc<InstanceSink>,
    /// Present spec, and the dependencies that go with it; replaced when the config changes.
    config: RwLock<(Arc<ServerSpec>, Arc<UpstreamDeps>)>,
    /// The store key has changed with the config: the next listing is stored even if it is unchanged.
    store_is_new: AtomicBool,
    machine: Mutex<Machine>,
    connection: RwLock<Option<Arc<Connection>>>,
    remembered_route: Mutex<Option<RememberedRoute>>,
    /// The last start ended when the server got the modern probe.
    probe_ended_start: AtomicBool,
    next_id: AtomicU64,
    /// Requests that were alone in flight when the server process died.
    crashes: Mutex<Crashes>,
    /// True if `crashes` is not empty; calls check it first.
    has_crashes: AtomicBool,
    /// Calls that wait for input from a client.
    input_waits: InputWaits,
    /// Number of the first stderr line of the present connection attempt.
    attempt_line: AtomicU64,
    /// Wakes the supervisor: there is an action, or its timer is set too late.
    supervisor_notify: Notify,
    /// Time at which the supervisor's timer fires, in microseconds of the monotonic clock.
    timer_due: AtomicU64,
    /// Notified when the visible state changes.
    changed: Notify,
    /// Calls that wait for a slot or a connection.
    waiters: Waiters,
    /// Cancelled on removal or shutdown: the supervisor ends.
    shutdown_token: CancellationToken,
    /// Cancelled when the secrets that a stored catalog may contain are known.
    pub(crate) secrets_ready: CancellationToken,
    /// The server was removed from the config, and not stopped.
    removed: AtomicBool,
    /// The program is shutting down; interrupted calls get an error that says so.
    is_shutting_down: AtomicBool,
}

/// A link with its session.
pub(crate) struct Connection {
    pub(crate) epoch: Epoch,
    pub(crate) link: Arc<dyn Link>,
    pub(crate) session: Arc<Session>,
    pub(crate) server: Arc<ServerFacts>,
    pub(crate) route: Route,
    pub(crate) since: Mono,
    /// Context of every modern request.
    context: RequestContext,
    /// The protocol version of the context as JSON.
    version_json: JsonText,
    /// Results of the restore calls, by tool.
    restore_calls: Vec<(String, gripfast_core::session_state::SyncVerdict)>,
    /// Number of the session in the desired session state, once it is registered.
    session_number: OnceLock<session_state::SessionNumber>,
    /// Log level that a legacy server was asked for.
    log_level: session_state::log_level::SessionLevel,
    /// Queue of replies to server requests.
    replies: ReplySender,
    /// Calls in flight on the link.
    in_flight: Arc<InFlightCalls>,
    /// Maximum JSON nesting of server messages.
    max_nesting: usize,
    /// Server requests outside any call that wait for an answer; they end with the session.
    open_questions: OpenQuestions,
    /// The server has sent a request that a client has to answer.
    has_asked: AtomicBool,
    /// The server has asked for roots and may remember them.
    has_asked_for_roots: AtomicBool,
    /// Stream of unsolicited messages; ends with the session.
    _listening: Option<UnsolicitedStream>,
}

impl Connection {
    /// Returns true if the server keeps a session that it can lose while the link is up.
    fn has_session(&self) -> bool {
        match (self.session.era, self.route) {
            (Era::Modern, _) | (Era::Legacy, Route::Stdio) => false,
            (Era::Legacy, Route::Http) => self.session.id.is_some(),
            // HTTP+SSE has it in the URL of its POSTs; of custom transports it is unknown.
            (Era::Legacy, Route::LegacySse | Route::Replica | Route::Custom) => true,
        }
    }

    /// The liveness probe for the server's era.
    fn first_probe(&self) -> Probe {
        match self.session.era {
            Era::Modern => Probe::Discover,
            Era::Legacy => Probe::Ping,
        }
    }
}

/// Server information from the handshake.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerFacts {
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) instructions: Option<String>,
    pub(crate) capabilities: ServerCapabilities,
    /// Protocol extensions, as the server declared them.
    pub(crate) extensions: Option<JsonText>,
    /// TTL of this information, if the server declared one.
    pub(crate) freshness: Option<Freshness>,
}

impl ServerFacts {
    /// Returns true if the server declares the modern tasks extension.
    pub(crate) fn has_tasks(&self) -> bool {
        let extensions = self.extensions.as_deref().and_then(|declared| Object::parse(declared).ok());
        extensions.is_some_and(|extensions| extensions.has(tasks::EXTENSION))
    }
}

/// Server capabilities that the host acts on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServerCapabilities {
    /// The server declared no capabilities at all: try every list.
    pub(crate) undeclared: bool,
    pub(crate) tools: bool,
    pub(crate) resources: bool,
    pub(crate) prompts: bool,
    pub(crate) logging: bool,
    pub(crate) tools_changes: bool,
    pub(crate) resources_changes: bool,
    pub(crate) resources_subscribe: bool,
    pub(crate) prompts_changes: bool,
    /// Tools can be called as tasks (legacy era).
    pub(crate) tasks: bool,
}

/// Everything that the instances of a server get from the host. Together with the spec it determines an upstream.
#[derive(Clone)]
pub(crate) struct UpstreamDeps {
    pub(crate) name: Arc<str>,
    pub(crate) clock: Clock,
    pub(crate) feed: Feed,
    pub(crate) counts: EventCounts,
    pub(crate) change_signal: ChangeSignal,
    pub(crate) cache: Arc<AnswerCache>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) sink: SinkSlot,
    /// Approved tools that every instance is compared with.
    pub(crate) approved: Arc<ServerPins>,
    /// Secrets that were filled in for the server, in any instance.
    pub(crate) secrets: Arc<Secrets>,
    /// Id of the host, which detects a gateway that is a server of itself.
    pub(crate) host_id: Arc<str>,
    /// `clientInfo` of the host.
    pub(crate) client_info: Arc<JsonText>,
    /// Client capabilities of the host.
    pub(crate) capabilities: Arc<JsonText>,
    /// Maximum JSON nesting of a result.
    pub(crate) max_nesting: usize,
    /// Connects to the target of the spec.
    pub(crate) dialer: Arc<dyn Dialer>,
    /// Stored state of the target of the spec.
    pub(crate) store: ServerStore,
}

/// The pin mode and limit of a spec.
fn pin_settings(spec: &ServerSpec) -> PinSettings {
    PinSettings { mode: spec.pins, max: spec.max_tools as usize }
}

impl Upstream {
    /// Starts an upstream and its supervisor, which ends when the upstream is shut down. `instance` is the number of a
    /// dedicated instance.
    pub(crate) fn start(
        spec: Arc<ServerSpec>,
        deps: UpstreamDeps,
        role: InstanceRole,
        instance: Option<u64>,
        session_state: Arc<SessionState>,
    ) -> (Arc<Self>, tokio::task::JoinHandle<()>) {
        let (name, clock) = (Arc::clone(&deps.name), deps.clock);
        let observer =
            Observer::new(Arc::clone(&name), instance, deps.feed.clone(), deps.counts.clone(), clock);
        let notification_sink = InstanceSink {
            sink: deps.sink.clone(),
            server: Arc::clone(&name),
            dedicated_to: role.client().cloned(),
        };
        let seed = crate::clock::unique_number();
        let mut machine = Machine::new(spec.supervision.clone(), deps.dialer.kind(), seed, clock.now());
        let verdict = deps.store.remembered_route();
        if let Some(verdict) = &verdict {
            machine.remember_start(verdict.last_start());
        }
        let stored = match role {
            InstanceRole::Shared { .. } => deps.store.catalog(),
            // The shared instance lists the catalog.
            InstanceRole::Dedicated { .. } => None,
        };
        let pins =
            InstancePins::new(pin_settings(&spec), deps.store.clone(), Arc::clone(&deps.approved), clock);
        let screened = stored.map(|stored| pins.screen(Arc::new(stored)));
        let stored = screened.as_ref().map(|screened| Arc::clone(&screened.catalog));
        let spoke = if verdict.is_some_and(|last| last.modern) { Era::Modern } else { Era::Legacy };
        let upstream = Arc::new(Self {
            listing: watch::Sender::new(Listing::stored(stored, spoke)),
            pins,
            remembered_route: Mutex::new(verdict),
            name,
            clock,
            stats: Stats::default(),
            ends: EndCounters::default(),
            observer,
            stderr: Arc::default(),
            served_principals: Mutex::default(),
            secrets: Arc::clone(&deps.secrets),
            children: TaskTracker::new(),
            role,
            session_state,
            change_signal: deps.change_signal.clone(),
            cache: Arc::clone(&deps.cache),
            ledger: Arc::clone(&deps.ledger),
            notification_sink: Arc::new(notification_sink),
            config: RwLock::new((spec, Arc::new(deps))),
            store_is_new: AtomicBool::new(false),
            machine: Mutex::new(machine),
            connection: RwLock::default(),
            probe_ended_start: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            crashes: Mutex::default(),
            has_crashes: AtomicBool::new(false),
            input_waits: InputWaits::default(),
            attempt_line: AtomicU64::new(0),
            supervisor_notify: Notify::new(),
            timer_due: AtomicU64::new(0),
            changed: Notify::new(),
            waiters: Waiters::default(),
            shutdown_token: CancellationToken::new(),
            secrets_ready: CancellationToken::new(),
            removed: AtomicBool::new(false),
            is_shutting_down: AtomicBool::new(false),
        });
        if let Some(screened) = screened {
            upstream.announce_pins(screened.events, screened.cause);
        }
        upstream.send_command(Command::Start);
        let supervisor = tokio::spawn(supervisor::supervise(Arc::clone(&upstream)));
        (upstream, supervisor)
    }

    /// The last stderr line of the present connection attempt.
    pub(crate) fn last_line_of_attempt(&self) -> Option<String> {
        let lines = self.stderr.lines_from(self.attempt_line.load(Ordering::Relaxed)).lines;
        lines.into_iter().rfind(|line| !line.trim().is_empty()).map(|line| self.secrets.mask(&line))
    }

    /// Returns true if the server was ever connected, in this run of the gateway or an earlier one.
    pub(crate) fn was_ever_up(&self) -> bool {
        self.remembered_route.lock().is_some()
    }

    /// Sends an operator command to the supervision machine.
    pub(crate) fn send_command(&self, ask: Command) {
        if matches!(ask, Command::Shutdown { .. }) {
            self.is_shutting_down.store(true, Ordering::Release);
        }
        self.handle_input(Input::Command(ask));
    }

    /// Publishes an event with the server's secrets masked.
    pub(crate) fn announce(&self, now: Now, event: Event) {
        let event = event.redacted(|text| self.secrets.mask(text));
        self.observer.record(now, event);
    }

    /// The present spec.
    pub(crate) fn spec(&self) -> Arc<ServerSpec> {
        Arc::clone(&self.config.read().0)
    }

    /// The present dependencies.
    pub(crate) fn deps(&self) -> Arc<UpstreamDeps> {
        Arc::clone(&self.config.read().1)
    }

    /// Applies a changed spec. A working connection stays in use until there is one with the new spec.
    pub(crate) fn apply_spec(&self, spec: Arc<ServerSpec>, deps: UpstreamDeps, revision: Revision) {
        self.pins.apply_settings(pin_settings(&spec), deps.store.clone());
        if !deps.store.has_same_key(&self.deps().store) {
            *self.remembered_route.lock() = deps.store.remembered_route();
            self.probe_ended_start.store(false, Ordering::Relaxed);
            self.store_is_new.store(true, Ordering::Release);
        }
        self.with_machine(|machine, now| {
            machine.reconfigure(now, spec.supervision.clone(), deps.dialer.kind(), revision);
            // Replaced before the supervisor can act on the machine's decisions.
            *self.config.write() = (spec, Arc::new(deps));
        });
        self.screen_again();
    }

    /// Cache hits and misses of this server.
    pub(crate) fn cache_use(&self) -> CacheUse {
        self.cache.cache_use(&self.name)
    }

    /// Ends the supervisor and its connections, on removal or shutdown.
    pub(crate) fn shutdown(&self) {
        self.shutdown_token.cancel();
    }

    /// The present connection.
    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        self.connection.read().clone()
    }

    /// The transport, if there is only one or it was found before.
    pub(crate) fn only_route(&self) -> Option<Route> {
        let remembered = *self.remembered_route.lock();
        let routes = self.deps().dialer.routes();
        match (routes.as_slice(), remembered) {
            ([only], _) => Some(*only),
            (several, Some(verdict)) => {
                several.iter().copied().find(|route| verdict.route == (*route).into())
            }
            (_, None) => None,
        }
    }

    /// Returns true if the server supports resource subscriptions, now or when it was last connected.
    pub(crate) fn has_resource_updates(&self) -> bool {
        self.remembered_route.lock().is_some_and(|verdict| verdict.follows)
    }

    /// The restore status of the present session.
    pub(crate) fn restored(&self) -> Option<Restored> {
        self.session_state.restored()
    }

    /// Keeps a lazy upstream up until the result is dropped.
    pub(crate) fn keep_up(self: &Arc<Self>) -> KeepUp {
        self.with_machine(|machine, _| machine.hold());
        KeepUp(Arc::clone(self))
    }

    fn handle_input(&self, input: Input) {
        self.with_machine(|machine, now| machine.handle(now, input));
    }

    fn set_connection(&self, connection: Option<Arc<Connection>>) -> Option<Arc<Connection>> {
        std::mem::replace(&mut *self.connection.write(), connection)
    }

    /// The only access to the machine. Afterwards its events are published, and the supervisor and waiting calls are
    /// woken.
    pub(crate) fn with_machine<T>(&self, act: impl FnOnce(&mut Machine, Now) -> T) -> T {
        let now = self.clock.now();
        let mut events: Vec<Event> = Vec::new();
        let (result, supervisor_is_due, wakeups, displaced) = {
            let mut machine = self.machine.lock();
            let result = act(&mut machine, now);
            while let Some(event) = machine.poll_event() {
                events.push(event);
            }
            let due = machine.poll_timeout().map_or(u64::MAX, micros);
            // A timer that fires too early is harmless: the supervisor sets it again. So calls, which only move it
            // later, need not wake the supervisor.
            let too_late = due < self.timer_due.load(Ordering::Acquire);
            let supervisor_is_due = machine.has_actions() || too_late;
            (result, supervisor_is_due, machine.take_wakeups(!events.is_empty()), machine.take_displaced())
        };
        let events_told = !events.is_empty();
        if events_told {
            self.changed.notify_waiters();
        }
        if events.iter().any(parks_or_revives) && self.spec().supervision.when_down == WhenDown::Withdraw {
            self.change_signal.notify();
        }
        for event in events {
            self.announce(now, event);
        }
        if supervisor_is_due {
            self.supervisor_notify.notify_one();
        }
        self.waiters.wake(wakeups, &displaced);
        result
    }
}

/// Keeps a lazy upstream up while it exists.
pub(crate) struct KeepUp(Arc<Upstream>);

impl Drop for KeepUp {
    fn drop(&mut self) {
        self.0.with_machine(|machine, now| machine.release(now));
    }
}

/// Returns true for events that change the catalog of a server with `when_down = "withdraw"`.
fn parks_or_revives(event: &Event) -> bool {
    matches!(event, Event::StateChanged { from, to, .. } if [from, to].contains(&&State::Parked))
}

fn micros(at: Mono) -> u64 {
    u64::try_from(at.since_origin().as_micros()).unwrap_or(u64::MAX)
}

impl Upstream {
    /// The visible state.
    pub(crate) fn state(&self) -> State {
        self.with_machine(|machine, now| machine.status(now).state)
    }

    /// Notes that the status was read: a silent server is probed.
    pub(crate) fn note_status_read(&self) {
        self.handle_input(Input::StatusRead);
    }

    /// Starts an idle upstream, so that it is listed.
    pub(crate) fn start_if_idle(&self) {
        if self.state() == State::Idle {
            self.send_command(Command::Reconnect);
        }
    }

    /// Wakes an idle or parked upstream for a request that must wait for the first listing. Counts as a call that
    /// leaves the queue immediately.
    pub(crate) fn wake(&self) {
        self.with_machine(|machine, now| match machine.admit(now) {
            Admission::Go(ticket) => machine.end_call(now, ticket, CallEnd::Unused),
            Admission::Wait(place) => machine.leave_queue(now, place),
            Admission::Refuse(_) => {}
        });
    }

    /// Waits until the upstream cannot be listed without an operator's action, and returns the reason.
    pub(crate) async fn wait_until_unusable(&self) -> CallError {
        loop {
            let turn = self.changed.notified();
            tokio::pin!(turn);
            turn.as_mut().enable();
            match self.state() {
                State::Parked | State::NeedsLogin | State::ConfigError | State::Stopped => {
                    return self.not_listed_error();
                }
                State::Idle
                | State::Starting
                | State::Ready
                | State::Degraded
                | State::Reconnecting
                | State::NeedsApproval
                | State::Disabled => {}
            }
            turn.await;
        }
    }

    /// Marks the upstream as removed, for the error that waiting callers get.
    pub(crate) fn mark_removed(&self) {
        self.removed.store(true, Ordering::Release);
    }

    /// The error for a stopped or removed server.
    fn stopped_error(&self) -> CallError {
        let name = &*self.name;
        let (what, hint) = match self.removed.load(Ordering::Acquire) {
            true => ("was removed from the config", "`gripfast status` lists the servers".to_owned()),
            false => ("was stopped", format!("`gripfast start {name}` starts it again")),
        };
        CallError::new(Code::Stopped, name, CallOutcome::NotSent, format!("server `{name}` {what}"))
            .with_hint(hint)
    }

    /// The error for a server whose catalog is not known.
    pub(crate) fn not_listed_error(&self) -> CallError {
        let name = &*self.name;
        let (status, blocked) =
            self.with_machine(|machine, now| (machine.status(now), machine.block_cause().cloned()));
        if let Some(cause) = blocked {
            return CallError::blocked(name, &cause, CallOutcome::NotSent)
                .with_retry_after(status.next_attempt);
        }
        let cause = status.cause.map(|cause| format!(": {cause}")).unwrap_or_default();
        let (code, what, hint) = match status.state {
            State::Stopped => return self.stopped_error(),
            State::Starting | State::Reconnecting | State::Degraded => {
                (Code::Reconnecting, "has not been listed yet", "gripfast retries automatically".to_owned())
            }
            State::Parked
            | State::Idle
            | State::Ready
            | State::NeedsLogin
            | State::ConfigError
            | State::NeedsApproval
            | State::Disabled => (
                Code::Unreachable,
                "cannot be reached",
                "gripfast retries automatically at long intervals".to_owned(),
            ),
        };
        CallError::new(code, name, CallOutcome::NotSent, format!("server `{name}` {what}{cause}"))
            .with_retry_after(status.next_attempt.filter(|wait| !wait.is_zero()))
            .with_hint(hint)
    }
}

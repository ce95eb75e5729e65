//! One upstream: the machine of `core` with hands and eyes.
//!
//! [`Upstream`] is what callers and the owner share: the machine behind a short lock, the present link,
//! the catalog. `owner` is the one task that performs what the machine decides. `exchange` is the way of
//! one request. Callers ask; they never repair.

mod answer;
mod answers;
mod call_watch;
mod catalog;
mod dial;
mod errands;
mod exchange;
mod good_for;
mod greet;
mod home;
mod input_waits;
mod level;
mod listen;
mod owner;
mod restore;
mod second;
mod waiters;
mod wishes;

pub use answer::{Answer, Members};
pub(crate) use catalog::{Listing, Origin, tool_item};
pub(crate) use dial::Verdict;
pub(crate) use exchange::{Order, no_memory};
pub(crate) use home::{Home, Role};
pub(crate) use wishes::{Followed, Following, Wishes};

use self::answers::{Answers, Thinking};
use self::input_waits::InputWaits;
use self::waiters::Waiters;
use crate::cache::{AnswerCache, CacheUse};
use crate::client::Principal;
use crate::clock::Clock;
use crate::config::{ProtocolChoice, RestoreCall};
use crate::ledger::Ledger;
use crate::menu::Bell;
use crate::observe::{Ends, Observer, Stats};
use crate::overheard::Earshot;
use crate::pins::{Approved, PinRules, Pinboard};
use crate::store::Shelf;
use crate::transport::{Dialer, Link, Listening, Route, Secrets, Session, StderrRing, Underway};
use gripfast_core::cache::Freshness;
use gripfast_core::event::Event;
use gripfast_core::failure::crashes::Crashes;
use gripfast_core::failure::{CallError, Code, Outcome as Fate};
use gripfast_core::ids::Epoch;
use gripfast_core::isolation::ServedPrincipals;
use gripfast_core::standing::{self, Restored};
use gripfast_core::supervise::keepalive::Probe;
use gripfast_core::supervise::spec::{SupervisionSpec, WhenDown};
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{Admission, Ask, CallEnd, Input, Revision, Upstream as Machine};
use gripfast_core::time::{Mono, Now};
use gripfast_wire::era::RequestContext;
use gripfast_wire::{Era, Object, RawValue, tasks};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What callers and the owner of one upstream share.
pub(crate) struct Upstream {
    pub(crate) name: Arc<str>,
    pub(crate) clock: Clock,
    pub(crate) stats: Stats,
    pub(crate) ends: Ends,
    pub(crate) observer: Observer,
    pub(crate) stderr: Arc<StderrRing>,
    /// The principals that it has served on any of its links.
    served: Mutex<ServedPrincipals<Principal>>,
    /// What nothing that it says is shown with.
    pub(crate) secrets: Arc<Secrets>,
    /// Its children that are not gone yet.
    children: TaskTracker,
    pub(crate) listing: watch::Sender<Listing>,
    pub(crate) pins: Pinboard,
    role: Role,
    /// What it is to know whatever session it is in.
    wishes: Arc<Wishes>,
    bell: Bell,
    /// Answers that are given again until it says that something changed.
    cache: Arc<AnswerCache>,
    /// Where calls that nobody asked for are written down.
    ledger: Arc<Ledger>,
    /// Who hears what it says about what it began earlier.
    earshot: Arc<Earshot>,
    /// What the config says; it may change.
    settings: RwLock<Arc<Settings>>,
    /// The shelf has changed with the config: what is listed next is kept, even if it is what was known.
    shelf_is_new: AtomicBool,
    machine: Mutex<Machine>,
    live: RwLock<Option<Arc<Live>>>,
    verdict: Mutex<Option<Verdict>>,
    /// Its last start ended over the question about its era.
    ended_over_probe: AtomicBool,
    next_id: AtomicU64,
    /// Requests that were alone in flight when the server process died.
    crashes: Mutex<Crashes>,
    /// Whether there is anything in `crashes`: calls look here first.
    has_crashes: AtomicBool,
    /// Calls that wait for a person.
    input_waits: InputWaits,
    /// The number of the first stderr line of the present attempt to connect.
    attempt_line: AtomicU64,
    /// Wakes the owner: there is something to do, or its timer is set too late.
    nudge: Notify,
    /// When the owner's timer will fire, in microseconds of the monotonic clock.
    armed: AtomicU64,
    /// Wakes whoever watches the visible state.
    changed: Notify,
    /// Calls that wait for a slot or a link.
    waiters: Waiters,
    /// Removal or shutdown: the owner ends for good.
    gone: CancellationToken,
    /// Cancelled when what a stored catalog may repeat of secrets is known.
    pub(crate) secrets_known: CancellationToken,
    /// Whether it goes because the config has it no more, and not because somebody stopped it.
    removed: AtomicBool,
    /// The whole program ends, and those whose calls are cut are told so.
    is_leaving: AtomicBool,
}

/// What the config says about an upstream, made ready for use.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) supervision: SupervisionSpec,
    pub(crate) protocol: ProtocolChoice,
    pub(crate) max_message: usize,
    /// Levels of nesting that a result may have.
    pub(crate) nesting: usize,
    /// What is done about tools that change.
    pub(crate) pins: PinRules,
    /// Calls that every new session begins with.
    pub(crate) restore: Vec<RestoreCall>,
    /// The host's own name, by which it recognises itself.
    pub(crate) host_id: Arc<str>,
    /// How we introduce ourselves.
    pub(crate) client_info: Arc<RawValue>,
    /// What we can do for servers that ask.
    pub(crate) capabilities: Arc<RawValue>,
    pub(crate) dialer: Arc<dyn Dialer>,
    pub(crate) shelf: Shelf,
}

/// The present link and its session.
pub(crate) struct Live {
    pub(crate) epoch: Epoch,
    pub(crate) link: Arc<dyn Link>,
    pub(crate) session: Arc<Session>,
    pub(crate) server: Arc<ServerFacts>,
    pub(crate) route: Route,
    pub(crate) since: Mono,
    /// What goes into every modern request.
    context: RequestContext,
    /// What came of the calls that every session begins with, by their tools.
    calls: Vec<(String, standing::Verdict)>,
    /// Its number among those that are told of wishes, once it is.
    told_as: OnceLock<wishes::SessionNumber>,
    /// Which log messages a legacy server was asked for.
    level: level::SessionLevel,
    /// The way of our answers to its questions.
    answers: Answers,
    /// The calls under way on the link.
    underway: Arc<Underway>,
    /// Levels of nesting that what the server says may have.
    nesting: usize,
    /// Questions outside any call that somebody thinks about; they end with the session.
    thinking: Thinking,
    /// The server has asked something that a client has to answer.
    has_asked: AtomicBool,
    /// The server has asked for roots, and may remember what it was told.
    knows_roots: AtomicBool,
    /// Ends with the session it listens to.
    _listening: Option<Listening>,
}

impl Live {
    /// Whether the server keeps a session for us that it can forget while the link is there.
    fn has_session(&self) -> bool {
        match (self.session.era, self.route) {
            (Era::Modern, _) | (Era::Legacy, Route::Stdio) => false,
            (Era::Legacy, Route::Http) => self.session.id.is_some(),
            // The one has it in the address of its POSTs; of the other nobody knows.
            (Era::Legacy, Route::LegacySse | Route::Custom) => true,
        }
    }

    /// The question that fits the server's era.
    fn first_probe(&self) -> Probe {
        match self.session.era {
            Era::Modern => Probe::Discover,
            Era::Legacy => Probe::Ping,
        }
    }
}

/// What a server said about itself in the handshake.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerFacts {
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) instructions: Option<String>,
    pub(crate) capabilities: ServerCapabilities,
    /// Its extensions of the protocol, as it declared them.
    pub(crate) extensions: Option<Box<RawValue>>,
    /// For how long all of this is good, if it said so.
    pub(crate) freshness: Option<Freshness>,
}

impl ServerFacts {
    /// Whether it has tasks as an extension of the protocol, in the manner of the modern era.
    pub(crate) fn has_tasks(&self) -> bool {
        let extensions = self.extensions.as_deref().and_then(|said| Object::parse(said).ok());
        extensions.is_some_and(|extensions| extensions.has(tasks::EXTENSION))
    }
}

/// What a server offers, as far as we decide on it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServerCapabilities {
    /// The server said nothing at all about its capabilities: ask.
    pub(crate) unsaid: bool,
    pub(crate) tools: bool,
    pub(crate) resources: bool,
    pub(crate) prompts: bool,
    pub(crate) logging: bool,
    pub(crate) tools_changes: bool,
    pub(crate) resources_changes: bool,
    pub(crate) resources_subscribe: bool,
    pub(crate) prompts_changes: bool,
    /// Tools can be called as tasks, in the manner of the legacy era.
    pub(crate) tasks: bool,
}

/// What an upstream is made of.
pub(crate) struct Parts {
    pub(crate) name: Arc<str>,
    pub(crate) settings: Settings,
    pub(crate) approved: Arc<Approved>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) clock: Clock,
    pub(crate) observer: Observer,
    pub(crate) bell: Bell,
    pub(crate) cache: Arc<AnswerCache>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) role: Role,
    pub(crate) wishes: Arc<Wishes>,
    pub(crate) earshot: Arc<Earshot>,
}

impl Upstream {
    /// A new upstream with its owner, which ends when the upstream is told to go.
    pub(crate) fn start(parts: Parts) -> (Arc<Self>, tokio::task::JoinHandle<()>) {
        let Parts {
            name,
            settings,
            approved,
            secrets,
            clock,
            observer,
            bell,
            cache,
            ledger,
            role,
            wishes,
            earshot,
        } = parts;
        let seed = crate::clock::unique_number();
        let mut machine =
            Machine::new(settings.supervision.clone(), settings.dialer.kind(), seed, clock.now());
        let verdict = settings.shelf.verdict();
        if let Some(verdict) = &verdict {
            machine.remember_start(verdict.last_start());
        }
        let stored = match role {
            Role::Base { .. } => settings.shelf.catalog(),
            // What is offered is the business of the base instance.
            Role::Own { .. } => None,
        };
        let pins = Pinboard::new(settings.pins, settings.shelf.clone(), approved, clock);
        let screened = stored.map(|stored| pins.screen(Arc::new(stored)));
        let stored = screened.as_ref().map(|screened| Arc::clone(&screened.catalog));
        let spoke = if verdict.is_some_and(|last| last.modern) { Era::Modern } else { Era::Legacy };
        let upstream = Arc::new(Self {
            listing: watch::Sender::new(Listing::stored(stored, spoke)),
            pins,
            verdict: Mutex::new(verdict),
            name,
            clock,
            stats: Stats::default(),
            ends: Ends::default(),
            observer,
            stderr: Arc::default(),
            served: Mutex::default(),
            secrets,
            children: TaskTracker::new(),
            role,
            wishes,
            bell,
            cache,
            ledger,
            earshot,
            settings: RwLock::new(Arc::new(settings)),
            shelf_is_new: AtomicBool::new(false),
            machine: Mutex::new(machine),
            live: RwLock::default(),
            ended_over_probe: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            crashes: Mutex::default(),
            has_crashes: AtomicBool::new(false),
            input_waits: InputWaits::default(),
            attempt_line: AtomicU64::new(0),
            nudge: Notify::new(),
            armed: AtomicU64::new(0),
            changed: Notify::new(),
            waiters: Waiters::default(),
            gone: CancellationToken::new(),
            secrets_known: CancellationToken::new(),
            removed: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
        });
        if let Some(screened) = screened {
            upstream.tell_about_pins(screened.events, screened.cause);
        }
        upstream.ask(Ask::Start);
        let owner = tokio::spawn(owner::own(Arc::clone(&upstream)));
        (upstream, owner)
    }

    /// The last line that the server has written to stderr during the present attempt to connect.
    pub(crate) fn last_line_of_attempt(&self) -> Option<String> {
        let lines = self.stderr.from(self.attempt_line.load(Ordering::Relaxed)).lines;
        lines.into_iter().rfind(|line| !line.trim().is_empty()).map(|line| self.secrets.mask(&line))
    }

    /// Whether the server was ever up, in this run of the gateway or in one before.
    pub(crate) fn was_up_before(&self) -> bool {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Asks for something, as a person would.
    pub(crate) fn ask(&self, ask: Ask) {
        if matches!(ask, Ask::Leave { .. }) {
            self.is_leaving.store(true, Ordering::Release);
        }
        self.tell(Input::Asked(ask));
    }

    /// Tells observers of an event, without the secrets that the server may have written into it.
    pub(crate) fn announce(&self, now: Now, event: Event) {
        let event = event.redacted(|text| self.secrets.mask(text));
        self.observer.tell(now, event);
    }

    /// What the config says about it.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The config has changed. A link that works stays in use until there is one of the new config.
    pub(crate) fn revise(&self, settings: Settings, revision: Revision) {
        self.pins.revise(settings.pins, settings.shelf.clone());
        if !settings.shelf.is_the_same(&self.settings().shelf) {
            *self.verdict.lock().unwrap_or_else(PoisonError::into_inner) = settings.shelf.verdict();
            self.ended_over_probe.store(false, Ordering::Relaxed);
            self.shelf_is_new.store(true, Ordering::Release);
        }
        self.with(|machine, now| {
            machine.revise(now, settings.supervision.clone(), settings.dialer.kind(), revision);
            // In place before anybody can act on what the machine has decided.
            *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        });
        self.screen_again();
    }

    /// How often its answers were given again.
    pub(crate) fn cache_use(&self) -> CacheUse {
        self.cache.used_of(&self.name)
    }

    /// Ends it for good: removal, or shutdown.
    pub(crate) fn go_away(&self) {
        self.gone.cancel();
    }

    /// The present link, if there is one.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The way it is reached, if there is only one or one was found before.
    pub(crate) fn only_route(&self) -> Option<Route> {
        let remembered = *self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        let routes = self.settings().dialer.routes();
        match (routes.as_slice(), remembered) {
            ([only], _) => Some(*only),
            (several, Some(verdict)) => {
                several.iter().copied().find(|route| verdict.route == (*route).into())
            }
            (_, None) => None,
        }
    }

    /// Whether it tells of changed resources, as far as is known: now, or when it was last up.
    pub(crate) fn tells_of_resources(&self) -> bool {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|verdict| verdict.follows)
    }

    /// How much of what it is to know its present session knows.
    pub(crate) fn restored(&self) -> Option<Restored> {
        self.wishes.restored()
    }

    /// Somebody wants it to stay up.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        self.with(|machine, _| machine.hold());
        Hold(Arc::clone(self))
    }

    fn tell(&self, input: Input) {
        self.with(|machine, now| machine.handle(now, input));
    }

    fn set_live(&self, live: Option<Arc<Live>>) -> Option<Arc<Live>> {
        std::mem::replace(&mut *self.live.write().unwrap_or_else(PoisonError::into_inner), live)
    }

    /// The one way to the machine. Afterwards its events are told, and whoever has to act is woken.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Machine, Now) -> T) -> T {
        let now = self.clock.now();
        let mut events: Vec<Event> = Vec::new();
        let (result, owner_is_due, wakeups, displaced) = {
            let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
            let result = act(&mut machine, now);
            while let Some(event) = machine.poll_event() {
                events.push(event);
            }
            let due = machine.poll_timeout().map_or(u64::MAX, micros);
            // A timer that fires too early costs nothing: the owner looks and sets it anew. So calls, which
            // only ever move it later, need not wake the owner.
            let too_late = due < self.armed.load(Ordering::Acquire);
            let owner_is_due = machine.has_actions() || too_late;
            (result, owner_is_due, machine.take_wakeups(!events.is_empty()), machine.take_displaced())
        };
        let events_told = !events.is_empty();
        if events_told {
            self.changed.notify_waiters();
        }
        if events.iter().any(parks_or_revives) && self.settings().supervision.when_down == WhenDown::Withdraw
        {
            self.bell.ring();
        }
        for event in events {
            self.announce(now, event);
        }
        if owner_is_due {
            self.nudge.notify_one();
        }
        self.waiters.wake(wakeups, &displaced);
        result
    }
}

/// Keeps a lazy upstream up while it lives.
pub(crate) struct Hold(Arc<Upstream>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.with(|machine, now| machine.release(now));
    }
}

/// Whether what is on offer changes with it, for a server that withdraws.
fn parks_or_revives(event: &Event) -> bool {
    matches!(event, Event::StateChanged { from, to, .. } if [from, to].contains(&&State::Parked))
}

fn micros(at: Mono) -> u64 {
    u64::try_from(at.since_origin().as_micros()).unwrap_or(u64::MAX)
}

impl Upstream {
    /// The state that everybody sees.
    pub(crate) fn state(&self) -> State {
        self.with(|machine, now| machine.status(now).state)
    }

    /// Somebody has read the status, and may rely on it.
    pub(crate) fn status_was_read(&self) {
        self.tell(Input::StatusRead);
    }

    /// Somebody wants to know what it offers: a sleeping upstream is started for it.
    pub(crate) fn want(&self) {
        if self.state() == State::Idle {
            self.ask(Ask::Reconnect);
        }
    }

    /// Somebody has a request for it that cannot be sent before it was listed. It counts as a call that asks
    /// and leaves: a sleeping upstream is started for it, and a parked one is woken.
    pub(crate) fn knock(&self) {
        self.with(|machine, now| match machine.admit(now) {
            Admission::Go(ticket) => machine.end(now, ticket, CallEnd::Unused),
            Admission::Wait(place) => machine.leave(now, place),
            Admission::Refuse(_) => {}
        });
    }

    /// Ends when there is no hope for a listing without somebody's doing, with the reason.
    pub(crate) async fn hopeless(&self) -> CallError {
        loop {
            let turn = self.changed.notified();
            tokio::pin!(turn);
            turn.as_mut().enable();
            match self.state() {
                State::Parked | State::NeedsLogin | State::ConfigError | State::Stopped => {
                    return self.not_listed_yet();
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

    /// It was removed: callers that still wait are told so.
    pub(crate) fn note_removal(&self) {
        self.removed.store(true, Ordering::Release);
    }

    /// The answer to a call after somebody has stopped or removed it.
    fn stopped(&self) -> CallError {
        let name = &*self.name;
        let (what, hint) = match self.removed.load(Ordering::Acquire) {
            true => (
                "was removed from the config",
                "`gripfast status` lists the servers that there are".to_owned(),
            ),
            false => ("was stopped", format!("`gripfast start {name}` brings it back")),
        };
        CallError::new(Code::Stopped, name, Fate::NotSent, format!("server `{name}` {what}")).hint(hint)
    }

    /// Why nothing is known of its catalog.
    pub(crate) fn not_listed_yet(&self) -> CallError {
        let name = &*self.name;
        let (status, blocked) =
            self.with(|machine, now| (machine.status(now), machine.block_cause().cloned()));
        if let Some(cause) = blocked {
            return CallError::blocked(name, &cause, Fate::NotSent).retry_after(status.next_attempt);
        }
        let cause = status.cause.map(|cause| format!(": {cause}")).unwrap_or_default();
        let (code, what, hint) = match status.state {
            State::Stopped => return self.stopped(),
            State::Starting | State::Reconnecting | State::Degraded => (
                Code::Reconnecting,
                "has not said yet what it offers",
                "it is tried again by itself".to_owned(),
            ),
            State::Parked
            | State::Idle
            | State::Ready
            | State::NeedsLogin
            | State::ConfigError
            | State::NeedsApproval
            | State::Disabled => (
                Code::Unreachable,
                "cannot be reached",
                "it is tried again by itself now and then".to_owned(),
            ),
        };
        CallError::new(code, name, Fate::NotSent, format!("upstream `{name}` {what}{cause}"))
            .retry_after(status.next_attempt.filter(|wait| !wait.is_zero()))
            .hint(hint)
    }
}

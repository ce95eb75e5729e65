//! The instances of one server: the base one, which is everybody's and says what the server offers, and
//! those that belong to one client each. `core` decides who is served where; this file makes them and ends
//! them. Each is an upstream with an owner of its own, supervised like any other.

use crate::client::Client;
use crate::clock::Clock;
use crate::observe::{Feed, Observer, Tally};
use crate::overheard::{Ears, Earshot};
use crate::pins::{Approved, PinCounts, PinnedTool, Quarantined};
use crate::status::OwnInstances;
use crate::transport::Secrets;
use crate::upstream::{Home, Parts, Role, Settings, Upstream, Wishes};
use gripfast_core::event::Event;
use gripfast_core::failure::{CallError, Code, Outcome as Fate};
use gripfast_core::ids::ClientKey;
use gripfast_core::isolation::{Apart, Caller, Holder, Isolation, Needs, Seat, SeatNumber, Seats};
use gripfast_core::supervise::spec::WhenDown;
use gripfast_core::supervise::status::{State, UpstreamStatus};
use gripfast_core::supervise::upstream::{Ask, Revision};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

/// All instances of one server.
pub(crate) struct Instances {
    base: Arc<Upstream>,
    owner: Mutex<Option<JoinHandle<()>>>,
    own: Arc<Own>,
}

/// What every instance of a server is made from, whatever its config says.
pub(crate) struct Recipe {
    pub(crate) name: Arc<str>,
    pub(crate) clock: Clock,
    pub(crate) feed: Feed,
    pub(crate) tally: Tally,
    pub(crate) cache: Arc<crate::cache::AnswerCache>,
    pub(crate) ledger: Arc<crate::ledger::Ledger>,
    pub(crate) bell: crate::menu::Bell,
    pub(crate) ears: Ears,
}

/// The instances that belong to one client each.
struct Own {
    recipe: Recipe,
    /// What the tools of every instance are held up against.
    approved: Arc<Approved>,
    /// What was filled in for the server, in whichever instance.
    secrets: Arc<Secrets>,
    table: Mutex<Table>,
    /// Wakes the keeper: one of them may be unused.
    nudge: Arc<Notify>,
}

struct Table {
    settings: Settings,
    seats: Seats,
    /// One for each seat that is taken.
    instances: BTreeMap<Holder, Instance>,
    /// Owners of instances that are ending; those that have ended are dropped when the next one comes.
    leaving: Vec<JoinHandle<()>>,
    /// Restarts of instances that are gone.
    past_restarts: u64,
    /// What clients follow, for as long as they do: it outlives their instances.
    wishes: BTreeMap<Holder, Weak<Wishes>>,
    /// Ends what nobody uses; there is none before the first instance.
    keeper: Option<AbortOnDropHandle<()>>,
}

struct Instance {
    upstream: Arc<Upstream>,
    home: Arc<Home>,
    owner: JoinHandle<()>,
}

/// An instance for the time of one call.
pub(crate) struct Lease {
    upstream: Arc<Upstream>,
    own: Option<(Arc<Own>, Holder, SeatNumber)>,
}

impl Lease {
    /// Whether it is the instance that all share.
    pub(crate) fn is_shared(&self) -> bool {
        self.own.is_none()
    }

    pub(crate) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((own, holder, number)) = self.own.take() {
            let now = own.recipe.clock.mono();
            own.lock().seats.give_back(now, &holder, number);
            own.nudge.notify_one();
        }
    }
}

impl Instances {
    /// Starts the base instance.
    pub(crate) fn start(recipe: Recipe, settings: Settings, rule: Isolation, most: usize) -> Self {
        let seats = Seats::new(rule, settings.shelf.apart(), most, settings.supervision.idle_timeout);
        let own = Arc::new(Own {
            table: Mutex::new(Table {
                settings: settings.clone(),
                seats,
                instances: BTreeMap::new(),
                leaving: Vec::new(),
                past_restarts: 0,
                wishes: BTreeMap::new(),
                keeper: None,
            }),
            recipe,
            approved: Arc::default(),
            secrets: Arc::default(),
            nudge: Arc::default(),
        });
        let observer = own.recipe.observer(None);
        let unclear = Arc::downgrade(&own);
        let separate = move |apart| unclear.upgrade().is_some_and(|own| own.separate(apart));
        let role = Role::Base { separate: Box::new(separate) };
        let (base, owner) = Upstream::start(own.parts(settings, observer, role, Arc::default()));
        Self { base, owner: Mutex::new(Some(owner)), own }
    }

    /// Everybody's instance, which knows the catalog.
    pub(crate) fn base(&self) -> &Arc<Upstream> {
        &self.base
    }

    /// The instance for a call of `client`, which is made if need be.
    pub(crate) fn lease(&self, client: Option<&Client>) -> Result<Lease, CallError> {
        let base = || Lease { upstream: Arc::clone(&self.base), own: None };
        let Some(client) = client else { return Ok(base()) };
        let needs = self.needs(client);
        if needs == Needs::Solitude && self.base.is_asking() && self.own.separate(Apart::Asked) {
            self.base.announce(self.own.recipe.clock.now(), Event::ClientsSeparated);
        }
        let now = self.own.recipe.clock.mono();
        let mut table = self.own.lock();
        let Table { seats, instances, .. } = &mut *table;
        let is_quiet = |holder: &Holder| instances.get(holder).is_none_or(|own| own.upstream.is_quiet());
        let (holder, number, upstream) = match seats.take(now, &client.caller, needs, is_quiet) {
            Seat::Base => return Ok(base()),
            Seat::Full { retry_after } => return Err(self.full(table.seats.most()).retry_after(retry_after)),
            Seat::Own(holder, number) => {
                let instance =
                    table.instances.get(&holder).expect("every seat that is taken has an instance");
                instance.home.is_heard_by(client.ear.clone());
                let upstream = Arc::clone(&instance.upstream);
                (holder, number, upstream)
            }
            Seat::New(holder, number) => {
                let wishes = table.wishes_of(&holder);
                let instance = self.own.make(client, number, for_one_client(&table.settings), wishes);
                let upstream = Arc::clone(&instance.upstream);
                table.instances.insert(holder.clone(), instance);
                let own = Arc::downgrade(&self.own);
                let nudge = &self.own.nudge;
                table.keeper.get_or_insert_with(|| {
                    AbortOnDropHandle::new(tokio::spawn(keep(own, Arc::clone(nudge))))
                });
                (holder, number, upstream)
            }
        };
        Ok(Lease { upstream, own: Some((Arc::clone(&self.own), holder, number)) })
    }

    /// Whether calls of `client` are for an instance of its own.
    pub(crate) fn are_apart(&self, client: &Client) -> bool {
        let needs = self.needs(client);
        self.own.lock().seats.is_apart(&client.caller, needs)
    }

    /// What a call of `client` needs. Programs that count as one client must not be asked for each other, so where a
    /// question does not name its call they need to be alone.
    fn needs(&self, client: &Client) -> Needs {
        match &client.caller {
            _ if !client.can_be_asked => Needs::Nothing,
            Caller::Many(_) if self.base.mixes_up_questions() => Needs::Solitude,
            Caller::Many(_) | Caller::One(_) | Caller::Unnamed => Needs::Questions,
        }
    }

    /// Asks all instances for something. A stopped server has no own instances; they are made anew when it
    /// is started and somebody calls.
    pub(crate) fn ask(&self, ask: Ask) {
        let mut table = self.own.lock();
        match ask {
            Ask::Stop => {
                table.seats.stop();
                table.end_all();
            }
            Ask::Start => table.seats.start(),
            Ask::Reconnect | Ask::Reload | Ask::CauseChanged | Ask::Leave { .. } => {
                for instance in table.instances.values() {
                    instance.upstream.ask(ask);
                }
            }
        }
        drop(table);
        self.base.ask(ask);
    }

    /// The config has changed. Own instances that there are to be no more end when they are unused.
    pub(crate) fn revise(&self, settings: Settings, rule: Isolation, most: usize, revision: Revision) {
        let mut table = self.own.lock();
        table.seats.revise(rule, settings.shelf.apart(), most, settings.supervision.idle_timeout);
        for instance in table.instances.values() {
            instance.upstream.revise(for_one_client(&settings), revision);
        }
        table.settings = settings.clone();
        drop(table);
        self.own.nudge.notify_one();
        self.base.revise(settings, revision);
    }

    /// The roots of a client have changed: the instance is told that serves it. Where that is everybody's, what it asks
    /// because of it is for nobody in particular.
    pub(crate) fn roots_changed(&self, client: &ClientKey) {
        let holder = Holder::only(client.clone());
        let own = self.own.lock().instances.get(&holder).map(|instance| Arc::clone(&instance.upstream));
        own.as_ref().unwrap_or(&self.base).roots_changed();
    }

    /// The client is gone, and so is its instance.
    pub(crate) fn leave(&self, client: &ClientKey) {
        let mut table = self.own.lock();
        for holder in table.seats.leave(client) {
            table.end(&holder);
        }
    }

    /// The pinned tools of the server, with what changed about those that did.
    pub(crate) fn pins(&self) -> Vec<PinnedTool> {
        self.base.screen_again();
        let _ = self.base.instructions();
        self.own.all().iter().for_each(|own| own.screen_again());
        self.base.pins.list(&self.changes())
    }

    pub(crate) fn pin_counts(&self) -> PinCounts {
        PinCounts { pinned: self.base.pins.count(), changed: self.changes().len() }
    }

    /// What changed about tools: as everybody's instance says it, or else the first of the others that says
    /// something else than what was approved.
    fn changes(&self) -> Vec<Quarantined> {
        let mut changes = self.base.pins.changes();
        for own in self.own.all() {
            for change in own.pins.changes() {
                if changes.iter().all(|known| (known.kind, &known.tool) != (change.kind, &change.tool)) {
                    changes.push(change);
                }
            }
        }
        changes
    }

    /// A person approves what a tool says now, or what all tools say, as [`Instances::pins`] has it. Answers with
    /// their names.
    pub(crate) fn approve(&self, tool: Option<&str>) -> Vec<String> {
        let mut approved = self.base.approve(tool, &[]);
        let own = self.own.all();
        for own in &own {
            own.screen_again();
            approved.extend(own.approve(tool, &approved));
        }
        // What was approved of one may be something else than what another says.
        self.base.screen_again();
        own.iter().for_each(|own| own.screen_again());
        approved
    }

    /// The own instances in summary, and what they add to the facts of the base instance.
    pub(crate) fn summary(&self, facts: &mut UpstreamStatus) -> OwnInstances {
        let table = self.own.lock();
        let mut summary = OwnInstances {
            are_apart: table.seats.are_apart(),
            most: table.seats.most(),
            states: Vec::new(),
            cause: None,
        };
        facts.restarts += table.past_restarts;
        for instance in table.instances.values() {
            let status = instance.upstream.with(|machine, now| machine.status(now));
            facts.in_flight += status.in_flight;
            facts.waiting += status.waiting;
            facts.restarts += status.restarts;
            match summary.states.iter_mut().find(|(state, _)| *state == status.state) {
                Some((_, count)) => *count += 1,
                None => summary.states.push((status.state, 1)),
            }
            match status.state {
                State::Ready => {}
                // It waits for a person, who looks at the server and not at its instances.
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

    /// The server was removed: callers that still wait are told so.
    pub(crate) fn note_removal(&self) {
        self.base.note_removal();
        self.own.all().iter().for_each(|own| own.note_removal());
    }

    /// Ends everything for good. Returns when nothing of it is left behind.
    pub(crate) async fn end(&self) {
        self.base.go_away();
        let leaving = {
            let mut table = self.own.lock();
            table.seats.stop();
            table.end_all();
            table.keeper = None;
            std::mem::take(&mut table.leaving)
        };
        let base = self.owner.lock().unwrap_or_else(PoisonError::into_inner).take();
        for owner in leaving.into_iter().chain(base) {
            let _ = owner.await;
        }
    }

    /// Ends everything at once, without waiting.
    pub(crate) fn abort(&self) {
        self.base.go_away();
        let mut table = self.own.lock();
        table.seats.stop();
        table.end_all();
        table.keeper = None;
        let base = self.owner.lock().unwrap_or_else(PoisonError::into_inner).take();
        for owner in table.leaving.drain(..).chain(base) {
            owner.abort();
        }
    }

    fn full(&self, most: usize) -> CallError {
        let name = &*self.own.recipe.name;
        let text =
            format!("upstream `{name}` has an instance for each of {most} clients, and none for another");
        CallError::new(Code::Overloaded, name, Fate::NotSent, text)
            .hint(format!("raise `max_instances` of `{name}`, or let its clients share with `isolation`"))
    }
}

impl Own {
    /// The base instance was asked something, and it cannot be known for whom. Answers whether that is news.
    fn separate(&self, apart: Apart) -> bool {
        let mut table = self.lock();
        let news = table.seats.separate(apart);
        if news {
            table.settings.shelf.keep_apart(apart);
        }
        news
    }

    fn make(&self, client: &Client, number: SeatNumber, settings: Settings, wishes: Arc<Wishes>) -> Instance {
        let home = Arc::new(Home::of(client));
        let observer = self.recipe.observer(Some(number.number()));
        let role = Role::Own { home: Arc::clone(&home) };
        let (upstream, owner) = Upstream::start(self.parts(settings, observer, role, wishes));
        Instance { upstream, home, owner }
    }

    fn parts(&self, settings: Settings, observer: Observer, role: Role, wishes: Arc<Wishes>) -> Parts {
        let Recipe { name, clock, cache, ledger, bell, ears, feed: _, tally: _ } = &self.recipe;
        let earshot = Earshot { ears: ears.clone(), server: Arc::clone(name), own: role.client().cloned() };
        Parts {
            earshot: Arc::new(earshot),
            name: Arc::clone(name),
            settings,
            approved: Arc::clone(&self.approved),
            secrets: Arc::clone(&self.secrets),
            clock: *clock,
            observer,
            cache: Arc::clone(cache),
            ledger: Arc::clone(ledger),
            bell: bell.clone(),
            role,
            wishes,
        }
    }

    /// Those that there are.
    fn all(&self) -> Vec<Arc<Upstream>> {
        self.lock().instances.values().map(|instance| Arc::clone(&instance.upstream)).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The settings of an instance that belongs to one client.
fn for_one_client(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    // Somebody wants it now, and it is ended for good when nobody does. What is offered is the business of
    // the base instance.
    settings.supervision.lazy = false;
    settings.supervision.when_down = WhenDown::Keep;
    // Two children for each client is not what was asked for.
    settings.supervision.spare = false;
    settings
}

impl Recipe {
    fn observer(&self, instance: Option<u64>) -> Observer {
        let (name, feed, tally) = (Arc::clone(&self.name), self.feed.clone(), self.tally.clone());
        Observer::new(name, instance, feed, tally, self.clock)
    }
}

impl Table {
    /// What the client follows, if an instance that is gone knew of something.
    fn wishes_of(&mut self, holder: &Holder) -> Arc<Wishes> {
        let known = self.wishes.get(holder).and_then(Weak::upgrade);
        let wishes = known.unwrap_or_default();
        self.wishes.retain(|_, wishes| wishes.strong_count() > 0);
        self.wishes.insert(holder.clone(), Arc::downgrade(&wishes));
        wishes
    }

    fn end(&mut self, holder: &Holder) {
        if let Some(Instance { upstream, owner, .. }) = self.instances.remove(holder) {
            self.past_restarts += upstream.with(|machine, now| machine.status(now)).restarts;
            upstream.go_away();
            self.leaving.retain(|owner| !owner.is_finished());
            self.leaving.push(owner);
        }
    }

    fn end_all(&mut self) {
        let holders: Vec<Holder> = self.instances.keys().cloned().collect();
        for holder in holders {
            self.end(&holder);
        }
    }
}

/// Ends own instances that nobody has used for long. It ends with the last handle to them.
async fn keep(own: Weak<Own>, nudge: Arc<Notify>) {
    loop {
        let sleep = {
            let Some(own) = own.upgrade() else { return };
            let now = own.recipe.clock.mono();
            let mut table = own.lock();
            for holder in table.seats.handle_timeout(now) {
                table.end(&holder);
            }
            table.seats.poll_timeout().map(|at| tokio::time::sleep_until(own.recipe.clock.instant(at)))
        };
        match sleep {
            Some(sleep) => tokio::select! {
                () = sleep => {}
                () = nudge.notified() => {}
            },
            None => nudge.notified().await,
        }
    }
}

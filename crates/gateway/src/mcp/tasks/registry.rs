//! What servers have begun for clients and will speak of again: tasks, and pages that a person was sent to. Whose each
//! of them is, and where.
//!
//! A server chose the id, and clients use it as it is, unless two servers chose the same one for one client: then the
//! later one is `SERVER+ID`. What a client did not begin itself it cannot name. Everything is kept in memory, for as
//! long as the server keeps it and its client is there, and no more of it than is written here.

use super::clock::Clock;
use gripfast::transport::Listener;
use gripfast::wire::envelope::Message;
use gripfast::wire::patch::{MessagePatch, Object};
use gripfast::wire::{RawValue, pages, tasks};
use gripfast::{Client, ClientKey, Overheard, Overhears, Principal};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Everything that was begun for anybody.
pub(crate) struct Begun {
    clock: Clock,
    table: Mutex<Table>,
}

/// What kind of thing was begun. Ids of one kind are nothing to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Work that goes on after the answer.
    Task,
    /// A page that a person was sent to.
    Page,
}

/// Where something is, and what it is called there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) server: String,
    /// The client whose own instance has it; `None` if the instance has it that all share.
    pub(crate) own: Option<ClientKey>,
    pub(crate) id: String,
}

#[derive(Default)]
struct Table {
    /// In the order in which they began.
    things: BTreeMap<u64, Thing>,
    last: u64,
    /// By what clients call them.
    public: HashMap<ClientKey, BTreeMap<(Kind, String), u64>>,
    /// By whom they are for, in the order in which they began.
    principals: HashMap<Principal, BTreeSet<u64>>,
    /// By what servers call them.
    places: HashMap<(Kind, Place), u64>,
}

struct Thing {
    kind: Kind,
    owner: ClientKey,
    principal: Principal,
    public: String,
    place: Place,
    /// When its server has forgotten it, on the monotonic clock.
    ends: Option<Duration>,
    /// Who hears of it outside all calls.
    ear: Option<Arc<dyn Listener>>,
}

impl Begun {
    /// Of one session or pipe, and of all. Beyond it the oldest gives way, of all together the oldest of the principal
    /// that has the most: who begins without end loses its own. Modern clients over HTTP count as one.
    const MOST_OF_ONE: usize = 5000;
    const MOST: usize = 20_000;
    /// A server may be a little behind its own clock.
    const GRACE: Duration = Duration::from_secs(60);

    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, table: Mutex::default() }
    }

    /// Something was begun for `client`, to be remembered for `lifetime` if there is an end to that. Answers with what
    /// the client is to call it; `None` if nobody could ever name it.
    pub(crate) fn begin(
        &self,
        client: &Client,
        kind: Kind,
        place: Place,
        lifetime: Option<Duration>,
    ) -> Option<String> {
        let owner = client.key()?.clone();
        let ends = lifetime
            .map(|lifetime| self.clock.now().mono.saturating_add(lifetime).saturating_add(Self::GRACE));
        let mut table = self.lock();
        // A server that begins to count anew gives an old id to somebody else: it is no longer who had it before.
        table.forget_place(kind, &place);
        table.make_room(&owner);
        let theirs = table.public.entry(owner.clone()).or_default();
        let mut public = place.id.clone();
        while theirs.contains_key(&(kind, public.clone())) {
            public = format!("{}+{public}", place.server);
        }
        table.last += 1;
        let number = table.last;
        table.public.entry(owner.clone()).or_default().insert((kind, public.clone()), number);
        table.places.insert((kind, place.clone()), number);
        let ear = client.ear().cloned();
        let principal = client.principal().clone();
        table.principals.entry(principal.clone()).or_default().insert(number);
        let thing = Thing { kind, owner, principal, public: public.clone(), place, ends, ear };
        table.things.insert(number, thing);
        Some(public)
    }

    /// Where a task of `client` is.
    pub(crate) fn task(&self, client: &Client, public: &str) -> Option<Place> {
        let now = self.clock.now().mono;
        let table = self.lock();
        let number = table.public.get(client.key()?)?.get(&(Kind::Task, public.to_owned()))?;
        let thing = table.things.get(number).filter(|thing| !thing.is_over(now))?;
        Some(thing.place.clone())
    }

    /// The tasks of `client` that began after the one with number `after`, at most so many: number, name and place.
    pub(crate) fn tasks(&self, client: &Client, after: u64, most: usize) -> Vec<(u64, String, Place)> {
        let now = self.clock.now().mono;
        let table = self.lock();
        let theirs = client.key().and_then(|key| table.public.get(key));
        let mut numbers: Vec<u64> = theirs.into_iter().flat_map(BTreeMap::values).copied().collect();
        numbers.sort_unstable();
        let things = numbers.into_iter().filter(|number| *number > after).filter_map(|number| {
            let thing = table.things.get(&number)?;
            let is_one = thing.kind == Kind::Task && !thing.is_over(now);
            is_one.then(|| (number, thing.public.clone(), thing.place.clone()))
        });
        things.take(most).collect()
    }

    /// Forgets what servers have forgotten.
    pub(crate) fn sweep(&self) {
        let now = self.clock.now().mono;
        let mut table = self.lock();
        let over: Vec<u64> =
            table.things.iter().filter(|(_, thing)| thing.is_over(now)).map(|(number, _)| *number).collect();
        for number in over {
            table.forget(number);
        }
    }

    /// Who hears of something that a server names, and what they call it.
    fn owner(&self, kind: Kind, said: &Overheard<'_>, id: &str) -> Option<(Arc<dyn Listener>, String)> {
        let own = match kind {
            Kind::Task => said.own.cloned(),
            // Where it was asked for is not known while it is being asked.
            Kind::Page => None,
        };
        let place = Place { server: said.server.to_owned(), own, id: id.to_owned() };
        let table = self.lock();
        let number = table.places.get(&(kind, place))?;
        let thing = table.things.get(number)?;
        if said.own.is_some_and(|own| *own != thing.owner) {
            return None;
        }
        Some((Arc::clone(thing.ear.as_ref()?), thing.public.clone()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Thing {
    fn is_over(&self, now: Duration) -> bool {
        self.ends.is_some_and(|ends| ends <= now)
    }
}

impl Table {
    fn make_room(&mut self, owner: &ClientKey) {
        let theirs = self.public.get(owner).filter(|theirs| theirs.len() >= Begun::MOST_OF_ONE);
        if let Some(oldest) = theirs.and_then(|theirs| theirs.values().min().copied()) {
            self.forget(oldest);
        }
        if self.things.len() >= Begun::MOST
            && let Some(greediest) = self.principals.values().max_by_key(|theirs| theirs.len())
            && let Some(oldest) = greediest.first().copied()
        {
            self.forget(oldest);
        }
    }

    fn forget_place(&mut self, kind: Kind, place: &Place) {
        if let Some(number) = self.places.get(&(kind, place.clone())).copied() {
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u64) {
        let Some(thing) = self.things.remove(&number) else { return };
        self.places.remove(&(thing.kind, thing.place));
        if let Some(theirs) = self.principals.get_mut(&thing.principal) {
            theirs.remove(&number);
            if theirs.is_empty() {
                self.principals.remove(&thing.principal);
            }
        }
        if let Some(theirs) = self.public.get_mut(&thing.owner) {
            theirs.remove(&(thing.kind, thing.public));
            if theirs.is_empty() {
                self.public.remove(&thing.owner);
            }
        }
    }
}

impl Overhears for Begun {
    /// Nobody can name any more what was begun for it.
    fn client_gone(&self, client: &ClientKey) {
        let mut table = self.lock();
        let theirs = table.public.remove(client).unwrap_or_default();
        for number in theirs.into_values() {
            table.forget(number);
        }
    }

    fn overheard(&self, said: Overheard<'_>) {
        let Ok(Message::Notification(notification)) = Message::parse(said.message) else { return };
        let Some(params) = notification.params else { return };
        match said.method {
            tasks::STATUS => {
                let Some(id) = tasks::named_in(params) else { return };
                let Some((ear, public)) = self.owner(Kind::Task, &said, &id) else { return };
                ear.said(&under(said.message, params, &id, &public));
            }
            pages::COMPLETE => {
                let owner = pages::id_in(params).and_then(|id| self.owner(Kind::Page, &said, &id));
                if let Some((ear, _)) = owner {
                    ear.said(said.message);
                }
            }
            _ => {}
        }
    }
}

/// A message about a task, under the name that its client uses.
pub(super) fn under(message: &[u8], params: &RawValue, own: &str, public: &str) -> Vec<u8> {
    if own == public {
        return message.to_vec();
    }
    let payload =
        Object::parse(params).map(|params| tasks::renamed(&params, own, public)).unwrap_or_default();
    let patch = MessagePatch { payload, ..MessagePatch::default() };
    patch.apply(message).unwrap_or_else(|_| message.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn client(number: u8) -> Client {
        Client::one(ClientKey::new(format!("client-{number}")))
    }

    fn place(server: u8, own: Option<u8>, id: u8) -> Place {
        Place {
            server: format!("s{server}"),
            own: own.map(|own| ClientKey::new(format!("client-{own}"))),
            id: format!("t{id}"),
        }
    }

    #[test]
    fn a_server_that_counts_anew_takes_an_id_from_whoever_had_it() {
        let begun = Begun::new(Clock::new());
        let name = begun.begin(&client(1), Kind::Task, place(1, None, 1), None).unwrap();
        assert_eq!(begun.task(&client(1), &name), Some(place(1, None, 1)));
        begun.begin(&client(2), Kind::Task, place(1, None, 1), None);
        assert_eq!(begun.task(&client(1), &name), None, "it is another's task now");
        assert_eq!(begun.task(&client(2), &name), Some(place(1, None, 1)));
        begun.begin(&client(1), Kind::Page, place(1, None, 1), None);
        assert_eq!(begun.task(&client(2), &name), Some(place(1, None, 1)), "a page is no task");
        assert_eq!(begun.task(&client(1), &name), None);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_oldest_gives_way() {
        let begun = Begun::new(Clock::new());
        let task = |number: usize| Place { server: "s".to_owned(), own: None, id: format!("t{number}") };
        for number in 0..Begun::MOST_OF_ONE + 10 {
            begun.begin(&client(1), Kind::Task, task(number), None);
        }
        assert_eq!(begun.lock().things.len(), Begun::MOST_OF_ONE);
        assert!(begun.task(&client(1), "t9").is_none() && begun.task(&client(1), "t10").is_some());
        for number in 0..Begun::MOST + 10 {
            let many = Client::one(ClientKey::new(format!("c{}", number / 100)));
            begun.begin(&many, Kind::Task, task(100_000 + number), None);
        }
        let table = begun.lock();
        assert_eq!((table.things.len(), table.places.len()), (Begun::MOST, Begun::MOST));
        assert_eq!(table.public.values().map(BTreeMap::len).sum::<usize>(), Begun::MOST);
    }

    #[test]
    fn who_has_the_most_in_all_its_sessions_makes_room_and_nobody_else() {
        let begun = Begun::new(Clock::new());
        let task = |id: String| Place { server: "s".to_owned(), own: None, id };
        let session = |name: &str, number: usize| {
            let key = ClientKey::new(format!("{name}-{number}"));
            Client::one(key).on_behalf_of(Principal::named(name))
        };
        let modest = session("modest", 0);
        begun.begin(&modest, Kind::Task, task("first".to_owned()), None);
        for number in 0..Begun::MOST + 10 {
            begun.begin(&session("greedy", number / 1000), Kind::Task, task(number.to_string()), None);
        }
        assert!(begun.task(&modest, "first").is_some(), "it is the oldest, and not of whoever has the most");
        assert!(begun.task(&session("greedy", 0), "10").is_none());
        begun.client_gone(modest.key().unwrap());
        assert!(!begun.lock().principals.contains_key(modest.principal()));
    }

    #[test]
    fn the_list_goes_on_where_it_ended() {
        let begun = Begun::new(Clock::new());
        for id in 1..=5 {
            begun.begin(&client(id % 2), Kind::Task, place(1, None, id), None);
        }
        let first = begun.tasks(&client(1), 0, 2);
        let names =
            |tasks: &[(u64, String, Place)]| tasks.iter().map(|task| task.1.clone()).collect::<Vec<_>>();
        assert_eq!(names(&first), ["t1", "t3"]);
        assert_eq!(names(&begun.tasks(&client(1), first[1].0, 2)), ["t5"]);
    }

    #[derive(Debug, Clone)]
    enum Event {
        Begins { client: u8, server: u8, is_own: bool, id: u8, lifetime: Option<u8> },
        Leaves(u8),
        Passes(u8),
        Sweep,
    }

    fn event() -> impl Strategy<Value = Event> {
        let minutes = || 0..8_u8;
        prop_oneof![
            6 => (0..3_u8, 0..2_u8, any::<bool>(), 0..3_u8, prop::option::of(minutes())).prop_map(
                |(client, server, is_own, id, lifetime)| Event::Begins { client, server, is_own, id, lifetime }
            ),
            1 => (0..3_u8).prop_map(Event::Leaves),
            2 => minutes().prop_map(Event::Passes),
            1 => Just(Event::Sweep),
        ]
    }

    /// What should be so, in as few words as possible.
    struct Model {
        known: Vec<(u8, String, Place, Option<Duration>)>,
        now: Duration,
    }

    const MINUTE: Duration = Duration::from_secs(60);

    proptest! {
        #[test]
        fn a_task_is_found_by_the_client_that_began_it_and_by_no_other(events in prop::collection::vec(event(), 1..60)) {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let begun = Begun::new(Clock::new());
                let mut model = Model { known: Vec::new(), now: Duration::ZERO };
                for event in events {
                    match event {
                        Event::Begins { client: who, server, is_own, id, lifetime } => {
                            let place = place(server, is_own.then_some(who), id);
                            let lifetime = lifetime.map(|minutes| MINUTE * u32::from(minutes));
                            model.known.retain(|(_, _, known, _)| *known != place);
                            let name = begun.begin(&client(who), Kind::Task, place.clone(), lifetime).unwrap();
                            let taken = model.known.iter().any(|(owner, known, ..)| *owner == who && *known == name);
                            prop_assert!(!taken, "{name} means two things to one client");
                            let ends = lifetime.map(|lifetime| model.now + lifetime + Begun::GRACE);
                            model.known.push((who, name, place, ends));
                        }
                        Event::Leaves(who) => {
                            begun.client_gone(&ClientKey::new(format!("client-{who}")));
                            model.known.retain(|(owner, ..)| *owner != who);
                        }
                        Event::Passes(minutes) => {
                            let time = MINUTE * u32::from(minutes);
                            tokio::time::advance(time).await;
                            model.now += time;
                        }
                        Event::Sweep => {
                            begun.sweep();
                            model.known.retain(|(.., ends)| ends.is_none_or(|ends| ends > model.now));
                            prop_assert_eq!(begun.lock().things.len(), model.known.len());
                        }
                    }
                    for (owner, name, place, ends) in &model.known {
                        let there = ends.is_none_or(|ends| ends > model.now);
                        for who in 0..3 {
                            let theirs = model.known.iter().find(|(other, known, ..)| *other == who && known == name);
                            let found = begun.task(&client(who), name);
                            if who == *owner {
                                prop_assert_eq!(&found, &there.then(|| place.clone()));
                            } else if theirs.is_none() {
                                prop_assert_eq!(&found, &None);
                            }
                        }
                    }
                    let table = begun.lock();
                    let named: usize = table.public.values().map(BTreeMap::len).sum();
                    prop_assert_eq!((table.things.len(), table.places.len()), (named, named));
                    prop_assert_eq!(table.principals.values().map(BTreeSet::len).sum::<usize>(), named);
                }
                Ok(())
            })?;
        }
    }
}

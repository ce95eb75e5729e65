//! Registry of tasks and URL elicitations that servers have started for clients: owner, server, instance and id of
//! each.
//!
//! Clients use the id that the server chose, unless two servers chose the same id for one client: the later one then
//! becomes `SERVER+ID`. A client can only name entries that it started itself. Entries are kept in memory, bounded,
//! until the server's retention ends or the client is gone.

use gripfast::sync::Mutex;
use gripfast::transport::Listener;
use gripfast::wire::envelope::Message;
use gripfast::wire::patch::{MessagePatch, Object};
use gripfast::wire::{Json, tasks, url_elicitation};
use gripfast::{Client, ClientKey, NotificationSink, Principal, ServerNotification};
use gripfast::{Clock, Mono};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Registry of all tasks and URL elicitations.
pub(crate) struct TaskRegistry {
    clock: Clock,
    table: Mutex<Table>,
}

/// Kind of an entry. Each kind has its own id space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum EntryKind {
    /// Work that continues after the answer.
    Task,
    /// URL that a person was sent to.
    Url,
}

/// Server and instance of an entry, and its id there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TaskLocation {
    pub(crate) server: String,
    /// Client whose dedicated instance has it; `None` for the shared instance.
    pub(crate) dedicated_to: Option<ClientKey>,
    pub(crate) id: String,
}

#[derive(Default)]
struct Table {
    /// In the order in which they started.
    entries: BTreeMap<u64, RegistryEntry>,
    last: u64,
    /// By client and client id.
    public: HashMap<ClientKey, BTreeMap<(EntryKind, String), u64>>,
    /// By principal, in the order in which they started.
    principals: HashMap<Principal, BTreeSet<u64>>,
    /// By server and server id.
    by_location: HashMap<(EntryKind, TaskLocation), u64>,
}

struct RegistryEntry {
    kind: EntryKind,
    owner: ClientKey,
    principal: Principal,
    public: String,
    location: TaskLocation,
    /// End of the server's retention, on the monotonic clock.
    expires: Option<Mono>,
    /// Listener of the client outside its calls.
    listener: Option<Arc<dyn Listener>>,
}

impl TaskRegistry {
    /// Maximum number of entries of one session or pipe, and in total. Above it the oldest entry is removed: of the
    /// same client, or of the principal with the most entries. Modern clients over HTTP count as one client per
    /// principal.
    const MAX_PER_CLIENT: usize = 5000;
    const MAX: usize = 20_000;
    /// Added to the retention, because a server may expire its tasks a little late.
    const GRACE: Duration = Duration::from_secs(60);

    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, table: Mutex::default() }
    }

    /// Adds an entry for `client`, to be kept for `lifetime` if that is bounded. Returns the id for the client; `None`
    /// for a client without a key, which could never name it.
    pub(crate) fn insert(
        &self,
        client: &Client,
        kind: EntryKind,
        location: TaskLocation,
        lifetime: Option<Duration>,
    ) -> Option<String> {
        let id = location.id.clone();
        self.insert_as(id, client, kind, location, lifetime)
    }

    /// [`TaskRegistry::insert`] with an id for the client that is not the server's.
    pub(crate) fn insert_as(
        &self,
        mut public: String,
        client: &Client,
        kind: EntryKind,
        location: TaskLocation,
        lifetime: Option<Duration>,
    ) -> Option<String> {
        let owner = client.key()?.clone();
        let expires = lifetime.map(|lifetime| self.clock.mono() + lifetime + Self::GRACE);
        let mut table = self.table.lock();
        // A restarted server may reuse an id; the earlier entry is then invalid.
        table.remove_location(kind, &location);
        table.make_room(&owner);
        let theirs = table.public.entry(owner.clone()).or_default();
        while theirs.contains_key(&(kind, public.clone())) {
            public = format!("{}+{public}", location.server);
        }
        table.last += 1;
        let number = table.last;
        table.public.entry(owner.clone()).or_default().insert((kind, public.clone()), number);
        table.by_location.insert((kind, location.clone()), number);
        let listener = client.listener().cloned();
        let principal = client.principal().clone();
        table.principals.entry(principal.clone()).or_default().insert(number);
        let entry =
            RegistryEntry { kind, owner, principal, public: public.clone(), location, expires, listener };
        table.entries.insert(number, entry);
        Some(public)
    }

    /// Location of a task of `client`.
    pub(crate) fn task(&self, client: &Client, public: &str) -> Option<TaskLocation> {
        let now = self.clock.mono();
        let table = self.table.lock();
        let number = table.public.get(client.key()?)?.get(&(EntryKind::Task, public.to_owned()))?;
        let entry = table.entries.get(number).filter(|entry| !entry.is_expired(now))?;
        Some(entry.location.clone())
    }

    /// Tasks of `client` after the number `after`, at most `most`: number, client id and location.
    pub(crate) fn tasks(&self, client: &Client, after: u64, most: usize) -> Vec<(u64, String, TaskLocation)> {
        let now = self.clock.mono();
        let table = self.table.lock();
        let theirs = client.key().and_then(|key| table.public.get(key));
        let mut numbers: Vec<u64> = theirs.into_iter().flat_map(BTreeMap::values).copied().collect();
        numbers.sort_unstable();
        let entries = numbers.into_iter().filter(|number| *number > after).filter_map(|number| {
            let entry = table.entries.get(&number)?;
            let is_one = entry.kind == EntryKind::Task && !entry.is_expired(now);
            is_one.then(|| (number, entry.public.clone(), entry.location.clone()))
        });
        entries.take(most).collect()
    }

    /// Removes expired entries.
    pub(crate) fn sweep(&self) {
        let now = self.clock.mono();
        let mut table = self.table.lock();
        let expired: Vec<u64> = table
            .entries
            .iter()
            .filter(|(_, entry)| entry.is_expired(now))
            .map(|(number, _)| *number)
            .collect();
        for number in expired {
            table.remove(number);
        }
    }

    /// Listener and client id for an entry that a server names.
    fn owner(
        &self,
        kind: EntryKind,
        server_notification: &ServerNotification<'_>,
        id: &str,
    ) -> Option<(Arc<dyn Listener>, String)> {
        let own = match kind {
            EntryKind::Task => server_notification.dedicated_to.cloned(),
            // URL elicitations are recorded without their instance, which is not known during the call.
            EntryKind::Url => None,
        };
        let location = TaskLocation {
            server: server_notification.server.to_owned(),
            dedicated_to: own,
            id: id.to_owned(),
        };
        let table = self.table.lock();
        let number = table.by_location.get(&(kind, location))?;
        let entry = table.entries.get(number)?;
        if server_notification.dedicated_to.is_some_and(|own| *own != entry.owner) {
            return None;
        }
        Some((Arc::clone(entry.listener.as_ref()?), entry.public.clone()))
    }
}

impl RegistryEntry {
    fn is_expired(&self, now: Mono) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl Table {
    fn make_room(&mut self, owner: &ClientKey) {
        let theirs = self.public.get(owner).filter(|theirs| theirs.len() >= TaskRegistry::MAX_PER_CLIENT);
        if let Some(oldest) = theirs.and_then(|theirs| theirs.values().min().copied()) {
            self.remove(oldest);
        }
        if self.entries.len() >= TaskRegistry::MAX
            && let Some(greediest) = self.principals.values().max_by_key(|theirs| theirs.len())
            && let Some(oldest) = greediest.first().copied()
        {
            self.remove(oldest);
        }
    }

    fn remove_location(&mut self, kind: EntryKind, location: &TaskLocation) {
        if let Some(number) = self.by_location.get(&(kind, location.clone())).copied() {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(entry) = self.entries.remove(&number) else { return };
        self.by_location.remove(&(entry.kind, entry.location));
        if let Some(theirs) = self.principals.get_mut(&entry.principal) {
            theirs.remove(&number);
            if theirs.is_empty() {
                self.principals.remove(&entry.principal);
            }
        }
        if let Some(theirs) = self.public.get_mut(&entry.owner) {
            theirs.remove(&(entry.kind, entry.public));
            if theirs.is_empty() {
                self.public.remove(&entry.owner);
            }
        }
    }
}

impl NotificationSink for TaskRegistry {
    /// Removes the entries of a client that is gone.
    fn remove_client(&self, client: &ClientKey) {
        let mut table = self.table.lock();
        let theirs = table.public.remove(client).unwrap_or_default();
        for number in theirs.into_values() {
            table.remove(number);
        }
    }

    fn notify(&self, server_notification: ServerNotification<'_>) {
        let Ok(Message::Notification(notification)) = Message::parse(server_notification.message) else {
            return;
        };
        let Some(params) = notification.params else { return };
        match server_notification.method {
            tasks::STATUS => {
                let Some(id) = tasks::task_id(params) else { return };
                let Some((listener, public)) = self.owner(EntryKind::Task, &server_notification, &id) else {
                    return;
                };
                listener.on_message(&with_public_id(server_notification.message, params, &id, &public));
            }
            url_elicitation::COMPLETE => {
                let owner = url_elicitation::elicitation_id(params)
                    .and_then(|id| self.owner(EntryKind::Url, &server_notification, &id));
                if let Some((listener, _)) = owner {
                    listener.on_message(server_notification.message);
                }
            }
            _ => {}
        }
    }
}

/// Message about a task, with the id that its client uses.
pub(crate) fn with_public_id(message: &[u8], params: &Json, own: &str, public: &str) -> Vec<u8> {
    if own == public {
        return message.to_vec();
    }
    let payload =
        Object::parse(params).map(|params| tasks::rename_task(&params, own, public)).unwrap_or_default();
    let patch = MessagePatch { payload, ..MessagePatch::default() };
    patch.apply(message).unwrap_or_else(|_| message.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn client(number: u8) -> Client {
        Client::with_key(ClientKey::new(format!("client-{number}")))
    }

    fn location(server: u8, own: Option<u8>, id: u8) -> TaskLocation {
        TaskLocation {
            server: format!("s{server}"),
            dedicated_to: own.map(|own| ClientKey::new(format!("client-{own}"))),
            id: format!("t{id}"),
        }
    }

    #[test]
    fn an_id_reused_by_a_server_invalidates_the_earlier_task() {
        let registry = TaskRegistry::new(Clock::new());
        let name = registry.insert(&client(1), EntryKind::Task, location(1, None, 1), None).unwrap();
        assert_eq!(registry.task(&client(1), &name), Some(location(1, None, 1)));
        registry.insert(&client(2), EntryKind::Task, location(1, None, 1), None);
        assert_eq!(registry.task(&client(1), &name), None, "the id belongs to another client now");
        assert_eq!(registry.task(&client(2), &name), Some(location(1, None, 1)));
        registry.insert(&client(1), EntryKind::Url, location(1, None, 1), None);
        assert_eq!(registry.task(&client(2), &name), Some(location(1, None, 1)), "a URL is not a task");
        assert_eq!(registry.task(&client(1), &name), None);
    }

    #[test]
    fn the_registry_is_bounded_and_evicts_the_oldest_entry() {
        let registry = TaskRegistry::new(Clock::new());
        let task = |number: usize| TaskLocation {
            server: "s".to_owned(),
            dedicated_to: None,
            id: format!("t{number}"),
        };
        for number in 0..TaskRegistry::MAX_PER_CLIENT + 10 {
            registry.insert(&client(1), EntryKind::Task, task(number), None);
        }
        assert_eq!(registry.table.lock().entries.len(), TaskRegistry::MAX_PER_CLIENT);
        assert!(registry.task(&client(1), "t9").is_none() && registry.task(&client(1), "t10").is_some());
        for number in 0..TaskRegistry::MAX + 10 {
            let many = Client::with_key(ClientKey::new(format!("c{}", number / 100)));
            registry.insert(&many, EntryKind::Task, task(100_000 + number), None);
        }
        let table = registry.table.lock();
        assert_eq!((table.entries.len(), table.by_location.len()), (TaskRegistry::MAX, TaskRegistry::MAX));
        assert_eq!(table.public.values().map(BTreeMap::len).sum::<usize>(), TaskRegistry::MAX);
    }

    #[test]
    fn the_principal_with_the_most_entries_loses_its_oldest() {
        let registry = TaskRegistry::new(Clock::new());
        let task = |id: String| TaskLocation { server: "s".to_owned(), dedicated_to: None, id };
        let session = |name: &str, number: usize| {
            let key = ClientKey::new(format!("{name}-{number}"));
            Client::with_key(key).with_principal(Principal::new(name))
        };
        let modest = session("modest", 0);
        registry.insert(&modest, EntryKind::Task, task("first".to_owned()), None);
        for number in 0..TaskRegistry::MAX + 10 {
            registry.insert(
                &session("greedy", number / 1000),
                EntryKind::Task,
                task(number.to_string()),
                None,
            );
        }
        assert!(
            registry.task(&modest, "first").is_some(),
            "it is the oldest, but not of the principal with the most"
        );
        assert!(registry.task(&session("greedy", 0), "10").is_none());
        registry.remove_client(modest.key().unwrap());
        assert!(!registry.table.lock().principals.contains_key(modest.principal()));
    }

    #[test]
    fn the_task_list_continues_after_its_cursor() {
        let registry = TaskRegistry::new(Clock::new());
        for id in 1..=5 {
            registry.insert(&client(id % 2), EntryKind::Task, location(1, None, id), None);
        }
        let first = registry.tasks(&client(1), 0, 2);
        let names = |tasks: &[(u64, String, TaskLocation)]| {
            tasks.iter().map(|task| task.1.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&first), ["t1", "t3"]);
        assert_eq!(names(&registry.tasks(&client(1), first[1].0, 2)), ["t5"]);
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

    /// Reference model of the registry.
    struct Model {
        known: Vec<(u8, String, TaskLocation, Option<Duration>)>,
        now: Duration,
    }

    const MINUTE: Duration = Duration::from_secs(60);

    proptest! {
        #[test]
        fn a_task_is_found_by_the_client_that_started_it_and_no_other(events in prop::collection::vec(event(), 1..60)) {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let registry = TaskRegistry::new(Clock::new());
                let mut model = Model { known: Vec::new(), now: Duration::ZERO };
                for event in events {
                    match event {
                        Event::Begins { client: who, server, is_own, id, lifetime } => {
                            let location = location(server, is_own.then_some(who), id);
                            let lifetime = lifetime.map(|minutes| MINUTE * u32::from(minutes));
                            model.known.retain(|(_, _, known, _)| *known != location);
                            let name = registry.insert(&client(who), EntryKind::Task, location.clone(), lifetime).unwrap();
                            let taken = model.known.iter().any(|(owner, known, ..)| *owner == who && *known == name);
                            prop_assert!(!taken, "{name} means two things to one client");
                            let expires = lifetime.map(|lifetime| model.now + lifetime + TaskRegistry::GRACE);
                            model.known.push((who, name, location, expires));
                        }
                        Event::Leaves(who) => {
                            registry.remove_client(&ClientKey::new(format!("client-{who}")));
                            model.known.retain(|(owner, ..)| *owner != who);
                        }
                        Event::Passes(minutes) => {
                            let time = MINUTE * u32::from(minutes);
                            tokio::time::advance(time).await;
                            model.now += time;
                        }
                        Event::Sweep => {
                            registry.sweep();
                            model.known.retain(|(.., expires)| expires.is_none_or(|expires| expires > model.now));
                            prop_assert_eq!(registry.table.lock().entries.len(), model.known.len());
                        }
                    }
                    for (owner, name, location, expires) in &model.known {
                        let there = expires.is_none_or(|expires| expires > model.now);
                        for who in 0..3 {
                            let theirs = model.known.iter().find(|(other, known, ..)| *other == who && known == name);
                            let found = registry.task(&client(who), name);
                            if who == *owner {
                                prop_assert_eq!(&found, &there.then(|| location.clone()));
                            } else if theirs.is_none() {
                                prop_assert_eq!(&found, &None);
                            }
                        }
                    }
                    let table = registry.table.lock();
                    let named: usize = table.public.values().map(BTreeMap::len).sum();
                    prop_assert_eq!((table.entries.len(), table.by_location.len()), (named, named));
                    prop_assert_eq!(table.principals.values().map(BTreeSet::len).sum::<usize>(), named);
                }
                Ok(())
            })?;
        }
    }
}

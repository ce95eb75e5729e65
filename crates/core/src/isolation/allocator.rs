//! Allocation of instances: decides which client is served by the shared instance and which by a dedicated one, and
//! when an unused dedicated instance ends.

use super::{Caller, Isolation};
use crate::ids::ClientKey;
use crate::time::Mono;
use std::collections::BTreeMap;
use std::time::Duration;

/// The dedicated instances of one server, by owner.
#[derive(Debug)]
pub struct InstanceAllocator {
    rule: Isolation,
    /// The clients that get dedicated instances under [`Isolation::Auto`], as learned so far.
    dedicated_for: DedicatedFor,
    /// An operator stopped the server: no instance is made until it is started.
    stopped: bool,
    max_instances: usize,
    idle_timeout: Duration,
    next: u64,
    instances: BTreeMap<InstanceOwner, DedicatedInstance>,
}

/// Clients that get dedicated instances under [`Isolation::Auto`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum DedicatedFor {
    /// None: every request of the server could be attributed to a client so far.
    #[default]
    None,
    /// Clients that can answer server requests: the server sent one that several clients of one principal could be
    /// meant by.
    Interactive,
    /// All: the server sent a message that several principals could be meant by.
    All,
}

/// The owner of a dedicated instance. Programs that share a client key may have several, one for each call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceOwner {
    client: ClientKey,
    nth: usize,
}

impl InstanceOwner {
    /// A client with one instance.
    pub fn single(client: ClientKey) -> Self {
        Self { client, nth: 0 }
    }
}

/// Needs of a call towards its instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallNeeds {
    /// None: the client cannot answer server requests.
    Nothing,
    /// The client answers requests of the server.
    ServerRequests,
    /// The same, and no other call of the client may run on the instance, because a request could belong to either.
    Exclusive,
}

#[derive(Debug)]
struct DedicatedInstance {
    number: InstanceNumber,
    calls: u32,
    /// The time at which the last call ended; used while there is no call.
    unused_since: Mono,
}

/// Distinguishes a dedicated instance from earlier ones of the same owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceNumber(u64);

impl InstanceNumber {
    /// The number, for logs and status.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// The instance that a call is assigned to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assignment {
    /// The shared instance.
    Shared,
    /// The client's dedicated instance, which exists.
    Dedicated(InstanceOwner, InstanceNumber),
    /// The client's dedicated instance, which has to be made.
    NewDedicated(InstanceOwner, InstanceNumber),
    /// None: `max_instances` is reached.
    Full {
        /// The time until an instance will have been unused for long enough, if nothing else happens.
        retry_after: Option<Duration>,
    },
}

impl InstanceAllocator {
    /// An allocator with this rule. `dedicated_for` is the state that was learned before. Dedicated instances end after
    /// `idle_timeout` without use.
    pub fn new(
        rule: Isolation,
        dedicated_for: DedicatedFor,
        max_instances: usize,
        idle_timeout: Duration,
    ) -> Self {
        Self {
            rule,
            dedicated_for,
            stopped: false,
            max_instances,
            idle_timeout,
            next: 1,
            instances: BTreeMap::new(),
        }
    }

    /// Applies a changed config. Clients that lose their right to a dedicated instance use the shared one from their
    /// next call on.
    pub fn reconfigure(
        &mut self,
        rule: Isolation,
        dedicated_for: DedicatedFor,
        max_instances: usize,
        idle_timeout: Duration,
    ) {
        (self.rule, self.dedicated_for, self.max_instances, self.idle_timeout) =
            (rule, dedicated_for, max_instances, idle_timeout);
    }

    /// Assigns a call of `caller` to an instance. A call on a dedicated instance is released with [`Self::release`].
    /// `is_quiet` returns whether the server of an instance works on nothing, such as a call that was cancelled.
    pub fn assign(
        &mut self,
        now: Mono,
        caller: &Caller,
        needs: CallNeeds,
        is_quiet: impl Fn(&InstanceOwner) -> bool,
    ) -> Assignment {
        let Some(client) = self.dedicated_key(caller, needs) else { return Assignment::Shared };
        let owner = match (needs, self.rule) {
            (CallNeeds::Exclusive, Isolation::Auto) => self.exclusive_owner(client, is_quiet),
            // With one instance per client, its state is shared by all calls of the client.
            (CallNeeds::Nothing | CallNeeds::ServerRequests | CallNeeds::Exclusive, _) => {
                InstanceOwner::single(client.clone())
            }
        };
        if let Some(instance) = self.instances.get_mut(&owner) {
            instance.calls += 1;
            return Assignment::Dedicated(owner, instance.number);
        }
        if self.instances.len() >= self.max_instances {
            return match self.rule {
                // The config does not require separation, so a call is not refused for its lack.
                Isolation::Auto | Isolation::Shared => Assignment::Shared,
                Isolation::PerClient => {
                    Assignment::Full { retry_after: self.poll_timeout().map(|at| at - now) }
                }
            };
        }
        let number = InstanceNumber(self.next);
        self.next += 1;
        self.instances.insert(owner.clone(), DedicatedInstance { number, calls: 1, unused_since: now });
        Assignment::NewDedicated(owner, number)
    }

    /// Returns whether a call of `caller` is for a dedicated instance, if there is room.
    pub fn is_dedicated(&self, caller: &Caller, needs: CallNeeds) -> bool {
        self.dedicated_key(caller, needs).is_some()
    }

    fn dedicated_key<'c>(&self, caller: &'c Caller, needs: CallNeeds) -> Option<&'c ClientKey> {
        caller.key().filter(|_| self.wants_dedicated(needs))
    }

    /// The first instance of `client` without calls, existing or not.
    fn exclusive_owner(
        &self,
        client: &ClientKey,
        is_quiet: impl Fn(&InstanceOwner) -> bool,
    ) -> InstanceOwner {
        let is_free = |owner: &InstanceOwner| match self.instances.get(owner) {
            Some(instance) => instance.calls == 0 && is_quiet(owner),
            None => true,
        };
        let mut owners = (0..=self.instances.len()).map(|nth| InstanceOwner { client: client.clone(), nth });
        owners.find(is_free).expect("there are more places than instances")
    }

    /// Records that a call on this dedicated instance ended. A late report about an earlier instance is ignored.
    pub fn release(&mut self, now: Mono, owner: &InstanceOwner, number: InstanceNumber) {
        if let Some(instance) = self.instances.get_mut(owner).filter(|instance| instance.number == number) {
            instance.calls = instance.calls.saturating_sub(1);
            instance.unused_since = now;
        }
    }

    /// Records that a server request could not be attributed. Returns whether more clients get dedicated instances from
    /// now on.
    pub fn dedicate_for(&mut self, dedicated_for: DedicatedFor) -> bool {
        let changed = self.rule == Isolation::Auto && dedicated_for > self.dedicated_for;
        if changed {
            self.dedicated_for = dedicated_for;
        }
        changed
    }

    /// Removes a client that is gone. Returns its instances, which have to be ended.
    pub fn remove_client(&mut self, client: &ClientKey) -> Vec<InstanceOwner> {
        let theirs: Vec<InstanceOwner> =
            self.instances.keys().filter(|owner| owner.client == *client).cloned().collect();
        for owner in &theirs {
            self.instances.remove(owner);
        }
        theirs
    }

    /// An operator stops the server: all dedicated instances have to be ended, and none is made until [`Self::start`].
    pub fn stop(&mut self) {
        self.stopped = true;
        self.instances.clear();
    }

    /// The counterpart of [`Self::stop`].
    pub fn start(&mut self) {
        self.stopped = false;
    }

    /// Removes and returns the dedicated instances that were unused for long enough. They have to be ended.
    pub fn handle_timeout(&mut self, now: Mono) -> Vec<InstanceOwner> {
        let due: Vec<InstanceOwner> = self
            .instances
            .iter()
            .filter(|(_, instance)| self.expires_at(instance).is_some_and(|at| at <= now))
            .map(|(owner, _)| owner.clone())
            .collect();
        for owner in &due {
            self.instances.remove(owner);
        }
        due
    }

    /// The time for the next [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.instances.values().filter_map(|instance| self.expires_at(instance)).min()
    }

    /// Maximum number of dedicated instances.
    pub fn max_instances(&self) -> usize {
        self.max_instances
    }

    /// Returns whether clients get dedicated instances at present.
    pub fn dedicates_instances(&self) -> bool {
        match self.rule {
            Isolation::Shared => false,
            Isolation::PerClient => true,
            Isolation::Auto => self.dedicated_for != DedicatedFor::None,
        }
    }

    fn wants_dedicated(&self, needs: CallNeeds) -> bool {
        let gains = match self.rule {
            Isolation::Shared => false,
            Isolation::PerClient => true,
            Isolation::Auto => match self.dedicated_for {
                DedicatedFor::None => false,
                // For a client that cannot answer requests it would change nothing.
                DedicatedFor::Interactive => needs != CallNeeds::Nothing,
                DedicatedFor::All => true,
            },
        };
        gains && !self.stopped
    }

    fn expires_at(&self, instance: &DedicatedInstance) -> Option<Mono> {
        (instance.calls == 0).then(|| instance.unused_since + self.idle_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(600);

    fn at(seconds: u64) -> Mono {
        Mono::from_origin(Duration::from_secs(seconds))
    }

    fn key(name: &str) -> ClientKey {
        ClientKey::new(name)
    }

    fn client(name: &str) -> Caller {
        Caller::Single(key(name))
    }

    fn only(name: &str) -> InstanceOwner {
        InstanceOwner::single(key(name))
    }

    fn take(allocator: &mut InstanceAllocator, now: Mono, caller: &Caller, can_be_asked: bool) -> Assignment {
        let needs = if can_be_asked { CallNeeds::ServerRequests } else { CallNeeds::Nothing };
        allocator.assign(now, caller, needs, |_| true)
    }

    fn allocator(rule: Isolation, max_instances: usize) -> InstanceAllocator {
        InstanceAllocator::new(rule, DedicatedFor::None, max_instances, IDLE)
    }

    fn is_new(assignment: Assignment) -> InstanceNumber {
        match assignment {
            Assignment::NewDedicated(_, number) => number,
            other @ (Assignment::Shared | Assignment::Dedicated(..) | Assignment::Full { .. }) => {
                panic!("{other:?}")
            }
        }
    }

    #[test]
    fn shared_isolation_never_dedicates_instances() {
        let mut allocator = allocator(Isolation::Shared, 9);
        assert!(!allocator.dedicate_for(DedicatedFor::Interactive) && !allocator.dedicates_instances());
        assert_eq!(take(&mut allocator, at(0), &client("a"), true), Assignment::Shared);
    }

    #[test]
    fn each_client_gets_one_dedicated_instance_and_anonymous_ones_share() {
        let mut allocator = allocator(Isolation::PerClient, 9);
        let (a, b) = (
            is_new(take(&mut allocator, at(0), &client("a"), false)),
            is_new(take(&mut allocator, at(0), &client("b"), false)),
        );
        assert_ne!(a, b);
        assert!(
            allocator.is_dedicated(&client("c"), CallNeeds::Nothing)
                && !allocator.is_dedicated(&Caller::Anonymous, CallNeeds::ServerRequests)
        );
        assert_eq!(take(&mut allocator, at(1), &client("a"), false), Assignment::Dedicated(only("a"), a));
        assert_eq!(
            take(&mut allocator, at(1), &Caller::Shared(key("b")), false),
            Assignment::Dedicated(only("b"), b)
        );
        assert_eq!(take(&mut allocator, at(1), &Caller::Anonymous, true), Assignment::Shared);
    }

    #[test]
    fn auto_isolation_is_shared_until_an_unattributable_request() {
        let mut allocator = allocator(Isolation::Auto, 9);
        assert_eq!(take(&mut allocator, at(0), &client("a"), true), Assignment::Shared);
        assert!(allocator.dedicate_for(DedicatedFor::Interactive), "told once");
        assert!(!allocator.dedicate_for(DedicatedFor::Interactive), "and not again");
        is_new(take(&mut allocator, at(1), &client("a"), true));
        assert_eq!(
            take(&mut allocator, at(1), &client("b"), false),
            Assignment::Shared,
            "it cannot be asked anything"
        );
        let mut later = InstanceAllocator::new(Isolation::Auto, DedicatedFor::Interactive, 9, IDLE);
        is_new(take(&mut later, at(0), &client("a"), true));
    }

    #[test]
    fn a_dedicated_instance_ends_when_unused_and_never_during_a_call() {
        let mut allocator = allocator(Isolation::PerClient, 9);
        let number = is_new(take(&mut allocator, at(0), &client("a"), true));
        take(&mut allocator, at(1), &client("a"), true);
        allocator.release(at(2), &only("a"), number);
        assert_eq!(allocator.poll_timeout(), None, "one call is under way");
        allocator.release(at(10), &only("a"), number);
        assert_eq!(allocator.poll_timeout(), Some(at(610)));
        assert_eq!(allocator.handle_timeout(at(609)), []);
        assert_eq!(allocator.handle_timeout(at(610)), [only("a")]);
        assert_ne!(is_new(take(&mut allocator, at(611), &client("a"), true)), number);
    }

    #[test]
    fn at_max_instances_per_client_refuses_and_auto_shares() {
        let mut strict = allocator(Isolation::PerClient, 1);
        let number = is_new(take(&mut strict, at(0), &client("a"), true));
        assert_eq!(take(&mut strict, at(1), &client("b"), true), Assignment::Full { retry_after: None });
        strict.release(at(2), &only("a"), number);
        let wait = Duration::from_secs(599);
        assert_eq!(
            take(&mut strict, at(3), &client("b"), true),
            Assignment::Full { retry_after: Some(wait) }
        );
        let mut lenient = InstanceAllocator::new(Isolation::Auto, DedicatedFor::Interactive, 1, IDLE);
        is_new(take(&mut lenient, at(0), &client("a"), true));
        assert_eq!(take(&mut lenient, at(1), &client("b"), true), Assignment::Shared);
    }

    #[test]
    fn a_removed_client_makes_room_and_its_late_calls_change_nothing() {
        let mut allocator = allocator(Isolation::PerClient, 1);
        let first = is_new(take(&mut allocator, at(0), &client("a"), true));
        assert_eq!(allocator.remove_client(&key("a")), [only("a")]);
        assert_eq!(allocator.remove_client(&key("a")), []);
        let second = is_new(take(&mut allocator, at(1), &client("a"), true));
        allocator.release(at(2), &only("a"), first);
        assert_eq!(allocator.poll_timeout(), None, "the second is in use");
        allocator.release(at(3), &only("a"), second);
        assert_eq!(allocator.poll_timeout(), Some(at(603)));
    }

    #[test]
    fn a_changed_rule_applies_from_the_next_call_on() {
        let mut allocator = allocator(Isolation::PerClient, 9);
        let number = is_new(take(&mut allocator, at(0), &client("a"), true));
        allocator.reconfigure(Isolation::Shared, DedicatedFor::None, 9, Duration::from_secs(60));
        assert_eq!(take(&mut allocator, at(1), &client("a"), true), Assignment::Shared);
        allocator.release(at(2), &only("a"), number);
        assert_eq!(allocator.poll_timeout(), Some(at(62)));
        assert_eq!(allocator.handle_timeout(at(62)), [only("a")]);
    }

    #[test]
    fn a_stopped_server_dedicates_no_instance_until_it_is_started() {
        let mut allocator = allocator(Isolation::PerClient, 9);
        is_new(take(&mut allocator, at(0), &client("a"), true));
        allocator.stop();
        assert_eq!(
            take(&mut allocator, at(1), &client("a"), true),
            Assignment::Shared,
            "which says that it is stopped"
        );
        allocator.start();
        is_new(take(&mut allocator, at(2), &client("a"), true));
    }

    #[test]
    fn programs_with_one_client_key_reuse_one_instance_per_call() {
        let mut allocator = InstanceAllocator::new(Isolation::Auto, DedicatedFor::Interactive, 3, IDLE);
        let programs = Caller::Shared(key("a"));
        let alone = |allocator: &mut InstanceAllocator, at_work: Option<&InstanceOwner>| {
            allocator.assign(at(0), &programs, CallNeeds::Exclusive, |owner| Some(owner) != at_work)
        };
        let Assignment::NewDedicated(first, number) = alone(&mut allocator, None) else {
            panic!("it has to be made")
        };
        let Assignment::NewDedicated(second, _) = alone(&mut allocator, None) else {
            panic!("the first one is in use")
        };
        assert_ne!(first, second);
        assert_eq!(
            take(&mut allocator, at(0), &programs, false),
            Assignment::Shared,
            "one that cannot be asked shares"
        );
        allocator.release(at(1), &first, number);
        assert_eq!(
            alone(&mut allocator, None),
            Assignment::Dedicated(first.clone(), number),
            "state is met again"
        );
        allocator.release(at(2), &first, number);
        let third = alone(&mut allocator, Some(&first));
        assert!(
            matches!(&third, Assignment::NewDedicated(owner, _) if ![&first, &second].contains(&owner)),
            "{third:?}"
        );
        assert_eq!(
            alone(&mut allocator, Some(&first)),
            Assignment::Shared,
            "all instances are in use, and separation is not required"
        );
        assert_eq!(allocator.remove_client(&key("a")).len(), 3);
    }

    #[test]
    fn with_per_client_isolation_all_calls_of_a_client_share_an_instance() {
        let mut allocator = allocator(Isolation::PerClient, 9);
        let programs = Caller::Shared(key("a"));
        let number = is_new(allocator.assign(at(0), &programs, CallNeeds::Exclusive, |_| true));
        assert_eq!(
            allocator.assign(at(0), &programs, CallNeeds::Exclusive, |_| true),
            Assignment::Dedicated(only("a"), number)
        );
    }
}

//! Who is served by the base instance and who by one of their own; when an own instance is made, and when it
//! is ended because nobody uses it.

use super::{Caller, Isolation};
use crate::ids::ClientKey;
use crate::time::Mono;
use std::collections::BTreeMap;
use std::time::Duration;

/// The clients of one server and their own instances.
#[derive(Debug)]
pub struct Seats {
    rule: Isolation,
    /// What was seen of how the server asks.
    apart: Apart,
    /// Stopped by a person: nobody gets an instance until it is started.
    stopped: bool,
    most: usize,
    idle_timeout: Duration,
    next: u64,
    taken: BTreeMap<Holder, Taken>,
}

/// Which clients have instances of their own under [`Isolation::Auto`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Apart {
    /// None: whom the server means was always clear.
    #[default]
    None,
    /// Those that can be asked: the server asked, and several clients of one principal could be meant.
    Asked,
    /// All: the server said something that could have been for any of several principals.
    All,
}

/// Whose an own instance is. Programs that count as one client may have several, one for each of their calls.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    client: ClientKey,
    nth: usize,
}

impl Holder {
    /// A client that has one instance.
    pub fn only(client: ClientKey) -> Self {
        Self { client, nth: 0 }
    }
}

/// What a call needs of the instance that serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: its client cannot be asked.
    Nothing,
    /// To be asked what the server wants to know.
    Questions,
    /// The same, and no other call of its client beside it, for a question could be about either.
    Solitude,
}

#[derive(Debug)]
struct Taken {
    number: SeatNumber,
    calls: u32,
    /// When the last call ended; counts while there is none.
    unused_since: Mono,
}

/// Tells an own instance from an earlier one of the same client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeatNumber(u64);

impl SeatNumber {
    /// The bare number, for logs and status.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Where a call is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seat {
    /// By the base instance.
    Base,
    /// By the client's own instance, which is there.
    Own(Holder, SeatNumber),
    /// By the client's own instance, which has to be made.
    New(Holder, SeatNumber),
    /// Nowhere: there are as many instances as there may be.
    Full {
        /// When one of them will have been unused for long enough, if nothing else happens.
        retry_after: Option<Duration>,
    },
}

impl Seats {
    /// The seats of a server whose clients are kept apart by this rule. `apart`: what is remembered of how it asks. Own instances are ended when unused for `idle_timeout`.
    pub fn new(rule: Isolation, apart: Apart, most: usize, idle_timeout: Duration) -> Self {
        Self { rule, apart, stopped: false, most, idle_timeout, next: 1, taken: BTreeMap::new() }
    }

    /// The config has changed. Clients that have no right to an own instance any more are served by the base
    /// one from their next call on.
    pub fn revise(&mut self, rule: Isolation, apart: Apart, most: usize, idle_timeout: Duration) {
        (self.rule, self.apart, self.most, self.idle_timeout) = (rule, apart, most, idle_timeout);
    }

    /// Where a call of `caller` is served. One on an own instance is given back with [`Self::give_back`]. `is_quiet`
    /// tells of an instance whether its server is at work on nothing, such as a call that was given up.
    pub fn take(
        &mut self,
        now: Mono,
        caller: &Caller,
        needs: Needs,
        is_quiet: impl Fn(&Holder) -> bool,
    ) -> Seat {
        let Some(client) = self.apart(caller, needs) else { return Seat::Base };
        let holder = match (needs, self.rule) {
            (Needs::Solitude, Isolation::Auto) => self.alone(client, is_quiet),
            // Where each client has an instance for its state, all its calls meet that.
            (Needs::Nothing | Needs::Questions | Needs::Solitude, _) => Holder::only(client.clone()),
        };
        if let Some(taken) = self.taken.get_mut(&holder) {
            taken.calls += 1;
            return Seat::Own(holder, taken.number);
        }
        if self.taken.len() >= self.most {
            return match self.rule {
                // Nobody asked for separation, so its absence is no reason to refuse a call.
                Isolation::Auto | Isolation::Shared => Seat::Base,
                Isolation::PerClient => Seat::Full { retry_after: self.poll_timeout().map(|at| at - now) },
            };
        }
        let number = SeatNumber(self.next);
        self.next += 1;
        self.taken.insert(holder.clone(), Taken { number, calls: 1, unused_since: now });
        Seat::New(holder, number)
    }

    /// Whether a call of `caller` is one for an own instance, if there is room for it.
    pub fn is_apart(&self, caller: &Caller, needs: Needs) -> bool {
        self.apart(caller, needs).is_some()
    }

    fn apart<'c>(&self, caller: &'c Caller, needs: Needs) -> Option<&'c ClientKey> {
        caller.key().filter(|_| self.has_own(needs))
    }

    /// The first instance of `client` that does nothing else, whether it is there or has to be made.
    fn alone(&self, client: &ClientKey, is_quiet: impl Fn(&Holder) -> bool) -> Holder {
        let is_free = |holder: &Holder| match self.taken.get(holder) {
            Some(taken) => taken.calls == 0 && is_quiet(holder),
            None => true,
        };
        let mut holders = (0..=self.taken.len()).map(|nth| Holder { client: client.clone(), nth });
        holders.find(is_free).expect("there are more places than instances")
    }

    /// A call on this own instance has ended. What an earlier instance is told too late changes nothing.
    pub fn give_back(&mut self, now: Mono, holder: &Holder, number: SeatNumber) {
        if let Some(taken) = self.taken.get_mut(holder).filter(|taken| taken.number == number) {
            taken.calls = taken.calls.saturating_sub(1);
            taken.unused_since = now;
        }
    }

    /// The server asked something, and it cannot be known whom. Whether clients are kept apart from now on that
    /// were not before.
    pub fn separate(&mut self, apart: Apart) -> bool {
        let is_news = self.rule == Isolation::Auto && apart > self.apart;
        if is_news {
            self.apart = apart;
        }
        is_news
    }

    /// The client is gone. Its own instances are to be ended.
    pub fn leave(&mut self, client: &ClientKey) -> Vec<Holder> {
        let theirs: Vec<Holder> =
            self.taken.keys().filter(|holder| holder.client == *client).cloned().collect();
        for holder in &theirs {
            self.taken.remove(holder);
        }
        theirs
    }

    /// A person stops the server: all own instances are to be ended, and none is made until
    /// [`Self::start`].
    pub fn stop(&mut self) {
        self.stopped = true;
        self.taken.clear();
    }

    /// The counterpart of [`Self::stop`].
    pub fn start(&mut self) {
        self.stopped = false;
    }

    /// The own instances that have been unused for long enough, and are to be ended.
    pub fn handle_timeout(&mut self, now: Mono) -> Vec<Holder> {
        let due: Vec<Holder> = self
            .taken
            .iter()
            .filter(|(_, taken)| self.ends_at(taken).is_some_and(|at| at <= now))
            .map(|(holder, _)| holder.clone())
            .collect();
        for holder in &due {
            self.taken.remove(holder);
        }
        due
    }

    /// When [`Self::handle_timeout`] wants to be called next.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.taken.values().filter_map(|taken| self.ends_at(taken)).min()
    }

    /// How many own instances there may be.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Whether clients get instances of their own, as things are.
    pub fn are_apart(&self) -> bool {
        match self.rule {
            Isolation::Shared => false,
            Isolation::PerClient => true,
            Isolation::Auto => self.apart != Apart::None,
        }
    }

    fn has_own(&self, needs: Needs) -> bool {
        let gains = match self.rule {
            Isolation::Shared => false,
            Isolation::PerClient => true,
            Isolation::Auto => match self.apart {
                Apart::None => false,
                // For a client that cannot be asked anything it would change nothing.
                Apart::Asked => needs != Needs::Nothing,
                Apart::All => true,
            },
        };
        gains && !self.stopped
    }

    fn ends_at(&self, taken: &Taken) -> Option<Mono> {
        (taken.calls == 0).then(|| taken.unused_since + self.idle_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(600);

    fn at(seconds: u64) -> Mono {
        Mono::at(Duration::from_secs(seconds))
    }

    fn key(name: &str) -> ClientKey {
        ClientKey::new(name)
    }

    fn client(name: &str) -> Caller {
        Caller::One(key(name))
    }

    fn only(name: &str) -> Holder {
        Holder::only(key(name))
    }

    fn take(seats: &mut Seats, now: Mono, caller: &Caller, can_be_asked: bool) -> Seat {
        let needs = if can_be_asked { Needs::Questions } else { Needs::Nothing };
        seats.take(now, caller, needs, |_| true)
    }

    fn seats(rule: Isolation, most: usize) -> Seats {
        Seats::new(rule, Apart::None, most, IDLE)
    }

    fn is_new(seat: Seat) -> SeatNumber {
        match seat {
            Seat::New(_, number) => number,
            other @ (Seat::Base | Seat::Own(..) | Seat::Full { .. }) => panic!("{other:?}"),
        }
    }

    #[test]
    fn shared_is_shared_whatever_the_server_does() {
        let mut seats = seats(Isolation::Shared, 9);
        assert!(!seats.separate(Apart::Asked) && !seats.are_apart());
        assert_eq!(take(&mut seats, at(0), &client("a"), true), Seat::Base);
    }

    #[test]
    fn each_client_has_its_own_made_once_and_callers_without_a_name_share_the_base() {
        let mut seats = seats(Isolation::PerClient, 9);
        let (a, b) = (
            is_new(take(&mut seats, at(0), &client("a"), false)),
            is_new(take(&mut seats, at(0), &client("b"), false)),
        );
        assert_ne!(a, b);
        assert!(
            seats.is_apart(&client("c"), Needs::Nothing)
                && !seats.is_apart(&Caller::Unnamed, Needs::Questions)
        );
        assert_eq!(take(&mut seats, at(1), &client("a"), false), Seat::Own(only("a"), a));
        assert_eq!(take(&mut seats, at(1), &Caller::Many(key("b")), false), Seat::Own(only("b"), b));
        assert_eq!(take(&mut seats, at(1), &Caller::Unnamed, true), Seat::Base);
    }

    #[test]
    fn auto_is_shared_until_the_server_asks_nobody_knows_whom_and_then_remembers() {
        let mut seats = seats(Isolation::Auto, 9);
        assert_eq!(take(&mut seats, at(0), &client("a"), true), Seat::Base);
        assert!(seats.separate(Apart::Asked), "told once");
        assert!(!seats.separate(Apart::Asked), "and not again");
        is_new(take(&mut seats, at(1), &client("a"), true));
        assert_eq!(take(&mut seats, at(1), &client("b"), false), Seat::Base, "it cannot be asked anything");
        let mut later = Seats::new(Isolation::Auto, Apart::Asked, 9, IDLE);
        is_new(take(&mut later, at(0), &client("a"), true));
    }

    #[test]
    fn an_own_instance_ends_when_unused_and_never_under_a_call() {
        let mut seats = seats(Isolation::PerClient, 9);
        let number = is_new(take(&mut seats, at(0), &client("a"), true));
        take(&mut seats, at(1), &client("a"), true);
        seats.give_back(at(2), &only("a"), number);
        assert_eq!(seats.poll_timeout(), None, "one call is under way");
        seats.give_back(at(10), &only("a"), number);
        assert_eq!(seats.poll_timeout(), Some(at(610)));
        assert_eq!(seats.handle_timeout(at(609)), []);
        assert_eq!(seats.handle_timeout(at(610)), [only("a")]);
        assert_ne!(is_new(take(&mut seats, at(611), &client("a"), true)), number);
    }

    #[test]
    fn a_full_house_refuses_where_separation_was_asked_for_and_shares_where_it_was_not() {
        let mut strict = seats(Isolation::PerClient, 1);
        let number = is_new(take(&mut strict, at(0), &client("a"), true));
        assert_eq!(take(&mut strict, at(1), &client("b"), true), Seat::Full { retry_after: None });
        strict.give_back(at(2), &only("a"), number);
        let wait = Duration::from_secs(599);
        assert_eq!(take(&mut strict, at(3), &client("b"), true), Seat::Full { retry_after: Some(wait) });
        let mut lenient = Seats::new(Isolation::Auto, Apart::Asked, 1, IDLE);
        is_new(take(&mut lenient, at(0), &client("a"), true));
        assert_eq!(take(&mut lenient, at(1), &client("b"), true), Seat::Base);
    }

    #[test]
    fn whoever_is_gone_makes_room_and_its_late_calls_do_not_touch_its_successor() {
        let mut seats = seats(Isolation::PerClient, 1);
        let first = is_new(take(&mut seats, at(0), &client("a"), true));
        assert_eq!(seats.leave(&key("a")), [only("a")]);
        assert_eq!(seats.leave(&key("a")), []);
        let second = is_new(take(&mut seats, at(1), &client("a"), true));
        seats.give_back(at(2), &only("a"), first);
        assert_eq!(seats.poll_timeout(), None, "the second is in use");
        seats.give_back(at(3), &only("a"), second);
        assert_eq!(seats.poll_timeout(), Some(at(603)));
    }

    #[test]
    fn changed_rules_hold_from_the_next_call_on_and_own_instances_end_when_unused() {
        let mut seats = seats(Isolation::PerClient, 9);
        let number = is_new(take(&mut seats, at(0), &client("a"), true));
        seats.revise(Isolation::Shared, Apart::None, 9, Duration::from_secs(60));
        assert_eq!(take(&mut seats, at(1), &client("a"), true), Seat::Base);
        seats.give_back(at(2), &only("a"), number);
        assert_eq!(seats.poll_timeout(), Some(at(62)));
        assert_eq!(seats.handle_timeout(at(62)), [only("a")]);
    }

    #[test]
    fn a_stopped_server_makes_no_instance_until_it_is_started() {
        let mut seats = seats(Isolation::PerClient, 9);
        is_new(take(&mut seats, at(0), &client("a"), true));
        seats.stop();
        assert_eq!(take(&mut seats, at(1), &client("a"), true), Seat::Base, "which says that it is stopped");
        seats.start();
        is_new(take(&mut seats, at(2), &client("a"), true));
    }

    #[test]
    fn programs_that_count_as_one_client_have_an_instance_for_each_call_and_use_them_again() {
        let mut seats = Seats::new(Isolation::Auto, Apart::Asked, 3, IDLE);
        let programs = Caller::Many(key("a"));
        let alone = |seats: &mut Seats, at_work: Option<&Holder>| {
            seats.take(at(0), &programs, Needs::Solitude, |holder| Some(holder) != at_work)
        };
        let Seat::New(first, number) = alone(&mut seats, None) else { panic!("it has to be made") };
        let Seat::New(second, _) = alone(&mut seats, None) else { panic!("the first one is in use") };
        assert_ne!(first, second);
        assert_eq!(take(&mut seats, at(0), &programs, false), Seat::Base, "one that cannot be asked shares");
        seats.give_back(at(1), &first, number);
        assert_eq!(alone(&mut seats, None), Seat::Own(first.clone(), number), "state is met again");
        seats.give_back(at(2), &first, number);
        let third = alone(&mut seats, Some(&first));
        assert!(matches!(&third, Seat::New(holder, _) if ![&first, &second].contains(&holder)), "{third:?}");
        assert_eq!(
            alone(&mut seats, Some(&first)),
            Seat::Base,
            "there are no more; nobody asked for separation"
        );
        assert_eq!(seats.leave(&key("a")).len(), 3);
    }

    #[test]
    fn where_each_client_has_its_own_for_its_state_all_its_calls_meet_there() {
        let mut seats = seats(Isolation::PerClient, 9);
        let programs = Caller::Many(key("a"));
        let number = is_new(seats.take(at(0), &programs, Needs::Solitude, |_| true));
        assert_eq!(seats.take(at(0), &programs, Needs::Solitude, |_| true), Seat::Own(only("a"), number));
    }
}

//! Call budgets: limits on calls per window and on concurrent calls, by client, server and tool. A call is reserved
//! before it is sent and settled when it ended; a call that was not carried out is refunded.
//!
//! The restart budget of a server is in `supervise/restarts.rs`.

use super::Pattern;
use crate::time::Mono;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

/// One budget of the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetSpec {
    /// Its name, for error messages.
    pub name: String,
    /// The clients that it applies to.
    pub client: Pattern,
    /// The servers.
    pub server: Pattern,
    /// The tools.
    pub tool: Pattern,
    /// The dimensions with separate counters.
    pub per: BudgetScope,
    /// Maximum number of calls per window.
    pub calls: Option<(u32, BudgetWindow)>,
    /// Maximum number of concurrent calls.
    pub in_flight: Option<u32>,
}

/// The dimensions with separate counters. Without any, all calls share one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BudgetScope {
    /// Each client.
    pub client: bool,
    /// Each server.
    pub server: bool,
    /// Each tool.
    pub tool: bool,
}

/// Window over which calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetWindow {
    /// From the first call on, for this duration; then a new window starts.
    Fixed(Duration),
    /// The last duration up to now.
    Sliding(Duration),
}

/// Client, server and tool of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetedCall<'a> {
    /// The client.
    pub client: &'a str,
    /// The server.
    pub server: &'a str,
    /// The server's own name of the tool.
    pub tool: &'a str,
}

/// Reserved calls that have to be settled.
#[derive(Debug)]
#[must_use = "a reservation that is never settled counts as a call in flight for ever"]
pub struct Reservation {
    generation: u64,
    entries: Vec<(Key, Mono)>,
}

/// A budget is exceeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetExceeded {
    /// The name of the budget.
    pub budget: String,
    /// The limit that was reached.
    pub limit: u32,
    /// Time until a call is allowed again, if waiting helps.
    pub reset_after: Option<Duration>,
}

/// Part of the limits that this process enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitPart {
    /// All of each limit: there is no other process.
    Whole,
    /// Each limit divided by this number of processes, and at least 1. A limit of 0 stays 0.
    Divided(NonZeroU32),
    /// No limit: a shared store enforces them, and this process only counts its own calls.
    Unlimited,
}

/// One counter of a budget that applies to a call, with its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetCounter {
    /// The name of the budget.
    pub budget: String,
    /// The client, if the counter is per client.
    pub client: Option<String>,
    /// The server, if the counter is per server.
    pub server: Option<String>,
    /// The tool, if the counter is per tool.
    pub tool: Option<String>,
    /// Maximum number of calls per window.
    pub calls: Option<(u32, BudgetWindow)>,
    /// Maximum number of concurrent calls.
    pub in_flight: Option<u32>,
}

/// Usage of one counter of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetUse {
    /// The name of the budget.
    pub budget: String,
    /// The client, if the counter is per client.
    pub client: Option<String>,
    /// The server, if the counter is per server.
    pub server: Option<String>,
    /// The tool, if the counter is per tool.
    pub tool: Option<String>,
    /// Calls in the present window.
    pub calls: u32,
    /// Maximum number of calls.
    pub max_calls: Option<u32>,
    /// Time until a call is allowed again.
    pub reset_after: Option<Duration>,
    /// Calls in flight.
    pub in_flight: u32,
    /// Maximum number of calls in flight.
    pub max_in_flight: Option<u32>,
}

/// The result of a reserved call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettledAs {
    /// It was carried out, or may have been.
    Spent,
    /// It was not carried out: a cached answer, or a refusal.
    Refunded,
}

/// All budgets and their counters.
#[derive(Debug)]
pub struct Budgets {
    specs: Vec<BudgetSpec>,
    counters: BTreeMap<Key, Counter>,
    /// Number of times that the budgets were replaced.
    generation: u64,
}

/// The budget index and the separated dimensions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    budget: usize,
    client: Option<String>,
    server: Option<String>,
    tool: Option<String>,
}

#[derive(Debug, Default)]
struct Counter {
    in_flight: u32,
    /// Times of the calls in the window, oldest first.
    calls: VecDeque<Mono>,
}

impl Budgets {
    /// Maximum number of counters. Beyond it, counters at zero are evicted first, then those with the oldest last call.
    pub const MAX_COUNTERS: usize = 10_000;
    /// Maximum number of counters shown at a time.
    pub const MAX_ROWS: usize = 1000;
    /// Largest limit of calls per window: the time of each call is kept.
    pub const MAX_CALLS: u32 = 100_000;

    /// Budgets with all counters at zero.
    pub fn new(specs: Vec<BudgetSpec>) -> Self {
        Self { specs, counters: BTreeMap::new(), generation: 0 }
    }

    /// Replaces all budgets. Counters start at zero, and calls in flight are not counted.
    pub fn replace(&mut self, specs: Vec<BudgetSpec>) {
        *self = Self { generation: self.generation + 1, ..Self::new(specs) };
    }

    /// Reserves a call in all budgets that apply to it, or in none.
    ///
    /// # Errors
    /// A budget is exceeded.
    pub fn reserve(
        &mut self,
        now: Mono,
        call: BudgetedCall<'_>,
        share: LimitPart,
    ) -> Result<Reservation, BudgetExceeded> {
        let keys: Vec<Key> = self.matching(call);
        for key in &keys {
            let spec = &self.specs[key.budget];
            let counter = self.counters.get_mut(key);
            if share == LimitPart::Unlimited {
                // The calls that have left the window are forgotten all the same.
                if let (Some(counter), Some((_, window))) = (counter, spec.calls) {
                    counter.expire(now, window);
                }
            } else if let Some(counter) = counter {
                counter.check(now, spec, share)?;
            } else if let Some(limit) = [spec.in_flight, spec.calls.map(|(calls, _)| calls)]
                .into_iter()
                .flatten()
                .find(|limit| *limit == 0)
            {
                return Err(BudgetExceeded { budget: spec.name.clone(), limit, reset_after: None });
            }
        }
        if self.counters.len() + keys.len() > Self::MAX_COUNTERS {
            self.evict(now, keys.len());
        }
        for key in &keys {
            let counter = self.counters.entry(key.clone()).or_default();
            counter.in_flight += 1;
            if self.specs[key.budget].calls.is_some() {
                counter.calls.push_back(now);
            }
        }
        let made = keys.into_iter().map(|key| (key, now)).collect();
        Ok(Reservation { generation: self.generation, entries: made })
    }

    /// Settles a reserved call that ended.
    pub fn settle(&mut self, reservation: Reservation, spending: SettledAs) {
        if reservation.generation != self.generation {
            return;
        }
        for (key, made_at) in reservation.entries {
            let Some(counter) = self.counters.get_mut(&key) else { continue };
            counter.in_flight = counter.in_flight.saturating_sub(1);
            let at = counter.calls.iter().rposition(|at| *at == made_at);
            match (spending, at) {
                (SettledAs::Refunded, Some(at)) => {
                    counter.calls.remove(at);
                }
                (SettledAs::Refunded, None) | (SettledAs::Spent, _) => {}
            }
        }
    }

    /// The usage of all counters, at most [`Budgets::MAX_ROWS`].
    pub fn usage(&self, now: Mono) -> Vec<BudgetUse> {
        let rows = self.counters.iter().take(Self::MAX_ROWS).map(|(key, counter)| {
            let spec = &self.specs[key.budget];
            let (calls, reset_after) =
                spec.calls.map_or((0, None), |(_, window)| counter.within(now, window));
            BudgetUse {
                budget: spec.name.clone(),
                client: key.client.clone(),
                server: key.server.clone(),
                tool: key.tool.clone(),
                calls,
                max_calls: spec.calls.map(|(most, _)| most),
                reset_after,
                in_flight: counter.in_flight,
                max_in_flight: spec.in_flight,
            }
        });
        rows.collect()
    }

    /// The counters that apply to a call, with their limits.
    pub fn counters_of(&self, call: BudgetedCall<'_>) -> Vec<BudgetCounter> {
        let with_limits = |key: Key| {
            let spec = &self.specs[key.budget];
            BudgetCounter {
                budget: spec.name.clone(),
                client: key.client,
                server: key.server,
                tool: key.tool,
                calls: spec.calls,
                in_flight: spec.in_flight,
            }
        };
        self.matching(call).into_iter().map(with_limits).collect()
    }

    /// The budgets.
    pub fn specs(&self) -> &[BudgetSpec] {
        &self.specs
    }

    fn matching(&self, call: BudgetedCall<'_>) -> Vec<Key> {
        let concerns = |spec: &BudgetSpec| {
            spec.client.matches(call.client)
                && spec.server.matches(call.server)
                && spec.tool.matches(call.tool)
        };
        let counter_key = |separate: bool, name: &str| separate.then(|| name.to_owned());
        let concerned = self.specs.iter().enumerate().filter(|(_, spec)| concerns(spec));
        concerned
            .map(|(budget, BudgetSpec { per, .. })| Key {
                budget,
                client: counter_key(per.client, call.client),
                server: counter_key(per.server, call.server),
                tool: counter_key(per.tool, call.tool),
            })
            .collect()
    }

    fn evict(&mut self, now: Mono, room: usize) {
        let specs = &self.specs;
        self.counters.retain(|key, counter| {
            let counts = specs[key.budget].calls.is_some_and(|(_, window)| counter.within(now, window).0 > 0);
            counter.in_flight > 0 || counts
        });
        if self.counters.len() + room > Self::MAX_COUNTERS {
            let idle = self.counters.iter().filter(|(_, counter)| counter.in_flight == 0);
            let mut oldest: Vec<_> =
                idle.map(|(key, counter)| (counter.calls.back().copied(), key.clone())).collect();
            oldest.sort_unstable();
            // Many at once, so that the next reservations need not evict again.
            for (_, key) in oldest.into_iter().take(Self::MAX_COUNTERS / 8 + room) {
                self.counters.remove(&key);
            }
        }
    }
}

impl LimitPart {
    /// This part of a limit.
    fn of(self, limit: u32) -> u32 {
        match self {
            Self::Whole => limit,
            Self::Divided(processes) => (limit / processes).max(limit.min(1)),
            Self::Unlimited => u32::MAX,
        }
    }
}

impl Counter {
    /// Returns an error if one more call is not allowed.
    fn check(&mut self, now: Mono, spec: &BudgetSpec, share: LimitPart) -> Result<(), BudgetExceeded> {
        let exceeded = |limit, reset_after| BudgetExceeded { budget: spec.name.clone(), limit, reset_after };
        if let Some((limit, window)) = spec.calls {
            let limit = share.of(limit);
            self.expire(now, window);
            let (count, reset_after) = self.within(now, window);
            if count >= limit {
                return Err(exceeded(limit, reset_after));
            }
        }
        match spec.in_flight.map(|limit| share.of(limit)) {
            Some(limit) if self.in_flight >= limit => Err(exceeded(limit, None)),
            Some(_) | None => Ok(()),
        }
    }

    /// Calls in the window that ends now, and the time until a call is allowed again.
    fn within(&self, now: Mono, window: BudgetWindow) -> (u32, Option<Duration>) {
        match window {
            BudgetWindow::Fixed(span) => match self.calls.front() {
                Some(first) if now - *first < span => {
                    (self.calls.len() as u32, Some(now.until(*first + span)))
                }
                Some(_) | None => (0, None),
            },
            BudgetWindow::Sliding(span) => {
                let mut inside = self.calls.iter().filter(|at| now - **at < span);
                let first = inside.next();
                let count = first.map_or(0, |_| 1 + inside.count() as u32);
                (count, first.map(|first| now.until(*first + span)))
            }
        }
    }

    /// Removes calls that have left the window.
    fn expire(&mut self, now: Mono, window: BudgetWindow) {
        match window {
            BudgetWindow::Fixed(span) => {
                if self.calls.front().is_some_and(|first| now - *first >= span) {
                    self.calls.clear();
                }
            }
            BudgetWindow::Sliding(span) => {
                while self.calls.front().is_some_and(|at| now - *at >= span) {
                    self.calls.pop_front();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Mono {
        Mono::from_origin(Duration::from_secs(seconds))
    }

    fn spec(calls: Option<(u32, BudgetWindow)>, in_flight: Option<u32>) -> BudgetSpec {
        BudgetSpec {
            name: "a minute".to_owned(),
            client: Pattern::new("*"),
            server: Pattern::new("*"),
            tool: Pattern::new("*"),
            per: BudgetScope { client: true, ..BudgetScope::default() },
            calls,
            in_flight,
        }
    }

    fn by(client: &str) -> BudgetedCall<'_> {
        BudgetedCall { client, server: "github", tool: "search" }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn g03_a_fixed_window_starts_with_its_first_call_and_has_a_reset_time() {
        let mut budgets = Budgets::new(vec![spec(Some((2, BudgetWindow::Fixed(MINUTE))), None)]);
        for second in [0, 50] {
            let reservation = budgets.reserve(at(second), by("a"), LimitPart::Whole).unwrap();
            budgets.settle(reservation, SettledAs::Spent);
        }
        let exceeded = budgets.reserve(at(59), by("a"), LimitPart::Whole).unwrap_err();
        assert_eq!((exceeded.limit, exceeded.reset_after), (2, Some(Duration::from_secs(1))));
        assert!(budgets.reserve(at(59), by("b"), LimitPart::Whole).is_ok(), "each client has its own");
        assert!(budgets.reserve(at(60), by("a"), LimitPart::Whole).is_ok());
        assert!(budgets.reserve(at(60), by("a"), LimitPart::Whole).is_ok());
        assert!(budgets.reserve(at(110), by("a"), LimitPart::Whole).is_err());
    }

    #[test]
    fn g03_a_sliding_window_frees_one_call_at_a_time() {
        let mut budgets = Budgets::new(vec![spec(Some((2, BudgetWindow::Sliding(MINUTE))), None)]);
        for second in [0, 50] {
            let reservation = budgets.reserve(at(second), by("a"), LimitPart::Whole).unwrap();
            budgets.settle(reservation, SettledAs::Spent);
        }
        assert_eq!(
            budgets.reserve(at(59), by("a"), LimitPart::Whole).unwrap_err().reset_after,
            Some(Duration::from_secs(1))
        );
        let reservation = budgets.reserve(at(60), by("a"), LimitPart::Whole).unwrap();
        budgets.settle(reservation, SettledAs::Spent);
        let exceeded = budgets.reserve(at(61), by("a"), LimitPart::Whole).unwrap_err();
        assert_eq!(exceeded.reset_after, Some(Duration::from_secs(49)));
    }

    #[test]
    fn g03_a_call_that_was_not_carried_out_is_refunded() {
        let mut budgets = Budgets::new(vec![spec(Some((1, BudgetWindow::Fixed(MINUTE))), None)]);
        for _ in 0..5 {
            let reservation = budgets.reserve(at(0), by("a"), LimitPart::Whole).unwrap();
            budgets.settle(reservation, SettledAs::Refunded);
        }
        let spent = &budgets.usage(at(0))[0];
        assert_eq!((spent.calls, spent.max_calls, spent.in_flight), (0, Some(1), 0));
    }

    #[test]
    fn g03_calls_in_flight_are_counted_until_they_are_settled() {
        let mut budgets = Budgets::new(vec![spec(None, Some(1))]);
        let running = budgets.reserve(at(0), by("a"), LimitPart::Whole).unwrap();
        let exceeded = budgets.reserve(at(1000), by("a"), LimitPart::Whole).unwrap_err();
        assert_eq!((exceeded.limit, exceeded.reset_after), (1, None));
        budgets.settle(running, SettledAs::Spent);
        assert!(budgets.reserve(at(1000), by("a"), LimitPart::Whole).is_ok());
        let mut nothing = Budgets::new(vec![spec(None, Some(0))]);
        assert!(nothing.reserve(at(0), by("a"), LimitPart::Whole).is_err(), "a budget of nothing is a ban");
    }

    #[test]
    fn g03_a_call_that_one_budget_refuses_costs_nothing_in_the_others() {
        let wide = spec(Some((10, BudgetWindow::Fixed(MINUTE))), None);
        let narrow =
            BudgetSpec { name: "narrow".to_owned(), ..spec(Some((1, BudgetWindow::Fixed(MINUTE))), None) };
        let mut budgets = Budgets::new(vec![wide, narrow]);
        let reservation = budgets.reserve(at(0), by("a"), LimitPart::Whole).unwrap();
        budgets.settle(reservation, SettledAs::Spent);
        for _ in 0..5 {
            assert_eq!(budgets.reserve(at(1), by("a"), LimitPart::Whole).unwrap_err().budget, "narrow");
        }
        assert_eq!(budgets.usage(at(1)).iter().map(|spent| spent.calls).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn g03_settling_a_call_of_replaced_budgets_changes_nothing() {
        let one_at_a_time = || vec![spec(None, Some(1))];
        let mut budgets = Budgets::new(one_at_a_time());
        let old = budgets.reserve(at(0), by("a"), LimitPart::Whole).unwrap();
        budgets.replace(one_at_a_time());
        let present = budgets.reserve(at(1), by("a"), LimitPart::Whole).unwrap();
        budgets.settle(old, SettledAs::Spent);
        assert!(budgets.reserve(at(2), by("a"), LimitPart::Whole).is_err());
        budgets.settle(present, SettledAs::Spent);
        assert!(budgets.reserve(at(2), by("a"), LimitPart::Whole).is_ok());
    }

    #[test]
    fn g03_without_the_shared_count_a_process_has_its_part_of_each_limit() {
        let mut budgets = Budgets::new(vec![spec(Some((7, BudgetWindow::Sliding(MINUTE))), Some(2))]);
        let third = LimitPart::Divided(NonZeroU32::new(3).unwrap());
        let counted = budgets.reserve(at(0), by("a"), LimitPart::Unlimited).unwrap();
        let exceeded = budgets.reserve(at(0), by("a"), third).unwrap_err();
        assert_eq!((exceeded.limit, exceeded.reset_after), (1, None), "a third of 2 is at least 1");
        budgets.settle(counted, SettledAs::Spent);
        let second = budgets.reserve(at(1), by("a"), third).unwrap();
        budgets.settle(second, SettledAs::Spent);
        let exceeded = budgets.reserve(at(2), by("a"), third).unwrap_err();
        assert_eq!(exceeded.limit, 2, "the call that the shared count admitted is counted too");
        for _ in 0..20 {
            let _running = budgets.reserve(at(3), by("a"), LimitPart::Unlimited).unwrap();
        }
        let mut nothing = Budgets::new(vec![spec(None, Some(0))]);
        for _ in 0..2 {
            assert!(nothing.reserve(at(0), by("a"), third).is_err(), "a ban stays one");
        }
    }

    #[test]
    fn the_counters_of_a_call_have_its_separated_dimensions_and_limits() {
        let budgets = Budgets::new(vec![spec(Some((7, BudgetWindow::Fixed(MINUTE))), Some(2))]);
        let counter = BudgetCounter {
            budget: "a minute".to_owned(),
            client: Some("a".to_owned()),
            server: None,
            tool: None,
            calls: Some((7, BudgetWindow::Fixed(MINUTE))),
            in_flight: Some(2),
        };
        assert_eq!(budgets.counters_of(by("a")), [counter]);
    }

    #[test]
    fn counters_are_bounded_and_those_in_flight_are_kept() {
        let mut budgets = Budgets::new(vec![spec(Some((1, BudgetWindow::Sliding(MINUTE))), Some(1))]);
        let held = budgets.reserve(at(0), by("held"), LimitPart::Whole).unwrap();
        for number in 0..2 * Budgets::MAX_COUNTERS as u64 {
            let client = number.to_string();
            let reservation = budgets.reserve(at(1 + number / 1000), by(&client), LimitPart::Whole).unwrap();
            budgets.settle(reservation, SettledAs::Spent);
        }
        assert!(budgets.counters.len() <= Budgets::MAX_COUNTERS);
        assert!(budgets.reserve(at(1), by("held"), LimitPart::Whole).is_err());
        budgets.settle(held, SettledAs::Spent);
    }

    proptest! {
        /// A sliding window never contains more calls than its limit, and no call stays in flight.
        #[test]
        fn g03_no_window_holds_more_than_its_limit(
            limit in 0u32..5,
            steps in prop::collection::vec((0u64..30, any::<bool>()), 0..60),
        ) {
            let mut budgets = Budgets::new(vec![spec(Some((limit, BudgetWindow::Sliding(MINUTE))), None)]);
            let mut now = 0;
            let mut spent: Vec<u64> = Vec::new();
            for (pause, refunded) in steps {
                now += pause;
                let room = spent.iter().filter(|made| now - **made < 60).count() < limit as usize;
                match budgets.reserve(at(now), by("a"), LimitPart::Whole) {
                    Ok(reservation) => {
                        prop_assert!(room);
                        let spending = if refunded { SettledAs::Refunded } else { SettledAs::Spent };
                        budgets.settle(reservation, spending);
                        if !refunded {
                            spent.push(now);
                        }
                    }
                    Err(_) => prop_assert!(!room),
                }
            }
            prop_assert!(budgets.counters.values().all(|counter| counter.in_flight == 0));
        }
    }
}

//! Call budgets: how many calls of whom, to what, within which window, and how many at once. A call is
//! reserved before it goes and settled when it has ended; what was not carried out is given back.
//!
//! A restart budget is something else: `supervise/restarts.rs`.

use super::Pattern;
use crate::time::Mono;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// One budget of the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetSpec {
    /// Its name, for the person who meets it.
    pub name: String,
    /// Whose calls it is about.
    pub client: Pattern,
    /// To which servers.
    pub server: Pattern,
    /// Of which tools.
    pub tool: Pattern,
    /// What has a counter of its own.
    pub per: Per,
    /// Calls within a window.
    pub calls: Option<(u32, Window)>,
    /// Calls at the same time.
    pub in_flight: Option<u32>,
}

/// What has a counter of its own within a budget. What is not told apart shares one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Per {
    /// Each client.
    pub client: bool,
    /// Each server.
    pub server: bool,
    /// Each tool.
    pub tool: bool,
}

/// How calls are counted over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// From the first call on, for this long; then anew.
    Fixed(Duration),
    /// Always the last so long.
    Sliding(Duration),
}

/// What is called, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'a> {
    /// The client.
    pub client: &'a str,
    /// The server.
    pub server: &'a str,
    /// The server's own name of the tool.
    pub tool: &'a str,
}

/// Calls that were reserved and have to be settled.
#[derive(Debug)]
#[must_use = "a reservation that is never settled counts as a call in flight for ever"]
pub struct Reservation {
    generation: u64,
    made: Vec<(Key, Mono)>,
}

/// A budget that is spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    /// The name of the budget.
    pub budget: String,
    /// The limit that was met.
    pub limit: u32,
    /// When there is room again, if time alone makes it.
    pub reset_after: Option<Duration>,
}

/// What is spent of one budget by whatever it tells apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetUse {
    /// The name of the budget.
    pub budget: String,
    /// The client, if clients are told apart.
    pub client: Option<String>,
    /// The server, if servers are told apart.
    pub server: Option<String>,
    /// The tool, if tools are told apart.
    pub tool: Option<String>,
    /// Calls within the present window.
    pub calls: u32,
    /// How many there may be.
    pub most_calls: Option<u32>,
    /// When there is room again.
    pub reset_after: Option<Duration>,
    /// Calls under way.
    pub in_flight: u32,
    /// How many there may be.
    pub most_in_flight: Option<u32>,
}

/// What became of a reserved call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spending {
    /// It was carried out, or may have been.
    Spent,
    /// It was not: a cached answer, or a refusal.
    Refunded,
}

/// All budgets and their counters.
#[derive(Debug)]
pub struct Budgets {
    specs: Vec<BudgetSpec>,
    counters: BTreeMap<Key, Counter>,
    /// How often they were replaced by others.
    generation: u64,
}

/// The number of the budget, and what it tells apart.
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
    /// When the calls of the window were made, the oldest first.
    calls: VecDeque<Mono>,
}

impl Budgets {
    /// Counters that are remembered. Beyond it those that count nothing are forgotten first, then the one
    /// whose last call is longest ago.
    pub const MOST_COUNTERS: usize = 10_000;
    /// Counters that are shown at a time.
    pub const MOST_ROWS: usize = 1000;
    /// The largest number of calls of one window: each is remembered.
    pub const MOST_CALLS: u32 = 100_000;

    /// Budgets that nothing was spent of.
    pub fn new(specs: Vec<BudgetSpec>) -> Self {
        Self { specs, counters: BTreeMap::new(), generation: 0 }
    }

    /// Replaces all budgets. What was spent is forgotten, and calls under way count nowhere any more.
    pub fn replace(&mut self, specs: Vec<BudgetSpec>) {
        *self = Self { generation: self.generation + 1, ..Self::new(specs) };
    }

    /// Reserves a call in every budget that it concerns, or in none.
    ///
    /// # Errors
    /// One of them is spent.
    pub fn reserve(&mut self, now: Mono, call: Call<'_>) -> Result<Reservation, Exceeded> {
        let keys: Vec<Key> = self.concerned(call);
        for key in &keys {
            let spec = &self.specs[key.budget];
            if let Some(counter) = self.counters.get_mut(key) {
                counter.check(now, spec)?;
            } else if let Some(limit) = [spec.in_flight, spec.calls.map(|(calls, _)| calls)]
                .into_iter()
                .flatten()
                .find(|limit| *limit == 0)
            {
                return Err(Exceeded { budget: spec.name.clone(), limit, reset_after: None });
            }
        }
        if self.counters.len() + keys.len() > Self::MOST_COUNTERS {
            self.forget(now, keys.len());
        }
        for key in &keys {
            let counter = self.counters.entry(key.clone()).or_default();
            counter.in_flight += 1;
            if self.specs[key.budget].calls.is_some() {
                counter.calls.push_back(now);
            }
        }
        let made = keys.into_iter().map(|key| (key, now)).collect();
        Ok(Reservation { generation: self.generation, made })
    }

    /// A reserved call has ended.
    pub fn settle(&mut self, reservation: Reservation, spending: Spending) {
        if reservation.generation != self.generation {
            return;
        }
        for (key, made_at) in reservation.made {
            let Some(counter) = self.counters.get_mut(&key) else { continue };
            counter.in_flight = counter.in_flight.saturating_sub(1);
            let at = counter.calls.iter().rposition(|at| *at == made_at);
            match (spending, at) {
                (Spending::Refunded, Some(at)) => {
                    counter.calls.remove(at);
                }
                (Spending::Refunded, None) | (Spending::Spent, _) => {}
            }
        }
    }

    /// What is spent, of whatever has a counter. At most [`Budgets::MOST_ROWS`] of them.
    pub fn usage(&self, now: Mono) -> Vec<BudgetUse> {
        let rows = self.counters.iter().take(Self::MOST_ROWS).map(|(key, counter)| {
            let spec = &self.specs[key.budget];
            let (calls, reset_after) =
                spec.calls.map_or((0, None), |(_, window)| counter.within(now, window));
            BudgetUse {
                budget: spec.name.clone(),
                client: key.client.clone(),
                server: key.server.clone(),
                tool: key.tool.clone(),
                calls,
                most_calls: spec.calls.map(|(most, _)| most),
                reset_after,
                in_flight: counter.in_flight,
                most_in_flight: spec.in_flight,
            }
        });
        rows.collect()
    }

    fn concerned(&self, call: Call<'_>) -> Vec<Key> {
        let concerns = |spec: &BudgetSpec| {
            spec.client.matches(call.client)
                && spec.server.matches(call.server)
                && spec.tool.matches(call.tool)
        };
        let told = |apart: bool, name: &str| apart.then(|| name.to_owned());
        let concerned = self.specs.iter().enumerate().filter(|(_, spec)| concerns(spec));
        concerned
            .map(|(budget, BudgetSpec { per, .. })| Key {
                budget,
                client: told(per.client, call.client),
                server: told(per.server, call.server),
                tool: told(per.tool, call.tool),
            })
            .collect()
    }

    fn forget(&mut self, now: Mono, room: usize) {
        let specs = &self.specs;
        self.counters.retain(|key, counter| {
            let counts = specs[key.budget].calls.is_some_and(|(_, window)| counter.within(now, window).0 > 0);
            counter.in_flight > 0 || counts
        });
        if self.counters.len() + room > Self::MOST_COUNTERS {
            let idle = self.counters.iter().filter(|(_, counter)| counter.in_flight == 0);
            let mut oldest: Vec<_> =
                idle.map(|(key, counter)| (counter.calls.back().copied(), key.clone())).collect();
            oldest.sort_unstable();
            // Many at once, so that the next ones need not look again.
            for (_, key) in oldest.into_iter().take(Self::MOST_COUNTERS / 8 + room) {
                self.counters.remove(&key);
            }
        }
    }
}

impl Counter {
    /// Whether one more call fits.
    fn check(&mut self, now: Mono, spec: &BudgetSpec) -> Result<(), Exceeded> {
        let exceeded = |limit, reset_after| Exceeded { budget: spec.name.clone(), limit, reset_after };
        if let Some((limit, window)) = spec.calls {
            self.slide(now, window);
            let (count, reset_after) = self.within(now, window);
            if count >= limit {
                return Err(exceeded(limit, reset_after));
            }
        }
        match spec.in_flight {
            Some(limit) if self.in_flight >= limit => Err(exceeded(limit, None)),
            Some(_) | None => Ok(()),
        }
    }

    /// Calls within the window that ends now, and when there is room again.
    fn within(&self, now: Mono, window: Window) -> (u32, Option<Duration>) {
        match window {
            Window::Fixed(span) => match self.calls.front() {
                Some(first) if now - *first < span => {
                    (self.calls.len() as u32, Some(now.until(*first + span)))
                }
                Some(_) | None => (0, None),
            },
            Window::Sliding(span) => {
                let mut inside = self.calls.iter().filter(|at| now - **at < span);
                let first = inside.next();
                let count = first.map_or(0, |_| 1 + inside.count() as u32);
                (count, first.map(|first| now.until(*first + span)))
            }
        }
    }

    /// Forgets what the window has left behind.
    fn slide(&mut self, now: Mono, window: Window) {
        match window {
            Window::Fixed(span) => {
                if self.calls.front().is_some_and(|first| now - *first >= span) {
                    self.calls.clear();
                }
            }
            Window::Sliding(span) => {
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
        Mono::at(Duration::from_secs(seconds))
    }

    fn spec(calls: Option<(u32, Window)>, in_flight: Option<u32>) -> BudgetSpec {
        BudgetSpec {
            name: "a minute".to_owned(),
            client: Pattern::new("*"),
            server: Pattern::new("*"),
            tool: Pattern::new("*"),
            per: Per { client: true, ..Per::default() },
            calls,
            in_flight,
        }
    }

    fn by(client: &str) -> Call<'_> {
        Call { client, server: "github", tool: "search" }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn g03_a_fixed_window_begins_with_its_first_call_and_says_when_it_is_reset() {
        let mut budgets = Budgets::new(vec![spec(Some((2, Window::Fixed(MINUTE))), None)]);
        for second in [0, 50] {
            let reservation = budgets.reserve(at(second), by("a")).unwrap();
            budgets.settle(reservation, Spending::Spent);
        }
        let exceeded = budgets.reserve(at(59), by("a")).unwrap_err();
        assert_eq!((exceeded.limit, exceeded.reset_after), (2, Some(Duration::from_secs(1))));
        assert!(budgets.reserve(at(59), by("b")).is_ok(), "each client has its own");
        assert!(budgets.reserve(at(60), by("a")).is_ok());
        assert!(budgets.reserve(at(60), by("a")).is_ok());
        assert!(budgets.reserve(at(110), by("a")).is_err());
    }

    #[test]
    fn g03_a_sliding_window_gives_room_one_call_at_a_time() {
        let mut budgets = Budgets::new(vec![spec(Some((2, Window::Sliding(MINUTE))), None)]);
        for second in [0, 50] {
            let reservation = budgets.reserve(at(second), by("a")).unwrap();
            budgets.settle(reservation, Spending::Spent);
        }
        assert_eq!(budgets.reserve(at(59), by("a")).unwrap_err().reset_after, Some(Duration::from_secs(1)));
        let reservation = budgets.reserve(at(60), by("a")).unwrap();
        budgets.settle(reservation, Spending::Spent);
        let exceeded = budgets.reserve(at(61), by("a")).unwrap_err();
        assert_eq!(exceeded.reset_after, Some(Duration::from_secs(49)));
    }

    #[test]
    fn g03_what_was_not_carried_out_is_given_back() {
        let mut budgets = Budgets::new(vec![spec(Some((1, Window::Fixed(MINUTE))), None)]);
        for _ in 0..5 {
            let reservation = budgets.reserve(at(0), by("a")).unwrap();
            budgets.settle(reservation, Spending::Refunded);
        }
        let spent = &budgets.usage(at(0))[0];
        assert_eq!((spent.calls, spent.most_calls, spent.in_flight), (0, Some(1), 0));
    }

    #[test]
    fn g03_calls_in_flight_are_counted_until_they_are_settled() {
        let mut budgets = Budgets::new(vec![spec(None, Some(1))]);
        let running = budgets.reserve(at(0), by("a")).unwrap();
        let exceeded = budgets.reserve(at(1000), by("a")).unwrap_err();
        assert_eq!((exceeded.limit, exceeded.reset_after), (1, None));
        budgets.settle(running, Spending::Spent);
        assert!(budgets.reserve(at(1000), by("a")).is_ok());
        let mut nothing = Budgets::new(vec![spec(None, Some(0))]);
        assert!(nothing.reserve(at(0), by("a")).is_err(), "a budget of nothing is a ban");
    }

    #[test]
    fn g03_a_call_that_one_budget_refuses_costs_nothing_in_the_others() {
        let wide = spec(Some((10, Window::Fixed(MINUTE))), None);
        let narrow = BudgetSpec { name: "narrow".to_owned(), ..spec(Some((1, Window::Fixed(MINUTE))), None) };
        let mut budgets = Budgets::new(vec![wide, narrow]);
        let reservation = budgets.reserve(at(0), by("a")).unwrap();
        budgets.settle(reservation, Spending::Spent);
        for _ in 0..5 {
            assert_eq!(budgets.reserve(at(1), by("a")).unwrap_err().budget, "narrow");
        }
        assert_eq!(budgets.usage(at(1)).iter().map(|spent| spent.calls).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn g03_a_call_that_was_under_way_when_budgets_were_replaced_makes_no_room_in_the_new_ones() {
        let one_at_a_time = || vec![spec(None, Some(1))];
        let mut budgets = Budgets::new(one_at_a_time());
        let old = budgets.reserve(at(0), by("a")).unwrap();
        budgets.replace(one_at_a_time());
        let present = budgets.reserve(at(1), by("a")).unwrap();
        budgets.settle(old, Spending::Spent);
        assert!(budgets.reserve(at(2), by("a")).is_err());
        budgets.settle(present, Spending::Spent);
        assert!(budgets.reserve(at(2), by("a")).is_ok());
    }

    #[test]
    fn counters_are_bounded_and_one_with_calls_in_flight_is_not_forgotten() {
        let mut budgets = Budgets::new(vec![spec(Some((1, Window::Sliding(MINUTE))), Some(1))]);
        let held = budgets.reserve(at(0), by("held")).unwrap();
        for number in 0..2 * Budgets::MOST_COUNTERS as u64 {
            let client = number.to_string();
            let reservation = budgets.reserve(at(1 + number / 1000), by(&client)).unwrap();
            budgets.settle(reservation, Spending::Spent);
        }
        assert!(budgets.counters.len() <= Budgets::MOST_COUNTERS);
        assert!(budgets.reserve(at(1), by("held")).is_err());
        budgets.settle(held, Spending::Spent);
    }

    proptest! {
        /// No sliding window ever holds more calls than its limit, and nothing stays in flight.
        #[test]
        fn g03_no_window_holds_more_than_its_limit(
            limit in 0u32..5,
            steps in prop::collection::vec((0u64..30, any::<bool>()), 0..60),
        ) {
            let mut budgets = Budgets::new(vec![spec(Some((limit, Window::Sliding(MINUTE))), None)]);
            let mut now = 0;
            let mut spent: Vec<u64> = Vec::new();
            for (pause, refunded) in steps {
                now += pause;
                let room = spent.iter().filter(|made| now - **made < 60).count() < limit as usize;
                match budgets.reserve(at(now), by("a")) {
                    Ok(reservation) => {
                        prop_assert!(room);
                        let spending = if refunded { Spending::Refunded } else { Spending::Spent };
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

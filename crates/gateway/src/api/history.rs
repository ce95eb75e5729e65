//! History of every server: its states of the last day and its calls per minute. Bounded and in memory only; it starts
//! empty with the gateway.

use super::convert::millis;
use super::enums;
use gripfast::sync::Mutex;
use gripfast::{CallStats, Event, Host, UpstreamEvent};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;

/// History of all servers, recorded by a background task.
pub(super) struct History {
    histories: Arc<Mutex<Histories>>,
    _writer: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Histories {
    /// In the order of the config.
    names: Vec<String>,
    servers: BTreeMap<String, ServerHistory>,
}

#[derive(Default)]
struct ServerHistory {
    states: VecDeque<Since>,
    minutes: VecDeque<Minute>,
    /// Counters at the end of the last minute.
    counted: Counted,
}

/// A state and its start.
#[derive(JsonSchema, Serialize, Clone, Debug, PartialEq)]
struct Since {
    /// Milliseconds since the Unix epoch.
    at: u64,
    #[schemars(schema_with = "enums::states")]
    state: &'static str,
}

/// The calls of one minute.
#[derive(JsonSchema, Serialize, Clone, Debug, PartialEq)]
struct Minute {
    /// End of the minute, in milliseconds since the Unix epoch.
    at: u64,
    calls: u64,
    errors: u64,
    tool_errors: u64,
    /// 95th percentile of the last calls; null if there was no call in this minute.
    p95_ms: Option<f64>,
}

#[derive(Default, Clone, Copy)]
struct Counted {
    calls: u64,
    errors: u64,
    tool_errors: u64,
}

/// History of all servers.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "History")]
pub(super) struct HistoryView {
    servers: Vec<PastView>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Past")]
struct PastView {
    name: String,
    states: Vec<Since>,
    minutes: Vec<Minute>,
}

const DAY: Duration = Duration::from_secs(24 * 3600);
const MINUTE: Duration = Duration::from_secs(60);
/// State changes kept per server. A server that changes more often loses the older part of the day.
const MAX_STATES: usize = 1000;
/// Three hours.
const MAX_MINUTES: usize = 180;

impl History {
    /// Starts recording on the current Tokio runtime.
    pub(super) fn spawn(host: &Host) -> Self {
        let histories: Arc<Mutex<Histories>> = Arc::default();
        let writer = tokio::spawn(record(Arc::clone(&histories), host.clone()));
        Self { histories, _writer: AbortOnDropHandle::new(writer) }
    }

    pub(super) fn view(&self) -> HistoryView {
        let histories = self.histories.lock();
        let servers = histories.names.iter().filter_map(|name| {
            let past = histories.servers.get(name)?;
            Some(PastView {
                name: name.clone(),
                states: past.states.iter().cloned().collect(),
                minutes: past.minutes.iter().cloned().collect(),
            })
        });
        HistoryView { servers: servers.collect() }
    }
}

async fn record(histories: Arc<Mutex<Histories>>, host: Host) {
    let mut events = host.subscribe_events();
    let mut minutes = tokio::time::interval(MINUTE);
    minutes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is immediate and takes the initial counters.
    loop {
        tokio::select! {
            _ = minutes.tick() => histories.lock().count(&host, millis(gripfast::unix_time())),
            received = events.recv() => match received {
                Ok(received) => histories.lock().on_event(&received),
                // Missed changes are corrected at the next minute.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
        }
    }
}

impl Histories {
    fn on_event(&mut self, received: &UpstreamEvent) {
        let UpstreamEvent { server: Some(server), instance: None, event, .. } = received else { return };
        let Event::StateChanged { to, .. } = event else { return };
        if let Some(past) = self.servers.get_mut(&**server) {
            past.enter_state(millis(received.at.since_epoch()), to.as_str());
        }
    }

    /// Closes a minute: adds new servers and drops removed ones.
    fn count(&mut self, host: &Host, at: u64) {
        let statuses = host.status();
        self.names = statuses.iter().map(|status| status.name.clone()).collect();
        self.servers.retain(|name, _| self.names.contains(name));
        for status in statuses {
            match self.servers.get_mut(&status.name) {
                Some(past) => {
                    past.enter_state(at, status.supervision.state.as_str());
                    past.count(at, &status.calls);
                }
                None => {
                    let mut past =
                        ServerHistory { counted: Counted::of(&status.calls), ..ServerHistory::default() };
                    past.enter_state(at, status.supervision.state.as_str());
                    self.servers.insert(status.name, past);
                }
            }
        }
    }
}

impl ServerHistory {
    fn enter_state(&mut self, at: u64, state: &'static str) {
        let day = millis(DAY);
        // The last state before the day is kept: it is the state at the start of the day.
        while self.states.get(1).is_some_and(|next| next.at + day < at) || self.states.len() >= MAX_STATES {
            self.states.pop_front();
        }
        if self.states.back().is_none_or(|last| last.state != state && last.at <= at) {
            self.states.push_back(Since { at, state });
        }
    }

    fn count(&mut self, at: u64, stats: &CallStats) {
        let (before, now) = (self.counted, Counted::of(stats));
        let calls = now.calls.saturating_sub(before.calls);
        let p95 = stats.p95.filter(|_| calls > 0);
        if self.minutes.len() == MAX_MINUTES {
            self.minutes.pop_front();
        }
        self.minutes.push_back(Minute {
            at,
            calls,
            errors: now.errors.saturating_sub(before.errors),
            tool_errors: now.tool_errors.saturating_sub(before.tool_errors),
            p95_ms: p95.map(|p95| p95.as_secs_f64() * 1000.0),
        });
        self.counted = now;
    }
}

impl Counted {
    fn of(stats: &CallStats) -> Self {
        Self { calls: stats.calls, errors: stats.errors, tool_errors: stats.tool_errors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::{State, Wall};

    #[test]
    fn repeated_states_are_merged_and_one_day_is_kept() {
        let (hour, mut past) = (3_600_000, ServerHistory::default());
        past.enter_state(0, "starting");
        past.enter_state(1, "ready");
        past.enter_state(2, "ready");
        past.enter_state(30 * hour, "reconnecting");
        assert_eq!(
            past.states,
            [Since { at: 1, state: "ready" }, Since { at: 30 * hour, state: "reconnecting" }]
        );
        past.enter_state(60 * hour, "ready");
        assert_eq!(past.states.len(), 2, "the state at the start of the day, and the changes after it");
    }

    /// The data of the ribbon in the dashboard, over more than a day.
    #[test]
    fn the_history_of_a_day_has_every_state_change_of_the_server() {
        const HOUR: u64 = 3_600_000;
        let mut histories = Histories { names: vec!["notes".to_owned()], ..Histories::default() };
        histories.servers.insert("notes".to_owned(), ServerHistory::default());
        let mut on_event = |at: u64, instance: Option<u64>, to: State| {
            let event = Event::StateChanged { from: State::Starting, to, cause: None };
            let at = Wall::from_unix_epoch(Duration::from_millis(at));
            histories.on_event(&UpstreamEvent { server: Some("notes".into()), instance, at, event });
        };
        on_event(0, None, State::Ready);
        on_event(5 * HOUR, None, State::Reconnecting);
        on_event(5 * HOUR + 2000, None, State::Ready);
        on_event(20 * HOUR, None, State::Parked);
        on_event(23 * HOUR, None, State::Ready);
        // A dedicated instance does not change the state of the server.
        on_event(29 * HOUR, Some(7), State::Parked);
        let past = histories.servers.get_mut("notes").unwrap();
        for minute in 0..=60 {
            past.enter_state(29 * HOUR + minute * 60_000, "ready");
        }
        let shown: Vec<_> = past.states.iter().map(|since| (since.at, since.state)).collect();
        assert_eq!(shown, [(5 * HOUR + 2000, "ready"), (20 * HOUR, "parked"), (23 * HOUR, "ready")]);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut past = ServerHistory::default();
        for at in 0..5000 {
            past.enter_state(at, if at % 2 == 0 { "ready" } else { "reconnecting" });
            past.count(at, &CallStats::default());
        }
        assert_eq!((past.states.len(), past.minutes.len()), (MAX_STATES, MAX_MINUTES));
    }

    #[test]
    fn a_minute_counts_the_calls_of_that_minute() {
        let mut past = ServerHistory::default();
        let stats = |calls, errors| CallStats {
            calls,
            errors,
            p95: Some(Duration::from_millis(20)),
            ..CallStats::default()
        };
        past.count(1, &stats(5, 1));
        past.count(2, &stats(7, 1));
        past.count(3, &stats(7, 1));
        let shown: Vec<_> =
            past.minutes.iter().map(|minute| (minute.calls, minute.errors, minute.p95_ms)).collect();
        assert_eq!(shown, [(5, 1, Some(20.0)), (2, 0, Some(20.0)), (0, 0, None)]);
    }
}

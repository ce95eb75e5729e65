//! The last day of every server: which states it was in, and its calls by the minute. In memory and bounded;
//! a restart of the gateway begins anew.

use super::view::millis;
use super::words;
use gripfast::{CallStats, Event, Host, UpstreamEvent};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;

/// What is remembered of all servers.
pub(super) struct History {
    kept: Arc<Mutex<Kept>>,
    _writer: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Kept {
    /// In the order of the config.
    names: Vec<String>,
    servers: BTreeMap<String, Past>,
}

#[derive(Default)]
struct Past {
    states: VecDeque<Since>,
    minutes: VecDeque<Minute>,
    /// The counters at the end of the last minute.
    counted: Counted,
}

/// The state that began then.
#[derive(JsonSchema, Serialize, Clone, Debug, PartialEq)]
struct Since {
    /// Milliseconds since the Unix epoch.
    at: u64,
    #[schemars(schema_with = "words::states")]
    state: &'static str,
}

/// The calls of one minute.
#[derive(JsonSchema, Serialize, Clone, Debug, PartialEq)]
struct Minute {
    /// Its end, in milliseconds since the Unix epoch.
    at: u64,
    calls: u64,
    errors: u64,
    tool_errors: u64,
    /// Of the last calls up to then, if there were any in this minute.
    p95_ms: Option<f64>,
}

#[derive(Default, Clone, Copy)]
struct Counted {
    calls: u64,
    errors: u64,
    tool_errors: u64,
}

/// The past as it is shown.
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
/// State changes of one server. One that changes more often than every other minute all day loses the morning.
const MOST_STATES: usize = 1000;
/// Three hours.
const MOST_MINUTES: usize = 180;

impl History {
    /// Begins to remember, on the tokio runtime that this is called on.
    pub(super) fn of(host: &Host) -> Self {
        let kept: Arc<Mutex<Kept>> = Arc::default();
        let writer = tokio::spawn(remember(Arc::clone(&kept), host.clone()));
        Self { kept, _writer: AbortOnDropHandle::new(writer) }
    }

    pub(super) fn view(&self) -> HistoryView {
        let kept = lock(&self.kept);
        let servers = kept.names.iter().filter_map(|name| {
            let past = kept.servers.get(name)?;
            Some(PastView {
                name: name.clone(),
                states: past.states.iter().cloned().collect(),
                minutes: past.minutes.iter().cloned().collect(),
            })
        });
        HistoryView { servers: servers.collect() }
    }
}

async fn remember(kept: Arc<Mutex<Kept>>, host: Host) {
    let mut events = host.events();
    let mut minutes = tokio::time::interval(MINUTE);
    minutes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is at once: nothing was counted before it.
    loop {
        tokio::select! {
            _ = minutes.tick() => lock(&kept).count(&host, now()),
            told = events.recv() => match told {
                Ok(told) => lock(&kept).hear(&told),
                // What was missed shows with the next minute.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
        }
    }
}

impl Kept {
    fn hear(&mut self, told: &UpstreamEvent) {
        let UpstreamEvent { server: Some(server), instance: None, event, .. } = told else { return };
        let Event::StateChanged { to, .. } = event else { return };
        if let Some(past) = self.servers.get_mut(&**server) {
            past.enter(millis(told.at.since_epoch()), to.word());
        }
    }

    /// A minute has passed: servers that are new are taken up, those that are gone are forgotten.
    fn count(&mut self, host: &Host, at: u64) {
        let statuses = host.status();
        self.names = statuses.iter().map(|status| status.name.clone()).collect();
        self.servers.retain(|name, _| self.names.contains(name));
        for status in statuses {
            match self.servers.get_mut(&status.name) {
                Some(past) => {
                    past.enter(at, status.supervision.state.word());
                    past.count(at, &status.calls);
                }
                None => {
                    let mut past = Past { counted: Counted::of(&status.calls), ..Past::default() };
                    past.enter(at, status.supervision.state.word());
                    self.servers.insert(status.name, past);
                }
            }
        }
    }
}

impl Past {
    fn enter(&mut self, at: u64, state: &'static str) {
        let day = millis(DAY);
        // The last state before the day still says how the day began.
        while self.states.get(1).is_some_and(|next| next.at + day < at) || self.states.len() >= MOST_STATES {
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
        if self.minutes.len() == MOST_MINUTES {
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

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::{State, Wall};

    #[test]
    fn states_are_told_apart_and_a_day_is_kept() {
        let (hour, mut past) = (3_600_000, Past::default());
        past.enter(0, "starting");
        past.enter(1, "ready");
        past.enter(2, "ready");
        past.enter(30 * hour, "reconnecting");
        assert_eq!(
            past.states,
            [Since { at: 1, state: "ready" }, Since { at: 30 * hour, state: "reconnecting" }]
        );
        past.enter(60 * hour, "ready");
        assert_eq!(past.states.len(), 2, "how the day began, and what came after");
    }

    /// What the ribbon of the dashboard is drawn from, over a day and a night.
    #[test]
    fn a_whole_day_is_shown_with_every_change_of_the_server_in_it() {
        const HOUR: u64 = 3_600_000;
        let mut kept = Kept { names: vec!["notes".to_owned()], ..Kept::default() };
        kept.servers.insert("notes".to_owned(), Past::default());
        let mut hear = |at: u64, instance: Option<u64>, to: State| {
            let event = Event::StateChanged { from: State::Starting, to, cause: None };
            let at = Wall::at(Duration::from_millis(at));
            kept.hear(&UpstreamEvent { server: Some("notes".into()), instance, at, event });
        };
        hear(0, None, State::Ready);
        hear(5 * HOUR, None, State::Reconnecting);
        hear(5 * HOUR + 2000, None, State::Ready);
        hear(20 * HOUR, None, State::Parked);
        hear(23 * HOUR, None, State::Ready);
        // One that a single client has for itself is not the server that everybody uses.
        hear(29 * HOUR, Some(7), State::Parked);
        let past = kept.servers.get_mut("notes").unwrap();
        for minute in 0..=60 {
            past.enter(29 * HOUR + minute * 60_000, "ready");
        }
        let shown: Vec<_> = past.states.iter().map(|since| (since.at, since.state)).collect();
        assert_eq!(shown, [(5 * HOUR + 2000, "ready"), (20 * HOUR, "parked"), (23 * HOUR, "ready")]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut past = Past::default();
        for at in 0..5000 {
            past.enter(at, if at % 2 == 0 { "ready" } else { "reconnecting" });
            past.count(at, &CallStats::default());
        }
        assert_eq!((past.states.len(), past.minutes.len()), (MOST_STATES, MOST_MINUTES));
    }

    #[test]
    fn a_minute_has_the_calls_of_that_minute() {
        let mut past = Past::default();
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

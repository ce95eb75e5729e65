//! Events as log lines, without repetitions.
//!
//! `gripfast_core::log_dedup` decides which events are logged and which are only counted. A task writes the counts
//! that are due, and ends when there are none.

use crate::clock::Clock;
use crate::sync::Mutex;
use gripfast_core::event::Event;
use gripfast_core::log_dedup::{LogDedup, LogLine};
use gripfast_core::supervise::status::State;
use gripfast_core::text::times;
use gripfast_core::time::Mono;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// Log writer of one upstream.
#[derive(Debug)]
pub(super) struct Log {
    writer: Arc<LogWriter>,
    runtime: Handle,
    /// Task that writes the counts of repeated events.
    repeat_task: Mutex<Option<AbortOnDropHandle<()>>>,
}

#[derive(Debug)]
struct LogWriter {
    server: Arc<str>,
    instance: Option<u64>,
    clock: Clock,
    state: Mutex<LogState>,
}

#[derive(Debug, Default)]
struct LogState {
    dedup: LogDedup,
    /// True while a task will write the counts that are due.
    has_repeat_task: bool,
}

impl Log {
    /// Runs its task on the Tokio runtime of the caller.
    pub(super) fn new(server: Arc<str>, instance: Option<u64>, clock: Clock) -> Self {
        let writer = Arc::new(LogWriter { server, instance, clock, state: Mutex::default() });
        Self { writer, runtime: Handle::current(), repeat_task: Mutex::default() }
    }

    pub(super) fn write(&self, now: Mono, event: Event) {
        let (lines, uncounted) = {
            let mut state = self.writer.state.lock();
            let lines = state.dedup.record(now, event);
            let uncounted = state.dedup.poll_timeout().is_some() && !state.has_repeat_task;
            state.has_repeat_task |= uncounted;
            (lines, uncounted)
        };
        self.writer.write(&lines);
        if uncounted {
            let counting =
                AbortOnDropHandle::new(self.runtime.spawn(write_repeat_counts(Arc::clone(&self.writer))));
            *self.repeat_task.lock() = Some(counting);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let lines = self.writer.state.lock().dedup.finish();
        self.writer.write(&lines);
    }
}

/// Writes counts when they are due; ends when there are none.
async fn write_repeat_counts(writer: Arc<LogWriter>) {
    while let Some(due) = writer.next_repeat_count() {
        tokio::time::sleep_until(writer.clock.instant(due)).await;
        let lines = writer.state.lock().dedup.handle_timeout(writer.clock.mono());
        writer.write(&lines);
    }
}

impl LogWriter {
    fn next_repeat_count(&self) -> Option<Mono> {
        let mut state = self.state.lock();
        let due = state.dedup.poll_timeout();
        state.has_repeat_task = due.is_some();
        due
    }

    fn write(&self, lines: &[LogLine]) {
        lines.iter().for_each(|line| match self.instance {
            None => write(&self.server, line),
            Some(instance) => write_of_instance(&self.server, instance, line),
        });
    }
}

/// Dedicated instances come and go with their clients: only their failures are logged as warnings.
fn write_of_instance(server: &str, instance: u64, line: &LogLine) {
    let (LogLine { event, repeated }, again) = (line, repeat_text(line));
    match event {
        Event::StateChanged { to: State::Parked | State::NeedsLogin | State::ConfigError, .. }
        | Event::CircuitOpened { .. } => {
            tracing::warn!(server, instance, repeated, "instance {instance} of `{server}`: {event}{again}");
        }
        _ => tracing::debug!(server, instance, repeated, "instance {instance} of `{server}`: {event}{again}"),
    }
}

fn repeat_text(line: &LogLine) -> String {
    match line.repeated {
        0 => String::new(),
        count => format!(" ({} more)", times(count)),
    }
}

fn write(server: &str, line: &LogLine) {
    let (LogLine { event, repeated }, again) = (line, repeat_text(line));
    match event {
        Event::StateChanged { from, to, cause } => {
            let (from, to_word, cause) = (from.as_str(), to.as_str(), cause.as_deref().unwrap_or_default());
            match to {
                State::Ready
                | State::Idle
                | State::Starting
                | State::Disabled
                | State::Stopped
                | State::Degraded
                | State::Reconnecting
                | State::NeedsApproval => {
                    tracing::info!(server, from, to = to_word, cause, repeated, "`{server}`: {event}{again}");
                }
                State::Parked | State::NeedsLogin | State::ConfigError => {
                    tracing::warn!(server, from, to = to_word, cause, repeated, "`{server}`: {event}{again}");
                }
            }
        }
        Event::Restarting { in_window } => {
            tracing::debug!(server, in_window, repeated, "`{server}`: {event}{again}");
        }
        Event::Revived { away } => {
            let away_ms = away.as_millis() as u64;
            tracing::info!(server, away_ms, repeated, "`{server}`: {event}{again}");
        }
        Event::SessionRenewed
        | Event::CredentialRenewed
        | Event::CircuitClosed
        | Event::ClientsIsolated
        | Event::Replacing { .. }
        | Event::Replaced
        | Event::SpareReady
        | Event::SpareUsed => {
            tracing::info!(server, repeated, "`{server}`: {event}{again}");
        }
        Event::NameConflicts { names } if names.is_empty() => {
            tracing::info!(server, repeated, "`{server}`: {event}{again}");
        }
        Event::NameConflicts { .. } => tracing::warn!(server, repeated, "`{server}`: {event}{again}"),
        Event::SessionRestored { missing } if missing.is_empty() => {
            tracing::info!(server, repeated, "`{server}`: {event}{again}");
        }
        Event::SessionRestored { .. } => tracing::warn!(server, repeated, "`{server}`: {event}{again}"),
        Event::CircuitOpened { failures, .. } => {
            tracing::warn!(server, failures, repeated, "`{server}`: {event}{again}");
        }
        Event::PrincipalRefused { principal, deaths, .. } => {
            tracing::warn!(server, principal, deaths, repeated, "`{server}`: {event}: `{principal}`{again}");
        }
        Event::ProbeFailed { cause } => tracing::info!(server, cause, repeated, "`{server}`: {event}{again}"),
        Event::MachineSlept => tracing::debug!(server, repeated, "`{server}`: {event}{again}"),
        Event::CatalogChanged { added, removed, changed } => {
            tracing::info!(server, added, removed, changed, repeated, "`{server}`: {event}{again}");
        }
        Event::CatalogFailed { cause } | Event::ReplacementFailed { cause } | Event::SpareLost { cause } => {
            tracing::warn!(server, cause, repeated, "`{server}`: {event}{again}");
        }
        Event::ToolsChanged { tools, .. }
        | Event::ToolsSuspicious { tools }
        | Event::NewTools { tools, held: true }
        | Event::TextsChanged { items: tools, .. } => {
            tracing::warn!(server, ?tools, repeated, "`{server}`: {event}{again}")
        }
        Event::TooManyTools { hidden, limit } => {
            tracing::warn!(server, hidden, limit, repeated, "`{server}`: {event}{again}")
        }
        Event::ToolsApproved { tools } | Event::NewTools { tools, held: false } => {
            tracing::info!(server, ?tools, repeated, "`{server}`: {event}{again}")
        }
        Event::MessagesDropped { dropped } => {
            tracing::warn!(server, dropped, repeated, "`{server}`: {event}{again}");
        }
        Event::JunkSkipped { lines, .. } => {
            tracing::warn!(server, lines, repeated, "`{server}`: {event}{again}");
        }
        // These belong to no server and are logged where they are recorded.
        Event::Security(_) => tracing::debug!(server, repeated, "`{server}`: {event}{again}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tracing::field::{Field, Visit};
    use tracing::span;

    /// Records the messages of all log lines.
    #[derive(Clone, Default)]
    struct Reader(Arc<Mutex<Vec<String>>>);

    struct Message<'m>(&'m mut Vec<String>);

    impl Visit for Message<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            if field.name() == "message" {
                self.0.push(format!("{value:?}"));
            }
        }
    }

    impl tracing::Subscriber for Reader {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut Message(&mut self.0.lock()));
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    impl Reader {
        fn read(&self) -> Vec<String> {
            std::mem::take(&mut *self.0.lock())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn f04_repeated_lines_are_counted_and_the_count_is_logged_without_further_events() {
        let reader = Reader::default();
        let _reading = tracing::subscriber::set_default(reader.clone());
        let clock = Clock::new();
        let log = Log::new("demo".into(), None, clock);
        let say = |event: &Event| log.write(clock.mono(), event.clone());
        let lost = Event::ProbeFailed { cause: "no answer within 30 s".to_owned() };
        for _ in 0..5 {
            say(&lost);
            say(&Event::SessionRenewed);
        }
        let first = "`demo`: did not answer a probe: no answer within 30 s";
        let second = "`demo`: lost its session and has a new one";
        assert_eq!(reader.read(), [first, second]);
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(reader.read(), [format!("{first} (4 times more)"), format!("{second} (4 times more)")]);
        say(&lost);
        assert_eq!(reader.read(), [""; 0]);
        drop(log);
        assert_eq!(reader.read(), [format!("{first} (once more)")], "the last count is logged at the end");
    }
}

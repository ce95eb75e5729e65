//! Events as log lines: what an operator would tell a colleague, and once.
//!
//! `gripfast_core::repeats` decides what is said and what is only counted. A count that is due is said by a
//! task that lives as long as there is one.

use crate::clock::Clock;
use gripfast_core::event::Event;
use gripfast_core::repeats::{Line, Repeats};
use gripfast_core::supervise::status::State;
use gripfast_core::text::times;
use gripfast_core::time::Mono;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// The log of one upstream.
#[derive(Debug)]
pub(super) struct Log {
    pages: Arc<Pages>,
    runtime: Handle,
    /// Says the counts that are due.
    counting: Mutex<Option<AbortOnDropHandle<()>>>,
}

#[derive(Debug)]
struct Pages {
    server: Arc<str>,
    instance: Option<u64>,
    clock: Clock,
    said: Mutex<Said>,
}

#[derive(Debug, Default)]
struct Said {
    repeats: Repeats,
    /// Whether somebody will say the counts that are due.
    is_counted: bool,
}

impl Log {
    /// Counts on the runtime that this is called on.
    pub(super) fn new(server: Arc<str>, instance: Option<u64>, clock: Clock) -> Self {
        let pages = Arc::new(Pages { server, instance, clock, said: Mutex::default() });
        Self { pages, runtime: Handle::current(), counting: Mutex::default() }
    }

    pub(super) fn write(&self, now: Mono, event: Event) {
        let (lines, uncounted) = {
            let mut said = self.pages.lock();
            let lines = said.repeats.hear(now, event);
            let uncounted = said.repeats.poll_timeout().is_some() && !said.is_counted;
            said.is_counted |= uncounted;
            (lines, uncounted)
        };
        self.pages.write(&lines);
        if uncounted {
            let counting = AbortOnDropHandle::new(self.runtime.spawn(count(Arc::clone(&self.pages))));
            *self.counting.lock().unwrap_or_else(PoisonError::into_inner) = Some(counting);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let lines = self.pages.lock().repeats.finish();
        self.pages.write(&lines);
    }
}

/// Ends when there is nothing to count.
async fn count(pages: Arc<Pages>) {
    while let Some(due) = pages.next_count() {
        tokio::time::sleep_until(pages.clock.instant(due)).await;
        let lines = pages.lock().repeats.handle_timeout(pages.clock.mono());
        pages.write(&lines);
    }
}

impl Pages {
    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_count(&self) -> Option<Mono> {
        let mut said = self.lock();
        let due = said.repeats.poll_timeout();
        said.is_counted = due.is_some();
        due
    }

    fn write(&self, lines: &[Line]) {
        lines.iter().for_each(|line| match self.instance {
            None => write(&self.server, line),
            Some(instance) => write_of_instance(&self.server, instance, line),
        });
    }
}

/// Instances of single clients come and go with them: only their troubles are worth an operator's while.
fn write_of_instance(server: &str, instance: u64, line: &Line) {
    let (Line { event, repeated }, again) = (line, again(line));
    match event {
        Event::StateChanged { to: State::Parked | State::NeedsLogin | State::ConfigError, .. }
        | Event::CircuitOpened { .. } => {
            tracing::warn!(server, instance, repeated, "instance {instance} of `{server}` {event}{again}");
        }
        _ => tracing::debug!(server, instance, repeated, "instance {instance} of `{server}` {event}{again}"),
    }
}

fn again(line: &Line) -> String {
    match line.repeated {
        0 => String::new(),
        count => format!(" ({} more)", times(count)),
    }
}

fn write(server: &str, line: &Line) {
    let (Line { event, repeated }, again) = (line, again(line));
    match event {
        Event::StateChanged { from, to, cause } => {
            let (from, to_word, cause) = (from.word(), to.word(), cause.as_deref().unwrap_or_default());
            match to {
                State::Ready
                | State::Idle
                | State::Starting
                | State::Disabled
                | State::Stopped
                | State::Degraded
                | State::Reconnecting
                | State::NeedsApproval => {
                    tracing::info!(server, from, to = to_word, cause, repeated, "`{server}` {event}{again}");
                }
                State::Parked | State::NeedsLogin | State::ConfigError => {
                    tracing::warn!(server, from, to = to_word, cause, repeated, "`{server}` {event}{again}");
                }
            }
        }
        Event::Restarting { in_window } => {
            tracing::debug!(server, in_window, repeated, "`{server}` {event}{again}");
        }
        Event::Revived { away } => {
            let away_ms = away.as_millis() as u64;
            tracing::info!(server, away_ms, repeated, "`{server}` {event}{again}");
        }
        Event::SessionRenewed
        | Event::CredentialRenewed
        | Event::CircuitClosed
        | Event::ClientsSeparated
        | Event::Replacing { .. }
        | Event::Replaced
        | Event::SpareReady
        | Event::SpareUsed => {
            tracing::info!(server, repeated, "`{server}` {event}{again}");
        }
        Event::NamesGaveWay { names } if names.is_empty() => {
            tracing::info!(server, repeated, "`{server}` {event}{again}");
        }
        Event::NamesGaveWay { .. } => tracing::warn!(server, repeated, "`{server}` {event}{again}"),
        Event::SessionRestored { missing } if missing.is_empty() => {
            tracing::info!(server, repeated, "`{server}` {event}{again}");
        }
        Event::SessionRestored { .. } => tracing::warn!(server, repeated, "`{server}` {event}{again}"),
        Event::CircuitOpened { failures, .. } => {
            tracing::warn!(server, failures, repeated, "`{server}` {event}{again}");
        }
        Event::PrincipalRefused { principal, deaths, .. } => {
            tracing::warn!(server, principal, deaths, repeated, "`{server}` {event}: `{principal}`{again}");
        }
        Event::ProbeFailed { cause } => tracing::info!(server, cause, repeated, "`{server}` {event}{again}"),
        Event::Slept => tracing::debug!(server, repeated, "`{server}` {event}{again}"),
        Event::CatalogChanged { added, removed, changed } => {
            tracing::info!(server, added, removed, changed, repeated, "`{server}` {event}{again}");
        }
        Event::CatalogFailed { cause } | Event::ReplacementFailed { cause } | Event::SpareLost { cause } => {
            tracing::warn!(server, cause, repeated, "`{server}` {event}{again}");
        }
        Event::ToolsChanged { tools, .. }
        | Event::ToolsSuspicious { tools }
        | Event::NewTools { tools, held: true }
        | Event::TextsChanged { items: tools, .. } => {
            tracing::warn!(server, ?tools, repeated, "`{server}` {event}{again}")
        }
        Event::TooManyTools { hidden, limit } => {
            tracing::warn!(server, hidden, limit, repeated, "`{server}` {event}{again}")
        }
        Event::ToolsApproved { tools } | Event::NewTools { tools, held: false } => {
            tracing::info!(server, ?tools, repeated, "`{server}` {event}{again}")
        }
        Event::MessagesDropped { dropped } => {
            tracing::warn!(server, dropped, repeated, "`{server}` {event}{again}");
        }
        Event::JunkSkipped { lines, .. } => {
            tracing::warn!(server, lines, repeated, "`{server}` {event}{again}");
        }
        // These belong to no server and are logged where they are recorded.
        Event::Security(_) => tracing::debug!(server, repeated, "`{server}` {event}{again}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tracing::field::{Field, Visit};
    use tracing::span;

    /// Keeps the messages of all log lines.
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
            event.record(&mut Message(&mut self.0.lock().unwrap()));
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    impl Reader {
        fn read(&self) -> Vec<String> {
            std::mem::take(&mut *self.0.lock().unwrap())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn f04_repeated_lines_are_counted_and_the_count_is_said_though_nothing_follows() {
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
        let first = "`demo` did not answer a probe: no answer within 30 s";
        let second = "`demo` forgot its session and has a new one";
        assert_eq!(reader.read(), [first, second]);
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(reader.read(), [format!("{first} (4 times more)"), format!("{second} (4 times more)")]);
        say(&lost);
        assert_eq!(reader.read(), [""; 0]);
        drop(log);
        assert_eq!(reader.read(), [format!("{first} (once more)")], "what was counted is said in the end");
    }
}

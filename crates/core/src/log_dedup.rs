//! Log deduplication: repeated events are counted instead of logged, so that a server that crashes four times a second
//! all night does not fill the disk.
//!
//! A new event is logged at once. Within a window after that, repetitions are counted; at its end the count is logged
//! and the next window starts. An event that does not occur in a window is new again.

use crate::event::Event;
use crate::time::Mono;
use std::time::Duration;

/// Recently logged events of one upstream with their repetitions.
#[derive(Debug, Default)]
pub struct LogDedup {
    recent: Vec<LoggedText>,
}

#[derive(Debug)]
struct LoggedText {
    event: Event,
    /// The time of the last log line.
    logged_at: Mono,
    /// Repetitions since then.
    suppressed: u64,
}

/// A line to log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The event, in its latest form.
    pub event: Event,
    /// Number of repetitions since the last line; zero for a new event.
    pub repeated: u64,
}

impl LogDedup {
    /// Window in which repetitions are counted.
    pub const WINDOW: Duration = Duration::from_secs(60);
    /// Maximum number of tracked events. A flapping server has about six. Beyond this, the event that was logged
    /// longest ago is dropped, and its count is logged.
    pub const MAX_TRACKED: usize = 16;

    /// Records an event. Returns the lines to log for it and for events whose window has ended.
    pub fn record(&mut self, now: Mono, event: Event) -> Vec<LogLine> {
        let mut lines = self.handle_timeout(now);
        if let Some(entry) = self.recent.iter_mut().find(|entry| event.is_repeat_of(&entry.event)) {
            entry.event = event;
            entry.suppressed += 1;
            return lines;
        }
        if self.recent.len() == Self::MAX_TRACKED {
            // The entries are in the order of their last line.
            lines.extend(self.recent.remove(0).into_line());
        }
        self.recent.push(LoggedText { event: event.clone(), logged_at: now, suppressed: 0 });
        lines.push(LogLine { event, repeated: 0 });
        lines
    }

    /// The time at which a count is due.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.recent
            .iter()
            .filter(|entry| entry.suppressed > 0)
            .map(|entry| entry.logged_at + Self::WINDOW)
            .min()
    }

    /// Returns the counts that are due.
    pub fn handle_timeout(&mut self, now: Mono) -> Vec<LogLine> {
        let (over, mut rest): (Vec<LoggedText>, Vec<LoggedText>) = std::mem::take(&mut self.recent)
            .into_iter()
            .partition(|entry| entry.logged_at + Self::WINDOW <= now);
        let mut lines = Vec::new();
        for entry in over {
            if let Some(line) = entry.into_line() {
                rest.push(LoggedText { event: line.event.clone(), logged_at: now, suppressed: 0 });
                lines.push(line);
            }
        }
        self.recent = rest;
        lines
    }

    /// Returns all counts, at the end of logging.
    pub fn finish(&mut self) -> Vec<LogLine> {
        std::mem::take(&mut self.recent).into_iter().filter_map(LoggedText::into_line).collect()
    }
}

impl LoggedText {
    fn into_line(self) -> Option<LogLine> {
        (self.suppressed > 0).then_some(LogLine { event: self.event, repeated: self.suppressed })
    }
}

/// Throttle for one repeated log line: logged at once, then counted for a minute.
#[derive(Debug, Default)]
pub struct LogThrottle {
    logged_at: Option<Mono>,
    suppressed: u64,
}

impl LogThrottle {
    /// Records an occurrence. Returns the number of suppressed occurrences if a line is due.
    pub fn record(&mut self, now: Mono) -> Option<u64> {
        if self.logged_at.is_some_and(|at| now - at < LogDedup::WINDOW) {
            self.suppressed += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Mono {
        Mono::from_origin(Duration::from_millis(millis))
    }

    fn failed(cause: &str) -> Event {
        Event::CatalogFailed { cause: cause.to_owned() }
    }

    fn said(event: Event, repeated: u64) -> LogLine {
        LogLine { event, repeated }
    }

    #[test]
    fn f04_a_flapping_server_logs_a_few_lines_per_minute() {
        let mut repeats = LogDedup::default();
        let mut lines = Vec::new();
        for flap in 0..4 * 60 {
            lines.extend(repeats.record(at(flap * 250), failed("exited with code 1")));
            lines.extend(
                repeats.record(at(flap * 250 + 100), Event::Revived { away: Duration::from_millis(flap) }),
            );
        }
        assert_eq!(
            lines,
            [said(failed("exited with code 1"), 0), said(Event::Revived { away: Duration::ZERO }, 0)]
        );
        assert_eq!(repeats.poll_timeout(), Some(at(60_000)));
        assert_eq!(repeats.handle_timeout(at(60_000)), [said(failed("exited with code 1"), 239)]);
        let latest = Event::Revived { away: Duration::from_millis(239) };
        assert_eq!(repeats.handle_timeout(at(60_100)), [said(latest, 239)]);
        assert_eq!(repeats.poll_timeout(), None);
    }

    #[test]
    fn f04_an_event_ten_times_per_second_is_one_line_per_minute() {
        let mut throttle = LogThrottle::default();
        let lines: Vec<u64> = (0..1200).filter_map(|tenth| throttle.record(at(tenth * 100))).collect();
        assert_eq!(lines, [0, 599]);
        assert_eq!(throttle.record(at(119_999)), None);
        assert_eq!(throttle.record(at(120_000)), Some(600));
    }

    #[test]
    fn f04_an_event_that_did_not_occur_in_a_window_is_new_again() {
        let mut repeats = LogDedup::default();
        assert_eq!(repeats.record(at(0), failed("a")).len(), 1);
        assert_eq!(repeats.record(at(59_999), failed("a")), []);
        assert_eq!(repeats.handle_timeout(at(60_000)), [said(failed("a"), 1)]);
        assert_eq!(repeats.record(at(120_000), failed("a")), [said(failed("a"), 0)]);
    }

    #[test]
    fn f04_an_overdue_count_is_logged_before_the_next_line() {
        let mut repeats = LogDedup::default();
        repeats.record(at(0), failed("a"));
        repeats.record(at(1), failed("a"));
        assert_eq!(repeats.record(at(70_000), failed("b")), [said(failed("a"), 1), said(failed("b"), 0)]);
        repeats.record(at(70_001), failed("b"));
        assert_eq!(repeats.finish(), [said(failed("b"), 1)]);
    }

    proptest! {
        /// F04: every event is logged or counted, an event is logged at most once per window, and the number of tracked
        /// events stays bounded.
        #[test]
        fn f04_any_history_keeps_the_counts_and_bounds_the_log(
            heard in prop::collection::vec((0_u64..20_000, 0_u32..40), 0..200)
        ) {
            let mut repeats = LogDedup::default();
            let mut now = 0;
            let mut lines: Vec<(u64, LogLine)> = Vec::new();
            for (pause, cause) in &heard {
                now += pause;
                let said = repeats.record(at(now), failed(&cause.to_string()));
                lines.extend(said.into_iter().map(|line| (now, line)));
                prop_assert!(repeats.recent.len() <= LogDedup::MAX_TRACKED);
                prop_assert!(repeats.poll_timeout().is_none_or(|due| due > at(now)));
            }
            lines.extend(repeats.finish().into_iter().map(|line| (now, line)));
            let told: u64 = lines.iter().map(|(_, line)| if line.repeated == 0 { 1 } else { line.repeated }).sum();
            prop_assert_eq!(told, heard.len() as u64);
        }

        #[test]
        fn f04_a_throttle_logs_one_line_per_window(pauses in prop::collection::vec(0_u64..20_000, 0..200)) {
            let mut repeats = LogDedup::default();
            let (mut now, mut last) = (0, None);
            for pause in pauses {
                now += pause;
                for _ in repeats.record(at(now), failed("the same")) {
                    prop_assert!(last.is_none_or(|last| now - last >= 60_000), "{now} {last:?}");
                    last = Some(now);
                }
            }
        }
    }
}

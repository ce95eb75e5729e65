//! What is said again and again is counted, not repeated: a server that crashes four times a second for a
//! night fills no disk with its log.
//!
//! News is said at once. For a while after that the same news is only counted; when the while is over the
//! count is said, and the next while begins. What was not heard in a while is news again.

use crate::event::Event;
use crate::time::Mono;
use std::time::Duration;

/// What was said of one upstream, and how often it was heard since.
#[derive(Debug, Default)]
pub struct Repeats {
    said: Vec<Said>,
}

#[derive(Debug)]
struct Said {
    event: Event,
    /// When it was last said.
    at: Mono,
    /// How often it was heard since.
    unsaid: u64,
}

/// Something to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The news, in its latest form.
    pub event: Event,
    /// How often it was heard since it was last said; zero for news.
    pub repeated: u64,
}

impl Repeats {
    /// For how long the same news is only counted.
    pub const WHILE: Duration = Duration::from_secs(60);
    /// Different news that are remembered at a time. A flapping server has about six; when there are more,
    /// the one that was said longest ago is forgotten, with its count said.
    pub const MOST: usize = 16;

    /// Takes note of an event, and says what is to be said about it and about others whose while is over.
    pub fn hear(&mut self, now: Mono, event: Event) -> Vec<Line> {
        let mut lines = self.handle_timeout(now);
        if let Some(said) = self.said.iter_mut().find(|said| event.repeats(&said.event)) {
            said.event = event;
            said.unsaid += 1;
            return lines;
        }
        if self.said.len() == Self::MOST {
            // They stand in the order in which they were last said.
            lines.extend(self.said.remove(0).count());
        }
        self.said.push(Said { event: event.clone(), at: now, unsaid: 0 });
        lines.push(Line { event, repeated: 0 });
        lines
    }

    /// When a count is due.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.said.iter().filter(|said| said.unsaid > 0).map(|said| said.at + Self::WHILE).min()
    }

    /// Says the counts that are due.
    pub fn handle_timeout(&mut self, now: Mono) -> Vec<Line> {
        let (over, mut rest): (Vec<Said>, Vec<Said>) =
            std::mem::take(&mut self.said).into_iter().partition(|said| said.at + Self::WHILE <= now);
        let mut lines = Vec::new();
        for said in over {
            if let Some(line) = said.count() {
                rest.push(Said { event: line.event.clone(), at: now, unsaid: 0 });
                lines.push(line);
            }
        }
        self.said = rest;
        lines
    }

    /// Says all counts: nothing more will be heard.
    pub fn finish(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.said).into_iter().filter_map(Said::count).collect()
    }
}

impl Said {
    fn count(self) -> Option<Line> {
        (self.unsaid > 0).then_some(Line { event: self.event, repeated: self.unsaid })
    }
}

/// One line of log for something that happens again and again: said at once, then only counted for a minute.
#[derive(Debug, Default)]
pub struct LogThrottle {
    said_at: Option<Mono>,
    unsaid: u64,
}

impl LogThrottle {
    /// It happened. Says whether that is worth a line, and how often it happened since the last one without a line.
    pub fn hear(&mut self, now: Mono) -> Option<u64> {
        if self.said_at.is_some_and(|at| now - at < Repeats::WHILE) {
            self.unsaid += 1;
            return None;
        }
        self.said_at = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Mono {
        Mono::at(Duration::from_millis(millis))
    }

    fn failed(cause: &str) -> Event {
        Event::CatalogFailed { cause: cause.to_owned() }
    }

    fn said(event: Event, repeated: u64) -> Line {
        Line { event, repeated }
    }

    #[test]
    fn f04_a_server_that_flaps_all_night_has_a_few_lines_a_minute() {
        let mut repeats = Repeats::default();
        let mut lines = Vec::new();
        for flap in 0..4 * 60 {
            lines.extend(repeats.hear(at(flap * 250), failed("exited with code 1")));
            lines.extend(
                repeats.hear(at(flap * 250 + 100), Event::Revived { away: Duration::from_millis(flap) }),
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
    fn f04_what_happens_ten_times_a_second_is_one_line_a_minute() {
        let mut throttle = LogThrottle::default();
        let lines: Vec<u64> = (0..1200).filter_map(|tenth| throttle.hear(at(tenth * 100))).collect();
        assert_eq!(lines, [0, 599]);
        assert_eq!(throttle.hear(at(119_999)), None);
        assert_eq!(throttle.hear(at(120_000)), Some(600));
    }

    #[test]
    fn f04_what_was_not_heard_in_a_while_is_news_again() {
        let mut repeats = Repeats::default();
        assert_eq!(repeats.hear(at(0), failed("a")).len(), 1);
        assert_eq!(repeats.hear(at(59_999), failed("a")), []);
        assert_eq!(repeats.handle_timeout(at(60_000)), [said(failed("a"), 1)]);
        assert_eq!(repeats.hear(at(120_000), failed("a")), [said(failed("a"), 0)]);
    }

    #[test]
    fn f04_a_count_that_nobody_came_for_is_said_before_the_next_line() {
        let mut repeats = Repeats::default();
        repeats.hear(at(0), failed("a"));
        repeats.hear(at(1), failed("a"));
        assert_eq!(repeats.hear(at(70_000), failed("b")), [said(failed("a"), 1), said(failed("b"), 0)]);
        repeats.hear(at(70_001), failed("b"));
        assert_eq!(repeats.finish(), [said(failed("b"), 1)]);
    }

    proptest! {
        /// F04: nothing that was heard is missing from what was said, the same news is said at most once in
        /// a while and then once in the next, and no history makes it remember more than it should.
        #[test]
        fn f04_no_history_loses_count_or_fills_the_log(
            heard in prop::collection::vec((0_u64..20_000, 0_u32..40), 0..200)
        ) {
            let mut repeats = Repeats::default();
            let mut now = 0;
            let mut lines: Vec<(u64, Line)> = Vec::new();
            for (pause, cause) in &heard {
                now += pause;
                let said = repeats.hear(at(now), failed(&cause.to_string()));
                lines.extend(said.into_iter().map(|line| (now, line)));
                prop_assert!(repeats.said.len() <= Repeats::MOST);
                prop_assert!(repeats.poll_timeout().is_none_or(|due| due > at(now)));
            }
            lines.extend(repeats.finish().into_iter().map(|line| (now, line)));
            let told: u64 = lines.iter().map(|(_, line)| if line.repeated == 0 { 1 } else { line.repeated }).sum();
            prop_assert_eq!(told, heard.len() as u64);
        }

        #[test]
        fn f04_one_line_of_a_kind_in_a_while(pauses in prop::collection::vec(0_u64..20_000, 0..200)) {
            let mut repeats = Repeats::default();
            let (mut now, mut last) = (0, None);
            for pause in pauses {
                now += pause;
                for _ in repeats.hear(at(now), failed("the same")) {
                    prop_assert!(last.is_none_or(|last| now - last >= 60_000), "{now} {last:?}");
                    last = Some(now);
                }
            }
        }
    }
}

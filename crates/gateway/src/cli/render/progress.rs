//! A sign of life for whoever waits at a terminal.

use super::Screen;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, interval_at};

/// Less than this is not waiting.
const PATIENCE: Duration = Duration::from_secs(1);

/// Does the work, and says from the first second on what is being waited for. Says nothing into a file.
/// Dropping the future drops the work.
pub(crate) async fn with_progress<T>(screen: &mut Screen, what: &str, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let begun = Instant::now();
    let mut tick = interval_at(begun + PATIENCE, PATIENCE);
    let mut line = Line { screen, shown: false };
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = tick.tick() => line.show(&format!("waiting for {what}, {} s", begun.elapsed().as_secs())),
        }
    }
}

/// The line that is written over and over, and gone in the end.
struct Line<'s> {
    screen: &'s mut Screen,
    shown: bool,
}

impl Line<'_> {
    fn show(&mut self, text: &str) {
        if self.screen.talk_is_seen && !self.screen.asking.load(Ordering::Relaxed) {
            self.shown = true;
            // Nothing depends on a sign of life.
            let _ = write!(self.screen.talk, "\r{text}").and_then(|()| self.screen.talk.flush());
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(self.screen.talk, "\r{:60}\r", "").and_then(|()| self.screen.talk.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::render::Heard;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_longer_than_a_second_is_told_for_what_and_the_line_is_gone_in_the_end() {
        let heard = Heard::default();
        let mut screen = Screen::heard_by(&heard);
        with_progress(&mut screen, "a quick one", sleep(Duration::from_millis(900))).await;
        assert_eq!(heard.text(), "");
        with_progress(&mut screen, "the sun", sleep(Duration::from_millis(2500))).await;
        let gone = format!("\r{:60}\r", "");
        assert_eq!(heard.text(), format!("\rwaiting for the sun, 1 s\rwaiting for the sun, 2 s{gone}"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_told_nothing() {
        let heard = Heard::default();
        let mut screen = Screen::heard_by(&heard);
        screen.talk_is_seen = false;
        with_progress(&mut screen, "the sun", sleep(Duration::from_secs(5))).await;
        assert_eq!(heard.text(), "");
    }
}

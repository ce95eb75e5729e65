//! Progress line on a terminal while a command waits.

use super::Screen;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, interval_at};

/// Time before the first progress line, and between updates.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs `work`, and shows on a terminal what is being waited for, from the first second on. Dropping the future drops
/// the work.
pub(crate) async fn with_progress<T>(screen: &mut Screen, what: &str, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let started = Instant::now();
    let mut tick = interval_at(started + INTERVAL, INTERVAL);
    let mut line = Line { screen, shown: false };
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = tick.tick() => line.show(&format!("waiting for {what}, {} s", started.elapsed().as_secs())),
        }
    }
}

/// The progress line, which is overwritten by each update and erased on drop.
struct Line<'s> {
    screen: &'s mut Screen,
    shown: bool,
}

impl Line<'_> {
    fn show(&mut self, text: &str) {
        if self.screen.stderr_is_terminal && !self.screen.asking.load(Ordering::Relaxed) {
            self.shown = true;
            // A failed write does not matter.
            let _ = write!(self.screen.stderr, "\r{text}").and_then(|()| self.screen.stderr.flush());
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(self.screen.stderr, "\r{:60}\r", "").and_then(|()| self.screen.stderr.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::render::CapturedTerminal;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn a_wait_over_one_second_shows_a_progress_line_and_erases_it() {
        let terminal = CapturedTerminal::default();
        let mut screen = Screen::captured(&terminal);
        with_progress(&mut screen, "a quick one", sleep(Duration::from_millis(900))).await;
        assert_eq!(terminal.text(), "");
        with_progress(&mut screen, "the sun", sleep(Duration::from_millis(2500))).await;
        let gone = format!("\r{:60}\r", "");
        assert_eq!(terminal.text(), format!("\rwaiting for the sun, 1 s\rwaiting for the sun, 2 s{gone}"));
    }

    #[tokio::test(start_paused = true)]
    async fn no_progress_line_is_written_to_a_file() {
        let terminal = CapturedTerminal::default();
        let mut screen = Screen::captured(&terminal);
        screen.stderr_is_terminal = false;
        with_progress(&mut screen, "the sun", sleep(Duration::from_secs(5))).await;
        assert_eq!(terminal.text(), "");
    }
}

//! Which rows run alone and which side by side, so that a run does not take longer than its longest waits.
//!
//! A row that a promised time is read from has the machine to itself. The others are about counts, which hold on any
//! machine however busy; they wait more than they work, and run a few at a time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::fault::{Act, Callers, Fault, SessionForm, Transport};
use crate::row::{self, Order, Row};
use crate::{Cannot, Result};

/// One row to be.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// What breaks.
    pub fault: &'static Fault,
    /// On the way to what.
    pub transport: Transport,
}

/// Rows that run side by side.
pub const LANES: usize = 4;

impl Part {
    /// Whether a promised time is read from it.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        match self.fault.act {
            Act::Kill | Act::KillSpared => self.fault.callers == Callers::Rest,
            Act::KillOver => true,
            Act::Restart(form) => form == SessionForm::NotFound && self.transport == Transport::Http,
            Act::KillTenTimes
            | Act::Relapse(_)
            | Act::SlowStart
            | Act::Freeze
            | Act::Junk
            | Act::HugeFrame
            | Act::FloodStderr
            | Act::KillParent
            | Act::ExpireSession
            | Act::BreakAnswers(_)
            | Act::BlackHole
            | Act::Drip
            | Act::Refuse(_)
            | Act::ExpireToken(_)
            | Act::LoseToken
            | Act::LoseName
            | Act::StartLate
            | Act::OtherTools
            | Act::KillGateway => false,
        }
    }

    /// Whether it can be done to a gateway of which nothing is known but MCP: a spare is something that only ours
    /// has, and what tools are called before their server was ever there only ours says.
    #[must_use]
    pub fn fits_any(&self) -> bool {
        !matches!(self.fault.act, Act::KillSpared | Act::StartLate)
    }
}

/// What became of one part.
#[derive(Debug)]
pub struct Done {
    /// Its place in the plan.
    pub place: usize,
    /// Which it was.
    pub part: Part,
    /// What came of it; an error if the harness itself was in trouble.
    pub row: Result<Row>,
    /// How long it took.
    pub took: Duration,
}

/// Rows under way.
#[derive(Debug)]
pub struct Rows {
    waiting: VecDeque<(usize, Part)>,
    running: JoinSet<Done>,
    order: Order,
    lanes: usize,
}

impl Rows {
    /// Begins with nothing under way. At most `lanes` will run side by side.
    #[must_use]
    pub fn of(parts: &[Part], order: &Order, lanes: usize) -> Self {
        let (timed, others): (Vec<_>, Vec<_>) =
            parts.iter().copied().enumerate().partition(|(_, part)| part.is_timed());
        let waiting = timed.into_iter().chain(others).collect();
        Self { waiting, running: JoinSet::new(), order: order.clone(), lanes }
    }

    /// The next row that is done; `None` when all are. A task that panicked is a bug of the harness, and is not
    /// hushed up.
    pub async fn next(&mut self) -> Option<Done> {
        while let Some((place, part)) = self.waiting.front().copied() {
            let room = if part.is_timed() { 1 } else { self.lanes };
            if self.running.len() >= room {
                break;
            }
            self.waiting.pop_front();
            let order = self.order.clone();
            self.running.spawn(async move {
                let began = Instant::now();
                let row = within(&order, row::run(part.fault, part.transport, &order)).await;
                Done { place, part, row, took: began.elapsed() }
            });
        }
        let done = self.running.join_next().await?;
        Some(done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())))
    }

    /// Those under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.running.len()
    }
}

/// Another gateway may hang in ways that nobody has thought of. Ours may not, and if it does the run shows it.
async fn within(order: &Order, row: impl Future<Output = Result<Row>>) -> Result<Row> {
    if order.subject.peer.is_none() {
        return row.await;
    }
    let hung = |_| Cannot::because("the row", &format!("it did not end within {} s", PEER_WITHIN.as_secs()));
    tokio::time::timeout(PEER_WITHIN, row).await.map_err(hung)?
}

/// Longer than a row goes on for that strikes as often as it can.
const PEER_WITHIN: Duration = Duration::from_secs(400);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FAULTS;

    #[test]
    fn rows_that_a_promise_is_read_from_come_first_and_alone() {
        let parts: Vec<Part> = FAULTS
            .iter()
            .flat_map(|fault| {
                fault.transports.iter().map(move |transport| Part { fault, transport: *transport })
            })
            .collect();
        let timed: Vec<_> = parts.iter().filter(|part| part.is_timed()).map(|part| part.fault.name).collect();
        assert_eq!(timed, ["killed-idle", "killed-with-spare", "killed-over-and-over", "restarted"]);
    }
}

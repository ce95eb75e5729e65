//! Schedules rows: alone or side by side, so that a run takes no longer than its longest waits.
//!
//! A row with a timing goal has the machine to itself. The others only check counts, which do not depend on the load
//! of the machine; they mostly wait, so a few run at a time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::fault::{CallerActivity, ExpiryAnswer, Fault, FaultAction, Transport};
use crate::row::{self, Row, RunOptions};
use gripfast_measure::{MeasureError, Result};

/// One planned row.
#[derive(Debug, Clone, Copy)]
pub struct PlannedRow {
    /// Fault to apply.
    pub fault: &'static Fault,
    /// Transport to the server.
    pub transport: Transport,
}

/// Rows that run side by side.
pub const LANES: usize = 4;

impl PlannedRow {
    /// True if a timing goal is read from this row.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        match self.fault.action {
            FaultAction::Kill | FaultAction::KillWithStandby => self.fault.callers == CallerActivity::Paused,
            FaultAction::KillOnReturn => true,
            FaultAction::Restart(form) => form == ExpiryAnswer::NotFound && self.transport == Transport::Http,
            FaultAction::KillTenTimes
            | FaultAction::KillWithFaultySuccessor(_)
            | FaultAction::SlowStart
            | FaultAction::Freeze
            | FaultAction::Junk
            | FaultAction::HugeFrame
            | FaultAction::FloodStderr
            | FaultAction::KillParent
            | FaultAction::ExpireSession
            | FaultAction::BreakAnswers(_)
            | FaultAction::BlackHole
            | FaultAction::TrickleAnswers
            | FaultAction::Refuse(_)
            | FaultAction::ExpireToken(_)
            | FaultAction::LoseToken
            | FaultAction::FailDns
            | FaultAction::StartLate
            | FaultAction::ReplaceTools
            | FaultAction::KillGateway => false,
        }
    }

    /// True if the row works with any MCP gateway: a standby and tool names of servers that were never up exist only
    /// in gripfast.
    #[must_use]
    pub fn works_with_any_gateway(&self) -> bool {
        !matches!(self.fault.action, FaultAction::KillWithStandby | FaultAction::StartLate)
    }
}

/// Result of one planned row.
#[derive(Debug)]
pub struct FinishedRow {
    /// Index in the plan.
    pub index: usize,
    /// The planned row.
    pub part: PlannedRow,
    /// The row; an error if the harness itself failed.
    pub row: Result<Row>,
    /// Duration.
    pub took: Duration,
}

/// Running and waiting rows.
#[derive(Debug)]
pub struct Rows {
    waiting: VecDeque<(usize, PlannedRow)>,
    running: JoinSet<FinishedRow>,
    options: RunOptions,
    lanes: usize,
}

impl Rows {
    /// Creates a schedule with no row running. At most `lanes` will run side by side.
    #[must_use]
    pub fn new(parts: &[PlannedRow], options: &RunOptions, lanes: usize) -> Self {
        let (timed, others): (Vec<_>, Vec<_>) =
            parts.iter().copied().enumerate().partition(|(_, part)| part.is_timed());
        let waiting = timed.into_iter().chain(others).collect();
        Self { waiting, running: JoinSet::new(), options: options.clone(), lanes }
    }

    /// Next finished row; `None` when all are finished. Propagates panics of tasks, because they are bugs of the
    /// harness.
    pub async fn next(&mut self) -> Option<FinishedRow> {
        while let Some((place, part)) = self.waiting.front().copied() {
            let room = if part.is_timed() { 1 } else { self.lanes };
            if self.running.len() >= room {
                break;
            }
            self.waiting.pop_front();
            let options = self.options.clone();
            self.running.spawn(async move {
                let began = Instant::now();
                let row = with_time_limit(&options, row::run(part.fault, part.transport, &options)).await;
                FinishedRow { index: place, part, row, took: began.elapsed() }
            });
        }
        let done = self.running.join_next().await?;
        Some(done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())))
    }

    /// Number of running rows.
    #[must_use]
    pub fn running_count(&self) -> usize {
        self.running.len()
    }
}

/// Limits the duration of a row with another gateway, which may hang. gripfast gets no limit: a hang fails the run.
async fn with_time_limit(options: &RunOptions, row: impl Future<Output = Result<Row>>) -> Result<Row> {
    if options.subject.peer.is_none() {
        return row.await;
    }
    let hung = |_| MeasureError::new("the row", &format!("no end within {} s", PEER_ROW_TIMEOUT.as_secs()));
    tokio::time::timeout(PEER_ROW_TIMEOUT, row).await.map_err(hung)?
}

/// More than the time budget of a row.
const PEER_ROW_TIMEOUT: Duration = Duration::from_secs(400);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FAULTS;

    #[test]
    fn rows_with_a_timing_goal_run_first_and_alone() {
        let parts: Vec<PlannedRow> = FAULTS
            .iter()
            .flat_map(|fault| {
                fault.transports.iter().map(move |transport| PlannedRow { fault, transport: *transport })
            })
            .collect();
        let timed: Vec<_> = parts.iter().filter(|part| part.is_timed()).map(|part| part.fault.name).collect();
        assert_eq!(timed, ["killed-idle", "killed-with-spare", "killed-over-and-over", "restarted"]);
    }
}

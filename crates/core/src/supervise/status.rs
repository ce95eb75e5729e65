//! Status of one upstream: a closed set of states, and the facts beside it.

use super::circuit::CircuitView;
use std::time::Duration;

word_enum! {
    /// The state of an upstream in status, logs, metrics and dashboard.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum State {
        /// Lazy: starts on first use.
        Idle = "idle",
        /// Starting for the first time.
        Starting = "starting",
        /// Calls work.
        Ready = "ready",
        /// Usable, with a problem.
        Degraded = "degraded",
        /// Down, and being reconnected.
        Reconnecting = "reconnecting",
        /// Down for long; attempts are rare.
        Parked = "parked",
        /// A person has to log in.
        NeedsLogin = "needs_login",
        /// An operator has to approve a changed tool.
        NeedsApproval = "needs_approval",
        /// Its config cannot work.
        ConfigError = "config_error",
        /// Disabled in the config.
        Disabled = "disabled",
        /// Stopped by an operator.
        Stopped = "stopped",
    }
}

/// The status of one upstream at one moment. Durations are relative to that moment.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamStatus {
    /// The state.
    pub state: State,
    /// Time in this state.
    pub in_state_for: Duration,
    /// The cause for not being ready, for the operator.
    pub cause: Option<String>,
    /// Time until the next automatic attempt; `None` if there is none.
    pub next_attempt: Option<Duration>,
    /// The running connection attempt.
    pub attempt: Option<Attempt>,
    /// Time until the next timer; `None` only while it waits for its first use.
    pub next_wake: Option<Duration>,
    /// The recommended action of the operator.
    pub next_action: Option<NextAction>,
    /// The circuit breaker.
    pub circuit: CircuitView,
    /// Consecutive transport failures.
    pub consecutive_failures: u32,
    /// Total number of restarts.
    pub restarts: u64,
    /// Restarts within the window of the restart budget.
    pub restarts_in_window: u32,
    /// Calls in flight.
    pub in_flight: u32,
    /// Calls that wait for the link or for a slot.
    pub waiting: u32,
    /// The number of the present link or session.
    pub epoch: u64,
    /// True if a working link is being replaced.
    pub replacing: bool,
    /// True if the present link was made with an older config; its replacement is being made or has failed.
    pub outdated: bool,
    /// The spare process, if one is configured.
    pub spare: Option<SpareState>,
}

/// A running connection attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Time since its start.
    pub elapsed: Duration,
    /// Its time limit.
    pub limit: Duration,
}

word_enum! {
    /// State of the spare process.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SpareState {
        /// There is none at present.
        Missing = "missing",
        /// It is starting.
        Starting = "starting",
        /// It is ready to take over.
        Ready = "ready",
    }
}

word_enum! {
    /// Recommended action of the operator.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum NextAction {
        /// `gripfast reconnect NAME`.
        Reconnect = "reconnect",
        /// `gripfast doctor NAME`.
        Doctor = "doctor",
        /// `gripfast login NAME`.
        Login = "login",
        /// Correct the config.
        Configure = "configure",
        /// `gripfast start NAME`.
        Start = "start",
        /// `gripfast pins diff NAME`, then `gripfast pins approve NAME`.
        Approve = "approve",
    }
}

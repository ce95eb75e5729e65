//! What people are shown about one upstream: one closed set of states, and the facts beside it.

use super::circuit::CircuitView;
use std::time::Duration;

/// The state of an upstream as everybody sees it: status, logs, metrics, dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Lazy: starts on first use.
    Idle,
    /// On its way up for the first time.
    Starting,
    /// The real call path works.
    Ready,
    /// Usable, with something amiss.
    Degraded,
    /// Away, and being brought back.
    Reconnecting,
    /// Away for long; tries itself slowly.
    Parked,
    /// A person has to log in.
    NeedsLogin,
    /// A person has to approve a changed tool.
    NeedsApproval,
    /// Its config cannot work.
    ConfigError,
    /// Switched off in the config.
    Disabled,
    /// Stopped by a person.
    Stopped,
}

impl State {
    /// All states.
    pub const ALL: [Self; 11] = [
        Self::Idle,
        Self::Starting,
        Self::Ready,
        Self::Degraded,
        Self::Reconnecting,
        Self::Parked,
        Self::NeedsLogin,
        Self::NeedsApproval,
        Self::ConfigError,
        Self::Disabled,
        Self::Stopped,
    ];

    /// The word on the wire, in logs and in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Reconnecting => "reconnecting",
            Self::Parked => "parked",
            Self::NeedsLogin => "needs_login",
            Self::NeedsApproval => "needs_approval",
            Self::ConfigError => "config_error",
            Self::Disabled => "disabled",
            Self::Stopped => "stopped",
        }
    }
}

/// The facts about one upstream at one moment. Spans count from that moment.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamStatus {
    /// The state.
    pub state: State,
    /// How long it has been in this state.
    pub for_how_long: Duration,
    /// Why it is not ready, in the operator's words.
    pub cause: Option<String>,
    /// When it next tries by itself to get better; `None` while there is nothing to get better.
    pub next_attempt: Option<Duration>,
    /// The attempt to connect that is running.
    pub attempt: Option<Attempt>,
    /// When the machine next wakes by itself; `None` only while it waits to be wanted.
    pub next_wake: Option<Duration>,
    /// The one thing a person could do about it.
    pub next_action: Option<NextAction>,
    /// The circuit.
    pub circuit: CircuitView,
    /// Transport failures in a row.
    pub consecutive_failures: u32,
    /// Restarts since the beginning.
    pub restarts: u64,
    /// Restarts within the window of the restart budget.
    pub restarts_in_window: u32,
    /// Calls under way.
    pub in_flight: u32,
    /// Calls that wait for the link or for a slot.
    pub waiting: u32,
    /// The number of the present link or session.
    pub epoch: u64,
    /// Whether a link that works is being replaced.
    pub replacing: bool,
    /// Whether the present link is one of an older config, whose replacement is being made or has failed.
    pub outdated: bool,
    /// The second child that would take over, where one is wanted.
    pub spare: Option<SpareState>,
}

/// An attempt to connect that is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The time since it began.
    pub elapsed: Duration,
    /// The time that it has in all.
    pub limit: Duration,
}

/// How far the second child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpareState {
    /// There is none at the moment.
    Missing,
    /// It is being started.
    Starting,
    /// It could take over now.
    Ready,
}

impl SpareState {
    /// The word in status.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Starting => "starting",
            Self::Ready => "ready",
        }
    }
}

/// The one thing a person could do about an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextAction {
    /// `gripfast reconnect NAME`.
    Reconnect,
    /// `gripfast doctor NAME`.
    Doctor,
    /// `gripfast login NAME`.
    Login,
    /// Correct the config.
    Configure,
    /// `gripfast start NAME`.
    Start,
    /// `gripfast pins diff NAME`, then `gripfast pins approve NAME`.
    Approve,
}

impl NextAction {
    /// The word in status.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reconnect => "reconnect",
            Self::Doctor => "doctor",
            Self::Login => "login",
            Self::Configure => "configure",
            Self::Start => "start",
            Self::Approve => "approve",
        }
    }
}

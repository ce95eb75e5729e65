//! What an operator may tune about the supervision of one upstream, with the defaults that one would
//! pick at three in the morning. How the upstream is reached (command, URL, headers) is not known here.

use std::time::Duration;

/// Everything that the supervision of one upstream depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct SupervisionSpec {
    /// Start on first use instead of at once.
    pub lazy: bool,
    /// How long a lazy upstream may be unused before it is stopped again. Ignored unless `lazy`.
    pub idle_timeout: Duration,
    /// What happens to the tools of an upstream that is away.
    pub when_down: WhenDown,
    /// When silence is worth a question.
    pub keepalive: KeepaliveSpec,
    /// When to stop sending calls into a failing link.
    pub circuit: CircuitSpec,
    /// How eagerly a lost upstream is brought back.
    pub restart: RestartSpec,
    /// How long anything may take.
    pub timeouts: TimeoutSpec,
    /// Requests under way at once. More wait in a queue.
    pub max_in_flight: u32,
    /// Requests that may wait (for a slot or for the link). More are refused as overloaded.
    pub max_waiting: u32,
    /// Keep a second child ready, which takes over when the first one dies. For child processes only.
    pub spare: bool,
    /// When a link that works is replaced all the same.
    pub recycle: RecycleSpec,
}

impl Default for SupervisionSpec {
    fn default() -> Self {
        Self {
            lazy: false,
            idle_timeout: Duration::from_secs(600),
            when_down: WhenDown::Keep,
            keepalive: KeepaliveSpec::default(),
            circuit: CircuitSpec::default(),
            restart: RestartSpec::default(),
            timeouts: TimeoutSpec::default(),
            max_in_flight: 64,
            max_waiting: 1024,
            spare: false,
            recycle: RecycleSpec::default(),
        }
    }
}

/// What happens to the tools of an upstream that is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenDown {
    /// They stay listed byte for byte; a call waits or is answered at once.
    Keep,
    /// They leave the list while the upstream is parked, and return with it.
    Withdraw,
}

/// When silence on an idle link is worth a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveSpec {
    /// Silence after which the link is probed; `None` turns probing off.
    pub interval: Option<Duration>,
    /// How long the answer may take before the link is replaced.
    pub timeout: Duration,
}

impl KeepaliveSpec {
    /// Probing more often than this is a load test, not a keepalive.
    pub const SHORTEST_INTERVAL: Duration = Duration::from_secs(5);
}

impl Default for KeepaliveSpec {
    fn default() -> Self {
        Self { interval: Some(Duration::from_secs(180)), timeout: Duration::from_secs(30) }
    }
}

/// When to stop sending calls into a failing link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitSpec {
    /// Consecutive transport failures that open the circuit.
    pub threshold: u32,
    /// How long it stays open before one trial is let through.
    pub cooldown: Duration,
}

impl Default for CircuitSpec {
    fn default() -> Self {
        Self { threshold: 3, cooldown: Duration::from_secs(60) }
    }
}

/// How eagerly a lost upstream is brought back, and when eagerness turns into patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartSpec {
    /// Restarts within `window` that are still taken for bad luck; one more parks the upstream.
    pub max: u32,
    /// The sliding window of `max`; being away for all of it parks the upstream too.
    pub window: Duration,
    /// The first pause after the immediate retry.
    pub backoff_min: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// How often a parked upstream tries itself.
    pub parked_probe: Duration,
}

impl Default for RestartSpec {
    fn default() -> Self {
        Self {
            max: 5,
            window: Duration::from_secs(300),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(30),
            parked_probe: Duration::from_secs(60),
        }
    }
}

/// How long anything may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeoutSpec {
    /// The first attempt to connect or start, with the handshake.
    pub connect: Duration,
    /// The longest attempt: each attempt that ran out of time is followed by one of twice its length, up to this.
    pub connect_max: Duration,
    /// One call, with all its waits and attempts. The absolute cap: progress does not extend it.
    pub call: Duration,
    /// Silence between two progress notifications of one call; counts from the first one.
    pub progress: Duration,
    /// How long a call is held for a link that is being made.
    pub reconnect_wait: Duration,
}

impl Default for TimeoutSpec {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            connect_max: Duration::from_secs(300),
            call: Duration::from_secs(300),
            progress: Duration::from_secs(60),
            reconnect_wait: Duration::from_secs(15),
        }
    }
}

/// When a link that works is replaced all the same: for servers that leak. The new one is made first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecycleSpec {
    /// Replace it after this time.
    pub max_lifetime: Option<Duration>,
    /// Replace it when the child and its offspring hold more memory than this, in bytes.
    pub max_rss: Option<u64>,
}

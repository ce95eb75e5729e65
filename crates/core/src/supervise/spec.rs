//! Supervision settings of one upstream and their defaults. The way to reach it (command, URL, headers) is not part of
//! them.

use std::time::Duration;

/// The supervision settings of one upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct SupervisionSpec {
    /// Start on first use instead of at once.
    pub lazy: bool,
    /// Time without use after which a lazy upstream is stopped. Ignored unless `lazy`.
    pub idle_timeout: Duration,
    /// Treatment of the tools of an upstream that is down.
    pub when_down: WhenDown,
    /// Keepalive of idle links.
    pub keepalive: KeepaliveSpec,
    /// Circuit breaker.
    pub circuit: CircuitSpec,
    /// Restarts and reconnects.
    pub restart: RestartSpec,
    /// Timeouts.
    pub timeouts: TimeoutSpec,
    /// Maximum number of requests in flight. More wait in a queue.
    pub max_in_flight: u32,
    /// Maximum number of waiting requests (for a slot or the link). More are refused as overloaded.
    pub max_waiting: u32,
    /// Keep a spare process that takes over when the first one dies. For child processes only.
    pub spare: bool,
    /// Replacement of working links.
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

/// Treatment of the tools of an upstream that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenDown {
    /// They stay listed byte for byte; a call waits or gets an error at once.
    Keep,
    /// They are removed from the list while the upstream is parked.
    Withdraw,
}

/// Keepalive of idle links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveSpec {
    /// Silence after which the link is probed; `None` disables probes.
    pub interval: Option<Duration>,
    /// Time for the answer before the link is replaced.
    pub timeout: Duration,
}

impl KeepaliveSpec {
    /// Minimum interval: more frequent probes would be a load test.
    pub const SHORTEST_INTERVAL: Duration = Duration::from_secs(5);
}

impl Default for KeepaliveSpec {
    fn default() -> Self {
        Self { interval: Some(Duration::from_secs(180)), timeout: Duration::from_secs(30) }
    }
}

/// Circuit breaker settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitSpec {
    /// Consecutive transport failures that open the circuit.
    pub threshold: u32,
    /// Time that it stays open before one trial is admitted.
    pub cooldown: Duration,
}

impl Default for CircuitSpec {
    fn default() -> Self {
        Self { threshold: 3, cooldown: Duration::from_secs(60) }
    }
}

/// Restart and backoff settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartSpec {
    /// Restarts within `window` that are tolerated; one more parks the upstream.
    pub max: u32,
    /// The sliding window of `max`; an outage of this length parks the upstream too.
    pub window: Duration,
    /// The first pause after the immediate attempt.
    pub backoff_min: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// Interval of the attempts while parked.
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

/// Timeouts of one upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeoutSpec {
    /// First attempt to connect or start, with the handshake.
    pub connect: Duration,
    /// The longest attempt: an attempt that timed out is followed by one of twice its length, up to this.
    pub connect_max: Duration,
    /// One call, with all its waits and attempts. An absolute limit: progress does not extend it.
    pub call: Duration,
    /// Silence between two progress notifications of one call; counts from the first one on.
    pub progress: Duration,
    /// Time that a call waits for a link that is being made.
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

/// Replacement of working links, for servers that leak. The new link is made first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecycleSpec {
    /// Replace it after this time.
    pub max_lifetime: Option<Duration>,
    /// Replace it when the process and its descendants use more memory than this, in bytes.
    pub max_rss: Option<u64>,
}

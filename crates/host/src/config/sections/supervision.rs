//! The supervision tables of a server: circuit breaker, restarts, replacement and timeouts.

use super::target::Target;
use crate::config::fields::{Field, FileDialect, Problems};
use crate::config::keys::{ValueKind, impl_codec, keys, words};
use crate::config::node::Value;
use crate::config::units::{self, AT_LEAST_1_MS, AT_LEAST_1_S, AT_LEAST_100_MS, DurationRange};
use gripfast_core::supervise::spec::{
    CircuitSpec, KeepaliveSpec, RecycleSpec, RestartSpec, SupervisionSpec, TimeoutSpec, WhenDown,
};
use std::time::Duration;

/// Default supervision of a server. A package runner may have to download a package at its first start, so its first
/// attempt has the longest time limit.
pub(super) fn default_supervision(target: Option<&Target>) -> SupervisionSpec {
    let mut spec = SupervisionSpec::default();
    if target.is_some_and(|target| target.package_runner().is_some()) {
        spec.timeouts.connect = spec.timeouts.connect_max;
    }
    spec
}

words!(WhenDown { Keep = "keep", Withdraw = "withdraw" });

keys! {
    /// Circuit breaker: when to stop sending calls over a failing connection.
    impl CircuitSpec {
        /// Consecutive failures of the connection that open the circuit. Too small: one short failure refuses calls.
        /// Too large: many calls wait for a server that is gone.
        threshold: u32 [1..=10_000];
        /// Time that the circuit stays open before one call is let through as a trial. Too long: a server that is back
        /// goes unused. Too short: trial calls fail while the server is still down.
        cooldown: Duration [AT_LEAST_100_MS];
    }
}

keys! {
    /// Restart policy for a lost server: pauses between attempts, and when it is parked. The gateway never gives up.
    impl RestartSpec, check order_of_pauses {
        /// Restarts within `window` that are tolerated; one more parks the server. Too small: a server with a short
        /// problem is parked. Too large: a broken server is restarted for longer.
        max: u32 [0..=10_000];
        /// Period in which `max` is counted. A server that is down for all of it is parked too. Too short: repeated
        /// restarts are not counted together. Too long: a server is parked because of old restarts.
        window: Duration [AT_LEAST_100_MS];
        /// First pause after the immediate retry. The pauses grow from there. Too short: a failing server is tried in
        /// quick succession. Too long: a short outage lasts longer.
        backoff_min: Duration [AT_LEAST_1_MS];
        /// Longest pause. Too long: a server that is back goes unused. Too short: a remote server gets attempts all the
        /// time.
        backoff_max: Duration [AT_LEAST_1_MS];
        /// Interval at which a parked server is tried without a call. Too long: a server that is back is noticed late.
        /// Too short: needless attempts.
        parked_probe: Duration [AT_LEAST_100_MS];
    }
}

fn order_of_pauses(restart: &mut RestartSpec, field: &Field<'_>, is_clean: bool, problems: &mut Problems) {
    if is_clean && restart.backoff_min > restart.backoff_max {
        let [least, most] = [restart.backoff_min, restart.backoff_max].map(units::format_duration);
        problems.error(field.error(format!("`backoff_min` ({least}) is longer than `backoff_max` ({most})")));
    }
}

keys! {
    /// Replacement of a connection that still works. The new connection is made first.
    impl RecycleSpec {
        /// Replace the connection after this time. Too short: needless restarts.
        max_lifetime: Option<Duration> [AT_LEAST_1_S];
        /// Replace the connection when the child process and its descendants use more memory than this. For servers
        /// with a `command`. Too small: a healthy server is replaced again and again.
        max_rss: Option<u64> [1 << 20..=1 << 40];
    }
}

keys! {
    /// Time limits of connection attempts and calls.
    impl TimeoutSpec, check order_of_attempts {
        /// First attempt to connect to the server or to start it, with the handshake. With `npx`, `uvx`, `pipx`, `bunx`
        /// and `docker`, which may download the server first, the default is `connect_max`.
        connect: Duration [AT_LEAST_1_MS];
        /// Longest attempt. After an attempt that timed out the next one gets twice its time, up to this limit, so that
        /// a slow server comes up. Too short: a slow server is stopped before it is ready. Too long: a server that
        /// hangs at start is noticed late.
        connect_max: Duration [AT_LEAST_1_MS];
        /// Whole call: waiting, all attempts and the answer. Progress does not extend it; time in which the server
        /// waits for input from the client does not count. Too short: long calls fail. Too long: clients wait for calls
        /// that hang.
        call: Duration [AT_LEAST_1_MS];
        /// Longest silence between two progress notifications of one call, counted from the first one. Too short: calls
        /// with rare progress fail. Too long: calls that hang are noticed late.
        progress: Duration [AT_LEAST_1_MS];
        /// Time that a call waits for a connection that is being made; with 0s it gets an error at once. Too short:
        /// calls fail during a short reconnect. Too long: clients wait for a server that does not come back.
        reconnect_wait: Duration [DurationRange::at_least(Duration::ZERO)];
    }
}

/// If only one of `connect` and `connect_max` is set, it moves the other one where they would contradict each other.
fn order_of_attempts(timeouts: &mut TimeoutSpec, field: &Field<'_>, is_clean: bool, problems: &mut Problems) {
    let longest = TimeoutSpec::default().connect_max;
    match (field.get("connect"), field.get("connect_max")) {
        (Some(_), Some(_)) if is_clean && timeouts.connect > timeouts.connect_max => {
            let [first, most] = [timeouts.connect, timeouts.connect_max].map(units::format_duration);
            problems.error(field.error(format!("`connect` ({first}) is longer than `connect_max` ({most})")));
        }
        (Some(_), None) => timeouts.connect_max = timeouts.connect_max.max(timeouts.connect),
        // A package runner begins with the longest attempt.
        (None, Some(_)) if timeouts.connect == longest => timeouts.connect = timeouts.connect_max,
        (None, Some(_)) => timeouts.connect = timeouts.connect.min(timeouts.connect_max),
        (Some(_) | None, Some(_) | None) => {}
    }
}

/// Codec of `keepalive_interval`, where zero means off.
pub(super) struct KeepaliveInterval;

impl_codec!(
    KeepaliveInterval => Option<Duration>,
    ValueKind::Duration(KEEPALIVE_RANGE),
    read_keepalive_interval,
    |interval| units::format_duration(interval.unwrap_or_default())
);

fn read_keepalive_interval(field: &Field<'_>, problems: &mut Problems) -> Option<Option<Duration>> {
    // In the files of Hermes this key is in seconds. The dialect decides that, not the size of the number.
    let seconds = match (&field.node.value, field.dialect) {
        (Value::Number(text), FileDialect::Hermes) => text.parse().ok().map(Duration::from_secs),
        _ => None,
    };
    let interval = match seconds {
        Some(seconds) => {
            let interval = field.duration_in(seconds, KEEPALIVE_RANGE, problems)?;
            let written = units::format_duration(seconds);
            let hint = format!("write \"{written}\" to have the same meaning in every file");
            problems.warning(field.warning("taken as seconds").with_hint(hint));
            interval
        }
        None => field.duration(KEEPALIVE_RANGE, problems)?,
    };
    Some(Some(interval).filter(|interval| !interval.is_zero()))
}

const KEEPALIVE_RANGE: DurationRange = DurationRange::at_least(KeepaliveSpec::SHORTEST_INTERVAL).or_off();

/// Codec of `spare`, a number that is 0 or 1.
pub(super) struct Spare;

impl_codec!(
    Spare => bool,
    ValueKind::Number(0..=1),
    |field, problems| field.whole_number(0..=1, problems).map(|spares| spares == 1),
    |spare| u32::from(*spare).to_string()
);

//! The keys that say how a server is kept alive, with the range of each.

use super::Origin;
use super::fields::{Fields, Problems};
use super::units::{self, Span};
use crate::config::node::Value;
use gripfast_core::supervise::spec::{KeepaliveSpec, SupervisionSpec, WhenDown};
use std::time::Duration;

/// The least that a clock of milliseconds can wait.
const INSTANT: Span = Span::at_least(Duration::from_millis(1));

/// How often something may be tried without being a storm.
const PATIENT: Span = Span::at_least(Duration::from_millis(100));

/// Takes all supervision keys out of a server's table.
pub(super) fn supervision(fields: &mut Fields<'_>, problems: &mut Problems) -> SupervisionSpec {
    let mut spec = SupervisionSpec::default();
    if let Some(lazy) = fields.take("lazy").and_then(|field| field.flag(problems)) {
        spec.lazy = lazy;
    }
    fields.duration("idle_timeout", PATIENT, &mut spec.idle_timeout, problems);
    keepalive(fields, &mut spec.keepalive, problems);
    let when_down = &[("keep", WhenDown::Keep), ("withdraw", WhenDown::Withdraw)];
    fields.choice("when_down", when_down, &mut spec.when_down, problems);
    fields.whole_number("max_in_flight", 1..=65_536, &mut spec.max_in_flight, problems);
    fields.whole_number("max_waiting", 0..=1_000_000, &mut spec.max_waiting, problems);

    let mut spares = 0;
    fields.whole_number("spare", 0..=1, &mut spares, problems);
    spec.spare = spares == 1;
    if let Some(mut recycle) = fields.table("recycle", problems) {
        let lifetime = Span::at_least(Duration::from_secs(1));
        spec.recycle.max_lifetime =
            recycle.take("max_lifetime").and_then(|field| field.duration(lifetime, problems));
        spec.recycle.max_rss =
            recycle.take("max_rss").and_then(|field| field.size(1 << 20..=1 << 40, problems));
        recycle.finish(problems);
    }

    if let Some(mut circuit) = fields.table("circuit", problems) {
        circuit.whole_number("threshold", 1..=10_000, &mut spec.circuit.threshold, problems);
        circuit.duration("cooldown", PATIENT, &mut spec.circuit.cooldown, problems);
        circuit.finish(problems);
    }
    restart(fields, &mut spec, problems);
    if let Some(mut timeouts) = fields.table("timeouts", problems) {
        timeouts.duration("connect", INSTANT, &mut spec.timeouts.connect, problems);
        timeouts.duration("call", INSTANT, &mut spec.timeouts.call, problems);
        timeouts.duration("progress", INSTANT, &mut spec.timeouts.progress, problems);
        // Zero answers at once instead of holding the call.
        let wait = Span::at_least(Duration::ZERO);
        timeouts.duration("reconnect_wait", wait, &mut spec.timeouts.reconnect_wait, problems);
        timeouts.finish(problems);
    }
    spec
}

fn keepalive(fields: &mut Fields<'_>, spec: &mut KeepaliveSpec, problems: &mut Problems) {
    let span = Span::at_least(KeepaliveSpec::SHORTEST_INTERVAL).or_off();
    if let Some(field) = fields.take("keepalive_interval") {
        // Hermes has this key in seconds: the form of the file says so, not the size of the number.
        let seconds = match (&field.node.value, field.origin) {
            (Value::Number(text), Origin::Hermes) => text.parse().ok().map(Duration::from_secs),
            _ => None,
        };
        let interval = match seconds {
            Some(seconds) if span.contains(seconds) => {
                let hint = format!("write \"{}\" to be read alike everywhere", units::show(seconds));
                problems.warning(field.warning("taken as seconds").with_hint(hint));
                Some(seconds)
            }
            Some(seconds) => {
                let message =
                    format!("{} is out of range; allowed: {}", units::show(seconds), span.allowed());
                problems.error(field.error(message));
                None
            }
            None => field.duration(span, problems),
        };
        if let Some(interval) = interval {
            spec.interval = (!interval.is_zero()).then_some(interval);
        }
    }
    fields.duration("keepalive_timeout", PATIENT, &mut spec.timeout, problems);
}

fn restart(fields: &mut Fields<'_>, spec: &mut SupervisionSpec, problems: &mut Problems) {
    let Some(field) = fields.take("restart") else { return };
    let Some(mut table) = Fields::open(&field, fields.origin(), problems) else { return };
    let restart = &mut spec.restart;
    table.whole_number("max", 0..=10_000, &mut restart.max, problems);
    table.duration("window", PATIENT, &mut restart.window, problems);
    let before = problems.errors.len();
    table.duration("backoff_min", INSTANT, &mut restart.backoff_min, problems);
    table.duration("backoff_max", INSTANT, &mut restart.backoff_max, problems);
    if restart.backoff_min > restart.backoff_max && problems.errors.len() == before {
        let [least, most] = [restart.backoff_min, restart.backoff_max].map(units::show);
        let message = format!("`backoff_min` ({least}) is longer than `backoff_max` ({most})");
        problems.error(field.error(message));
    }
    table.duration("parked_probe", PATIENT, &mut restart.parked_probe, problems);
    table.finish(problems);
}

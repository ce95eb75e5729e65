//! Decodes the supervision keys of a server.

use super::FileDialect;
use super::fields::{Fields, Problems};
use crate::config::diagnostic::Diagnostic;
use crate::config::keys::choices::WHEN_DOWN;
use crate::config::node::Value;
use crate::config::spec::{Target, default_supervision};
use crate::config::units;
use gripfast_core::supervise::spec::{KeepaliveSpec, SupervisionSpec};
use std::time::Duration;

/// Takes all supervision keys out of a server's table.
pub(super) fn supervision(
    fields: &mut Fields<'_>,
    target: Option<&Target>,
    problems: &mut Problems,
) -> SupervisionSpec {
    let mut spec = default_supervision(target);
    fields.flag("lazy", &mut spec.lazy, problems);
    fields.duration("idle_timeout", &mut spec.idle_timeout, problems);
    keepalive(fields, &mut spec.keepalive, problems);
    fields.choice("when_down", WHEN_DOWN, &mut spec.when_down, problems);
    fields.whole_number("max_in_flight", &mut spec.max_in_flight, problems);
    fields.whole_number("max_waiting", &mut spec.max_waiting, problems);

    let mut spares = 0;
    fields.whole_number("spare", &mut spares, problems);
    spec.spare = spares == 1;
    if let Some(mut recycle) = fields.table("recycle", problems) {
        spec.recycle.max_lifetime = recycle.optional_duration("max_lifetime", problems);
        spec.recycle.max_rss = recycle.optional_size("max_rss", problems);
        recycle.finish(problems);
    }

    if let Some(mut circuit) = fields.table("circuit", problems) {
        circuit.whole_number("threshold", &mut spec.circuit.threshold, problems);
        circuit.duration("cooldown", &mut spec.circuit.cooldown, problems);
        circuit.finish(problems);
    }
    restart(fields, &mut spec, problems);
    let (path, at) = fields.position_of("timeouts");
    if let Some(mut timeouts) = fields.table("timeouts", problems) {
        let is_runner = target.is_some_and(|target| target.package_runner().is_some());
        let connect = timeouts.optional_duration("connect", problems);
        let connect_max = timeouts.optional_duration("connect_max", problems);
        if let (Some(first), Some(most)) = (connect, connect_max)
            && first > most
        {
            let [first, most] = [first, most].map(units::format_duration);
            let message = format!("`connect` ({first}) is longer than `connect_max` ({most})");
            problems.error(Diagnostic::error(path, at, message));
        }
        // If only one of the two is set, it moves the other one where they would contradict each other.
        let most = connect_max.unwrap_or(spec.timeouts.connect_max.max(connect.unwrap_or_default()));
        let default = if is_runner { most } else { spec.timeouts.connect.min(most) };
        (spec.timeouts.connect, spec.timeouts.connect_max) = (connect.unwrap_or(default), most);
        timeouts.duration("call", &mut spec.timeouts.call, problems);
        timeouts.duration("progress", &mut spec.timeouts.progress, problems);
        timeouts.duration("reconnect_wait", &mut spec.timeouts.reconnect_wait, problems);
        timeouts.finish(problems);
    }
    spec
}

fn keepalive(fields: &mut Fields<'_>, spec: &mut KeepaliveSpec, problems: &mut Problems) {
    let span = fields.duration_range("keepalive_interval");
    if let Some(field) = fields.take("keepalive_interval") {
        // In the files of Hermes this key is in seconds. The dialect decides that, not the size of the number.
        let seconds = match (&field.node.value, field.dialect) {
            (Value::Number(text), FileDialect::Hermes) => text.parse().ok().map(Duration::from_secs),
            _ => None,
        };
        let interval = match seconds {
            Some(seconds) if span.contains(seconds) => {
                let hint = format!(
                    "write \"{}\" to have the same meaning in every file",
                    units::format_duration(seconds)
                );
                problems.warning(field.warning("taken as seconds").with_hint(hint));
                Some(seconds)
            }
            Some(seconds) => {
                let message = format!(
                    "{} is out of range; allowed: {}",
                    units::format_duration(seconds),
                    span.describe()
                );
                problems.error(field.error(message));
                None
            }
            None => field.duration(span, problems),
        };
        if let Some(interval) = interval {
            spec.interval = (!interval.is_zero()).then_some(interval);
        }
    }
    fields.duration("keepalive_timeout", &mut spec.timeout, problems);
}

fn restart(fields: &mut Fields<'_>, spec: &mut SupervisionSpec, problems: &mut Problems) {
    let (path, at) = fields.position_of("restart");
    let Some(mut table) = fields.table("restart", problems) else { return };
    let restart = &mut spec.restart;
    table.whole_number("max", &mut restart.max, problems);
    table.duration("window", &mut restart.window, problems);
    let before = problems.errors.len();
    table.duration("backoff_min", &mut restart.backoff_min, problems);
    table.duration("backoff_max", &mut restart.backoff_max, problems);
    if restart.backoff_min > restart.backoff_max && problems.errors.len() == before {
        let [least, most] = [restart.backoff_min, restart.backoff_max].map(units::format_duration);
        let message = format!("`backoff_min` ({least}) is longer than `backoff_max` ({most})");
        problems.error(Diagnostic::error(path, at, message));
    }
    table.duration("parked_probe", &mut restart.parked_probe, problems);
    table.finish(problems);
}

//! Labels for status tables: the state of a server as a glyph and a word, and short durations. A glyph always stands
//! beside its word.

use crate::cli::error::FailureReport;
use gripfast::Code;
use gripfast_gateway::api::types::UpstreamView;

/// The next automatic step of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextStep {
    /// A connection attempt.
    Attempt,
    /// A trial call through an open circuit.
    Trial,
}

/// Placeholder for an empty cell.
pub(crate) const EMPTY_CELL: &str = "–";

/// The state with spaces instead of underscores.
pub(crate) fn state_word(upstream: &UpstreamView) -> String {
    upstream.state.replace('_', " ")
}

/// The reason for which the server has not been listed, if it has not.
pub(crate) fn list_failure(upstream: &UpstreamView) -> Option<FailureReport> {
    let code = match &*upstream.state {
        "ready" | "degraded" | "needs_approval" => return None,
        "starting" | "reconnecting" => Code::Reconnecting,
        "needs_login" => Code::NeedsLogin,
        "stopped" | "disabled" => Code::Stopped,
        // A state that only a later version knows does not mean that the server answers.
        _ => Code::Unreachable,
    };
    let (name, word) = (&upstream.name, state_word(upstream));
    let (text, hint) = match (&*upstream.state, &upstream.cause) {
        ("idle", _) => {
            (format!("server `{name}` has not been started yet"), Some("a call starts it".to_owned()))
        }
        ("disabled", _) => (
            format!("server `{name}` is disabled in the config"),
            Some(format!("`gripfast enable {name}` enables it")),
        ),
        ("config_error", Some(cause)) => {
            (format!("server `{name}` cannot work as configured: {cause}"), upstream.hint.clone())
        }
        (_, Some(cause)) => (format!("server `{name}` is {word}: {cause}"), upstream.hint.clone()),
        (_, None) => (format!("server `{name}` is {word}"), upstream.hint.clone()),
    };
    Some(FailureReport::for_server(name, code, text, hint))
}

/// The state for a table cell: `↻ reconnecting (next in 12s)`.
pub(super) fn state_cell(upstream: &UpstreamView) -> String {
    let (glyph, word) = (glyph(upstream), state_word(upstream));
    match next_step(upstream) {
        Some((NextStep::Attempt, when)) => format!("{glyph} {word} (next {when})"),
        Some((NextStep::Trial, when)) => format!("{glyph} {word} (trial {when})"),
        None if upstream.state == "starting" && upstream.since_ms > 0 => {
            format!("{glyph} {word} ({})", short_duration(upstream.since_ms))
        }
        None => format!("{glyph} {word}"),
    }
}

pub(super) fn glyph(upstream: &UpstreamView) -> char {
    match &*upstream.state {
        "ready" => '●',
        "idle" => '○',
        "starting" => '◐',
        "degraded" => '◍',
        "reconnecting" => '↻',
        "parked" | "config_error" => '✗',
        "needs_login" => '!',
        "needs_approval" => '‖',
        "disabled" => '⊘',
        "stopped" => '■',
        _ => '?',
    }
}

/// The next automatic step, and its time.
pub(super) fn next_step(upstream: &UpstreamView) -> Option<(NextStep, String)> {
    let wait = upstream.next_attempt_ms?;
    let what = if upstream.circuit == "closed" { NextStep::Attempt } else { NextStep::Trial };
    match (&*upstream.state, wait) {
        // A starting server is in its attempt. The other states need the user, so their periodic checks are not
        // shown.
        ("starting" | "needs_login" | "needs_approval" | "config_error", _) => None,
        (_, 0) => Some((what, "now".to_owned())),
        (_, wait) => Some((what, format!("in {}", short_duration(wait)))),
    }
}

/// The most important note about the server.
pub(super) fn note(upstream: &UpstreamView) -> String {
    let name = &upstream.name;
    match &*upstream.state {
        "needs_login" => format!("run: gripfast login {name}"),
        "needs_approval" => format!("run: gripfast pins diff {name}"),
        "stopped" => format!("run: gripfast start {name}"),
        "idle" => "starts on first use".to_owned(),
        _ => {
            // Only while starting; later the cause is more useful than the attempt.
            let starting = upstream.attempt.as_ref().filter(|_| upstream.state == "starting");
            let attempt = starting.map(|attempt| attempt.text.clone());
            attempt.or_else(|| upstream.cause.clone()).or_else(|| renamed_text(upstream)).unwrap_or_default()
        }
    }
}

/// The first tool that was renamed because of a name conflict, and the number of others.
pub(super) fn renamed_text(upstream: &UpstreamView) -> Option<String> {
    let (first, more) = upstream.renamed.split_first()?;
    let more = match more.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("renamed because of a name conflict: `{}` to `{}`{more}", first.wanted, first.public))
}

/// The number of tools, with a star if it is from the last time the server was listed.
pub(super) fn tools_text(upstream: &UpstreamView) -> String {
    match (upstream.tools, &*upstream.state) {
        (tools, "ready" | "degraded" | "needs_approval") => tools.to_string(),
        (0, _) => EMPTY_CELL.to_owned(),
        (tools, _) => format!("{tools}*"),
    }
}

/// A short duration: `850ms`, `3s`, `4m`, `2h 5m`, `3d 4h`.
pub(crate) fn short_duration(millis: u64) -> String {
    let seconds = millis / 1000;
    let two = |most: u64, unit: char, rest: u64, lesser: char| match rest {
        0 => format!("{most}{unit}"),
        rest => format!("{most}{unit} {rest}{lesser}"),
    };
    match seconds {
        0 => format!("{millis}ms"),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => two(seconds / 3600, 'h', seconds % 3600 / 60, 'm'),
        _ => two(seconds / 86_400, 'd', seconds % 86_400 / 3600, 'h'),
    }
}

/// A call latency.
pub(crate) fn latency(millis: Option<f64>) -> String {
    match millis {
        None => EMPTY_CELL.to_owned(),
        Some(millis) if millis < 1.0 => "<1ms".to_owned(),
        Some(millis) if millis < 10_000.0 => format!("{millis:.0}ms"),
        Some(millis) => format!("{:.0}s", millis / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let shown: Vec<String> = [0, 850, 3_999, 61_000, 7_500_000, 86_400_000, 273_600_000]
            .into_iter()
            .map(short_duration)
            .collect();
        assert_eq!(shown, ["0ms", "850ms", "3s", "1m", "2h 5m", "1d", "3d 4h"]);
    }

    #[test]
    fn every_state_of_the_contract_has_a_glyph() {
        let states = "idle starting ready degraded reconnecting parked needs_login needs_approval config_error \
                      disabled stopped";
        for state in states.split_whitespace() {
            let upstream: UpstreamView =
                serde_json::from_value(serde_json::json!({ "name": "a", "state": state })).unwrap();
            assert_ne!(glyph(&upstream), '?', "{state}");
            assert!(state_cell(&upstream).contains(&state.replace('_', " ")), "{state}");
        }
    }

    #[test]
    fn renamed_tools_are_noted_if_nothing_is_wrong() {
        let renamed = |names: &[&str]| {
            let renamed = names
                .iter()
                .map(|name| serde_json::json!({ "wanted": name, "public": format!("b__{name}") }));
            let fields =
                serde_json::json!({ "name": "b", "state": "ready", "renamed": renamed.collect::<Vec<_>>() });
            note(&serde_json::from_value(fields).unwrap())
        };
        assert_eq!(renamed(&[]), "");
        assert_eq!(renamed(&["x"]), "renamed because of a name conflict: `x` to `b__x`");
        assert_eq!(renamed(&["x", "y", "z"]), "renamed because of a name conflict: `x` to `b__x` and 2 more");
    }

    #[test]
    fn the_next_step_is_shown_with_its_time() {
        let shown = |fields: serde_json::Value| state_cell(&serde_json::from_value(fields).unwrap());
        let away = serde_json::json!({ "name": "a", "state": "reconnecting", "circuit": "closed", "next_attempt_ms": 12_000 });
        assert_eq!(shown(away), "↻ reconnecting (next in 12s)");
        let open = serde_json::json!({ "name": "a", "state": "degraded", "circuit": "open", "next_attempt_ms": 41_000 });
        assert_eq!(shown(open), "◍ degraded (trial in 41s)");
        let up = serde_json::json!({ "name": "a", "state": "starting", "circuit": "closed", "next_attempt_ms": 0, "since_ms": 4000 });
        assert_eq!(shown(up), "◐ starting (4s)");
    }
}

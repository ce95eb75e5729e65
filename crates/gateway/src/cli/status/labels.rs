//! Labels for status tables: the state of a server as a glyph and a word, and short durations. A glyph always stands
//! beside its word.

use super::model::ServerModel;
use crate::cli::error::FailureReport;
use gripfast::Code;

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

impl ServerModel {
    /// The state with spaces instead of underscores.
    pub(crate) fn state_word(&self) -> String {
        self.state.replace('_', " ")
    }

    /// The reason for which the server has not been listed, if it has not.
    pub(crate) fn list_failure(&self) -> Option<FailureReport> {
        let code = match self.state.as_str() {
            "ready" | "degraded" | "needs_approval" => return None,
            "starting" | "reconnecting" => Code::Reconnecting,
            "needs_login" => Code::NeedsLogin,
            "stopped" | "disabled" => Code::Stopped,
            // A state that only a later version knows does not mean that the server answers.
            _ => Code::Unreachable,
        };
        let (name, word) = (&self.name, self.state_word());
        let (text, hint) = match (self.state.as_str(), &self.cause) {
            ("idle", _) => {
                (format!("server `{name}` has not been started yet"), Some("a call starts it".to_owned()))
            }
            ("disabled", _) => (
                format!("server `{name}` is disabled in the config"),
                Some(format!("`gripfast enable {name}` enables it")),
            ),
            ("config_error", Some(cause)) => {
                (format!("server `{name}` cannot work as configured: {cause}"), self.hint.clone())
            }
            (_, Some(cause)) => (format!("server `{name}` is {word}: {cause}"), self.hint.clone()),
            (_, None) => (format!("server `{name}` is {word}"), self.hint.clone()),
        };
        Some(FailureReport::for_server(name, code, text, hint))
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.state == "disabled"
    }

    /// Returns true if a working connection is being replaced.
    pub(crate) fn is_being_replaced(&self) -> bool {
        self.replacing
    }

    /// The state for a table cell: `↻ reconnecting (next in 12s)`.
    pub(super) fn state_cell(&self) -> String {
        let (glyph, word) = (self.glyph(), self.state_word());
        match (self.next_step(), self.since_ms) {
            (Some((NextStep::Attempt, when)), _) => format!("{glyph} {word} (next {when})"),
            (Some((NextStep::Trial, when)), _) => format!("{glyph} {word} (trial {when})"),
            (None, Some(since)) if self.state == "starting" => {
                format!("{glyph} {word} ({})", short_duration(since))
            }
            (None, _) => format!("{glyph} {word}"),
        }
    }

    pub(super) fn glyph(&self) -> char {
        match self.state.as_str() {
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
    pub(super) fn next_step(&self) -> Option<(NextStep, String)> {
        let wait = self.next_attempt_ms?;
        let what = if self.circuit == "closed" { NextStep::Attempt } else { NextStep::Trial };
        match (self.state.as_str(), wait) {
            // A starting server is in its attempt. The other states need the user, so their periodic checks are not
            // shown.
            ("starting" | "needs_login" | "needs_approval" | "config_error", _) => None,
            (_, 0) => Some((what, "now".to_owned())),
            (_, wait) => Some((what, format!("in {}", short_duration(wait)))),
        }
    }

    /// The most important note about the server.
    pub(super) fn note(&self) -> String {
        let name = &self.name;
        match self.state.as_str() {
            "needs_login" => format!("run: gripfast login {name}"),
            "needs_approval" => format!("run: gripfast pins diff {name}"),
            "stopped" => format!("run: gripfast start {name}"),
            "idle" => "starts on first use".to_owned(),
            _ => {
                // Only while starting; later the cause is more useful than the attempt.
                let starting = self.attempt.as_ref().filter(|_| self.state == "starting");
                let attempt = starting.map(|attempt| attempt.text.clone());
                attempt.or_else(|| self.cause.clone()).or_else(|| self.renamed_text()).unwrap_or_default()
            }
        }
    }

    /// The first tool that was renamed because of a name conflict, and the number of others.
    pub(super) fn renamed_text(&self) -> Option<String> {
        let (first, more) = self.renamed.split_first()?;
        let more = match more.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!("renamed because of a name conflict: `{}` to `{}`{more}", first.wanted, first.public))
    }

    /// The number of tools, with a star if it is from the last time the server was listed.
    pub(super) fn tools_text(&self) -> String {
        match (self.tools, self.state.as_str()) {
            (tools, "ready" | "degraded" | "needs_approval") => tools.to_string(),
            (0, _) => EMPTY_CELL.to_owned(),
            (tools, _) => format!("{tools}*"),
        }
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
            let upstream: ServerModel =
                serde_json::from_value(serde_json::json!({ "name": "a", "state": state })).unwrap();
            assert_ne!(upstream.glyph(), '?', "{state}");
            assert!(upstream.state_cell().contains(&state.replace('_', " ")), "{state}");
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
            serde_json::from_value::<ServerModel>(fields).unwrap().note()
        };
        assert_eq!(renamed(&[]), "");
        assert_eq!(renamed(&["x"]), "renamed because of a name conflict: `x` to `b__x`");
        assert_eq!(renamed(&["x", "y", "z"]), "renamed because of a name conflict: `x` to `b__x` and 2 more");
    }

    #[test]
    fn the_next_step_is_shown_with_its_time() {
        let shown =
            |fields: serde_json::Value| serde_json::from_value::<ServerModel>(fields).unwrap().state_cell();
        let away = serde_json::json!({ "name": "a", "state": "reconnecting", "circuit": "closed", "next_attempt_ms": 12_000 });
        assert_eq!(shown(away), "↻ reconnecting (next in 12s)");
        let open = serde_json::json!({ "name": "a", "state": "degraded", "circuit": "open", "next_attempt_ms": 41_000 });
        assert_eq!(shown(open), "◍ degraded (trial in 41s)");
        let up = serde_json::json!({ "name": "a", "state": "starting", "circuit": "closed", "next_attempt_ms": 0, "since_ms": 4000 });
        assert_eq!(shown(up), "◐ starting (4s)");
    }
}

//! A server's state in a glyph and a word, and spans of time as short as a table wants them. The glyph never
//! stands alone, and neither would a colour.

use super::model::Upstream;
use crate::cli::stop::Failure;
use gripfast::Code;

/// What a server does next by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It is connected.
    Attempt,
    /// One call is let through.
    Trial,
}

/// What stands for a gap in a table.
pub(crate) const NOTHING: &str = "–";

impl Upstream {
    /// The state as people write it.
    pub(crate) fn state_word(&self) -> String {
        self.state.replace('_', " ")
    }

    /// Why it is not known what it offers, if it has not said so.
    pub(crate) fn unlisted(&self) -> Option<Failure> {
        let code = match self.state.as_str() {
            "ready" | "degraded" | "needs_approval" => return None,
            "starting" | "reconnecting" => Code::Reconnecting,
            "needs_login" => Code::NeedsLogin,
            "stopped" | "disabled" => Code::Stopped,
            // What a later gateway may say is no reason to think that the server answers.
            _ => Code::Unreachable,
        };
        let (name, word) = (&self.name, self.state_word());
        let (text, hint) = match (self.state.as_str(), &self.cause) {
            ("idle", _) => {
                (format!("upstream `{name}` was never started"), Some("a call starts it".to_owned()))
            }
            ("disabled", _) => (
                format!("upstream `{name}` is disabled in the config"),
                Some(format!("`gripfast enable {name}` takes `disabled` out of its table")),
            ),
            ("config_error", Some(cause)) => {
                (format!("upstream `{name}` cannot work as configured: {cause}"), self.hint.clone())
            }
            (_, Some(cause)) => (format!("upstream `{name}` is {word}: {cause}"), self.hint.clone()),
            (_, None) => (format!("upstream `{name}` is {word}"), self.hint.clone()),
        };
        Some(Failure::about(name, code, text, hint))
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.state == "disabled"
    }

    /// Whether a link that works is being replaced.
    pub(crate) fn is_being_replaced(&self) -> bool {
        self.replacing
    }

    /// The state at a glance: `↻ reconnecting (next in 12s)`.
    pub(super) fn at_a_glance(&self) -> String {
        let (glyph, word) = (self.glyph(), self.state_word());
        match (self.next(), self.since_ms) {
            (Some((Next::Attempt, when)), _) => format!("{glyph} {word} (next {when})"),
            (Some((Next::Trial, when)), _) => format!("{glyph} {word} (trial {when})"),
            (None, Some(since)) if self.state == "starting" => format!("{glyph} {word} ({})", span(since)),
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

    /// What it does next by itself, and when.
    pub(super) fn next(&self) -> Option<(Next, String)> {
        let wait = self.next_attempt_ms?;
        let what = if self.circuit == "closed" { Next::Attempt } else { Next::Trial };
        match (self.state.as_str(), wait) {
            // It is at it. The others only a person or the outside world can mend; that they are looked at now
            // and then is a detail.
            ("starting" | "needs_login" | "needs_approval" | "config_error", _) => None,
            (_, 0) => Some((what, "now".to_owned())),
            (_, wait) => Some((what, format!("in {}", span(wait)))),
        }
    }

    /// The one thing worth saying about it.
    pub(super) fn note(&self) -> String {
        let name = &self.name;
        match self.state.as_str() {
            "needs_login" => format!("run: gripfast login {name}"),
            "needs_approval" => format!("run: gripfast pins diff {name}"),
            "stopped" => format!("run: gripfast start {name}"),
            "idle" => "starts on first use".to_owned(),
            _ => {
                // A server that was up before has a cause, which says more than the time of an attempt.
                let starting = self.attempt.as_ref().filter(|_| self.state == "starting");
                let attempt = starting.map(|attempt| attempt.text.clone());
                attempt.or_else(|| self.cause.clone()).or_else(|| self.renamed_shown()).unwrap_or_default()
            }
        }
    }

    /// Which names had to give way to an earlier server's: the first of them, and how many more.
    pub(super) fn renamed_shown(&self) -> Option<String> {
        let (first, more) = self.renamed.split_first()?;
        let more = match more.len() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        Some(format!(
            "`{}` is called `{}`{more}: an earlier server has that name",
            first.wanted, first.public
        ))
    }

    /// How many tools; with a star if that is what it offered when it was last seen.
    pub(super) fn tools_shown(&self) -> String {
        match (self.tools, self.state.as_str()) {
            (tools, "ready" | "degraded" | "needs_approval") => tools.to_string(),
            (0, _) => NOTHING.to_owned(),
            (tools, _) => format!("{tools}*"),
        }
    }
}

/// A span as short as can be: `850ms`, `3s`, `4m`, `2h 5m`, `3d 4h`.
pub(crate) fn span(millis: u64) -> String {
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

/// How long calls take.
pub(crate) fn latency(millis: Option<f64>) -> String {
    match millis {
        None => NOTHING.to_owned(),
        Some(millis) if millis < 1.0 => "<1ms".to_owned(),
        Some(millis) if millis < 10_000.0 => format!("{millis:.0}ms"),
        Some(millis) => format!("{:.0}s", millis / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        let said: Vec<String> =
            [0, 850, 3_999, 61_000, 7_500_000, 86_400_000, 273_600_000].into_iter().map(span).collect();
        assert_eq!(said, ["0ms", "850ms", "3s", "1m", "2h 5m", "1d", "3d 4h"]);
    }

    #[test]
    fn every_state_of_the_contract_has_a_glyph() {
        let states = "idle starting ready degraded reconnecting parked needs_login needs_approval config_error \
                      disabled stopped";
        for state in states.split_whitespace() {
            let upstream: Upstream =
                serde_json::from_value(serde_json::json!({ "name": "a", "state": state })).unwrap();
            assert_ne!(upstream.glyph(), '?', "{state}");
            assert!(upstream.at_a_glance().contains(&state.replace('_', " ")), "{state}");
        }
    }

    #[test]
    fn names_that_gave_way_are_worth_saying_where_nothing_is_wrong() {
        let renamed = |names: &[&str]| {
            let renamed = names
                .iter()
                .map(|name| serde_json::json!({ "wanted": name, "public": format!("b__{name}") }));
            let fields =
                serde_json::json!({ "name": "b", "state": "ready", "renamed": renamed.collect::<Vec<_>>() });
            serde_json::from_value::<Upstream>(fields).unwrap().note()
        };
        assert_eq!(renamed(&[]), "");
        assert_eq!(renamed(&["x"]), "`x` is called `b__x`: an earlier server has that name");
        assert_eq!(
            renamed(&["x", "y", "z"]),
            "`x` is called `b__x`, and 2 more: an earlier server has that name"
        );
    }

    #[test]
    fn what_happens_next_is_said_with_its_time() {
        let shown =
            |fields: serde_json::Value| serde_json::from_value::<Upstream>(fields).unwrap().at_a_glance();
        let away = serde_json::json!({ "name": "a", "state": "reconnecting", "circuit": "closed", "next_attempt_ms": 12_000 });
        assert_eq!(shown(away), "↻ reconnecting (next in 12s)");
        let open = serde_json::json!({ "name": "a", "state": "degraded", "circuit": "open", "next_attempt_ms": 41_000 });
        assert_eq!(shown(open), "◍ degraded (trial in 41s)");
        let up = serde_json::json!({ "name": "a", "state": "starting", "circuit": "closed", "next_attempt_ms": 0, "since_ms": 4000 });
        assert_eq!(shown(up), "◐ starting (4s)");
    }
}

//! What a caller gets when a call could not be served: a text that says what failed, for whom and what
//! happens next, and a machine part from closed sets (C01, C02).

use super::{BlockCause, Failure};
use crate::text;
use std::fmt;
use std::time::Duration;

/// Why a call was not served.
#[derive(Debug, Clone, PartialEq)]
pub struct CallError {
    /// The kind of failure.
    pub code: Code,
    /// The upstream it is about; empty if none could be determined.
    pub server: String,
    /// What is known about the request's fate.
    pub outcome: Outcome,
    /// What failed, for whom, what happens next.
    pub text: String,
    /// When it is worth asking again.
    pub retry_after: Option<Duration>,
    /// What a person can do about it.
    pub hint: Option<String>,
}

/// The kind of failure. The set is closed; outside programs match on [`Code::word`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the word is the documentation; behaviours.md C02 explains the set")]
pub enum Code {
    Unreachable,
    Reconnecting,
    Timeout,
    OutcomeUnknown,
    NeedsLogin,
    Denied,
    SchemaChanged,
    BudgetExceeded,
    Overloaded,
    Cancelled,
    Stopped,
    UnknownServer,
    UnknownTool,
    InvalidRequest,
    UpstreamProtocol,
}

impl Code {
    /// All codes, in the order of the reference.
    pub const ALL: [Self; 15] = [
        Self::Unreachable,
        Self::Reconnecting,
        Self::Timeout,
        Self::OutcomeUnknown,
        Self::NeedsLogin,
        Self::Denied,
        Self::SchemaChanged,
        Self::BudgetExceeded,
        Self::Overloaded,
        Self::Cancelled,
        Self::Stopped,
        Self::UnknownServer,
        Self::UnknownTool,
        Self::InvalidRequest,
        Self::UpstreamProtocol,
    ];

    /// The code of this word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.word() == word)
    }

    /// What it means to whoever called.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Unreachable => "the server cannot be reached, or calls to it are refused after failures",
            Self::Reconnecting => "the server is being connected, and the call was held in vain",
            Self::Timeout => "no answer came in time",
            Self::OutcomeUnknown => {
                "the call was sent and its link was lost; nobody knows whether it was carried out"
            }
            Self::NeedsLogin => "the server refuses the credential, and a person has to log in",
            Self::Denied => "a list of the config denies it",
            Self::SchemaChanged => "the tool says something else than what was approved",
            Self::BudgetExceeded => "a budget of calls is used up",
            Self::Overloaded => "too many calls are under way or waiting",
            Self::Cancelled => "the caller gave it up",
            Self::Stopped => "somebody stopped the server, or the config switches it off",
            Self::UnknownServer => "there is no server of this name",
            Self::UnknownTool => "the server has no tool of this name",
            Self::InvalidRequest => "the request cannot be understood",
            Self::UpstreamProtocol => "the server answered something that is not MCP",
        }
    }

    /// The word on the wire, in logs and in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Reconnecting => "reconnecting",
            Self::Timeout => "timeout",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::NeedsLogin => "needs_login",
            Self::Denied => "denied",
            Self::SchemaChanged => "schema_changed",
            Self::BudgetExceeded => "budget_exceeded",
            Self::Overloaded => "overloaded",
            Self::Cancelled => "cancelled",
            Self::Stopped => "stopped",
            Self::UnknownServer => "unknown_server",
            Self::UnknownTool => "unknown_tool",
            Self::InvalidRequest => "invalid_request",
            Self::UpstreamProtocol => "upstream_protocol",
        }
    }
}

/// What is known about a request's fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The server never saw it.
    NotSent,
    /// The server saw it and turned it away before acting.
    Refused,
    /// The server acted and said that it failed.
    Failed,
    /// It was sent, and nobody knows whether the server acted.
    Unknown,
    /// The server acted and answered.
    Done,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 5] = [Self::NotSent, Self::Refused, Self::Failed, Self::Unknown, Self::Done];

    /// The outcome of this word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.word() == word)
    }

    /// The word on the wire and in the ledger.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Done => "done",
        }
    }
}

impl CallError {
    /// An error about `server`; texts and hints are added by the methods below.
    pub fn new(code: Code, server: &str, outcome: Outcome, text: impl Into<String>) -> Self {
        Self { code, server: server.to_owned(), outcome, text: text.into(), retry_after: None, hint: None }
    }

    /// The longest time after which a caller is asked to try again, whatever the server says.
    pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(86_400);

    /// Says when it is worth asking again.
    #[must_use]
    pub fn retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait.map(|wait| wait.min(Self::LONGEST_RETRY_AFTER));
        self
    }

    /// Says what a person can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What the caller is told after `failure` ended its call with `outcome`.
    pub fn from_failure(server: &str, failure: &Failure, outcome: Outcome) -> Self {
        let status_hint = format!("`gripfast status {server}` shows what is known about it");
        match failure {
            Failure::Unreachable(_) => Self::new(
                Code::Unreachable,
                server,
                outcome,
                format!("upstream `{server}` is unreachable ({failure}); it is dialed again by itself"),
            )
            .hint(status_hint),
            Failure::LacksResources(_) => Self::new(
                Code::Overloaded,
                server,
                outcome,
                format!("upstream `{server}` could not be reached: {failure}; it is tried again as soon as there is room"),
            )
            .retry_after(Some(Duration::from_secs(1)))
            .hint("raise the limit of open files of the gripfast process: `LimitNOFILE=` or `ulimit -n`"),
            Failure::Lost(_) | Failure::ServerFault(_) => match outcome {
                Outcome::Unknown => Self::new(
                    Code::OutcomeUnknown,
                    server,
                    outcome,
                    format!(
                        "upstream `{server}` was lost after the request was sent ({failure}); \
                         whether it was carried out is unknown, so it is not sent again"
                    ),
                )
                .hint("check the effect before you repeat the call"),
                Outcome::NotSent | Outcome::Refused | Outcome::Failed | Outcome::Done => Self::new(
                    Code::Unreachable,
                    server,
                    outcome,
                    format!("upstream `{server}` was lost ({failure}); it is brought back by itself"),
                )
                .hint(status_hint),
            },
            Failure::TimedOut(_) => Self::new(
                Code::Timeout,
                server,
                outcome,
                format!("upstream `{server}` gave {failure}; the link is being checked"),
            )
            .hint(
                "raise `timeouts.call` if the tool needs longer; check the effect before you repeat the call",
            ),
            Failure::SessionExpired(_) => Self::new(
                Code::Unreachable,
                server,
                outcome,
                format!("upstream `{server}` refused a new session as well ({failure})"),
            )
            .hint(status_hint),
            Failure::CredentialRefused(_) => Self::needs_login(server, &failure.to_string(), outcome),
            Failure::BeyondScope(_) => Self::new(
                Code::NeedsLogin,
                server,
                outcome,
                format!("upstream `{server}` wants a login that allows more, for this request ({failure})"),
            )
            .hint(format!("run `gripfast login {server}`, which asks for it; its other tools work")),
            Failure::Busy { retry_after, .. } => Self::new(
                Code::Overloaded,
                server,
                outcome,
                format!("upstream `{server}` is busy and refused the request ({failure})"),
            )
            .retry_after(*retry_after),
            Failure::Nonsense(_) => Self::new(
                Code::UpstreamProtocol,
                server,
                outcome,
                format!("upstream `{server}` answered with something that is not MCP: {failure}"),
            )
            .hint(format!("`gripfast logs {server}` shows what it wrote")),
            Failure::Outdated(_) | Failure::Declined(_) => Self::new(
                Code::InvalidRequest,
                server,
                outcome,
                format!("upstream `{server}` declined the request: {failure}"),
            ),
            Failure::Blocked(cause) => Self::blocked(server, cause, outcome),
        }
    }

    /// What the caller is told about an upstream that cannot work until its cause changes.
    pub fn blocked(server: &str, cause: &BlockCause, outcome: Outcome) -> Self {
        let hint = match cause {
            BlockCause::NeedsLogin(text) => return Self::needs_login(server, text, outcome),
            BlockCause::MissingExecutable(_) => {
                "install the command or correct `command` in the config; it is tried again by itself"
                    .to_owned()
            }
            BlockCause::UnsetVariable(_) => {
                "set the variable for the gripfast process, or correct the config".to_owned()
            }
            BlockCause::BadConfig(_) => format!("`gripfast check` explains the config of `{server}`"),
            BlockCause::NotMcp(_) => {
                format!("check the `url` of `{server}` (many servers end in /mcp or /sse)")
            }
        };
        Self::new(
            Code::Unreachable,
            server,
            outcome,
            format!("upstream `{server}` cannot work as configured: {}", cause.text()),
        )
        .hint(hint)
    }

    fn needs_login(server: &str, text: &str, outcome: Outcome) -> Self {
        Self::new(
            Code::NeedsLogin,
            server,
            outcome,
            format!("upstream `{server}` needs a login or another credential ({text})"),
        )
        .hint(format!("run `gripfast login {server}`, or correct its `headers`"))
    }

    /// The machine part of C01: what goes to `_meta["gripfast/failure"]` or into `data`.
    pub fn machine_part(&self) -> serde_json::Value {
        let mut part = serde_json::json!({
            "code": self.code.word(),
            "server": self.server,
            "retry_after_ms": self.retry_after.map(|wait| wait.as_millis() as u64),
            "outcome": self.outcome.word(),
            "hint": self.hint,
        });
        if self.code == Code::NeedsLogin {
            part["needs_reauth"] = serde_json::Value::Bool(true);
        }
        part
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if let Some(wait) = self.retry_after {
            write!(f, "; next try in {}", text::duration(wait))?;
        }
        Ok(())
    }
}

impl std::error::Error for CallError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn every_failure() -> Vec<Failure> {
        vec![
            Failure::Unreachable("connection refused".into()),
            Failure::Lost("was killed (signal 9)".into()),
            Failure::TimedOut(Duration::from_secs(300)),
            Failure::SessionExpired("HTTP 404".into()),
            Failure::CredentialRefused("HTTP 401".into()),
            Failure::BeyondScope("HTTP 403".into()),
            Failure::Busy { retry_after: Some(Duration::from_secs(9)), text: "HTTP 429".into() },
            Failure::ServerFault("HTTP 500".into()),
            Failure::Nonsense("not JSON".into()),
            Failure::Outdated("HTTP 400: Mcp-Param-Region is missing".into()),
            Failure::Declined("unknown tool (-32602)".into()),
            Failure::Blocked(BlockCause::MissingExecutable("`npx` was not found on PATH".into())),
            Failure::Blocked(BlockCause::UnsetVariable("variable `TOKEN` is not set".into())),
            Failure::Blocked(BlockCause::BadConfig("bad url".into())),
            Failure::Blocked(BlockCause::NotMcp("HTTP 404".into())),
            Failure::Blocked(BlockCause::NeedsLogin("HTTP 401".into())),
        ]
    }

    #[test]
    fn c01_every_failure_names_the_server_and_has_a_text_and_a_machine_part() {
        for failure in every_failure() {
            for outcome in [Outcome::NotSent, Outcome::Refused, Outcome::Failed, Outcome::Unknown] {
                let error = CallError::from_failure("github", &failure, outcome);
                assert!(error.text.contains("`github`"), "{error}");
                assert!(!error.text.ends_with('.') && error.text.len() > 20, "{error}");
                let part = error.machine_part();
                assert_eq!(part["server"], "github");
                assert_eq!(part["outcome"], outcome.word());
                assert!(part["code"].is_string());
                for key in ["retry_after_ms", "hint"] {
                    assert!(part.get(key).is_some(), "{key} is always there, null if unknown");
                }
            }
        }
    }

    #[test]
    fn c02_codes_are_a_closed_set_of_distinct_words() {
        let words: BTreeSet<&str> = Code::ALL.iter().map(|code| code.word()).collect();
        assert_eq!(words.len(), 15);
        assert!(words.contains("outcome_unknown") && words.contains("upstream_protocol"));
    }

    #[test]
    fn c01_nobody_is_asked_to_wait_for_more_than_a_day() {
        let year = Some(Duration::from_secs(365 * 86_400));
        let busy = Failure::Busy { retry_after: year, text: "HTTP 429".into() };
        let error = CallError::from_failure("github", &busy, Outcome::Refused);
        assert_eq!(error.machine_part()["retry_after_ms"], 86_400_000);
        assert!(!error.text.contains("twice"), "one attempt is enough for this text: {error}");
    }

    #[test]
    fn e03_a_needed_login_says_so_to_machines_and_names_the_command_to_people() {
        let failure = Failure::CredentialRefused("HTTP 401".into());
        let error = CallError::from_failure("notion", &failure, Outcome::Refused);
        assert_eq!(error.machine_part()["needs_reauth"], true);
        assert!(error.hint.is_some_and(|hint| hint.contains("gripfast login notion")));
    }
}

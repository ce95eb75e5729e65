//! Error that a caller gets when a call could not be served: a text for people, and a machine-readable part from closed
//! sets (C01, C02).

use super::{BlockCause, Failure};
use crate::text;
use std::fmt;
use std::time::Duration;

/// The error of a call that was not served.
#[derive(Debug, Clone, PartialEq)]
pub struct CallError {
    /// The error code.
    pub code: Code,
    /// The server it is about; empty if none could be determined.
    pub server: String,
    /// The known outcome of the request.
    pub outcome: CallOutcome,
    /// The text: the failure, the server and the next step.
    pub text: String,
    /// The time after which a retry is useful.
    pub retry_after: Option<Duration>,
    /// A hint for the operator.
    pub hint: Option<String>,
}

word_enum! {
    /// Error code. The set is closed; programs match on [`Code::as_str`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[expect(missing_docs, reason = "the word is the documentation; behaviours.md C02 explains the set")]
    pub enum Code {
        Unreachable = "unreachable",
        Reconnecting = "reconnecting",
        Timeout = "timeout",
        OutcomeUnknown = "outcome_unknown",
        NeedsLogin = "needs_login",
        Denied = "denied",
        SchemaChanged = "schema_changed",
        BudgetExceeded = "budget_exceeded",
        Overloaded = "overloaded",
        Cancelled = "cancelled",
        Stopped = "stopped",
        UnknownServer = "unknown_server",
        UnknownTool = "unknown_tool",
        InvalidRequest = "invalid_request",
        UpstreamProtocol = "upstream_protocol",
    }
}

impl Code {
    /// The meaning of the code, for the caller.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Unreachable => "the server cannot be reached, or calls to it are refused after failures",
            Self::Reconnecting => "the server is still reconnecting; the call waited and was not sent",
            Self::Timeout => "the server did not answer in time",
            Self::OutcomeUnknown => {
                "the call was sent and the connection was lost; whether it was carried out is unknown"
            }
            Self::NeedsLogin => "the server refuses the credential; log in or correct it",
            Self::Denied => "an allow or deny list of the config forbids it",
            Self::SchemaChanged => "the tool changed since it was approved",
            Self::BudgetExceeded => "a call budget is used up",
            Self::Overloaded => {
                "too many calls are in flight or waiting, or there is no memory for the answer"
            }
            Self::Cancelled => "the caller cancelled the call",
            Self::Stopped => "the server is stopped or disabled, or the gateway is shutting down",
            Self::UnknownServer => "there is no server with this name",
            Self::UnknownTool => "the server has no tool with this name",
            Self::InvalidRequest => "the request is not valid",
            Self::UpstreamProtocol => "the answer of the server is not valid MCP",
        }
    }
}

word_enum! {
    /// The known outcome of a request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum CallOutcome {
        /// The server did not receive it.
        NotSent = "not_sent",
        /// The server received it and refused it before acting.
        Refused = "refused",
        /// The server acted and reported a failure.
        Failed = "failed",
        /// It was sent, and whether the server acted is unknown.
        Unknown = "unknown",
        /// The server acted and answered.
        Done = "done",
    }
}

impl CallError {
    /// An error about `server`; hint and retry time are added by the methods below.
    pub fn new(code: Code, server: &str, outcome: CallOutcome, text: impl Into<String>) -> Self {
        Self { code, server: server.to_owned(), outcome, text: text.into(), retry_after: None, hint: None }
    }

    /// Upper bound of the retry time, whatever the server says.
    pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

    /// Adds the time after which a retry is useful.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait.map(|wait| wait.min(Self::MAX_RETRY_AFTER));
        self
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The error for a call that `failure` ended with `outcome`.
    pub fn from_failure(server: &str, failure: &Failure, outcome: CallOutcome) -> Self {
        let status_hint = format!("`gripfast status {server}` shows the last error");
        match failure {
            Failure::Unreachable(_) => Self::new(
                Code::Unreachable,
                server,
                outcome,
                format!("server `{server}` is unreachable ({failure}); gripfast reconnects automatically"),
            )
            .with_hint(status_hint),
            Failure::OutOfResources(_) => Self::new(
                Code::Overloaded,
                server,
                outcome,
                format!("server `{server}` could not be reached: {failure}; gripfast retries soon"),
            )
            .with_retry_after(Some(Duration::from_secs(1)))
            .with_hint("raise the limit of open files of the gripfast process: `LimitNOFILE=` or `ulimit -n`"),
            Failure::Lost(_) | Failure::ServerFault(_) => match outcome {
                CallOutcome::Unknown => Self::new(
                    Code::OutcomeUnknown,
                    server,
                    outcome,
                    format!(
                        "connection to server `{server}` lost after the request was sent ({failure}); \
                         whether it was carried out is unknown, so it is not sent again"
                    ),
                )
                .with_hint("check the effect before you repeat the call"),
                CallOutcome::NotSent | CallOutcome::Refused | CallOutcome::Failed | CallOutcome::Done => Self::new(
                    Code::Unreachable,
                    server,
                    outcome,
                    format!("connection to server `{server}` lost ({failure}); gripfast reconnects automatically"),
                )
                .with_hint(status_hint),
            },
            Failure::TimedOut(_) => Self::new(
                Code::Timeout,
                server,
                outcome,
                format!("server `{server}` gave {failure}; the connection is being checked"),
            )
            .with_hint(
                "raise `timeouts.call` if the tool needs longer; check the effect before you repeat the call",
            ),
            Failure::SessionExpired(_) => Self::new(
                Code::Unreachable,
                server,
                outcome,
                format!("server `{server}` refused a new session as well ({failure})"),
            )
            .with_hint(status_hint),
            Failure::CredentialRefused(_) => Self::needs_login(server, &failure.to_string(), outcome),
            Failure::InsufficientScope(_) => Self::new(
                Code::NeedsLogin,
                server,
                outcome,
                format!("server `{server}` requires a login with more permissions for this request ({failure})"),
            )
            .with_hint(format!("run `gripfast login {server}` to grant them; other tools of the server work")),
            Failure::Busy { retry_after, .. } => Self::new(
                Code::Overloaded,
                server,
                outcome,
                format!("server `{server}` is busy and refused the request ({failure})"),
            )
            .with_retry_after(*retry_after),
            Failure::InvalidResponse(_) => Self::new(
                Code::UpstreamProtocol,
                server,
                outcome,
                format!("the answer of server `{server}` is not valid MCP: {failure}"),
            )
            .with_hint(format!("`gripfast logs {server}` shows its output")),
            Failure::HeaderMismatch(_) | Failure::Declined(_) => Self::new(
                Code::InvalidRequest,
                server,
                outcome,
                format!("server `{server}` declined the request: {failure}"),
            ),
            Failure::Blocked(cause) => Self::blocked(server, cause, outcome),
        }
    }

    /// The error for a server that cannot work until the cause of its block changes.
    pub fn blocked(server: &str, cause: &BlockCause, outcome: CallOutcome) -> Self {
        let hint = match cause {
            BlockCause::NeedsLogin(text) => return Self::needs_login(server, text, outcome),
            BlockCause::MissingExecutable(_) => {
                "install the command or correct `command` in the config; gripfast retries automatically"
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
            format!("server `{server}` cannot work as configured: {}", cause.text()),
        )
        .with_hint(hint)
    }

    fn needs_login(server: &str, text: &str, outcome: CallOutcome) -> Self {
        Self::new(
            Code::NeedsLogin,
            server,
            outcome,
            format!("server `{server}` needs a login or another credential ({text})"),
        )
        .with_hint(format!("run `gripfast login {server}`, or correct its `headers`"))
    }

    /// The machine-readable part of C01, for `_meta["gripfast/failure"]` or `data`.
    pub fn to_json(&self) -> serde_json::Value {
        let mut part = serde_json::json!({
            "code": self.code.as_str(),
            "server": self.server,
            "retry_after_ms": self.retry_after.map(|wait| wait.as_millis() as u64),
            "outcome": self.outcome.as_str(),
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
            write!(f, "; next attempt in {}", text::duration(wait))?;
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
            Failure::InsufficientScope("HTTP 403".into()),
            Failure::Busy { retry_after: Some(Duration::from_secs(9)), text: "HTTP 429".into() },
            Failure::ServerFault("HTTP 500".into()),
            Failure::InvalidResponse("not JSON".into()),
            Failure::HeaderMismatch("HTTP 400: Mcp-Param-Region is missing".into()),
            Failure::Declined("unknown tool (-32602)".into()),
            Failure::Blocked(BlockCause::MissingExecutable("`npx` was not found on PATH".into())),
            Failure::Blocked(BlockCause::UnsetVariable("variable `TOKEN` is not set".into())),
            Failure::Blocked(BlockCause::BadConfig("bad url".into())),
            Failure::Blocked(BlockCause::NotMcp("HTTP 404".into())),
            Failure::Blocked(BlockCause::NeedsLogin("HTTP 401".into())),
        ]
    }

    #[test]
    fn c01_every_error_has_a_text_with_the_server_and_a_machine_part() {
        for failure in every_failure() {
            for outcome in
                [CallOutcome::NotSent, CallOutcome::Refused, CallOutcome::Failed, CallOutcome::Unknown]
            {
                let error = CallError::from_failure("github", &failure, outcome);
                assert!(error.text.contains("`github`"), "{error}");
                assert!(!error.text.ends_with('.') && error.text.len() > 20, "{error}");
                let part = error.to_json();
                assert_eq!(part["server"], "github");
                assert_eq!(part["outcome"], outcome.as_str());
                assert!(part["code"].is_string());
                for key in ["retry_after_ms", "hint"] {
                    assert!(part.get(key).is_some(), "{key} is always there, null if unknown");
                }
            }
        }
    }

    #[test]
    fn c02_codes_are_a_closed_set_of_distinct_words() {
        let words: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), 15);
        assert!(words.contains("outcome_unknown") && words.contains("upstream_protocol"));
    }

    #[test]
    fn c01_the_retry_time_is_at_most_a_day() {
        let year = Some(Duration::from_secs(365 * 86_400));
        let busy = Failure::Busy { retry_after: year, text: "HTTP 429".into() };
        let error = CallError::from_failure("github", &busy, CallOutcome::Refused);
        assert_eq!(error.to_json()["retry_after_ms"], 86_400_000);
        assert!(!error.text.contains("twice"), "one attempt is enough for this text: {error}");
    }

    #[test]
    fn e03_a_login_error_has_needs_reauth_and_names_the_command() {
        let failure = Failure::CredentialRefused("HTTP 401".into());
        let error = CallError::from_failure("notion", &failure, CallOutcome::Refused);
        assert_eq!(error.to_json()["needs_reauth"], true);
        assert!(error.hint.is_some_and(|hint| hint.contains("gripfast login notion")));
    }
}

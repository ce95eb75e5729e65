//! The audit log: one line of JSON for every request that the host was asked for, with what was decided about it
//! and what became of it, and one for what an operator approves. Written by a thread of its own; nobody waits for
//! it. What cannot be written is counted and said aloud, and if the operator wants that, nothing is done any more
//! that cannot be written down.

mod redacted;
mod writer;

use crate::client::{Client, Principal};
use crate::clock::Clock;
use crate::said::Said;
use crate::upstream::Answer;
use gripfast_core::failure::{CallError, Code, Outcome as Fate};
use gripfast_core::redact::mask_tokens;
use gripfast_core::time::Now;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use writer::Writer;

/// What the audit log keeps of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AuditKeeps {
    /// There is no audit log.
    #[default]
    Nothing,
    /// Everything but the arguments, of which there is a digest.
    Digest,
    /// The arguments too, up to 16 KiB of them, without what looks like a secret.
    Arguments,
}

impl AuditKeeps {
    /// The word in the config and in status.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nothing => "off",
            Self::Digest => "digest",
            Self::Arguments => "arguments",
        }
    }
}

/// How a host keeps its audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditOptions {
    /// What is kept of a request.
    pub keeps: AuditKeeps,
    /// Bytes that the logs of all processes in one state directory take at the most. The oldest file is thrown
    /// away when they are full.
    pub size: u64,
    /// Whether requests are refused while they cannot be written down.
    pub fail_closed: bool,
}

impl AuditOptions {
    /// About two hundred thousand requests.
    pub const USUAL_SIZE: u64 = 64 << 20;
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self { keeps: AuditKeeps::Nothing, size: Self::USUAL_SIZE, fail_closed: false }
    }
}

/// How the audit log does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditStatus {
    /// What is kept of a request.
    pub keeps: AuditKeeps,
    /// Lines that were written since the start.
    pub lines: u64,
    /// Lines that could not be written.
    pub lost: u64,
    /// Why it cannot be written at present.
    pub cause: Option<String>,
}

/// The audit log of one host.
pub(crate) struct Audit {
    options: AuditOptions,
    clock: Clock,
    writer: Option<Writer>,
}

/// A request that has not ended. It is written down on whatever way it ends.
pub(crate) struct Open<'a> {
    audit: &'a Audit,
    begun: Now,
    client: Option<String>,
    called: Option<String>,
    server: String,
    method: String,
    item: Option<String>,
    sha256: Option<String>,
    arguments: Option<Value>,
    cached: bool,
    ended: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    /// Milliseconds since the Unix epoch.
    at_ms: u64,
    event: &'static str,
    client: Option<&'a str>,
    /// What the client calls itself. Nobody has checked it.
    says_it_is: Option<&'a str>,
    server: &'a str,
    method: &'a str,
    /// The tool, prompt or resource.
    item: Option<&'a str>,
    decision: &'static str,
    reason: Option<String>,
    outcome: Option<&'static str>,
    code: Option<&'static str>,
    took_ms: f64,
    /// Whether it was answered from the cache, so that no server had a part in it.
    #[serde(skip_serializing_if = "is_false")]
    cached: bool,
    sha256: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a Value>,
}

#[derive(Serialize)]
struct Approved<'a> {
    at_ms: u64,
    event: &'static str,
    server: &'a str,
    tools: &'a [String],
}

impl Audit {
    /// The audit log in `state_dir`.
    pub(crate) fn open(state_dir: Option<&Path>, options: AuditOptions, clock: Clock) -> Self {
        let writer = match (options.keeps, state_dir) {
            (AuditKeeps::Nothing, _) => None,
            (AuditKeeps::Digest | AuditKeeps::Arguments, None) => {
                tracing::warn!("there is no audit log without a state directory");
                None
            }
            (AuditKeeps::Digest | AuditKeeps::Arguments, Some(state_dir)) => {
                Writer::start(state_dir.join("audit"), options.size)
            }
        };
        Self { options, clock, writer }
    }

    /// Begins to write a request down.
    ///
    /// # Errors
    /// It cannot be written down, and nothing is to be done then.
    pub(crate) fn begin(
        &self,
        client: Option<&Client>,
        server: &str,
        method: &str,
        said: &Said<'_>,
    ) -> Result<Option<Open<'_>>, CallError> {
        let Some(writer) = &self.writer else {
            let wanted = self.options.keeps != AuditKeeps::Nothing;
            return if wanted && self.options.fail_closed { Err(refused(server)) } else { Ok(None) };
        };
        if self.options.fail_closed && !writer.is_well(millis(self.clock.now())) {
            return Err(refused(server));
        }
        Ok(Some(Open {
            audit: self,
            begun: self.clock.now(),
            client: client.map(Client::principal).map(Principal::name).map(str::to_owned),
            called: client.and_then(|client| client.name.as_deref()).map(mask_tokens),
            server: server.to_owned(),
            method: method.to_owned(),
            item: said.text("name").or_else(|| said.text("uri")).map(|item| redacted::item(&item)),
            sha256: said.digest().map(String::from),
            arguments: match self.options.keeps {
                AuditKeeps::Arguments => said.arguments().and_then(redacted::arguments),
                AuditKeeps::Nothing | AuditKeeps::Digest => None,
            },
            cached: false,
            ended: false,
        }))
    }

    /// Somebody approved what tools say.
    pub(crate) fn approved(&self, server: &str, tools: &[String]) {
        let now = self.clock.now();
        self.write(now, &Approved { at_ms: millis(now), event: "approved", server, tools });
    }

    fn write(&self, now: Now, line: &impl Serialize) {
        let Some(writer) = &self.writer else { return };
        if let Ok(mut bytes) = serde_json::to_vec(line) {
            bytes.push(b'\n');
            writer.put(millis(now), bytes);
        }
    }

    pub(crate) fn status(&self) -> AuditStatus {
        let none = AuditStatus { keeps: AuditKeeps::Nothing, lines: 0, lost: 0, cause: None };
        self.writer.as_ref().map_or(none, |writer| writer.status(self.options.keeps))
    }

    /// Waits, for a moment, until everything is written.
    pub(crate) fn flush(&self) {
        if let Some(writer) = &self.writer {
            writer.flush();
        }
    }
}

impl Open<'_> {
    /// It ended.
    pub(crate) fn end(mut self, outcome: &Result<Answer, CallError>) {
        self.cached = outcome.as_ref().is_ok_and(Answer::was_given_before);
        match outcome {
            Ok(answer) if answer.is_error() => self.write("allowed", None, Some(Fate::Failed), None),
            Ok(_) => self.write("allowed", None, Some(Fate::Done), None),
            Err(error) => {
                let decision = match error.code {
                    Code::Denied | Code::SchemaChanged | Code::BudgetExceeded => "denied",
                    Code::Unreachable
                    | Code::Reconnecting
                    | Code::Timeout
                    | Code::OutcomeUnknown
                    | Code::NeedsLogin
                    | Code::Overloaded
                    | Code::Cancelled
                    | Code::Stopped
                    | Code::UnknownServer
                    | Code::UnknownTool
                    | Code::InvalidRequest
                    | Code::UpstreamProtocol => "allowed",
                };
                let reason = Some(mask_tokens(&error.text));
                self.write(decision, reason, Some(error.outcome), Some(error.code));
            }
        }
    }

    fn write(
        &mut self,
        decision: &'static str,
        reason: Option<String>,
        outcome: Option<Fate>,
        code: Option<Code>,
    ) {
        self.ended = true;
        let now = self.audit.clock.now();
        let line = Line {
            at_ms: millis(self.begun),
            event: "request",
            client: self.client.as_deref(),
            says_it_is: self.called.as_deref(),
            server: &self.server,
            method: &self.method,
            item: self.item.as_deref(),
            decision,
            reason,
            outcome: outcome.map(Fate::word),
            code: code.map(Code::word),
            took_ms: ((now.mono - self.begun.mono).as_secs_f64() * 10_000.0).round() / 10.0,
            cached: self.cached,
            sha256: self.sha256.as_deref(),
            arguments: self.arguments.as_ref(),
        };
        self.audit.write(now, &line);
    }
}

impl Drop for Open<'_> {
    /// Its caller gave it up.
    fn drop(&mut self) {
        if !self.ended {
            self.write("allowed", None, None, Some(Code::Cancelled));
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn refused(server: &str) -> CallError {
    let text = format!("upstream `{server}` is not asked: the audit log cannot be written");
    CallError::new(Code::Overloaded, server, Fate::NotSent, text)
        .hint("`gripfast status -o json` says why; `gateway.audit_fail_closed` wants it this way")
}

fn millis(now: Now) -> u64 {
    u64::try_from(now.wall.since_epoch().as_millis()).unwrap_or(u64::MAX)
}

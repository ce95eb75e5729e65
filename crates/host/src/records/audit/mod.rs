//! Audit log: one line of JSON for every request to the host, with the decision and the outcome, and one for each
//! security event: failed authentications, actions and approvals of operators, and changes of keys and trust. A
//! separate thread writes it, and no request waits for it. Lines that cannot be written are counted and reported; with
//! `audit_fail_closed`, requests are refused meanwhile.

pub(crate) mod verify;
pub(crate) mod writer;

pub use super::audit::verify::{AuditFile, AuditFinding, verify_audit};
use super::audit::writer::AuditWriter;
use super::journal::RecordDetail;
use super::request_summary::RequestSummary;
use crate::client::Principal;
use crate::clock::Clock;
use crate::upstream::Answer;
use gripfast_core::failure::{CallError, CallOutcome, Code};
use gripfast_core::json::Digest;
use gripfast_core::json_line::JsonLine;
use gripfast_core::json_text::JsonText;
use gripfast_core::redact;
use gripfast_core::security::SecurityEvent;
use gripfast_core::time::Now;
use std::borrow::Cow;
use std::path::Path;

/// Options of the audit log of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditOptions {
    /// Detail recorded of a request.
    pub detail: RecordDetail,
    /// Maximum number of bytes of the logs of all processes in one state directory. When they are full, the oldest file
    /// that no process writes to is deleted.
    pub size: u64,
    /// True if requests are refused while they cannot be recorded.
    pub fail_closed: bool,
}

impl AuditOptions {
    /// Room for about two hundred thousand requests.
    pub const DEFAULT_SIZE: u64 = 64 << 20;
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self { detail: RecordDetail::Nothing, size: Self::DEFAULT_SIZE, fail_closed: false }
    }
}

/// Status of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditStatus {
    /// Detail recorded of a request.
    pub detail: RecordDetail,
    /// Lines written since the start.
    pub lines: u64,
    /// Lines that could not be written.
    pub lost: u64,
    /// Reason why it cannot be written at present.
    pub cause: Option<String>,
}

/// Audit log of one host.
pub(crate) struct Audit {
    options: AuditOptions,
    clock: Clock,
    writer: Option<AuditWriter>,
}

/// A request that has not ended. It is recorded however it ends.
pub(crate) struct OpenAuditEntry<'a> {
    audit: &'a Audit,
    writer: &'a AuditWriter,
    started: Now,
    /// Beginning of its line: the client and the request.
    line: Vec<u8>,
    digest: Option<Digest>,
    arguments: Option<JsonText>,
    ended: bool,
}

/// Client that sends a request.
pub(crate) struct AuditCaller<'a> {
    /// Principal, if there is one.
    pub(crate) principal: Option<&'a str>,
    /// Name that the client gives itself; it is not verified.
    pub(crate) claimed_name: Option<Cow<'a, str>>,
}

/// End of a request.
struct End<'e> {
    decision: &'static str,
    reason: Option<&'e str>,
    outcome: Option<CallOutcome>,
    code: Option<Code>,
    /// True if it was answered from the cache, without the server.
    cached: bool,
}

impl Audit {
    /// Opens the audit log in `state_dir`.
    pub(crate) fn open(state_dir: Option<&Path>, options: AuditOptions, clock: Clock) -> Self {
        let writer = match (options.detail, state_dir) {
            (RecordDetail::Nothing, _) => None,
            (RecordDetail::Digest | RecordDetail::Arguments, None) => {
                tracing::warn!("no audit log is written: there is no state directory");
                None
            }
            (RecordDetail::Digest | RecordDetail::Arguments, Some(state_dir)) => {
                AuditWriter::start(state_dir.join("audit"), options.size)
            }
        };
        Self { options, clock, writer }
    }

    /// Begins the record of a request.
    ///
    /// # Errors
    /// The request cannot be recorded, and `fail_closed` is set.
    pub(crate) fn begin(
        &self,
        caller: &AuditCaller<'_>,
        server: &str,
        method: &str,
        summary: &RequestSummary<'_>,
    ) -> Result<Option<OpenAuditEntry<'_>>, CallError> {
        let Some(writer) = &self.writer else {
            let wanted = self.options.detail != RecordDetail::Nothing;
            return if wanted && self.options.fail_closed { Err(refused(server)) } else { Ok(None) };
        };
        if self.options.fail_closed && !writer.is_writable() {
            return Err(refused(server));
        }
        let started = self.clock.now();
        let mut open = OpenAuditEntry {
            audit: self,
            writer,
            started,
            line: Vec::with_capacity(OpenAuditEntry::LINE_CAPACITY),
            digest: summary.digest(),
            arguments: match self.options.detail {
                RecordDetail::Arguments => summary.redacted_arguments(),
                RecordDetail::Nothing | RecordDetail::Digest => None,
            },
            ended: false,
        };
        let claimed_name = caller.claimed_name.as_deref().map(redact::name);
        let item = summary.text("name").or_else(|| summary.text("uri"));
        let mut line = JsonLine::begin(&mut open.line);
        line.timestamp("at_ms", started.wall);
        line.constant("event", "request");
        line.text_or_null("client", caller.principal);
        // Name that the client gives itself; it is not verified.
        line.text_or_null("says_it_is", claimed_name.as_deref());
        line.text("server", server);
        line.text("method", method);
        // The tool, prompt or resource.
        line.text_or_null("item", item.as_deref().map(|item| summary.redacted_name(item)).as_deref());
        Ok(Some(open))
    }

    /// Records that tools were approved.
    pub(crate) fn record_approval(&self, server: &str, tools: &[String]) {
        let (Some(writer), Ok(tools)) = (&self.writer, JsonText::of(tools)) else { return };
        let now = self.clock.now();
        let mut bytes = Vec::new();
        let mut line = JsonLine::begin(&mut bytes);
        line.timestamp("at_ms", now.wall);
        line.constant("event", "approved");
        line.text("server", server);
        line.json("tools", &tools);
        line.end();
        writer.append(millis(now), &bytes);
    }

    /// Records a security event of the gateway.
    pub(crate) fn record(&self, now: Now, event: &SecurityEvent) {
        let Some(writer) = &self.writer else { return };
        let mut bytes = Vec::new();
        let mut line = JsonLine::begin(&mut bytes);
        line.timestamp("at_ms", now.wall);
        line.constant("event", event.kind());
        match event {
            SecurityEvent::AuthFailed(failed) => {
                line.constant("target", failed.target.as_str());
                line.constant("reason", failed.reason.as_str());
                line.text_or_null("client", failed.principal.as_deref());
                line.text("source", &failed.source.to_string());
                line.number("count", failed.count);
            }
            SecurityEvent::AdminAction { action, server, tool, source, status } => {
                line.constant("actor", Principal::ADMIN);
                line.constant("action", action.as_str());
                line.text_or_null("server", server.as_deref());
                line.text_or_null("item", tool.as_deref());
                line.text("source", &source.to_string());
                match status {
                    Some(status) => line.number("status", u64::from(*status)),
                    None => line.raw("status", "null"),
                }
            }
            SecurityEvent::KeysChanged { change, names, actor } => {
                line.constant("change", change.as_str());
                if let Ok(names) = JsonText::of(names) {
                    line.json("names", &names);
                }
                line.text_or_null("actor", actor.as_deref());
            }
            SecurityEvent::TrustChanged { decision, path, actor } => {
                line.constant("decision", decision.as_str());
                line.text("path", path);
                line.text_or_null("actor", actor.as_deref());
            }
        }
        line.end();
        writer.append(millis(now), &bytes);
    }

    pub(crate) fn status(&self) -> AuditStatus {
        let none = AuditStatus { detail: RecordDetail::Nothing, lines: 0, lost: 0, cause: None };
        self.writer.as_ref().map_or(none, |writer| writer.status(self.options.detail))
    }

    /// Waits, for a bounded time, until everything is written.
    pub(crate) fn flush(&self) {
        if let Some(writer) = &self.writer {
            writer.flush();
        }
    }
}

/// Writes a security event to the audit log in `state_dir`, for a process without a host. Nothing is written where
/// `options` disable the audit log.
///
/// # Errors
/// The line could not be written; holds the cause.
pub fn record_audit(state_dir: &Path, options: AuditOptions, event: &SecurityEvent) -> Result<(), String> {
    let audit = Audit::open(Some(state_dir), options, Clock::new());
    if audit.writer.is_none() && options.detail != RecordDetail::Nothing {
        return Err("the thread of the audit log cannot be started".to_owned());
    }
    audit.record(audit.clock.now(), event);
    audit.flush();
    match audit.status().cause {
        Some(cause) => Err(cause),
        None => Ok(()),
    }
}

impl OpenAuditEntry<'_> {
    /// Capacity for the usual line.
    const LINE_CAPACITY: usize = 512;

    /// Records the outcome of the request.
    pub(crate) fn end(mut self, outcome: &Result<Answer, CallError>) {
        let allowed = |outcome| End { decision: "allowed", reason: None, outcome, code: None, cached: false };
        match outcome {
            Ok(answer) => {
                self.write(&End { cached: answer.is_cached(), ..allowed(Some(answer.call_outcome())) });
            }
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
                let reason = redact::text(&error.text);
                self.write(&End {
                    decision,
                    reason: Some(&reason),
                    code: Some(error.code),
                    ..allowed(Some(error.outcome))
                });
            }
        }
    }

    fn write(&mut self, end: &End<'_>) {
        self.ended = true;
        let now = self.audit.clock.now();
        let mut line = JsonLine::resume(&mut self.line);
        line.constant("decision", end.decision);
        line.text_or_null("reason", end.reason);
        line.constant_or_null("outcome", end.outcome.map(CallOutcome::as_str));
        line.constant_or_null("code", end.code.map(Code::as_str));
        line.millis("took_ms", now.mono - self.started.mono);
        if end.cached {
            line.raw("cached", "true");
        }
        match self.digest {
            Some(digest) => line.digest("sha256", digest),
            None => line.raw("sha256", "null"),
        }
        if let Some(arguments) = &self.arguments {
            line.json("arguments", arguments);
        }
        line.end();
        self.writer.append(millis(now), &self.line);
    }
}

impl Drop for OpenAuditEntry<'_> {
    /// Records that the caller has dropped the request.
    fn drop(&mut self) {
        if !self.ended {
            let code = Some(Code::Cancelled);
            self.write(&End { decision: "allowed", reason: None, outcome: None, code, cached: false });
        }
    }
}

fn refused(server: &str) -> CallError {
    let text = format!("server `{server}` was not called: the audit log cannot be written");
    CallError::new(Code::Overloaded, server, CallOutcome::NotSent, text).with_hint(
        "`gripfast status -o json` shows the cause; `gateway.audit_fail_closed` refuses calls meanwhile",
    )
}

fn millis(now: Now) -> u64 {
    u64::try_from(now.wall.since_epoch().as_millis()).unwrap_or(u64::MAX)
}

//! The audit log: one line of JSON for every request that the host was asked for, with what was decided about it
//! and what became of it, and one for each security event: failed authentications, what operators did and approved, and
//! changes of keys and trust. Written by a thread of its own; nobody waits for
//! it. What cannot be written is counted and said aloud, and if the operator wants that, nothing is done any more
//! that cannot be written down.

mod verify;
mod writer;

use crate::client::Principal;
use crate::clock::Clock;
use crate::said::Said;
use crate::upstream::Answer;
use gripfast_core::failure::{CallError, Code, Outcome as Fate};
use gripfast_core::json::Digest;
use gripfast_core::line::Line;
use gripfast_core::redact;
use gripfast_core::security::SecurityEvent;
use gripfast_core::time::Now;
use gripfast_wire::RawValue;
use serde_json::value::to_raw_value;
use std::borrow::Cow;
use std::path::Path;
pub use verify::{AuditFile, AuditFinding, verify_audit};
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
    /// Bytes that the logs of all processes in one state directory take at the most. The oldest file that
    /// nobody writes to is thrown away when they are full.
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
    writer: &'a Writer,
    begun: Now,
    /// The beginning of its line: who asked for what.
    line: Vec<u8>,
    digest: Option<Digest>,
    arguments: Option<Box<RawValue>>,
    ended: bool,
}

/// Who asks for something.
pub(crate) struct AuditCaller<'a> {
    /// The principal, if there is one.
    pub(crate) principal: Option<&'a str>,
    /// What the client calls itself. Nobody has checked it.
    pub(crate) says_it_is: Option<Cow<'a, str>>,
}

/// What became of a request.
struct End<'e> {
    decision: &'static str,
    reason: Option<&'e str>,
    outcome: Option<Fate>,
    code: Option<Code>,
    /// Whether it was answered from the cache, so that no server had a part in it.
    cached: bool,
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
        caller: &AuditCaller<'_>,
        server: &str,
        method: &str,
        said: &Said<'_>,
    ) -> Result<Option<Open<'_>>, CallError> {
        let Some(writer) = &self.writer else {
            let wanted = self.options.keeps != AuditKeeps::Nothing;
            return if wanted && self.options.fail_closed { Err(refused(server)) } else { Ok(None) };
        };
        if self.options.fail_closed && !writer.is_well() {
            return Err(refused(server));
        }
        let begun = self.clock.now();
        let mut open = Open {
            audit: self,
            writer,
            begun,
            line: Vec::with_capacity(Open::USUAL),
            digest: said.digest(),
            arguments: match self.options.keeps {
                AuditKeeps::Arguments => said.redacted_arguments(),
                AuditKeeps::Nothing | AuditKeeps::Digest => None,
            },
            ended: false,
        };
        let says_it_is = caller.says_it_is.as_deref().map(redact::name);
        let item = said.text("name").or_else(|| said.text("uri"));
        let mut line = Line::begin(&mut open.line);
        line.moment("at_ms", begun.wall);
        line.word("event", "request");
        line.text_or_null("client", caller.principal);
        // What the client calls itself. Nobody has checked it.
        line.text_or_null("says_it_is", says_it_is.as_deref());
        line.text("server", server);
        line.text("method", method);
        // The tool, prompt or resource.
        line.text_or_null("item", item.map(|item| said.redacted_name(&item)).as_deref());
        Ok(Some(open))
    }

    /// Somebody approved what tools say.
    pub(crate) fn approved(&self, server: &str, tools: &[String]) {
        let (Some(writer), Ok(tools)) = (&self.writer, to_raw_value(tools)) else { return };
        let now = self.clock.now();
        let mut bytes = Vec::new();
        let mut line = Line::begin(&mut bytes);
        line.moment("at_ms", now.wall);
        line.word("event", "approved");
        line.text("server", server);
        line.json("tools", &tools);
        line.end();
        writer.put(millis(now), &bytes);
    }

    /// Something happened that concerns the gateway as a whole.
    pub(crate) fn record(&self, now: Now, event: &SecurityEvent) {
        let Some(writer) = &self.writer else { return };
        let mut bytes = Vec::new();
        let mut line = Line::begin(&mut bytes);
        line.moment("at_ms", now.wall);
        line.word("event", event.word());
        match event {
            SecurityEvent::AuthFailed(failed) => {
                line.word("target", failed.target.word());
                line.word("reason", failed.reason.word());
                line.text_or_null("client", failed.principal.as_deref());
                line.text("source", &failed.source.to_string());
                line.number("count", failed.count);
            }
            SecurityEvent::AdminAction { action, server, tool, source, status } => {
                line.word("actor", Principal::ADMIN);
                line.word("action", action.word());
                line.text_or_null("server", server.as_deref());
                line.text_or_null("item", tool.as_deref());
                line.text("source", &source.to_string());
                match status {
                    Some(status) => line.number("status", u64::from(*status)),
                    None => line.raw("status", "null"),
                }
            }
            SecurityEvent::KeysChanged { change, names, actor } => {
                line.word("change", change.word());
                if let Ok(names) = to_raw_value(names) {
                    line.json("names", &names);
                }
                line.text_or_null("actor", actor.as_deref());
            }
            SecurityEvent::TrustChanged { decision, path, actor } => {
                line.word("decision", decision.word());
                line.text("path", path);
                line.text_or_null("actor", actor.as_deref());
            }
        }
        line.end();
        writer.put(millis(now), &bytes);
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

/// Writes a security event to the audit log in `state_dir`, as a process does that changes something there and has no
/// host. Nothing is written where `options` keep no audit log.
///
/// # Errors
/// The line could not be written, and why.
pub fn record_audit(state_dir: &Path, options: AuditOptions, event: &SecurityEvent) -> Result<(), String> {
    let audit = Audit::open(Some(state_dir), options, Clock::new());
    if audit.writer.is_none() && options.keeps != AuditKeeps::Nothing {
        return Err("its thread cannot be started".to_owned());
    }
    audit.record(audit.clock.now(), event);
    audit.flush();
    match audit.status().cause {
        Some(cause) => Err(cause),
        None => Ok(()),
    }
}

impl Open<'_> {
    /// Enough for the usual line.
    const USUAL: usize = 512;

    /// It ended.
    pub(crate) fn end(mut self, outcome: &Result<Answer, CallError>) {
        let allowed = |outcome| End { decision: "allowed", reason: None, outcome, code: None, cached: false };
        match outcome {
            Ok(answer) => {
                self.write(&End { cached: answer.was_given_before(), ..allowed(Some(answer.fate())) });
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
        let mut line = Line::go_on(&mut self.line);
        line.word("decision", end.decision);
        line.text_or_null("reason", end.reason);
        line.word_or_null("outcome", end.outcome.map(Fate::word));
        line.word_or_null("code", end.code.map(Code::word));
        line.millis("took_ms", now.mono - self.begun.mono);
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
        self.writer.put(millis(now), &self.line);
    }
}

impl Drop for Open<'_> {
    /// Its caller gave it up.
    fn drop(&mut self) {
        if !self.ended {
            let code = Some(Code::Cancelled);
            self.write(&End { decision: "allowed", reason: None, outcome: None, code, cached: false });
        }
    }
}

fn refused(server: &str) -> CallError {
    let text = format!("upstream `{server}` is not asked: the audit log cannot be written");
    CallError::new(Code::Overloaded, server, Fate::NotSent, text)
        .hint("`gripfast status -o json` says why; `gateway.audit_fail_closed` wants it this way")
}

fn millis(now: Now) -> u64 {
    u64::try_from(now.wall.since_epoch().as_millis()).unwrap_or(u64::MAX)
}

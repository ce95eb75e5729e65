//! Writer of the ledger lines of one call. One buffer per call holds the common start of its lines, which is written
//! once.

use super::Settled;
use crate::failure::CallOutcome;
use crate::json::Digest;
use crate::json_line::JsonLine;
use crate::json_text::Json;
use crate::time::Wall;
use std::borrow::Cow;
use std::time::Duration;

/// The caller of a call; empty where unknown.
#[derive(Debug, Clone, Copy, Default)]
pub struct LedgerCaller<'a> {
    /// The principal, which is authenticated if the gateway requires that.
    pub principal: &'a str,
    /// The client's own name, which is not verified.
    pub client: &'a str,
}

/// The ledger lines of one call.
#[derive(Debug)]
pub struct LedgerEntry {
    call: u64,
    /// The start of a complete line, followed by the line that was made last.
    text: Vec<u8>,
    prefix_len: usize,
}

impl LedgerEntry {
    /// Maximum number of characters of a name.
    pub const MAX_NAME_CHARS: usize = 128;
    /// Maximum size of kept arguments in bytes. Of larger ones only the digest is kept.
    pub const MAX_ARGUMENT_BYTES: usize = 16 << 10;
    /// Enough for the usual complete line.
    const INITIAL_CAPACITY: usize = 384;

    /// A call that started at this time, by its number in this run.
    pub fn new(call: u64, at: Wall, caller: &LedgerCaller<'_>, server: &str, tool: &str) -> Self {
        let mut text = Vec::with_capacity(Self::INITIAL_CAPACITY);
        let mut line = JsonLine::begin(&mut text);
        line.number("call", call);
        line.timestamp("at_ms", at);
        if !caller.principal.is_empty() {
            line.text("principal", &cut(caller.principal));
        }
        if !caller.client.is_empty() {
            line.text("client", &cut(caller.client));
        }
        line.text("server", &cut(server));
        line.text("tool", &cut(tool));
        let beginning = text.len();
        Self { call, text, prefix_len: beginning }
    }

    /// Adds the digest of the arguments.
    pub fn set_digest(&mut self, digest: Digest) {
        self.extend_prefix(|line| line.digest("sha256", digest));
    }

    /// Adds the arguments themselves, unless they are too large.
    pub fn set_arguments(&mut self, arguments: &Json) {
        if arguments.get().len() <= Self::MAX_ARGUMENT_BYTES {
            self.extend_prefix(|line| line.json("arguments", arguments));
        }
    }

    /// The line for the start of the call. `if_orphaned` is its outcome if no later line follows.
    pub fn start_line(&mut self, if_orphaned: CallOutcome) -> &[u8] {
        self.text.truncate(self.prefix_len);
        let mut line = JsonLine::resume(&mut self.text);
        line.constant("if_orphaned", if_orphaned.as_str());
        line.end();
        &self.text
    }

    /// The line for a changed outcome in case no later line follows.
    pub fn update_line(&mut self, if_orphaned: CallOutcome) -> &[u8] {
        let call = self.call;
        self.standalone_line(|line| {
            line.number("call", call);
            line.constant("if_orphaned", if_orphaned.as_str());
        })
    }

    /// The line for the end of a call with a start line.
    pub fn end_line(&mut self, settled: &Settled) -> &[u8] {
        let call = self.call;
        self.standalone_line(|line| {
            line.number("call", call);
            write_end(line, settled);
        })
    }

    /// The only line of a call that ends without a start line.
    pub fn single_line(&mut self, settled: &Settled) -> &[u8] {
        self.text.truncate(self.prefix_len);
        let mut line = JsonLine::resume(&mut self.text);
        write_end(&mut line, settled);
        line.end();
        &self.text
    }

    fn extend_prefix(&mut self, more: impl FnOnce(&mut JsonLine<'_>)) {
        self.text.truncate(self.prefix_len);
        more(&mut JsonLine::resume(&mut self.text));
        self.prefix_len = self.text.len();
    }

    /// Makes a line without the common start.
    fn standalone_line(&mut self, members: impl FnOnce(&mut JsonLine<'_>)) -> &[u8] {
        self.text.truncate(self.prefix_len);
        let mut line = JsonLine::begin(&mut self.text);
        members(&mut line);
        line.end();
        &self.text[self.prefix_len..]
    }
}

/// The facts of a start line that are read without parsing all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineStart {
    /// The number of the call in its run.
    pub call: u64,
    /// Its start time.
    pub at: Wall,
    /// Whether the call was sent: its outcome is unknown if no later line follows.
    pub is_sent: bool,
}

impl LineStart {
    /// Reads a line that [`LedgerEntry::start_line`] made; `None` for any other.
    pub fn read(line: &[u8]) -> Option<Self> {
        let (call, rest) = read_number(line.strip_prefix(b"{\"call\":")?)?;
        let (at, _) = read_number(rest.strip_prefix(b",\"at_ms\":")?)?;
        let is_sent = line.trim_ascii_end().ends_with(b",\"if_orphaned\":\"unknown\"}");
        Some(Self { call, at: Wall::from_unix_epoch(Duration::from_millis(at)), is_sent })
    }
}

fn read_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = text.split_at(end);
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

/// Appends the line that starts a run: calls that were in flight before it belong to a process that has ended.
pub fn write_run_line(run: &str, at: Wall, out: &mut Vec<u8>) {
    let mut line = JsonLine::begin(out);
    line.text("run", run);
    line.timestamp("at_ms", at);
    line.end();
}

fn write_end(line: &mut JsonLine<'_>, settled: &Settled) {
    line.timestamp("ended_ms", settled.ended);
    line.micros("took_us", settled.took);
    line.constant("outcome", settled.outcome.as_str());
    if let Some(code) = settled.code {
        line.constant("code", code.as_str());
    }
    line.number("attempts", settled.attempts.into());
    if settled.replays > 0 {
        line.number("replays", settled.replays.into());
    }
}

fn cut(name: &str) -> Cow<'_, str> {
    if name.len() <= LedgerEntry::MAX_NAME_CHARS {
        return name.into();
    }
    match name.char_indices().nth(LedgerEntry::MAX_NAME_CHARS) {
        Some((at, _)) => format!("{}…", &name[..at]).into(),
        None => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_line_tells_its_call_without_being_parsed() {
        let at = Wall::from_unix_epoch(Duration::from_millis(1_700_000_000_123));
        let caller = LedgerCaller { principal: "ann", client: "x\",\"if_orphaned\":\"unknown\"}" };
        let mut entry = LedgerEntry::new(17, at, &caller, "files", "write");
        let sent = LineStart::read(entry.start_line(CallOutcome::Unknown));
        assert_eq!(sent, Some(LineStart { call: 17, at, is_sent: true }));
        let waiting = LineStart::read(entry.start_line(CallOutcome::NotSent));
        assert_eq!(waiting, Some(LineStart { call: 17, at, is_sent: false }));
        assert_eq!(LineStart::read(entry.update_line(CallOutcome::Unknown)), None);
        for other in [&b""[..], b"{\"call\":", b"{\"call\":1", b"{\"call\":99999999999999999999,\"at_ms\":1,"]
        {
            assert_eq!(LineStart::read(other), None);
        }
    }
}

//! What is written about one call, in one buffer that lives as long as the call: who called what is put into words
//! once, and each line that has to say it again begins with those.

use super::Settled;
use crate::failure::Outcome;
use crate::json::Digest;
use crate::line::Line;
use crate::time::Wall;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Who makes a call; empty where it is not known.
#[derive(Debug, Clone, Copy, Default)]
pub struct LedgerCaller<'a> {
    /// The principal, which was authenticated if the gateway asks for that.
    pub principal: &'a str,
    /// The client, as it calls itself. Nobody has checked it.
    pub client: &'a str,
}

/// The lines about one call.
#[derive(Debug)]
pub struct Entry {
    call: u64,
    /// The beginning of a line that tells everything, and after it the line that was made last.
    text: Vec<u8>,
    beginning: usize,
}

impl Entry {
    /// Letters of a name that are kept; what is longer was not meant as a name.
    pub const LONGEST_NAME: usize = 128;
    /// Bytes of arguments that are kept, if they are kept. Of longer ones there is only the digest.
    pub const LONGEST_ARGUMENTS: usize = 16 << 10;
    /// Enough for the usual line with its last members.
    const USUAL: usize = 384;

    /// A call that came at this time, by its number in this run.
    pub fn of(call: u64, at: Wall, caller: &LedgerCaller<'_>, server: &str, tool: &str) -> Self {
        let mut text = Vec::with_capacity(Self::USUAL);
        let mut line = Line::begin(&mut text);
        line.number("call", call);
        line.moment("at_ms", at);
        if !caller.principal.is_empty() {
            line.text("principal", &cut(caller.principal));
        }
        if !caller.client.is_empty() {
            line.text("client", &cut(caller.client));
        }
        line.text("server", &cut(server));
        line.text("tool", &cut(tool));
        let beginning = text.len();
        Self { call, text, beginning }
    }

    /// Adds the digest of its arguments.
    pub fn digest(&mut self, digest: Digest) {
        self.begin_with(|line| line.digest("sha256", digest));
    }

    /// Adds the arguments themselves, if there is room for them.
    pub fn arguments(&mut self, arguments: &RawValue) {
        if arguments.get().len() <= Self::LONGEST_ARGUMENTS {
            self.begin_with(|line| line.json("arguments", arguments));
        }
    }

    /// It was begun, and this is its fate if nothing more is heard of it.
    pub fn begun(&mut self, if_orphaned: Outcome) -> &[u8] {
        self.text.truncate(self.beginning);
        let mut line = Line::go_on(&mut self.text);
        line.word("if_orphaned", if_orphaned.word());
        line.end();
        &self.text
    }

    /// Its fate would be another one now.
    pub fn changed(&mut self, if_orphaned: Outcome) -> &[u8] {
        let call = self.call;
        self.beside(|line| {
            line.number("call", call);
            line.word("if_orphaned", if_orphaned.word());
        })
    }

    /// It ended, and the book knows of its beginning.
    pub fn ended(&mut self, settled: &Settled) -> &[u8] {
        let call = self.call;
        self.beside(|line| {
            line.number("call", call);
            how_it_ended(line, settled);
        })
    }

    /// It ended, and there is no other line about it.
    pub fn ended_at_once(&mut self, settled: &Settled) -> &[u8] {
        self.text.truncate(self.beginning);
        let mut line = Line::go_on(&mut self.text);
        how_it_ended(&mut line, settled);
        line.end();
        &self.text
    }

    fn begin_with(&mut self, more: impl FnOnce(&mut Line<'_>)) {
        self.text.truncate(self.beginning);
        more(&mut Line::go_on(&mut self.text));
        self.beginning = self.text.len();
    }

    /// A line that does not begin like that.
    fn beside(&mut self, members: impl FnOnce(&mut Line<'_>)) -> &[u8] {
        self.text.truncate(self.beginning);
        let mut line = Line::begin(&mut self.text);
        members(&mut line);
        line.end();
        &self.text[self.beginning..]
    }
}

/// Writes that a process took the book: whatever was in flight before belongs to one that is gone.
pub fn taken(run: &str, at: Wall, out: &mut Vec<u8>) {
    let mut line = Line::begin(out);
    line.text("run", run);
    line.moment("at_ms", at);
    line.end();
}

fn how_it_ended(line: &mut Line<'_>, settled: &Settled) {
    line.moment("ended_ms", settled.ended);
    line.micros("took_us", settled.took);
    line.word("outcome", settled.outcome.word());
    if let Some(code) = settled.code {
        line.word("code", code.word());
    }
    line.number("attempts", settled.attempts.into());
    if settled.replays > 0 {
        line.number("replays", settled.replays.into());
    }
}

fn cut(name: &str) -> Cow<'_, str> {
    if name.len() <= Entry::LONGEST_NAME {
        return name.into();
    }
    match name.char_indices().nth(Entry::LONGEST_NAME) {
        Some((at, _)) => format!("{}…", &name[..at]).into(),
        None => name.into(),
    }
}

//! One call's row, from its first line to its last. It is settled on whatever way the call ends, also when
//! its future is dropped.

use super::Keeps;
use super::writer::Writer;
use crate::said::Said;
use gripfast_core::failure::{Code, Outcome as Fate};
use gripfast_core::ledger::record::Record;
use gripfast_core::ledger::{Settled, Subject};
use gripfast_core::time::Now;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The row of a call that has not ended.
pub(crate) struct OpenRow(Option<(Arc<Writer>, Arc<Open>)>);

/// What is known about it so far.
pub(super) struct Open {
    pub(super) call: u64,
    pub(super) begun: Now,
    pub(super) subject: Subject,
    /// Its fate if nothing more is heard of it; `None` while nothing was written.
    fate: Mutex<Option<Fate>>,
    /// Whether the present book knows of it.
    on_paper: AtomicBool,
    attempts: AtomicU32,
    replays: AtomicU32,
}

impl OpenRow {
    /// A row of a ledger that is not kept.
    pub(crate) fn nowhere() -> Self {
        Self(None)
    }

    pub(super) fn of(writer: &Arc<Writer>, client: &str, server: &str, tool: &str, said: &Said<'_>) -> Self {
        let mut subject = Subject::named(client, server, tool);
        subject.digest = said.digest().map(String::from);
        match (writer.keeps(), said.arguments()) {
            (Keeps::Arguments, Some(arguments)) => subject.keep_arguments(arguments.get()),
            (Keeps::Nothing | Keeps::Digest, _) | (Keeps::Arguments, None) => {}
        }
        let open = Open {
            call: writer.next_call(),
            begun: writer.now(),
            subject,
            fate: Mutex::default(),
            on_paper: AtomicBool::new(false),
            attempts: AtomicU32::new(0),
            replays: AtomicU32::new(0),
        };
        Self(Some((Arc::clone(writer), Arc::new(open))))
    }

    /// It has to wait; this is what is known of earlier attempts, if they left us at all.
    pub(crate) fn waits(&self, attempted: Option<Fate>) {
        self.would_be(attempted.unwrap_or(Fate::NotSent));
    }

    /// It is handed to a link. From now on nobody knows whether it was carried out, until the answer comes.
    pub(crate) fn goes(&self) {
        if let Some((_, open)) = &self.0 {
            open.attempts.fetch_add(1, Ordering::Relaxed);
        }
        self.would_be(Fate::Unknown);
    }

    /// It was sent again so many times.
    pub(crate) fn replayed(&self, replays: u32) {
        if let Some((_, open)) = &self.0 {
            open.replays.store(replays, Ordering::Relaxed);
        }
    }

    fn would_be(&self, fate: Fate) {
        let Some((writer, open)) = &self.0 else { return };
        if open.fate().replace(fate) != Some(fate) {
            writer.note(open, fate);
        }
    }

    /// It ended.
    pub(crate) fn settle(mut self, outcome: Fate, code: Option<Code>) {
        if let Some((writer, open)) = self.0.take() {
            open.settle(&writer, outcome, code);
        }
    }
}

impl Drop for OpenRow {
    /// Its caller gave it up.
    fn drop(&mut self) {
        if let Some((writer, open)) = self.0.take() {
            let fate = open.fate().unwrap_or(Fate::NotSent);
            open.settle(&writer, fate, Some(Code::Cancelled));
        }
    }
}

impl Open {
    fn fate(&self) -> MutexGuard<'_, Option<Fate>> {
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line that says that it was begun.
    pub(super) fn record(&self) -> Record<'_> {
        let if_orphaned = self.fate().unwrap_or(Fate::NotSent);
        Record::Begun {
            call: self.call,
            at: self.begun.wall,
            subject: Cow::Borrowed(&self.subject),
            if_orphaned,
        }
    }

    pub(super) fn is_on_paper(&self) -> bool {
        self.on_paper.load(Ordering::Relaxed)
    }

    pub(super) fn set_on_paper(&self) {
        self.on_paper.store(true, Ordering::Relaxed);
    }

    fn settle(&self, writer: &Writer, outcome: Fate, code: Option<Code>) {
        let now = writer.now();
        let settled = Settled {
            ended: now.wall,
            took: now.mono - self.begun.mono,
            outcome,
            code,
            attempts: self.attempts.load(Ordering::Relaxed),
            replays: self.replays.load(Ordering::Relaxed),
        };
        writer.end(self, settled);
    }
}

//! A child process that speaks MCP on its pipes: one message a line, answers in any order.
//!
//! Three tasks serve a link: one writes, one keeps stderr, and [`live`] reads, watches the other two and the
//! child, and at the end tells everybody who waits. None of them owns the child: it goes with the link.

use super::inbox::{Inbox, Incoming, Surroundings};
use super::pending::{Dispatched, FrameFate, Pending};
use super::process::{Exit, ExitWatch, Pipes, ProcessTree};
use super::{BoxFuture, Link, LinkFacts, Listening, Outgoing, Reply, Secrets, Session, StderrRing, Trouble};
use bytes::Bytes;
use gripfast_core::failure::{During, Evidence, Observed, Sent};
use gripfast_core::supervise::upstream::Manner;
use gripfast_wire::envelope::{self, Addressee};
use gripfast_wire::held::extend_within;
use gripfast_wire::results;
use gripfast_wire::{Id, RawValue, batch};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// An open link to a child process.
pub(super) struct StdioLink {
    tree: ProcessTree,
    pending: Arc<Pending>,
    /// `None` once the link is being closed: the writer then closes the child's stdin.
    frames: Mutex<Option<mpsc::Sender<Frame>>>,
}

struct Frame {
    bytes: QueuedBytes,
    fate: Arc<FrameFate>,
}

/// The bytes of a frame that waits. A caller that withdraws its request takes them out, so that nothing of it stays in
/// memory behind a child that does not read.
type QueuedBytes = Arc<Mutex<Vec<u8>>>;

fn take_bytes(bytes: &QueuedBytes) -> Vec<u8> {
    std::mem::take(&mut *bytes.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Frames that may wait for a child that does not read. More wait with their callers.
const QUEUED_FRAMES: usize = 1024;
/// After a child's end, what it wrote last may still be in the pipes; a grandchild may hold them open for ever.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(200);
/// A dead child writes no more: once nothing has been read for this long, nothing of it is left to be read.
const SILENCE: Duration = Duration::from_millis(20);
/// A message in a batch beyond this number is an attack or a mistake.
const LARGEST_BATCH: usize = 1000;

impl StdioLink {
    /// Takes over a freshly started child.
    pub(super) fn over(tree: ProcessTree, pipes: Pipes, surroundings: Surroundings) -> Self {
        let pending = Arc::new(Pending::default());
        let (frames, queue) = mpsc::channel(QUEUED_FRAMES);
        let Surroundings { inbox, stderr, secrets, children: _, host_id: _, max_message } = surroundings;

        let heard = Arc::new(Heard::default());
        let own = Arc::<StderrRing>::default();
        let rings = [stderr, Arc::clone(&own)];
        let last_words = keep_stderr(pipes.stderr, rings.clone(), Arc::clone(&secrets), Arc::clone(&heard));
        let child = ChildsEnd {
            exit: tree.exit(),
            writing: tokio::spawn(write_frames(pipes.stdin, queue, tree.exit())),
            last_words: tokio::spawn(last_words),
            heard: Arc::clone(&heard),
            stderr: own,
        };
        let pending_replies = Arc::clone(&pending);
        let reader = Reader { pending: pending_replies, inbox, max_message, secrets, rings, junk: 0, heard };
        tokio::spawn(live(child, reader, pipes.stdout));
        Self { tree, pending, frames: Mutex::new(Some(frames)) }
    }

    fn writer(&self) -> Option<mpsc::Sender<Frame>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn enqueue(
        &self,
        bytes: QueuedBytes,
        fate: Arc<FrameFate>,
        during: During,
    ) -> Result<(), Box<Trouble>> {
        let closed = || Evidence::unsent(during, Observed::Closed("its stdin is closed".to_owned())).into();
        let writer = self.writer().ok_or_else(closed)?;
        writer.send(Frame { bytes, fate }).await.map_err(|_| closed())
    }
}

impl Link for StdioLink {
    fn request<'a>(
        &'a self,
        _session: &'a Session,
        request: Outgoing,
    ) -> BoxFuture<'a, Result<Reply, Box<Trouble>>> {
        Box::pin(async move {
            let fate = Arc::new(FrameFate::marking(request.sent));
            let (listener, memory) = (request.listener, request.memory);
            let answer =
                self.pending.join(request.id, request.during, listener, memory, Arc::clone(&fate))?;
            let bytes: QueuedBytes = Arc::new(Mutex::new(one_line(request.message)));
            let (id, during) = (request.id, request.during);
            let mut goodbye = Goodbye { link: self, id, fate: &fate, bytes: &bytes, during, due: true };
            match self.enqueue(Arc::clone(&bytes), Arc::clone(&fate), during).await {
                Ok(()) => {}
                // It ended before anything was said to it. Whoever watches it knows in a moment how, which tells a
                // person more about a start that failed.
                Err(_) if request.during == During::Handshake && self.writer().is_some() => {}
                Err(closed) => return Err(closed),
            }
            let outcome = answer.await;
            goodbye.due = false;
            outcome.unwrap_or_else(|_| {
                let evidence = Evidence {
                    during: request.during,
                    sent: fate.withdraw(),
                    observed: Observed::Closed("the link was dropped".to_owned()),
                };
                Err(evidence.into())
            })
        })
    }

    fn send<'a>(
        &'a self,
        _session: &'a Session,
        message: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), Box<Trouble>>> {
        let bytes = Arc::new(Mutex::new(one_line(message)));
        Box::pin(self.enqueue(bytes, Arc::default(), During::Call))
    }

    fn listen(self: Arc<Self>, _session: Arc<Session>) -> Option<Listening> {
        // The pipe carries everything already.
        None
    }

    fn close<'a>(&'a self, _session: Option<&'a Session>, manner: Manner) -> BoxFuture<'a, ()> {
        // Closing the queue closes stdin, which is how a child is asked to end.
        self.frames.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(async move { self.tree.end(manner).await })
    }

    fn facts(&self) -> LinkFacts {
        LinkFacts { pid: Some(self.tree.pid()), url: None }
    }

    fn resident(&self) -> Option<u64> {
        self.tree.resident()
    }
}

/// What is owed to the server when a caller loses interest: nothing if its request was never begun, and
/// `notifications/cancelled` otherwise.
struct Goodbye<'a> {
    link: &'a StdioLink,
    id: u64,
    fate: &'a Arc<FrameFate>,
    bytes: &'a QueuedBytes,
    during: During,
    due: bool,
}

impl Drop for Goodbye<'_> {
    fn drop(&mut self) {
        if !self.due {
            return;
        }
        self.link.pending.forget(self.id);
        let sent = self.fate.withdraw();
        if sent == Sent::No {
            take_bytes(self.bytes);
        }
        // The specification forbids cancelling a handshake.
        if sent == Sent::No || self.during == During::Handshake {
            return;
        }
        let Ok(raw) = RawValue::from_string(self.id.to_string()) else { return };
        let (Ok(id), Some(writer)) = (Id::from_raw(&raw), self.link.writer()) else { return };
        // A full queue means a child that does not read: it would not hear this either.
        let bytes = Arc::new(Mutex::new(one_line(results::cancelled(id, None))));
        let _ = writer.try_send(Frame { bytes, fate: Arc::default() });
    }
}

/// Writes until the link is closed, the child has ended, or it does not take it any more. A pipe whose other end a
/// grandchild holds takes everything, for nobody.
async fn write_frames(stdin: ChildStdin, queue: mpsc::Receiver<Frame>, exit: ExitWatch) -> Written {
    tokio::select! {
        biased;
        _ = exit.ended() => Written::Everything,
        written = write_until_refused(stdin, queue) => written,
    }
}

async fn write_until_refused(mut stdin: ChildStdin, mut queue: mpsc::Receiver<Frame>) -> Written {
    while let Some(frame) = queue.recv().await {
        if !frame.fate.begin() {
            continue;
        }
        let bytes = take_bytes(&frame.bytes);
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match stdin.write(rest).await {
                Ok(taken) if taken > 0 => rest = &rest[taken..],
                Ok(_) | Err(_) => {
                    if rest.len() == bytes.len() {
                        frame.fate.take_back();
                    }
                    return Written::Refused;
                }
            }
        }
    }
    Written::Everything
}

/// How writing came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    /// The link was closed, or there is no child to write to.
    Everything,
    /// Nobody reads the child's stdin any more.
    Refused,
}

/// One message is one line. A line break can only stand between the tokens of valid JSON, where a space
/// does as well.
fn one_line(mut message: Vec<u8>) -> Vec<u8> {
    for byte in &mut message {
        if matches!(*byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    message.push(b'\n');
    message
}

async fn keep_stderr(
    stderr: impl AsyncRead + Unpin,
    rings: [Arc<StderrRing>; 2],
    secrets: Arc<Secrets>,
    heard: Arc<Heard>,
) {
    let keep = |line: &[u8]| {
        let masked = secrets.mask(&String::from_utf8_lossy(line));
        rings.iter().for_each(|ring| ring.push(masked.as_bytes()));
    };
    let mut lines = Lines::new(stderr, StderrRing::LINE_BYTES, heard);
    loop {
        match lines.next().await {
            Line::Whole(line) | Line::TooLong { beginning: line, .. } => keep(&line),
            Line::End { rest } => {
                // Last words often have no line break.
                if !rest.is_empty() {
                    keep(&rest);
                }
                return;
            }
        }
    }
}

/// What ends when a child does.
struct ChildsEnd {
    exit: ExitWatch,
    writing: JoinHandle<Written>,
    last_words: JoinHandle<()>,
    heard: Arc<Heard>,
    /// What this very child wrote: the server's ring also has lines of children before it and beside it.
    stderr: Arc<StderrRing>,
}

/// How often something was read from either pipe.
#[derive(Default)]
struct Heard(AtomicU64);

impl Heard {
    fn again(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends when nothing is read any more, or too much.
    async fn silence(&self) {
        let listening = async {
            loop {
                let before = self.0.load(Ordering::Relaxed);
                tokio::time::sleep(SILENCE).await;
                if self.0.load(Ordering::Relaxed) == before {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS_WITHIN, listening).await;
    }
}

/// The link lives while its child lives and both its pipes are open.
async fn live(mut child: ChildsEnd, mut reader: Reader, stdout: impl AsyncRead + Unpin) {
    let observed = tokio::select! {
        too_large = reader.read(stdout) => match too_large {
            // Most of those who wait have no part in it.
            Some(limit) => Observed::Closed(format!(
                "it sent a message over the limit of {limit} bytes (`max_message`), and nobody can tell to whom"
            )),
            None => child.closed("it closed its stdout").await,
        },
        () = refused(&mut child.writing) => child.closed("it closed its stdin").await,
        exit = exited(child.exit.clone(), Arc::clone(&child.heard)) => child.said_last(exit),
    };
    reader.pending.fail_all(&observed);
    reader.inbox.put(Incoming::Lost(Evidence::sent(During::Call, observed))).await;
}

/// Ends when the child has ended and had its time to be heard.
async fn exited(watch: ExitWatch, heard: Arc<Heard>) -> Exit {
    let exit = watch.ended().await;
    heard.silence().await;
    exit
}

/// Ends when the child refuses to be written to, and never if the link is merely closed.
async fn refused(writing: &mut JoinHandle<Written>) {
    match writing.await {
        Ok(Written::Refused) => {}
        Ok(Written::Everything) | Err(_) => std::future::pending().await,
    }
}

impl ChildsEnd {
    /// A pipe is closed; the child's exit code, if it comes soon, tells more.
    async fn closed(mut self, what: &str) -> Observed {
        match tokio::time::timeout(LAST_WORDS_WITHIN, self.exit.ended()).await {
            Ok(exit) => {
                // What it said last may still be on its way.
                let _ = tokio::time::timeout(LAST_WORDS_WITHIN, &mut self.last_words).await;
                self.said_last(exit)
            }
            Err(_) => Observed::Closed(what.to_owned()),
        }
    }

    fn said_last(&self, exit: Exit) -> Observed {
        Observed::Exited { code: exit.code, signal: exit.signal, last_words: self.stderr.last_words() }
    }
}

struct Reader {
    pending: Arc<Pending>,
    inbox: Inbox,
    max_message: usize,
    secrets: Arc<Secrets>,
    rings: [Arc<StderrRing>; 2],
    junk: u64,
    heard: Arc<Heard>,
}

impl Reader {
    /// Reads until the end. Answers with the limit if a message was over it and does not say whom it answers; one
    /// that does costs its own call only.
    async fn read(&mut self, stdout: impl AsyncRead + Unpin) -> Option<usize> {
        let mut lines = Lines::new(stdout, self.max_message, Arc::clone(&self.heard));
        loop {
            match lines.next().await {
                Line::Whole(line) => self.take(Bytes::from(line)).await,
                Line::TooLong { beginning, end } => match envelope::addressee(&beginning, &end) {
                    Addressee::Answer(id) => {
                        self.pending.fail(id, Observed::TooLarge(self.max_message), &self.inbox)
                    }
                    Addressee::Nobody => self.skip(&beginning).await,
                    Addressee::Unknown => return Some(self.max_message),
                },
                // Half a message is worth nothing.
                Line::End { .. } => return None,
            }
        }
    }

    async fn take(&mut self, line: Bytes) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        if envelope::is_batch(&line) {
            let messages: Vec<Bytes> = match batch::split(&line, LARGEST_BATCH) {
                Ok(messages) => messages.into_iter().map(|message| line.slice_ref(message)).collect(),
                Err(_) => {
                    self.pending.damaged(&line, &self.inbox);
                    return self.skip(&line).await;
                }
            };
            for message in messages {
                self.dispatch(message).await;
            }
        } else {
            self.dispatch(line).await;
        }
    }

    async fn dispatch(&mut self, bytes: Bytes) {
        match self.pending.dispatch(bytes.clone(), &self.inbox).await {
            Ok(Dispatched::Result) => self.rings.iter().for_each(|ring| ring.answered()),
            Ok(Dispatched::Other) => {}
            Err(_) => self.skip(&bytes).await,
        }
    }

    /// Told at 1, 10, 100, … lines, so that a chatty server does not flood its owner.
    async fn skip(&mut self, junk: &[u8]) {
        self.junk += 1;
        if self.junk == 10u64.pow(self.junk.ilog10()) {
            self.inbox.put(Incoming::Junk { lines: self.junk, sample: sample(junk, &self.secrets) }).await;
        }
    }
}

/// The beginning of a line, without what is a secret or looks like one. Secrets are looked for before it is cut.
fn sample(junk: &[u8], secrets: &Secrets) -> String {
    let beginning = String::from_utf8_lossy(&junk[..junk.len().min(StderrRing::LINE_BYTES)]);
    secrets.text(&beginning).chars().take(120).collect()
}

/// Lines of bounded length. Of an overlong line only its two ends are kept.
struct Lines<R> {
    reader: BufReader<R>,
    limit: usize,
    heard: Arc<Heard>,
}

enum Line {
    Whole(Vec<u8>),
    TooLong {
        beginning: Vec<u8>,
        end: Vec<u8>,
    },
    /// The end, and what there is of a line before it: no more than the beginning of one that is too long.
    End {
        rest: Vec<u8>,
    },
}

/// What is kept of both ends of an overlong line.
const KEPT_BEGINNING: usize = StderrRing::LINE_BYTES;
const KEPT_END: usize = 128;

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(reader: R, limit: usize, heard: Arc<Heard>) -> Self {
        Self { reader: BufReader::with_capacity(64 << 10, reader), limit, heard }
    }

    async fn next(&mut self) -> Line {
        let mut line = Vec::new();
        // The last bytes of a line that has become too long.
        let mut end: Option<Vec<u8>> = None;
        loop {
            let chunk = match self.reader.fill_buf().await {
                Ok(chunk) if !chunk.is_empty() => chunk,
                Ok(_) | Err(_) => return Line::End { rest: line },
            };
            self.heard.again();
            let (taken, complete) = match memchr::memchr(b'\n', chunk) {
                Some(at) => (at + 1, true),
                None => (chunk.len(), false),
            };
            let text = &chunk[..taken - usize::from(complete)];
            match &mut end {
                None if text.len() <= self.limit - line.len() => {
                    extend_within(&mut line, text, self.limit);
                }
                None => {
                    let room = self.limit - line.len();
                    extend_within(&mut line, &text[..room.min(KEPT_BEGINNING)], self.limit);
                    line.truncate(KEPT_BEGINNING);
                    line.shrink_to_fit();
                    end = Some(last(text).to_vec());
                }
                Some(end) => {
                    end.extend_from_slice(last(text));
                    *end = last(end).to_vec();
                }
            }
            self.reader.consume(taken);
            if complete {
                return match end {
                    Some(end) => Line::TooLong { beginning: line, end },
                    None => Line::Whole(line),
                };
            }
        }
    }
}

fn last(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(KEPT_END)..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_util::task::TaskTracker;

    /// F03
    #[tokio::test]
    async fn f03_last_words_without_a_line_break_are_kept() {
        let ring = Arc::new(StderrRing::default());
        keep_stderr(
            b"starting\nno API key".as_slice(),
            [Arc::clone(&ring), Arc::default()],
            Arc::default(),
            Arc::default(),
        )
        .await;
        assert_eq!(ring.last(5), ["starting", "no API key"]);
        let endless = [b'x'; 3 * StderrRing::LINE_BYTES];
        keep_stderr(endless.as_slice(), [Arc::clone(&ring), Arc::default()], Arc::default(), Arc::default())
            .await;
        assert_eq!(ring.last(1)[0].len(), StderrRing::LINE_BYTES);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn b03_a_child_that_is_dead_before_it_is_spoken_to_is_told_by_its_exit_code() {
        let program = crate::transport::process::Program::of("/bin/sh", None);
        let children = TaskTracker::new();
        let (tree, pipes) = ProcessTree::start(&program, children.token(), |child| {
            // Its pipes stay open for a while after its end.
            child.args(["-c", "sleep 60 & exit 3"]);
        })
        .await
        .unwrap();
        let (inbox, _owner) = Inbox::new();
        let (stderr, secrets) = (Arc::new(StderrRing::default()), Arc::default());
        stderr.push(b"error: of another child of the server");
        let surroundings =
            Surroundings { inbox, stderr, secrets, children, host_id: "".into(), max_message: 1 << 20 };
        let link = StdioLink::over(tree, pipes, surroundings);
        // Nothing is written any more, and how it ended is told in a moment.
        link.writer().unwrap().closed().await;
        let hello = Outgoing {
            id: 1,
            method: "initialize".to_owned(),
            message: envelope::request(1, "initialize", None),
            name: None,
            headers: Vec::new(),
            during: During::Handshake,
            safety: crate::transport::Safety::AtMostOnce,
            sent: Arc::default(),
            listener: None,
            memory: None,
        };
        let session = Session { era: gripfast_wire::Era::Legacy, id: None, version: None };
        let Err(trouble) = link.request(&session, hello).await else { panic!("it is dead") };
        assert_eq!(
            trouble.evidence,
            Evidence::unsent(
                During::Handshake,
                Observed::Exited { code: Some(3), signal: None, last_words: None }
            )
        );
    }

    #[tokio::test]
    async fn what_was_written_before_a_result_is_no_cause_and_before_an_error_it_may_be() {
        let (inbox, _owner) = Inbox::new();
        let rings = [Arc::<StderrRing>::default(), Arc::default()];
        let mut reader = Reader {
            pending: Arc::default(),
            inbox,
            max_message: 1 << 20,
            secrets: Arc::default(),
            rings: rings.clone(),
            junk: 0,
            heard: Arc::default(),
        };
        rings.iter().for_each(|ring| ring.push(b"Error: no API key"));
        let refusal = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}"#;
        reader.take(Bytes::from_static(refusal)).await;
        assert!(rings.iter().all(|ring| ring.last_words().as_deref() == Some("Error: no API key")));
        reader.take(Bytes::from_static(br#"{"jsonrpc":"2.0","id":2,"result":{}}"#)).await;
        assert!(rings.iter().all(|ring| ring.last_words().is_none()));
    }

    #[test]
    fn a_pretty_printed_message_becomes_one_line_and_nothing_else_changes() {
        let message = b"{\n  \"a\": \"x\\ny\",\r\n \"b\": 1.0e+5 }".to_vec();
        assert_eq!(one_line(message), b"{   \"a\": \"x\\ny\",   \"b\": 1.0e+5 }\n");
    }

    #[test]
    fn g07_what_a_server_writes_between_its_messages_is_shown_without_its_secrets() {
        let token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
        let noise = format!("listening; {}token {token}", " ".repeat(90));
        let sample = sample(noise.as_bytes(), &Secrets::default());
        assert!(sample.starts_with("listening;") && sample.ends_with('*'), "{sample}");
        assert!(!sample.contains("ghp_"), "{sample}");
        assert_eq!(sample.chars().count(), 120);
    }

    #[tokio::test]
    async fn g07_an_overlong_line_is_cut_and_half_a_line_at_the_end_is_told_from_a_line() {
        let text = [b"short\n".as_slice(), &vec![b'x'; 5000], b"\nnext\nhalf"].concat();
        let mut lines = Lines::new(text.as_slice(), StderrRing::LINE_BYTES, Arc::default());
        assert!(matches!(lines.next().await, Line::Whole(line) if line == b"short"));
        let Line::TooLong { beginning, end } = lines.next().await else { panic!("it is too long") };
        assert_eq!((beginning.len(), end.len()), (StderrRing::LINE_BYTES, KEPT_END));
        assert!(matches!(lines.next().await, Line::Whole(line) if line == b"next"));
        assert!(matches!(lines.next().await, Line::End { rest } if rest == b"half"));
    }
}

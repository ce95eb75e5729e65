//! Stdio transport: a child process that speaks MCP on its pipes, one message per line, with responses in any order.
//!
//! Three tasks serve a link: one writes stdin, one reads stderr, and [`run`] reads stdout, watches the other two and
//! the child, and at the end fails all pending requests. None of them owns the child: it is dropped with the link.
//!
//! A caller writes its request itself if the pipe takes it at once ([`Stdin`]).

use super::inbox::{Inbox, Incoming, LinkContext};
use super::pending_replies::{Dispatched, FrameState, PendingReplies};
use super::process::{Exit, ExitWatch, Pipes, ProcessTree};
use super::stdin::{Frame, QueueState, Stdin, WriteEnd};
use super::{
    BoxFuture, Link, LinkInfo, Outgoing, Reply, Secrets, SendError, Session, StderrRing, UnsolicitedStream,
};
use bytes::Bytes;
use gripfast_core::failure::{During, Evidence, Observed, Sent};
use gripfast_core::supervise::upstream::CloseMode;
use gripfast_wire::envelope::{self, Addressee};
use gripfast_wire::partial::extend_within;
use gripfast_wire::results;
use gripfast_wire::{Id, JsonText, batch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::ChildStdin;
use tokio::task::JoinHandle;

/// An open link to a child process.
pub(super) struct StdioLink {
    tree: ProcessTree,
    pending: Arc<PendingReplies>,
    stdin: Arc<Stdin<ChildStdin>>,
}

/// Time limit for reading the remaining output of an ended child; a grandchild may hold the pipes open for ever.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// Once nothing has been read from an ended child for this long, its output is complete.
const DRAIN_IDLE: Duration = Duration::from_millis(20);
/// Maximum number of messages in a batch; a larger one is an attack or a mistake.
const MAX_BATCH: usize = 1000;

impl StdioLink {
    /// Starts the tasks for a freshly started child.
    pub(super) fn new(tree: ProcessTree, pipes: Pipes, context: LinkContext) -> Self {
        let pending = Arc::new(PendingReplies::default());
        let stdin = Arc::new(Stdin::new(pipes.stdin));
        let LinkContext { inbox, stderr, secrets, max_message, .. } = context;

        let reads = Arc::new(ReadCounter::default());
        let own_ring = Arc::<StderrRing>::default();
        let rings = [stderr, Arc::clone(&own_ring)];
        let reading_stderr =
            read_stderr(pipes.stderr, rings.clone(), Arc::clone(&secrets), Arc::clone(&reads));
        let child = ChildGuard {
            exit: tree.exit_watch(),
            writing: tokio::spawn(write_until_end(Arc::clone(&stdin), tree.exit_watch())),
            stderr_task: tokio::spawn(reading_stderr),
            reads: Arc::clone(&reads),
            stderr: own_ring,
        };
        let pending_replies = Arc::clone(&pending);
        let reader = Reader { pending: pending_replies, inbox, max_message, secrets, rings, junk: 0, reads };
        tokio::spawn(run(child, reader, pipes.stdout, Arc::clone(&stdin)));
        Self { tree, pending, stdin }
    }
}

impl Link for StdioLink {
    fn request<'a>(
        &'a self,
        _session: &'a Session,
        request: Outgoing<'a>,
    ) -> BoxFuture<'a, Result<Reply, Box<SendError>>> {
        Box::pin(async move {
            let state = Arc::new(FrameState::with_flag(request.sent));
            let (listener, memory) = (request.listener, request.memory);
            let answer =
                self.pending.insert(request.id, request.during, listener, memory, Arc::clone(&state))?;
            let (id, during) = (request.id, request.during);
            let mut cancel_guard = CancelOnDrop { link: self, id, state: &state, during, armed: true };
            let frame = Frame { bytes: to_line(request.message), state: Arc::clone(&state) };
            match (self.stdin.write(frame).await, during) {
                (Ok(()), _) => {}
                // The child ended before anything was written. Its exit code follows in a moment and explains a failed
                // start better.
                (Err(QueueState::Ended), During::Handshake) => {}
                (Err(_), _) => return Err(stdin_closed(during)),
            }
            let outcome = answer.await;
            cancel_guard.armed = false;
            outcome.unwrap_or_else(|_| {
                let evidence = Evidence {
                    during: request.during,
                    sent: state.withdraw(),
                    observed: Observed::Closed("the connection to the server was dropped".to_owned()),
                };
                Err(evidence.into())
            })
        })
    }

    fn send<'a>(
        &'a self,
        _session: &'a Session,
        message: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), Box<SendError>>> {
        let frame = Frame { bytes: to_line(message), state: Arc::default() };
        Box::pin(async move { self.stdin.write(frame).await.map_err(|_| stdin_closed(During::Call)) })
    }

    fn listen(self: Arc<Self>, _session: Arc<Session>) -> Option<UnsolicitedStream> {
        // The pipe carries everything already.
        None
    }

    fn close<'a>(&'a self, _session: Option<&'a Session>, manner: CloseMode) -> BoxFuture<'a, ()> {
        // The child is asked to exit by the end of its stdin.
        self.stdin.close();
        Box::pin(async move { self.tree.stop(manner).await })
    }

    fn info(&self) -> LinkInfo {
        LinkInfo { pid: Some(self.tree.pid()), url: None }
    }

    fn resident_memory(&self) -> Option<u64> {
        self.tree.resident_memory()
    }
}

fn stdin_closed(during: During) -> Box<SendError> {
    Evidence::unsent(during, Observed::Closed("the server's stdin is closed".to_owned())).into()
}

/// Cancels a request that its caller drops: nothing is sent if the request was never begun, and
/// `notifications/cancelled` otherwise.
struct CancelOnDrop<'a> {
    link: &'a StdioLink,
    id: u64,
    state: &'a Arc<FrameState>,
    during: During,
    armed: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        self.link.pending.remove(self.id);
        let sent = self.state.withdraw();
        if sent == Sent::No {
            self.link.stdin.remove(self.state);
        }
        // The specification forbids cancelling a handshake.
        if sent == Sent::No || self.during == During::Handshake {
            return;
        }
        let Ok(raw) = JsonText::parse(self.id.to_string()) else { return };
        let Ok(id) = Id::from_raw(&raw) else { return };
        let frame = Frame { bytes: to_line(results::cancelled(id, None)), state: Arc::default() };
        self.link.stdin.try_write(frame);
    }
}

/// Writes frames until the link is closed, the child exits or it closes its stdin. The exit is watched because a pipe
/// that a grandchild holds open accepts everything, although nothing reads it.
async fn write_until_end(stdin: Arc<Stdin<ChildStdin>>, exit: ExitWatch) -> WriteEnd {
    let end = tokio::select! {
        biased;
        _ = exit.wait() => WriteEnd::Finished,
        written = stdin.write_handed_over() => written,
    };
    stdin.end();
    end
}

/// Formats a message as one line. In valid JSON a line break can only stand between tokens, where a space is
/// equivalent.
fn to_line(mut message: Vec<u8>) -> Vec<u8> {
    for byte in &mut message {
        if matches!(*byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    message.push(b'\n');
    message
}

async fn read_stderr(
    stderr: impl AsyncRead + Unpin,
    rings: [Arc<StderrRing>; 2],
    secrets: Arc<Secrets>,
    reads: Arc<ReadCounter>,
) {
    let keep = |line: &[u8]| {
        let masked = secrets.mask(&String::from_utf8_lossy(line));
        rings.iter().for_each(|ring| ring.push(masked.as_bytes()));
    };
    let mut lines = Lines::new(stderr, StderrRing::LINE_BYTES, reads);
    loop {
        match lines.next().await {
            Line::Whole(line) | Line::TooLong { beginning: line, .. } => keep(&line),
            Line::End { rest } => {
                // The last line often has no line break.
                if !rest.is_empty() {
                    keep(&rest);
                }
                return;
            }
        }
    }
}

/// Exit watch, tasks and stderr of one child.
struct ChildGuard {
    exit: ExitWatch,
    writing: JoinHandle<WriteEnd>,
    stderr_task: JoinHandle<()>,
    reads: Arc<ReadCounter>,
    /// Stderr of this child only; the server's ring also has lines of earlier and parallel children.
    stderr: Arc<StderrRing>,
}

/// Counts reads from both pipes.
#[derive(Default)]
struct ReadCounter(AtomicU64);

impl ReadCounter {
    fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Completes when nothing is read any more, or after `DRAIN_TIMEOUT`.
    async fn wait_until_idle(&self) {
        let listening = async {
            loop {
                let before = self.0.load(Ordering::Relaxed);
                tokio::time::sleep(DRAIN_IDLE).await;
                if self.0.load(Ordering::Relaxed) == before {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, listening).await;
    }
}

/// Serves the link until the child exits or closes one of its pipes.
async fn run(
    mut child: ChildGuard,
    mut reader: Reader,
    stdout: impl AsyncRead + Unpin,
    stdin: Arc<Stdin<ChildStdin>>,
) {
    let observed = tokio::select! {
        too_large = reader.read(stdout) => match too_large {
            // `Closed` and not `TooLarge`: most pending requests are unrelated to this message.
            Some(limit) => Observed::Closed(format!(
                "the server sent a message over the limit of {limit} bytes that names no request; \
                 raise `max_message` if it is wanted"
            )),
            None => child.pipe_closed("the server closed its stdout").await,
        },
        () = wait_for_closed_stdin(&mut child.writing) => child.pipe_closed("the server closed its stdin").await,
        exit = wait_for_exit(child.exit.clone(), Arc::clone(&child.reads)) => child.exit_evidence(exit),
    };
    // First, because a frame of which nothing was written counts as not sent only then.
    stdin.end();
    reader.pending.fail_all(&observed);
    reader.inbox.put(Incoming::Lost(Evidence::sent(During::Call, observed))).await;
}

/// Completes when the child has exited and its remaining output was read.
async fn wait_for_exit(watch: ExitWatch, reads: Arc<ReadCounter>) -> Exit {
    let exit = watch.wait().await;
    reads.wait_until_idle().await;
    exit
}

/// Completes when the child has closed its stdin, and never if the link is merely closed.
async fn wait_for_closed_stdin(writing: &mut JoinHandle<WriteEnd>) {
    match writing.await {
        Ok(WriteEnd::PipeClosed) => {}
        Ok(WriteEnd::Finished) | Err(_) => std::future::pending().await,
    }
}

impl ChildGuard {
    /// A pipe is closed. The child's exit code, if it follows soon, is better evidence.
    async fn pipe_closed(mut self, what: &str) -> Observed {
        match tokio::time::timeout(DRAIN_TIMEOUT, self.exit.wait()).await {
            Ok(exit) => {
                // Its last output may still be unread.
                let _ = tokio::time::timeout(DRAIN_TIMEOUT, &mut self.stderr_task).await;
                self.exit_evidence(exit)
            }
            Err(_) => Observed::Closed(what.to_owned()),
        }
    }

    fn exit_evidence(&self, exit: Exit) -> Observed {
        Observed::Exited { code: exit.code, signal: exit.signal, stderr_line: self.stderr.likely_cause() }
    }
}

struct Reader {
    pending: Arc<PendingReplies>,
    inbox: Inbox,
    max_message: usize,
    secrets: Arc<Secrets>,
    rings: [Arc<StderrRing>; 2],
    junk: u64,
    reads: Arc<ReadCounter>,
}

impl Reader {
    /// Reads messages until the end. Returns the limit if a message exceeds it and does not show which request it
    /// answers; otherwise an oversized response fails only its own call.
    async fn read(&mut self, stdout: impl AsyncRead + Unpin) -> Option<usize> {
        let mut lines = Lines::new(stdout, self.max_message, Arc::clone(&self.reads));
        loop {
            match lines.next().await {
                Line::Whole(line) => self.handle_line(Bytes::from(line)).await,
                Line::TooLong { beginning, end } => match envelope::addressee(&beginning, &end) {
                    Addressee::Answer(id) => {
                        self.pending.fail(id, Observed::TooLarge(self.max_message), &self.inbox)
                    }
                    Addressee::NotAnAnswer => self.report_junk(&beginning).await,
                    Addressee::Unknown => return Some(self.max_message),
                },
                // A partial message is useless.
                Line::End { .. } => return None,
            }
        }
    }

    async fn handle_line(&mut self, line: Bytes) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        if envelope::is_batch(&line) {
            let messages: Vec<Bytes> = match batch::split(&line, MAX_BATCH) {
                Ok(messages) => messages.into_iter().map(|message| line.slice_ref(message)).collect(),
                Err(_) => {
                    self.pending.note_damaged(&line, &self.inbox);
                    return self.report_junk(&line).await;
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
            Ok(Dispatched::Result) => self.rings.iter().for_each(|ring| ring.mark_answered()),
            Ok(Dispatched::Other) => {}
            Err(_) => self.report_junk(&bytes).await,
        }
    }

    /// Reports junk at 1, 10, 100, … lines, so that a chatty server does not flood the supervisor.
    async fn report_junk(&mut self, junk: &[u8]) {
        self.junk += 1;
        if self.junk == 10u64.pow(self.junk.ilog10()) {
            self.inbox.put(Incoming::Junk { lines: self.junk, sample: sample(junk, &self.secrets) }).await;
        }
    }
}

/// First 120 characters of a line, with secrets redacted before the cut.
fn sample(junk: &[u8], secrets: &Secrets) -> String {
    let beginning = String::from_utf8_lossy(&junk[..junk.len().min(StderrRing::LINE_BYTES)]);
    secrets.redact_text(&beginning).chars().take(120).collect()
}

/// Reads lines of bounded length. Of an overlong line only both ends are kept.
struct Lines<R> {
    reader: BufReader<R>,
    limit: usize,
    reads: Arc<ReadCounter>,
}

enum Line {
    Whole(Vec<u8>),
    TooLong {
        beginning: Vec<u8>,
        end: Vec<u8>,
    },
    /// End of the stream, with the unfinished line before it; of an overlong one only the beginning.
    End {
        rest: Vec<u8>,
    },
}

/// Bytes kept of both ends of an overlong line.
const KEPT_BEGINNING: usize = StderrRing::LINE_BYTES;
const KEPT_END: usize = 128;

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(reader: R, limit: usize, reads: Arc<ReadCounter>) -> Self {
        Self { reader: BufReader::with_capacity(64 << 10, reader), limit, reads }
    }

    async fn next(&mut self) -> Line {
        let mut line = Vec::new();
        // Last bytes of a line that has become too long.
        let mut end: Option<Vec<u8>> = None;
        loop {
            let chunk = match self.reader.fill_buf().await {
                Ok(chunk) if !chunk.is_empty() => chunk,
                Ok(_) | Err(_) => return Line::End { rest: line },
            };
            self.reads.increment();
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
                    end = Some(tail(text).to_vec());
                }
                Some(end) => {
                    end.extend_from_slice(tail(text));
                    *end = tail(end).to_vec();
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

fn tail(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(KEPT_END)..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::process::ChildLifetime;
    use tokio_util::task::TaskTracker;

    /// F03
    #[tokio::test]
    async fn f03_last_stderr_line_without_a_line_break_is_kept() {
        let ring = Arc::new(StderrRing::default());
        read_stderr(
            b"starting\nno API key".as_slice(),
            [Arc::clone(&ring), Arc::default()],
            Arc::default(),
            Arc::default(),
        )
        .await;
        assert_eq!(ring.last(5), ["starting", "no API key"]);
        let endless = [b'x'; 3 * StderrRing::LINE_BYTES];
        read_stderr(endless.as_slice(), [Arc::clone(&ring), Arc::default()], Arc::default(), Arc::default())
            .await;
        assert_eq!(ring.last(1)[0].len(), StderrRing::LINE_BYTES);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn b03_a_child_that_exits_before_the_first_write_is_reported_by_exit_code() {
        let program = crate::transport::process::Program::resolve("/bin/sh", None);
        let children = TaskTracker::new();
        let (tree, pipes) = ProcessTree::start(&program, children.token(), ChildLifetime::Process, |child| {
            // The pipes stay open for a while after the exit.
            child.args(["-c", "sleep 60 & exit 3"]);
        })
        .await
        .unwrap();
        let (inbox, _supervisor) = Inbox::new();
        let (stderr, secrets) = (Arc::new(StderrRing::default()), Arc::default());
        stderr.push(b"error: of another child of the server");
        let context = LinkContext {
            inbox,
            stderr,
            secrets,
            children,
            host_id: "".into(),
            max_message: 1 << 20,
            dedicated_to: None,
            is_leased: false,
        };
        let link = StdioLink::new(tree, pipes, context);
        // Nothing is written any more; the exit is reported in a moment.
        while link.stdin.state() != QueueState::Ended {
            tokio::task::yield_now().await;
        }
        let initialize = Outgoing {
            id: 1,
            method: "initialize",
            message: envelope::request(1, "initialize", None),
            name: None,
            headers: Vec::new(),
            during: During::Handshake,
            safety: crate::transport::Safety::AtMostOnce,
            sent: Arc::default(),
            listener: None,
            principal: None,
            memory: None,
        };
        let session = Session { era: gripfast_wire::Era::Legacy, id: None, version: None };
        let Err(error) = link.request(&session, initialize).await else { panic!("the child is dead") };
        assert_eq!(
            error.evidence,
            Evidence::unsent(
                During::Handshake,
                Observed::Exited { code: Some(3), signal: None, stderr_line: None }
            )
        );
    }

    #[tokio::test]
    async fn stderr_before_a_result_is_no_cause_and_before_an_error_it_may_be() {
        let (inbox, _supervisor) = Inbox::new();
        let rings = [Arc::<StderrRing>::default(), Arc::default()];
        let mut reader = Reader {
            pending: Arc::default(),
            inbox,
            max_message: 1 << 20,
            secrets: Arc::default(),
            rings: rings.clone(),
            junk: 0,
            reads: Arc::default(),
        };
        rings.iter().for_each(|ring| ring.push(b"Error: no API key"));
        let refusal = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}"#;
        reader.handle_line(Bytes::from_static(refusal)).await;
        assert!(rings.iter().all(|ring| ring.likely_cause().as_deref() == Some("Error: no API key")));
        reader.handle_line(Bytes::from_static(br#"{"jsonrpc":"2.0","id":2,"result":{}}"#)).await;
        assert!(rings.iter().all(|ring| ring.likely_cause().is_none()));
    }

    #[test]
    fn a_pretty_printed_message_becomes_one_line_and_nothing_else_changes() {
        let message = b"{\n  \"a\": \"x\\ny\",\r\n \"b\": 1.0e+5 }".to_vec();
        assert_eq!(to_line(message), b"{   \"a\": \"x\\ny\",   \"b\": 1.0e+5 }\n");
    }

    #[test]
    fn g07_junk_between_messages_is_shown_without_secrets() {
        let token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
        let noise = format!("listening; {}token {token}", " ".repeat(90));
        let sample = sample(noise.as_bytes(), &Secrets::default());
        assert!(sample.starts_with("listening;") && sample.ends_with('*'), "{sample}");
        assert!(!sample.contains("ghp_"), "{sample}");
        assert_eq!(sample.chars().count(), 120);
    }

    #[tokio::test]
    async fn g07_an_overlong_line_is_cut_and_a_partial_last_line_is_recognised() {
        let text = [b"short\n".as_slice(), &vec![b'x'; 5000], b"\nnext\nhalf"].concat();
        let mut lines = Lines::new(text.as_slice(), StderrRing::LINE_BYTES, Arc::default());
        assert!(matches!(lines.next().await, Line::Whole(line) if line == b"short"));
        let Line::TooLong { beginning, end } = lines.next().await else { panic!("the line is too long") };
        assert_eq!((beginning.len(), end.len()), (StderrRing::LINE_BYTES, KEPT_END));
        assert!(matches!(lines.next().await, Line::Whole(line) if line == b"next"));
        assert!(matches!(lines.next().await, Line::End { rest } if rest == b"half"));
    }
}

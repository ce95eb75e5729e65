//! A child's stdin, which many callers share. A caller writes its frame itself unless another one is writing; then that
//! one writes it too, so no caller waits for a lock during a system call. A task writes what the pipe does not take at
//! once.

use super::pending_replies::FrameState;
use crate::sync::Mutex;
use bytes::Buf;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::Cursor;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::AsyncWrite;
use tokio::sync::Notify;

/// Maximum number of frames queued for a child that does not read; further callers wait.
const MAX_QUEUED: usize = 1024;
/// Maximum number of frames that a caller writes in a row, its own included. The task writes the others.
const MAX_IN_A_ROW: usize = 16;

/// Stdin of a child.
pub(super) struct Stdin<W> {
    queue: Mutex<Queue>,
    /// Used by one writer at a time: the caller or task that has set [`Queue::is_writing`].
    pipe: Mutex<Pipe<W>>,
    /// Makes the task the writer.
    handed_over: Notify,
    /// The queue is no longer full, or is closed.
    room: Notify,
}

/// Frames that wait for the writer, which takes all of them.
struct Queue {
    frames: VecDeque<Frame>,
    is_writing: bool,
    state: QueueState,
}

/// Whether a child's stdin takes frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueState {
    Open,
    /// The link is closed. Queued frames are still written.
    Closing,
    /// The child has exited, or reads nothing any more.
    Ended,
}

/// One message, as a line.
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) state: Arc<FrameState>,
}

/// Reason why a frame was not taken.
enum Refused {
    Full(Frame),
    NotOpen(QueueState),
}

/// Next step of the writer.
enum NextFrame {
    Frame(Frame),
    /// It is no longer the writer.
    None,
    /// No frames come any more. The writer stays the only one, and the task ends.
    Closed,
}

/// Reason why the task of a child's stdin ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteEnd {
    /// The link was closed, or the child has exited.
    Finished,
    /// The pipe has no reader any more.
    PipeClosed,
}

impl<W: AsyncWrite + Unpin> Stdin<W> {
    pub(super) fn new(pipe: W) -> Self {
        let queue = Queue { frames: VecDeque::new(), is_writing: false, state: QueueState::Open };
        Self {
            queue: Mutex::new(queue),
            pipe: Mutex::new(Pipe { inner: Some(pipe), rest: Cursor::default(), unwritten: None }),
            handed_over: Notify::new(),
            room: Notify::new(),
        }
    }

    /// Writes a frame, or leaves it to the present writer. Waits while the queue is full.
    pub(super) async fn write(&self, mut frame: Frame) -> Result<(), QueueState> {
        loop {
            // Made first, so that no wake-up is missed.
            let room = self.room.notified();
            match self.offer(frame) {
                Ok(()) => return Ok(()),
                Err(Refused::NotOpen(state)) => return Err(state),
                Err(Refused::Full(kept)) => frame = kept,
            }
            room.await;
        }
    }

    /// Writes a frame, or leaves it to the present writer, unless the queue is full.
    pub(super) fn try_write(&self, frame: Frame) {
        // A full queue means that the child does not read.
        let _ = self.offer(frame);
    }

    fn offer(&self, frame: Frame) -> Result<(), Refused> {
        let mut queue = self.queue.lock();
        match queue.state {
            QueueState::Open => {}
            state => return Err(Refused::NotOpen(state)),
        }
        if queue.is_writing {
            if !queue.has_room() {
                return Err(Refused::Full(frame));
            }
            queue.frames.push_back(frame);
            return Ok(());
        }
        queue.is_writing = true;
        drop(queue);
        self.write_now(frame);
        Ok(())
    }

    /// Writes a frame, and those that others leave meanwhile, as far as the pipe takes them at once.
    fn write_now(&self, first: Frame) {
        let (mut pipe, mut frame) = (self.pipe.lock(), first);
        for written in 1..=MAX_IN_A_ROW {
            pipe.begin(frame);
            let is_whole = pipe.poll_rest(&mut Context::from_waker(Waker::noop())) == Poll::Ready(true);
            if !is_whole || written == MAX_IN_A_ROW {
                break;
            }
            match self.next_frame() {
                NextFrame::Frame(next) => frame = next,
                NextFrame::None => return,
                NextFrame::Closed => break,
            }
        }
        // Also if the link or the pipe is closed: the task reports it.
        self.handed_over.notify_one();
    }

    /// Takes the next frame for the writer.
    fn next_frame(&self) -> NextFrame {
        let mut queue = self.queue.lock();
        self.notify_room(&queue);
        match (queue.frames.pop_front(), queue.state) {
            (Some(frame), _) => NextFrame::Frame(frame),
            (None, QueueState::Open) => {
                queue.is_writing = false;
                NextFrame::None
            }
            (None, QueueState::Closing | QueueState::Ended) => NextFrame::Closed,
        }
    }

    /// Wakes callers that wait, because a frame is about to leave a full queue.
    fn notify_room(&self, queue: &Queue) {
        if !queue.has_room() {
            self.room.notify_waiters();
        }
    }

    /// Removes a frame that its caller has withdrawn, so that it uses no memory behind a child that does not read.
    pub(super) fn remove(&self, state: &Arc<FrameState>) {
        let mut queue = self.queue.lock();
        if let Some(at) = queue.frames.iter().position(|frame| Arc::ptr_eq(&frame.state, state)) {
            self.notify_room(&queue);
            queue.frames.remove(at);
        }
    }

    /// Takes no further frames. The task writes those that wait, and ends.
    pub(super) fn close(&self) {
        let mut queue = self.queue.lock();
        if queue.state == QueueState::Open {
            queue.state = QueueState::Closing;
        }
        if !std::mem::replace(&mut queue.is_writing, true) {
            self.handed_over.notify_one();
        }
        self.room.notify_waiters();
    }

    /// Closes the pipe and drops all frames.
    pub(super) fn end(&self) {
        let frames = {
            let mut queue = self.queue.lock();
            queue.state = QueueState::Ended;
            std::mem::take(&mut queue.frames)
        };
        drop(frames);
        self.room.notify_waiters();
        self.pipe.lock().close();
    }

    #[cfg(test)]
    pub(super) fn state(&self) -> QueueState {
        self.queue.lock().state
    }

    /// Writes what callers leave, until the link or the pipe is closed.
    pub(super) async fn write_handed_over(&self) -> WriteEnd {
        loop {
            self.handed_over.notified().await;
            loop {
                // The rest of a frame that a caller began comes first.
                if !poll_fn(|cx| self.pipe.lock().poll_rest(cx)).await {
                    return WriteEnd::PipeClosed;
                }
                match self.next_frame() {
                    NextFrame::Frame(frame) => self.pipe.lock().begin(frame),
                    NextFrame::None => break,
                    NextFrame::Closed => return WriteEnd::Finished,
                }
            }
        }
    }
}

impl Queue {
    fn has_room(&self) -> bool {
        self.frames.len() < MAX_QUEUED
    }
}

/// The pipe, and the rest of the frame that was begun last. It is finished before the next frame.
struct Pipe<W> {
    /// `None` once writing has ended.
    inner: Option<W>,
    rest: Cursor<Vec<u8>>,
    /// State of that frame while none of its bytes is written.
    unwritten: Option<Arc<FrameState>>,
}

impl<W: AsyncWrite + Unpin> Pipe<W> {
    /// Begins a frame, unless its caller has withdrawn it.
    fn begin(&mut self, frame: Frame) {
        if frame.state.begin() {
            self.rest = Cursor::new(frame.bytes);
            self.unwritten = Some(frame.state);
        }
    }

    /// Writes the rest of the frame that was begun last. Returns false if the pipe is closed.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while self.rest.has_remaining() {
            let written = match &mut self.inner {
                Some(pipe) => ready!(Pin::new(pipe).poll_write(cx, self.rest.chunk())).unwrap_or(0),
                None => 0,
            };
            if written == 0 {
                self.close();
            } else {
                self.unwritten = None;
                self.rest.advance(written);
            }
        }
        self.rest = Cursor::default();
        Poll::Ready(self.inner.is_some())
    }

    /// Closes the pipe. A frame of which nothing is written counts as not sent from now on.
    fn close(&mut self) {
        (self.inner, self.rest) = (None, Cursor::default());
        self.unwritten.take().inspect(|state| state.revert());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast_core::failure::Sent;
    use std::io;
    use std::sync::mpsc;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    fn frame(text: &str) -> (Frame, Arc<FrameState>) {
        let state = Arc::<FrameState>::default();
        (Frame { bytes: text.as_bytes().to_vec(), state: Arc::clone(&state) }, state)
    }

    fn connected(size: usize) -> (Stdin<DuplexStream>, DuplexStream) {
        let (ours, theirs) = duplex(size);
        (Stdin::new(ours), theirs)
    }

    /// Runs the task, and reads until the pipe is closed.
    async fn finish(stdin: &Stdin<DuplexStream>, theirs: &mut DuplexStream) -> (WriteEnd, String) {
        let writing = async {
            let end = stdin.write_handed_over().await;
            stdin.end();
            end
        };
        let mut text = String::new();
        let (end, read) = tokio::join!(writing, theirs.read_to_string(&mut text));
        assert_eq!(read.unwrap(), text.len());
        (end, text)
    }

    #[tokio::test]
    async fn c05_frames_keep_their_order_when_the_pipe_takes_only_a_part() {
        let (stdin, mut theirs) = connected(10);
        let states: Vec<_> = ["first\n", "second, which is longer\n", "third\n", "fourth\n"]
            .into_iter()
            .map(|text| {
                let (frame, state) = frame(text);
                stdin.try_write(frame);
                state
            })
            .collect();
        assert_eq!(states[1].withdraw(), Sent::Yes, "it was begun");
        assert_eq!(states[2].withdraw(), Sent::No, "it waits for the rest");
        stdin.close();
        assert_eq!(stdin.write(frame("late").0).await, Err(QueueState::Closing));
        let (end, text) = finish(&stdin, &mut theirs).await;
        assert_eq!((end, text.as_str()), (WriteEnd::Finished, "first\nsecond, which is longer\nfourth\n"));
    }

    #[tokio::test]
    async fn c05_a_frame_for_a_closed_pipe_was_not_sent() {
        let (stdin, theirs) = connected(10);
        drop(theirs);
        let (frame, state) = frame("{}");
        stdin.write(frame).await.unwrap();
        assert_eq!(state.withdraw(), Sent::No);
        assert_eq!(stdin.write_handed_over().await, WriteEnd::PipeClosed);
    }

    #[tokio::test]
    async fn a_caller_writes_the_frames_of_others_up_to_a_limit() {
        let (stdin, mut theirs) = connected(1 << 10);
        stdin.queue.lock().is_writing = true;
        for number in 1..20 {
            stdin.try_write(frame(&format!("{number}\n")).0);
        }
        stdin.write_now(frame("0\n").0);
        assert_eq!(stdin.queue.lock().frames.len(), 20 - MAX_IN_A_ROW);
        assert!(stdin.queue.lock().is_writing, "the task goes on");
        stdin.close();
        let (end, text) = finish(&stdin, &mut theirs).await;
        let expected: String = (0..20).map(|number| format!("{number}\n")).collect();
        assert_eq!((end, text), (WriteEnd::Finished, expected));
        let (idle, _theirs) = connected(1 << 10);
        idle.write(frame("whole\n").0).await.unwrap();
        assert!(!idle.queue.lock().is_writing, "the next caller writes itself");
    }

    #[tokio::test]
    async fn a_withdrawn_frame_uses_no_memory_behind_a_child_that_does_not_read() {
        let (stdin, _theirs) = connected(1);
        stdin.write(frame("begun").0).await.unwrap();
        let (waiting, state) = frame("waits");
        stdin.write(waiting).await.unwrap();
        assert_eq!((stdin.queue.lock().frames.len(), state.withdraw()), (1, Sent::No));
        stdin.remove(&state);
        assert_eq!(stdin.queue.lock().frames.len(), 0);
    }

    #[tokio::test]
    async fn callers_wait_for_room_in_a_full_queue_and_hear_of_its_end() {
        let (stdin, mut theirs) = connected(1);
        stdin.write(frame("begun").0).await.unwrap();
        for _ in 0..MAX_QUEUED {
            stdin.write(frame("x").0).await.unwrap();
        }
        stdin.try_write(frame("dropped").0);
        let mut waiting = std::pin::pin!(stdin.write(frame("last").0));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        let mut byte = [0];
        let mut task = std::pin::pin!(stdin.write_handed_over());
        while stdin.queue.lock().frames.len() == MAX_QUEUED {
            tokio::select! {
                biased;
                _ = theirs.read_exact(&mut byte) => {}
                end = task.as_mut() => panic!("{end:?}"),
            }
        }
        waiting.await.unwrap();
        while stdin.queue.lock().has_room() {
            stdin.try_write(frame("x").0);
        }
        let mut waiting = std::pin::pin!(stdin.write(frame("too late").0));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        stdin.end();
        assert_eq!(waiting.await, Err(QueueState::Ended));
    }

    #[tokio::test]
    async fn a_withdrawn_frame_makes_room_for_a_caller_that_waits() {
        let (stdin, _theirs) = connected(1);
        stdin.write(frame("begun").0).await.unwrap();
        let (first, state) = frame("x");
        stdin.write(first).await.unwrap();
        while stdin.queue.lock().has_room() {
            stdin.try_write(frame("x").0);
        }
        let mut waiting = std::pin::pin!(stdin.write(frame("last").0));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        stdin.remove(&state);
        assert!(futures_util::poll!(waiting.as_mut()).is_ready());
    }

    #[tokio::test]
    async fn c05_a_frame_of_which_no_byte_was_written_before_the_end_was_not_sent() {
        let (stdin, _theirs) = connected(1);
        let ((first, _), (second, state)) = (frame("a"), frame("bcd"));
        stdin.write(first).await.unwrap();
        stdin.write(second).await.unwrap();
        stdin.end();
        assert_eq!(state.withdraw(), Sent::No);
    }

    /// Pipe whose system calls take until the test lets them end.
    struct SlowPipe {
        began: mpsc::Sender<Vec<u8>>,
        may_end: mpsc::Receiver<()>,
    }

    impl AsyncWrite for SlowPipe {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.began.send(bytes.to_vec()).unwrap();
            self.may_end.recv().unwrap();
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_caller_does_not_wait_while_another_one_writes() {
        let ((began, writes), (end, may_end)) = (mpsc::channel(), mpsc::channel());
        let stdin = Stdin::new(SlowPipe { began, may_end });
        std::thread::scope(|scope| {
            scope.spawn(|| stdin.try_write(frame("first").0));
            assert_eq!(writes.recv().unwrap(), b"first");
            stdin.try_write(frame("second").0);
            end.send(()).unwrap();
            assert_eq!(writes.recv().unwrap(), b"second", "the first caller writes it");
            end.send(()).unwrap();
        });
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn frames_of_many_callers_arrive_once_and_whole() {
        const CALLERS: usize = 8;
        const EACH: usize = 500;
        let (stdin, mut theirs) = connected(64);
        let stdin = Arc::new(stdin);
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let stdin = Arc::clone(&stdin);
                tokio::spawn(async move {
                    for number in 0..EACH {
                        stdin.write(frame(&format!("{caller} {number}\n")).0).await.unwrap();
                    }
                })
            })
            .collect();
        let closing = async {
            for caller in callers {
                caller.await.unwrap();
            }
            stdin.close();
        };
        let ((), (end, text)) = tokio::join!(closing, finish(&stdin, &mut theirs));
        assert_eq!(end, WriteEnd::Finished);
        for caller in 0..CALLERS {
            let prefix = format!("{caller} ");
            let numbers = text.lines().filter_map(|line| line.strip_prefix(&prefix)?.parse::<usize>().ok());
            assert!(numbers.eq(0..EACH), "each caller's frames in order");
        }
        assert_eq!(text.lines().count(), CALLERS * EACH);
    }
}

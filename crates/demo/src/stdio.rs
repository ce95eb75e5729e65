//! The server on stdio: one message per line, concurrent requests, one writer.

use std::{io, sync::Arc};

use futures_util::FutureExt;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    sync::{
        broadcast::{self, error::RecvError},
        mpsc,
    },
};

use crate::{
    frame::{Delivery, Frame, Framing, Part, Step, Then, steps},
    methods::{handle_notification, perform, perform_batch},
    options::Options,
    peer::{MessageSink, Peer, Request},
    process,
    rpc::{BATCH_VERSION, Call, INVALID_REQUEST, Message, PARSE_ERROR, RpcError},
    state::{Change, Flow, ProcessOwner, ServerState},
};

/// Frames that wait for the client to read; beyond it calls wait too.
const QUEUE: usize = 256;

/// Longest line that is accepted.
const MAX_LINE: u64 = 64 * 1024 * 1024;

const JUNK_LINE: &[u8] = b"demo server: this line is not a message\n";

/// Serves stdin and stdout until stdin closes. Faults of the process apply, so this may exit the process.
///
/// # Errors
///
/// If stdin or stdout fails, or a file named in the options cannot be written.
pub async fn serve_stdio(options: Options) -> io::Result<()> {
    process::start(&options).await?;
    let state = ServerState::new(options, ProcessOwner::Process);
    match serve(&state, tokio::io::stdin(), tokio::io::stdout()).await? {
        End::Died(code) => process::exit(code),
        End::Closed if state.faults().ignore_stdin_close => std::future::pending().await,
        End::Closed => Ok(()),
    }
}

/// Serves any pair of pipes, in process. Where [`serve_stdio`] would exit the process, this returns and drops its ends,
/// which looks the same to the client. Dropping the future ends the server as well.
///
/// # Errors
///
/// If reading or writing fails.
pub async fn serve_on<R, W>(reader: R, writer: W, options: Options) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let state = ServerState::new(options, ProcessOwner::Embedder);
    serve(&state, reader, writer).await.map(drop)
}

/// Reason why serving the pipe ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Died(i32),
}

async fn serve<R, W>(state: &Arc<ServerState>, reader: R, writer: W) -> io::Result<End>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let _ends_everything = state.shutdown.clone().drop_guard();
    let (pipe, frames) = mpsc::channel(QUEUE);
    let peer = Arc::new(Peer::new(MessageSink::Pipe(pipe.clone()), state.shutdown.child_token()));
    let mut writing = tokio::spawn(write(Arc::clone(state), writer, frames));
    state.tasks.spawn(forward_changes(state.changes.subscribe(), Arc::clone(&peer)));

    let request_reader =
        RequestReader { state: Arc::clone(state), peer: Arc::clone(&peer), outlet: MessageSink::Pipe(pipe) };
    tokio::select! {
        end = &mut writing => return end?,
        read = request_reader.read_all(BufReader::new(reader)) => read?,
    }
    // Requests that could be answered at once have been; for the others the client is gone. When the last sender is
    // dropped, the writer flushes and ends.
    peer.end();
    state.tasks.close();
    state.tasks.wait().await;
    drop((request_reader, peer));
    writing.await?
}

/// Reads lines and starts the handling of their messages.
struct RequestReader {
    state: Arc<ServerState>,
    peer: Arc<Peer>,
    outlet: MessageSink,
}

impl RequestReader {
    async fn read_all<R: AsyncRead + Unpin>(&self, mut reader: BufReader<R>) -> io::Result<()> {
        let mut flow = self.state.flow.subscribe();
        let mut line = Vec::new();
        while (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line).await? > 0 {
            // A line that arrived when reading was stopped waits here.
            let reading = flow.wait_for(|flow| *flow == Flow::Open).await.is_ok();
            if reading && !line.trim_ascii().is_empty() {
                self.handle_line(&line).await;
            }
            line.clear();
        }
        Ok(())
    }

    async fn handle_line(&self, line: &[u8]) {
        let value = match serde_json::from_slice(line) {
            Ok(value) => value,
            Err(error) => return self.refuse(RpcError::new(PARSE_ERROR, error.to_string())).await,
        };
        if let Value::Array(members) = value {
            return self.handle_batch(members).await;
        }
        match Message::from_value(value) {
            Message::Request(call) => self.handle_request(call).await,
            Message::Notification { method, params } => handle_notification(&self.peer, &method, &params),
            Message::Response { id, body } => self.peer.resolve_question(&id, body),
            Message::Malformed(error) => self.refuse(error).await,
        }
    }

    async fn handle_request(&self, call: Call) {
        let faults = self.state.faults();
        if faults.exit_on_discover && self.peer.version().is_none() && call.method != "initialize" {
            let death = Delivery::new(Part::Nothing, Then::Die(faults.exit_code()));
            return self.outlet.send(Frame::Answer(Value::Null, death)).await;
        }
        let request = Request::begin(call.clone(), call.era(), &self.peer, self.outlet.clone());
        let state = Arc::clone(&self.state);
        self.run(async move { perform(&state, request).await }).await;
    }

    async fn handle_batch(&self, members: Vec<Value>) {
        if self.peer.version().as_deref() != Some(BATCH_VERSION) {
            let text = format!("batches require protocol version {BATCH_VERSION}, which was not negotiated");
            return self.refuse(RpcError::new(INVALID_REQUEST, text)).await;
        }
        let (state, peer, outlet) = (Arc::clone(&self.state), Arc::clone(&self.peer), self.outlet.clone());
        self.run(async move { perform_batch(&state, &peer, &outlet, members).await }).await;
    }

    /// Answers requests that need no waiting at once and in order, so that a script may send `initialize` and a call
    /// together. All others become tasks and do not block later requests.
    async fn run(&self, work: impl Future<Output = Option<Frame>> + Send + 'static) {
        let mut work = Box::pin(work);
        match work.as_mut().now_or_never() {
            Some(Some(frame)) => self.outlet.send(frame).await,
            Some(None) => {}
            None => {
                let outlet = self.outlet.clone();
                self.state.tasks.spawn(async move {
                    if let Some(frame) = work.await {
                        outlet.send(frame).await;
                    }
                });
            }
        }
    }

    async fn refuse(&self, error: RpcError) {
        self.outlet.send(Frame::Answer(error.answer(&Value::Null), Delivery::WHOLE)).await;
    }
}

async fn forward_changes(mut changes: broadcast::Receiver<Change>, peer: Arc<Peer>) {
    loop {
        match peer.until_end(changes.recv()).await {
            Some(Ok(change)) => peer.notify(&change).await,
            // Changes were missed; a client most likely needs the list of tools again.
            Some(Err(RecvError::Lagged(_))) => peer.notify(&Change::Tools).await,
            Some(Err(RecvError::Closed)) | None => return,
        }
    }
}

async fn write<W>(
    state: Arc<ServerState>,
    mut writer: W,
    mut frames: mpsc::Receiver<Frame>,
) -> io::Result<End>
where
    W: AsyncWrite + Unpin,
{
    if state.faults().junk_on_stdout {
        writer.write_all(JUNK_LINE).await?;
        writer.flush().await?;
    }
    while let Some(frame) = frames.recv().await {
        if state.faults().junk_on_stdout {
            writer.write_all(JUNK_LINE).await?;
        }
        for step in steps(&frame, &Framing::Lines) {
            match step {
                Step::Write(bytes) => writer.write_all(&bytes).await?,
                Step::Pause(time) => {
                    writer.flush().await?;
                    tokio::time::sleep(time).await;
                }
                Step::End | Step::Reset => {
                    writer.flush().await?;
                    return Ok(End::Died(state.faults().exit_code()));
                }
                Step::Die(code) => {
                    writer.flush().await?;
                    return Ok(End::Died(code));
                }
            }
        }
        if frames.is_empty() {
            writer.flush().await?;
        }
    }
    Ok(End::Closed)
}

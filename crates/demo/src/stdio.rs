//! The server on a pipe: one message a line, requests side by side, one writer.

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
    methods::{notice, perform, perform_batch},
    options::Options,
    peer::{Outlet, Peer, Request},
    process,
    rpc::{BATCH_VERSION, Call, INVALID_REQUEST, Message, PARSE_ERROR, RpcError},
    world::{Change, Flow, Owner, World},
};

/// Frames that wait for a reader; beyond it calls wait too.
const QUEUE: usize = 256;

/// The longest line that is taken.
const MAX_LINE: u64 = 64 * 1024 * 1024;

const JUNK_LINE: &[u8] = b"demo server: this line is not a message\n";

/// Serves stdin and stdout until stdin closes. Faults that concern the process apply: this may exit it.
///
/// # Errors
///
/// If stdin or stdout fail, or a file named in the options cannot be written.
pub async fn serve_stdio(options: Options) -> io::Result<()> {
    process::start(&options).await?;
    let world = World::new(options, Owner::Process);
    match serve(&world, tokio::io::stdin(), tokio::io::stdout()).await? {
        End::Died(code) => process::exit(code),
        End::Closed if world.faults().ignore_stdin_close => std::future::pending().await,
        End::Closed => Ok(()),
    }
}

/// Serves any pair of pipes, in process. Where [`serve_stdio`] would exit the process, this returns and drops
/// its ends, which is what the other side sees of a death. Dropping the future ends the server as well.
///
/// # Errors
///
/// If reading or writing fails.
pub async fn serve_on<R, W>(reader: R, writer: W, options: Options) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let world = World::new(options, Owner::Embedder);
    serve(&world, reader, writer).await.map(drop)
}

/// Why the pipe was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Died(i32),
}

async fn serve<R, W>(world: &Arc<World>, reader: R, writer: W) -> io::Result<End>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let _ends_everything = world.life.clone().drop_guard();
    let (pipe, frames) = mpsc::channel(QUEUE);
    let peer = Arc::new(Peer::new(Outlet::Pipe(pipe.clone()), world.life.child_token()));
    let mut writing = tokio::spawn(write(Arc::clone(world), writer, frames));
    world.tasks.spawn(follow_changes(world.changes.subscribe(), Arc::clone(&peer)));

    let desk = Desk { world: Arc::clone(world), peer: Arc::clone(&peer), outlet: Outlet::Pipe(pipe) };
    tokio::select! {
        end = &mut writing => return end?,
        read = desk.read_all(BufReader::new(reader)) => read?,
    }
    // What could be answered at once has been; the rest has nobody to answer to. With the last sender gone the
    // writer flushes and ends.
    peer.end();
    world.tasks.close();
    world.tasks.wait().await;
    drop((desk, peer));
    writing.await?
}

/// Takes what comes in and sees that it is handled.
struct Desk {
    world: Arc<World>,
    peer: Arc<Peer>,
    outlet: Outlet,
}

impl Desk {
    async fn read_all<R: AsyncRead + Unpin>(&self, mut reader: BufReader<R>) -> io::Result<()> {
        let mut flow = self.world.flow.subscribe();
        let mut line = Vec::new();
        while (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line).await? > 0 {
            // A line that was on its way when reading stopped waits here.
            let reading = flow.wait_for(|flow| *flow == Flow::Open).await.is_ok();
            if reading && !line.trim_ascii().is_empty() {
                self.take(&line).await;
            }
            line.clear();
        }
        Ok(())
    }

    async fn take(&self, line: &[u8]) {
        let value = match serde_json::from_slice(line) {
            Ok(value) => value,
            Err(error) => return self.refuse(RpcError::new(PARSE_ERROR, error.to_string())).await,
        };
        if let Value::Array(members) = value {
            return self.take_batch(members).await;
        }
        match Message::sort(value) {
            Message::Request(call) => self.take_request(call).await,
            Message::Notification { method, params } => notice(&self.peer, &method, &params),
            Message::Response { id, body } => self.peer.answered(&id, body),
            Message::Malformed(error) => self.refuse(error).await,
        }
    }

    async fn take_request(&self, call: Call) {
        let faults = self.world.faults();
        if faults.exit_on_discover && self.peer.version().is_none() && call.method != "initialize" {
            let death = Delivery::new(Part::Nothing, Then::Die(faults.exit_code()));
            return self.outlet.send(Frame::Answer(Value::Null, death)).await;
        }
        let request = Request::begin(call.clone(), call.era(), &self.peer, self.outlet.clone());
        let world = Arc::clone(&self.world);
        self.run(async move { perform(&world, request).await }).await;
    }

    async fn take_batch(&self, members: Vec<Value>) {
        if self.peer.version().as_deref() != Some(BATCH_VERSION) {
            let text = format!("batches belong to {BATCH_VERSION}, which was not agreed on");
            return self.refuse(RpcError::new(INVALID_REQUEST, text)).await;
        }
        let (world, peer, outlet) = (Arc::clone(&self.world), Arc::clone(&self.peer), self.outlet.clone());
        self.run(async move { perform_batch(&world, &peer, &outlet, members).await }).await;
    }

    /// What can be answered at once is answered in the order of asking, so that a script may send `initialize`
    /// and a call in one go. Everything else becomes a task and holds up nobody.
    async fn run(&self, work: impl Future<Output = Option<Frame>> + Send + 'static) {
        let mut work = Box::pin(work);
        match work.as_mut().now_or_never() {
            Some(Some(frame)) => self.outlet.send(frame).await,
            Some(None) => {}
            None => {
                let outlet = self.outlet.clone();
                self.world.tasks.spawn(async move {
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

async fn follow_changes(mut changes: broadcast::Receiver<Change>, peer: Arc<Peer>) {
    loop {
        match peer.until_end(changes.recv()).await {
            Some(Ok(change)) => peer.notify(&change).await,
            // Something was missed; the list of tools is what most would look at again.
            Some(Err(RecvError::Lagged(_))) => peer.notify(&Change::Tools).await,
            Some(Err(RecvError::Closed)) | None => return,
        }
    }
}

async fn write<W>(world: Arc<World>, mut writer: W, mut frames: mpsc::Receiver<Frame>) -> io::Result<End>
where
    W: AsyncWrite + Unpin,
{
    if world.faults().junk_on_stdout {
        writer.write_all(JUNK_LINE).await?;
        writer.flush().await?;
    }
    while let Some(frame) = frames.recv().await {
        if world.faults().junk_on_stdout {
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
                    return Ok(End::Died(world.faults().exit_code()));
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

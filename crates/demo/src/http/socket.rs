//! Connections that can be reset, stalled and dropped on purpose: a listener and a socket that check the server state
//! before every operation.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::{
    peer::lock,
    state::{Flow, ServerState},
};

/// Pause after a failed accept, which is most often a shortage of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections, or drops them if the faults require it.
pub(super) struct Acceptor {
    listener: TcpListener,
    state: Arc<ServerState>,
}

impl Acceptor {
    pub(super) fn new(listener: TcpListener, state: Arc<ServerState>) -> Self {
        Self { listener, state }
    }
}

impl Listener for Acceptor {
    type Io = Socket;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Socket, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok(_) if self.state.faults().drop_after_accept => {}
                Ok((stream, addr)) => {
                    // Answers are single small writes; a socket without the option is only slower.
                    drop(stream.set_nodelay(true));
                    return (Socket::new(stream, &self.state), addr);
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// All open connections, to be reset together.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    generation: Mutex<CancellationToken>,
}

impl Connections {
    pub(super) fn reset_all(&self) {
        std::mem::take(&mut *lock(&self.generation)).cancel();
    }
}

/// Handle with which a request handler can reset its connection.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    reset: CancellationToken,
}

impl Connection {
    /// Resets the connection. Never returns: the future is dropped with the connection.
    pub(super) async fn reset_and_wait(&self) {
        self.reset.cancel();
        std::future::pending().await
    }
}

impl Connected<IncomingStream<'_, Acceptor>> for Connection {
    fn connect_info(stream: IncomingStream<'_, Acceptor>) -> Self {
        stream.io().connection.clone()
    }
}

pub(super) struct Socket {
    stream: TcpStream,
    connection: Connection,
    reset: Pin<Box<WaitForCancellationFutureOwned>>,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    reading: FlowGate,
    writing: FlowGate,
}

impl Socket {
    fn new(stream: TcpStream, state: &ServerState) -> Self {
        let reset = lock(&state.sessions.connections.generation).child_token();
        Self {
            stream,
            reset: Box::pin(reset.clone().cancelled_owned()),
            stopped: Box::pin(state.shutdown.clone().cancelled_owned()),
            connection: Connection { reset },
            reading: FlowGate::new(state.flow.subscribe(), |flow| flow == Flow::Open),
            writing: FlowGate::new(state.flow.subscribe(), |flow| flow != Flow::BlackHole),
        }
    }

    /// Fails if the connection must end: with a reset, or cleanly if the server stops. Also wakes the connection's task
    /// when that happens.
    fn poll_alive(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.reset.as_mut().poll(cx).is_ready() {
            self.stream.set_zero_linger()?;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if self.stopped.as_mut().poll(cx).is_ready() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_alive(cx)?;
        ready!(self.reading.poll_open(cx));
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_alive(cx)?;
        ready!(self.writing.poll_open(cx));
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Blocks one direction of a socket while the server's flow does not allow it.
struct FlowGate {
    flow: watch::Receiver<Flow>,
    allows: fn(Flow) -> bool,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl FlowGate {
    fn new(flow: watch::Receiver<Flow>, allows: fn(Flow) -> bool) -> Self {
        Self { flow, allows, waiting: None }
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let allows = self.allows;
        if self.waiting.is_none() {
            if allows(*self.flow.borrow()) {
                return Poll::Ready(());
            }
            let mut flow = self.flow.clone();
            // The server state outlives its sockets, so the wait ends with an open gate.
            self.waiting = Some(Box::pin(async move { drop(flow.wait_for(|flow| allows(*flow)).await) }));
        }
        if let Some(waiting) = &mut self.waiting {
            ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
        }
        Poll::Ready(())
    }
}

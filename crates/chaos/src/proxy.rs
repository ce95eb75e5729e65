//! TCP proxy between the gateway and a server that injects faults: resets, cuts, black holes, slow answers and
//! delays. It does not parse HTTP and recognizes an answer by the word `"result"`.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::lock;
use gripfast_measure::Result;

/// A listening proxy. Dropping it ends all its connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    server: u16,
    mode: watch::Sender<ProxyMode>,
    /// Connections of an older generation were in a black hole and stay blocked.
    generation: AtomicU64,
    /// Number of answers to break, and the way to break them.
    breaks_due: AtomicUsize,
    with_reset: AtomicBool,
    /// Word of the next request whose answer is lost.
    loses: Mutex<Option<&'static str>>,
    broken: AtomicU64,
    handshakes: AtomicU64,
}

/// Treatment of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyMode {
    /// Forwards everything.
    PassThrough,
    /// Blocks both directions of every connection.
    BlackHole,
    /// Forwards answers in small pieces with this pause between them.
    Trickle(Duration),
    /// Forwards everything with this delay.
    Delay(Duration),
    /// Refuses new connections and ends the others.
    Refuse,
}

/// End of a connection in the middle of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// TCP reset.
    Reset,
    /// Regular close.
    Close,
}

/// Pieces per answer: enough to be slow, few enough to finish.
const TRICKLE_PIECES: usize = 8;
/// Pieces in flight per connection and direction.
const PIECES_IN_FLIGHT: usize = 16;

impl Proxy {
    /// Starts a proxy to a server on this port.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(server: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            server,
            mode: watch::Sender::new(ProxyMode::PassThrough),
            generation: AtomicU64::new(0),
            breaks_due: AtomicUsize::new(0),
            with_reset: false.into(),
            loses: Mutex::default(),
            broken: AtomicU64::new(0),
            handshakes: AtomicU64::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { port, shared, accepting })
    }

    /// Loopback port of the proxy.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes the treatment of traffic. Connections that were in a black hole stay blocked.
    pub fn set_mode(&self, mode: ProxyMode) {
        // Increment first: a task that wakes up by the new mode must see the new generation.
        if *self.shared.mode.borrow() == ProxyMode::BlackHole {
            self.shared.generation.fetch_add(1, Ordering::AcqRel);
        }
        self.shared.mode.send_replace(mode);
    }

    /// Breaks the next answers halfway.
    pub fn break_answers(&self, count: usize, how: Break) {
        self.shared.with_reset.store(how == Break::Reset, Ordering::Release);
        self.shared.breaks_due.store(count, Ordering::Release);
    }

    /// Loses the answer to the next request that contains this word, with the connection.
    pub fn lose_answer(&self, word: &'static str) {
        *lock(&self.shared.loses) = Some(word);
    }

    /// Number of answers broken or lost so far.
    #[must_use]
    pub fn broken(&self) -> u64 {
        self.shared.broken.load(Ordering::Acquire)
    }

    /// Number of forwarded `initialize` requests.
    #[must_use]
    pub fn handshakes(&self) -> u64 {
        self.shared.handshakes.load(Ordering::Acquire)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let mut mode = shared.mode.subscribe();
    let address = listener.local_addr();
    let mut listener = Some(listener);
    loop {
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Ok((gateway, _)) = accepted => {
                connections.spawn(relay(gateway, Arc::clone(&shared)));
            }
            Some(_) = connections.join_next() => {}
            Ok(()) = mode.changed() => {
                let refuses = *mode.borrow_and_update() == ProxyMode::Refuse;
                if refuses {
                    listener = None;
                    connections.abort_all();
                } else if listener.is_none() && let Ok(address) = address {
                    // It fails only if another process took the port meanwhile; then connections stay refused.
                    listener = TcpListener::bind(address).await.ok();
                }
            }
        }
    }
}

/// One connection: gateway side, server side, and the generation in which it began.
struct Relay {
    shared: Arc<Shared>,
    gateway: TcpStream,
    server: TcpStream,
    generation: u64,
    /// True if the next answer is lost.
    loses: AtomicBool,
    ended: CancellationToken,
}

async fn relay(gateway: TcpStream, shared: Arc<Shared>) {
    let age = shared.generation.load(Ordering::Acquire);
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server)).await else { return };
    // Avoids delays of small messages; without it they arrive too, only later.
    let _ = (gateway.set_nodelay(true), server.set_nodelay(true));
    let (loses, ended) = (AtomicBool::new(false), CancellationToken::new());
    let relay = Relay { shared, gateway, server, generation: age, loses, ended };
    let both = async {
        tokio::join!(relay.requests(), relay.answers());
    };
    relay.ended.run_until_cancelled(both).await;
}

impl Relay {
    async fn requests(&self) {
        let (to, mut arrived) = mpsc::channel(PIECES_IN_FLIGHT);
        let passing = async {
            while let Some(Piece { bytes, at }) = arrived.recv().await {
                self.wait_for_passage(at).await;
                self.shared.handshakes.fetch_add(count(&bytes, INITIALIZE) as u64, Ordering::AcqRel);
                self.loses.fetch_or(self.take_loss(&bytes), Ordering::AcqRel);
                if write(&self.server, &bytes).await.is_none() {
                    break;
                }
            }
            self.ended.cancel();
        };
        tokio::join!(read_pieces(&self.gateway, to), passing);
    }

    async fn answers(&self) {
        let (to, mut arrived) = mpsc::channel(PIECES_IN_FLIGHT);
        let passing = async {
            while let Some(piece) = arrived.recv().await {
                if self.answer(piece).await.is_none() {
                    break;
                }
            }
            self.ended.cancel();
        };
        tokio::join!(read_pieces(&self.server, to), passing);
    }

    /// Forwards a piece of an answer; `None` if the connection must end.
    async fn answer(&self, Piece { bytes, at }: Piece) -> Option<()> {
        let mode = self.wait_for_passage(at).await;
        if self.loses.load(Ordering::Acquire) {
            self.shared.broken.fetch_add(1, Ordering::AcqRel);
            return None;
        }
        if is_answer(&bytes) && self.take_break() {
            let _ = write(&self.gateway, &bytes[..bytes.len() / 2]).await;
            // A reset would discard bytes that the peer has not read yet.
            tokio::time::sleep(Duration::from_millis(20)).await;
            if self.shared.with_reset.load(Ordering::Acquire) {
                let _ = self.gateway.set_zero_linger();
            }
            self.shared.broken.fetch_add(1, Ordering::AcqRel);
            return None;
        }
        let size = match mode {
            ProxyMode::Trickle(_) => bytes.len().div_ceil(TRICKLE_PIECES).max(1),
            ProxyMode::PassThrough | ProxyMode::BlackHole | ProxyMode::Delay(_) | ProxyMode::Refuse => {
                bytes.len()
            }
        };
        for drop in bytes.chunks(size) {
            if let ProxyMode::Trickle(pause) = mode {
                tokio::time::sleep(pause).await;
            }
            write(&self.gateway, drop).await?;
        }
        Some(())
    }

    /// Waits until a piece that arrived at this time may pass, and returns the mode. Never returns on a connection
    /// that has been in a black hole, so that the peer has to detect that itself.
    async fn wait_for_passage(&self, at: Instant) -> ProxyMode {
        let mut mode = self.shared.mode.subscribe();
        let clear = mode.wait_for(|mode| *mode != ProxyMode::BlackHole).await.map(|mode| *mode);
        if self.shared.generation.load(Ordering::Acquire) != self.generation {
            std::future::pending::<()>().await;
        }
        let mode = clear.unwrap_or(ProxyMode::PassThrough);
        if let ProxyMode::Delay(delay) = mode {
            let left = (at + delay).saturating_duration_since(Instant::now());
            // Tokio's timer has a resolution of 1 ms, which is as long as a whole call through a gateway.
            let _ = tokio::task::spawn_blocking(move || std::thread::sleep(left)).await;
        }
        mode
    }

    /// True if the answer to this request is to be lost.
    fn take_loss(&self, request: &[u8]) -> bool {
        let mut word = lock(&self.shared.loses);
        word.take_if(|word| count(request, word.as_bytes()) > 0).is_some()
    }

    fn take_break(&self) -> bool {
        let left = |left: usize| left.checked_sub(1);
        self.shared.breaks_due.fetch_update(Ordering::AcqRel, Ordering::Acquire, left).is_ok()
    }
}

/// Bytes of one read, with their arrival time.
struct Piece {
    bytes: Vec<u8>,
    at: Instant,
}

const INITIALIZE: &[u8] = br#""method":"initialize""#;

fn is_answer(bytes: &[u8]) -> bool {
    count(bytes, br#""result""#) > 0
}

/// Number of occurrences of a word.
fn count(bytes: &[u8], word: &[u8]) -> usize {
    bytes.windows(word.len()).filter(|window| *window == word).count()
}

/// Keeps reading while earlier pieces are delayed: a delay must not limit throughput.
async fn read_pieces(from: &TcpStream, to: mpsc::Sender<Piece>) {
    let mut buffer = vec![0; 64 << 10];
    while let Some(read) = read(from, &mut buffer).await {
        let piece = Piece { bytes: buffer[..read].to_vec(), at: Instant::now() };
        if to.send(piece).await.is_err() {
            return;
        }
    }
}

/// Half-open connections are not supported: the end of one side ends both.
async fn read(from: &TcpStream, buffer: &mut [u8]) -> Option<usize> {
    loop {
        from.ready(Interest::READABLE).await.ok()?;
        match from.try_read(buffer) {
            Ok(0) => return None,
            Ok(read) => return Some(read),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}

async fn write(to: &TcpStream, mut bytes: &[u8]) -> Option<()> {
    while !bytes.is_empty() {
        to.ready(Interest::WRITABLE).await.ok()?;
        match to.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A server that answers each line with a result.
    async fn echo() -> (u16, JoinHandle<()>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut buffer = [0; 1024];
                    while let Ok(1..) = socket.read(&mut buffer).await {
                        if socket.write_all(br#"{"result":"yes"}"#).await.is_err() {
                            break;
                        }
                    }
                });
            }
        });
        (port, serving)
    }

    async fn ask(socket: &mut TcpStream) -> std::io::Result<usize> {
        socket.write_all(b"hello\n").await?;
        let mut buffer = [0; 1024];
        socket.read(&mut buffer).await
    }

    #[tokio::test]
    async fn one_answer_is_broken_halfway_and_the_next_one_is_not() {
        let (server, _serving) = echo().await;
        let proxy = Proxy::start(server).await.unwrap();
        proxy.break_answers(1, Break::Reset);
        let mut socket = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        assert_eq!(ask(&mut socket).await.unwrap(), 8);
        assert!(socket.read(&mut [0; 8]).await.is_err(), "reset, not closed");
        assert_eq!(proxy.broken(), 1);
        let mut socket = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        assert_eq!(ask(&mut socket).await.unwrap(), 16);
    }

    #[tokio::test]
    async fn the_answer_to_one_request_with_a_word_is_lost() {
        let (server, _serving) = echo().await;
        let proxy = Proxy::start(server).await.unwrap();
        proxy.lose_answer("other");
        let mut socket = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        assert_eq!(ask(&mut socket).await.unwrap(), 16, "it has another word");
        proxy.lose_answer("hello");
        assert!(!matches!(ask(&mut socket).await, Ok(1..)), "closed without an answer");
        assert_eq!(proxy.broken(), 1);
        let mut socket = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        assert_eq!(ask(&mut socket).await.unwrap(), 16);
    }

    #[tokio::test]
    async fn delays_of_consecutive_pieces_do_not_add_up() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap().port()).await.unwrap();
        let late = Duration::from_secs(3);
        proxy.set_mode(ProxyMode::Delay(late));
        let mut near = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        near.write_all(b"head").await.unwrap();
        tokio::time::sleep(late / 20).await;
        near.write_all(b"body").await.unwrap();
        far.read_exact(&mut [0; 4]).await.unwrap();
        let first = Instant::now();
        far.read_exact(&mut [0; 4]).await.unwrap();
        assert!(first.elapsed() < late * 3 / 5, "{:?}", first.elapsed());
    }

    #[tokio::test]
    async fn a_proxy_that_refuses_ends_connections_and_comes_back_at_its_port() {
        let (server, _serving) = echo().await;
        let proxy = Proxy::start(server).await.unwrap();
        let mut old = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        assert_eq!(ask(&mut old).await.unwrap(), 16);
        proxy.set_mode(ProxyMode::Refuse);
        assert!(!matches!(old.read(&mut [0; 8]).await, Ok(1..)), "ended");
        while TcpStream::connect(("127.0.0.1", proxy.port())).await.is_ok() {}
        proxy.set_mode(ProxyMode::PassThrough);
        let mut new = loop {
            match TcpStream::connect(("127.0.0.1", proxy.port())).await {
                Ok(new) => break new,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        assert_eq!(ask(&mut new).await.unwrap(), 16);
    }

    #[tokio::test]
    async fn a_black_hole_blocks_old_connections_for_good_but_not_new_ones() {
        let (server, _serving) = echo().await;
        let proxy = Proxy::start(server).await.unwrap();
        let mut old = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        assert_eq!(ask(&mut old).await.unwrap(), 16);
        proxy.set_mode(ProxyMode::BlackHole);
        proxy.set_mode(ProxyMode::PassThrough);
        let mut new = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        tokio::select! {
            _ = ask(&mut old) => panic!("it came out again"),
            answer = ask(&mut new) => assert_eq!(answer.unwrap(), 16),
        }
    }
}

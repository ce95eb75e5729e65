//! A TCP relay between the gateway and a server, which breaks what passes through it: resets, cuts, black holes,
//! drips and delays. It knows nothing of HTTP but that an answer holds the word `"result"`.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Result;

/// A relay that listens. Dropping it ends all its connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    server: u16,
    weather: watch::Sender<Weather>,
    /// Connections of an older age were in a black hole, and stay there.
    age: AtomicU64,
    /// Answers that are still to be broken, and how.
    to_break: AtomicUsize,
    with_reset: std::sync::atomic::AtomicBool,
    broken: AtomicU64,
    handshakes: AtomicU64,
}

/// What passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Everything.
    Clear,
    /// Nothing, in either direction, on any connection.
    BlackHole,
    /// Answers drop by drop, with this pause between the pieces.
    Drip(Duration),
    /// Everything, this much later.
    Late(Duration),
}

/// How a connection ends in the middle of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// Reset.
    Reset,
    /// Closed in good order.
    Close,
}

/// Enough pieces to be slow, few enough to end.
const DRIPS: usize = 8;
/// Pieces that a connection has on their way in one direction.
const ON_THE_WAY: usize = 16;

impl Proxy {
    /// A relay to a server on this port.
    ///
    /// # Errors
    /// No port is free.
    pub async fn to(server: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            server,
            weather: watch::Sender::new(Weather::Clear),
            age: AtomicU64::new(0),
            to_break: AtomicUsize::new(0),
            with_reset: false.into(),
            broken: AtomicU64::new(0),
            handshakes: AtomicU64::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { port, shared, accepting })
    }

    /// Where it listens, on loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes what passes. Connections that were in a black hole never move again.
    pub fn set(&self, weather: Weather) {
        // Aged first: whoever wakes by the weather finds out what it has been in.
        if *self.shared.weather.borrow() == Weather::BlackHole {
            self.shared.age.fetch_add(1, Ordering::AcqRel);
        }
        self.shared.weather.send_replace(weather);
    }

    /// Breaks the next answers, each in its middle.
    pub fn break_answers(&self, count: usize, how: Break) {
        self.shared.with_reset.store(how == Break::Reset, Ordering::Release);
        self.shared.to_break.store(count, Ordering::Release);
    }

    /// How many answers were broken so far.
    #[must_use]
    pub fn broken(&self) -> u64 {
        self.shared.broken.load(Ordering::Acquire)
    }

    /// How many `initialize` have passed.
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
    loop {
        tokio::select! {
            Ok((gateway, _)) = listener.accept() => {
                connections.spawn(relay(gateway, Arc::clone(&shared)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection: the gateway's side, the server's side, and the age in which it began.
struct Relay {
    shared: Arc<Shared>,
    gateway: TcpStream,
    server: TcpStream,
    age: u64,
    over: CancellationToken,
}

async fn relay(gateway: TcpStream, shared: Arc<Shared>) {
    let age = shared.age.load(Ordering::Acquire);
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server)).await else { return };
    // Without it small messages would wait for each other; either way they arrive.
    let _ = (gateway.set_nodelay(true), server.set_nodelay(true));
    let relay = Relay { shared, gateway, server, age, over: CancellationToken::new() };
    let both = async {
        tokio::join!(relay.requests(), relay.answers());
    };
    relay.over.run_until_cancelled(both).await;
}

impl Relay {
    async fn requests(&self) {
        let (to, mut arrived) = mpsc::channel(ON_THE_WAY);
        let passing = async {
            while let Some(Piece { bytes, at }) = arrived.recv().await {
                self.pass(at).await;
                let handshakes =
                    bytes.windows(INITIALIZE.len()).filter(|window| *window == INITIALIZE).count();
                self.shared.handshakes.fetch_add(handshakes as u64, Ordering::AcqRel);
                if write(&self.server, &bytes).await.is_none() {
                    break;
                }
            }
            self.over.cancel();
        };
        tokio::join!(take_in(&self.gateway, to), passing);
    }

    async fn answers(&self) {
        let (to, mut arrived) = mpsc::channel(ON_THE_WAY);
        let passing = async {
            while let Some(piece) = arrived.recv().await {
                if self.answer(piece).await.is_none() {
                    break;
                }
            }
            self.over.cancel();
        };
        tokio::join!(take_in(&self.server, to), passing);
    }

    /// Passes a piece of an answer on; `None` if that was the end.
    async fn answer(&self, Piece { bytes, at }: Piece) -> Option<()> {
        let weather = self.pass(at).await;
        if is_answer(&bytes) && self.is_to_be_broken() {
            let _ = write(&self.gateway, &bytes[..bytes.len() / 2]).await;
            // A reset throws away what the other side has not read yet.
            tokio::time::sleep(Duration::from_millis(20)).await;
            if self.shared.with_reset.load(Ordering::Acquire) {
                let _ = self.gateway.set_zero_linger();
            }
            self.shared.broken.fetch_add(1, Ordering::AcqRel);
            return None;
        }
        let size = match weather {
            Weather::Drip(_) => bytes.len().div_ceil(DRIPS).max(1),
            Weather::Clear | Weather::BlackHole | Weather::Late(_) => bytes.len(),
        };
        for drop in bytes.chunks(size) {
            if let Weather::Drip(pause) = weather {
                tokio::time::sleep(pause).await;
            }
            write(&self.gateway, drop).await?;
        }
        Some(())
    }

    /// Waits until what came at this moment may pass, and says in which weather it does. Never, on a connection that
    /// has been in a black hole: whoever waits for it must find out.
    async fn pass(&self, at: Instant) -> Weather {
        let mut weather = self.shared.weather.subscribe();
        let clear = weather.wait_for(|weather| *weather != Weather::BlackHole).await.map(|weather| *weather);
        if self.shared.age.load(Ordering::Acquire) != self.age {
            std::future::pending::<()>().await;
        }
        let weather = clear.unwrap_or(Weather::Clear);
        if let Weather::Late(delay) = weather {
            let left = (at + delay).saturating_duration_since(Instant::now());
            // The runtime's own timer is a millisecond coarse, which is what a gateway takes for a whole call.
            let _ = tokio::task::spawn_blocking(move || std::thread::sleep(left)).await;
        }
        weather
    }

    fn is_to_be_broken(&self) -> bool {
        let left = |left: usize| left.checked_sub(1);
        self.shared.to_break.fetch_update(Ordering::AcqRel, Ordering::Acquire, left).is_ok()
    }
}

/// What was read at once, and when.
struct Piece {
    bytes: Vec<u8>,
    at: Instant,
}

const INITIALIZE: &[u8] = br#""method":"initialize""#;

fn is_answer(bytes: &[u8]) -> bool {
    const RESULT: &[u8] = br#""result""#;
    bytes.windows(RESULT.len()).any(|window| window == RESULT)
}

/// Reads on while earlier pieces are on their way: a late line is no narrow one.
async fn take_in(from: &TcpStream, to: mpsc::Sender<Piece>) {
    let mut buffer = vec![0; 64 << 10];
    while let Some(read) = read(from, &mut buffer).await {
        let piece = Piece { bytes: buffer[..read].to_vec(), at: Instant::now() };
        if to.send(piece).await.is_err() {
            return;
        }
    }
}

/// Half-open connections are of no use here: the end of one side is the end of both.
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
    async fn an_answer_is_broken_in_its_middle_and_the_next_one_is_not() {
        let (server, _serving) = echo().await;
        let proxy = Proxy::to(server).await.unwrap();
        proxy.break_answers(1, Break::Reset);
        let mut socket = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        assert_eq!(ask(&mut socket).await.unwrap(), 8);
        assert!(socket.read(&mut [0; 8]).await.is_err(), "reset, not closed");
        assert_eq!(proxy.broken(), 1);
        let mut socket = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        assert_eq!(ask(&mut socket).await.unwrap(), 16);
    }

    #[tokio::test]
    async fn on_a_late_line_pieces_follow_each_other_without_adding_up() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = Proxy::to(listener.local_addr().unwrap().port()).await.unwrap();
        let late = Duration::from_secs(3);
        proxy.set(Weather::Late(late));
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
    async fn what_was_in_a_black_hole_stays_there_and_a_new_connection_works() {
        let (server, _serving) = echo().await;
        let proxy = Proxy::to(server).await.unwrap();
        let mut old = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        assert_eq!(ask(&mut old).await.unwrap(), 16);
        proxy.set(Weather::BlackHole);
        proxy.set(Weather::Clear);
        let mut new = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        tokio::select! {
            _ = ask(&mut old) => panic!("it came out again"),
            answer = ask(&mut new) => assert_eq!(answer.unwrap(), 16),
        }
    }
}

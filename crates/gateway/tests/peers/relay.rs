//! TCP relay between the host and a server. It records both directions and can hide a lost connection from the host, so
//! that the next request carries a session that the server no longer knows.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) struct Relay {
    port: u16,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

/// Everything that went through, in the order in which it came.
#[derive(Default)]
struct Seen {
    asked: String,
    answered: String,
}

impl Relay {
    pub(crate) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Seen>>::default();
        let task = tokio::spawn(accept(listener, server, Arc::clone(&seen)));
        Self { port, seen, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Number of occurrences of a text in the host's requests.
    pub(crate) fn asked(&self, text: &str) -> usize {
        self.seen.lock().unwrap().asked.matches(text).count()
    }

    /// Number of occurrences of a text in the server's answers.
    pub(crate) fn answered(&self, text: &str) -> usize {
        self.seen.lock().unwrap().answered.matches(text).count()
    }

    /// Answers of the server from the first `text` on.
    pub(crate) fn answer_from(&self, text: &str) -> Option<String> {
        let seen = self.seen.lock().unwrap();
        seen.answered.find(text).map(|at| seen.answered[at..].to_owned())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, server: u16, seen: Arc<Mutex<Seen>>) {
    // Ends all its connections with itself.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((host, _)) = listener.accept().await {
        connections.spawn(join(host, server, Arc::clone(&seen)));
    }
}

async fn join(host: TcpStream, server: u16, seen: Arc<Mutex<Seen>>) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else { return };
    let (from_host, to_host) = host.into_split();
    let (from_server, to_server) = server.into_split();
    let follows = Arc::<Mutex<bool>>::default();
    let asking = ask(from_host, to_server, Arc::clone(&follows), Arc::clone(&seen));
    let answering = answer(from_server, to_host, follows, seen);
    tokio::select! {
        () = asking => {}
        () = answering => {}
    }
}

async fn ask(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    follows: Arc<Mutex<bool>>,
    seen: Arc<Mutex<Seen>>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let bytes = &buffer[..read];
        // The host asks for one thing at a time on each connection, so a request begins what was read.
        if bytes.starts_with(b"GET ") {
            *follows.lock().unwrap() = true;
        }
        seen.lock().unwrap().asked.push_str(&String::from_utf8_lossy(bytes));
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}

async fn answer(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    follows: Arc<Mutex<bool>>,
    seen: Arc<Mutex<Seen>>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        seen.lock().unwrap().answered.push_str(&String::from_utf8_lossy(&buffer[..read]));
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    if *follows.lock().unwrap() {
        // The server is gone, and the host, which follows a stream here, does not hear of it.
        std::future::pending::<()>().await;
    }
}

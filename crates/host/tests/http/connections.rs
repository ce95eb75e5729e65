//! Number of connections to a server, and reuse of a connection that the server has closed.

use crate::http_host::{
    any_local_port, call, count, echo, legacy, modern, ready_host, serve, spec, with_tls, within_timeout,
};
use crate::scripted_server::{ScriptedAction, join, read_request, respond_normally};
use crate::tls::{Clients, TestCertificates};
use gripfast::Host;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, client, server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, mpsc, watch};

/// A TCP relay that counts connections and can cut them.
struct CountingRelay {
    addr: SocketAddr,
    made: Arc<AtomicUsize>,
    open: Arc<watch::Sender<usize>>,
    cuts: watch::Sender<()>,
}

impl CountingRelay {
    async fn start(addr: SocketAddr) -> Self {
        let listener = TcpListener::bind(any_local_port()).await.unwrap();
        let wire = Self {
            addr: listener.local_addr().unwrap(),
            made: Arc::default(),
            open: Arc::default(),
            cuts: watch::Sender::new(()),
        };
        let (made, open) = (Arc::clone(&wire.made), Arc::clone(&wire.open));
        let cuts = wire.cuts.subscribe();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                made.fetch_add(1, Ordering::SeqCst);
                let (mut cuts, open) = (cuts.clone(), Arc::clone(&open));
                cuts.mark_unchanged();
                open.send_modify(|open| *open += 1);
                tokio::spawn(async move {
                    tokio::select! {
                        () = join(stream, addr) => {}
                        _ = cuts.changed() => {}
                    }
                    open.send_modify(|open| *open -= 1);
                });
            }
        });
        wire
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }

    /// Cuts all open connections and waits until both sides can notice.
    async fn cut(&self) {
        self.cuts.send_replace(());
        self.open.subscribe().wait_for(|open| *open == 0).await.unwrap();
        // Gives the runtime a chance to poll the sockets.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }
}

#[tokio::test]
async fn sequential_calls_share_one_connection_in_both_eras() {
    for options in [legacy(), modern()] {
        let server = serve(options).await;
        let wire = CountingRelay::start(server.addr()).await;
        let host = ready_host(spec(&wire.url())).await;
        assert_eq!(echo(&host, "first").await.as_deref(), Ok("first"));
        let before = wire.made();
        for _ in 0..20 {
            assert_eq!(echo(&host, "again").await.as_deref(), Ok("again"));
        }
        assert_eq!(wire.made(), before);
    }
}

#[tokio::test]
async fn b02_connections_cut_while_idle_cost_no_call() {
    let server = serve(modern()).await;
    let wire = CountingRelay::start(server.addr()).await;
    let host = ready_host(spec(&wire.url())).await;
    for round in 0..5 {
        let calls = (0..4).map(|_| echo(&host, "hello"));
        for answer in futures_util::future::join_all(calls).await {
            assert_eq!(answer.as_deref(), Ok("hello"), "round {round}");
        }
        wire.cut().await;
    }
}

/// Advances the virtual clock by this much; sockets are not affected.
async fn advance(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn c05_a_non_replayable_call_uses_a_recently_used_or_new_connection() {
    let server = serve(modern()).await;
    let wire = CountingRelay::start(server.addr()).await;
    let host = ready_host(spec(&wire.url())).await;
    count(&host, "a").await.unwrap();
    let before = wire.made();
    advance(Duration::from_secs(3)).await;
    count(&host, "a").await.unwrap();
    assert_eq!(wire.made(), before);
    // Node and uvicorn close idle connections after 5 s.
    advance(Duration::from_secs(5)).await;
    echo(&host, "only reads").await.unwrap();
    assert_eq!(wire.made(), before);
    advance(Duration::from_secs(5)).await;
    count(&host, "a").await.unwrap();
    assert_eq!(wire.made(), before + 1);
}

#[tokio::test]
async fn c05_a_connection_is_not_used_beyond_the_servers_keep_alive_timeout() {
    let (server, made) = (serve(modern()).await, Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind(any_local_port()).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (behind, counted) = (server.addr(), Arc::clone(&made));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let service = service_fn(move |request| async move {
                let mut answer = relay(request, behind).await?;
                answer.headers_mut().insert("keep-alive", "timeout=20".parse().unwrap());
                Ok::<_, hyper::Error>(answer)
            });
            tokio::spawn(server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    let host = ready_host(spec(&url)).await;
    let made = || made.load(Ordering::SeqCst);
    count(&host, "a").await.unwrap();
    let before = made();
    advance(Duration::from_secs(15)).await;
    count(&host, "a").await.unwrap();
    assert_eq!(made(), before, "the server keeps it, and said so");
    advance(Duration::from_secs(17)).await;
    echo(&host, "only reads").await.unwrap();
    assert_eq!(made(), before + 1, "too close to the keep-alive timeout");
}

#[tokio::test]
async fn many_calls_share_one_http2_connection() {
    let (server, certificates) = (serve(legacy()).await, TestCertificates::new());
    let acceptor = certificates.acceptor(Clients::Any, &["h2", "http/1.1"]);
    let listener = TcpListener::bind(any_local_port()).await.unwrap();
    let url = format!("https://{}/mcp", listener.local_addr().unwrap());
    let (made, behind) = (Arc::new(AtomicUsize::new(0)), server.addr());
    let counted = Arc::clone(&made);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stream = acceptor.accept(stream).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
            counted.fetch_add(1, Ordering::SeqCst);
            let service = service_fn(move |request| relay(request, behind));
            let serving = server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(serving.serve_connection(TokioIo::new(stream), service));
        }
    });
    let host = ready_host(with_tls(spec(&url), certificates.trust())).await;
    let before = made.load(Ordering::SeqCst);
    for answer in futures_util::future::join_all((0..20).map(|_| echo(&host, "hello"))).await {
        assert_eq!(answer.as_deref(), Ok("hello"));
    }
    assert_eq!(made.load(Ordering::SeqCst), before);
}

async fn relay(
    request: Request<Incoming>,
    to: SocketAddr,
) -> Result<hyper::Response<Incoming>, hyper::Error> {
    let (mut head, body) = request.into_parts();
    head.uri = head.uri.path().parse().unwrap();
    head.version = hyper::Version::HTTP_11;
    head.headers.insert("host", to.to_string().parse().unwrap());
    let stream = TcpStream::connect(to).await.unwrap();
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    sender.send_request(Request::from_parts(head, body.boxed())).await
}

/// A server that answers calls with an event, and writes the rest of the stream when the test says so.
struct LateEnd {
    addr: SocketAddr,
    rest: mpsc::Sender<Vec<u8>>,
    state: watch::Receiver<LateEndState>,
}

#[derive(Default)]
struct LateEndState {
    /// Connections that carried a call, and those of them that are open.
    made: usize,
    open: usize,
    /// Number of rests that were written.
    written: usize,
}

/// The end of a chunked body.
const END: &[u8] = b"0\r\n\r\n";

impl LateEnd {
    async fn start() -> Self {
        let listener = TcpListener::bind(any_local_port()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (rest, next_rest) = mpsc::channel(1);
        let (note, state) = watch::channel(LateEndState::default());
        let (next_rest, note) = (Arc::new(tokio::sync::Mutex::new(next_rest)), Arc::new(note));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (next_rest, note) = (Arc::clone(&next_rest), Arc::clone(&note));
                tokio::spawn(async move {
                    if Self::serve(stream, &next_rest, &note).await {
                        note.send_modify(|state| state.open -= 1);
                    }
                });
            }
        });
        Self { addr, rest, state }
    }

    /// Serves a connection until it is closed. Returns whether it carried a call.
    async fn serve(
        mut stream: TcpStream,
        next_rest: &tokio::sync::Mutex<mpsc::Receiver<Vec<u8>>>,
        note: &watch::Sender<LateEndState>,
    ) -> bool {
        // Otherwise the kernel delays the rest until the client has acknowledged the answer.
        stream.set_nodelay(true).unwrap();
        let mut has_carried_a_call = false;
        while let Some(request) = read_request(&mut stream).await {
            if request.rpc() != "tools/call" {
                let ScriptedAction::Respond(bytes) = respond_normally(&request) else { unreachable!() };
                let _ = stream.write_all(&bytes).await;
                break;
            }
            if !std::mem::replace(&mut has_carried_a_call, true) {
                note.send_modify(|state| (state.made, state.open) = (state.made + 1, state.open + 1));
            }
            let result = json!({ "content": [{ "type": "text", "text": "done" }] });
            let answer = json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": result });
            let event = chunk(&format!("data: {answer}\n\n"));
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked";
            stream.write_all(format!("{head}\r\n\r\n{event}").as_bytes()).await.unwrap();
            let rest = async { next_rest.lock().await.recv().await };
            tokio::select! {
                Some(rest) = rest => {
                    let _ = stream.write_all(&rest).await;
                    note.send_modify(|state| state.written += 1);
                }
                // The client sends nothing before it has read the rest.
                _ = stream.readable() => break,
            }
        }
        has_carried_a_call
    }

    /// Writes the rest of the current stream, and waits until the client can read it.
    async fn write_rest(&mut self, rest: &[u8]) {
        let written = self.state.borrow().written;
        self.rest.send(rest.to_vec()).await.unwrap();
        self.state.wait_for(|state| state.written > written).await.unwrap();
        // Gives the runtime a chance to poll the sockets.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn host(&self) -> Host {
        ready_host(spec(&format!("http://{}/mcp", self.addr))).await
    }
}

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

#[tokio::test]
async fn an_event_stream_that_ends_after_its_answer_keeps_its_connection() {
    let mut server = LateEnd::start().await;
    let host = server.host().await;
    for _ in 0..5 {
        call(&host, "act", json!({})).await.unwrap();
        let more = chunk(": the server may write a little more\n\n");
        server.write_rest(&[more.as_bytes(), END].concat()).await;
    }
    assert_eq!(server.state.borrow().made, 1);
}

#[tokio::test]
async fn an_event_stream_that_does_not_end_delays_no_call_and_is_closed() {
    let mut server = LateEnd::start().await;
    let host = server.host().await;
    for _ in 0..3 {
        call(&host, "act", json!({})).await.unwrap();
    }
    assert_eq!(server.state.borrow().made, 3, "each call has its own connection");
    assert_eq!(server.state.borrow().open, 3, "a stream may end in time");
    advance(Duration::from_secs(3)).await;
    within_timeout(server.state.wait_for(|state| state.open == 0)).await.unwrap();
}

#[tokio::test]
async fn an_event_stream_with_much_data_after_its_answer_is_closed() {
    let mut server = LateEnd::start().await;
    let host = server.host().await;
    call(&host, "act", json!({})).await.unwrap();
    let more = chunk(&":".repeat(100 << 10));
    server.write_rest(&[more.as_bytes(), END].concat()).await;
    call(&host, "act", json!({})).await.unwrap();
    assert_eq!(server.state.borrow().made, 2);
}

#[tokio::test]
async fn as_many_connections_are_kept_as_calls_may_be_in_flight() {
    const CALLS: usize = 80;
    let listener = TcpListener::bind(any_local_port()).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let made = Arc::new(AtomicUsize::new(0));
    // A call is answered when all calls of the round have arrived, so each needs its own connection.
    let (counted, round) = (Arc::clone(&made), Arc::new(Barrier::new(CALLS)));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (counted, round) = (Arc::clone(&counted), Arc::clone(&round));
            tokio::spawn(async move {
                let mut has_carried_a_call = false;
                while let Some(request) = read_request(&mut stream).await {
                    if request.rpc() != "tools/call" {
                        let ScriptedAction::Respond(bytes) = respond_normally(&request) else {
                            unreachable!()
                        };
                        let _ = stream.write_all(&bytes).await;
                        return;
                    }
                    if !std::mem::replace(&mut has_carried_a_call, true) {
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                    round.wait().await;
                    let id = &request.json()["id"];
                    let answer =
                        json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } }).to_string();
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
                    let answer = format!("{head}{}\r\n\r\n{answer}", answer.len());
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    let mut spec = spec(&url);
    spec.supervision.max_in_flight = CALLS as u32;
    let host = ready_host(spec).await;
    for _ in 0..2 {
        let calls = futures_util::future::join_all((0..CALLS).map(|_| call(&host, "act", json!({})))).await;
        assert!(calls.iter().all(Result::is_ok), "{calls:?}");
        assert_eq!(made.load(Ordering::SeqCst), CALLS);
    }
}

//! Misbehaving clients: each gets the fitting error, uses bounded resources, and leaves nothing behind.

use crate::client::{LEGACY, LegacyClient, call, initialize, request};
use crate::scripted_server::ScriptedServer;
use crate::test_gateway::{Clients, TestGateway, at, demo, pass};
use gripfast_testkit::proc::open_files;
use gripfast_testkit::wait::{until, within};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Barrier;

/// Raw TCP connection.
struct RawConnection(TcpStream);

impl RawConnection {
    async fn to(gateway: &TestGateway) -> Self {
        Self(TcpStream::connect(&gateway.http.address).await.unwrap())
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads until the connection is closed or reset.
    async fn receive_all(&mut self) -> String {
        let mut heard = Vec::new();
        let _ = within("the end of a connection", self.0.read_to_end(&mut heard)).await;
        String::from_utf8_lossy(&heard).into_owned()
    }

    /// Reads until the received text contains `text`.
    async fn receive(&mut self, text: &str) -> String {
        let mut heard = Vec::new();
        within(text, async {
            while !String::from_utf8_lossy(&heard).contains(text) {
                let mut buffer = [0; 4096];
                let count = self.0.read(&mut buffer).await.unwrap();
                assert!(count > 0, "the end after {:?}", String::from_utf8_lossy(&heard));
                heard.extend_from_slice(&buffer[..count]);
            }
        })
        .await;
        String::from_utf8_lossy(&heard).into_owned()
    }
}

/// Complete HTTP request as bytes.
fn post(session: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         mcp-session-id: {session}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

async fn gateway() -> (gripfast_demo::RunningServer, TestGateway) {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    (demo, gateway)
}

/// Waits until no client is connected and no request is in flight.
async fn all_is_quiet(gateway: &TestGateway) {
    let quiet = |clients: Clients| (clients.connections, clients.in_flight) == (0, 0);
    gateway.until_clients("quiet", quiet).await;
}

/// `tools/call` with other headers, or with another request head.
fn posted(target: &str, headers: &str, body: &str) -> String {
    format!("POST {target} HTTP/1.1\r\n{headers}connection: close\r\n\r\n{body}")
}

#[tokio::test]
async fn g05_a_request_that_two_readers_could_read_differently_is_a_400() {
    let (_demo, gateway) = gateway().await;
    let ping =
        request(1, "initialize", &json!({ "protocolVersion": LEGACY, "capabilities": {} })).to_string();
    let length = ping.len();
    let address = &gateway.http.address;
    let json = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
    let chunked = format!("{length:x}\r\n{ping}\r\n0\r\n\r\n");
    let as_chunks = "content-type: application/json\r\ntransfer-encoding: chunked\r\n";
    let own = format!("host: {address}\r\n");
    let origin = format!("origin: http://{address}\r\n");
    for (target, headers, body, status) in [
        ("/mcp", format!("{own}{json}"), &ping, 200),
        ("/mcp", format!("{own}{origin}{json}"), &ping, 200),
        ("/mcp", format!("{own}{as_chunks}"), &chunked, 200),
        (&*format!("http://{address}/mcp"), format!("{own}{json}"), &ping, 200),
        ("/mcp", json.clone(), &ping, 400),
        ("/mcp", format!("{own}{own}{json}"), &ping, 400),
        ("/mcp", format!("{own}host: evil.example\r\n{json}"), &ping, 400),
        ("/mcp", format!("{own}{origin}{origin}{json}"), &ping, 400),
        ("/mcp", format!("{own}{origin}origin: http://evil.example\r\n{json}"), &ping, 400),
        ("http://evil.example/mcp", format!("{own}{json}"), &ping, 400),
        (&*format!("http://{address}/mcp"), format!("host: evil.example\r\n{json}"), &ping, 400),
        ("/mcp", format!("{own}{as_chunks}transfer-encoding: chunked\r\n"), &chunked, 400),
        ("/mcp", format!("{own}{}", as_chunks.replace("chunked", "chunked, chunked")), &chunked, 400),
        ("/mcp", format!("{own}{as_chunks}content-length: {length}\r\n"), &chunked, 400),
        ("/mcp", format!("{own}content-length: {length}\r\n{json}"), &ping, 400),
        ("/mcp", format!("{own}x: y\n{json}"), &ping, 400),
        ("/mcp", format!("host: {address}\n{json}"), &ping, 400),
        ("/mcp", format!("{own}content-length: {length}\r\n"), &ping, 415),
        ("/mcp", format!("{own}{}", json.replace("application/json", "text/plain")), &ping, 415),
        (
            "/message?sessionId=1",
            format!("{own}{}", json.replace("application/json", "text/plain")),
            &ping,
            415,
        ),
        ("/api/v1/status", format!("{own}{own}{json}"), &ping, 400),
    ] {
        let mut raw = RawConnection::to(&gateway).await;
        raw.send(posted(target, &headers, body)).await;
        let heard = raw.receive_all().await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{target} {headers:?}: {heard}");
    }
    let mut raw = RawConnection::to(&gateway).await;
    raw.send(format!("GET /healthz HTTP/1.1\n{own}\r\n")).await;
    assert!(raw.receive_all().await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn garbage_behind_a_request_ends_the_connection_after_the_answer() {
    let (_demo, gateway) = gateway().await;
    let client = LegacyClient::connect(&gateway.http).await;
    let ping = post(&client.session, &request(1, "ping", &json!({})).to_string());
    let mut raw = RawConnection::to(&gateway).await;
    raw.send(format!("{ping}\0\x01\x02 total nonsense\r\n\r\n")).await;
    let heard = raw.receive_all().await;
    assert!(heard.starts_with("HTTP/1.1 200") && heard.contains("HTTP/1.1 400"), "{heard}");
    let mut raw = RawConnection::to(&gateway).await;
    raw.send("\x16\x03\x01 hello, is this TLS?\r\n\r\n").await;
    assert!(raw.receive_all().await.starts_with("HTTP/1.1 400"));
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (_demo, gateway) = gateway().await;
    let client = LegacyClient::connect(&gateway.http).await;
    let pings: String =
        (0..50).map(|id| post(&client.session, &request(id, "ping", &json!({})).to_string())).collect();
    let mut raw = RawConnection::to(&gateway).await;
    raw.send(pings).await;
    let heard = raw.receive("\"id\":49").await;
    let places: Vec<usize> = (0..50).map(|id| heard.find(&format!("\"id\":{id},")).unwrap()).collect();
    assert!(places.is_sorted());
    drop(raw);
    all_is_quiet(&gateway).await;
}

#[tokio::test]
async fn g05_a_first_head_has_five_seconds() {
    let (_demo, gateway) = gateway().await;
    let (mut silent, mut slow) = (RawConnection::to(&gateway).await, RawConnection::to(&gateway).await);
    slow.send("POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await;
    gateway.until_clients("the connections", |clients| clients.connections == 2).await;
    pass(Duration::from_millis(4500)).await;
    assert_eq!(gateway.clients().await.connections, 2);
    pass(Duration::from_millis(600)).await;
    let both = async { (silent.receive_all().await, slow.receive_all().await) };
    let both = tokio::time::timeout(Duration::from_secs(20), both).await.expect("both are closed");
    assert_eq!(both, (String::new(), String::new()));
    all_is_quiet(&gateway).await;
}

#[tokio::test]
async fn a_later_head_is_given_up_after_a_minute() {
    let (_demo, gateway) = gateway().await;
    let (mut silent, mut slow) = (RawConnection::to(&gateway).await, RawConnection::to(&gateway).await);
    for raw in [&mut silent, &mut slow] {
        raw.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        raw.receive("200 OK").await;
    }
    slow.send("POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await;
    pass(Duration::from_secs(55)).await;
    assert_eq!(gateway.clients().await.connections, 2, "they have sent a complete request");
    pass(Duration::from_secs(6)).await;
    silent.receive_all().await;
    slow.receive_all().await;
    all_is_quiet(&gateway).await;
}

/// Gateway with a small connection limit and these further settings.
async fn cramped(settings: &str) -> (gripfast_demo::RunningServer, TestGateway) {
    let demo = demo().await;
    let config = format!(
        "[gateway]\n{settings}\nlimits = {{ connections = 64, connections_per_client = 64 }}\n\n{}",
        at("demo", &demo.url(), "legacy", &[])
    );
    let gateway = TestGateway::with(&config).await;
    (demo, gateway)
}

/// Opens more connections than the limit; each sends `said`.
async fn crowd(gateway: &TestGateway, said: &str) -> Vec<RawConnection> {
    let mut crowd = Vec::new();
    for _ in 0..100 {
        let mut raw = RawConnection::to(gateway).await;
        raw.send(said).await;
        crowd.push(raw);
    }
    crowd
}

/// Checks that a client on a new connection is answered within a second while all others stay open.
async fn is_served_within_a_second(gateway: &TestGateway, headers: &[(&str, &str)]) -> usize {
    let http = crate::client::HttpClient::at(&gateway.http.address);
    let answered = http.post(headers, initialize(LEGACY).to_string());
    let answered = tokio::time::timeout(Duration::from_secs(1), answered).await.expect("an answer in time");
    assert_eq!(answered.status, 200, "{answered:?}");
    gateway.clients().await.connections as usize
}

#[tokio::test]
async fn g05_half_requests_without_a_key_do_not_keep_a_key_holder_out() {
    let (_demo, gateway) = cramped("auth = { keys = true }").await;
    let key = format!("Bearer {}", gripfast_gateway::auth::keys::add(gateway.state_dir(), "laptop").unwrap());
    for half in [
        "",
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-slow: ",
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
    ] {
        let _crowd = crowd(&gateway, half).await;
        let taken = is_served_within_a_second(&gateway, &[("authorization", &key)]).await;
        assert!(taken <= 64, "{taken} connections: {half:?}");
    }
}

#[tokio::test]
async fn g05_half_bodies_do_not_keep_others_out_without_auth() {
    let (_demo, gateway) = cramped("").await;
    let known = LegacyClient::connect(&gateway.http).await;
    let stream = known.open_stream(None).await;
    let half = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let _crowd = crowd(&gateway, half).await;
    assert!(is_served_within_a_second(&gateway, &[]).await <= 64);
    assert_eq!(stream.status, 200);
    assert_eq!(known.request("ping", json!({})).await["result"], json!({}), "known clients keep theirs");
}

#[tokio::test]
async fn a_body_that_does_not_end_is_a_408_after_a_minute() {
    let (_demo, gateway) = gateway().await;
    let mut raw = RawConnection::to(&gateway).await;
    raw.send("POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: 100\r\n\r\n")
        .await;
    // The body is requested as soon as the gateway waits for it.
    raw.receive("100 Continue").await;
    raw.send("{\"jsonrpc\"").await;
    pass(Duration::from_secs(61)).await;
    let heard = raw.receive_all().await;
    assert!(heard.starts_with("HTTP/1.1 408") && heard.contains("connection: close"), "{heard}");
    all_is_quiet(&gateway).await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_a_431() {
    let (_demo, gateway) = gateway().await;
    let headers: [String; 2] = [
        format!("x-large: {}\r\n", "y".repeat(100_000)),
        (0..200).map(|number| format!("x-{number}: y\r\n")).collect(),
    ];
    for headers in headers {
        let mut raw = RawConnection::to(&gateway).await;
        // The connection may be closed while the client is still sending.
        let _ = raw
            .0
            .write_all(
                format!(
                    "GET /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}\r\n"
                )
                .as_bytes(),
            )
            .await;
        assert!(raw.receive_all().await.starts_with("HTTP/1.1 431"));
    }
    all_is_quiet(&gateway).await;
}

#[tokio::test]
async fn a_client_that_goes_away_in_the_middle_of_its_body_leaves_nothing_behind() {
    let (_demo, gateway) = gateway().await;
    for sent in ["{", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\""] {
        let mut raw = RawConnection::to(&gateway).await;
        raw.send(format!("POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n{sent}"))
            .await;
        drop(raw);
    }
    let mut raw = RawConnection::to(&gateway).await;
    raw.send("POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzzz\r\n").await;
    assert!(raw.receive_all().await.starts_with("HTTP/1.1 400"));
    all_is_quiet(&gateway).await;
}

#[tokio::test]
async fn a_half_closed_connection_is_closed_and_its_call_goes_on() {
    let (demo, gateway) = gateway().await;
    let client = LegacyClient::connect(&gateway.http).await;
    let mut raw = RawConnection::to(&gateway).await;
    let count = request(1, "tools/call", &call("demo__counter", json!({}))).to_string();
    raw.send(post(&client.session, &count)).await;
    raw.0.shutdown().await.unwrap();
    raw.receive_all().await;
    all_is_quiet(&gateway).await;
    assert_eq!(demo.counter(), 1, "hanging up is not cancelling");
    let mut raw = RawConnection::to(&gateway).await;
    let session = &client.session;
    raw.send(format!("GET /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {session}\r\n\r\n")).await;
    raw.receive("text/event-stream").await;
    raw.0.shutdown().await.unwrap();
    raw.receive_all().await;
    all_is_quiet(&gateway).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_cut_off_after_a_minute() {
    let (_demo, gateway) = gateway().await;
    let client = LegacyClient::connect(&gateway.http).await;
    let large = call("demo__echo", json!({ "text": "x".repeat(12 << 20) }));
    let mut raw = RawConnection::to(&gateway).await;
    raw.send(post(&client.session, &request(1, "tools/call", &large).to_string())).await;
    // The answer has started, and more of it is pending than the socket buffers hold.
    within("the beginning of the answer", raw.0.readable()).await.unwrap();
    gateway.until_clients("the end of the call", |clients| clients.in_flight == 0).await;
    assert_eq!(gateway.clients().await.connections, 1);
    pass(Duration::from_secs(61)).await;
    all_is_quiet(&gateway).await;
}

#[tokio::test]
async fn a_session_of_another_gateway_is_unknown() {
    let (_demo, here) = gateway().await;
    let (_other_demo, elsewhere) = gateway().await;
    let client = LegacyClient::connect(&elsewhere.http).await;
    let stranger = LegacyClient::with_session(&here.http, &client.session);
    assert_eq!(stranger.post(&request(1, "ping", &json!({}))).await.status, 404);
    assert_eq!(here.clients().await.sessions, 0);
}

#[tokio::test]
async fn a_refused_request_begins_no_session() {
    let (_demo, gateway) = gateway().await;
    let mut nameless = initialize(LEGACY);
    nameless["params"] = json!(7);
    for body in
        ["{", "[]", "7", &nameless.to_string(), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}"]
    {
        let answered = gateway.http.post(&[], body.to_owned()).await;
        assert!(!answered.headers.contains_key("mcp-session-id"), "{body}: {answered:?}");
    }
    assert_eq!(gateway.clients().await.sessions, 0);
}

/// A thousand concurrent `initialize` requests, each on its own connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_parallel_initialises_are_answered_and_leave_nothing_behind() {
    let demo = demo().await;
    let limits = "[gateway]\nsession_idle_timeout = \"10m\"\nlimits = { sessions_per_client = 600 }\n\n";
    let gateway = TestGateway::with(&format!("{limits}{}", at("demo", &demo.url(), "legacy", &[]))).await;
    let other = LegacyClient::connect(&gateway.http).await;
    let stream = other.open_stream(None).await;
    few_are_left(&gateway).await;
    let files = open_files();
    let hello = initialize(LEGACY).to_string();
    let hello = hello_on_the_wire(&hello);
    let begin = Arc::new(Barrier::new(1001));
    let clients: Vec<_> = (0..1000)
        .map(|_| {
            let (address, begin, hello) = (gateway.http.address.clone(), Arc::clone(&begin), hello.clone());
            tokio::spawn(async move {
                let mut raw = RawConnection(TcpStream::connect(address).await.unwrap());
                begin.wait().await;
                raw.send(hello).await;
                raw.receive_all().await
            })
        })
        .collect();
    within("everybody is connected", begin.wait()).await;
    // No other client has to wait.
    for _ in 0..20 {
        assert_eq!(other.call_tool("demo__echo", json!({ "text": "still here" })).await, "still here");
    }
    let mut ids = HashSet::new();
    for client in within("every answer", futures_util::future::join_all(clients)).await {
        let heard = client.unwrap();
        assert!(heard.starts_with("HTTP/1.1 200") && heard.contains("\"protocolVersion\""), "{heard}");
        let id = heard.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
        assert!(ids.insert(id.to_owned()), "two clients with one session");
    }
    few_are_left(&gateway).await;
    assert!(gateway.clients().await.sessions <= 600, "{:?}", gateway.clients().await);
    // Both ends of each connection are in this process, and so are those to the server.
    assert!(open_files() <= files + 4 * FEW as usize, "{files} files before, {} after", open_files());
    // Each session works, also those that were evicted.
    let some = ids.iter().step_by(97).map(|id| LegacyClient::with_session(&gateway.http, id));
    for client in some {
        assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
    }
    drop(stream);
}

/// Waits until only the stream and the idle connections of this test are open and no request is in flight.
async fn few_are_left(gateway: &TestGateway) {
    let quiet = |clients: Clients| clients.connections <= FEW && clients.in_flight == 0;
    gateway.until_clients("quiet", quiet).await;
}

/// Allowance for connections that open and close between requests.
const FEW: u64 = 16;

/// Request with `connection: close`.
fn hello_on_the_wire(body: &str) -> String {
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

/// Sessions and subscriptions of clients that disconnected without ending them.
#[tokio::test]
async fn sessions_and_subscriptions_of_clients_that_vanished_are_swept() {
    let legacy = ScriptedServer::start(&[
        ("initialize", FOLLOWABLE),
        ("resources/list", RESOURCES),
        ("resources/templates/list", r#"{"resourceTemplates":[]}"#),
        ("resources/subscribe", "{}"),
        ("resources/unsubscribe", "{}"),
    ])
    .await;
    let servers = at("it", &legacy.url, "legacy", &[]);
    let config = format!("[gateway]\nsession_idle_timeout = \"60s\"\n\n{servers}");
    let gateway = TestGateway::with(&config).await;
    let (gone, stays) =
        (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    for (client, uri) in [(&gone, "a://1"), (&gone, "a://2"), (&stays, "a://2")] {
        let subscribed = client.request("resources/subscribe", json!({ "uri": uri })).await;
        assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    }
    assert_eq!(legacy.count("resources/subscribe"), 2);
    assert_eq!(gateway.clients().await.sessions, 2);
    let listening = stays.open_stream(None).await;
    // Its connection breaks while a stream is open.
    let mut raw = RawConnection::to(&gateway).await;
    raw.send(format!("GET /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {}\r\n\r\n", gone.session))
        .await;
    raw.receive("text/event-stream").await;
    pass(Duration::from_secs(70)).await;
    stays.request("ping", json!({})).await;
    assert_eq!(gateway.clients().await.sessions, 2, "a session with an open stream does not expire");
    assert_eq!(legacy.count("resources/unsubscribe"), 0);
    drop(raw);
    until_swept(&gateway, 1).await;
    until("the server is told", || legacy.count("resources/unsubscribe") == 1).await;
    assert!(legacy.last_request("resources/unsubscribe").contains("a://1"));
    assert_eq!(gone.post(&request(1, "ping", &json!({}))).await.status, 404);
    // The other client still has the shared subscription; when it goes too, the subscription ends.
    drop(listening);
    until_swept(&gateway, 0).await;
    until("the server is told", || legacy.count("resources/unsubscribe") == 2).await;
    assert!(legacy.last_request("resources/unsubscribe").contains("a://2"));
}

/// Advances time until `count` sessions are left.
async fn until_swept(gateway: &TestGateway, left: u64) {
    for _ in 0..50 {
        if gateway.clients().await.sessions == left {
            return;
        }
        pass(Duration::from_secs(20)).await;
    }
    panic!("never {left}: {:?}", gateway.clients().await);
}

const FOLLOWABLE: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"script","version":"1"}}"#;
const RESOURCES: &str = r#"{"resources":[{"uri":"a://1","name":"1"},{"uri":"a://2","name":"2"}]}"#;

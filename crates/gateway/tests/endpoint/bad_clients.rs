//! Clients that misbehave: each gets the answer that fits, costs no more than it may, and leaves nothing behind.

use crate::client::{LEGACY, Legacy, call, initialize, request};
use crate::scene::{Clients, Scene, at, demo, pass, until, within};
use crate::script::Script;
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Barrier;

/// Just a socket.
struct Raw(TcpStream);

impl Raw {
    async fn to(scene: &Scene) -> Self {
        Self(TcpStream::connect(&scene.http.address).await.unwrap())
    }

    async fn says(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Everything that comes until the other side hangs up, whether politely or not.
    async fn hears_all(&mut self) -> String {
        let mut heard = Vec::new();
        let _ = within("the end of a connection", self.0.read_to_end(&mut heard)).await;
        String::from_utf8_lossy(&heard).into_owned()
    }

    /// What comes until this text is in it.
    async fn hears(&mut self, text: &str) -> String {
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

/// A whole request, as it goes over the wire.
fn post(session: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         mcp-session-id: {session}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

async fn scene() -> (gripfast_demo::RunningServer, Scene) {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    (demo, scene)
}

/// Nobody is connected any more, and nothing is under way.
async fn all_is_quiet(scene: &Scene) {
    let quiet = |clients: Clients| (clients.connections, clients.in_flight) == (0, 0);
    scene.until_clients("quiet", quiet).await;
}

/// A `tools/call` with other headers, or another head altogether.
fn posted(target: &str, headers: &str, body: &str) -> String {
    format!("POST {target} HTTP/1.1\r\n{headers}connection: close\r\n\r\n{body}")
}

#[tokio::test]
async fn g05_a_request_that_two_readers_could_read_differently_is_a_400() {
    let (_demo, scene) = scene().await;
    let ping =
        request(1, "initialize", &json!({ "protocolVersion": LEGACY, "capabilities": {} })).to_string();
    let length = ping.len();
    let address = &scene.http.address;
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
        let mut raw = Raw::to(&scene).await;
        raw.says(posted(target, &headers, body)).await;
        let heard = raw.hears_all().await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{target} {headers:?}: {heard}");
    }
    let mut raw = Raw::to(&scene).await;
    raw.says(format!("GET /healthz HTTP/1.1\n{own}\r\n")).await;
    assert!(raw.hears_all().await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn garbage_behind_a_request_ends_the_connection_after_the_answer() {
    let (_demo, scene) = scene().await;
    let client = Legacy::meets(&scene.http).await;
    let ping = post(&client.session, &request(1, "ping", &json!({})).to_string());
    let mut raw = Raw::to(&scene).await;
    raw.says(format!("{ping}\0\x01\x02 total nonsense\r\n\r\n")).await;
    let heard = raw.hears_all().await;
    assert!(heard.starts_with("HTTP/1.1 200") && heard.contains("HTTP/1.1 400"), "{heard}");
    let mut raw = Raw::to(&scene).await;
    raw.says("\x16\x03\x01 hello, is this TLS?\r\n\r\n").await;
    assert!(raw.hears_all().await.starts_with("HTTP/1.1 400"));
    assert_eq!(client.asks("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (_demo, scene) = scene().await;
    let client = Legacy::meets(&scene.http).await;
    let pings: String =
        (0..50).map(|id| post(&client.session, &request(id, "ping", &json!({})).to_string())).collect();
    let mut raw = Raw::to(&scene).await;
    raw.says(pings).await;
    let heard = raw.hears("\"id\":49").await;
    let places: Vec<usize> = (0..50).map(|id| heard.find(&format!("\"id\":{id},")).unwrap()).collect();
    assert!(places.is_sorted());
    drop(raw);
    all_is_quiet(&scene).await;
}

#[tokio::test]
async fn g05_a_first_head_has_five_seconds() {
    let (_demo, scene) = scene().await;
    let (mut silent, mut slow) = (Raw::to(&scene).await, Raw::to(&scene).await);
    slow.says("POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await;
    scene.until_clients("the connections", |clients| clients.connections == 2).await;
    pass(Duration::from_millis(4500)).await;
    assert_eq!(scene.clients().await.connections, 2);
    pass(Duration::from_millis(600)).await;
    let both = async { (silent.hears_all().await, slow.hears_all().await) };
    let both = tokio::time::timeout(Duration::from_secs(20), both).await.expect("both are closed");
    assert_eq!(both, (String::new(), String::new()));
    all_is_quiet(&scene).await;
}

#[tokio::test]
async fn a_later_head_is_given_up_after_a_minute() {
    let (_demo, scene) = scene().await;
    let (mut silent, mut slow) = (Raw::to(&scene).await, Raw::to(&scene).await);
    for raw in [&mut silent, &mut slow] {
        raw.says("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        raw.hears("200 OK").await;
    }
    slow.says("POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await;
    pass(Duration::from_secs(55)).await;
    assert_eq!(scene.clients().await.connections, 2, "they have sent a complete request");
    pass(Duration::from_secs(6)).await;
    silent.hears_all().await;
    slow.hears_all().await;
    all_is_quiet(&scene).await;
}

/// A gateway with few connections, and with these further lines.
async fn cramped(gateway: &str) -> (gripfast_demo::RunningServer, Scene) {
    let demo = demo().await;
    let config = format!(
        "[gateway]\n{gateway}\nlimits = {{ connections = 64, connections_per_client = 64 }}\n\n{}",
        at("demo", &demo.url(), "legacy", &[])
    );
    let scene = Scene::with(&config).await;
    (demo, scene)
}

/// More connections than there may be, each of which has sent this.
async fn crowd(scene: &Scene, said: &str) -> Vec<Raw> {
    let mut crowd = Vec::new();
    for _ in 0..100 {
        let mut raw = Raw::to(scene).await;
        raw.says(said).await;
        crowd.push(raw);
    }
    crowd
}

/// A client that needs a connection of its own is answered within a second, while all others stay.
async fn is_served_within_a_second(scene: &Scene, headers: &[(&str, &str)]) -> usize {
    let http = crate::client::Http::at(&scene.http.address);
    let answered = http.post(headers, initialize(LEGACY).to_string());
    let answered = tokio::time::timeout(Duration::from_secs(1), answered).await.expect("an answer in time");
    assert_eq!(answered.status, 200, "{answered:?}");
    scene.clients().await.connections as usize
}

#[tokio::test]
async fn g05_half_requests_without_a_key_do_not_keep_a_key_holder_out() {
    let (_demo, scene) = cramped("auth = { keys = true }").await;
    let key = format!("Bearer {}", gripfast_gateway::auth::keys::add(scene.state_dir(), "laptop").unwrap());
    for half in [
        "",
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-slow: ",
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
    ] {
        let _crowd = crowd(&scene, half).await;
        let taken = is_served_within_a_second(&scene, &[("authorization", &key)]).await;
        assert!(taken <= 64, "{taken} connections: {half:?}");
    }
}

#[tokio::test]
async fn g05_half_bodies_do_not_keep_others_out_where_nobody_authenticates() {
    let (_demo, scene) = cramped("").await;
    let known = Legacy::meets(&scene.http).await;
    let stream = known.listens(None).await;
    let half = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let _crowd = crowd(&scene, half).await;
    assert!(is_served_within_a_second(&scene, &[]).await <= 64);
    assert_eq!(stream.status, 200);
    assert_eq!(known.asks("ping", json!({})).await["result"], json!({}), "known clients keep theirs");
}

#[tokio::test]
async fn a_body_that_does_not_end_is_a_408_after_a_minute() {
    let (_demo, scene) = scene().await;
    let mut raw = Raw::to(&scene).await;
    raw.says("POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: 100\r\n\r\n")
        .await;
    // It is asked for as soon as somebody waits for it.
    raw.hears("100 Continue").await;
    raw.says("{\"jsonrpc\"").await;
    pass(Duration::from_secs(61)).await;
    let heard = raw.hears_all().await;
    assert!(heard.starts_with("HTTP/1.1 408") && heard.contains("connection: close"), "{heard}");
    all_is_quiet(&scene).await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_a_431() {
    let (_demo, scene) = scene().await;
    let headers: [String; 2] = [
        format!("x-large: {}\r\n", "y".repeat(100_000)),
        (0..200).map(|number| format!("x-{number}: y\r\n")).collect(),
    ];
    for headers in headers {
        let mut raw = Raw::to(&scene).await;
        // It may be cut off while it is still sending.
        let _ = raw
            .0
            .write_all(
                format!(
                    "GET /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}\r\n"
                )
                .as_bytes(),
            )
            .await;
        assert!(raw.hears_all().await.starts_with("HTTP/1.1 431"));
    }
    all_is_quiet(&scene).await;
}

#[tokio::test]
async fn a_client_that_goes_away_in_the_middle_of_its_body_leaves_nothing_behind() {
    let (_demo, scene) = scene().await;
    for sent in ["{", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\""] {
        let mut raw = Raw::to(&scene).await;
        raw.says(format!("POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n{sent}"))
            .await;
        drop(raw);
    }
    let mut raw = Raw::to(&scene).await;
    raw.says("POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzzz\r\n").await;
    assert!(raw.hears_all().await.starts_with("HTTP/1.1 400"));
    all_is_quiet(&scene).await;
}

#[tokio::test]
async fn a_half_closed_stream_does_not_keep_us_and_its_call_goes_on() {
    let (demo, scene) = scene().await;
    let client = Legacy::meets(&scene.http).await;
    let mut raw = Raw::to(&scene).await;
    let count = request(1, "tools/call", &call("demo__counter", json!({}))).to_string();
    raw.says(post(&client.session, &count)).await;
    raw.0.shutdown().await.unwrap();
    raw.hears_all().await;
    all_is_quiet(&scene).await;
    assert_eq!(demo.counter(), 1, "hanging up is not cancelling");
    let mut raw = Raw::to(&scene).await;
    let session = &client.session;
    raw.says(format!("GET /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {session}\r\n\r\n")).await;
    raw.hears("text/event-stream").await;
    raw.0.shutdown().await.unwrap();
    raw.hears_all().await;
    all_is_quiet(&scene).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_cut_off_after_a_minute() {
    let (_demo, scene) = scene().await;
    let client = Legacy::meets(&scene.http).await;
    let large = call("demo__echo", json!({ "text": "x".repeat(12 << 20) }));
    let mut raw = Raw::to(&scene).await;
    raw.says(post(&client.session, &request(1, "tools/call", &large).to_string())).await;
    // The answer has begun to come, and more of it waits than fits between us.
    within("the beginning of the answer", raw.0.readable()).await.unwrap();
    scene.until_clients("the end of the call", |clients| clients.in_flight == 0).await;
    assert_eq!(scene.clients().await.connections, 1);
    pass(Duration::from_secs(61)).await;
    all_is_quiet(&scene).await;
}

#[tokio::test]
async fn a_session_of_another_gateway_is_unknown() {
    let (_demo, here) = scene().await;
    let (_other_demo, elsewhere) = scene().await;
    let client = Legacy::meets(&elsewhere.http).await;
    let stranger = Legacy::resumes(&here.http, &client.session);
    assert_eq!(stranger.post(&request(1, "ping", &json!({}))).await.status, 404);
    assert_eq!(here.clients().await.sessions, 0);
}

#[tokio::test]
async fn what_is_refused_begins_no_session() {
    let (_demo, scene) = scene().await;
    let mut nameless = initialize(LEGACY);
    nameless["params"] = json!(7);
    for body in
        ["{", "[]", "7", &nameless.to_string(), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}"]
    {
        let answered = scene.http.post(&[], body.to_owned()).await;
        assert!(!answered.headers.contains_key("mcp-session-id"), "{body}: {answered:?}");
    }
    assert_eq!(scene.clients().await.sessions, 0);
}

/// A thousand handshakes that arrive at once, each on a connection of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_parallel_initialises_are_answered_and_leave_nothing_behind() {
    let demo = demo().await;
    let limits = "[gateway]\nsession_idle_timeout = \"10m\"\nlimits = { sessions_per_client = 600 }\n\n";
    let scene = Scene::with(&format!("{limits}{}", at("demo", &demo.url(), "legacy", &[]))).await;
    let other = Legacy::meets(&scene.http).await;
    let stream = other.listens(None).await;
    few_are_left(&scene).await;
    let files = open_files();
    let hello = initialize(LEGACY).to_string();
    let hello = hello_on_the_wire(&hello);
    let begin = Arc::new(Barrier::new(1001));
    let clients: Vec<_> = (0..1000)
        .map(|_| {
            let (address, begin, hello) = (scene.http.address.clone(), Arc::clone(&begin), hello.clone());
            tokio::spawn(async move {
                let mut raw = Raw(TcpStream::connect(address).await.unwrap());
                begin.wait().await;
                raw.says(hello).await;
                raw.hears_all().await
            })
        })
        .collect();
    within("everybody is connected", begin.wait()).await;
    // Nobody else is kept waiting.
    for _ in 0..20 {
        assert_eq!(other.calls("demo__echo", json!({ "text": "still here" })).await, "still here");
    }
    let mut ids = HashSet::new();
    for client in within("every answer", futures_util::future::join_all(clients)).await {
        let heard = client.unwrap();
        assert!(heard.starts_with("HTTP/1.1 200") && heard.contains("\"protocolVersion\""), "{heard}");
        let id = heard.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
        assert!(ids.insert(id.to_owned()), "two clients with one session");
    }
    few_are_left(&scene).await;
    assert!(scene.clients().await.sessions <= 600, "{:?}", scene.clients().await);
    // Both ends of each are in this process, and so are those toward the server.
    assert!(open_files() <= files + 4 * FEW as usize, "{files} files before, {} after", open_files());
    // Each of them works, those that had to make room included.
    let some = ids.iter().step_by(97).map(|id| Legacy::resumes(&scene.http, id));
    for client in some {
        assert_eq!(client.asks("ping", json!({})).await["result"], json!({}));
    }
    drop(stream);
}

/// Nobody is connected but a stream and what this test keeps open for its next request, and nothing is under way.
async fn few_are_left(scene: &Scene) {
    let quiet = |clients: Clients| clients.connections <= FEW && clients.in_flight == 0;
    scene.until_clients("quiet", quiet).await;
}

/// Connections that come and go between requests.
const FEW: u64 = 16;

/// The files that this process has open.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A request after which the other side hangs up.
fn hello_on_the_wire(body: &str) -> String {
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

/// Clients that were there and are not any more, without a word: their sessions, and what they follow.
#[tokio::test]
async fn sessions_and_subscriptions_of_clients_that_vanished_are_swept() {
    let legacy = Script::starts(&[
        ("initialize", FOLLOWABLE),
        ("resources/list", RESOURCES),
        ("resources/templates/list", r#"{"resourceTemplates":[]}"#),
        ("resources/subscribe", "{}"),
        ("resources/unsubscribe", "{}"),
    ])
    .await;
    let servers = at("it", &legacy.url, "legacy", &[]);
    let config = format!("[gateway]\nsession_idle_timeout = \"60s\"\n\n{servers}");
    let scene = Scene::with(&config).await;
    let (gone, stays) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
    for (client, uri) in [(&gone, "a://1"), (&gone, "a://2"), (&stays, "a://2")] {
        let subscribed = client.asks("resources/subscribe", json!({ "uri": uri })).await;
        assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    }
    assert_eq!(legacy.count("resources/subscribe"), 2);
    assert_eq!(scene.clients().await.sessions, 2);
    let listening = stays.listens(None).await;
    // It had a stream open, and the connection breaks.
    let mut raw = Raw::to(&scene).await;
    raw.says(format!("GET /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {}\r\n\r\n", gone.session))
        .await;
    raw.hears("text/event-stream").await;
    pass(Duration::from_secs(70)).await;
    stays.asks("ping", json!({})).await;
    assert_eq!(scene.clients().await.sessions, 2, "whoever listens is there");
    assert_eq!(legacy.count("resources/unsubscribe"), 0);
    drop(raw);
    until_swept(&scene, 1).await;
    until("the server is told", || legacy.count("resources/unsubscribe") == 1).await;
    assert!(legacy.heard("resources/unsubscribe").contains("a://1"));
    assert_eq!(gone.post(&request(1, "ping", &json!({}))).await.status, 404);
    // The other one still follows what both did; when it goes too, nobody does.
    drop(listening);
    until_swept(&scene, 0).await;
    until("the server is told", || legacy.count("resources/unsubscribe") == 2).await;
    assert!(legacy.heard("resources/unsubscribe").contains("a://2"));
}

/// Lets time pass until so many sessions are left.
async fn until_swept(scene: &Scene, left: u64) {
    for _ in 0..50 {
        if scene.clients().await.sessions == left {
            return;
        }
        pass(Duration::from_secs(20)).await;
    }
    panic!("never {left}: {:?}", scene.clients().await);
}

const FOLLOWABLE: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"script","version":"1"}}"#;
const RESOURCES: &str = r#"{"resources":[{"uri":"a://1","name":"1"},{"uri":"a://2","name":"2"}]}"#;

//! Clients that misbehave: each gets the answer that fits, costs no more than it may, and leaves nothing behind.

use crate::client::{LEGACY, Legacy, call, initialize, request};
use crate::scene::{Clients, Scene, at, demo, pass, within};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

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
async fn a_head_that_does_not_end_is_given_up_after_a_minute() {
    let (_demo, scene) = scene().await;
    let mut raw = Raw::to(&scene).await;
    raw.says("POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await;
    scene.until_clients("the connection", |clients| clients.connections == 1).await;
    pass(Duration::from_secs(61)).await;
    raw.hears_all().await;
    all_is_quiet(&scene).await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_given_up_after_a_minute() {
    let (_demo, scene) = scene().await;
    let mut raw = Raw::to(&scene).await;
    scene.until_clients("the connection", |clients| clients.connections == 1).await;
    pass(Duration::from_secs(61)).await;
    assert_eq!(raw.hears_all().await, "");
    all_is_quiet(&scene).await;
}

#[tokio::test]
async fn a_body_that_does_not_end_is_a_408_after_a_minute() {
    let (_demo, scene) = scene().await;
    let mut raw = Raw::to(&scene).await;
    raw.says("POST /mcp HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 100\r\n\r\n")
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
            .write_all(format!("GET /mcp HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n").as_bytes())
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
        raw.says(format!("POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5000\r\n\r\n{sent}"))
            .await;
        drop(raw);
    }
    let mut raw = Raw::to(&scene).await;
    raw.says("POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzzz\r\n").await;
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

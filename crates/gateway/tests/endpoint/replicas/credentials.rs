//! Credentials of clients in a service of several replicas.

use super::attacks::KeyHolder;
use super::service::{Replica, Service};
use crate::client::{EventStream, LEGACY, call, initialize, request};
use gripfast_testkit::proc;
use gripfast_testkit::wait::{until_async, within};
use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

const WITH_KEYS: &str = "[gateway]\nauth = { keys = true }\n";

/// A client with a key.
struct KeyClient {
    key: String,
}

impl KeyClient {
    /// A client with a new key of this lifetime.
    fn of(replica: &Replica, name: &str, lifetime: &str) -> Self {
        let (code, key, said) = replica.local_command(&["keys", "add", name, "--expires", lifetime]);
        assert_eq!(code, Some(0), "{said}");
        Self { key: format!("Bearer {}", key.trim()) }
    }

    /// Opens a session and returns its id, as soon as the replica knows the key.
    async fn connect(&self, replica: &Replica) -> String {
        let mut session = None;
        until_async("the key is known", async || {
            let headers = [("authorization", &*self.key)];
            let hello = replica.http.post(&headers, initialize(LEGACY).to_string()).await;
            session = hello.headers.get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
            session.is_some()
        })
        .await;
        session.unwrap()
    }

    async fn call(&self, replica: &Replica, session: &str, ms: u64) -> EventStream {
        let headers = [
            ("authorization", &*self.key),
            ("mcp-session-id", session),
            ("accept", "application/json, text/event-stream"),
        ];
        let body = request("slow", "tools/call", &call("demo__sleep", json!({ "ms": ms }))).to_string();
        EventStream::of(replica.http.begin(Method::POST, "/mcp", &headers, body).await)
    }
}

/// The store accepts everything and answers nothing. The first key ends with 200 sessions, and waiting for the store once
/// for each would take two minutes.
#[tokio::test]
async fn the_end_of_a_credential_does_not_wait_for_the_store() {
    let Some(service) = Service::start_with(&["a"], WITH_KEYS) else { return };
    let a = service.at("a");
    let other = KeyClient::of(a, "other", "20s");
    let session = other.connect(a).await;
    let one = KeyClient::of(a, "one", "8s");
    for _ in 0..200 {
        one.connect(a).await;
    }
    let mut stream = other.call(a, &session, 600_000).await;
    assert_eq!(stream.status, 200);
    let pid = service.store.pid().unwrap();
    proc::signal(pid, Signal::STOP);
    until_async("the sessions of the first key are being ended", async || {
        a.status().await["clients"]["sessions"] == 1
    })
    .await;
    within("the second key ends", async { while stream.next().await.is_some() {} }).await;
    proc::signal(pid, Signal::CONT);
}

#[tokio::test]
async fn a_forwarded_call_ends_with_the_credential_of_its_client() {
    let Some(service) = Service::start_with(&["a", "b"], WITH_KEYS) else { return };
    let (a, b) = (service.at("a"), service.at("b"));
    let client = KeyClient::of(a, "alice", "1h");
    let session = client.connect(a).await;
    until_async("the other replica knows the key and the owner", async || {
        let headers = [("authorization", &*client.key), ("mcp-session-id", &*session)];
        b.http.post(&headers, request(1, "ping", &json!({})).to_string()).await.status == 200
    })
    .await;
    let mut stream = client.call(b, &session, 600_000).await;
    assert_eq!(stream.status, 200);
    let (code, _, said) = b.local_command(&["keys", "rm", "alice"]);
    assert_eq!(code, Some(0), "{said}");
    within("the stream ends", async { while stream.next().await.is_some() {} }).await;
    until_async("the call is cancelled at the owner", async || {
        let calls: Value = serde_json::from_str(&a.command(&["calls", "-o", "json"])).unwrap();
        !calls["calls"][0]["outcome"].is_null()
    })
    .await;
}

/// The session lives on: its client has another credential.
#[tokio::test]
async fn a_forwarded_call_ends_with_the_token_that_its_client_has_used() {
    let Some(service) = Service::start_with(&["a"], WITH_KEYS) else { return };
    let a = service.at("a");
    let client = KeyClient::of(a, "alice", "1h");
    let session = client.connect(a).await;
    let body = request("slow", "tools/call", &call("demo__sleep", json!({ "ms": 600_000 }))).to_string();
    let token = format!("token {}", gripfast::unix_time().as_millis() + 3_000);
    let sealed = KeyHolder::new().seal_as(service.boot("a"), &session, ("name:YWxpY2U", &token), body);
    within("the call ends with the token", sealed.send(a)).await;
    let headers = [("authorization", &*client.key), ("mcp-session-id", &*session)];
    assert_eq!(a.http.post(&headers, request(1, "ping", &json!({})).to_string()).await.status, 200);
}

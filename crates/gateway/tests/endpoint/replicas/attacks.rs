//! Attacks on the listener for other replicas and on the records in the store.

use super::service::{KEY, Replica, Service};
use super::singletons::{Writer, holder};
use super::through;
use crate::client::{HttpClient, HttpResponse, LegacyClient, call, request};
use gripfast::placement::place::{BootId, OwnerEpoch};
use gripfast_cluster::forward::{FORWARD_HEADER, ForwardSealer, ForwardedRequest, REPLY_HEADER};
use gripfast_cluster::keys::ClusterKeys;
use gripfast_testkit::wait::until_async;
use http::Method;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const FORGER: BootId = BootId::from_number(0x666);

/// A holder of the key who is not one of the replicas. It shows what a captured request is worth.
pub(super) struct KeyHolder {
    sealer: ForwardSealer,
}

/// A request with the seal of a replica.
#[derive(Clone)]
pub(super) struct SealedRequest {
    path: &'static str,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl KeyHolder {
    pub(super) fn new() -> Self {
        Self { sealer: ForwardSealer::new(ClusterKeys::new([KEY]).unwrap(), FORGER) }
    }

    /// A call of the counter, for the session of a client without a credential.
    fn count(&self, to: BootId, client: &LegacyClient) -> SealedRequest {
        let body = request("f", "tools/call", &call("demo__counter", json!({}))).to_string();
        self.seal(to, client, body)
    }

    fn seal(&self, to: BootId, client: &LegacyClient, body: String) -> SealedRequest {
        self.seal_as(to, &client.session, ("local", ""), body)
    }

    /// A request in a session, for a client with this principal and credential.
    pub(super) fn seal_as(
        &self,
        to: BootId,
        session: &str,
        (principal, credential): (&str, &str),
        body: String,
    ) -> SealedRequest {
        let headers = [
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("mcp-session-id", session),
        ];
        let covered: Vec<(&str, &[u8])> =
            headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let sealed = ForwardedRequest {
            method: "POST",
            path: "/mcp",
            query: None,
            headers: &covered,
            principal,
            credential,
            era: "",
        };
        let seal = self.sealer.seal(to, OwnerEpoch::FIRST, &sealed, body.as_bytes());
        let mut headers: Vec<_> = headers.map(|(name, value)| (name, value.to_owned())).into();
        headers.extend([(FORWARD_HEADER, seal), ("gripfast-principal", principal.to_owned())]);
        headers.extend((!credential.is_empty()).then(|| ("gripfast-credential", credential.to_owned())));
        SealedRequest { path: "/mcp", headers, body }
    }
}

impl SealedRequest {
    pub(super) async fn send(&self, to: &Replica) -> HttpResponse {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let http = HttpClient::at(&format!("127.0.0.1:{}", to.port));
        http.send(Method::POST, self.path, &headers, self.body.clone()).await
    }

    fn with(&self, name: &'static str, value: &str) -> Self {
        let mut changed = self.clone();
        changed.headers.retain(|(header, _)| *header != name);
        changed.headers.push((name, value.to_owned()));
        changed
    }
}

#[tokio::test]
async fn a_request_without_a_valid_seal_is_refused_before_its_body_is_read() {
    let Some(service) = Service::start(&["a"]) else { return };
    let address = format!("127.0.0.1:{}", service.at("a").port);
    let client = LegacyClient::connect(&service.at("a").http).await;
    let http = HttpClient::at(&address);
    let ping = request(1, "ping", &json!({})).to_string();
    let forged = "1:0000000000000001:0000000000000002:0:1:00:00";
    for seal in [None, Some("nonsense"), Some(forged)] {
        let mut headers = vec![("mcp-session-id", &*client.session), ("gripfast-principal", "local")];
        headers.extend(seal.map(|seal| ("gripfast-forward", seal)));
        for path in ["/mcp", "/message?sessionId=x", "/sse", "/api/v1/status"] {
            let refused = http.send(Method::POST, path, &headers, ping.clone()).await;
            assert_eq!(refused.status, 403, "{path} {refused:?}");
            assert!(!refused.headers.contains_key(REPLY_HEADER), "a refusal proves nothing");
        }
    }
    // The answer comes although the body never does.
    let mut connection = TcpStream::connect(&address).unwrap();
    let head = format!("POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n\r\n", 16 << 20);
    connection.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    connection.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 403");
    assert!(service.at("a").log().contains("a request to `cluster.listen` is refused"));
}

#[tokio::test]
async fn a_captured_request_is_refused_by_the_same_another_and_a_restarted_replica() {
    let Some(mut service) = Service::start(&["a", "b"]) else { return };
    service.until_complete().await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    let captured = KeyHolder::new().count(service.boot("a"), &client);
    let first = captured.send(service.at("a")).await;
    assert_eq!(first.status, 200, "{first:?}");
    assert!(first.headers.contains_key(REPLY_HEADER));
    let again = captured.send(service.at("a")).await;
    assert_eq!(again.status, 403, "{again:?}");
    assert!(again.text.contains("was received before"), "{again:?}");
    let elsewhere = captured.send(service.at("b")).await;
    assert_eq!(elsewhere.status, 421, "{elsewhere:?}");
    assert_eq!(client.call_tool("demo__counter", json!({})).await, "2", "it ran once");
    service.kill("a");
    let restarted = service.replica("a", "");
    assert_eq!(captured.send(&restarted).await.status, 421);
}

#[tokio::test]
async fn a_changed_principal_header_query_or_body_is_refused() {
    let Some(service) = Service::start(&["a"]) else { return };
    let a = service.at("a");
    let client = LegacyClient::connect(&a.http).await;
    let forwarder = KeyHolder::new();
    let sealed = || forwarder.count(service.boot("a"), &client);
    let other = LegacyClient::connect(&a.http).await;
    let mut twice = sealed();
    twice.headers.push(("gripfast-principal", "name:YWRtaW4".to_owned()));
    let mut two_seals = sealed();
    two_seals.headers.push((FORWARD_HEADER, "nonsense".to_owned()));
    for (part, changed) in [
        ("principal", sealed().with("gripfast-principal", "name:YWRtaW4")),
        ("two principals", twice),
        ("two seals", two_seals),
        ("credential", sealed().with("gripfast-credential", "token 9999999999999")),
        ("session", sealed().with("mcp-session-id", &other.session)),
        ("added header", sealed().with("mcp-protocol-version", "2026-07-28")),
        ("query", SealedRequest { path: "/mcp?x=1", ..sealed() }),
        ("path", SealedRequest { path: "/message", ..sealed() }),
    ] {
        let refused = changed.send(a).await;
        assert_eq!(refused.status, 403, "{part}: {refused:?}");
    }
    let body = sealed().body.replace("demo__counter", "demo__echoes_");
    let changed = SealedRequest { body, ..sealed() }.send(a).await;
    assert_eq!(changed.status, 400, "{changed:?}");
    assert_eq!(client.call_tool("demo__counter", json!({})).await, "1", "none of them ran");
    let unsealed = sealed().with("authorization", "Bearer gfk_made-up").with("origin", "http://evil.example");
    assert_eq!(unsealed.send(a).await.status, 200, "headers without a seal have no effect");
}

/// A body with a valid seal counts against the memory of its client before it is read to its end.
#[tokio::test]
async fn the_body_of_a_forwarded_request_counts_against_the_memory_quota() {
    let config = "[gateway]\nlimits = { memory_per_client = '1MiB', memory = '1MiB' }\n";
    let Some(service) = Service::start_with(&["a"], config) else { return };
    let client = LegacyClient::connect(&service.at("a").http).await;
    let large = call("demo__echo", json!({ "text": "x".repeat(4 << 20) }));
    let body = request("f", "tools/call", &large).to_string();
    let sealed = KeyHolder::new().seal(service.boot("a"), &client, body);
    let mut head = format!("POST /mcp HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n", sealed.body.len());
    for (name, value) in &sealed.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut connection = TcpStream::connect(("127.0.0.1", service.at("a").port)).unwrap();
    connection.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    // Fails when the replica closes the connection.
    let _ = connection.write_all(sealed.body.as_bytes());
    let mut answer = [0; 12];
    connection.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 429");
    assert_eq!(client.call_tool("demo__counter", json!({})).await, "1");
}

/// Connections that bring no seal make room for those that do.
#[tokio::test]
async fn silent_connections_do_not_keep_other_replicas_out() {
    let config = "[gateway]\nlimits = { connections = 16, connections_per_client = 16 }\n";
    let Some(service) = Service::start_with(&["a", "b"], config) else { return };
    service.until_complete().await;
    let address = format!("127.0.0.1:{}", service.at("a").port);
    let mut silent: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let client = LegacyClient::connect(&service.at("a").http).await;
    let b = through(&client, &service.at("b").http);
    assert_eq!(b.call_tool("demo__counter", json!({})).await, "1");
    // Far below the time for a first request.
    silent[0].set_read_timeout(Some(Duration::from_secs(4))).unwrap();
    assert_eq!(silent[0].read(&mut [0]).unwrap(), 0, "the oldest one is closed");
}

/// The record of the owner is replaced by one that names the address of the attacker.
#[tokio::test]
async fn a_forged_record_redirects_no_request() {
    let Some(service) = Service::start(&["a", "b"]) else { return };
    service.until_complete().await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    let b = through(&client, &service.at("b").http);
    let attacker = TcpListener::bind("127.0.0.1:0").unwrap();
    attacker.set_nonblocking(true).unwrap();
    let (boot, evil) = (service.boot("a"), attacker.local_addr().unwrap());
    let key = format!("{{gripfast}}:replica:{boot}");
    let record = service.store.command(&format!("HGET {key} record"));
    let record = record.lines().nth(1).expect("a record");
    let forged = record.replace(&format!("127.0.0.1:{}", service.at("a").port), &evil.to_string());
    assert_ne!(forged, record);
    let stranger = "00000000000000ff";
    let mut served = 0;
    // Again and again, because the owner renews its record.
    until_async("the owner has served ten requests meanwhile", async || {
        for (key, boot) in
            [(&key, boot.to_string()), (&format!("{{gripfast}}:replica:{stranger}"), stranger.to_owned())]
        {
            let stored = service.store.command(&format!("HSET {key} record '{forged}'"));
            assert!(stored.starts_with(':'), "{stored}");
            let _ = service.store.command(&format!("SADD {{gripfast}}:replicas {boot}"));
        }
        let answered = b.post(&request("t", "tools/call", &call("demo__counter", json!({})))).await;
        assert!(matches!(answered.status, 200 | 503), "{answered:?}");
        served += usize::from(answered.status == 200);
        served >= 10
    })
    .await;
    assert!(attacker.accept().is_err(), "nothing was sent to the attacker");
    assert!(
        service.at("b").status().await["cluster"]["replicas"].as_u64().unwrap() <= 2,
        "no stranger counts"
    );
}

/// Answers every request with this status, headers and body.
fn answer_all(impostor: TcpListener, answer: &str) {
    let answer = format!("HTTP/1.1 {answer}");
    std::thread::spawn(move || {
        for connection in impostor.incoming() {
            let mut connection = connection.unwrap();
            let _ = connection.read(&mut [0; 65_536]);
            let _ = connection.write_all(answer.as_bytes());
        }
    });
}

/// Another process has the address of a lost replica, and answers everything.
#[tokio::test]
async fn a_process_at_the_address_of_a_lost_replica_cannot_answer_for_it() {
    let Some(mut service) = Service::start(&["a", "b"]) else { return };
    service.until_complete().await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    let b = through(&client, &service.at("b").http);
    assert_eq!(b.call_tool("demo__counter", json!({})).await, "1");
    let port = service.at("a").port;
    service.kill("a");
    let impostor = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let misdirected = "misdirected 0000000000000001 evil/0000000000000001 18446744073709551615";
    answer_all(
        impostor,
        &format!("404 Not Found\r\ngripfast-forward-result: {misdirected}\r\ncontent-length: 0\r\n\r\n"),
    );
    let lost = b.post(&request("t", "tools/call", &call("demo__counter", json!({})))).await;
    assert_eq!(lost.status, 200, "{lost:?}");
    assert!(lost.text.contains("outcome_unknown"), "{lost:?}");
    assert!(service.at("b").log().contains("is not that of a replica with this `cluster.key`"));
    // When the record of the owner ends, the session is taken over.
    until_async("the session is taken over", async || {
        let answered = b.post(&request("t", "tools/call", &call("demo__counter", json!({})))).await;
        answered.status == 200 && !answered.text.contains("outcome_unknown")
    })
    .await;
}

/// The same for the replica that ran a singleton server.
#[tokio::test]
async fn a_process_at_the_address_of_a_lost_holder_cannot_answer_for_its_server() {
    let writer = Writer::new();
    let Some(mut service) = Service::start_with(&["a", "b"], &writer.config("")) else { return };
    let ran_at = holder(&service).await;
    let left = if ran_at == "a" { "b" } else { "a" };
    let client = LegacyClient::connect(&service.at(left).http).await;
    assert_eq!(client.call_tool("one__counter", json!({})).await, "1");
    let port = service.at(&ran_at).port;
    service.kill(&ran_at);
    let impostor = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let body = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"content":[{"type":"text","text":"evil"}]}}"#;
    let length = body.len();
    answer_all(
        impostor,
        &format!("200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"),
    );
    let answered = client.request("tools/call", call("one__counter", json!({}))).await;
    assert!(!answered.to_string().contains("evil"), "{answered}");
    until_async("the other replica says so", async || {
        service.at(left).log().contains("is not that of a replica with this `cluster.key`")
    })
    .await;
    assert_eq!(holder(&service).await, left);
}

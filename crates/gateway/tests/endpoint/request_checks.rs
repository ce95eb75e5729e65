//! Refused requests: foreign hosts and origins, bodies that are too large, invalid JSON, and batches that are too long.

use crate::client::{LegacyClient, MODERN, request};
use crate::test_gateway::{TestGateway, at, demo};
use http::Method;
use serde_json::json;

#[tokio::test]
async fn g05_a_rebound_name_or_a_foreign_site_is_turned_away_on_every_path() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let foreign: [&[(&str, &str)]; 5] = [
        &[("origin", "http://localhost:3000")],
        &[("host", "evil.example")],
        &[("host", "127.0.0.1.evil.example:80")],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
    ];
    for headers in foreign {
        for (method, path) in
            [(Method::POST, "/mcp"), (Method::GET, "/mcp"), (Method::GET, "/sse"), (Method::POST, "/message")]
        {
            let answered = gateway.http.send(method, path, headers, "").await;
            assert_eq!(answered.status, 403, "{headers:?} {path}");
        }
    }
    for own in ["localhost", "127.0.0.1"] {
        let port = gateway.http.address.rsplit_once(':').unwrap().1;
        let headers = [("origin", &*format!("http://{own}:{port}"))];
        let body = request(1, "initialize", &json!({ "protocolVersion": "2025-11-25", "capabilities": {} }));
        assert_eq!(gateway.http.post(&headers, body.to_string()).await.status, 200, "{headers:?}");
    }
}

#[tokio::test]
async fn g07_a_body_over_16_mib_is_a_413_and_one_just_below_is_read() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let most = 16 << 20;
    let headers = [("mcp-session-id", &*client.session)];
    assert_eq!(gateway.http.post(&headers, vec![b' '; most + 1]).await.status, 413);
    let ping = request(1, "ping", &json!({})).to_string();
    let padded = [ping.as_bytes(), &vec![b' '; most - ping.len()]].concat();
    assert_eq!(gateway.http.post(&headers, padded).await.status, 200);
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn invalid_json_and_an_invalid_message_have_different_errors() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let legacy = [("mcp-session-id", &*client.session)];
    let modern = [("mcp-protocol-version", MODERN)];
    let cases = [
        ("", -32700),
        ("{", -32700),
        ("hello", -32700),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"} trailing"#, -32700),
        ("7", -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}"#, -32600),
    ];
    for (body, code) in cases {
        for headers in [&legacy[..], &modern[..]] {
            let answered = gateway.http.post(headers, body).await;
            assert_eq!(answered.refusal(), (400, code), "{body}");
        }
    }
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn g07_a_member_that_two_readers_could_read_differently_is_refused() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let params = r#"{"name":"demo__echo","name":"demo__counter","arguments":{"text":"x"}}"#;
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    let answered = gateway.http.post(&[("mcp-session-id", &client.session)], body).await;
    assert_eq!(answered.message()["error"]["code"], -32602);
    assert_eq!(demo.calls(), 0);
}

#[tokio::test]
async fn a_batch_over_the_limit_is_refused_as_a_whole() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = LegacyClient::connect_with_version(&gateway.http, "2025-03-26").await;
    let batch: Vec<_> = (0..101).map(|id| request(id, "ping", &json!({}))).collect();
    assert_eq!(client.post(&json!(batch)).await.refusal(), (400, -32600));
    assert_eq!(client.post(&json!([])).await.refusal(), (400, -32600));
}

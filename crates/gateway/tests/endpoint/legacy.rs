//! Legacy clients: the handshake, and sessions with their end, restart and errors.

use crate::client::{EventStream, LEGACY, LegacyClient, MODERN, call, initialize, request, text_of};
use crate::test_gateway::{TestGateway, at, demo};
use futures_util::future::join_all;
use gripfast_testkit::wait::within;
use http::Method;
use serde_json::json;
use std::collections::HashSet;

#[tokio::test]
async fn a_known_version_is_accepted_and_others_get_the_newest_legacy_one() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY] {
        assert_eq!(gateway.http.initialize(version).await.message()["result"]["protocolVersion"], version);
    }
    for unknown in ["1999-01-01", MODERN, "2099-01-01", "nonsense"] {
        let hello = gateway.http.initialize(unknown).await;
        assert_eq!(hello.status, 200);
        assert_eq!(hello.message()["result"]["protocolVersion"], LEGACY, "{unknown}");
    }
}

#[tokio::test]
async fn initialize_returns_server_info_capabilities_and_instructions() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let hello = gateway.http.initialize(LEGACY).await;
    assert!(hello.headers["mcp-session-id"].to_str().unwrap().is_ascii());
    let hello = hello.message();
    let result = &hello["result"];
    assert_eq!(result["serverInfo"]["name"], "gripfast");
    let served = json!({
        "tools": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true },
        "prompts": { "listChanged": true },
        "completions": {},
        "logging": {},
    });
    assert_eq!(result["capabilities"], served);
    assert!(result["instructions"].as_str().unwrap().contains("sample server"), "{hello}");
    for modern in ["resultType", "ttlMs", "cacheScope", "_meta"] {
        assert!(result.get(modern).is_none(), "{hello}");
    }
}

#[tokio::test]
async fn a_ping_is_answered_by_the_gateway_itself() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    gateway.host.stop("demo").unwrap();
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn a_request_without_a_session_is_a_400_and_with_an_unknown_one_a_404() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let list = request(1, "tools/list", &json!({})).to_string();
    assert_eq!(gateway.http.post(&[], list.clone()).await.status, 400);
    assert_eq!(gateway.http.send(Method::GET, "/mcp", &[], "").await.status, 400);
    assert_eq!(gateway.http.send(Method::DELETE, "/mcp", &[], "").await.status, 400);
    let mut tampered = client.session.clone().into_bytes();
    let middle = tampered.len() / 2;
    tampered[middle] = if tampered[middle] == b'A' { b'B' } else { b'A' };
    let tampered = String::from_utf8(tampered).unwrap();
    for session in ["made-up", "", &*tampered] {
        let headers = [("mcp-session-id", session)];
        assert_eq!(gateway.http.post(&headers, list.clone()).await.status, 404, "{session}");
        assert_eq!(gateway.http.send(Method::GET, "/mcp", &headers, "").await.status, 404, "{session}");
        assert_eq!(gateway.http.send(Method::DELETE, "/mcp", &headers, "").await.status, 404, "{session}");
    }
}

#[tokio::test]
async fn a_session_that_its_client_deleted_is_gone_and_its_stream_ends() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (client, other) =
        (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    let mut stream = client.open_stream(None).await;
    let headers = [("mcp-session-id", &*client.session)];
    assert_eq!(gateway.http.send(Method::DELETE, "/mcp", &headers, "").await.status, 200);
    assert!(stream.next().await.is_none());
    assert_eq!(client.post(&request(1, "ping", &json!({}))).await.status, 404);
    assert_eq!(gateway.http.send(Method::DELETE, "/mcp", &headers, "").await.status, 404);
    assert_eq!(other.call_tool("demo__echo", json!({ "text": "still here" })).await, "still here");
}

#[tokio::test]
async fn a_session_survives_a_restart_of_the_gateway_without_a_new_handshake() {
    let demo = demo().await;
    let config = at("demo", &demo.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    assert_eq!(client.call_tool("demo__echo", json!({ "text": "before" })).await, "before");
    let gateway = gateway.restart(&config).await;
    let client = LegacyClient::with_session(&gateway.http, &client.session);
    assert_eq!(client.call_tool("demo__echo", json!({ "text": "after" })).await, "after");
}

#[tokio::test]
async fn a_session_that_its_client_deleted_stays_gone_after_a_restart() {
    let demo = demo().await;
    let config = at("demo", &demo.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let (deleted, kept) =
        (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    let headers = [("mcp-session-id", &*deleted.session)];
    assert_eq!(gateway.http.send(Method::DELETE, "/mcp", &headers, "").await.status, 200);
    let gateway = gateway.restart(&config).await;
    let [deleted, kept] =
        [&deleted, &kept].map(|client| LegacyClient::with_session(&gateway.http, &client.session));
    assert_eq!(deleted.post(&request(1, "ping", &json!({}))).await.status, 404);
    assert_eq!(kept.post(&request(1, "ping", &json!({}))).await.status, 200);
}

#[tokio::test]
async fn after_a_restart_a_session_gets_list_changed() {
    let demo = demo().await;
    let config = at("demo", &demo.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let gateway = gateway.restart(&config).await;
    let client = LegacyClient::with_session(&gateway.http, &client.session);
    let mut stream = client.open_stream(None).await;
    assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn after_a_restart_a_session_that_names_its_last_event_hears_of_later_changes_only() {
    let demo = demo().await;
    let config = at("demo", &demo.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let mut stream = client.open_stream(None).await;
    demo.add_tool("first").await;
    let told = stream.next().await.unwrap();
    assert_eq!(told.message()["method"], "notifications/tools/list_changed");
    drop(stream);
    let gateway = gateway.restart(&config).await;
    let client = LegacyClient::with_session(&gateway.http, &client.session);
    let mut stream = client.open_stream(told.id.as_deref()).await;
    assert_eq!(stream.status, 200);
    assert!(stream.is_silent().await);
    demo.add_tool("second").await;
    assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
    assert!(stream.is_silent().await, "the other lists are the same as before the restart");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_clients_that_arrive_at_once_all_get_a_session_of_their_own() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let clients = (0..1000).map(|_| async {
        let hello = gateway.http.initialize(LEGACY).await;
        assert_eq!(hello.status, 200);
        hello.headers["mcp-session-id"].to_str().unwrap().to_owned()
    });
    let sessions = within("a thousand handshakes", join_all(clients)).await;
    assert_eq!(sessions.iter().collect::<HashSet<_>>().len(), 1000);
    // All sessions share one handshake with the server.
    assert_eq!(demo.initializes(), 1);
    let last = LegacyClient::with_session(&gateway.http, &sessions[999]);
    assert_eq!(last.call_tool("demo__echo", json!({ "text": "me too" })).await, "me too");
}

#[tokio::test]
async fn an_http_sse_client_gets_its_pending_answer_at_shutdown() {
    let demo = demo().await;
    let mut gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let mut stream = EventStream::of(gateway.http.begin(Method::GET, "/sse", &[], "").await);
    let path = stream.next().await.unwrap().data;
    let mut slow = call("demo__sleep", json!({ "ms": 1500 }));
    slow["_meta"] = json!({ "progressToken": 1 });
    for message in [initialize("2024-11-05"), request("slow", "tools/call", &slow)] {
        assert_eq!(gateway.http.send(Method::POST, &path, &[], message.to_string()).await.status, 202);
    }
    while stream.message().await["method"] != "notifications/progress" {}
    gateway.shut_down();
    let answer = loop {
        let message = stream.message().await;
        if message["id"] == "slow" {
            break message;
        }
    };
    assert_eq!(text_of(&answer), "slept 1500 ms");
    assert!(stream.next().await.is_none(), "and then it is over");
}

#[tokio::test]
async fn an_unknown_method_is_an_error_and_not_a_lost_session() {
    let (one, two) = (demo().await, demo().await);
    let config = at("one", &one.url(), "legacy", &[]) + &at("two", &two.url(), "modern", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    for method in ["no/such/method", "subscriptions/listen", "initialise"] {
        let answered = client.post(&request(7, method, &json!({}))).await;
        assert_eq!(answered.refusal(), (200, -32601), "{method}");
    }
}

#[tokio::test]
async fn modern_methods_of_a_legacy_client_are_refused() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "modern", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let answered = client.post(&request(7, "subscriptions/listen", &json!({ "notifications": {} }))).await;
    assert_eq!(answered.refusal(), (200, -32601));
}

#[tokio::test]
async fn an_unknown_protocol_version_in_the_header_is_a_400() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let ping = request(1, "ping", &json!({})).to_string();
    let with = |version| [("mcp-session-id", &*client.session), ("mcp-protocol-version", version)];
    assert_eq!(gateway.http.post(&with(LEGACY), ping.clone()).await.status, 200);
    assert_eq!(gateway.http.post(&with("1999-01-01"), ping).await.status, 400);
}

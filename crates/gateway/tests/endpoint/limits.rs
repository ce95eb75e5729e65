//! Limits of one client and of all clients: a request over a limit gets a status, `Retry-After` and an error code, and
//! released capacity can be used again.

use crate::client::{EventStream, HttpResponse, LEGACY, LegacyClient, ModernClient, call, request};
use crate::test_gateway::{TestGateway, at, demo};
use http::Method;
use serde_json::{Value, json};

/// Checks the answer to a request over a limit.
fn assert_overloaded(answered: &HttpResponse, status: u16) {
    assert_eq!(answered.status, status, "{answered:?}");
    assert_eq!(answered.headers["retry-after"], "1");
    let error = &answered.message()["error"];
    assert_eq!(error["code"], -32603, "{error}");
    assert_eq!(
        (&error["data"]["code"], &error["data"]["outcome"]),
        (&json!("overloaded"), &json!("not_sent"))
    );
    assert_eq!(error["data"]["retry_after_ms"], 1000);
    assert!(error["message"].as_str().unwrap().contains("too many"), "{error}");
}

fn limited(url: &str, limits: &str) -> String {
    format!("[gateway]\nlimits = {{ {limits} }}\n\n{}", at("demo", url, "legacy", &[]))
}

/// Long call that sends progress at once.
fn slow() -> Value {
    let mut call = call("demo__sleep", json!({ "ms": 60_000 }));
    call["_meta"] = json!({ "progressToken": 1 });
    call
}

#[tokio::test]
async fn requests_over_a_clients_limit_are_refused_until_others_end() {
    let demo = demo().await;
    let gateway = TestGateway::with(&limited(&demo.url(), "in_flight_per_client = 3")).await;
    let (legacy, modern) = (LegacyClient::connect(&gateway.http).await, ModernClient::new(&gateway.http));
    let mut first = legacy.start_request("a", "tools/call", slow()).await;
    first.message().await;
    let mut second = legacy.start_request("b", "tools/call", slow()).await;
    second.message().await;
    let mut third = modern.start_request("c", "tools/call", slow()).await;
    third.message().await;
    let refused = legacy.post(&request("d", "ping", &json!({}))).await;
    assert_overloaded(&refused, 429);
    assert_eq!(refused.message()["id"], "d");
    assert_overloaded(&modern.send_request("tools/list", json!({})).await, 429);
    assert_eq!(gateway.clients().await.in_flight, 3);
    legacy.cancel("a").await;
    gateway.until_clients("the end of the cancelled call", |clients| clients.in_flight == 2).await;
    assert_eq!(legacy.request("ping", json!({})).await["result"], json!({}));
    drop(third);
    gateway.until_clients("the end of the abandoned call", |clients| clients.in_flight == 1).await;
}

#[tokio::test]
async fn a_batch_member_over_the_limit_has_its_own_error() {
    let demo = demo().await;
    let gateway = TestGateway::with(&limited(&demo.url(), "in_flight_per_client = 2")).await;
    let client = LegacyClient::connect_with_version(&gateway.http, "2025-03-26").await;
    let batch: Vec<_> = (0..4).map(|id| request(id, "tools/list", &json!({}))).collect();
    let answers = client.post(&json!(batch)).await.message();
    let refused =
        answers.as_array().unwrap().iter().filter(|one| one["error"]["data"]["code"] == "overloaded");
    assert_eq!((answers.as_array().unwrap().len(), refused.count()), (4, 2), "{answers}");
    assert_eq!(gateway.clients().await.in_flight, 0);
}

#[tokio::test]
async fn requests_over_the_limit_of_all_clients_are_a_503() {
    let demo = demo().await;
    let gateway = TestGateway::with(&limited(&demo.url(), "in_flight = 1")).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let mut first = client.start_request("a", "tools/call", slow()).await;
    first.message().await;
    assert_overloaded(&client.post(&request("b", "ping", &json!({}))).await, 503);
}

#[tokio::test]
async fn connections_over_the_limit_get_an_answer_and_are_closed() {
    let demo = demo().await;
    let gateway = TestGateway::with(&limited(&demo.url(), "connections_per_client = 2")).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let open = [client.open_stream(None).await, client.open_stream(None).await];
    let refused = gateway.http.send(Method::GET, "/healthz", &[], "").await;
    assert_eq!((refused.status, &refused.headers["retry-after"]), (503, &"1".parse().unwrap()));
    assert!(refused.text.contains("too many connections"), "{refused:?}");
    drop(open);
    gripfast_testkit::wait::within("room for another", async {
        while gateway.http.send(Method::GET, "/healthz", &[], "").await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Numbers of refused and accepted requests among twenty.
async fn hurried(
    gateway: &TestGateway,
    path: &str,
    headers: &[(&str, &str)],
    message: &Value,
) -> (usize, usize) {
    let all = (0..20).map(|_| {
        let method = if message.is_null() { Method::GET } else { Method::POST };
        let body = if message.is_null() { String::new() } else { message.to_string() };
        gateway.http.send(method, path, headers, body)
    });
    let all = futures_util::future::join_all(all).await;
    let (refused, others): (Vec<_>, Vec<_>) = all.iter().partition(|answered| answered.status == 429);
    for answered in &refused {
        assert_eq!(answered.headers["retry-after"], "1");
        if path.starts_with("/api/") {
            assert_eq!(answered.message()["error"]["code"], "overloaded", "{answered:?}");
        } else {
            assert_eq!(answered.message()["error"]["data"]["code"], "overloaded", "{answered:?}");
        }
    }
    (refused.len(), others.len())
}

#[tokio::test]
async fn g05_the_request_rate_is_limited_by_principal_or_by_address() {
    let demo = demo().await;
    let settings = "[gateway]\nauth = { keys = true }\nlimits = { requests = 1 }\n\n";
    let gateway = TestGateway::with(&format!("{settings}{}", at("demo", &demo.url(), "legacy", &[]))).await;
    let key =
        |name| format!("Bearer {}", gripfast_gateway::auth::keys::add(gateway.state_dir(), name).unwrap());
    let (alice, bob) = (key("alice"), key("bob"));
    let hello = crate::client::initialize(LEGACY);
    // All come from one address. Requests with a key count for the key only, others for the address only.
    for (path, shown, message) in [
        ("/mcp", "Bearer gfk_made-up", &hello),
        ("/sse", "", &Value::Null),
        ("/api/v1/status", "", &Value::Null),
        ("/mcp", &*alice, &hello),
    ] {
        let (refused, _) = hurried(&gateway, path, &[("authorization", shown)], message).await;
        assert!(refused > 0, "{path} {shown}");
    }
    let answered = gateway.http.post(&[("authorization", &bob)], hello.to_string()).await;
    assert_eq!(answered.status, 200, "neither the address nor another principal keeps him out: {answered:?}");
    let token = std::fs::read_to_string(gateway.state_dir().join(gripfast_gateway::api::TOKEN_FILE)).unwrap();
    let by_token = [("authorization", &*format!("Bearer {}", token.trim()))];
    assert_eq!(gateway.http.send(Method::GET, "/api/v1/status", &by_token, "").await.status, 200);
    let (refused, _) = hurried(&gateway, "/healthz", &[], &Value::Null).await;
    assert_eq!(refused, 0, "health is always told");
}

#[tokio::test]
async fn each_message_of_a_batch_counts_as_a_request() {
    let demo = demo().await;
    let gateway = TestGateway::with(&limited(&demo.url(), "requests = 100")).await;
    let client = LegacyClient::connect_with_version(&gateway.http, "2025-03-26").await;
    let batch = json!((0..90).map(|id| request(id, "ping", &json!({}))).collect::<Vec<_>>());
    let all = futures_util::future::join_all((0..6).map(|_| client.post(&batch))).await;
    let refused: Vec<_> = all.iter().filter(|answered| answered.status == 429).collect();
    assert!(!refused.is_empty() && refused.len() < 6, "{} of 6", refused.len());
    assert_eq!(refused[0].message()["error"]["data"]["code"], "overloaded");
}

#[tokio::test]
async fn each_message_of_a_batch_on_an_old_event_stream_counts_as_a_request() {
    let demo = demo().await;
    let gateway = TestGateway::with(&limited(&demo.url(), "requests = 100")).await;
    let mut stream = EventStream::of(gateway.http.begin(Method::GET, "/sse", &[], "").await);
    let path = stream.next().await.unwrap().data;
    let send = async |message: Value| {
        let headers = [("content-type", "application/json")];
        gateway.http.send(Method::POST, &path, &headers, message.to_string()).await
    };
    assert_eq!(send(crate::client::initialize("2025-03-26")).await.status, 202);
    assert!(stream.next().await.unwrap().message()["result"].is_object());
    for round in 0..6 {
        send(json!((0..90).map(|id| request(id, "ping", &json!({}))).collect::<Vec<_>>())).await;
        let answer = stream.next().await.unwrap().message();
        if answer["error"]["data"]["code"] == "overloaded" {
            assert!(round > 0, "the first one fits");
            return;
        }
        assert_eq!(answer.as_array().map(Vec::len), Some(90), "{answer}");
    }
    panic!("540 messages within a moment, and none was refused");
}

#[tokio::test]
async fn without_auth_there_is_no_rate_limit_unless_the_config_sets_one() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let hello = crate::client::initialize(LEGACY);
    assert_eq!(hurried(&gateway, "/mcp", &[], &hello).await, (0, 20));
    let gateway = TestGateway::with(&limited(&demo.url(), "requests = 1")).await;
    let (refused, let_in) = hurried(&gateway, "/mcp", &[], &hello).await;
    assert!(refused > 0 && let_in > 0, "{refused} {let_in}");
}

#[tokio::test]
async fn a_client_may_have_sixteen_streams_open_in_a_session() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (client, other) =
        (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(client.open_stream(None).await);
        assert_eq!(open.last().unwrap().status, 200);
    }
    let headers = [("mcp-session-id", &*client.session)];
    assert_overloaded(&gateway.http.send(Method::GET, "/mcp", &headers, "").await, 429);
    assert_eq!(other.open_stream(None).await.status, 200, "others have their own");
    open.pop();
    gateway.until_clients("the end of a stream", |clients| clients.connections <= 16).await;
    assert_eq!(client.open_stream(None).await.status, 200);
}

#[tokio::test]
async fn a_client_with_five_thousand_sessions_evicts_only_its_own_idle_ones() {
    let demo = demo().await;
    let gateway = TestGateway::with(&limited(&demo.url(), "sessions_per_client = 100")).await;
    let (first, used) =
        (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    let mut stream = used.open_stream(None).await;
    for _ in 0..5000 {
        assert_eq!(gateway.http.initialize(LEGACY).await.status, 200);
    }
    assert!(gateway.clients().await.sessions <= 100);
    demo.add_tool("new").await;
    assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
    // The first session was evicted long ago; its id contains all that is needed to restore it.
    assert_eq!(first.call_tool("demo__echo", json!({ "text": "still known" })).await, "still known");
}

#[tokio::test]
async fn where_all_sessions_are_in_use_a_new_one_is_refused() {
    let demo = demo().await;
    let gateway = TestGateway::with(&limited(&demo.url(), "sessions_per_client = 2")).await;
    let (one, two) = (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    let streams = (one.open_stream(None).await, two.open_stream(None).await);
    assert_overloaded(&gateway.http.initialize(LEGACY).await, 429);
    drop(streams.0);
    gateway.until_clients("the end of a stream", |clients| clients.connections <= 1).await;
    assert_eq!(gateway.http.initialize(LEGACY).await.status, 200);
    assert_eq!(gateway.clients().await.sessions, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_http_sse_clients_are_served_and_the_next_must_retry_later() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let mut open = Vec::new();
    for _ in 0..1000 {
        let mut stream = EventStream::of(gateway.http.begin(Method::GET, "/sse", &[], "").await);
        assert_eq!(stream.next().await.unwrap().kind.as_deref(), Some("endpoint"));
        open.push(stream);
    }
    assert_overloaded(&gateway.http.send(Method::GET, "/sse", &[], "").await, 429);
    drop(open);
    gateway.until_clients("their end", |clients| clients.connections < 10).await;
    assert_eq!(EventStream::of(gateway.http.begin(Method::GET, "/sse", &[], "").await).status, 200);
}

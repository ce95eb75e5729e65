//! What one client, and all of them, may have at a time, and what they are told beyond it: a status, when to
//! try again, and a code. Whoever gives something back can have it again.

use crate::client::{Answered, Events, LEGACY, Legacy, Modern, call, request};
use crate::scene::{Scene, at, demo};
use http::Method;
use serde_json::{Value, json};

/// What is said beyond a limit.
fn assert_overloaded(answered: &Answered, status: u16) {
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

/// A call that takes long and says so at once.
fn slow() -> Value {
    let mut call = call("demo__sleep", json!({ "ms": 60_000 }));
    call["_meta"] = json!({ "progressToken": 1 });
    call
}

#[tokio::test]
async fn requests_beyond_the_limit_of_a_client_are_refused_in_both_eras_and_let_in_when_others_end() {
    let demo = demo().await;
    let scene = Scene::with(&limited(&demo.url(), "in_flight_per_client = 3")).await;
    let (legacy, modern) = (Legacy::meets(&scene.http).await, Modern::of(&scene.http));
    let mut first = legacy.begins("a", "tools/call", slow()).await;
    first.message().await;
    let mut second = legacy.begins("b", "tools/call", slow()).await;
    second.message().await;
    let mut third = modern.begins("c", "tools/call", slow()).await;
    third.message().await;
    let refused = legacy.post(&request("d", "ping", &json!({}))).await;
    assert_overloaded(&refused, 429);
    assert_eq!(refused.message()["id"], "d");
    assert_overloaded(&modern.sends("tools/list", json!({})).await, 429);
    assert_eq!(scene.clients().await.in_flight, 3);
    legacy.cancels("a").await;
    scene.until_clients("the end of the cancelled call", |clients| clients.in_flight == 2).await;
    assert_eq!(legacy.asks("ping", json!({})).await["result"], json!({}));
    drop(third);
    scene.until_clients("the end of the abandoned call", |clients| clients.in_flight == 1).await;
}

#[tokio::test]
async fn a_member_of_a_batch_beyond_the_limit_has_an_error_of_its_own() {
    let demo = demo().await;
    let scene = Scene::with(&limited(&demo.url(), "in_flight_per_client = 2")).await;
    let client = Legacy::speaks(&scene.http, "2025-03-26").await;
    let batch: Vec<_> = (0..4).map(|id| request(id, "tools/list", &json!({}))).collect();
    let answers = client.post(&json!(batch)).await.message();
    let refused =
        answers.as_array().unwrap().iter().filter(|one| one["error"]["data"]["code"] == "overloaded");
    assert_eq!((answers.as_array().unwrap().len(), refused.count()), (4, 2), "{answers}");
    assert_eq!(scene.clients().await.in_flight, 0);
}

#[tokio::test]
async fn requests_beyond_the_limit_of_all_clients_are_a_503() {
    let demo = demo().await;
    let scene = Scene::with(&limited(&demo.url(), "in_flight = 1")).await;
    let client = Legacy::meets(&scene.http).await;
    let mut first = client.begins("a", "tools/call", slow()).await;
    first.message().await;
    assert_overloaded(&client.post(&request("b", "ping", &json!({}))).await, 503);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_told_and_closed() {
    let demo = demo().await;
    let scene = Scene::with(&limited(&demo.url(), "connections_per_client = 2")).await;
    let client = Legacy::meets(&scene.http).await;
    let open = [client.listens(None).await, client.listens(None).await];
    let refused = scene.http.send(Method::GET, "/healthz", &[], "").await;
    assert_eq!((refused.status, &refused.headers["retry-after"]), (503, &"1".parse().unwrap()));
    assert!(refused.text.contains("too many connections"), "{refused:?}");
    drop(open);
    crate::scene::within("room for another", async {
        while scene.http.send(Method::GET, "/healthz", &[], "").await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// How many of twenty requests are refused because of their rate, and how many are not.
async fn hurried(scene: &Scene, path: &str, headers: &[(&str, &str)], message: &Value) -> (usize, usize) {
    let all = (0..20).map(|_| {
        let method = if message.is_null() { Method::GET } else { Method::POST };
        let body = if message.is_null() { String::new() } else { message.to_string() };
        scene.http.send(method, path, headers, body)
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
async fn g05_requests_beyond_the_rate_are_refused_by_principal_and_by_address_without_a_credential() {
    let demo = demo().await;
    let gateway = "[gateway]\nauth = { keys = true }\nlimits = { requests = 1 }\n\n";
    let scene = Scene::with(&format!("{gateway}{}", at("demo", &demo.url(), "legacy", &[]))).await;
    let key =
        |name| format!("Bearer {}", gripfast_gateway::auth::keys::add(scene.state_dir(), name).unwrap());
    let (alice, bob) = (key("alice"), key("bob"));
    let hello = crate::client::initialize(LEGACY);
    // All come from one address. Each way uses up what it counts for, and nothing else.
    for (path, shown, message) in [
        ("/mcp", "Bearer gfk_made-up", &hello),
        ("/sse", "", &Value::Null),
        ("/api/v1/status", "", &Value::Null),
        ("/mcp", &*alice, &hello),
    ] {
        let (refused, _) = hurried(&scene, path, &[("authorization", shown)], message).await;
        assert!(refused > 0, "{path} {shown}");
    }
    let answered = scene.http.post(&[("authorization", &bob)], hello.to_string()).await;
    assert_eq!(answered.status, 200, "neither the address nor another principal keeps him out: {answered:?}");
    let token = std::fs::read_to_string(scene.state_dir().join(gripfast_gateway::admin::TOKEN_FILE)).unwrap();
    let by_token = [("authorization", &*format!("Bearer {}", token.trim()))];
    assert_eq!(scene.http.send(Method::GET, "/api/v1/status", &by_token, "").await.status, 200);
    let (refused, _) = hurried(&scene, "/healthz", &[], &Value::Null).await;
    assert_eq!(refused, 0, "health is always told");
}

#[tokio::test]
async fn each_message_of_a_batch_counts_as_a_request() {
    let demo = demo().await;
    let scene = Scene::with(&limited(&demo.url(), "requests = 100")).await;
    let client = Legacy::speaks(&scene.http, "2025-03-26").await;
    let batch = json!((0..90).map(|id| request(id, "ping", &json!({}))).collect::<Vec<_>>());
    let all = futures_util::future::join_all((0..6).map(|_| client.post(&batch))).await;
    let refused: Vec<_> = all.iter().filter(|answered| answered.status == 429).collect();
    assert!(!refused.is_empty() && refused.len() < 6, "{} of 6", refused.len());
    assert_eq!(refused[0].message()["error"]["data"]["code"], "overloaded");
}

#[tokio::test]
async fn each_message_of_a_batch_on_an_old_event_stream_counts_as_a_request() {
    let demo = demo().await;
    let scene = Scene::with(&limited(&demo.url(), "requests = 100")).await;
    let mut stream = Events::of(scene.http.begin(Method::GET, "/sse", &[], "").await);
    let path = stream.next().await.unwrap().data;
    let send = async |message: Value| {
        let headers = [("content-type", "application/json")];
        scene.http.send(Method::POST, &path, &headers, message.to_string()).await
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
async fn without_auth_requests_have_no_rate_unless_the_config_sets_one() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let hello = crate::client::initialize(LEGACY);
    assert_eq!(hurried(&scene, "/mcp", &[], &hello).await, (0, 20));
    let scene = Scene::with(&limited(&demo.url(), "requests = 1")).await;
    let (refused, let_in) = hurried(&scene, "/mcp", &[], &hello).await;
    assert!(refused > 0 && let_in > 0, "{refused} {let_in}");
}

#[tokio::test]
async fn a_client_may_have_sixteen_streams_open_in_a_session() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (client, other) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(client.listens(None).await);
        assert_eq!(open.last().unwrap().status, 200);
    }
    let headers = [("mcp-session-id", &*client.session)];
    assert_overloaded(&scene.http.send(Method::GET, "/mcp", &headers, "").await, 429);
    assert_eq!(other.listens(None).await.status, 200, "others have their own");
    open.pop();
    scene.until_clients("the end of a stream", |clients| clients.connections <= 16).await;
    assert_eq!(client.listens(None).await.status, 200);
}

#[tokio::test]
async fn a_client_that_opens_five_thousand_sessions_makes_room_itself_and_loses_none_that_it_uses() {
    let demo = demo().await;
    let scene = Scene::with(&limited(&demo.url(), "sessions_per_client = 100")).await;
    let (first, used) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
    let mut stream = used.listens(None).await;
    for _ in 0..5000 {
        assert_eq!(scene.http.initialize(LEGACY).await.status, 200);
    }
    assert!(scene.clients().await.sessions <= 100);
    demo.add_tool("new").await;
    assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
    // The first one had to make room long ago; its id says all that is needed.
    assert_eq!(first.calls("demo__echo", json!({ "text": "still known" })).await, "still known");
}

#[tokio::test]
async fn where_all_sessions_are_in_use_a_new_one_is_refused() {
    let demo = demo().await;
    let scene = Scene::with(&limited(&demo.url(), "sessions_per_client = 2")).await;
    let (one, two) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
    let streams = (one.listens(None).await, two.listens(None).await);
    assert_overloaded(&scene.http.initialize(LEGACY).await, 429);
    drop(streams.0);
    scene.until_clients("the end of a stream", |clients| clients.connections <= 1).await;
    assert_eq!(scene.http.initialize(LEGACY).await.status, 200);
    assert_eq!(scene.clients().await.sessions, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_clients_of_the_oldest_http_are_served_and_the_next_is_told_to_wait() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let mut open = Vec::new();
    for _ in 0..1000 {
        let mut stream = Events::of(scene.http.begin(Method::GET, "/sse", &[], "").await);
        assert_eq!(stream.next().await.unwrap().kind.as_deref(), Some("endpoint"));
        open.push(stream);
    }
    assert_overloaded(&scene.http.send(Method::GET, "/sse", &[], "").await, 429);
    drop(open);
    scene.until_clients("their end", |clients| clients.connections < 10).await;
    assert_eq!(Events::of(scene.http.begin(Method::GET, "/sse", &[], "").await).status, 200);
}

//! Streamable HTTP of the legacy era: sessions, streams, and their faults.

use std::{net::SocketAddr, time::Duration};

use crate::client::{Response, get, post, send};
use crate::messages::{initialize, modern};
use gripfast_demo::{
    EraChoice, Faults, Options, Refusal, RefusalDuration, RunningServer, SessionExpiry, start_http,
};
use serde_json::{Value, json};

#[tokio::test]
async fn a_session_is_opened_used_and_deleted() {
    let server = start(Options::default()).await;
    let session = Session::open(&server).await;
    assert_eq!(session.notify("notifications/initialized", json!({})).await.status, 202);
    let echo = session.call(1, "echo", json!({"text": "hi"})).await.json().await;
    assert_eq!(echo["result"]["content"][0]["text"], "hi");
    let unknown = session.ask(2, "nonesuch", json!({})).await;
    assert_eq!(unknown.status, 200, "404 would mean a dead session");
    assert_eq!(unknown.json().await["error"]["code"], -32601);

    let gone = send(server.addr(), "DELETE", "/mcp", &session.headers(), "").await.unwrap();
    assert_eq!(gone.status, 200);
    assert_eq!(session.call(3, "echo", json!({"text": "hi"})).await.status, 404);
    assert_eq!((server.calls(), server.initializes(), server.sessions()), (1, 1, 0));
    server.stop().await;
}

#[tokio::test]
async fn an_expired_session_is_refused_in_the_configured_form() {
    let server = start(Options::default()).await;
    let forms = [
        (SessionExpiry::NotFound, 404, "Session not found"),
        (SessionExpiry::NotFoundText, 404, "Not Found: Session not found"),
        (SessionExpiry::BadRequestWithoutId, 400, "No valid session ID provided"),
        (SessionExpiry::BadRequestServerError, 400, "server-error"),
        (SessionExpiry::BadRequestText, 400, "Invalid or expired session"),
        (SessionExpiry::OkWithError, 200, "Session not found"),
    ];
    for (session_expiry, status, words) in forms {
        server.set_faults(Faults { session_expiry, ..Faults::default() });
        let session = Session::open(&server).await;
        server.forget_sessions();
        let refused = session.call(7, "counter", json!({})).await;
        assert_eq!(refused.status, status, "{session_expiry:?}");
        let text = refused.text().await;
        assert!(text.contains(words), "{session_expiry:?}: {text}");
        let id = serde_json::from_str::<Value>(&text).ok().map(|body| body.get("id").cloned());
        match session_expiry {
            SessionExpiry::BadRequestWithoutId => assert_eq!(id, Some(None)),
            SessionExpiry::OkWithError => assert_eq!(id, Some(Some(json!(7)))),
            _ => {}
        }
        let stream = get(server.addr(), "/mcp", &session.headers()).await;
        assert_eq!(stream.status, status, "GET is refused like POST");
    }
    assert_eq!(server.counter(), 0, "a refused call has no effect");
}

#[tokio::test]
async fn sessions_expire_after_a_number_of_requests() {
    let faults = Faults { session_requests: Some(2), ..Faults::default() };
    let server = start(Options { faults, ..Options::default() }).await;
    let session = Session::open(&server).await;
    assert_eq!(session.notify("notifications/initialized", json!({})).await.status, 202);
    assert_eq!(session.ask(1, "ping", json!({})).await.status, 200);
    assert_eq!(session.ask(2, "ping", json!({})).await.status, 200);
    assert_eq!(session.ask(3, "ping", json!({})).await.status, 404);
}

#[tokio::test]
async fn a_slow_call_does_not_block_an_echo() {
    let server = start(Options::default()).await;
    let session = Session::open(&server).await;
    let hanging = session.call(1, "misbehave", json!({"how": "hang"}));
    let echo = session.call(2, "echo", json!({"text": "quick"}));
    tokio::select! {
        _ = hanging => panic!("it never answers"),
        echo = echo => assert_eq!(echo.json().await["id"], 2),
    }
}

#[tokio::test]
async fn a_changed_list_is_announced_on_the_get_stream() {
    let server = start(Options::default()).await;
    let session = Session::open(&server).await;
    let mut stream = get(server.addr(), "/mcp", &session.headers()).await;
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    let priming = stream.event().await.unwrap();
    assert_eq!((priming.data.as_str(), priming.id.is_some()), ("", true));
    server.add_tool("fresh").await;
    let changed = stream.event().await.unwrap();
    assert!(changed.data.contains("notifications/tools/list_changed"));

    // Changes without a reader are delivered to the next one, with or without an event id.
    drop(stream);
    assert!(server.remove_tool("fresh").await);
    let mut headers = session.headers();
    let last = changed.id.unwrap();
    headers.push(("Last-Event-ID", &last));
    let mut resumed = get(server.addr(), "/mcp", &headers).await;
    assert_eq!(resumed.message().await.unwrap()["method"], "notifications/tools/list_changed");

    server.forget_sessions();
    assert!(resumed.message().await.is_none(), "the stream ends with its session");
}

#[tokio::test]
async fn a_broken_answer_stream_can_be_resumed() {
    let server = start(Options { sse_answers: true, ..Options::default() }).await;
    let session = Session::open(&server).await;
    let mut answer = session.call(1, "ask", json!({})).await;
    let priming = answer.event().await.unwrap();
    let question = answer.message().await.unwrap();
    drop(answer);

    // A closed connection does not cancel: the call continues and its answer waits in the stream.
    let yes = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"ok": true}}});
    assert_eq!(post(server.addr(), "/mcp", &session.headers(), &yes).await.status, 202);
    let mut headers = session.headers();
    let last = priming.id.unwrap();
    headers.push(("Last-Event-ID", &last));
    let mut resumed = get(server.addr(), "/mcp", &headers).await;
    assert_eq!(resumed.message().await.unwrap()["method"], "elicitation/create", "from the priming event on");
    let done = resumed.message().await.unwrap();
    assert_eq!(done["result"]["content"][0]["text"], "the answer was yes");
    assert!(resumed.message().await.is_none(), "with the answer the stream is over");
}

#[tokio::test]
async fn cancelling_ends_the_stream_without_an_answer() {
    let server = start(Options { sse_answers: true, ..Options::default() }).await;
    let session = Session::open(&server).await;
    let mut answer = session.call(1, "misbehave", json!({"how": "hang"})).await;
    assert_eq!(session.notify("notifications/cancelled", json!({"requestId": 1})).await.status, 202);
    assert!(answer.message().await.is_none());
}

#[tokio::test]
async fn an_answer_can_be_cut_reset_or_lost() {
    let server = start(Options::default()).await;
    let session = Session::open(&server).await;
    let (rest, in_order) = session.call(1, "misbehave", json!({"how": "cut_sse"})).await.rest().await;
    let last = rest.lines().last().unwrap_or_default();
    assert!(in_order && last.starts_with("data: {"), "{rest}");
    assert!(!rest.ends_with('\n'), "the event has no end: {rest}");

    let (_, in_order) = session.call(2, "misbehave", json!({"how": "reset"})).await.rest().await;
    assert!(!in_order);

    let body = request(3, "tools/call", json!({"name": "crash", "arguments": {}})).to_string();
    let mut headers = session.headers();
    headers.extend([("Accept", "application/json, text/event-stream"), ("Content-Type", "application/json")]);
    assert!(send(server.addr(), "POST", "/mcp", &headers, &body).await.is_none(), "not even a status");
    assert_eq!(session.ask(4, "ping", json!({})).await.status, 200, "the server itself lives on");
}

#[tokio::test]
async fn the_pieces_of_a_slow_answer_are_complete() {
    let server = start(Options::default()).await;
    let session = Session::open(&server).await;
    let mut drip = session.call(1, "misbehave", json!({"how": "slow_drip", "ms": 1})).await;
    assert_eq!(drip.message().await.unwrap()["id"], 1);
}

#[tokio::test]
async fn a_stalled_server_answers_when_it_is_resumed() {
    let server = start(Options::default()).await;
    let session = Session::open(&server).await;
    server.stall();
    let mut ping = Box::pin(session.ask(1, "ping", json!({})));
    let waited = tokio::time::timeout(Duration::from_millis(50), &mut ping).await;
    assert!(waited.is_err(), "nothing comes back");
    server.resume();
    assert_eq!(ping.await.status, 200);
}

#[tokio::test]
async fn a_refusal_ends_after_its_number_of_requests() {
    let refuse = Some(Refusal { status: 429, lasts: RefusalDuration::Requests(2) });
    let retry_after = Some(Duration::from_secs(7));
    let server = start(Options::default()).await;
    let session = Session::open(&server).await;
    server.set_faults(Faults { refuse, retry_after, ..Faults::default() });
    for _ in 0..2 {
        let refused = session.ask(1, "ping", json!({})).await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("7")));
    }
    assert_eq!(session.ask(1, "ping", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_token_is_required_with_and_without_a_challenge() {
    let require_bearer = Some("s3cret".to_owned());
    let server = start(Options::default()).await;
    let session = Session::open(&server).await;
    server.set_faults(Faults { require_bearer: require_bearer.clone(), ..Faults::default() });
    let refused = session.ask(1, "ping", json!({})).await;
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")));
    let mut headers = session.headers();
    headers.push(("Authorization", "Bearer s3cret"));
    assert_eq!(post(server.addr(), "/mcp", &headers, &request(1, "ping", json!({}))).await.status, 200);

    server.set_faults(Faults { require_bearer, bare_unauthorized: true, ..Faults::default() });
    let bare = session.ask(1, "ping", json!({})).await;
    assert_eq!((bare.status, bare.header("www-authenticate")), (401, None));
}

#[tokio::test]
async fn a_call_can_enable_a_refusal_or_require_a_token() {
    let server = start(Options::default()).await;
    let session = Session::open(&server).await;
    let token = json!({"how": "demand_token", "name": "s3cret"});
    assert_eq!(session.call(1, "misbehave", token).await.status, 200);
    assert_eq!(session.ask(2, "ping", json!({})).await.status, 401);

    server.set_faults(Faults::default());
    let refuse = json!({"how": "refuse", "status": 429, "ms": 600_000, "retry_after": 7});
    assert_eq!(session.call(3, "misbehave", refuse).await.status, 200);
    let refused = session.ask(4, "ping", json!({})).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("7")));
    let lasts = server.faults().refuse.map(|refusal| refusal.lasts);
    assert_eq!(lasts, Some(RefusalDuration::For(Duration::from_secs(600))));
}

#[tokio::test]
async fn a_slow_counter_has_counted_before_it_answers() {
    let server = start(Options::default()).await;
    let session = Session::open(&server).await;
    let slow = session.call(1, "counter", json!({"key": "slow", "ms": 600_000}));
    let counted = async {
        while server.counter() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = slow => panic!("ten minutes are not over"),
        () = counted => assert_eq!(server.counter_keys(), ["slow"]),
    }
}

#[tokio::test]
async fn connections_are_dropped_after_they_were_accepted() {
    let faults = Faults { drop_after_accept: true, ..Faults::default() };
    let server = start(Options { faults, ..Options::default() }).await;
    assert!(send(server.addr(), "GET", "/mcp", &[], "").await.is_none());
    server.set_faults(Faults::default());
    Session::open(&server).await;
}

#[tokio::test]
async fn open_connections_can_be_reset_under_their_clients() {
    let server = start(Options::default()).await;
    let session = Session::open(&server).await;
    let stream = get(server.addr(), "/mcp", &session.headers()).await;
    server.reset_connections();
    assert!(!stream.rest().await.1);
    assert_eq!(session.ask(1, "ping", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_stopped_server_frees_its_port_and_closes_its_streams() {
    let server = start(Options::default()).await;
    let addr = server.addr();
    let session = Session::open(&server).await;
    let stream = get(addr, "/mcp", &session.headers()).await;
    server.stop().await;
    stream.rest().await;

    let again = start_http(addr, Options::default()).await.expect("the port is free");
    assert_eq!(session.ask(1, "ping", json!({})).await.status, 404, "its sessions are gone");
    again.stop().await;
}

#[tokio::test]
async fn batches_are_answered_as_arrays() {
    let server = start(Options::default()).await;
    let session = Session::open_with(&server, "2025-03-26").await;
    let batch = json!([request(1, "ping", json!({})), request(2, "ping", json!({}))]);
    let answers = post(server.addr(), "/mcp", &session.headers(), &batch).await.json().await;
    assert_eq!(answers.as_array().map(Vec::len), Some(2));
    let notes = json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]);
    assert_eq!(post(server.addr(), "/mcp", &session.headers(), &notes).await.status, 202);
    let newer = Session::open(&server).await;
    assert_eq!(post(server.addr(), "/mcp", &newer.headers(), &batch).await.status, 400);
}

#[tokio::test]
async fn a_legacy_server_does_not_know_the_modern_era() {
    let server = start(Options { era: EraChoice::Legacy, ..Options::default() }).await;
    let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "server/discover")];
    let refused = post(server.addr(), "/mcp", &headers, &modern("d", "server/discover", json!({}))).await;
    assert_eq!(refused.status, 400);
    let body = refused.json().await;
    assert_eq!((&body["error"]["code"], &body["id"]), (&json!(-32000), &Value::Null));
}

#[tokio::test]
async fn a_server_without_sessions_issues_no_id() {
    let server = start(Options { sessionless: true, ..Options::default() }).await;
    let hello = post(server.addr(), "/mcp", &[], &initialize(0, "2025-06-18")).await;
    assert_eq!((hello.status, hello.header("mcp-session-id")), (200, None));
    assert_eq!(post(server.addr(), "/mcp", &[], &request(1, "ping", json!({}))).await.status, 200);
}

#[tokio::test]
async fn pages_of_other_origins_are_refused() {
    let server = start(Options::default()).await;
    let foreign = [("Origin", "https://example.com")];
    assert_eq!(post(server.addr(), "/mcp", &foreign, &initialize(0, "2025-06-18")).await.status, 403);
}

async fn start(options: Options) -> RunningServer {
    start_http(([127, 0, 0, 1], 0).into(), options).await.expect("a free port")
}

fn request(id: i64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

struct Session {
    addr: SocketAddr,
    id: String,
    version: String,
}

impl Session {
    async fn open(server: &RunningServer) -> Self {
        Self::open_with(server, "2025-11-25").await
    }

    async fn open_with(server: &RunningServer, version: &str) -> Self {
        let hello = post(server.addr(), "/mcp", &[], &initialize(0, version)).await;
        assert_eq!(hello.status, 200);
        let id = hello.header("mcp-session-id").expect("a session id").to_owned();
        Self { addr: server.addr(), id, version: version.to_owned() }
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        vec![("Mcp-Session-Id", &self.id), ("MCP-Protocol-Version", &self.version)]
    }

    async fn ask(&self, id: i64, method: &str, params: Value) -> Response {
        post(self.addr, "/mcp", &self.headers(), &request(id, method, params)).await
    }

    async fn call(&self, id: i64, tool: &str, arguments: Value) -> Response {
        self.ask(id, "tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    async fn notify(&self, method: &str, params: Value) -> Response {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        post(self.addr, "/mcp", &self.headers(), &message).await
    }
}

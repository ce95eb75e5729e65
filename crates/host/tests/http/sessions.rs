//! Expired sessions: recognized in every form, renewed once for all callers, for every method.

use crate::http_host::{
    NAME, call, count, echo, legacy, raw, ready_host, serve, spec, status, text_of, with, within_timeout,
};
use crate::scripted_server::{
    ScriptedAction, ScriptedServer, open_ended, respond_json, respond_normally, respond_text, response,
};
use futures_util::future::join_all;
use gripfast::{CallOutcome, Code, Event};
use gripfast_demo::{Faults, SessionExpiry};
use gripfast_testkit::wait::until;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const FORMS: [SessionExpiry; 6] = [
    SessionExpiry::NotFound,
    SessionExpiry::NotFoundText,
    SessionExpiry::BadRequestWithoutId,
    SessionExpiry::BadRequestServerError,
    SessionExpiry::BadRequestText,
    SessionExpiry::OkWithError,
];

fn forgetting_like(form: SessionExpiry) -> gripfast_demo::Options {
    with(Faults { session_expiry: form, ..Faults::default() })
}

#[tokio::test]
async fn d01_a_call_survives_every_form_of_an_expired_session() {
    for form in FORMS {
        let server = serve(forgetting_like(form)).await;
        let host = ready_host(spec(&server.url())).await;
        let mut events = host.subscribe_events();
        server.forget_sessions();
        let answer = count(&host, "once").await;
        assert_eq!(answer.as_deref(), Ok("1"), "{form:?}");
        assert_eq!(server.counter_keys(), ["once"], "{form:?}");
        assert_eq!(server.initializes(), 2, "{form:?}");
        assert!(
            std::iter::from_fn(|| events.try_recv().ok()).any(|told| told.event == Event::SessionRenewed),
            "{form:?}"
        );
    }
}

#[tokio::test]
async fn d02_fifty_calls_on_an_expired_session_share_one_and_run_once_each() {
    for form in FORMS {
        let server = serve(forgetting_like(form)).await;
        let host = ready_host(spec(&server.url())).await;
        server.forget_sessions();
        let keys: Vec<String> = (0..50).map(|number| format!("k{number}")).collect();
        let answers = join_all(keys.iter().map(|key| count(&host, key))).await;
        assert!(answers.iter().all(Result::is_ok), "{form:?}: {answers:?}");
        assert_eq!(server.initializes(), 2, "{form:?}: one for all");
        let executed = server.counter_keys();
        assert_eq!(executed.len(), 50, "{form:?}");
        assert_eq!(executed.iter().collect::<BTreeSet<_>>(), keys.iter().collect(), "{form:?}");
        assert_eq!(status(&host).supervision.restarts, 0, "{form:?}: the link stays");
    }
}

#[tokio::test]
async fn d02_the_new_session_is_initialized_without_the_old_id() {
    let server = serve(legacy()).await;
    let tap = ScriptedServer::in_front_of(server.addr()).await;
    let host = ready_host(spec(&tap.url())).await;
    server.forget_sessions();
    echo(&host, "hi").await.unwrap();
    let handshakes = tap.requests_for("initialize");
    assert_eq!(handshakes.len(), 2);
    assert!(handshakes.iter().all(|request| request.header("mcp-session-id").is_none()), "{handshakes:#?}");
    let calls = tap.requests_for("tools/call");
    let sessions: Vec<_> = calls.iter().map(|request| request.header("mcp-session-id").unwrap()).collect();
    assert_eq!(sessions.len(), 2, "refused once, sent once more");
    assert_ne!(sessions[0], sessions[1]);
}

#[tokio::test]
async fn d03_every_method_survives_an_expired_session() {
    let greeting = "demo://greeting";
    let requests: [(&str, Value); 9] = [
        ("tools/call", json!({ "name": "echo", "arguments": { "text": "hi" } })),
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/read", json!({ "uri": greeting })),
        ("resources/templates/list", json!({})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({ "name": "greet", "arguments": { "name": "Ada" } })),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "greet" }, "argument": { "name": "name", "value": "A" } }),
        ),
        ("vendor/unheard-of", json!({})),
    ];
    for form in FORMS {
        let server = serve(forgetting_like(form)).await;
        let host = ready_host(spec(&server.url())).await;
        for (done, (method, params)) in requests.iter().enumerate() {
            server.forget_sessions();
            let answer = within_timeout(host.request(NAME, method, Some(raw(params)))).await;
            let answer = answer.unwrap_or_else(|error| panic!("{form:?}, {method}: {error}"));
            match (*method, answer.result()) {
                ("vendor/unheard-of", Err((code, _))) => assert_eq!(code, -32601),
                (_, result) => assert!(result.is_ok(), "{form:?}, {method}: {result:?}"),
            }
            assert_eq!(server.initializes(), 2 + done as u64, "{form:?}, {method}");
        }
    }
}

#[tokio::test]
async fn d01_a_tool_error_about_sessions_is_not_an_expired_session() {
    let server = serve(legacy()).await;
    let host = ready_host(spec(&server.url())).await;
    let answer = call(&host, "fail", json!({ "message": "Session not found" })).await.unwrap();
    assert!(answer.is_tool_error());
    assert_eq!(text_of(&answer), "Session not found");
    assert_eq!((server.initializes(), server.calls()), (1, 1));
}

#[tokio::test]
async fn d02_a_server_that_refuses_every_session_causes_no_loop() {
    let server = serve(legacy()).await;
    let host = ready_host(spec(&server.url())).await;
    server.set_faults(Faults { session_requests: Some(0), ..Faults::default() });
    let error = count(&host, "never").await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Unreachable, CallOutcome::Refused), "{error}");
    assert!(error.text.contains("Session not found"), "the server's own words: {error}");
    assert!(server.counter_keys().is_empty());
    // A handshake that is never followed by an answer counts as a restart, and restarts have a budget.
    crate::http_host::wait_for_state(&host, gripfast::State::Parked).await;
    assert!(server.initializes() <= 10, "{} handshakes", server.initializes());
    assert!(server.counter_keys().is_empty());
}

#[tokio::test]
async fn d02_the_second_attempt_ends_with_its_own_error() {
    let expired = Arc::new(AtomicBool::new(true));
    let script = ScriptedServer::new(move |request| match request.rpc().as_str() {
        "tools/call" if expired.swap(false, Ordering::Relaxed) => respond_text(404, "Session not found"),
        "tools/call" => {
            let error = json!({ "code": -32602, "message": "no such thing" });
            respond_json(200, &json!({ "jsonrpc": "2.0", "id": request.json()["id"], "error": error }))
        }
        _ => respond_normally(request),
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    let answer = call(&host, "act", json!({})).await.unwrap();
    assert_eq!(answer.result().unwrap_err(), (-32602, "no such thing".to_owned()));
    assert_eq!(script.requests_for("tools/call").len(), 2);
}

#[tokio::test]
async fn d01_a_404_for_get_without_a_stream_is_not_an_expired_session() {
    let script = ScriptedServer::new(|request| match request.method.as_str() {
        "GET" => respond_text(404, "Cannot GET /mcp"),
        _ => respond_normally(request),
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    until("the stream is asked for", || !script.with_method("GET").is_empty()).await;
    for _ in 0..20 {
        call(&host, "look", json!({})).await.unwrap();
    }
    assert_eq!(script.requests_for("initialize").len(), 1);
}

#[tokio::test]
async fn d01_an_expired_session_is_noticed_on_the_stream_before_a_call() {
    let server = serve(legacy()).await;
    let tap = ScriptedServer::in_front_of(server.addr()).await;
    let host = ready_host(spec(&tap.url())).await;
    until("the stream is open", || !tap.with_method("GET").is_empty()).await;
    server.add_tool("heard_on_the_stream").await;
    crate::http_host::wait_for_tool(&host, "heard_on_the_stream").await;
    server.forget_sessions();
    tap.cut();
    until("a new session", || server.initializes() == 2).await;
    assert_eq!(echo(&host, "hi").await.as_deref(), Ok("hi"));
    assert_eq!(server.initializes(), 2);
}

#[tokio::test]
async fn a_closed_link_deletes_its_session() {
    let server = serve(legacy()).await;
    let tap = ScriptedServer::in_front_of(server.addr()).await;
    let host = ready_host(spec(&tap.url())).await;
    host.shutdown().await;
    assert_eq!(tap.with_method("DELETE").len(), 1);
    assert_eq!(server.sessions(), 0);
}

#[tokio::test]
async fn d02_errors_on_an_old_sessions_stream_do_not_affect_the_new_one() {
    let (initialized, is_over) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
    let over = Arc::clone(&is_over);
    let script = ScriptedServer::new(move |request| {
        let is_old = request.header("mcp-session-id") == Some("s-1");
        match (request.method.as_str(), request.rpc().as_str()) {
            ("POST", "initialize") => {
                let result = json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "script", "version": "1" } });
                let body = json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": result });
                let session = format!("s-{}", initialized.fetch_add(1, Ordering::Relaxed) + 1);
                let headers = [("content-type", "application/json"), ("mcp-session-id", session.as_str())];
                ScriptedAction::Respond(response(200, &headers, &body.to_string()))
            }
            // Calls with `hangs` take as long as they take.
            ("POST", "tools/call") if request.json()["params"]["arguments"]["hangs"] == true => {
                ScriptedAction::RespondAndHold(Vec::new())
            }
            (_, _) if is_old && over.load(Ordering::Relaxed) => respond_text(404, "session not found"),
            ("GET", _) if is_old => {
                ScriptedAction::Respond([open_ended("text/event-stream"), b"data: bye\n\n".to_vec()].concat())
            }
            ("GET", _) => ScriptedAction::RespondAndHold(open_ended("text/event-stream")),
            (_, _) => respond_normally(request),
        }
    })
    .await;
    let mut patient = spec(&script.url());
    patient.supervision.timeouts.call = Duration::from_secs(120);
    let host = ready_host(patient).await;
    let streams = |session| {
        let streams = script.with_method("GET").into_iter();
        streams.filter(|request| request.header("mcp-session-id") == Some(session)).count()
    };
    until("it listens", || streams("s-1") == 1).await;
    let _hanging = tokio::spawn({
        let host = host.clone();
        async move { host.call(NAME, "act", Some(raw(&json!({ "hangs": true })))).await }
    });
    until("a call hangs", || script.requests_for("tools/call").len() == 1).await;
    let before = streams("s-1");
    is_over.store(true, Ordering::Relaxed);
    call(&host, "act", json!({})).await.unwrap();
    until("the old session's stream is refused", || streams("s-1") > before).await;
    for _ in 0..20 {
        call(&host, "act", json!({})).await.unwrap();
    }
    assert_eq!(script.requests_for("initialize").len(), 2);
}

/// C05: ordinary errors that resemble an expired session. The server has executed the call; it must not run twice.
#[tokio::test]
async fn d01_an_error_that_only_mentions_a_session_is_not_resent() {
    let error = |code: i64, message: &str| json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": code, "message": message } });
    let refusals: [(u16, Value, bool); 6] = [
        (503, json!("session terminated"), true),
        (409, error(-32000, "expired session records were not deleted"), true),
        (400, error(-32602, "Invalid session length"), true),
        (400, error(-32001, "no such row"), false),
        (404, error(-32602, "no such customer"), true),
        (404, error(-32601, "Session not found"), true),
    ];
    for (status_code, body, has_session) in refusals {
        let refused = body.clone();
        let script = ScriptedServer::new(move |request| match (request.rpc().as_str(), has_session) {
            ("tools/call", _) => match &refused {
                Value::String(text) => respond_text(status_code, text),
                json => respond_json(status_code, json),
            },
            ("initialize", false) => {
                let ScriptedAction::Respond(answer) = respond_normally(request) else { panic!("it answers") };
                let answer = String::from_utf8(answer).unwrap();
                ScriptedAction::Respond(answer.replace("mcp-session-id", "x-nothing").into_bytes())
            }
            _ => respond_normally(request),
        })
        .await;
        let host = ready_host(spec(&script.url())).await;
        let answer = call(&host, "act", json!({})).await;
        let told = match &answer {
            Ok(answer) => format!("{answer:?}"),
            Err(error) => error.to_string(),
        };
        let own = body["error"]["message"].as_str().or(body.as_str()).unwrap();
        assert!(told.contains(own), "the server's own error reaches the caller: {told}");
        assert_eq!(script.requests_for("tools/call").len(), 1, "{status_code} {body}: it ran twice");
        // Any request that a wrong classification causes was sent before this call.
        call(&host, "act", json!({})).await.ok();
        assert_eq!(
            script.requests_for("initialize").len(),
            1,
            "{status_code} {body}: the session is left alone"
        );
    }
}

/// D05
#[tokio::test]
async fn d05_a_server_that_refuses_ping_keeps_its_session() {
    for status_code in [400, 404, 405, 500, 501] {
        let script = ScriptedServer::new(move |request| match request.rpc().as_str() {
            "ping" => respond_text(status_code, "no"),
            _ => respond_normally(request),
        })
        .await;
        let mut spec = spec(&script.url());
        spec.supervision.keepalive.interval = Some(Duration::from_millis(50));
        let host = ready_host(spec).await;
        let lists = script.requests_for("tools/list").len();
        until("it is asked for its tools instead", || script.requests_for("tools/list").len() > lists + 2)
            .await;
        assert_eq!(script.requests_for("ping").len(), 1, "{status_code}: remembered");
        assert_eq!(script.requests_for("initialize").len(), 1, "{status_code}");
        assert_eq!(status(&host).supervision.restarts, 0);
    }
}

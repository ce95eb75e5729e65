//! `/api/v1/events`: the event stream, its resumption and its end.

use crate::test_api::{PATIENCE, TestApi};
use axum::http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

/// Event stream, read frame by frame.
struct Stream {
    body: Incoming,
    unread: String,
}

impl Stream {
    async fn open(api: &TestApi, headers: &[(&str, &str)]) -> Self {
        let response = api.send(Method::GET, "/api/v1/events", headers).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), unread: String::new() }
    }

    /// The next frame, or `None` at the end.
    async fn frame(&mut self) -> Option<String> {
        loop {
            if let Some((frame, rest)) = self.unread.split_once("\n\n") {
                let frame = frame.to_owned();
                self.unread = rest.to_owned();
                return Some(frame);
            }
            let more = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("a frame in time")?;
            let more = more.unwrap().into_data().unwrap();
            self.unread.push_str(std::str::from_utf8(&more).unwrap());
        }
    }

    /// The next event with its id.
    async fn event(&mut self) -> (String, Value) {
        let frame = self.frame().await.expect("the stream goes on");
        let (id, data) = frame.split_once('\n').expect("an id and data");
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        let id = id.strip_prefix("id: ").unwrap().to_owned();
        assert_eq!(data["id"], id.as_str());
        (id, data)
    }

    /// The next event of a server, or of none.
    async fn event_of(&mut self, server: Option<&str>) -> (String, Value) {
        loop {
            let (id, event) = self.event().await;
            if event["server"].as_str() == server {
                return (id, event);
            }
        }
    }
}

#[tokio::test]
async fn an_event_stream_has_every_change_in_order() {
    let api = TestApi::ready().await;
    let mut stream = Stream::open(&api, &[]).await;
    api.act("/api/v1/upstreams/demo/stop").await;
    let (_, stopped) = stream.event_of(Some("demo")).await;
    assert_eq!(stopped["kind"], "state_changed");
    assert_eq!(stopped["to"], "stopped");
    assert_eq!(stopped["text"], "state changed from ready to stopped");
    assert!(stopped["at"].is_u64());

    api.act("/api/v1/upstreams/demo/start").await;
    let mut states = Vec::new();
    while states.last().is_none_or(|state| state != "ready") {
        let (_, event) = stream.event().await;
        if event["kind"] == "state_changed" {
            states.push(event["to"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(states, ["reconnecting", "ready"]);
    api.host.shutdown().await;
}

#[tokio::test]
async fn an_event_stream_resumes_after_last_event_id() {
    let api = TestApi::ready().await;
    let mut stream = Stream::open(&api, &[]).await;
    api.act("/api/v1/upstreams/demo/stop").await;
    let (seen, _) = stream.event_of(Some("demo")).await;
    drop(stream);
    api.act("/api/v1/upstreams/demo/start").await;
    api.until("demo", "ready").await;
    let mut again = Stream::open(&api, &[("last-event-id", &seen)]).await;
    let (_, missed) = again.event_of(Some("demo")).await;
    assert_eq!((&missed["from"], &missed["kind"]), (&"stopped".into(), &"state_changed".into()));
    api.host.shutdown().await;
}

#[tokio::test]
async fn g05_an_admin_action_and_a_wrong_token_are_events_without_a_server() {
    let api = TestApi::ready().await;
    let mut stream = Stream::open(&api, &[]).await;
    let path = "/api/v1/upstreams/demo/reconnect";
    assert_eq!(api.post(path, &[("authorization", "Bearer guessed")]).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(api.post(path, &[]).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(api.act(path).await.status, StatusCode::ACCEPTED);
    let (_, guessed) = stream.event_of(None).await;
    assert_eq!((&guessed["kind"], &guessed["reason"]), (&"auth_failed".into(), &"wrong_admin_token".into()));
    assert!(!guessed.to_string().contains("guessed"), "{guessed}");
    let (_, missing) = stream.event_of(None).await;
    assert_eq!((&missing["target"], &missing["reason"]), (&"admin_action".into(), &"no_credential".into()));
    let (_, acted) = stream.event_of(None).await;
    assert_eq!((&acted["kind"], &acted["action"]), (&"admin_action".into(), &"reconnect".into()), "{acted}");
    assert_eq!((&acted["acted_on"], &acted["status"]), (&"demo".into(), &202.into()));
    let status = api.get("/api/v1/status").await.json();
    let kinds: Vec<&str> =
        status["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["auth_failed", "auth_failed", "admin_action"]);
    api.host.shutdown().await;
}

#[tokio::test]
async fn g05_every_action_of_the_api_is_recorded_with_its_answer() {
    let api = TestApi::ready().await;
    let tried = [
        ("upstreams/demo/stop", "stop demo - 202"),
        ("upstreams/demo/start", "start demo - 202"),
        ("upstreams/demo/reconnect", "reconnect demo - 202"),
        ("upstreams/demo/reload", "reload demo - 202"),
        ("upstreams/demo/recconect", "unknown demo - 404"),
        ("upstreams/other/stop", "stop other - 404"),
        ("upstreams/demo/pins/approve", "approve demo - 409"),
        ("upstreams/demo/pins/a%2Fb/approve", "approve demo a/b 409"),
        ("upstreams/demo/login", "login demo - 409"),
        ("reload", "reload_config - - 409"),
    ];
    let mut recorded = Vec::new();
    let mut events = api.host.subscribe_events();
    for (path, _) in tried {
        api.act(&format!("/api/v1/{path}")).await;
    }
    api.act_with("/api/v1/upstreams/demo/call", "{").await;
    while let Ok(told) = events.try_recv() {
        if let gripfast::Event::Security(gripfast::SecurityEvent::AdminAction {
            action,
            server,
            tool,
            status,
            ..
        }) = told.event
        {
            let [server, tool] = [server, tool].map(|name| name.unwrap_or_else(|| "-".to_owned()));
            recorded.push(format!("{} {server} {tool} {}", action.as_str(), status.unwrap()));
        }
    }
    let expected = tried.map(|(_, words)| words.to_owned());
    assert_eq!(recorded, [&expected[..], &["call demo - 400".to_owned()]].concat());
    api.host.shutdown().await;
}

#[tokio::test]
async fn event_streams_end_when_the_gateway_shuts_down() {
    let api = TestApi::with("").await;
    let mut stream = Stream::open(&api, &[]).await;
    api.admin.set_shutting_down();
    assert_eq!(stream.frame().await, None);
}

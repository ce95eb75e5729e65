//! What happens, as it happens.

use crate::scene::{PATIENCE, Scene};
use axum::http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

/// A stream of events, read frame by frame.
struct Stream {
    body: Incoming,
    unread: String,
}

impl Stream {
    async fn open(scene: &Scene, headers: &[(&str, &str)]) -> Self {
        let response = scene.send(Method::GET, "/api/v1/events", headers).await;
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
}

#[tokio::test]
async fn followers_hear_of_every_change_in_order() {
    let scene = Scene::ready().await;
    let mut stream = Stream::open(&scene, &[]).await;
    scene.act("/api/v1/upstreams/demo/stop").await;
    let (_, stopped) = stream.event().await;
    assert_eq!(stopped["server"], "demo");
    assert_eq!(stopped["kind"], "state_changed");
    assert_eq!(stopped["to"], "stopped");
    assert_eq!(stopped["text"], "went from ready to stopped");
    assert!(stopped["at"].is_u64());

    scene.act("/api/v1/upstreams/demo/start").await;
    let mut states = Vec::new();
    while states.last().is_none_or(|state| state != "ready") {
        let (_, event) = stream.event().await;
        if event["kind"] == "state_changed" {
            states.push(event["to"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(states, ["reconnecting", "ready"]);
    scene.host.shutdown().await;
}

#[tokio::test]
async fn whoever_comes_back_goes_on_where_it_was() {
    let scene = Scene::ready().await;
    let mut stream = Stream::open(&scene, &[]).await;
    scene.act("/api/v1/upstreams/demo/stop").await;
    let (seen, _) = stream.event().await;
    drop(stream);
    scene.act("/api/v1/upstreams/demo/start").await;
    scene.until("demo", "ready").await;
    let mut again = Stream::open(&scene, &[("last-event-id", &seen)]).await;
    let (_, missed) = again.event().await;
    assert_eq!((&missed["from"], &missed["kind"]), (&"stopped".into(), &"state_changed".into()));
    scene.host.shutdown().await;
}

#[tokio::test]
async fn a_gateway_that_leaves_lets_its_followers_go() {
    let scene = Scene::with("").await;
    let mut stream = Stream::open(&scene, &[]).await;
    scene.admin.set_leaving();
    assert_eq!(stream.frame().await, None);
}

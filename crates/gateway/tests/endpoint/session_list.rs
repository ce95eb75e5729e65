//! What an operator sees of the sessions of clients.

use crate::client::Legacy;
use crate::scene::{Scene, child};
use http::Method;
use serde_json::{Value, json};

async fn sessions(scene: &Scene) -> Value {
    scene.http.send(Method::GET, "/api/v1/sessions", &[], "").await.message()["sessions"].clone()
}

/// A session is listed while it is there, with whom it is of and what it does; never with its id.
#[tokio::test]
async fn sessions_are_seen_and_their_ids_are_not() {
    let scene = Scene::with(&child("demo", &[], &[])).await;
    assert_eq!(sessions(&scene).await, json!([]));
    let client = Legacy::meets(&scene.http).await;
    let seen = sessions(&scene).await;
    assert_eq!((&seen[0]["client"], &seen[0]["running"]), (&json!("local"), &json!(0)), "{seen}");
    assert!(seen[0]["idle_ms"].is_u64() && seen[0]["age_ms"].is_u64(), "{seen}");
    assert!(!seen.to_string().contains(&*client.session), "{seen}");

    let stream = client.listens(None).await;
    let seen = sessions(&scene).await;
    assert_eq!((&seen[0]["listening"], &seen[0]["idle_ms"]), (&json!(1), &Value::Null), "{seen}");
    drop(stream);

    let ended = scene.http.send(Method::DELETE, "/mcp", &[("mcp-session-id", &client.session)], "").await;
    assert_eq!(ended.status, 200);
    assert_eq!(sessions(&scene).await, json!([]));
}

//! Client sessions in the admin API.

use crate::client::LegacyClient;
use crate::test_gateway::{TestGateway, child};
use http::Method;
use serde_json::{Value, json};

async fn sessions(gateway: &TestGateway) -> Value {
    gateway.http.send(Method::GET, "/api/v1/sessions", &[], "").await.message()["sessions"].clone()
}

/// A live session is listed with its client and activity, never with its id.
#[tokio::test]
async fn sessions_are_listed_without_their_ids() {
    let gateway = TestGateway::with(&child("demo", &[], &[])).await;
    assert_eq!(sessions(&gateway).await, json!([]));
    let client = LegacyClient::connect(&gateway.http).await;
    let seen = sessions(&gateway).await;
    assert_eq!((&seen[0]["client"], &seen[0]["running"]), (&json!("local"), &json!(0)), "{seen}");
    assert!(seen[0]["idle_ms"].is_u64() && seen[0]["age_ms"].is_u64(), "{seen}");
    assert!(!seen.to_string().contains(&*client.session), "{seen}");

    let stream = client.open_stream(None).await;
    let seen = sessions(&gateway).await;
    assert_eq!((&seen[0]["listening"], &seen[0]["idle_ms"]), (&json!(1), &Value::Null), "{seen}");
    drop(stream);

    let ended = gateway.http.send(Method::DELETE, "/mcp", &[("mcp-session-id", &client.session)], "").await;
    assert_eq!(ended.status, 200);
    assert_eq!(sessions(&gateway).await, json!([]));
}

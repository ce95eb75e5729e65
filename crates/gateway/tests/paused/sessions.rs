//! Expiry of idle sessions.

use crate::memory_gateway::{MemoryGateway, next};
use gripfast::wire::sse::KEEP_ALIVE;
use gripfast_gateway::mcp::Limits;
use http::Method;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_session_without_requests_expires_after_an_hour_with_a_404() {
    let gateway = MemoryGateway::new(&Limits::default());
    let (used, unused) = (gateway.meet().await, gateway.meet().await);
    tokio::time::advance(59 * MINUTE).await;
    assert_eq!(gateway.ping(&used).await, 200);
    tokio::time::advance(MINUTE).await;
    assert_eq!(gateway.ping(&used).await, 200);
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(gateway.send(method, &unused, "").await.status(), 404);
    }
    assert_eq!(gateway.ping(&unused).await, 404);
    tokio::time::advance(HOUR).await;
    assert_eq!(gateway.ping(&used).await, 404);
}

#[tokio::test(start_paused = true)]
async fn the_session_timeout_comes_from_the_config() {
    let gateway =
        MemoryGateway::new(&Limits { session_idle_timeout: Duration::from_secs(5), ..Limits::default() });
    let session = gateway.meet().await;
    tokio::time::advance(Duration::from_millis(4900)).await;
    assert_eq!(gateway.ping(&session).await, 200);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(gateway.ping(&session).await, 404);
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_keeps_its_session_and_its_end_starts_the_timeout() {
    let gateway = MemoryGateway::new(&Limits::default());
    let session = gateway.meet().await;
    let mut stream = gateway.listen(&session).await;
    // A sign of life every fifteen seconds, for ten hours.
    for _ in 0..10 * 60 * 4 {
        assert_eq!(next(&mut stream).await.as_deref(), Some(KEEP_ALIVE));
    }
    drop(stream);
    tokio::time::advance(59 * MINUTE).await;
    assert_eq!(gateway.ping(&session).await, 200);
    tokio::time::advance(HOUR).await;
    assert_eq!(gateway.ping(&session).await, 404);
}

//! Sessions that end by themselves, as clients see it.

use crate::desk::{Desk, next};
use gripfast::wire::sse::KEEP_ALIVE;
use gripfast_gateway::downstream::Terms;
use http::Method;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_session_without_requests_is_over_after_an_hour_and_a_404() {
    let desk = Desk::new(&Terms::default());
    let (used, unused) = (desk.meet().await, desk.meet().await);
    tokio::time::advance(59 * MINUTE).await;
    assert_eq!(desk.ping(&used).await, 200);
    tokio::time::advance(MINUTE).await;
    assert_eq!(desk.ping(&used).await, 200);
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(desk.send(method, &unused, "").await.status(), 404);
    }
    assert_eq!(desk.ping(&unused).await, 404);
    tokio::time::advance(HOUR).await;
    assert_eq!(desk.ping(&used).await, 404);
}

#[tokio::test(start_paused = true)]
async fn the_time_is_what_the_config_says() {
    let desk = Desk::new(&Terms { session_idle_timeout: Duration::from_secs(5), ..Terms::default() });
    let session = desk.meet().await;
    tokio::time::advance(Duration::from_millis(4900)).await;
    assert_eq!(desk.ping(&session).await, 200);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(desk.ping(&session).await, 404);
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_keeps_its_session_and_its_end_begins_the_time() {
    let desk = Desk::new(&Terms::default());
    let session = desk.meet().await;
    let mut stream = desk.listen(&session).await;
    // A sign of life every fifteen seconds, for ten hours.
    for _ in 0..10 * 60 * 4 {
        assert_eq!(next(&mut stream).await.as_deref(), Some(KEEP_ALIVE));
    }
    drop(stream);
    tokio::time::advance(59 * MINUTE).await;
    assert_eq!(desk.ping(&session).await, 200);
    tokio::time::advance(HOUR).await;
    assert_eq!(desk.ping(&session).await, 404);
}

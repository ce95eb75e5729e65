//! A second link beside the first: what replaces a link that works, and when.

use crate::world::*;
use gripfast::{SpareState, State};
use gripfast_core::supervise::upstream::LinkKind;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn f01_reload_shows_the_new_tools_at_once_and_calls_under_way_finish_on_the_old_link() {
    for kind in [LinkKind::Process, LinkKind::Remote] {
        let (host, server) = host_with(kind).await;
        server.next_acts([Act::Slowly(Duration::from_secs(60))]);
        let running = tokio::spawn({
            let host = host.clone();
            async move { call(&host, "act", "running").await }
        });
        settle().await;
        let mut events = host.events();
        server.offer(&["other"]);
        host.reload("it").unwrap();
        until_told(&mut events, "replaced").await;
        assert_eq!(tool_names(&host).await, ["other"]);
        call(&host, "other", "").await.unwrap();
        assert!(!running.is_finished());
        running.await.unwrap().unwrap();
        assert_eq!((server.dials(), server.executed("running")), (2, 1));
        assert_eq!(host.status_of("it").unwrap().calls.errors, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn f01_a_reload_that_finds_nobody_leaves_the_server_as_it_is() {
    let (host, server) = host_with(LinkKind::Process).await;
    let mut events = host.events();
    server.shut(refused());
    host.reload("it").unwrap();
    until_told(&mut events, "replacement_failed").await;
    assert_eq!(host.status_of("it").unwrap().supervision.state, State::Ready);
    call(&host, "act", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn f01_stopping_in_the_middle_of_a_reload_leaves_nothing() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.hang_in_handshake();
    host.reload("it").unwrap();
    settle().await;
    host.stop("it").unwrap();
    until(&host, State::Stopped).await;
    host.shutdown().await;
    assert_eq!(server.dials(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_leaky_server_is_replaced_in_time_and_nobody_notices() {
    let mut old_soon = spec();
    old_soon.supervision.recycle.max_lifetime = Some(Duration::from_secs(3600));
    let (host, server) = host_with_spec(LinkKind::Process, old_soon).await;
    for _ in 0..150 {
        call(&host, "act", "").await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert!((3..=4).contains(&server.dials()), "{} dials in two and a half hours", server.dials());
    assert_eq!(host.status_of("it").unwrap().supervision.restarts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_grows_too_large_is_replaced() {
    let mut lean = spec();
    lean.supervision.recycle.max_rss = Some(1000);
    let (host, server) = host_with_spec(LinkKind::Process, lean).await;
    server.hold_memory(999);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.dials(), 1);
    let mut events = host.events();
    server.hold_memory(2000);
    until_told(&mut events, "replaced").await;
    assert_eq!(server.dials(), 2);
    call(&host, "act", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_spare_is_started_beside_the_first_and_nobody_is_sent_to_it() {
    let mut careful = spec();
    careful.supervision.spare = true;
    let (host, server) = host_with_spec(LinkKind::Process, careful).await;
    settle().await;
    let status = host.status_of("it").unwrap().supervision;
    assert_eq!((server.dials(), status.spare, status.restarts), (2, Some(SpareState::Ready), 0));
    call(&host, "act", "").await.unwrap();
    host.shutdown().await;
}

async fn until_told(events: &mut tokio::sync::broadcast::Receiver<gripfast::UpstreamEvent>, word: &str) {
    while events.recv().await.unwrap().event.word() != word {}
}

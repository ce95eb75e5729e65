//! Requests for items of a server that was never listed: held for its first listing instead of failing as unknown.

use crate::memory_server::*;
use gripfast::{CallError, CatalogSnapshot, Host, State, UnlistedItem};
use gripfast_core::supervise::upstream::LinkKind;
use std::time::Duration;
use tokio::time::Instant;

/// Looks up a tool by its public name; returns the server's own name for it.
async fn find_tool(host: &Host, public: &str) -> Result<Option<String>, CallError> {
    let look = |menu: &CatalogSnapshot| menu.merged.tool(public).map(|(to, _)| to.key.to_owned());
    host.find_item(UnlistedItem::Name(public), look).await
}

/// A host with a server that was never listed, because connections are refused.
fn host_without(lazy: bool) -> (Host, MemoryServer) {
    let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Remote));
    let mut spec = spec();
    spec.supervision.lazy = lazy;
    if !lazy {
        server.fail_connects_with(refused());
    }
    add(&host, "it", spec, &server);
    (host, server)
}

#[tokio::test(start_paused = true)]
async fn c04_a_request_to_a_never_listed_server_is_held_until_it_is_listed() {
    let (host, server) = host_without(false);
    let started = Instant::now();
    let comes = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        server.come_up();
    };
    let (found, ()) = tokio::join!(find_tool(&host, "it__act"), comes);
    assert_eq!(found.unwrap().as_deref(), Some("act"));
    assert!(started.elapsed() >= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn c04_the_request_is_held_for_reconnect_wait_and_then_fails_with_advice() {
    let (host, _server) = host_without(false);
    let started = Instant::now();
    let error = find_tool(&host, "it__act").await.unwrap_err();
    assert_eq!(started.elapsed(), Duration::from_secs(15));
    assert_eq!((error.code.as_str(), error.server.as_str()), ("reconnecting", "it"));
    assert!(error.to_string().contains("connection refused"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn c04_a_server_that_comes_up_without_the_tool_makes_it_unknown() {
    let (host, server) = host_without(false);
    let comes = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.come_up();
    };
    let (found, ()) = tokio::join!(find_tool(&host, "it__nothing"), comes);
    assert_eq!(found.unwrap(), None);
    let started = Instant::now();
    assert_eq!(find_tool(&host, "it__nothing").await.unwrap(), None);
    assert_eq!(started.elapsed(), Duration::ZERO, "no second wait");
}

#[tokio::test(start_paused = true)]
async fn f02_a_never_listed_lazy_server_starts_only_for_requests_that_name_it() {
    let (host, server) = host_without(true);
    assert_eq!(find_tool(&host, "other__act").await.unwrap(), None);
    assert_eq!(find_tool(&host, "act").await.unwrap(), None);
    assert_eq!(server.connects(), 0);
    assert_eq!(find_tool(&host, "it__act").await.unwrap().as_deref(), Some("act"));
    assert_eq!(server.connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_prefix_is_asked_for_any_unknown_tool() {
    let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Remote));
    let mut spec = spec();
    spec.supervision.lazy = true;
    spec.prefix = Some(String::new());
    add(&host, "it", spec, &server);
    assert_eq!(find_tool(&host, "read").await.unwrap().as_deref(), Some("read"));
    assert_eq!(server.connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn c04_a_parked_stopped_or_blocked_server_fails_at_once_and_parked_wakes() {
    let (host, server) = host_without(false);
    wait_for_state(&host, State::Parked).await;
    // The last wake-up was long ago.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (started, dials) = (Instant::now(), server.connects());
    assert_eq!(find_tool(&host, "it__act").await.unwrap_err().code.as_str(), "unreachable");
    assert_eq!(started.elapsed(), Duration::ZERO);
    server.come_up();
    run_ready_tasks().await;
    assert_eq!(server.connects(), dials + 1, "a call wakes it");

    host.spawn_broken("broken", "unknown key `comand`").unwrap();
    let error = find_tool(&host, "broken__act").await.unwrap_err();
    assert!(error.to_string().contains("comand"), "{error}");
    let (away, other) = (MemoryServer::new(LinkKind::Remote), MemoryServer::new(LinkKind::Remote));
    away.fail_connects_with(refused());
    add(&host, "away", spec(), &away);
    host.stop("away").unwrap();
    assert_eq!(find_tool(&host, "away__act").await.unwrap_err().code.as_str(), "stopped");
    add(&host, "other", spec(), &other);
    assert_eq!(find_tool(&host, "other__act").await.unwrap().as_deref(), Some("act"));
}

#[tokio::test(start_paused = true)]
async fn a_uri_is_held_if_only_one_server_can_own_it() {
    let (host, server) = host_without(false);
    let read = |uri: &'static str| {
        let look = move |menu: &CatalogSnapshot| menu.merged.resource(uri).map(|to| to.server.to_owned());
        host.find_item(UnlistedItem::Uri(uri), look)
    };
    let started = Instant::now();
    assert_eq!(read("file:///a").await.unwrap_err().code.as_str(), "reconnecting");
    assert_eq!(started.elapsed(), Duration::from_secs(15));
    let another = MemoryServer::new(LinkKind::Remote);
    another.fail_connects_with(refused());
    add(&host, "another", spec(), &another);
    let started = Instant::now();
    assert_eq!(read("file:///a").await.unwrap(), None, "it may be either's");
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(read("it+file:///a").await.unwrap().as_deref(), Some("it"), "a call is held further on");
    drop(server);
}

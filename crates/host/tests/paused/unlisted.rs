//! Requests for something whose server was never listed: held for its first listing, not called unknown.

use crate::world::*;
use gripfast::{CallError, Host, Served, State, Wanted};
use gripfast_core::supervise::upstream::LinkKind;
use std::time::Duration;
use tokio::time::Instant;

/// Looks for a tool by its public name; answers with its server's name for it.
async fn find_tool(host: &Host, public: &str) -> Result<Option<String>, CallError> {
    let look = |menu: &Served| menu.menu.tool(public).map(|(to, _)| to.key.to_owned());
    host.find(Wanted::Name(public), look).await
}

/// A host with a server that was never listed, because nobody opens.
fn host_without(lazy: bool) -> (Host, Server) {
    let (host, server) = (Host::builder().build(), Server::new(LinkKind::Remote));
    let mut spec = spec();
    spec.supervision.lazy = lazy;
    if !lazy {
        server.shut(refused());
    }
    add(&host, "it", spec, &server);
    (host, server)
}

#[tokio::test(start_paused = true)]
async fn c04_a_request_to_a_server_that_was_never_listed_is_held_until_it_is() {
    let (host, server) = host_without(false);
    let begun = Instant::now();
    let comes = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        server.come_back();
    };
    let (found, ()) = tokio::join!(find_tool(&host, "it__act"), comes);
    assert_eq!(found.unwrap().as_deref(), Some("act"));
    assert!(begun.elapsed() >= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn c04_it_is_held_for_reconnect_wait_and_then_told_what_happens_next() {
    let (host, _server) = host_without(false);
    let begun = Instant::now();
    let error = find_tool(&host, "it__act").await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::from_secs(15));
    assert_eq!((error.code.word(), error.server.as_str()), ("reconnecting", "it"));
    assert!(error.to_string().contains("connection refused"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn c04_a_server_that_comes_up_without_it_makes_it_unknown() {
    let (host, server) = host_without(false);
    let comes = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.come_back();
    };
    let (found, ()) = tokio::join!(find_tool(&host, "it__nothing"), comes);
    assert_eq!(found.unwrap(), None);
    let begun = Instant::now();
    assert_eq!(find_tool(&host, "it__nothing").await.unwrap(), None);
    assert_eq!(begun.elapsed(), Duration::ZERO, "nobody is waited for twice");
}

#[tokio::test(start_paused = true)]
async fn f02_a_lazy_server_that_was_never_listed_is_started_for_a_request_that_names_it_and_for_no_other() {
    let (host, server) = host_without(true);
    assert_eq!(find_tool(&host, "other__act").await.unwrap(), None);
    assert_eq!(find_tool(&host, "act").await.unwrap(), None);
    assert_eq!(server.dials(), 0);
    assert_eq!(find_tool(&host, "it__act").await.unwrap().as_deref(), Some("act"));
    assert_eq!(server.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_prefix_may_have_anything_so_it_is_asked() {
    let (host, server) = (Host::builder().build(), Server::new(LinkKind::Remote));
    let mut spec = spec();
    spec.supervision.lazy = true;
    spec.prefix = Some(String::new());
    add(&host, "it", spec, &server);
    assert_eq!(find_tool(&host, "read").await.unwrap().as_deref(), Some("read"));
    assert_eq!(server.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn c04_one_that_is_parked_stopped_or_unusable_answers_at_once_and_the_parked_one_is_woken() {
    let (host, server) = host_without(false);
    until(&host, State::Parked).await;
    // The last wake-up was long ago.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (begun, dials) = (Instant::now(), server.dials());
    assert_eq!(find_tool(&host, "it__act").await.unwrap_err().code.word(), "unreachable");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    server.come_back();
    settle().await;
    assert_eq!(server.dials(), dials + 1, "a call wakes it");

    host.spawn_broken("broken", "unknown key `comand`").unwrap();
    let error = find_tool(&host, "broken__act").await.unwrap_err();
    assert!(error.to_string().contains("comand"), "{error}");
    let (away, other) = (Server::new(LinkKind::Remote), Server::new(LinkKind::Remote));
    away.shut(refused());
    add(&host, "away", spec(), &away);
    host.stop("away").unwrap();
    assert_eq!(find_tool(&host, "away__act").await.unwrap_err().code.word(), "stopped");
    add(&host, "other", spec(), &other);
    assert_eq!(find_tool(&host, "other__act").await.unwrap().as_deref(), Some("act"));
}

#[tokio::test(start_paused = true)]
async fn a_uri_is_held_where_it_can_only_be_one_servers() {
    let (host, server) = host_without(false);
    let read = |uri: &'static str| {
        let look = move |menu: &Served| menu.menu.resource(uri).map(|to| to.server.to_owned());
        host.find(Wanted::Uri(uri), look)
    };
    let begun = Instant::now();
    assert_eq!(read("file:///a").await.unwrap_err().code.word(), "reconnecting");
    assert_eq!(begun.elapsed(), Duration::from_secs(15));
    let another = Server::new(LinkKind::Remote);
    another.shut(refused());
    add(&host, "another", spec(), &another);
    let begun = Instant::now();
    assert_eq!(read("file:///a").await.unwrap(), None, "it may be either's");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(read("it+file:///a").await.unwrap().as_deref(), Some("it"), "a call is held further on");
    drop(server);
}

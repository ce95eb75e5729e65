//! HTTP/2 connections shared by many requests: the effect of GOAWAY, resets and limits on requests in flight and on
//! new ones.

use crate::http_host::{NAME, call, raw, ready_host, status, text_of, within_timeout};
use crate::scripted_h2_server::{
    CANCEL, H2Action, H2Request, H2Server, INTERNAL_ERROR, NO_ERROR, REFUSED_STREAM, tool,
};
use gripfast::{Answer, CallError, CallOutcome, Code, Host};
use gripfast_testkit::wait::until;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Calls the tool with a side effect.
async fn act(host: &Host) -> Result<String, CallError> {
    call(host, "act", json!({})).await.map(|answer: Answer| text_of(&answer))
}

/// Starts a call and waits until the server has handled it.
async fn first_call(host: &Arc<Host>, peer: &H2Server) -> JoinHandle<Result<String, CallError>> {
    let host = Arc::clone(host);
    let calling = tokio::spawn(async move { act(&host).await });
    let there = || peer.requests_for("tools/call").pop();
    until("the first call is there", || there().is_some_and(|first| peer.is_settled(first.connection))).await;
    calling
}

/// A server that answers everything normally except its first calls.
async fn spoiling(
    first: usize,
    spoil: impl Fn(&H2Request) -> Vec<H2Action> + Send + Sync + 'static,
) -> H2Server {
    let calls = AtomicUsize::new(0);
    H2Server::new(move |received| match tool(received) {
        Some(_) if calls.fetch_add(1, Ordering::SeqCst) < first => spoil(received),
        _ => vec![H2Action::Answer],
    })
    .await
}

#[tokio::test]
async fn c05_a_refused_h2_stream_is_resent_on_another_connection() {
    let peer = spoiling(1, |_| vec![H2Action::Reset(REFUSED_STREAM)]).await;
    let host = ready_host(peer.spec()).await;
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let calls = peer.requests_for("tools/call");
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0].connection, calls[1].connection);
    assert_eq!(status(&host).supervision.restarts, 0);
}

#[tokio::test]
async fn c05_a_request_after_the_last_stream_of_a_goaway_is_resent() {
    let peer = spoiling(1, |received| vec![H2Action::GoAway { last: received.stream - 2 }]).await;
    let host = ready_host(peer.spec()).await;
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    assert_eq!(peer.requests_for("tools/call").len(), 2);
    assert_eq!(status(&host).supervision.restarts, 0);
}

#[tokio::test]
async fn c05_a_request_that_may_have_started_is_unknown_and_not_resent() {
    let spoilt: [fn(&H2Request) -> Vec<H2Action>; 7] = [
        |received| vec![H2Action::GoAway { last: received.stream }, H2Action::Close],
        |_| vec![H2Action::Reset(INTERNAL_ERROR)],
        |_| vec![H2Action::Reset(CANCEL)],
        |_| vec![H2Action::AnswerInPart { lacks: 20 }, H2Action::Reset(NO_ERROR)],
        |_| vec![H2Action::AnswerInPart { lacks: 0 }, H2Action::Reset(NO_ERROR)],
        |_| vec![H2Action::AnswerInPart { lacks: 20 }, H2Action::Reset(CANCEL)],
        |_| vec![H2Action::Close],
    ];
    for (case, spoil) in spoilt.into_iter().enumerate() {
        let peer = spoiling(1, spoil).await;
        let host = ready_host(peer.spec()).await;
        let error = act(&host).await.unwrap_err();
        assert_eq!(
            (error.code, error.outcome),
            (Code::OutcomeUnknown, CallOutcome::Unknown),
            "case {case}: {error}"
        );
        assert_eq!(peer.requests_for("tools/call").len(), 1, "case {case}");
        assert_eq!(act(&host).await.as_deref(), Ok("done"), "case {case}");
    }
}

#[tokio::test]
async fn c05_a_server_that_keeps_refusing_streams_is_busy_and_retries_end() {
    let peer = spoiling(usize::MAX, |_| vec![H2Action::Reset(REFUSED_STREAM)]).await;
    let host = ready_host(peer.spec()).await;
    let error = act(&host).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Overloaded, CallOutcome::Refused), "{error}");
    assert!(peer.requests_for("tools/call").len() <= 4, "twice on each of two connections at the most");
    assert_eq!(status(&host).supervision.restarts, 0);
}

#[tokio::test]
async fn c03_a_call_that_times_out_during_a_connect_was_not_sent() {
    let peer = H2Server::new(|_| vec![H2Action::Answer]).await;
    let mut spec = peer.spec();
    spec.supervision.timeouts.call = Duration::from_secs(2);
    let host = ready_host(spec).await;
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let last = peer.requests_for("tools/call").remove(0);
    peer.hang_tls(true);
    peer.perform_now(&last, H2Action::GoAway { last: last.stream }).await;
    until("the GOAWAY was processed", || peer.is_settled(last.connection)).await;
    let error = act(&host).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Timeout, CallOutcome::NotSent), "{error}");
}

#[tokio::test]
async fn c05_a_connection_that_is_never_ready_is_replaced() {
    let peer = H2Server::new(|_| vec![H2Action::Answer]).await;
    let mut spec = peer.spec();
    spec.supervision.timeouts.call = Duration::from_secs(60);
    let host = Arc::new(ready_host(spec).await);
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let last = peer.requests_for("tools/call").remove(0);
    peer.hang_tls(true);
    peer.perform_now(&last, H2Action::GoAway { last: last.stream }).await;
    until("the GOAWAY was processed", || peer.is_settled(last.connection)).await;
    let before = peer.connections();
    let calling = tokio::spawn({
        let host = Arc::clone(&host);
        async move { host.call(NAME, "act", Some(raw(&json!({})))).await }
    });
    until("a new connection", || peer.connections() > before).await;
    peer.hang_tls(false);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(21)).await;
    tokio::time::resume();
    assert_eq!(text_of(&within_timeout(calling).await.unwrap().unwrap()), "done");
}

#[tokio::test]
async fn a_connection_after_goaway_finishes_its_requests_and_takes_no_new_ones() {
    let peer = spoiling(1, |received| vec![H2Action::GoAway { last: received.stream }]).await;
    let host = Arc::new(ready_host(peer.spec()).await);
    let first = first_call(&host, &peer).await;
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let calls = peer.requests_for("tools/call");
    assert_ne!(calls[0].connection, calls[1].connection);
    assert!(!first.is_finished());
    peer.perform_now(&calls[0], H2Action::Answer).await;
    assert_eq!(within_timeout(first).await.unwrap().as_deref(), Ok("done"));
    until("the old connection is closed", || !peer.is_open(calls[0].connection)).await;
}

#[tokio::test]
async fn after_a_goaway_many_calls_share_one_new_connection() {
    let peer = H2Server::new(|_| vec![H2Action::Answer]).await;
    let host = ready_host(peer.spec()).await;
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let (before, last) = (peer.connections(), peer.requests_for("tools/call").remove(0));
    peer.perform_now(&last, H2Action::GoAway { last: last.stream }).await;
    until("the GOAWAY was processed", || peer.is_settled(last.connection)).await;
    for answer in futures_util::future::join_all((0..20).map(|_| act(&host))).await {
        assert_eq!(answer.as_deref(), Ok("done"));
    }
    assert_eq!(peer.connections(), before + 1);
}

#[tokio::test]
async fn b02_a_shared_connection_cut_while_idle_costs_no_call() {
    let peer = H2Server::new(|_| vec![H2Action::Answer]).await;
    let host = ready_host(peer.spec()).await;
    for round in 0..5 {
        assert_eq!(act(&host).await.as_deref(), Ok("done"), "round {round}");
        let last = peer.requests_for("tools/call").pop().unwrap();
        peer.perform_now(&last, H2Action::Close).await;
        until("it is closed", || !peer.is_open(last.connection)).await;
        // Gives the runtime a chance to poll the sockets.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_long_idle_shared_connection_is_closed_and_replaced() {
    let peer = H2Server::new(|_| vec![H2Action::Answer]).await;
    let host = ready_host(peer.spec()).await;
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(51)).await;
    tokio::time::resume();
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let calls = peer.requests_for("tools/call");
    assert_eq!(calls[0].connection, calls[1].connection);
    assert_ne!(calls[1].connection, calls[2].connection);
    until("the old connection is closed", || !peer.is_open(calls[0].connection)).await;
}

#[tokio::test]
async fn c03_a_silent_connection_takes_no_new_requests() {
    let peer = spoiling(1, |_| Vec::new()).await;
    let mut spec = peer.spec();
    spec.supervision.timeouts.call = Duration::from_secs(2);
    let host = ready_host(spec).await;
    let error = act(&host).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Timeout, CallOutcome::Unknown), "{error}");
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let calls = peer.requests_for("tools/call");
    assert_ne!(calls[0].connection, calls[1].connection);
    assert_eq!(status(&host).supervision.restarts, 0, "a connection fell silent, not the server");
}

#[tokio::test]
async fn a_server_with_one_stream_per_connection_gets_more_connections() {
    // Its event stream never ends, so waiting for its end would hang.
    let peer = H2Server::new(|received| match received.request.method.as_str() {
        "GET" => vec![H2Action::Limit(1), H2Action::AnswerWithoutEnd],
        _ => vec![H2Action::Limit(1), H2Action::Answer],
    })
    .await;
    let host = ready_host(peer.spec()).await;
    let listening = || peer.listeners().pop();
    until("it listens", || listening().is_some_and(|stream| peer.is_settled(stream.connection))).await;
    for answer in futures_util::future::join_all((0..8).map(|_| act(&host))).await {
        assert_eq!(answer.as_deref(), Ok("done"));
    }
    assert_eq!(peer.requests_for("tools/call").len(), 8);
    assert_eq!(status(&host).supervision.restarts, 0);
}

#[tokio::test]
async fn a_lowered_stream_limit_delays_no_call() {
    let peer = spoiling(1, |_| vec![H2Action::Limit(1)]).await;
    let host = Arc::new(ready_host(peer.spec()).await);
    let first = first_call(&host, &peer).await;
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let calls = peer.requests_for("tools/call");
    assert_ne!(calls[0].connection, calls[1].connection);
    peer.perform_now(&calls[0], H2Action::Answer).await;
    assert_eq!(within_timeout(first).await.unwrap().as_deref(), Ok("done"));
}

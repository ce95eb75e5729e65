//! Connections that many requests share, as HTTP/2 has them: what happens to those on it when the server hangs up, and
//! who gets onto it.

use crate::frames::{Asked, CANCEL, Do, INTERNAL_ERROR, NO_ERROR, Peer, REFUSED_STREAM, tool};
use crate::stage::{NAME, call, eventually, promptly, raw, ready_host, said, status};
use gripfast::{Answer, CallError, Code, Fate, Host};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Calls the tool that has a side effect.
async fn act(host: &Host) -> Result<String, CallError> {
    call(host, "act", json!({})).await.map(|answer: Answer| said(&answer))
}

/// Begins a call, and waits until the server has done what it does about it.
async fn first_call(host: &Arc<Host>, peer: &Peer) -> JoinHandle<Result<String, CallError>> {
    let host = Arc::clone(host);
    let calling = tokio::spawn(async move { act(&host).await });
    let there = || peer.calls_of("tools/call").pop();
    eventually("the first call is there", || there().is_some_and(|first| peer.is_settled(first.connection)))
        .await;
    calling
}

/// A server that answers everything, but does something else about its first calls.
async fn spoiling(first: usize, spoil: impl Fn(&Asked) -> Vec<Do> + Send + Sync + 'static) -> Peer {
    let calls = AtomicUsize::new(0);
    Peer::new(move |asked| match tool(asked) {
        Some(_) if calls.fetch_add(1, Ordering::SeqCst) < first => spoil(asked),
        _ => vec![Do::Answer],
    })
    .await
}

#[tokio::test]
async fn c05_a_request_that_a_server_refuses_to_begin_with_goes_again_on_another_connection() {
    let peer = spoiling(1, |_| vec![Do::Reset(REFUSED_STREAM)]).await;
    let host = ready_host(peer.spec()).await;
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let calls = peer.calls_of("tools/call");
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0].connection, calls[1].connection);
    assert_eq!(status(&host).supervision.restarts, 0);
}

#[tokio::test]
async fn c05_a_request_beyond_the_last_that_a_farewell_names_goes_again() {
    let peer = spoiling(1, |asked| vec![Do::Farewell { last: asked.stream - 2 }]).await;
    let host = ready_host(peer.spec()).await;
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    assert_eq!(peer.calls_of("tools/call").len(), 2);
    assert_eq!(status(&host).supervision.restarts, 0);
}

#[tokio::test]
async fn c05_what_a_server_may_have_begun_with_is_an_unknown_outcome_and_does_not_go_again() {
    let spoilt: [fn(&Asked) -> Vec<Do>; 7] = [
        |asked| vec![Do::Farewell { last: asked.stream }, Do::Close],
        |_| vec![Do::Reset(INTERNAL_ERROR)],
        |_| vec![Do::Reset(CANCEL)],
        |_| vec![Do::AnswerInPart { lacks: 20 }, Do::Reset(NO_ERROR)],
        |_| vec![Do::AnswerInPart { lacks: 0 }, Do::Reset(NO_ERROR)],
        |_| vec![Do::AnswerInPart { lacks: 20 }, Do::Reset(CANCEL)],
        |_| vec![Do::Close],
    ];
    for (case, spoil) in spoilt.into_iter().enumerate() {
        let peer = spoiling(1, spoil).await;
        let host = ready_host(peer.spec()).await;
        let error = act(&host).await.unwrap_err();
        assert_eq!(
            (error.code, error.outcome),
            (Code::OutcomeUnknown, Fate::Unknown),
            "case {case}: {error}"
        );
        assert_eq!(peer.calls_of("tools/call").len(), 1, "case {case}");
        assert_eq!(act(&host).await.as_deref(), Ok("done"), "case {case}");
    }
}

#[tokio::test]
async fn c05_a_server_that_keeps_refusing_to_begin_is_busy_and_not_asked_without_end() {
    let peer = spoiling(usize::MAX, |_| vec![Do::Reset(REFUSED_STREAM)]).await;
    let host = ready_host(peer.spec()).await;
    let error = act(&host).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Overloaded, Fate::Refused), "{error}");
    assert!(peer.calls_of("tools/call").len() <= 4, "twice on each of two connections at the most");
    assert_eq!(status(&host).supervision.restarts, 0);
}

#[tokio::test]
async fn c03_a_call_whose_time_is_up_while_a_connection_is_being_made_was_not_sent() {
    let peer = Peer::new(|_| vec![Do::Answer]).await;
    let mut spec = peer.spec();
    spec.supervision.timeouts.call = Duration::from_secs(2);
    let host = ready_host(spec).await;
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let last = peer.calls_of("tools/call").remove(0);
    peer.hang(true);
    peer.now(&last, Do::Farewell { last: last.stream }).await;
    eventually("the farewell was heard", || peer.is_settled(last.connection)).await;
    let error = act(&host).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Timeout, Fate::NotSent), "{error}");
}

#[tokio::test]
async fn c05_a_connection_that_is_never_ready_is_given_up_and_the_call_goes_on_the_next() {
    let peer = Peer::new(|_| vec![Do::Answer]).await;
    let mut spec = peer.spec();
    spec.supervision.timeouts.call = Duration::from_secs(60);
    let host = Arc::new(ready_host(spec).await);
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let last = peer.calls_of("tools/call").remove(0);
    peer.hang(true);
    peer.now(&last, Do::Farewell { last: last.stream }).await;
    eventually("the farewell was heard", || peer.is_settled(last.connection)).await;
    let before = peer.connections();
    let calling = tokio::spawn({
        let host = Arc::clone(&host);
        async move { host.call(NAME, "act", Some(raw(&json!({})))).await }
    });
    eventually("somebody knocks", || peer.connections() > before).await;
    peer.hang(false);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(21)).await;
    tokio::time::resume();
    assert_eq!(said(&promptly(calling).await.unwrap().unwrap()), "done");
}

#[tokio::test]
async fn a_connection_after_its_farewell_finishes_what_it_carries_and_takes_nothing_new() {
    let peer = spoiling(1, |asked| vec![Do::Farewell { last: asked.stream }]).await;
    let host = Arc::new(ready_host(peer.spec()).await);
    let first = first_call(&host, &peer).await;
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let calls = peer.calls_of("tools/call");
    assert_ne!(calls[0].connection, calls[1].connection);
    assert!(!first.is_finished());
    peer.now(&calls[0], Do::Answer).await;
    assert_eq!(promptly(first).await.unwrap().as_deref(), Ok("done"));
    eventually("the old connection is closed", || !peer.is_open(calls[0].connection)).await;
}

#[tokio::test]
async fn after_a_farewell_many_calls_share_one_new_connection() {
    let peer = Peer::new(|_| vec![Do::Answer]).await;
    let host = ready_host(peer.spec()).await;
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let (before, last) = (peer.connections(), peer.calls_of("tools/call").remove(0));
    peer.now(&last, Do::Farewell { last: last.stream }).await;
    eventually("the farewell was heard", || peer.is_settled(last.connection)).await;
    for answer in futures_util::future::join_all((0..20).map(|_| act(&host))).await {
        assert_eq!(answer.as_deref(), Ok("done"));
    }
    assert_eq!(peer.connections(), before + 1);
}

#[tokio::test]
async fn b02_a_shared_connection_that_was_cut_while_idle_costs_no_call() {
    let peer = Peer::new(|_| vec![Do::Answer]).await;
    let host = ready_host(peer.spec()).await;
    for round in 0..5 {
        assert_eq!(act(&host).await.as_deref(), Ok("done"), "round {round}");
        let last = peer.calls_of("tools/call").pop().unwrap();
        peer.now(&last, Do::Close).await;
        eventually("it is closed", || !peer.is_open(last.connection)).await;
        // The system knows; a runtime that waits for a timer asks it.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_shared_connection_that_was_idle_for_long_is_closed_and_the_next_call_has_another() {
    let peer = Peer::new(|_| vec![Do::Answer]).await;
    let host = ready_host(peer.spec()).await;
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(51)).await;
    tokio::time::resume();
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let calls = peer.calls_of("tools/call");
    assert_eq!(calls[0].connection, calls[1].connection);
    assert_ne!(calls[1].connection, calls[2].connection);
    eventually("the old connection is closed", || !peer.is_open(calls[0].connection)).await;
}

#[tokio::test]
async fn c03_nobody_gets_onto_a_connection_that_fell_silent() {
    let peer = spoiling(1, |_| Vec::new()).await;
    let mut spec = peer.spec();
    spec.supervision.timeouts.call = Duration::from_secs(2);
    let host = ready_host(spec).await;
    let error = act(&host).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Timeout, Fate::Unknown), "{error}");
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let calls = peer.calls_of("tools/call");
    assert_ne!(calls[0].connection, calls[1].connection);
    assert_eq!(status(&host).supervision.restarts, 0, "a connection fell silent, not the server");
}

#[tokio::test]
async fn a_server_that_takes_one_request_at_a_time_is_asked_on_further_connections() {
    // Its event stream is open for good, so whoever waited for its end would wait for ever.
    let peer = Peer::new(|asked| match asked.heard.method.as_str() {
        "GET" => vec![Do::Limit(1), Do::AnswerWithoutEnd],
        _ => vec![Do::Limit(1), Do::Answer],
    })
    .await;
    let host = ready_host(peer.spec()).await;
    let listening = || peer.listeners().pop();
    eventually("it listens", || listening().is_some_and(|stream| peer.is_settled(stream.connection))).await;
    for answer in futures_util::future::join_all((0..8).map(|_| act(&host))).await {
        assert_eq!(answer.as_deref(), Ok("done"));
    }
    assert_eq!(peer.calls_of("tools/call").len(), 8);
    assert_eq!(status(&host).supervision.restarts, 0);
}

#[tokio::test]
async fn a_server_that_takes_fewer_requests_than_before_keeps_nobody_waiting() {
    let peer = spoiling(1, |_| vec![Do::Limit(1)]).await;
    let host = Arc::new(ready_host(peer.spec()).await);
    let first = first_call(&host, &peer).await;
    assert_eq!(act(&host).await.as_deref(), Ok("done"));
    let calls = peer.calls_of("tools/call");
    assert_ne!(calls[0].connection, calls[1].connection);
    peer.now(&calls[0], Do::Answer).await;
    assert_eq!(promptly(first).await.unwrap().as_deref(), Ok("done"));
}

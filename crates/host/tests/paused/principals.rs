//! Several principals at one server: none of them takes slots, queue places or the server itself from the others.

use crate::instances::call_as;
use crate::memory_server::*;
use gripfast::{CallOptions, Client, ClientKey, Event, Host, Principal};
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

fn client_of(principal: &str) -> Client {
    Client::with_key(ClientKey::new(format!("a client of {principal}")))
        .with_principal(Principal::new(principal.to_owned()))
        .with_input_support(false)
}

/// Result of a call: duration in seconds, or code, outcome and text of its error.
type CallOutcome = Result<u64, (String, String, String)>;

fn start_call(host: &Host, principal: &str, key: &str) -> JoinHandle<CallOutcome> {
    let (host, client, key, started) = (host.clone(), client_of(principal), key.to_owned(), Instant::now());
    tokio::spawn(async move {
        let ended = call_as(&host, &client, &key).await;
        ended.map(|_| started.elapsed().as_secs()).map_err(|error| {
            (error.code.as_str().to_owned(), error.outcome.as_str().to_owned(), error.text.clone())
        })
    })
}

async fn host_with_limits(max_in_flight: u32, max_waiting: u32, kind: LinkKind) -> (Host, MemoryServer) {
    let mut narrow = spec();
    narrow.supervision.max_in_flight = max_in_flight;
    narrow.supervision.max_waiting = max_waiting;
    host_with_spec(kind, narrow).await
}

#[tokio::test(start_paused = true)]
async fn c06_a_principal_with_many_waiting_calls_does_not_delay_one_with_few() {
    let (host, server) = host_with_limits(2, 1000, LinkKind::Process).await;
    server.set_default_action(CallAction::AnswerAfter(Duration::from_secs(1)));
    let flood: Vec<_> = (0..40).map(|n| start_call(&host, "greedy", &format!("greedy-{n}"))).collect();
    run_ready_tasks().await;
    for round in 0..5 {
        let took = start_call(&host, "modest", &format!("modest-{round}")).await.unwrap().unwrap();
        assert!(took <= 2, "a slot is free within a second: it took {took} s");
    }
    for call in flood {
        call.await.unwrap().unwrap();
    }
    assert_eq!(server.most_in_flight(), 2);
}

#[tokio::test(start_paused = true)]
async fn c06_a_full_queue_makes_room_for_another_principal_and_says_so() {
    for link_is_there in [true, false] {
        let (host, server) = host_with_limits(1, 3, LinkKind::Remote).await;
        server.set_default_action(CallAction::AnswerAfter(Duration::from_secs(1)));
        if !link_is_there {
            server.go_down().await;
        }
        let calls = 3 + u32::from(link_is_there);
        let mut greedy: Vec<_> = (0..calls).map(|_| start_call(&host, "greedy", "x")).collect();
        run_ready_tasks().await;
        let modest = start_call(&host, "modest", "y");
        run_ready_tasks().await;
        let (code, outcome, text) = greedy.pop().unwrap().await.unwrap().unwrap_err();
        assert_eq!((&*code, &*outcome), ("overloaded", "not_sent"));
        assert!(
            text.contains("server `it` has too many waiting calls, most of them from this client"),
            "{text}"
        );
        server.come_up();
        for call in greedy.into_iter().chain([modest]) {
            call.await.unwrap().unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b11_timeouts_of_one_principal_do_not_refuse_the_calls_of_another() {
    for kind in [LinkKind::Process, LinkKind::Remote] {
        let (host, server) = host_with(kind).await;
        for _ in 0..5 {
            call_as(&host, &client_of("modest"), "before").await.unwrap();
            for _ in 0..4 {
                server.queue_actions([CallAction::Hang]);
                let (client, patience) = (Some(client_of("greedy")), Some(Duration::from_secs(8)));
                let options = CallOptions { client, timeout: patience, ..CallOptions::default() };
                let params = raw(json!({ "name": "act", "arguments": { "key": "hung" } }));
                let error = host.request_with("it", "tools/call", Some(&params), options).await.unwrap_err();
                assert_eq!(error.code.as_str(), "timeout");
            }
            call_as(&host, &client_of("modest"), "after").await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c05_a_principal_that_kills_the_server_is_refused_and_the_server_is_not_parked() {
    let (host, server) = host_with(LinkKind::Process).await;
    let mut events = host.subscribe_events();
    let mut refused = 0;
    for round in 0..40 {
        call_as(&host, &client_of("honest"), "good").await.unwrap();
        server.queue_actions([CallAction::ExecuteThenBreak]);
        // A new request each time, so that no single one is refused for its own crashes.
        let error = call_as(&host, &client_of("hostile"), &format!("poison-{round}")).await.unwrap_err();
        if error.outcome.as_str() == "not_sent" {
            refused += 1;
            assert_eq!(error.code.as_str(), "unreachable");
            let wait = error.retry_after.expect("it says when");
            assert!(wait <= Duration::from_secs(600), "{wait:?}");
            let said =
                "server `it` died 3 times within 10 min while only calls of this client were in flight";
            assert!(error.text.contains(said), "{}", error.text);
            // The next call of another principal uses up the remaining fault.
            server.clear_actions();
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_ne!(host.server_status("it").unwrap().supervision.state, State::Parked);
    }
    assert!((20..40).contains(&refused), "{refused}");
    let mut told = Vec::new();
    while let Ok(told_now) = events.try_recv() {
        if let Event::PrincipalRefused { principal, .. } = told_now.event {
            told.push(principal);
        }
    }
    assert!(!told.is_empty() && told.iter().all(|name| name == "hostile"), "{told:?}");
}

//! Several principals at one server: none of them takes its slots, its queue or the server itself from the others.

use crate::instances::calls_as;
use crate::world::*;
use gripfast::{CallOptions, Client, ClientKey, Event, Host, Principal};
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

fn of(principal: &str) -> Client {
    Client::one(ClientKey::new(format!("a client of {principal}")))
        .on_behalf_of(Principal::named(principal.to_owned()))
        .can_be_asked(false)
}

/// What became of a call: how many seconds it took, or the code, outcome and text of its error.
type Fate = Result<u64, (String, String, String)>;

fn begin(host: &Host, principal: &str, key: &str) -> JoinHandle<Fate> {
    let (host, client, key, begun) = (host.clone(), of(principal), key.to_owned(), Instant::now());
    tokio::spawn(async move {
        let ended = calls_as(&host, &client, &key).await;
        ended.map(|_| begun.elapsed().as_secs()).map_err(|error| {
            (error.code.word().to_owned(), error.outcome.word().to_owned(), error.text.clone())
        })
    })
}

async fn narrow(max_in_flight: u32, max_waiting: u32, kind: LinkKind) -> (Host, Server) {
    let mut narrow = spec();
    narrow.supervision.max_in_flight = max_in_flight;
    narrow.supervision.max_waiting = max_waiting;
    host_with_spec(kind, narrow).await
}

#[tokio::test(start_paused = true)]
async fn c06_a_principal_with_many_waiting_calls_does_not_delay_one_with_few() {
    let (host, server) = narrow(2, 1000, LinkKind::Process).await;
    server.always(Act::Slowly(Duration::from_secs(1)));
    let flood: Vec<_> = (0..40).map(|n| begin(&host, "greedy", &format!("greedy-{n}"))).collect();
    settle().await;
    for round in 0..5 {
        let took = begin(&host, "modest", &format!("modest-{round}")).await.unwrap().unwrap();
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
        let (host, server) = narrow(1, 3, LinkKind::Remote).await;
        server.always(Act::Slowly(Duration::from_secs(1)));
        if !link_is_there {
            server.go_away().await;
        }
        let calls = 3 + u32::from(link_is_there);
        let mut greedy: Vec<_> = (0..calls).map(|_| begin(&host, "greedy", "x")).collect();
        settle().await;
        let modest = begin(&host, "modest", "y");
        settle().await;
        let (code, outcome, text) = greedy.pop().unwrap().await.unwrap().unwrap_err();
        assert_eq!((&*code, &*outcome), ("overloaded", "not_sent"));
        assert!(
            text.contains("server `it` has too many calls waiting, most of them of this client"),
            "{text}"
        );
        server.come_back();
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
            calls_as(&host, &of("modest"), "before").await.unwrap();
            for _ in 0..4 {
                server.next_acts([Act::Hang]);
                let (client, patience) = (Some(of("greedy")), Some(Duration::from_secs(8)));
                let options = CallOptions { client, patience, ..CallOptions::default() };
                let params = raw(json!({ "name": "act", "arguments": { "key": "hung" } }));
                let error = host.request_with("it", "tools/call", Some(params), options).await.unwrap_err();
                assert_eq!(error.code.word(), "timeout");
            }
            calls_as(&host, &of("modest"), "after").await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c05_a_principal_that_kills_the_server_is_refused_and_the_server_is_not_parked() {
    let (host, server) = host_with(LinkKind::Process).await;
    let mut events = host.events();
    let mut refused = 0;
    for round in 0..40 {
        calls_as(&host, &of("honest"), "good").await.unwrap();
        server.next_acts([Act::DoThenBreak]);
        // Each time another request: no single one of them is refused for its own deaths.
        let error = calls_as(&host, &of("hostile"), &format!("poison-{round}")).await.unwrap_err();
        if error.outcome.word() == "not_sent" {
            refused += 1;
            assert_eq!(error.code.word(), "unreachable");
            let wait = error.retry_after.expect("it says when");
            assert!(wait <= Duration::from_secs(600), "{wait:?}");
            let said =
                "server `it` died 3 times within 10 min while only calls of this client were in flight";
            assert!(error.text.contains(said), "{}", error.text);
            // What was to break is done by the next call of somebody else.
            server.forget_acts();
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_ne!(host.status_of("it").unwrap().supervision.state, State::Parked);
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

//! Attribution on a shared server: messages without a request id and stderr output belong to a principal only if the
//! link has served no other.

use crate::instances::{NamedListener, answered_by, call_as, log_message, start_call};
use crate::memory_server::*;
use gripfast::config::{Isolation, ServerSpec};
use gripfast::{Client, ClientKey, Event, Host, Principal};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::Value;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// The link of the shared instance, which is opened first.
const SHARED: usize = 0;
const KINDS: [LinkKind; 2] = [LinkKind::Process, LinkKind::Remote];

fn client_of(principal: &str) -> Client {
    Client::with_key(ClientKey::new(format!("a client of {principal}")))
        .with_principal(Principal::new(principal.to_owned()))
}

fn client_without_elicitation(principal: &str) -> Client {
    Client::with_key(ClientKey::new(format!("a quiet client of {principal}")))
        .with_principal(Principal::new(principal.to_owned()))
        .with_input_support(false)
}

fn dropped(host: &Host) -> u64 {
    host.server_status("it").unwrap().calls.dropped
}

fn has_dedicated_instances(host: &Host) -> bool {
    host.server_status("it").unwrap().instances.enabled
}

/// Starts a call of `client` and returns once it is in flight.
async fn call_in_flight(
    host: &Host,
    server: &MemoryServer,
    client: &Client,
    listener: &Arc<NamedListener>,
) -> JoinHandle<()> {
    server.queue_actions([CallAction::Hang]);
    let call = start_call(host, Some(client), "in flight", listener);
    run_ready_tasks().await;
    call
}

#[tokio::test(start_paused = true)]
async fn g05_a_late_log_message_of_a_shared_server_reaches_no_other_principal() {
    for kind in KINDS {
        let (host, server) = host_with(kind).await;
        let mut events = host.subscribe_events();
        call_as(&host, &client_of("alice"), "hers").await.unwrap();
        let listener = NamedListener::named("bob");
        let call = call_in_flight(&host, &server, &client_of("bob"), &listener).await;
        server.send_message(log_message()).await;
        run_ready_tasks().await;
        assert_eq!(listener.messages(), Vec::<Value>::new(), "it may be about the call of alice");
        assert_eq!(dropped(&host), 1);
        assert_eq!(events.recv().await.unwrap().event, Event::MessagesDropped { dropped: 1 });
        assert_eq!(events.recv().await.unwrap().event, Event::ClientsIsolated);
        for (client, key) in [(client_of("alice"), "asked"), (client_without_elicitation("alice"), "quiet")] {
            call_as(&host, &client, key).await.unwrap();
            assert_ne!(server.served_on(key), SHARED, "from now on principals have their own");
        }
        call.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn g05_a_late_elicitation_of_a_shared_server_is_declined_for_others() {
    for kind in KINDS {
        let (host, server) = host_with(kind).await;
        call_as(&host, &client_of("alice"), "hers").await.unwrap();
        let listener = NamedListener::named("bob");
        let call = call_in_flight(&host, &server, &client_of("bob"), &listener).await;
        server.send_message(elicitation(7)).await;
        run_ready_tasks().await;
        assert_eq!(answered_by(&server, 7), (SHARED, None), "answered at once, and not by bob");
        assert!(has_dedicated_instances(&host));
        call.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn g05_several_clients_of_one_principal_are_served_as_before() {
    for kind in KINDS {
        let (host, server) = host_with(kind).await;
        for client in [client_of("alice"), client_without_elicitation("alice")] {
            call_as(&host, &client, "earlier").await.unwrap();
        }
        let listener = NamedListener::named("alice");
        let call = call_in_flight(&host, &server, &client_of("alice"), &listener).await;
        server.send_message(log_message()).await;
        server.send_message(elicitation(7)).await;
        run_ready_tasks().await;
        assert_eq!(listener.messages(), [log_message()]);
        assert_eq!(answered_by(&server, 7), (SHARED, Some("alice".to_owned())));
        assert!(dropped(&host) == 0 && !has_dedicated_instances(&host));
        call.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn g05_a_new_link_has_no_principals_and_a_subscription_counts_as_one() {
    let shared = ServerSpec { isolation: Isolation::Shared, ..spec() };
    let (host, server) = host_with_spec(LinkKind::Process, shared).await;
    call_as(&host, &client_of("alice"), "hers").await.unwrap();
    server.break_link().await;
    run_ready_tasks().await;
    let listener = NamedListener::named("bob");
    let call = call_in_flight(&host, &server, &client_of("bob"), &listener).await;
    server.send_message(log_message()).await;
    run_ready_tasks().await;
    assert_eq!(listener.messages(), [log_message()], "the link has served no other principal");
    let options = gripfast::SubscribeOptions { client: Some(client_of("carol")), ..Default::default() };
    let _carols = host.subscribe("it", "file:///hers", NamedListener::named("carol"), options).await.unwrap();
    server.send_message(log_message()).await;
    run_ready_tasks().await;
    assert_eq!((listener.messages().len(), dropped(&host)), (1, 1));
    call.abort();
    server.break_link().await;
    run_ready_tasks().await;
    let call = call_in_flight(&host, &server, &client_of("bob"), &listener).await;
    server.send_message(log_message()).await;
    run_ready_tasks().await;
    assert_eq!(listener.messages().len(), 1, "the subscription of carol was put back on the new link");
    call.abort();
}

#[tokio::test(start_paused = true)]
async fn g05_stderr_is_in_an_error_only_if_the_link_served_one_principal() {
    for (others, is_shown) in [(None, true), (Some(client_of("alice")), false)] {
        let (host, server) = host_with(LinkKind::Process).await;
        if let Some(other) = &others {
            call_as(&host, other, "earlier").await.unwrap();
        }
        server.write_to_stderr("password of alice: hunter2");
        server.queue_actions([CallAction::Hang]);
        let call = tokio::spawn({
            let host = host.clone();
            async move { call_as(&host, &client_of("bob"), "lost").await }
        });
        run_ready_tasks().await;
        server.go_down().await;
        let told = call.await.unwrap().unwrap_err().text;
        assert_eq!(told.contains("alice"), is_shown, "{told}");
        assert!(told.contains("was killed"), "{told}");
        let told = call_as(&host, &client_of("bob"), "held").await.unwrap_err().text;
        assert!(!told.contains("alice") || is_shown, "{told}");
        let cause = host.server_status("it").unwrap().supervision.cause;
        assert!(cause.is_some(), "the operator sees why");
    }
}

#[tokio::test(start_paused = true)]
async fn g05_stderr_is_in_no_cause_for_another_principal() {
    let (host, server) = host_with(LinkKind::Process).await;
    call_as(&host, &client_of("alice"), "hers").await.unwrap();
    let ended = |words: &str| gripfast_core::failure::Observed::Exited {
        code: Some(1),
        signal: None,
        stderr_line: Some(words.to_owned()),
    };
    server.fail_connects_with(ended("password of alice: hunter2"));
    server.break_link().await;
    for call in ["held", "held again"] {
        let told = call_as(&host, &client_of("bob"), call).await.unwrap_err().text;
        assert!(!told.contains("alice") && told.contains("exited with code 1"), "{told}");
    }
    let cause = host.server_status("it").unwrap().supervision.cause.unwrap();
    assert!(cause.contains("alice"), "the operator sees it: {cause}");
}

#[tokio::test(start_paused = true)]
async fn g05_messages_of_dedicated_instances_reach_their_own_client() {
    let (host, server) = host_with(LinkKind::Process).await;
    for principal in ["alice", "bob"] {
        call_as(&host, &client_of(principal), "shared").await.unwrap();
    }
    server.send_message(elicitation(1)).await;
    run_ready_tasks().await;
    let (alice, bob) = (NamedListener::named("alice"), NamedListener::named("bob"));
    let hers = call_in_flight(&host, &server, &client_of("alice"), &alice).await;
    let his = call_in_flight(&host, &server, &client_of("bob"), &bob).await;
    server.send_message_on(1, elicitation(2)).await;
    server.send_message_on(2, log_message()).await;
    run_ready_tasks().await;
    assert_eq!(answered_by(&server, 2), (1, Some("alice".to_owned())));
    assert_eq!((alice.messages(), bob.messages()), (vec![], vec![log_message()]));
    hers.abort();
    his.abort();
}

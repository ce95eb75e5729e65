//! Messages of a shared server that name no request, and what a server wrote to stderr: given to a principal only if
//! the link has served no other.

use crate::instances::{Ear, answered_by, begin, calls_as, log_message};
use crate::world::*;
use gripfast::config::{Isolation, ServerSpec};
use gripfast::{Client, ClientKey, Event, Host, Principal};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::Value;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// The link of the shared instance, which is the first to be opened.
const SHARED: usize = 0;
const KINDS: [LinkKind; 2] = [LinkKind::Process, LinkKind::Remote];

fn of(principal: &str) -> Client {
    Client::one(ClientKey::new(format!("a client of {principal}")))
        .on_behalf_of(Principal::named(principal.to_owned()))
}

fn cannot_be_asked(principal: &str) -> Client {
    Client::one(ClientKey::new(format!("a quiet client of {principal}")))
        .on_behalf_of(Principal::named(principal.to_owned()))
        .can_be_asked(false)
}

fn dropped(host: &Host) -> u64 {
    host.status_of("it").unwrap().calls.dropped
}

fn are_apart(host: &Host) -> bool {
    host.status_of("it").unwrap().instances.are_apart
}

/// A call of `client` that is under way when this returns.
async fn under_way(host: &Host, server: &Server, client: &Client, ear: &Arc<Ear>) -> JoinHandle<()> {
    server.next_acts([Act::Hang]);
    let call = begin(host, Some(client), "under way", ear);
    settle().await;
    call
}

#[tokio::test(start_paused = true)]
async fn g05_a_late_log_message_of_a_shared_server_reaches_no_other_principal() {
    for kind in KINDS {
        let (host, server) = host_with(kind).await;
        let mut events = host.events();
        calls_as(&host, &of("alice"), "hers").await.unwrap();
        let ear = Ear::named("bob");
        let call = under_way(&host, &server, &of("bob"), &ear).await;
        server.say(log_message()).await;
        settle().await;
        assert_eq!(ear.heard(), Vec::<Value>::new(), "it may be about the call of alice");
        assert_eq!(dropped(&host), 1);
        assert_eq!(events.recv().await.unwrap().event, Event::MessagesDropped { dropped: 1 });
        assert_eq!(events.recv().await.unwrap().event, Event::ClientsSeparated);
        for (client, key) in [(of("alice"), "asked"), (cannot_be_asked("alice"), "quiet")] {
            calls_as(&host, &client, key).await.unwrap();
            assert_ne!(server.served_on(key), SHARED, "from now on principals have their own");
        }
        call.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn g05_a_late_question_of_a_shared_server_is_declined_for_any_other_principal() {
    for kind in KINDS {
        let (host, server) = host_with(kind).await;
        calls_as(&host, &of("alice"), "hers").await.unwrap();
        let ear = Ear::named("bob");
        let call = under_way(&host, &server, &of("bob"), &ear).await;
        server.say(question(7)).await;
        settle().await;
        assert_eq!(answered_by(&server, 7), (SHARED, None), "answered at once, and not by bob");
        assert!(are_apart(&host));
        call.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn g05_several_clients_of_one_principal_are_served_as_before() {
    for kind in KINDS {
        let (host, server) = host_with(kind).await;
        for client in [of("alice"), cannot_be_asked("alice")] {
            calls_as(&host, &client, "earlier").await.unwrap();
        }
        let ear = Ear::named("alice");
        let call = under_way(&host, &server, &of("alice"), &ear).await;
        server.say(log_message()).await;
        server.say(question(7)).await;
        settle().await;
        assert_eq!(ear.heard(), [log_message()]);
        assert_eq!(answered_by(&server, 7), (SHARED, Some("alice".to_owned())));
        assert!(dropped(&host) == 0 && !are_apart(&host));
        call.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn g05_a_new_link_has_served_nobody_and_a_followed_resource_counts_as_served() {
    let shared = ServerSpec { isolation: Isolation::Shared, ..spec() };
    let (host, server) = host_with_spec(LinkKind::Process, shared).await;
    calls_as(&host, &of("alice"), "hers").await.unwrap();
    server.break_link().await;
    settle().await;
    let ear = Ear::named("bob");
    let call = under_way(&host, &server, &of("bob"), &ear).await;
    server.say(log_message()).await;
    settle().await;
    assert_eq!(ear.heard(), [log_message()], "nobody else was served since the link was opened");
    let options = gripfast::SubscribeOptions { client: Some(of("carol")), ..Default::default() };
    let _carols = host.subscribe("it", "file:///hers", Ear::named("carol"), options).await.unwrap();
    server.say(log_message()).await;
    settle().await;
    assert_eq!((ear.heard().len(), dropped(&host)), (1, 1));
    call.abort();
    server.break_link().await;
    settle().await;
    let call = under_way(&host, &server, &of("bob"), &ear).await;
    server.say(log_message()).await;
    settle().await;
    assert_eq!(ear.heard().len(), 1, "the subscription of carol was put back on the new link");
    call.abort();
}

#[tokio::test(start_paused = true)]
async fn g05_words_on_stderr_are_in_an_error_only_if_the_link_served_that_principal_alone() {
    for (others, is_shown) in [(None, true), (Some(of("alice")), false)] {
        let (host, server) = host_with(LinkKind::Process).await;
        if let Some(other) = &others {
            calls_as(&host, other, "earlier").await.unwrap();
        }
        server.write_to_stderr("password of alice: hunter2");
        server.next_acts([Act::Hang]);
        let call = tokio::spawn({
            let host = host.clone();
            async move { calls_as(&host, &of("bob"), "lost").await }
        });
        settle().await;
        server.go_away().await;
        let told = call.await.unwrap().unwrap_err().text;
        assert_eq!(told.contains("alice"), is_shown, "{told}");
        assert!(told.contains("was killed"), "{told}");
        let told = calls_as(&host, &of("bob"), "held").await.unwrap_err().text;
        assert!(!told.contains("alice") || is_shown, "{told}");
        let cause = host.status_of("it").unwrap().supervision.cause;
        assert!(cause.is_some(), "the operator sees why");
    }
}

#[tokio::test(start_paused = true)]
async fn g05_words_on_stderr_are_in_no_cause_that_another_principal_is_told() {
    let (host, server) = host_with(LinkKind::Process).await;
    calls_as(&host, &of("alice"), "hers").await.unwrap();
    let ended = |words: &str| gripfast_core::failure::Observed::Exited {
        code: Some(1),
        signal: None,
        last_words: Some(words.to_owned()),
    };
    server.shut(ended("password of alice: hunter2"));
    server.break_link().await;
    for call in ["held", "held again"] {
        let told = calls_as(&host, &of("bob"), call).await.unwrap_err().text;
        assert!(!told.contains("alice") && told.contains("exited with code 1"), "{told}");
    }
    let cause = host.status_of("it").unwrap().supervision.cause.unwrap();
    assert!(cause.contains("alice"), "the operator sees it: {cause}");
}

#[tokio::test(start_paused = true)]
async fn g05_what_own_instances_of_principals_say_reaches_their_own_client() {
    let (host, server) = host_with(LinkKind::Process).await;
    for principal in ["alice", "bob"] {
        calls_as(&host, &of(principal), "shared").await.unwrap();
    }
    server.say(question(1)).await;
    settle().await;
    let (alice, bob) = (Ear::named("alice"), Ear::named("bob"));
    let hers = under_way(&host, &server, &of("alice"), &alice).await;
    let his = under_way(&host, &server, &of("bob"), &bob).await;
    server.say_on(1, question(2)).await;
    server.say_on(2, log_message()).await;
    settle().await;
    assert_eq!(answered_by(&server, 2), (1, Some("alice".to_owned())));
    assert_eq!((alice.heard(), bob.heard()), (vec![], vec![log_message()]));
    hers.abort();
    his.abort();
}

//! Tokens that end while they are in use.

use crate::stage::{NAME, STUCK, Stage, call, until};
use futures_util::future::join_all;
use gripfast::config::{Isolation, OAuthSpec, ServerSpec, Template};
use gripfast::{CallOptions, Client, ClientKey, Code, Host, State};
use gripfast_testkit::authority::Manners;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test]
async fn e01_fifty_calls_that_are_refused_at_once_cost_one_refresh() {
    let stage = Stage::logged_in(Manners::default()).await;
    let host = stage.ready_host().await;
    stage.authority.end_tokens();
    let answers = join_all((0..50).map(|_| call(&host))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let counts = stage.authority.counts();
    assert_eq!((counts.refreshes, counts.calls, counts.thefts), (1, 50, 0));
}

#[tokio::test]
async fn e01_a_refusal_that_does_not_say_why_is_understood_too() {
    let stage = Stage::logged_in(Manners { challenges: false, ..Manners::default() }).await;
    let host = stage.ready_host().await;
    stage.authority.end_tokens();
    call(&host).await.unwrap();
    assert_eq!(stage.authority.counts().refreshes, 1);
}

/// B09
#[tokio::test]
async fn e01_a_server_that_greets_anybody_and_takes_no_token_costs_one_refresh_and_needs_a_person() {
    let stage = Stage::logged_in(Manners { greets_anybody: true, ..Manners::default() }).await;
    stage.authority.take_tokens(false);
    let host = stage.host();
    until(&host, State::NeedsLogin).await;
    assert_eq!(stage.authority.counts().refreshes, 1);
    assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin);
    stage.authority.take_tokens(true);
    host.reconnect(NAME).unwrap();
    call(&host).await.unwrap();
    assert_eq!(stage.authority.counts().refreshes, 1, "the token was good all the time");
}

#[tokio::test]
async fn e01_a_token_that_ended_while_nobody_was_connected_is_replaced_before_anybody_notices() {
    let stage = Stage::logged_in(Manners::default()).await;
    stage.authority.end_tokens();
    call(&stage.host()).await.unwrap();
    assert_eq!(stage.authority.counts().refreshes, 1);
}

#[tokio::test]
async fn e02_a_token_that_another_host_has_replaced_is_adopted() {
    let stage = Stage::logged_in(Manners::default()).await;
    let (one, other) = tokio::join!(stage.ready_host(), stage.ready_host());
    for round in 1..=5 {
        stage.authority.end_tokens();
        let (first, second) = tokio::join!(call(&one), call(&other));
        first.unwrap();
        second.unwrap();
        let counts = stage.authority.counts();
        assert_eq!((counts.refreshes, counts.thefts), (round, 0), "each token is spent once");
    }
}

#[tokio::test]
async fn e02_a_refresh_that_brings_no_new_refresh_token_leaves_the_old_one_good() {
    let stage = Stage::logged_in(Manners { rotates: false, ..Manners::default() }).await;
    let host = stage.ready_host().await;
    for refreshes in 1..=2 {
        stage.authority.end_tokens();
        call(&host).await.unwrap();
        assert_eq!(stage.authority.counts().refreshes, refreshes);
    }
}

#[tokio::test]
async fn e02_a_refresh_that_fails_for_now_is_tried_again_and_costs_no_login() {
    let stage = Stage::logged_in(Manners::default()).await;
    let host = stage.ready_host().await;
    let before = std::fs::read(stage.kept()).unwrap();
    stage.authority.fail_refreshes(3);
    stage.authority.end_tokens();
    // It is held meanwhile.
    call(&host).await.unwrap();
    let counts = stage.authority.counts();
    assert_eq!((counts.failed_refreshes, counts.refreshes, counts.thefts), (3, 1, 0));
    assert_ne!(std::fs::read(stage.kept()).unwrap(), before, "the new tokens are kept");
}

/// Waits until a refresh token was exchanged, gives up whatever the host waits with, and lets the answer go.
async fn give_up_while_a_refresh_is_on_its_way(stage: &Stage, host: &Host) {
    until_refreshed(stage).await;
    host.reconnect(NAME).unwrap();
    stage.authority.hold_answers(false);
}

/// C07
#[tokio::test]
async fn e02_a_dial_that_is_given_up_while_it_refreshes_costs_no_login() {
    let stage = Stage::logged_in(Manners::default()).await;
    // As if the login was more than an hour ago.
    std::fs::write(stage.kept(), stage.authority.unsealed_login(3700)).unwrap();
    stage.authority.hold_answers(true);
    let host = stage.host();
    give_up_while_a_refresh_is_on_its_way(&stage, &host).await;
    call(&host).await.unwrap();
    let counts = stage.authority.counts();
    assert_eq!((counts.refreshes, counts.thefts), (1, 0));
}

#[tokio::test]
async fn e02_a_renewal_that_is_given_up_while_it_refreshes_costs_no_login() {
    let stage = Stage::logged_in(Manners::default()).await;
    let host = stage.ready_host().await;
    stage.authority.end_tokens();
    stage.authority.hold_answers(true);
    let caller = tokio::spawn({
        let host = host.clone();
        async move { call(&host).await }
    });
    give_up_while_a_refresh_is_on_its_way(&stage, &host).await;
    caller.await.unwrap().unwrap();
    let counts = stage.authority.counts();
    assert_eq!((counts.refreshes, counts.thefts), (1, 0));
}

/// E03
#[tokio::test]
async fn e03_a_login_that_was_withdrawn_needs_a_person_and_says_so() {
    let stage = Stage::logged_in(Manners::default()).await;
    let host = stage.ready_host().await;
    stage.authority.end_logins();
    let error = call(&host).await.unwrap_err();
    assert_eq!(error.code, Code::NeedsLogin, "{error}");
    until(&host, State::NeedsLogin).await;
    assert_eq!(stage.authority.counts().thefts, 0);
    stage.log_in().await;
    until(&host, State::Ready).await;
    call(&host).await.unwrap();
}

/// E03, B03
#[tokio::test]
async fn e03_a_login_wakes_every_instance_that_waits_for_it() {
    let stage = Stage::logged_in(Manners::default()).await;
    let host = stage.host_of(ServerSpec { isolation: Isolation::PerClient, ..stage.spec() });
    until(&host, State::Ready).await;
    let clients = ["one", "other"].map(|name| Client::one(ClientKey::new(name)));
    let calls = async |client: &Client| {
        let options = CallOptions { client: Some(client.clone()), ..CallOptions::default() };
        let params = serde_json::value::to_raw_value(&serde_json::json!({ "name": "whoami" })).unwrap();
        host.request_with(NAME, "tools/call", Some(params), options).await
    };
    for client in &clients {
        calls(client).await.unwrap();
    }
    stage.authority.end_logins();
    for client in &clients {
        assert_eq!(calls(client).await.unwrap_err().code, Code::NeedsLogin);
    }
    assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin);
    let own = || host.status_of(NAME).unwrap().instances.states;
    let begun = Instant::now();
    while own() != [(State::NeedsLogin, 2)] {
        assert!(begun.elapsed() < STUCK, "{:?}", own());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stage.log_in().await;
    until(&host, State::Ready).await;
    while own() != [(State::Ready, 2)] {
        assert!(begun.elapsed() < 2 * STUCK, "{:?}", own());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// B09
#[tokio::test]
async fn b09_an_authorization_server_that_forgot_the_client_needs_whoever_registered_it() {
    for (client_id, state) in [(None, State::NeedsLogin), (Some("mine"), State::ConfigError)] {
        let stage = Stage::logged_in(Manners::default()).await;
        stage.authority.end_tokens();
        stage.authority.forget_clients();
        let mut spec = stage.spec();
        let client_id = client_id.map(|id| Template::parse(id).unwrap());
        spec.oauth = Some(OAuthSpec { client_id, ..OAuthSpec::default() });
        until(&stage.host_of(spec), state).await;
    }
}

#[tokio::test]
async fn e04_a_token_is_replaced_ahead_of_its_end_and_no_request_is_refused_for_it() {
    let stage = Stage::logged_in(Manners::default()).await;
    let refused = stage.authority.counts().refused;
    about_to_end(&stage);
    let host = stage.host();
    call(&host).await.unwrap();
    until_refreshed(&stage).await;
    call(&host).await.unwrap();
    let counts = stage.authority.counts();
    assert_eq!((counts.refreshes, counts.refused), (1, refused));
}

/// B08, C03
#[tokio::test]
async fn e04_an_authorization_server_that_does_not_answer_holds_up_no_call_while_the_token_is_good() {
    let stage = Stage::logged_in(Manners::default()).await;
    about_to_end(&stage);
    stage.authority.hold_answers(true);
    // Who waited for it would wait longer than calls do.
    let mut spec = stage.spec();
    spec.supervision.timeouts.connect = 3 * STUCK;
    let host = stage.host_of(spec);
    for _ in 0..3 {
        call(&host).await.unwrap();
    }
    until_refreshed(&stage).await;
    let counts = stage.authority.counts();
    assert_eq!((counts.shown_refresh_tokens, counts.calls), (1, 3), "it is asked once, and nobody waits");
    stage.authority.hold_answers(false);
}

#[tokio::test]
async fn e04_a_renewal_ahead_of_time_that_fails_is_not_tried_again_with_every_request() {
    let stage = Stage::logged_in(Manners::default()).await;
    about_to_end(&stage);
    stage.authority.fail_refreshes(usize::MAX);
    let host = stage.host();
    call(&host).await.unwrap();
    eventually(|| stage.authority.counts().failed_refreshes > 0, "it never tried").await;
    let begun = Instant::now();
    for _ in 0..50 {
        call(&host).await.unwrap();
    }
    let most = 2 + usize::try_from(begun.elapsed().as_secs() / 5).unwrap();
    assert!(stage.authority.counts().failed_refreshes <= most);
}

/// E02
#[tokio::test]
async fn e02_a_shutdown_waits_for_a_refresh_that_is_on_its_way() {
    let stage = Stage::logged_in(Manners::default()).await;
    about_to_end(&stage);
    stage.authority.hold_answers(true);
    let host = stage.host();
    call(&host).await.unwrap();
    until_refreshed(&stage).await;
    let before = std::fs::read(stage.kept()).unwrap();
    let mut leaving = std::pin::pin!(host.shutdown());
    let early = tokio::time::timeout(Duration::from_secs(1), leaving.as_mut()).await;
    assert!(early.is_err(), "it left without the answer");
    stage.authority.hold_answers(false);
    leaving.await;
    assert_ne!(std::fs::read(stage.kept()).unwrap(), before, "the new tokens are kept");
}

/// E02
#[tokio::test]
async fn e02_a_rotated_refresh_token_that_cannot_be_written_is_used_and_written_when_it_can_be() {
    let stage = Stage::logged_in(Manners::default()).await;
    let host = stage.ready_host().await;
    // Nothing can be sealed while there is no taking turns about the key.
    let turns = stage.kept().with_file_name("key.lock");
    std::fs::remove_file(&turns).unwrap();
    std::fs::create_dir(&turns).unwrap();
    for _ in 0..2 {
        stage.authority.end_tokens();
        call(&host).await.unwrap();
    }
    host.reconnect(NAME).unwrap();
    call(&host).await.unwrap();
    std::fs::remove_dir(&turns).unwrap();
    stage.authority.end_tokens();
    call(&host).await.unwrap();
    call(&stage.host()).await.unwrap();
    let counts = stage.authority.counts();
    assert_eq!(
        (counts.refreshes, counts.thefts),
        (3, 0),
        "no token is spent twice, and the last one is kept"
    );
}

/// E02
#[tokio::test]
async fn e02_a_login_that_cannot_be_opened_for_now_costs_no_token_that_is_held() {
    let stage = Stage::logged_in(Manners::default()).await;
    let host = stage.ready_host().await;
    let refused = stage.authority.counts().refused;
    std::fs::write(stage.kept().with_file_name("key"), "this is no key").unwrap();
    host.reconnect(NAME).unwrap();
    call(&host).await.unwrap();
    let counts = stage.authority.counts();
    assert_eq!((counts.refused, counts.refreshes), (refused, 0));
}

/// As if the login was nearly an hour ago.
fn about_to_end(stage: &Stage) {
    std::fs::write(stage.kept(), stage.authority.unsealed_login(3545)).unwrap();
}

async fn until_refreshed(stage: &Stage) {
    eventually(|| stage.authority.counts().refreshes > 0, "it never refreshed").await;
}

async fn eventually(is_so: impl Fn() -> bool, otherwise: &str) {
    let deadline = Instant::now() + STUCK;
    while !is_so() {
        assert!(Instant::now() < deadline, "{otherwise}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

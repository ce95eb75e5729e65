//! Tokens that expire while they are in use.

use crate::auth_test::{AuthTest, NAME, TIMEOUT, call, wait_until};
use futures_util::future::join_all;
use gripfast::JsonText;
use gripfast::config::{Isolation, OAuthSpec, ServerSpec, Template};
use gripfast::{CallOptions, Client, ClientKey, Code, Host, State};
use gripfast_testkit::authority::AuthorityOptions;
use gripfast_testkit::wait::until;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test]
async fn e01_fifty_concurrent_refusals_cost_one_refresh() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let host = setup.ready_host().await;
    setup.authority.expire_access_tokens();
    let answers = join_all((0..50).map(|_| call(&host))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let counts = setup.authority.counts();
    assert_eq!((counts.refreshes, counts.calls, counts.reuse_detected), (1, 50, 0));
}

#[tokio::test]
async fn e01_a_401_without_a_challenge_is_recognized() {
    let setup =
        AuthTest::logged_in(AuthorityOptions { sends_challenge: false, ..AuthorityOptions::default() }).await;
    let host = setup.ready_host().await;
    setup.authority.expire_access_tokens();
    call(&host).await.unwrap();
    assert_eq!(setup.authority.counts().refreshes, 1);
}

/// B09
#[tokio::test]
async fn e01_a_server_that_rejects_every_token_costs_one_refresh_and_needs_a_login() {
    let setup = AuthTest::logged_in(AuthorityOptions {
        initialize_without_token: true,
        ..AuthorityOptions::default()
    })
    .await;
    setup.authority.accept_tokens(false);
    let host = setup.host();
    wait_until(&host, State::NeedsLogin).await;
    assert_eq!(setup.authority.counts().refreshes, 1);
    assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin);
    setup.authority.accept_tokens(true);
    host.reconnect(NAME).unwrap();
    call(&host).await.unwrap();
    assert_eq!(setup.authority.counts().refreshes, 1, "the token was good all the time");
}

#[tokio::test]
async fn e01_a_token_that_expired_while_disconnected_is_replaced_first() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    setup.authority.expire_access_tokens();
    call(&setup.host()).await.unwrap();
    assert_eq!(setup.authority.counts().refreshes, 1);
}

#[tokio::test]
async fn e02_a_token_replaced_by_another_host_is_adopted() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let (one, other) = tokio::join!(setup.ready_host(), setup.ready_host());
    for round in 1..=5 {
        setup.authority.expire_access_tokens();
        let (first, second) = tokio::join!(call(&one), call(&other));
        first.unwrap();
        second.unwrap();
        let counts = setup.authority.counts();
        assert_eq!((counts.refreshes, counts.reuse_detected), (round, 0), "each token is spent once");
    }
}

#[tokio::test]
async fn e02_a_refresh_without_a_new_refresh_token_keeps_the_old_one() {
    let setup = AuthTest::logged_in(AuthorityOptions {
        rotates_refresh_tokens: false,
        ..AuthorityOptions::default()
    })
    .await;
    let host = setup.ready_host().await;
    for refreshes in 1..=2 {
        setup.authority.expire_access_tokens();
        call(&host).await.unwrap();
        assert_eq!(setup.authority.counts().refreshes, refreshes);
    }
}

#[tokio::test]
async fn e02_a_failed_refresh_is_retried_and_costs_no_login() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let host = setup.ready_host().await;
    let before = std::fs::read(setup.login_file()).unwrap();
    setup.authority.fail_refreshes(3);
    setup.authority.expire_access_tokens();
    // The call is held meanwhile.
    call(&host).await.unwrap();
    let counts = setup.authority.counts();
    assert_eq!((counts.failed_refreshes, counts.refreshes, counts.reuse_detected), (3, 1, 0));
    assert_ne!(std::fs::read(setup.login_file()).unwrap(), before, "the new tokens are kept");
}

/// Waits until a refresh token was exchanged, cancels the operation that waits for it, and releases the answer.
async fn cancel_during_refresh(setup: &AuthTest, host: &Host) {
    wait_until_refreshed(setup).await;
    host.reconnect(NAME).unwrap();
    setup.authority.hold_token_answers(false);
}

/// C07
#[tokio::test]
async fn e02_a_connect_cancelled_during_a_refresh_costs_no_login() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    // As if the login was more than an hour ago.
    std::fs::write(setup.login_file(), setup.authority.unsealed_login(3700)).unwrap();
    setup.authority.hold_token_answers(true);
    let host = setup.host();
    cancel_during_refresh(&setup, &host).await;
    call(&host).await.unwrap();
    let counts = setup.authority.counts();
    assert_eq!((counts.refreshes, counts.reuse_detected), (1, 0));
}

#[tokio::test]
async fn e02_a_renewal_cancelled_during_a_refresh_costs_no_login() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let host = setup.ready_host().await;
    setup.authority.expire_access_tokens();
    setup.authority.hold_token_answers(true);
    let caller = tokio::spawn({
        let host = host.clone();
        async move { call(&host).await }
    });
    cancel_during_refresh(&setup, &host).await;
    caller.await.unwrap().unwrap();
    let counts = setup.authority.counts();
    assert_eq!((counts.refreshes, counts.reuse_detected), (1, 0));
}

/// E03
#[tokio::test]
async fn e03_a_revoked_login_needs_a_new_one_and_says_so() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let host = setup.ready_host().await;
    setup.authority.revoke_logins();
    let error = call(&host).await.unwrap_err();
    assert_eq!(error.code, Code::NeedsLogin, "{error}");
    wait_until(&host, State::NeedsLogin).await;
    assert_eq!(setup.authority.counts().reuse_detected, 0);
    setup.log_in().await;
    wait_until(&host, State::Ready).await;
    call(&host).await.unwrap();
}

/// E03, B03
#[tokio::test]
async fn e03_a_login_wakes_every_waiting_instance() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let host = setup.host_of(ServerSpec { isolation: Isolation::PerClient, ..setup.spec() });
    wait_until(&host, State::Ready).await;
    let clients = ["one", "other"].map(|name| Client::with_key(ClientKey::new(name)));
    let calls = async |client: &Client| {
        let options = CallOptions { client: Some(client.clone()), ..CallOptions::default() };
        let params = JsonText::of(&serde_json::json!({ "name": "whoami" })).unwrap();
        host.request_with(NAME, "tools/call", Some(&params), options).await
    };
    for client in &clients {
        calls(client).await.unwrap();
    }
    setup.authority.revoke_logins();
    for client in &clients {
        assert_eq!(calls(client).await.unwrap_err().code, Code::NeedsLogin);
    }
    assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin);
    let own = || host.server_status(NAME).unwrap().instances.states;
    until("both instances need a login", || own() == [(State::NeedsLogin, 2)]).await;
    setup.log_in().await;
    wait_until(&host, State::Ready).await;
    until("both instances are ready", || own() == [(State::Ready, 2)]).await;
}

/// B09
#[tokio::test]
async fn b09_a_forgotten_client_needs_a_login_or_a_config_change() {
    for (client_id, state) in [(None, State::NeedsLogin), (Some("mine"), State::ConfigError)] {
        let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
        setup.authority.expire_access_tokens();
        setup.authority.forget_clients();
        let mut spec = setup.spec();
        let client_id = client_id.map(|id| Template::parse(id).unwrap());
        spec.oauth = Some(OAuthSpec { client_id, ..OAuthSpec::default() });
        wait_until(&setup.host_of(spec), state).await;
    }
}

#[tokio::test]
async fn e04_a_token_is_renewed_before_it_expires_and_no_request_fails() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let refused = setup.authority.counts().refused;
    expire_soon(&setup);
    let host = setup.host();
    call(&host).await.unwrap();
    wait_until_refreshed(&setup).await;
    call(&host).await.unwrap();
    let counts = setup.authority.counts();
    assert_eq!((counts.refreshes, counts.refused), (1, refused));
}

/// B08, C03
#[tokio::test]
async fn e04_a_silent_authorization_server_delays_no_call_with_a_valid_token() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    expire_soon(&setup);
    setup.authority.hold_token_answers(true);
    // A call that waited for the refresh would exceed its timeout.
    let mut spec = setup.spec();
    spec.supervision.timeouts.connect = 3 * TIMEOUT;
    let host = setup.host_of(spec);
    for _ in 0..3 {
        call(&host).await.unwrap();
    }
    wait_until_refreshed(&setup).await;
    let counts = setup.authority.counts();
    assert_eq!((counts.presented_refresh_tokens, counts.calls), (1, 3), "one refresh, and no call waits");
    setup.authority.hold_token_answers(false);
}

#[tokio::test]
async fn e04_a_failed_early_renewal_is_not_retried_with_every_request() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    expire_soon(&setup);
    setup.authority.fail_refreshes(usize::MAX);
    let host = setup.host();
    call(&host).await.unwrap();
    until("it never tried", || setup.authority.counts().failed_refreshes > 0).await;
    let started = Instant::now();
    for _ in 0..50 {
        call(&host).await.unwrap();
    }
    let most = 2 + usize::try_from(started.elapsed().as_secs() / 5).unwrap();
    assert!(setup.authority.counts().failed_refreshes <= most);
}

/// E02
#[tokio::test]
async fn e02_a_shutdown_waits_for_a_refresh_in_flight() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    expire_soon(&setup);
    setup.authority.hold_token_answers(true);
    let host = setup.host();
    call(&host).await.unwrap();
    wait_until_refreshed(&setup).await;
    let before = std::fs::read(setup.login_file()).unwrap();
    let mut leaving = std::pin::pin!(host.shutdown());
    let early = tokio::time::timeout(Duration::from_secs(1), leaving.as_mut()).await;
    assert!(early.is_err(), "it left without the answer");
    setup.authority.hold_token_answers(false);
    leaving.await;
    assert_ne!(std::fs::read(setup.login_file()).unwrap(), before, "the new tokens are kept");
}

/// E02
#[tokio::test]
async fn e02_an_unwritable_rotated_refresh_token_is_used_and_written_later() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let host = setup.ready_host().await;
    // Without the lock of the key nothing can be sealed.
    let turns = setup.login_file().with_file_name("key.lock");
    std::fs::remove_file(&turns).unwrap();
    std::fs::create_dir(&turns).unwrap();
    for _ in 0..2 {
        setup.authority.expire_access_tokens();
        call(&host).await.unwrap();
    }
    host.reconnect(NAME).unwrap();
    call(&host).await.unwrap();
    std::fs::remove_dir(&turns).unwrap();
    setup.authority.expire_access_tokens();
    call(&host).await.unwrap();
    call(&setup.host()).await.unwrap();
    let counts = setup.authority.counts();
    assert_eq!(
        (counts.refreshes, counts.reuse_detected),
        (3, 0),
        "no token is spent twice, and the last one is kept"
    );
}

/// E02
#[tokio::test]
async fn e02_an_unwritable_login_is_written_as_soon_as_it_can_be() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let host = setup.ready_host().await;
    let before = std::fs::read(setup.login_file()).unwrap();
    let turns = setup.login_file().with_file_name("key.lock");
    std::fs::remove_file(&turns).unwrap();
    std::fs::create_dir(&turns).unwrap();
    setup.authority.expire_access_tokens();
    call(&host).await.unwrap();
    assert_eq!(std::fs::read(setup.login_file()).unwrap(), before);
    std::fs::remove_dir(&turns).unwrap();
    let is_written = || std::fs::read(setup.login_file()).is_ok_and(|now| now != before);
    until("it is written", is_written).await;
    call(&setup.host()).await.unwrap();
    let counts = setup.authority.counts();
    assert_eq!((counts.refreshes, counts.reuse_detected), (1, 0));
}

/// E02
#[tokio::test]
async fn e02_a_temporarily_unreadable_login_costs_no_token() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let host = setup.ready_host().await;
    let refused = setup.authority.counts().refused;
    std::fs::write(setup.login_file().with_file_name("key"), "this is no key").unwrap();
    host.reconnect(NAME).unwrap();
    call(&host).await.unwrap();
    let counts = setup.authority.counts();
    assert_eq!((counts.refused, counts.refreshes), (refused, 0));
}

/// Stores a login as if it was nearly an hour ago.
fn expire_soon(setup: &AuthTest) {
    std::fs::write(setup.login_file(), setup.authority.unsealed_login(3545)).unwrap();
}

async fn wait_until_refreshed(setup: &AuthTest) {
    until("it never refreshed", || setup.authority.counts().refreshes > 0).await;
}

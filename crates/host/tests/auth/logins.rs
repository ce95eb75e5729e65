//! Logins, which need a user.

use crate::auth_test::{AuthTest, NAME, call, wait_until};
use gripfast::auth::{Login, LoginError, LogoutOutcome, logout};
use gripfast::config::{ServerSpec, Target, Template};
use gripfast::{CallOutcome, Code, State};
use gripfast_testkit::authority::{Authority, AuthorityOptions, CLIENT_SECRET, authorize_in_browser};

#[tokio::test]
async fn e03_a_server_without_a_login_says_what_to_do_and_recovers_after_one() {
    let setup = AuthTest::new(AuthorityOptions::default()).await;
    let host = setup.host();
    let status = wait_until(&host, State::NeedsLogin).await;
    let cause = status.supervision.cause.unwrap();
    assert!(cause.starts_with("not logged in: HTTP 401"), "{cause}");
    let error = call(&host).await.unwrap_err();
    assert_eq!(error.to_json()["needs_reauth"], true);
    assert!(error.hint.is_some_and(|hint| hint.contains("gripfast login notes")));
    setup.log_in().await;
    wait_until(&host, State::Ready).await;
    call(&host).await.unwrap();
}

#[tokio::test]
async fn e04_insufficient_scope_fails_one_call_and_the_next_login_asks_for_it() {
    let setup = AuthTest::logged_in(AuthorityOptions {
        call_scope: Some("notes:write"),
        ..AuthorityOptions::default()
    })
    .await;
    let host = setup.ready_host().await;
    let error = call(&host).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::NeedsLogin, CallOutcome::Refused), "{error}");
    assert_eq!(host.server_status(NAME).unwrap().supervision.state, State::Ready, "its other tools work");
    setup.log_in().await;
    call(&host).await.unwrap();
}

#[tokio::test]
async fn e04_a_token_never_goes_to_another_host_that_the_server_names() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let stranger = Authority::start(AuthorityOptions::default()).await;
    setup.authority.redirect_mcp(&stranger.mcp_url());
    let mut spec = setup.spec();
    if let Target::Url { redirects, .. } = &mut spec.target {
        redirects.push(stranger.mcp_url());
    }
    let host = setup.host_of(spec);
    let cause = wait_until(&host, State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains("credentials are not sent to another origin"), "a login would not help: {cause}");
    let shown = stranger.presented();
    assert!(!shown.is_empty() && shown.iter().all(String::is_empty), "{shown:?}");
}

#[tokio::test]
async fn a_callback_of_another_login_is_refused() {
    let setup = AuthTest::new(AuthorityOptions::default()).await;
    let (spec, logins) = (setup.spec(), setup.logins());
    let begin = || Login::begin(NAME, &spec, &logins, "http://127.0.0.1:1/callback");
    let (mine, theirs) = (begin().await.unwrap(), begin().await.unwrap());
    let came_back_to = authorize_in_browser(theirs.url()).await;
    assert!(matches!(mine.finish(&came_back_to).await, Err(LoginError::Refused(_))));
    let from_elsewhere = came_back_to.replace("iss=http", "iss=https");
    assert!(matches!(theirs.finish(&from_elsewhere).await, Err(LoginError::Refused(_))));
}

/// E04
#[tokio::test]
async fn e04_an_unsealed_login_stays_valid_and_is_sealed() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let unsealed = setup.authority.unsealed_login(0);
    std::fs::write(setup.login_file(), &unsealed).unwrap();
    call(&setup.host()).await.unwrap();
    assert_eq!(setup.authority.counts().refreshes, 0);
    for secret in setup.authority.secrets() {
        assert_eq!(unsealed.contains(&secret), secret != CLIENT_SECRET);
        for file in setup.files() {
            let bytes = std::fs::read(&file).unwrap();
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{file:?}");
        }
    }
}

/// E03
#[tokio::test]
async fn e03_a_login_with_a_lost_key_needs_a_new_login_and_says_why() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    std::fs::remove_file(setup.login_file().with_file_name("key")).unwrap();
    let host = setup.host();
    let cause = wait_until(&host, State::NeedsLogin).await.supervision.cause.unwrap();
    assert!(cause.contains("the key of the stored login is missing"), "{cause}");
    setup.log_in().await;
    wait_until(&host, State::Ready).await;
    call(&host).await.unwrap();
}

#[tokio::test]
async fn a_logout_forgets_the_login() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let log_out = async || logout(NAME, &setup.spec(), &setup.logins()).await.unwrap();
    assert_eq!(log_out().await, LogoutOutcome::Forgotten);
    assert_eq!(log_out().await, LogoutOutcome::NotLoggedIn);
    wait_until(&setup.host(), State::NeedsLogin).await;
}

#[tokio::test]
async fn a_server_with_a_configured_credential_has_no_login() {
    let setup = AuthTest::new(AuthorityOptions::default()).await;
    let mut shown = setup.spec();
    if let Target::Url { headers, .. } = &mut shown.target {
        headers.push(("Authorization".to_owned(), Template::parse("Bearer ${env:TOKEN}").unwrap()));
    }
    let command = Template::parse("server").unwrap();
    let child = Target::Stdio {
        command,
        args: Vec::new(),
        env: Vec::new(),
        inherit_env: Vec::new(),
        network_env: true,
        cwd: None,
    };
    for spec in [shown, ServerSpec::new(child)] {
        let login = Login::begin(NAME, &spec, &setup.logins(), "http://127.0.0.1:1/callback").await;
        assert!(matches!(login.err(), Some(LoginError::NotNeeded(_))));
    }
}

/// E03: after a logout the gateway does not use the token that it still has in memory.
#[tokio::test]
async fn e03_a_running_host_notices_a_logout_with_its_next_request() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let host = setup.ready_host().await;
    call(&host).await.unwrap();
    let calls = setup.authority.counts().calls;
    assert_eq!(logout(NAME, &setup.spec(), &setup.logins()).await.unwrap(), LogoutOutcome::Forgotten);
    // The host checks once a second.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin);
    assert_eq!(setup.authority.counts().calls, calls, "the token was good, and was not shown");
    setup.log_in().await;
    wait_until(&host, State::Ready).await;
    call(&host).await.unwrap();
}

/// E03, RFC 7009
#[tokio::test]
async fn e03_a_logout_revokes_the_tokens_if_the_issuer_supports_it() {
    let setup = AuthTest::new(AuthorityOptions::default()).await;
    let endpoint = format!("{}/revoke", setup.authority.issuer());
    setup.authority.set_metadata("revocation_endpoint", endpoint.into());
    setup.log_in().await;
    let token = setup.authority.valid_access_token();
    assert_eq!(logout(NAME, &setup.spec(), &setup.logins()).await.unwrap(), LogoutOutcome::Revoked);
    let revoked = setup.authority.revoked();
    assert_eq!(revoked.len(), 2, "{revoked:?}");
    assert!(revoked[0].starts_with("refresh") && revoked[1] == token, "{revoked:?}");
}

#[tokio::test]
async fn e03_a_logout_succeeds_with_an_unreachable_issuer_and_reports_it() {
    let setup = AuthTest::new(AuthorityOptions::default()).await;
    setup.authority.set_metadata("revocation_endpoint", "http://127.0.0.1:1/revoke".into());
    setup.log_in().await;
    let out = logout(NAME, &setup.spec(), &setup.logins()).await.unwrap();
    assert!(matches!(&out, LogoutOutcome::NotRevoked(why) if why.contains("refused")), "{out:?}");
    let again = logout(NAME, &setup.spec(), &setup.logins()).await.unwrap();
    assert_eq!(again, LogoutOutcome::NotLoggedIn);
}

/// E04: no browser is opened for a login that cannot be sealed.
#[tokio::test]
async fn e04_a_login_that_cannot_be_sealed_is_refused_before_the_browser() {
    let setup = AuthTest::new(AuthorityOptions::default()).await;
    let logins = setup.state().join("logins");
    std::fs::create_dir_all(logins.join("key")).unwrap();
    let login = Login::begin(NAME, &setup.spec(), &setup.logins(), "http://127.0.0.1:1/callback").await;
    let error = login.err().expect("it has no key");
    assert!(matches!(error, LoginError::NotStored(_)), "{error}");
    assert!(error.to_string().contains("logins/key"), "{error}");
}

/// E03: a damaged key invalidates the logins that it sealed, but no new ones.
#[tokio::test]
async fn e03_a_damaged_key_needs_a_login_that_creates_a_new_key() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let key = setup.login_file().with_file_name("key");
    std::fs::write(&key, "damaged").unwrap();
    let host = setup.host();
    let cause = wait_until(&host, State::NeedsLogin).await.supervision.cause.unwrap();
    assert!(cause.contains("is missing or damaged"), "{cause}");
    assert_eq!(std::fs::read(key.with_file_name("key.corrupt")).unwrap(), b"damaged");
    setup.log_in().await;
    wait_until(&host, State::Ready).await;
    call(&setup.host()).await.unwrap();
}

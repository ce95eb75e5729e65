//! Destinations of refresh tokens and client secrets: only the authorization server that they belong to, whatever the
//! server announces.

use crate::auth_test::{AuthTest, NAME, REDIRECT, call, wait_until};
use gripfast::auth::{Login, LoginError};
use gripfast::config::{Grant, OAuthSpec, ServerSpec, Template};
use gripfast::{Code, State};
use gripfast_testkit::authority::{Authority, AuthorityOptions, CLIENT_SECRET, authorize_in_browser};
use serde_json::json;
use std::time::Duration;
use tokio::net::TcpListener;

/// A server and its authorization server at different addresses.
struct SeparateIssuer {
    setup: AuthTest,
    issuer: Authority,
}

impl SeparateIssuer {
    async fn new(options: AuthorityOptions) -> Self {
        let setup = AuthTest::new(options.clone()).await;
        let issuer = Authority::start(options).await;
        setup.authority.use_issuer(&issuer);
        Self { setup, issuer }
    }
}

/// Attack: after the login the server hides its metadata, so that tokens are requested from the server itself.
#[tokio::test]
async fn e04_a_refresh_token_goes_only_to_the_token_endpoint_of_its_login() {
    let SeparateIssuer { setup, issuer } = SeparateIssuer::new(AuthorityOptions::default()).await;
    setup.log_in().await;
    let host = setup.ready_host().await;
    setup.authority.hide_metadata();
    issuer.expire_access_tokens();
    call(&host).await.unwrap();
    assert_eq!(issuer.counts().refreshes, 1, "the issuer of the login renews it");
    assert_eq!(setup.authority.counts().token_requests, 0, "the server gets no secret");
}

/// Attack: the server announces its own authorization server after the login.
#[tokio::test]
async fn e04_a_refresh_token_is_not_sent_to_an_issuer_announced_later() {
    let SeparateIssuer { setup, issuer } = SeparateIssuer::new(AuthorityOptions::default()).await;
    setup.log_in().await;
    let host = setup.ready_host().await;
    let other = Authority::start(AuthorityOptions::default()).await;
    setup.authority.use_issuer(&other);
    issuer.expire_access_tokens();
    let error = call(&host).await.unwrap_err();
    assert_eq!(error.code, Code::NeedsLogin, "the server takes only tokens of the other one: {error}");
    assert_eq!((issuer.counts().refreshes, other.counts().token_requests), (1, 0));
}

/// Attack: a document at an unusual URL of the server names another issuer with its login page, and a token endpoint
/// of the server itself.
#[tokio::test]
async fn e04_only_the_issuer_itself_defines_its_token_endpoint() {
    let SeparateIssuer { setup, issuer: real } = SeparateIssuer::new(AuthorityOptions::default()).await;
    setup.authority.set_wrong_issuer();
    setup.authority.set_metadata("issuer", json!(real.issuer()));
    setup.authority.set_metadata("authorization_endpoint", json!(format!("{}/authorize", real.issuer())));
    let login = Login::begin(NAME, &setup.spec(), &setup.logins(), REDIRECT).await.unwrap();
    let came_back_to = authorize_in_browser(login.url()).await;
    login.finish(&came_back_to).await.unwrap();
    assert_eq!(setup.authority.counts().token_requests, 0, "the server gets neither code nor verifier");
    assert_eq!(real.counts().token_requests, 1);
}

/// Servers of 2025-03-26 without metadata issue tokens themselves, at fixed addresses.
#[tokio::test]
async fn e04_a_login_without_metadata_is_bound_to_the_servers_own_origin() {
    let setup = AuthTest::new(AuthorityOptions::default()).await;
    setup.authority.hide_metadata();
    setup.log_in().await;
    let host = setup.ready_host().await;
    setup.authority.expire_access_tokens();
    call(&host).await.unwrap();
    assert_eq!(setup.authority.counts().refreshes, 1);
}

#[tokio::test]
async fn e04_a_login_of_version_0_1_is_used_until_it_expires() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let mut login: serde_json::Value = serde_json::from_str(&setup.authority.unsealed_login(0)).unwrap();
    login.as_object_mut().unwrap().remove("token_endpoint");
    std::fs::write(setup.login_file(), login.to_string()).unwrap();
    let host = setup.host();
    call(&host).await.unwrap();
    let asked = setup.authority.counts().token_requests;
    setup.authority.expire_access_tokens();
    assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin);
    let cause = wait_until(&host, State::NeedsLogin).await.supervision.cause.unwrap();
    assert!(cause.contains("did not record its token endpoint"), "{cause}");
    assert_eq!(setup.authority.counts().token_requests, asked, "the refresh token is not sent");
    setup.log_in().await;
    wait_until(&host, State::Ready).await;
    setup.authority.expire_access_tokens();
    call(&host).await.unwrap();
}

/// Attack: the server chooses the recipient of the client secret.
#[tokio::test]
async fn e04_a_client_secret_goes_only_to_the_configured_issuer() {
    let SeparateIssuer { setup, issuer } = SeparateIssuer::new(AuthorityOptions::default()).await;
    let thief = Authority::start(AuthorityOptions::default()).await;
    let host = setup.host_of(client_credentials_spec(&setup, Some(issuer.issuer())));
    call(&host).await.unwrap();
    setup.authority.use_issuer(&thief);
    issuer.expire_access_tokens();
    call(&host).await.unwrap_err();
    setup.authority.hide_metadata();
    host.reconnect(NAME).unwrap();
    call(&host).await.unwrap_err();
    assert!(issuer.counts().client_credentials >= 2);
    assert_eq!((thief.counts().token_requests, setup.authority.counts().token_requests), (0, 0));
}

#[tokio::test]
async fn e04_a_secret_without_an_issuer_is_a_config_error_and_is_not_sent() {
    let setup = AuthTest::new(AuthorityOptions::default()).await;
    let host = setup.host_of(client_credentials_spec(&setup, None));
    let cause = wait_until(&host, State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains("`oauth.issuer`"), "{cause}");
    let mut by_person = client_credentials_spec(&setup, None);
    by_person.oauth.as_mut().unwrap().grant = Grant::AuthorizationCode;
    let login = Login::begin(NAME, &by_person, &setup.logins(), "http://127.0.0.1:1/callback").await;
    assert!(matches!(login.err(), Some(LoginError::BadConfig(why)) if why.contains("`oauth.issuer`")));
    assert_eq!(setup.authority.counts().token_requests, 0);
}

/// Metadata counts only if it belongs to the configured issuer, and only if its endpoint uses HTTPS.
#[tokio::test]
async fn e04_a_secret_is_not_sent_to_another_issuer_or_a_plain_http_endpoint() {
    for (key, value, told) in [
        ("issuer", json!("https://id.example"), "names https://id.example instead"),
        ("issuer", json!(null), "names no issuer instead"),
        ("token_endpoint", json!("http://id.example/token"), "is not an `https` address"),
    ] {
        let setup = AuthTest::new(AuthorityOptions::default()).await;
        setup.authority.set_metadata(key, value.clone());
        let mut spec = client_credentials_spec(&setup, Some(setup.authority.issuer()));
        spec.supervision.timeouts.reconnect_wait = Duration::from_millis(500);
        let host = setup.host_of(spec);
        let error = call(&host).await.unwrap_err();
        let cause = host.server_status(NAME).unwrap().supervision.cause.unwrap_or_default();
        assert!(cause.contains(told), "{key} = {value}: {cause}: {error}");
        assert_eq!(setup.authority.counts().token_requests, 0);
    }
}

/// Attack: metadata points to an address of the internal network. `0.0.0.0` reaches this machine and is not named in
/// the config.
#[tokio::test]
async fn e04_metadata_cannot_lead_to_an_unconfigured_private_address() {
    let victim = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = victim.local_addr().unwrap().port();
    let registering = AuthTest::new(AuthorityOptions::default()).await;
    registering
        .authority
        .set_metadata("registration_endpoint", json!(format!("https://0.0.0.0:{port}/register")));
    let redirected = AuthTest::new(AuthorityOptions::default()).await;
    redirected.authority.redirect_metadata(&format!("http://0.0.0.0:{port}/metadata"));
    let mut named = redirected.spec();
    let issuer = Some(Template::parse(redirected.authority.issuer()).unwrap());
    named.oauth = Some(OAuthSpec { issuer, ..OAuthSpec::default() });
    for (setup, spec) in [(&registering, registering.spec()), (&redirected, named)] {
        let login = Login::begin(NAME, &spec, &setup.logins(), "http://127.0.0.1:1/callback").await;
        let why = login.err().unwrap().to_string();
        assert!(why.contains("0.0.0.0") && why.contains("the config does not name"), "{why}");
    }
    assert_no_connection(victim).await;
}

/// Same attack with a redirect of the server itself.
#[tokio::test]
async fn e04_redirects_cannot_lead_to_an_unconfigured_private_address() {
    let victim = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = victim.local_addr().unwrap().port();
    let setup = AuthTest::new(AuthorityOptions::default()).await;
    setup.authority.redirect_mcp(&format!("http://0.0.0.0:{port}/mcp"));
    let cause = wait_until(&setup.host(), State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains("which the config does not name"), "{cause}");
    assert_no_connection(victim).await;
}

/// Attack: each refusal asks for other scopes, and the stored login grows with each.
#[tokio::test]
async fn e04_requested_scopes_do_not_make_the_login_grow_without_bound() {
    let setup = AuthTest::logged_in(AuthorityOptions {
        call_scope: Some("notes:write"),
        ..AuthorityOptions::default()
    })
    .await;
    let host = setup.ready_host().await;
    let size = || std::fs::metadata(setup.login_file()).unwrap().len();
    let before = size();
    for round in 0..10 {
        let scopes: Vec<String> =
            (0..500).map(|number| format!("scope:{round}:{number}:{}", "x".repeat(80))).collect();
        setup.authority.require_scopes(scopes.join(" "));
        assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin);
    }
    assert!(size() < before + 8192, "{} bytes more", size() - before);
    let login =
        Login::begin(NAME, &setup.spec(), &setup.logins(), "http://127.0.0.1:1/callback").await.unwrap();
    let added = login.added_scopes();
    assert!((1..=64).contains(&added.len()), "the person sees what is asked for: {added:?}");
    assert!(added.join(" ").len() <= 4096);
    let asked = login.url().to_owned();
    assert!(asked.len() < 8192, "{}", asked.len());
    authorize_in_browser(&asked).await;
}

fn client_credentials_spec(setup: &AuthTest, issuer: Option<&str>) -> ServerSpec {
    let mut spec = setup.spec();
    spec.oauth = Some(OAuthSpec {
        issuer: issuer.map(|issuer| Template::parse(issuer).unwrap()),
        client_id: Some(Template::parse("robot").unwrap()),
        client_secret: Some(Template::parse(CLIENT_SECRET).unwrap()),
        grant: Grant::ClientCredentials,
        ..OAuthSpec::default()
    });
    spec
}

/// Asserts that there was no connection: our own is the first one that the listener accepts.
async fn assert_no_connection(listener: TcpListener) {
    let own = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (_, first) = listener.accept().await.unwrap();
    assert_eq!(first, own.local_addr().unwrap());
}

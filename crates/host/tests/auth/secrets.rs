//! Where refresh tokens and client secrets go: to the authorization server that they belong to, whatever a server says.

use crate::stage::{NAME, REDIRECT, Stage, call, until};
use gripfast::auth::{Login, LoginError};
use gripfast::config::{Grant, OAuthSpec, ServerSpec, Template};
use gripfast::{Code, State};
use gripfast_testkit::authority::{Authority, Manners, ROBOT_SECRET, visit};
use serde_json::json;
use std::time::Duration;
use tokio::net::TcpListener;

/// A server and its authorization server at different addresses.
struct Apart {
    stage: Stage,
    issuer: Authority,
}

impl Apart {
    async fn new(manners: Manners) -> Self {
        let stage = Stage::with(manners.clone()).await;
        let issuer = Authority::start(manners).await;
        stage.authority.hand_over_to(&issuer);
        Self { stage, issuer }
    }
}

/// The attack: after the login the server hides its metadata, and hopes to be asked for tokens itself.
#[tokio::test]
async fn e04_a_refresh_token_goes_to_the_token_endpoint_of_its_login_and_nowhere_else() {
    let Apart { stage, issuer } = Apart::new(Manners::default()).await;
    stage.log_in().await;
    let host = stage.ready_host().await;
    stage.authority.hide_metadata();
    issuer.end_tokens();
    call(&host).await.unwrap();
    assert_eq!(issuer.counts().refreshes, 1, "the issuer of the login renews it");
    assert_eq!(stage.authority.counts().token_requests, 0, "the server gets no secret");
}

/// The attack: the server names an authorization server of its own after the login.
#[tokio::test]
async fn e04_a_refresh_token_is_not_sent_to_another_issuer_that_the_server_names_later() {
    let Apart { stage, issuer } = Apart::new(Manners::default()).await;
    stage.log_in().await;
    let host = stage.ready_host().await;
    let other = Authority::start(Manners::default()).await;
    stage.authority.hand_over_to(&other);
    issuer.end_tokens();
    let error = call(&host).await.unwrap_err();
    assert_eq!(error.code, Code::NeedsLogin, "the server takes only tokens of the other one: {error}");
    assert_eq!((issuer.counts().refreshes, other.counts().token_requests), (1, 0));
}

/// The attack: a document at an odd address of the server names another issuer and its login page, and a token endpoint
/// of the server's own.
#[tokio::test]
async fn e04_an_issuer_says_itself_where_its_token_endpoint_is() {
    let Apart { stage, issuer: real } = Apart::new(Manners::default()).await;
    stage.authority.name_odd_issuer();
    stage.authority.say_in_metadata("issuer", json!(real.issuer()));
    stage.authority.say_in_metadata("authorization_endpoint", json!(format!("{}/authorize", real.issuer())));
    let login = Login::begin(NAME, &stage.spec(), &stage.logins(), REDIRECT).await.unwrap();
    let came_back_to = visit(login.url()).await;
    login.finish(&came_back_to).await.unwrap();
    assert_eq!(stage.authority.counts().token_requests, 0, "the server gets neither code nor verifier");
    assert_eq!(real.counts().token_requests, 1);
}

/// Servers of 2025-03-26 without metadata give tokens themselves, at fixed addresses.
#[tokio::test]
async fn e04_a_login_without_metadata_is_bound_to_the_servers_own_origin() {
    let stage = Stage::with(Manners::default()).await;
    stage.authority.hide_metadata();
    stage.log_in().await;
    let host = stage.ready_host().await;
    stage.authority.end_tokens();
    call(&host).await.unwrap();
    assert_eq!(stage.authority.counts().refreshes, 1);
}

#[tokio::test]
async fn e04_a_login_of_version_0_1_is_used_while_it_lasts_and_then_asks_for_a_login_once() {
    let stage = Stage::logged_in(Manners::default()).await;
    let mut login: serde_json::Value = serde_json::from_str(&stage.authority.unsealed_login(0)).unwrap();
    login.as_object_mut().unwrap().remove("token_endpoint");
    std::fs::write(stage.kept(), login.to_string()).unwrap();
    let host = stage.host();
    call(&host).await.unwrap();
    let asked = stage.authority.counts().token_requests;
    stage.authority.end_tokens();
    assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin);
    let cause = until(&host, State::NeedsLogin).await.supervision.cause.unwrap();
    assert!(cause.contains("did not record its token endpoint"), "{cause}");
    assert_eq!(stage.authority.counts().token_requests, asked, "the refresh token is not sent");
    stage.log_in().await;
    until(&host, State::Ready).await;
    stage.authority.end_tokens();
    call(&host).await.unwrap();
}

/// The attack: the server chooses who receives the client secret.
#[tokio::test]
async fn e04_a_client_secret_goes_to_the_configured_issuer_whatever_the_server_names() {
    let Apart { stage, issuer } = Apart::new(Manners::default()).await;
    let thief = Authority::start(Manners::default()).await;
    let host = stage.host_of(robot(&stage, Some(issuer.issuer())));
    call(&host).await.unwrap();
    stage.authority.hand_over_to(&thief);
    issuer.end_tokens();
    call(&host).await.unwrap_err();
    stage.authority.hide_metadata();
    host.reconnect(NAME).unwrap();
    call(&host).await.unwrap_err();
    assert!(issuer.counts().by_secret >= 2);
    assert_eq!((thief.counts().token_requests, stage.authority.counts().token_requests), (0, 0));
}

#[tokio::test]
async fn e04_a_secret_without_an_issuer_is_a_mistake_of_the_config_and_goes_nowhere() {
    let stage = Stage::with(Manners::default()).await;
    let host = stage.host_of(robot(&stage, None));
    let cause = until(&host, State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains("`oauth.issuer`"), "{cause}");
    let mut by_person = robot(&stage, None);
    by_person.oauth.as_mut().unwrap().grant = Grant::AuthorizationCode;
    let begun = Login::begin(NAME, &by_person, &stage.logins(), "http://127.0.0.1:1/callback").await;
    assert!(matches!(begun.err(), Some(LoginError::BadConfig(why)) if why.contains("`oauth.issuer`")));
    assert_eq!(stage.authority.counts().token_requests, 0);
}

/// The metadata of an issuer counts only if it is of that issuer, and only if its endpoint is confidential.
#[tokio::test]
async fn e04_a_secret_is_not_sent_by_metadata_of_another_issuer_or_to_a_plain_http_endpoint() {
    for (key, value, told) in [
        ("issuer", json!("https://id.example"), "is of https://id.example"),
        ("issuer", json!(null), "is of no issuer"),
        ("token_endpoint", json!("http://id.example/token"), "is not an `https` address"),
    ] {
        let stage = Stage::with(Manners::default()).await;
        stage.authority.say_in_metadata(key, value.clone());
        let mut spec = robot(&stage, Some(stage.authority.issuer()));
        spec.supervision.timeouts.reconnect_wait = Duration::from_millis(500);
        let host = stage.host_of(spec);
        let error = call(&host).await.unwrap_err();
        let cause = host.status_of(NAME).unwrap().supervision.cause.unwrap_or_default();
        assert!(cause.contains(told), "{key} = {value}: {cause}: {error}");
        assert_eq!(stage.authority.counts().token_requests, 0);
    }
}

/// The attack: metadata leads to an address of the inner network. `0.0.0.0` leads to this machine, and is no address that
/// the config names.
#[tokio::test]
async fn e04_metadata_leads_to_no_private_address_that_the_config_does_not_name() {
    let victim = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = victim.local_addr().unwrap().port();
    let registering = Stage::with(Manners::default()).await;
    registering
        .authority
        .say_in_metadata("registration_endpoint", json!(format!("https://0.0.0.0:{port}/register")));
    let redirected = Stage::with(Manners::default()).await;
    redirected.authority.redirect_metadata(&format!("http://0.0.0.0:{port}/metadata"));
    let mut named = redirected.spec();
    let issuer = Some(Template::parse(redirected.authority.issuer()).unwrap());
    named.oauth = Some(OAuthSpec { issuer, ..OAuthSpec::default() });
    for (stage, spec) in [(&registering, registering.spec()), (&redirected, named)] {
        let begun = Login::begin(NAME, &spec, &stage.logins(), "http://127.0.0.1:1/callback").await;
        let why = begun.err().unwrap().to_string();
        assert!(why.contains("0.0.0.0") && why.contains("the config does not name"), "{why}");
    }
    nobody_came_to(victim).await;
}

/// The same for requests to the server itself, which may redirect.
#[tokio::test]
async fn e04_a_server_redirects_to_no_private_address_that_the_config_does_not_name() {
    let victim = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = victim.local_addr().unwrap().port();
    let stage = Stage::with(Manners::default()).await;
    stage.authority.redirect(&format!("http://0.0.0.0:{port}/mcp"));
    let cause = until(&stage.host(), State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains("which the config does not name"), "{cause}");
    nobody_came_to(victim).await;
}

/// The attack: each refusal asks for other scopes, and the stored login grows with each.
#[tokio::test]
async fn e04_scopes_that_a_server_asks_for_do_not_make_the_login_grow_without_bound() {
    let stage = Stage::logged_in(Manners { call_scope: Some("notes:write"), ..Manners::default() }).await;
    let host = stage.ready_host().await;
    let size = || std::fs::metadata(stage.kept()).unwrap().len();
    let before = size();
    for round in 0..10 {
        let scopes: Vec<String> =
            (0..500).map(|number| format!("scope:{round}:{number}:{}", "x".repeat(80))).collect();
        stage.authority.want_scopes(scopes.join(" "));
        assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin);
    }
    assert!(size() < before + 8192, "{} bytes more", size() - before);
    let login =
        Login::begin(NAME, &stage.spec(), &stage.logins(), "http://127.0.0.1:1/callback").await.unwrap();
    let added = login.added_scopes();
    assert!((1..=64).contains(&added.len()), "the person sees what is asked for: {added:?}");
    assert!(added.join(" ").len() <= 4096);
    let asked = login.url().to_owned();
    assert!(asked.len() < 8192, "{}", asked.len());
    visit(&asked).await;
}

fn robot(stage: &Stage, issuer: Option<&str>) -> ServerSpec {
    let mut spec = stage.spec();
    spec.oauth = Some(OAuthSpec {
        issuer: issuer.map(|issuer| Template::parse(issuer).unwrap()),
        client_id: Some(Template::parse("robot").unwrap()),
        client_secret: Some(Template::parse(ROBOT_SECRET).unwrap()),
        grant: Grant::ClientCredentials,
        ..OAuthSpec::default()
    });
    spec
}

/// Nobody has connected: a connection of our own is the first one that the listener takes.
async fn nobody_came_to(listener: TcpListener) {
    let own = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (_, first) = listener.accept().await.unwrap();
    assert_eq!(first, own.local_addr().unwrap());
}

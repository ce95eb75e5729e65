//! What only a person can give.

use crate::stage::{NAME, Stage, call, until};
use gripfast::auth::{LoggedOut, Login, LoginError, logout};
use gripfast::config::{ServerSpec, Target, Template};
use gripfast::{Code, Fate, State};
use gripfast_testkit::authority::{Authority, Manners, ROBOT_SECRET, visit};

#[tokio::test]
async fn e03_without_a_login_a_server_says_what_to_do_and_revives_by_itself_after_one() {
    let stage = Stage::with(Manners::default()).await;
    let host = stage.host();
    let status = until(&host, State::NeedsLogin).await;
    let cause = status.supervision.cause.unwrap();
    assert!(cause.starts_with("nobody has logged in: HTTP 401"), "{cause}");
    let error = call(&host).await.unwrap_err();
    assert_eq!(error.machine_part()["needs_reauth"], true);
    assert!(error.hint.is_some_and(|hint| hint.contains("gripfast login notes")));
    stage.log_in().await;
    until(&host, State::Ready).await;
    call(&host).await.unwrap();
}

#[tokio::test]
async fn e04_a_tool_that_wants_more_than_was_granted_is_refused_alone_and_the_next_login_asks_for_it() {
    let stage = Stage::logged_in(Manners { call_scope: Some("notes:write"), ..Manners::default() }).await;
    let host = stage.ready_host().await;
    let error = call(&host).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::NeedsLogin, Fate::Refused), "{error}");
    assert_eq!(host.status_of(NAME).unwrap().supervision.state, State::Ready, "its other tools work");
    stage.log_in().await;
    call(&host).await.unwrap();
}

#[tokio::test]
async fn e04_a_token_never_goes_to_another_host_that_the_server_names() {
    let stage = Stage::logged_in(Manners::default()).await;
    let stranger = Authority::start(Manners::default()).await;
    stage.authority.redirect(&stranger.mcp());
    let mut spec = stage.spec();
    if let Target::Url { redirects, .. } = &mut spec.target {
        redirects.push(stranger.mcp());
    }
    let host = stage.host_of(spec);
    let cause = until(&host, State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains("none goes to another origin"), "a login would not help: {cause}");
    let shown = stranger.shown();
    assert!(!shown.is_empty() && shown.iter().all(String::is_empty), "{shown:?}");
}

#[tokio::test]
async fn what_comes_back_to_another_login_is_refused() {
    let stage = Stage::with(Manners::default()).await;
    let (spec, logins) = (stage.spec(), stage.logins());
    let begin = || Login::begin(NAME, &spec, &logins, "http://127.0.0.1:1/callback");
    let (mine, theirs) = (begin().await.unwrap(), begin().await.unwrap());
    let came_back_to = visit(theirs.url()).await;
    assert!(matches!(mine.finish(&came_back_to).await, Err(LoginError::Refused(_))));
    let from_elsewhere = came_back_to.replace("iss=http", "iss=https");
    assert!(matches!(theirs.finish(&from_elsewhere).await, Err(LoginError::Refused(_))));
}

/// E04
#[tokio::test]
async fn e04_a_login_that_was_kept_unsealed_goes_on_and_is_sealed() {
    let stage = Stage::logged_in(Manners::default()).await;
    let unsealed = stage.authority.unsealed_login(0);
    std::fs::write(stage.kept(), &unsealed).unwrap();
    call(&stage.host()).await.unwrap();
    assert_eq!(stage.authority.counts().refreshes, 0);
    for secret in stage.authority.secrets() {
        assert_eq!(unsealed.contains(&secret), secret != ROBOT_SECRET);
        for file in stage.files() {
            let bytes = std::fs::read(&file).unwrap();
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{file:?}");
        }
    }
}

/// E03
#[tokio::test]
async fn e03_a_login_whose_key_is_lost_needs_another_and_says_why() {
    let stage = Stage::logged_in(Manners::default()).await;
    std::fs::remove_file(stage.kept().with_file_name("key")).unwrap();
    let host = stage.host();
    let cause = until(&host, State::NeedsLogin).await.supervision.cause.unwrap();
    assert!(cause.contains("the key of the stored login is gone"), "{cause}");
    stage.log_in().await;
    until(&host, State::Ready).await;
    call(&host).await.unwrap();
}

#[tokio::test]
async fn a_logout_forgets_the_login() {
    let stage = Stage::logged_in(Manners::default()).await;
    let log_out = async || logout(NAME, &stage.spec(), &stage.logins()).await.unwrap();
    assert_eq!(log_out().await, LoggedOut::Forgotten);
    assert_eq!(log_out().await, LoggedOut::WasNot);
    until(&stage.host(), State::NeedsLogin).await;
}

#[tokio::test]
async fn there_is_nothing_to_log_in_to_where_the_config_says_what_to_show() {
    let stage = Stage::with(Manners::default()).await;
    let mut shown = stage.spec();
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
        let begun = Login::begin(NAME, &spec, &stage.logins(), "http://127.0.0.1:1/callback").await;
        assert!(matches!(begun.err(), Some(LoginError::NotNeeded(_))));
    }
}

/// E03: whoever has logged out is not served with the token that a gateway holds.
#[tokio::test]
async fn e03_a_running_host_notices_a_logout_with_its_next_request() {
    let stage = Stage::logged_in(Manners::default()).await;
    let host = stage.ready_host().await;
    call(&host).await.unwrap();
    let calls = stage.authority.counts().calls;
    assert_eq!(logout(NAME, &stage.spec(), &stage.logins()).await.unwrap(), LoggedOut::Forgotten);
    // It looks once a second.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin);
    assert_eq!(stage.authority.counts().calls, calls, "the token was good, and was not shown");
    stage.log_in().await;
    until(&host, State::Ready).await;
    call(&host).await.unwrap();
}

/// E03, RFC 7009
#[tokio::test]
async fn e03_a_logout_revokes_the_tokens_at_the_issuer_where_it_offers_that() {
    let stage = Stage::with(Manners::default()).await;
    let endpoint = format!("{}/revoke", stage.authority.issuer());
    stage.authority.say_in_metadata("revocation_endpoint", endpoint.into());
    stage.log_in().await;
    let token = stage.authority.good_token();
    assert_eq!(logout(NAME, &stage.spec(), &stage.logins()).await.unwrap(), LoggedOut::Revoked);
    let revoked = stage.authority.revoked();
    assert_eq!(revoked.len(), 2, "{revoked:?}");
    assert!(revoked[0].starts_with("refresh") && revoked[1] == token, "{revoked:?}");
}

#[tokio::test]
async fn e03_a_logout_is_done_though_the_issuer_cannot_be_reached_and_says_so() {
    let stage = Stage::with(Manners::default()).await;
    stage.authority.say_in_metadata("revocation_endpoint", "http://127.0.0.1:1/revoke".into());
    stage.log_in().await;
    let out = logout(NAME, &stage.spec(), &stage.logins()).await.unwrap();
    assert!(matches!(&out, LoggedOut::NotRevoked(why) if why.contains("refused")), "{out:?}");
    let again = logout(NAME, &stage.spec(), &stage.logins()).await.unwrap();
    assert_eq!(again, LoggedOut::WasNot);
}

/// E04: nobody is sent to a browser for a login that cannot be sealed.
#[tokio::test]
async fn e04_a_login_that_could_not_be_sealed_is_refused_before_anybody_is_sent_for_it() {
    let stage = Stage::with(Manners::default()).await;
    let logins = stage.state().join("logins");
    std::fs::create_dir_all(logins.join("key")).unwrap();
    let begun = Login::begin(NAME, &stage.spec(), &stage.logins(), "http://127.0.0.1:1/callback").await;
    let error = begun.err().expect("it has no key");
    assert!(matches!(error, LoginError::NotKept(_)), "{error}");
    assert!(error.to_string().contains("logins/key"), "{error}");
}

/// E03: a damaged key costs the logins that it sealed, and no new one.
#[tokio::test]
async fn e03_a_damaged_key_asks_for_a_login_which_has_a_new_key() {
    let stage = Stage::logged_in(Manners::default()).await;
    let key = stage.kept().with_file_name("key");
    std::fs::write(&key, "damaged").unwrap();
    let host = stage.host();
    let cause = until(&host, State::NeedsLogin).await.supervision.cause.unwrap();
    assert!(cause.contains("was damaged"), "{cause}");
    assert_eq!(std::fs::read(key.with_file_name("key.corrupt")).unwrap(), b"damaged");
    stage.log_in().await;
    until(&host, State::Ready).await;
    call(&stage.host()).await.unwrap();
}

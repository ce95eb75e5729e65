//! Credentials that need no user: a client secret, and tokens that the config refers to.

use crate::auth_test::{AuthTest, NAME, TIMEOUT, call, wait_until};
use gripfast::config::{Grant, OAuthSpec, ServerSpec, Target, Template};
use gripfast::{Code, State};
use gripfast_testkit::authority::{AuthorityOptions, CLIENT_SECRET};
#[cfg(unix)]
use std::{io::Write, time::Duration};

#[tokio::test]
async fn e04_a_client_secret_gets_new_tokens_repeatedly() {
    let setup = AuthTest::new(AuthorityOptions::default()).await;
    let host = setup.host_of(client_credentials_spec(&setup, CLIENT_SECRET));
    for tokens in 1..=3 {
        call(&host).await.unwrap();
        assert_eq!(setup.authority.counts().client_credentials, tokens);
        setup.authority.expire_access_tokens();
    }
}

/// Works without a writable state directory.
#[tokio::test]
async fn e04_a_client_secret_needs_no_token_storage() {
    let setup = AuthTest::new(AuthorityOptions::default()).await;
    setup.block_login_storage();
    let host = setup.host_of(client_credentials_spec(&setup, CLIENT_SECRET));
    for tokens in 1..=3 {
        call(&host).await.unwrap();
        host.reconnect(NAME).unwrap();
        call(&host).await.unwrap();
        assert_eq!(setup.authority.counts().client_credentials, tokens, "a new link needs no new token");
        setup.authority.expire_access_tokens();
    }
}

#[tokio::test]
async fn e04_a_bearer_token_in_a_file_is_read_again_when_it_is_refused() {
    // Any valid token will do for the file.
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let token = || setup.authority.valid_access_token();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), token()).unwrap();
    let mut spec = setup.spec();
    if let Target::Url { headers, .. } = &mut spec.target {
        let value = format!("Bearer ${{file:{}}}", file.path().display());
        headers.push(("Authorization".to_owned(), Template::parse(&value).unwrap()));
    }
    let host = setup.host_of(spec);
    call(&host).await.unwrap();
    setup.authority.expire_access_tokens();
    let error = call(&host).await.unwrap_err();
    assert_eq!(error.code, Code::NeedsLogin, "nothing new is in the file: {error}");
    setup.log_in().await;
    std::fs::write(file.path(), token()).unwrap();
    host.reconnect(NAME).unwrap();
    wait_until(&host, State::Ready).await;
    setup.authority.expire_access_tokens();
    setup.log_in().await;
    std::fs::write(file.path(), token()).unwrap();
    call(&host).await.unwrap();
}

/// B09
#[tokio::test]
async fn b09_a_wrong_client_secret_is_a_config_error() {
    let setup = AuthTest::new(AuthorityOptions::default()).await;
    let host = setup.host_of(client_credentials_spec(&setup, "this-is-not-it"));
    let status = wait_until(&host, State::ConfigError).await;
    let cause = status.supervision.cause.unwrap();
    assert!(cause.contains("`robot`") && cause.contains("invalid_client"), "{cause}");
    assert!(!cause.contains("this-is-not-it"), "{cause}");
    let asked = setup.authority.counts().refused;
    for _ in 0..3 {
        call(&host).await.unwrap_err();
    }
    assert_eq!(setup.authority.counts().refused, asked, "calls do not make it ask again");
}

/// B09
#[tokio::test]
async fn b09_a_missing_client_secret_is_a_config_error() {
    let setup = AuthTest::new(AuthorityOptions::default()).await;
    let host = setup.host_of(client_credentials_spec(&setup, "${env:GRIPFAST_TEST_NO_SUCH_SECRET}"));
    let cause = wait_until(&host, State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains("`GRIPFAST_TEST_NO_SUCH_SECRET` is not set"), "{cause}");
}

/// B08
#[cfg(unix)]
#[tokio::test]
async fn b08_a_slow_token_program_delays_no_other_server() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let host = setup.ready_host().await;
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut spec = setup.spec();
    if let Target::Url { headers, .. } = &mut spec.target {
        let value = format!("Bearer ${{cmd:cat {}}}", pipe.display());
        headers.push(("Authorization".to_owned(), Template::parse(&value).unwrap()));
    }
    host.spawn("slow", spec).unwrap();
    let mut wants_it = open_when_read(&pipe).await;
    call(&host).await.unwrap();
    wants_it.write_all(setup.authority.valid_access_token().as_bytes()).unwrap();
    drop(wants_it);
    tokio::time::timeout(TIMEOUT, host.call("slow", "whoami", None)).await.expect("it hangs").unwrap();
}

fn client_credentials_spec(setup: &AuthTest, secret: &str) -> ServerSpec {
    let mut spec = setup.spec();
    spec.oauth = Some(OAuthSpec {
        issuer: Some(Template::parse(setup.authority.issuer()).unwrap()),
        client_id: Some(Template::parse("robot").unwrap()),
        client_secret: Some(Template::parse(secret).unwrap()),
        grant: Grant::ClientCredentials,
        ..OAuthSpec::default()
    });
    spec
}

/// Opens a named pipe for writing once it has a reader.
#[cfg(unix)]
async fn open_when_read(pipe: &std::path::Path) -> std::fs::File {
    use std::os::unix::fs::OpenOptionsExt;
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap();
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        match std::fs::OpenOptions::new().write(true).custom_flags(nonblocking).open(pipe) {
            Ok(file) => return file,
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "the pipe has no reader: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

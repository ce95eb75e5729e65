//! Credentials that need no person: a client's own secret, and what the config refers to.

use crate::stage::{NAME, STUCK, Stage, call, until};
use gripfast::config::{Grant, OAuthSpec, ServerSpec, Target, Template};
use gripfast::{Code, State};
use gripfast_testkit::authority::{Manners, ROBOT_SECRET};
#[cfg(unix)]
use std::{io::Write, time::Duration};

#[tokio::test]
async fn e04_a_client_with_a_secret_of_its_own_gets_its_tokens_again_and_again() {
    let stage = Stage::with(Manners::default()).await;
    let host = stage.host_of(robot(&stage, ROBOT_SECRET));
    for tokens in 1..=3 {
        call(&host).await.unwrap();
        assert_eq!(stage.authority.counts().by_secret, tokens);
        stage.authority.end_tokens();
    }
}

/// A state directory that cannot be written is done without.
#[tokio::test]
async fn e04_a_client_with_a_secret_of_its_own_needs_no_place_to_keep_its_tokens() {
    let stage = Stage::with(Manners::default()).await;
    stage.keep_nothing();
    let host = stage.host_of(robot(&stage, ROBOT_SECRET));
    for tokens in 1..=3 {
        call(&host).await.unwrap();
        host.reconnect(NAME).unwrap();
        call(&host).await.unwrap();
        assert_eq!(stage.authority.counts().by_secret, tokens, "a new link needs no new token");
        stage.authority.end_tokens();
    }
}

#[tokio::test]
async fn e04_a_bearer_token_in_a_file_is_read_again_when_it_is_refused() {
    // Anybody's token will do for whoever finds it in a file.
    let stage = Stage::logged_in(Manners::default()).await;
    let token = || stage.authority.good_token();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), token()).unwrap();
    let mut spec = stage.spec();
    if let Target::Url { headers, .. } = &mut spec.target {
        let value = format!("Bearer ${{file:{}}}", file.path().display());
        headers.push(("Authorization".to_owned(), Template::parse(&value).unwrap()));
    }
    let host = stage.host_of(spec);
    call(&host).await.unwrap();
    stage.authority.end_tokens();
    let error = call(&host).await.unwrap_err();
    assert_eq!(error.code, Code::NeedsLogin, "nothing new is in the file: {error}");
    stage.log_in().await;
    std::fs::write(file.path(), token()).unwrap();
    host.reconnect(NAME).unwrap();
    until(&host, State::Ready).await;
    stage.authority.end_tokens();
    stage.log_in().await;
    std::fs::write(file.path(), token()).unwrap();
    call(&host).await.unwrap();
}

/// B09
#[tokio::test]
async fn b09_a_client_whose_secret_is_wrong_is_a_matter_of_the_config() {
    let stage = Stage::with(Manners::default()).await;
    let host = stage.host_of(robot(&stage, "this-is-not-it"));
    let status = until(&host, State::ConfigError).await;
    let cause = status.supervision.cause.unwrap();
    assert!(cause.contains("`robot`") && cause.contains("invalid_client"), "{cause}");
    assert!(!cause.contains("this-is-not-it"), "{cause}");
    let asked = stage.authority.counts().refused;
    for _ in 0..3 {
        call(&host).await.unwrap_err();
    }
    assert_eq!(stage.authority.counts().refused, asked, "calls do not make it ask again");
}

/// B09
#[tokio::test]
async fn b09_a_secret_that_is_not_there_is_a_matter_of_the_config() {
    let stage = Stage::with(Manners::default()).await;
    let host = stage.host_of(robot(&stage, "${env:GRIPFAST_TEST_NO_SUCH_SECRET}"));
    let cause = until(&host, State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains("`GRIPFAST_TEST_NO_SUCH_SECRET` is not set"), "{cause}");
}

/// B08
#[cfg(unix)]
#[tokio::test]
async fn b08_a_program_that_takes_its_time_to_bring_a_token_delays_no_other_server() {
    let stage = Stage::logged_in(Manners::default()).await;
    let host = stage.ready_host().await;
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut spec = stage.spec();
    if let Target::Url { headers, .. } = &mut spec.target {
        let value = format!("Bearer ${{cmd:cat {}}}", pipe.display());
        headers.push(("Authorization".to_owned(), Template::parse(&value).unwrap()));
    }
    host.spawn("slow", spec).unwrap();
    let mut wants_it = until_somebody_reads(&pipe).await;
    call(&host).await.unwrap();
    wants_it.write_all(stage.authority.good_token().as_bytes()).unwrap();
    drop(wants_it);
    tokio::time::timeout(STUCK, host.call("slow", "whoami", None)).await.expect("it hangs").unwrap();
}

fn robot(stage: &Stage, secret: &str) -> ServerSpec {
    let mut spec = stage.spec();
    spec.oauth = Some(OAuthSpec {
        issuer: Some(Template::parse(stage.authority.issuer()).unwrap()),
        client_id: Some(Template::parse("robot").unwrap()),
        client_secret: Some(Template::parse(secret).unwrap()),
        grant: Grant::ClientCredentials,
        ..OAuthSpec::default()
    });
    spec
}

/// A pipe can be opened for writing without waiting only while somebody has it open for reading.
#[cfg(unix)]
async fn until_somebody_reads(pipe: &std::path::Path) -> std::fs::File {
    use std::os::unix::fs::OpenOptionsExt;
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap();
    let deadline = tokio::time::Instant::now() + STUCK;
    loop {
        match std::fs::OpenOptions::new().write(true).custom_flags(nonblocking).open(pipe) {
            Ok(file) => return file,
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "nobody reads: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

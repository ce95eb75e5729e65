//! Credentials that need no person: a client's own secret, and what the config refers to.

use crate::stage::{NAME, Stage, call, until};
use gripfast::config::{Grant, OAuthSpec, Target, Template};
use gripfast::{Code, State};
use gripfast_testkit::authority::{Manners, ROBOT_SECRET};

#[tokio::test]
async fn e04_a_client_with_a_secret_of_its_own_gets_its_tokens_again_and_again() {
    let stage = Stage::with(Manners::default()).await;
    let mut spec = stage.spec();
    spec.oauth = Some(OAuthSpec {
        client_id: Some(Template::parse("robot").unwrap()),
        client_secret: Some(Template::parse(ROBOT_SECRET).unwrap()),
        grant: Grant::ClientCredentials,
        ..OAuthSpec::default()
    });
    let host = stage.host_of(spec);
    for tokens in 1..=3 {
        call(&host).await.unwrap();
        assert_eq!(stage.authority.counts().by_secret, tokens);
        stage.authority.end_tokens();
    }
}

#[tokio::test]
async fn e04_a_bearer_token_in_a_file_is_read_again_when_it_is_refused() {
    // Anybody's token will do for whoever finds it in a file.
    let stage = Stage::logged_in(Manners::default()).await;
    let token = || {
        let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(stage.kept()).unwrap()).unwrap();
        kept["access_token"].as_str().unwrap().to_owned()
    };
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

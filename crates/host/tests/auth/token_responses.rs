//! Token endpoints with unusual answers or `Retry-After`.

use crate::auth_test::{AuthTest, NAME, call, wait_until};
use gripfast::{Code, State};
use gripfast_testkit::authority::AuthorityOptions;
use serde_json::{Value, json};
use tokio::time::Instant;

type Form = fn(Value) -> (u16, String);

fn as_json(answer: &Value) -> (u16, String) {
    (200, answer.to_string())
}

/// E02: unusual spelling of an answer never costs the login, however often the token is renewed.
#[tokio::test]
async fn e02_a_renewed_token_is_kept_for_every_spelling_of_the_answer() {
    let forms: [(&str, Form); 5] = [
        ("text", |answer| as_json(&merged(answer, json!({ "expires_in": "3600" })))),
        ("fraction", |answer| as_json(&merged(answer, json!({ "expires_in": 3599.5 })))),
        ("no type", |answer| as_json(&merged(answer, json!({ "token_type": null })))),
        ("list of scopes", |answer| as_json(&merged(answer, json!({ "scope": ["read", "write"] })))),
        ("201 and nonsense", |answer| {
            let odd = json!({ "expires_in": "soon", "scope": 7, "id_token": false });
            (201, merged(answer, odd).to_string())
        }),
    ];
    for (form, answers) in forms {
        let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
        let host = setup.ready_host().await;
        setup.authority.answer_refreshes(answers);
        for refreshes in 1..=2 {
            setup.authority.expire_access_tokens();
            call(&host).await.unwrap_or_else(|error| panic!("{form}: {error}"));
            let counts = setup.authority.counts();
            assert_eq!((counts.refreshes, counts.reuse_detected), (refreshes, 0), "{form}");
        }
    }
}

fn merged(mut answer: Value, other: Value) -> Value {
    let members = answer.as_object_mut().unwrap();
    members.extend(other.as_object().unwrap().clone());
    answer
}

/// E02: the answer with the next refresh token is lost; sending the used one again looks like theft.
#[tokio::test]
async fn e02_after_an_unreadable_answer_the_refresh_token_is_not_sent_again() {
    let forms: [(&str, Form); 4] = [
        ("a page", |_| (200, "<html>welcome</html>".to_owned())),
        ("nothing", |_| (204, String::new())),
        ("no token", |_| as_json(&json!({ "status": "ok" }))),
        ("another kind", |answer| as_json(&merged(answer, json!({ "token_type": "mac" })))),
    ];
    for (form, answers) in forms {
        let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
        let host = setup.ready_host().await;
        setup.authority.answer_refreshes(answers);
        setup.authority.expire_access_tokens();
        assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin, "{form}");
        let cause = wait_until(&host, State::NeedsLogin).await.supervision.cause.unwrap();
        assert!(cause.contains("the refresh token is not sent again"), "{form}: {cause}");
        for _ in 0..3 {
            host.reconnect(NAME).unwrap();
            assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin, "{form}");
        }
        let counts = setup.authority.counts();
        assert_eq!((counts.presented_refresh_tokens, counts.reuse_detected), (1, 0), "{form}");
        setup.log_in().await;
        wait_until(&host, State::Ready).await;
    }
}

/// E03
#[tokio::test]
async fn e03_a_token_endpoint_error_needs_a_login_with_any_status() {
    let forms: [(&str, Form); 4] = [
        ("GitHub's", |_| as_json(&json!({ "error": "bad_refresh_token", "error_description": "expired" }))),
        ("200", |_| as_json(&json!({ "error": "invalid_grant" }))),
        ("403", |_| (403, json!({ "error": "invalid_grant" }).to_string())),
        ("500", |_| (500, json!({ "error": "invalid_grant" }).to_string())),
    ];
    for (form, answers) in forms {
        let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
        let host = setup.ready_host().await;
        setup.authority.answer_refreshes(answers);
        setup.authority.expire_access_tokens();
        assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin, "{form}");
        let cause = wait_until(&host, State::NeedsLogin).await.supervision.cause.unwrap();
        assert!(cause.contains("the login has ended"), "{form}: {cause}");
        assert_eq!(setup.authority.counts().presented_refresh_tokens, 1, "{form}");
    }
}

/// E02
#[tokio::test]
async fn e02_the_retry_after_of_a_token_endpoint_is_honoured() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let host = setup.ready_host().await;
    setup.authority.answer_too_many_requests(1, "4");
    setup.authority.expire_access_tokens();
    let begun = Instant::now();
    call(&host).await.unwrap();
    let took = begun.elapsed();
    assert!(took.as_millis() >= 3900, "{took:?}");
    let counts = setup.authority.counts();
    assert_eq!((counts.presented_refresh_tokens, counts.refreshes), (2, 1), "it was left alone meanwhile");
}

/// E02: the retry rate of connections would have been 15 in 15 s.
#[tokio::test]
async fn e02_a_failing_token_endpoint_is_retried_less_often_than_connects() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let host = setup.ready_host().await;
    setup.authority.fail_refreshes(usize::MAX);
    setup.authority.expire_access_tokens();
    let begun = Instant::now();
    while begun.elapsed().as_millis() < 6500 {
        // Each iteration requests an immediate reconnect, like an impatient user or program.
        let _ = host.reconnect(NAME);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let asked = setup.authority.counts().presented_refresh_tokens;
    assert!((2..=3).contains(&asked), "after 0, 1 and 3 s: {asked}");
    let status = host.server_status(NAME).unwrap().supervision;
    assert_eq!(status.state, State::Reconnecting, "{status:?}");
    assert!(status.cause.as_ref().is_some_and(|cause| cause.contains("next attempt in")), "{status:?}");
}

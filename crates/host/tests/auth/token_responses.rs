//! Token endpoints that answer in forms of their own, or ask for patience.

use crate::stage::{NAME, Stage, call, until};
use gripfast::{Code, State};
use gripfast_testkit::authority::Manners;
use serde_json::{Value, json};
use tokio::time::Instant;

type Form = fn(Value) -> (u16, String);

fn said(answer: &Value) -> (u16, String) {
    (200, answer.to_string())
}

/// E02: a spelling costs no login, however often the token is renewed.
#[tokio::test]
async fn e02_a_renewed_token_is_kept_however_its_answer_is_spelled() {
    let forms: [(&str, Form); 5] = [
        ("text", |answer| said(&merged(answer, json!({ "expires_in": "3600" })))),
        ("fraction", |answer| said(&merged(answer, json!({ "expires_in": 3599.5 })))),
        ("no type", |answer| said(&merged(answer, json!({ "token_type": null })))),
        ("list of scopes", |answer| said(&merged(answer, json!({ "scope": ["read", "write"] })))),
        ("201 and nonsense", |answer| {
            let odd = json!({ "expires_in": "soon", "scope": 7, "id_token": false });
            (201, merged(answer, odd).to_string())
        }),
    ];
    for (form, answers) in forms {
        let stage = Stage::logged_in(Manners::default()).await;
        let host = stage.ready_host().await;
        stage.authority.answer_refreshes(answers);
        for refreshes in 1..=2 {
            stage.authority.end_tokens();
            call(&host).await.unwrap_or_else(|error| panic!("{form}: {error}"));
            let counts = stage.authority.counts();
            assert_eq!((counts.refreshes, counts.thefts), (refreshes, 0), "{form}");
        }
    }
}

fn merged(mut answer: Value, other: Value) -> Value {
    let members = answer.as_object_mut().unwrap();
    members.extend(other.as_object().unwrap().clone());
    answer
}

/// E02: the answer is lost with the next refresh token; sending the spent one again looks like theft.
#[tokio::test]
async fn e02_after_an_unreadable_answer_the_refresh_token_is_not_sent_again() {
    let forms: [(&str, Form); 4] = [
        ("a page", |_| (200, "<html>welcome</html>".to_owned())),
        ("nothing", |_| (204, String::new())),
        ("no token", |_| said(&json!({ "status": "ok" }))),
        ("another kind", |answer| said(&merged(answer, json!({ "token_type": "mac" })))),
    ];
    for (form, answers) in forms {
        let stage = Stage::logged_in(Manners::default()).await;
        let host = stage.ready_host().await;
        stage.authority.answer_refreshes(answers);
        stage.authority.end_tokens();
        assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin, "{form}");
        let cause = until(&host, State::NeedsLogin).await.supervision.cause.unwrap();
        assert!(cause.contains("the refresh token is not sent again"), "{form}: {cause}");
        for _ in 0..3 {
            host.reconnect(NAME).unwrap();
            assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin, "{form}");
        }
        let counts = stage.authority.counts();
        assert_eq!((counts.shown_refresh_tokens, counts.thefts), (1, 0), "{form}");
        stage.log_in().await;
        until(&host, State::Ready).await;
    }
}

/// E03
#[tokio::test]
async fn e03_an_error_of_the_token_endpoint_needs_a_login_whatever_its_status() {
    let forms: [(&str, Form); 4] = [
        ("GitHub's", |_| said(&json!({ "error": "bad_refresh_token", "error_description": "expired" }))),
        ("200", |_| said(&json!({ "error": "invalid_grant" }))),
        ("403", |_| (403, json!({ "error": "invalid_grant" }).to_string())),
        ("500", |_| (500, json!({ "error": "invalid_grant" }).to_string())),
    ];
    for (form, answers) in forms {
        let stage = Stage::logged_in(Manners::default()).await;
        let host = stage.ready_host().await;
        stage.authority.answer_refreshes(answers);
        stage.authority.end_tokens();
        assert_eq!(call(&host).await.unwrap_err().code, Code::NeedsLogin, "{form}");
        let cause = until(&host, State::NeedsLogin).await.supervision.cause.unwrap();
        assert!(cause.contains("the login has ended"), "{form}: {cause}");
        assert_eq!(stage.authority.counts().shown_refresh_tokens, 1, "{form}");
    }
}

/// E02
#[tokio::test]
async fn e02_the_retry_after_of_a_token_endpoint_is_honoured() {
    let stage = Stage::logged_in(Manners::default()).await;
    let host = stage.ready_host().await;
    stage.authority.be_busy(1, "4");
    stage.authority.end_tokens();
    let begun = Instant::now();
    call(&host).await.unwrap();
    let took = begun.elapsed();
    assert!(took.as_millis() >= 3900, "{took:?}");
    let counts = stage.authority.counts();
    assert_eq!((counts.shown_refresh_tokens, counts.refreshes), (2, 1), "it was left alone meanwhile");
}

/// E02: 15 in 15 s was the pace of dialing.
#[tokio::test]
async fn e02_a_token_endpoint_that_fails_is_asked_less_often_than_servers_are_dialled() {
    let stage = Stage::logged_in(Manners::default()).await;
    let host = stage.ready_host().await;
    stage.authority.fail_refreshes(usize::MAX);
    stage.authority.end_tokens();
    let begun = Instant::now();
    while begun.elapsed().as_millis() < 6500 {
        // Each has the server dialled at once, as a person or a program in a hurry would.
        let _ = host.reconnect(NAME);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let asked = stage.authority.counts().shown_refresh_tokens;
    assert!((2..=3).contains(&asked), "after 0, 1 and 3 s: {asked}");
    let status = host.status_of(NAME).unwrap().supervision;
    assert_eq!(status.state, State::Reconnecting, "{status:?}");
    assert!(status.cause.as_ref().is_some_and(|cause| cause.contains("it is asked again in")), "{status:?}");
}

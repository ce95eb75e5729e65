//! Servers that are away, as clients see it: calls that wait, answers that say what happened and what
//! happens next, and everybody else going on as if nothing were.

use crate::client::{Legacy, Modern, call};
use crate::scene::{Scene, at, child, demo, demo_with, until, within};
use gripfast::State;
use gripfast_demo::{Faults, Options};
use serde_json::{Value, json};
use std::process::Command;

/// What C01 wants of a failed call: readable, and with a machine part.
fn failure(answer: &Value, era_is_modern: bool) -> Value {
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{answer}");
    assert!(!result["content"][0]["text"].as_str().unwrap().is_empty(), "{answer}");
    assert_eq!(result.get("resultType").is_some(), era_is_modern, "{answer}");
    let part = result["_meta"]["gripfast/failure"].clone();
    assert_part(&part);
    part
}

fn assert_part(part: &Value) {
    assert_eq!(part["server"], "away", "{part}");
    for member in ["code", "outcome", "hint"] {
        assert!(part[member].is_string(), "{member}: {part}");
    }
    assert!(part.get("retry_after_ms").is_some(), "{part}");
}

/// Another server's tools, and the session itself, are as ever.
async fn others_go_on(client: &Legacy) {
    assert_eq!(client.calls("here__echo", json!({ "text": "fine" })).await, "fine");
    assert_eq!(client.asks("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn c04_a_call_to_a_child_that_was_just_killed_is_held_and_served() {
    let scene = Scene::with(&child("demo", &[], &[])).await;
    let client = Legacy::meets(&scene.http).await;
    scene.until("demo", State::Ready).await;
    for round in ["one", "two"] {
        let pid = scene.host.status_of("demo").unwrap().pid.unwrap();
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
        assert_eq!(client.calls("demo__echo", json!({ "text": round })).await, round);
    }
}

#[tokio::test]
async fn c04_a_call_to_a_server_that_is_away_is_held_until_it_is_back() {
    let away = demo().await;
    let address = away.addr();
    let wait = "timeouts = { reconnect_wait = \"60s\" }";
    let scene = Scene::with(&at("away", &away.url(), "legacy", &[wait])).await;
    let (legacy, modern) = (Legacy::meets(&scene.http).await, Modern::of(&scene.http));
    away.stop().await;
    scene.until("away", State::Reconnecting).await;
    let both = async {
        tokio::join!(
            legacy.calls("away__echo", json!({ "text": "held" })),
            modern.calls("away__echo", json!({ "text": "held too" })),
        )
    };
    let back = async {
        scene.host.reconnect("away").unwrap();
        gripfast_demo::start_http(address, Options::default()).await.unwrap()
    };
    let (said, _back) = within("both calls", async { tokio::join!(both, back) }).await;
    assert_eq!(said, ("held".to_owned(), "held too".to_owned()));
}

#[tokio::test]
async fn c04_what_a_server_that_was_never_listed_may_have_is_held_and_not_called_unknown() {
    let late = demo().await;
    let (address, url) = (late.addr(), late.url());
    late.stop().await;
    let wait = "timeouts = { reconnect_wait = \"60s\" }";
    let scene = Scene::unlisted(&at("late", &url, "legacy", &[wait])).await;
    let (legacy, modern) = (Legacy::meets(&scene.http).await, Modern::of(&scene.http));
    let completion = json!({ "type": "ref/prompt", "name": "late__greet" });
    let completion = json!({ "ref": completion, "argument": { "name": "name", "value": "A" } });
    let asked = Box::pin(async {
        tokio::join!(
            legacy.calls("late__echo", json!({ "text": "held" })),
            modern.calls("late__echo", json!({ "text": "held too" })),
            legacy.asks("tools/call", call("late__nothing", json!({}))),
            modern.asks("prompts/get", call("late__greet", json!({ "name": "Ada" }))),
            legacy.asks("resources/read", json!({ "uri": "demo://greeting" })),
            modern.asks("completion/complete", completion),
        )
    });
    let comes = async {
        let late = gripfast_demo::start_http(address, Options::default()).await.unwrap();
        scene.host.reconnect("late").unwrap();
        late
    };
    let (said, late) = within("all requests", async { tokio::join!(asked, comes) }).await;
    let (one, two, nothing, prompt, resource, completed) = said;
    assert_eq!((&*one, &*two), ("held", "held too"));
    assert_eq!(nothing["error"]["code"], -32602, "{nothing}");
    for answer in [prompt, resource, completed] {
        assert!(answer["result"].is_object(), "{answer}");
    }
    assert_eq!(late.calls(), 2, "what it does not have was not sent");
}

#[tokio::test]
async fn c04_a_lazy_server_that_was_never_listed_starts_for_a_call_that_names_it() {
    let config = child("lazy", &[], &["lazy = true"]) + &child("other", &[], &["lazy = true"]);
    let scene = Scene::unlisted(&config).await;
    let client = Legacy::meets(&scene.http).await;
    let unknown = client.asks("tools/call", call("nobody__echo", json!({}))).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert_eq!(client.calls("lazy__echo", json!({ "text": "up" })).await, "up");
    assert_eq!(scene.host.status_of("other").unwrap().supervision.state, State::Idle);
}

#[tokio::test]
async fn c04_a_server_that_was_never_listed_and_does_not_come_is_a_failure_with_a_machine_part() {
    let away = demo().await;
    let url = away.url();
    away.stop().await;
    let none = "timeouts = { reconnect_wait = \"0s\" }";
    let scene = Scene::unlisted(&at("away", &url, "legacy", &[none])).await;
    let (legacy, modern) = (Legacy::meets(&scene.http).await, Modern::of(&scene.http));
    let echo = call("away__echo", json!({ "text": "hi" }));
    let part = failure(&legacy.asks("tools/call", echo.clone()).await, false);
    assert_eq!((&part["code"], &part["outcome"]), (&json!("reconnecting"), &json!("not_sent")));
    failure(&modern.asks("tools/call", echo).await, true);
    let prompt = legacy.asks("prompts/get", call("away__greet", json!({}))).await;
    assert_eq!(prompt["error"]["code"], -32603, "{prompt}");
    assert_part(&prompt["error"]["data"]);
}

#[tokio::test]
async fn b08_a_stopped_server_answers_at_once_and_the_others_do_not_notice() {
    let (away, here) = (demo().await, demo().await);
    let config = at("away", &away.url(), "legacy", &[]) + &at("here", &here.url(), "modern", &[]);
    let scene = Scene::with(&config).await;
    let (legacy, modern) = (Legacy::meets(&scene.http).await, Modern::of(&scene.http));
    scene.host.stop("away").unwrap();
    scene.until("away", State::Stopped).await;
    let echo = call("away__echo", json!({ "text": "hi" }));
    let part = failure(&legacy.asks("tools/call", echo.clone()).await, false);
    assert_eq!((&part["code"], &part["outcome"]), (&json!("stopped"), &json!("not_sent")));
    failure(&modern.asks("tools/call", echo).await, true);
    let others = [
        ("prompts/get", call("away__greet", json!({ "name": "Ada" }))),
        ("resources/read", json!({ "uri": "demo://greeting" })),
    ];
    for (method, params) in others {
        let answer = legacy.asks(method, params.clone()).await;
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        assert_part(&answer["error"]["data"]);
        let answered = modern.sends(method, params).await;
        assert_eq!(answered.refusal(), (200, -32603));
    }
    others_go_on(&legacy).await;
    scene.host.start_again("away").unwrap();
    scene.until("away", State::Ready).await;
    assert_eq!(legacy.calls("away__echo", json!({ "text": "again" })).await, "again");
}

#[tokio::test]
async fn c04_a_call_that_wakes_a_parked_server_is_held_until_it_is_up_and_the_others_do_not_notice() {
    let here = demo().await;
    let restart = "restart = { max = 1, window = \"5m\", parked_probe = \"1h\" }";
    let config = child("away", &[], &[restart]) + &at("here", &here.url(), "legacy", &[]);
    let scene = Scene::with(&config).await;
    let client = Legacy::meets(&scene.http).await;
    let mut seen = Vec::new();
    while scene.host.status_of("away").unwrap().supervision.state != State::Parked {
        assert!(seen.len() < 20, "never parked: {seen:?}");
        // It dies of each call; the calls are not sent twice.
        let part = failure(&client.asks("tools/call", call("away__crash", json!({}))).await, false);
        seen.push(part["code"].as_str().unwrap().to_owned());
    }
    let answer = client.asks("tools/call", call("away__echo", json!({ "text": "hi" }))).await;
    assert_eq!(answer["result"]["content"][0]["text"], "hi", "{answer}");
    others_go_on(&client).await;
}

#[tokio::test]
async fn a_server_that_wants_a_login_says_so_and_the_others_do_not_notice() {
    let (away, here) = (demo().await, demo().await);
    let config = at("away", &away.url(), "legacy", &[]) + &at("here", &here.url(), "legacy", &[]);
    let scene = Scene::with(&config).await;
    let client = Legacy::meets(&scene.http).await;
    away.set_faults(Faults { require_bearer: Some("secret".to_owned()), ..Faults::default() });
    let part = failure(&client.asks("tools/call", call("away__echo", json!({ "text": "hi" }))).await, false);
    assert_eq!(part["code"], "needs_login", "{part}");
    others_go_on(&client).await;
}

#[tokio::test]
async fn b06_tools_stay_listed_byte_for_byte_while_their_server_is_away() {
    let away = demo_with(Options { extra_tools: 5, ..Options::default() }).await;
    let config = at("away", &away.url(), "legacy", &[]);
    let scene = Scene::with(&config).await;
    let client = Legacy::meets(&scene.http).await;
    let lists = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"];
    let mut before = Vec::new();
    for list in lists {
        before.push(client.post(&crate::client::request(1, list, &json!({}))).await.text);
    }
    away.stop().await;
    scene.until("away", State::Reconnecting).await;
    // While it is away, and after a restart of ours in which it never came.
    for (list, before) in lists.iter().zip(&before) {
        assert_eq!(client.post(&crate::client::request(1, list, &json!({}))).await.text, *before);
    }
    let scene = scene.restart(&config).await;
    let client = Legacy::resumes(&scene.http, &client.session);
    for (list, before) in lists.iter().zip(&before) {
        assert_eq!(client.post(&crate::client::request(1, list, &json!({}))).await.text, *before);
    }
}

#[tokio::test]
async fn d02_a_session_that_the_server_forgot_is_nothing_that_a_client_hears_of() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (legacy, modern) = (Legacy::meets(&scene.http).await, Modern::of(&scene.http));
    demo.forget_sessions();
    assert_eq!(legacy.calls("demo__counter", json!({})).await, "1");
    demo.forget_sessions();
    assert_eq!(modern.calls("demo__counter", json!({})).await, "2");
}

#[tokio::test]
async fn c05_a_call_whose_server_died_in_it_has_an_unknown_outcome_and_is_not_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let starts = dir.path().join("starts");
    let flags = ["--exit-in-call", "1", "--starts-file", starts.to_str().unwrap()];
    let scene = Scene::with(&child("away", &flags, &[])).await;
    let client = Legacy::meets(&scene.http).await;
    let part = failure(&client.asks("tools/call", call("away__counter", json!({}))).await, false);
    assert_eq!((&part["code"], &part["outcome"]), (&json!("outcome_unknown"), &json!("unknown")));
    let started = || std::fs::read_to_string(&starts).unwrap().lines().count();
    until("it is started again", || started() > 1).await;
    scene.until("away", State::Ready).await;
    // The next one would have died of the same call.
    assert_eq!(started(), 2);
}

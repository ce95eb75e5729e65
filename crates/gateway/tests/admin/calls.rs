//! What became of calls, as programs are told.

use crate::scene::{Scene, stdio};
use axum::http::StatusCode;
use serde_json::{Value, json};

/// The fields of one call.
const FIELDS: &str = "id client server tool sha256 arguments started_ms ended_ms took_ms outcome code attempts \
                      replays text hint";

async fn calls(scene: &Scene, query: &str) -> Vec<Value> {
    let answered = scene.get(&format!("/api/v1/calls{query}")).await;
    assert_eq!(answered.status, StatusCode::OK, "{}", answered.text);
    answered.json()["calls"].as_array().unwrap().clone()
}

#[tokio::test]
async fn every_call_is_told_with_its_outcome_newest_first() {
    let scene = Scene::with(&[stdio("demo", &[]), stdio("other", &[])].concat()).await;
    let arguments = serde_json::value::to_raw_value(&json!({ "text": "hunter2" })).unwrap();
    scene.host.call("demo", "echo", Some(arguments)).await.unwrap();
    scene.host.call("demo", "crash", None).await.unwrap_err();
    scene.host.call("other", "fail", None).await.unwrap();
    scene.host.call("nobody", "echo", None).await.unwrap_err();

    let answered = scene.get("/api/v1/calls").await;
    assert!(!answered.text.contains("hunter2"), "arguments are a digest");
    let told = answered.json();
    assert_eq!(told["ledger"], json!({ "keeps": "digest", "calls": 4, "failed_writes": 0, "cause": null }));
    assert_eq!(told["left_out"], 0);
    let rows = told["calls"].as_array().unwrap();
    let brief: Vec<Value> =
        rows.iter().map(|row| json!([row["server"], row["tool"], row["outcome"], row["code"]])).collect();
    assert_eq!(
        Value::from(brief),
        json!([
            ["nobody", "echo", "not_sent", "unknown_server"],
            ["other", "fail", "failed", null],
            ["demo", "crash", "unknown", "outcome_unknown"],
            ["demo", "echo", "done", null],
        ])
    );
    for field in FIELDS.split_whitespace() {
        assert!(rows[0].get(field).is_some(), "{field} is always there, null if unknown");
    }
    assert!(
        rows[3]["took_ms"].is_f64() && rows[3]["started_ms"].is_u64() && rows[3]["ended_ms"].is_u64(),
        "{}",
        rows[3]
    );
    assert_eq!(scene.get("/api/v1/status").await.json()["ledger"], told["ledger"]);

    assert_eq!(calls(&scene, "?unknown=true").await, rows[2..3]);
    assert_eq!(calls(&scene, "?server=demo&limit=1").await, rows[2..3]);
    assert_eq!(calls(&scene, &format!("?since_ms={}", u64::MAX)).await, [Value::Null; 0]);
    assert_eq!(scene.get("/api/v1/calls?limit=1").await.json()["left_out"], 3);
    scene.host.shutdown().await;
}

#[tokio::test]
async fn a_question_that_makes_no_sense_is_answered_with_what_would() {
    let scene = Scene::with("").await;
    let answered = scene.get("/api/v1/calls?limit=1001").await;
    assert_eq!(answered.status, StatusCode::BAD_REQUEST);
    assert_eq!(answered.json()["error"]["text"], "`limit` is \"1001\", expected a number up to 1000");
}

#[tokio::test]
async fn query_parameters_that_are_not_known_are_ignored() {
    let scene = Scene::with("").await;
    assert_eq!(scene.get("/api/v1/calls?sever=demo&_=17").await.status, StatusCode::OK);
    assert_eq!(scene.get("/api/v1/status?utm=x").await.status, StatusCode::OK);
}

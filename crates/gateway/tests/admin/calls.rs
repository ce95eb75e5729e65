//! `/api/v1/calls`: the recorded calls and their outcomes.

use crate::test_api::{TestApi, stdio};
use axum::http::StatusCode;
use gripfast::JsonText;
use serde_json::{Value, json};

/// The fields of one call.
const FIELDS: &str = "id client server tool sha256 arguments started_ms ended_ms took_ms outcome code attempts \
                      replays text hint";

async fn calls(api: &TestApi, query: &str) -> Vec<Value> {
    let answered = api.get(&format!("/api/v1/calls{query}")).await;
    assert_eq!(answered.status, StatusCode::OK, "{}", answered.text);
    answered.json()["calls"].as_array().unwrap().clone()
}

#[tokio::test]
async fn calls_are_listed_with_their_outcome_newest_first() {
    let api = TestApi::with(&[stdio("demo", &[]), stdio("other", &[])].concat()).await;
    let arguments = JsonText::of(&json!({ "text": "hunter2" })).unwrap();
    api.host.call("demo", "echo", Some(arguments)).await.unwrap();
    api.host.call("demo", "crash", None).await.unwrap_err();
    api.host.call("other", "fail", None).await.unwrap();
    api.host.call("nobody", "echo", None).await.unwrap_err();

    let answered = api.get("/api/v1/calls").await;
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
    assert_eq!(api.get("/api/v1/status").await.json()["ledger"], told["ledger"]);

    assert_eq!(calls(&api, "?unknown=true").await, rows[2..3]);
    assert_eq!(calls(&api, "?server=demo&limit=1").await, rows[2..3]);
    assert_eq!(calls(&api, &format!("?since_ms={}", u64::MAX)).await, [Value::Null; 0]);
    assert_eq!(api.get("/api/v1/calls?limit=1").await.json()["left_out"], 3);
    api.host.shutdown().await;
}

#[tokio::test]
async fn an_invalid_query_is_answered_with_the_valid_values() {
    let api = TestApi::with("").await;
    let answered = api.get("/api/v1/calls?limit=1001").await;
    assert_eq!(answered.status, StatusCode::BAD_REQUEST);
    assert_eq!(answered.json()["error"]["text"], "`limit` is \"1001\", expected a number up to 1000");
}

#[tokio::test]
async fn unknown_query_parameters_are_ignored() {
    let api = TestApi::with("").await;
    assert_eq!(api.get("/api/v1/calls?sever=demo&_=17").await.status, StatusCode::OK);
    assert_eq!(api.get("/api/v1/status?utm=x").await.status, StatusCode::OK);
}

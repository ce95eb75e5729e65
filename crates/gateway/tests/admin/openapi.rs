//! OpenAPI document of the admin API. Schemathesis sends valid and invalid requests for every operation and validates
//! each answer against the document.

use crate::test_api::TestApi;
use axum::http::StatusCode;
use gripfast_testkit::packages::Package;
use std::process::Stdio;
use std::time::Duration;

#[tokio::test]
async fn the_openapi_document_is_served() {
    let api = TestApi::with("").await;
    let answered = api.get("/api/v1/openapi.json").await;
    assert_eq!(answered.status, StatusCode::OK);
    assert_eq!(answered.json(), gripfast_gateway::api::document());
}

/// Schemathesis configuration: names of existing servers and one that does not exist. A call may fail because of the
/// server.
const CONFIG: &str = r#"
[parameters]
"path.name" = ["demo", "nobody"]
"path.server" = ["demo", "nobody"]

[checks]
not_a_server_error.expected-statuses = ["2xx", "4xx", "502", "504"]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_conforms_to_the_openapi_document() {
    if !Package::Schemathesis.require() {
        return;
    }
    let api = TestApi::ready().await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("schemathesis.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let (config, document) = (config.display().to_string(), format!("{}/api/v1/openapi.json", api.base));
    let bearer = format!("Authorization: Bearer {}", api.token());
    let command = Package::Schemathesis.command([
        "--config-file",
        &config,
        "run",
        &document,
        // It has no end.
        "--exclude-operation-id=events",
        "--phases=examples,coverage,fuzzing",
        "--max-examples=10",
        "--generation-deterministic",
        "--request-timeout=30",
        "--no-color",
        "--header",
        &bearer,
    ]);
    let mut process = tokio::process::Command::new(command.program);
    process.args(command.args).current_dir(folder.path()).stdin(Stdio::null()).kill_on_drop(true);
    let said = tokio::time::timeout(Duration::from_secs(170), process.output()).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success(), "{text}{}", String::from_utf8_lossy(&said.stderr));
    assert!(text.contains("Fuzzing"), "{text}");
    api.host.shutdown().await;
}

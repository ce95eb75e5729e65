//! The pages under `docs/reference` say what the code does. `cargo xtask reference --write` renews them: it
//! runs these tests with a variable that has them write instead of compare.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::path::Path;

/// The page is as wanted; or it is made so, if that was asked for.
#[track_caller]
fn check(file: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(file);
    if std::env::var_os("GRIPFAST_WRITE_REFERENCE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/reference/{file} is not what the code says; `cargo xtask reference --write` renews it"
    );
}

#[test]
fn the_document_of_the_admin_api_is_up_to_date() {
    let document = serde_json::to_string_pretty(&gripfast_gateway::admin::document()).unwrap();
    check("openapi.json", &format!("{document}\n"));
}

#[test]
fn the_page_of_metrics_is_up_to_date() {
    check("metrics.md", &gripfast_gateway::metrics::page());
}

//! `/config`: the config as it is in force, without anything secret, and where each value comes from.

use super::Admin;
use super::answer::json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use gripfast::config::{Setting, SettingFrom};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// The config as it is in force.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Config")]
pub(super) struct ConfigView {
    /// The file it comes from, if there is one.
    file: Option<String>,
    /// Why what is in the file at present is not in force.
    refused: Option<String>,
    settings: Vec<SettingView>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Setting")]
struct SettingView {
    /// Where it belongs, such as `servers.github.timeouts.call`.
    path: String,
    /// For people, without anything secret.
    value: String,
    /// `default`, `file` or `command_line`.
    from: &'static str,
    /// The line of the file.
    line: Option<usize>,
}

impl SettingView {
    /// What was typed overrides the file.
    fn of(setting: Setting, typed: &[(&str, String)]) -> Self {
        let Setting { path, value, from } = setting;
        if let Some((_, value)) = typed.iter().find(|(key, _)| *key == path) {
            return Self { path, value: value.clone(), from: "command_line", line: None };
        }
        let (from, line) = match from {
            SettingFrom::Default => ("default", None),
            SettingFrom::File(at) => ("file", Some(at.line)),
        };
        Self { path, value, from, line }
    }
}

pub(super) async fn config(State(admin): State<Arc<Admin>>) -> Response {
    let typed = admin.typed.get().map(Vec::as_slice).unwrap_or_default();
    let view = match admin.reloader.get() {
        Some(reloader) => ConfigView {
            file: Some(reloader.path().display().to_string()),
            refused: reloader.refused(),
            settings: reloader.settings().await.into_iter().map(|one| SettingView::of(one, typed)).collect(),
        },
        None => ConfigView { file: None, refused: None, settings: Vec::new() },
    };
    json(StatusCode::OK, &view)
}

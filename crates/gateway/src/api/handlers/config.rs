//! `/config`: the config in force, without secrets, with the source of each value.

use crate::api::Admin;
use crate::api::response::json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use gripfast::config::{Setting, SettingFrom};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// Config in force.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Config")]
pub(crate) struct ConfigView {
    /// Config file, if there is one.
    file: Option<String>,
    /// Reason why the current content of the file is not in force.
    refused: Option<String>,
    settings: Vec<SettingView>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Setting")]
struct SettingView {
    /// Full key, such as `servers.github.timeouts.call`.
    path: String,
    /// Value as text, without secrets.
    value: String,
    /// `default`, `file` or `command_line`.
    from: &'static str,
    /// Line in the file.
    line: Option<usize>,
}

impl SettingView {
    /// Settings from the command line override the file.
    fn of(setting: Setting, command_line: &[(&str, String)]) -> Self {
        let Setting { path, value, from } = setting;
        if let Some((_, value)) = command_line.iter().find(|(key, _)| *key == path) {
            return Self { path, value: value.clone(), from: "command_line", line: None };
        }
        let (from, line) = match from {
            SettingFrom::Default => ("default", None),
            SettingFrom::File(at) => ("file", Some(at.line)),
        };
        Self { path, value, from, line }
    }
}

pub(crate) async fn config(State(admin): State<Arc<Admin>>) -> Response {
    let command_line = admin.command_line.get().map(Vec::as_slice).unwrap_or_default();
    let view = match admin.reloader.get() {
        Some(reloader) => ConfigView {
            file: Some(reloader.path().display().to_string()),
            refused: reloader.last_error(),
            settings: reloader
                .settings()
                .await
                .into_iter()
                .map(|one| SettingView::of(one, command_line))
                .collect(),
        },
        None => ConfigView { file: None, refused: None, settings: Vec::new() },
    };
    json(StatusCode::OK, &view)
}

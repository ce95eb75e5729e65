//! `/calls`: tool calls and their outcomes from the ledger. The command line prints the same type, also without a
//! gateway, from the ledger on disk.

use crate::api::Admin;
use crate::api::enums;
use crate::api::response::{ApiError, json};
use crate::api::types::{fractional_millis, millis};
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use gripfast::RecordDetail;
use gripfast::ledger::{Calls, LedgerStatus, Query, Row, RowEnd};
use gripfast::{CallOutcome, RawValue, Wall};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// Calls from the ledger.
#[derive(JsonSchema, Debug, Serialize)]
#[schemars(rename = "Calls")]
pub struct CallsView {
    /// State of the gateway's ledger; null if the calls were read from disk.
    ledger: Option<LedgerView>,
    calls: Vec<CallView>,
    /// Number of older calls that were left out.
    left_out: u64,
}

/// State of the ledger.
#[derive(JsonSchema, Debug, Serialize)]
#[schemars(rename = "Ledger")]
pub(crate) struct LedgerView {
    keeps: &'static str,
    calls: u64,
    failed_writes: u64,
    cause: Option<String>,
}

/// One call. Times are milliseconds since the Unix epoch, durations are milliseconds. Unknown values are null, and so
/// is the outcome of a call in flight.
#[derive(JsonSchema, Debug, Serialize)]
#[schemars(rename = "Call")]
struct CallView {
    id: String,
    /// Principal that made the call.
    principal: Option<String>,
    /// Name that the client gives itself.
    client: Option<String>,
    server: String,
    tool: String,
    sha256: Option<String>,
    #[schemars(schema_with = "enums::any_json")]
    arguments: Option<Box<RawValue>>,
    started_ms: u64,
    ended_ms: Option<u64>,
    took_ms: Option<f64>,
    #[schemars(schema_with = "enums::outcomes")]
    outcome: Option<&'static str>,
    #[schemars(schema_with = "enums::codes")]
    code: Option<&'static str>,
    attempts: Option<u32>,
    replays: Option<u32>,
    text: &'static str,
    hint: Option<String>,
}

pub(crate) async fn calls(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<Response, ApiError> {
    let query = parse_query(uri.query().unwrap_or_default())?;
    let calls = admin.host.calls(query).await.map_err(|error| {
        let text = format!("the ledger cannot be read: {error}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "unreadable", text)
    })?;
    let ledger = Some(LedgerView::from(&admin.host.ledger_status()));
    Ok(json(StatusCode::OK, &CallsView { ledger, ..CallsView::from(calls) }))
}

/// Parses the query string.
fn parse_query(text: &str) -> Result<Query, ApiError> {
    let mut query = Query::default();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let wrong = |expected: &str| {
            let text = format!("`{key}` is {value:?}, expected {expected}");
            ApiError::new(StatusCode::BAD_REQUEST, "invalid_request", text)
        };
        match key {
            "unknown" => {
                query.unknown = match value {
                    "" | "true" | "1" => true,
                    "false" | "0" => false,
                    _ => return Err(wrong("`true` or `false`")),
                };
            }
            "server" => {
                query.server = Some(percent_decode(value).ok_or_else(|| wrong("the name of a server"))?)
            }
            "since_ms" => {
                let since = value.parse().map_err(|_| wrong("milliseconds since the Unix epoch"))?;
                query.since = Some(Wall::from_unix_epoch(Duration::from_millis(since)));
            }
            "limit" => match value.parse() {
                Ok(limit) if limit <= Query::MAX_LIMIT => query.limit = limit,
                Ok(_) | Err(_) => return Err(wrong(&format!("a number up to {}", Query::MAX_LIMIT))),
            },
            // Unknown parameters, which a proxy or a newer client may add, are ignored.
            _ => {}
        }
    }
    Ok(query)
}

/// Decodes a form-encoded value.
fn percent_decode(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

impl From<Calls> for CallsView {
    fn from(calls: Calls) -> Self {
        let Calls { rows, left_out } = calls;
        Self { ledger: None, calls: rows.into_iter().map(CallView::from).collect(), left_out }
    }
}

impl From<&LedgerStatus> for LedgerView {
    fn from(status: &LedgerStatus) -> Self {
        let LedgerStatus { detail: keeps, calls, failed_writes, cause } = status;
        Self {
            keeps: RecordDetail::word(*keeps),
            calls: *calls,
            failed_writes: *failed_writes,
            cause: cause.clone(),
        }
    }
}

impl From<Row> for CallView {
    fn from(row: Row) -> Self {
        let settled = match &row.end {
            RowEnd::Settled(settled) => Some(*settled),
            RowEnd::InFlight | RowEnd::Orphaned(_) => None,
        };
        Self {
            id: row.id.to_string(),
            started_ms: millis(row.started.since_epoch()),
            ended_ms: settled.map(|settled| millis(settled.ended.since_epoch())),
            took_ms: settled.map(|settled| fractional_millis(settled.took)),
            outcome: row.outcome().map(CallOutcome::as_str),
            code: row.code().map(gripfast::Code::as_str),
            attempts: settled.map(|settled| settled.attempts),
            replays: settled.map(|settled| settled.replays),
            text: row.summary(),
            hint: row.hint(),
            principal: Some(row.subject.principal).filter(|principal| !principal.is_empty()),
            client: Some(row.subject.client).filter(|client| !client.is_empty()),
            server: row.subject.server,
            tool: row.subject.tool,
            sha256: row.subject.digest,
            arguments: row.subject.arguments.and_then(|arguments| RawValue::from_string(arguments).ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters_are_parsed_and_checked() {
        let query = parse_query("unknown=true&server=git%2Dhub+2&since_ms=1000&limit=7").unwrap();
        let since = Some(Wall::from_unix_epoch(Duration::from_secs(1)));
        assert_eq!(query, Query { unknown: true, server: Some("git-hub 2".to_owned()), since, limit: 7 });
        assert_eq!(parse_query("").unwrap(), Query::default());
        assert!(parse_query("unknown").unwrap().unknown && !parse_query("unknown=0").unwrap().unknown);
        assert_eq!(parse_query("_=17&limit=7&utm").unwrap().limit, 7, "unknown parameters are ignored");
        for wrong in [
            "unknown=perhaps",
            "server=%zz",
            "server=%ff",
            "server=%4",
            "since_ms=-1",
            "limit=1001",
            "limit=",
        ] {
            assert!(parse_query(wrong).is_err(), "{wrong}");
        }
    }
}

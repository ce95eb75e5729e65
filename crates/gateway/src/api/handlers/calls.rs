//! `/calls`: what became of tool calls. The command line prints the same, also without a gateway, from the
//! ledger on disk.

use super::Admin;
use super::answer::{Refusal, json};
use super::view::{fine_millis, millis};
use super::words;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use gripfast::ledger::{Calls, End, Keeps, LedgerStatus, Query, Row};
use gripfast::{Fate, RawValue, Wall};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// Calls out of the ledger, as programs see them.
#[derive(JsonSchema, Debug, Serialize)]
#[schemars(rename = "Calls")]
pub struct CallsView {
    /// How the ledger of the gateway that was asked does; nothing if none was.
    ledger: Option<LedgerView>,
    calls: Vec<CallView>,
    /// How many older ones were left out.
    left_out: u64,
}

/// How a ledger does.
#[derive(JsonSchema, Debug, Serialize)]
#[schemars(rename = "Ledger")]
pub(super) struct LedgerView {
    keeps: &'static str,
    calls: u64,
    failed_writes: u64,
    cause: Option<String>,
}

/// One call. Times are milliseconds since the Unix epoch, spans are milliseconds; what is not known is null,
/// and so is the outcome of a call under way.
#[derive(JsonSchema, Debug, Serialize)]
#[schemars(rename = "Call")]
struct CallView {
    id: String,
    /// On whose behalf it was called.
    principal: Option<String>,
    /// What the client calls itself.
    client: Option<String>,
    server: String,
    tool: String,
    sha256: Option<String>,
    #[schemars(schema_with = "words::anything")]
    arguments: Option<Box<RawValue>>,
    started_ms: u64,
    ended_ms: Option<u64>,
    took_ms: Option<f64>,
    #[schemars(schema_with = "words::outcomes")]
    outcome: Option<&'static str>,
    #[schemars(schema_with = "words::codes")]
    code: Option<&'static str>,
    attempts: Option<u32>,
    replays: Option<u32>,
    text: &'static str,
    hint: Option<String>,
}

pub(super) async fn calls(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<Response, Refusal> {
    let query = asked(uri.query().unwrap_or_default())?;
    let calls = admin.host.calls(query).await.map_err(|error| {
        let text = format!("the ledger cannot be read: {error}");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "unreadable", text)
    })?;
    let ledger = Some(LedgerView::from(&admin.host.ledger_status()));
    Ok(json(StatusCode::OK, &CallsView { ledger, ..CallsView::from(calls) }))
}

/// What a query asks for.
fn asked(text: &str) -> Result<Query, Refusal> {
    let mut query = Query::default();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let wrong = |expected: &str| {
            let text = format!("`{key}` is {value:?}, expected {expected}");
            Refusal::new(StatusCode::BAD_REQUEST, "invalid_request", text)
        };
        match key {
            "unknown" => {
                query.unknown = match value {
                    "" | "true" | "1" => true,
                    "false" | "0" => false,
                    _ => return Err(wrong("`true` or `false`")),
                };
            }
            "server" => query.server = Some(decoded(value).ok_or_else(|| wrong("the name of a server"))?),
            "since_ms" => {
                let since = value.parse().map_err(|_| wrong("milliseconds since the Unix epoch"))?;
                query.since = Some(Wall::at(Duration::from_millis(since)));
            }
            "limit" => match value.parse() {
                Ok(limit) if limit <= Query::MOST => query.limit = limit,
                Ok(_) | Err(_) => return Err(wrong(&format!("a number up to {}", Query::MOST))),
            },
            // Parameters that a proxy or a newer client adds change nothing.
            _ => {}
        }
    }
    Ok(query)
}

/// A value of a query without its escapes.
fn decoded(value: &str) -> Option<String> {
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
        let LedgerStatus { keeps, calls, failed_writes, cause } = status;
        Self {
            keeps: Keeps::word(*keeps),
            calls: *calls,
            failed_writes: *failed_writes,
            cause: cause.clone(),
        }
    }
}

impl From<Row> for CallView {
    fn from(row: Row) -> Self {
        let settled = match &row.end {
            End::Settled(settled) => Some(*settled),
            End::InFlight | End::Orphaned(_) => None,
        };
        Self {
            id: row.id.to_string(),
            started_ms: millis(row.started.since_epoch()),
            ended_ms: settled.map(|settled| millis(settled.ended.since_epoch())),
            took_ms: settled.map(|settled| fine_millis(settled.took)),
            outcome: row.outcome().map(Fate::word),
            code: row.code().map(gripfast::Code::word),
            attempts: settled.map(|settled| settled.attempts),
            replays: settled.map(|settled| settled.replays),
            text: row.what_happened(),
            hint: row.what_to_do(),
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
    fn a_query_asks_for_what_it_says() {
        let query = asked("unknown=true&server=git%2Dhub+2&since_ms=1000&limit=7").unwrap();
        let since = Some(Wall::at(Duration::from_secs(1)));
        assert_eq!(query, Query { unknown: true, server: Some("git-hub 2".to_owned()), since, limit: 7 });
        assert_eq!(asked("").unwrap(), Query::default());
        assert!(asked("unknown").unwrap().unknown && !asked("unknown=0").unwrap().unknown);
        assert_eq!(asked("_=17&limit=7&utm").unwrap().limit, 7, "unknown parameters are ignored");
        for wrong in [
            "unknown=perhaps",
            "server=%zz",
            "server=%ff",
            "server=%4",
            "since_ms=-1",
            "limit=1001",
            "limit=",
        ] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
    }
}

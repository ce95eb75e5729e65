//! `/calls`: tool calls and their outcomes from the ledger. The command line prints the same type, also without a
//! gateway, from the ledger on disk.

use crate::api::Admin;
use crate::api::response::{ApiError, json};
use crate::api::types::{CallsView, LedgerView};
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use gripfast::Wall;
use gripfast::ledger::Query;
use std::sync::Arc;
use std::time::Duration;

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

//! `/calls`: tool calls and their outcomes from the ledger. The command line prints the same type, also without a
//! gateway, from the ledger on disk.

use crate::api::Admin;
use crate::api::response::{ApiError, json};
use crate::api::types::{CallView, CallsView, LedgerView};
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use gripfast::Wall;
use gripfast::ledger::{Query, Row};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn calls(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<Response, ApiError> {
    let query = parse_query(uri.query().unwrap_or_default())?;
    let calls = admin.host.calls(query.clone()).await.map_err(|error| {
        let text = format!("the ledger cannot be read: {error}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "unreadable", text)
    })?;
    let ledger = Some(LedgerView::from(&admin.host.ledger_status()));
    let mut view = CallsView { ledger, ..CallsView::from(calls) };
    if let Some(member) = &admin.cluster {
        match member.lost_calls().await {
            Ok(lost) => add_lost_calls(&mut view, &query, lost),
            Err(error) => view.lost_replicas = Some(error.to_string()),
        }
    }
    Ok(json(StatusCode::OK, &view))
}

/// Adds the calls of lost replicas that match the query. A replica that came back with its disk has them itself.
fn add_lost_calls(view: &mut CallsView, query: &Query, lost: Vec<(String, Row)>) {
    let known: BTreeSet<String> = view.calls.iter().map(|call| call.id.clone()).collect();
    let matching =
        lost.into_iter().filter(|(_, row)| query.matches(row) && !known.contains(&row.id.to_string()));
    view.calls.extend(matching.map(|(replica, row)| CallView::of_lost_replica(replica, row)));
    view.calls.sort_by_key(|call| std::cmp::Reverse(call.started_ms));
    let most = query.limit.min(Query::MAX_LIMIT);
    view.left_out += view.calls.len().saturating_sub(most) as u64;
    view.calls.truncate(most);
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
    use gripfast::CallOutcome;
    use gripfast::ledger::{CallSubject, Calls, RowEnd, RowId};

    #[test]
    fn calls_of_lost_replicas_are_merged_by_time_and_listed_once() {
        let row = |call: u64, second: u64, server: &str| Row {
            id: RowId { run: "r".to_owned(), call },
            subject: CallSubject { server: server.to_owned(), ..CallSubject::default() },
            started: Wall::from_unix_epoch(Duration::from_secs(second)),
            end: RowEnd::Orphaned(CallOutcome::Unknown),
        };
        let own = Calls { rows: vec![row(3, 30, "s"), row(1, 10, "s")], left_out: 4 };
        let mut view = CallsView::from(own);
        let query = Query { server: Some("s".to_owned()), limit: 3, ..Query::default() };
        let lost = [row(1, 10, "s"), row(2, 20, "s"), row(4, 5, "s"), row(5, 40, "other")];
        add_lost_calls(&mut view, &query, lost.map(|row| ("a".to_owned(), row)).into());
        let shown: Vec<_> =
            view.calls.iter().map(|call| (call.id.as_str(), call.replica.as_deref())).collect();
        assert_eq!(shown, [("r-3", None), ("r-2", Some("a")), ("r-1", None)]);
        assert_eq!(view.left_out, 5);
        assert_eq!(view.calls[1].text.as_ref(), "replica a was lost before the answer came");
        assert_eq!(view.calls[1].outcome.as_deref(), Some("unknown"));
    }

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

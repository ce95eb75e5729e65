//! The fleet at a glance: a verdict, and a line per server.

use super::model::{Fleet, Upstream, Watched};
use super::words::{NOTHING, latency, span};
use crate::cli::render::{Table, plural};

pub(super) fn shown(fleet: &Fleet, columns: Option<usize>) -> String {
    if fleet.upstreams.is_empty() {
        return verdict(fleet);
    }
    let titles = ["NAME", "STATE", "VIA", "TOOLS", "CALLS", "ERR", "P95", "RESTARTS", "LAST OK", "NOTE"];
    let mut table = Table::new(titles);
    for upstream in &fleet.upstreams {
        table.row([
            &upstream.name,
            &upstream.at_a_glance(),
            upstream.transport.as_deref().unwrap_or(NOTHING),
            &upstream.tools_shown(),
            &upstream.calls.to_string(),
            &upstream.errors.to_string(),
            &latency(upstream.p95_ms),
            &upstream.restarts.to_string(),
            &upstream.last_ok_ms.map_or_else(|| NOTHING.to_owned(), span),
            &upstream.note(),
        ]);
    }
    format!("{}\n{}", verdict(fleet), table.within(columns))
}

/// The answer to "is everything all right?" in one line.
fn verdict(fleet: &Fleet) -> String {
    let Fleet { version, uptime_ms, upstreams, ledger, config, tls, set_aside } = fleet;
    let mut states: Vec<(String, usize)> = Vec::new();
    for word in upstreams.iter().map(Upstream::state_word) {
        match states.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => states.push((word, 1)),
        }
    }
    // Good news first, the rest in the order of the table.
    states.sort_by_key(|(word, _)| word != "ready");
    let states: Vec<String> = states.iter().map(|(word, count)| format!("{count} {word}")).collect();
    let colon = if states.is_empty() { "" } else { ": " };
    let servers = plural(upstreams.len(), "upstream");
    let ledger = match &ledger.cause {
        Some(cause) => format!(" · the ledger cannot be written: {cause}"),
        None => String::new(),
    };
    let refused = |what: &str, watched: &Option<Watched>| {
        let error = watched.as_ref().and_then(|file| file.error.as_deref());
        error.map_or_else(String::new, |error| format!("\n{what}: {error}"))
    };
    let config =
        refused("the config cannot be used as it is, and what it said before is in use there", config);
    let tls = refused("the certificate was refused, and the one before it is in use", tls);
    let set_aside: String = set_aside
        .iter()
        .map(|file| {
            format!(
                "\na damaged file was moved to {file}, and a new one made; remove it once you have looked"
            )
        })
        .collect();
    let (up, states) = (span(*uptime_ms), states.join(", "));
    format!("gripfast {version} · up {up} · {servers}{colon}{states}{ledger}{config}{tls}{set_aside}")
}

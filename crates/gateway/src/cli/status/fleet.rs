//! Text output of all servers: a summary line, and a table with one row per server.

use super::labels::{EMPTY_CELL, latency, note, short_duration, state_cell, state_word, tools_text};
use crate::cli::render::{Table, plural};
use gripfast_gateway::api::types::{ClusterView, EmbeddingsView, ExposureView, FleetView};

pub(super) fn render(fleet: &FleetView, columns: Option<usize>) -> String {
    if fleet.upstreams.is_empty() {
        return summary(fleet);
    }
    let titles = ["NAME", "STATE", "VIA", "TOOLS", "CALLS", "ERR", "P95", "RESTARTS", "LAST OK", "NOTE"];
    let mut table = Table::new(titles);
    for upstream in &fleet.upstreams {
        table.row([
            &upstream.name,
            &state_cell(upstream),
            upstream.transport.as_deref().unwrap_or(EMPTY_CELL),
            &tools_text(upstream),
            &upstream.calls.to_string(),
            &upstream.errors.to_string(),
            &latency(upstream.p95_ms),
            &upstream.restarts.to_string(),
            &upstream.last_ok_ms.map_or_else(|| EMPTY_CELL.to_owned(), short_duration),
            &note(upstream),
        ]);
    }
    format!("{}\n{}", summary(fleet), table.with_max_width(columns))
}

/// The summary line, and a line for each problem of the gateway itself.
fn summary(fleet: &FleetView) -> String {
    let FleetView {
        version, uptime_ms, upstreams, ledger, config, tls, set_aside, exposure, cluster, ..
    } = fleet;
    let mut states: Vec<(String, usize)> = Vec::new();
    for word in upstreams.iter().map(state_word) {
        match states.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => states.push((word, 1)),
        }
    }
    // `ready` first, the rest in the order of the table.
    states.sort_by_key(|(word, _)| word != "ready");
    let states: Vec<String> = states.iter().map(|(word, count)| format!("{count} {word}")).collect();
    let colon = if states.is_empty() { "" } else { ": " };
    let servers = plural(upstreams.len(), "server");
    let ledger = match &ledger.cause {
        Some(cause) => format!(" · the ledger cannot be written: {cause}"),
        None => String::new(),
    };
    let refused = |what: &str, error: Option<&String>| {
        error.map_or_else(String::new, |error| format!("\n{what}: {error}"))
    };
    let config = config.as_ref().and_then(|file| file.error.as_ref());
    let config = refused("the config file has errors, and the previous settings are in use", config);
    let tls = tls.as_ref().and_then(|file| file.error.as_ref());
    let tls = refused("the certificate file was refused, and the previous certificate is in use", tls);
    let cluster = cluster.as_ref().map_or_else(String::new, cluster_line);
    let set_aside: String = set_aside
        .iter()
        .map(|file| {
            format!(
                "\na damaged file was moved to {file} and replaced by a new one; look at it, then remove it"
            )
        })
        .collect();
    let exposure = exposure.as_ref().map(exposure_line).unwrap_or_default();
    let (up, states) = (short_duration(*uptime_ms), states.join(", "));
    format!(
        "gripfast {version} · up {up} · {servers}{colon}{states}{ledger}{config}{tls}{cluster}{set_aside}{exposure}"
    )
}

/// The line about the service that the gateway is a replica of.
fn cluster_line(cluster: &ClusterView) -> String {
    let ClusterView { replica, store, replicas, cause, .. } = cluster;
    match cause {
        None => format!("\nreplica {replica} of {} · store {store}", plural(*replicas, "replica")),
        // The cause says that the store is unreachable, or why the gateway has not joined.
        Some(cause) => format!("\nreplica {replica} · {cause}"),
    }
}

/// Tools that clients list, where others are found by search.
fn exposure_line(exposure: &ExposureView) -> String {
    let ExposureView { mode, tools, tokens, listed_tools, listed_tokens, embeddings, .. } = exposure;
    let embeddings = embeddings.as_ref().map(embeddings_line).unwrap_or_default();
    format!(
        "\nexposure {mode}: clients list {listed_tools} of {}, about {listed_tokens} of {tokens} tokens{embeddings}",
        plural(*tools, "tool")
    )
}

/// Ranking of tools by embeddings.
fn embeddings_line(embeddings: &EmbeddingsView) -> String {
    let EmbeddingsView { state, model, embedded, cause } = embeddings;
    match cause {
        None => format!("\nembeddings {state}: {} with a vector of `{model}`", plural(*embedded, "tool")),
        Some(cause) => format!("\nembeddings {state}, tools are found by their words alone: {cause}"),
    }
}

//! Probes a gateway as the client will, with the same URL and the same headers.

use crate::cli::config;
use crate::cli::doctor::reachability;
use crate::cli::doctor::reachability::Reachability;
use crate::cli::error::CommandError;
use crate::cli::local_host::{HostOptions, runtime, with_host};
use crate::cli::render::{Screen, with_progress};
use gripfast::Code;
use gripfast::config::{ProcessEnvironment, ServerSpec};
use std::time::Duration;
use toml_edit::{InlineTable, Table, value};

/// Time limit; a gateway answers from memory.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Result of a probe.
pub(super) enum ProbeResult {
    /// The gateway answered, and offers this many tools.
    Tools(usize),
    /// No usable answer: the cause, and the next step.
    Failed { why: String, step: String },
}

/// Probes the gateway at `url`.
pub(super) fn probe(
    url: &str,
    headers: &[(String, String)],
    screen: &mut Screen,
) -> Result<ProbeResult, CommandError> {
    let Some(spec) = spec(url, headers) else {
        let why = "the address was not tried, because only the client can resolve the headers in the entry"
            .to_owned();
        return Ok(ProbeResult::Failed {
            why,
            step: "`gripfast status` shows whether the gateway is running".to_owned(),
        });
    };
    let probing = reachability::probe(&spec.target, &ProcessEnvironment);
    let reached = runtime()?.block_on(with_progress(screen, "the gateway", probing));
    let no_gateway = |why: String| {
        let step = "`gripfast serve` starts the gateway; `--url` names another gateway".to_owned();
        Ok(ProbeResult::Failed { why, step })
    };
    match reached {
        Reachability::NoSuchName { host, why } => {
            return no_gateway(format!("the host name `{host}` does not resolve ({why})"));
        }
        Reachability::Closed { address, why } => {
            return no_gateway(format!("cannot connect to {address} ({why})"));
        }
        Reachability::NotTried | Reachability::Open => {}
    }
    with_host(HostOptions::default(), &[("gripfast", &spec)], async |host| {
        let found = with_progress(screen, "the gateway", host.discover(TIMEOUT)).await;
        let catalog = found.into_iter().next().map(|row| row.catalog);
        let status = host.server_status("gripfast").ok();
        let cause = status.and_then(|status| status.supervision.cause);
        match catalog {
            Some(Ok(catalog)) => ProbeResult::Tools(catalog.tools.len()),
            Some(Err(error)) => ProbeResult::Failed {
                why: format!("{url}: {}", cause.unwrap_or(error.text)),
                step: match error.code {
                    Code::NeedsLogin => {
                        "`gripfast keys add NAME` on the gateway's machine creates a key; add it to the entry as the header \
                         `Authorization: Bearer KEY`"
                    }
                    _ => "`gripfast doctor` looks for the cause",
                }
                .to_owned(),
            },
            None => ProbeResult::Failed { why: "the probe returned no result".to_owned(), step: String::new() },
        }
    })
}

/// The spec of a server at this URL; `None` if the URL or the headers are invalid.
fn spec(url: &str, headers: &[(String, String)]) -> Option<ServerSpec> {
    let pairs: InlineTable = headers.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    config::spec_of_table(Table::from_iter([("url", value(url)), ("headers", value(pairs))])).ok()
}

//! Events as log lines: what an operator would tell a colleague.

use super::UpstreamEvent;
use gripfast_core::event::Event;
use gripfast_core::supervise::status::State;
use gripfast_core::text::duration;

pub(super) fn write(told: &UpstreamEvent) {
    let server = &*told.server;
    match &told.event {
        Event::StateChanged { from, to, cause } => {
            let (from, to_word) = (from.word(), to.word());
            let cause = cause.as_deref().unwrap_or("");
            match to {
                State::Ready | State::Idle | State::Starting | State::Disabled | State::Stopped => {
                    tracing::info!(server, from, to = to_word, "`{server}` is {to_word}");
                }
                State::Degraded | State::Reconnecting | State::NeedsApproval => {
                    tracing::info!(server, from, to = to_word, cause, "`{server}` is {to_word}: {cause}");
                }
                State::Parked | State::NeedsLogin | State::ConfigError => {
                    tracing::warn!(server, from, to = to_word, cause, "`{server}` is {to_word}: {cause}");
                }
            }
        }
        Event::Restarting { in_window } => tracing::debug!(server, in_window, "`{server}` restarts"),
        Event::Revived { away } => {
            tracing::info!(
                server,
                away_ms = away.as_millis() as u64,
                "`{server}` is back after {}",
                duration(*away)
            );
        }
        Event::SessionRenewed => tracing::info!(server, "`{server}` forgot its session; it has a new one"),
        Event::CredentialRenewed => tracing::info!(server, "`{server}` has a new credential"),
        Event::CircuitOpened { failures, cooldown } => tracing::warn!(
            server,
            failures,
            "`{server}` failed {failures} times in a row; calls are refused for {}",
            duration(*cooldown)
        ),
        Event::CircuitClosed => tracing::info!(server, "`{server}` takes calls again"),
        Event::ProbeFailed { cause } => {
            tracing::info!(server, cause, "`{server}` did not answer a probe: {cause}")
        }
        Event::Slept => tracing::debug!(server, "the machine slept; `{server}` is checked before it is used"),
        Event::CatalogChanged { added, removed, changed } => tracing::info!(
            server,
            added,
            removed,
            changed,
            "`{server}` offers something else: {added} new, {removed} gone, {changed} changed"
        ),
        Event::CatalogFailed { cause } => {
            tracing::warn!(server, cause, "`{server}` could not be listed: {cause}")
        }
        Event::JunkSkipped { lines, sample } => {
            tracing::warn!(
                server,
                lines,
                sample,
                "`{server}` writes lines to stdout that are not MCP ({lines} so far)"
            );
        }
    }
}

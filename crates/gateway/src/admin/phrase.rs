//! Events in words: what happened, as somebody who watches would tell it.

use gripfast::Event;
use std::time::Duration;

/// One event as a sentence without its subject, which stands beside it.
pub(super) fn phrase(event: &Event) -> String {
    match event {
        Event::StateChanged { from, to, cause } => {
            let change = format!("from {} to {}", from.word(), to.word());
            cause.as_ref().map_or(change.clone(), |cause| format!("{change}: {cause}"))
        }
        Event::Restarting { in_window } => format!("restarts, {} within the window", times(*in_window)),
        Event::Revived { away } => format!("is back after {}", span(*away)),
        Event::SessionRenewed => "forgot its session and has a new one".to_owned(),
        Event::CredentialRenewed => "has a new credential".to_owned(),
        Event::CircuitOpened { failures, cooldown } => {
            format!("failed {} in a row; calls are refused for {}", times(*failures), span(*cooldown))
        }
        Event::CircuitClosed => "takes calls again".to_owned(),
        Event::ProbeFailed { cause } => format!("did not answer a probe: {cause}"),
        Event::Slept => "the machine slept; it is checked before it is used".to_owned(),
        Event::CatalogChanged { added, removed, changed } => {
            format!("offers something else: {added} new, {removed} gone, {changed} changed")
        }
        Event::CatalogFailed { cause } => format!("could not be listed: {cause}"),
        Event::JunkSkipped { lines, sample } => {
            format!("writes lines to stdout that are not MCP ({lines} so far): {sample}")
        }
    }
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

fn span(span: Duration) -> String {
    match span.as_millis() {
        millis @ 0..1000 => format!("{millis} ms"),
        millis @ 1000..120_000 => format!("{} s", millis / 1000),
        millis => format!("{} min", millis / 60_000),
    }
}

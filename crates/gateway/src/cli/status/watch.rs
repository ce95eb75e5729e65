//! `status --watch`: redraws a page every second on a terminal, and writes one line per change to a file or pipe. Waits
//! for a gateway that goes away.

use super::labels::{glyph, note, state_word, tools_text};
use super::{StatusReply, fetch};
use crate::cli::address::GatewayUrl;
use crate::cli::admin_client::AdminClient;
use crate::cli::args::{OutputFormat, StatusArgs};
use crate::cli::error::{CommandError, FailureReport};
use crate::cli::exit::Exit;
use crate::cli::local_host::{Signals, runtime_failure};
use crate::cli::render::{Screen, plural};
use gripfast_gateway::api::types::{UpstreamView, Word};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

const INTERVAL: Duration = Duration::from_secs(1);

/// The fields whose change is worth a line. Ages and times are not.
#[derive(PartialEq, Eq)]
struct WatchedState {
    state: Word,
    circuit: Word,
    note: String,
    tools: usize,
    restarts: u64,
}

/// The state that was last shown.
#[derive(Default)]
struct Memory {
    shown: HashMap<String, WatchedState>,
    away: bool,
}

/// Watches until a signal arrives. Fails only if the first request fails.
pub(super) async fn run(
    gateway: &AdminClient<'_>,
    args: &StatusArgs,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let mut signals = Signals::listen().map_err(runtime_failure)?;
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut memory = Memory::default();
    let mut first = true;
    loop {
        let fetched = tokio::select! {
            biased;
            exit = signals.next() => return Err(CommandError::Reported(exit)),
            fetched = async {
                tick.tick().await;
                fetch(gateway, args).await
            } => fetched,
        };
        match fetched {
            Err(failure) if first => return Err(failure.into()),
            Err(failure) => memory.show_unreachable(&failure, args, screen)?,
            Ok((json, seen)) => memory.show(gateway.url(), &json, &seen, args, screen)?,
        }
        first = false;
        screen.flush()?;
    }
}

impl Memory {
    fn show(
        &mut self,
        url: &GatewayUrl,
        json: &str,
        seen: &StatusReply,
        args: &StatusArgs,
        screen: &mut Screen,
    ) -> Result<(), CommandError> {
        if std::mem::take(&mut self.away) && !screen.can_draw() {
            screen.message(&format!("the gateway at {url} is back"))?;
        }
        let changed: Vec<&UpstreamView> =
            seen.upstreams().iter().filter(|upstream| self.record_change(upstream)).collect();
        match args.output.form {
            OutputFormat::Json if changed.is_empty() => {}
            OutputFormat::Json => screen.json_text(json)?,
            OutputFormat::Text if screen.can_draw() => screen.page(&seen.render(screen.columns()))?,
            OutputFormat::Text => {
                changed.into_iter().try_for_each(|upstream| screen.line(&line(upstream)))?
            }
        }
        Ok(())
    }

    fn show_unreachable(
        &mut self,
        failure: &FailureReport,
        args: &StatusArgs,
        screen: &mut Screen,
    ) -> Result<(), CommandError> {
        let text = format!("{}\nretrying every second", failure.text);
        if args.output.form == OutputFormat::Text && screen.can_draw() {
            screen.page(&text)?;
        } else if !self.away {
            screen.message(&text)?;
        }
        self.away = true;
        Ok(())
    }

    /// Records the state of a server, and returns whether it changed.
    fn record_change(&mut self, upstream: &UpstreamView) -> bool {
        let now = WatchedState {
            state: upstream.state.clone(),
            circuit: upstream.circuit.clone(),
            note: note(upstream),
            tools: upstream.tools,
            restarts: upstream.restarts,
        };
        let news = self.shown.get(&upstream.name) != Some(&now);
        self.shown.insert(upstream.name.clone(), now);
        news
    }
}

/// One change as a line: the name, the state and the note.
fn line(upstream: &UpstreamView) -> String {
    let mut parts = vec![upstream.name.clone(), format!("{} {}", glyph(upstream), state_word(upstream))];
    if upstream.circuit != "closed" {
        parts.push(format!("circuit {}", upstream.circuit.replace('_', " ")));
    }
    if upstream.tools > 0 {
        parts.push(format!("{} tools", tools_text(upstream)));
    }
    if upstream.restarts > 0 {
        parts.push(plural(upstream.restarts, "restart"));
    }
    parts.push(note(upstream));
    parts.retain(|piece| !piece.is_empty());
    parts.join("  ")
}

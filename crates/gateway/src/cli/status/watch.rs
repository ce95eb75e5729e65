//! `status --watch`: redraws a page every second on a terminal, and writes one line per change to a file or pipe. Waits
//! for a gateway that goes away.

use super::model::ServerModel;
use super::{StatusReply, parse_reply, path, print_json};
use crate::cli::address::GatewayUrl;
use crate::cli::admin_client::{AdminClient, AdminReply};
use crate::cli::args::{OutputFormat, StatusArgs};
use crate::cli::error::{CommandError, FailureReport};
use crate::cli::exit::Exit;
use crate::cli::local_host::{Signals, runtime_failure};
use crate::cli::render::{Screen, plural};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

const INTERVAL: Duration = Duration::from_secs(1);

/// The fields whose change is worth a line. Ages and times are not.
#[derive(PartialEq, Eq)]
struct WatchedState {
    state: String,
    circuit: String,
    note: String,
    tools: u64,
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
            Ok((reply, seen)) => memory.show(gateway.url(), &reply, &seen, args, screen)?,
        }
        first = false;
        screen.flush()?;
    }
}

async fn fetch(
    gateway: &AdminClient<'_>,
    args: &StatusArgs,
) -> Result<(AdminReply, StatusReply), FailureReport> {
    let reply = gateway.get(&path(args)).await?;
    match reply.error() {
        Some(refusal) => Err(refusal.into()),
        None => {
            let seen = parse_reply(gateway, args, &reply)?;
            Ok((reply, seen))
        }
    }
}

impl Memory {
    fn show(
        &mut self,
        url: &GatewayUrl,
        reply: &AdminReply,
        seen: &StatusReply,
        args: &StatusArgs,
        screen: &mut Screen,
    ) -> Result<(), CommandError> {
        if std::mem::take(&mut self.away) && !screen.can_draw() {
            screen.message(&format!("the gateway at {url} is back"))?;
        }
        let changed: Vec<&ServerModel> =
            seen.upstreams().iter().filter(|upstream| self.record_change(upstream)).collect();
        match args.output.form {
            OutputFormat::Json if changed.is_empty() => {}
            OutputFormat::Json => print_json(reply, screen)?,
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
    fn record_change(&mut self, upstream: &ServerModel) -> bool {
        let now = WatchedState {
            state: upstream.state.clone(),
            circuit: upstream.circuit.clone(),
            note: upstream.note(),
            tools: upstream.tools,
            restarts: upstream.restarts,
        };
        let news = self.shown.get(&upstream.name) != Some(&now);
        self.shown.insert(upstream.name.clone(), now);
        news
    }
}

/// One change as a line: the name, the state and the note.
fn line(upstream: &ServerModel) -> String {
    let mut parts = vec![upstream.name.clone(), format!("{} {}", upstream.glyph(), upstream.state_word())];
    if upstream.circuit != "closed" {
        parts.push(format!("circuit {}", upstream.circuit.replace('_', " ")));
    }
    if upstream.tools > 0 {
        parts.push(format!("{} tools", upstream.tools_text()));
    }
    if upstream.restarts > 0 {
        parts.push(plural(usize::try_from(upstream.restarts).unwrap_or(usize::MAX), "restart"));
    }
    parts.push(upstream.note());
    parts.retain(|piece| !piece.is_empty());
    parts.join("  ")
}

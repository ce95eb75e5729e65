//! `--watch`: a page that is drawn anew every second where somebody looks at it, and a line per change where
//! it is written to a file. A gateway that goes away is waited for.

use super::model::Upstream;
use super::{Seen, path, print, seen};
use crate::cli::address::GatewayUrl;
use crate::cli::args::{Form, StatusArgs};
use crate::cli::exit::Exit;
use crate::cli::fleet::{Signals, no_runtime};
use crate::cli::gateway::{Gateway, Reply};
use crate::cli::render::{Screen, plural};
use crate::cli::stop::{Failure, Stop};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

const EVERY: Duration = Duration::from_secs(1);

/// What is worth a line when it differs from what was there before. Ages and times are not.
#[derive(PartialEq, Eq)]
struct Told {
    state: String,
    circuit: String,
    note: String,
    tools: u64,
    restarts: u64,
}

/// What has been told so far.
#[derive(Default)]
struct Memory {
    told: HashMap<String, Told>,
    away: bool,
}

/// Goes on until a signal comes, and fails only if there is nothing to watch in the first place.
pub(super) async fn run(gateway: &Gateway<'_>, args: &StatusArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let mut signals = Signals::listen().map_err(no_runtime)?;
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut memory = Memory::default();
    let mut first = true;
    loop {
        let looked = tokio::select! {
            biased;
            exit = signals.next() => return Err(Stop::Told(exit)),
            looked = async {
                tick.tick().await;
                look(gateway, args).await
            } => looked,
        };
        match looked {
            Err(failure) if first => return Err(failure.into()),
            Err(failure) => memory.away(&failure, args, screen)?,
            Ok((reply, seen)) => memory.here(gateway.url(), &reply, &seen, args, screen)?,
        }
        first = false;
        screen.flush()?;
    }
}

async fn look(gateway: &Gateway<'_>, args: &StatusArgs) -> Result<(Reply, Seen), Failure> {
    let reply = gateway.get(&path(args)).await?;
    match reply.refusal() {
        Some(refusal) => Err(refusal.into()),
        None => {
            let seen = seen(gateway, args, &reply)?;
            Ok((reply, seen))
        }
    }
}

impl Memory {
    fn here(
        &mut self,
        url: &GatewayUrl,
        reply: &Reply,
        seen: &Seen,
        args: &StatusArgs,
        screen: &mut Screen,
    ) -> Result<(), Stop> {
        if std::mem::take(&mut self.away) && !screen.can_draw() {
            screen.talk(&format!("the gateway at {url} is back"))?;
        }
        let changed: Vec<&Upstream> =
            seen.upstreams().iter().filter(|upstream| self.learn(upstream)).collect();
        match args.output.form {
            Form::Json if changed.is_empty() => {}
            Form::Json => print(reply, screen)?,
            Form::Text if screen.can_draw() => screen.page(&seen.shown(screen.columns()))?,
            Form::Text => changed.into_iter().try_for_each(|upstream| screen.line(&line(upstream)))?,
        }
        Ok(())
    }

    fn away(&mut self, failure: &Failure, args: &StatusArgs, screen: &mut Screen) -> Result<(), Stop> {
        let text = format!("{}\nlooking for it every second", failure.text);
        if args.output.form == Form::Text && screen.can_draw() {
            screen.page(&text)?;
        } else if !self.away {
            screen.talk(&text)?;
        }
        self.away = true;
        Ok(())
    }

    /// Whether this is news.
    fn learn(&mut self, upstream: &Upstream) -> bool {
        let now = Told {
            state: upstream.state.clone(),
            circuit: upstream.circuit.clone(),
            note: upstream.note(),
            tools: upstream.tools,
            restarts: upstream.restarts,
        };
        let news = self.told.get(&upstream.name) != Some(&now);
        self.told.insert(upstream.name.clone(), now);
        news
    }
}

/// One change: the name, the state, and what there is to say about it.
fn line(upstream: &Upstream) -> String {
    let mut said = vec![upstream.name.clone(), format!("{} {}", upstream.glyph(), upstream.state_word())];
    if upstream.circuit != "closed" {
        said.push(format!("circuit {}", upstream.circuit.replace('_', " ")));
    }
    if upstream.tools > 0 {
        said.push(format!("{} tools", upstream.tools_shown()));
    }
    if upstream.restarts > 0 {
        said.push(plural(usize::try_from(upstream.restarts).unwrap_or(usize::MAX), "restart"));
    }
    said.push(upstream.note());
    said.retain(|piece| !piece.is_empty());
    said.join("  ")
}

//! `gripfast policy test`: what the lists of the config say about one client and one tool. Nothing is started.

use super::args::{Form, Global, PolicyTestArgs, PolicyVerb};
use super::config;
use super::exit::Exit;
use super::fleet::runtime;
use super::render::Screen;
use super::stop::{Failure, Stop};
use gripfast::config::ServerSpec;
use gripfast::ledger::{Keeps, LedgerOptions};
use gripfast::{Decision, Host, Kind, Principal};
use serde_json::json;

pub(crate) fn run(global: &Global, verb: &PolicyVerb, screen: &mut Screen) -> Result<Exit, Stop> {
    match verb {
        PolicyVerb::Test(args) => test(global, args, screen),
    }
}

fn test(global: &Global, args: &PolicyTestArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let decision = decide(global, args, screen)?;
    let PolicyTestArgs { client, server, tool, .. } = args;
    let Decision { allowed, reason } = &decision;
    match args.output.form {
        Form::Json => screen.json(&json!({
            "client": client, "server": server, "tool": tool, "allowed": allowed, "reason": reason,
        }))?,
        Form::Text => {
            let may = if *allowed { "may" } else { "may not" };
            screen.line(&format!("`{client}` {may} call `{tool}` of `{server}`: {reason}"))?;
        }
    }
    Ok(if *allowed { Exit::Ok } else { Exit::Denied })
}

fn decide(global: &Global, args: &PolicyTestArgs, screen: &mut Screen) -> Result<Decision, Stop> {
    let opened = config::open(global, screen)?;
    let spec = config::usable(opened.server(&args.server)?)?;
    // Only what is stored is looked at.
    let mut spec = ServerSpec { disabled: false, ..spec.clone() };
    spec.supervision.lazy = true;
    let decision = runtime()?.block_on(async {
        let host = Host::builder()
            .state_dir(opened.state_dir(global)?)
            .strict_modes(opened.strict_modes())
            .ledger(LedgerOptions { keeps: Keeps::Nothing, ..LedgerOptions::default() })
            .clients(opened.config.clients.clone())
            .build();
        let spawned = host.spawn(&args.server, spec).map_err(|error| error.to_string());
        spawned.map_err(|error| Failure::new(Exit::General, error))?;
        let client = Principal::named(args.client.as_str());
        let decision = host.explain(Some(&client), &args.server, Kind::Tool, &args.tool);
        host.shutdown().await;
        decision.map_err(Failure::from)
    })?;
    Ok(decision)
}

//! `gripfast policy test`: evaluates the allow and deny lists of the config for one client and one tool. Starts
//! nothing.

use super::args::{GlobalArgs, OutputFormat, PolicyTestArgs, PolicyVerb};
use super::config;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::local_host::runtime;
use super::render::Screen;
use gripfast::RecordDetail;
use gripfast::config::ServerSpec;
use gripfast::ledger::LedgerOptions;
use gripfast::{Host, ItemKind, PolicyDecision, Principal};
use serde_json::json;

pub(crate) fn run(global: &GlobalArgs, verb: &PolicyVerb, screen: &mut Screen) -> Result<Exit, CommandError> {
    match verb {
        PolicyVerb::Test(args) => test(global, args, screen),
    }
}

fn test(global: &GlobalArgs, args: &PolicyTestArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let decision = decide(global, args, screen)?;
    let PolicyTestArgs { client, server, tool, .. } = args;
    let PolicyDecision { allowed, reason } = &decision;
    match args.output.form {
        OutputFormat::Json => screen.json(&json!({
            "client": client, "server": server, "tool": tool, "allowed": allowed, "reason": reason,
        }))?,
        OutputFormat::Text => {
            let may = if *allowed { "may" } else { "may not" };
            screen.line(&format!("client `{client}` {may} call `{tool}` of server `{server}`: {reason}"))?;
        }
    }
    Ok(if *allowed { Exit::Ok } else { Exit::Denied })
}

fn decide(
    global: &GlobalArgs,
    args: &PolicyTestArgs,
    screen: &mut Screen,
) -> Result<PolicyDecision, CommandError> {
    let opened = config::open(global, screen)?;
    let spec = config::server_spec(opened.server(&args.server)?)?;
    // Lazy, so that only stored data is used.
    let mut spec = ServerSpec { disabled: false, ..spec.clone() };
    spec.supervision.lazy = true;
    let decision = runtime()?.block_on(async {
        let host = Host::builder()
            .state_dir(opened.state_dir(global)?)
            .strict_modes(opened.strict_modes())
            .ledger(LedgerOptions { detail: RecordDetail::Nothing, ..LedgerOptions::default() })
            .client_policies(opened.config.clients.clone())
            .build();
        let spawned = host.spawn(&args.server, spec).map_err(|error| error.to_string());
        spawned.map_err(|error| FailureReport::new(Exit::General, error))?;
        let client = Principal::new(args.client.as_str());
        let decision = host.explain_access(Some(&client), &args.server, ItemKind::Tool, &args.tool);
        host.shutdown().await;
        decision.map_err(FailureReport::from)
    })?;
    Ok(decision)
}

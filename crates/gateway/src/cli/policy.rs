//! `gripfast policy test`: evaluates the allow and deny lists of the config for one client and one tool. Starts
//! nothing.

use super::args::{GlobalArgs, OutputFormat, PolicyTestArgs, PolicyVerb};
use super::config;
use super::error::CommandError;
use super::exit::Exit;
use super::local_host::with_stored_host;
use super::render::Screen;
use gripfast::{AuditOptions, ItemKind, PolicyDecision, Principal};
use gripfast_gateway::api::types::DecisionView;

pub(crate) fn run(global: &GlobalArgs, verb: &PolicyVerb, screen: &mut Screen) -> Result<Exit, CommandError> {
    match verb {
        PolicyVerb::Test(args) => test(global, args, screen),
    }
}

fn test(global: &GlobalArgs, args: &PolicyTestArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let decision = decide(global, args, screen)?;
    let decision = DecisionView::of(&args.client, &args.server, &args.tool, decision);
    let DecisionView { client, server, tool, allowed, reason } = &decision;
    match args.output.form {
        OutputFormat::Json => screen.json(&decision)?,
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
    let entry = opened.server(&args.server)?;
    config::server_spec(entry)?;
    with_stored_host(global, &opened, [entry], AuditOptions::default(), |host| {
        let client = Principal::new(args.client.as_str());
        Ok(host.explain_access(Some(&client), &args.server, ItemKind::Tool, &args.tool)?)
    })
}

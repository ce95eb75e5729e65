//! `gripfast token`: replaces the admin token of a state directory.

use super::args::{GlobalArgs, TokenVerb};
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::render::Screen;
use super::{audit_line, config};
use gripfast::{KeyChange, SecurityEvent};
use gripfast_gateway::api::{TOKEN_FILE, rotate_token};

/// Replaces the token in the state directory. Running gateways read the file again by themselves.
pub(crate) fn run(global: &GlobalArgs, verb: &TokenVerb, screen: &mut Screen) -> Result<Exit, CommandError> {
    match verb {
        TokenVerb::Rotate => rotate(global, screen),
    }
}

fn rotate(global: &GlobalArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let directory =
        config::gateway_state_dir(global)?.ok_or_else(|| config::no_state_dir(" for the admin token"))?;
    let path = rotate_token(&directory).map_err(|error| {
        let path = directory.join(TOKEN_FILE);
        FailureReport::new(Exit::General, format!("`{}` cannot be replaced: {error}", path.display()))
            .with_hint("`--state-dir` names another directory")
    })?;
    screen.message(&format!(
        "wrote a new admin token to `{}`; gateways that use this directory refuse the old one from now on",
        path.display()
    ))?;
    let (change, names) = (KeyChange::AdminToken, Vec::new());
    let event = SecurityEvent::KeysChanged { change, names, actor: audit_line::actor() };
    audit_line::record(Some(&directory), &config::gateway_settings(global), &event, screen)?;
    Ok(Exit::Ok)
}

//! `gripfast token`: the admin token of a state directory.

use super::args::{Global, TokenVerb};
use super::exit::Exit;
use super::render::Screen;
use super::stop::{Failure, Stop};
use super::{audited, config};
use gripfast::{KeyChange, SecurityEvent};
use gripfast_gateway::admin::{TOKEN_FILE, rotate_token};

/// Replaces the token in the state directory. Running gateways look at its file by themselves.
pub(crate) fn run(global: &Global, verb: &TokenVerb, screen: &mut Screen) -> Result<Exit, Stop> {
    match verb {
        TokenVerb::Rotate => rotate(global, screen),
    }
}

fn rotate(global: &Global, screen: &mut Screen) -> Result<Exit, Stop> {
    let directory = config::state_dir_of_gateway(global)?.ok_or_else(|| {
        Failure::new(Exit::General, "there is no state directory to keep a token in")
            .with_hint("`--state-dir` names one")
    })?;
    let path = rotate_token(&directory).map_err(|error| {
        let path = directory.join(TOKEN_FILE);
        Failure::new(Exit::General, format!("`{}` cannot be replaced: {error}", path.display()))
            .with_hint("`--state-dir` names another directory")
    })?;
    screen.talk(&format!(
        "`{}` holds a new admin token; gateways that use this directory refuse the old one from now on",
        path.display()
    ))?;
    let (change, names) = (KeyChange::AdminToken, Vec::new());
    let event = SecurityEvent::KeysChanged { change, names, actor: audited::actor() };
    audited::record(Some(&directory), &config::gateway_settings(global), &event, screen)?;
    Ok(Exit::Ok)
}

//! `gripfast reconnect`, `reload`, `stop`, `start`: one server of a running gateway is told to do something.

use super::address::GatewayUrl;
use super::args::{Form, Global, OperateArgs, ReloadArgs};
use super::config_trust;
use super::exit::Exit;
use super::fleet;
use super::gateway::{Gateway, Reply, piece};
use super::render::{Screen, with_progress};
use super::status::Upstream;
use super::stop::{Failure, Stop};
use gripfast_gateway::reload::Reloaded;

/// What a server is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Reconnect,
    Reload,
    Stop,
    Start,
}

impl Action {
    const fn word(self) -> &'static str {
        match self {
            Self::Reconnect => "reconnect",
            Self::Reload => "reload",
            Self::Stop => "stop",
            Self::Start => "start",
        }
    }
}

/// Tells the gateway, and says what became of the server so far.
pub(crate) fn run(
    global: &Global,
    action: Action,
    args: &OperateArgs,
    screen: &mut Screen,
) -> Result<Exit, Stop> {
    let url = args.gateway.address(global)?;
    let telling = tell(global, action, &args.name, &url);
    let (reply, told) = fleet::runtime()?.block_on(with_progress(screen, "the gateway", telling))?;
    if args.output.form == Form::Json {
        screen.json_text(&String::from_utf8_lossy(&reply.body))?;
        return Ok(Exit::Ok);
    }
    let replacing = if told.is_being_replaced() { ", and is being replaced by a new one" } else { "" };
    screen.talk(&format!("`{}` is {}{replacing}", told.name, told.state_word()))?;
    Ok(Exit::Ok)
}

/// Tells the gateway to take its config, or to begin anew with one server.
pub(crate) fn reload(global: &Global, args: &ReloadArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let ReloadArgs { name, output, gateway } = args;
    if let Some(name) = name {
        let args = OperateArgs { name: name.clone(), output: *output, gateway: gateway.clone() };
        return run(global, Action::Reload, &args, screen);
    }
    let named;
    let (global, url) = match config_trust::changed(global)? {
        // Whoever asks for it to be taken vouches for it: it says where its gateway is.
        Some(path) => {
            let typed = gateway.url.clone().map_or_else(GatewayUrl::of_environment, |url| Ok(Some(url)))?;
            named = Global { config: Some(path), state_dir: global.state_dir.clone() };
            (&named, GatewayUrl::meant(&named, typed.as_ref())?)
        }
        None => (global, gateway.address(global)?),
    };
    let telling = async {
        let gateway = Gateway::at(global, &url).await?;
        let reply = gateway.post("/api/v1/reload").await?;
        match reply.refusal() {
            Some(refusal) if reply.is_unprocessable() => {
                Err(Failure::from(refusal).exiting(Exit::ConfigInvalid))
            }
            Some(refusal) => Err(refusal.into()),
            None => gateway.read(&reply).map(|done| (reply, done)),
        }
    };
    let told = fleet::runtime()?.block_on(with_progress(screen, "the gateway", telling));
    let (reply, done): (Reply, Reloaded) = told?;
    match output.form {
        Form::Json => screen.json_text(&String::from_utf8_lossy(&reply.body))?,
        Form::Text => screen.talk(&done.summary())?,
    }
    Ok(if done.mistakes.is_empty() { Exit::Ok } else { Exit::ConfigInvalid })
}

async fn tell(
    global: &Global,
    action: Action,
    name: &str,
    url: &GatewayUrl,
) -> Result<(Reply, Upstream), Failure> {
    let gateway = Gateway::at(global, url).await?;
    let path = format!("/api/v1/upstreams/{}/{}", piece(name), action.word());
    let reply = gateway.post(&path).await?;
    match reply.refusal() {
        Some(refusal) => Err(refusal.into()),
        None => gateway.read(&reply).map(|told| (reply, told)),
    }
}

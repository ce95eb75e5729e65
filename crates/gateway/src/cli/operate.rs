//! `gripfast reconnect`, `reload`, `stop`, `start`: one server of a running gateway is told to do something.

use super::args::{Global, OperateArgs};
use super::config;
use super::exit::Exit;
use super::fleet;
use super::gateway::{Gateway, GatewayUrl, Refusal, piece};
use super::render::Screen;
use super::status::Upstream;
use super::stop::{Failure, Stop};
use gripfast_gateway::admin::TOKEN_FILE;
use std::io;
use std::path::{Path, PathBuf};

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

/// The gateway's token, or where it was looked for in vain.
struct Token {
    place: Option<PathBuf>,
    read: io::Result<String>,
}

/// Tells the gateway, and says what became of the server so far.
pub(crate) fn run(
    global: &Global,
    action: Action,
    args: &OperateArgs,
    screen: &mut Screen,
) -> Result<Exit, Stop> {
    let token = Token::of(config::state_dir_of_gateway(global)?);
    let told = fleet::runtime()?.block_on(tell(action, args, &token))?;
    let replacing = if told.is_being_replaced() { ", and is being replaced by a new one" } else { "" };
    screen.talk(&format!("`{}` is {}{replacing}", told.name, told.state_word()))?;
    Ok(Exit::Ok)
}

async fn tell(action: Action, args: &OperateArgs, token: &Token) -> Result<Upstream, Failure> {
    let gateway = Gateway::at(&args.url);
    let path = format!("/api/v1/upstreams/{}/{}", piece(&args.name), action.word());
    let reply = gateway.post(&path, token.read.as_deref().ok()).await?;
    match reply.refusal() {
        Some(refusal) if reply.is_unauthorized() => Err(token.refused(&args.url, refusal)),
        Some(refusal) => Err(refusal.into()),
        None => gateway.read(&reply),
    }
}

impl Token {
    fn of(state_dir: Option<PathBuf>) -> Self {
        let place = state_dir.map(|directory| directory.join(TOKEN_FILE));
        let read = match &place {
            Some(path) => std::fs::read_to_string(path).map(|text| text.trim().to_owned()),
            None => Err(io::Error::other("there is no state directory without a home")),
        };
        Self { place, read }
    }

    /// Why it did not help.
    fn refused(&self, url: &GatewayUrl, refusal: Refusal) -> Failure {
        let place = self.place.as_deref().map_or_else(|| Path::new(TOKEN_FILE).display(), Path::display);
        let text = match &self.read {
            Ok(_) => format!("the gateway at {url} has another admin token than the one in `{place}`"),
            Err(error) => {
                format!("the gateway at {url} wants its admin token; looked for it in `{place}`: {error}")
            }
        };
        let hint = refusal.hint.map(|hint| format!("{hint}; "));
        Failure::new(Exit::Denied, text)
            .with_hint(format!("{}`--state-dir` names its directory", hint.unwrap_or_default()))
    }
}

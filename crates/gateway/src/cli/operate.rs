//! `gripfast reconnect`, `reload`, `stop` and `start`: actions on a server of a running gateway, or on its config.

use super::address::GatewayUrl;
use super::admin_client::{AdminClient, upstream_path};
use super::args::{GlobalArgs, OperateArgs, OutputFormat, ReloadArgs};
use super::config_trust;
use super::error::CommandError;
use super::exit::Exit;
use super::local_host;
use super::render::{Screen, with_progress};
use super::status::state_word;
use gripfast::AdminAction;
use gripfast_gateway::api::types::UpstreamView;
use gripfast_gateway::reload::ReloadOutcome;

/// Sends the action to the gateway, and prints the resulting state of the server.
pub(crate) fn run(
    global: &GlobalArgs,
    action: AdminAction,
    args: &OperateArgs,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let url = args.gateway.resolve(global)?;
    let sending = async {
        let gateway = AdminClient::connect(global, &url).await?;
        let path = upstream_path(&args.name, &format!("/{}", action.as_str()));
        gateway.post::<UpstreamView>(&path).await
    };
    let reply = local_host::runtime()?.block_on(with_progress(screen, "the gateway", sending))?;
    let server = &reply.value;
    let replacing = if server.replacing { "; a new connection is being opened" } else { "" };
    match args.output.form {
        OutputFormat::Json => screen.json_text(&reply.json)?,
        OutputFormat::Text => {
            screen.message(&format!("server `{}` is {}{replacing}", server.name, state_word(server)))?;
        }
    }
    Ok(Exit::Ok)
}

/// Reloads the config of the gateway, or resets and reconnects one server.
pub(crate) fn reload(
    global: &GlobalArgs,
    args: &ReloadArgs,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let ReloadArgs { name, output, gateway } = args;
    if let Some(name) = name {
        let args = OperateArgs { name: name.clone(), output: *output, gateway: gateway.clone() };
        return run(global, AdminAction::Reload, &args, screen);
    }
    let named;
    let (global, url) = match config_trust::changed_since_trusted(global)? {
        // `reload` implies trust, so the changed file may say where its gateway is.
        Some(path) => {
            let typed = gateway.url.clone().map_or_else(GatewayUrl::from_env, |url| Ok(Some(url)))?;
            named = GlobalArgs { config: Some(path), state_dir: global.state_dir.clone() };
            (&named, GatewayUrl::resolve(&named, typed.as_ref())?)
        }
        None => (global, gateway.resolve(global)?),
    };
    let sending = async {
        let gateway = AdminClient::connect(global, &url).await?;
        gateway.post::<ReloadOutcome>("/reload").await
    };
    let reply = local_host::runtime()?.block_on(with_progress(screen, "the gateway", sending))?;
    match output.form {
        OutputFormat::Json => screen.json_text(&reply.json)?,
        OutputFormat::Text => screen.message(&reply.value.summary())?,
    }
    Ok(if reply.value.mistakes.is_empty() { Exit::Ok } else { Exit::ConfigInvalid })
}

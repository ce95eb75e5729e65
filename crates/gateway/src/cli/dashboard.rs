//! `gripfast dashboard`: a link that signs a browser in to the dashboard of a running gateway.

use super::args::{DashboardArgs, Global};
use super::exit::Exit;
use super::fleet;
use super::gateway::Gateway;
use super::login::open_browser;
use super::render::{Screen, with_progress};
use super::stop::{Failure, Stop};
use serde::Deserialize;

/// The answer of the gateway.
#[derive(Deserialize)]
struct SignInCode {
    code: String,
    valid_ms: u64,
}

/// Prints the link, and opens it for a person at a terminal.
pub(crate) fn run(global: &Global, args: &DashboardArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let url = args.gateway.address(global)?;
    let asking = async {
        let gateway = Gateway::at(global, &url).await?;
        let reply = gateway.post("/api/v1/sign_in_link").await?;
        match reply.refusal() {
            Some(refusal) => Err(Failure::from(refusal)),
            None => gateway.read::<SignInCode>(&reply),
        }
    };
    let SignInCode { code, valid_ms } =
        fleet::runtime()?.block_on(with_progress(screen, "the gateway", asking))?;
    // A server never sees what follows `#`, so the code gets into no access log.
    let link = format!("{url}/#/sign-in/{code}");
    screen.line(&link)?;
    screen.talk(&format!("This link signs one browser in, within {} s.", valid_ms / 1000))?;
    screen.flush()?;
    if !args.no_open && screen.can_draw() && open_browser(&link).is_err() {
        screen.talk("No browser could be started: open the link yourself.")?;
    }
    Ok(Exit::Ok)
}

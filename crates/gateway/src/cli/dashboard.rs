//! `gripfast dashboard`: creates a link that signs a browser in to the dashboard of a running gateway.

use super::admin_client::AdminClient;
use super::args::{DashboardArgs, GlobalArgs};
use super::error::CommandError;
use super::exit::Exit;
use super::local_host;
use super::login::open_browser;
use super::render::{Screen, with_progress};
use gripfast_gateway::api::types::SignInCodeView;

/// Prints the link and, at a terminal, opens it in a browser.
pub(crate) fn run(
    global: &GlobalArgs,
    args: &DashboardArgs,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let url = args.gateway.resolve(global)?;
    let asking = async {
        let gateway = AdminClient::connect(global, &url).await?;
        gateway.post::<SignInCodeView>("/sign_in_link").await
    };
    let reply = local_host::runtime()?.block_on(with_progress(screen, "the gateway", asking))?;
    let SignInCodeView { code, valid_ms } = reply.value;
    // Browsers do not send the part after `#`, so the code is in no access log.
    let link = format!("{url}/#/sign-in/{code}");
    screen.line(&link)?;
    screen.message(&format!("this link signs in one browser within {} s", valid_ms / 1000))?;
    screen.flush()?;
    if !args.no_open && screen.can_draw() && open_browser(&link).is_err() {
        screen.message("no browser could be started; open the link yourself")?;
    }
    Ok(Exit::Ok)
}

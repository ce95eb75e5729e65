//! `gripfast status`: the state of all servers, or of one, of a running gateway.

mod detail;
mod fleet;
mod labels;
mod watch;

pub(crate) use super::status::labels::{EMPTY_CELL, latency, list_failure, short_duration, state_word};

use super::admin_client::{AdminClient, upstream_path};
use super::args::{GlobalArgs, OutputFormat, StatusArgs};
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::render::{Screen, with_progress};
use gripfast_gateway::api::types::{DetailView, FleetView, UpstreamView};

/// Asks the gateway once and prints the answer; with `--watch`, repeatedly.
pub(crate) fn run(global: &GlobalArgs, args: &StatusArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let url = args.gateway.resolve(global)?;
    let runtime = super::local_host::runtime()?;
    runtime.block_on(async {
        let gateway = AdminClient::connect(global, &url).await?;
        if args.watch {
            return watch::run(&gateway, args, screen).await;
        }
        let (json, status) = with_progress(screen, "the gateway", fetch(&gateway, args)).await?;
        match args.output.form {
            OutputFormat::Json => screen.json_text(&json)?,
            OutputFormat::Text => screen.line_with_symbols(&status.render(screen.columns()))?,
        }
        Ok(Exit::Ok)
    })
}

/// The answer of the gateway.
enum StatusReply {
    Fleet(Box<FleetView>),
    One(Box<DetailView>),
}

impl StatusReply {
    fn render(&self, columns: Option<usize>) -> String {
        match self {
            Self::Fleet(fleet) => fleet::render(fleet, columns),
            Self::One(detail) => detail::render(detail),
        }
    }

    fn upstreams(&self) -> &[UpstreamView] {
        match self {
            Self::Fleet(fleet) => &fleet.upstreams,
            Self::One(detail) => std::slice::from_ref(&detail.upstream),
        }
    }
}

/// Fetches the status of all servers, or of the named one. It is parsed for JSON output too, so that an answer of
/// another program is an error.
async fn fetch(gateway: &AdminClient<'_>, args: &StatusArgs) -> Result<(String, StatusReply), FailureReport> {
    match &args.name {
        Some(name) => {
            let reply = gateway.get(&upstream_path(name, "")).await?;
            Ok((reply.json, StatusReply::One(Box::new(reply.value))))
        }
        None => {
            let reply = gateway.get("/status").await?;
            Ok((reply.json, StatusReply::Fleet(reply.value)))
        }
    }
}

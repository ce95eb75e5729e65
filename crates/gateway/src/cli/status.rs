//! `gripfast status`: the state of all servers, or of one, of a running gateway.

mod detail;
mod fleet;
mod labels;
mod model;
mod watch;

pub(crate) use super::status::labels::{EMPTY_CELL, latency, short_duration};
pub(crate) use model::{FleetModel, ServerModel};

use super::admin_client::{AdminClient, AdminReply, path_segment};
use super::args::{GlobalArgs, OutputFormat, StatusArgs};
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::render::{Screen, with_progress};
use model::DetailModel;

/// Asks the gateway once and prints the answer; with `--watch`, repeatedly.
pub(crate) fn run(global: &GlobalArgs, args: &StatusArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let url = args.gateway.resolve(global)?;
    let runtime = super::local_host::runtime()?;
    runtime.block_on(async {
        let gateway = AdminClient::connect(global, &url).await?;
        if args.watch {
            return watch::run(&gateway, args, screen).await;
        }
        let path = path(args);
        let reply = with_progress(screen, "the gateway", gateway.get(&path)).await?;
        if let Some(refusal) = reply.error() {
            if args.output.form == OutputFormat::Json {
                print_json(&reply, screen)?;
            }
            return Err(FailureReport::from(refusal).into());
        }
        match args.output.form {
            // Parsed as well, so that an answer of another program is an error.
            OutputFormat::Json => {
                parse_reply(&gateway, args, &reply).map(|_| print_json(&reply, screen))??
            }
            OutputFormat::Text => {
                screen.line_with_symbols(&parse_reply(&gateway, args, &reply)?.render(screen.columns()))?
            }
        }
        Ok(Exit::Ok)
    })
}

/// The answer of the gateway.
enum StatusReply {
    Fleet(FleetModel),
    One(Box<DetailModel>),
}

impl StatusReply {
    fn render(&self, columns: Option<usize>) -> String {
        match self {
            Self::Fleet(fleet) => fleet::render(fleet, columns),
            Self::One(detail) => detail::render(detail),
        }
    }

    fn upstreams(&self) -> &[ServerModel] {
        match self {
            Self::Fleet(fleet) => &fleet.upstreams,
            Self::One(detail) => std::slice::from_ref(&detail.upstream),
        }
    }
}

fn path(args: &StatusArgs) -> String {
    match &args.name {
        Some(name) => format!("/api/v1/upstreams/{}", path_segment(name)),
        None => "/api/v1/status".to_owned(),
    }
}

fn parse_reply(
    gateway: &AdminClient<'_>,
    args: &StatusArgs,
    reply: &AdminReply,
) -> Result<StatusReply, FailureReport> {
    match &args.name {
        Some(_) => gateway.parse(reply).map(|detail| StatusReply::One(Box::new(detail))),
        None => gateway.parse(reply).map(StatusReply::Fleet),
    }
}

/// Prints the answer as the gateway sent it.
fn print_json(reply: &AdminReply, screen: &mut Screen) -> Result<(), CommandError> {
    Ok(screen.json_text(&String::from_utf8_lossy(&reply.body))?)
}

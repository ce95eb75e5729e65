//! `gripfast status`: the fleet, or one server, of a running gateway.

mod detail;
mod fleet;
mod model;
mod watch;
mod words;

pub(crate) use model::{Fleet, Upstream};
pub(crate) use words::{NOTHING, latency, span};

use super::args::{Form, Global, StatusArgs};
use super::exit::Exit;
use super::gateway::{Gateway, Reply, piece};
use super::render::{Screen, with_progress};
use super::stop::{Failure, Stop};
use model::Detail;

/// Asks once and prints, or goes on asking.
pub(crate) fn run(global: &Global, args: &StatusArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let url = args.gateway.address(global)?;
    let runtime = super::fleet::runtime()?;
    runtime.block_on(async {
        let gateway = Gateway::at(global, &url).await?;
        if args.watch {
            return watch::run(&gateway, args, screen).await;
        }
        let path = path(args);
        let reply = with_progress(screen, "the gateway", gateway.get(&path)).await?;
        if let Some(refusal) = reply.refusal() {
            if args.output.form == Form::Json {
                print(&reply, screen)?;
            }
            return Err(Failure::from(refusal).into());
        }
        match args.output.form {
            // Read all the same: what is no status is not passed on as one.
            Form::Json => seen(&gateway, args, &reply).map(|_| print(&reply, screen))??,
            Form::Text => screen.signs(&seen(&gateway, args, &reply)?.shown(screen.columns()))?,
        }
        Ok(Exit::Ok)
    })
}

/// What was asked for.
enum Seen {
    Fleet(Fleet),
    One(Box<Detail>),
}

impl Seen {
    fn shown(&self, columns: Option<usize>) -> String {
        match self {
            Self::Fleet(fleet) => fleet::shown(fleet, columns),
            Self::One(detail) => detail::shown(detail),
        }
    }

    fn upstreams(&self) -> &[Upstream] {
        match self {
            Self::Fleet(fleet) => &fleet.upstreams,
            Self::One(detail) => std::slice::from_ref(&detail.upstream),
        }
    }
}

fn path(args: &StatusArgs) -> String {
    match &args.name {
        Some(name) => format!("/api/v1/upstreams/{}", piece(name)),
        None => "/api/v1/status".to_owned(),
    }
}

fn seen(gateway: &Gateway<'_>, args: &StatusArgs, reply: &Reply) -> Result<Seen, Failure> {
    match &args.name {
        Some(_) => gateway.read(reply).map(|detail| Seen::One(Box::new(detail))),
        None => gateway.read(reply).map(Seen::Fleet),
    }
}

/// The gateway's own bytes.
fn print(reply: &Reply, screen: &mut Screen) -> Result<(), Stop> {
    Ok(screen.json_text(&String::from_utf8_lossy(&reply.body))?)
}

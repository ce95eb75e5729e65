//! `gripfast events`: what happens to a running gateway and its servers.

use super::args::{EventsArgs, Form, Global};
use super::exit::Exit;
use super::fleet::{self, Signals, no_runtime};
use super::gateway::{EventStream, Gateway, piece};
use super::render::{Screen, utc};
use super::status::Fleet;
use super::stop::{Failure, Stop};
use serde_json::Value;
use std::collections::HashSet;
use std::time::Duration;

/// A gateway that went away is looked for again after this long.
const AGAIN: Duration = Duration::from_secs(1);
/// Stands where a server's name stands, for what belongs to none. No server can have this name.
const GATEWAY: &str = "(gateway)";

/// Prints the last events of every server, or follows what comes.
pub(crate) fn run(global: &Global, args: &EventsArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let url = args.gateway.address(global)?;
    fleet::runtime()?.block_on(async {
        let gateway = Gateway::at(global, &url).await?;
        // What tells about clients and operators may need it.
        gateway.show_token();
        let mut signals = Signals::listen().map_err(no_runtime)?;
        // Listening begins before looking back, so that nothing falls in between.
        let stream = if args.follow { Some(gateway.events(None).await?) } else { None };
        let mut past: Vec<(u64, Value)> = Vec::new();
        for name in &names(&gateway, args, &mut past).await? {
            past.extend(recent(&gateway, name).await?);
        }
        past.sort_by_key(|(at, _)| *at);
        for (_, event) in &past {
            show(args, event, screen)?;
        }
        screen.flush()?;
        let Some(stream) = stream else { return Ok(Exit::Ok) };
        let told: HashSet<String> = past.iter().map(|(_, event)| what(event)).collect();
        tokio::select! {
            biased;
            exit = signals.next() => Err(Stop::Told(exit)),
            failed = follow(&gateway, stream, told, args, screen) => failed.map(|()| Exit::Ok),
        }
    })
}

/// The servers whose events are wanted. If they are all wanted, adds those of the gateway itself to `past`.
async fn names(
    gateway: &Gateway<'_>,
    args: &EventsArgs,
    past: &mut Vec<(u64, Value)>,
) -> Result<Vec<String>, Failure> {
    if let Some(name) = &args.name {
        return Ok(vec![name.clone()]);
    }
    let reply = gateway.get("/api/v1/status").await?;
    let fleet: Fleet = gateway.read(&reply)?;
    past.extend(events_of(&gateway.read(&reply)?));
    Ok(fleet.names().map(str::to_owned).collect())
}

/// The last events of one server, with their times.
async fn recent(gateway: &Gateway<'_>, name: &str) -> Result<Vec<(u64, Value)>, Failure> {
    let reply = gateway.get(&format!("/api/v1/upstreams/{}", piece(name))).await?;
    if let Some(refusal) = reply.refusal() {
        return Err(refusal.into());
    }
    Ok(events_of(&gateway.read(&reply)?))
}

/// The events in an answer, with their times.
fn events_of(told: &Value) -> Vec<(u64, Value)> {
    let events = told["events"].as_array().cloned().unwrap_or_default();
    events.into_iter().map(|event| (event["at"].as_u64().unwrap_or(0), event)).collect()
}

/// Goes on until it is dropped. A gateway that goes away is waited for, and goes on where it was left.
async fn follow(
    gateway: &Gateway<'_>,
    mut stream: EventStream,
    mut told: HashSet<String>,
    args: &EventsArgs,
    screen: &mut Screen,
) -> Result<(), Stop> {
    let mut last_seen: Option<String> = None;
    loop {
        while let Some(data) = stream.next().await {
            let Ok(event) = serde_json::from_str::<Value>(&data) else { continue };
            if let Some(id) = event["id"].as_str() {
                last_seen = Some(id.to_owned());
            }
            let wanted = args.name.as_deref().is_none_or(|name| event["server"] == name);
            // Events that were missed may have been of any server.
            if (wanted || event["kind"] == "missed") && !told.remove(&what(&event)) {
                show(args, &event, screen)?;
                screen.flush()?;
            }
        }
        stream = again(gateway, last_seen.as_deref(), screen).await?;
        // What was shown before the break does not come again.
        told.clear();
    }
}

/// The stream of a gateway that ended it, when it is back.
async fn again(
    gateway: &Gateway<'_>,
    last_seen: Option<&str>,
    screen: &mut Screen,
) -> Result<EventStream, Stop> {
    let mut away = false;
    loop {
        tokio::time::sleep(AGAIN).await;
        match gateway.events(last_seen).await {
            Ok(stream) => {
                if away {
                    screen.talk(&format!("the gateway at {} is back", gateway.url()))?;
                }
                return Ok(stream);
            }
            Err(failure) => {
                if !std::mem::replace(&mut away, true) {
                    screen.talk(&format!("{}\nlooking for it every second", failure.text))?;
                }
            }
        }
    }
}

/// What makes two tellings of an event the same.
fn what(event: &Value) -> String {
    format!("{} {} {}", event["at"], event["server"], event["text"])
}

fn show(args: &EventsArgs, event: &Value, screen: &mut Screen) -> Result<(), Stop> {
    match args.output.form {
        Form::Json => screen.json(event)?,
        Form::Text => {
            let at = event["at"].as_u64().map(utc).unwrap_or_default();
            let text = event["text"].as_str().unwrap_or_default();
            let of = match event["server"].as_str() {
                Some(server) => server,
                None if event["kind"] == "missed" => "",
                None => GATEWAY,
            };
            screen.line(format!("{at}  {of}  {text}").trim())?;
        }
    }
    Ok(())
}

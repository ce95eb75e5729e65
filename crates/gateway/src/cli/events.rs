//! `gripfast events`: events of a running gateway and its servers.

use super::admin_client::{AdminClient, EventStream, upstream_path};
use super::args::{EventsArgs, GlobalArgs, OutputFormat};
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::local_host;
use super::local_host::{Signals, runtime_failure};
use super::render::{Screen, utc};
use gripfast_gateway::api::types::FleetView;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;
use std::time::Duration;

/// Interval between attempts to reach a gateway that went away.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Shown in place of the server name for events of the gateway. No server can have this name.
const GATEWAY: &str = "(gateway)";

/// Prints the last events of every server and, with `--follow`, new ones.
pub(crate) fn run(global: &GlobalArgs, args: &EventsArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let url = args.gateway.resolve(global)?;
    local_host::runtime()?.block_on(async {
        let gateway = AdminClient::connect(global, &url).await?;
        // Events about clients and operators may need it.
        gateway.always_send_token();
        let mut signals = Signals::listen().map_err(runtime_failure)?;
        // The stream is opened before the past events are read, so that no event is lost in between.
        let stream = if args.follow { Some(gateway.events(None).await?) } else { None };
        let mut past = past_events(&gateway, args).await?;
        past.sort_by_key(|event| event["at"].as_u64());
        for event in &past {
            show(args, event, screen)?;
        }
        screen.flush()?;
        let Some(stream) = stream else { return Ok(Exit::Ok) };
        let shown: HashSet<String> = past.iter().map(event_key).collect();
        tokio::select! {
            biased;
            exit = signals.next() => Err(CommandError::Reported(exit)),
            failed = follow(&gateway, stream, shown, args, screen) => failed.map(|()| Exit::Ok),
        }
    })
}

/// Fetches the last events of the named server, or of all servers and of the gateway itself. They stay JSON values, so
/// that events of a later version are printed whole.
async fn past_events(gateway: &AdminClient<'_>, args: &EventsArgs) -> Result<Vec<Value>, FailureReport> {
    #[derive(Deserialize)]
    struct Events {
        #[serde(default)]
        events: Vec<Value>,
    }
    let of_server =
        async |name: &str| Ok(gateway.get::<Events>(&upstream_path(name, "")).await?.value.events);
    if let Some(name) = &args.name {
        return of_server(name).await;
    }
    let status = gateway.get::<FleetView>("/status").await?;
    let own: Option<Events> = serde_json::from_str(&status.json).ok();
    let mut past = own.map(|own| own.events).unwrap_or_default();
    for name in status.value.names() {
        past.extend(of_server(name).await?);
    }
    Ok(past)
}

/// Prints events until it is dropped. If the gateway goes away, waits for it and resumes after the last event.
async fn follow(
    gateway: &AdminClient<'_>,
    mut stream: EventStream,
    mut shown: HashSet<String>,
    args: &EventsArgs,
    screen: &mut Screen,
) -> Result<(), CommandError> {
    let mut last_seen: Option<String> = None;
    loop {
        while let Some(data) = stream.next().await {
            let Ok(event) = serde_json::from_str::<Value>(&data) else { continue };
            if let Some(id) = event["id"].as_str() {
                last_seen = Some(id.to_owned());
            }
            let wanted = args.name.as_deref().is_none_or(|name| event["server"] == name);
            // Missed events may have been of any server.
            if (wanted || event["kind"] == "missed") && !shown.remove(&event_key(&event)) {
                show(args, &event, screen)?;
                screen.flush()?;
            }
        }
        stream = reconnect(gateway, last_seen.as_deref(), screen).await?;
        // The resumed stream does not repeat events from before the break.
        shown.clear();
    }
}

/// Reopens the event stream once the gateway is back.
async fn reconnect(
    gateway: &AdminClient<'_>,
    last_seen: Option<&str>,
    screen: &mut Screen,
) -> Result<EventStream, CommandError> {
    let mut away = false;
    loop {
        tokio::time::sleep(RETRY_INTERVAL).await;
        match gateway.events(last_seen).await {
            Ok(stream) => {
                if away {
                    screen.message(&format!("the gateway at {} is back", gateway.url()))?;
                }
                return Ok(stream);
            }
            Err(failure) => {
                if !std::mem::replace(&mut away, true) {
                    screen.message(&format!("{}\nretrying every second", failure.text))?;
                }
            }
        }
    }
}

/// Identity of an event, to skip duplicates of the past events and the stream.
fn event_key(event: &Value) -> String {
    format!("{} {} {}", event["at"], event["server"], event["text"])
}

fn show(args: &EventsArgs, event: &Value, screen: &mut Screen) -> Result<(), CommandError> {
    match args.output.form {
        OutputFormat::Json => screen.json(event)?,
        OutputFormat::Text => {
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

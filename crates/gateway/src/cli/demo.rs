//! `gripfast serve --demo`: three built-in servers, one of which keeps crashing and one of which keeps forgetting its
//! sessions. Calls each of them regularly and prints one line for each recovery.

use super::config;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::render::Screen;
use gripfast::{Event, Host, JsonText, State, UpstreamEvent};
use gripfast_demo::{Faults, Options, RunningServer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use toml_edit::{Array, Table, value};

/// A running demo.
pub(crate) struct Demo {
    events: gripfast::sync::Mutex<Option<broadcast::Receiver<UpstreamEvent>>>,
    calls: JoinHandle<()>,
    _forgetful: RunningServer,
}

/// Lifetime of each process of the crashing server.
const CRASH_AFTER: &str = "4s";
/// Interval between two calls to each server.
const CALL_INTERVAL: Duration = Duration::from_millis(500);
/// Number of requests after which the forgetful server drops a session.
const REQUESTS_PER_SESSION: u64 = 12;

impl Demo {
    /// Adds the servers to `host` and starts the calls.
    pub(crate) async fn start(host: &Host) -> Result<Self, FailureReport> {
        let cannot = |error: &dyn std::fmt::Display| {
            FailureReport::new(Exit::General, format!("the demo cannot start: {error}"))
        };
        let events = host.subscribe_events();
        let program = std::env::current_exe().map_err(|error| cannot(&error))?;
        let options = Options {
            faults: Faults { session_requests: Some(REQUESTS_PER_SESSION), ..Faults::default() },
            ..Options::default()
        };
        let loopback = ([127, 0, 0, 1], 0).into();
        let forgetful = gripfast_demo::start_http(loopback, options).await.map_err(|error| cannot(&error))?;
        let command = |args: &[&str]| {
            let program = program.to_string_lossy();
            Table::from_iter([
                ("command", value(&*program)),
                ("args", value(args.iter().copied().collect::<Array>())),
            ])
        };
        // Only the legacy era has sessions.
        let address = [("url", forgetful.url()), ("transport", "http".into()), ("protocol", "legacy".into())];
        for (name, table) in [
            ("steady", command(&["demo-server"])),
            ("crashing", command(&["demo-server", "--live-for", CRASH_AFTER])),
            ("forgetful", address.map(|(key, text)| (key, value(text))).into_iter().collect()),
        ] {
            let spec = config::spec_of_table(table).map_err(|cause| cannot(&cause))?;
            host.spawn(name, spec).map_err(|error| cannot(&error))?;
        }
        let calls = tokio::spawn(call_periodically(host.clone()));
        Ok(Self { events: gripfast::sync::Mutex::new(Some(events)), calls, _forgetful: forgetful })
    }

    /// Prints a line for each recovery, until it is dropped.
    pub(crate) async fn print_recoveries(&self, screen: &mut Screen) -> Result<(), CommandError> {
        let taken = self.events.lock().take();
        let Some(mut events) = taken else { return Ok(()) };
        let mut printer = RecoveryPrinter::default();
        loop {
            let upstream_event = match events.recv().await {
                Ok(upstream_event) => upstream_event,
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return Ok(()),
            };
            if let Some(line) = printer.recovery_line(&upstream_event) {
                screen.line(&line)?;
                screen.flush()?;
            }
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.calls.abort();
    }
}

/// Formats each recovery as one line: the cause of the loss, and the time until the server was back.
#[derive(Default)]
struct RecoveryPrinter {
    /// The cause for each server that is lost at present.
    lost: BTreeMap<Arc<str>, String>,
}

impl RecoveryPrinter {
    fn recovery_line(&mut self, upstream_event: &UpstreamEvent) -> Option<String> {
        let server = upstream_event.server.as_ref()?;
        match &upstream_event.event {
            Event::StateChanged { to: State::Reconnecting, cause: Some(cause), .. } => {
                self.lost.insert(Arc::clone(server), cause.clone());
                None
            }
            Event::Revived { away } => {
                let cause = self.lost.remove(server).unwrap_or_else(|| "no connection".to_owned());
                let away = gripfast::text::duration(*away);
                Some(format!("  {server}: lost ({cause}), back after {away} with all its tools"))
            }
            Event::SessionRenewed => Some(format!(
                "  {server}: forgot its session; gripfast opened a new one and repeated the refused call"
            )),
            _ => None,
        }
    }
}

async fn call_periodically(host: Host) {
    let mut tick = tokio::time::interval(CALL_INTERVAL);
    loop {
        tick.tick().await;
        for server in ["steady", "crashing", "forgetful"] {
            let arguments = JsonText::parse("{\"text\":\"hello\"}".to_owned()).ok();
            // The result does not matter here: `gripfast status` counts the calls.
            let _ = host.call(server, "echo", arguments).await;
        }
    }
}

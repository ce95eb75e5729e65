//! The demo: three built-in servers, one of which keeps crashing and one of which keeps forgetting its
//! sessions, a trickle of calls, and a line for every recovery.

use super::exit::Exit;
use super::render::Screen;
use super::stop::{Failure, Stop};
use gripfast::config::{ServerSpec, Target, Template, TlsSpec, UrlTransport};
use gripfast::{Event, Host, RawValue, State, UpstreamEvent};
use gripfast_demo::{Faults, Options, RunningServer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

/// A running demo.
pub(crate) struct Demo {
    events: std::sync::Mutex<Option<broadcast::Receiver<UpstreamEvent>>>,
    calls: JoinHandle<()>,
    _forgetful: RunningServer,
}

/// How long the crashing server lives, and how often each server is called.
const CRASHES_AFTER: &str = "4s";
const CALL_EVERY: Duration = Duration::from_millis(500);
const FORGETS_AFTER: u64 = 12;

impl Demo {
    /// Adds the servers to `host` and begins to call them.
    pub(crate) async fn start(host: &Host) -> Result<Self, Failure> {
        let cannot = |error: &dyn std::fmt::Display| {
            Failure::new(Exit::General, format!("the demo cannot start: {error}"))
        };
        let events = host.events();
        let program = std::env::current_exe().map_err(|error| cannot(&error))?;
        let program = program.to_string_lossy();
        let spawn = |name: &str, args: &[&str]| -> Result<(), Failure> {
            let template = |text: &str| Template::parse(text).map_err(|error| cannot(&error.message));
            let target = Target::Stdio {
                command: template(&program)?,
                args: args.iter().map(|arg| template(arg)).collect::<Result<_, _>>()?,
                env: Vec::new(),
                inherit_env: Vec::new(),
                network_env: true,
                cwd: None,
            };
            host.spawn(name, ServerSpec::new(target)).map_err(|error| cannot(&error))
        };
        spawn("steady", &["demo-server"])?;
        spawn("crashing", &["demo-server", "--live-for", CRASHES_AFTER])?;
        let options = Options {
            faults: Faults { session_requests: Some(FORGETS_AFTER), ..Faults::default() },
            ..Options::default()
        };
        let loopback = ([127, 0, 0, 1], 0).into();
        let forgetful = gripfast_demo::start_http(loopback, options).await.map_err(|error| cannot(&error))?;
        let url = Template::parse(&forgetful.url()).map_err(|error| cannot(&error.message))?;
        let target = Target::Url {
            url,
            transport: UrlTransport::Http,
            headers: Vec::new(),
            tls: TlsSpec::default(),
            redirects: Vec::new(),
        };
        let mut spec = ServerSpec::new(target);
        // Only the legacy era has sessions to forget.
        spec.protocol = gripfast::config::ProtocolChoice::Legacy;
        host.spawn("forgetful", spec).map_err(|error| cannot(&error))?;
        let calls = tokio::spawn(trickle(host.clone()));
        Ok(Self { events: std::sync::Mutex::new(Some(events)), calls, _forgetful: forgetful })
    }

    /// Prints a line for each recovery, for ever.
    pub(crate) async fn tell(&self, screen: &mut Screen) -> Result<(), Stop> {
        let taken = self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some(mut events) = taken else { return Ok(()) };
        let mut teller = Teller::default();
        loop {
            let told = match events.recv().await {
                Ok(told) => told,
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return Ok(()),
            };
            if let Some(line) = teller.phrase(&told) {
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

/// Tells a recovery in one line: why the server was lost, and when it was back.
#[derive(Default)]
struct Teller {
    /// Why each server is away; there are three of them.
    lost: BTreeMap<Arc<str>, String>,
}

impl Teller {
    fn phrase(&mut self, told: &UpstreamEvent) -> Option<String> {
        let server = told.server.as_ref()?;
        match &told.event {
            Event::StateChanged { to: State::Reconnecting, cause: Some(cause), .. } => {
                self.lost.insert(Arc::clone(server), cause.clone());
                None
            }
            Event::Revived { away } => {
                let cause = self.lost.remove(server).unwrap_or_else(|| "it was away".to_owned());
                let away = gripfast::text::duration(*away);
                Some(format!("  {server}: lost ({cause}), back after {away} with all its tools"))
            }
            Event::SessionRenewed => Some(format!(
                "  {server}: forgot its session; it has a new one, and the refused call was sent again"
            )),
            _ => None,
        }
    }
}

async fn trickle(host: Host) {
    let mut tick = tokio::time::interval(CALL_EVERY);
    loop {
        tick.tick().await;
        for server in ["steady", "crashing", "forgetful"] {
            let arguments = RawValue::from_string("{\"text\":\"hello\"}".to_owned()).ok();
            // What comes of it shows in status; the demo is about what happens to the servers.
            let _ = host.call(server, "echo", arguments).await;
        }
    }
}

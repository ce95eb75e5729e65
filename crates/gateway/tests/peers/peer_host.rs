//! Live host with one peer, connected once for each protocol mode of the peer.

use crate::relay::Relay;
use gripfast::JsonText;
use gripfast::config::{ProtocolChoice, ServerSpec, Target, Template, TlsSpec, UrlTransport};
use gripfast::{Answer, CallError, Event, Host, ServerStatus, State, UpstreamEvent};
use gripfast_testkit::peers::{Peer, PeerCommand, RunningPeer, Transport, free_port};
use gripfast_testkit::wait::{PATIENCE, until, within};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;
use tokio::sync::broadcast::Receiver;

/// Each protocol mode has its own upstream, named after the `protocol` of its config.
pub(crate) struct PeerHost {
    pub(crate) host: Host,
    pub(crate) peer: Peer,
    pub(crate) running: Option<RunningPeer>,
    /// Relay between the host and the peer, if the test uses one.
    pub(crate) relay: Option<Relay>,
    modes: Vec<ProtocolMode>,
    events: Receiver<UpstreamEvent>,
    told: Vec<UpstreamEvent>,
    counter: PathBuf,
    _dir: TempDir,
}

/// Protocol setting of an upstream and the era that it leads to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProtocolMode {
    pub(crate) name: &'static str,
    protocol: ProtocolChoice,
    pub(crate) era: &'static str,
}

const LEGACY: ProtocolMode = ProtocolMode { name: "legacy", protocol: ProtocolChoice::Legacy, era: "legacy" };
const MODERN: ProtocolMode = ProtocolMode { name: "modern", protocol: ProtocolChoice::Modern, era: "modern" };

/// Protocol modes that a peer supports. With `auto` the host prefers the modern era.
fn modes(peer: Peer) -> Vec<ProtocolMode> {
    let auto = |era| ProtocolMode { name: "auto", protocol: ProtocolChoice::Auto, era };
    match (peer, peer.transport()) {
        (Peer::ServerEverything(_) | Peer::PythonV1(_), _) | (_, Transport::Sse) => {
            vec![auto("legacy"), LEGACY]
        }
        (Peer::PythonV2(_) | Peer::TypeScriptV2(_) | Peer::Rmcp(_), _) => {
            vec![auto("modern"), LEGACY, MODERN]
        }
    }
}

impl PeerHost {
    /// Starts the peer and waits until it is listed in every mode.
    pub(crate) async fn of(peer: Peer) -> Self {
        Self::set(peer, modes(peer), |_| {}, false).await
    }

    /// The same, with a change to each spec.
    pub(crate) async fn with(peer: Peer, change: impl Fn(&mut ServerSpec)) -> Self {
        Self::set(peer, modes(peer), change, false).await
    }

    /// Starts the peer behind a relay, in the legacy era, which has sessions.
    pub(crate) async fn behind_relay(peer: Peer) -> Self {
        Self::set(peer, vec![LEGACY], |_| {}, true).await
    }

    async fn set(
        peer: Peer,
        modes: Vec<ProtocolMode>,
        change: impl Fn(&mut ServerSpec),
        relayed: bool,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let counter = dir.path().join("count");
        let port = free_port();
        let running = match peer.transport() {
            Transport::Stdio => None,
            Transport::Http | Transport::Sse => Some(peer.start_http_with_counter_file(port, &counter)),
        };
        let relay = if relayed { Some(Relay::to(port).await) } else { None };
        let host = Host::builder().client_info("peers", "1").build();
        let events = host.subscribe_events();
        for mode in &modes {
            let target = match &running {
                None => stdio(&peer.command().with_counter_file(&counter)),
                Some(running) => {
                    let path = if peer.transport() == Transport::Sse { "sse" } else { "mcp" };
                    let url = relay.as_ref().map_or_else(|| running.url(), |relay| relay.url(path));
                    url_of(&url, transport(peer, mode.protocol))
                }
            };
            let mut spec = spec(target, mode.protocol);
            change(&mut spec);
            host.spawn(mode.name, spec).unwrap();
            // One after another: servers that all start at once are slow to answer the first question.
            listed(&host, mode.name).await;
        }
        Self { host, peer, running, relay, modes, events, told: Vec::new(), counter, _dir: dir }
    }

    pub(crate) fn modes(&self) -> Vec<ProtocolMode> {
        self.modes.clone()
    }

    pub(crate) fn status(&self, name: &str) -> ServerStatus {
        self.host.server_status(name).unwrap()
    }

    /// Calls a tool and returns its answer; any failure fails the test.
    pub(crate) async fn text_of(&self, name: &str, tool: &str, arguments: Value) -> String {
        let answer = within(name, call(&self.host, name, tool, arguments)).await;
        let answer =
            answer.unwrap_or_else(|error| panic!("{name}: {tool}: {error:?}\n{:#?}", self.status(name)));
        let result: Value = serde_json::from_str(answer.result().unwrap().get()).unwrap();
        assert!(!answer.is_tool_error(), "{name}: {tool}: {result}");
        result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{name}: {result}")).to_owned()
    }

    /// The words come back.
    pub(crate) async fn echoes(&self, name: &str, words: &str) {
        if let Peer::ServerEverything(_) = self.peer {
            let said = self.text_of(name, "echo", json!({ "message": words })).await;
            assert_eq!(said, format!("Echo: {words}"), "{name}");
        } else {
            assert_eq!(self.text_of(name, "echo", json!({ "text": words })).await, words, "{name}");
        }
    }

    /// The result of any other request.
    pub(crate) async fn result_of(&self, name: &str, method: &str, params: Value) -> Value {
        let answer = within(method, self.host.request(name, method, Some(raw(&params)))).await.unwrap();
        serde_json::from_str(answer.result().unwrap().get()).unwrap()
    }

    /// Number of times that `counter` ran.
    pub(crate) fn count(&self) -> usize {
        std::fs::read_to_string(&self.counter).map_or(0, |text| text.lines().count())
    }

    /// Waits until `counter` ran this many times. The peer writes the count to a file.
    pub(crate) async fn until_counted(&self, times: usize) {
        until("counted", || self.count() >= times).await;
    }

    /// Waits until each mode has a call in flight.
    pub(crate) async fn until_all_in_flight(&self) {
        within("in flight", async {
            while self.modes.iter().any(|mode| self.status(mode.name).supervision.in_flight == 0) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Sends `kill -9` to each child, or to the one server that all modes share.
    pub(crate) fn kill(&mut self) {
        match &mut self.running {
            Some(running) => running.kill(),
            None => {
                for mode in &self.modes {
                    kill_9(self.status(mode.name).pid.unwrap());
                }
            }
        }
    }

    /// Restarts the server on the same port. Children are restarted by the host.
    pub(crate) fn start_again(&mut self) {
        if let Some(running) = &mut self.running {
            running.start_process();
        }
    }

    /// Waits until this upstream has reported such an event, also in the past.
    pub(crate) async fn until_event(&mut self, name: &str, wanted: impl Fn(&Event) -> bool) {
        let is_it = |told: &UpstreamEvent| told.server.as_deref() == Some(name) && wanted(&told.event);
        let told = async {
            while !self.told.iter().any(is_it) {
                self.told.push(self.events.recv().await.unwrap());
            }
        };
        within(name, told).await;
    }

    /// Waits until every upstream is ready.
    pub(crate) async fn until_ready(&self) {
        for mode in &self.modes {
            ready(&self.host, mode.name).await;
        }
    }

    pub(crate) async fn end(self) {
        within("the end", self.host.shutdown()).await;
    }
}

pub(crate) fn spec(target: Target, protocol: ProtocolChoice) -> ServerSpec {
    let mut spec = ServerSpec::new(target);
    spec.protocol = protocol;
    // A busy machine is slow to start a server, which is not what is tested.
    spec.supervision.timeouts.reconnect_wait = PATIENCE;
    spec.supervision.timeouts.connect = PATIENCE;
    spec
}

/// Target of a stdio server, as a config would define it.
pub(crate) fn stdio(command: &PeerCommand) -> Target {
    let template = |text: &str| Template::parse(text).unwrap();
    Target::Stdio {
        command: template(&command.program.display().to_string()),
        args: command.args.iter().map(|arg| template(arg)).collect(),
        env: command.env.iter().map(|(name, value)| (name.clone(), template(value))).collect(),
        inherit_env: Vec::new(),
        network_env: true,
        cwd: None,
    }
}

pub(crate) fn url_of(url: &str, transport: UrlTransport) -> Target {
    Target::Url {
        url: Template::parse(url).unwrap(),
        transport,
        headers: Vec::new(),
        tls: TlsSpec::default(),
        redirects: Vec::new(),
    }
}

/// With protocol `auto`, the transport is `auto` too.
fn transport(peer: Peer, protocol: ProtocolChoice) -> UrlTransport {
    match (protocol, peer.transport()) {
        (ProtocolChoice::Auto, _) => UrlTransport::Auto,
        (_, Transport::Sse) => UrlTransport::Sse,
        (_, Transport::Http | Transport::Stdio) => UrlTransport::Http,
    }
}

pub(crate) async fn call(host: &Host, name: &str, tool: &str, arguments: Value) -> Result<Answer, CallError> {
    host.call(name, tool, Some(raw(&arguments))).await
}

fn raw(value: &Value) -> JsonText {
    JsonText::of(value).unwrap()
}

/// Waits until the tools of an upstream are listed and it is ready.
pub(crate) async fn listed(host: &Host, name: &str) {
    let listed = host.catalog(name, PATIENCE).await;
    let status = || host.server_status(name);
    assert!(!listed.unwrap_or_else(|error| panic!("{name}: {error:?}\n{:#?}", status())).tools.is_empty());
    ready(host, name).await;
}

/// Waits until an upstream is ready.
async fn ready(host: &Host, name: &str) {
    let mut events = host.subscribe_events();
    let state = || host.server_status(name).unwrap().supervision.state;
    let until = async {
        while state() != State::Ready {
            events.recv().await.unwrap();
        }
    };
    if tokio::time::timeout(PATIENCE, until).await.is_err() {
        panic!("{name} does not get ready: {:#?}", host.server_status(name));
    }
}

pub(crate) fn kill_9(pid: u32) {
    let killed = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).status().unwrap();
    assert!(killed.success(), "process {pid} is not there to be killed");
}

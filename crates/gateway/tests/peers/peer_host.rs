//! A live host with one peer, spoken to in each way that the peer knows.

use crate::relay::Relay;
use gripfast::config::{ProtocolChoice, ServerSpec, Target, Template, TlsSpec, UrlTransport};
use gripfast::{Answer, CallError, Event, Host, ServerStatus, State, UpstreamEvent};
use gripfast_testkit::peers::{Peer, PeerCommand, RunningPeer, Transport, free_port};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::broadcast::Receiver;

/// No wait of a test is longer. Long enough for a machine that is busy with everything else.
const PATIENCE: Duration = Duration::from_secs(60);

/// Every way of speaking to a peer has an upstream of its own, named after the `protocol` of its config.
pub(crate) struct Scene {
    pub(crate) host: Host,
    pub(crate) peer: Peer,
    pub(crate) running: Option<RunningPeer>,
    /// Between the host and the peer, where a test asked for one.
    pub(crate) relay: Option<Relay>,
    ways: Vec<Way>,
    events: Receiver<UpstreamEvent>,
    told: Vec<UpstreamEvent>,
    counter: PathBuf,
    _dir: TempDir,
}

/// A way of speaking to a peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    protocol: ProtocolChoice,
    pub(crate) era: &'static str,
}

const LEGACY: Way = Way { name: "legacy", protocol: ProtocolChoice::Legacy, era: "legacy" };
const MODERN: Way = Way { name: "modern", protocol: ProtocolChoice::Modern, era: "modern" };

/// The ways that a peer knows. Left to itself the host prefers the modern era.
fn ways(peer: Peer) -> Vec<Way> {
    let auto = |era| Way { name: "auto", protocol: ProtocolChoice::Auto, era };
    match (peer, peer.transport()) {
        (Peer::ServerEverything(_) | Peer::PythonV1(_), _) | (_, Transport::Sse) => {
            vec![auto("legacy"), LEGACY]
        }
        (Peer::PythonV2(_) | Peer::TypeScriptV2(_) | Peer::Rmcp(_), _) => {
            vec![auto("modern"), LEGACY, MODERN]
        }
    }
}

impl Scene {
    /// The peer, up and listed in every way that it knows.
    pub(crate) async fn of(peer: Peer) -> Self {
        Self::set(peer, ways(peer), |_| {}, false).await
    }

    /// The same, with a change to each spec.
    pub(crate) async fn with(peer: Peer, change: impl Fn(&mut ServerSpec)) -> Self {
        Self::set(peer, ways(peer), change, false).await
    }

    /// The peer behind a relay, spoken to in the legacy era, which is the one with sessions.
    pub(crate) async fn behind_relay(peer: Peer) -> Self {
        Self::set(peer, vec![LEGACY], |_| {}, true).await
    }

    async fn set(peer: Peer, ways: Vec<Way>, change: impl Fn(&mut ServerSpec), relayed: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let counter = dir.path().join("count");
        let port = free_port();
        let running = match peer.transport() {
            Transport::Stdio => None,
            Transport::Http | Transport::Sse => Some(peer.start_http_counting_in(port, &counter)),
        };
        let relay = if relayed { Some(Relay::to(port).await) } else { None };
        let host = Host::builder().client_info("peers", "1").build();
        let events = host.events();
        for way in &ways {
            let target = match &running {
                None => stdio(&peer.command().counting_in(&counter)),
                Some(running) => {
                    let path = if peer.transport() == Transport::Sse { "sse" } else { "mcp" };
                    let url = relay.as_ref().map_or_else(|| running.url(), |relay| relay.url(path));
                    url_of(&url, transport(peer, way.protocol))
                }
            };
            let mut spec = spec(target, way.protocol);
            change(&mut spec);
            host.spawn(way.name, spec).unwrap();
            // One after another: servers that all start at once are slow to answer the first question.
            listed(&host, way.name).await;
        }
        Self { host, peer, running, relay, ways, events, told: Vec::new(), counter, _dir: dir }
    }

    pub(crate) fn ways(&self) -> Vec<Way> {
        self.ways.clone()
    }

    pub(crate) fn status(&self, name: &str) -> ServerStatus {
        self.host.status_of(name).unwrap()
    }

    /// Calls a tool, and is sure of an answer.
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

    /// How many times `counter` really ran.
    pub(crate) fn count(&self) -> usize {
        std::fs::read_to_string(&self.counter).map_or(0, |text| text.lines().count())
    }

    /// Until `counter` ran this many times. Only the peer itself can tell, and it tells in a file.
    pub(crate) async fn until_counted(&self, times: usize) {
        within("counted", async {
            while self.count() < times {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    /// Until each way has a call under way.
    pub(crate) async fn until_all_in_flight(&self) {
        within("in flight", async {
            while self.ways.iter().any(|way| self.status(way.name).supervision.in_flight == 0) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// `kill -9`: each child, or the one server that all ways lead to.
    pub(crate) fn kill(&mut self) {
        match &mut self.running {
            Some(running) => running.kill(),
            None => {
                for way in &self.ways {
                    kill_9(self.status(way.name).pid.unwrap());
                }
            }
        }
    }

    /// The server on the same port again. A child is not ours to start.
    pub(crate) fn start_again(&mut self) {
        if let Some(running) = &mut self.running {
            running.start_again();
        }
    }

    /// Until this upstream has told of such an event, now or at any time before.
    pub(crate) async fn until_event(&mut self, name: &str, wanted: impl Fn(&Event) -> bool) {
        let is_it = |told: &UpstreamEvent| told.server.as_deref() == Some(name) && wanted(&told.event);
        let told = async {
            while !self.told.iter().any(is_it) {
                self.told.push(self.events.recv().await.unwrap());
            }
        };
        within(name, told).await;
    }

    /// Until every upstream is ready.
    pub(crate) async fn until_ready(&self) {
        for way in &self.ways {
            ready(&self.host, way.name).await;
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

/// What a config would say, in the words of a config.
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

/// Whoever leaves the protocol open leaves the transport open too.
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

fn raw(value: &Value) -> Box<gripfast::RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

/// Until its tools are known and it is ready.
pub(crate) async fn listed(host: &Host, name: &str) {
    let listed = host.catalog(name, PATIENCE).await;
    let status = || host.status_of(name);
    assert!(!listed.unwrap_or_else(|error| panic!("{name}: {error:?}\n{:#?}", status())).tools.is_empty());
    ready(host, name).await;
}

/// Until it is ready.
async fn ready(host: &Host, name: &str) {
    let mut events = host.events();
    let state = || host.status_of(name).unwrap().supervision.state;
    let until = async {
        while state() != State::Ready {
            events.recv().await.unwrap();
        }
    };
    if tokio::time::timeout(PATIENCE, until).await.is_err() {
        panic!("{name} does not get ready: {:#?}", host.status_of(name));
    }
}

pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

pub(crate) fn kill_9(pid: u32) {
    let killed = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).status().unwrap();
    assert!(killed.success(), "process {pid} is not there to be killed");
}

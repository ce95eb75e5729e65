//! Shared test setup: a sample server, a host for it, and helpers that wait for conditions.

use gripfast::config::{ServerSpec, Target, Template, TlsSpec, UrlTransport};
use gripfast::{Answer, CallError, Host, JsonText, ServerStatus, State};
use gripfast_demo::{EraChoice, Faults, Options, RunningServer};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Name of the server in every test.
pub(crate) const NAME: &str = "demo";

/// Timeout for every wait; nothing here takes this long.
const TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) fn any_local_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

pub(crate) fn legacy() -> Options {
    Options { era: EraChoice::Legacy, ..Options::default() }
}

pub(crate) fn modern() -> Options {
    Options { era: EraChoice::Modern, ..Options::default() }
}

pub(crate) fn with(faults: Faults) -> Options {
    Options { faults, ..legacy() }
}

pub(crate) async fn serve(options: Options) -> RunningServer {
    serve_at(any_local_port(), options).await
}

pub(crate) async fn serve_at(addr: SocketAddr, options: Options) -> RunningServer {
    gripfast_demo::start_http(addr, options).await.unwrap()
}

/// An address without a listener.
pub(crate) async fn free_address() -> SocketAddr {
    tokio::net::TcpListener::bind(any_local_port()).await.unwrap().local_addr().unwrap()
}

/// A spec with short timeouts for tests.
pub(crate) fn spec(url: &str) -> ServerSpec {
    spec_over(url, UrlTransport::Auto)
}

pub(crate) fn spec_over(url: &str, transport: UrlTransport) -> ServerSpec {
    let url = Template::parse(url).unwrap();
    let (headers, redirects) = (Vec::new(), Vec::new());
    let target = Target::Url { url, transport, headers, tls: TlsSpec::default(), redirects };
    let mut spec = ServerSpec::new(target);
    spec.supervision.timeouts.connect = Duration::from_secs(5);
    spec.supervision.timeouts.call = Duration::from_secs(10);
    spec
}

pub(crate) fn with_header(mut spec: ServerSpec, name: &str, value: &str) -> ServerSpec {
    if let Target::Url { headers, .. } = &mut spec.target {
        headers.push((name.to_owned(), Template::parse(value).unwrap()));
    }
    spec
}

pub(crate) fn with_tls(mut spec: ServerSpec, files: TlsSpec) -> ServerSpec {
    if let Target::Url { tls, .. } = &mut spec.target {
        *tls = files;
    }
    spec
}

/// A host that has started to connect to the server.
pub(crate) fn host(spec: ServerSpec) -> Host {
    let host = Host::builder().build();
    host.spawn(NAME, spec).unwrap();
    host
}

/// A host with a connected server.
pub(crate) async fn ready_host(spec: ServerSpec) -> Host {
    let host = host(spec);
    wait_until_ready(&host).await;
    host
}

pub(crate) async fn wait_until_ready(host: &Host) -> ServerStatus {
    wait_for_state(host, State::Ready).await
}

pub(crate) async fn wait_for_state(host: &Host, state: State) -> ServerStatus {
    wait_until(host, |status| status.supervision.state == state).await
}

pub(crate) fn status(host: &Host) -> ServerStatus {
    host.server_status(NAME).unwrap()
}

/// Waits until the status satisfies the condition.
pub(crate) async fn wait_until(host: &Host, wanted: impl Fn(&ServerStatus) -> bool) -> ServerStatus {
    let mut events = host.subscribe_events();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = status(host);
        if wanted(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "it never came about: {status:#?}");
        // Not every change of the status has an event.
        let _ = tokio::time::timeout(Duration::from_millis(20), events.recv()).await;
    }
}

/// Limits a wait that must end by itself.
pub(crate) async fn within_timeout<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, work).await.expect("it hangs")
}

pub(crate) fn raw(value: &Value) -> JsonText {
    JsonText::of(value).unwrap()
}

pub(crate) async fn call(host: &Host, tool: &str, arguments: Value) -> Result<Answer, CallError> {
    within_timeout(host.call(NAME, tool, Some(raw(&arguments)))).await
}

pub(crate) async fn echo(host: &Host, text: &str) -> Result<String, CallError> {
    call(host, "echo", serde_json::json!({ "text": text })).await.map(|answer| text_of(&answer))
}

/// Calls `counter` with a key, so that the server can report the number of executions.
pub(crate) async fn count(host: &Host, key: &str) -> Result<String, CallError> {
    call(host, "counter", serde_json::json!({ "key": key })).await.map(|answer| text_of(&answer))
}

/// Text of a tool result.
pub(crate) fn text_of(answer: &Answer) -> String {
    let result = answer.result().unwrap();
    let result: Value = serde_json::from_str(result.get()).unwrap();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

pub(crate) async fn tools(host: &Host) -> Vec<String> {
    let catalog = host.catalog(NAME, TIMEOUT).await.unwrap();
    catalog.tools.iter().map(|tool| tool.key.clone()).collect()
}

pub(crate) async fn wait_for_tool(host: &Host, name: &str) {
    let deadline = Instant::now() + TIMEOUT;
    while !tools(host).await.iter().any(|tool| tool == name) {
        assert!(Instant::now() < deadline, "the tool `{name}` never came: {:?}", status(host).events);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

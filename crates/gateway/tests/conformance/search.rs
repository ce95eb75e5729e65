//! Server scenarios through gripfast with `exposure = "search"`. A relay in front of the gateway turns each call of the
//! suite into a call of `call_tool`, and each list into a list of all tools. No check that passes directly fails here,
//! unless an exception names it.

use crate::scenario_set::{Regression, ScenarioSet, regressions};
use crate::test_gateway::{Placement, TestGateway, Transport, Upstream};
use crate::through_gateway::is_excused;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use gripfast_testkit::conformance::{ConformanceServer, Results, ServerEra, require};
use http::HeaderValue;
use http::header::{CONTENT_LENGTH, HOST, ORIGIN};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;
use tokio::runtime::Runtime;

#[test]
fn the_older_suite_loses_nothing_by_search_in_front_of_a_legacy_server() {
    assert_no_regression(ScenarioSet::Older, ServerEra::Legacy);
}

#[test]
fn the_older_suite_loses_nothing_by_search_in_front_of_a_modern_server() {
    assert_no_regression(ScenarioSet::Older, ServerEra::Modern);
}

#[test]
fn a_legacy_client_loses_nothing_by_search_in_front_of_a_legacy_server() {
    assert_no_regression(ScenarioSet::Legacy, ServerEra::Legacy);
}

#[test]
fn a_legacy_client_loses_nothing_by_search_in_front_of_a_modern_server() {
    assert_no_regression(ScenarioSet::Legacy, ServerEra::Modern);
}

#[test]
fn a_modern_client_loses_nothing_by_search_in_front_of_a_legacy_server() {
    assert_no_regression(ScenarioSet::Modern, ServerEra::Legacy);
}

#[test]
fn a_modern_client_loses_nothing_by_search_in_front_of_a_modern_server() {
    assert_no_regression(ScenarioSet::Modern, ServerEra::Modern);
}

/// Checks that do not pass through `call_tool`, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    (PARAM_CHARS, UNMIRRORED),
    (PARAM_MATCH, UNMIRRORED),
    (PARAM_MISMATCH, UNMIRRORED),
    (
        LIST_CHANGED,
        "a tool that is found by search changes no list; the relay asks for a list that clients do not have",
    ),
];
const PARAM_CHARS: &str = "sep-2243-server-reject-invalid-param-chars";
const PARAM_MATCH: &str = "sep-2243-server-validate-param-match";
const PARAM_MISMATCH: &str = "sep-2243-server-reject-param-mismatch";
const LIST_CHANGED: &str = "sep-2575-server-sends-tools-list-changed-on-subscription";
const UNMIRRORED: &str = "the parameters of `call_tool` are in no header, so there is nothing to compare";

fn assert_no_regression(set: ScenarioSet, form: ServerEra) {
    if !require(set.suite()) {
        return;
    }
    let upstream = Upstream { form, transport: Transport::Http, placement: Placement::Alone };
    let (direct, (relay, mut results)) = std::thread::scope(|scope| {
        let direct = scope.spawn(|| set.run(ConformanceServer::start(set.era()).url()));
        let relay = Relay::start(TestGateway::with_keys(upstream, "exposure = \"search\"\n"));
        let results = set.run(&relay.url);
        (direct.join().unwrap(), (relay, results))
    });
    let lost = |results: &Results| -> Vec<Regression> {
        let lost = regressions(&direct, results).into_iter();
        lost.filter(|loss| !is_excused(set, upstream, loss)).collect()
    };
    set.give_time(&relay.url, &mut results, |results| {
        lost(results).into_iter().map(|loss| loss.scenario).collect()
    });
    let mut wrong = String::new();
    let lost = lost(&results);
    for (check, why) in EXCEPTIONS.iter().filter(|_| set == ScenarioSet::Modern) {
        if !lost.iter().any(|loss| loss.check == *check) {
            writeln!(wrong, "{check}: holds, so it is no exception ({why})").unwrap();
        }
    }
    for Regression { scenario, check, how } in &lost {
        let is_excepted = EXCEPTIONS.iter().any(|(excepted, _)| excepted == check);
        if !(is_excepted && set == ScenarioSet::Modern) {
            writeln!(wrong, "{scenario}: {check}: {how}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(relay.wrapped() > 10, "the calls of the suite went through `call_tool`: {}", relay.wrapped());
}

/// Relay between the suite and a gateway.
struct Relay {
    url: String,
    shared: Arc<Shared>,
    _runtime: Runtime,
    _gateway: TestGateway,
}

struct Shared {
    /// Addresses of the gateway and of the relay.
    gateway: String,
    own: String,
    client: Client<HttpConnector, Full<Bytes>>,
    /// Number of calls that were wrapped.
    wrapped: std::sync::atomic::AtomicUsize,
}

impl Relay {
    fn start(gateway: TestGateway) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let own = listener.local_addr().unwrap().to_string();
        let address = gateway.url().trim_start_matches("http://").split('/').next().unwrap().to_owned();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let shared = Arc::new(Shared {
            gateway: address,
            own: own.clone(),
            client,
            wrapped: std::sync::atomic::AtomicUsize::new(0),
        });
        let router = Router::new().fallback(relay).with_state(Arc::clone(&shared));
        // It ends with the runtime.
        runtime.spawn(axum::serve(listener, router).into_future());
        Self { url: format!("http://{own}/mcp"), shared, _runtime: runtime, _gateway: gateway }
    }

    fn wrapped(&self) -> usize {
        self.shared.wrapped.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Shared {
    /// The message as a client with search would send it. Returns the name of the tool of a wrapped call.
    fn rewrite(&self, message: &mut Value) -> Option<String> {
        match message["method"].as_str() {
            Some("tools/call") => {
                let params = &mut message["params"];
                let name = params["name"].as_str().map(str::to_owned);
                let mut inside = json!({ "name": params["name"] });
                if let Some(arguments) = params.get("arguments") {
                    inside["arguments"] = arguments.clone();
                }
                params["name"] = json!("call_tool");
                params["arguments"] = inside;
                self.wrapped.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                name
            }
            Some("tools/list") => {
                message["params"]["_meta"]["gripfast/exposure"] = json!("all");
                None
            }
            _ => None,
        }
    }

    /// A header with the address of the gateway in place of the relay's own.
    fn readdressed(&self, value: &HeaderValue) -> HeaderValue {
        let text = value.to_str().unwrap_or_default();
        let (own, gateway) = (self.own.rsplit_once(':').unwrap().1, self.gateway.rsplit_once(':').unwrap().1);
        HeaderValue::from_str(&text.replace(own, gateway)).unwrap_or_else(|_| value.clone())
    }
}

async fn relay(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (mut head, body) = request.into_parts();
    let mut body = body.collect().await.unwrap().to_bytes();
    if let Ok(mut message) = serde_json::from_slice::<Value>(&body) {
        let wrapped = shared.rewrite(&mut message);
        // A header that does not match the body must stay wrong.
        if let (Some(tool), Some(name)) = (wrapped, head.headers.get_mut("mcp-name"))
            && *name == tool
        {
            *name = HeaderValue::from_static("call_tool");
        }
        body = message.to_string().into();
    }
    for header in [HOST, ORIGIN] {
        if let Some(value) = head.headers.get_mut(&header) {
            *value = shared.readdressed(value);
        }
    }
    head.headers.remove(CONTENT_LENGTH);
    head.uri = format!("http://{}{}", shared.gateway, head.uri.path()).parse().unwrap();
    let answer = shared.client.request(Request::from_parts(head, Full::new(body))).await.unwrap();
    answer.map(Body::new)
}

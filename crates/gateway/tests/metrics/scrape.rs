//! `/metrics` of a gateway with a demo server: counters, gauges, labels and formats.

use gripfast::Host;
use gripfast::JsonText;
use gripfast::config::{AccessConfig, Config};
use gripfast_gateway::mcp::Limits;
use gripfast_gateway::server::{Server, ServerSettings};
use http::Request;
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// Running gateway with a demo server, and a scraper for it.
struct TestGateway {
    host: Host,
    base: String,
    state: tempfile::TempDir,
}

impl TestGateway {
    async fn with(config: &str) -> Self {
        let state = tempfile::tempdir().unwrap();
        let config = Config::parse(config, "gripfast.toml".as_ref()).unwrap();
        let host = Host::builder().state_dir(Some(state.path().to_owned())).budgets(config.budgets).build();
        for server in config.servers {
            host.spawn(&server.name, server.spec.unwrap()).unwrap();
        }
        let settings = ServerSettings {
            listen: ([127, 0, 0, 1], 0).into(),
            state_dir: Some(state.path().to_owned()),
            limits: Limits::default(),
            access: AccessConfig::default(),
            cluster: None,
        };
        let server = Server::bind(host.clone(), &settings).await.unwrap();
        let base = format!("http://{}", server.address().unwrap());
        // It ends with the test's runtime.
        tokio::spawn(server.serve(std::future::pending()));
        Self { host, base, state }
    }

    /// Scrapes until there is this line.
    async fn until(&self, wanted: &str) {
        let seen = async { while !self.scrape().await.iter().any(|line| line == wanted) {} };
        if tokio::time::timeout(PATIENCE, seen).await.is_err() {
            panic!("never `{wanted}`:\n{}", self.scrape().await.join("\n"));
        }
    }

    /// Names and labels of all series, without their values.
    async fn series(&self) -> BTreeSet<String> {
        let lines = self.scrape().await;
        lines.iter().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    }

    /// Begins a session as a client of this name.
    async fn initialize(&self, client: &str) {
        let info = json!({ "name": client, "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string();
        let request = Request::post(format!("{}/mcp", self.base)).header("content-type", "application/json");
        let request =
            request.header("accept", "application/json, text/event-stream").body(Full::from(body)).unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<bytes::Bytes>>();
        let answer = tokio::time::timeout(PATIENCE, client.request(request)).await.unwrap().unwrap();
        assert_eq!(answer.status(), 200);
    }

    /// The lines of one scrape.
    async fn scrape(&self) -> Vec<String> {
        let (kind, text) = self.get("/metrics", "application/openmetrics-text;version=1.0.0").await;
        assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
        text.lines().map(str::to_owned).collect()
    }

    /// Content type and body of a GET.
    async fn get(&self, path: &str, accept: &str) -> (String, String) {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<bytes::Bytes>>();
        let request = Request::get(format!("{}{path}", self.base)).header("accept", accept);
        let asking = client.request(request.body(Empty::new()).unwrap());
        let answer = tokio::time::timeout(PATIENCE, asking).await.unwrap().unwrap();
        let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (kind, String::from_utf8(body.to_vec()).unwrap())
    }
}

fn demo() -> String {
    format!("[servers.demo]\ncommand = {:?}\nargs = ['demo-server']\n", env!("CARGO_BIN_EXE_gripfast"))
}

#[track_caller]
fn assert_has(lines: &[String], wanted: &[&str]) {
    for line in wanted {
        assert!(lines.iter().any(|known| known == line), "no `{line}` in\n{}", lines.join("\n"));
    }
}

#[tokio::test]
async fn f04_calls_are_counted_by_outcome() {
    let gateway = TestGateway::with(&format!("{}tools = {{ deny = ['add'] }}\n", demo())).await;
    gateway.host.catalog("demo", PATIENCE).await.unwrap();
    gateway.host.call("demo", "fail", None).await.unwrap();
    gateway.host.call("demo", "counter", None).await.unwrap();
    gateway.host.call("demo", "counter", None).await.unwrap();
    gateway.host.call("demo", "add", None).await.unwrap_err();
    let lines = gateway.scrape().await;
    assert_has(
        &lines,
        &[
            "# TYPE gripfast_upstream_calls counter",
            r#"gripfast_upstream_calls_total{server="demo",outcome="done",code="none"} 2"#,
            r#"gripfast_upstream_calls_total{server="demo",outcome="failed",code="none"} 1"#,
            r#"gripfast_upstream_calls_total{server="demo",outcome="not_sent",code="denied"} 1"#,
            "# TYPE gripfast_upstream_call_duration_seconds histogram",
            r#"gripfast_upstream_call_duration_seconds_count{server="demo",outcome="done"} 2"#,
            r#"gripfast_upstream_call_duration_seconds_bucket{le="+Inf",server="demo",outcome="done"} 2"#,
            "gripfast_ledger_calls_total 4",
        ],
    );
    assert_eq!(lines.last().unwrap(), "# EOF");
    gateway.host.shutdown().await;
}

#[tokio::test]
async fn f04_a_scraper_that_accepts_anything_gets_prometheus_text() {
    let gateway = TestGateway::with(&demo()).await;
    gateway.host.catalog("demo", PATIENCE).await.unwrap();
    gateway.host.call("demo", "counter", None).await.unwrap();
    let (kind, text) = gateway.get("/metrics", "*/*").await;
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_has(
        &lines,
        &[
            "# TYPE gripfast_upstream_calls_total counter",
            r#"gripfast_upstream_calls_total{server="demo",outcome="done",code="none"} 1"#,
            "# TYPE gripfast_upstream_call_duration_seconds histogram",
        ],
    );
    let allowed =
        |line: &String| !line.starts_with('#') || line.starts_with("# HELP ") || line.starts_with("# TYPE ");
    assert!(lines.iter().all(allowed), "{text}");
    gateway.host.shutdown().await;
}

#[tokio::test]
async fn g04_cache_hits_and_misses_are_counted_in_metrics_and_status() {
    let gateway = TestGateway::with(&format!("{}cache = {{ tools = {{ echo = '10m' }} }}\n", demo())).await;
    gateway.host.catalog("demo", PATIENCE).await.unwrap();
    for text in ["a", "a", "a", "b"] {
        let arguments = JsonText::of(&serde_json::json!({ "text": text })).unwrap();
        gateway.host.call("demo", "echo", Some(arguments)).await.unwrap();
    }
    assert_has(
        &gateway.scrape().await,
        &[
            r#"gripfast_upstream_cache_hits_total{server="demo"} 2"#,
            r#"gripfast_upstream_cache_misses_total{server="demo"} 2"#,
            "gripfast_cache_entries 2",
        ],
    );
    let status: serde_json::Value =
        serde_json::from_str(&gateway.get("/api/v1/status", "*/*").await.1).unwrap();
    let cache = |what: &str| status["cache"][what].as_u64().unwrap();
    assert_eq!((cache("hits"), cache("misses"), cache("entries")), (2, 2, 2));
    assert!(cache("bytes") > 0);
    let demo = &status["upstreams"][0];
    assert_eq!((&demo["cache_hits"], &demo["cache_misses"]), (&2.into(), &2.into()), "{demo}");
    gateway.host.shutdown().await;
}

/// A server that is lost shows in state, circuit, restarts and events, as in status.
#[tokio::test]
async fn f04_events_of_a_server_are_counted() {
    let gateway = TestGateway::with(&demo()).await;
    gateway.host.catalog("demo", PATIENCE).await.unwrap();
    let mut events = gateway.host.subscribe_events();
    // It dies in mid-call, and comes back.
    gateway.host.call("demo", "crash", None).await.unwrap_err();
    let revived = async { while events.recv().await.unwrap().event.kind() != "revived" {} };
    tokio::time::timeout(PATIENCE, revived).await.unwrap();
    assert_has(
        &gateway.scrape().await,
        &[
            r#"gripfast_upstream_state{server="demo",state="ready"} 1"#,
            r#"gripfast_upstream_state{server="demo",state="parked"} 0"#,
            r#"gripfast_upstream_circuit{server="demo",circuit="closed"} 1"#,
            r#"gripfast_upstream_restarts_total{server="demo"} 1"#,
            r#"gripfast_upstream_events_total{server="demo",kind="revived"} 1"#,
            r#"gripfast_upstream_calls_total{server="demo",outcome="unknown",code="outcome_unknown"} 1"#,
            r#"gripfast_upstream_in_flight{server="demo"} 0"#,
            r#"gripfast_upstream_tools{server="demo"} 9"#,
            "gripfast_sessions 0",
            r#"gripfast_upstream_cache_hits_total{server="demo"} 0"#,
            "gripfast_cache_size_bytes 0",
            "gripfast_audit_lost_lines_total 0",
        ],
    );
    gateway.host.stop("demo").unwrap();
    while gateway.host.server_status("demo").unwrap().supervision.state != gripfast::State::Stopped {
        tokio::time::timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
    }
    assert_has(
        &gateway.scrape().await,
        &[
            r#"gripfast_upstream_state{server="demo",state="ready"} 0"#,
            r#"gripfast_upstream_state{server="demo",state="stopped"} 1"#,
        ],
    );
    gateway.host.shutdown().await;
}

#[tokio::test]
async fn g05_failed_authentications_admin_actions_and_key_changes_are_counted() {
    let gateway = TestGateway::with("").await;
    let act = async |token: Option<&str>| {
        let request = Request::post(format!("{}/api/v1/upstreams/none/stop", gateway.base));
        let request = match token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        };
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<bytes::Bytes>>();
        let sent = client.request(request.body(Empty::new()).unwrap());
        tokio::time::timeout(PATIENCE, sent).await.unwrap().unwrap().status().as_u16()
    };
    let token =
        || std::fs::read_to_string(gateway.state.path().join("admin.token")).unwrap().trim().to_owned();
    let old = token();
    assert_eq!((act(None).await, act(Some("guessed")).await, act(Some(&old)).await), (401, 401, 404));
    gripfast_gateway::api::rotate_token(gateway.state.path()).unwrap();
    assert_eq!((act(Some(&old)).await, act(Some(&token())).await), (401, 404));
    assert_has(
        &gateway.scrape().await,
        &[
            r#"gripfast_auth_failures_total{target="admin_action",reason="no_credential"} 1"#,
            r#"gripfast_auth_failures_total{target="admin_action",reason="wrong_admin_token"} 2"#,
            r#"gripfast_admin_actions_total{action="stop"} 2"#,
            r#"gripfast_key_changes_total{change="admin_token"} 1"#,
        ],
    );
    gateway.host.shutdown().await;
}

/// An open circuit stays visible to alert rules for as long as it lasts.
#[tokio::test]
async fn f04_an_open_circuit_is_shown_until_it_closes() {
    let impatient = "circuit = { threshold = 1, cooldown = '1h' }\ntimeouts = { call = '100ms' }\n";
    let gateway = TestGateway::with(&(demo() + impatient)).await;
    gateway.host.catalog("demo", PATIENCE).await.unwrap();
    let circuit =
        |is: &str, value: u8| format!(r#"gripfast_upstream_circuit{{server="demo",circuit="{is}"}} {value}"#);
    let for_an_hour = JsonText::of(&json!({ "ms": 3_600_000 })).unwrap();
    gateway.host.call("demo", "sleep", Some(for_an_hour)).await.unwrap_err();
    gateway.until(&circuit("open", 1)).await;
    assert_has(&gateway.scrape().await, &[&circuit("closed", 0), &circuit("half_open", 0)]);
    // A manual reconnect does not wait for the hour.
    gateway.host.reconnect("demo").unwrap();
    gateway.until(&circuit("closed", 1)).await;
    assert_has(&gateway.scrape().await, &[&circuit("open", 0), &circuit("half_open", 0)]);
    gateway.host.shutdown().await;
}

#[tokio::test]
async fn f04_gauges_show_calls_in_flight_calls_waiting_and_clients() {
    let budget = "[budgets.few]\ntool = 'sleep'\ncalls = 4\nwithin = '1h'\n";
    let gateway = TestGateway::with(&format!("{}max_in_flight = 1\n{budget}", demo())).await;
    gateway.host.catalog("demo", PATIENCE).await.unwrap();
    let asleep = || {
        let (host, ms) = (gateway.host.clone(), json!({ "ms": 600_000 }));
        let arguments = JsonText::of(&ms).unwrap();
        tokio::spawn(async move { host.call("demo", "sleep", Some(arguments)).await })
    };
    let first = asleep();
    gateway.until(r#"gripfast_upstream_in_flight{server="demo"} 1"#).await;
    let second = asleep();
    gateway.until(r#"gripfast_upstream_waiting{server="demo"} 1"#).await;
    gateway.initialize("somebody").await;
    assert_has(
        &gateway.scrape().await,
        &[
            r#"gripfast_upstream_in_flight{server="demo"} 1"#,
            "gripfast_sessions 1",
            r#"gripfast_budget_used{budget="few"} 0.5"#,
            r#"gripfast_upstream_circuit{server="demo",circuit="open"} 0"#,
            r#"gripfast_upstream_circuit{server="demo",circuit="half_open"} 0"#,
        ],
    );
    second.abort();
    gateway.until(r#"gripfast_upstream_waiting{server="demo"} 0"#).await;
    first.abort();
    gateway.until(r#"gripfast_upstream_in_flight{server="demo"} 0"#).await;
    gateway.host.shutdown().await;
}

/// Names invented by clients add no series.
#[tokio::test]
async fn f04_label_values_come_from_closed_sets() {
    let gateway = TestGateway::with(&demo()).await;
    gateway.host.catalog("demo", PATIENCE).await.unwrap();
    let make_up = async |number: usize| {
        gateway.initialize(&format!("client-{number}")).await;
        gateway.host.call("demo", &format!("tool-{number}"), None).await.unwrap_err();
        gateway.host.call(&format!("server-{number}"), "echo", None).await.unwrap_err();
        gateway.host.call("demo", "counter", None).await.unwrap();
    };
    make_up(0).await;
    let before = gateway.series().await;
    for number in 1..50 {
        make_up(number).await;
    }
    assert_eq!(gateway.series().await, before);
    gateway.host.shutdown().await;
}

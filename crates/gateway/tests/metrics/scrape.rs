//! What a scraper gets from a gateway with a demo server behind it.

use gripfast::Host;
use gripfast::config::{AccessConfig, Config};
use gripfast_gateway::downstream::Terms;
use gripfast_gateway::server::{Server, Settings};
use http::Request;
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// A gateway that serves, and what a scraper sees of it.
struct Scene {
    host: Host,
    base: String,
    state: tempfile::TempDir,
}

impl Scene {
    async fn with(config: &str) -> Self {
        let state = tempfile::tempdir().unwrap();
        let config = Config::parse(config, "gripfast.toml".as_ref()).unwrap();
        let host = Host::builder().state_dir(Some(state.path().to_owned())).budgets(config.budgets).build();
        for server in config.servers {
            host.spawn(&server.name, server.spec.unwrap()).unwrap();
        }
        let settings = Settings {
            listen: ([127, 0, 0, 1], 0).into(),
            state_dir: Some(state.path().to_owned()),
            terms: Terms::default(),
            access: AccessConfig::default(),
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

    /// Which series there are, whatever their values.
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

    /// What is there: its type, and its text.
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
async fn f04_calls_are_counted_by_what_became_of_them() {
    let scene = Scene::with(&format!("{}tools = {{ deny = ['add'] }}\n", demo())).await;
    scene.host.catalog("demo", PATIENCE).await.unwrap();
    scene.host.call("demo", "fail", None).await.unwrap();
    scene.host.call("demo", "counter", None).await.unwrap();
    scene.host.call("demo", "counter", None).await.unwrap();
    scene.host.call("demo", "add", None).await.unwrap_err();
    let lines = scene.scrape().await;
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
    scene.host.shutdown().await;
}

#[tokio::test]
async fn f04_a_scraper_that_asks_for_nothing_gets_prometheus_text() {
    let scene = Scene::with(&demo()).await;
    scene.host.catalog("demo", PATIENCE).await.unwrap();
    scene.host.call("demo", "counter", None).await.unwrap();
    let (kind, text) = scene.get("/metrics", "*/*").await;
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
    scene.host.shutdown().await;
}

#[tokio::test]
async fn g04_what_the_cache_does_is_counted_in_metrics_and_in_status() {
    let scene = Scene::with(&format!("{}cache = {{ tools = {{ echo = '10m' }} }}\n", demo())).await;
    scene.host.catalog("demo", PATIENCE).await.unwrap();
    for text in ["a", "a", "a", "b"] {
        let arguments = serde_json::value::to_raw_value(&serde_json::json!({ "text": text })).unwrap();
        scene.host.call("demo", "echo", Some(arguments)).await.unwrap();
    }
    assert_has(
        &scene.scrape().await,
        &[
            r#"gripfast_upstream_cache_hits_total{server="demo"} 2"#,
            r#"gripfast_upstream_cache_misses_total{server="demo"} 2"#,
            "gripfast_cache_entries 2",
        ],
    );
    let status: serde_json::Value =
        serde_json::from_str(&scene.get("/api/v1/status", "*/*").await.1).unwrap();
    let cache = |what: &str| status["cache"][what].as_u64().unwrap();
    assert_eq!((cache("hits"), cache("misses"), cache("entries")), (2, 2, 2));
    assert!(cache("bytes") > 0);
    let demo = &status["upstreams"][0];
    assert_eq!((&demo["cache_hits"], &demo["cache_misses"]), (&2.into(), &2.into()), "{demo}");
    scene.host.shutdown().await;
}

/// A server that is lost shows in state, circuit, restarts and events, as in status.
#[tokio::test]
async fn f04_what_happens_to_a_server_is_counted() {
    let scene = Scene::with(&demo()).await;
    scene.host.catalog("demo", PATIENCE).await.unwrap();
    let mut events = scene.host.events();
    // It dies in mid-call, and comes back.
    scene.host.call("demo", "crash", None).await.unwrap_err();
    let revived = async { while events.recv().await.unwrap().event.word() != "revived" {} };
    tokio::time::timeout(PATIENCE, revived).await.unwrap();
    assert_has(
        &scene.scrape().await,
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
    scene.host.stop("demo").unwrap();
    while scene.host.status_of("demo").unwrap().supervision.state != gripfast::State::Stopped {
        tokio::time::timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
    }
    assert_has(
        &scene.scrape().await,
        &[
            r#"gripfast_upstream_state{server="demo",state="ready"} 0"#,
            r#"gripfast_upstream_state{server="demo",state="stopped"} 1"#,
        ],
    );
    scene.host.shutdown().await;
}

#[tokio::test]
async fn g05_failed_authentications_admin_actions_and_key_changes_are_counted() {
    let scene = Scene::with("").await;
    let act = async |token: Option<&str>| {
        let request = Request::post(format!("{}/api/v1/upstreams/none/stop", scene.base));
        let request = match token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        };
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<bytes::Bytes>>();
        let sent = client.request(request.body(Empty::new()).unwrap());
        tokio::time::timeout(PATIENCE, sent).await.unwrap().unwrap().status().as_u16()
    };
    let token = || std::fs::read_to_string(scene.state.path().join("admin.token")).unwrap().trim().to_owned();
    let old = token();
    assert_eq!((act(None).await, act(Some("guessed")).await, act(Some(&old)).await), (401, 401, 404));
    gripfast_gateway::admin::rotate_token(scene.state.path()).unwrap();
    assert_eq!((act(Some(&old)).await, act(Some(&token())).await), (401, 404));
    assert_has(
        &scene.scrape().await,
        &[
            r#"gripfast_auth_failures_total{target="admin_action",reason="no_credential"} 1"#,
            r#"gripfast_auth_failures_total{target="admin_action",reason="wrong_admin_token"} 2"#,
            r#"gripfast_admin_actions_total{action="stop"} 2"#,
            r#"gripfast_key_changes_total{change="admin_token"} 1"#,
        ],
    );
    scene.host.shutdown().await;
}

/// Whoever is warned by the alert rules sees it for as long as it lasts.
#[tokio::test]
async fn f04_an_open_circuit_is_shown_until_it_closes() {
    let impatient = "circuit = { threshold = 1, cooldown = '1h' }\ntimeouts = { call = '100ms' }\n";
    let scene = Scene::with(&(demo() + impatient)).await;
    scene.host.catalog("demo", PATIENCE).await.unwrap();
    let circuit =
        |is: &str, value: u8| format!(r#"gripfast_upstream_circuit{{server="demo",circuit="{is}"}} {value}"#);
    let for_an_hour = serde_json::value::to_raw_value(&json!({ "ms": 3_600_000 })).unwrap();
    scene.host.call("demo", "sleep", Some(for_an_hour)).await.unwrap_err();
    scene.until(&circuit("open", 1)).await;
    assert_has(&scene.scrape().await, &[&circuit("closed", 0), &circuit("half_open", 0)]);
    // Whoever reconnects it by hand need not wait for the hour.
    scene.host.reconnect("demo").unwrap();
    scene.until(&circuit("closed", 1)).await;
    assert_has(&scene.scrape().await, &[&circuit("open", 0), &circuit("half_open", 0)]);
    scene.host.shutdown().await;
}

#[tokio::test]
async fn f04_what_is_under_way_what_waits_and_who_is_there_is_shown() {
    let budget = "[budgets.few]\ntool = 'sleep'\ncalls = 4\nwithin = '1h'\n";
    let scene = Scene::with(&format!("{}max_in_flight = 1\n{budget}", demo())).await;
    scene.host.catalog("demo", PATIENCE).await.unwrap();
    let asleep = || {
        let (host, ms) = (scene.host.clone(), json!({ "ms": 600_000 }));
        let arguments = serde_json::value::to_raw_value(&ms).unwrap();
        tokio::spawn(async move { host.call("demo", "sleep", Some(arguments)).await })
    };
    let first = asleep();
    scene.until(r#"gripfast_upstream_in_flight{server="demo"} 1"#).await;
    let second = asleep();
    scene.until(r#"gripfast_upstream_waiting{server="demo"} 1"#).await;
    scene.initialize("somebody").await;
    assert_has(
        &scene.scrape().await,
        &[
            r#"gripfast_upstream_in_flight{server="demo"} 1"#,
            "gripfast_sessions 1",
            r#"gripfast_budget_used{budget="few"} 0.5"#,
            r#"gripfast_upstream_circuit{server="demo",circuit="open"} 0"#,
            r#"gripfast_upstream_circuit{server="demo",circuit="half_open"} 0"#,
        ],
    );
    second.abort();
    scene.until(r#"gripfast_upstream_waiting{server="demo"} 0"#).await;
    first.abort();
    scene.until(r#"gripfast_upstream_in_flight{server="demo"} 0"#).await;
    scene.host.shutdown().await;
}

/// Whatever clients make up, there are no more series than before.
#[tokio::test]
async fn f04_labels_are_of_closed_sets() {
    let scene = Scene::with(&demo()).await;
    scene.host.catalog("demo", PATIENCE).await.unwrap();
    let make_up = async |number: usize| {
        scene.initialize(&format!("client-{number}")).await;
        scene.host.call("demo", &format!("tool-{number}"), None).await.unwrap_err();
        scene.host.call(&format!("server-{number}"), "echo", None).await.unwrap_err();
        scene.host.call("demo", "counter", None).await.unwrap();
    };
    make_up(0).await;
    let before = scene.series().await;
    for number in 1..50 {
        make_up(number).await;
    }
    assert_eq!(scene.series().await, before);
    scene.host.shutdown().await;
}

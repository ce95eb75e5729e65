//! Read requests of the admin API: their exact fields, as the contract lists them.

use crate::test_api::{TestApi, stdio};
use axum::http::StatusCode;
use gripfast::JsonText;
use serde_json::{Value, json};

/// The fields of one upstream, in the order in which the contract lists them.
const CONTRACT: &str = "name state circuit cause next_attempt_ms transport era protocol_version pid tools restarts \
                        consecutive_failures in_flight calls errors tool_errors last_ok_ms";

#[tokio::test]
async fn the_status_of_all_servers_has_the_fields_of_the_contract() {
    let api = TestApi::ready().await;
    let arguments = || Some(JsonText::of(&json!({ "text": "x" })).unwrap());
    api.host.call("demo", "echo", arguments()).await.unwrap();
    api.host.call("demo", "fail", None).await.unwrap();
    let answered = api.get("/api/v1/status").await;
    assert_eq!(answered.status, StatusCode::OK);
    assert_eq!(answered.headers["cache-control"], "no-store");

    let version = env!("CARGO_PKG_VERSION");
    let head = format!(r#"{{"version":"{version}","uptime_ms":"#);
    assert!(answered.text.starts_with(&head), "{}", answered.text);
    let mut rest = answered.text.as_str();
    for field in CONTRACT.split_whitespace() {
        let at = rest.find(&format!(r#""{field}":"#)).unwrap_or_else(|| panic!("{field} in {rest}"));
        rest = &rest[at..];
    }

    let fleet = answered.json();
    assert!(fleet["uptime_ms"].is_u64());
    let demo = &fleet["upstreams"][0];
    let pid = api.host.server_status("demo").unwrap().pid.unwrap();
    for (field, value) in [
        ("name", json!("demo")),
        ("state", json!("ready")),
        ("circuit", json!("closed")),
        ("cause", Value::Null),
        ("next_attempt_ms", Value::Null),
        ("transport", json!("stdio")),
        ("era", json!("modern")),
        ("pid", json!(pid)),
        ("tools", json!(9)),
        ("restarts", json!(0)),
        ("consecutive_failures", json!(0)),
        ("in_flight", json!(0)),
        ("calls", json!(2)),
        ("errors", json!(0)),
        ("tool_errors", json!(1)),
        ("waiting", json!(0)),
        ("replacing", json!(false)),
        ("spare", Value::Null),
        ("restarts_in_window", json!(0)),
        ("next_action", Value::Null),
        ("hint", Value::Null),
        ("server_info", json!(format!("gripfast-demo {version}"))),
    ] {
        assert_eq!(demo[field], value, "{field}");
    }
    assert!(demo["protocol_version"].is_string() && demo["last_ok_ms"].is_u64(), "{demo}");
    assert!(demo["session_age_ms"].is_u64() && demo["since_ms"].is_u64(), "{demo}");
    assert!(demo["p50_ms"].as_f64() <= demo["p95_ms"].as_f64(), "{demo}");
    api.host.shutdown().await;
}

#[tokio::test]
async fn f03_every_server_is_listed_with_its_cause_and_next_step() {
    let config = [
        &stdio("asleep", &[]),
        "lazy = true\n",
        "[servers.missing]\ncommand = 'no-such-program'\n",
        "[servers.wrong]\ncomand = 'npx'\n",
        "[servers.off]\ncommand = 'npx'\ndisabled = true\n",
    ];
    let api = TestApi::with(&config.concat()).await;
    api.until("missing", "config_error").await;
    let fleet = api.get("/api/v1/status").await.json();
    let row = |at: usize| {
        let row = &fleet["upstreams"][at];
        json!([row["name"], row["state"], row["cause"], row["next_action"], row["hint"]])
    };
    assert_eq!(row(0), json!(["asleep", "idle", null, null, null]));
    let gone = "command `no-such-program` was not found on the PATH of its environment";
    let doctor = |name: &str| format!("`gripfast doctor {name}` shows what to correct");
    assert_eq!(row(1), json!(["missing", "config_error", gone, "configure", doctor("missing")]));
    assert!(fleet["upstreams"][1]["next_attempt_ms"].is_u64(), "it is tried again by itself");
    assert_eq!(row(2)[1], "config_error");
    assert!(row(2)[2].as_str().unwrap().contains("did you mean `command`?"), "{}", row(2));
    assert_eq!(row(3), json!(["off", "disabled", null, null, null]));
    api.host.shutdown().await;
}

#[tokio::test]
async fn one_upstream_comes_with_its_events_and_stderr() {
    let api = TestApi::with(&stdio("demo", &["--exit-at-start", "always", "--exit-code", "7"])).await;
    api.until("demo", "parked").await;
    let demo = api.get("/api/v1/upstreams/demo").await.json();
    assert_eq!((&demo["name"], &demo["state"]), (&json!("demo"), &json!("parked")));
    assert!(demo["restarts"].as_u64() >= Some(1), "{demo}");
    let events = demo["events"].as_array().unwrap();
    assert!((1..=20).contains(&events.len()), "{demo}");
    let last = events.last().unwrap();
    assert_eq!((&last["kind"], &last["to"]), (&json!("state_changed"), &json!("parked")));
    assert!(last["at"].as_u64() > Some(1_600_000_000_000), "milliseconds since the epoch: {last}");
    assert!(last["text"].as_str().unwrap().contains("to parked: "), "{last}");
    let stderr = demo["stderr"].as_array().unwrap();
    assert!(stderr.iter().any(|line| line == "demo server: exiting at start, as told"), "{demo}");
    api.host.shutdown().await;
}

#[tokio::test]
async fn secrets_in_the_config_are_never_shown() {
    let secret = "sk-very-secret";
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = gripfast_demo::start_http(listen, gripfast_demo::Options::default()).await.unwrap();
    let url = server.url().replace("http://", &format!("http://user:{secret}@"));
    let config = format!(
        "[servers.web]\nurl = '{url}?key={secret}'\nheaders = {{ Authorization = 'Bearer {secret}' }}\n\
         [servers.away]\nurl = 'http://user:{secret}@127.0.0.1:1/mcp?key={secret}'\n"
    );
    let api = TestApi::with(&config).await;
    api.until("web", "ready").await;
    api.until("away", "reconnecting").await;
    for path in ["/api/v1/status", "/api/v1/upstreams/web", "/api/v1/upstreams/away"] {
        let answered = api.get(path).await;
        assert!(!answered.text.contains(secret), "{}", answered.text);
    }
    let web = api.get("/api/v1/upstreams/web").await.json();
    let place = server.url().strip_prefix("http://").unwrap().to_owned();
    assert!(web["url"].as_str().unwrap().contains(&place), "the address itself is shown: {web}");
    api.host.shutdown().await;
}

#[tokio::test]
async fn an_unknown_name_gets_a_suggestion() {
    let api = TestApi::with(&stdio("demo", &[])).await;
    let answered = api.get("/api/v1/upstreams/dmeo").await;
    assert_eq!(answered.status, StatusCode::NOT_FOUND);
    assert_eq!(
        answered.text,
        r#"{"error":{"code":"unknown_server","text":"there is no server named `dmeo`","hint":"did you mean `demo`?"}}"#
    );
    api.host.shutdown().await;
}

#[tokio::test]
async fn an_unknown_path_is_answered_in_json() {
    let api = TestApi::with("").await;
    for (path, status) in [
        ("/api/v1/", StatusCode::NOT_FOUND),
        ("/api/v1/stauts", StatusCode::NOT_FOUND),
        ("/api/v1/upstreams/demo/stop", StatusCode::METHOD_NOT_ALLOWED),
        ("/api/v1/upstreams/%ff", StatusCode::BAD_REQUEST),
    ] {
        let answered = api.get(path).await;
        assert_eq!(answered.status, status, "{path}");
        assert!(!answered.json()["error"]["text"].as_str().unwrap().is_empty(), "{path}");
    }
    assert_eq!(api.post("/api/v1/status", &[]).await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn healthz_is_ok_at_once_and_readyz_only_while_serving() {
    let api = TestApi::with("").await;
    let healthz = api.get("/healthz").await;
    assert_eq!((healthz.status, healthz.text.as_str()), (StatusCode::OK, "ok"));
    let readyz = api.get("/readyz").await;
    assert_eq!(readyz.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(readyz.json()["error"]["code"], "not_ready");
    api.admin.set_serving();
    assert_eq!(api.get("/readyz").await.status, StatusCode::OK);
    api.admin.set_shutting_down();
    assert_eq!(api.get("/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(api.get("/healthz").await.status, StatusCode::OK);
}

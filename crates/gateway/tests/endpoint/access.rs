//! Client authentication: accepted keys and tokens, the principal of a client, and the answers to the others.

use crate::client::{EventStream, LEGACY, borrowed, call, initialize, names, request, spoken};
use crate::scripted_server::ScriptedServer;
use crate::test_gateway::{TestGateway, at, demo};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gripfast::config::{AccessConfig, Config};
use gripfast::{AuthFailure, AuthTarget, Event, State};
use gripfast_gateway::auth::keys;
use gripfast_gateway::mcp::Limits;
use gripfast_gateway::server::{ListenError, Server, ServerSettings};
use gripfast_testkit::wait::{until, within};
use http::Method;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;

/// Gateway that requires keys, with the sample server.
async fn asking() -> (gripfast_demo::RunningServer, TestGateway) {
    let demo = demo().await;
    let gateway = TestGateway::with(&config(&demo)).await;
    (demo, gateway)
}

fn config(demo: &gripfast_demo::RunningServer) -> String {
    format!("[gateway]\nauth = {{ keys = true }}\n\n{}", at("demo", &demo.url(), "legacy", &[]))
}

/// Creates a key and returns its `authorization` header.
fn given(gateway: &TestGateway, name: &str) -> String {
    format!("Bearer {}", keys::add(gateway.state_dir(), name).unwrap())
}

#[tokio::test]
async fn g05_no_mcp_path_is_served_without_a_key() {
    let (_demo, gateway) = asking().await;
    let bodies =
        [(Method::POST, "/mcp"), (Method::GET, "/mcp"), (Method::DELETE, "/mcp"), (Method::GET, "/sse")];
    for (method, path) in bodies.into_iter().chain([(Method::POST, "/message?sessionId=1")]) {
        let told = gateway.http.send(method.clone(), path, &[], initialize(LEGACY).to_string()).await;
        assert_eq!(told.status, 401, "{path}");
        assert_eq!(told.headers["www-authenticate"], "Bearer realm=\"gripfast\"");
        let shown = [("authorization", "Bearer gfk_made-up")];
        let told = gateway.http.send(method, path, &shown, initialize(LEGACY).to_string()).await;
        let asked = told.headers["www-authenticate"].to_str().unwrap();
        assert!(told.status == 401 && asked.contains("error=\"invalid_token\""), "{path}: {told:?}");
        assert!(!told.text.contains("made-up"), "what was shown is not repeated");
    }
    assert_eq!(gateway.clients().await.sessions, 0);
    assert_eq!(gateway.http.send(Method::GET, "/healthz", &[], "").await.status, 200);
}

/// Uses real sockets: requests whose refusal is delayed do not count as in flight, and no other request waits for them.
#[tokio::test]
async fn g05_a_flood_of_wrong_keys_delays_no_client_with_a_valid_one() {
    let (_demo, gateway) = asking().await;
    let key = given(&gateway, "laptop");
    let guesses: Vec<_> = (0..20)
        .map(|number| {
            let http = gateway.http.clone();
            tokio::spawn(async move {
                let shown = format!("Bearer gfk_guess-{number}");
                http.post(&[("authorization", &shown)], initialize(LEGACY).to_string()).await.status
            })
        })
        .collect();
    let unknown = (AuthTarget::Mcp, AuthFailure::UnknownKey);
    let failed = || gateway.host.security_counts().auth_failures.get(&unknown).copied().unwrap_or_default();
    until("all have come", || failed() == 20).await;
    let served = gateway.http.post(&[("authorization", &key)], initialize(LEGACY).to_string()).await;
    assert_eq!(served.status, 200, "{served:?}");
    assert!(guesses.iter().any(|guess| !guess.is_finished()), "some still wait for their answers");
    assert_eq!(gateway.clients().await.in_flight, 0);
    for guess in guesses {
        assert_eq!(guess.await.unwrap(), 401);
    }
}

#[tokio::test]
async fn g05_changed_keys_and_failed_authentications_are_reported_to_operators_only() {
    let (_demo, gateway) = asking().await;
    let mut events = gateway.host.subscribe_events();
    given(&gateway, "laptop");
    let mut next = async || loop {
        if let Event::Security(event) = within("an event", events.recv()).await.unwrap().event {
            return event.to_string();
        }
    };
    assert_eq!(next().await, "client keys added: `laptop`");
    keys::remove(gateway.state_dir(), "laptop").unwrap();
    assert_eq!(next().await, "client keys removed: `laptop`");
    gateway.http.post(&[("authorization", "Bearer gfk_made-up")], "{}").await;
    assert_eq!(next().await, "failed authentication from 127.0.0.1 at the MCP endpoint: unknown key");
    gateway.http.post(&[], "{}").await;
    let counts = gateway.host.security_counts().auth_failures;
    assert_eq!(counts[&(AuthTarget::Mcp, AuthFailure::NoCredential)], 1, "it is counted and not told");
    assert_eq!(gateway.host.security_events().len(), 3);
    let token = std::fs::read_to_string(gateway.state_dir().join("admin.token")).unwrap();
    let told = async |headers: &[(&str, &str)]| {
        let status = gateway.http.send(Method::GET, "/api/v1/status", headers, "").await.message();
        status["events"].as_array().unwrap().len()
    };
    assert_eq!(told(&[]).await, 0, "the names of clients are for the operator");
    assert_eq!(told(&[("authorization", &format!("Bearer {}", token.trim()))]).await, 3);
}

#[tokio::test]
async fn g05_a_client_with_a_key_is_served_in_both_eras_until_its_removal() {
    let (_demo, gateway) = asking().await;
    let key = given(&gateway, "laptop");
    let shown = [("authorization", &*key)];
    let hello = gateway.http.post(&shown, initialize(LEGACY).to_string()).await;
    let session = hello.headers["mcp-session-id"].to_str().unwrap();
    let in_session = [("authorization", &*key), ("mcp-session-id", session)];
    let echo = request(1, "tools/call", &call("demo__echo", json!({ "text": "hello" }))).to_string();
    let told = gateway.http.post(&in_session, echo.clone()).await.message();
    assert_eq!(told["result"]["content"][0]["text"], "hello", "{told}");
    let (headers, message) = spoken(json!(2), "tools/list", json!({}));
    let listed = gateway.http.post(&[&shown[..], &borrowed(&headers)].concat(), message).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    assert!(keys::remove(gateway.state_dir(), "laptop").unwrap());
    assert_eq!(gateway.http.post(&in_session, echo).await.status, 401, "also within a session");
}

/// Open streams of all kinds and one call in each era, of one client.
struct OpenRequests {
    streams: Vec<EventStream>,
    calls: Vec<tokio::task::JoinHandle<String>>,
}

impl OpenRequests {
    async fn by(gateway: &TestGateway, key: &str) -> Self {
        let hello = gateway.http.post(&[("authorization", key)], initialize(LEGACY).to_string()).await;
        let session = hello.headers["mcp-session-id"].to_str().unwrap().to_owned();
        let in_session = [("authorization", key), ("mcp-session-id", &*session)];
        let mut sse =
            EventStream::of(gateway.http.begin(Method::GET, "/sse", &[("authorization", key)], "").await);
        sse.next().await.unwrap();
        let (headers, wanted) = spoken(
            json!("l"),
            "subscriptions/listen",
            json!({ "notifications": { "toolsListChanged": true } }),
        );
        let headers = [&[("authorization", key)], &borrowed(&headers)[..]].concat();
        let mut modern = EventStream::of(gateway.http.begin(Method::POST, "/mcp", &headers, wanted).await);
        modern.message().await;
        let get = EventStream::of(gateway.http.begin(Method::GET, "/mcp", &in_session, "").await);
        let sleep = call("demo__sleep", json!({ "ms": 600_000 }));
        let (headers, modern_call) = spoken(json!(2), "tools/call", sleep.clone());
        let legacy_call = request(1, "tools/call", &sleep).to_string();
        let modern_headers = [&[("authorization", key)], &borrowed(&headers)[..]].concat();
        let owned = |headers: &[(&str, &str)]| -> Vec<(String, String)> {
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let calls = [(owned(&in_session), legacy_call), (owned(&modern_headers), modern_call)];
        let calls = calls.map(|(headers, body)| {
            let http = gateway.http.clone();
            tokio::spawn(async move {
                let headers: Vec<_> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
                http.post(&headers, body).await.text
            })
        });
        Self { streams: vec![sse, modern, get], calls: calls.into() }
    }
}

#[tokio::test]
async fn g05_streams_and_calls_of_a_removed_key_end_and_those_of_others_go_on() {
    let (_demo, gateway) = asking().await;
    let (hers, his) = (given(&gateway, "alice"), given(&gateway, "bob"));
    let (mut she, mut he) = (OpenRequests::by(&gateway, &hers).await, OpenRequests::by(&gateway, &his).await);
    gateway.until_clients("all calls", |clients| clients.in_flight == 4 && clients.sessions == 2).await;
    assert!(keys::remove(gateway.state_dir(), "alice").unwrap());
    for stream in &mut she.streams {
        while let Some(event) = stream.next().await {
            assert!(!event.data.contains("result"), "{event:?}");
        }
    }
    for call in she.calls {
        let answered = call.await.unwrap();
        assert!(!answered.contains("slept"), "{answered}");
    }
    gateway
        .until_clients("her calls and her session", |left| left.in_flight == 2 && left.sessions == 1)
        .await;
    for stream in &mut he.streams {
        assert!(stream.is_silent().await, "his go on");
    }
    assert!(he.calls.iter().all(|call| !call.is_finished()));
    assert_eq!(
        gateway.http.post(&[("authorization", &his)], initialize(LEGACY).to_string()).await.status,
        200
    );
}

#[tokio::test]
async fn g05_client_credentials_reach_no_server() {
    let tools = r#"{"tools":[{"name":"it","inputSchema":{"type":"object"}}],"resultType":"complete"}"#;
    for protocol in ["legacy", "modern"] {
        let script =
            ScriptedServer::start(&[("tools/list", tools), ("tools/call", r#"{"content":[]}"#)]).await;
        let server = at("s", &script.url, protocol, &[]);
        let gateway = TestGateway::with(&format!("[gateway]\nauth = {{ keys = true }}\n\n{server}")).await;
        let key = given(&gateway, "laptop");
        let (headers, message) = spoken(json!(2), "tools/call", call("s__it", json!({})));
        let headers = [&[("authorization", &*key), ("cookie", "mine")][..], &borrowed(&headers)].concat();
        assert_eq!(gateway.http.post(&headers, message).await.status, 200);
        assert_eq!(script.count("tools/call"), 1);
        for shown in script.shown() {
            assert!(!shown.contains_key("authorization") && !shown.contains_key("cookie"), "{shown:?}");
        }
        let secret = key.strip_prefix("Bearer ").unwrap();
        assert!(script.everything().iter().all(|body| !body.contains(secret)));
    }
}

#[tokio::test]
async fn g05_a_session_of_another_client_is_unknown_here_and_after_a_restart() {
    let (demo, gateway) = asking().await;
    let (hers, his) = (given(&gateway, "alice"), given(&gateway, "bob"));
    let hello = gateway.http.post(&[("authorization", &hers)], initialize(LEGACY).to_string()).await;
    let session = hello.headers["mcp-session-id"].to_str().unwrap();
    let (hers, his) = (
        [("authorization", &*hers), ("mcp-session-id", session)],
        [("authorization", &*his), ("mcp-session-id", session)],
    );
    let ping = request(1, "ping", &json!({})).to_string();
    only_hers(&gateway, &hers, &his, &ping).await;
    let gateway = gateway.restart(&config(&demo)).await;
    only_hers(&gateway, &hers, &his, &ping).await;
}

async fn only_hers(gateway: &TestGateway, hers: &[(&str, &str)], his: &[(&str, &str)], ping: &str) {
    assert_eq!(gateway.http.post(his, ping.to_owned()).await.status, 404);
    assert_eq!(gateway.http.send(Method::GET, "/mcp", his, "").await.status, 404);
    assert_eq!(gateway.http.send(Method::DELETE, "/mcp", his, "").await.status, 404);
    assert_eq!(gateway.http.post(hers, ping.to_owned()).await.status, 200, "it is still hers");
}

#[tokio::test]
async fn g05_an_http_sse_stream_takes_messages_of_its_own_client_only() {
    let (_demo, gateway) = asking().await;
    let (hers, his) = (given(&gateway, "alice"), given(&gateway, "bob"));
    let mut stream =
        EventStream::of(gateway.http.begin(Method::GET, "/sse", &[("authorization", &hers)], "").await);
    let path = stream.next().await.unwrap().data;
    let ping = request(1, "ping", &json!({})).to_string();
    let send = async |key: &str| {
        let headers = [("authorization", key), ("content-type", "application/json")];
        gateway.http.send(Method::POST, &path, &headers, ping.clone()).await.status
    };
    assert_eq!((send(&his).await, send(&hers).await), (404, 202));
}

#[tokio::test]
async fn g05_only_a_gateway_with_auth_may_listen_for_other_machines() {
    let (_demo, gateway) = asking().await;
    let mut settings = ServerSettings {
        listen: ([0, 0, 0, 0], 0).into(),
        state_dir: Some(gateway.state_dir().to_owned()),
        limits: Limits::default(),
        access: AccessConfig::default(),
        cluster: None,
    };
    let refused = Server::bind(gateway.host.clone(), &settings).await.err();
    assert!(matches!(refused, Some(ListenError::NotLoopback(_))), "{refused:?}");
    settings.access.keys = true;
    assert!(Server::bind(gateway.host.clone(), &settings).await.is_ok());
}

#[tokio::test]
async fn g05_the_key_decides_what_a_client_sees_in_both_eras() {
    let demo = demo().await;
    let lists = "\n[clients.guest]\ntools = { allow = [\"demo/echo\"] }\n";
    let gateway = TestGateway::with(&(config(&demo) + lists)).await;
    for (name, sees_all) in [("guest", false), ("laptop", true)] {
        let key = given(&gateway, name);
        let hello = gateway.http.post(&[("authorization", &key)], initialize(LEGACY).to_string()).await;
        let session = hello.headers["mcp-session-id"].to_str().unwrap();
        let legacy = [("authorization", &*key), ("mcp-session-id", session)];
        let listed = gateway.http.post(&legacy, request(1, "tools/list", &json!({})).to_string()).await;
        let (headers, message) = spoken(json!(2), "tools/list", json!({}));
        let modern = [&[("authorization", &*key)][..], &borrowed(&headers)].concat();
        for listed in [listed.message(), gateway.http.post(&modern, message).await.message()] {
            let tools = names(&listed, "tools", "name");
            assert!(tools.contains(&"demo__echo".to_owned()), "{name}: {tools:?}");
            assert_eq!(tools.len() > 1, sees_all, "{name}: {tools:?}");
        }
    }
}

/// Token issuer that serves its one public key.
struct Issuer {
    key: EcdsaKeyPair,
    url: String,
    asked: Arc<AtomicUsize>,
}

impl Issuer {
    async fn start() -> Self {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random).unwrap();
        let point = key.public_key().as_ref();
        let (x, y) = (coded(&point[1..33]), coded(&point[33..]));
        let keys =
            json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "one", "x": x, "y": y }] }).to_string();
        let (asked, listener) =
            (Arc::<AtomicUsize>::default(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let url = format!("http://{}/jwks.json", listener.local_addr().unwrap());
        let count = Arc::clone(&asked);
        let answer = move || {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::ready(keys.clone())
        };
        let routes = axum::Router::new().route("/jwks.json", axum::routing::get(answer));
        // It ends with the test's runtime.
        tokio::spawn(axum::serve(listener, routes).into_future());
        Self { key, url, asked }
    }

    fn signs(&self, key: &str, audience: &str) -> String {
        let claims = json!({ "iss": "https://login.example", "aud": audience, "sub": "alice", "exp": 4_000_000_000_u64 });
        let header = coded(json!({ "alg": "ES256", "kid": key }).to_string().as_bytes());
        let message = format!("{header}.{}", coded(claims.to_string().as_bytes()));
        let signed = self.key.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("Bearer {message}.{}", coded(signed.as_ref()))
    }
}

fn coded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[tokio::test]
async fn g05_a_valid_token_is_accepted_and_a_401_names_the_issuer() {
    let (demo, issuer) = (demo().await, Issuer::start().await);
    let config = format!(
        "[gateway]\npublic_url = \"https://mcp.example\"\n[gateway.auth.jwt]\nissuer = \"https://login.example\"\n\
         audience = \"https://mcp.example/mcp\"\njwks = {:?}\n\n{}",
        issuer.url,
        at("demo", &demo.url(), "legacy", &[])
    );
    let gateway = TestGateway::with(&config).await;
    let hello = initialize(LEGACY).to_string();
    let told = gateway.http.post(&[], hello.clone()).await;
    let place = "https://mcp.example/.well-known/oauth-protected-resource/mcp";
    assert_eq!(told.status, 401);
    assert_eq!(
        told.headers["www-authenticate"],
        format!("Bearer realm=\"gripfast\", resource_metadata=\"{place}\"")
    );
    for path in ["", "/mcp"] {
        let path = format!("/.well-known/oauth-protected-resource{path}");
        let document = gateway.http.send(Method::GET, &path, &[], "").await.message();
        assert_eq!(document["resource"], "https://mcp.example/mcp");
        assert_eq!(document["authorization_servers"], json!(["https://login.example"]));
    }
    let good = issuer.signs("one", "https://mcp.example/mcp");
    assert_eq!(gateway.http.post(&[("authorization", &good)], hello.clone()).await.status, 200);
    for bad in [issuer.signs("one", "https://other.example"), "Bearer eyJhbGciOiJub25lIn0.e30.".to_owned()] {
        let told = gateway.http.post(&[("authorization", &bad)], hello.clone()).await;
        assert_eq!(told.status, 401);
        assert!(told.headers["www-authenticate"].to_str().unwrap().contains("error=\"invalid_token\""));
    }
    assert_eq!(issuer.asked.load(Ordering::SeqCst), 1, "its keys are remembered");
    // Concurrently, because each answer is delayed longer than the one before.
    let guesses = (0..20).map(async |made_up| {
        let unknown = issuer.signs(&format!("made-up-{made_up}"), "https://mcp.example/mcp");
        assert_eq!(gateway.http.post(&[("authorization", &unknown)], hello.clone()).await.status, 401);
    });
    futures_util::future::join_all(guesses).await;
    assert!(
        issuer.asked.load(Ordering::SeqCst) <= 2,
        "and not asked for again by everybody who makes up a name"
    );
}

#[tokio::test]
async fn g01_list_changes_are_sent_only_to_clients_whose_lists_changed() {
    let (demo, gateway) = asking().await;
    let (hers, his) = (given(&gateway, "alice"), given(&gateway, "bob"));
    let listens = async |key: &str| {
        let hello = gateway.http.post(&[("authorization", key)], initialize(LEGACY).to_string()).await;
        let session = hello.headers["mcp-session-id"].to_str().unwrap();
        let headers = [("authorization", key), ("mcp-session-id", session)];
        EventStream::of(gateway.http.begin(Method::GET, "/mcp", &headers, "").await)
    };
    let (mut she, mut he) = (listens(&hers).await, listens(&his).await);
    let (headers, wanted) = spoken(
        json!("l"),
        "subscriptions/listen",
        json!({ "notifications": { "toolsListChanged": true, "promptsListChanged": true } }),
    );
    let headers = [&[("authorization", &*hers)], &borrowed(&headers)[..]].concat();
    let mut modern = EventStream::of(gateway.http.begin(Method::POST, "/mcp", &headers, wanted).await);
    modern.message().await;
    let lists = "[clients.alice]\ntools = { deny = [\"demo/counter\"] }\n";
    let lists = Config::parse(lists, "gripfast.toml".as_ref()).unwrap().clients;
    for lists in [lists, Vec::new()] {
        gateway.host.set_client_policies(lists);
        for stream in [&mut she, &mut modern] {
            assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
        }
    }
    // Any other notification would have arrived before this.
    demo.add_tool("new").await;
    for stream in [&mut she, &mut he, &mut modern] {
        assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
        assert!(stream.is_silent().await);
    }
}

/// A gateway listed as its own server would call itself endlessly.
#[tokio::test]
async fn b09_a_gateway_refuses_to_be_a_server_of_itself() {
    let gateway = TestGateway::unlisted("").await;
    for (name, path) in [("streamable", "/mcp"), ("events", "/sse")] {
        let config = at(name, &format!("http://{}{path}", gateway.http.address), "auto", &[]);
        let server = Config::parse(&config, "gripfast.toml".as_ref()).unwrap().servers.remove(0);
        gateway.host.spawn(name, server.spec.unwrap()).unwrap();
        gateway.until(name, State::ConfigError).await;
        let cause = gateway.host.server_status(name).unwrap().supervision.cause.unwrap();
        assert!(cause.contains("it cannot be a server of itself"), "{cause}");
    }
}

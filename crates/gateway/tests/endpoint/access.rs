//! Clients that have to show who they are: what gets in, as whom, and what those are told who do not get in.

use crate::client::{Events, LEGACY, borrowed, call, initialize, names, request, spoken};
use crate::scene::{Scene, at, demo, until, within};
use crate::script::Script;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gripfast::config::{AccessConfig, Config};
use gripfast::{AuthFailure, AuthTarget, Event, State};
use gripfast_gateway::auth::keys;
use gripfast_gateway::downstream::Terms;
use gripfast_gateway::server::{CannotListen, Server, Settings};
use http::Method;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;

/// A gateway that asks for keys, in front of the sample server.
async fn asking() -> (gripfast_demo::RunningServer, Scene) {
    let demo = demo().await;
    let scene = Scene::with(&config(&demo)).await;
    (demo, scene)
}

fn config(demo: &gripfast_demo::RunningServer) -> String {
    format!("[gateway]\nauth = {{ keys = true }}\n\n{}", at("demo", &demo.url(), "legacy", &[]))
}

/// The header of somebody to whom a key was given.
fn given(scene: &Scene, name: &str) -> String {
    format!("Bearer {}", keys::add(scene.state_dir(), name).unwrap())
}

#[tokio::test]
async fn g05_nobody_gets_in_without_a_key_by_any_way() {
    let (_demo, scene) = asking().await;
    let bodies =
        [(Method::POST, "/mcp"), (Method::GET, "/mcp"), (Method::DELETE, "/mcp"), (Method::GET, "/sse")];
    for (method, path) in bodies.into_iter().chain([(Method::POST, "/message?sessionId=1")]) {
        let told = scene.http.send(method.clone(), path, &[], initialize(LEGACY).to_string()).await;
        assert_eq!(told.status, 401, "{path}");
        assert_eq!(told.headers["www-authenticate"], "Bearer realm=\"gripfast\"");
        let shown = [("authorization", "Bearer gfk_made-up")];
        let told = scene.http.send(method, path, &shown, initialize(LEGACY).to_string()).await;
        let asked = told.headers["www-authenticate"].to_str().unwrap();
        assert!(told.status == 401 && asked.contains("error=\"invalid_token\""), "{path}: {told:?}");
        assert!(!told.text.contains("made-up"), "what was shown is not repeated");
    }
    assert_eq!(scene.clients().await.sessions, 0);
    assert_eq!(scene.http.send(Method::GET, "/healthz", &[], "").await.status, 200);
}

/// Real sockets: what waits for its refusal takes no place among the requests in flight, and nobody waits behind it.
#[tokio::test]
async fn g05_a_flood_of_wrong_keys_delays_no_client_with_a_valid_one() {
    let (_demo, scene) = asking().await;
    let key = given(&scene, "laptop");
    let guesses: Vec<_> = (0..20)
        .map(|number| {
            let http = scene.http.clone();
            tokio::spawn(async move {
                let shown = format!("Bearer gfk_guess-{number}");
                http.post(&[("authorization", &shown)], initialize(LEGACY).to_string()).await.status
            })
        })
        .collect();
    let unknown = (AuthTarget::Mcp, AuthFailure::UnknownKey);
    let failed = || scene.host.security_counts().auth_failures.get(&unknown).copied().unwrap_or_default();
    until("all have come", || failed() == 20).await;
    let served = scene.http.post(&[("authorization", &key)], initialize(LEGACY).to_string()).await;
    assert_eq!(served.status, 200, "{served:?}");
    assert!(guesses.iter().any(|guess| !guess.is_finished()), "some still wait for their answers");
    assert_eq!(scene.clients().await.in_flight, 0);
    for guess in guesses {
        assert_eq!(guess.await.unwrap(), 401);
    }
}

#[tokio::test]
async fn g05_keys_that_change_under_a_gateway_and_failures_are_told_to_the_operator_alone() {
    let (_demo, scene) = asking().await;
    let mut events = scene.host.events();
    given(&scene, "laptop");
    let mut next = async || loop {
        if let Event::Security(event) = within("an event", events.recv()).await.unwrap().event {
            return event.to_string();
        }
    };
    assert_eq!(next().await, "client keys added: `laptop`");
    keys::remove(scene.state_dir(), "laptop").unwrap();
    assert_eq!(next().await, "client keys removed: `laptop`");
    scene.http.post(&[("authorization", "Bearer gfk_made-up")], "{}").await;
    assert_eq!(next().await, "failed authentication from 127.0.0.1 at the MCP endpoint: unknown key");
    scene.http.post(&[], "{}").await;
    let counts = scene.host.security_counts().auth_failures;
    assert_eq!(counts[&(AuthTarget::Mcp, AuthFailure::NoCredential)], 1, "it is counted and not told");
    assert_eq!(scene.host.security_events().len(), 3);
    let token = std::fs::read_to_string(scene.state_dir().join("admin.token")).unwrap();
    let told = async |headers: &[(&str, &str)]| {
        let status = scene.http.send(Method::GET, "/api/v1/status", headers, "").await.message();
        status["events"].as_array().unwrap().len()
    };
    assert_eq!(told(&[]).await, 0, "the names of clients are for the operator");
    assert_eq!(told(&[("authorization", &format!("Bearer {}", token.trim()))]).await, 3);
}

#[tokio::test]
async fn g05_whoever_shows_a_key_is_served_in_both_eras_until_it_is_removed() {
    let (_demo, scene) = asking().await;
    let key = given(&scene, "laptop");
    let shown = [("authorization", &*key)];
    let hello = scene.http.post(&shown, initialize(LEGACY).to_string()).await;
    let session = hello.headers["mcp-session-id"].to_str().unwrap();
    let in_session = [("authorization", &*key), ("mcp-session-id", session)];
    let echo = request(1, "tools/call", &call("demo__echo", json!({ "text": "hello" }))).to_string();
    let told = scene.http.post(&in_session, echo.clone()).await.message();
    assert_eq!(told["result"]["content"][0]["text"], "hello", "{told}");
    let (headers, message) = spoken(json!(2), "tools/list", json!({}));
    let listed = scene.http.post(&[&shown[..], &borrowed(&headers)].concat(), message).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    assert!(keys::remove(scene.state_dir(), "laptop").unwrap());
    assert_eq!(scene.http.post(&in_session, echo).await.status, 401, "also within a session");
}

/// What one client has open: streams of all kinds, and a call in each era.
struct Busy {
    streams: Vec<Events>,
    calls: Vec<tokio::task::JoinHandle<String>>,
}

impl Busy {
    async fn by(scene: &Scene, key: &str) -> Self {
        let hello = scene.http.post(&[("authorization", key)], initialize(LEGACY).to_string()).await;
        let session = hello.headers["mcp-session-id"].to_str().unwrap().to_owned();
        let in_session = [("authorization", key), ("mcp-session-id", &*session)];
        let mut sse = Events::of(scene.http.begin(Method::GET, "/sse", &[("authorization", key)], "").await);
        sse.next().await.unwrap();
        let (headers, wanted) = spoken(
            json!("l"),
            "subscriptions/listen",
            json!({ "notifications": { "toolsListChanged": true } }),
        );
        let headers = [&[("authorization", key)], &borrowed(&headers)[..]].concat();
        let mut modern = Events::of(scene.http.begin(Method::POST, "/mcp", &headers, wanted).await);
        modern.message().await;
        let get = Events::of(scene.http.begin(Method::GET, "/mcp", &in_session, "").await);
        let sleep = call("demo__sleep", json!({ "ms": 600_000 }));
        let (headers, modern_call) = spoken(json!(2), "tools/call", sleep.clone());
        let legacy_call = request(1, "tools/call", &sleep).to_string();
        let modern_headers = [&[("authorization", key)], &borrowed(&headers)[..]].concat();
        let owned = |headers: &[(&str, &str)]| -> Vec<(String, String)> {
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let calls = [(owned(&in_session), legacy_call), (owned(&modern_headers), modern_call)];
        let calls = calls.map(|(headers, body)| {
            let http = scene.http.clone();
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
    let (_demo, scene) = asking().await;
    let (hers, his) = (given(&scene, "alice"), given(&scene, "bob"));
    let (mut she, mut he) = (Busy::by(&scene, &hers).await, Busy::by(&scene, &his).await);
    scene.until_clients("all calls", |clients| clients.in_flight == 4 && clients.sessions == 2).await;
    assert!(keys::remove(scene.state_dir(), "alice").unwrap());
    for stream in &mut she.streams {
        while let Some(event) = stream.next().await {
            assert!(!event.data.contains("result"), "{event:?}");
        }
    }
    for call in she.calls {
        let answered = call.await.unwrap();
        assert!(!answered.contains("slept"), "{answered}");
    }
    scene.until_clients("her calls and her session", |left| left.in_flight == 2 && left.sessions == 1).await;
    for stream in &mut he.streams {
        assert!(stream.is_silent().await, "his go on");
    }
    assert!(he.calls.iter().all(|call| !call.is_finished()));
    assert_eq!(scene.http.post(&[("authorization", &his)], initialize(LEGACY).to_string()).await.status, 200);
}

#[tokio::test]
async fn g05_what_a_client_shows_us_is_shown_to_no_server() {
    let tools = r#"{"tools":[{"name":"it","inputSchema":{"type":"object"}}],"resultType":"complete"}"#;
    for protocol in ["legacy", "modern"] {
        let script = Script::starts(&[("tools/list", tools), ("tools/call", r#"{"content":[]}"#)]).await;
        let server = at("s", &script.url, protocol, &[]);
        let scene = Scene::with(&format!("[gateway]\nauth = {{ keys = true }}\n\n{server}")).await;
        let key = given(&scene, "laptop");
        let (headers, message) = spoken(json!(2), "tools/call", call("s__it", json!({})));
        let headers = [&[("authorization", &*key), ("cookie", "mine")][..], &borrowed(&headers)].concat();
        assert_eq!(scene.http.post(&headers, message).await.status, 200);
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
    let (demo, scene) = asking().await;
    let (hers, his) = (given(&scene, "alice"), given(&scene, "bob"));
    let hello = scene.http.post(&[("authorization", &hers)], initialize(LEGACY).to_string()).await;
    let session = hello.headers["mcp-session-id"].to_str().unwrap();
    let (hers, his) = (
        [("authorization", &*hers), ("mcp-session-id", session)],
        [("authorization", &*his), ("mcp-session-id", session)],
    );
    let ping = request(1, "ping", &json!({})).to_string();
    only_hers(&scene, &hers, &his, &ping).await;
    let scene = scene.restart(&config(&demo)).await;
    only_hers(&scene, &hers, &his, &ping).await;
}

async fn only_hers(scene: &Scene, hers: &[(&str, &str)], his: &[(&str, &str)], ping: &str) {
    assert_eq!(scene.http.post(his, ping.to_owned()).await.status, 404);
    assert_eq!(scene.http.send(Method::GET, "/mcp", his, "").await.status, 404);
    assert_eq!(scene.http.send(Method::DELETE, "/mcp", his, "").await.status, 404);
    assert_eq!(scene.http.post(hers, ping.to_owned()).await.status, 200, "it is still hers");
}

#[tokio::test]
async fn g05_an_open_channel_of_the_oldest_http_takes_messages_of_its_own_client_only() {
    let (_demo, scene) = asking().await;
    let (hers, his) = (given(&scene, "alice"), given(&scene, "bob"));
    let mut stream = Events::of(scene.http.begin(Method::GET, "/sse", &[("authorization", &hers)], "").await);
    let path = stream.next().await.unwrap().data;
    let ping = request(1, "ping", &json!({})).to_string();
    let send = async |key: &str| {
        let headers = [("authorization", key), ("content-type", "application/json")];
        scene.http.send(Method::POST, &path, &headers, ping.clone()).await.status
    };
    assert_eq!((send(&his).await, send(&hers).await), (404, 202));
}

#[tokio::test]
async fn g05_only_a_gateway_that_asks_may_listen_for_other_machines() {
    let (_demo, scene) = asking().await;
    let mut settings = Settings {
        listen: ([0, 0, 0, 0], 0).into(),
        state_dir: Some(scene.state_dir().to_owned()),
        terms: Terms::default(),
        access: AccessConfig::default(),
    };
    let refused = Server::bind(scene.host.clone(), &settings).await.err();
    assert!(matches!(refused, Some(CannotListen::NotLoopback(_))), "{refused:?}");
    settings.access.keys = true;
    assert!(Server::bind(scene.host.clone(), &settings).await.is_ok());
}

#[tokio::test]
async fn g05_what_a_client_may_see_goes_by_its_key_in_both_eras() {
    let demo = demo().await;
    let lists = "\n[clients.guest]\ntools = { allow = [\"demo/echo\"] }\n";
    let scene = Scene::with(&(config(&demo) + lists)).await;
    for (name, sees_all) in [("guest", false), ("laptop", true)] {
        let key = given(&scene, name);
        let hello = scene.http.post(&[("authorization", &key)], initialize(LEGACY).to_string()).await;
        let session = hello.headers["mcp-session-id"].to_str().unwrap();
        let legacy = [("authorization", &*key), ("mcp-session-id", session)];
        let listed = scene.http.post(&legacy, request(1, "tools/list", &json!({})).to_string()).await;
        let (headers, message) = spoken(json!(2), "tools/list", json!({}));
        let modern = [&[("authorization", &*key)][..], &borrowed(&headers)].concat();
        for listed in [listed.message(), scene.http.post(&modern, message).await.message()] {
            let tools = names(&listed, "tools", "name");
            assert!(tools.contains(&"demo__echo".to_owned()), "{name}: {tools:?}");
            assert_eq!(tools.len() > 1, sees_all, "{name}: {tools:?}");
        }
    }
}

/// Somebody who issues tokens and serves its one public key.
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
async fn g05_a_token_gets_in_and_whoever_has_none_is_told_where_to_get_one() {
    let (demo, issuer) = (demo().await, Issuer::start().await);
    let config = format!(
        "[gateway]\npublic_url = \"https://mcp.example\"\n[gateway.auth.jwt]\nissuer = \"https://login.example\"\n\
         audience = \"https://mcp.example/mcp\"\njwks = {:?}\n\n{}",
        issuer.url,
        at("demo", &demo.url(), "legacy", &[])
    );
    let scene = Scene::with(&config).await;
    let hello = initialize(LEGACY).to_string();
    let told = scene.http.post(&[], hello.clone()).await;
    let place = "https://mcp.example/.well-known/oauth-protected-resource/mcp";
    assert_eq!(told.status, 401);
    assert_eq!(
        told.headers["www-authenticate"],
        format!("Bearer realm=\"gripfast\", resource_metadata=\"{place}\"")
    );
    for path in ["", "/mcp"] {
        let path = format!("/.well-known/oauth-protected-resource{path}");
        let document = scene.http.send(Method::GET, &path, &[], "").await.message();
        assert_eq!(document["resource"], "https://mcp.example/mcp");
        assert_eq!(document["authorization_servers"], json!(["https://login.example"]));
    }
    let good = issuer.signs("one", "https://mcp.example/mcp");
    assert_eq!(scene.http.post(&[("authorization", &good)], hello.clone()).await.status, 200);
    for bad in [issuer.signs("one", "https://other.example"), "Bearer eyJhbGciOiJub25lIn0.e30.".to_owned()] {
        let told = scene.http.post(&[("authorization", &bad)], hello.clone()).await;
        assert_eq!(told.status, 401);
        assert!(told.headers["www-authenticate"].to_str().unwrap().contains("error=\"invalid_token\""));
    }
    assert_eq!(issuer.asked.load(Ordering::SeqCst), 1, "its keys are remembered");
    // Together, for each waits longer for its answer than the one before.
    let guesses = (0..20).map(async |made_up| {
        let unknown = issuer.signs(&format!("made-up-{made_up}"), "https://mcp.example/mcp");
        assert_eq!(scene.http.post(&[("authorization", &unknown)], hello.clone()).await.status, 401);
    });
    futures_util::future::join_all(guesses).await;
    assert!(
        issuer.asked.load(Ordering::SeqCst) <= 2,
        "and not asked for again by everybody who makes up a name"
    );
}

#[tokio::test]
async fn g01_whose_lists_have_changed_is_told_to_look_again_and_nobody_else_is() {
    let (demo, scene) = asking().await;
    let (hers, his) = (given(&scene, "alice"), given(&scene, "bob"));
    let listens = async |key: &str| {
        let hello = scene.http.post(&[("authorization", key)], initialize(LEGACY).to_string()).await;
        let session = hello.headers["mcp-session-id"].to_str().unwrap();
        let headers = [("authorization", key), ("mcp-session-id", session)];
        Events::of(scene.http.begin(Method::GET, "/mcp", &headers, "").await)
    };
    let (mut she, mut he) = (listens(&hers).await, listens(&his).await);
    let (headers, wanted) = spoken(
        json!("l"),
        "subscriptions/listen",
        json!({ "notifications": { "toolsListChanged": true, "promptsListChanged": true } }),
    );
    let headers = [&[("authorization", &*hers)], &borrowed(&headers)[..]].concat();
    let mut modern = Events::of(scene.http.begin(Method::POST, "/mcp", &headers, wanted).await);
    modern.message().await;
    let lists = "[clients.alice]\ntools = { deny = [\"demo/counter\"] }\n";
    let lists = Config::parse(lists, "gripfast.toml".as_ref()).unwrap().clients;
    for lists in [lists, Vec::new()] {
        scene.host.set_clients(lists);
        for stream in [&mut she, &mut modern] {
            assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
        }
    }
    // Whatever else was told would have come before this.
    demo.add_tool("new").await;
    for stream in [&mut she, &mut he, &mut modern] {
        assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
        assert!(stream.is_silent().await);
    }
}

/// A gateway that is listed as a server of itself would call itself without end.
#[tokio::test]
async fn b09_a_gateway_refuses_to_be_a_server_of_itself() {
    let scene = Scene::unlisted("").await;
    for (name, path) in [("streamable", "/mcp"), ("events", "/sse")] {
        let config = at(name, &format!("http://{}{path}", scene.http.address), "auto", &[]);
        let server = Config::parse(&config, "gripfast.toml".as_ref()).unwrap().servers.remove(0);
        scene.host.spawn(name, server.spec.unwrap()).unwrap();
        scene.until(name, State::ConfigError).await;
        let cause = scene.host.status_of(name).unwrap().supervision.cause.unwrap();
        assert!(cause.contains("it cannot be a server of itself"), "{cause}");
    }
}

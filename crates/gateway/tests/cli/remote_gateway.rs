//! A gateway on another machine, as the command line finds it: what it is shown, and what it is not.

use crate::sandbox::{Ran, Sandbox, stdio};
use crate::serving::{Serving, until};
use crate::tls::papers;
use insta::assert_snapshot;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A proxy that makes a gateway look like one on another machine: it speaks https, and its admin API wants the token from
/// every client. It keeps the heads of all requests. Its address leads to this machine and is not a loopback address.
struct Elsewhere {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Elsewhere {
    fn before(gateway: &Serving, token: Option<&str>, (cert, key): &(String, String)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://0.0.0.0:{}", listener.local_addr().unwrap().port());
        let behind = gateway.url.replace("http://", "");
        let (heads, wanted) =
            (Arc::<Mutex<Vec<String>>>::default(), token.map(|token| format!("Bearer {token}")));
        let kept = Arc::clone(&heads);
        let tls = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            );
        let tls = Arc::new(tls.unwrap());
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (behind, wanted, kept) = (behind.clone(), wanted.clone(), Arc::clone(&kept));
                let asking = StreamOwned::new(ServerConnection::new(Arc::clone(&tls)).unwrap(), connection);
                std::thread::spawn(move || serve(asking, &behind, wanted.as_deref(), &kept));
            }
        });
        Self { url, heads }
    }

    fn heads(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().unwrap())
    }
}

/// One request, passed on or refused. Either side may hang up whenever it likes.
fn serve(
    mut asking: StreamOwned<ServerConnection, TcpStream>,
    behind: &str,
    wanted: Option<&str>,
    kept: &Mutex<Vec<String>>,
) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        asking.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    kept.lock().unwrap().push(head.clone());
    let path = head.split(' ').nth(1).unwrap();
    let answer = if path.starts_with("/api/") && wanted.is_some_and(|wanted| !head.contains(wanted)) {
        let body = r#"{"error":{"code":"unauthorized","text":"this needs the admin token"}}"#;
        let length = body.len();
        format!("HTTP/1.1 401 \r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").into_bytes()
    } else {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        asking.read_exact(&mut body).ok()?;
        let name = head.lines().find(|line| line.starts_with("host: ")).unwrap();
        let head = head.replacen(name, &format!("host: {behind}\r\nconnection: close"), 1);
        let mut gateway = TcpStream::connect(behind).unwrap();
        gateway.write_all(&[head.as_bytes(), &body].concat()).ok()?;
        let mut answer = Vec::new();
        gateway.read_to_end(&mut answer).ok()?;
        answer
    };
    asking.write_all(&answer).ok()?;
    asking.conn.send_close_notify();
    asking.flush().ok()
}

struct Scene {
    sandbox: Sandbox,
    _gateway: Serving,
    there: Elsewhere,
    token: String,
}

impl Scene {
    fn of(config: &str) -> Self {
        Self::before(config, true)
    }

    /// A gateway elsewhere, which lets others read if it does not ask for the token.
    fn before(config: &str, asks: bool) -> Self {
        let papers = papers("0.0.0.0");
        let sandbox = Sandbox::empty().file("there.toml", config).file("cert.pem", &papers.0);
        let gateway = Serving::start(&sandbox, &["--config", "there.toml", "--state-dir", "there"]);
        let token = std::fs::read_to_string(sandbox.path("there/admin.token")).unwrap().trim().to_owned();
        let there = Elsewhere::before(&gateway, asks.then_some(token.as_str()), &papers);
        Self { sandbox, _gateway: gateway, there, token }
    }

    /// Waits for what `demo` offers.
    fn until_listed(&self, variables: &[(&str, &str)]) {
        let listed = || self.ask(&["tools"], variables).stdout.contains("demo    echo").then_some(());
        until("its server is listed", listed);
    }

    fn ask(&self, words: &[&str], variables: &[(&str, &str)]) -> Ran {
        let variables = [variables, &[("GRIPFAST_CA", "cert.pem")]].concat();
        self.sandbox.run_with(&[words, &["--url", &self.there.url]].concat(), &variables)
    }
}

#[test]
fn a_gateway_elsewhere_is_looked_at_and_operated_by_who_has_its_token() {
    let scene = Scene::of(&stdio("demo", &[]));
    let token = [("GRIPFAST_TOKEN", scene.token.as_str())];
    scene.until_listed(&token);
    for words in [
        &["status"][..],
        &["status", "demo"],
        &["tools"],
        &["calls"],
        &["events"],
        &["logs", "demo"],
        &["pins", "ls"],
        &["doctor"],
        &["reconnect", "demo"],
    ] {
        let ran = scene.ask(words, &token);
        assert_eq!(ran.code, Some(0), "{words:?}: {ran}");
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains(&scene.token), "{ran}");
    }
}

#[test]
fn a_gateway_elsewhere_says_what_it_wants() {
    let scene = Scene::of(&stdio("demo", &[]));
    for verb in ["status", "tools", "calls", "events", "doctor"] {
        let ran = scene.ask(&[verb], &[]);
        assert!(ran.code == Some(6) && ran.stderr.contains("$GRIPFAST_TOKEN is not set"), "{verb}: {ran}");
    }
    assert_snapshot!(scene.ask(&["stop", "demo"], &[]), @"
    exit 6
    --- stderr
    error: the gateway at https://0.0.0.0:[PORT] wants its admin token: $GRIPFAST_TOKEN is not set
      hint: $GRIPFAST_TOKEN has to hold it; it is in `admin.token` of the gateway's state directory
    ");
    assert_snapshot!(scene.ask(&["status"], &[("GRIPFAST_TOKEN", "another")]), @"
    exit 6
    --- stderr
    error: the gateway at https://0.0.0.0:[PORT] has another admin token than $GRIPFAST_TOKEN
      hint: $GRIPFAST_TOKEN has to hold that of this gateway
    ");
}

#[test]
fn g05_the_token_is_sent_only_when_it_is_asked_for() {
    let scene = Scene::before(&stdio("demo", &[]), false);
    let token = [("GRIPFAST_TOKEN", scene.token.as_str())];
    let shown = |words: &[&str]| {
        let ran = scene.ask(words, &token);
        assert_eq!(ran.code, Some(0), "{words:?}: {ran}");
        scene.there.heads().iter().filter(|head| head.contains(&scene.token)).count()
    };
    assert_eq!(shown(&["status"]), 0, "reading is open there");
    assert_eq!(shown(&["stop", "demo"]), 1);
}

#[test]
fn g05_the_token_of_a_state_directory_is_sent_to_no_other_machine() {
    let scene = Scene::of(&stdio("demo", &[]));
    for words in [&["status"][..], &["stop", "demo"], &["calls"], &["pins", "approve", "demo"]] {
        let ran = scene.ask(&[words, &["--state-dir", "there"]].concat(), &[]);
        assert_eq!(ran.code, Some(6), "{words:?}: {ran}");
    }
    let heads = scene.there.heads();
    assert!(!heads.is_empty() && !heads.iter().any(|head| head.contains(&scene.token)), "{heads:?}");
}

#[test]
fn a_client_with_a_key_needs_no_token_to_call_tools() {
    let config = format!(
        "[gateway]\nauth = {{ keys = true }}\n{}[clients.laptop]\ntools = {{ deny = ['*/crash'] }}\n",
        stdio("demo", &[])
    );
    let scene = Scene::of(&config);
    let key = scene.sandbox.run(&["keys", "add", "laptop", "--state-dir", "there"]).stdout;
    let key = ("GRIPFAST_KEY", key.trim());
    scene.until_listed(&[key]);
    let listed = scene.ask(&["tools", "demo"], &[key]);
    assert!(listed.code == Some(0) && listed.stdout.contains("demo    echo"), "{listed}");
    assert!(!listed.stdout.contains("crash"), "{listed}");
    let called = scene.ask(&["call", "demo", "add", r#"{"a":1,"b":2}"#], &[key]);
    assert_eq!((called.code, called.stdout.as_str()), (Some(0), "3\n"), "{called}");
    assert_snapshot!(scene.ask(&["tools", "other"], &[key]), @"
    exit 1
    --- stderr
    error: the gateway at https://0.0.0.0:[PORT] shows this client no tool of a server `other`
      hint: `gripfast tools` lists those that it shows
    ");
    assert_snapshot!(scene.ask(&["call", "demo", "crash"], &[key]), @"
    exit 1
    --- stderr
    error: upstream `demo` has no tool named `crash`
      hint: `gripfast tools demo` lists its tools
    ");
    let token = ("GRIPFAST_TOKEN", scene.token.as_str());
    assert_snapshot!(scene.ask(&["call", "demo", "crash"], &[key, token]), @"
    exit 6
    --- stderr
    error: tool `crash` of upstream `demo` may not be called: denied by `*/crash` in clients.laptop.tools.deny
      hint: `gripfast policy test laptop demo crash` explains it
    ");
}

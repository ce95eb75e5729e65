//! Gateway on another machine: the credentials that the command line sends to it.

use crate::gateway_process::GatewayProcess;
use crate::sandbox::{CommandOutput, Sandbox, stdio};
use crate::tls::certificate_and_key;
use gripfast_testkit::wait::until_some;
use insta::assert_snapshot;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Proxy that makes a gateway look remote: it uses https, and its admin API requires the token from every client. It
/// records the heads of all requests. Its address leads to this machine and is not a loopback address.
struct RemoteProxy {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl RemoteProxy {
    fn before(gateway: &GatewayProcess, token: Option<&str>, (cert, key): &(String, String)) -> Self {
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

/// Forwards or refuses one request. Either side may disconnect at any time.
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

struct RemoteGateway {
    sandbox: Sandbox,
    _gateway: GatewayProcess,
    there: RemoteProxy,
    token: String,
}

impl RemoteGateway {
    fn of(config: &str) -> Self {
        Self::before(config, true)
    }

    /// Starts a remote gateway. If `asks` is false, reads need no token.
    fn before(config: &str, asks: bool) -> Self {
        let certificate_and_key = certificate_and_key("0.0.0.0");
        let sandbox = Sandbox::empty().file("there.toml", config).file("cert.pem", &certificate_and_key.0);
        let gateway = GatewayProcess::start(&sandbox, &["--config", "there.toml", "--state-dir", "there"]);
        let token = std::fs::read_to_string(sandbox.path("there/admin.token")).unwrap().trim().to_owned();
        let there = RemoteProxy::before(&gateway, asks.then_some(token.as_str()), &certificate_and_key);
        Self { sandbox, _gateway: gateway, there, token }
    }

    /// Waits until `demo` is listed.
    fn until_listed(&self, variables: &[(&str, &str)]) {
        let listed = || self.ask(&["tools"], variables).stdout.contains("demo    echo").then_some(());
        until_some("its server is listed", listed);
    }

    fn ask(&self, words: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
        let variables = [variables, &[("GRIPFAST_CA", "cert.pem")]].concat();
        self.sandbox.run_with(&[words, &["--url", &self.there.url]].concat(), &variables)
    }
}

#[test]
fn a_remote_gateway_is_read_and_operated_with_its_token() {
    let remote = RemoteGateway::of(&stdio("demo", &[]));
    let token = [("GRIPFAST_TOKEN", remote.token.as_str())];
    remote.until_listed(&token);
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
        let ran = remote.ask(words, &token);
        assert_eq!(ran.code, Some(0), "{words:?}: {ran}");
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains(&remote.token), "{ran}");
    }
}

#[test]
fn a_remote_gateway_says_which_credential_it_needs() {
    let remote = RemoteGateway::of(&stdio("demo", &[]));
    for verb in ["status", "tools", "calls", "events", "doctor"] {
        let ran = remote.ask(&[verb], &[]);
        assert!(ran.code == Some(6) && ran.stderr.contains("$GRIPFAST_TOKEN is not set"), "{verb}: {ran}");
    }
    assert_snapshot!(remote.ask(&["stop", "demo"], &[]), @"
    exit 6
    --- stderr
    error: the gateway at https://0.0.0.0:[PORT] needs its admin token: $GRIPFAST_TOKEN is not set
      hint: set $GRIPFAST_TOKEN to the content of `admin.token` in the gateway's state directory
    ");
    assert_snapshot!(remote.ask(&["status"], &[("GRIPFAST_TOKEN", "another")]), @"
    exit 6
    --- stderr
    error: the gateway at https://0.0.0.0:[PORT] refused the admin token in $GRIPFAST_TOKEN
      hint: set $GRIPFAST_TOKEN to the admin token of this gateway
    ");
}

#[test]
fn g05_the_token_is_sent_only_when_the_gateway_asks_for_it() {
    let remote = RemoteGateway::before(&stdio("demo", &[]), false);
    let token = [("GRIPFAST_TOKEN", remote.token.as_str())];
    let shown = |words: &[&str]| {
        let ran = remote.ask(words, &token);
        assert_eq!(ran.code, Some(0), "{words:?}: {ran}");
        remote.there.heads().iter().filter(|head| head.contains(&remote.token)).count()
    };
    assert_eq!(shown(&["status"]), 0, "reading is open there");
    assert_eq!(shown(&["stop", "demo"]), 1);
}

#[test]
fn g05_the_token_of_a_state_directory_is_sent_to_no_other_machine() {
    let remote = RemoteGateway::of(&stdio("demo", &[]));
    for words in [&["status"][..], &["stop", "demo"], &["calls"], &["pins", "approve", "demo"]] {
        let ran = remote.ask(&[words, &["--state-dir", "there"]].concat(), &[]);
        assert_eq!(ran.code, Some(6), "{words:?}: {ran}");
    }
    let heads = remote.there.heads();
    assert!(!heads.is_empty() && !heads.iter().any(|head| head.contains(&remote.token)), "{heads:?}");
}

#[test]
fn a_client_with_a_key_needs_no_token_to_call_tools() {
    let config = format!(
        "[gateway]\nauth = {{ keys = true }}\n{}[clients.laptop]\ntools = {{ deny = ['*/crash'] }}\n",
        stdio("demo", &[])
    );
    let remote = RemoteGateway::of(&config);
    let key = remote.sandbox.run(&["keys", "add", "laptop", "--state-dir", "there"]).stdout;
    let key = ("GRIPFAST_KEY", key.trim());
    remote.until_listed(&[key]);
    let listed = remote.ask(&["tools", "demo"], &[key]);
    assert!(listed.code == Some(0) && listed.stdout.contains("demo    echo"), "{listed}");
    assert!(!listed.stdout.contains("crash"), "{listed}");
    let called = remote.ask(&["call", "demo", "add", r#"{"a":1,"b":2}"#], &[key]);
    assert_eq!((called.code, called.stdout.as_str()), (Some(0), "3\n"), "{called}");
    assert_snapshot!(remote.ask(&["tools", "other"], &[key]), @"
    exit 1
    --- stderr
    error: the gateway at https://0.0.0.0:[PORT] offers this client no tool of a server `other`
      hint: `gripfast tools` lists all that it offers
    ");
    assert_snapshot!(remote.ask(&["call", "demo", "crash"], &[key]), @"
    exit 1
    --- stderr
    error: server `demo` has no tool named `crash`
      hint: `gripfast tools demo` lists its tools
    ");
    let token = ("GRIPFAST_TOKEN", remote.token.as_str());
    assert_snapshot!(remote.ask(&["call", "demo", "crash"], &[key, token]), @"
    exit 6
    --- stderr
    error: tool `crash` of server `demo` may not be called: denied by `*/crash` in clients.laptop.tools.deny
      hint: `gripfast policy test laptop demo crash` explains the decision
    ");
}

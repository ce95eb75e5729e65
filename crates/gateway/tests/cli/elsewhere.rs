//! A gateway on another machine, as the command line finds it: what it is shown, and what it is not.

use crate::sandbox::{Ran, Sandbox, stdio};
use crate::serving::{Serving, until};
use insta::assert_snapshot;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Stands before a gateway and treats those who ask as one would whose machine they are not on: its admin API is for who
/// shows the token. Keeps what it was sent.
struct Elsewhere {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Elsewhere {
    fn before(gateway: &Serving, token: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let behind = gateway.url.replace("http://", "");
        let (heads, wanted) =
            (Arc::<Mutex<Vec<String>>>::default(), token.map(|token| format!("Bearer {token}")));
        let kept = Arc::clone(&heads);
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (behind, wanted, kept) = (behind.clone(), wanted.clone(), Arc::clone(&kept));
                std::thread::spawn(move || serve(connection, &behind, wanted.as_deref(), &kept));
            }
        });
        Self { url, heads }
    }

    fn heads(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().unwrap())
    }
}

/// One request, passed on byte for byte or refused. Either side may hang up whenever it likes.
fn serve(mut asking: TcpStream, behind: &str, wanted: Option<&str>, kept: &Mutex<Vec<String>>) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        asking.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    kept.lock().unwrap().push(head.clone());
    let path = head.split(' ').nth(1).unwrap();
    if path.starts_with("/api/") && wanted.is_some_and(|wanted| !head.contains(wanted)) {
        let body = r#"{"error":{"code":"unauthorized","text":"this needs the admin token","hint":"the token is in `/there/admin.token`"}}"#;
        let length = body.len();
        write!(asking, "HTTP/1.1 401 \r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
            .ok()?;
        return None;
    }
    let mut gateway = TcpStream::connect(behind).unwrap();
    gateway.write_all(head.replacen("\r\n", "\r\nconnection: close\r\n", 1).as_bytes()).ok()?;
    let (mut up, mut from) = (gateway.try_clone().unwrap(), asking.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut from, &mut up));
    std::io::copy(&mut gateway, &mut asking).ok()?;
    asking.shutdown(Shutdown::Both).ok()
}

struct Scene {
    sandbox: Sandbox,
    _gateway: Serving,
    there: Elsewhere,
    token: String,
}

impl Scene {
    fn of(config: &str) -> Self {
        let sandbox = Sandbox::empty().file("there.toml", config);
        let gateway = Serving::start(&sandbox, &["--config", "there.toml", "--state-dir", "there"]);
        let token = std::fs::read_to_string(sandbox.path("there/admin.token")).unwrap().trim().to_owned();
        let there = Elsewhere::before(&gateway, Some(&token));
        Self { sandbox, _gateway: gateway, there, token }
    }

    /// Waits for what `demo` offers.
    fn until_listed(&self, variables: &[(&str, &str)]) {
        let listed = || self.ask(&["tools"], variables).stdout.contains("demo    echo").then_some(());
        until("its server is listed", listed);
    }

    fn ask(&self, words: &[&str], variables: &[(&str, &str)]) -> Ran {
        self.sandbox.run_with(&[words, &["--url", &self.there.url]].concat(), variables)
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
        assert!(
            ran.code == Some(6) && ran.stderr.contains("$GRIPFAST_TOKEN holds the token"),
            "{verb}: {ran}"
        );
    }
    assert_snapshot!(scene.ask(&["status"], &[]), @"
    exit 6
    --- stderr
    error: the gateway at http://127.0.0.1:[PORT] wants its admin token; looked for it in `[DIR]/home/.local/state/gripfast/admin.token`: No such file or directory (os error 2)
      hint: the token is in `/there/admin.token`; `--state-dir` names its directory, $GRIPFAST_TOKEN holds the token itself
    ");
    assert_snapshot!(scene.ask(&["status"], &[("GRIPFAST_TOKEN", "another")]), @"
    exit 6
    --- stderr
    error: the gateway at http://127.0.0.1:[PORT] has another admin token than $GRIPFAST_TOKEN
      hint: the token is in `/there/admin.token`; `--state-dir` names its directory, $GRIPFAST_TOKEN holds the token itself
    ");
}

#[test]
fn the_token_is_shown_only_where_it_is_asked_for() {
    let sandbox = Sandbox::with_demo(&[]);
    let gateway = Serving::start(&sandbox, &["--state-dir", "state"]);
    let token = std::fs::read_to_string(sandbox.path("state/admin.token")).unwrap();
    let open = Elsewhere::before(&gateway, None);
    let shown = |heads: Vec<String>| heads.iter().filter(|head| head.contains(token.trim())).count();
    let run = |words: &[&str]| {
        let words = [words, &["--url", &open.url, "--state-dir", "state"]].concat();
        assert_eq!(sandbox.run(&words).code, Some(0), "{words:?}");
        open.heads()
    };
    assert_eq!(shown(run(&["status"])), 0, "reading is open there");
    assert_eq!(shown(run(&["stop", "demo"])), 1);
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
    error: the gateway at http://127.0.0.1:[PORT] shows this client no tool of a server `other`
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

//! Logins with `gripfast login` and running gateways, against an authorization server that revokes a login whose
//! refresh token is used twice.

#![expect(clippy::unwrap_used, reason = "tests")]

mod admin_api;
mod device_flow;
#[cfg(target_os = "linux")]
mod keyring;
#[cfg(target_os = "linux")]
mod replicas;

use gripfast_testkit::authority::{Authority, AuthorityOptions, complete_authorization};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");
const STUCK: Duration = Duration::from_secs(60);

/// State directory and a config with the server `notes`.
struct Workspace {
    dir: TempDir,
    /// Directory of the fake `secret-tool`, if the test has a keyring.
    keyring: Option<TempDir>,
    /// Further environment variables of its processes.
    env: Vec<(String, String)>,
}

/// Fake `secret-tool` with the commands that gripfast uses. If the file `locked` exists, lookups print nothing, as in
/// the real one.
#[cfg(unix)]
const KEYRING: &str = r#"#!/bin/sh
here=$(dirname "$0")
locked() { [ -e "$here/locked" ]; }
case "$1 $*" in
    "lookup "*) locked && exit 1 ;;
    "store "*) locked && { echo "secret-tool: Cannot create an item in a locked collection" >&2; exit 1; } ;;
esac
case "$1 $*" in
    "search search application gripfast kind logins") if [ -e "$here/secret" ]; then echo "[/1]"; fi ;;
    "lookup lookup application gripfast kind logins") cat "$here/secret" 2>/dev/null ;;
    "store store --label "*" application gripfast kind logins") cat > "$here/secret" ;;
    *) echo "secret-tool: what is $*?" >&2; exit 2 ;;
esac
"#;

/// A running gateway. Dropping it ends it.
struct Gateway {
    child: Child,
    url: String,
}

impl Workspace {
    fn with(authority: &Authority) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = format!("[servers.notes]\nurl = {:?}\ntransport = \"http\"\n", authority.mcp_url());
        std::fs::write(dir.path().join("gripfast.toml"), config).unwrap();
        Self { dir, keyring: None, env: Vec::new() }
    }

    fn gripfast(&self, args: &[&str]) -> Command {
        let mut command = Command::new(GRIPFAST);
        command.args(args).arg("--state-dir").arg(self.dir.path()).stdin(Stdio::null());
        command.current_dir(self.dir.path()).env("GRIPFAST_LOG", "trace");
        command.env("GRIPFAST_CONFIG", "gripfast.toml");
        if let Some(keyring) = &self.keyring {
            let path = std::env::var("PATH").unwrap();
            command.env("PATH", format!("{}:{path}", keyring.path().display()));
        }
        command.envs(self.env.iter().cloned());
        command
    }

    /// Adds a fake keyring program that keeps one secret in a file.
    #[cfg(unix)]
    fn with_keyring(authority: &Authority) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let mut workspace = Self::with(authority);
        workspace.seal_by_keyring();
        let keyring = tempfile::tempdir().unwrap();
        let program = keyring.path().join("secret-tool");
        std::fs::write(&program, KEYRING).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        workspace.keyring = Some(keyring);
        workspace
    }

    /// Has logins sealed with a key in the keyring.
    fn seal_by_keyring(&self) {
        let config = self.dir.path().join("gripfast.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("[gateway]\nlogin_key = \"keyring\"\n{text}")).unwrap();
    }

    fn serve(&self) -> Gateway {
        let mut command = self.gripfast(&["serve", "--listen", "127.0.0.1:0"]);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log()).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut hello = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut hello).unwrap();
        let url = hello.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
        Gateway { child, url: url.trim_end_matches("/mcp").to_owned() }
    }

    fn log(&self) -> std::path::PathBuf {
        self.dir.path().join("serve.log")
    }

    /// Logs in, and returns what was said.
    async fn log_in(&self) -> String {
        let mut command = self.gripfast(&["login", "notes", "--no-browser"]);
        let mut login = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(login.stdout.take().unwrap()).read_line(&mut url).unwrap();
        complete_authorization(url.trim()).await;
        let mut said = String::new();
        login.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(login.wait().unwrap().success(), "{said}");
        said
    }

    fn call(&self, gateway: &Gateway) -> Output {
        self.gripfast(&["call", "notes", "whoami", "--url", &gateway.url]).output().unwrap()
    }

    fn status(&self, gateway: &Gateway) -> String {
        let output =
            self.gripfast(&["status", "notes", "-o", "json", "--url", &gateway.url]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn until_state(&self, gateway: &Gateway, state: &str) {
        self.until_said(gateway, &format!("\"state\":\"{state}\""));
    }

    /// Waits until its status says this.
    fn until_said(&self, gateway: &Gateway, wanted: &str) {
        let deadline = Instant::now() + STUCK;
        loop {
            let status = self.status(gateway).replace("\": ", "\":");
            if status.contains(wanted) {
                return;
            }
            assert!(Instant::now() < deadline, "it never said {wanted}: {status}");
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// E01, E02
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e01_two_gateways_with_one_login_never_spend_a_token_twice() {
    let authority = Authority::start(AuthorityOptions::default()).await;
    let workspace = Workspace::with(&authority);
    workspace.log_in().await;
    let gateways = [workspace.serve(), workspace.serve()];
    gateways.iter().for_each(|gateway| workspace.until_state(gateway, "ready"));
    for round in 1..=3 {
        authority.expire_access_tokens();
        std::thread::scope(|scope| {
            let calls = gateways.iter().map(|gateway| scope.spawn(|| workspace.call(gateway)));
            for call in calls.collect::<Vec<_>>() {
                let output = call.join().unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            }
        });
        let counts = authority.counts();
        assert_eq!((counts.refreshes, counts.reuse_detected), (round, 0));
    }
}

/// E03
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e03_a_server_that_needs_a_login_revives_after_it_and_shows_no_secret() {
    let authority = Authority::start(AuthorityOptions::default()).await;
    let workspace = Workspace::with(&authority);
    let gateway = workspace.serve();
    workspace.until_state(&gateway, "needs_login");
    let refused = workspace.call(&gateway);
    assert_eq!(refused.status.code(), Some(3));
    let hint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(hint.contains("gripfast login notes"), "{hint}");
    let mut seen = workspace.log_in().await;
    workspace.until_state(&gateway, "ready");
    authority.fail_refreshes(2);
    authority.expire_access_tokens();
    let called = workspace.call(&gateway);
    assert!(called.status.success(), "{}", String::from_utf8_lossy(&called.stderr));
    let mut secrets = authority.secrets();
    authority.revoke_logins();
    let ended = workspace.call(&gateway);
    assert_eq!(ended.status.code(), Some(3), "{}", String::from_utf8_lossy(&ended.stderr));
    seen += &workspace.status(&gateway);
    let doctor = workspace.gripfast(&["doctor", "--url", &gateway.url]).output().unwrap();
    let told = String::from_utf8_lossy(&doctor.stdout);
    assert!(told.starts_with("✗ notes  the login has ended: "), "{told}");
    assert!(told.contains("do: run `gripfast login notes`, or set a token in its `headers`"), "{told}");
    for said in [&refused, &called, &ended, &doctor] {
        seen += &String::from_utf8_lossy(&said.stdout);
        seen += &String::from_utf8_lossy(&said.stderr);
    }
    drop(gateway);
    let log = std::fs::read_to_string(workspace.log()).unwrap();
    assert!(log.contains("notes"), "it is logged at all: {log}");
    seen += &log;
    secrets.extend(authority.secrets());
    for secret in secrets {
        assert!(!seen.contains(&secret), "{secret} can be seen");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_logout_is_reported_and_the_next_gateway_needs_a_login() {
    let authority = Authority::start(AuthorityOptions::default()).await;
    let workspace = Workspace::with(&authority);
    workspace.log_in().await;
    let said = |args: &[&str]| {
        let output = workspace.gripfast(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = said(&["logout", "notes"]);
    assert!(code == Some(0) && text.contains("logged out of `notes`"), "{text}");
    let (code, text) = said(&["logout", "notes"]);
    assert!(code == Some(0) && text.contains("not logged in to `notes`"), "{text}");
    let (code, _) = said(&["tools", "notes", "--config", "gripfast.toml"]);
    assert_eq!(code, Some(3));
}

/// E04
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e04_a_login_sealed_with_a_key_in_the_keyring_waits_for_the_keyring() {
    let authority = Authority::start(AuthorityOptions::default()).await;
    let workspace = Workspace::with_keyring(&authority);
    workspace.log_in().await;
    let keyring = workspace.keyring.as_ref().unwrap().path();
    assert!(keyring.join("secret").exists() && !workspace.dir.path().join("logins/key").exists());
    let gateways = [workspace.serve(), workspace.serve()];
    gateways.iter().for_each(|gateway| workspace.until_state(gateway, "ready"));
    drop(gateways);
    std::fs::write(keyring.join("locked"), "").unwrap();
    let gateway = workspace.serve();
    workspace.until_said(&gateway, "the keyring is locked");
    std::fs::remove_file(keyring.join("locked")).unwrap();
    workspace.until_state(&gateway, "ready");
    assert_eq!(authority.counts().reuse_detected, 0);
    let secret = std::fs::read_to_string(keyring.join("secret")).unwrap();
    assert!(!std::fs::read_to_string(workspace.log()).unwrap().contains(&secret), "the key can be seen");
}

/// E04: a line that is no address costs no login.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e04_an_invalid_paste_is_asked_for_again() {
    let authority = Authority::start(AuthorityOptions::default()).await;
    let workspace = Workspace::with(&authority);
    let mut command = workspace.gripfast(&["login", "notes", "--no-browser"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut login = command.spawn().unwrap();
    let mut url = String::new();
    BufReader::new(login.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let came_back_to = gripfast_testkit::authority::authorize_in_browser(url.trim()).await;
    let mut stdin = login.stdin.take().unwrap();
    writeln!(stdin, "\nyes, I have agreed\n{}\n{came_back_to}", url.trim()).unwrap();
    drop(stdin);
    let mut said = String::new();
    login.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(login.wait().unwrap().success(), "{said}");
    assert_eq!(said.matches("this is not the return address").count(), 2, "{said}");
}

/// E03: a logout is noticed by a gateway that runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e03_a_running_gateway_serves_no_client_after_a_logout() {
    let authority = Authority::start(AuthorityOptions::default()).await;
    authority.set_metadata("revocation_endpoint", format!("{}/revoke", authority.issuer()).into());
    let workspace = Workspace::with(&authority);
    workspace.log_in().await;
    let gateway = workspace.serve();
    assert!(workspace.call(&gateway).status.success());
    let out = workspace.gripfast(&["logout", "notes"]).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success() && said.contains("and revoked its tokens"), "{said}");
    let calls = authority.counts().calls;
    let deadline = Instant::now() + STUCK;
    while workspace.call(&gateway).status.success() {
        assert!(Instant::now() < deadline, "it goes on");
    }
    workspace.until_state(&gateway, "needs_login");
    assert_eq!(authority.counts().calls, calls);
}

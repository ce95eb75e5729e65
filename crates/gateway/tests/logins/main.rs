//! Logins as people have them: `gripfast login` in one terminal, gateways in others, and an authorization server that
//! takes whoever shows a refresh token twice for a thief.

#![expect(clippy::unwrap_used, reason = "tests")]

mod device;
#[cfg(target_os = "linux")]
mod keyring;
mod page;

use gripfast_testkit::authority::{Authority, Manners, visit_and_return};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");
const STUCK: Duration = Duration::from_secs(60);

/// A state directory and a config with one server.
struct Desk {
    dir: TempDir,
    /// Where the program is that asks the keyring, if there is one.
    keyring: Option<TempDir>,
    /// What else its programs find in their environment.
    env: Vec<(String, String)>,
}

/// What `secret-tool` does as far as we ask it; locked, if somebody locks it. Then it says nothing, as the real one.
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

impl Desk {
    fn with(authority: &Authority) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = format!("[servers.notes]\nurl = {:?}\ntransport = \"http\"\n", authority.mcp());
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

    /// Where the system has a keyring: a program that keeps one secret, in a file.
    #[cfg(unix)]
    fn with_keyring(authority: &Authority) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let mut desk = Self::with(authority);
        desk.seal_by_keyring();
        let keyring = tempfile::tempdir().unwrap();
        let program = keyring.path().join("secret-tool");
        std::fs::write(&program, KEYRING).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        desk.keyring = Some(keyring);
        desk
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
        visit_and_return(url.trim()).await;
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
    let authority = Authority::start(Manners::default()).await;
    let desk = Desk::with(&authority);
    desk.log_in().await;
    let gateways = [desk.serve(), desk.serve()];
    gateways.iter().for_each(|gateway| desk.until_state(gateway, "ready"));
    for round in 1..=3 {
        authority.end_tokens();
        std::thread::scope(|scope| {
            let calls = gateways.iter().map(|gateway| scope.spawn(|| desk.call(gateway)));
            for call in calls.collect::<Vec<_>>() {
                let output = call.join().unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            }
        });
        let counts = authority.counts();
        assert_eq!((counts.refreshes, counts.thefts), (round, 0));
    }
}

/// E03
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e03_a_gateway_says_that_it_needs_a_login_revives_after_one_and_shows_no_secret_on_the_way() {
    let authority = Authority::start(Manners::default()).await;
    let desk = Desk::with(&authority);
    let gateway = desk.serve();
    desk.until_state(&gateway, "needs_login");
    let refused = desk.call(&gateway);
    assert_eq!(refused.status.code(), Some(3));
    let hint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(hint.contains("gripfast login notes"), "{hint}");
    let mut seen = desk.log_in().await;
    desk.until_state(&gateway, "ready");
    authority.fail_refreshes(2);
    authority.end_tokens();
    let called = desk.call(&gateway);
    assert!(called.status.success(), "{}", String::from_utf8_lossy(&called.stderr));
    let mut secrets = authority.secrets();
    authority.end_logins();
    let ended = desk.call(&gateway);
    assert_eq!(ended.status.code(), Some(3), "{}", String::from_utf8_lossy(&ended.stderr));
    seen += &desk.status(&gateway);
    let doctor = desk.gripfast(&["doctor", "--url", &gateway.url]).output().unwrap();
    let told = String::from_utf8_lossy(&doctor.stdout);
    assert!(told.starts_with("✗ notes  the login has ended: "), "{told}");
    assert!(told.contains("do: run `gripfast login notes`, or write a token into its `headers`"), "{told}");
    for said in [&refused, &called, &ended, &doctor] {
        seen += &String::from_utf8_lossy(&said.stdout);
        seen += &String::from_utf8_lossy(&said.stderr);
    }
    drop(gateway);
    let log = std::fs::read_to_string(desk.log()).unwrap();
    assert!(log.contains("notes"), "it is logged at all: {log}");
    seen += &log;
    secrets.extend(authority.secrets());
    for secret in secrets {
        assert!(!seen.contains(&secret), "{secret} can be seen");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_logout_is_said_and_whoever_starts_next_needs_a_login() {
    let authority = Authority::start(Manners::default()).await;
    let desk = Desk::with(&authority);
    desk.log_in().await;
    let said = |args: &[&str]| {
        let output = desk.gripfast(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = said(&["logout", "notes"]);
    assert!(code == Some(0) && text.contains("logged out of `notes`"), "{text}");
    let (code, text) = said(&["logout", "notes"]);
    assert!(code == Some(0) && text.contains("nobody was logged in to `notes`"), "{text}");
    let (code, _) = said(&["tools", "notes", "--config", "gripfast.toml"]);
    assert_eq!(code, Some(3));
}

/// E04
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e04_a_login_that_is_sealed_with_a_key_in_the_keyring_needs_the_keyring_and_waits_for_it() {
    let authority = Authority::start(Manners::default()).await;
    let desk = Desk::with_keyring(&authority);
    desk.log_in().await;
    let keyring = desk.keyring.as_ref().unwrap().path();
    assert!(keyring.join("secret").exists() && !desk.dir.path().join("logins/key").exists());
    let gateways = [desk.serve(), desk.serve()];
    gateways.iter().for_each(|gateway| desk.until_state(gateway, "ready"));
    drop(gateways);
    std::fs::write(keyring.join("locked"), "").unwrap();
    let gateway = desk.serve();
    desk.until_said(&gateway, "the keyring is locked");
    std::fs::remove_file(keyring.join("locked")).unwrap();
    desk.until_state(&gateway, "ready");
    assert_eq!(authority.counts().thefts, 0);
    let secret = std::fs::read_to_string(keyring.join("secret")).unwrap();
    assert!(!std::fs::read_to_string(desk.log()).unwrap().contains(&secret), "the key can be seen");
}

/// E04: a line that is no address costs no login.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e04_whoever_pastes_something_else_is_asked_again() {
    let authority = Authority::start(Manners::default()).await;
    let desk = Desk::with(&authority);
    let mut command = desk.gripfast(&["login", "notes", "--no-browser"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut login = command.spawn().unwrap();
    let mut url = String::new();
    BufReader::new(login.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let came_back_to = gripfast_testkit::authority::visit(url.trim()).await;
    let mut stdin = login.stdin.take().unwrap();
    writeln!(stdin, "\nyes, I have agreed\n{}\n{came_back_to}", url.trim()).unwrap();
    drop(stdin);
    let mut said = String::new();
    login.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(login.wait().unwrap().success(), "{said}");
    assert_eq!(said.matches("that is not the address").count(), 2, "{said}");
}

/// E03: a logout is noticed by a gateway that runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e03_a_gateway_that_runs_serves_nobody_after_a_logout() {
    let authority = Authority::start(Manners::default()).await;
    authority.say_in_metadata("revocation_endpoint", format!("{}/revoke", authority.issuer()).into());
    let desk = Desk::with(&authority);
    desk.log_in().await;
    let gateway = desk.serve();
    assert!(desk.call(&gateway).status.success());
    let out = desk.gripfast(&["logout", "notes"]).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success() && said.contains("its tokens are revoked"), "{said}");
    let calls = authority.counts().calls;
    let deadline = Instant::now() + STUCK;
    while desk.call(&gateway).status.success() {
        assert!(Instant::now() < deadline, "it goes on");
    }
    desk.until_state(&gateway, "needs_login");
    assert_eq!(authority.counts().calls, calls);
}

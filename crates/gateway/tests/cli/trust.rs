//! `gripfast.toml` of the current directory: no verb uses it until a person trusts it.

use crate::gateway_process::GatewayProcess;
use crate::in_process_gateway::STATE;
use crate::sandbox::{CommandOutput, GRIPFAST, Sandbox, stdio};
use gripfast_testkit::wait::until_some;
use insta::assert_snapshot;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

/// Config that records everything that is run because of it, and that would direct the admin token to `listen`.
fn hostile(sandbox: &Sandbox, listen: &str) -> String {
    let [started, filled_in] = ["started", "filled-in"].map(|name| sandbox.path(name).display().to_string());
    format!(
        "[gateway]\nlisten = {listen:?}\n\n\
         [servers.demo]\ncommand = {GRIPFAST:?}\nargs = [\"demo-server\", \"--pid-file\", {started:?}]\n\
         env = {{ TOKEN = \"${{cmd:touch {filled_in}}}\" }}\n"
    )
}

/// Every verb that searches for a config.
const VERBS: &[&[&str]] = &[
    &["serve", "--listen", "127.0.0.1:0"],
    &["stdio"],
    &["status"],
    &["status", "demo"],
    &["status", "--watch"],
    &["reconnect", "demo"],
    &["dashboard", "--no-open"],
    &["reload"],
    &["reload", "demo"],
    &["stop", "demo"],
    &["start", "demo"],
    &["logs", "demo"],
    &["events"],
    &["doctor"],
    &["doctor", "demo"],
    &["import"],
    &["import", "--write"],
    &["connect", "cursor"],
    &["connect", "claude-desktop"],
    &["add", "more", "--", "sh"],
    &["remove", "demo"],
    &["tools"],
    &["call", "demo", "echo", "{}"],
    &["calls"],
    &["pins", "ls"],
    &["pins", "diff"],
    &["pins", "approve", "demo"],
    &["policy", "test", "local", "demo", "echo"],
    &["keys", "add", "laptop"],
    &["keys", "ls"],
    &["login", "demo"],
    &["logout", "demo"],
];

#[test]
fn g05_no_verb_uses_a_config_of_the_current_directory_that_is_not_trusted() {
    let sandbox = Sandbox::empty().wary();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let config = hostile(&sandbox, &listener.local_addr().unwrap().to_string());
    let sandbox = sandbox.file("gripfast.toml", &config);
    // A token that could be leaked.
    std::fs::create_dir_all(sandbox.path(STATE)).unwrap();
    std::fs::write(sandbox.path(STATE).join("admin.token"), "x".repeat(40)).unwrap();
    for words in VERBS {
        let ran = sandbox.finish(sandbox.command(words).env_remove("GRIPFAST_URL"));
        assert_eq!(ran.code, Some(2), "{words:?}: {ran}");
        assert!(ran.stderr.contains("`./gripfast.toml` is not trusted"), "{words:?}: {ran}");
        assert!(ran.stderr.contains("`gripfast trust ./gripfast.toml`"), "{words:?}: {ran}");
        assert!(!sandbox.path("started").exists() && !sandbox.path("filled-in").exists(), "{words:?}");
        assert!(listener.accept().is_err(), "{words:?}: no connection to the address in the file");
        assert_eq!(std::fs::read_to_string(sandbox.path("gripfast.toml")).unwrap(), config, "{words:?}");
    }
    assert!(!sandbox.path("home/.cursor").exists());
}

#[test]
fn g05_check_reads_a_config_that_is_not_trusted_and_runs_nothing() {
    let sandbox = Sandbox::empty().wary();
    let config = hostile(&sandbox, "127.0.0.1:7331");
    let sandbox = sandbox.file("gripfast.toml", &config);
    assert_snapshot!(sandbox.run(&["check"]), @"
    exit 0
    --- stdout
    ok: 1 server (1 stdio)
    --- stderr
      hint: `./gripfast.toml` is not trusted, and it names programs to run; `gripfast trust ./gripfast.toml` lets other commands use it
    ");
    assert!(!sandbox.path("started").exists() && !sandbox.path("filled-in").exists());
}

#[test]
fn g05_a_config_that_was_named_needs_no_trust_nor_does_that_of_the_platform() {
    let sandbox = Sandbox::with_demo(&[]).wary();
    let words = ["policy", "test", "local", "demo", "echo"];
    assert_eq!(sandbox.run(&[&words[..], &["--config", "gripfast.toml"]].concat()).code, Some(0));
    assert_eq!(sandbox.run_with(&words, &[("GRIPFAST_CONFIG", "gripfast.toml")]).code, Some(0));
    assert_eq!(sandbox.run(&words).code, Some(2));
    let home = sandbox.path("home/.config/gripfast");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::rename(sandbox.path("gripfast.toml"), home.join("gripfast.toml")).unwrap();
    assert_eq!(sandbox.run(&words).code, Some(0));
    let there = sandbox.ran(sandbox.command(&words).current_dir(&home).output().unwrap());
    assert_eq!(
        there.code,
        Some(0),
        "the platform's file is the platform's file in its own directory: {there}"
    );
}

fn policy(sandbox: &Sandbox) -> CommandOutput {
    sandbox.run(&["policy", "test", "local", "demo", "echo"])
}

#[test]
fn g05_trust_is_for_the_content_of_a_file_and_a_change_ends_it() {
    let sandbox = Sandbox::with_demo(&[]).wary();
    assert_snapshot!(policy(&sandbox), @"
    exit 2
    --- stderr
    error: `./gripfast.toml` is not trusted, and it names programs to run
      hint: read it, then run `gripfast trust ./gripfast.toml`; or name a file with `--config FILE`, which needs no trust
    ");
    assert_snapshot!(sandbox.run(&["trust"]), @"
    exit 0
    --- stderr
    `./gripfast.toml` runs or connects to:
      demo: [GRIPFAST] demo-server
    the file is now trusted with this content; after a change it has to be trusted again
    ");
    assert_eq!(policy(&sandbox).code, Some(0));
    let sandbox = sandbox.file("gripfast.toml", &stdio("demo", &["--page-size", "1"]));
    assert_snapshot!(policy(&sandbox), @"
    exit 2
    --- stderr
    error: `./gripfast.toml` has changed since it was trusted, and it names programs to run
      hint: read it, then run `gripfast trust ./gripfast.toml`; or name a file with `--config FILE`, which needs no trust
    ");
    assert_snapshot!(sandbox.run(&["trust", "--list"]), @"
    exit 0
    --- stdout
    [DIR]/gripfast.toml  (changed since it was trusted)
    ");
    assert_eq!(sandbox.run(&["trust", "gripfast.toml"]).code, Some(0));
    assert_eq!(policy(&sandbox).code, Some(0));
    assert_snapshot!(sandbox.run(&["trust", "--remove"]), @"
    exit 0
    --- stderr
    `./gripfast.toml` is no longer trusted
    ");
    assert_eq!(policy(&sandbox).code, Some(2));
    assert_snapshot!(sandbox.run(&["trust", "--list"]), @"
    exit 0
    --- stderr
    no file is trusted; `gripfast trust` trusts ./gripfast.toml
    ");
    assert_snapshot!(sandbox.run(&["trust", "absent.toml"]), @"
    exit 2
    --- stderr
    error: no config file found; looked for `absent.toml`
      hint: `gripfast import --write` creates one from the servers of other MCP clients, `gripfast add` starts a new one; `--config FILE` or $GRIPFAST_CONFIG names another file, which may be the JSON or YAML of another client
    ");
    let sandbox = sandbox.file("gripfast.toml", "[servers");
    assert_eq!(sandbox.run(&["trust"]).code, Some(2));
    assert_eq!(sandbox.run(&["trust", "--list"]).stdout, "");
}

#[test]
fn g05_an_untrusted_config_does_not_choose_where_trust_is_looked_up() {
    let sandbox = Sandbox::empty().wary();
    // An attacker trusts the file in a state directory that the file then names.
    let theirs = sandbox.path("theirs");
    let config = format!("[gateway]\nstate_dir = {theirs:?}\n{}", stdio("demo", &[]));
    let sandbox = sandbox.file("gripfast.toml", &config);
    let list = gripfast_gateway::trust_list::TrustList::in_directory(theirs.clone());
    list.trust(&sandbox.path("gripfast.toml"), config.as_bytes()).unwrap();
    assert_eq!(policy(&sandbox).code, Some(2));
    let typed = sandbox.run(&["policy", "test", "local", "demo", "echo", "--state-dir", "theirs"]);
    assert_eq!(typed.code, Some(2), "{typed}");
}

#[test]
fn g05_an_edit_by_gripfast_stays_trusted_and_adds_no_trust_to_other_text() {
    let sandbox = Sandbox::empty().wary();
    assert_eq!(sandbox.run(&["add", "demo", "--", GRIPFAST, "demo-server"]).code, Some(0));
    assert_eq!(policy(&sandbox).code, Some(0), "a new file");
    assert_eq!(sandbox.run(&["add", "more", "--", "sh"]).code, Some(0));
    assert_eq!(policy(&sandbox).code, Some(0), "an edit of a trusted one");
    assert_eq!(sandbox.run(&["remove", "more"]).code, Some(0));
    assert_eq!(policy(&sandbox).code, Some(0));
    std::fs::create_dir_all(sandbox.path("home/.cursor")).unwrap();
    let sandbox = sandbox.file("home/.cursor/mcp.json", r#"{"mcpServers": {"a": {"command": "sh"}}}"#);
    assert_eq!(sandbox.run(&["import", "--write"]).code, Some(0));
    assert_eq!(policy(&sandbox).code, Some(0));
    // A named file can be edited without trust. Its other content stays untrusted.
    let text = std::fs::read_to_string(sandbox.path("gripfast.toml")).unwrap();
    let sandbox = sandbox.file("gripfast.toml", &(text + "[servers.evil]\ncommand = \"sh\"\n"));
    assert_eq!(sandbox.run(&["add", "x", "--config", "gripfast.toml", "--", "sh"]).code, Some(0));
    assert_eq!(policy(&sandbox).code, Some(2));
}

/// Running gateway with the config of the current directory.
struct TestGateway {
    sandbox: Sandbox,
    serving: GatewayProcess,
}

impl TestGateway {
    fn new() -> Self {
        let sandbox = Sandbox::with_demo(&[]).wary();
        sandbox.trust();
        let serving = GatewayProcess::start(&sandbox, &[]);
        Self { sandbox, serving }
    }

    fn write(&self, config: &str) {
        std::fs::write(self.sandbox.path("gripfast.toml"), config).unwrap();
    }

    /// Status of the gateway. URL and state directory are arguments, so that the command does not read the file.
    fn status(&self) -> Value {
        let words = ["status", "-o", "json", "--url", &self.serving.url, "--state-dir", STATE];
        serde_json::from_str(&self.sandbox.run(&words).stdout).unwrap()
    }

    fn refused(&self) -> Option<String> {
        self.status()["config"]["error"].as_str().map(str::to_owned)
    }

    fn has(&self, server: &str) -> bool {
        self.status()["upstreams"].as_array().unwrap().iter().any(|upstream| upstream["name"] == server)
    }
}

fn two() -> String {
    [stdio("demo", &[]), stdio("new", &[])].concat()
}

#[test]
fn g05_a_running_gateway_does_not_reload_a_changed_file_until_it_is_trusted() {
    let gateway = TestGateway::new();
    gateway.write(&two());
    let why = until_some("the change is refused", || gateway.refused());
    assert_eq!(
        why,
        "it has changed since it was trusted; `gripfast reload` or `gripfast trust` accepts the change"
    );
    assert!(!gateway.has("new"));
    assert_eq!(gateway.sandbox.run(&["trust"]).code, Some(0));
    until_some("it is taken once it is trusted", || gateway.has("new").then_some(()));
    assert_eq!(gateway.refused(), None);
    // An edit by gripfast stays trusted.
    assert_eq!(gateway.sandbox.run(&["add", "third", "--", GRIPFAST, "demo-server"]).code, Some(0));
    until_some("our own edit is taken", || gateway.has("third").then_some(()));
}

#[test]
fn g05_a_signal_and_a_reload_trust_the_file() {
    let gateway = TestGateway::new();
    let refuses = || gateway.sandbox.run(&["policy", "test", "local", "demo", "echo"]).code == Some(2);
    gateway.write(&two());
    until_some("the change is refused", || gateway.refused());
    assert!(refuses());
    kill_process(gateway.serving.pid(), Signal::HUP).unwrap();
    until_some("a signal has it taken", || gateway.has("new").then_some(()));
    assert!(!refuses(), "and trusted");
    gateway.write(&stdio("demo", &[]));
    until_some("the change is refused", || gateway.refused());
    assert!(refuses());
    let reloaded = gateway.sandbox.run(&["reload", "--url", &gateway.serving.url]);
    assert_snapshot!(reloaded, @"
    exit 0
    --- stderr
    config applied: removed new
    ");
    assert!(!gateway.has("new") && !refuses());
}

#[test]
fn g05_a_reload_uses_the_address_of_a_changed_file_only_if_it_was_trusted() {
    let gateway = TestGateway::new();
    let address = gateway.serving.url.strip_prefix("http://").unwrap().to_owned();
    gateway.write(&format!("[gateway]\nlisten = {address:?}\n{}", two()));
    let reload = || gateway.sandbox.finish(gateway.sandbox.command(&["reload"]).env_remove("GRIPFAST_URL"));
    let reloaded = reload();
    assert_eq!(reloaded.code, Some(0), "{reloaded}");
    assert!(gateway.has("new"));
    assert_eq!(gateway.sandbox.run(&["trust", "--remove"]).code, Some(0));
    let refused = reload();
    assert_eq!(refused.code, Some(2), "{refused}");
}

/// Runs the binary at a terminal and types `answer`. Returns its exit code, and the text of the terminal followed by
/// stdout.
pub(crate) fn at_a_terminal(sandbox: &Sandbox, words: &[&str], answer: &str) -> (Option<i32>, String) {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let side = || rustix::fs::open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let mut terminal = std::fs::File::from(terminal);
    // Early input waits in the terminal.
    terminal.write_all(answer.as_bytes()).unwrap();
    let mut command = sandbox.command(words);
    command.stdin(Stdio::from(side())).stderr(Stdio::from(side()));
    let child = command.spawn().unwrap();
    drop(command);
    let output = child.wait_with_output().unwrap();
    let mut shown = Vec::new();
    let mut part = [0; 4096];
    // When the other side is closed, the remaining bytes are read, and then there is an error.
    while let Ok(length @ 1..) = terminal.read(&mut part) {
        shown.extend_from_slice(&part[..length]);
    }
    shown.extend_from_slice(&output.stdout);
    (output.status.code(), String::from_utf8_lossy(&shown).replace("\r\n", "\n"))
}

#[test]
fn g05_at_a_terminal_the_user_is_asked_once_and_the_default_is_no() {
    let sandbox = Sandbox::empty().wary();
    let config = hostile(&sandbox, "127.0.0.1:7331").replace("127.0.0.1:7331", "127.0.0.1:1");
    let sandbox = sandbox.file("gripfast.toml", &config);
    let words = ["policy", "test", "local", "demo", "echo"];
    for answer in ["\n", "n\n", "yeah\n", "\u{4}"] {
        let (code, shown) = at_a_terminal(&sandbox, &words, answer);
        assert_eq!(code, Some(2), "{answer:?}: {shown}");
        assert!(shown.contains("Trust the file as it is now? [y/N]"), "{shown}");
        assert!(shown.contains("demo-server --pid-file") && shown.contains("runs `touch "), "{shown}");
    }
    assert!(!sandbox.path("started").exists() && !sandbox.path("filled-in").exists());
    let (code, shown) = at_a_terminal(&sandbox, &words, "y\n");
    assert_eq!(code, Some(0), "{shown}");
    let (code, shown) = at_a_terminal(&sandbox, &words, "");
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("Trust the file"), "once is enough: {shown}");
    let sandbox = sandbox.file("gripfast.toml", &stdio("demo", &[]));
    let (code, shown) = at_a_terminal(&sandbox, &words, "\n");
    assert!(code == Some(2) && shown.contains("has changed since it was trusted"), "{shown}");
    let (code, shown) = at_a_terminal(&sandbox, &["stdio"], "");
    assert!(code == Some(2) && !shown.contains("[y/N]"), "stdin is for MCP: {shown}");
}

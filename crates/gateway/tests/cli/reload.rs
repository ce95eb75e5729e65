//! Reload of a changed config: applied and refused changes, and servers that keep running.

use crate::gateway_process::GatewayProcess;
use crate::sandbox::{CommandOutput, Sandbox, stdio};
use gripfast_testkit::wait::until_some;
use insta::assert_snapshot;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::io::Read;

/// Running gateway with the sandbox's config.
struct TestGateway {
    sandbox: Sandbox,
    serving: GatewayProcess,
}

impl TestGateway {
    fn of(config: &str) -> Self {
        let sandbox = Sandbox::with(config);
        let serving = GatewayProcess::start(&sandbox, &[]);
        Self { sandbox, serving }
    }

    fn write(&self, config: &str) {
        std::fs::write(self.sandbox.path("gripfast.toml"), config).unwrap();
    }

    fn run(&self, words: &[&str]) -> CommandOutput {
        self.sandbox.run(&[words, &["--url", &self.serving.url]].concat())
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.run(&["status", "-o", "json"]).stdout).unwrap()
    }

    /// Waits until a server is ready and returns its pid.
    fn pid(&self, server: &str) -> u64 {
        self.until(|status| {
            let upstreams = status["upstreams"].as_array().unwrap();
            let upstream = upstreams.iter().find(|upstream| upstream["name"] == server)?;
            if upstream["state"] == "ready" { upstream["pid"].as_u64() } else { None }
        })
    }

    fn names(&self) -> Vec<String> {
        names(&self.status())
    }

    /// Polls the status until there is a value.
    fn until<T>(&self, look: impl Fn(&Value) -> Option<T>) -> T {
        until_some("the status", || look(&self.status()))
    }
}

fn names(status: &Value) -> Vec<String> {
    let upstreams = status["upstreams"].as_array().unwrap();
    upstreams.iter().map(|upstream| upstream["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn h01_a_changed_exposure_is_applied_without_a_restart() {
    let gateway = TestGateway::of(&stdio("demo", &[]));
    let pid = gateway.pid("demo");
    assert!(gateway.status()["exposure"].is_null());
    gateway.write(&format!("[gateway]\nexposure = \"search\"\n\n{}", stdio("demo", &[])));
    let said = gateway.run(&["reload"]).stderr;
    assert!(said.contains("`exposure` changed") && !said.contains("next start"), "{said}");
    let status = gateway.status();
    assert_eq!(
        (&status["exposure"]["mode"], &status["exposure"]["listed_tools"]),
        (&"search".into(), &0.into())
    );
    gateway.write(&(stdio("demo", &[]) + "exposure = \"search\"\nalways = [\"echo\"]\n"));
    gateway.run(&["reload"]);
    let status = gateway.status();
    assert_eq!(
        (&status["exposure"]["mode"], &status["exposure"]["listed_tools"]),
        (&"all".into(), &1.into())
    );
    assert_eq!(gateway.pid("demo"), pid, "the server goes on");
}

#[test]
fn b08_a_changed_file_is_applied_and_unchanged_servers_keep_running() {
    let gateway = TestGateway::of(&[stdio("same", &[]), stdio("other", &[]), stdio("gone", &[])].concat());
    let (same, other) = (gateway.pid("same"), gateway.pid("other"));
    let mut under_way = gateway.serving.client().begin("same__sleep", serde_json::json!({ "ms": 5000 }));
    gateway.until(|status| (status["upstreams"][0]["in_flight"] == 1).then_some(()));
    gateway.write(&[stdio("same", &[]), stdio("other", &["--page-size", "2"]), stdio("new", &[])].concat());
    gateway.until(|status| (names(status) == ["same", "other", "new"]).then_some(()));
    assert!(gateway.pid("new") > 0);
    gateway.until(|status| (status["upstreams"][1]["pid"].as_u64()? != other).then_some(()));
    assert_eq!(gateway.pid("same"), same, "it was not touched");
    let mut answer = String::new();
    under_way.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("slept"), "neither was the call that it was at: {answer}");
    assert_eq!(gateway.run(&["call", "other", "echo", r#"{"text":"x"}"#]).stdout, "x\n");
}

#[test]
fn reload_prints_what_was_changed() {
    let gateway = TestGateway::of(&stdio("a", &[]));
    let before = gateway.pid("a");
    gateway.write(&[stdio("a", &[]) + "max_in_flight = 3\n", stdio("b", &[])].concat());
    assert_snapshot!(gateway.run(&["reload"]), @"
    exit 0
    --- stderr
    config applied: added b; changed a
    ");
    assert_snapshot!(gateway.run(&["reload"]), @"
    exit 0
    --- stderr
    the config has not changed
    ");
    assert_eq!(gateway.names(), ["a", "b"]);
    assert!(gateway.pid("b") > 0);
    assert_eq!(gateway.pid("a"), before, "a rule is no reason for a new child");
    gateway.write("[gateway]\nstartup_wait = '1s'\n");
    assert_snapshot!(gateway.run(&["reload"]), @"
    exit 0
    --- stderr
    config applied: removed a, b; `gateway` changed, effective at the next start
    ");
    assert_eq!(gateway.names(), Vec::<String>::new());
}

#[test]
fn a_changed_rule_is_in_force_and_reported() {
    let gateway = TestGateway::of(&stdio("a", &[]));
    gateway.pid("a");
    gateway.write(&(stdio("a", &[]) + "[clients.local]\ntools = { deny = ['a/echo'] }\n"));
    assert_snapshot!(gateway.run(&["reload"]), @"
    exit 0
    --- stderr
    config applied: `clients` changed
    ");
}

#[test]
fn servers_are_listed_in_the_order_of_the_changed_file() {
    let gateway = TestGateway::of(&[stdio("b", &[]), stdio("d", &[])].concat());
    gateway.write(&[stdio("a", &[]), stdio("d", &[]), stdio("c", &[]), stdio("b", &[])].concat());
    assert_snapshot!(gateway.run(&["reload"]), @"
    exit 0
    --- stderr
    config applied: added a, c; server order changed
    ");
    assert_eq!(gateway.names(), ["a", "d", "c", "b"]);
}

#[test]
fn a_signal_reloads_the_config() {
    let gateway = TestGateway::of(&stdio("a", &[]));
    gateway.write(&stdio("b", &[]));
    kill_process(gateway.serving.pid(), Signal::HUP).unwrap();
    gateway.until(|status| (names(status) == ["b"]).then_some(()));
}

#[test]
fn a_signal_reads_a_file_that_has_not_changed() {
    let mut gateway = TestGateway::of(&stdio("a", &[]));
    kill_process(gateway.serving.pid(), Signal::HUP).unwrap();
    gateway.serving.hears("the config has not changed");
}

#[test]
fn a_mistake_in_a_changed_file_shows_in_status_without_a_reload() {
    let gateway = TestGateway::of(&stdio("a", &[]));
    let pid = gateway.pid("a");
    gateway.write(&(stdio("a", &[]) + "lasy = true\n"));
    let error = gateway.until(|status| status["config"]["error"].as_str().map(str::to_owned));
    assert_eq!(error, "servers.a.lasy: unknown key `lasy` (did you mean `lazy`?)");
    assert_eq!(gateway.pid("a"), pid, "the one before it stays in use");
    gateway.write(&stdio("a", &[]));
    gateway.until(|status| status["config"]["error"].is_null().then_some(()));
    assert_eq!(gateway.pid("a"), pid);
}

#[test]
fn a_config_mistake_affects_only_its_server_and_status_says_why() {
    let gateway = TestGateway::of(&stdio("a", &[]));
    let pid = gateway.pid("a");
    gateway.write(&(stdio("a", &[]) + "lasy = true\n"));
    assert_snapshot!(gateway.run(&["reload"]), @"
    exit 2
    --- stderr
    config applied: not changed because of mistakes: a; servers.a.lasy: unknown key `lasy` (did you mean `lazy`?)
    ");
    let shown = gateway.run(&["status"]).stdout;
    assert_snapshot!(shown.lines().nth(1).unwrap(), @"the config file has errors, and the previous settings are in use: servers.a.lasy: unknown key `lasy` (did you mean `lazy`?)");
    assert_eq!(gateway.pid("a"), pid, "the one before it stays in use");
    gateway.write("[servers.a\n");
    assert_snapshot!(gateway.run(&["reload"]), @"
    exit 2
    --- stderr
    error: the config was rejected; the previous config stays in use: unclosed table, expected `]`
      hint: `gripfast check ./gripfast.toml` shows where the mistake is
    ");
    std::fs::remove_file(gateway.sandbox.path("gripfast.toml")).unwrap();
    assert_eq!(gateway.run(&["reload"]).code, Some(2));
    assert_eq!(gateway.pid("a"), pid);
    gateway.write(&stdio("a", &[]));
    assert_eq!(gateway.run(&["reload"]).code, Some(0));
    assert_eq!(gateway.status()["config"]["error"], Value::Null);
    assert_eq!(gateway.pid("a"), pid);
}

#[test]
fn a_reload_with_another_state_directory_is_refused() {
    let gateway = TestGateway::of(&stdio("a", &[]));
    let ran = gateway.run(&["reload", "--state-dir", "elsewhere"]);
    assert_eq!(ran.code, Some(4), "{ran}");
}

#[test]
fn the_demo_has_no_config_to_reload() {
    let sandbox = Sandbox::empty();
    let state = sandbox.path("state").display().to_string();
    let serving = GatewayProcess::start(&sandbox, &["--demo", "--state-dir", &state]);
    let ran = sandbox.run(&["reload", "--url", &serving.url, "--state-dir", &state]);
    assert_snapshot!(ran, @"
    exit 1
    --- stderr
    error: this gateway has no config file
    ");
}

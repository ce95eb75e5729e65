//! A config that changes under a running gateway: what is taken, what is refused, and who is disturbed.

use crate::sandbox::{Ran, Sandbox, stdio};
use crate::serving::Serving;
use insta::assert_snapshot;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::io::Read;
use std::time::{Duration, Instant};

/// A gateway that serves the sandbox's config.
struct Scene {
    sandbox: Sandbox,
    serving: Serving,
}

impl Scene {
    fn of(config: &str) -> Self {
        let sandbox = Sandbox::with(config);
        let serving = Serving::start(&sandbox, &[]);
        Self { sandbox, serving }
    }

    fn write(&self, config: &str) {
        std::fs::write(self.sandbox.path("gripfast.toml"), config).unwrap();
    }

    fn run(&self, words: &[&str]) -> Ran {
        self.sandbox.run(&[words, &["--url", &self.serving.url]].concat())
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.run(&["status", "-o", "json"]).stdout).unwrap()
    }

    /// The process of a server, once it is ready.
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

    /// Looks until there is what is looked for.
    fn until<T>(&self, look: impl Fn(&Value) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let status = self.status();
            match look(&status) {
                Some(found) => return found,
                None => assert!(Instant::now() < deadline, "{status}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn names(status: &Value) -> Vec<String> {
    let upstreams = status["upstreams"].as_array().unwrap();
    upstreams.iter().map(|upstream| upstream["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn b08_a_changed_file_is_taken_and_what_it_does_not_change_is_left_alone() {
    let scene = Scene::of(&[stdio("same", &[]), stdio("other", &[]), stdio("gone", &[])].concat());
    let (same, other) = (scene.pid("same"), scene.pid("other"));
    let mut under_way = scene.serving.client().begin("same__sleep", serde_json::json!({ "ms": 5000 }));
    scene.until(|status| (status["upstreams"][0]["in_flight"] == 1).then_some(()));
    scene.write(&[stdio("same", &[]), stdio("other", &["--page-size", "2"]), stdio("new", &[])].concat());
    scene.until(|status| (names(status) == ["same", "other", "new"]).then_some(()));
    assert!(scene.pid("new") > 0);
    scene.until(|status| (status["upstreams"][1]["pid"].as_u64()? != other).then_some(()));
    assert_eq!(scene.pid("same"), same, "it was not touched");
    let mut answer = String::new();
    under_way.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("slept"), "neither was the call that it was at: {answer}");
    assert_eq!(scene.run(&["call", "other", "echo", r#"{"text":"x"}"#]).stdout, "x\n");
}

#[test]
fn whoever_asks_is_told_what_was_done() {
    let scene = Scene::of(&stdio("a", &[]));
    let before = scene.pid("a");
    scene.write(&[stdio("a", &[]) + "max_in_flight = 3\n", stdio("b", &[])].concat());
    assert_snapshot!(scene.run(&["reload"]), @"
    exit 0
    --- stderr
    the config was taken: added b; changed a
    ");
    assert_snapshot!(scene.run(&["reload"]), @"
    exit 0
    --- stderr
    the config says what it said before
    ");
    assert_eq!(scene.names(), ["a", "b"]);
    assert!(scene.pid("b") > 0);
    assert_eq!(scene.pid("a"), before, "a rule is no reason for a new child");
    scene.write("[gateway]\nstartup_wait = '1s'\n");
    assert_snapshot!(scene.run(&["reload"]), @"
    exit 0
    --- stderr
    the config was taken: removed a, b; what `gateway` says takes effect at the next start
    ");
    assert_eq!(scene.names(), Vec::<String>::new());
}

#[test]
fn a_changed_rule_is_in_force_and_said_to_be() {
    let scene = Scene::of(&stdio("a", &[]));
    scene.pid("a");
    scene.write(&(stdio("a", &[]) + "[clients.local]\ntools = { deny = ['a/echo'] }\n"));
    assert_snapshot!(scene.run(&["reload"]), @"
    exit 0
    --- stderr
    the config was taken: what `clients` says is in force
    ");
}

#[test]
fn servers_stand_in_the_order_of_the_changed_file() {
    let scene = Scene::of(&[stdio("b", &[]), stdio("d", &[])].concat());
    scene.write(&[stdio("a", &[]), stdio("d", &[]), stdio("c", &[]), stdio("b", &[])].concat());
    assert_snapshot!(scene.run(&["reload"]), @"
    exit 0
    --- stderr
    the config was taken: added a, c; servers are listed in the new order
    ");
    assert_eq!(scene.names(), ["a", "d", "c", "b"]);
}

#[test]
fn a_signal_is_enough() {
    let scene = Scene::of(&stdio("a", &[]));
    scene.write(&stdio("b", &[]));
    kill_process(scene.serving.pid(), Signal::HUP).unwrap();
    scene.until(|status| (names(status) == ["b"]).then_some(()));
}

#[test]
fn a_signal_has_the_file_looked_at_though_it_looks_the_same() {
    let mut scene = Scene::of(&stdio("a", &[]));
    kill_process(scene.serving.pid(), Signal::HUP).unwrap();
    scene.serving.hears("the config says what it said before");
}

#[test]
fn a_mistake_in_a_file_that_changes_is_seen_in_status_without_anybody_asking() {
    let scene = Scene::of(&stdio("a", &[]));
    let pid = scene.pid("a");
    scene.write(&(stdio("a", &[]) + "lasy = true\n"));
    let error = scene.until(|status| status["config"]["error"].as_str().map(str::to_owned));
    assert_eq!(error, "servers.a.lasy: unknown key `lasy` (did you mean `lazy`?)");
    assert_eq!(scene.pid("a"), pid, "the one before it stays in use");
    scene.write(&stdio("a", &[]));
    scene.until(|status| status["config"]["error"].is_null().then_some(()));
    assert_eq!(scene.pid("a"), pid);
}

#[test]
fn a_config_with_a_mistake_costs_what_it_is_about_and_status_says_why() {
    let scene = Scene::of(&stdio("a", &[]));
    let pid = scene.pid("a");
    scene.write(&(stdio("a", &[]) + "lasy = true\n"));
    assert_snapshot!(scene.run(&["reload"]), @"
    exit 2
    --- stderr
    the config was taken: kept as before, for its table has a mistake: a; servers.a.lasy: unknown key `lasy` (did you mean `lazy`?)
    ");
    let shown = scene.run(&["status"]).stdout;
    assert_snapshot!(shown.lines().nth(1).unwrap(), @"the config cannot be used as it is, and what it said before is in use there: servers.a.lasy: unknown key `lasy` (did you mean `lazy`?)");
    assert_eq!(scene.pid("a"), pid, "the one before it stays in use");
    scene.write("[servers.a\n");
    assert_snapshot!(scene.run(&["reload"]), @"
    exit 2
    --- stderr
    error: the config was refused, and the one in use stays: unclosed table, expected `]`
      hint: `gripfast check ./gripfast.toml` shows the place
    ");
    std::fs::remove_file(scene.sandbox.path("gripfast.toml")).unwrap();
    assert_eq!(scene.run(&["reload"]).code, Some(2));
    assert_eq!(scene.pid("a"), pid);
    scene.write(&stdio("a", &[]));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    assert_eq!(scene.status()["config"]["error"], Value::Null);
    assert_eq!(scene.pid("a"), pid);
}

#[test]
fn a_stranger_may_not_have_it_reloaded() {
    let scene = Scene::of(&stdio("a", &[]));
    let ran = scene.run(&["reload", "--state-dir", "elsewhere"]);
    assert_eq!(ran.code, Some(4), "{ran}");
}

#[test]
fn the_demo_goes_by_no_file() {
    let sandbox = Sandbox::empty();
    let state = sandbox.path("state").display().to_string();
    let serving = Serving::start(&sandbox, &["--demo", "--state-dir", &state]);
    let ran = sandbox.run(&["reload", "--url", &serving.url, "--state-dir", &state]);
    assert_snapshot!(ran, @"
    exit 1
    --- stderr
    error: this gateway has no config file to look at
    ");
}

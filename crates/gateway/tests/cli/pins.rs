//! `gripfast pins`: what was approved, what changed, and approving it.

use crate::running::{Running, STATE};
use crate::sandbox::{Sandbox, stdio};
use gripfast::Host;
use gripfast::config::Config;
use insta::assert_snapshot;
use std::time::Duration;

/// A gateway whose server `demo` was seen, and then came back with another `echo`.
fn scene() -> (Sandbox, Running) {
    let sandbox = Sandbox::empty().file("flag", "--page-size=50");
    let flag = sandbox.path("flag");
    let running = Running::with(&sandbox, &stdio("demo", &[&format!("${{file:{}}}", flag.display())]));
    running.until("demo", "ready");
    std::fs::write(&flag, "--changed-schema").unwrap();
    running.host.reconnect("demo").unwrap();
    running.until("demo", "needs_approval");
    (sandbox, running)
}

#[test]
fn g02_what_changed_is_shown_and_approved() {
    let (sandbox, running) = scene();
    let run = |words: &[&str]| sandbox.run(&[words, &["--url", &running.url]].concat());
    let listed = run(&["pins", "ls"]);
    let echo = listed.stdout.lines().find(|line| line.contains("echo")).unwrap();
    assert!(echo.contains("demo") && echo.contains("changed"), "{listed}");
    assert_eq!(listed.stdout.lines().filter(|line| line.contains("changed")).count(), 1, "{listed}");
    assert_snapshot!(run(&["pins", "diff", "demo"]), @r#"
    exit 0
    --- stdout
    demo/echo
      description
        - Says what it was told.
        + Says what it was told, loudly if asked.
      inputSchema.properties.loud
        + {"default":false,"description":"In capitals.","type":"boolean"}
    --- stderr
      hint: `gripfast pins approve SERVER [TOOL]` accepts what they say now
    "#);
    assert_snapshot!(run(&["pins", "approve", "demo", "add"]), @"
    exit 1
    --- stderr
    error: no tool `add` of upstream `demo` waits for approval
      hint: `gripfast pins ls` shows what does
    ");
    assert_snapshot!(run(&["pins", "approve", "demo"]), @"
    exit 0
    --- stderr
    `echo` of `demo` is approved as it is now
    ");
    running.until("demo", "ready");
    assert_snapshot!(run(&["pins", "diff"]), @"
    exit 0
    --- stderr
    no tool says something else than what was approved
    ");
}

#[test]
fn g02_pins_are_shown_without_a_gateway() {
    let config = stdio("demo", &[]);
    let sandbox = Sandbox::with(&config);
    let spec = Config::parse(&config, "gripfast.toml".as_ref()).unwrap().servers.remove(0).spec.unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let host = Host::builder().state_dir(Some(sandbox.path(STATE))).build();
        host.spawn("demo", spec).unwrap();
        host.catalog("demo", Duration::from_secs(30)).await.unwrap();
        host.shutdown().await;
    });
    let json: serde_json::Value =
        serde_json::from_str(&sandbox.run(&["pins", "ls", "demo", "-o", "json"]).stdout).unwrap();
    let tools = json["servers"][0]["tools"].as_array().unwrap();
    assert!(tools.iter().any(|pin| pin["tool"] == "echo" && pin["state"] == "approved"), "{json}");
}

#[test]
fn g05_an_approval_without_a_gateway_has_an_audit_line() {
    let config = format!("[gateway]\naudit = \"digest\"\n\n{}pins = \"strict\"\n", stdio("demo", &[]));
    let sandbox = Sandbox::with(&config);
    let spec = Config::parse(&config, "gripfast.toml".as_ref()).unwrap().servers.remove(0).spec.unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let host = Host::builder().state_dir(Some(sandbox.path(STATE))).build();
        host.spawn("demo", spec).unwrap();
        host.catalog("demo", Duration::from_secs(30)).await.unwrap();
        host.shutdown().await;
    });
    let approved = sandbox.run(&["pins", "approve", "demo", "echo"]);
    assert_eq!(approved.code, Some(0), "{approved}");
    let files = std::fs::read_dir(sandbox.path(STATE).join("audit")).unwrap();
    let text: String = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(
        (&line["event"], &line["tools"]),
        (&"approved".into(), &serde_json::json!(["echo"])),
        "{line}"
    );
}

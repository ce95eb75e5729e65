//! `gripfast pins`: approved tools, changes, and approvals.

use crate::in_process_gateway::{InProcessGateway, STATE};
use crate::sandbox::{Sandbox, stdio};
use gripfast::Host;
use gripfast::config::Config;
use insta::assert_snapshot;
use std::time::Duration;

/// Gateway whose server `demo` was pinned and then restarted with a changed `echo`.
fn gateway_with_a_changed_tool() -> (Sandbox, InProcessGateway) {
    let sandbox = Sandbox::empty().file("flag", "--page-size=50");
    let flag = sandbox.path("flag");
    let running =
        InProcessGateway::with(&sandbox, &stdio("demo", &[&format!("${{file:{}}}", flag.display())]));
    running.until("demo", "ready");
    std::fs::write(&flag, "--changed-schema").unwrap();
    running.host.reconnect("demo").unwrap();
    running.until("demo", "needs_approval");
    (sandbox, running)
}

#[test]
fn g02_what_changed_is_shown_and_approved() {
    let (sandbox, running) = gateway_with_a_changed_tool();
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
        - Returns its text.
        + Returns its text, in capitals if requested.
      inputSchema.properties.loud
        + {"default":false,"description":"In capitals.","type":"boolean"}
    --- stderr
      hint: `gripfast pins approve SERVER [TOOL]` approves the changes
    "#);
    assert_snapshot!(run(&["pins", "approve", "demo", "add"]), @"
    exit 1
    --- stderr
    error: no tool `add` of server `demo` waits for approval
      hint: `gripfast pins ls` lists the pending changes
    ");
    assert_snapshot!(run(&["pins", "approve", "demo"]), @"
    exit 0
    --- stderr
    approved the current version of `echo` of server `demo`
    ");
    running.until("demo", "ready");
    assert_snapshot!(run(&["pins", "diff"]), @"
    exit 0
    --- stderr
    no tool has changed since it was approved
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

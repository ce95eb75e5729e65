//! `gripfast policy test`: the decision and the rule behind it.

use crate::sandbox::{Sandbox, stdio};
use insta::assert_snapshot;

fn config() -> String {
    let clients = "[clients.local]\ntools = { allow = ['demo/*'], deny = ['*/crash'] }\n";
    stdio("demo", &[]) + "tools = { deny = ['delete_*'] }\n" + clients
}

#[test]
fn g01_a_tool_that_a_client_may_call() {
    assert_snapshot!(Sandbox::with(&config()).run(&["policy", "test", "local", "demo", "echo"]), @"
    exit 0
    --- stdout
    client `local` may call `echo` of server `demo`: allowed by `*` in servers.demo.tools.allow and `demo/*` in clients.local.tools.allow
    ");
}

#[test]
fn g01_a_tool_that_a_client_may_not_call() {
    assert_snapshot!(Sandbox::with(&config()).run(&["policy", "test", "local", "demo", "crash"]), @"
    exit 6
    --- stdout
    client `local` may not call `crash` of server `demo`: denied by `*/crash` in clients.local.tools.deny
    ");
}

#[test]
fn g01_a_tool_that_no_client_may_call_as_json() {
    let words = ["policy", "test", "anybody", "demo", "delete_all", "-o", "json"];
    assert_snapshot!(Sandbox::with(&config()).run(&words), @r#"
    exit 6
    --- stdout
    {"schema_version":1,"client":"anybody","server":"demo","tool":"delete_all","allowed":false,"reason":"denied by `delete_*` in servers.demo.tools.deny"}
    "#);
}

#[test]
fn a_server_that_is_not_there() {
    assert_snapshot!(Sandbox::with(&config()).run(&["policy", "test", "local", "dmeo", "echo"]), @"
    exit 1
    --- stderr
    error: no server `dmeo` in `./gripfast.toml`
      hint: did you mean `demo`?
    ");
}

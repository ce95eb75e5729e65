//! `gripfast demo-server`: its stdout, its exit codes, and its flags.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

#[test]
fn stdout_is_nothing_but_messages_on_stdio() {
    let ran =
        Sandbox::empty().run_on_stdin(&["demo-server", "--name", "mine"], &format!("{INITIALIZE}\n{LIST}\n"));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran}");
    assert_eq!(ran.stdout.lines().count(), 2, "{ran}");
    assert!(
        ran.stdout.lines().all(|line| line.starts_with('{') && line.contains(r#""jsonrpc":"2.0""#)),
        "{ran}"
    );
    assert!(ran.stdout.contains(r#""name":"mine""#), "{ran}");
}

#[test]
fn stdout_is_the_url_on_http() {
    let server = Sandbox::empty().serve_http(&[]);
    let url = server.url.clone();
    assert!(url.starts_with("http://127.0.0.1:") && url.ends_with("/mcp"), "{url}");
    assert_eq!(server.end(), (String::new(), format!("listening on {url}\n")));
}

#[test]
fn the_url_is_that_of_sse_where_there_is_nothing_else() {
    let url = Sandbox::empty().serve_http(&["--sse-only"]).url.clone();
    assert!(url.ends_with("/sse"), "{url}");
}

#[test]
fn flags_reach_the_server() {
    let words = [
        "demo-server",
        "--tools",
        "2",
        "--changed-schema",
        "--param-headers",
        "--showcase",
        "--page-size",
        "0",
        "--era",
        "legacy",
        "--legacy-version",
        "2025-06-18",
        "--no-ping",
    ];
    let ping = r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#;
    let ran = Sandbox::empty().run_on_stdin(&words, &format!("{INITIALIZE}\n{LIST}\n{ping}\n"));
    for expected in [
        "extra_2",
        "in capitals if requested",
        r#""route""#,
        r#""words""#,
        r#""protocolVersion":"2025-06-18""#,
        "-32601",
    ] {
        assert!(ran.stdout.contains(expected), "{expected}: {ran}");
    }
}

#[test]
fn it_exits_with_the_code_of_its_flag() {
    let ran = Sandbox::empty().run(&["demo-server", "--exit-at-start", "always", "--exit-code", "42"]);
    assert_snapshot!(ran, @"
    exit 42
    --- stderr
    demo server: exiting at start, as told
    ");
}

#[test]
fn an_address_that_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    assert_snapshot!(Sandbox::empty().run(&["demo-server", "--http", &addr]), @"
    exit 1
    --- stderr
    error: the demo server cannot serve at 127.0.0.1:[PORT]: Address already in use (os error 98)
    ");
}

#[test]
fn a_pid_file_that_cannot_be_written() {
    assert_snapshot!(Sandbox::empty().run(&["demo-server", "--pid-file", "/no/such/dir/pid"]), @"
    exit 1
    --- stderr
    error: the demo server stopped: No such file or directory (os error 2)
    ");
}

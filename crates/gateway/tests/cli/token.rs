//! `gripfast token`: a new admin token, with a running gateway and without one.

use crate::gateway_process::GatewayProcess;
use crate::in_process_gateway::STATE;
use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Status of a request with this token.
fn acted(gateway: &GatewayProcess, action: &str, token: &str) -> String {
    posted(gateway, &format!("upstreams/demo/{action}"), token)
}

fn posted(gateway: &GatewayProcess, path: &str, token: &str) -> String {
    let address = gateway.url.strip_prefix("http://").unwrap();
    let mut connection = TcpStream::connect(address).unwrap();
    write!(
        connection,
        "POST /api/v1/{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         authorization: Bearer {token}\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn g05_a_rotated_token_works_at_once_and_the_old_one_is_refused() {
    let sandbox = Sandbox::with_demo(&[]);
    let gateways = [GatewayProcess::start(&sandbox, &[]), GatewayProcess::start(&sandbox, &[])];
    let token =
        || std::fs::read_to_string(sandbox.path(STATE).join("admin.token")).unwrap().trim().to_owned();
    let old = token();
    for gateway in &gateways {
        assert_eq!(acted(gateway, "stop", &old), "202", "a script may send the token itself");
    }
    let rotated = sandbox.run(&["token", "rotate"]);
    assert_snapshot!(rotated, @"
    exit 0
    --- stderr
    wrote a new admin token to `[DIR]/home/.local/state/gripfast/admin.token`; gateways that use this directory refuse the old one from now on
    ");
    let new = token();
    assert!(new.len() >= 43 && new != old);
    assert!(!rotated.to_string().contains(&new), "it is not shown on a screen");
    for gateway in &gateways {
        assert_eq!(
            (acted(gateway, "start", &old), acted(gateway, "start", &new)),
            ("401".into(), "202".into())
        );
        let ran = sandbox.run(&["stop", "demo", "--url", &gateway.url]);
        assert_eq!(ran.code, Some(0), "commands find it by themselves: {ran}");
    }
}

#[test]
fn g05_dashboard_prints_a_sign_in_link_without_the_admin_token() {
    let sandbox = Sandbox::with_demo(&[]);
    let gateway = GatewayProcess::start(&sandbox, &[]);
    let ran = sandbox.run(&["dashboard", "--url", &gateway.url]);
    assert_eq!(ran.code, Some(0), "{ran}");
    let (link, rest) = ran.stdout.split_once('\n').unwrap();
    let code = link.strip_prefix(&format!("{}/#/sign-in/", gateway.url)).unwrap();
    assert!(code.len() >= 43 && rest.is_empty(), "{ran}");
    assert_eq!(ran.stderr, "this link signs in one browser within 60 s\n");
    let token = std::fs::read_to_string(sandbox.path(STATE).join("admin.token")).unwrap();
    assert!(!ran.to_string().contains(token.trim()));
    assert_eq!(acted(&gateway, "stop", code), "401", "the code is for signing in alone");
    assert_eq!(posted(&gateway, "sign_in", code), "200");
    assert_eq!(posted(&gateway, "sign_in", code), "401", "it works once");
    let log = gateway.end(Signal::TERM);
    assert!(!log.contains(code), "{log}");
}

#[test]
fn a_token_is_rotated_without_a_gateway() {
    let sandbox = Sandbox::empty();
    assert_eq!(sandbox.run(&["token", "rotate", "--state-dir", "state"]).code, Some(0));
    let made = std::fs::read_to_string(sandbox.path("state/admin.token")).unwrap();
    assert_eq!(sandbox.run(&["token", "rotate", "--state-dir", "state"]).code, Some(0));
    assert_ne!(std::fs::read_to_string(sandbox.path("state/admin.token")).unwrap(), made);
    let sandbox = sandbox.file("file", "");
    assert_snapshot!(sandbox.run(&["token", "rotate", "--state-dir", "file"]), @"
    exit 1
    --- stderr
    error: `file/admin.token` cannot be replaced: File exists (os error 17)
      hint: `--state-dir` names another directory
    ");
}

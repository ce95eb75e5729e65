//! Control socket of a gateway: selection of the gateway, and access of other users.

use crate::gateway_process::GatewayProcess;
use crate::in_process_gateway::STATE;
use crate::sandbox::{CommandOutput, Sandbox, stdio};
use crate::tls::certificate_and_key;
use gripfast_testkit::wait::until_some;
use insta::assert_snapshot;
use rustix::process::Signal;
use std::fs::Permissions;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Path of the only control socket in this state directory.
fn only_socket(state: &Path) -> PathBuf {
    let sockets: Vec<_> = std::fs::read_dir(state.join("sockets")).unwrap().flatten().collect();
    assert_eq!(sockets.len(), 1, "{sockets:?}");
    sockets[0].path()
}

/// Answer to a request through a socket.
fn asked(socket: &Path, method: &str, path: &str, headers: &str) -> String {
    let mut connection = UnixStream::connect(socket).unwrap();
    write!(connection, "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n")
        .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn g05_a_loopback_url_is_reached_through_the_socket_of_its_gateway() {
    let (cert, key) = certificate_and_key("mcp.example.com");
    let config =
        format!("[gateway]\ntls = {{ cert = \"cert.pem\", key = \"key.pem\" }}\n{}", stdio("demo", &[]));
    let sandbox = Sandbox::with(&config).file("cert.pem", &cert).file("key.pem", &key);
    let gateway = GatewayProcess::start(&sandbox, &[]);
    let port = gateway.url.rsplit(':').next().unwrap();
    // Over TCP its certificate would be refused.
    for url in [format!("https://127.0.0.1:{port}"), format!("localhost:{port}")] {
        for words in
            [&["status"][..], &["tools"], &["reconnect", "demo"], &["stop", "demo"], &["start", "demo"]]
        {
            let ran = sandbox.run(&[words, &["--url", &url]].concat());
            assert_eq!(ran.code, Some(0), "{words:?} {url}: {ran}");
        }
    }
    let other = sandbox.run(&["stop", "demo", "--url", &gateway.url, "--state-dir", "other"]);
    assert!(other.code == Some(4) && other.stderr.contains("is not trusted"), "{other}");
}

#[test]
fn gateways_that_share_a_state_directory_are_found_by_their_address() {
    let sandbox = Sandbox::empty().file("a.toml", &stdio("a", &[])).file("b.toml", &stdio("b", &[]));
    let a = GatewayProcess::start(&sandbox, &["--config", "a.toml"]);
    let b = GatewayProcess::start(&sandbox, &["--config", "b.toml"]);
    for (gateway, own, other) in [(&a, "a", "b"), (&b, "b", "a")] {
        let stop = |name: &str| sandbox.run(&["stop", name, "--url", &gateway.url]).code;
        assert_eq!((stop(own), stop(other)), (Some(0), Some(1)));
    }
}

#[test]
fn g05_only_its_user_reaches_the_socket_and_actions_need_the_token() {
    let sandbox = Sandbox::with_demo(&[]);
    let _gateway = GatewayProcess::start(&sandbox, &[]);
    let state = sandbox.path(STATE);
    let socket = only_socket(&state);
    assert_eq!((mode(&state.join("sockets")), mode(&socket)), (0o700, 0o600));
    let stop = "/api/v1/upstreams/demo/stop";
    let token = std::fs::read_to_string(state.join("admin.token")).unwrap();
    let bearer = |token: &str| format!("authorization: Bearer {token}\r\n");
    assert!(asked(&socket, "GET", "/api/v1/status", "").starts_with("HTTP/1.1 200"));
    for headers in [String::new(), bearer("a guess")] {
        let answer = asked(&socket, "POST", stop, &headers);
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
    let answer = asked(&socket, "POST", stop, &bearer(token.trim()));
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
}

#[test]
fn g05_a_process_of_another_user_is_refused_at_the_socket() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can have another user connect; the decision has a test of its own");
        return;
    }
    let sandbox = Sandbox::with_demo(&[]);
    let _gateway = GatewayProcess::start(&sandbox, &[]);
    let socket = only_socket(&sandbox.path(STATE));
    // As if an operator had made everything accessible.
    for path in socket.ancestors().take_while(|path| path.starts_with(sandbox.path(""))) {
        std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    let asked_as = |uid: u32| {
        let socket = socket.clone();
        let asking = std::thread::spawn(move || {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(uid)).unwrap();
            asked(&socket, "GET", "/api/v1/status", "")
        });
        asking.join().unwrap()
    };
    let refused = asked_as(NOBODY);
    assert!(refused.starts_with("HTTP/1.1 403") && !refused.contains("demo"), "{refused}");
    let status = asked_as(0);
    assert!(status.starts_with("HTTP/1.1 200"));
    let told = "failed authentication from control socket at the control socket as `uid 65534`";
    assert!(status.contains("\"reason\":\"other_user\"") && status.contains(told), "{status}");
}

#[test]
fn the_operator_connects_while_clients_use_all_connections() {
    let config =
        format!("[gateway.limits]\nconnections = 1\nconnections_per_client = 1\n{}", stdio("demo", &[]));
    let sandbox = Sandbox::with(&config);
    let gateway = GatewayProcess::start(&sandbox, &[]);
    let address = gateway.url.strip_prefix("http://").unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    // A client that has sent a complete request is not disconnected for others.
    write!(client, "GET /healthz HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
    client.read_exact(&mut [0; 12]).unwrap();
    until_some("clients have all connections", || {
        let mut another = TcpStream::connect(address).unwrap();
        write!(another, "GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        another.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.1 503").then_some(())
    });
    let ran = sandbox.run(&["stop", "demo", "--url", &gateway.url]);
    assert_eq!(ran.code, Some(0), "{ran}");
}

#[test]
fn connections_of_commands_are_limited() {
    let sandbox = Sandbox::with_demo(&[]);
    let _gateway = GatewayProcess::start(&sandbox, &[]);
    let socket = only_socket(&sandbox.path(STATE));
    // Idle connections are closed after a minute as well.
    let connect = || {
        let mut connection = UnixStream::connect(&socket).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let _ = connection.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let mut start = [0; 12];
        connection.read_exact(&mut start).map(|()| (connection, start))
    };
    let mut taken: Vec<_> = (0..64).map(|_| connect().unwrap()).collect();
    assert!(taken.iter().all(|(_, start)| start == b"HTTP/1.1 200"));
    let closed = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
    assert!(closed.contains(&connect().unwrap_err().kind()));
    taken.pop();
    until_some("there is room again", || connect().ok());
}

#[test]
fn g05_without_a_socket_a_command_that_acts_is_refused_with_the_reason() {
    let sandbox = Sandbox::with_demo(&[]);
    let gateway = GatewayProcess::start(&sandbox, &["--state-dir", "state"]);
    let run =
        |words: &[&str]| sandbox.run(&[words, &["--url", &gateway.url, "--state-dir", "state"]].concat());
    assert_eq!(run(&["stop", "demo"]).code, Some(0));
    let sockets = sandbox.path("state/sockets");
    std::fs::set_permissions(&sockets, Permissions::from_mode(0o777)).unwrap();
    assert_snapshot!(run(&["start", "demo"]), @"
    exit 4
    --- stderr
    error: the admin token was not sent to http://127.0.0.1:[PORT]: its control socket cannot be used: `state/sockets` can be written to by other users
      hint: run the command as the user of the gateway; only that user may have access to `state/sockets`
    ");
    std::fs::remove_dir_all(&sockets).unwrap();
    assert_snapshot!(run(&["start", "demo"]), @"
    exit 4
    --- stderr
    error: the admin token was not sent to http://127.0.0.1:[PORT]: no gateway with the state directory `state` listens there
      hint: `--state-dir` names the state directory of the gateway that listens there
    ");
    let read = run(&["status"]);
    assert!(read.code == Some(0) && read.stdout.contains("stopped"), "what needs no token is asked: {read}");
}

#[test]
fn a_socket_is_removed_with_its_gateway_and_a_stale_one_by_the_next() {
    let sandbox = Sandbox::with_demo(&[]);
    let state = sandbox.path(STATE);
    let stopped =
        |gateway: &GatewayProcess| -> CommandOutput { sandbox.run(&["stop", "demo", "--url", &gateway.url]) };
    let gateway = GatewayProcess::start(&sandbox, &[]);
    gateway.end(Signal::TERM);
    assert_eq!(std::fs::read_dir(state.join("sockets")).unwrap().count(), 0);
    let killed = GatewayProcess::start(&sandbox, &[]);
    let listen = killed.url.strip_prefix("http://").unwrap().to_owned();
    killed.end(Signal::KILL);
    only_socket(&state);
    // At another address, and at the same one.
    let other = GatewayProcess::start(&sandbox, &[]);
    only_socket(&state);
    assert_eq!(stopped(&other).code, Some(0));
    other.end(Signal::KILL);
    let again = GatewayProcess::of(&mut sandbox.command(&["serve", "--listen", &listen]));
    only_socket(&state);
    assert_eq!(stopped(&again).code, Some(0));
}

#[test]
#[cfg(target_os = "linux")]
fn a_state_directory_with_a_long_path_has_a_socket_too() {
    let sandbox = Sandbox::with_demo(&[]);
    let long = format!("{0}/{0}", "x".repeat(100));
    let gateway = GatewayProcess::start(&sandbox, &["--state-dir", &long]);
    let ran = sandbox.run(&["stop", "demo", "--url", &gateway.url, "--state-dir", &long]);
    assert_eq!(ran.code, Some(0), "{ran}");
    gateway.end(Signal::TERM);
    assert_eq!(std::fs::read_dir(sandbox.path(&long).join("sockets")).unwrap().count(), 0);
}

//! `gripfast serve` under a service manager: its state, its watchdog, and sockets that cannot be used.

use crate::gateway_process::GatewayProcess;
use crate::sandbox::{GRIPFAST, Sandbox};
use gripfast_testkit::service_manager::ServiceManager;
use rustix::process::{Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn a_service_manager_learns_the_state_and_that_the_gateway_lives() {
    let sandbox = Sandbox::with_demo(&[]);
    let socket = UnixDatagram::bind(sandbox.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let next = || {
        let mut text = [0; 1024];
        let length = socket.recv(&mut text).expect("the gateway reports");
        String::from_utf8(text[..length].to_vec()).unwrap()
    };
    let mut command = sandbox.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", sandbox.path("notify")).env("WATCHDOG_USEC", "200000");
    let serving = GatewayProcess::of(&mut command);
    assert_eq!(next(), format!("READY=1\nSTATUS=serves MCP at {}/mcp\n", serving.url));
    for _ in 0..3 {
        assert_eq!(next(), "WATCHDOG=1\n");
    }
    kill_process(serving.pid(), Signal::TERM).unwrap();
    let last = std::iter::repeat_with(next).find(|text| text != "WATCHDOG=1\n").unwrap();
    assert!(last.starts_with("STOPPING=1\nSTATUS=stopping: no calls in flight"), "{last}");
}

/// The exit code and the output of a gateway with these sockets.
fn with_sockets(sandbox: &Sandbox, sockets: &[&str], first: impl FnOnce()) -> (Option<i32>, String) {
    let mut command = Command::new("systemd-socket-activate");
    for socket in sockets {
        command.args(["--listen", socket]);
    }
    command.args([GRIPFAST, "serve", "--demo"]).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut gateway = command.current_dir(sandbox.path("")).spawn().unwrap();
    let mut lines = BufReader::new(gateway.stderr.take().unwrap()).lines().map_while(Result::ok);
    // One line for each socket; then the first connection starts the gateway.
    let listening: Vec<String> = lines.by_ref().take(sockets.len()).collect();
    assert!(listening.iter().all(|line| line.contains("Listening on")), "{listening:?}");
    first();
    let said: Vec<String> = lines.collect();
    (gateway.wait().unwrap().code(), said.join("\n"))
}

#[test]
fn a_socket_that_cannot_be_used_is_an_error_with_the_line_to_change() {
    if !ServiceManager::Systemd.require() {
        return;
    }
    let sandbox = Sandbox::empty();
    let path = sandbox.path("mcp.sock");
    let connect = || drop(std::os::unix::net::UnixStream::connect(&path).unwrap());
    let path = path.to_str().unwrap();
    let (code, said) = with_sockets(&sandbox, &[path], connect);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the socket of the service manager cannot be used"), "{said}");
    assert!(said.contains("takes an address and a port, such as 127.0.0.1:7331"), "{said}");
    let other = sandbox.path("other.sock");
    let path = sandbox.path("second.sock");
    let connect = || drop(std::os::unix::net::UnixStream::connect(&path).unwrap());
    let (code, said) = with_sockets(&sandbox, &[path.to_str().unwrap(), other.to_str().unwrap()], connect);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the service manager passes 2 sockets; gripfast takes one"), "{said}");
}

//! Gateway with a small limit of open files: its share for clients, the limit of its servers, and a server that crashed
//! while no descriptor was free.

use crate::gateway_process::GatewayProcess;
use crate::sandbox::{Sandbox, stdio};
use gripfast_testkit::wait::until_some;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Connection that stays open.
struct OpenConnection(BufReader<TcpStream>);

impl OpenConnection {
    fn to(gateway: &GatewayProcess) -> Self {
        let stream = TcpStream::connect(gateway.url.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(BufReader::new(stream))
    }

    /// Status and body of an answer.
    fn get(&mut self, path: &str) -> (u16, Vec<u8>) {
        write!(self.0.get_mut(), "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().unwrap();
            } else if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.parse().unwrap();
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status, body)
    }

    fn demo(&mut self) -> Value {
        let (_, body) = self.get("/api/v1/upstreams/demo");
        serde_json::from_slice(&body).unwrap()
    }
}

/// Gateway started with these `ulimit` settings of a shell.
fn start(sandbox: &Sandbox, limits: &str) -> GatewayProcess {
    let gripfast = sandbox.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &format!("{limits}; exec \"$@\""), "sh"])
        .arg(gripfast.get_program())
        .args(gripfast.get_args())
        .current_dir(gripfast.get_current_dir().unwrap())
        .env_clear()
        .envs(gripfast.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    GatewayProcess::of(&mut command)
}

/// Waits until the server is ready and returns its pid.
fn ready(operator: &mut OpenConnection) -> Pid {
    until_some("the server is ready", || {
        let demo = operator.demo();
        let pid = demo["pid"].as_i64().filter(|_| demo["state"] == "ready")?;
        Pid::from_raw(i32::try_from(pid).unwrap())
    })
}

/// The soft limit of open files of a process.
fn soft_limit(process: Pid) -> u64 {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.as_raw_pid())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn the_open_file_limit_is_raised_and_servers_get_the_original_one() {
    let sandbox = Sandbox::with_demo(&[]);
    let gateway = start(&sandbox, "ulimit -S -n 300; ulimit -H -n 900");
    let server = ready(&mut OpenConnection::to(&gateway));
    assert_eq!((soft_limit(gateway.pid()), soft_limit(server)), (900, 300));
}

#[test]
fn g05_connections_leave_descriptors_for_server_restarts() {
    let sandbox = Sandbox::with_demo(&[]);
    let gateway = start(&sandbox, "ulimit -n 400");
    let mut operator = OpenConnection::to(&gateway);
    let server = ready(&mut operator);
    // The connection limit of one client.
    let mut open = Vec::new();
    let refused = (0..400).any(|_| {
        let mut connection = OpenConnection::to(&gateway);
        let (status, _) = connection.get("/healthz");
        open.push(connection);
        status == 503
    });
    assert!(refused, "all {} connections were let in", open.len());
    kill_process(server, Signal::KILL).unwrap();
    until_some("another process", || (ready(&mut operator) != server).then_some(()));
    let said = gateway.end(Signal::TERM);
    let line = said.lines().find(|line| line.contains("connections are limited to 136 instead of 8192"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("the limit of open files is 400") && line.contains("LimitNOFILE="), "{line}");
}

#[test]
fn b03_a_server_that_lacked_descriptors_is_back_once_they_are_free() {
    let sandbox = Sandbox::with(&stdio("demo", &[]));
    let gateway = GatewayProcess::start(&sandbox, &[]);
    let mut operator = OpenConnection::to(&gateway);
    let server = ready(&mut operator);
    // No more descriptors can be opened; open ones stay.
    let most = Some(soft_limit(gateway.pid()));
    let limit = |current| {
        prlimit(Some(gateway.pid()), Resource::Nofile, Rlimit { current, maximum: most }).unwrap();
    };
    limit(Some(3));
    kill_process(server, Signal::KILL).unwrap();
    let _waiting: Vec<OpenConnection> = (0..20).map(|_| OpenConnection::to(&gateway)).collect();
    let begun = Instant::now();
    until_some("many attempts", || {
        let demo = operator.demo();
        let says_so = demo["cause"].as_str().is_some_and(|cause| cause.contains("no free file descriptors"));
        (says_so && begun.elapsed() > Duration::from_secs(3)).then_some(())
    });
    assert_eq!(operator.demo()["restarts"], 1, "{}", operator.demo());
    limit(most);
    let freed = Instant::now();
    until_some("another process", || (ready(&mut operator) != server).then_some(()));
    let demo = operator.demo();
    assert_eq!(demo["restarts"], 1, "{demo}");
    assert!(freed.elapsed() < Duration::from_secs(20), "{:?}", freed.elapsed());
    let said = gateway.end(Signal::TERM);
    let lines = said.lines().filter(|line| line.contains("cannot accept connections of clients"));
    assert_eq!(lines.count(), 1, "{said}");
}

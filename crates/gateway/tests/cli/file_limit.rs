//! A gateway with a small limit of open files: what it leaves to clients, what its servers get, and what becomes of a
//! server that died while there were no descriptors.

use crate::sandbox::{Sandbox, stdio};
use crate::serving::{Serving, until};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A connection that stays open.
struct Open(BufReader<TcpStream>);

impl Open {
    fn to(gateway: &Serving) -> Self {
        let stream = TcpStream::connect(gateway.url.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(BufReader::new(stream))
    }

    /// The status and the body of an answer.
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

/// A gateway that is started with these limits of a shell.
fn start(sandbox: &Sandbox, limits: &str) -> Serving {
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
    Serving::of(&mut command)
}

/// The pid of the server, once it is ready.
fn ready(operator: &mut Open) -> Pid {
    until("the server is ready", || {
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
fn the_limit_of_open_files_is_raised_and_servers_get_it_as_it_was() {
    let sandbox = Sandbox::with_demo(&[]);
    let gateway = start(&sandbox, "ulimit -S -n 300; ulimit -H -n 900");
    let server = ready(&mut Open::to(&gateway));
    assert_eq!((soft_limit(gateway.pid()), soft_limit(server)), (900, 300));
}

#[test]
fn g05_connections_leave_descriptors_for_a_server_that_has_to_be_started_again() {
    let sandbox = Sandbox::with_demo(&[]);
    let gateway = start(&sandbox, "ulimit -n 400");
    let mut operator = Open::to(&gateway);
    let server = ready(&mut operator);
    // As many as one client may have.
    let mut open = Vec::new();
    let refused = (0..400).any(|_| {
        let mut connection = Open::to(&gateway);
        let (status, _) = connection.get("/healthz");
        open.push(connection);
        status == 503
    });
    assert!(refused, "all {} connections were let in", open.len());
    kill_process(server, Signal::KILL).unwrap();
    until("another process", || (ready(&mut operator) != server).then_some(()));
    let said = gateway.end(Signal::TERM);
    let line = said.lines().find(|line| line.contains("connections are limited to 136 instead of 8192"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("the limit of open files is 400") && line.contains("LimitNOFILE="), "{line}");
}

#[test]
fn b03_a_server_without_descriptors_says_so_and_is_back_as_soon_as_there_are_some() {
    let sandbox = Sandbox::with(&stdio("demo", &[]));
    let gateway = Serving::start(&sandbox, &[]);
    let mut operator = Open::to(&gateway);
    let server = ready(&mut operator);
    // Nothing more can be opened. What is open stays so.
    let most = Some(soft_limit(gateway.pid()));
    let limit = |current| {
        prlimit(Some(gateway.pid()), Resource::Nofile, Rlimit { current, maximum: most }).unwrap();
    };
    limit(Some(3));
    kill_process(server, Signal::KILL).unwrap();
    let _waiting: Vec<Open> = (0..20).map(|_| Open::to(&gateway)).collect();
    let begun = Instant::now();
    until("many attempts", || {
        let demo = operator.demo();
        let says_so = demo["cause"].as_str().is_some_and(|cause| cause.contains("no free file descriptors"));
        (says_so && begun.elapsed() > Duration::from_secs(3)).then_some(())
    });
    assert_eq!(operator.demo()["restarts"], 1, "{}", operator.demo());
    limit(most);
    let freed = Instant::now();
    until("another process", || (ready(&mut operator) != server).then_some(()));
    let demo = operator.demo();
    assert_eq!(demo["restarts"], 1, "{demo}");
    assert!(freed.elapsed() < Duration::from_secs(20), "{:?}", freed.elapsed());
    let said = gateway.end(Signal::TERM);
    let lines = said.lines().filter(|line| line.contains("cannot accept connections of clients"));
    assert_eq!(lines.count(), 1, "{said}");
}

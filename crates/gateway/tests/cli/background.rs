//! `gripfast stdio` with a running gateway, and `gripfast stdio --background`, which starts one.

use crate::gateway_process::GatewayProcess;
use crate::in_process_gateway::STATE;
use crate::sandbox::{GRIPFAST, Sandbox};
use gripfast_testkit::wait::until_some;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Timeout of every answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Config whose server records the process that started it.
fn config(linger: &str, more: &str) -> String {
    let script = format!("echo $PPID >> starts; exec {GRIPFAST} demo-server");
    format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\nlinger = {linger:?}\n\
         [servers.demo]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n{more}"
    )
}

/// Process ids of the gateways that started the server, in order.
fn starters(sandbox: &Sandbox) -> Vec<Pid> {
    let text = std::fs::read_to_string(sandbox.path("starts")).unwrap_or_default();
    text.lines().map(|line| Pid::from_raw(line.parse().unwrap()).unwrap()).collect()
}

/// Guard that ends the last gateway that started the server.
struct BackgroundGateway<'s>(&'s Sandbox);

impl Drop for BackgroundGateway<'_> {
    fn drop(&mut self) {
        for gateway in starters(self.0) {
            // It may have ended already.
            let _ = kill_process(gateway, Signal::KILL);
        }
    }
}

/// Legacy client of `gripfast stdio`.
struct StdioClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    next_id: u64,
}

impl StdioClient {
    fn start(sandbox: &Sandbox, words: &[&str]) -> Self {
        let mut child = sandbox.command(words).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let (say, lines) = channel();
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| say.send(line)));
        let mut client = Self { child, stdin, lines, next_id: 0 };
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "a-script", "version": "1" },
        });
        let hello = client.ask("initialize", params);
        assert_eq!(hello["result"]["serverInfo"]["name"], "gripfast", "{hello}");
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.hear(|message| message["id"] == id)
    }

    fn hear(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if is_it(&message) {
                return message;
            }
        }
    }

    fn adds(&mut self) {
        let answer = self.ask("tools/call", json!({ "name": "demo__add", "arguments": { "a": 2, "b": 3 } }));
        assert_eq!(answer["result"]["content"][0]["text"], "5", "{answer}");
    }

    fn leaves(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const BACKGROUND: [&str; 2] = ["stdio", "--background"];

#[test]
fn clients_that_start_at_the_same_time_share_one_gateway() {
    let sandbox = Sandbox::with(&config("1s", ""));
    let _background = BackgroundGateway(&sandbox);
    let clients: Vec<StdioClient> = std::thread::scope(|scope| {
        let starting: Vec<_> =
            (0..4).map(|_| scope.spawn(|| StdioClient::start(&sandbox, &BACKGROUND))).collect();
        starting.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for mut client in clients {
        client.adds();
        client.leaves();
    }
    let gateways = starters(&sandbox);
    assert_eq!(gateways.len(), 1, "{gateways:?}");
    until_some("the gateway ends after its last client", || {
        test_kill_process(gateways[0]).is_err().then_some(())
    });
    let bridges: Vec<_> = std::fs::read_dir(sandbox.path(STATE).join("bridges")).unwrap().flatten().collect();
    let log = bridges.iter().find(|entry| entry.path().extension().is_some_and(|ending| ending == "log"));
    assert_eq!(log.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(bridges.iter().all(|entry| entry.path().extension().is_none_or(|ending| ending != "sock")));
}

#[test]
fn a_call_in_a_killed_gateway_is_unknown_and_its_client_goes_on() {
    let sandbox = Sandbox::with(&config("60s", ""));
    let _background = BackgroundGateway(&sandbox);
    let mut client = StdioClient::start(&sandbox, &BACKGROUND);
    let params =
        json!({ "name": "demo__sleep", "arguments": { "ms": 3_600_000 }, "_meta": { "progressToken": 1 } });
    let sleep = client.begin("tools/call", params);
    client.hear(|message| message["method"] == "notifications/progress");
    kill_process(starters(&sandbox)[0], Signal::KILL).unwrap();
    let answer = client.hear(|message| message["id"] == sleep);
    assert_eq!(answer["result"]["_meta"]["gripfast/failure"]["code"], "outcome_unknown", "{answer}");
    client.hear(|message| message["method"] == "notifications/tools/list_changed");
    client.adds();
    assert_eq!(starters(&sandbox).len(), 2);
}

#[test]
fn a_client_with_a_different_variable_value_is_refused_by_its_name() {
    let sandbox = Sandbox::with(&config("60s", "env = { TOKEN = \"${env:SOME_TOKEN:-none}\" }\n"));
    let _background = BackgroundGateway(&sandbox);
    let mut client = StdioClient::start(&sandbox, &BACKGROUND);
    client.adds();
    let refused = sandbox.run_with(&BACKGROUND, &[("SOME_TOKEN", "hunter22")]);
    assert_eq!(refused.code, Some(2), "{refused}");
    let named = "environment variables of the config have other values in the running gateway: SOME_TOKEN";
    assert!(refused.stderr.contains(named) && !refused.stderr.contains("hunter22"), "{refused}");
    // Without `--background`, stdio serves itself.
    let served = sandbox.run_with(&["stdio"], &[("SOME_TOKEN", "hunter22")]);
    assert!(served.code == Some(0) && served.stderr.contains(named), "{served}");
}

#[test]
fn a_gateway_that_cannot_start_in_the_background_says_why() {
    let tls = "[gateway]\nlisten = \"127.0.0.1:0\"\ntls = { cert = \"none.pem\", key = \"none.pem\" }\n";
    let refused = Sandbox::with(tls).run(&BACKGROUND);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("the background gateway ended with exit status"), "{refused}");
    assert!(refused.stderr.contains("none.pem"), "the cause: {refused}");
}

#[test]
fn stdio_uses_a_running_gateway_and_serves_itself_when_it_is_gone() {
    let sandbox = Sandbox::with(&config("60s", ""));
    let gateway = GatewayProcess::start(&sandbox, &[]);
    let mut client = StdioClient::start(&sandbox, &["stdio"]);
    client.adds();
    assert_eq!(starters(&sandbox), [gateway.pid()]);
    // Another state directory has no gateway.
    let mut alone = StdioClient::start(&sandbox, &["stdio", "--state-dir", "other"]);
    alone.adds();
    assert_eq!(starters(&sandbox), [gateway.pid(), Pid::from_child(&alone.child)]);
    gateway.end(Signal::KILL);
    client.adds();
    assert_eq!(starters(&sandbox).last(), Some(&Pid::from_child(&client.child)));
    client.leaves();
}

#[test]
fn g05_a_process_of_another_user_gets_nothing_at_the_socket_of_stdio() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can have another user connect; the decision has a test of its own");
        return;
    }
    let sandbox = Sandbox::with(&config("60s", ""));
    let _gateway = GatewayProcess::start(&sandbox, &[]);
    let folder = sandbox.path(STATE).join("bridges");
    let socket = until_some("the gateway has its socket", || {
        let entries = std::fs::read_dir(&folder).ok()?.flatten().map(|entry| entry.path());
        entries.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "sock"))
    });
    let mode = |path: &Path| path.symlink_metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&socket)), (0o700, 0o600));
    // As if an operator had made everything accessible.
    for path in socket.ancestors().take_while(|path| path.starts_with(sandbox.path(""))) {
        std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    let answers_as = |uid: u32| {
        let socket = socket.clone();
        let asking = std::thread::spawn(move || {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(uid)).unwrap();
            let mut connection = UnixStream::connect(socket).unwrap();
            connection.write_all(b"{\"variables\":[\"PATH\"]}\n").unwrap();
            connection.shutdown(Shutdown::Write).unwrap();
            let mut heard = String::new();
            let _ = connection.read_to_string(&mut heard);
            heard
        });
        asking.join().unwrap()
    };
    let (refused, served) = (answers_as(NOBODY), answers_as(0));
    assert!(!refused.contains("salt") && served.contains("salt"), "{refused}\n{served}");
}

//! `gripfast stdio`: one message per line, in both eras, nothing else on stdout, and no process left behind.

use crate::client::{LEGACY, MODERN, call, in_context, initialize, names, request, text_of};
use crate::test_gateway::{GRIPFAST, child, file_of};
use gripfast_testkit::wait::{PATIENCE, until, within};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// `gripfast stdio` as a child process, as an editor would start it.
struct StdioGateway {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    dir: TempDir,
}

impl StdioGateway {
    fn open() -> Self {
        Self::over("both")
    }

    /// Starts the gateway with a server of this era.
    fn over(era: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pid_file = dir.path().join("pid");
        let flags = ["--pid-file", pid_file.to_str().unwrap(), "--era", era];
        let config = dir.path().join("gripfast.toml");
        std::fs::write(&config, file_of(&child("demo", &flags, &[]))).unwrap();
        let mut command = Command::new(GRIPFAST);
        command.arg("stdio").arg("--config").arg(&config).arg("--state-dir").arg(dir.path().join("state"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, input, output, dir }
    }

    async fn send(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// Every line is a message.
    async fn receive(&mut self) -> Value {
        let line = within("a line", self.output.next_line()).await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    async fn request(&mut self, message: &Value) -> Value {
        self.send(&message.to_string()).await;
        let answer = self.receive().await;
        assert_eq!(answer["id"], message["id"], "{answer}");
        answer
    }

    async fn shakes_hands(&mut self) {
        let hello = self.request(&initialize(LEGACY)).await;
        assert_eq!(hello["result"]["protocolVersion"], LEGACY);
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    }

    fn server(&self) -> u32 {
        std::fs::read_to_string(self.dir.path().join("pid")).unwrap().trim().parse().unwrap()
    }

    /// Closes stdin and checks that the gateway exits with success, writes nothing more, and ends its servers.
    async fn ends(mut self) {
        let server = self.server();
        drop(self.input);
        let mut rest = Vec::new();
        within("the end of stdout", self.output.get_mut().read_to_end(&mut rest)).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&rest), "");
        assert!(within("the end", self.process.wait()).await.unwrap().success());
        until("the server is gone", || !is_alive(server)).await;
    }
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
}

fn modern(id: &str, method: &str, params: Value) -> Value {
    request(id, method, &in_context(params))
}

#[tokio::test]
async fn a_legacy_client_is_served_and_nothing_is_left_behind() {
    let mut pipe = StdioGateway::open();
    pipe.shakes_hands().await;
    let listed = pipe.request(&request(1, "tools/list", &json!({}))).await;
    assert_eq!(names(&listed, "tools", "name")[0], "demo__echo");
    let echo = call("demo__echo", json!({ "text": "a\nb\u{2028}c" }));
    assert_eq!(text_of(&pipe.request(&request("é", "tools/call", &echo)).await), "a\nb\u{2028}c");
    assert_eq!(pipe.request(&request(2, "no/such", &json!({}))).await["error"]["code"], -32601);
    pipe.ends().await;
}

#[tokio::test]
async fn a_modern_client_is_served_and_nothing_is_left_behind() {
    let mut pipe = StdioGateway::open();
    let found = pipe.request(&modern("d", "server/discover", json!({}))).await;
    assert!(found["result"]["supportedVersions"].as_array().unwrap().contains(&json!(MODERN)), "{found}");
    let listed = pipe.request(&modern("l", "tools/list", json!({}))).await;
    assert_eq!(names(&listed, "tools", "name")[0], "demo__echo");
    assert_eq!(listed["result"]["resultType"], "complete");
    let echo = call("demo__echo", json!({ "text": "hi" }));
    let called = pipe.request(&modern("c", "tools/call", echo)).await;
    assert_eq!((text_of(&called), &called["result"]["resultType"]), ("hi".to_owned(), &json!("complete")));
    assert_eq!(pipe.request(&modern("p", "ping", json!({}))).await["error"]["code"], -32601);
    pipe.ends().await;
}

#[tokio::test]
async fn a_modern_client_answers_elicitations_of_servers_of_both_eras() {
    for era in ["legacy", "modern"] {
        let mut pipe = StdioGateway::over(era);
        let mut ask = modern("a", "tools/call", call("demo__ask", json!({ "question": "Sure?" })));
        ask["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
            json!({ "elicitation": { "form": {} } });
        let asked = pipe.request(&ask).await["result"].take();
        assert_eq!(asked["resultType"], "input_required", "{era}: {asked}");
        let (key, wanted) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(wanted["params"]["message"], "Sure?", "{era}: {asked}");
        let yes = json!({ "action": "accept", "content": { "ok": true } });
        ask["id"] = json!("b");
        ask["params"]["inputResponses"] = json!({ key: yes });
        ask["params"]["requestState"] = asked["requestState"].clone();
        let told = pipe.request(&ask).await;
        assert_eq!(text_of(&told), "the answer was yes", "{era}: {told}");
        assert_eq!(told["result"]["resultType"], "complete", "{era}: {told}");
        pipe.ends().await;
    }
}

#[tokio::test]
async fn an_incomplete_modern_request_is_refused() {
    let mut pipe = StdioGateway::open();
    let mut params = in_context(json!({}));
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2027-01-01");
    let refused = pipe.request(&request("v", "tools/list", &params)).await;
    assert_eq!(refused["error"]["code"], -32022, "{refused}");
    assert!(refused["error"]["data"]["supported"].as_array().unwrap().contains(&json!(MODERN)));
    let mut params = in_context(json!({}));
    params["_meta"].as_object_mut().unwrap().remove("io.modelcontextprotocol/clientCapabilities");
    let refused = pipe.request(&request("c", "tools/list", &params)).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    // A legacy handshake still works on the same connection.
    pipe.shakes_hands().await;
    pipe.ends().await;
}

#[tokio::test]
async fn bad_lines_are_answered_and_do_no_harm() {
    let mut pipe = StdioGateway::open();
    pipe.shakes_hands().await;
    for (line, code) in [("{", -32700), ("[", -32700), ("7", -32600), ("[]", -32600), ("{}", -32600)] {
        pipe.send(line).await;
        let answer = pipe.receive().await;
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &Value::Null), "{line}");
    }
    pipe.send("").await;
    assert_eq!(pipe.request(&request(1, "ping", &json!({}))).await["result"], json!({}));
    pipe.ends().await;
}

#[tokio::test]
async fn a_line_over_the_limit_is_answered_and_ends_nothing() {
    let mut pipe = StdioGateway::open();
    pipe.shakes_hands().await;
    let mut slow = call("demo__sleep", json!({ "ms": 1000 }));
    slow["_meta"] = json!({ "progressToken": "mine" });
    pipe.send(&request("slow", "tools/call", &slow).to_string()).await;
    assert_eq!(pipe.receive().await["params"]["progressToken"], "mine");
    pipe.send(&"x".repeat(17 << 20)).await;
    let (mut refused, mut answered) = (None, None);
    while refused.is_none() || answered.is_none() {
        let message = pipe.receive().await;
        match message["id"].as_str() {
            Some("slow") => answered = Some(text_of(&message)),
            Some(_) | None if message["error"].is_object() => refused = Some(message),
            Some(_) | None => {}
        }
    }
    let refused = refused.unwrap();
    assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(-32600), &Value::Null), "{refused}");
    assert_eq!(answered.as_deref(), Some("slept 1000 ms"));
    pipe.ends().await;
}

/// C07, G07: a request that is too large is answered, so that no client waits forever.
#[tokio::test]
async fn g07_a_request_over_the_limit_is_answered_under_its_id_in_any_position() {
    let mut pipe = StdioGateway::open();
    pipe.shakes_hands().await;
    let params =
        format!(r#"{{"name":"demo__echo","arguments":{{"text":"{}","id":9}}}}"#, "x".repeat(17 << 20));
    for (id, request) in [
        (json!(7), format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#)),
        (
            json!("last"),
            format!(r#"{{"method":"tools/call","params":{params},"jsonrpc":"2.0","id":"last"}}"#),
        ),
    ] {
        pipe.send(&request).await;
        let answer = pipe.receive().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-32600)), "{answer}");
    }
    pipe.ends().await;
}

#[tokio::test]
async fn progress_and_cancellation_work_on_stdio() {
    let mut pipe = StdioGateway::open();
    pipe.shakes_hands().await;
    let mut params = call("demo__sleep", json!({ "ms": 60_000 }));
    params["_meta"] = json!({ "progressToken": "mine" });
    pipe.send(&request("slow", "tools/call", &params).to_string()).await;
    let progress = pipe.receive().await;
    assert_eq!(progress["params"]["progressToken"], "mine", "{progress}");
    let cancelled = json!({ "requestId": "slow" });
    pipe.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }).to_string(),
    )
    .await;
    pipe.send(&request("after", "ping", &json!({})).to_string()).await;
    loop {
        let message = pipe.receive().await;
        assert_ne!(message["id"], "slow", "a cancelled call is not answered");
        if message["id"] == "after" {
            break;
        }
    }
    pipe.ends().await;
}

#[tokio::test]
async fn c07_on_stdio_too_an_id_names_one_call_at_a_time() {
    let mut pipe = StdioGateway::open();
    pipe.shakes_hands().await;
    let mut slow = call("demo__sleep", json!({ "ms": 60_000 }));
    slow["_meta"] = json!({ "progressToken": "mine" });
    pipe.send(&request("twice", "tools/call", &slow).to_string()).await;
    while pipe.receive().await["params"]["progressToken"] != "mine" {}
    pipe.send(&request("twice", "ping", &json!({})).to_string()).await;
    let refused = loop {
        let message = pipe.receive().await;
        if message["id"] == "twice" {
            break message;
        }
    };
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    let cancelled = json!({ "requestId": "twice" });
    pipe.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }).to_string(),
    )
    .await;
    pipe.send(&request("twice", "ping", &json!({})).to_string()).await;
    let answer = loop {
        let message = pipe.receive().await;
        if message["id"] == "twice" {
            break message;
        }
    };
    assert_eq!(answer["result"], json!({}), "the id is free once its call was cancelled");
    pipe.ends().await;
}

#[tokio::test]
async fn pending_answers_are_written_after_stdin_closes() {
    let mut pipe = StdioGateway::open();
    pipe.shakes_hands().await;
    let slow = request("slow", "tools/call", &call("demo__sleep", json!({ "ms": 300 })));
    pipe.send(&slow.to_string()).await;
    drop(pipe.input);
    let line = within("the answer", pipe.output.next_line()).await.unwrap().unwrap();
    assert!(line.contains("slept 300 ms"), "{line}");
    assert_eq!(within("the end of stdout", pipe.output.next_line()).await.unwrap(), None);
    assert!(within("the end", pipe.process.wait()).await.unwrap().success());
}

#[tokio::test]
async fn pending_answers_are_written_after_sigterm() {
    let mut pipe = StdioGateway::open();
    pipe.shakes_hands().await;
    let listen =
        modern("sub", "subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    pipe.send(&listen.to_string()).await;
    while pipe.receive().await["method"] != "notifications/subscriptions/acknowledged" {}
    let mut slow = call("demo__sleep", json!({ "ms": 1500 }));
    slow["_meta"] = json!({ "progressToken": "mine" });
    pipe.send(&request("slow", "tools/call", &slow).to_string()).await;
    while pipe.receive().await["method"] != "notifications/progress" {}
    kill_process(Pid::from_raw(pipe.process.id().unwrap().cast_signed()).unwrap(), Signal::TERM).unwrap();
    let (mut answer, mut over) = (None, None);
    while let Some(line) = within("a line", pipe.output.next_line()).await.unwrap() {
        let message: Value = serde_json::from_str(&line).unwrap();
        match message["id"].as_str() {
            Some("slow") => answer = Some(text_of(&message)),
            Some("sub") => over = Some(message["result"]["resultType"].clone()),
            Some(_) | None => {}
        }
    }
    assert_eq!(answer.as_deref(), Some("slept 1500 ms"));
    assert_eq!(over, Some(json!("complete")), "the subscription ends with a result");
    assert!(within("the end", pipe.process.wait()).await.unwrap().success());
}

#[tokio::test]
async fn a_closed_stdout_ends_the_gateway_and_its_servers() {
    let mut pipe = StdioGateway::open();
    pipe.shakes_hands().await;
    pipe.request(&request(1, "tools/list", &json!({}))).await;
    let server = pipe.server();
    drop(pipe.output);
    // Its answer is the first that cannot be written. Stdin stays open.
    pipe.input.write_all(format!("{}\n", request(2, "ping", &json!({}))).as_bytes()).await.unwrap();
    assert!(!within("the end", pipe.process.wait()).await.unwrap().success());
    until("the server is gone", || !is_alive(server)).await;
    drop(pipe.input);
}

#[cfg(unix)]
#[tokio::test]
async fn sigterm_ends_the_gateway_although_its_client_reads_nothing() {
    let mut pipe = StdioGateway::open();
    pipe.shakes_hands().await;
    pipe.request(&request("first", "tools/list", &json!({}))).await;
    let server = pipe.server();
    // Sends requests until no more are accepted: all pipes and queues are full.
    for number in 0.. {
        let line = format!("{}\n", request(number, "tools/list", &json!({})));
        let writing = pipe.input.write_all(line.as_bytes());
        if tokio::time::timeout(Duration::from_secs(1), writing).await.is_err() {
            break;
        }
    }
    kill_process(Pid::from_raw(pipe.process.id().unwrap().cast_signed()).unwrap(), Signal::TERM).unwrap();
    let told = Instant::now();
    within("the end", pipe.process.wait()).await.unwrap();
    assert!(told.elapsed() < Duration::from_secs(9), "`shutdown_timeout`: {:?}", told.elapsed());
    until("the server is gone", || !is_alive(server)).await;
}

#[tokio::test]
async fn an_open_listen_request_does_not_delay_the_exit() {
    let mut pipe = StdioGateway::open();
    let listen =
        modern("sub", "subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    pipe.send(&listen.to_string()).await;
    assert_eq!(pipe.receive().await["method"], "notifications/subscriptions/acknowledged");
    pipe.request(&modern("l", "tools/list", json!({}))).await;
    let server = pipe.server();
    drop(pipe.input);
    assert!(tokio::time::timeout(PATIENCE, pipe.process.wait()).await.unwrap().unwrap().success());
    until("the server is gone", || !is_alive(server)).await;
}

#[tokio::test]
async fn g07_a_line_nested_too_deeply_is_refused_and_the_next_one_answered() {
    let mut pipe = StdioGateway::open();
    pipe.shakes_hands().await;
    for levels in [129, 100_000] {
        let deep = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": { "name": "demo__echo", "arguments": "DEEP" } });
        pipe.send(&message.to_string().replace("\"DEEP\"", &deep)).await;
        let answer = pipe.receive().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32600)));
        assert!(answer["error"]["message"].as_str().unwrap().contains("gateway.limits.nesting"), "{answer}");
    }
    assert_eq!(pipe.request(&request(8, "ping", &json!({}))).await["result"], json!({}));
}

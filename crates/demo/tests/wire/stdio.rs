//! The server on a pipe, line by line in both eras.

use std::time::Duration;

use crate::messages::{initialize, modern, tool_names};
use gripfast_demo::{EraChoice, Faults, Options, serve_on};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    task::JoinHandle,
};

#[tokio::test]
async fn a_legacy_client_initializes_and_calls() {
    let mut pipe = Pipe::open(Options::default());
    let hello = pipe.ask(initialize(0, "2025-11-25")).await;
    assert_eq!(hello["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(hello["result"]["serverInfo"]["name"], "gripfast-demo");
    pipe.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;

    let echo = pipe.call(1, "echo", json!({"text": "hi"})).await;
    assert_eq!(echo["result"]["content"][0]["text"], "hi");
    assert_eq!(echo["result"]["structuredContent"], json!({"text": "hi"}));
    assert!(echo["result"]["resultType"].is_null(), "that field is of the modern era");
    let sum = pipe.call(2, "add", json!({"a": 2, "b": 3})).await;
    assert_eq!(sum["result"]["structuredContent"]["sum"], 5);
    let failed = pipe.call(3, "fail", json!({"message": "no luck"})).await;
    assert_eq!(failed["result"]["isError"], true);
    assert_eq!(pipe.call(4, "reject", json!({})).await["error"]["code"], -32602);
    assert_eq!(pipe.call(5, "nonesuch", json!({})).await["error"]["code"], -32602);
    assert_eq!(pipe.ask(json!({"jsonrpc": "2.0", "id": 6, "method": "ping"})).await["result"], json!({}));
    pipe.close().await;
}

#[tokio::test]
async fn a_modern_client_needs_no_handshake() {
    let mut pipe = Pipe::open(Options::default());
    let found = pipe.ask(modern("d", "server/discover", json!({}))).await;
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(found["result"]["resultType"], "complete");
    assert!(found["result"]["ttlMs"].is_u64());
    assert_eq!(found["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "gripfast-demo");

    let echo =
        pipe.ask(modern("c", "tools/call", json!({"name": "echo", "arguments": {"text": "hi"}}))).await;
    assert_eq!(echo["result"]["content"][0]["text"], "hi");
    assert_eq!(echo["result"]["resultType"], "complete");
    assert!(echo["result"]["ttlMs"].is_null(), "calls are not cacheable");
    assert_eq!(pipe.ask(modern("p", "ping", json!({}))).await["error"]["code"], -32601);
}

#[tokio::test]
async fn modern_requests_need_their_envelope_and_a_supported_version() {
    let mut pipe = Pipe::open(Options::default());
    let bare = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover"});
    assert_eq!(pipe.ask(bare).await["error"]["code"], -32602);

    let mut future = modern("v", "tools/list", json!({}));
    future["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2031-01-01");
    let refused = pipe.ask(future).await;
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(refused["error"]["data"], json!({"supported": ["2026-07-28"], "requested": "2031-01-01"}));
}

#[tokio::test]
async fn each_era_can_be_disabled() {
    let mut legacy = Pipe::open(Options { era: EraChoice::Legacy, ..Options::default() });
    assert!(legacy.ask(modern("d", "server/discover", json!({}))).await["error"].is_object());
    assert!(legacy.ask(initialize(0, "2025-06-18")).await["result"].is_object());

    let mut new = Pipe::open(Options { era: EraChoice::Modern, ..Options::default() });
    assert_eq!(new.ask(initialize(0, "2025-06-18")).await["error"]["code"], -32022);
    assert!(new.ask(modern("d", "server/discover", json!({}))).await["result"].is_object());
}

#[tokio::test]
async fn a_slow_call_does_not_block_a_quick_one() {
    let mut pipe = Pipe::legacy(Options::default()).await;
    pipe.send(call(1, "misbehave", json!({"how": "hang"}))).await;
    assert_eq!(pipe.call(2, "echo", json!({"text": "quick"})).await["id"], 2);
}

#[tokio::test(start_paused = true)]
async fn sleep_sends_progress_if_requested() {
    let mut pipe = Pipe::legacy(Options::default()).await;
    let mut request = call(1, "sleep", json!({"ms": 350}));
    request["params"]["_meta"] = json!({"progressToken": "t"});
    pipe.send(request).await;
    for expected in [100, 200, 300] {
        let progress = pipe.receive().await;
        assert_eq!(progress["method"], "notifications/progress");
        assert_eq!(progress["params"]["progressToken"], "t");
        assert_eq!(progress["params"]["progress"], expected);
    }
    assert_eq!(pipe.receive().await["result"]["content"][0]["text"], "slept 350 ms");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_not_answered() {
    for era in [EraChoice::Legacy, EraChoice::Modern] {
        let mut pipe = Pipe::legacy(Options::default()).await;
        let request = match era {
            EraChoice::Modern => {
                modern("s", "tools/call", json!({"name": "sleep", "arguments": {"ms": 1000}}))
            }
            _ => call(1, "sleep", json!({"ms": 1000})),
        };
        let id = request["id"].clone();
        pipe.send(request).await;
        pipe.send(
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}),
        )
        .await;
        // The longer sleep is answered first, so the shorter one was cancelled.
        assert_eq!(pipe.call(2, "sleep", json!({"ms": 5000})).await["id"], 2);
    }
}

#[tokio::test]
async fn lists_come_in_pages() {
    let options = Options { page_size: 4, extra_tools: 5, ..Options::default() };
    let mut pipe = Pipe::legacy(options).await;
    let mut names = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let mut request = json!({"jsonrpc": "2.0", "id": "l", "method": "tools/list", "params": {}});
        if !cursor.is_null() {
            request["params"]["cursor"] = cursor;
        }
        let page = pipe.ask(request).await;
        let page_names = tool_names(&page);
        assert!(page_names.len() <= 4);
        names.extend(page_names);
        cursor = page["result"]["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(names.len(), 14);
    assert_eq!(names.last().map(String::as_str), Some("extra_5"));
}

#[tokio::test]
async fn a_changed_tool_list_is_announced_to_both_eras() {
    let mut pipe = Pipe::legacy(Options::default()).await;
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let received = pipe.ask(modern("sub", "subscriptions/listen", filter)).await;
    assert_eq!(received["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(received["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "sub");

    pipe.send(call(1, "misbehave", json!({"how": "add_tool", "name": "fresh"}))).await;
    let received = [pipe.receive().await, pipe.receive().await, pipe.receive().await];
    let announced: Vec<_> =
        received.iter().filter(|message| message["method"] == "notifications/tools/list_changed").collect();
    assert_eq!(announced.len(), 2, "once for the session, once for the subscription: {received:?}");
    let subscribed = announced
        .iter()
        .filter(|m| m["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "sub")
        .count();
    assert_eq!(subscribed, 1);
    let list = pipe.ask(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})).await;
    assert!(tool_names(&list).contains(&"fresh".to_owned()));
}

#[tokio::test]
async fn changes_of_a_subscribed_resource_are_announced() {
    let mut pipe = Pipe::legacy(Options::default()).await;
    let subscribe = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": "demo://counter"}});
    pipe.ask(subscribe).await;
    pipe.send(call(2, "counter", json!({"by": 5}))).await;
    let received = [pipe.receive().await, pipe.receive().await];
    assert!(received.iter().any(|m| m["params"]["uri"] == "demo://counter"), "{received:?}");
    let read =
        json!({"jsonrpc": "2.0", "id": 3, "method": "resources/read", "params": {"uri": "demo://counter"}});
    assert_eq!(pipe.ask(read).await["result"]["contents"][0]["text"], "5");
}

#[tokio::test]
async fn the_other_methods_are_answered() {
    let mut pipe = Pipe::legacy(Options::default()).await;
    let mut ask = async |method: &str, params: Value| {
        pipe.ask(json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})).await
    };
    let greet = ask("prompts/get", json!({"name": "greet", "arguments": {"name": "Ada"}})).await;
    assert!(greet["result"]["messages"][0]["content"]["text"].as_str().unwrap().contains("Ada"));
    let echo = ask("resources/read", json!({"uri": "demo://echo/hello"})).await;
    assert_eq!(echo["result"]["contents"][0]["text"], "hello");
    assert_eq!(ask("resources/read", json!({"uri": "demo://none"})).await["error"]["code"], -32002);
    let argument =
        json!({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}});
    let completion = ask("completion/complete", argument).await;
    assert_eq!(completion["result"]["completion"]["values"], json!(["Ada", "Alan"]));
    assert_eq!(ask("logging/setLevel", json!({"level": "loud"})).await["error"]["code"], -32602);
    for (method, key) in [
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ] {
        assert!(ask(method, json!({})).await["result"][key].is_array(), "{method}");
    }
}

#[tokio::test]
async fn a_log_level_enables_log_messages() {
    let mut pipe = Pipe::legacy(Options::default()).await;
    let level = json!({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "info"}});
    pipe.ask(level).await;
    let received = pipe.call(2, "echo", json!({"text": "hi"})).await;
    assert_eq!(received["method"], "notifications/message");
    assert_eq!(pipe.receive().await["id"], 2);
}

#[tokio::test]
async fn the_client_is_asked_in_the_form_of_its_era() {
    let mut pipe = Pipe::legacy(Options::default()).await;
    let question = pipe.call(1, "ask", json!({"question": "Deploy?"})).await;
    assert_eq!(question["method"], "elicitation/create");
    let yes = json!({"action": "accept", "content": {"ok": true}});
    let done = pipe.ask(json!({"jsonrpc": "2.0", "id": question["id"], "result": yes})).await;
    assert_eq!(done["result"]["content"][0]["text"], "the answer was yes");

    let params = json!({"name": "ask", "arguments": {"question": "Deploy?"}});
    let first = pipe.ask(modern("m1", "tools/call", params.clone())).await;
    assert_eq!(first["result"]["resultType"], "input_required");
    assert_eq!(first["result"]["inputRequests"]["confirm"]["method"], "elicitation/create");
    let mut retry = params.clone();
    retry["inputResponses"] = json!({"confirm": yes});
    retry["requestState"] = first["result"]["requestState"].clone();
    let second = pipe.ask(modern("m2", "tools/call", retry.clone())).await;
    assert_eq!(second["result"]["content"][0]["text"], "the answer was yes");
    retry["requestState"] = json!("made up");
    assert_eq!(pipe.ask(modern("m3", "tools/call", retry)).await["error"]["code"], -32602);

    let mut unable = modern("m4", "tools/call", params);
    unable["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    assert_eq!(pipe.ask(unable).await["error"]["code"], -32021);
}

#[tokio::test]
async fn batches_belong_to_one_revision() {
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "nonesuch"},
    ]);
    let mut old = Pipe::open(Options::default());
    old.ask(initialize(0, "2025-03-26")).await;
    let answers = old.ask(batch.clone()).await;
    assert_eq!(answers[0]["result"], json!({}));
    assert_eq!(answers[1]["error"]["code"], -32601);
    assert_eq!(answers.as_array().unwrap().len(), 2, "a notification is not answered");

    let mut newer = Pipe::legacy(Options::default()).await;
    assert_eq!(newer.ask(batch).await["error"]["code"], -32600);
}

#[tokio::test]
async fn a_script_may_send_everything_at_once_and_close() {
    let mut pipe = Pipe::open(Options::default());
    pipe.send(initialize(0, "2025-11-25")).await;
    pipe.send(call(1, "echo", json!({"text": "hi"}))).await;
    pipe.send(call(2, "misbehave", json!({"how": "hang"}))).await;
    pipe.writer.shutdown().await.unwrap();
    assert_eq!(pipe.receive().await["id"], 0);
    assert_eq!(pipe.receive().await["id"], 1);
    pipe.ends().await;
}

#[tokio::test]
async fn a_crash_in_mid_call_closes_the_pipe_without_an_answer() {
    let mut pipe = Pipe::legacy(Options::default()).await;
    pipe.send(call(1, "crash", json!({}))).await;
    pipe.ends().await;
}

#[tokio::test]
async fn a_crash_can_leave_half_a_frame() {
    let mut pipe = Pipe::legacy(Options::default()).await;
    pipe.send(call(1, "crash", json!({"how": "half_frame"}))).await;
    let half = pipe.line().await;
    assert!(half.starts_with('{') && serde_json::from_str::<Value>(&half).is_err(), "{half}");
    pipe.ends().await;
}

#[tokio::test]
async fn junk_is_written_between_messages() {
    let faults = Faults { junk_on_stdout: true, ..Faults::default() };
    let mut pipe = Pipe::open(Options { faults, ..Options::default() });
    pipe.send(initialize(0, "2025-11-25")).await;
    let lines = [pipe.line().await, pipe.line().await, pipe.line().await];
    let messages = lines.iter().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count();
    assert_eq!(messages, 1, "one at start, one before the answer: {lines:?}");

    let mut half = Pipe::legacy(Options::default()).await;
    half.send(call(1, "misbehave", json!({"how": "half_frame"}))).await;
    assert!(serde_json::from_str::<Value>(&half.line().await).is_err());
    assert_eq!(half.receive().await["id"], 1);
}

#[tokio::test]
async fn a_huge_frame_has_the_requested_size() {
    let mut pipe = Pipe::legacy(Options::default()).await;
    let huge = pipe.call(1, "misbehave", json!({"how": "huge_frame", "size": 3_000_000})).await;
    assert_eq!(huge["result"]["content"][0]["text"].as_str().map(str::len), Some(3_000_000));
}

#[tokio::test]
async fn the_server_exits_after_or_during_the_configured_call() {
    let faults = Faults { exit_after: Some(2), ..Faults::default() };
    let mut after = Pipe::legacy(Options { faults, ..Options::default() }).await;
    after.call(1, "echo", json!({"text": "one"})).await;
    assert_eq!(after.call(2, "echo", json!({"text": "two"})).await["id"], 2, "the last one is answered");
    after.ends().await;

    let faults = Faults { exit_in_call: Some(2), ..Faults::default() };
    let mut within = Pipe::legacy(Options { faults, ..Options::default() }).await;
    within.call(1, "echo", json!({"text": "one"})).await;
    within.send(call(2, "echo", json!({"text": "two"}))).await;
    within.ends().await;
}

#[tokio::test]
async fn some_legacy_servers_exit_on_a_request_before_initialize() {
    let faults = Faults { exit_on_discover: true, ..Faults::default() };
    let options = Options { faults, era: EraChoice::Legacy, ..Options::default() };
    let mut probed = Pipe::open(options.clone());
    probed.send(modern("d", "server/discover", json!({}))).await;
    probed.ends().await;
    assert!(Pipe::open(options).ask(initialize(0, "2025-11-25")).await["result"].is_object());
}

#[tokio::test]
async fn a_server_without_ping_answers_method_not_found() {
    let faults = Faults { no_ping: true, ..Faults::default() };
    let mut pipe = Pipe::legacy(Options { faults, ..Options::default() }).await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(pipe.ask(ping).await["error"]["code"], -32601);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stopped_reading_answers_nothing_for_that_time() {
    let mut pipe = Pipe::legacy(Options::default()).await;
    pipe.call(1, "misbehave", json!({"how": "stop_reading", "ms": 60_000})).await;
    let asked = tokio::time::Instant::now();
    pipe.call(2, "echo", json!({"text": "hello?"})).await;
    assert!(asked.elapsed() >= Duration::from_secs(59), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn side_effects_are_written_to_a_file_and_outlive_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("counter");
    let options = Options { counter_file: Some(file.clone()), ..Options::default() };
    let mut first = Pipe::legacy(options.clone()).await;
    first.call(1, "counter", json!({"key": "a"})).await;
    first.call(2, "counter", json!({"key": "b"})).await;
    first.close().await;
    let mut second = Pipe::legacy(options).await;
    let third = second.call(3, "counter", json!({"key": "a"})).await;
    assert_eq!(third["result"]["structuredContent"]["value"], 3);
    let written = std::fs::read_to_string(file).unwrap();
    let keys: Vec<_> = written.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(keys, ["a", "b", "a"], "a key that occurs twice was executed twice");
}

fn call(id: i64, tool: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

/// The client's ends of the pipes.
struct Pipe {
    writer: WriteHalf<DuplexStream>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    server: JoinHandle<std::io::Result<()>>,
}

impl Pipe {
    fn open(options: Options) -> Self {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(theirs);
        let server = tokio::spawn(serve_on(reader, writer, options));
        let (reader, writer) = tokio::io::split(ours);
        Self { writer, lines: BufReader::new(reader).lines(), server }
    }

    /// A pipe after the handshake of the legacy era.
    async fn legacy(options: Options) -> Self {
        let mut pipe = Self::open(options);
        pipe.ask(initialize(0, "2025-11-25")).await;
        pipe
    }

    async fn send(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn line(&mut self) -> String {
        self.lines.next_line().await.unwrap().expect("the pipe is open")
    }

    async fn receive(&mut self) -> Value {
        serde_json::from_str(&self.line().await).unwrap()
    }

    /// Sends a message and returns the next received one.
    async fn ask(&mut self, message: Value) -> Value {
        self.send(message).await;
        self.receive().await
    }

    async fn call(&mut self, id: i64, tool: &str, arguments: Value) -> Value {
        self.ask(call(id, tool, arguments)).await
    }

    async fn close(mut self) {
        self.writer.shutdown().await.unwrap();
        self.ends().await;
    }

    /// Expects that the pipe is closed and the server returns.
    async fn ends(mut self) {
        let rest = self.lines.next_line().await.unwrap();
        assert_eq!(rest, None, "the pipe has closed");
        self.server.await.unwrap().unwrap();
    }
}

//! Compares the answers of the conformance server over HTTP and over stdio. The conformance suite supports only HTTP;
//! equal answers show that its result also holds for stdio.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

const SERVER: &str = env!("CARGO_BIN_EXE_conformance-server");

#[test]
fn the_legacy_mode_gives_the_same_answers_on_stdio_and_http() {
    says_the_same(&[], legacy_script());
}

#[test]
fn the_modern_mode_gives_the_same_answers_on_stdio_and_http() {
    says_the_same(&["--modern"], modern_script());
}

fn says_the_same(form: &[&str], script: Vec<Value>) {
    let (mut pipe, mut http) = (Pipe::start(form), Http::start(form));
    for request in script {
        let (on_pipe, over_http) = (pipe.ask(&request), http.ask(&request));
        assert_eq!(timeless(&on_pipe), timeless(&over_http), "{request}");
        assert_eq!(on_pipe.last().unwrap()["id"], request["id"], "{request}: {on_pipe:?}");
    }
}

#[test]
fn changes_are_sent_on_stdio() {
    let told = |form: &[&str], hello: Value, trigger: Value| {
        let mut pipe = Pipe::start(form);
        pipe.say(&hello);
        pipe.hear();
        pipe.say(&trigger);
        // The change and the answer may come in either order.
        let heard = [pipe.hear(), pipe.hear()];
        heard.into_iter().find(|message| message["method"] == "notifications/tools/list_changed").unwrap()
    };
    let trigger = call("test_trigger_tool_change", &json!({}));
    told(&[], initialize(), request(1, "tools/call", &trigger));
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let listen = modern(request("sub", "subscriptions/listen", &wanted));
    let change = told(&["--modern"], listen, modern(request(1, "tools/call", &trigger)));
    assert_eq!(change["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "sub");
}

/// Requests that both modes get.
fn script() -> Vec<(&'static str, Value)> {
    let mut script = vec![
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("unknown/method", json!({})),
        ("tools/call", call("no_such_tool", &json!({}))),
        ("prompts/get", call("no_such_prompt", &json!({}))),
        ("prompts/get", call("test_simple_prompt", &json!({}))),
        ("prompts/get", call("test_prompt_with_arguments", &json!({ "arg1": "a", "arg2": "b" }))),
        ("prompts/get", call("test_prompt_with_embedded_resource", &json!({ "resourceUri": "x://y" }))),
        ("prompts/get", call("test_prompt_with_image", &json!({}))),
        ("prompts/get", call("test_input_required_result_prompt", &json!({}))),
        ("tools/call", call("test_x_mcp_header", &json!({ "region": "north" }))),
        ("tools/call", call("greet", &json!({ "name": "Ada" }))),
        ("tools/call", call("slow_compute", &json!({ "seconds": 0 }))),
        ("tools/call", call("test_sampling", &json!({ "prompt": "Hello?" }))),
        ("tools/call", call("test_elicitation", &json!({ "message": "Who?" }))),
    ];
    let uris = ["test://static-text", "test://static-binary", "test://template/7/data", "test://nowhere"];
    script.extend(uris.map(|uri| ("resources/read", json!({ "uri": uri }))));
    let without_arguments = [
        "test_simple_text",
        "test_image_content",
        "test_audio_content",
        "test_embedded_resource",
        "test_multiple_content_types",
        "test_error_handling",
        "test_tool_with_logging",
        "test_reconnection",
        "test_elicitation_sep1034_defaults",
        "test_elicitation_sep1330_enums",
        "test_missing_capability",
        "test_input_required_result_elicitation",
        "test_input_required_result_list_roots",
        "test_input_required_result_capabilities",
        "failing_job",
        "protocol_error_job",
        "multi_input",
    ];
    script.extend(without_arguments.map(|tool| ("tools/call", call(tool, &json!({})))));
    let mut with_progress = call("test_tool_with_progress", &json!({}));
    with_progress["_meta"]["progressToken"] = "token".into();
    script.push(("tools/call", with_progress));
    let completed = json!({ "name": "arg1", "value": "par" });
    let prompt = json!({ "type": "ref/prompt", "name": "test_prompt_with_arguments" });
    script.push(("completion/complete", json!({ "ref": prompt, "argument": completed })));
    script
}

fn legacy_script() -> Vec<Value> {
    let mut asked = vec![
        ("ping", json!({})),
        ("logging/setLevel", json!({ "level": "info" })),
        ("logging/setLevel", json!({ "level": "loud" })),
        ("resources/subscribe", json!({ "uri": "test://watched-resource" })),
        ("resources/unsubscribe", json!({ "uri": "test://watched-resource" })),
        ("server/discover", json!({})),
    ];
    asked.extend(script());
    let asked = asked.iter().enumerate().map(|(id, (method, params))| request(id + 1, method, params));
    std::iter::once(initialize()).chain(asked).collect()
}

fn modern_script() -> Vec<Value> {
    let answers = json!({ "user_name": { "action": "accept", "content": { "name": "Ada" } } });
    let mut answered = call("test_input_required_result_elicitation", &json!({}));
    answered["inputResponses"] = answers;
    let mut asked = vec![
        ("server/discover", json!({})),
        ("ping", json!({})),
        ("tools/call", answered),
        ("tools/call", call("confirm_delete", &json!({ "filename": "x" }))),
        ("tasks/get", json!({ "taskId": "task-1" })),
        ("tasks/cancel", json!({ "taskId": "task-1" })),
        ("tasks/get", json!({ "taskId": "task-1" })),
        ("tasks/get", json!({ "taskId": "task-0" })),
        ("tasks/list", json!({})),
        ("skills/list", json!({})),
        ("skills/get", json!({ "uri": "skill://tidy-desk/SKILL.md" })),
        ("resources/read", json!({ "uri": "skill://tidy-desk/SKILL.md" })),
        ("resources/directory/read", json!({ "uri": "skill://tidy-desk" })),
        ("resources/directory/read", json!({ "uri": "skill://tidy-desk/SKILL.md" })),
    ];
    asked.extend(script());
    let asked = asked.iter().enumerate().map(|(id, (method, params))| request(id, method, params));
    let mut script: Vec<Value> = asked.map(modern).collect();
    let mut foreign = modern(request("foreign", "tools/list", &json!({})));
    foreign["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "v999".into();
    script.extend([foreign, request("bare", "tools/list", &json!({}))]);
    script
}

fn request(id: impl Into<Value>, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}

fn call(name: &str, arguments: &Value) -> Value {
    json!({ "name": name, "arguments": arguments })
}

fn initialize() -> Value {
    let client = json!({ "name": "transports", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities(), "clientInfo": client });
    request(0, "initialize", &params)
}

fn capabilities() -> Value {
    json!({ "elicitation": {}, "roots": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } })
}

fn modern(mut request: Value) -> Value {
    request["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities();
    request["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = "debug".into();
    request
}

/// Response of the client to any request of the server.
fn answer_to(question: &Value) -> Value {
    let result = match question["method"].as_str() {
        Some("roots/list") => json!({ "roots": [] }),
        _ => json!({ "action": "accept", "content": { "name": "Ada" } }),
    };
    json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })
}

fn is_question(message: &Value) -> bool {
    message.get("id").is_some() && message.get("method").is_some()
}

/// Removes timestamps.
fn timeless(messages: &[Value]) -> Vec<Value> {
    let mut messages = messages.to_vec();
    for message in &mut messages {
        for member in ["createdAt", "lastUpdatedAt"] {
            if let Some(time) = message.pointer_mut(&format!("/result/{member}")) {
                *time = Value::Null;
            }
        }
    }
    messages
}

struct Pipe {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Pipe {
    fn start(form: &[&str]) -> Self {
        let mut child =
            Command::new(SERVER).args(form).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, stdin, stdout: BufReader::new(stdout) }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// All messages up to the answer, which is the last one.
    fn ask(&mut self, request: &Value) -> Vec<Value> {
        self.say(request);
        let mut heard = Vec::new();
        loop {
            let message = self.hear();
            if is_question(&message) {
                self.say(&answer_to(&message));
            }
            let last = message.get("method").is_none();
            heard.push(message);
            if last {
                return heard;
            }
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// HTTP/1.0, because its bodies end with the connection and need no parser.
struct Http {
    child: Child,
    address: String,
    session: Option<String>,
}

impl Http {
    fn start(form: &[&str]) -> Self {
        let mut command = Command::new(SERVER);
        let mut child =
            command.args(form).args(["--http", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let address = url.trim().strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap().to_owned();
        Self { child, address, session: None }
    }

    fn ask(&mut self, request: &Value) -> Vec<Value> {
        let mut heard = Vec::new();
        let mut last_event = self.read("POST", &headers_of(request), &request.to_string(), &mut heard);
        // The stream was closed before the answer: resume it.
        while heard.last().is_none_or(|message| message.get("method").is_some()) {
            let place = last_event.take().expect("there is a place to come back to");
            last_event = self.read("GET", &[("last-event-id".to_owned(), place)], "", &mut heard);
        }
        heard
    }

    /// Reads one response to its end and answers the requests in it; returns the id of the last event.
    fn read(
        &mut self,
        method: &str,
        headers: &[(String, String)],
        body: &str,
        heard: &mut Vec<Value>,
    ) -> Option<String> {
        let (mut reader, kind) = self.send(method, headers, body);
        if kind != "text/event-stream" {
            let mut body = String::new();
            reader.read_to_string(&mut body).unwrap();
            heard.push(serde_json::from_str(&body).unwrap());
            return None;
        }
        let mut last_event = None;
        for line in reader.lines() {
            let line = line.unwrap();
            if let Some(id) = line.strip_prefix("id: ") {
                last_event = Some(id.to_owned());
            }
            if let Some(data) = line.strip_prefix("data: ").filter(|data| !data.is_empty()) {
                let message: Value = serde_json::from_str(data).unwrap();
                if is_question(&message) {
                    self.send("POST", &[], &answer_to(&message).to_string());
                }
                heard.push(message);
            }
        }
        last_event
    }

    /// Body and content type.
    fn send(
        &mut self,
        method: &str,
        headers: &[(String, String)],
        body: &str,
    ) -> (BufReader<TcpStream>, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let mut head =
            format!("{method} /mcp HTTP/1.0\r\nhost: localhost\r\ncontent-length: {}\r\n", body.len());
        let session = self.session.iter().map(|id| ("mcp-session-id", id.as_str()));
        for (name, value) in headers.iter().map(|(name, value)| (&**name, &**value)).chain(session) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        write!(stream, "{head}\r\n{body}").unwrap();
        let mut reader = BufReader::new(stream);
        let mut kind = String::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim().split_once(": ") {
                Some(("content-type", value)) => kind = value.to_owned(),
                Some(("mcp-session-id", value)) => self.session = Some(value.to_owned()),
                Some(_) => {}
                None if line.trim().is_empty() => return (reader, kind),
                // Status line.
                None => {}
            }
        }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Headers of a modern request, which repeat its body.
fn headers_of(request: &Value) -> Vec<(String, String)> {
    let params = &request["params"];
    let Some(version) = params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str() else {
        return Vec::new();
    };
    let method = request["method"].as_str().unwrap();
    let name = match method {
        "tools/call" | "prompts/get" => &params["name"],
        "resources/read" => &params["uri"],
        "tasks/get" | "tasks/update" | "tasks/cancel" => &params["taskId"],
        _ => &Value::Null,
    };
    let region = &params["arguments"]["region"];
    [
        ("mcp-protocol-version", Some(version)),
        ("mcp-method", Some(method)),
        ("mcp-name", name.as_str()),
        ("mcp-param-region", region.as_str()),
    ]
    .into_iter()
    .filter_map(|(header, value)| Some((header.to_owned(), value?.to_owned())))
    .collect()
}

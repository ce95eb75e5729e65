//! Memory budget: unread answers are counted together with request bodies. A gateway in a process of its own stays
//! within the budget, serves other clients meanwhile, and releases all of the memory.

use crate::client::{HttpClient, LegacyClient, borrowed, call, initialize, request, spoken};
use crate::scripted_server::{ScriptedChild, ScriptedServer};
use crate::test_gateway::{GRIPFAST, TestGateway, at, demo};
use gripfast_demo::RunningServer;
use gripfast_gateway::auth::keys;
use gripfast_testkit::proc;
use gripfast_testkit::wait::{PATIENCE, until_async, within};
use http::Method;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const MIB: usize = 1 << 20;
/// Number of calls of the client that does not read, and size of each answer: together more than the budget.
const CALLS: usize = 36;
const ANSWER: usize = 8 * MIB;
/// Budget of one client.
const BUDGET: usize = 32 * MIB;
/// Memory limit of the whole process: the budget, an answer in each stage of processing, memory kept by the allocator,
/// and the program itself. All answers together are more.
const PEAK: usize = BUDGET + 160 * MIB;

/// A gateway in a process of its own.
struct GatewayProcess {
    child: Child,
    http: HttpClient,
    dir: TempDir,
    alice: String,
    bob: String,
}

impl GatewayProcess {
    async fn start(servers: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (config, state) = (dir.path().join("gripfast.toml"), dir.path().join("state"));
        let limits = "limits = { memory = \"64MiB\", memory_per_client = \"32MiB\" }";
        let settings = format!("[gateway]\nstartup_wait = \"60s\"\nauth = {{ keys = true }}\n{limits}\n\n");
        std::fs::write(&config, format!("{settings}{servers}")).unwrap();
        let key = |name| format!("Bearer {}", keys::add(&state, name).unwrap());
        let (alice, bob) = (key("alice"), key("bob"));
        let mut command = Command::new(GRIPFAST);
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&config);
        command
            .arg("--state-dir")
            .arg(&state)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.as_mut().unwrap());
        within("its address", stdout.read_line(&mut line)).await.unwrap();
        let (_, address) = line.split_once("serves MCP at http://").unwrap_or_else(|| panic!("{line}"));
        let http = HttpClient::at(address.split('/').next().unwrap());
        Self { child, http, dir, alice, bob }
    }

    /// Sends a request of alice on a new connection, whose answer is not read.
    async fn unread(&self, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.http.address).await.unwrap();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nauthorization: {}\r\n\
             accept: application/json, text/event-stream\r\n{headers}content-length: {}\r\n\r\n{body}",
            self.alice,
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Ledger entries of alice's calls that have ended.
    async fn ended(&self) -> Vec<Value> {
        let token = std::fs::read_to_string(self.dir.path().join("state/admin.token")).unwrap();
        let token = format!("Bearer {}", token.trim());
        let path = "/api/v1/calls?limit=1000";
        let rows = self.http.send(Method::GET, path, &[("authorization", &token)], "").await.message();
        let calls = rows["calls"].as_array().unwrap_or_else(|| panic!("{rows}"));
        let is_hers = |call: &&Value| call["principal"] == "alice" && !call["outcome"].is_null();
        calls.iter().filter(is_hers).cloned().collect()
    }

    async fn until_ended(&self, count: usize) -> Vec<Value> {
        within("the end of all calls", async {
            loop {
                let ended = self.ended().await;
                if ended.len() >= count {
                    return ended;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
    }

    /// The bytes that are counted.
    async fn memory(&self) -> u64 {
        self.clients("memory_bytes").await
    }

    /// The requests that are not answered yet.
    async fn in_flight(&self) -> u64 {
        self.clients("in_flight").await
    }

    async fn clients(&self, what: &str) -> u64 {
        let status = self.http.send(Method::GET, "/api/v1/status", &[], "").await.message();
        status["clients"][what].as_u64().unwrap_or_else(|| panic!("{status}"))
    }

    async fn until_memory_is_given_back(&self) {
        until_async("all memory", async || self.memory().await == 0).await;
    }

    fn peak(&self) -> usize {
        proc::peak_memory(self.child.id().unwrap())
    }

    /// Another client calls a tool.
    async fn serves_bob(&self) {
        let (mut headers, body) =
            spoken(json!(1), "tools/call", call("demo__echo", json!({ "text": "still here" })));
        headers.push(("authorization".to_owned(), self.bob.clone()));
        let answer = self.http.post(&borrowed(&headers), body).await;
        assert!(answer.text.contains("still here"), "{answer:?}");
    }

    /// Checks the gateway after all of alice's calls, with no answer read: it runs, stays within the budget, and the
    /// ledger has the outcome of each call.
    async fn survives(&mut self) {
        let ended = self.until_ended(CALLS).await;
        self.serves_bob().await;
        let (done, refused): (Vec<&Value>, Vec<_>) = ended.iter().partition(|call| call["code"].is_null());
        assert_eq!(done.len() + refused.len(), CALLS);
        assert!((1..=BUDGET / ANSWER).contains(&done.len()), "{} answers are held", done.len());
        for call in &ended {
            assert_eq!(call["outcome"], "done", "{call}");
            assert!(call["code"].is_null() || call["code"] == "overloaded", "{call}");
        }
        let held = self.memory().await;
        assert!((ANSWER..=BUDGET).contains(&usize::try_from(held).unwrap()), "{held} bytes are counted");
        assert!(self.child.try_wait().unwrap().is_none(), "it is gone");
        assert!(self.peak() < PEAK, "it took {} MiB", self.peak() / MIB);
    }
}

const TOOLS: &str = r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}"#;

/// A call with a large answer.
fn large() -> Value {
    call("large__t", json!({}))
}

/// Two servers: a child with the large answers, and one for other clients.
async fn servers() -> (ScriptedChild, RunningServer, String) {
    let (large, demo) =
        (ScriptedChild::with(&[("tools/list", TOOLS), ("tools/call", &result_of(ANSWER))]), demo().await);
    let config = format!("{}{}", large.table("large", "legacy"), at("demo", &demo.url(), "legacy", &[]));
    (large, demo, config)
}

/// Makes alice's calls as a client of either era, each on its own connection.
async fn g07_unread(servers: &str, is_modern: bool) {
    let mut gateway = GatewayProcess::start(servers).await;
    gateway.serves_bob().await;
    let mut session = String::new();
    if !is_modern {
        let hello = initialize("2025-11-25").to_string();
        let hello = gateway.http.post(&[("authorization", &gateway.alice)], hello).await;
        session = hello.headers["mcp-session-id"].to_str().unwrap().to_owned();
    }
    let mut unread = Vec::new();
    for id in 0..CALLS {
        unread.push(if is_modern {
            let (headers, body) = spoken(json!(id), "tools/call", large());
            gateway.unread("/mcp", &borrowed(&headers), &body).await
        } else {
            let body = request(id, "tools/call", &large()).to_string();
            gateway.unread("/mcp", &[("mcp-session-id", &session)], &body).await
        });
    }
    gateway.survives().await;
    drop(unread);
    if !is_modern {
        // Streams of ended calls can be resumed until the session ends.
        let headers = [("authorization", &*gateway.alice), ("mcp-session-id", &*session)];
        assert_eq!(gateway.http.send(Method::DELETE, "/mcp", &headers, "").await.status, 200);
    }
    gateway.until_memory_is_given_back().await;
    // Her whole budget is available again.
    let (mut headers, body) = spoken(json!(1), "tools/call", large());
    headers.push(("authorization".to_owned(), gateway.alice.clone()));
    assert!(gateway.http.post(&borrowed(&headers), body).await.text.len() >= ANSWER);
    gateway.until_memory_is_given_back().await;
}

#[tokio::test]
async fn g07_unread_answers_of_a_modern_client_do_not_exhaust_the_gateway() {
    let (_large, _demo, config) = servers().await;
    g07_unread(&config, true).await;
}

#[tokio::test]
async fn g07_unread_answers_of_a_legacy_client_do_not_exhaust_the_gateway() {
    let (_large, _demo, config) = servers().await;
    g07_unread(&config, false).await;
}

#[tokio::test]
async fn g07_answers_over_http_are_counted_while_received() {
    let large = ScriptedServer::start(&[("tools/list", TOOLS), ("tools/call", &result_of(ANSWER))]).await;
    let demo = demo().await;
    let config = [at("large", &large.url, "legacy", &[]), at("demo", &demo.url(), "legacy", &[])].concat();
    g07_unread(&config, true).await;
}

#[tokio::test]
async fn g07_large_pending_requests_do_not_exhaust_the_gateway() {
    let demo = demo().await;
    let gateway = GatewayProcess::start(&at("demo", &demo.url(), "legacy", &[])).await;
    gateway.serves_bob().await;
    let padding = "x".repeat(3 * MIB);
    let slow = call("demo__sleep", json!({ "ms": 600_000, "padding": padding }));
    let (mut waiting, mut refused) = (Vec::new(), 0);
    for id in 0..20 {
        let (headers, body) = spoken(json!(id), "tools/call", slow.clone());
        let mut stream = gateway.unread("/mcp", &borrowed(&headers), &body).await;
        let mut status = [0; 12];
        let is_waiting = async {
            while gateway.in_flight().await <= waiting.len() as u64 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let heard = within("an answer, or a place", async {
            tokio::select! {
                heard = stream.read_exact(&mut status) => heard.is_ok(),
                () = is_waiting => false,
            }
        });
        if heard.await {
            assert_eq!(&status, b"HTTP/1.1 429");
            refused += 1;
        } else {
            waiting.push(stream);
        }
    }
    // Each request counts five times while it is processed.
    assert_eq!((waiting.len(), refused), (BUDGET / (15 * MIB), 18));
    gateway.serves_bob().await;
    assert!(gateway.peak() < PEAK, "it took {} MiB", gateway.peak() / MIB);
    drop(waiting);
    gateway.until_memory_is_given_back().await;
}

#[tokio::test]
async fn g07_unread_answers_on_http_sse_do_not_exhaust_the_gateway() {
    let (_large, _demo, config) = servers().await;
    let mut gateway = GatewayProcess::start(&config).await;
    let mut stream = TcpStream::connect(&gateway.http.address).await.unwrap();
    let hello = format!("GET /sse HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\n\r\n", gateway.alice);
    stream.write_all(hello.as_bytes()).await.unwrap();
    let mut heard = String::new();
    within("the endpoint", async {
        while !heard.contains("\n\n") {
            let mut buffer = [0; 1024];
            let count = stream.read(&mut buffer).await.unwrap();
            heard.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    })
    .await;
    let endpoint = heard.lines().find_map(|line| line.strip_prefix("data: ")).unwrap().trim().to_owned();
    let says = async |message: Value| {
        let headers = [("authorization", &*gateway.alice), ("content-type", "application/json")];
        let said = gateway.http.send(Method::POST, &endpoint, &headers, message.to_string()).await;
        assert_eq!(said.status, 202, "{said:?}");
    };
    says(initialize("2024-11-05")).await;
    for id in 1..=CALLS {
        says(request(id, "tools/call", &large())).await;
    }
    gateway.survives().await;
    drop(stream);
    gateway.until_memory_is_given_back().await;
}

#[tokio::test]
async fn g07_unread_answers_on_stdio_do_not_exhaust_the_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("gripfast.toml");
    let limits = "limits = { memory = \"64MiB\", memory_per_client = \"32MiB\" }";
    let (_large, _demo, servers) = servers().await;
    let settings = format!("[gateway]\nstartup_wait = \"60s\"\n{limits}\n\n{servers}");
    std::fs::write(&config, settings).unwrap();
    let mut command = Command::new(GRIPFAST);
    command.arg("stdio").arg("--config").arg(&config).arg("--state-dir").arg(dir.path().join("state"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut says = async |message: Value| {
        within("room in a pipe", input.write_all(format!("{message}\n").as_bytes())).await.unwrap();
    };
    says(initialize("2025-11-25")).await;
    says(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    for id in 1..=CALLS {
        says(request(id, "tools/call", &large())).await;
    }
    let rows = || {
        let mut calls = std::process::Command::new(GRIPFAST);
        calls.args(["calls", "-o", "json", "--config"]).arg(&config);
        let rows = calls.arg("--state-dir").arg(dir.path().join("state")).output().unwrap().stdout;
        let rows: Value = serde_json::from_slice(&rows).unwrap_or_default();
        rows["calls"].as_array().cloned().unwrap_or_default()
    };
    let ended = within("the end of all calls", async {
        loop {
            let ended: Vec<_> = rows().into_iter().filter(|call| !call["outcome"].is_null()).collect();
            if ended.len() == CALLS {
                return ended;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    })
    .await;
    let refused = ended.iter().filter(|call| call["code"] == "overloaded").count();
    assert!(refused >= CALLS - BUDGET / ANSWER, "{refused}");
    assert!(ended.iter().all(|call| call["outcome"] == "done"));
    let peak = proc::peak_memory(child.id().unwrap()) / MIB;
    assert!(peak < PEAK / MIB, "it took {peak} MiB");
    // A client that reads later gets an answer to each call.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..=CALLS {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
        assert!(line.starts_with("{\"jsonrpc\":\"2.0\",\"id\":"), "{line:.60}");
    }
}

/// The result of a tool, in this many bytes.
fn result_of(bytes: usize) -> String {
    let empty = r#"{"content":[{"type":"text","text":""}]}"#;
    empty.replace(r#""""#, &format!("\"{}\"", "x".repeat(bytes - empty.len())))
}

#[tokio::test]
async fn g07_an_answer_of_exactly_the_budget_passes_and_a_larger_one_is_overloaded() {
    let question = request(1, "tools/call", &call("it__t", json!({})));
    // Its id has one digit, which is checked below.
    let around = r#"{"jsonrpc":"2.0","id":1,"result":}"#;
    // A request counts once as received, and four times while it is processed.
    let fits = MIB - 5 * question.to_string().len() - around.len();
    let results = [fits, fits + 1, fits].map(result_of);
    let answers = [
        ("tools/list", TOOLS),
        ("tools/call", &*results[0]),
        ("tools/call", &*results[1]),
        ("tools/call", &*results[2]),
    ];
    let server = ScriptedServer::start(&answers).await;
    let limits = "[gateway]\nlimits = { memory_per_client = \"1MiB\" }\n\n";
    let gateway = TestGateway::with(&format!("{limits}{}", at("it", &server.url, "legacy", &[]))).await;
    let client = LegacyClient::connect(&gateway.http).await;
    for (result, passes) in results.iter().zip([true, false, true]) {
        let answer = client.post(&question).await;
        let id = server.last_request("tools/call");
        assert!(id.starts_with(r#"{"jsonrpc":"2.0","id":"#) && id[22..].find(',') == Some(1), "{id}");
        assert_eq!(answer.text.contains(result), passes, "{} bytes came", answer.text.len());
        if !passes {
            let result = &answer.message()["result"];
            let failure = &result["_meta"]["gripfast/failure"];
            let said = (&failure["code"], &failure["outcome"], &failure["server"]);
            assert_eq!(said, (&json!("overloaded"), &json!("done"), &json!("it")), "{result}");
            let text = result["content"][0]["text"].as_str().unwrap();
            assert!(text.contains("gateway.limits.memory_per_client"), "{text}");
        }
    }
    let status = gateway.http.send(Method::GET, "/api/v1/status", &[], "").await.message();
    assert_eq!(status["clients"]["memory_bytes"], 0, "{status}");
}

#[tokio::test]
async fn g07_answers_of_the_gateway_itself_and_batches_are_counted_too() {
    let tools = format!(
        r#"{{"tools":[{{"name":"t","description":"{}","inputSchema":{{"type":"object"}}}}]}}"#,
        "x".repeat(MIB)
    );
    let third = result_of(MIB / 3);
    let server = ScriptedServer::start(&[("tools/list", &tools), ("tools/call", &third)]).await;
    let limits = "[gateway]\nlimits = { memory_per_client = \"1MiB\" }\n\n";
    let gateway = TestGateway::with(&format!("{limits}{}", at("it", &server.url, "legacy", &[]))).await;
    let client = LegacyClient::connect_with_version(&gateway.http, "2025-03-26").await;
    let listed = client.post(&request(1, "tools/list", &json!({}))).await.message();
    let data = &listed["error"]["data"];
    assert_eq!((&data["code"], &data["outcome"]), (&json!("overloaded"), &json!("done")), "{data}");
    let batch: Vec<_> = (0..5).map(|id| request(id, "tools/call", &call("it__t", json!({})))).collect();
    let answers = client.post(&json!(batch)).await.message();
    let held = |answer: &&Value| answer["result"]["_meta"]["gripfast/failure"].is_null();
    assert_eq!(answers.as_array().unwrap().iter().filter(held).count(), 2, "of five");
    let status = gateway.http.send(Method::GET, "/api/v1/status", &[], "").await.message();
    assert_eq!(status["clients"]["memory_bytes"], 0, "{status}");
}

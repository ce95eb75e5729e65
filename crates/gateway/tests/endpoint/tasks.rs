//! Tasks: forwarded between peers of one era and visible to their own client only. Tools that require a task are
//! awaited for clients without tasks.

use crate::client::{EventStream, HttpClient, LegacyClient, ModernClient, call, request};
use crate::test_gateway::{TestGateway, at, child, demo_with};
use gripfast_demo::{EraChoice, Options, RunningServer};
use gripfast_testkit::wait::within;
use serde_json::{Value, json};

const TASKS: &str = "io.modelcontextprotocol/tasks";

async fn server(era: EraChoice) -> RunningServer {
    demo_with(Options { era, showcase: true, ..Options::default() }).await
}

/// The parameters that call `job` as a task of the legacy era.
fn job(tool: &str, arguments: Value) -> Value {
    let mut params = call(tool, arguments);
    params["task"] = json!({ "ttl": 60_000 });
    params
}

fn has_tasks() -> Value {
    json!({ "extensions": { TASKS: {} } })
}

fn about(id: &str) -> Value {
    json!({ "taskId": id })
}

async fn start_task(client: &LegacyClient, tool: &str, arguments: Value) -> String {
    let begun = client.request("tools/call", job(tool, arguments)).await;
    assert_eq!(begun["result"]["task"]["status"], "working", "{begun}");
    begun["result"]["task"]["taskId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn tasks_between_legacy_peers_work_as_without_a_gateway() {
    let demo = server(EraChoice::Legacy).await;
    for config in [
        at("one", &demo.url(), "legacy", &[]),
        child("one", &["--showcase", "--era", "legacy"], &["protocol = \"legacy\""]),
    ] {
        let gateway = TestGateway::with(&config).await;
        let hello = gateway.http.initialize("2025-11-25").await.message();
        assert_eq!(
            hello["result"]["capabilities"]["tasks"],
            json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } })
        );
        let client = LegacyClient::connect(&gateway.http).await;
        let mut stream = client.open_stream(None).await;
        let id = start_task(&client, "one__job", json!({ "text": "built" })).await;
        let looked = client.request("tasks/get", about(&id)).await;
        assert_eq!(
            (&looked["result"]["taskId"], &looked["result"]["status"]),
            (&json!(id), &json!("working"))
        );
        let mut waiting = client.start_request("later", "tasks/result", about(&id)).await;
        client.call_tool("one__finish", json!({ "id": id })).await;
        let told = stream.message().await;
        assert_eq!(told["method"], "notifications/tasks/status", "{told}");
        assert_eq!((&told["params"]["taskId"], &told["params"]["status"]), (&json!(id), &json!("completed")));
        let result = answer_of(&mut waiting).await;
        assert_eq!(result["result"]["content"][0]["text"], "built", "{result}");
        assert_eq!(result["result"]["_meta"]["io.modelcontextprotocol/related-task"], about(&id), "{result}");
        let listed = client.request("tasks/list", json!({})).await;
        assert_eq!(listed["result"]["tasks"][0]["status"], "completed", "{listed}");
        let cancelled = client.request("tasks/cancel", about(&id)).await;
        assert_eq!(cancelled["error"]["message"], "the job has ended already", "the server's own words");
    }
}

/// Answer to a started request; over HTTP a fast one is a single body without events.
async fn answer_of(stream: &mut EventStream) -> Value {
    if stream.headers["content-type"] == "text/event-stream" {
        return stream.message().await;
    }
    stream.body().await
}

#[tokio::test]
async fn an_elicitation_of_a_task_comes_on_the_stream_waiting_for_its_result() {
    let demo = server(EraChoice::Legacy).await;
    let gateway = TestGateway::with(&at("one", &demo.url(), "legacy", &[])).await;
    let client = LegacyClient::with_capabilities(&gateway.http, json!({ "elicitation": {} })).await;
    let begun =
        client.request("tools/call", job("one__job", json!({ "text": "sure", "question": "Sure?" }))).await;
    let id = begun["result"]["task"]["taskId"].as_str().unwrap();
    let mut waiting = client.start_request("later", "tasks/result", about(id)).await;
    let question = waiting.message().await;
    assert_eq!(question["params"]["message"], "Sure?", "{question}");
    assert_eq!(question["params"]["_meta"]["io.modelcontextprotocol/related-task"], about(id), "{question}");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } });
    assert_eq!(client.post(&answer).await.status, 202);
    assert_eq!(waiting.message().await["result"]["content"][0]["text"], "sure: accept");
}

#[tokio::test]
async fn a_task_is_visible_only_to_the_client_that_created_it() {
    let demo = server(EraChoice::Legacy).await;
    let gateway = TestGateway::with(&at("one", &demo.url(), "legacy", &[])).await;
    let (owner, other) =
        (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    let (mut hears, mut hears_not) = (owner.open_stream(None).await, other.open_stream(None).await);
    let id = start_task(&owner, "one__job", json!({})).await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let refused = other.request(method, about(&id)).await;
        assert_eq!(refused["error"]["code"], -32602, "{method}: {refused}");
    }
    assert_eq!(other.request("tasks/list", json!({})).await["result"]["tasks"], json!([]));
    // The server sends the notification on the stream of another client's call.
    let finish = call("one__finish", json!({ "id": id, "aloud": true }));
    let finished = other.post(&request("mine", "tools/call", &finish)).await;
    assert!(!finished.text.contains("notifications/tasks/status"), "{finished:?}");
    assert_eq!(hears.message().await["params"]["taskId"], id);
    assert!(hears_not.is_silent().await);
    assert_eq!(owner.request("tasks/list", json!({})).await["result"]["tasks"][0]["taskId"], id);
    // The tasks end with their session, also for later clients.
    let ended =
        gateway.http.send(http::Method::DELETE, "/mcp", &[("mcp-session-id", &owner.session)], "").await;
    assert_eq!(ended.status, 200);
    assert_eq!(other.request("tasks/get", about(&id)).await["error"]["code"], -32602);
}

#[tokio::test]
async fn equal_task_ids_of_two_servers_are_distinguished() {
    let (one, two) = (server(EraChoice::Legacy).await, server(EraChoice::Legacy).await);
    let config = at("one", &one.url(), "legacy", &[]) + &at("two", &two.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let mut stream = client.open_stream(None).await;
    let first = start_task(&client, "one__job", json!({ "text": "first" })).await;
    let second = start_task(&client, "two__job", json!({ "text": "second" })).await;
    assert_eq!((&*first, &*second), ("job-1", "two+job-1"));
    client.call_tool("two__finish", json!({ "id": "job-1" })).await;
    assert_eq!(stream.message().await["params"]["taskId"], second);
    let result = client.request("tasks/result", about(&second)).await;
    assert_eq!(result["result"]["content"][0]["text"], "second", "{result}");
    assert_eq!(result["result"]["_meta"]["io.modelcontextprotocol/related-task"], about(&second), "{result}");
    assert_eq!(client.request("tasks/get", about(&first)).await["result"]["status"], "working");
    let cancelled = client.request("tasks/cancel", about(&first)).await;
    assert_eq!(
        (&cancelled["result"]["taskId"], &cancelled["result"]["status"]),
        (&json!(first), &json!("cancelled"))
    );
    let listed = client.request("tasks/list", json!({})).await;
    assert_eq!(crate::client::names(&listed, "tasks", "taskId"), [first, second]);
}

#[tokio::test]
async fn a_modern_client_has_tasks_at_a_modern_server_if_it_declares_them() {
    let demo = server(EraChoice::Modern).await;
    let plain = demo_with(Options::default()).await;
    let config = at("plain", &plain.url(), "legacy", &[]) + &at("one", &demo.url(), "modern", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = ModernClient::new(&gateway.http);
    let found = client.request("server/discover", json!({})).await;
    assert_eq!(found["result"]["capabilities"]["extensions"][TASKS], json!({}), "{found}");
    let hello = gateway.http.initialize("2025-11-25").await.message();
    assert_eq!(hello["result"]["capabilities"].get("tasks"), None, "no server has those of the legacy era");

    let begun =
        client.request_as(has_tasks(), "tools/call", call("one__job", json!({ "question": "Sure?" }))).await;
    assert_eq!(begun["result"]["resultType"], "task", "{begun}");
    let id = begun["result"]["taskId"].as_str().unwrap();
    let looked = client.request_as(has_tasks(), "tasks/get", about(id)).await;
    assert_eq!(looked["result"]["inputRequests"]["q"]["params"]["message"], "Sure?", "{looked}");
    let update = json!({ "taskId": id, "inputResponses": { "q": { "action": "accept" } } });
    let updated = client.request_as(has_tasks(), "tasks/update", update).await;
    assert_eq!(updated["result"]["resultType"], "complete", "{updated}");
    let looked = client.request_as(has_tasks(), "tasks/get", about(id)).await;
    assert_eq!(looked["result"]["result"]["content"][0]["text"], "done: accept", "{looked}");

    let undeclared = client.send_request("tasks/get", about(id)).await;
    assert_eq!(undeclared.refusal(), (400, -32021), "{undeclared:?}");
    assert_eq!(undeclared.message()["error"]["data"]["requiredCapabilities"], has_tasks());
    assert_eq!(client.send_request("tasks/result", about(id)).await.refusal(), (404, -32601));
    let unknown = client.request_as(has_tasks(), "tasks/get", about("job-7")).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    // A legacy client has sessions, and its tasks are its own.
    let legacy = LegacyClient::connect(&gateway.http).await;
    assert_eq!(legacy.request("tasks/get", about(id)).await["error"]["code"], -32601);
}

/// Opens a listen stream for these tasks.
async fn listen_for_tasks(http: &HttpClient, ids: &[&str]) -> EventStream {
    ModernClient::new(http).start_request_as(has_tasks(), "ear", "subscriptions/listen", wanted(ids)).await
}

fn wanted(ids: &[&str]) -> Value {
    json!({ "notifications": { "taskIds": ids } })
}

#[tokio::test]
async fn a_listening_modern_client_gets_its_task_updates_under_its_own_names() {
    let (one, two) = (server(EraChoice::Modern).await, server(EraChoice::Modern).await);
    let config = at("one", &one.url(), "modern", &[]) + &at("two", &two.url(), "modern", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = ModernClient::new(&gateway.http);
    for tool in ["one__job", "two__job", "one__job"] {
        let begun = client.request_as(has_tasks(), "tools/call", call(tool, json!({ "text": tool }))).await;
        assert_eq!(begun["result"]["resultType"], "task", "{begun}");
    }
    let mut stream = listen_for_tasks(&gateway.http, &["job-1", "two+job-1", "job-9"]).await;
    let acknowledged = stream.message().await;
    assert_eq!(
        acknowledged["params"]["notifications"],
        json!({ "taskIds": ["job-1", "two+job-1"] }),
        "what is served"
    );
    // No client listens for the second task of the first server, which is notified first.
    for (finish, id) in [("one__finish", "job-2"), ("two__finish", "job-1"), ("one__finish", "job-1")] {
        client.call_tool(finish, json!({ "id": id })).await;
        if id == "job-2" {
            continue;
        }
        let told = stream.message().await;
        let (name, text) =
            if finish == "two__finish" { ("two+job-1", "two__job") } else { ("job-1", "one__job") };
        assert_eq!(
            (&told["method"], &told["params"]["taskId"]),
            (&json!("notifications/tasks"), &json!(name)),
            "{told}"
        );
        assert_eq!(told["params"]["result"]["content"][0]["text"], text, "{told}");
        assert_eq!(
            told["params"]["_meta"],
            json!({ "io.modelcontextprotocol/subscriptionId": "ear" }),
            "{told}"
        );
    }
}

#[tokio::test]
async fn a_client_gets_updates_of_its_own_tasks_only_if_it_declares_them() {
    let demo = server(EraChoice::Modern).await;
    let gateway = TestGateway::with(&at("one", &demo.url(), "modern", &[])).await;
    let owner = ModernClient::new(&gateway.http);
    owner.request_as(has_tasks(), "tools/call", call("one__job", json!({}))).await;
    let mut undeclared = owner.start_request("ear", "subscriptions/listen", wanted(&["job-1"])).await;
    assert_eq!(undeclared.message().await["params"]["notifications"], json!({}));

    // An HTTP+SSE connection is a client of its own, in both eras.
    let mut stream = EventStream::of(gateway.http.begin(http::Method::GET, "/sse", &[], "").await);
    let endpoint = stream.next().await.unwrap().data;
    let mut params = crate::client::in_context(wanted(&["job-1"]));
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = has_tasks();
    let listen = request("theirs", "subscriptions/listen", &params).to_string();
    gateway.http.send(http::Method::POST, &endpoint, &[], listen).await;
    assert_eq!(stream.message().await["params"]["notifications"], json!({}), "it is another's task");

    let mut mine = listen_for_tasks(&gateway.http, &["job-1"]).await;
    assert_eq!(mine.message().await["params"]["notifications"], wanted(&["job-1"])["notifications"]);
    owner.call_tool("one__finish", json!({ "id": "job-1" })).await;
    assert_eq!(mine.message().await["params"]["status"], "completed");
    assert!(stream.is_silent().await && undeclared.is_silent().await);
}

#[tokio::test]
async fn tasks_are_not_declared_if_no_server_has_them() {
    let demo = demo_with(Options::default()).await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let hello = gateway.http.initialize("2025-11-25").await.message();
    assert_eq!(hello["result"]["capabilities"].get("tasks"), None, "{hello}");
    let legacy = LegacyClient::connect(&gateway.http).await;
    for method in ["tasks/get", "tasks/list"] {
        assert_eq!(legacy.request(method, about("x")).await["error"]["code"], -32601, "{method}");
    }
    let modern = ModernClient::new(&gateway.http);
    assert_eq!(modern.send_request("tasks/get", about("x")).await.refusal(), (404, -32601));
    let declaring = modern.request_as(has_tasks(), "tasks/get", about("x")).await;
    assert_eq!(declaring["error"]["code"], -32601, "{declaring}");
}

#[tokio::test]
async fn a_tool_that_requires_a_task_is_awaited_for_clients_without_tasks() {
    let demo = server(EraChoice::Legacy).await;
    let gateway = TestGateway::with(&at("one", &demo.url(), "legacy", &[])).await;
    let modern = ModernClient::new(&gateway.http);
    assert_eq!(modern.call_tool("one__job", json!({ "text": "built", "looks": 2 })).await, "built");
    let older = LegacyClient::connect_with_version(&gateway.http, "2025-06-18").await;
    assert_eq!(older.call_tool("one__job", json!({ "text": "older", "looks": 1 })).await, "older");
    let hello = gateway.http.initialize("2025-06-18").await.message();
    assert_eq!(hello["result"]["capabilities"].get("tasks"), None, "{hello}");
    // A client with tasks gets the server's own error.
    let newer = LegacyClient::connect(&gateway.http).await;
    assert_eq!(newer.request("tools/call", call("one__job", json!({}))).await["error"]["code"], -32601);

    // Its elicitation becomes an input request.
    let can = json!({ "elicitation": {} });
    let asking = call("one__job", json!({ "text": "sure", "question": "Sure?" }));
    let wanted = modern.request_as(can.clone(), "tools/call", asking.clone()).await;
    assert_eq!(wanted["result"]["resultType"], "input_required", "{wanted}");
    let (key, _) = wanted["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let mut retry = asking;
    retry["requestState"] = wanted["result"]["requestState"].clone();
    retry["inputResponses"] = json!({ key: { "action": "accept" } });
    let answer = modern.request_as(can, "tools/call", retry).await;
    assert_eq!(answer["result"]["content"][0]["text"], "sure: accept", "{answer}");
}

#[tokio::test]
async fn cancelling_a_call_of_a_tool_that_requires_a_task_cancels_the_task() {
    let demo = server(EraChoice::Legacy).await;
    let gateway = TestGateway::with(&at("one", &demo.url(), "legacy", &[])).await;
    let direct = LegacyClient::connect(&HttpClient::at(&demo.addr().to_string())).await;
    let older = LegacyClient::connect_with_version(&gateway.http, "2025-06-18").await;
    let waiting = tokio::spawn({
        let older = LegacyClient::with_session(&gateway.http, &older.session);
        async move { older.post(&request("mine", "tools/call", &call("one__job", json!({})))).await }
    });
    let status = async || direct.request("tasks/get", about("job-1")).await["result"]["status"].clone();
    let becomes = async |wanted: &str| {
        while status().await != wanted {
            tokio::task::yield_now().await;
        }
    };
    within("the task", becomes("working")).await;
    older.cancel("mine").await;
    within("the task's end", becomes("cancelled")).await;
    drop(waiting);
}

#[tokio::test]
async fn across_the_eras_a_task_is_declined_and_nothing_hangs() {
    let demo = server(EraChoice::Modern).await;
    let gateway = TestGateway::with(&at("new", &demo.url(), "modern", &[])).await;
    let legacy = LegacyClient::connect(&gateway.http).await;
    let wished = legacy.request("tools/call", job("new__echo", json!({ "text": "x" }))).await;
    assert_eq!(wished["error"]["code"], -32601, "{wished}");
    let needed = legacy.request("tools/call", call("new__job", json!({}))).await;
    assert_eq!(needed["result"]["isError"], true, "{needed}");
    assert!(needed["result"]["content"][0]["text"].as_str().unwrap().contains(TASKS), "{needed}");

    let demo = server(EraChoice::Legacy).await;
    let gateway = TestGateway::with(&at("old", &demo.url(), "legacy", &[])).await;
    // The member has no meaning in the modern era and must not start a task that no client can query.
    let answer = ModernClient::new(&gateway.http)
        .request("tools/call", job("old__echo", json!({ "text": "x" })))
        .await;
    assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer}");
    let found = ModernClient::new(&gateway.http).request("server/discover", json!({})).await;
    assert_eq!(found["result"]["capabilities"]["extensions"].get(TASKS), None, "{found}");
}

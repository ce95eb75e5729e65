//! Tasks: passed as they are between peers of one era, each its client's alone; and what becomes of tools that can only be
//! called as one where the client knows none.

use crate::client::{Events, Http, Legacy, Modern, call, request};
use crate::scene::{Scene, at, child, demo_with, within};
use gripfast_demo::{EraChoice, Options, RunningServer};
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

async fn begins(client: &Legacy, tool: &str, arguments: Value) -> String {
    let begun = client.asks("tools/call", job(tool, arguments)).await;
    assert_eq!(begun["result"]["task"]["status"], "working", "{begun}");
    begun["result"]["task"]["taskId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_legacy_client_has_tasks_at_a_legacy_server_as_if_there_were_nobody_between() {
    let demo = server(EraChoice::Legacy).await;
    for config in [
        at("one", &demo.url(), "legacy", &[]),
        child("one", &["--showcase", "--era", "legacy"], &["protocol = \"legacy\""]),
    ] {
        let scene = Scene::with(&config).await;
        let hello = scene.http.initialize("2025-11-25").await.message();
        assert_eq!(
            hello["result"]["capabilities"]["tasks"],
            json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } })
        );
        let client = Legacy::meets(&scene.http).await;
        let mut stream = client.listens(None).await;
        let id = begins(&client, "one__job", json!({ "text": "built" })).await;
        let looked = client.asks("tasks/get", about(&id)).await;
        assert_eq!(
            (&looked["result"]["taskId"], &looked["result"]["status"]),
            (&json!(id), &json!("working"))
        );
        let mut waiting = client.begins("later", "tasks/result", about(&id)).await;
        client.calls("one__finish", json!({ "id": id })).await;
        let told = stream.message().await;
        assert_eq!(told["method"], "notifications/tasks/status", "{told}");
        assert_eq!((&told["params"]["taskId"], &told["params"]["status"]), (&json!(id), &json!("completed")));
        let result = answer_of(&mut waiting).await;
        assert_eq!(result["result"]["content"][0]["text"], "built", "{result}");
        assert_eq!(result["result"]["_meta"]["io.modelcontextprotocol/related-task"], about(&id), "{result}");
        let listed = client.asks("tasks/list", json!({})).await;
        assert_eq!(listed["result"]["tasks"][0]["status"], "completed", "{listed}");
        let cancelled = client.asks("tasks/cancel", about(&id)).await;
        assert_eq!(cancelled["error"]["message"], "the job has ended already", "the server's own words");
    }
}

/// The answer of a request that was begun; over HTTP a fast one is one body and no event.
async fn answer_of(stream: &mut Events) -> Value {
    if stream.headers["content-type"] == "text/event-stream" {
        return stream.message().await;
    }
    stream.body().await
}

#[tokio::test]
async fn a_question_of_a_task_is_asked_on_the_stream_that_waits_for_its_result() {
    let demo = server(EraChoice::Legacy).await;
    let scene = Scene::with(&at("one", &demo.url(), "legacy", &[])).await;
    let client = Legacy::with_capabilities(&scene.http, json!({ "elicitation": {} })).await;
    let begun =
        client.asks("tools/call", job("one__job", json!({ "text": "sure", "question": "Sure?" }))).await;
    let id = begun["result"]["task"]["taskId"].as_str().unwrap();
    let mut waiting = client.begins("later", "tasks/result", about(id)).await;
    let question = waiting.message().await;
    assert_eq!(question["params"]["message"], "Sure?", "{question}");
    assert_eq!(question["params"]["_meta"]["io.modelcontextprotocol/related-task"], about(id), "{question}");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } });
    assert_eq!(client.post(&answer).await.status, 202);
    assert_eq!(waiting.message().await["result"]["content"][0]["text"], "sure: accept");
}

#[tokio::test]
async fn a_task_is_known_to_the_client_that_began_it_and_to_nobody_else() {
    let demo = server(EraChoice::Legacy).await;
    let scene = Scene::with(&at("one", &demo.url(), "legacy", &[])).await;
    let (owner, other) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
    let (mut hears, mut hears_not) = (owner.listens(None).await, other.listens(None).await);
    let id = begins(&owner, "one__job", json!({})).await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let refused = other.asks(method, about(&id)).await;
        assert_eq!(refused["error"]["code"], -32602, "{method}: {refused}");
    }
    assert_eq!(other.asks("tasks/list", json!({})).await["result"]["tasks"], json!([]));
    // The server says so on the stream of another's call.
    let finish = call("one__finish", json!({ "id": id, "aloud": true }));
    let finished = other.post(&request("mine", "tools/call", &finish)).await;
    assert!(!finished.text.contains("notifications/tasks/status"), "{finished:?}");
    assert_eq!(hears.message().await["params"]["taskId"], id);
    assert!(hears_not.is_silent().await);
    assert_eq!(owner.asks("tasks/list", json!({})).await["result"]["tasks"][0]["taskId"], id);
    // With its session its tasks are gone, also for those who come after it.
    let ended =
        scene.http.send(http::Method::DELETE, "/mcp", &[("mcp-session-id", &owner.session)], "").await;
    assert_eq!(ended.status, 200);
    assert_eq!(other.asks("tasks/get", about(&id)).await["error"]["code"], -32602);
}

#[tokio::test]
async fn tasks_of_two_servers_that_count_alike_are_told_apart() {
    let (one, two) = (server(EraChoice::Legacy).await, server(EraChoice::Legacy).await);
    let config = at("one", &one.url(), "legacy", &[]) + &at("two", &two.url(), "legacy", &[]);
    let scene = Scene::with(&config).await;
    let client = Legacy::meets(&scene.http).await;
    let mut stream = client.listens(None).await;
    let first = begins(&client, "one__job", json!({ "text": "first" })).await;
    let second = begins(&client, "two__job", json!({ "text": "second" })).await;
    assert_eq!((&*first, &*second), ("job-1", "two+job-1"));
    client.calls("two__finish", json!({ "id": "job-1" })).await;
    assert_eq!(stream.message().await["params"]["taskId"], second);
    let result = client.asks("tasks/result", about(&second)).await;
    assert_eq!(result["result"]["content"][0]["text"], "second", "{result}");
    assert_eq!(result["result"]["_meta"]["io.modelcontextprotocol/related-task"], about(&second), "{result}");
    assert_eq!(client.asks("tasks/get", about(&first)).await["result"]["status"], "working");
    let cancelled = client.asks("tasks/cancel", about(&first)).await;
    assert_eq!(
        (&cancelled["result"]["taskId"], &cancelled["result"]["status"]),
        (&json!(first), &json!("cancelled"))
    );
    let listed = client.asks("tasks/list", json!({})).await;
    assert_eq!(crate::client::names(&listed, "tasks", "taskId"), [first, second]);
}

#[tokio::test]
async fn a_modern_client_has_tasks_at_a_modern_server_if_it_declares_them() {
    let demo = server(EraChoice::Modern).await;
    let plain = demo_with(Options::default()).await;
    let config = at("plain", &plain.url(), "legacy", &[]) + &at("one", &demo.url(), "modern", &[]);
    let scene = Scene::with(&config).await;
    let client = Modern::of(&scene.http);
    let found = client.asks("server/discover", json!({})).await;
    assert_eq!(found["result"]["capabilities"]["extensions"][TASKS], json!({}), "{found}");
    let hello = scene.http.initialize("2025-11-25").await.message();
    assert_eq!(hello["result"]["capabilities"].get("tasks"), None, "no server has those of the legacy era");

    let begun =
        client.asks_as(has_tasks(), "tools/call", call("one__job", json!({ "question": "Sure?" }))).await;
    assert_eq!(begun["result"]["resultType"], "task", "{begun}");
    let id = begun["result"]["taskId"].as_str().unwrap();
    let looked = client.asks_as(has_tasks(), "tasks/get", about(id)).await;
    assert_eq!(looked["result"]["inputRequests"]["q"]["params"]["message"], "Sure?", "{looked}");
    let update = json!({ "taskId": id, "inputResponses": { "q": { "action": "accept" } } });
    let updated = client.asks_as(has_tasks(), "tasks/update", update).await;
    assert_eq!(updated["result"]["resultType"], "complete", "{updated}");
    let looked = client.asks_as(has_tasks(), "tasks/get", about(id)).await;
    assert_eq!(looked["result"]["result"]["content"][0]["text"], "done: accept", "{looked}");

    let undeclared = client.sends("tasks/get", about(id)).await;
    assert_eq!(undeclared.refusal(), (400, -32021), "{undeclared:?}");
    assert_eq!(undeclared.message()["error"]["data"]["requiredCapabilities"], has_tasks());
    assert_eq!(client.sends("tasks/result", about(id)).await.refusal(), (404, -32601));
    let unknown = client.asks_as(has_tasks(), "tasks/get", about("job-7")).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    // A legacy client has sessions, and its tasks are its own.
    let legacy = Legacy::meets(&scene.http).await;
    assert_eq!(legacy.asks("tasks/get", about(id)).await["error"]["code"], -32601);
}

/// Opens a stream that is to tell of these tasks.
async fn listens(http: &Http, ids: &[&str]) -> Events {
    Modern::of(http).begins_as(has_tasks(), "ear", "subscriptions/listen", wanted(ids)).await
}

fn wanted(ids: &[&str]) -> Value {
    json!({ "notifications": { "taskIds": ids } })
}

#[tokio::test]
async fn a_modern_client_that_listens_hears_what_becomes_of_its_tasks_under_its_own_names() {
    let (one, two) = (server(EraChoice::Modern).await, server(EraChoice::Modern).await);
    let config = at("one", &one.url(), "modern", &[]) + &at("two", &two.url(), "modern", &[]);
    let scene = Scene::with(&config).await;
    let client = Modern::of(&scene.http);
    for tool in ["one__job", "two__job", "one__job"] {
        let begun = client.asks_as(has_tasks(), "tools/call", call(tool, json!({ "text": tool }))).await;
        assert_eq!(begun["result"]["resultType"], "task", "{begun}");
    }
    let mut stream = listens(&scene.http, &["job-1", "two+job-1", "job-9"]).await;
    let acknowledged = stream.message().await;
    assert_eq!(
        acknowledged["params"]["notifications"],
        json!({ "taskIds": ["job-1", "two+job-1"] }),
        "what is served"
    );
    // The second of the first server is nobody's to hear of, and comes first.
    for (finish, id) in [("one__finish", "job-2"), ("two__finish", "job-1"), ("one__finish", "job-1")] {
        client.calls(finish, json!({ "id": id })).await;
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
async fn a_client_hears_of_its_own_tasks_only_and_of_none_if_it_declares_none() {
    let demo = server(EraChoice::Modern).await;
    let scene = Scene::with(&at("one", &demo.url(), "modern", &[])).await;
    let owner = Modern::of(&scene.http);
    owner.asks_as(has_tasks(), "tools/call", call("one__job", json!({}))).await;
    let mut undeclared = owner.begins("ear", "subscriptions/listen", wanted(&["job-1"])).await;
    assert_eq!(undeclared.message().await["params"]["notifications"], json!({}));

    // A connection of the oldest HTTP is a client of its own, in either era.
    let mut stream = Events::of(scene.http.begin(http::Method::GET, "/sse", &[], "").await);
    let endpoint = stream.next().await.unwrap().data;
    let mut params = crate::client::in_context(wanted(&["job-1"]));
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = has_tasks();
    let listen = request("theirs", "subscriptions/listen", &params).to_string();
    scene.http.send(http::Method::POST, &endpoint, &[], listen).await;
    assert_eq!(stream.message().await["params"]["notifications"], json!({}), "it is another's task");

    let mut mine = listens(&scene.http, &["job-1"]).await;
    assert_eq!(mine.message().await["params"]["notifications"], wanted(&["job-1"])["notifications"]);
    owner.calls("one__finish", json!({ "id": "job-1" })).await;
    assert_eq!(mine.message().await["params"]["status"], "completed");
    assert!(stream.is_silent().await && undeclared.is_silent().await);
}

#[tokio::test]
async fn where_no_server_has_tasks_nobody_is_told_of_any() {
    let demo = demo_with(Options::default()).await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let hello = scene.http.initialize("2025-11-25").await.message();
    assert_eq!(hello["result"]["capabilities"].get("tasks"), None, "{hello}");
    let legacy = Legacy::meets(&scene.http).await;
    for method in ["tasks/get", "tasks/list"] {
        assert_eq!(legacy.asks(method, about("x")).await["error"]["code"], -32601, "{method}");
    }
    let modern = Modern::of(&scene.http);
    assert_eq!(modern.sends("tasks/get", about("x")).await.refusal(), (404, -32601));
    let declaring = modern.asks_as(has_tasks(), "tasks/get", about("x")).await;
    assert_eq!(declaring["error"]["code"], -32601, "{declaring}");
}

#[tokio::test]
async fn a_tool_that_insists_on_a_task_is_waited_for_where_the_client_knows_none() {
    let demo = server(EraChoice::Legacy).await;
    let scene = Scene::with(&at("one", &demo.url(), "legacy", &[])).await;
    let modern = Modern::of(&scene.http);
    assert_eq!(modern.calls("one__job", json!({ "text": "built", "looks": 2 })).await, "built");
    let older = Legacy::speaks(&scene.http, "2025-06-18").await;
    assert_eq!(older.calls("one__job", json!({ "text": "older", "looks": 1 })).await, "older");
    let hello = scene.http.initialize("2025-06-18").await.message();
    assert_eq!(hello["result"]["capabilities"].get("tasks"), None, "{hello}");
    // One that knows tasks is told by the server how to call it.
    let newer = Legacy::meets(&scene.http).await;
    assert_eq!(newer.asks("tools/call", call("one__job", json!({}))).await["error"]["code"], -32601);

    // What it asks becomes wanted input.
    let can = json!({ "elicitation": {} });
    let asking = call("one__job", json!({ "text": "sure", "question": "Sure?" }));
    let wanted = modern.asks_as(can.clone(), "tools/call", asking.clone()).await;
    assert_eq!(wanted["result"]["resultType"], "input_required", "{wanted}");
    let (key, _) = wanted["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let mut retry = asking;
    retry["requestState"] = wanted["result"]["requestState"].clone();
    retry["inputResponses"] = json!({ key: { "action": "accept" } });
    let answer = modern.asks_as(can, "tools/call", retry).await;
    assert_eq!(answer["result"]["content"][0]["text"], "sure: accept", "{answer}");
}

#[tokio::test]
async fn a_client_that_gives_up_on_such_a_tool_cancels_its_task() {
    let demo = server(EraChoice::Legacy).await;
    let scene = Scene::with(&at("one", &demo.url(), "legacy", &[])).await;
    let direct = Legacy::meets(&Http::at(&demo.addr().to_string())).await;
    let older = Legacy::speaks(&scene.http, "2025-06-18").await;
    let waiting = tokio::spawn({
        let older = Legacy::resumes(&scene.http, &older.session);
        async move { older.post(&request("mine", "tools/call", &call("one__job", json!({})))).await }
    });
    let status = async || direct.asks("tasks/get", about("job-1")).await["result"]["status"].clone();
    let becomes = async |wanted: &str| {
        while status().await != wanted {
            tokio::task::yield_now().await;
        }
    };
    within("the task", becomes("working")).await;
    older.cancels("mine").await;
    within("the task's end", becomes("cancelled")).await;
    drop(waiting);
}

#[tokio::test]
async fn across_the_eras_a_task_is_declined_and_nothing_hangs() {
    let demo = server(EraChoice::Modern).await;
    let scene = Scene::with(&at("new", &demo.url(), "modern", &[])).await;
    let legacy = Legacy::meets(&scene.http).await;
    let wished = legacy.asks("tools/call", job("new__echo", json!({ "text": "x" }))).await;
    assert_eq!(wished["error"]["code"], -32601, "{wished}");
    let needed = legacy.asks("tools/call", call("new__job", json!({}))).await;
    assert_eq!(needed["result"]["isError"], true, "{needed}");
    assert!(needed["result"]["content"][0]["text"].as_str().unwrap().contains(TASKS), "{needed}");

    let demo = server(EraChoice::Legacy).await;
    let scene = Scene::with(&at("old", &demo.url(), "legacy", &[])).await;
    // The member means nothing in the modern era, and must not begin a task that nobody can ask for.
    let answer = Modern::of(&scene.http).asks("tools/call", job("old__echo", json!({ "text": "x" }))).await;
    assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer}");
    let found = Modern::of(&scene.http).asks("server/discover", json!({})).await;
    assert_eq!(found["result"]["capabilities"]["extensions"].get(TASKS), None, "{found}");
}

//! Changed lists are told: once, on whatever stream a client has, and later to those who had none.

use crate::client::{Events, Legacy, Modern, initialize, names, request};
use crate::scene::{Scene, at, demo, within};
use gripfast_gateway::downstream::{Gateway, Seal, Terms};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};

const CHANGED: &str = "notifications/tools/list_changed";

#[tokio::test]
async fn b05_a_changed_list_is_told_once_on_the_get_stream() {
    let demo = demo().await;
    for protocol in ["legacy", "modern"] {
        let scene = Scene::with(&at("demo", &demo.url(), protocol, &[])).await;
        let client = Legacy::meets(&scene.http).await;
        let mut stream = client.listens(None).await;
        assert_eq!(stream.headers["content-type"], "text/event-stream");
        for round in ["one", "two"] {
            let name = format!("{protocol}_{round}");
            demo.add_tool(&name).await;
            let told = stream.next().await.unwrap();
            assert_eq!(told.message(), json!({ "jsonrpc": "2.0", "method": CHANGED }));
            let tools = names(&client.asks("tools/list", json!({})).await, "tools", "name");
            assert_eq!(*tools.last().unwrap(), format!("demo__{name}"), "told when it can be seen");
        }
    }
}

#[tokio::test]
async fn a_change_is_told_on_one_of_a_clients_streams_and_to_every_client() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (one, two) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
    let (mut first, mut second) = (one.listens(None).await, one.listens(None).await);
    let mut other = two.listens(None).await;
    demo.add_tool("new").await;
    assert_eq!(other.message().await["method"], CHANGED);
    assert_eq!(either(&mut first, &mut second).await["method"], CHANGED);
    // Were the first change told twice, one of these would be it, and something would be left over.
    demo.add_tool("newer").await;
    assert_eq!(other.message().await["method"], CHANGED);
    assert_eq!(either(&mut first, &mut second).await["method"], CHANGED);
    for stream in [&mut first, &mut second] {
        assert!(stream.is_silent().await);
    }
}

/// The next message on whichever stream has one.
async fn either(first: &mut Events, second: &mut Events) -> Value {
    tokio::select! {
        message = first.message() => message,
        message = second.message() => message,
    }
}

#[tokio::test]
async fn a_client_that_did_not_listen_is_told_when_it_does() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (deaf, witness) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
    let mut heard = witness.listens(None).await;
    demo.add_tool("new").await;
    assert_eq!(heard.message().await["method"], CHANGED);
    let mut late = deaf.listens(None).await;
    let told = late.next().await.unwrap();
    assert_eq!(told.message()["method"], CHANGED);
    // Whoever comes back from before that is told again; whoever comes back from there is not.
    drop(late);
    let mut again = deaf.listens(Some("m-0-0-0")).await;
    assert_eq!(again.message().await["method"], CHANGED);
    drop(again);
    let mut settled = deaf.listens(told.id.as_deref()).await;
    demo.remove_tool("new").await;
    assert_eq!(settled.message().await["method"], CHANGED);
    let tools = names(&deaf.asks("tools/list", json!({})).await, "tools", "name");
    assert!(!tools.contains(&"demo__new".to_owned()));
}

#[tokio::test]
async fn what_was_written_on_a_stream_that_broke_is_told_on_the_next() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (client, witness) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
    let (lost, mut heard) = (client.listens(None).await, witness.listens(None).await);
    demo.add_tool("new").await;
    assert_eq!(heard.message().await["method"], CHANGED);
    // The client's network is gone: what was sent to it was never read, so it cannot name it either.
    drop(lost);
    let mut next = client.listens(None).await;
    assert_eq!(next.message().await["method"], CHANGED);
    // Whoever has seen the list since need not be told of it.
    drop(next);
    client.asks("tools/list", json!({})).await;
    let mut settled = client.listens(None).await;
    demo.add_tool("newer").await;
    assert_eq!(heard.message().await["method"], CHANGED);
    assert_eq!(settled.message().await["method"], CHANGED);
    assert!(settled.is_silent().await);
}

#[tokio::test]
async fn a_modern_client_that_listens_is_told_what_it_asked_for() {
    let demo = demo().await;
    for protocol in ["legacy", "modern"] {
        let scene = Scene::with(&at("demo", &demo.url(), protocol, &[])).await;
        let client = Modern::of(&scene.http);
        let wanted = json!({ "toolsListChanged": true, "promptsListChanged": false });
        let mut stream =
            client.begins("sub-1", "subscriptions/listen", json!({ "notifications": wanted })).await;
        assert_eq!(stream.status, 200);
        let hello = stream.next().await.unwrap();
        assert_eq!(hello.id, None, "modern streams are not picked up again");
        let hello = hello.message();
        assert_eq!(hello["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(hello["params"]["notifications"], json!({ "toolsListChanged": true }));
        assert_eq!(subscription(&hello), "sub-1");
        for round in ["one", "two"] {
            demo.add_tool(&format!("{protocol}_{round}")).await;
            let told = stream.message().await;
            assert_eq!((&told["method"], subscription(&told)), (&json!(CHANGED), "sub-1"));
        }
    }
}

fn subscription(message: &Value) -> &str {
    message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].as_str().unwrap()
}

#[tokio::test]
async fn a_client_of_the_oldest_http_is_served_and_told_on_its_stream() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "modern", &[])).await;
    let http = &scene.http;
    let mut stream = Events::of(http.begin(Method::GET, "/sse", &[], "").await);
    let endpoint = stream.next().await.unwrap();
    assert_eq!(endpoint.kind.as_deref(), Some("endpoint"));
    let send = |message: Value| {
        let path = endpoint.data.clone();
        async move { assert_eq!(http.send(Method::POST, &path, &[], message.to_string()).await.status, 202) }
    };
    send(initialize("2024-11-05")).await;
    assert_eq!(stream.message().await["result"]["protocolVersion"], "2024-11-05");
    send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    let meta = json!({ "progressToken": "mine" });
    let params = json!({ "name": "demo__sleep", "arguments": { "ms": 250 }, "_meta": meta });
    send(request("slow", "tools/call", &params)).await;
    let progress = stream.message().await;
    assert_eq!(progress["params"]["progressToken"], "mine", "{progress}");
    let answer = loop {
        let message = stream.message().await;
        if message["id"] == "slow" {
            break message;
        }
    };
    assert_eq!(answer["result"]["content"][0]["text"], "slept 250 ms");
    for tool in ["new", "newer"] {
        demo.add_tool(tool).await;
        assert_eq!(stream.message().await["method"], CHANGED);
    }
    drop(stream);
    let gone = async {
        while http.send(Method::POST, &endpoint.data, &[], "{}").await.status != 404 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("the address leads nowhere", gone).await;
}

/// A client on a pair of streams.
pub(crate) struct Pipe {
    input: DuplexStream,
    output: Lines<BufReader<DuplexStream>>,
}

impl Pipe {
    pub(crate) fn to(scene: &Scene) -> Self {
        let gateway = Gateway::new(scene.host.clone(), Seal::of_this_process().unwrap(), &Terms::default());
        let (input, theirs) = tokio::io::duplex(1 << 16);
        let (ours, output) = tokio::io::duplex(1 << 16);
        // It ends when the input does.
        tokio::spawn(async move { gateway.serve_stdio(theirs, ours).await });
        Self { input, output: BufReader::new(output).lines() }
    }

    pub(crate) async fn says(&mut self, message: Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn hears(&mut self) -> Value {
        let line = within("a line", self.output.next_line()).await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

#[tokio::test]
async fn a_legacy_client_on_a_pipe_is_told_once() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let mut pipe = Pipe::to(&scene);
    pipe.says(initialize("2025-11-25")).await;
    assert_eq!(pipe.hears().await["result"]["protocolVersion"], "2025-11-25");
    pipe.says(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    for (tool, id) in [("new", 1), ("newer", 2)] {
        demo.add_tool(tool).await;
        assert_eq!(pipe.hears().await["method"], CHANGED);
        pipe.says(request(id, "ping", &json!({}))).await;
        assert_eq!(pipe.hears().await["id"], id);
    }
}

#[tokio::test]
async fn a_modern_client_on_a_pipe_is_told_what_it_listens_for_until_it_cancels() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "modern", &[])).await;
    let mut pipe = Pipe::to(&scene);
    let listen = |id: &str| {
        let params = crate::client::in_context(json!({ "notifications": { "toolsListChanged": true } }));
        request(id, "subscriptions/listen", &params)
    };
    pipe.says(listen("sub-1")).await;
    let hello = pipe.hears().await;
    assert_eq!(hello["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(subscription(&hello), "sub-1");
    demo.add_tool("new").await;
    let told = pipe.hears().await;
    assert_eq!((&told["method"], subscription(&told)), (&json!(CHANGED), "sub-1"));
    let cancelled = json!({ "requestId": "sub-1" });
    pipe.says(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled })).await;
    pipe.says(listen("sub-2")).await;
    assert_eq!(subscription(&pipe.hears().await), "sub-2");
    demo.add_tool("newer").await;
    assert_eq!(subscription(&pipe.hears().await), "sub-2");
}

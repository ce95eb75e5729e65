//! List-change notifications: sent once per client, on any open stream, or later to clients that had none.

use crate::client::{EventStream, LegacyClient, ModernClient, initialize, names, request};
use crate::stdio_client::StdioClient;
use crate::test_gateway::{TestGateway, at, demo};
use gripfast_testkit::wait::until_async;
use http::Method;
use serde_json::{Value, json};

const CHANGED: &str = "notifications/tools/list_changed";

#[tokio::test]
async fn b05_a_list_change_is_sent_once_on_the_get_stream() {
    let demo = demo().await;
    for protocol in ["legacy", "modern"] {
        let gateway = TestGateway::with(&at("demo", &demo.url(), protocol, &[])).await;
        let client = LegacyClient::connect(&gateway.http).await;
        let mut stream = client.open_stream(None).await;
        assert_eq!(stream.headers["content-type"], "text/event-stream");
        for round in ["one", "two"] {
            let name = format!("{protocol}_{round}");
            demo.add_tool(&name).await;
            let told = stream.next().await.unwrap();
            assert_eq!(told.message(), json!({ "jsonrpc": "2.0", "method": CHANGED }));
            let tools = names(&client.request("tools/list", json!({})).await, "tools", "name");
            assert_eq!(*tools.last().unwrap(), format!("demo__{name}"), "told when it can be seen");
        }
    }
}

#[tokio::test]
async fn a_list_change_is_sent_on_one_stream_of_every_client() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (one, two) = (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    let (mut first, mut second) = (one.open_stream(None).await, one.open_stream(None).await);
    let mut other = two.open_stream(None).await;
    demo.add_tool("new").await;
    assert_eq!(other.message().await["method"], CHANGED);
    assert_eq!(either(&mut first, &mut second).await["method"], CHANGED);
    // If the first change were sent twice, it would be one of these, and a message would be left over.
    demo.add_tool("newer").await;
    assert_eq!(other.message().await["method"], CHANGED);
    assert_eq!(either(&mut first, &mut second).await["method"], CHANGED);
    for stream in [&mut first, &mut second] {
        assert!(stream.is_silent().await);
    }
}

/// Next message of either stream.
async fn either(first: &mut EventStream, second: &mut EventStream) -> Value {
    tokio::select! {
        message = first.message() => message,
        message = second.message() => message,
    }
}

#[tokio::test]
async fn a_client_without_a_stream_gets_the_list_change_when_it_opens_one() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (deaf, witness) =
        (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    let mut heard = witness.open_stream(None).await;
    demo.add_tool("new").await;
    assert_eq!(heard.message().await["method"], CHANGED);
    let mut late = deaf.open_stream(None).await;
    let told = late.next().await.unwrap();
    assert_eq!(told.message()["method"], CHANGED);
    // A stream resumed from before the event gets it again; one resumed from the event does not.
    drop(late);
    let mut again = deaf.open_stream(Some("m-0000000000000001-0000000000000001-0000000000000001")).await;
    assert_eq!(again.message().await["method"], CHANGED);
    drop(again);
    let mut settled = deaf.open_stream(told.id.as_deref()).await;
    demo.remove_tool("new").await;
    assert_eq!(settled.message().await["method"], CHANGED);
    let tools = names(&deaf.request("tools/list", json!({})).await, "tools", "name");
    assert!(!tools.contains(&"demo__new".to_owned()));
}

#[tokio::test]
async fn a_list_change_lost_with_a_stream_is_sent_on_the_next() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (client, witness) =
        (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    let (lost, mut heard) = (client.open_stream(None).await, witness.open_stream(None).await);
    demo.add_tool("new").await;
    assert_eq!(heard.message().await["method"], CHANGED);
    // The client's network is gone: it never read the event, so it cannot resume from it.
    drop(lost);
    let mut next = client.open_stream(None).await;
    assert_eq!(next.message().await["method"], CHANGED);
    // A client that has fetched the list since is not notified.
    drop(next);
    client.request("tools/list", json!({})).await;
    let mut settled = client.open_stream(None).await;
    demo.add_tool("newer").await;
    assert_eq!(heard.message().await["method"], CHANGED);
    assert_eq!(settled.message().await["method"], CHANGED);
    assert!(settled.is_silent().await);
}

#[tokio::test]
async fn a_modern_client_that_listens_gets_the_requested_list_changes() {
    let demo = demo().await;
    for protocol in ["legacy", "modern"] {
        let gateway = TestGateway::with(&at("demo", &demo.url(), protocol, &[])).await;
        let client = ModernClient::new(&gateway.http);
        let wanted = json!({ "toolsListChanged": true, "promptsListChanged": false });
        let mut stream =
            client.start_request("sub-1", "subscriptions/listen", json!({ "notifications": wanted })).await;
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
async fn an_http_sse_client_gets_answers_and_list_changes_on_its_stream() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "modern", &[])).await;
    let http = &gateway.http;
    let mut stream = EventStream::of(http.begin(Method::GET, "/sse", &[], "").await);
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
    let gone = async || http.send(Method::POST, &endpoint.data, &[], "{}").await.status == 404;
    until_async("the address leads nowhere", gone).await;
}

#[tokio::test]
async fn a_legacy_client_on_stdio_gets_a_list_change_once() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let mut pipe = StdioClient::to(&gateway);
    pipe.send(initialize("2025-11-25")).await;
    assert_eq!(pipe.receive().await["result"]["protocolVersion"], "2025-11-25");
    pipe.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    for (tool, id) in [("new", 1), ("newer", 2)] {
        demo.add_tool(tool).await;
        assert_eq!(pipe.receive().await["method"], CHANGED);
        pipe.send(request(id, "ping", &json!({}))).await;
        assert_eq!(pipe.receive().await["id"], id);
    }
}

#[tokio::test]
async fn a_modern_client_on_stdio_gets_list_changes_until_it_cancels() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "modern", &[])).await;
    let mut pipe = StdioClient::to(&gateway);
    let listen = |id: &str| {
        let params = crate::client::in_context(json!({ "notifications": { "toolsListChanged": true } }));
        request(id, "subscriptions/listen", &params)
    };
    pipe.send(listen("sub-1")).await;
    let hello = pipe.receive().await;
    assert_eq!(hello["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(subscription(&hello), "sub-1");
    demo.add_tool("new").await;
    let told = pipe.receive().await;
    assert_eq!((&told["method"], subscription(&told)), (&json!(CHANGED), "sub-1"));
    let cancelled = json!({ "requestId": "sub-1" });
    pipe.send(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled })).await;
    pipe.send(listen("sub-2")).await;
    assert_eq!(subscription(&pipe.receive().await), "sub-2");
    demo.add_tool("newer").await;
    assert_eq!(subscription(&pipe.receive().await), "sub-2");
}

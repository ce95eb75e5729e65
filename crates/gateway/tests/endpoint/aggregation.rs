//! Lists of several servers merged into one: order, names, conflicts, pagination and unknown names.

use crate::client::{LegacyClient, ModernClient, call, names};
use crate::test_gateway::{TestGateway, at, child, demo, demo_with, host_of};
use gripfast::State;
use gripfast_demo::Options;
use gripfast_testkit::wait::PATIENCE;
use http::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn tools_are_listed_in_config_order_with_their_servers_prefix() {
    let (zebra, apple) = (demo().await, demo().await);
    let config = at("zebra", &zebra.url(), "legacy", &[])
        + &at("apple", &apple.url(), "modern", &[])
        + &child("mango", &[], &["prefix = \"fruit\""]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let list = client.request("tools/list", json!({})).await;
    let tools = names(&list, "tools", "name");
    assert_eq!(tools.len(), 27);
    assert_eq!((&*tools[0], &*tools[9], &*tools[18]), ("zebra__echo", "apple__echo", "fruit__echo"));
    for (tool, server, own) in [(0, "zebra", "echo"), (10, "apple", "add"), (18, "mango", "echo")] {
        let origin = &list["result"]["tools"][tool]["_meta"]["gripfast/origin"];
        assert_eq!(*origin, json!({ "server": server, "name": own }));
    }
    for tool in ["zebra__counter", "apple__counter", "fruit__counter", "apple__counter"] {
        client.call_tool(tool, json!({})).await;
    }
    assert_eq!((zebra.counter(), apple.counter()), (1, 2));
    let prompts = names(&client.request("prompts/list", json!({})).await, "prompts", "name");
    assert_eq!(prompts, ["zebra__greet", "apple__greet", "fruit__greet"]);
}

#[tokio::test]
async fn where_unprefixed_names_collide_the_later_server_gets_its_prefix() {
    let (one, two) = (demo().await, demo_with(Options { extra_tools: 1, ..Options::default() }).await);
    let config = at("one", &one.url(), "legacy", &["prefix = \"\""])
        + &at("two", &two.url(), "legacy", &["prefix = \"\""]);
    let gateway = TestGateway::with(&config).await;
    let client = ModernClient::new(&gateway.http);
    let tools = names(&client.request("tools/list", json!({})).await, "tools", "name");
    assert_eq!((&*tools[0], &*tools[9], &*tools[18]), ("echo", "two__echo", "extra_1"));
    client.call_tool("counter", json!({})).await;
    client.call_tool("two__counter", json!({ "by": 5 })).await;
    assert_eq!((one.counter(), two.counter()), (1, 5));
    let status = gateway.http.send(Method::GET, "/api/v1/status", &[], "").await.message();
    let upstreams = &status["upstreams"];
    assert_eq!(upstreams[0]["renamed"], json!([]), "{status}");
    assert_eq!(upstreams[1]["renamed"][0], json!({ "wanted": "echo", "public": "two__echo" }), "{status}");
    let events = gateway.host.server_status("two").unwrap().events;
    let told = events.iter().find(|told| told.event.kind() == "name_conflicts");
    let text = told.unwrap_or_else(|| panic!("{events:?}")).event.to_string();
    assert!(text.contains("two__echo"), "{text}");
}

#[tokio::test]
async fn a_uri_of_two_servers_gets_a_server_prefix_for_the_later_one() {
    let (one, two) = (demo().await, demo().await);
    let config = at("one", &one.url(), "legacy", &[]) + &at("two", &two.url(), "modern", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let resources = names(&client.request("resources/list", json!({})).await, "resources", "uri");
    let expected = ["demo://greeting", "demo://counter", "two+demo://greeting", "two+demo://counter"];
    assert_eq!(resources, expected);
    let templates = client.request("resources/templates/list", json!({})).await;
    let templates = names(&templates, "resourceTemplates", "uriTemplate");
    assert_eq!(templates, ["demo://echo/{text}", "two+demo://echo/{text}"]);
    client.call_tool("two__counter", json!({ "by": 7 })).await;
    for (uri, content) in [("demo://counter", "0"), ("two+demo://counter", "7"), ("two+demo://echo/me", "me")]
    {
        let read = client.request("resources/read", json!({ "uri": uri })).await;
        assert_eq!(read["result"]["contents"][0]["text"], content, "{read}");
    }
}

#[tokio::test]
async fn the_list_of_a_hundred_lazy_servers_is_complete_and_starts_none() {
    let server = demo().await;
    let url = server.url();
    let config = |lazy: &str| -> String {
        (0..100).map(|number| at(&format!("s{number}"), &url, "legacy", &[lazy])).collect()
    };
    let gateway = TestGateway::with(&config("lazy = false")).await;
    let listed = LegacyClient::connect(&gateway.http).await.request("tools/list", json!({})).await;
    assert_eq!(names(&listed, "tools", "name").len(), 900);
    let met = server.initializes();
    let gateway = gateway.restart(&config("lazy = true")).await;
    let again = LegacyClient::connect(&gateway.http).await.request("tools/list", json!({})).await;
    assert_eq!(again["result"], listed["result"]);
    let states: Vec<State> = gateway.host.status().iter().map(|server| server.supervision.state).collect();
    assert_eq!(states, [State::Idle; 100]);
    assert_eq!(server.initializes(), met);
}

/// Items of all pages, and the number of pages.
async fn all_pages(client: &ModernClient) -> (Vec<String>, usize) {
    let (mut tools, mut pages, mut params) = (Vec::new(), 0, json!({}));
    loop {
        let page = client.request("tools/list", params).await;
        tools.extend(names(&page, "tools", "name"));
        pages += 1;
        match &page["result"]["nextCursor"] {
            Value::Null => return (tools, pages),
            cursor => params = json!({ "cursor": cursor }),
        }
    }
}

#[tokio::test]
async fn a_long_list_comes_in_pages_that_cover_it_once() {
    let many = demo_with(Options { extra_tools: 1500, page_size: 0, ..Options::default() }).await;
    let few = demo().await;
    let config = at("few", &few.url(), "legacy", &[]) + &at("many", &many.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = ModernClient::new(&gateway.http);
    let (tools, pages) = all_pages(&client).await;
    assert!(pages > 1);
    let mut expected: Vec<String> = names(
        &LegacyClient::connect(&gateway.http).await.request("tools/list", json!({})).await,
        "tools",
        "name",
    );
    assert_eq!(tools[..expected.len()], expected);
    expected.extend((expected.len() - 17..=1500).map(|number| format!("many__extra_{number}")));
    assert_eq!(tools, expected);
}

#[tokio::test]
async fn a_stale_or_foreign_cursor_is_refused_and_one_of_the_same_list_survives_a_restart() {
    let many = demo_with(Options { extra_tools: 1500, page_size: 0, ..Options::default() }).await;
    let config = at("many", &many.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let cursor = client.request("tools/list", json!({})).await["result"]["nextCursor"].clone();
    assert!(client.request("tools/list", json!({ "cursor": cursor })).await["result"].is_object());
    let elsewhere = client.request("prompts/list", json!({ "cursor": cursor })).await;
    assert_eq!(elsewhere["error"]["code"], -32602, "a cursor of another list: {elsewhere}");
    let mut changes = client.open_stream(None).await;
    many.add_tool("latecomer").await;
    assert_eq!(changes.message().await["method"], "notifications/tools/list_changed");
    for stale in [cursor.clone(), json!("nonsense"), json!(""), json!(7)] {
        let answer = client.request("tools/list", json!({ "cursor": stale })).await;
        assert_eq!(answer["error"]["code"], -32602, "{stale}: {answer}");
    }
    drop(changes);
    let first = client.request("tools/list", json!({})).await;
    let gateway = gateway.restart(&config).await;
    let client = LegacyClient::with_session(&gateway.http, &client.session);
    let answer = client.request("tools/list", json!({ "cursor": cursor })).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let second = client.request("tools/list", json!({ "cursor": first["result"]["nextCursor"] })).await;
    let tools = [&first, &second].map(|page| names(page, "tools", "name")).concat();
    assert_eq!(
        tools,
        all_pages(&ModernClient::new(&gateway.http)).await.0,
        "the same list in another process"
    );
}

#[tokio::test]
async fn c01_an_unknown_tool_prompt_or_resource_is_invalid_params_in_both_eras() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (legacy, modern) = (LegacyClient::connect(&gateway.http).await, ModernClient::new(&gateway.http));
    let unknown = [
        ("tools/call", call("demo__nothing", json!({}))),
        ("tools/call", call("echo", json!({}))),
        ("tools/call", json!({})),
        ("prompts/get", call("demo__nothing", json!({}))),
        ("resources/read", json!({ "uri": "nowhere://at/all" })),
        ("resources/read", json!({})),
        ("completion/complete", json!({ "ref": { "type": "ref/prompt", "name": "nobody" }, "argument": {} })),
    ];
    for (method, params) in unknown {
        let names_something = params.as_object().is_some_and(|params| !params.is_empty());
        let code = names_something.then_some(match method {
            "tools/call" => "unknown_tool",
            _ => "invalid_request",
        });
        for answer in
            [legacy.request(method, params.clone()).await, modern.request(method, params.clone()).await]
        {
            assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
            assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
            let data = &answer["error"]["data"];
            assert_eq!(data.get("uri"), params.get("uri"), "{method}: {answer}");
            assert_eq!(data["code"].as_str(), code, "{method}: {answer}");
        }
    }
    assert_eq!(demo.calls(), 0);
}

#[tokio::test]
async fn g01_a_denied_tool_is_not_listed_and_looks_unknown() {
    let demo = demo().await;
    let rules = "tools = { allow = [\"*\"], deny = [\"c*\", \"misbehave\"] }";
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[rules])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let tools = names(&client.request("tools/list", json!({})).await, "tools", "name");
    let left = ["demo__echo", "demo__add", "demo__sleep", "demo__fail", "demo__reject", "demo__ask"];
    assert_eq!(tools, left);
    let denied = client.request("tools/call", call("demo__counter", json!({}))).await;
    let unknown = client.request("tools/call", call("demo__nobody00", json!({}))).await;
    assert_eq!(denied["error"]["code"], -32602, "{denied}");
    let text = |answer: &Value| answer["error"].to_string();
    assert_eq!(text(&denied).replace("demo__counter", "X"), text(&unknown).replace("demo__nobody00", "X"));
    assert_eq!(demo.calls(), 0);
}

/// A catalog snapshot made just before the listing must not be returned as the current one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tool_that_was_just_listed_is_in_the_catalog() {
    let demo = demo().await;
    for round in 0..100 {
        let host = host_of(&at("demo", &demo.url(), "legacy", &[]), None);
        host.catalog_snapshot();
        host.wait_until_listed(PATIENCE).await;
        assert_eq!(host.catalog_snapshot().tools.len(), 9, "round {round}");
        host.shutdown().await;
    }
}

//! Many servers as one: order, names, collisions, pages, and what is not there.

use crate::client::{Legacy, Modern, call, names};
use crate::scene::{PATIENCE, Scene, at, child, demo, demo_with, host_of};
use gripfast::State;
use gripfast_demo::Options;
use http::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn tools_are_listed_in_the_order_of_the_config_under_their_servers_names() {
    let (zebra, apple) = (demo().await, demo().await);
    let config = at("zebra", &zebra.url(), "legacy", &[])
        + &at("apple", &apple.url(), "modern", &[])
        + &child("mango", &[], &["prefix = \"fruit\""]);
    let scene = Scene::with(&config).await;
    let client = Legacy::meets(&scene.http).await;
    let list = client.asks("tools/list", json!({})).await;
    let tools = names(&list, "tools", "name");
    assert_eq!(tools.len(), 27);
    assert_eq!((&*tools[0], &*tools[9], &*tools[18]), ("zebra__echo", "apple__echo", "fruit__echo"));
    for (tool, server, own) in [(0, "zebra", "echo"), (10, "apple", "add"), (18, "mango", "echo")] {
        let origin = &list["result"]["tools"][tool]["_meta"]["gripfast/origin"];
        assert_eq!(*origin, json!({ "server": server, "name": own }));
    }
    for tool in ["zebra__counter", "apple__counter", "fruit__counter", "apple__counter"] {
        client.calls(tool, json!({})).await;
    }
    assert_eq!((zebra.counter(), apple.counter()), (1, 2));
    let prompts = names(&client.asks("prompts/list", json!({})).await, "prompts", "name");
    assert_eq!(prompts, ["zebra__greet", "apple__greet", "fruit__greet"]);
}

#[tokio::test]
async fn where_unprefixed_names_collide_the_later_server_gets_its_prefix() {
    let (one, two) = (demo().await, demo_with(Options { extra_tools: 1, ..Options::default() }).await);
    let config = at("one", &one.url(), "legacy", &["prefix = \"\""])
        + &at("two", &two.url(), "legacy", &["prefix = \"\""]);
    let scene = Scene::with(&config).await;
    let client = Modern::of(&scene.http);
    let tools = names(&client.asks("tools/list", json!({})).await, "tools", "name");
    assert_eq!((&*tools[0], &*tools[9], &*tools[18]), ("echo", "two__echo", "extra_1"));
    client.calls("counter", json!({})).await;
    client.calls("two__counter", json!({ "by": 5 })).await;
    assert_eq!((one.counter(), two.counter()), (1, 5));
    let status = scene.http.send(Method::GET, "/api/v1/status", &[], "").await.message();
    let upstreams = &status["upstreams"];
    assert_eq!(upstreams[0]["renamed"], json!([]), "{status}");
    assert_eq!(upstreams[1]["renamed"][0], json!({ "wanted": "echo", "public": "two__echo" }), "{status}");
    let events = scene.host.status_of("two").unwrap().events;
    let told = events.iter().find(|told| told.event.word() == "names_gave_way");
    let text = told.unwrap_or_else(|| panic!("{events:?}")).event.to_string();
    assert!(text.contains("two__echo"), "{text}");
}

#[tokio::test]
async fn a_uri_that_two_servers_have_names_its_server_for_the_later_one() {
    let (one, two) = (demo().await, demo().await);
    let config = at("one", &one.url(), "legacy", &[]) + &at("two", &two.url(), "modern", &[]);
    let scene = Scene::with(&config).await;
    let client = Legacy::meets(&scene.http).await;
    let resources = names(&client.asks("resources/list", json!({})).await, "resources", "uri");
    let expected = ["demo://greeting", "demo://counter", "two+demo://greeting", "two+demo://counter"];
    assert_eq!(resources, expected);
    let templates = client.asks("resources/templates/list", json!({})).await;
    let templates = names(&templates, "resourceTemplates", "uriTemplate");
    assert_eq!(templates, ["demo://echo/{text}", "two+demo://echo/{text}"]);
    client.calls("two__counter", json!({ "by": 7 })).await;
    for (uri, content) in [("demo://counter", "0"), ("two+demo://counter", "7"), ("two+demo://echo/me", "me")]
    {
        let read = client.asks("resources/read", json!({ "uri": uri })).await;
        assert_eq!(read["result"]["contents"][0]["text"], content, "{read}");
    }
}

#[tokio::test]
async fn the_list_of_a_hundred_lazy_servers_is_complete_at_once_and_starts_none_of_them() {
    let server = demo().await;
    let url = server.url();
    let config = |lazy: &str| -> String {
        (0..100).map(|number| at(&format!("s{number}"), &url, "legacy", &[lazy])).collect()
    };
    let scene = Scene::with(&config("lazy = false")).await;
    let listed = Legacy::meets(&scene.http).await.asks("tools/list", json!({})).await;
    assert_eq!(names(&listed, "tools", "name").len(), 900);
    let met = server.initializes();
    let scene = scene.restart(&config("lazy = true")).await;
    let again = Legacy::meets(&scene.http).await.asks("tools/list", json!({})).await;
    assert_eq!(again["result"], listed["result"]);
    let states: Vec<State> = scene.host.status().iter().map(|server| server.supervision.state).collect();
    assert_eq!(states, [State::Idle; 100]);
    assert_eq!(server.initializes(), met);
}

/// Every page from the first one on, and how many there were.
async fn all_pages(client: &Modern) -> (Vec<String>, usize) {
    let (mut tools, mut pages, mut params) = (Vec::new(), 0, json!({}));
    loop {
        let page = client.asks("tools/list", params).await;
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
    let scene = Scene::with(&config).await;
    let client = Modern::of(&scene.http);
    let (tools, pages) = all_pages(&client).await;
    assert!(pages > 1);
    let mut expected: Vec<String> =
        names(&Legacy::meets(&scene.http).await.asks("tools/list", json!({})).await, "tools", "name");
    assert_eq!(tools[..expected.len()], expected);
    expected.extend((expected.len() - 17..=1500).map(|number| format!("many__extra_{number}")));
    assert_eq!(tools, expected);
}

#[tokio::test]
async fn a_cursor_from_before_a_change_or_from_elsewhere_is_refused() {
    let many = demo_with(Options { extra_tools: 1500, page_size: 0, ..Options::default() }).await;
    let config = at("many", &many.url(), "legacy", &[]);
    let scene = Scene::with(&config).await;
    let client = Legacy::meets(&scene.http).await;
    let cursor = client.asks("tools/list", json!({})).await["result"]["nextCursor"].clone();
    assert!(client.asks("tools/list", json!({ "cursor": cursor })).await["result"].is_object());
    let elsewhere = client.asks("prompts/list", json!({ "cursor": cursor })).await;
    assert_eq!(elsewhere["error"]["code"], -32602, "a cursor of another list: {elsewhere}");
    let mut changes = client.listens(None).await;
    many.add_tool("latecomer").await;
    assert_eq!(changes.message().await["method"], "notifications/tools/list_changed");
    for stale in [cursor.clone(), json!("nonsense"), json!(""), json!(7)] {
        let answer = client.asks("tools/list", json!({ "cursor": stale })).await;
        assert_eq!(answer["error"]["code"], -32602, "{stale}: {answer}");
    }
    drop(changes);
    // Another process may have another list under the same number.
    let scene = scene.restart(&config).await;
    let client = Legacy::resumes(&scene.http, &client.session);
    let answer = client.asks("tools/list", json!({ "cursor": cursor })).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn c01_an_unknown_tool_prompt_or_resource_is_invalid_params_in_both_eras() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (legacy, modern) = (Legacy::meets(&scene.http).await, Modern::of(&scene.http));
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
        for answer in [legacy.asks(method, params.clone()).await, modern.asks(method, params.clone()).await] {
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
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[rules])).await;
    let client = Legacy::meets(&scene.http).await;
    let tools = names(&client.asks("tools/list", json!({})).await, "tools", "name");
    let left = ["demo__echo", "demo__add", "demo__sleep", "demo__fail", "demo__reject", "demo__ask"];
    assert_eq!(tools, left);
    let denied = client.asks("tools/call", call("demo__counter", json!({}))).await;
    let unknown = client.asks("tools/call", call("demo__nobody00", json!({}))).await;
    assert_eq!(denied["error"]["code"], -32602, "{denied}");
    let text = |answer: &Value| answer["error"].to_string();
    assert_eq!(text(&denied).replace("demo__counter", "X"), text(&unknown).replace("demo__nobody00", "X"));
    assert_eq!(demo.calls(), 0);
}

/// A menu that was made a moment before must not be taken for the present one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_just_listed_is_on_the_menu() {
    let demo = demo().await;
    for round in 0..100 {
        let host = host_of(&at("demo", &demo.url(), "legacy", &[]), None);
        host.menu();
        host.settled(PATIENCE).await;
        assert_eq!(host.menu().tools.len(), 9, "round {round}");
        host.shutdown().await;
    }
}

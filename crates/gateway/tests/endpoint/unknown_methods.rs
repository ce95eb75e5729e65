//! Unknown methods: forwarded to the only server that fits, with its own names, and refused if several servers fit.

use crate::client::{LegacyClient, ModernClient};
use crate::scripted_server::ScriptedServer;
use crate::test_gateway::{TestGateway, at};
use serde_json::{Value, json};

const INSPECT: &str = "vendor/inspect";

/// Server with a tool, a prompt and a resource of this name, whose answers contain the name.
async fn server(own: &str) -> ScriptedServer {
    let done = r#""resultType":"complete","ttlMs":0,"cacheScope":"private""#;
    let tools = format!(r#"{{"tools":[{{"name":"{own}","inputSchema":{{"type":"object"}}}}],{done}}}"#);
    let prompts = format!(r#"{{"prompts":[{{"name":"{own}"}}],{done}}}"#);
    let resources = format!(
        r#"{{"resources":[{{"uri":"x://{own}","name":"{own}"}},{{"uri":"x://shared","name":"s"}}],{done}}}"#
    );
    let answer = format!(r#"{{"from":"{own}"}}"#);
    let answers = [
        ("tools/list", &*tools),
        ("prompts/list", &prompts),
        ("resources/list", &resources),
        (INSPECT, &answer),
    ];
    ScriptedServer::start(&answers).await
}

/// Gateway with two servers, one of each era.
async fn two() -> (ScriptedServer, ScriptedServer, TestGateway) {
    let (one, two) = (server("a").await, server("b").await);
    let config = at("one", &one.url, "legacy", &[]) + &at("two", &two.url, "modern", &[]);
    let gateway = TestGateway::with(&config).await;
    (one, two, gateway)
}

#[tokio::test]
async fn an_unknown_method_goes_to_the_server_that_its_parameters_name() {
    let (one, two, gateway) = two().await;
    let client = LegacyClient::connect(&gateway.http).await;
    for (params, from, heard) in [
        (json!({ "name": "one__a", "depth": 3 }), "a", json!({ "name": "a", "depth": 3 })),
        (json!({ "name": "two__b" }), "b", json!({ "name": "b" })),
        (json!({ "uri": "x://a" }), "a", json!({ "uri": "x://a" })),
        (json!({ "uri": "two+x://shared" }), "b", json!({ "uri": "x://shared" })),
        (
            json!({ "ref": { "type": "ref/prompt", "name": "two__b" } }),
            "b",
            json!({ "ref": { "type": "ref/prompt", "name": "b" } }),
        ),
        (json!({ "name": "one__a", "uri": "x://a" }), "a", json!({ "name": "a", "uri": "x://a" })),
    ] {
        for modern in [false, true] {
            let answer = match modern {
                false => client.request(INSPECT, params.clone()).await,
                true => ModernClient::new(&gateway.http).request(INSPECT, params.clone()).await,
            };
            assert_eq!(answer["result"]["from"], from, "{params}: {answer}");
            let server = if from == "a" { &one } else { &two };
            let mut came: Value = serde_json::from_str(&server.last_request(INSPECT)).unwrap();
            came["params"].as_object_mut().unwrap().remove("_meta");
            assert_eq!(came["params"], heard);
        }
    }
}

#[tokio::test]
async fn an_unknown_method_that_fits_several_servers_is_not_forwarded() {
    let (one, two, gateway) = two().await;
    let client = LegacyClient::connect(&gateway.http).await;
    for params in [
        json!({}),
        json!({ "name": "nobody" }),
        json!({ "name": 7 }),
        json!({ "name": "one__a", "uri": "x://b" }),
        json!({ "name": "one__a", "ref": { "uri": "x://b" } }),
    ] {
        assert_eq!(client.request(INSPECT, params.clone()).await["error"]["code"], -32601, "{params}");
        let answered = ModernClient::new(&gateway.http).send_request(INSPECT, params).await;
        assert_eq!(answered.refusal(), (404, -32601));
    }
    // A server that ignores letter case would use the member that the gateway did not check.
    let smuggled = client.request(INSPECT, json!({ "name": "one__a", "Name": "two__b" })).await;
    assert_eq!(smuggled["error"]["code"], -32602, "{smuggled}");
    for script in [one, two] {
        assert!(script.everything().iter().all(|body| !body.contains(INSPECT)));
    }
}

#[tokio::test]
async fn the_only_server_gets_every_unknown_method_and_its_own_names_in_it() {
    let one = server("a").await;
    let gateway = TestGateway::with(&at("one", &one.url, "legacy", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    for (params, heard) in [
        (json!({ "name": "one__a" }), json!({ "name": "a" })),
        (json!({ "name": "else", "odd": [1.5] }), json!({ "name": "else", "odd": [1.5] })),
        (json!({}), json!({})),
    ] {
        let answer = client.request(INSPECT, params).await;
        assert_eq!(answer["result"]["from"], "a", "{answer}");
        let came: Value = serde_json::from_str(&one.last_request(INSPECT)).unwrap();
        assert_eq!(came["params"], heard);
    }
}

#[tokio::test]
async fn a_method_of_an_extension_goes_to_the_only_server_that_has_it() {
    let discovered = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{},"extensions":{"example.com/skills":{}}},"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#;
    let listed = r#"{"resources":[{"uri":"skill://desk/SKILL.md","name":"s"}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#;
    let skilled = ScriptedServer::start(&[
        ("server/discover", discovered),
        ("resources/list", listed),
        ("skills/list", r#"{"skills":["desk"]}"#),
        ("resources/directory/read", r#"{"resources":[]}"#),
    ])
    .await;
    let other = server("b").await;
    let config = at("skilled", &skilled.url, "modern", &[]) + &at("other", &other.url, "modern", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = ModernClient::new(&gateway.http);
    let found = client.request("server/discover", json!({})).await;
    assert_eq!(found["result"]["capabilities"]["extensions"], json!({ "example.com/skills": {} }), "{found}");
    let answer = client.request("skills/list", json!({})).await;
    assert_eq!(answer["result"]["skills"], json!(["desk"]), "{answer}");
    let answer = client.request("resources/directory/read", json!({ "uri": "skill://desk" })).await;
    assert_eq!(answer["result"]["resources"], json!([]), "{answer}");
    assert_eq!(client.request("other/list", json!({})).await["error"]["code"], -32601);
}

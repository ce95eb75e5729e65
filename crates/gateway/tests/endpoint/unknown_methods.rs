//! Methods that nobody here knows: passed on to the one server that can be meant, in its own words, and to nobody
//! if that could be more than one.

use crate::client::{Legacy, Modern};
use crate::scene::{Scene, at};
use crate::script::Script;
use serde_json::{Value, json};

const INSPECT: &str = "vendor/inspect";

/// A server with a tool, a prompt and a resource of this name, that answers with who it is.
async fn server(own: &str) -> Script {
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
    Script::starts(&answers).await
}

/// Two servers, one of each era, and a gateway in front of them.
async fn two() -> (Script, Script, Scene) {
    let (one, two) = (server("a").await, server("b").await);
    let config = at("one", &one.url, "legacy", &[]) + &at("two", &two.url, "modern", &[]);
    let scene = Scene::with(&config).await;
    (one, two, scene)
}

#[tokio::test]
async fn an_unknown_method_goes_to_the_server_that_its_parameters_name() {
    let (one, two, scene) = two().await;
    let client = Legacy::meets(&scene.http).await;
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
                false => client.asks(INSPECT, params.clone()).await,
                true => Modern::of(&scene.http).asks(INSPECT, params.clone()).await,
            };
            assert_eq!(answer["result"]["from"], from, "{params}: {answer}");
            let server = if from == "a" { &one } else { &two };
            let mut came: Value = serde_json::from_str(&server.heard(INSPECT)).unwrap();
            came["params"].as_object_mut().unwrap().remove("_meta");
            assert_eq!(came["params"], heard);
        }
    }
}

#[tokio::test]
async fn an_unknown_method_that_more_than_one_server_could_mean_goes_to_nobody() {
    let (one, two, scene) = two().await;
    let client = Legacy::meets(&scene.http).await;
    for params in [
        json!({}),
        json!({ "name": "nobody" }),
        json!({ "name": 7 }),
        json!({ "name": "one__a", "uri": "x://b" }),
        json!({ "name": "one__a", "ref": { "uri": "x://b" } }),
    ] {
        assert_eq!(client.asks(INSPECT, params.clone()).await["error"]["code"], -32601, "{params}");
        let answered = Modern::of(&scene.http).sends(INSPECT, params).await;
        assert_eq!(answered.refusal(), (404, -32601));
    }
    // A server that does not mind letter case would take the other name for the one that was looked at.
    let smuggled = client.asks(INSPECT, json!({ "name": "one__a", "Name": "two__b" })).await;
    assert_eq!(smuggled["error"]["code"], -32602, "{smuggled}");
    for script in [one, two] {
        assert!(script.everything().iter().all(|body| !body.contains(INSPECT)));
    }
}

#[tokio::test]
async fn the_only_server_gets_every_unknown_method_and_its_own_names_in_it() {
    let one = server("a").await;
    let scene = Scene::with(&at("one", &one.url, "legacy", &[])).await;
    let client = Legacy::meets(&scene.http).await;
    for (params, heard) in [
        (json!({ "name": "one__a" }), json!({ "name": "a" })),
        (json!({ "name": "else", "odd": [1.5] }), json!({ "name": "else", "odd": [1.5] })),
        (json!({}), json!({})),
    ] {
        let answer = client.asks(INSPECT, params).await;
        assert_eq!(answer["result"]["from"], "a", "{answer}");
        let came: Value = serde_json::from_str(&one.heard(INSPECT)).unwrap();
        assert_eq!(came["params"], heard);
    }
}

#[tokio::test]
async fn a_method_of_an_extension_goes_to_the_only_server_that_has_it() {
    let discovered = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{},"extensions":{"example.com/skills":{}}},"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#;
    let listed = r#"{"resources":[{"uri":"skill://desk/SKILL.md","name":"s"}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#;
    let skilled = Script::starts(&[
        ("server/discover", discovered),
        ("resources/list", listed),
        ("skills/list", r#"{"skills":["desk"]}"#),
        ("resources/directory/read", r#"{"resources":[]}"#),
    ])
    .await;
    let other = server("b").await;
    let config = at("skilled", &skilled.url, "modern", &[]) + &at("other", &other.url, "modern", &[]);
    let scene = Scene::with(&config).await;
    let client = Modern::of(&scene.http);
    let found = client.asks("server/discover", json!({})).await;
    assert_eq!(found["result"]["capabilities"]["extensions"], json!({ "example.com/skills": {} }), "{found}");
    let answer = client.asks("skills/list", json!({})).await;
    assert_eq!(answer["result"]["skills"], json!(["desk"]), "{answer}");
    let answer = client.asks("resources/directory/read", json!({ "uri": "skill://desk" })).await;
    assert_eq!(answer["result"]["resources"], json!([]), "{answer}");
    assert_eq!(client.asks("other/list", json!({})).await["error"]["code"], -32601);
}

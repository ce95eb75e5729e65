//! For how long clients may keep what they are told: `ttlMs` and `cacheScope` of lists and of `server/discover`.

use crate::client::{Http, Modern};
use crate::scene::{Scene, at, pass, until};
use crate::script::Script;
use serde_json::{Value, json};
use std::time::Duration;

/// A server of the modern era whose only tool is good for so long, and which says of itself what is good for twice as
/// long.
async fn good_for(tool: &str, millis: u64, scope: &str) -> Script {
    let tools = json!({
        "tools": [{ "name": tool, "inputSchema": { "type": "object" } }],
        "resultType": "complete", "ttlMs": millis, "cacheScope": scope,
    });
    let discovered = json!({
        "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
        "resultType": "complete", "ttlMs": 2 * millis, "cacheScope": scope,
    });
    Script::starts(&[("tools/list", &tools.to_string()), ("server/discover", &discovered.to_string())]).await
}

/// On a connection of its own: while time was let pass, an idle one was closed.
async fn told(scene: &Scene, method: &str) -> (u64, String) {
    let http = Http::at(&scene.http.address);
    let answer = Modern::of(&http).asks(method, json!({})).await;
    let result: &Value = &answer["result"];
    (result["ttlMs"].as_u64().unwrap(), result["cacheScope"].as_str().unwrap().to_owned())
}

/// Less by what has passed since, which is not much.
#[track_caller]
fn assert_nearly(told: (u64, String), millis: u64, scope: &str) {
    assert!(told.0 <= millis && told.0 + 60_000 > millis && told.0 > 0, "{told:?} is not nearly {millis}");
    assert_eq!(told.1, scope);
}

#[tokio::test]
async fn g04_a_merged_list_is_good_as_long_as_its_shortest_part_and_private_if_one_is() {
    let (one, two) = (good_for("a", 600_000, "public").await, good_for("b", 300_000, "public").await);
    let servers = at("one", &one.url, "modern", &[]) + &at("two", &two.url, "modern", &[]);
    let scene = Scene::with(&servers).await;
    assert_nearly(told(&scene, "tools/list").await, 300_000, "public");
    assert_nearly(told(&scene, "server/discover").await, 600_000, "public");
    let three = good_for("c", 900_000, "private").await;
    let scene = Scene::with(&(servers.clone() + &at("three", &three.url, "modern", &[]))).await;
    assert_nearly(told(&scene, "tools/list").await, 300_000, "private");
    let scene = Scene::with(&(servers + "[clients.guest]\ntools = { deny = [\"one/*\"] }\n")).await;
    assert_nearly(told(&scene, "tools/list").await, 300_000, "private");
    assert_nearly(told(&scene, "server/discover").await, 600_000, "private");
}

#[tokio::test]
async fn g04_lists_of_a_server_that_says_nothing_are_good_for_nothing_unless_the_operator_says_so() {
    let greeting = |changes: bool| {
        let tools = json!({ "listChanged": changes });
        json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": tools },
            "serverInfo": { "name": "old", "version": "1" },
        })
        .to_string()
    };
    let tools = r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}"#;
    let lists = "cache = { lists = \"90s\" }";
    for (tells, more, expected) in
        [(true, &[][..], 0), (true, &[lists][..], 90_000), (false, &[lists][..], 0)]
    {
        let old = Script::starts(&[("initialize", &greeting(tells)), ("tools/list", tools)]).await;
        let scene = Scene::with(&at("old", &old.url, "legacy", more)).await;
        assert_eq!(told(&scene, "tools/list").await, (expected, "private".to_owned()), "{tells} {more:?}");
        let modern = good_for("b", 300_000, "public").await;
        let both = at("old", &old.url, "legacy", more) + &at("new", &modern.url, "modern", &[]);
        let scene = Scene::with(&both).await;
        assert_eq!(told(&scene, "tools/list").await, (expected, "private".to_owned()), "{tells} {more:?}");
    }
}

#[tokio::test]
async fn g04_a_list_whose_time_is_over_is_good_for_nothing_and_asked_for_again() {
    let server = good_for("a", 300_000, "public").await;
    let scene = Scene::with(&at("one", &server.url, "modern", &["keepalive_interval = \"0s\""])).await;
    assert_nearly(told(&scene, "tools/list").await, 300_000, "public");
    assert_eq!(server.count("tools/list"), 1);
    pass(Duration::from_secs(301)).await;
    assert_eq!(told(&scene, "tools/list").await, (0, "public".to_owned()));
    until("it is listed again", || server.count("tools/list") == 2).await;
    until("the list is good again", || {
        scene.host.list_freshness(gripfast::wire::results::List::Tools).ttl > Duration::ZERO
    })
    .await;
    assert_nearly(told(&scene, "tools/list").await, 300_000, "public");
    assert_eq!(server.count("tools/list"), 2);
}

#[tokio::test]
async fn g04_what_was_read_is_private_where_clients_may_not_all_read_the_same() {
    let resources = r#"{"resources":[{"uri":"x://a","name":"a"}],"resultType":"complete","ttlMs":0,"cacheScope":"public"}"#;
    let read = r#"{"contents":[],"resultType":"complete","ttlMs":300000,"cacheScope":"public"}"#;
    for (rules, scope) in [("", "public"), ("[clients.guest]\nresources = { deny = [\"*\"] }\n", "private")] {
        let server = Script::starts(&[("resources/list", resources), ("resources/read", read)]).await;
        let scene = Scene::with(&(at("it", &server.url, "modern", &[]) + rules)).await;
        let answer = Modern::of(&scene.http).asks("resources/read", json!({ "uri": "x://a" })).await;
        assert_eq!(
            (&answer["result"]["ttlMs"], &answer["result"]["cacheScope"]),
            (&json!(300_000), &json!(scope))
        );
    }
}

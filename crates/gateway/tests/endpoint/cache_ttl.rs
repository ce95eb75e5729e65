//! Cache fields for clients: `ttlMs` and `cacheScope` of lists and of `server/discover`.

use crate::client::{HttpClient, ModernClient};
use crate::scripted_server::ScriptedServer;
use crate::test_gateway::{TestGateway, at, pass};
use gripfast_testkit::wait::until;
use serde_json::{Value, json};
use std::time::Duration;

/// Modern server whose tool list has this TTL, and whose `server/discover` has twice that TTL.
async fn good_for(tool: &str, millis: u64, scope: &str) -> ScriptedServer {
    let tools = json!({
        "tools": [{ "name": tool, "inputSchema": { "type": "object" } }],
        "resultType": "complete", "ttlMs": millis, "cacheScope": scope,
    });
    let discovered = json!({
        "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
        "resultType": "complete", "ttlMs": 2 * millis, "cacheScope": scope,
    });
    ScriptedServer::start(&[("tools/list", &tools.to_string()), ("server/discover", &discovered.to_string())])
        .await
}

/// Requests on a new connection, because idle ones are closed when the test advances time.
async fn told(gateway: &TestGateway, method: &str) -> (u64, String) {
    let http = HttpClient::at(&gateway.http.address);
    let answer = ModernClient::new(&http).request(method, json!({})).await;
    let result: &Value = &answer["result"];
    (result["ttlMs"].as_u64().unwrap(), result["cacheScope"].as_str().unwrap().to_owned())
}

/// Checks a remaining TTL: slightly less than the full one.
#[track_caller]
fn assert_nearly(told: (u64, String), millis: u64, scope: &str) {
    assert!(told.0 <= millis && told.0 + 60_000 > millis && told.0 > 0, "{told:?} is not nearly {millis}");
    assert_eq!(told.1, scope);
}

#[tokio::test]
async fn g04_a_merged_list_has_the_shortest_ttl_and_is_private_if_one_part_is() {
    let (one, two) = (good_for("a", 600_000, "public").await, good_for("b", 300_000, "public").await);
    let servers = at("one", &one.url, "modern", &[]) + &at("two", &two.url, "modern", &[]);
    let gateway = TestGateway::with(&servers).await;
    assert_nearly(told(&gateway, "tools/list").await, 300_000, "public");
    assert_nearly(told(&gateway, "server/discover").await, 600_000, "public");
    let three = good_for("c", 900_000, "private").await;
    let gateway = TestGateway::with(&(servers.clone() + &at("three", &three.url, "modern", &[]))).await;
    assert_nearly(told(&gateway, "tools/list").await, 300_000, "private");
    let gateway = TestGateway::with(&(servers + "[clients.guest]\ntools = { deny = [\"one/*\"] }\n")).await;
    assert_nearly(told(&gateway, "tools/list").await, 300_000, "private");
    assert_nearly(told(&gateway, "server/discover").await, 600_000, "private");
}

#[tokio::test]
async fn g04_lists_without_a_ttl_have_ttl_0_unless_the_operator_sets_one() {
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
        let old = ScriptedServer::start(&[("initialize", &greeting(tells)), ("tools/list", tools)]).await;
        let gateway = TestGateway::with(&at("old", &old.url, "legacy", more)).await;
        assert_eq!(told(&gateway, "tools/list").await, (expected, "private".to_owned()), "{tells} {more:?}");
        let modern = good_for("b", 300_000, "public").await;
        let both = at("old", &old.url, "legacy", more) + &at("new", &modern.url, "modern", &[]);
        let gateway = TestGateway::with(&both).await;
        assert_eq!(told(&gateway, "tools/list").await, (expected, "private".to_owned()), "{tells} {more:?}");
    }
}

#[tokio::test]
async fn g04_an_expired_list_has_ttl_0_and_is_fetched_again() {
    let server = good_for("a", 300_000, "public").await;
    let gateway =
        TestGateway::with(&at("one", &server.url, "modern", &["keepalive_interval = \"0s\""])).await;
    assert_nearly(told(&gateway, "tools/list").await, 300_000, "public");
    assert_eq!(server.count("tools/list"), 1);
    pass(Duration::from_secs(301)).await;
    assert_eq!(told(&gateway, "tools/list").await, (0, "public".to_owned()));
    until("it is listed again", || server.count("tools/list") == 2).await;
    until("the list is good again", || {
        gateway.host.list_freshness(gripfast::wire::results::List::Tools).ttl > Duration::ZERO
    })
    .await;
    assert_nearly(told(&gateway, "tools/list").await, 300_000, "public");
    assert_eq!(server.count("tools/list"), 2);
}

#[tokio::test]
async fn g04_a_read_is_private_where_clients_have_different_rules() {
    let resources = r#"{"resources":[{"uri":"x://a","name":"a"}],"resultType":"complete","ttlMs":0,"cacheScope":"public"}"#;
    let read = r#"{"contents":[],"resultType":"complete","ttlMs":300000,"cacheScope":"public"}"#;
    for (rules, scope) in [("", "public"), ("[clients.guest]\nresources = { deny = [\"*\"] }\n", "private")] {
        let server = ScriptedServer::start(&[("resources/list", resources), ("resources/read", read)]).await;
        let gateway = TestGateway::with(&(at("it", &server.url, "modern", &[]) + rules)).await;
        let answer =
            ModernClient::new(&gateway.http).request("resources/read", json!({ "uri": "x://a" })).await;
        assert_eq!(
            (&answer["result"]["ttlMs"], &answer["result"]["cacheScope"]),
            (&json!(300_000), &json!(scope))
        );
    }
}

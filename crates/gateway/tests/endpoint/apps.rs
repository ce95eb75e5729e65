//! MCP Apps: both sides are told that the other has the extension, and the resource that shows a tool's result is
//! found, also where two servers call theirs the same.

use crate::client::{Legacy, Modern, call};
use crate::scene::{Scene, at, demo_with};
use gripfast_demo::{EraChoice, Options, RunningServer};
use serde_json::{Value, json};

const APPS: &str = "io.modelcontextprotocol/ui";

async fn server(name: &str, era: EraChoice) -> RunningServer {
    demo_with(Options { name: name.to_owned(), era, showcase: true, ..Options::default() }).await
}

fn shows_apps() -> Value {
    json!({ "extensions": { APPS: { "mimeTypes": ["text/html;profile=mcp-app"] } } })
}

#[tokio::test]
async fn what_servers_have_of_it_is_declared_to_clients_of_both_eras() {
    let apps = server("apps", EraChoice::Modern).await;
    let plain = demo_with(Options::default()).await;
    let config = at("apps", &apps.url(), "modern", &[]) + &at("plain", &plain.url(), "legacy", &[]);
    let scene = Scene::with(&config).await;
    let declared = json!({ APPS: { "mimeTypes": ["text/html;profile=mcp-app"] } });
    let hello = scene.http.initialize("2025-11-25").await.message();
    assert_eq!(hello["result"]["capabilities"]["extensions"], declared, "{hello}");
    let found = Modern::of(&scene.http).asks("server/discover", json!({})).await;
    assert_eq!(found["result"]["capabilities"]["extensions"][APPS], declared[APPS], "{found}");

    let scene = Scene::with(&at("plain", &plain.url(), "legacy", &[])).await;
    let hello = scene.http.initialize("2025-11-25").await.message();
    assert_eq!(hello["result"]["capabilities"].get("extensions"), None, "{hello}");
}

#[tokio::test]
async fn a_modern_server_is_told_whether_the_client_shows_apps_and_a_legacy_one_that_somebody_may() {
    let modern = server("modern", EraChoice::Modern).await;
    let legacy = server("legacy", EraChoice::Legacy).await;
    let config = at("new", &modern.url(), "modern", &[]) + &at("old", &legacy.url(), "legacy", &[]);
    let scene = Scene::with(&config).await;
    let (can, cannot) =
        (Legacy::with_capabilities(&scene.http, shows_apps()).await, Legacy::meets(&scene.http).await);
    assert_eq!(can.calls("new__panel", json!({})).await, "this client shows apps");
    assert_eq!(cannot.calls("new__panel", json!({})).await, "this client shows no apps");
    assert_eq!(Modern::of(&scene.http).calls("new__panel", json!({})).await, "this client shows no apps");
    let said =
        Modern::of(&scene.http).asks_as(shows_apps(), "tools/call", call("new__panel", json!({}))).await;
    assert_eq!(said["result"]["content"][0]["text"], "this client shows apps", "{said}");
    // It was told once, for everybody.
    assert_eq!(cannot.calls("old__panel", json!({})).await, "this client shows apps");
}

fn app_of(listed: &Value, tool: &str) -> String {
    let tools = listed["result"]["tools"].as_array().unwrap();
    let tool = tools.iter().find(|listed| listed["name"] == tool).unwrap();
    assert_eq!(tool["_meta"]["ui"]["visibility"], json!(["model", "app"]), "the rest of it stays: {tool}");
    tool["_meta"]["ui"]["resourceUri"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_app_of_each_tool_is_read_from_its_own_server_though_both_call_it_the_same() {
    for (era, protocol) in [(EraChoice::Legacy, "legacy"), (EraChoice::Modern, "modern")] {
        let (one, two) = (server("first", era).await, server("second", era).await);
        let config = at("one", &one.url(), protocol, &[]) + &at("two", &two.url(), protocol, &[]);
        let scene = Scene::with(&config).await;
        let (legacy, modern) = (Legacy::meets(&scene.http).await, Modern::of(&scene.http));
        for (tool, title) in [("one__panel", "first"), ("two__panel", "second")] {
            let uri = app_of(&legacy.asks("tools/list", json!({})).await, tool);
            assert!(uri.starts_with("ui://"), "a client takes nothing else for an app: {uri}");
            assert_eq!(uri, app_of(&modern.asks("tools/list", json!({})).await, tool));
            for read in [
                legacy.asks("resources/read", json!({ "uri": uri })).await,
                modern.asks("resources/read", json!({ "uri": uri })).await,
            ] {
                let page = &read["result"]["contents"][0];
                assert_eq!(page["text"], format!("<!doctype html><title>{title}</title>"), "{read}");
                assert_eq!(page["mimeType"], "text/html;profile=mcp-app", "{read}");
            }
        }
    }
}

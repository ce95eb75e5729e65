//! MCP Apps: the extension is declared to both sides, and the UI resource of a tool is found even if two servers use
//! the same URI.

use crate::client::{LegacyClient, ModernClient, call};
use crate::test_gateway::{TestGateway, at, demo_with};
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
async fn the_extension_of_a_server_is_declared_to_clients_of_both_eras() {
    let apps = server("apps", EraChoice::Modern).await;
    let plain = demo_with(Options::default()).await;
    let config = at("apps", &apps.url(), "modern", &[]) + &at("plain", &plain.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let declared = json!({ APPS: { "mimeTypes": ["text/html;profile=mcp-app"] } });
    let hello = gateway.http.initialize("2025-11-25").await.message();
    assert_eq!(hello["result"]["capabilities"]["extensions"], declared, "{hello}");
    let found = ModernClient::new(&gateway.http).request("server/discover", json!({})).await;
    assert_eq!(found["result"]["capabilities"]["extensions"][APPS], declared[APPS], "{found}");

    let gateway = TestGateway::with(&at("plain", &plain.url(), "legacy", &[])).await;
    let hello = gateway.http.initialize("2025-11-25").await.message();
    assert_eq!(hello["result"]["capabilities"].get("extensions"), None, "{hello}");
}

#[tokio::test]
async fn a_modern_server_gets_the_clients_apps_capability_and_a_legacy_one_always() {
    let modern = server("modern", EraChoice::Modern).await;
    let legacy = server("legacy", EraChoice::Legacy).await;
    let config = at("new", &modern.url(), "modern", &[]) + &at("old", &legacy.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let (can, cannot) = (
        LegacyClient::with_capabilities(&gateway.http, shows_apps()).await,
        LegacyClient::connect(&gateway.http).await,
    );
    assert_eq!(can.call_tool("new__panel", json!({})).await, "this client shows apps");
    assert_eq!(cannot.call_tool("new__panel", json!({})).await, "this client shows no apps");
    assert_eq!(
        ModernClient::new(&gateway.http).call_tool("new__panel", json!({})).await,
        "this client shows no apps"
    );
    let said = ModernClient::new(&gateway.http)
        .request_as(shows_apps(), "tools/call", call("new__panel", json!({})))
        .await;
    assert_eq!(said["result"]["content"][0]["text"], "this client shows apps", "{said}");
    // The capability was sent once, in the handshake, for all clients.
    assert_eq!(cannot.call_tool("old__panel", json!({})).await, "this client shows apps");
}

fn app_of(listed: &Value, tool: &str) -> String {
    let tools = listed["result"]["tools"].as_array().unwrap();
    let tool = tools.iter().find(|listed| listed["name"] == tool).unwrap();
    assert_eq!(tool["_meta"]["ui"]["visibility"], json!(["model", "app"]), "the rest of it stays: {tool}");
    tool["_meta"]["ui"]["resourceUri"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_app_of_a_tool_is_read_from_its_own_server_despite_equal_uris() {
    for (era, protocol) in [(EraChoice::Legacy, "legacy"), (EraChoice::Modern, "modern")] {
        let (one, two) = (server("first", era).await, server("second", era).await);
        let config = at("one", &one.url(), protocol, &[]) + &at("two", &two.url(), protocol, &[]);
        let gateway = TestGateway::with(&config).await;
        let (legacy, modern) = (LegacyClient::connect(&gateway.http).await, ModernClient::new(&gateway.http));
        for (tool, title) in [("one__panel", "first"), ("two__panel", "second")] {
            let uri = app_of(&legacy.request("tools/list", json!({})).await, tool);
            assert!(uri.starts_with("ui://"), "a client takes nothing else for an app: {uri}");
            assert_eq!(uri, app_of(&modern.request("tools/list", json!({})).await, tool));
            for read in [
                legacy.request("resources/read", json!({ "uri": uri })).await,
                modern.request("resources/read", json!({ "uri": uri })).await,
            ] {
                let page = &read["result"]["contents"][0];
                assert_eq!(page["text"], format!("<!doctype html><title>{title}</title>"), "{read}");
                assert_eq!(page["mimeType"], "text/html;profile=mcp-app", "{read}");
            }
        }
    }
}

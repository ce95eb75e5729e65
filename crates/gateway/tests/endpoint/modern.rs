//! Modern clients: every request is stateless, carries its context, and has headers that match its body.

use crate::client::{LEGACY, MODERN, ModernClient, borrowed, call, in_context, initialize, request, spoken};
use crate::test_gateway::{TestGateway, at, demo, demo_with};
use gripfast_demo::Options;
use http::Method;
use serde_json::{Value, json};

async fn gateway() -> (gripfast_demo::RunningServer, TestGateway) {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "modern", &[])).await;
    (demo, gateway)
}

#[tokio::test]
async fn discover_returns_capabilities_and_versions() {
    let (_demo, gateway) = gateway().await;
    let answered = ModernClient::new(&gateway.http).send_request("server/discover", json!({})).await;
    assert_eq!(answered.status, 200);
    assert!(answered.headers.get("mcp-session-id").is_none());
    let answer = answered.message();
    let result = &answer["result"];
    assert!(result["supportedVersions"].as_array().unwrap().contains(&json!(MODERN)), "{answer}");
    assert_eq!(result["capabilities"]["tools"]["listChanged"], true, "{answer}");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "gripfast", "{answer}");
    assert_cacheable(result);
}

#[tokio::test]
async fn every_result_has_its_type_and_every_list_its_ttl() {
    let (_demo, gateway) = gateway().await;
    let client = ModernClient::new(&gateway.http);
    let lists = ["tools/list", "resources/list", "resources/templates/list", "prompts/list"];
    for list in lists {
        let answer = client.request(list, json!({})).await;
        assert_cacheable(&answer["result"]);
        let who = &answer["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
        assert_eq!(who["name"], "gripfast", "who made the list: {answer}");
    }
    let read = client.request("resources/read", json!({ "uri": "demo://greeting" })).await;
    assert_cacheable(&read["result"]);
    let called = client.request("tools/call", call("demo__echo", json!({ "text": "hi" }))).await;
    let got = client.request("prompts/get", call("demo__greet", json!({ "name": "Ada" }))).await;
    let reference = json!({ "type": "ref/prompt", "name": "demo__greet" });
    let argument = json!({ "name": "name", "value": "A" });
    let completed =
        client.request("completion/complete", json!({ "ref": reference, "argument": argument })).await;
    for answer in [called, got, completed] {
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        assert!(answer["result"].get("ttlMs").is_none(), "{answer}");
    }
}

fn assert_cacheable(result: &Value) {
    assert_eq!(result["resultType"], "complete", "{result}");
    assert!(result["ttlMs"].is_u64(), "{result}");
    assert!(["public", "private"].contains(&result["cacheScope"].as_str().unwrap()), "{result}");
}

#[tokio::test]
async fn headers_that_disagree_with_the_body_are_refused_before_anything_is_done() {
    let (demo, gateway) = gateway().await;
    let (headers, body) = spoken(json!(1), "tools/call", call("demo__counter", json!({})));
    let with = |name: &str, value: Option<&str>| {
        let others = headers.iter().filter(|(known, _)| known != name).cloned();
        let changed = value.map(|value| (name.to_owned(), value.to_owned()));
        others.chain(changed).collect::<Vec<_>>()
    };
    for wrong in [
        with("mcp-method", Some("tools/list")),
        with("mcp-method", None),
        with("mcp-name", Some("demo__echo")),
        with("mcp-name", None),
        with("mcp-name", Some("=?base64?!?=")),
        with("mcp-protocol-version", Some(LEGACY)),
        with("mcp-protocol-version", None),
    ] {
        let answered = gateway.http.post(&borrowed(&wrong), body.clone()).await;
        assert_eq!(answered.refusal(), (400, -32020), "{wrong:?}");
        assert_eq!(answered.message()["id"], 1);
    }
    assert_eq!(demo.counter(), 0);
    let encoded = with("mcp-name", Some("=?base64?ZGVtb19fY291bnRlcg==?="));
    assert_eq!(gateway.http.post(&borrowed(&encoded), body.clone()).await.status, 200);
}

#[tokio::test]
async fn an_argument_declared_for_a_header_must_be_in_that_header() {
    let demo = demo_with(Options { param_headers: true, ..Options::default() }).await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "modern", &[])).await;
    let (headers, body) = spoken(json!(1), "tools/call", call("demo__route", json!({ "region": "eu" })));
    let with = |region: Option<&str>| {
        let region = region.map(|region| ("mcp-param-region".to_owned(), region.to_owned()));
        headers.iter().cloned().chain(region).collect::<Vec<_>>()
    };
    for wrong in [with(None), with(Some("us"))] {
        assert_eq!(gateway.http.post(&borrowed(&wrong), body.clone()).await.refusal(), (400, -32020));
    }
    let answered = gateway.http.post(&borrowed(&with(Some("eu"))), body.clone()).await.message();
    assert_eq!(answered["result"]["content"][0]["text"], "routed to eu", "{answered}");
}

#[tokio::test]
async fn a_request_without_its_context_is_refused() {
    let (_demo, gateway) = gateway().await;
    let (headers, _) = spoken(json!(1), "tools/list", json!({}));
    let required = ["io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"];
    for member in required {
        let mut params = in_context(json!({}));
        params["_meta"].as_object_mut().unwrap().remove(member);
        let body = request(1, "tools/list", &params).to_string();
        assert_eq!(gateway.http.post(&borrowed(&headers), body).await.refusal(), (400, -32602), "{member}");
    }
    let bare = request(1, "tools/list", &json!({})).to_string();
    assert_eq!(gateway.http.post(&borrowed(&headers), bare).await.refusal(), (400, -32602));
}

#[tokio::test]
async fn an_unsupported_version_is_answered_with_the_supported_ones() {
    let (_demo, gateway) = gateway().await;
    let mut params = in_context(json!({}));
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2027-01-01");
    let headers = [("mcp-protocol-version", "2027-01-01"), ("mcp-method", "tools/list")];
    let answered = gateway.http.post(&headers, request(1, "tools/list", &params).to_string()).await;
    assert_eq!(answered.refusal(), (400, -32022));
    let data = &answered.message()["error"]["data"];
    assert_eq!(data["requested"], "2027-01-01");
    let discovered = ModernClient::new(&gateway.http).request("server/discover", json!({})).await;
    assert_eq!(data["supported"], discovered["result"]["supportedVersions"], "one gateway, one list");
    assert_eq!(data["supported"][0], MODERN);
    assert!(data["supported"].as_array().unwrap().contains(&json!(LEGACY)));
    // The check whether the request selects that version comes first.
    let headers = [("mcp-protocol-version", MODERN), ("mcp-method", "tools/list")];
    let answered = gateway.http.post(&headers, request(1, "tools/list", &params).to_string()).await;
    assert_eq!(answered.refusal(), (400, -32020));
}

#[tokio::test]
async fn legacy_versions_are_not_offered_to_a_modern_request() {
    let (_demo, gateway) = gateway().await;
    let mut params = in_context(json!({}));
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(LEGACY);
    let headers = [("mcp-protocol-version", LEGACY), ("mcp-method", "tools/list")];
    let answered = gateway.http.post(&headers, request(1, "tools/list", &params).to_string()).await;
    assert_eq!(answered.refusal(), (400, -32022));
    assert_eq!(answered.message()["error"]["data"]["supported"], json!([MODERN]));
}

#[tokio::test]
async fn methods_that_the_era_lacks_are_a_404() {
    let (one, two) = (demo().await, demo().await);
    let alone = TestGateway::with(&at("one", &one.url(), "legacy", &[])).await;
    let config = at("one", &one.url(), "legacy", &[]) + &at("two", &two.url(), "modern", &[]);
    let among = TestGateway::with(&config).await;
    let methods = [
        "no/such/method",
        "ping",
        "initialize",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    ];
    for gateway in [&alone, &among] {
        for method in methods {
            let answered = ModernClient::new(&gateway.http)
                .send_request(method, json!({ "uri": "demo://counter", "level": "info" }))
                .await;
            assert_eq!(answered.refusal(), (404, -32601), "{method}");
        }
    }
}

#[tokio::test]
async fn other_http_methods_than_post_are_a_405_with_allow() {
    let (_demo, gateway) = gateway().await;
    let headers = [("mcp-protocol-version", MODERN)];
    for method in [Method::GET, Method::DELETE] {
        let answered = gateway.http.send(method.clone(), "/mcp", &headers, "").await;
        assert_eq!(answered.status, 405, "{method}");
        assert_eq!(answered.headers["allow"], "POST");
    }
    assert_eq!(gateway.http.send(Method::PUT, "/mcp", &headers, "").await.status, 405);
}

#[tokio::test]
async fn session_ids_and_event_ids_are_ignored() {
    let (_demo, gateway) = gateway().await;
    let (mut headers, body) = spoken(json!(1), "tools/list", json!({}));
    headers.push(("mcp-session-id".to_owned(), "made-up".to_owned()));
    headers.push(("last-event-id".to_owned(), "s-1-1".to_owned()));
    assert_eq!(gateway.http.post(&borrowed(&headers), body).await.status, 200);
}

#[tokio::test]
async fn a_notification_is_accepted() {
    let (_demo, gateway) = gateway().await;
    let headers = [("mcp-protocol-version", MODERN), ("mcp-method", "notifications/whatever")];
    let body = json!({ "jsonrpc": "2.0", "method": "notifications/whatever" }).to_string();
    let answered = gateway.http.post(&headers, body).await;
    assert_eq!((answered.status, &*answered.text), (202, ""));
}

#[tokio::test]
async fn a_client_that_falls_back_to_the_legacy_era_is_served() {
    let (_demo, gateway) = gateway().await;
    assert_eq!(ModernClient::new(&gateway.http).send_request("server/discover", json!({})).await.status, 200);
    let hello = gateway.http.post(&[], initialize(LEGACY).to_string()).await;
    assert_eq!(hello.message()["result"]["protocolVersion"], LEGACY);
}

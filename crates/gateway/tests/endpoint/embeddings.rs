//! Tools ranked by embeddings of an endpoint, beside the ranking by words: the endpoint is a real HTTP server of the test.

use crate::client::{LegacyClient, ModernClient, call};
use crate::exposure::SEARCH;
use crate::scripted_server::ScriptedServer;
use crate::test_gateway::{TestGateway, at, demo, pass};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gripfast_testkit::wait::{until, until_async, within};
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TOOLS: &str = r#"{"tools":[
    {"name":"forecast","description":"Tells about rain and wind.","inputSchema":{"type":"object"}},
    {"name":"charge","description":"Bills a credit card.","inputSchema":{"type":"object"}},
    {"name":"rain_secrets","description":"Nobody may see this rain.","inputSchema":{"type":"object"}},
    {"name":"rain_private","description":"The client may not see this rain.","inputSchema":{"type":"object"}}
]}"#;
/// Word that some endpoints refuse.
const REFUSED: &str = "unspeakable";
/// Words that no tool has. The model of the test knows that they are about rain.
const QUERY: &str = "brolly";

/// Behaviour of the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Good,
    /// Answers never.
    Silent,
    /// Sends vectors of another dimension.
    OtherDimension,
    /// Sends a number that is not finite.
    NotFinite,
    /// Sends more than any batch needs.
    Oversized,
    Unauthorized,
    Html,
    /// Refuses a request with the text [`REFUSED`].
    Picky(StatusCode),
    /// Refuses every request.
    Refusing,
}

struct EmbeddingsServer {
    url: String,
    shared: Arc<Shared>,
}

struct Shared {
    behaviour: Mutex<Behaviour>,
    requests: Mutex<Vec<(HeaderMap, Value)>>,
}

impl EmbeddingsServer {
    async fn start() -> Self {
        let shared = Arc::new(Shared { behaviour: Mutex::new(Behaviour::Good), requests: Mutex::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/embeddings", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        // It ends with the test's runtime.
        tokio::spawn(axum::serve(listener, router).into_future());
        Self { url, shared }
    }

    fn set(&self, behaviour: Behaviour) {
        *self.shared.behaviour.lock().unwrap() = behaviour;
    }

    /// Number of requests so far.
    fn count(&self) -> usize {
        self.shared.requests.lock().unwrap().len()
    }

    /// Every text that was sent, in order.
    fn texts(&self) -> Vec<String> {
        let requests = self.shared.requests.lock().unwrap();
        let inputs = requests.iter().flat_map(|(_, body)| body["input"].as_array().unwrap());
        inputs.map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    fn config(&self) -> String {
        format!("[gateway.search.embeddings]\nurl = {:?}\nmodel = \"small\"\n", self.url)
    }
}

/// Vector of a text: the first number is rain, the second money.
fn vector(text: &str) -> [f64; 3] {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    [f64::from(has(&["rain", QUERY])), f64::from(has(&["card"])), 0.01]
}

async fn answer(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap();
    let texts: Vec<String> = serde_json::from_value(body["input"].clone()).unwrap();
    shared.requests.lock().unwrap().push((headers, body));
    let behaviour = *shared.behaviour.lock().unwrap();
    // The last one first: the index counts.
    let data = texts.iter().enumerate().rev();
    let data = |numbers: &dyn Fn(&str) -> Value| -> Vec<Value> {
        data.clone().map(|(index, text)| json!({ "index": index, "embedding": numbers(text) })).collect()
    };
    match behaviour {
        Behaviour::Good => json!({ "data": data(&|text| json!(vector(text))) }).to_string().into_response(),
        Behaviour::Silent => std::future::pending().await,
        Behaviour::OtherDimension => {
            json!({ "data": data(&|_| json!([1.0, 2.0])) }).to_string().into_response()
        }
        Behaviour::NotFinite => {
            json!({ "data": data(&|_| json!([1e300, 1.0, 1.0])) }).to_string().into_response()
        }
        Behaviour::Oversized => " ".repeat(20 << 20).into_response(),
        Behaviour::Unauthorized => StatusCode::UNAUTHORIZED.into_response(),
        Behaviour::Html => "<html>It works!</html>".into_response(),
        Behaviour::Picky(status) if texts.iter().any(|text| text.contains(REFUSED)) => status.into_response(),
        Behaviour::Picky(_) => {
            json!({ "data": data(&|text| json!(vector(text))) }).to_string().into_response()
        }
        Behaviour::Refusing => StatusCode::BAD_REQUEST.into_response(),
    }
}

/// Names that a search finds, best first.
async fn found(client: &ModernClient, query: &str) -> Vec<String> {
    let search = call("search_tools", json!({ "query": query }));
    let answer = within("the answer to a search", client.request("tools/call", search)).await;
    let tools = answer["result"]["structuredContent"]["tools"].as_array();
    let tools = tools.unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn until_embedded(gateway: &TestGateway) {
    until("all tools have a vector", || {
        let status = gateway.host.embeddings_status().unwrap();
        status.embedded == status.tools && status.tools > 0
    })
    .await;
}

fn cause(gateway: &TestGateway) -> Option<String> {
    gateway.host.embeddings_status().unwrap().cause
}

/// A gateway whose server has [`TOOLS`]. One is hidden by the server's policy, one by the client's.
async fn gateway_with(embeddings: &str) -> TestGateway {
    let script = ScriptedServer::start(&[("tools/list", TOOLS)]).await;
    let denied = "tools = { deny = [\"rain_secrets\"] }";
    let client = "[clients.local]\ntools = { deny = [\"own/rain_private\"] }\n";
    let server = at("own", &script.url, "legacy", &[denied]);
    TestGateway::with(&format!("{SEARCH}{embeddings}{server}{client}")).await
}

#[tokio::test]
async fn h08_embeddings_find_a_tool_that_shares_no_word_with_the_query() {
    let endpoint = EmbeddingsServer::start().await;
    let secrets = tempfile::tempdir().unwrap();
    let key = secrets.path().join("key");
    std::fs::write(&key, "sesame\n").unwrap();
    let config = format!("{}key = \"${{file:{}}}\"\n", endpoint.config(), key.display());
    let gateway = gateway_with(&config).await;
    until_embedded(&gateway).await;
    let modern = ModernClient::new(&gateway.http);
    assert_eq!(
        found(&modern, QUERY).await,
        ["own__forecast", "own__charge"],
        "by meaning, the nearest first"
    );
    assert_eq!(found(&modern, "credit card").await[0], "own__charge", "by words and meaning");
    let legacy = LegacyClient::connect(&gateway.http).await;
    let search = call("search_tools", json!({ "query": QUERY, "limit": 1 }));
    let answer = legacy.request("tools/call", search).await;
    assert_eq!(answer["result"]["structuredContent"]["tools"][0]["name"], "own__forecast", "{answer}");
    let other = call("search_tools", json!({ "query": QUERY, "server": "other" }));
    let answer = modern.request("tools/call", other).await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let other = gateway.host.find_tools(&gripfast::Principal::local(), QUERY, 5, Some("other")).await;
    assert_eq!(other, [], "only tools of the named server");
    let status = gateway.http.send(Method::GET, "/api/v1/status", &[], "").await.message();
    let shown = &status["exposure"]["embeddings"];
    assert_eq!((&shown["state"], &shown["embedded"]), (&json!("ready"), &json!(3)), "{status}");
}

/// G05
#[tokio::test]
async fn h08_only_texts_of_visible_tools_and_queries_are_sent() {
    let endpoint = EmbeddingsServer::start().await;
    let gateway = gateway_with(&format!("{}key = \"sesame\"\n", endpoint.config())).await;
    until_embedded(&gateway).await;
    let modern = ModernClient::new(&gateway.http);
    for _ in 0..3 {
        let tools = found(&modern, QUERY).await;
        assert!(!tools.iter().any(|tool| tool.contains("secret") || tool.contains("private")), "{tools:?}");
    }
    let local = gripfast::Principal::local();
    let tools = gateway.host.find_tools(&local, QUERY, 1, None).await;
    assert_eq!(tools[0].name, "own__forecast", "a hidden tool takes no place of another");
    assert!(
        gateway
            .host
            .find_tools(&local, QUERY, 50, None)
            .await
            .iter()
            .all(|tool| !tool.name.contains("private"))
    );
    let mut texts = endpoint.texts();
    texts.sort();
    let expected = [
        QUERY,
        "own: charge\nBills a credit card.",
        "own: forecast\nTells about rain and wind.",
        "own: rain_private\nThe client may not see this rain.",
    ];
    assert_eq!(texts, expected, "a repeated query is not sent again, and a denied tool never");
    for (headers, body) in &*endpoint.shared.requests.lock().unwrap() {
        assert_eq!(headers["authorization"], "Bearer sesame");
        let members: Vec<&str> = body.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!((members, &body["model"]), (vec!["input", "model"], &json!("small")));
    }
}

#[tokio::test]
async fn h08_a_search_answers_by_words_while_the_endpoint_fails() {
    for (behaviour, said) in [
        (Behaviour::Silent, "did not answer within 300ms"),
        (Behaviour::OtherDimension, "2 numbers, but earlier ones had 3"),
        (Behaviour::NotFinite, "out of range"),
        (Behaviour::Oversized, "larger than"),
        (Behaviour::Unauthorized, "set a valid `key`"),
        (Behaviour::Html, "did not answer with embeddings"),
    ] {
        let endpoint = EmbeddingsServer::start().await;
        let gateway = gateway_with(&endpoint.config()).await;
        until_embedded(&gateway).await;
        let modern = ModernClient::new(&gateway.http);
        endpoint.set(behaviour);
        let before = endpoint.count();
        assert_eq!(found(&modern, "rain wind").await, ["own__forecast"], "{behaviour:?}: by words");
        let why = cause(&gateway).unwrap_or_default();
        assert!(
            why.contains(said)
                && why.contains(if behaviour == Behaviour::OtherDimension {
                    "endpoint"
                } else {
                    "127.0.0.1"
                }),
            "{behaviour:?}: {why}"
        );
        assert_eq!(endpoint.count(), before + 1);
        for query in ["wind", QUERY, "credit"] {
            found(&modern, query).await;
        }
        assert_eq!(endpoint.count(), before + 1, "{behaviour:?}: not asked again so soon");
        let status = gateway.http.send(Method::GET, "/api/v1/status", &[], "").await.message();
        let shown = &status["exposure"]["embeddings"];
        assert_eq!((&shown["state"], &shown["cause"]), (&json!("failing"), &json!(why)), "{status}");
    }
}

#[tokio::test]
async fn h08_a_refused_query_does_not_end_the_ranking_by_meaning_for_others() {
    for status in [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNPROCESSABLE_ENTITY] {
        let endpoint = EmbeddingsServer::start().await;
        let gateway = gateway_with(&endpoint.config()).await;
        until_embedded(&gateway).await;
        endpoint.set(Behaviour::Picky(status));
        let modern = ModernClient::new(&gateway.http);
        let refused = format!("{REFUSED} wind");
        for _ in 0..2 {
            assert_eq!(found(&modern, &refused).await, ["own__forecast"], "by words");
        }
        assert_eq!(found(&modern, QUERY).await[0], "own__forecast", "{status}: by meaning");
        assert_eq!(cause(&gateway), None);
        let sent = endpoint.texts().iter().filter(|text| **text == refused).count();
        assert_eq!(sent, 1, "the refused query is not sent again");
    }
}

#[tokio::test]
async fn h08_an_endpoint_that_refuses_every_text_fails() {
    let endpoint = EmbeddingsServer::start().await;
    let gateway = gateway_with(&endpoint.config()).await;
    until_embedded(&gateway).await;
    endpoint.set(Behaviour::Refusing);
    let modern = ModernClient::new(&gateway.http);
    assert_eq!(found(&modern, "rain wind").await, ["own__forecast"], "by words");
    until("the failure is known", || cause(&gateway).is_some_and(|why| why.contains("400"))).await;
}

#[tokio::test]
async fn h08_one_refused_tool_does_not_keep_others_from_their_vectors() {
    let endpoint = EmbeddingsServer::start().await;
    endpoint.set(Behaviour::Picky(StatusCode::BAD_REQUEST));
    let tool = |number: usize| {
        let description = if number == 33 { REFUSED.to_owned() } else { format!("Tool {number}.") };
        json!({ "name": format!("tool{number}"), "description": description, "inputSchema": { "type": "object" } })
    };
    let list = json!({ "tools": (0..70).map(tool).collect::<Vec<_>>() }).to_string();
    let script = ScriptedServer::start(&[("tools/list", &list)]).await;
    let server = at("own", &script.url, "legacy", &[]);
    let gateway = TestGateway::with(&format!("{SEARCH}{}{server}", endpoint.config())).await;
    until("all other tools have a vector", || {
        let status = gateway.host.embeddings_status().unwrap();
        (status.tools, status.embedded) == (70, 69)
    })
    .await;
    assert_eq!(cause(&gateway), None);
    assert!(endpoint.count() <= 20, "{} requests", endpoint.count());
}

#[tokio::test]
async fn h08_an_unreachable_endpoint_is_asked_again_and_used_as_soon_as_it_answers() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("http://{}/v1/embeddings", listener.local_addr().unwrap());
    drop(listener);
    let gateway =
        gateway_with(&format!("[gateway.search.embeddings]\nurl = {nobody:?}\nmodel = \"small\"\n")).await;
    until("the failure is known", || cause(&gateway).is_some()).await;
    let modern = ModernClient::new(&gateway.http);
    assert_eq!(found(&modern, "rain wind").await, ["own__forecast"]);
    assert_eq!(found(&modern, QUERY).await, [""; 0]);

    let endpoint = EmbeddingsServer::start().await;
    let gateway = gateway_with(&endpoint.config()).await;
    until_embedded(&gateway).await;
    let modern = ModernClient::new(&gateway.http);
    endpoint.set(Behaviour::Unauthorized);
    assert_eq!(found(&modern, QUERY).await, [""; 0]);
    endpoint.set(Behaviour::Good);
    pass(Duration::from_secs(6)).await;
    until("the endpoint is used again", || cause(&gateway).is_none()).await;
    assert_eq!(found(&modern, QUERY).await[0], "own__forecast");
}

#[tokio::test]
async fn h08_after_a_list_change_only_the_text_of_the_new_tool_is_sent() {
    let (endpoint, demo) = (EmbeddingsServer::start().await, demo().await);
    let config = format!("{SEARCH}{}{}", endpoint.config(), at("files", &demo.url(), "legacy", &[]));
    let gateway = TestGateway::with(&config).await;
    until_embedded(&gateway).await;
    let before = endpoint.texts();
    demo.add_tool("rain_gauge").await;
    let modern = ModernClient::new(&gateway.http);
    until_async("the new tool is found by its meaning", async || {
        found(&modern, QUERY).await.first().is_some_and(|tool| tool == "files__rain_gauge")
    })
    .await;
    let sent: Vec<String> =
        endpoint.texts()[before.len()..].iter().filter(|text| *text != QUERY).cloned().collect();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0].starts_with("files: rain_gauge"), "{sent:?}");
    demo.remove_tool("rain_gauge").await;
    until_async("the tool is gone", async || {
        !found(&modern, QUERY).await.contains(&"files__rain_gauge".to_owned())
    })
    .await;
}

#[tokio::test]
async fn h08_no_text_is_sent_while_all_tools_are_in_the_list() {
    let (endpoint, demo) = (EmbeddingsServer::start().await, demo().await);
    let config = format!("{}{}", endpoint.config(), at("files", &demo.url(), "legacy", &[]));
    let gateway = TestGateway::with(&config).await;
    let modern = ModernClient::new(&gateway.http);
    modern.request("tools/list", json!({})).await;
    demo.add_tool("invoice").await;
    until("the new tool is in the catalog", || {
        gateway.host.catalog_snapshot().merged.tool("files__invoice").is_some()
    })
    .await;
    assert_eq!(endpoint.count(), 0);
}

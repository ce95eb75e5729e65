//! Many clients of both eras share one server: each gets only messages of its own calls. All use the same request ids
//! and progress tokens, numbers and strings alike, so that only the content shows which client a message is for.

use crate::client::{HttpClient, LegacyClient, borrowed, call, in_context, initialize, request, spoken};
use crate::test_gateway::{TestGateway, at, child, demo_with};
use bytes::Bytes;
use gripfast_demo::{EraChoice, Options};
use gripfast_testkit::wait::{until, within};
use http::{Method, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::sync::Arc;

const CLIENTS: u64 = 200;
/// Duration in milliseconds of calls that no client waits for.
const LONG: u64 = 600_000;

/// Expected outcome of elicitations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ElicitationPolicy {
    /// Each elicitation reaches its client.
    Always,
    /// An elicitation that could be for another client is declined.
    MayBeDeclined,
}

#[tokio::test]
async fn two_hundred_clients_of_an_http_server_get_only_their_own_messages() {
    let demo = demo_with(Options { era: EraChoice::Legacy, ..Options::default() }).await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &["max_in_flight = 4096"])).await;
    run_clients(&gateway, CLIENTS, ElicitationPolicy::Always).await;
    until("every cancelled call was cancelled", || demo.in_flight() == 0).await;
    assert_eq!(demo.initializes(), 1, "all of them in one session");
}

#[tokio::test]
async fn two_hundred_clients_of_a_child_get_only_their_own_messages() {
    let more = ["max_in_flight = 4096", "isolation = \"shared\""];
    let gateway = TestGateway::with(&child("demo", &["--era", "legacy"], &more)).await;
    let pid = gateway.host.server_status("demo").unwrap().pid;
    run_clients(&gateway, CLIENTS, ElicitationPolicy::MayBeDeclined).await;
    let status = gateway.host.server_status("demo").unwrap();
    assert_eq!((status.pid, status.supervision.restarts, status.instances.count()), (pid, 0, 0));
    until("nothing is left in flight", || {
        gateway.host.server_status("demo").unwrap().supervision.in_flight == 0
    })
    .await;
}

#[tokio::test]
async fn clients_with_dedicated_children_all_get_their_elicitations() {
    let gateway =
        TestGateway::with(&child("demo", &["--era", "legacy"], &["isolation = \"per_client\""])).await;
    // Only clients with sessions have dedicated children.
    let clients = (0..6).map(|number| ClientSpec { number, era: Era::Legacy, http: gateway.http.clone() });
    let busy = clients.map(|client| tokio::spawn(client.run_all_calls(ElicitationPolicy::Always)));
    for done in within("everybody is done", futures_util::future::join_all(busy)).await {
        done.unwrap();
    }
}

async fn run_clients(gateway: &TestGateway, clients: u64, asked: ElicitationPolicy) {
    let busy = (0..clients).map(|number| {
        let era = if number % 3 == 0 { Era::Modern } else { Era::Legacy };
        tokio::spawn(ClientSpec { number, era, http: gateway.http.clone() }.run_all_calls(asked))
    });
    let busy: Vec<_> = busy.collect();
    for done in within("everybody is done", futures_util::future::join_all(busy)).await {
        done.unwrap();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

/// Client that is not connected yet.
struct ClientSpec {
    number: u64,
    era: Era,
    http: HttpClient,
}

/// Connected client, with a session in the legacy era.
struct ConnectedClient {
    number: u64,
    era: Era,
    http: HttpClient,
    session: Option<String>,
}

impl ClientSpec {
    async fn run_all_calls(self, asked: ElicitationPolicy) {
        let Self { number, era, http } = self;
        let session = match era {
            Era::Modern => None,
            Era::Legacy => {
                let mut hello = initialize("2025-11-25");
                hello["params"]["capabilities"] = json!({ "elicitation": {} });
                let hello = http.post(&[], hello.to_string()).await;
                Some(hello.headers["mcp-session-id"].to_str().unwrap().to_owned())
            }
        };
        let client = Arc::new(ConnectedClient { number, era, http, session });
        // Any message on the GET stream would belong to another client.
        let stream = match &client.session {
            Some(session) => Some(LegacyClient::with_session(&client.http, session).open_stream(None).await),
            None => None,
        };
        tokio::join!(
            client.make_short_calls(),
            client.check_progress(),
            client.cancel_a_call(),
            client.answer_elicitation(asked)
        );
        if let Some(mut stream) = stream {
            assert!(stream.is_silent().await, "client {number} was told something aside");
        }
    }
}

impl ConnectedClient {
    /// Makes short calls one after another, with ids that all clients use.
    async fn make_short_calls(&self) {
        for (round, id) in [json!(1), json!("1"), json!(2), json!("2")].into_iter().enumerate() {
            let text = format!("client {} says {round}", self.number);
            let mut response = self.call_tool(&id, call("demo__echo", json!({ "text": text }))).await;
            let answer = self.receive(&mut response).await.unwrap();
            assert_eq!(
                (&answer["id"], &answer["result"]["content"][0]["text"]),
                (&id, &json!(text)),
                "{answer}"
            );
        }
    }

    /// Makes a call whose progress and answer contain its duration, which differs between clients.
    async fn check_progress(&self) {
        let (id, ms) = (json!(7), 250 + self.number);
        let mut response = self.call_tool(&id, with_progress(ms)).await;
        let answer = loop {
            match self.receive(&mut response).await.unwrap() {
                progress if progress["method"] == "notifications/progress" => {
                    self.assert_own_progress(&progress, ms)
                }
                answer => break answer,
            }
        };
        let slept = json!(format!("slept {ms} ms"));
        assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&id, &slept), "{answer}");
    }

    /// Cancels a call once it is in flight.
    async fn cancel_a_call(&self) {
        let (id, ms) = (json!("7"), LONG + self.number);
        let mut response = self.call_tool(&id, with_progress(ms)).await;
        self.assert_own_progress(&self.receive(&mut response).await.unwrap(), ms);
        match self.era {
            // A disconnect cancels.
            Era::Modern => drop(response),
            Era::Legacy => {
                let params = json!({ "requestId": id });
                let cancelled =
                    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
                assert_eq!(self.posts(&[], cancelled).await.status(), 202);
                while let Some(late) = self.receive(&mut response).await {
                    self.assert_own_progress(&late, ms);
                }
            }
        }
    }

    /// Makes a call with an elicitation; the answer depends on the client's number.
    async fn answer_elicitation(&self, asked: ElicitationPolicy) {
        let (id, params) = (json!("8"), call("demo__ask", json!({ "question": self.question() })));
        let mut response = self.call_tool(&id, params.clone()).await;
        let mut answer = self.receive(&mut response).await.unwrap();
        assert_eq!(answer["id"], id, "client {}: {answer}", self.number);
        if answer["result"]["resultType"] == "input_required" {
            let wanted = answer["result"]["inputRequests"].as_object().unwrap();
            let (key, question) = wanted.iter().next().unwrap();
            assert_eq!(
                (wanted.len(), &question["params"]["message"]),
                (1, &json!(self.question())),
                "{answer}"
            );
            let (id, mut params) = (json!(8), params);
            params["inputResponses"] = json!({ key: self.reply() });
            params["requestState"] = answer["result"]["requestState"].clone();
            let mut response = self.call_tool(&id, params).await;
            answer = self.receive(&mut response).await.unwrap();
            assert_eq!(answer["id"], id, "client {}: {answer}", self.number);
        }
        if answer["result"]["isError"] == true {
            return assert!(
                asked == ElicitationPolicy::MayBeDeclined,
                "client {} was not asked: {answer}",
                self.number
            );
        }
        let said = if self.agrees() { "the answer was yes" } else { "the answer was no" };
        assert_eq!(answer["result"]["content"][0]["text"], said, "client {}: {answer}", self.number);
    }

    fn question(&self) -> String {
        format!("client {}?", self.number)
    }

    fn agrees(&self) -> bool {
        self.number.is_multiple_of(2)
    }

    fn reply(&self) -> Value {
        json!({ "action": "accept", "content": { "ok": self.agrees() } })
    }

    /// Next message that is not an elicitation. Elicitations may come on the stream of any call of their client and are
    /// answered here.
    async fn receive(&self, response: &mut ResponseReader) -> Option<Value> {
        loop {
            let message = response.next().await?;
            if message["method"] != "elicitation/create" {
                return Some(message);
            }
            assert_eq!(message["params"]["message"], self.question(), "client {}: {message}", self.number);
            let told = json!({ "jsonrpc": "2.0", "id": message["id"], "result": self.reply() });
            assert_eq!(self.posts(&[], told).await.status(), 202);
        }
    }

    async fn call_tool(&self, id: &Value, params: Value) -> ResponseReader {
        match self.era {
            Era::Legacy => {
                ResponseReader::of(self.posts(&[], request(id.clone(), "tools/call", &params)).await)
            }
            Era::Modern => {
                let (headers, _) = spoken(id.clone(), "tools/call", params.clone());
                let mut params = in_context(params);
                let can = json!({ "elicitation": { "form": {} } });
                params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = can;
                let message = request(id.clone(), "tools/call", &params);
                ResponseReader::of(self.posts(&borrowed(&headers), message).await)
            }
        }
    }

    async fn posts(&self, more: &[(&str, &str)], message: Value) -> Response<Incoming> {
        let mut headers =
            vec![("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        headers.extend(self.session.as_deref().map(|session| ("mcp-session-id", session)));
        headers.extend(more);
        self.http.begin(Method::POST, "/mcp", &headers, message.to_string()).await
    }

    fn assert_own_progress(&self, progress: &Value, ms: u64) {
        let params = &progress["params"];
        let said = (&progress["method"], &params["progressToken"], &params["total"]);
        let ours = (&json!("notifications/progress"), &json!(1), &json!(ms));
        assert_eq!(said, ours, "client {}: {progress}", self.number);
    }
}

fn with_progress(ms: u64) -> Value {
    let mut params = call("demo__sleep", json!({ "ms": ms }));
    params["_meta"] = json!({ "progressToken": 1 });
    params
}

/// Reads the answer to a POST message by message, from JSON or an event stream.
struct ResponseReader {
    is_events: bool,
    body: Incoming,
    unread: Vec<u8>,
}

impl ResponseReader {
    fn of(response: Response<Incoming>) -> Self {
        assert_eq!(response.status(), 200);
        let is_events = response.headers()["content-type"] == "text/event-stream";
        Self { is_events, body: response.into_body(), unread: Vec::new() }
    }

    async fn next(&mut self) -> Option<Value> {
        within("a message", self.read()).await
    }

    async fn read(&mut self) -> Option<Value> {
        loop {
            if let Some(message) = self.event() {
                return Some(message);
            }
            match self.body.frame().await {
                Some(frame) => {
                    let data: Bytes = frame.unwrap().into_data().unwrap_or_default();
                    self.unread.extend_from_slice(&data);
                }
                None if self.is_events || self.unread.is_empty() => return None,
                None => return serde_json::from_slice(&std::mem::take(&mut self.unread)).ok(),
            }
        }
    }

    fn event(&mut self) -> Option<Value> {
        while self.is_events {
            let end = self.unread.windows(2).position(|pair| pair == b"\n\n")?;
            let block: Vec<u8> = self.unread.drain(..end + 2).collect();
            let block = String::from_utf8(block).unwrap();
            // An event without data only starts the stream.
            let data = block.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or_default();
            if !data.is_empty() {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
        None
    }
}

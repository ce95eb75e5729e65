//! Many clients of both eras at one server that does not tell them apart: everything that a client is told is
//! about what that client did. All of them use the same ids and the same progress tokens, numbers and
//! texts alike; what belongs to whom can be told by the content alone.

use crate::client::{Http, Legacy, borrowed, call, in_context, initialize, request, spoken};
use crate::scene::{Scene, at, child, demo_with, until, within};
use bytes::Bytes;
use gripfast_demo::{EraChoice, Options};
use http::{Method, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::sync::Arc;

const CLIENTS: u64 = 200;
/// Nobody waits for the end of a call that takes this many milliseconds.
const LONG: u64 = 600_000;

/// How a question may end for a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// It is always put to whom it is for.
    Always,
    /// Where it could be another's it is declined.
    OrDeclined,
}

#[tokio::test]
async fn two_hundred_clients_share_a_server_over_http_and_nobody_is_told_what_is_not_theirs() {
    let demo = demo_with(Options { era: EraChoice::Legacy, ..Options::default() }).await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &["max_in_flight = 4096"])).await;
    meet(&scene, CLIENTS, Asked::Always).await;
    until("every cancelled call was cancelled", || demo.in_flight() == 0).await;
    assert_eq!(demo.initializes(), 1, "all of them in one session");
}

#[tokio::test]
async fn two_hundred_clients_share_a_child_and_nobody_is_told_what_is_not_theirs() {
    let more = ["max_in_flight = 4096", "isolation = \"shared\""];
    let scene = Scene::with(&child("demo", &["--era", "legacy"], &more)).await;
    let pid = scene.host.status_of("demo").unwrap().pid;
    meet(&scene, CLIENTS, Asked::OrDeclined).await;
    let status = scene.host.status_of("demo").unwrap();
    assert_eq!((status.pid, status.supervision.restarts, status.instances.count()), (pid, 0, 0));
    until("nothing is left in flight", || scene.host.status_of("demo").unwrap().supervision.in_flight == 0)
        .await;
}

#[tokio::test]
async fn a_few_clients_with_children_of_their_own_are_all_asked() {
    let scene = Scene::with(&child("demo", &["--era", "legacy"], &["isolation = \"per_client\""])).await;
    // Only sessions can be told apart.
    let clients = (0..6).map(|number| Someone { number, era: Era::Legacy, http: scene.http.clone() });
    let busy = clients.map(|someone| tokio::spawn(someone.lives(Asked::Always)));
    for done in within("everybody is done", futures_util::future::join_all(busy)).await {
        done.unwrap();
    }
}

async fn meet(scene: &Scene, clients: u64, asked: Asked) {
    let busy = (0..clients).map(|number| {
        let era = if number % 3 == 0 { Era::Modern } else { Era::Legacy };
        tokio::spawn(Someone { number, era, http: scene.http.clone() }.lives(asked))
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

/// One of the crowd.
struct Someone {
    number: u64,
    era: Era,
    http: Http,
}

/// Someone who has shaken hands, if that is how they do it.
struct Member {
    number: u64,
    era: Era,
    http: Http,
    session: Option<String>,
}

impl Someone {
    async fn lives(self, asked: Asked) {
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
        let member = Arc::new(Member { number, era, http, session });
        // Whatever was said aside would be somebody else's: there is nothing to say to anybody.
        let aside = match &member.session {
            Some(session) => Some(Legacy::resumes(&member.http, session).listens(None).await),
            None => None,
        };
        tokio::join!(member.chats(), member.sleeps(), member.changes_its_mind(), member.is_asked(asked));
        if let Some(mut aside) = aside {
            assert!(aside.is_silent().await, "client {number} was told something aside");
        }
    }
}

impl Member {
    /// Short calls one after another, under ids that everybody uses.
    async fn chats(&self) {
        for (round, id) in [json!(1), json!("1"), json!(2), json!("2")].into_iter().enumerate() {
            let text = format!("client {} says {round}", self.number);
            let mut reading = self.calls(&id, call("demo__echo", json!({ "text": text }))).await;
            let answer = self.hears(&mut reading).await.unwrap();
            assert_eq!(
                (&answer["id"], &answer["result"]["content"][0]["text"]),
                (&id, &json!(text)),
                "{answer}"
            );
        }
    }

    /// A call whose progress and answer say how long it takes, which is different for everybody.
    async fn sleeps(&self) {
        let (id, ms) = (json!(7), 250 + self.number);
        let mut reading = self.calls(&id, with_progress(ms)).await;
        let answer = loop {
            match self.hears(&mut reading).await.unwrap() {
                progress if progress["method"] == "notifications/progress" => {
                    self.owns_progress(&progress, ms)
                }
                answer => break answer,
            }
        };
        let slept = json!(format!("slept {ms} ms"));
        assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&id, &slept), "{answer}");
    }

    /// A call that is cancelled once it is known to be under way.
    async fn changes_its_mind(&self) {
        let (id, ms) = (json!("7"), LONG + self.number);
        let mut reading = self.calls(&id, with_progress(ms)).await;
        self.owns_progress(&self.hears(&mut reading).await.unwrap(), ms);
        match self.era {
            // Hanging up says it.
            Era::Modern => drop(reading),
            Era::Legacy => {
                let params = json!({ "requestId": id });
                let cancelled =
                    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
                assert_eq!(self.posts(&[], cancelled).await.status(), 202);
                while let Some(late) = self.hears(&mut reading).await {
                    self.owns_progress(&late, ms);
                }
            }
        }
    }

    /// A call that asks; the answer differs between neighbours.
    async fn is_asked(&self, asked: Asked) {
        let (id, params) = (json!("8"), call("demo__ask", json!({ "question": self.question() })));
        let mut reading = self.calls(&id, params.clone()).await;
        let mut answer = self.hears(&mut reading).await.unwrap();
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
            let mut reading = self.calls(&id, params).await;
            answer = self.hears(&mut reading).await.unwrap();
            assert_eq!(answer["id"], id, "client {}: {answer}", self.number);
        }
        if answer["result"]["isError"] == true {
            return assert!(asked == Asked::OrDeclined, "client {} was not asked: {answer}", self.number);
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

    /// The next message but for questions, which may come on the stream of any call of the client that they
    /// are for, and are answered.
    async fn hears(&self, reading: &mut Reading) -> Option<Value> {
        loop {
            let message = reading.next().await?;
            if message["method"] != "elicitation/create" {
                return Some(message);
            }
            assert_eq!(message["params"]["message"], self.question(), "client {}: {message}", self.number);
            let told = json!({ "jsonrpc": "2.0", "id": message["id"], "result": self.reply() });
            assert_eq!(self.posts(&[], told).await.status(), 202);
        }
    }

    async fn calls(&self, id: &Value, params: Value) -> Reading {
        match self.era {
            Era::Legacy => Reading::of(self.posts(&[], request(id.clone(), "tools/call", &params)).await),
            Era::Modern => {
                let (headers, _) = spoken(id.clone(), "tools/call", params.clone());
                let mut params = in_context(params);
                let can = json!({ "elicitation": { "form": {} } });
                params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = can;
                let message = request(id.clone(), "tools/call", &params);
                Reading::of(self.posts(&borrowed(&headers), message).await)
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

    fn owns_progress(&self, progress: &Value, ms: u64) {
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

/// What one POST is answered with, message by message, whatever form it has.
struct Reading {
    is_events: bool,
    body: Incoming,
    unread: Vec<u8>,
}

impl Reading {
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
            // An event without data only begins the stream.
            let data = block.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or_default();
            if !data.is_empty() {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
        None
    }
}

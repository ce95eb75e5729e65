//! A session that expires under many waiting calls, over a line with a known round trip: how many handshakes that
//! costs, and how many round trips a caller waits for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

use crate::client::{Client, Reply};
use crate::fault::{Fault, Form, Transport};
use crate::load::Tools;
use crate::proxy::{Proxy, Weather};
use crate::row::Order;
use crate::scene::Scene;
use crate::server::Server;
use crate::{Cannot, Result};

/// What a renewal cost.
#[derive(Debug, Clone, Serialize)]
pub struct Renewal {
    /// How often the session expired.
    pub expiries: usize,
    /// Calls that met each expiry.
    pub callers: usize,
    /// Calls that failed, of all.
    pub failed: usize,
    /// The most handshakes that one expiry caused.
    pub handshakes: u64,
    /// The longest that a caller waited beyond an ordinary call, in round trips.
    pub round_trips: f64,
}

/// How late everything is, each way.
const LATE: Duration = Duration::from_millis(25);
const CALLERS: usize = 16;

/// Runs it.
///
/// # Errors
/// The harness itself is in trouble.
pub async fn run(order: &Order) -> Result<Renewal> {
    let fault = Fault::named("session-expired").ok_or_else(|| Cannot::because("the fault", &"it is gone"))?;
    let scene = Scene::set(fault, Transport::Http, order.form, &order.subject).await?;
    let tools = scene.tools().await?;
    let (Some(relay), Some(server)) = (&scene.proxy, &scene.server) else {
        return Err(Cannot::because("the scene", &"it has no server behind a relay"));
    };
    let client = Arc::new(Client::new(scene.gateway.url(), order.subject.eras()[0])?);
    if !matches!(client.meet().await, Reply::Result(_)) {
        return Err(Cannot::because("the gateway", &"it cannot be greeted"));
    }
    relay.set(Weather::Late(LATE));
    let expiries = if order.form == Form::Short { 1 } else { 20 };
    let mut renewal = Renewal { expiries, callers: CALLERS, failed: 0, handshakes: 0, round_trips: 0.0 };
    for _ in 0..expiries {
        renewal.expire_once(relay, server, &client, &tools).await?;
    }
    scene.close().await?;
    Ok(renewal)
}

impl Renewal {
    async fn expire_once(
        &mut self,
        relay: &Proxy,
        server: &Server,
        client: &Arc<Client>,
        tools: &Tools,
    ) -> Result<()> {
        // The first round opens the connections that the second one uses.
        all_at_once(client, tools).await;
        let (ordinary, _) = all_at_once(client, tools).await;
        let before = relay.handshakes();
        server.misbehave(&json!({ "how": "forget_sessions" }), None).await?;
        let (longest, failed) = all_at_once(client, tools).await;
        let added = longest.saturating_sub(ordinary).as_secs_f64() / (2 * LATE).as_secs_f64();
        self.failed += failed;
        self.handshakes = self.handshakes.max(relay.handshakes() - before);
        self.round_trips = self.round_trips.max(added);
        Ok(())
    }
}

/// Calls from all callers at one moment. Answers with the longest time, and with how many failed.
async fn all_at_once(client: &Arc<Client>, tools: &Tools) -> (Duration, usize) {
    let mut calls = JoinSet::new();
    for number in 0..CALLERS {
        let (client, tools) = (Arc::clone(client), tools.clone());
        calls.spawn(async move {
            let began = Instant::now();
            let reply = if number % 2 == 0 {
                client.call(&tools.echo, &json!({ "text": "hello" })).await
            } else {
                client.call(&tools.counter, &json!({})).await
            };
            let answered = matches!(reply, Reply::Result(result) if result["isError"] != true);
            (began.elapsed(), answered)
        });
    }
    let done = calls.join_all().await;
    let longest = done.iter().map(|(took, _)| *took).max().unwrap_or_default();
    (longest, done.iter().filter(|(_, answered)| !answered).count())
}

//! A session that expires under many waiting calls, over a late line: how many handshakes that costs, and how many
//! round trips a caller waits for.
//!
//! A round trip is what one plain call through the gateway takes over the same line in the same run. What is added is
//! the longest of all the calls that met an expiry, less the longest of as many calls that were begun together right
//! before and met none. Like is held against like: the middle one of the added times against the middle one of the plain
//! calls, and the longest against the longest; the worse of the two counts.
//!
//! The protocol itself asks for three: the refused request, `initialize`, and `initialized`. The last has to be waited
//! for: a server may refuse everything until it has seen it, and of two requests on two connections either may arrive first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

use crate::client::{Client, Reply};
use crate::fault::{Fault, Form, Transport};
use crate::load::Tools;
use crate::proxy::{Proxy, Weather};
use crate::row::{Order, Times};
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
    /// What one plain call takes.
    pub plain: Times,
    /// How long the last of all callers waited beyond an ordinary call, over the expiries.
    pub added: Times,
    /// That in round trips, the middle ones or the longest, whichever are more.
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
    let (mut plain, mut added) = (Vec::new(), Vec::new());
    let mut renewal = Renewal {
        expiries,
        callers: CALLERS,
        failed: 0,
        handshakes: 0,
        plain: Times::default(),
        added: Times::default(),
        round_trips: 0.0,
    };
    for _ in 0..expiries {
        plain.push(all_at_once(1, &client, &tools).await.0);
        added.push(renewal.expire_once(relay, server, &client, &tools).await?);
    }
    (renewal.plain, renewal.added) = (Times::of(&plain), Times::of(&added));
    let Renewal { plain, added, .. } = &renewal;
    renewal.round_trips = (added.p50 / plain.p50).max(added.max / plain.max);
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
    ) -> Result<Duration> {
        // The first round opens the connections that the second one uses.
        all_at_once(CALLERS, client, tools).await;
        let (ordinary, _) = all_at_once(CALLERS, client, tools).await;
        let before = relay.handshakes();
        server.misbehave(&json!({ "how": "forget_sessions" }), None).await?;
        let (longest, failed) = all_at_once(CALLERS, client, tools).await;
        self.failed += failed;
        self.handshakes = self.handshakes.max(relay.handshakes() - before);
        Ok(longest.saturating_sub(ordinary))
    }
}

/// Calls from so many callers at one moment. Answers with the longest time, and with how many failed.
async fn all_at_once(callers: usize, client: &Arc<Client>, tools: &Tools) -> (Duration, usize) {
    let mut calls = JoinSet::new();
    for number in 0..callers {
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

//! A session that expires under many waiting calls, over a late line: how many handshakes that costs, and how many
//! round trips a caller waits for.
//!
//! A round trip is what one plain call through the gateway takes over the same line in the same run, right before. What is
//! added is the time of a call that met an expiry, less that of a plain one. It is read from a caller that is alone: where
//! many call at the same moment, their calls wait for each other on the processors of this machine, which is no round
//! trip. What the last of many waited for is told beside it, less the longest of as many calls that met no expiry. Like is
//! held against like: the middle one of the added times against the middle one of the plain calls, and the longest against
//! the longest; the worse of the two counts.
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
    /// Calls that met each expiry of those that many met.
    pub callers: usize,
    /// Calls that failed, of all.
    pub failed: usize,
    /// The most handshakes that one expiry caused.
    pub handshakes: u64,
    /// What one plain call takes.
    pub plain: Times,
    /// How long a caller that was alone waited beyond a plain call, over the expiries.
    pub added: Times,
    /// How long the last of many callers waited beyond the last of as many that met no expiry.
    pub added_to_last: Times,
    /// The first in round trips, the middle ones or the longest, whichever are more.
    pub round_trips: f64,
    /// The second in round trips.
    pub round_trips_of_last: f64,
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
    let (mut plain, mut added, mut added_to_last) = (Vec::new(), Vec::new(), Vec::new());
    let mut renewal = Renewal {
        expiries,
        callers: CALLERS,
        failed: 0,
        handshakes: 0,
        plain: Times::default(),
        added: Times::default(),
        added_to_last: Times::default(),
        round_trips: 0.0,
        round_trips_of_last: 0.0,
    };
    for _ in 0..expiries {
        let (one, beyond) = renewal.expire_under(1, relay, server, &client, &tools).await?;
        plain.push(one);
        added.push(beyond);
        added_to_last.push(renewal.expire_under(CALLERS, relay, server, &client, &tools).await?.1);
    }
    renewal.plain = Times::of(&plain);
    renewal.added = Times::of(&added);
    renewal.added_to_last = Times::of(&added_to_last);
    let plain = renewal.plain;
    let in_plain = |added: Times| (added.p50 / plain.p50).max(added.max / plain.max);
    renewal.round_trips = in_plain(renewal.added);
    renewal.round_trips_of_last = in_plain(renewal.added_to_last);
    scene.close().await?;
    Ok(renewal)
}

impl Renewal {
    /// Answers with what an ordinary call takes where so many are begun together, and with how much longer the last one
    /// took that met an expiry.
    async fn expire_under(
        &mut self,
        callers: usize,
        relay: &Proxy,
        server: &Server,
        client: &Arc<Client>,
        tools: &Tools,
    ) -> Result<(Duration, Duration)> {
        // The first round opens the connections that the second one uses.
        all_at_once(callers, client, tools).await;
        let (ordinary, _) = all_at_once(callers, client, tools).await;
        let before = relay.handshakes();
        server.misbehave(&json!({ "how": "forget_sessions" }), None).await?;
        let (longest, failed) = all_at_once(callers, client, tools).await;
        self.failed += failed;
        self.handshakes = self.handshakes.max(relay.handshakes() - before);
        Ok((ordinary, longest.saturating_sub(ordinary)))
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

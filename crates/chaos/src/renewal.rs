//! A session that expires under many waiting calls, over a connection with delay: number of handshakes, and number of
//! round trips that a caller waits.
//!
//! A round trip is the duration of one plain call through the gateway over the same connection, measured right before
//! in the same run. The added time is the duration of a call that hit an expiry minus that of a plain call. It is
//! measured with a single caller, because concurrent calls wait for each other on the processors of this machine. For
//! many callers, the report also shows the added time of the last one, minus the longest of as many calls without an
//! expiry. Medians are compared with medians and maxima with maxima; the worse ratio counts.
//!
//! The protocol itself needs three round trips: the refused request, `initialize`, and `initialized`. The last one
//! must be awaited: a server may refuse everything until it has seen it, and requests on two connections may arrive
//! in either order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

use crate::client::{Client, Reply};
use crate::environment::Testbed;
use crate::fault::{Fault, RunLength, Transport};
use crate::load::Tools;
use crate::proxy::{Proxy, ProxyMode};
use crate::row::RunOptions;
use crate::server::Server;
use gripfast_measure::times::Times;
use gripfast_measure::{MeasureError, Result};

/// Cost of session renewals.
#[derive(Debug, Clone, Serialize)]
pub struct Renewal {
    /// Number of expiries.
    pub expiries: usize,
    /// Concurrent calls per expiry in the rounds with many callers.
    pub callers: usize,
    /// Number of failed calls.
    pub failed: usize,
    /// Maximum number of handshakes per expiry.
    pub handshakes: u64,
    /// Duration of a plain call.
    pub plain: Times,
    /// Added time of a single caller.
    pub added: Times,
    /// Added time of the last of many callers.
    pub added_to_last: Times,
    /// Added time of a single caller in round trips: the larger of the ratios of medians and of maxima.
    pub round_trips: f64,
    /// Added time of the last of many callers in round trips.
    pub round_trips_of_last: f64,
}

/// Delay in each direction.
const PROXY_DELAY: Duration = Duration::from_millis(25);
const CALLERS: usize = 16;

/// Runs the measurement.
///
/// # Errors
/// The harness itself fails.
pub async fn run(options: &RunOptions) -> Result<Renewal> {
    let fault = Fault::by_name("session-expired")
        .ok_or_else(|| MeasureError::new("session-expired", &"no such fault"))?;
    let testbed = Testbed::start(fault, Transport::Http, options.length, &options.subject).await?;
    let tools = testbed.tools().await?;
    let (Some(relay), Some(server)) = (&testbed.proxy, &testbed.server) else {
        return Err(MeasureError::new("session-expired", &"its setup has no proxy"));
    };
    let client = Arc::new(Client::new(testbed.gateway.url(), options.subject.eras()[0])?);
    if !matches!(client.initialize().await, Reply::Result(_)) {
        return Err(MeasureError::new("the gateway", &"the handshake failed"));
    }
    relay.set_mode(ProxyMode::Delay(PROXY_DELAY));
    let expiries = if options.length == RunLength::Short { 1 } else { 20 };
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
        let (one, beyond) = renewal.expire_session(1, relay, server, &client, &tools).await?;
        plain.push(one);
        added.push(beyond);
        added_to_last.push(renewal.expire_session(CALLERS, relay, server, &client, &tools).await?.1);
    }
    renewal.plain = Times::of(&plain);
    renewal.added = Times::of(&added);
    renewal.added_to_last = Times::of(&added_to_last);
    let plain = renewal.plain;
    let in_plain = |added: Times| (added.p50 / plain.p50).max(added.max / plain.max);
    renewal.round_trips = in_plain(renewal.added);
    renewal.round_trips_of_last = in_plain(renewal.added_to_last);
    testbed.close().await?;
    Ok(renewal)
}

impl Renewal {
    /// Returns the duration of a plain call among this many concurrent ones, and the added time of the last one that
    /// hit an expiry.
    async fn expire_session(
        &mut self,
        callers: usize,
        relay: &Proxy,
        server: &Server,
        client: &Arc<Client>,
        tools: &Tools,
    ) -> Result<(Duration, Duration)> {
        // The first round opens the connections that the second one uses.
        call_concurrently(callers, client, tools).await;
        let (ordinary, _) = call_concurrently(callers, client, tools).await;
        let before = relay.handshakes();
        server.misbehave(&json!({ "how": "forget_sessions" }), None).await?;
        let (longest, failed) = call_concurrently(callers, client, tools).await;
        self.failed += failed;
        self.handshakes = self.handshakes.max(relay.handshakes() - before);
        Ok((ordinary, longest.saturating_sub(ordinary)))
    }
}

/// Sends calls from this many callers concurrently. Returns the longest duration and the number of failures.
async fn call_concurrently(callers: usize, client: &Arc<Client>, tools: &Tools) -> (Duration, usize) {
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

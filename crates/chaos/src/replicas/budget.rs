//! A budget that clients spend through all replicas at once. The server's record decides how many calls were made.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::service::{NAMES, Service};
use super::strike::{RECOVERY_LIMIT, StrikeTimes, others, route_through, until};
use crate::load::Load;
use gripfast_measure::Result;

/// Calls that the budget allows. The load before the strike makes some of them.
const CALLS: u64 = 40;
/// Calls of each client at the same moment, half of them with a side effect: together more than the budget allows.
const BURST: usize = 24;
/// Calls that may be in flight.
const IN_FLIGHT: u64 = 15;
/// Time limit for the counts in the store.
const COUNT_LIMIT: Duration = Duration::from_secs(20);
/// Word that only a reservation contains.
const RESERVATION: &str = "sliding";

/// Config of the budget.
pub(super) fn config() -> Value {
    json!({ "few": { "tool": "counter", "calls": CALLS, "within": "1h", "in_flight": IN_FLIGHT } })
}

/// Spends the budget. A replica is killed meanwhile, or each loses a reply of the store.
pub(super) async fn spend(kills: bool, service: &mut Service, load: &Load) -> Result<StrikeTimes> {
    load.pause().await;
    let target = service.target;
    let mut struck = Instant::now();
    for proxy in &service.store_proxies {
        proxy.lose_answer(RESERVATION);
    }
    load.burst(BURST);
    if kills {
        until("calls are in flight", async || row(service).await["in_flight"].as_u64() > Some(0)).await?;
        struck = service.kill(target).await?;
        route_through(load, &others(target));
    }
    load.pause().await;
    let back = load.wait_until_all_back(RECOVERY_LIMIT).await;
    // Until no call is allowed any more.
    let began = Instant::now();
    while row(service).await["calls"].as_u64() < Some(CALLS) && began.elapsed() < COUNT_LIMIT {
        load.burst(BURST);
        load.pause().await;
    }
    let spent = until("the budget is spent, and no call is in flight", async || {
        let row = row(service).await;
        row["calls"] == CALLS && row["in_flight"] == 0
    });
    if spent.await.is_err() {
        let row = row(service).await;
        service.check(false, &format!("the counts are wrong after all calls have ended: {row}"));
    }
    let made = service.record().values().map(Vec::len).sum::<usize>() as u64;
    service.check(made <= CALLS, &format!("the server executed {made} of {CALLS} calls"));
    if kills {
        service.restart(target).await?;
    } else {
        service.check(made == CALLS, &format!("the service counts {CALLS} calls, the server {made}"));
        let lost: Vec<u64> = service.store_proxies.iter().map(crate::proxy::Proxy::broken).collect();
        service.check(lost.iter().all(|lost| *lost > 0), &format!("a replica lost no reply: {lost:?}"));
    }
    // The load stays paused: every further call with a side effect would be refused.
    load.wait_until_all_back(RECOVERY_LIMIT).await;
    Ok(StrikeTimes { struck, back })
}

/// The budget as another replica than the target shows it.
async fn row(service: &Service) -> Value {
    let other = (service.target + 1) % NAMES.len();
    service.status(other).await["budgets"][0].take()
}

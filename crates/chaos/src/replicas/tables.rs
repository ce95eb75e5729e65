//! Tables of the service during a fault: API keys and pins.

use std::time::{Duration, Instant};

use serde_json::json;

use super::service::{NAMES, Service};
use super::strike::{RECOVERY_LIMIT, StrikeTimes, until};
use crate::client::{Client, Reply};
use crate::environment::SERVER;
use crate::load::Load;
use gripfast_measure::{Era, Result};

/// Tool that changes. The load does not call it.
const CHANGED: &str = "sleep";

/// Kills the store for a while. Meanwhile the server changes one tool and adds another: neither may be served before it
/// is approved or pinned. A key that was removed before stays removed.
pub(super) async fn kill_store(
    outage: Duration,
    strike: usize,
    service: &mut Service,
    load: &Load,
) -> Result<StrikeTimes> {
    let name = |what: &str| format!("{what}-{strike}");
    let removed = service.command(0, &["keys", "add", &name("removed")]).await?.trim().to_owned();
    until_all("a new key is valid", async |replica| accepts(service, replica, &removed).await).await?;
    service.command(1, &["keys", "rm", &name("removed")]).await?;
    until_all("a key is removed", async |replica| !accepts(service, replica, &removed).await).await?;
    let struck = Instant::now();
    service.store.kill();
    let added = name("added");
    service.server.misbehave(&json!({ "how": "change_tool", "name": CHANGED }), None).await?;
    service.server.misbehave(&json!({ "how": "add_tool", "name": added }), None).await?;
    until_all("the changed tool is refused", async |replica| !serves(service, replica, CHANGED).await)
        .await?;
    tokio::time::sleep(outage.saturating_sub(struck.elapsed())).await;
    check("without the store", &removed, service).await;
    for (replica, name) in NAMES.iter().enumerate() {
        let served = serves(service, replica, &added).await;
        service.check(!served, &format!("{name} pinned a new tool without the store"));
    }
    service.store.restart()?;
    service.until_complete().await?;
    let back = load.wait_until_all_back(RECOVERY_LIMIT).await;
    check("when the store is back", &removed, service).await;
    // A change waits until the replicas have written back what they know.
    service.command(2, &["keys", "add", &name("later")]).await?;
    until_all("the new tool is served", async |replica| serves(service, replica, &added).await).await?;
    check("after the grace period", &removed, service).await;
    Ok(StrikeTimes { struck, back })
}

/// Checks that no replica accepts the removed key or serves the changed tool.
async fn check(when: &str, removed: &str, service: &mut Service) {
    for (replica, name) in NAMES.iter().enumerate() {
        let accepted = accepts(service, replica, removed).await;
        service.check(!accepted, &format!("{name} accepts a removed key {when}"));
        let served = serves(service, replica, CHANGED).await;
        service.check(!served, &format!("{name} serves a changed tool {when}"));
    }
}

/// Changes a tool at the server, and approves the change through one replica.
pub(super) async fn approve_tool(service: &mut Service) -> Result<StrikeTimes> {
    service.server.misbehave(&json!({ "how": "change_tool", "name": CHANGED }), None).await?;
    until_all("the changed tool is refused", async |replica| !serves(service, replica, CHANGED).await)
        .await?;
    let url = service.replica_urls()[service.target].replace("/mcp", "");
    let struck = Instant::now();
    service.command(service.target, &["pins", "approve", SERVER, CHANGED, "--url", &url]).await?;
    let all =
        until_all("the approved tool is served", async |replica| serves(service, replica, CHANGED).await);
    let back = all.await.map(|()| Instant::now());
    service.check(back.is_ok(), "a replica does not follow an approval at another one");
    Ok(StrikeTimes { struck, back: back.ok() })
}

/// Waits until a condition holds at each replica.
async fn until_all(what: &str, mut holds: impl AsyncFnMut(usize) -> bool) -> Result<()> {
    for (replica, name) in NAMES.iter().enumerate() {
        until(&format!("{what} at {name}"), async || holds(replica).await).await?;
    }
    Ok(())
}

async fn accepts(service: &Service, replica: usize, key: &str) -> bool {
    let client = Client::new(&service.replica_urls()[replica], Era::Legacy);
    let Ok(client) = client.map(|client| client.with_bearer(key)) else { return false };
    matches!(client.initialize().await, Reply::Result(_))
}

async fn serves(service: &Service, replica: usize, tool: &str) -> bool {
    service.call_through(replica, &format!("{SERVER}__{tool}"), &json!({ "ms": 0 })).await.is_ok()
}

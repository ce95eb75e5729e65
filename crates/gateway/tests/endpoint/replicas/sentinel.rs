//! A service whose store is Debian's Redis with a replica and three Sentinels. The primary is killed, and the service goes
//! on with the replica.

use super::service::Service;
use super::singletons::{Writer, holder};
use super::through;
use crate::client::LegacyClient;
use gripfast_testkit::store_server::{RunningStore, StoreGroup, StoreServer};
use gripfast_testkit::wait::until_async;
use http::Method;
use serde_json::json;

/// Epoch and replica of the only record with this kind of key.
fn ownership(store: &RunningStore, kind: &str) -> (u64, String) {
    let keys = store.command(&format!("KEYS {{gripfast}}:{kind}:*"));
    let key = keys.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{kind}: {keys}"));
    let value = store.command(&format!("GET {key}"));
    let read = |line: &str| {
        let (epoch, place) = line.strip_prefix("1:")?.split_once(':')?;
        Some((epoch.parse().ok()?, place.split_once('/')?.0.to_owned()))
    };
    value.lines().find_map(read).unwrap_or_else(|| panic!("{kind}: {value}"))
}

async fn takeovers(service: &Service) -> u64 {
    let mut all = 0;
    for replica in &service.replicas {
        let metrics = replica.http.send(Method::GET, "/metrics", &[], "").await.text;
        let line = metrics.lines().find_map(|line| line.strip_prefix("gripfast_cluster_takeovers_total "));
        all += line.unwrap_or_else(|| panic!("{metrics}")).parse::<u64>().unwrap();
    }
    all
}

#[tokio::test]
async fn a_service_on_redis_goes_on_after_sentinel_promotes_a_replica() {
    if !StoreServer::Redis.require() {
        return;
    }
    let group = StoreGroup::start(StoreServer::Redis, 3);
    let (url, promoted, _sentinels) = (group.url(), group.replica, group.sentinels);
    let (mut service, writer) = (Service::on(group.primary), Writer::new());
    service.start_through(url, &["a", "b", "c"], &writer.config(""));
    service.until_complete().await;
    holder(&service).await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    for (name, count) in [("b", "1"), ("c", "2"), ("a", "3")] {
        let through = through(&client, &service.at(name).http);
        assert_eq!(through.call_tool("demo__counter", json!({})).await, count, "through {name}");
    }
    service.kill("a");
    let survivors = ["b", "c"].map(|name| through(&client, &service.at(name).http));
    assert_eq!(survivors[0].call_tool("demo__counter", json!({})).await, "1");
    assert_eq!(survivors[1].call_tool("demo__counter", json!({})).await, "2", "both know the owner now");
    holder(&service).await;
    assert_eq!(takeovers(&service).await, 1);
    let (session, lease) = (ownership(&service.store, "moved"), ownership(&service.store, "lease"));
    service.store.kill();
    until_async("the replicas notice", async || {
        let states = [service.at("b").status().await, service.at("c").status().await];
        states.iter().all(|status| status["cluster"]["store"] == "unreachable")
    })
    .await;
    for (client, count) in survivors.iter().zip(["3", "4"]) {
        assert_eq!(client.call_tool("demo__counter", json!({})).await, count, "without the store");
    }
    until_async("the replicas use the promoted store", async || {
        let states = [service.at("b").status().await, service.at("c").status().await];
        states.iter().all(|status| status["cluster"]["store"] == "ok" && status["cluster"]["replicas"] == 2)
    })
    .await;
    for (client, count) in survivors.iter().zip(["5", "6"]) {
        assert_eq!(client.call_tool("demo__counter", json!({})).await, count, "no false takeover");
    }
    holder(&service).await;
    assert_eq!(ownership(&promoted, "moved"), session, "the record came along");
    assert!(ownership(&promoted, "lease").0 >= lease.0, "epochs do not go back");
    assert_eq!(takeovers(&service).await, 1);
    // A takeover in the promoted store: its epoch is above the one of the takeover in the lost store.
    let owner = session.1.as_str();
    service.kill(owner);
    let left = if owner == "b" { &survivors[1] } else { &survivors[0] };
    assert_eq!(left.call_tool("demo__counter", json!({})).await, "1");
    assert!(ownership(&promoted, "moved").0 > session.0);
    holder(&service).await;
    assert!(writer.count() <= 4, "one process for each loss of a replica or of the store");
}

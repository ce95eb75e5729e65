//! The crate on a real Valkey. Keys that would end by time are removed by hand, so that no test waits for a lease.

mod connections;
mod leases;
mod model;
mod moved;
mod records;
mod sentinel;

mod shared;

use gripfast_cluster::heartbeat::{HeartbeatRequest, HeartbeatSuccess, TakeoverNotices};
use gripfast_cluster::keys::ClusterKeys;
use gripfast_cluster::record::ReplicaRecord;
use gripfast_cluster::store::{Store, StoreSettings};
use gripfast_cluster::store_url::StoreUrl;
use gripfast_cluster::{Namespace, StoreError};
use gripfast_core::placement::address::ReplicaAddress;
use gripfast_core::placement::place::{BootId, OwnerEpoch, Place, ReplicaName};
use gripfast_core::placement::term::LeaseSpec;
use gripfast_testkit::store_server::{RunningStore, StoreServer};
use std::time::Duration;

const KEY: &str = "a key of at least thirty-two characters";

/// A Valkey server and the service in it.
struct Service {
    server: RunningStore,
}

impl Service {
    /// An empty server; `None` if Valkey was left out on purpose.
    fn start() -> Option<Self> {
        StoreServer::Valkey.require().then(|| Self { server: RunningStore::start(StoreServer::Valkey) })
    }

    /// A service after its first grace period, with two replicas.
    async fn settled() -> Option<Self> {
        let service = Self::start()?;
        for boot in [1, 2] {
            service.beat(boot, &[]).await;
        }
        service.end_grace();
        Some(service)
    }

    fn settings(&self, boot: u64) -> StoreSettings {
        settings(&self.server.url(), boot)
    }

    /// The store as the replica with this boot uses it.
    fn store(&self, boot: u64) -> Store {
        Store::new(self.settings(boot)).expect("settings")
    }

    async fn try_beat(
        &self,
        boot: u64,
        leases: &[(&str, OwnerEpoch)],
    ) -> Result<HeartbeatSuccess, StoreError> {
        let leases = leases.iter().map(|(name, epoch)| ((*name).to_owned(), *epoch)).collect();
        let acknowledged = TakeoverNotices::default();
        self.store(boot).heartbeat(&HeartbeatRequest { record: record(boot), leases, acknowledged }).await
    }

    /// A heartbeat that acknowledges the notices of an earlier one.
    async fn beat_after(&self, boot: u64, earlier: &HeartbeatSuccess) -> HeartbeatSuccess {
        let acknowledged = earlier.notices.clone();
        let request = HeartbeatRequest { record: record(boot), leases: Vec::new(), acknowledged };
        self.store(boot).heartbeat(&request).await.expect("the store runs")
    }

    async fn beat(&self, boot: u64, leases: &[(&str, OwnerEpoch)]) -> HeartbeatSuccess {
        self.try_beat(boot, leases).await.expect("the store runs")
    }

    /// A command of another client of the store.
    fn raw<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        let client = redis::Client::open(self.server.url()).expect("a URL");
        let mut connection = client.get_connection().expect("the store runs");
        let mut raw = redis::cmd(command[0]);
        for arg in &command[1..] {
            raw.arg(*arg);
        }
        raw.query(&mut connection).expect("the command is right")
    }

    fn end_grace(&self) {
        let () = self.raw(&["DEL", "{test}:grace"]);
    }

    /// The record of a replica ends by time.
    fn end_record(&self, boot: u64) {
        let () = self.raw(&["DEL", &format!("{{test}}:replica:{}", BootId::from_number(boot))]);
    }
}

fn settings(url: &str, boot: u64) -> StoreSettings {
    StoreSettings {
        url: StoreUrl::parse(url).expect("a URL"),
        namespace: Namespace::new("test").expect("a namespace"),
        keys: ClusterKeys::new([KEY]).expect("a key"),
        place: place(boot),
        spec: LeaseSpec::default(),
        retention: Duration::from_secs(3_600),
    }
}

fn place(boot: u64) -> Place {
    Place {
        name: ReplicaName::new(&format!("replica-{boot}")).expect("a name"),
        boot: BootId::from_number(boot),
    }
}

fn record(boot: u64) -> ReplicaRecord {
    ReplicaRecord {
        place: place(boot),
        address: ReplicaAddress::parse(&format!("http://10.0.0.{boot}:7332")).expect("an address"),
        version: "0.2.0".to_owned(),
        config_hash: "abc".to_owned(),
        sessions: 0,
        forwards_per_second: 0.0,
        store_latency: None,
    }
}

//! The store of one service, as one replica uses it.
//!
//! The operations are in the modules of their subjects; this one has the settings and the inspection of the server.

use crate::connection::{Connection, cmd};
use crate::keys::ClusterKeys;
use crate::store_url::StoreUrl;
use crate::{Namespace, StoreError};
use gripfast_core::placement::place::{BootId, Place, ReplicaName, StoreTime};
use gripfast_core::placement::term::LeaseSpec;
use std::time::Duration;

/// Settings of the store: the `[cluster]` table, and this replica.
#[derive(Debug, Clone)]
pub struct StoreSettings {
    /// The address of the store.
    pub url: StoreUrl,
    /// The namespace of the service.
    pub namespace: Namespace,
    /// The keys of the service.
    pub keys: ClusterKeys,
    /// This replica.
    pub place: Place,
    /// The durations of leases.
    pub spec: LeaseSpec,
    /// Lifetime of the record of a session that moved. The owner renews it while the session lives.
    pub retention: Duration,
}

/// A connection to the store, for everything but the heartbeat. It is made on first use.
#[derive(Debug)]
pub struct Store {
    pub(crate) settings: StoreSettings,
    pub(crate) connection: Connection,
}

/// Facts about the server behind the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreInfo {
    /// `valkey` or `redis`.
    pub engine: String,
    /// Its version.
    pub version: String,
    /// Its eviction policy; empty if the store does not say.
    pub eviction: String,
    /// Its replicas that have all data and follow.
    pub replicas: usize,
    /// Whether it is in cluster mode.
    pub cluster_mode: bool,
    /// Whether it appends each write to a file.
    pub append_only: bool,
}

/// A property of the server that makes it unusable as a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreProblem {
    /// An old version.
    #[error("the store is {engine} {version}; gripfast needs Valkey 8 or Redis 7, or newer")]
    TooOld {
        /// `valkey` or `redis`.
        engine: String,
        /// Its version.
        version: String,
    },
    /// It deletes keys when its memory is full, and thereby pins, logins and removed API keys.
    #[error("the store evicts keys (maxmemory-policy {0}); set `maxmemory-policy noeviction`")]
    Evicts(String),
    /// Redis Cluster.
    #[error("the store is in cluster mode, which gripfast does not support; use one server, or Sentinel")]
    ClusterMode,
}

impl StoreInfo {
    /// The first reason not to use this server.
    #[must_use]
    pub fn problem(&self) -> Option<StoreProblem> {
        let major: u32 = self.version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
        let oldest = if self.engine == "valkey" { 8 } else { 7 };
        if major < oldest {
            let (engine, version) = (self.engine.clone(), self.version.clone());
            return Some(StoreProblem::TooOld { engine, version });
        }
        if self.cluster_mode {
            return Some(StoreProblem::ClusterMode);
        }
        let evicts = !self.eviction.is_empty() && self.eviction != "noeviction";
        evicts.then(|| StoreProblem::Evicts(self.eviction.clone()))
    }

    pub(crate) fn read(info: &str) -> Self {
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim).unwrap_or_default().to_owned()
        };
        let valkey = field("valkey_version");
        let (engine, version) =
            if valkey.is_empty() { ("redis", field("redis_version")) } else { ("valkey", valkey) };
        Self {
            engine: engine.to_owned(),
            version,
            eviction: field("maxmemory_policy"),
            replicas: online_replicas(info),
            cluster_mode: field("cluster_enabled") == "1",
            append_only: field("aof_enabled") == "1",
        }
    }
}

/// The lines of replicas are `slave0:ip=…,port=…,state=online,…`. One that still loads cannot confirm a write.
fn online_replicas(info: &str) -> usize {
    let is_online = |line: &&str| line.starts_with("slave") && line.contains(",state=online,");
    info.lines().filter(is_online).count()
}

impl Store {
    /// A store that is not connected yet.
    ///
    /// # Errors
    ///
    /// If a connection with these settings is not possible at all.
    pub fn new(settings: StoreSettings) -> Result<Self, StoreError> {
        // A reply that takes longer than a heartbeat is of no use to it, nor to a client that waits.
        let connection = Connection::new(&settings.url, settings.spec.heartbeat())?;
        Ok(Self { settings, connection })
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &StoreSettings {
        &self.settings
    }

    /// Facts about the server. The caller refuses one with a [`StoreInfo::problem`].
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    pub async fn inspect(&self) -> Result<StoreInfo, StoreError> {
        let info: String = self.connection.query(&cmd("INFO")).await?;
        Ok(StoreInfo::read(&info))
    }

    /// Closes the connection; the next operation makes a new one, on its own runtime.
    pub fn disconnect(&self) {
        self.connection.close();
    }

    /// The present time of the store.
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    pub async fn time(&self) -> Result<StoreTime, StoreError> {
        let (seconds, micros): (u64, u64) = self.connection.query(&cmd("TIME")).await?;
        Ok(StoreTime::from_micros(seconds * 1_000_000 + micros))
    }

    pub(crate) fn prefix(&self) -> &str {
        self.settings.namespace.prefix()
    }

    pub(crate) fn place(&self) -> String {
        self.settings.place.to_string()
    }
}

/// A duration as the scripts take it.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Reads `NAME/BOOT`.
pub(crate) fn read_place(text: &str) -> Option<Place> {
    let (name, boot) = text.split_once('/')?;
    Some(Place { name: ReplicaName::new(name)?, boot: BootId::parse(boot)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(text: &str) -> StoreInfo {
        StoreInfo::read(text)
    }

    #[test]
    fn an_unusable_server_is_named_with_its_reason() {
        let good = "redis_version:7.2.4\r\nvalkey_version:8.0.1\r\nmaxmemory_policy:noeviction\r\n\
                    cluster_enabled:0\r\nconnected_slaves:2\r\n\
                    slave0:ip=10.0.0.1,port=6379,state=online,offset=1\r\n\
                    slave1:ip=10.0.0.2,port=6379,state=wait_bgsave,offset=0\r\naof_enabled:1\r\n";
        let read = info(good);
        assert_eq!((read.engine.as_str(), read.version.as_str(), read.replicas), ("valkey", "8.0.1", 1));
        assert!(read.append_only);
        assert_eq!(read.problem(), None);
        let evicting = info(&good.replace("noeviction", "allkeys-lru"));
        assert_eq!(evicting.problem(), Some(StoreProblem::Evicts("allkeys-lru".to_owned())));
        let cluster = info(&good.replace("cluster_enabled:0", "cluster_enabled:1"));
        assert_eq!(cluster.problem(), Some(StoreProblem::ClusterMode));
        let old = info("redis_version:6.2.1\r\n");
        assert_eq!(
            old.problem().map(|problem| problem.to_string()),
            Some("the store is redis 6.2.1; gripfast needs Valkey 8 or Redis 7, or newer".to_owned())
        );
        assert_eq!(info("redis_version:7.0.0\r\n").problem(), None);
    }

    #[test]
    fn a_place_survives_the_store() {
        let place = Place { name: ReplicaName::new("a-b").expect("a name"), boot: BootId::from_number(7) };
        assert_eq!(read_place(&place.to_string()), Some(place));
        assert_eq!(read_place("a-b"), None);
        assert_eq!(read_place("a-b/7"), None);
    }
}

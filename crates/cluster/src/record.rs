//! Record of a replica in the store, with a MAC: a client of the store without the key cannot add a replica to which
//! requests would be forwarded.

use crate::StoreError;
use crate::connection::cmd;
use crate::format;
use crate::keys::{ClusterKeys, KeyUse, hex, unhex};
use crate::store::Store;
use gripfast_core::placement::address::ReplicaAddress;
use gripfast_core::placement::heartbeat::LiveReplica;
use gripfast_core::placement::place::{BootId, Place, ReplicaName};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The record of one replica.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaRecord {
    /// Its name and boot.
    pub place: Place,
    /// Its address for forwarded requests.
    pub address: ReplicaAddress,
    /// Its version of gripfast.
    pub version: String,
    /// A digest of its config; a difference between replicas is a warning.
    pub config_hash: String,
    /// Client sessions that it owns.
    pub sessions: u64,
    /// Requests that it forwarded to other replicas, per second since its heartbeat before.
    pub forwards_per_second: f64,
    /// Round trip of its heartbeat before. `None` in its first one.
    pub store_latency: Option<Duration>,
}

#[derive(Serialize, Deserialize)]
struct Fields {
    /// The newest format that the replica reads; a record without it reads format 1. A newer version writes no newer one
    /// while this replica lives.
    #[serde(default)]
    reads: u32,
    name: String,
    boot: String,
    address: String,
    version: String,
    config_hash: String,
    #[serde(default)]
    sessions: u64,
    /// Short names, because each heartbeat of each replica returns them.
    #[serde(default, rename = "forwards")]
    forwards_per_second: f64,
    #[serde(default, rename = "latency_us")]
    store_latency: Option<u64>,
}

impl ReplicaRecord {
    /// The stored form: format, MAC, and the fields as JSON.
    #[must_use]
    pub fn seal(&self, keys: &ClusterKeys) -> String {
        let fields = Fields {
            reads: format::FORMAT,
            name: self.place.name.to_string(),
            boot: self.place.boot.to_string(),
            address: self.address.to_string(),
            version: self.version.clone(),
            config_hash: self.config_hash.clone(),
            sessions: self.sessions,
            forwards_per_second: self.forwards_per_second,
            store_latency: self.store_latency.map(|latency| latency.as_micros() as u64),
        };
        let fields = serde_json::to_string(&fields).expect("strings and numbers are JSON");
        let mac = hex(&keys.sign(KeyUse::ReplicaRecord, fields.as_bytes()));
        format::encode(&format!("{mac}:{fields}"))
    }

    /// Opens the record of this boot.
    ///
    /// # Errors
    ///
    /// If none of the keys made its MAC, if it belongs to another boot, or if it cannot be read.
    pub fn open(keys: &ClusterKeys, boot: BootId, sealed: &str) -> Result<Self, StoreError> {
        let malformed = || StoreError::Malformed(format!("replica:{boot}"));
        let (mac, fields) = format::decode("replica", sealed)?.split_once(':').ok_or_else(malformed)?;
        let mac = unhex(mac).ok_or_else(malformed)?;
        if !keys.verify(KeyUse::ReplicaRecord, fields.as_bytes(), &mac) {
            return Err(malformed());
        }
        let fields: Fields = serde_json::from_str(fields).map_err(|_| malformed())?;
        let name = ReplicaName::new(&fields.name).ok_or_else(malformed)?;
        let address = ReplicaAddress::parse(&fields.address).map_err(|_| malformed())?;
        // A true record of another replica under this boot would send its requests to the wrong place.
        if BootId::parse(&fields.boot) != Some(boot) {
            return Err(malformed());
        }
        Ok(Self {
            place: Place { name, boot },
            address,
            version: fields.version,
            config_hash: fields.config_hash,
            sessions: fields.sessions,
            forwards_per_second: fields.forwards_per_second,
            store_latency: fields.store_latency.map(Duration::from_micros),
        })
    }

    /// The part that routing uses.
    #[must_use]
    pub fn live(&self) -> LiveReplica {
        LiveReplica { place: self.place.clone(), address: self.address.clone() }
    }
}

impl Store {
    /// The records of all live replicas, for an examination from outside.
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    pub async fn records(&self) -> Result<Vec<ReplicaRecord>, StoreError> {
        let key = self.settings.namespace.key("replicas");
        let boots: Vec<String> = self.connection.query(cmd("SMEMBERS").arg(key)).await?;
        let mut records = Vec::new();
        for boot in boots.iter().filter_map(|boot| BootId::parse(boot)) {
            records.extend(self.find_replica(boot).await?);
        }
        records.sort_by(|one, other| one.place.cmp(&other.place));
        Ok(records)
    }

    /// The record of a live replica, read between two heartbeats. `None` if there is none, or none with a valid MAC.
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    pub async fn find_replica(&self, boot: BootId) -> Result<Option<ReplicaRecord>, StoreError> {
        let key = self.settings.namespace.key(&format!("replica:{boot}"));
        let sealed: Option<String> = self.connection.query(cmd("HGET").arg(key).arg("record")).await?;
        Ok(sealed.and_then(|sealed| ReplicaRecord::open(&self.settings.keys, boot, &sealed).ok()))
    }

    /// Returns whether a replica without a record has left the service. The store knows it for two leases.
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    pub async fn has_left(&self, boot: BootId) -> Result<bool, StoreError> {
        let key = self.settings.namespace.key(&format!("left:{boot}"));
        self.connection.query(cmd("EXISTS").arg(key)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(key: &str) -> ClusterKeys {
        ClusterKeys::new([key]).expect("a key")
    }

    fn record(boot: u64) -> ReplicaRecord {
        ReplicaRecord {
            place: Place {
                name: ReplicaName::new("gateway-0").expect("a name"),
                boot: BootId::from_number(boot),
            },
            address: ReplicaAddress::parse("http://10.0.0.7:7332").expect("an address"),
            version: "0.2.0".to_owned(),
            config_hash: "abc".to_owned(),
            sessions: 7,
            forwards_per_second: 2.5,
            store_latency: Some(Duration::from_micros(400)),
        }
    }

    #[test]
    fn a_record_survives_the_store() {
        let keys = keys("a key of at least thirty-two characters");
        let sealed = record(5).seal(&keys);
        assert!(sealed.starts_with("1:"), "{sealed}");
        assert_eq!(ReplicaRecord::open(&keys, BootId::from_number(5), &sealed), Ok(record(5)));
    }

    #[test]
    fn a_record_announces_the_format_that_its_replica_reads() {
        let keys = keys("a key of at least thirty-two characters");
        let sealed = record(5).seal(&keys);
        let (_, fields) = sealed.split_once(":{").expect("JSON after the MAC");
        assert!(fields.starts_with(r#""reads":1,"#), "{sealed}");
        let fields = format!(r#"{{"tomorrow":[1],{fields}"#);
        let mac = hex(&keys.sign(KeyUse::ReplicaRecord, fields.as_bytes()));
        let newer = format!("1:{mac}:{fields}");
        assert_eq!(ReplicaRecord::open(&keys, BootId::from_number(5), &newer), Ok(record(5)));
    }

    #[test]
    fn a_forged_record_is_refused() {
        let ours = keys("a key of at least thirty-two characters");
        let boot = BootId::from_number(5);
        let sealed = record(5).seal(&ours);
        let elsewhere = sealed.replace("10.0.0.7", "10.6.6.6");
        let by_another_key = record(5).seal(&keys("another key of thirty-two characters"));
        let of_another_boot = record(6).seal(&ours);
        for forged in [elsewhere.as_str(), &by_another_key, &of_another_boot, "1:", "1:00:{}", "junk"] {
            assert!(
                matches!(ReplicaRecord::open(&ours, boot, forged), Err(StoreError::Malformed(_))),
                "{forged}"
            );
        }
    }

    #[test]
    fn a_record_of_a_newer_format_is_not_read() {
        let keys = keys("a key of at least thirty-two characters");
        let newer = record(5).seal(&keys).replacen('1', "2", 1);
        let found = ReplicaRecord::open(&keys, BootId::from_number(5), &newer);
        assert_eq!(found, Err(StoreError::NewerFormat { found: 2, known: 1 }));
    }
}

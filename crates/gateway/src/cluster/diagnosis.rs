//! Examination of a service from outside, for `gripfast doctor`: the store, its clock, and the replicas with their
//! addresses and configs. It joins nothing and writes nothing.

use super::ClusterSettings;
use super::forward::ForwardClient;
use super::join::ServiceJoinError;
use super::probe::probe;
use crate::mcp::address::random_boot;
use gripfast::placement::place::Place;
use gripfast_cluster::StoreError;
use gripfast_cluster::forward::ForwardSealer;
use gripfast_cluster::marker::JoinError;
use gripfast_cluster::record::ReplicaRecord;
use gripfast_cluster::store::{Store, StoreInfo, StoreSettings};
use std::time::Duration;

/// Largest difference between the clocks of the store and of this machine.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(1);

/// One result of the examination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFinding {
    /// The store, or a replica.
    pub subject: String,
    /// No problem was found.
    pub is_ok: bool,
    /// The observation.
    pub text: String,
    /// The next step for the operator.
    pub next_step: Option<String>,
}

impl ClusterFinding {
    fn good(subject: &str, text: String) -> Self {
        Self { subject: subject.to_owned(), is_ok: true, text, next_step: None }
    }

    fn bad(subject: &str, text: String, next_step: &str) -> Self {
        Self { subject: subject.to_owned(), is_ok: false, text, next_step: Some(next_step.to_owned()) }
    }
}

const STORE: &str = "(store)";

/// Examines the service with these settings.
pub async fn examine(settings: &ClusterSettings) -> Vec<ClusterFinding> {
    match examine_store(settings).await {
        Ok((store, mut findings)) => {
            match store.records().await {
                Ok(records) => findings.extend(examine_replicas(settings, &records).await),
                Err(error) => findings.push(store_finding(&error.into())),
            }
            findings
        }
        Err(error) => vec![store_finding(&error)],
    }
}

fn store_finding(error: &ServiceJoinError) -> ClusterFinding {
    ClusterFinding::bad(STORE, error.to_string(), error.hint())
}

impl From<StoreError> for ServiceJoinError {
    fn from(error: StoreError) -> Self {
        Self::Join(JoinError::Store(error))
    }
}

async fn examine_store(settings: &ClusterSettings) -> Result<(Store, Vec<ClusterFinding>), ServiceJoinError> {
    let store = Store::new(StoreSettings {
        url: settings.store.clone(),
        namespace: settings.namespace.clone(),
        keys: settings.keys.clone(),
        place: Place { name: settings.name.clone(), boot: random_boot() },
        spec: settings.lease,
        retention: Duration::ZERO,
    })?;
    let info = store.inspect().await?;
    if let Some(problem) = info.problem() {
        return Err(problem.into());
    }
    store.check_marker().await?;
    let before = gripfast::unix_time();
    let theirs = Duration::from_micros(store.time().await?.as_micros());
    let after = gripfast::unix_time();
    let findings = [store_state(&info), clock_difference(before, theirs, after)];
    Ok((store, findings.into()))
}

fn store_state(info: &StoreInfo) -> ClusterFinding {
    let StoreInfo { engine, version, replicas, append_only, .. } = info;
    let file = if *append_only { "an append-only file" } else { "no append-only file" };
    let text =
        format!("{engine} {version} at `cluster.store`: keeps all keys, has {file}, {replicas} replicas");
    let next_step = (!append_only).then(|| {
        "set `appendonly yes`; without it a restart of the store loses what no replica knows".to_owned()
    });
    ClusterFinding { next_step, ..ClusterFinding::good(STORE, text) }
}

/// The store read its clock between `before` and `after`.
fn clock_difference(before: Duration, theirs: Duration, after: Duration) -> ClusterFinding {
    let (ahead, behind) = (theirs.saturating_sub(after), before.saturating_sub(theirs));
    let difference = ahead.max(behind);
    if difference <= MAX_CLOCK_DIFFERENCE {
        return ClusterFinding::good(STORE, "its clock agrees with the one of this machine".to_owned());
    }
    let direction = if ahead > behind { "ahead of" } else { "behind" };
    let text = format!("its clock is {:.1} s {direction} the one of this machine", difference.as_secs_f64());
    ClusterFinding::bad(STORE, text, "synchronise the clocks of all machines, for example with chrony")
}

async fn examine_replicas(settings: &ClusterSettings, records: &[ReplicaRecord]) -> Vec<ClusterFinding> {
    let sealer = ForwardSealer::new(settings.keys.clone(), random_boot());
    let client = ForwardClient::new();
    let probes = records.iter().map(|record| probe(&client, &sealer, &record.address, record.place.boot));
    let reached = futures_util::future::join_all(probes).await;
    let findings = records.iter().zip(reached).map(|(record, reached)| {
        let (name, address) = (&record.place.name, &record.address);
        let subject = format!("(replica {name})");
        if let Err(error) = reached {
            return ClusterFinding::bad(
                &subject,
                format!("not reached at {address} from this machine: {error}"),
                "set its `cluster.advertise` to the URL under which the others reach its `cluster.listen`, and let them \
                 connect to that port",
            );
        }
        if record.config_hash != settings.config_hash {
            return ClusterFinding::bad(
                &subject,
                format!(
                    "its servers, clients or budgets ({}) differ from those of this config ({})",
                    record.config_hash, settings.config_hash
                ),
                "give all replicas the same config",
            );
        }
        let (version, sessions) = (&record.version, record.sessions);
        ClusterFinding::good(&subject, format!("answers at {address}, version {version}, {sessions} sessions"))
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_by_more_than_a_second_are_a_problem() {
        let at = Duration::from_millis;
        for (before, theirs, after, text) in [
            (1_000_000, 1_000_500, 1_000_900, None),
            (1_000_000, 1_001_800, 1_000_900, None),
            (1_000_000, 999_100, 1_000_900, None),
            (1_000_000, 1_300_900, 1_000_900, Some("its clock is 300.0 s ahead of the one of this machine")),
            (1_000_000, 700_000, 1_000_900, Some("its clock is 300.0 s behind the one of this machine")),
        ] {
            let found = clock_difference(at(before), at(theirs), at(after));
            assert_eq!((!found.is_ok).then_some(found.text.as_str()), text);
            assert_eq!(found.next_step.is_some(), !found.is_ok);
        }
    }
}

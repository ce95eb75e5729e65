//! `/replicas`: the replicas of the service that the gateway belongs to.

use crate::api::Admin;
use crate::api::convert::{fractional_millis, millis};
use crate::api::response::json;
use crate::api::types::{ClusterView, ReplicaView};
use crate::cluster::{Member, StoreState};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use gripfast_cluster::record::ReplicaRecord;
use std::sync::Arc;
use std::time::Duration;

impl From<&Member> for ClusterView {
    fn from(member: &Member) -> Self {
        let (store, cause) = match member.store_state() {
            StoreState::Reachable => ("ok", None),
            StoreState::Unreachable(cause) | StoreState::NotJoined(cause) => ("unreachable", Some(cause)),
        };
        Self {
            replica: member.place().name.to_string(),
            store: store.into(),
            replicas: member.records().len(),
            last_contact_ms: member.last_contact().map(millis),
            cause,
        }
    }
}

pub(crate) async fn replicas(State(admin): State<Arc<Admin>>) -> Response {
    json(StatusCode::OK, &admin.cluster.as_deref().map(views).unwrap_or_default())
}

fn views(member: &Member) -> Vec<ReplicaView> {
    let is_current = member.store_state() == StoreState::Reachable;
    let live = member.records().into_iter().map(|record| (record, None));
    let lost = member.lost_replicas().into_iter().map(|lost| (lost.record, Some(lost.at.elapsed())));
    let mut replicas: Vec<_> = live.chain(lost).collect();
    replicas.sort_by(|(one, _), (other, _)| one.place.cmp(&other.place));
    let view = |(record, lost): (ReplicaRecord, Option<Duration>)| {
        let is_self = record.place == *member.place();
        let state = match lost {
            Some(_) => "lost",
            None if is_self || is_current => "live",
            None => "unknown",
        };
        ReplicaView {
            name: record.place.name.to_string(),
            state: state.into(),
            lost_ms: lost.map(millis),
            advertise: record.address.to_string(),
            version: record.version,
            config_hash: record.config_hash,
            sessions: record.sessions,
            forwards_per_second: record.forwards_per_second,
            store_latency_ms: record.store_latency.map(fractional_millis),
            is_self,
        }
    };
    replicas.into_iter().map(view).collect()
}

//! `/replicas`: the replicas of the service that the gateway belongs to.

use crate::api::Admin;
use crate::api::response::json;
use crate::api::types::{ClusterView, ReplicaView};
use crate::cluster::{Member, StoreState};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use std::sync::Arc;

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
            cause,
        }
    }
}

pub(crate) async fn replicas(State(admin): State<Arc<Admin>>) -> Response {
    json(StatusCode::OK, &admin.cluster.as_deref().map(views).unwrap_or_default())
}

fn views(member: &Member) -> Vec<ReplicaView> {
    let mut records = member.records();
    records.sort_by(|one, other| one.place.cmp(&other.place));
    let view = |record: gripfast_cluster::record::ReplicaRecord| ReplicaView {
        is_self: record.place == *member.place(),
        name: record.place.name.to_string(),
        advertise: record.address.to_string(),
        version: record.version,
        config_hash: record.config_hash,
        sessions: record.sessions,
    };
    records.into_iter().map(view).collect()
}

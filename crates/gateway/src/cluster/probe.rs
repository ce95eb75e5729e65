//! Reachability of a replica under its advertised address: a sealed request without effect, whose reply proves that the
//! replica has answered.

use super::Member;
use super::forward::{REPLY, RESULT, sealed_by};
use bytes::Bytes;
use gripfast::placement::address::ReplicaAddress;
use gripfast::placement::place::BootId;
use gripfast::placement::routing::ForwardEnd;
use gripfast_cluster::forward::{ForwardSealer, PROBE_PATH};
use http::{HeaderMap, HeaderName, Request, Uri};
use std::sync::Arc;
use std::time::Duration;

/// Time for the whole probe. The listener of a replica that starts accepts a moment after it joined.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason why a replica is not reached under an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProbeError {
    #[error("the connection is refused")]
    Refused,
    #[error("no connection within 2 s")]
    NotConnected,
    #[error("no answer")]
    NoAnswer,
    #[error("another program, or a replica with another `cluster.key`, answers there")]
    Foreign,
    #[error("another replica answers there")]
    OtherReplica,
}

/// Tests if the replica with this boot answers at the address.
pub(super) async fn probe(
    client: &super::forward::ForwardClient,
    sealer: &ForwardSealer,
    address: &ReplicaAddress,
    boot: BootId,
) -> Result<(), ProbeError> {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.uri = Uri::from_static(PROBE_PATH);
    let (request, seal) =
        sealed_by(sealer, address, boot, &parts, &Bytes::new()).ok_or(ProbeError::NotConnected)?;
    let sent = tokio::time::timeout(PROBE_TIMEOUT, client.send(request)).await;
    let response = sent.map_err(|_| ProbeError::NoAnswer)?.map_err(|end| match end {
        ForwardEnd::Refused => ProbeError::Refused,
        ForwardEnd::NotConnected => ProbeError::NotConnected,
        ForwardEnd::Answered | ForwardEnd::Misdirected { .. } | ForwardEnd::Lost => ProbeError::NoAnswer,
    })?;
    let result = text(response.headers(), &RESULT);
    let (status, reply) = (response.status().as_u16(), text(response.headers(), &REPLY));
    match sealer.is_authentic_reply(&seal, status, result, reply) {
        true if result.is_empty() => Ok(()),
        true => Err(ProbeError::OtherReplica),
        false => Err(ProbeError::Foreign),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

impl Member {
    /// Warns if this replica does not reach itself under the address that it gives the others.
    pub(super) async fn check_own_address(self: Arc<Self>) {
        if let Err(error) = probe(&self.client, &self.sealer, &self.address, self.place.boot).await {
            tracing::warn!(
                "replica `{}` does not reach itself at {}: {error}; the other replicas answer 503 for its sessions if \
                 they do not reach it either; set `cluster.advertise` to the URL under which they reach `cluster.listen`",
                self.place.name,
                self.address
            );
        }
    }
}

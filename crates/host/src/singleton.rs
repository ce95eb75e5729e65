//! Singleton servers: in a service of several gateways, one replica runs such a server (`placement = "one"`) and the
//! others reach it through that replica.
//!
//! The program decides which replica that is, and sets it here ([`SingletonServer::set_place`]). The links of a server
//! end with the place for which they were opened. `transport/singleton.rs` opens them.

use crate::client::Principal;
use crate::config::ServerSpec;
use crate::sync::Mutex;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

/// The singleton servers of a host, as they are added.
pub type SingletonServers = mpsc::UnboundedReceiver<Arc<SingletonServer>>;

/// Sender of [`SingletonServers`].
#[derive(Clone)]
pub(crate) struct SingletonRegistry(mpsc::UnboundedSender<Arc<SingletonServer>>);

impl SingletonRegistry {
    pub(crate) fn new() -> (Self, SingletonServers) {
        let (sender, servers) = mpsc::unbounded_channel();
        (Self(sender), servers)
    }

    /// Registers a server with this spec.
    pub(crate) fn register(&self, name: &str, spec: &ServerSpec) -> Arc<SingletonServer> {
        let server = Arc::new(SingletonServer {
            name: name.to_owned(),
            digest: config_digest(spec),
            place: Mutex::new(PlaceTerm {
                place: SingletonPlace::Unknown("this gateway has not joined its service yet".to_owned()),
                ended: CancellationToken::new(),
            }),
            local: TaskTracker::new(),
            removed: CancellationToken::new(),
        });
        server.local.close();
        // Without a receiver the program places no servers, and this one never runs.
        let _ = self.0.send(Arc::clone(&server));
        server
    }
}

/// One singleton server with one config.
pub struct SingletonServer {
    name: String,
    digest: String,
    place: Mutex<PlaceTerm>,
    /// Links of this replica to the server itself.
    local: TaskTracker,
    /// Cancelled when the server is removed, or has another config.
    removed: CancellationToken,
}

/// A place, and the token that ends the links for it.
#[derive(Clone)]
pub(crate) struct PlaceTerm {
    pub(crate) place: SingletonPlace,
    pub(crate) ended: CancellationToken,
}

/// The replica that runs a singleton server.
#[derive(Clone)]
pub enum SingletonPlace {
    /// None is known, for this reason.
    Unknown(String),
    /// This one, while its lease lasts.
    Here {
        /// Name of this replica.
        replica: String,
        /// The lease.
        lease: Arc<dyn ServerLease>,
    },
    /// Another one.
    Elsewhere(ReplicaEndpoint),
}

/// The right of this replica to run a server.
pub trait ServerLease: Send + Sync {
    /// Returns whether the right lasts now. It is asked before each request.
    fn may_act(&self) -> bool;
}

/// The endpoint of another replica for one server. It speaks modern MCP over Streamable HTTP.
#[derive(Clone)]
pub struct ReplicaEndpoint {
    /// Name of the replica.
    pub replica: String,
    /// Endpoint of the shared instance. The endpoint of a dedicated instance has the client as a further part.
    pub url: Url,
    /// Seals the requests.
    pub signer: Arc<dyn ReplicaSigner>,
}

/// Authenticates requests to another replica, and its responses.
pub trait ReplicaSigner: Send + Sync {
    /// Headers that name the principal of a request; `None` for a request of the gateway itself.
    fn principal_headers(&self, principal: Option<&Principal>) -> Vec<(String, String)>;

    /// Headers with the seal of a request.
    fn seal(
        &self,
        method: &str,
        path: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Vec<(HeaderName, HeaderValue)>;

    /// Returns whether that replica made this response to the request with the headers of [`Self::seal`].
    fn is_authentic(
        &self,
        seal: &[(HeaderName, HeaderValue)],
        status: StatusCode,
        headers: &HeaderMap,
    ) -> bool;
}

impl SingletonServer {
    /// The server's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Digest of the part of its config that a running server depends on. Replicas with different digests do not share
    /// the server.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns whether the server was removed, or has another config now.
    pub fn is_removed(&self) -> bool {
        self.removed.is_cancelled()
    }

    /// Waits until the server is removed, or has another config.
    pub async fn removed(&self) {
        self.removed.cancelled().await;
    }

    pub(crate) fn mark_removed(&self) {
        self.removed.cancel();
    }

    /// Sets the place. All links for the place before end now; a child process is killed with its group.
    pub fn set_place(&self, place: SingletonPlace) {
        let mut term = self.place.lock();
        term.ended.cancel();
        *term = PlaceTerm { place, ended: CancellationToken::new() };
    }

    /// Waits until no process or connection of this replica to the server itself is left.
    pub async fn until_stopped(&self) {
        self.local.wait().await;
    }

    /// The replica that runs the server, as far as this one knows.
    pub fn holder(&self) -> Option<String> {
        match &self.place.lock().place {
            SingletonPlace::Unknown(_) => None,
            SingletonPlace::Here { replica, .. } => Some(replica.clone()),
            SingletonPlace::Elsewhere(endpoint) => Some(endpoint.replica.clone()),
        }
    }

    pub(crate) fn place(&self) -> PlaceTerm {
        self.place.lock().clone()
    }

    pub(crate) fn local_links(&self) -> &TaskTracker {
        &self.local
    }
}

impl fmt::Debug for SingletonServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingletonServer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Lets the child processes of singleton servers live as long as `left` says. A watcher process kills them then, unless
/// this is called again: a stopped process cannot kill its children itself.
pub fn renew_child_leases(left: &dyn Fn() -> std::time::Duration) {
    crate::transport::renew_child_leases(left);
}

/// Digest of everything that makes a new connection if it changes, and of the isolation between clients.
fn config_digest(spec: &ServerSpec) -> String {
    let mut hash = Sha256::new();
    for template in spec.target.templates() {
        hash.update(template.source().as_bytes());
        hash.update([0]);
    }
    let ServerSpec { target, oauth, protocol, max_message, restore, isolation, .. } = spec;
    hash.update(format!("{target:?} {oauth:?} {protocol:?} {max_message} {restore:?} {isolation:?}"));
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

//! The tables of the config: their keys, declared with [`keys!`], and the decoding of those keys that depend on each
//! other or on the client that the file was written for.

mod access;
mod budget;
mod cache;
mod cluster;
mod gateway;
mod oauth;
mod policy;
mod restore;
mod search;
mod server;
mod supervision;
mod target;

pub(crate) use access::is_loopback;
pub use access::{AccessConfig, Jwks, JwtConfig, ListenerTls, TokenTypes, is_confidential};
pub(super) use budget::budgets;
pub(super) use cluster::cluster;
pub use cluster::{ClusterConfig, StoreLoss};
pub(super) use gateway::gateway;
pub use gateway::{ClientLimits, GatewayConfig, LogFormat, LoginKey};
pub use oauth::{Grant, OAuthSpec};
pub(super) use policy::clients;
pub use restore::{Argument, RestoreCall};
pub use search::{EmbeddingsConfig, SearchConfig};
pub(super) use server::entry;
pub use server::{Placement, ProtocolChoice, ReplayRules, ServerSpec};
pub use target::{EndpointError, Target, TlsSpec, UrlTransport, endpoint};

use super::keys::{ValueKind, keys, table};
use budget::BudgetKeys;
use policy::ClientKeys;

keys! {
    /// The file as a whole.
    pub(in crate::config) struct FileKeys {
        /// The gateway itself: listener, authentication, limits and storage. Changes take effect at the next start.
        key gateway: ValueKind::Table(table::<GatewayConfig>);
        /// Keys for all servers. A server's own key takes precedence; tables such as `timeouts` and `env` are merged
        /// key by key. Keys that belong to one server are not allowed here: `command`, `args`, `cwd`, `url`,
        /// `transport`, `headers`, `redirects`, `client_cert`, `client_key`, `oauth`, `prefix`, `restore`.
        key defaults: ValueKind::ServerKeys;
        /// The servers by name. A name has letters, digits, `_` and `-`, at most 64, without `__` and without `_` at
        /// the end, because clients see `server__tool`. If two servers want the same public name at the first listing,
        /// the first one in the file gets it; from then on it keeps it.
        key servers: ValueKind::map(ValueKind::Table(table::<ServerSpec>));
        /// Access rules for clients, by patterns over client names. If several tables match a client, each of them must
        /// allow the access. Without `gateway.auth` every program on this machine is the client `local`.
        key clients: ValueKind::map(ValueKind::Table(table::<ClientKeys>));
        /// Call budgets, each under a name of your choice.
        key budgets: ValueKind::map(ValueKind::Table(table::<BudgetKeys>));
        /// Several gateways as one service. Without it the gateway runs alone. Changes take effect at the next start.
        key cluster: ValueKind::Table(table::<ClusterConfig>);
    }
}

//! The two eras of MCP. Legacy: one `initialize` handshake, then a connection with state. Modern (2026-07-28 and
//! later): every request carries its version and its client's capabilities.
//!
//! This module knows versions, the fields that carry them and how to tell the era of a peer from its messages. It does
//! not connect, probe or store anything.

mod context;
mod handshake;
pub mod probe;
mod version;

pub use context::{ContextFault, ModernContext, RequestContext, may_have_meta};
pub use handshake::{Capabilities, DiscoverResult, InitializeParams, InitializeResult, initialize_params};
pub use version::{Era, ProtocolVersion};

/// Keys of `_meta` that the specification defines.
pub mod meta {
    /// Modern request: its protocol version. Required.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Modern request: the capabilities of its client. Required, may be `{}`.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Modern request: name and version that the client claims.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// Modern request: the least severe log level that the client wants.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Modern result: name and version that the server claims.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Messages of a `subscriptions/listen` stream: the id of the request that opened it.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// Both eras: token for the progress notifications of a request.
    pub const PROGRESS_TOKEN: &str = "progressToken";
    /// W3C trace context, parent.
    pub const TRACEPARENT: &str = "traceparent";
    /// W3C trace context, vendor part.
    pub const TRACESTATE: &str = "tracestate";
}

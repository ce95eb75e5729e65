//! The two eras of MCP. Legacy: one `initialize` handshake, then a connection that remembers. Modern
//! (2026-07-28 and later): every request says for itself which version it speaks and what its client can do.
//!
//! This module knows versions, the fields that carry them and how an era shows itself on the wire. It does
//! not dial, probe or remember; it says what an answer means.

mod context;
mod handshake;
pub mod probe;
mod version;

pub use context::{ContextFault, ModernContext, RequestContext, may_have_meta};
pub use handshake::{Capabilities, DiscoverResult, InitializeParams, InitializeResult, initialize_params};
pub use version::{Era, ProtocolVersion};

/// Keys of `_meta` that the specification owns.
pub mod meta {
    /// Modern request: the protocol version it speaks. Required.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Modern request: what its client can do. Required, may be `{}`.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Modern request: who the client says it is.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// Modern request: the least severe log message it wants to see.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Modern result: who the server says it is.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Messages of a `subscriptions/listen` stream: the id of the request that opened it.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// Both eras: the request wants progress notifications under this token.
    pub const PROGRESS_TOKEN: &str = "progressToken";
    /// W3C trace context, parent.
    pub const TRACEPARENT: &str = "traceparent";
    /// W3C trace context, vendor part.
    pub const TRACESTATE: &str = "tracestate";
}

//! Isolation of clients: shared and dedicated instances of a server, and the attribution of server requests that name
//! no call.
//!
//! An instance is one child process or one session. The shared instance serves all clients; a dedicated instance serves
//! one. [`InstanceAllocator`] assigns calls to instances, and [`attribute`] finds the client that a request is for.
//! Neither makes instances.

mod allocator;
mod attribution;

pub use crate::isolation::allocator::{
    Assignment, CallNeeds, DedicatedFor, InstanceAllocator, InstanceNumber, InstanceOwner,
};
pub use crate::isolation::attribution::{Attribution, Caller, ServedPrincipals, attribute};

/// Isolation rule of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// One shared instance, until the server sends a request that cannot be attributed to a client. From then on every
    /// client that can answer requests has a dedicated instance, and that is remembered; every client, if the server
    /// was serving several principals.
    #[default]
    Auto,
    /// One shared instance, whatever the server does.
    Shared,
    /// One dedicated instance per client.
    PerClient,
}

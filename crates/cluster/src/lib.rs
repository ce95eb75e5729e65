//! Several gateways as one service, on Valkey or Redis. This crate performs on the store what
//! [`gripfast_core::placement`] decides: heartbeats, exclusive leases, records of sessions that moved, shared tables,
//! shared budgets. It also authenticates forwarded requests.
//!
//! All keys of a service start with `{namespace}:`, so that they are in one hash slot and two services can share a
//! store. Every value starts with a format number, except counts and times, which are numbers. The scripts in
//! `src/scripts` are the only writers.

#![warn(missing_docs)]

pub mod budgets;
pub mod calls;
pub mod changes;
mod clock;
#[cfg(feature = "redis")]
mod connection;
#[cfg(not(feature = "redis"))]
#[path = "connection_disabled.rs"]
mod connection;
mod error;
mod format;
pub mod forward;
pub mod heartbeat;
pub mod keys;
mod leases;
pub mod marker;
mod moved;
mod namespace;
pub mod record;
pub mod sessions;
pub mod store;
pub mod store_url;
pub mod tables;

/// False in a build without the feature `redis`, which can connect to no store.
pub const IS_SUPPORTED: bool = cfg!(feature = "redis");

pub use clock::lease_now;
pub use error::StoreError;
pub use namespace::{Namespace, NamespaceError};

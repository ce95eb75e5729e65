//! Placement among several gateways that form one service: which replica serves a client session, and which one holds
//! what may exist only once.
//!
//! Two kinds of ownership have a machine each. A session is routed ([`routing`]): its owner goes on while the store is
//! unreachable. An exclusive lease ([`exclusive`]) ends by time, so that two replicas never hold it at once. The
//! machines take the time and the replies of the store as arguments; the `cluster` crate talks to the store.

pub mod address;
pub mod exclusive;
pub mod heartbeat;
pub mod place;
pub mod replay_window;
pub mod routing;
pub mod table_copy;
pub mod term;

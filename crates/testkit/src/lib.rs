//! Shared test tools: real servers and clients, a browser, a keyring, a service manager, a store, load balancers, the
//! official conformance suite, and bounded waits.

pub mod authority;
pub mod balancer;
pub mod browser;
pub mod clients;
pub mod conformance;
pub mod keyring;
pub mod packages;
pub mod peers;
#[cfg(unix)]
pub mod proc;
pub mod service_manager;
pub mod store_server;
pub mod unreachable_listener;
pub mod wait;
pub mod wall_clock;

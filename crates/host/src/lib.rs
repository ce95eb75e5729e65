//! The MCP host that never loses a server.
//!
//! A [`Host`] connects to any number of MCP servers (child processes, Streamable HTTP, legacy HTTP+SSE;
//! both protocol eras) and keeps them: what dies is brought back, what forgets its session gets a new one,
//! what hangs is replaced. A call with a side effect that may have been carried out is never sent again.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use gripfast::Host;
//! use gripfast::config::Config;
//!
//! let config = Config::load("gripfast.toml".as_ref())?;
//! let host = Host::builder().client_info("my-agent", "1.0").build();
//! for server in config.servers {
//!     match server.spec {
//!         Ok(spec) => host.spawn(&server.name, spec)?,
//!         Err(causes) => host.spawn_broken(&server.name, &causes[0].to_string())?,
//!     }
//! }
//! let arguments = serde_json::value::to_raw_value(&serde_json::json!({ "text": "hello" }))?;
//! let answer = host.call("demo", "echo", Some(arguments)).await?;
//! println!("{:?}", answer.result());
//! host.shutdown().await;
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

/// The program in the README, compiled by `cargo test --doc`.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod audit;
pub mod auth;
mod cache;
mod call;
mod client;
mod clock;
pub mod config;
mod fetch;
pub mod file_limit;
mod host;
pub mod input;
mod instances;
pub mod ledger;
pub mod memory;
mod menu;
mod observe;
mod overheard;
mod pins;
mod policy;
pub mod private_files;
mod replace;
mod said;
mod security;
mod status;
pub mod store;
mod subscribe;
pub mod tls;
pub mod transport;
mod unlisted;
mod upstream;

pub use audit::{AuditFile, AuditFinding, AuditKeeps, AuditOptions, AuditStatus, record_audit, verify_audit};
pub use cache::{CacheCounts, CacheLimits, CacheSpec, CacheUse, ToolRule};
pub use call::{BudgetSpec, BudgetUse, CallOptions, Per, Window};
pub use client::{Client, Principal};
pub use fetch::{exchange, fetch};
pub use gripfast_core::cache::{CacheScope, Freshness};
pub use gripfast_core::catalog::merge::{Destination, Menu, Renamed};
pub use gripfast_core::catalog::{Catalog, Item};
pub use gripfast_core::event::{Event, ReplaceCause};
pub use gripfast_core::failure::symptoms;
pub use gripfast_core::failure::{CallError, Code, Outcome as Fate};
pub use gripfast_core::ids::ClientKey;
pub use gripfast_core::policy::Pattern;
pub use gripfast_core::rate::RateLimiter;
pub use gripfast_core::redact;
pub use gripfast_core::repeats::LogThrottle;
pub use gripfast_core::security::{
    AdminAction, AuthFailure, AuthFailures, AuthTarget, KeyChange, SecretDigest, SecurityEvent, SignIns,
    Source, TrustDecision, network,
};
pub use gripfast_core::standing::Restored;
pub use gripfast_core::supervise::circuit::CircuitView;
pub use gripfast_core::supervise::status::{NextAction, SpareState, State, UpstreamStatus};
pub use gripfast_core::text;
pub use gripfast_core::time::{Mono, Wall};
/// MCP as bytes, for programs that put a surface of their own in front of a host.
pub use gripfast_wire as wire;
pub use gripfast_wire::envelope::ErrorObject;
pub use gripfast_wire::{Era, Outcome, RawValue};
pub use host::{Discovered, Extended, Host, HostBuilder, SpawnError, SpawnOptions};
pub use menu::{Rendered, Served};
pub use observe::{CallEnds, CallStats, Spread, UpstreamEvent};
pub use overheard::{Overheard, Overhears};
pub use pins::{Difference, PinCounts, PinKind, PinMode, PinnedTool, Quarantined, Suspicion};
pub use policy::{BadEntry, ClientPolicy, Decision, Kind, Lists, Policy, Verdict};
pub use replace::Replaced;
pub use security::SecurityCounts;
pub use status::{ConnectAttempt, OwnInstances, ServerStatus};
pub use subscribe::{SubscribeOptions, Subscribed, Subscription};
pub use unlisted::Wanted;
pub use upstream::{Answer, Members};

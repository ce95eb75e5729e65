//! A client library for MCP servers that supervises its servers and reconnects to them.
//!
//! A [`Host`] connects to any number of MCP servers (child processes, Streamable HTTP, legacy HTTP+SSE; both protocol
//! eras). It restarts a server that dies, makes a new session after one is lost, and replaces a connection that
//! hangs. A call with a side effect that may have been carried out is never sent again.
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
//!         Err(findings) => host.spawn_broken(&server.name, &findings[0].to_string())?,
//!     }
//! }
//! let arguments = gripfast::JsonText::of(&serde_json::json!({ "text": "hello" }))?;
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

/// The examples in `docs/embedding.md`, compiled by `cargo test --doc`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct Embedding;

/// The examples in `docs/policy.md`, compiled by `cargo test --doc`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/policy.md")]
struct Policies;

pub mod auth;
mod cache;
mod call;
mod catalog;
mod client;
mod clock;
pub mod config;
mod embeddings;
mod fetch;
pub mod file_limit;
mod host;
pub mod input;
mod instances;
pub mod large_message;
pub mod memory;
mod notification_sink;
mod observe;
mod pins;
mod policy;
pub mod private_files;
mod records;

pub use records::{RecordDetail, ledger};
mod replace;
mod security;
pub mod shared_state;
pub mod singleton;
mod status;
pub mod store;
mod subscribe;
pub mod sync;
pub mod tls;
pub mod transport;
mod unlisted;
mod upstream;

pub use crate::catalog::{CatalogSnapshot, FoundTool, RenderedList};
pub use crate::notification_sink::{NotificationSink, ServerNotification};
pub use crate::records::audit::{
    AuditFile, AuditFinding, AuditOptions, AuditStatus, record_audit, verify_audit,
};
pub use cache::{CacheCounts, CacheLimits, CacheSpec, CacheUse, ToolRule};
pub use call::{
    BudgetCounter, BudgetExceeded, BudgetScope, BudgetSpec, BudgetStore, BudgetUse, BudgetWindow,
    CallOptions, SettledAs, StoreReply, StoredUse,
};
pub use client::{Client, Principal};
pub use clock::{Clock, unix_time};
pub use embeddings::{EmbeddingsStatus, check_embeddings};
pub use fetch::{exchange, fetch};
pub use gripfast_core::cache::{CacheScope, Freshness};
pub use gripfast_core::catalog::merge::{Destination, MergedCatalog, Renamed};
pub use gripfast_core::catalog::{Catalog, Item};
pub use gripfast_core::event::{Event, ReplaceCause};
pub use gripfast_core::exposure;
pub use gripfast_core::failure::symptoms;
pub use gripfast_core::failure::{CallError, CallOutcome, Code};
pub use gripfast_core::ids::ClientKey;
pub use gripfast_core::log_dedup::LogThrottle;
pub use gripfast_core::placement;
pub use gripfast_core::placement::place::{BootId, ReplicaName};
pub use gripfast_core::policy::Pattern;
pub use gripfast_core::rate::RateLimiter;
pub use gripfast_core::redact;
pub use gripfast_core::security::{
    AdminAction, AuthFailure, AuthFailures, AuthTarget, KeyChange, RequestSource, SecretDigest,
    SecurityEvent, SignIns, TrustDecision, network,
};
pub use gripfast_core::session_state::Restored;
pub use gripfast_core::supervise::circuit::CircuitView;
pub use gripfast_core::supervise::status::{NextAction, SpareState, State, UpstreamStatus};
pub use gripfast_core::text;
pub use gripfast_core::time::{Mono, Now, Wall};
/// MCP messages as bytes, for programs that offer their own interface to the servers of a host.
pub use gripfast_wire as wire;
pub use gripfast_wire::envelope::ErrorObject;
pub use gripfast_wire::{Era, Json, JsonText, Outcome};
pub use host::{DiscoveredServer, Host, HostBuilder, ServerExtensions, SpawnError, SpawnOptions};
pub use observe::{CallEnds, CallStats, DurationHistogram, UpstreamEvent};
pub use pins::{Difference, PinCounts, PinKind, PinMode, PinnedTool, Quarantined, Suspicion};
pub use policy::{BadEntry, ClientPolicy, GuardVerdict, ItemKind, Lists, Policy, PolicyDecision};
pub use replace::ReplaceOutcome;
pub use security::SecurityCounts;
pub use status::{ConnectAttempt, DedicatedStatus, ServerStatus};
pub use subscribe::{SubscribeOptions, SubscribeOutcome, Subscription};
pub use transport::Members;
pub use unlisted::UnlistedItem;
pub use upstream::Answer;

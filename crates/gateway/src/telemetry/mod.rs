//! OTLP export of traces and metrics: a span for each client request, with a child span for each request that it causes
//! at a server, named after OpenTelemetry's conventions for MCP.
//!
//! `collector` configures the exporters, `span` records requests, `gauges` exports the metrics of `/metrics`. Calls
//! never wait for telemetry: spans go into a bounded queue, and data that an unavailable collector cannot accept is
//! lost. Arguments, results and session ids are not exported.

#[cfg(feature = "otlp")]
mod collector;
#[cfg(not(feature = "otlp"))]
mod disabled;
#[cfg(feature = "otlp")]
mod gauges;
#[cfg(feature = "otlp")]
mod span;

#[cfg(not(feature = "otlp"))]
pub use crate::telemetry::disabled::{Telemetry, TelemetryConfigError};
#[cfg(feature = "otlp")]
pub use collector::{Telemetry, TelemetryConfigError};

//! Traces and metrics for whoever collects them by OTLP: a span for each request of a client, and under it one for
//! each request that it causes at a server, in the words of OpenTelemetry's conventions for MCP.
//!
//! `collector` knows where it goes, `span` what is told of a request, `gauges` the metrics of `/metrics` in this form.
//! No call waits for any of it: spans go into a bounded queue, and what a collector that is away cannot take is lost.
//! Neither arguments nor results are told, nor ids of sessions, which open them.

#[cfg(feature = "otlp")]
mod collector;
#[cfg(feature = "otlp")]
mod gauges;
#[cfg(not(feature = "otlp"))]
mod nobody;
#[cfg(feature = "otlp")]
mod span;

#[cfg(feature = "otlp")]
pub use collector::{Telemetry, Unusable};
#[cfg(not(feature = "otlp"))]
pub use nobody::{Telemetry, Unusable};

//! Stubs for a build without the feature `otlp`.

use crate::mcp::RequestOutcome;
use crate::metrics::Facts;
use gripfast::wire::Id;
use gripfast::{Answer, CallError, Json, JsonText};
use std::convert::Infallible;

/// OTLP export, which this build does not support.
#[derive(Debug)]
pub struct Telemetry(Infallible);

/// Invalid OTLP environment variables. This build does not read them.
#[derive(Debug, thiserror::Error)]
#[error("this build has no OTLP support (feature `otlp` is off)")]
pub struct TelemetryConfigError;

/// Span of a request in flight.
pub(crate) struct Span(Infallible);

impl Telemetry {
    /// Always `None`: the environment is not read.
    ///
    /// # Errors
    /// None.
    pub fn from_env() -> Result<Option<Self>, TelemetryConfigError> {
        Ok(None)
    }

    pub(crate) fn export_metrics(&self, _facts: impl Fn() -> Option<Facts> + Send + Sync + 'static) {
        match self.0 {}
    }

    pub(crate) fn server_span(&self, _id: Id<'_>, _method: &str, _params: Option<&Json>) -> Span {
        match self.0 {}
    }

    pub(crate) fn client_span(&self, _server: &str, _method: &str, _params: &Json) -> Span {
        match self.0 {}
    }

    /// Exports the remaining data.
    pub async fn shutdown(&self) {
        match self.0 {}
    }
}

impl Span {
    pub(crate) async fn run<T>(&self, _work: impl Future<Output = T>) -> T {
        match self.0 {}
    }

    pub(crate) fn with_trace_context(&self, _params: &Json) -> Option<JsonText> {
        match self.0 {}
    }

    pub(crate) fn finish_served(self, _outcome: &RequestOutcome) {
        match self.0 {}
    }

    pub(crate) fn finish_sent(self, _outcome: &Result<Answer, CallError>) {
        match self.0 {}
    }
}

//! OTLP exporters, configured by the standard `OTEL_*` environment variables.

use super::gauges;
use super::span::{Direction, Side, Span};
use crate::metrics::Facts;
use async_trait::async_trait;
use bytes::Bytes;
use gripfast::Json;
use gripfast::wire::Id;
use http::{Request, Response};
use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{ExporterBuildError, MetricExporter, SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use std::env;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;

/// Exports traces and metrics to a collector.
pub struct Telemetry {
    traces: SdkTracerProvider,
    meters: SdkMeterProvider,
    tracer: SdkTracer,
    server_side: Side,
    client_side: Side,
}

/// Invalid OTLP environment variables.
#[derive(Debug, thiserror::Error)]
#[error("the environment variables `OTEL_EXPORTER_OTLP_*` are invalid or not supported")]
pub struct TelemetryConfigError(#[from] ExporterBuildError);

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

impl Telemetry {
    /// Instrumentation scope of spans and metrics.
    const SCOPE: &str = "gripfast";
    /// Limit for the export of the remaining data at the end.
    const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

    /// Configures the export from the environment; `None` unless `OTEL_EXPORTER_OTLP_ENDPOINT` or the endpoint of one
    /// signal is set. It sends on the current Tokio runtime.
    ///
    /// # Errors
    /// The variables are contradictory, or ask for an unsupported option such as gRPC.
    pub fn from_env() -> Result<Option<Self>, TelemetryConfigError> {
        let is_off = env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
        let (traced, measured) = (is_enabled("TRACES"), is_enabled("METRICS"));
        if is_off || !(traced || measured) {
            return Ok(None);
        }
        let (mut traces, mut meters) = (SdkTracerProvider::builder(), SdkMeterProvider::builder());
        if traced {
            traces = traces.with_batch_exporter(
                SpanExporter::builder().with_http().with_http_client(ExportClient::new()).build()?,
            );
        }
        if measured {
            let exporter =
                MetricExporter::builder().with_http().with_http_client(ExportClient::new()).build()?;
            meters = meters.with_periodic_exporter(exporter);
        }
        Ok(Some(Self::from_providers(
            traces.with_resource(resource()).build(),
            meters.with_resource(resource()).build(),
        )))
    }

    pub(super) fn from_providers(traces: SdkTracerProvider, meters: SdkMeterProvider) -> Self {
        let meter = meters.meter(Self::SCOPE);
        Self {
            tracer: traces.tracer(Self::SCOPE),
            server_side: Side::server(&meter),
            client_side: Side::client(&meter),
            traces,
            meters,
        }
    }

    /// Exports the metrics of `/metrics` too. `facts` returns their current values, or `None` after the gateway ended.
    pub(crate) fn export_metrics(&self, facts: impl Fn() -> Option<Facts> + Send + Sync + 'static) {
        gauges::register(&self.meters.meter(Self::SCOPE), facts);
    }

    /// Starts the span of a client request.
    pub(crate) fn server_span(&self, id: Id<'_>, method: &str, params: Option<&Json>) -> Span {
        Span::begin(&self.tracer, &self.server_side, Direction::From(id), method, params)
    }

    /// Starts the span of a request to a server, as a child of the current client request.
    pub(crate) fn client_span(&self, server: &str, method: &str, params: &Json) -> Span {
        let under = Context::current();
        Span::begin(&self.tracer, &self.client_side, Direction::To { server, under }, method, Some(params))
    }

    /// Exports the remaining data, within a few seconds.
    pub async fn shutdown(&self) {
        let (traces, meters) = (self.traces.clone(), self.meters.clone());
        // Data that cannot be exported now is lost.
        let exporting = tokio::task::spawn_blocking(move || {
            let _ = traces.shutdown_with_timeout(Self::SHUTDOWN_TIMEOUT);
            let _ = meters.shutdown_with_timeout(Self::SHUTDOWN_TIMEOUT);
        });
        let _ = tokio::time::timeout(2 * Self::SHUTDOWN_TIMEOUT, exporting).await;
    }
}

/// True if this signal has an endpoint and is not switched off.
fn is_enabled(signal: &str) -> bool {
    let is_set = |name: &str| env::var(name).is_ok_and(|value| !value.is_empty());
    let is_off = env::var(format!("OTEL_{signal}_EXPORTER")).is_ok_and(|value| value == "none");
    !is_off
        && (is_set("OTEL_EXPORTER_OTLP_ENDPOINT") || is_set(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")))
}

/// Resource attributes. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` override the service name.
fn resource() -> Resource {
    let names = |variable: &str, word: &str| env::var(variable).is_ok_and(|value| value.contains(word));
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_attribute(version);
    if names("OTEL_SERVICE_NAME", "") || names("OTEL_RESOURCE_ATTRIBUTES", "service.name=") {
        return resource.build();
    }
    resource.with_service_name("gripfast").build()
}

/// HTTP client of the exporters. It sends on the gateway's runtime, because the exporters run on threads of their own.
#[derive(Debug)]
struct ExportClient {
    runtime: Handle,
    /// True if the last attempt failed, so that a failure is logged once and not with every batch.
    is_failing: AtomicBool,
}

impl ExportClient {
    const TIMEOUT: Duration = Duration::from_secs(10);
    const MAX_RESPONSE_BYTES: usize = 1 << 20;

    fn new() -> Self {
        Self { runtime: Handle::current(), is_failing: AtomicBool::new(false) }
    }

    fn log_result(&self, collector: &str, failure: Option<&str>) {
        match (failure, self.is_failing.swap(failure.is_some(), Ordering::Relaxed)) {
            (Some(cause), false) => tracing::warn!(
                collector,
                cause,
                "the collector `{collector}` does not accept telemetry: {cause}; calls continue, and gripfast retries"
            ),
            (None, true) => tracing::info!(collector, "the collector `{collector}` accepts telemetry again"),
            (Some(_), true) | (None, false) => {}
        }
    }
}

#[async_trait]
impl HttpClient for ExportClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let collector = request.uri().host().unwrap_or_default().to_owned();
        let sending = gripfast::exchange(request, Self::MAX_RESPONSE_BYTES, Self::TIMEOUT);
        let answered = self.runtime.spawn(sending).await?;
        match &answered {
            Ok(answer) if answer.status().is_success() => self.log_result(&collector, None),
            Ok(answer) => self.log_result(&collector, Some(&format!("it answered with {}", answer.status()))),
            Err(cause) => self.log_result(&collector, Some(cause)),
        }
        answered.map_err(Into::into)
    }
}

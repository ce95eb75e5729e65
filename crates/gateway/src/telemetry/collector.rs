//! Where telemetry goes: to the collector that the environment names, in the variables that every OpenTelemetry
//! program reads.

use super::gauges;
use super::span::{Direction, Side, Span};
use crate::metrics::Facts;
use async_trait::async_trait;
use bytes::Bytes;
use gripfast::RawValue;
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

/// What tells a collector.
pub struct Telemetry {
    traces: SdkTracerProvider,
    meters: SdkMeterProvider,
    tracer: SdkTracer,
    served: Side,
    sent: Side,
}

/// Why the environment cannot be followed.
#[derive(Debug, thiserror::Error)]
#[error("`OTEL_EXPORTER_OTLP_*` cannot be followed")]
pub struct Unusable(#[from] ExporterBuildError);

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

impl Telemetry {
    /// The name under which spans and metrics are told.
    const SCOPE: &str = "gripfast";
    /// At the end, what is left is told within this long.
    const LAST_WORDS: Duration = Duration::from_secs(3);

    /// What the environment asks for: nothing, unless `OTEL_EXPORTER_OTLP_ENDPOINT` or the endpoint of one signal is
    /// set. It sends on the tokio runtime that this is called on.
    ///
    /// # Errors
    /// The variables contradict themselves, or ask for what is not there, such as gRPC.
    pub fn from_env() -> Result<Option<Self>, Unusable> {
        let is_off = env::var("OTEL_SDK_DISABLED").is_ok_and(|said| said.eq_ignore_ascii_case("true"));
        let (traced, measured) = (is_wanted("TRACES"), is_wanted("METRICS"));
        if is_off || !(traced || measured) {
            return Ok(None);
        }
        let (mut traces, mut meters) = (SdkTracerProvider::builder(), SdkMeterProvider::builder());
        if traced {
            traces = traces.with_batch_exporter(
                SpanExporter::builder().with_http().with_http_client(Way::new()).build()?,
            );
        }
        if measured {
            let exporter = MetricExporter::builder().with_http().with_http_client(Way::new()).build()?;
            meters = meters.with_periodic_exporter(exporter);
        }
        Ok(Some(Self::of(
            traces.with_resource(ourselves()).build(),
            meters.with_resource(ourselves()).build(),
        )))
    }

    pub(super) fn of(traces: SdkTracerProvider, meters: SdkMeterProvider) -> Self {
        let meter = meters.meter(Self::SCOPE);
        Self {
            tracer: traces.tracer(Self::SCOPE),
            served: Side::server(&meter),
            sent: Side::client(&meter),
            traces,
            meters,
        }
    }

    /// What `/metrics` shows is told too; `facts` says what it is at a moment, as long as there is a gateway.
    pub(crate) fn measure(&self, facts: impl Fn() -> Option<Facts> + Send + Sync + 'static) {
        gauges::register(&self.meters.meter(Self::SCOPE), facts);
    }

    /// A request of a client begins.
    pub(crate) fn serving(&self, id: Id<'_>, method: &str, params: Option<&RawValue>) -> Span {
        Span::begin(&self.tracer, &self.served, Direction::From(id), method, params)
    }

    /// A request to a server begins, on behalf of the one that is being served.
    pub(crate) fn sending(&self, server: &str, method: &str, params: &RawValue) -> Span {
        let under = Context::current();
        Span::begin(&self.tracer, &self.sent, Direction::To { server, under }, method, Some(params))
    }

    /// Tells what is left to tell, within a few seconds.
    pub async fn finish(&self) {
        let (traces, meters) = (self.traces.clone(), self.meters.clone());
        // What cannot be told now is lost; nobody is left to be told of it.
        let telling = tokio::task::spawn_blocking(move || {
            let _ = traces.shutdown_with_timeout(Self::LAST_WORDS);
            let _ = meters.shutdown_with_timeout(Self::LAST_WORDS);
        });
        let _ = tokio::time::timeout(2 * Self::LAST_WORDS, telling).await;
    }
}

/// Whether there is somewhere to send this signal to, and it is not switched off.
fn is_wanted(signal: &str) -> bool {
    let is_set = |name: &str| env::var(name).is_ok_and(|value| !value.is_empty());
    let is_off = env::var(format!("OTEL_{signal}_EXPORTER")).is_ok_and(|said| said == "none");
    !is_off
        && (is_set("OTEL_EXPORTER_OTLP_ENDPOINT") || is_set(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")))
}

/// Who tells all this, unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` says otherwise.
fn ourselves() -> Resource {
    let names = |variable: &str, word: &str| env::var(variable).is_ok_and(|value| value.contains(word));
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_attribute(version);
    if names("OTEL_SERVICE_NAME", "") || names("OTEL_RESOURCE_ATTRIBUTES", "service.name=") {
        return resource.build();
    }
    resource.with_service_name("gripfast").build()
}

/// The way to the collector: our own client, on our own runtime, since whoever exports has a thread of its own.
#[derive(Debug)]
struct Way {
    runtime: Handle,
    /// Whether the last attempt failed; that is said once, not with every batch.
    is_cut: AtomicBool,
}

impl Way {
    const WITHIN: Duration = Duration::from_secs(10);
    const LONGEST_ANSWER: usize = 1 << 20;

    fn new() -> Self {
        Self { runtime: Handle::current(), is_cut: AtomicBool::new(false) }
    }

    fn note(&self, collector: &str, trouble: Option<&str>) {
        match (trouble, self.is_cut.swap(trouble.is_some(), Ordering::Relaxed)) {
            (Some(cause), false) => tracing::warn!(
                collector,
                cause,
                "the collector `{collector}` does not take telemetry: {cause}; calls go on, and it is tried again"
            ),
            (None, true) => tracing::info!(collector, "the collector `{collector}` takes telemetry again"),
            (Some(_), true) | (None, false) => {}
        }
    }
}

#[async_trait]
impl HttpClient for Way {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let collector = request.uri().host().unwrap_or_default().to_owned();
        let sending = gripfast::exchange(request, Self::LONGEST_ANSWER, Self::WITHIN);
        let answered = self.runtime.spawn(sending).await?;
        match &answered {
            Ok(answer) if answer.status().is_success() => self.note(&collector, None),
            Ok(answer) => self.note(&collector, Some(&format!("it answers with {}", answer.status()))),
            Err(cause) => self.note(&collector, Some(cause)),
        }
        answered.map_err(Into::into)
    }
}

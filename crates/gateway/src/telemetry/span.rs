//! Span and duration metric of one request: method, target, outcome and duration.

use crate::mcp::RequestOutcome;
use gripfast::wire::Id;
use gripfast::wire::patch::{Object, Patch, patch_payload};
use gripfast::{Answer, CallError, DurationHistogram, Json, JsonText};
use opentelemetry::metrics::{Histogram, Meter};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{FutureExt, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracer;
use std::time::Instant;

/// Role of the gateway in a request: server of a client, or client of a server.
#[derive(Clone)]
pub(super) struct Side {
    kind: SpanKind,
    durations: Histogram<f64>,
}

impl Side {
    /// Requests of clients.
    pub(super) fn server(meter: &Meter) -> Self {
        let help = "Duration of client requests.";
        Self { kind: SpanKind::Server, durations: durations(meter, "mcp.server.operation.duration", help) }
    }

    /// Requests to servers.
    pub(super) fn client(meter: &Meter) -> Self {
        let help = "Duration of requests to servers, including waits and retries.";
        Self { kind: SpanKind::Client, durations: durations(meter, "mcp.client.operation.duration", help) }
    }
}

fn durations(meter: &Meter, name: &'static str, help: &'static str) -> Histogram<f64> {
    let instrument = meter.f64_histogram(name).with_unit("s").with_description(help);
    instrument.with_boundaries(DurationHistogram::BOUNDS.to_vec()).build()
}

/// Span of a request in flight. A span that is dropped without an outcome counts as cancelled.
pub(crate) struct Span {
    context: Context,
    started: Instant,
    durations: Histogram<f64>,
    /// Labels of the duration. Their values come from closed sets, the config or the servers.
    labels: Vec<KeyValue>,
    /// Requested tool or prompt. It becomes a label only if it exists, so that clients cannot create labels.
    target: Option<KeyValue>,
    end: Option<End>,
}

/// Outcome of a request.
enum End {
    Success,
    /// Error type, and the JSON-RPC code if there is one.
    Failure {
        error: String,
        code: Option<i64>,
        target_exists: bool,
    },
}

/// Origin or destination of a request.
pub(super) enum Direction<'a> {
    /// From a client, with the id of the client's request.
    From(Id<'a>),
    /// To this server, as a child of `under`. It has no id here: the host assigns one to each attempt.
    To { server: &'a str, under: Context },
}

impl Span {
    /// Maximum length of an exported request id. Clients use numbers, or ids up to the length of a UUID.
    const MAX_ID_LEN: usize = 64;

    pub(super) fn begin(
        tracer: &SdkTracer,
        side: &Side,
        direction: Direction<'_>,
        method: &str,
        params: Option<&Json>,
    ) -> Self {
        let params = params.and_then(|params| Object::parse(params).ok());
        let method = method_label(method);
        let target = params.as_ref().and_then(|params| target(method, params));
        let mut labels = vec![KeyValue::new("mcp.method.name", method)];
        if method == "tools/call" {
            labels.push(KeyValue::new("gen_ai.operation.name", "execute_tool"));
        }
        let mut id = None;
        let parent = match direction {
            Direction::To { server, under } => {
                labels.push(KeyValue::new("gripfast.server", server.to_owned()));
                under
            }
            Direction::From(request) => {
                let text = request.as_text().unwrap_or_else(|| request.as_raw().into());
                id = (text.len() <= Self::MAX_ID_LEN)
                    .then(|| KeyValue::new("jsonrpc.request.id", text.into_owned()));
                let meta = params.as_ref().and_then(|params| params.object("_meta"));
                meta.map_or_else(Context::new, |meta| {
                    TraceContextPropagator::new().extract(&IncomingTrace(&meta))
                })
            }
        };
        let name = match &target {
            Some(target) => format!("{method} {}", target.value),
            None => method.to_owned(),
        };
        let attributes = labels.iter().cloned().chain(target.clone()).chain(id).collect::<Vec<_>>();
        let span = tracer.span_builder(name).with_kind(side.kind.clone()).with_attributes(attributes);
        let span = span.start_with_context(tracer, &parent);
        Self {
            context: parent.with_span(span),
            started: Instant::now(),
            durations: side.durations.clone(),
            labels,
            target,
            end: None,
        }
    }

    /// Runs `work` within this span, so that requests to servers become child spans.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        work.with_context(self.context.clone()).await
    }

    /// The parameters with the trace context of this span in `_meta`.
    pub(crate) fn with_trace_context(&self, params: &Json) -> Option<JsonText> {
        let mut trace = OutgoingTrace::default();
        TraceContextPropagator::new().inject_context(&self.context, &mut trace);
        let meta = trace.0.iter().fold(Patch::new(), |meta, (name, value)| meta.set_text(name, value));
        match meta.is_empty() {
            true => None,
            false => patch_payload(Some(params), &Patch::new(), &meta).ok(),
        }
    }

    /// Ends the span with the response to the client.
    pub(crate) fn finish_served(mut self, outcome: &RequestOutcome) {
        self.end = Some(match outcome {
            RequestOutcome::Answer(passed_on) => End::from_answer(&passed_on.answer),
            RequestOutcome::Result(_) | RequestOutcome::Page(_) => End::Success,
            RequestOutcome::Fault(fault) => {
                End::Failure { error: fault.code.to_string(), code: Some(fault.code), target_exists: false }
            }
            RequestOutcome::Failed(error) => End::from_error(error),
        });
    }

    /// Ends the span with the result of the request to a server.
    pub(crate) fn finish_sent(mut self, outcome: &Result<Answer, CallError>) {
        self.end = Some(match outcome {
            Ok(answer) => End::from_answer(answer),
            Err(error) => End::from_error(error),
        });
    }
}

impl End {
    fn from_answer(answer: &Answer) -> Self {
        match answer.result() {
            Err((code, _)) => {
                Self::Failure { error: code.to_string(), code: Some(code), target_exists: true }
            }
            Ok(_) if answer.is_tool_error() => {
                Self::Failure { error: "tool_error".to_owned(), code: None, target_exists: true }
            }
            Ok(_) => Self::Success,
        }
    }

    fn from_error(error: &CallError) -> Self {
        Self::Failure { error: error.code.as_str().to_owned(), code: None, target_exists: false }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let cancelled = || End::Failure { error: "cancelled".to_owned(), code: None, target_exists: false };
        let span = self.context.span();
        let mut labels = std::mem::take(&mut self.labels);
        let target_exists = match self.end.take().unwrap_or_else(cancelled) {
            End::Success => true,
            End::Failure { error, code, target_exists } => {
                let code = code.map(|code| KeyValue::new("rpc.response.status_code", code.to_string()));
                let attributes = code.into_iter().chain([KeyValue::new("error.type", error.clone())]);
                labels.extend(attributes.inspect(|attribute| span.set_attribute(attribute.clone())));
                span.set_status(Status::error(error));
                target_exists
            }
        };
        labels.extend(self.target.take().filter(|_| target_exists));
        self.durations.record(self.started.elapsed().as_secs_f64(), &labels);
        span.end();
    }
}

/// Label of a method: its name if it is known, otherwise `_OTHER`, because clients can send any name.
fn method_label(method: &str) -> &'static str {
    const METHODS: [&str; 20] = [
        "completion/complete",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "subscriptions/listen",
        "tasks/cancel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tasks/update",
        "tools/call",
        "tools/list",
        "initialize",
    ];
    METHODS.into_iter().find(|known| *known == method).unwrap_or("_OTHER")
}

/// The requested tool or prompt. Resources have no attribute, because their number is not bounded.
fn target(method: &str, params: &Object<'_>) -> Option<KeyValue> {
    let attribute = match method {
        "tools/call" => "gen_ai.tool.name",
        "prompts/get" => "gen_ai.prompt.name",
        _ => return None,
    };
    Some(KeyValue::new(attribute, params.text("name")?.into_owned()))
}

/// Trace context in the `_meta` of a client request.
struct IncomingTrace<'o, 'a>(&'o Object<'a>);

impl Extractor for IncomingTrace<'_, '_> {
    fn get(&self, key: &str) -> Option<&str> {
        // A trace context contains no characters that need escapes.
        let text = self.0.get(key)?.get().strip_prefix('"')?.strip_suffix('"')?;
        (!text.contains('\\')).then_some(text)
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

/// Trace context for a request to a server.
#[derive(Default)]
struct OutgoingTrace(Vec<(String, String)>);

impl Injector for OutgoingTrace {
    fn set(&mut self, key: &str, value: String) {
        // An empty `tracestate` would overwrite the one of the client.
        if !value.is_empty() {
            self.0.push((key.to_owned(), value));
        }
    }
}

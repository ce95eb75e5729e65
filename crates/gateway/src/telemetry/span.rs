//! What is told of one request: which it was, how it ended and how long it took, as a span and as a duration.

use crate::downstream::Told;
use gripfast::wire::Id;
use gripfast::wire::patch::{Object, Patch, patch_payload};
use gripfast::{Answer, CallError, RawValue, Spread};
use opentelemetry::metrics::{Histogram, Meter};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{FutureExt, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracer;
use std::time::Instant;

/// The side of an exchange that we are on.
#[derive(Clone)]
pub(super) struct Side {
    kind: SpanKind,
    durations: Histogram<f64>,
}

impl Side {
    /// Toward clients.
    pub(super) fn server(meter: &Meter) -> Self {
        let help = "How long requests of clients took.";
        Self { kind: SpanKind::Server, durations: durations(meter, "mcp.server.operation.duration", help) }
    }

    /// Toward servers.
    pub(super) fn client(meter: &Meter) -> Self {
        let help = "How long requests to servers took, waiting and repeating included.";
        Self { kind: SpanKind::Client, durations: durations(meter, "mcp.client.operation.duration", help) }
    }
}

fn durations(meter: &Meter, name: &'static str, help: &'static str) -> Histogram<f64> {
    let instrument = meter.f64_histogram(name).with_unit("s").with_description(help);
    instrument.with_boundaries(Spread::BOUNDS.to_vec()).build()
}

/// A request under way. Dropped before it was told how it ended, it was given up by whoever asked.
pub(crate) struct Span {
    context: Context,
    begun: Instant,
    durations: Histogram<f64>,
    /// What its duration is told by: of closed sets, or as many as the config and the servers have.
    labels: Vec<KeyValue>,
    /// What it asks for by name; a label only once it is known to be there.
    target: Option<KeyValue>,
    end: Option<End>,
}

/// How a request ended.
enum End {
    Well,
    /// With the type of the error, and its JSON-RPC code if it has one.
    Badly {
        error: String,
        code: Option<i64>,
        was_found: bool,
    },
}

/// Where a request comes from, or goes to.
pub(super) enum Direction<'a> {
    /// From a client, which calls it by this id.
    From(Id<'a>),
    /// To this server, under the span of what it is made for. It has an id for each attempt, which are the host's.
    To { server: &'a str, under: Context },
}

impl Span {
    /// The longest id that is told. Clients count, or make up something as long as a UUID.
    const LONGEST_ID: usize = 64;

    pub(super) fn begin(
        tracer: &SdkTracer,
        side: &Side,
        direction: Direction<'_>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Self {
        let params = params.and_then(|params| Object::parse(params).ok());
        let method = known(method);
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
            Direction::From(asked) => {
                let text = asked.as_text().unwrap_or_else(|| asked.as_raw().into());
                id = (text.len() <= Self::LONGEST_ID)
                    .then(|| KeyValue::new("jsonrpc.request.id", text.into_owned()));
                let meta = params.as_ref().and_then(|params| params.object("_meta"));
                meta.map_or_else(Context::new, |meta| TraceContextPropagator::new().extract(&Carried(&meta)))
            }
        };
        let name = match &target {
            Some(target) => format!("{method} {}", target.value),
            None => method.to_owned(),
        };
        let told = labels.iter().cloned().chain(target.clone()).chain(id).collect::<Vec<_>>();
        let span = tracer.span_builder(name).with_kind(side.kind.clone()).with_attributes(told);
        let span = span.start_with_context(tracer, &parent);
        Self {
            context: parent.with_span(span),
            begun: Instant::now(),
            durations: side.durations.clone(),
            labels,
            target,
            end: None,
        }
    }

    /// Does what is to be done for it, so that what it causes is told under it.
    pub(crate) async fn around<T>(&self, work: impl Future<Output = T>) -> T {
        work.with_context(self.context.clone()).await
    }

    /// The parameters with this span for the server to go on from.
    pub(crate) fn marked(&self, params: Box<RawValue>) -> Box<RawValue> {
        let mut marks = Marks::default();
        TraceContextPropagator::new().inject_context(&self.context, &mut marks);
        let meta = marks.0.iter().fold(Patch::new(), |meta, (name, value)| meta.set_text(name, value));
        match meta.is_empty() {
            true => params,
            false => patch_payload(Some(&params), &Patch::new(), &meta).unwrap_or(params),
        }
    }

    /// What the client was told.
    pub(crate) fn served(mut self, told: &Told) {
        self.end = Some(match told {
            Told::Answer(passed_on) => End::of(&passed_on.answer),
            Told::Result(_) | Told::Page(_) => End::Well,
            Told::Fault(fault) => {
                End::Badly { error: fault.code.to_string(), code: Some(fault.code), was_found: false }
            }
            Told::Failed(error) => End::failed(error),
        });
    }

    /// What came of the request to a server.
    pub(crate) fn sent(mut self, outcome: &Result<Answer, CallError>) {
        self.end = Some(match outcome {
            Ok(answer) => End::of(answer),
            Err(error) => End::failed(error),
        });
    }
}

impl End {
    fn of(answer: &Answer) -> Self {
        match answer.result() {
            Err((code, _)) => Self::Badly { error: code.to_string(), code: Some(code), was_found: true },
            Ok(_) if answer.is_tool_error() => {
                Self::Badly { error: "tool_error".to_owned(), code: None, was_found: true }
            }
            Ok(_) => Self::Well,
        }
    }

    fn failed(error: &CallError) -> Self {
        Self::Badly { error: error.code.word().to_owned(), code: None, was_found: false }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let given_up = || End::Badly { error: "cancelled".to_owned(), code: None, was_found: false };
        let span = self.context.span();
        let mut labels = std::mem::take(&mut self.labels);
        let was_found = match self.end.take().unwrap_or_else(given_up) {
            End::Well => true,
            End::Badly { error, code, was_found } => {
                let code = code.map(|code| KeyValue::new("rpc.response.status_code", code.to_string()));
                let told = code.into_iter().chain([KeyValue::new("error.type", error.clone())]);
                labels.extend(told.inspect(|told| span.set_attribute(told.clone())));
                span.set_status(Status::error(error));
                was_found
            }
        };
        labels.extend(self.target.take().filter(|_| was_found));
        self.durations.record(self.begun.elapsed().as_secs_f64(), &labels);
        span.end();
    }
}

/// A method that is told by its name; others are whatever a client makes up.
fn known(method: &str) -> &'static str {
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

/// The tool or prompt that is asked for. Resources are told by method alone: there is no end of them.
fn target(method: &str, params: &Object<'_>) -> Option<KeyValue> {
    let attribute = match method {
        "tools/call" => "gen_ai.tool.name",
        "prompts/get" => "gen_ai.prompt.name",
        _ => return None,
    };
    Some(KeyValue::new(attribute, params.text("name")?.into_owned()))
}

/// What a request carries of the trace that it is part of.
struct Carried<'a>(&'a Object<'a>);

impl Extractor for Carried<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        // A text without escapes, which is all that a trace context is made of.
        let text = self.0.get(key)?.get().strip_prefix('"')?.strip_suffix('"')?;
        (!text.contains('\\')).then_some(text)
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

/// What a request is to carry of the trace that it is part of.
#[derive(Default)]
struct Marks(Vec<(String, String)>);

impl Injector for Marks {
    fn set(&mut self, key: &str, value: String) {
        // An empty state says nothing, and would take away what the client said.
        if !value.is_empty() {
            self.0.push((key.to_owned(), value));
        }
    }
}

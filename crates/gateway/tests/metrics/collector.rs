//! OTLP export to a collector that the environment names, and calls while the collector is unreachable.

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Timeout of every wait, long enough for a slow machine; a test that reaches it has failed.
const LONG_ENOUGH: Duration = Duration::from_secs(30);

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// OTLP collector with the spans and metrics that it received.
struct Collector {
    url: String,
    spans: UnboundedReceiver<Span>,
    /// Names of metrics with the labels of each of their points.
    points: UnboundedReceiver<(String, Vec<KeyValue>)>,
}

type ExportSenders = (UnboundedSender<Span>, UnboundedSender<(String, Vec<KeyValue>)>);

impl Collector {
    async fn starts() -> Self {
        let ((tell_spans, spans), (tell_points, points)) = (unbounded_channel(), unbounded_channel());
        let router =
            Router::new().route("/v1/traces", post(take_spans)).route("/v1/metrics", post(take_metrics));
        let url = serve(router.with_state((tell_spans, tell_points))).await;
        Self { url, spans, points }
    }

    /// The next span of this kind.
    async fn span(&mut self, kind: SpanKind) -> Span {
        let told = async {
            loop {
                let span = self.spans.recv().await.unwrap();
                if span.kind == kind as i32 {
                    return span;
                }
            }
        };
        tokio::time::timeout(LONG_ENOUGH, told).await.unwrap_or_else(|_| panic!("no span of the {kind:?}"))
    }

    /// The labels of the next point of this metric.
    async fn point(&mut self, name: &str) -> Vec<KeyValue> {
        let told = async {
            loop {
                let (metric, labels) = self.points.recv().await.unwrap();
                if metric == name {
                    return labels;
                }
            }
        };
        tokio::time::timeout(LONG_ENOUGH, told).await.unwrap_or_else(|_| panic!("no point of `{name}`"))
    }
}

async fn take_spans(State((to, _)): State<ExportSenders>, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    for span in scopes.flat_map(|scope| scope.spans) {
        to.send(span).unwrap();
    }
}

async fn take_metrics(State((_, to)): State<ExportSenders>, body: Bytes) {
    let request = ExportMetricsServiceRequest::decode(body).unwrap();
    let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
    for metric in scopes.flat_map(|scope| scope.metrics) {
        let labels: Vec<Vec<KeyValue>> = match metric.data.unwrap() {
            Data::Gauge(gauge) => gauge.data_points.into_iter().map(|point| point.attributes).collect(),
            Data::Sum(sum) => sum.data_points.into_iter().map(|point| point.attributes).collect(),
            Data::Histogram(spread) => spread.data_points.into_iter().map(|point| point.attributes).collect(),
            Data::ExponentialHistogram(_) | Data::Summary(_) => {
                panic!("`{}` is of another kind", metric.name)
            }
        };
        for labels in labels {
            to.send((metric.name.clone(), labels)).unwrap();
        }
    }
}

/// Server with one tool, `t`, and the trace context of each call that it received: `_meta` and the header.
async fn modern_server() -> (String, UnboundedReceiver<Value>) {
    let (tell, heard) = unbounded_channel();
    let answer = |State(tell): State<UnboundedSender<Value>>, headers: HeaderMap, body: Bytes| async move {
        let asked: Value = serde_json::from_slice(&body).unwrap();
        let result = match asked["method"].as_str().unwrap() {
            "server/discover" => {
                json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "private" })
            }
            "tools/list" => {
                json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }], "ttlMs": 0, "cacheScope": "private" })
            }
            _ => {
                let mut told = asked["params"]["_meta"].clone();
                told["header"] = headers.get("traceparent").map_or("", |said| said.to_str().unwrap()).into();
                tell.send(told).unwrap();
                json!({ "content": [{ "type": "text", "text": "done" }], "isError": true })
            }
        };
        let mut result = result;
        result["resultType"] = "complete".into();
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
        ([("content-type", "application/json")], answer.to_string())
    };
    (serve(Router::new().fallback(post(answer)).with_state(tell)).await, heard)
}

async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // It ends with the test's runtime.
    tokio::spawn(axum::serve(listener, router).into_future());
    url
}

/// Gateway for that server, with a collector in its environment.
struct Gateway {
    child: Child,
    url: String,
    _dir: tempfile::TempDir,
}

impl Gateway {
    async fn starts(server: &str, collector: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("gripfast.toml");
        std::fs::write(&config, format!("[servers.raw]\nurl = '{server}/mcp'\nprotocol = 'modern'\n"))
            .unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gripfast"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(&config)
            .arg("--state-dir")
            .arg(dir.path());
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector);
        command.env("OTEL_BSP_SCHEDULE_DELAY", "50").env("OTEL_METRIC_EXPORT_INTERVAL", "100");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).await.unwrap();
        let (_, rest) = line.split_once("serves MCP at ").unwrap_or_else(|| panic!("{line}"));
        let url = rest.split_whitespace().next().unwrap().to_owned();
        Self { child, url, _dir: dir }
    }

    /// Calls `raw__t` as a part of the trace, with this argument.
    async fn call(&self, argument: &str) -> Value {
        let version = "io.modelcontextprotocol/protocolVersion";
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "raw__t",
            "arguments": { "secret": argument },
            "_meta": {
                version: "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "traceparent": format!("00-{TRACE}-{CALLER}-01"),
                "tracestate": "vendor=1",
            },
        } });
        let request = Request::post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", "raw__t")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let answer = tokio::time::timeout(LONG_ENOUGH, client.request(request)).await.unwrap().unwrap();
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap()
    }

    /// Stops the gateway and returns its stderr.
    async fn stops(mut self) -> String {
        let pid = rustix::process::Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let ended = tokio::time::timeout(LONG_ENOUGH, self.child.wait()).await.unwrap().unwrap();
        assert!(ended.success(), "{ended}");
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
        stderr
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text of a label.
fn label<'a>(labels: &'a [KeyValue], name: &str) -> Option<&'a str> {
    let found = labels.iter().find(|label| label.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        AnyValue::StringValue(text) => Some(text),
        other => panic!("`{name}` is {other:?}"),
    }
}

#[tokio::test]
async fn f04_a_call_is_exported_as_two_spans_of_its_clients_trace() {
    let mut collector = Collector::starts().await;
    let (server, mut heard) = modern_server().await;
    let gateway = Gateway::starts(&server, &collector.url).await;
    let answer = gateway.call("hush").await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");

    // Spans are exported when they end, so the inner one comes first.
    let sent = collector.span(SpanKind::Client).await;
    let served = collector.span(SpanKind::Server).await;
    for span in [&served, &sent] {
        assert_eq!(hex(&span.trace_id), TRACE);
        assert_eq!(label(&span.attributes, "mcp.method.name"), Some("tools/call"));
        assert_eq!(label(&span.attributes, "gen_ai.operation.name"), Some("execute_tool"));
        assert_eq!(label(&span.attributes, "error.type"), Some("tool_error"), "the tool says that it failed");
        assert!(!format!("{span:?}").contains("hush"), "spans contain no arguments: {span:?}");
    }
    assert_eq!((served.name.as_str(), sent.name.as_str()), ("tools/call raw__t", "tools/call t"));
    assert_eq!(hex(&served.parent_span_id), CALLER);
    assert_eq!(label(&served.attributes, "jsonrpc.request.id"), Some("1"));
    assert_eq!(sent.parent_span_id, served.span_id);
    assert_eq!(label(&sent.attributes, "gripfast.server"), Some("raw"));

    let meta = heard.recv().await.unwrap();
    assert_eq!(
        meta["traceparent"],
        format!("00-{TRACE}-{}-01", hex(&sent.span_id)),
        "the server goes on from ours"
    );
    assert_eq!(meta["header"], meta["traceparent"], "and whatever stands between need not know MCP");
    assert_eq!(meta["tracestate"], "vendor=1");
}

#[tokio::test]
async fn f04_metrics_are_exported_to_the_collector() {
    let mut collector = Collector::starts().await;
    let (server, _heard) = modern_server().await;
    let gateway = Gateway::starts(&server, &collector.url).await;
    gateway.call("hush").await;
    let served = collector.point("mcp.server.operation.duration").await;
    assert_eq!(label(&served, "mcp.method.name"), Some("tools/call"));
    assert_eq!(label(&served, "gen_ai.tool.name"), Some("raw__t"));
    let sent = collector.point("mcp.client.operation.duration").await;
    assert_eq!(label(&sent, "gripfast.server"), Some("raw"));
    let state = collector.point("gripfast_upstream_state").await;
    assert_eq!(label(&state, "server"), Some("raw"));
}

#[tokio::test]
async fn b08_an_unreachable_collector_affects_no_call_and_is_logged_once() {
    // The collector's port is closed now.
    let away = format!("http://{}", TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap());
    let (server, _heard) = modern_server().await;
    let gateway = Gateway::starts(&server, &away).await;
    for _ in 0..20 {
        assert_eq!(gateway.call("hush").await["result"]["isError"], true);
    }
    let said = gateway.stops().await;
    assert_eq!(said.matches("does not accept telemetry").count(), 2, "once for each signal: {said}");
}

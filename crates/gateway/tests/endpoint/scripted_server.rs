//! Server that answers with fixed bytes and records the bytes of its requests. The sample server parses and writes JSON
//! values, which would hide changes of their spelling by the gateway.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gripfast::JsonText;
use http::{HeaderMap, Method, StatusCode};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// A scripted server of one era.
pub(crate) struct ScriptedServer {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

struct Shared {
    answers: Vec<(&'static str, String)>,
    heard: Mutex<Vec<(String, String)>>,
    /// The headers of everything that arrived.
    shown: Mutex<Vec<HeaderMap>>,
}

const GREETING: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{},"prompts":{}},"serverInfo":{"name":"script","version":"1"}}"#;
const DISCOVERED: &str = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{},"prompts":{}},"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#;

impl ScriptedServer {
    /// Answers each method with the result beside it, or with an error: text that begins with `{"code"`. Several
    /// answers of one method are given in turn, and the last one from then on.
    pub(crate) async fn start(answers: &[(&'static str, &str)]) -> Self {
        let answers = answers.iter().map(|(method, answer)| (*method, (*answer).to_owned())).collect();
        let shared = Arc::new(Shared { answers, heard: Mutex::default(), shown: Mutex::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        // It ends with the test's runtime.
        tokio::spawn(axum::serve(listener, router).into_future());
        Self { url, shared }
    }

    /// The body of the last request for this method.
    pub(crate) fn last_request(&self, method: &str) -> String {
        let heard = self.shared.heard.lock().unwrap();
        let last = heard.iter().rev().find(|(asked, _)| asked == method);
        last.unwrap_or_else(|| panic!("no request for {method}")).1.clone()
    }

    /// Number of requests for this method.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.shared.heard.lock().unwrap().iter().filter(|(asked, _)| asked == method).count()
    }

    /// The headers of everything that arrived.
    pub(crate) fn shown(&self) -> Vec<HeaderMap> {
        self.shared.shown.lock().unwrap().clone()
    }

    /// Every body that arrived.
    pub(crate) fn everything(&self) -> Vec<String> {
        self.shared.heard.lock().unwrap().iter().map(|(_, body)| body.clone()).collect()
    }
}

impl Shared {
    /// Next answer for a method.
    fn answer(&self, asked: &str) -> Option<&str> {
        let times = self.heard.lock().unwrap().iter().filter(|(method, _)| method == asked).count();
        let known =
            || self.answers.iter().filter(|(method, _)| *method == asked).map(|(_, answer)| &**answer);
        let own = known().nth(times - 1).or_else(|| known().next_back());
        own.or(match asked {
            "initialize" => Some(GREETING),
            "server/discover" => Some(DISCOVERED),
            _ => None,
        })
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    shared.shown.lock().unwrap().push(headers);
    if method != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let body = String::from_utf8(body.to_vec()).unwrap();
    // It may contain numbers beyond any numeric type, so only the envelope is parsed.
    let message: BTreeMap<String, JsonText> = serde_json::from_str(&body).unwrap();
    let asked = message.get("method").map(|method| serde_json::from_str(method.get()).unwrap());
    let asked: String = asked.unwrap_or_default();
    let id = message.get("id").map(|id| id.get().to_owned());
    shared.heard.lock().unwrap().push((asked.clone(), body));
    let Some(id) = id else { return StatusCode::ACCEPTED.into_response() };
    let (outcome, status) = match shared.answer(&asked) {
        Some(error) if error.starts_with(r#"{"code""#) => {
            let modern = error.starts_with(r#"{"code":-3202"#);
            let status = if modern { StatusCode::BAD_REQUEST } else { StatusCode::OK };
            (format!(r#""error":{error}"#), status)
        }
        Some(result) => (format!(r#""result":{result}"#), StatusCode::OK),
        None => (r#""error":{"code":-32601,"message":"method not found"}"#.to_owned(), StatusCode::OK),
    };
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#);
    (status, [("content-type", "application/json")], body).into_response()
}

/// Scripted server on stdio: a child that answers with fixed bytes, the same ones each time.
pub(crate) struct ScriptedChild {
    dir: TempDir,
}

/// Reads one request per line, records it, and answers with the file named after its method.
const CHILD: &str = r#"while IFS= read -r line; do
  printf '%s\n' "$line" >> heard
  id=$(printf '%s' "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
  method=$(printf '%s' "$line" | sed -n 's/^{"jsonrpc":"2.0","id":[0-9]*,"method":"\([^"]*\)".*/\1/p' | tr / .)
  [ -n "$id" ] || continue
  printf '{"jsonrpc":"2.0","id":%s,' "$id"
  if [ -f "$method" ]; then cat "$method"; else printf '"error":{"code":-32601,"message":"method not found"}'; fi
  printf '}\n'
done
"#;

impl ScriptedChild {
    /// Answers each method with the result beside it, or with an error: text that begins with `{"code"`.
    pub(crate) fn with(answers: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let own = [("initialize", GREETING), ("server/discover", DISCOVERED)];
        for (method, answer) in own.iter().chain(answers) {
            let member = if answer.starts_with(r#"{"code""#) { "error" } else { "result" };
            std::fs::write(dir.path().join(method.replace('/', ".")), format!("\"{member}\":{answer}"))
                .unwrap();
        }
        std::fs::write(dir.path().join("child.sh"), CHILD).unwrap();
        Self { dir }
    }

    /// Config table of this server.
    pub(crate) fn table(&self, name: &str, protocol: &str) -> String {
        let mut table = format!("[servers.{name}]\ncommand = \"sh\"\nargs = [\"child.sh\"]\n");
        writeln!(table, "cwd = {:?}\nprotocol = {protocol:?}", self.dir.path()).unwrap();
        table
    }

    /// The last request for this method.
    pub(crate) fn last_request(&self, method: &str) -> String {
        let heard = std::fs::read_to_string(self.dir.path().join("heard")).unwrap();
        let said = format!("\"method\":\"{method}\"");
        let last = heard.lines().rev().find(|line| line.contains(&said));
        last.unwrap_or_else(|| panic!("no request for {method}")).to_owned()
    }
}

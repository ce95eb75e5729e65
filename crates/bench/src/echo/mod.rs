//! Test server of all measurements: returns as many bytes as requested with minimal cost, in both protocol eras, over
//! Streamable HTTP and stdio.
//!
//! It keeps no sessions and validates nothing, because its own cost is part of every figure.

mod http;
mod pipe;

pub(crate) use http::{CONNECTIONS, serve as over_http};
pub(crate) use pipe::serve as over_pipes;

use std::fmt::Write;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Tool that returns bytes.
pub(crate) const GIVE: &str = "give";
/// Tool that returns bytes as an event stream, if the transport supports that.
pub(crate) const STREAM: &str = "stream";

/// The parts of a message on which the answer depends.
#[derive(Deserialize)]
struct EchoRequest<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    name: Option<&'a str>,
    arguments: Option<Arguments>,
}

#[derive(Deserialize)]
struct Arguments {
    bytes: Option<usize>,
}

/// Encoding of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Sse,
}

/// Answer to a request.
struct Answer {
    form: Form,
    /// True if the request started a session.
    starts_session: bool,
    message: String,
}

/// Answers `message` as a server with this many tools; `None` for notifications.
fn answer(message: &[u8], tools: usize) -> Option<Answer> {
    let asked: EchoRequest<'_> = serde_json::from_slice(message).ok()?;
    let id = asked.id?;
    let is_modern = memmem::find(message, b"io.modelcontextprotocol/protocolVersion").is_some();
    let params = asked.params.as_ref();
    let mut form = Form::Json;
    let mut text = String::with_capacity(256);
    let _ = write!(text, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{");
    match asked.method {
        "initialize" => text.push_str(
            "\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}},\
             \"serverInfo\":{\"name\":\"bench\",\"version\":\"1\"}",
        ),
        "server/discover" => text.push_str(
            "\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{\"tools\":{}},\
             \"ttlMs\":3600000,\"cacheScope\":\"public\"",
        ),
        "tools/list" => {
            text.push_str("\"tools\":[");
            push_tools(&mut text, tools);
            text.push(']');
            if is_modern {
                text.push_str(",\"ttlMs\":3600000,\"cacheScope\":\"public\"");
            }
        }
        "tools/call" => {
            let bytes = params.and_then(|params| params.arguments.as_ref()).and_then(|given| given.bytes);
            if params.and_then(|params| params.name) == Some(STREAM) {
                form = Form::Sse;
            }
            text.push_str("\"content\":[{\"type\":\"text\",\"text\":\"");
            text.extend(std::iter::repeat_n('x', bytes.unwrap_or(0)));
            text.push_str("\"}]");
        }
        // A ping, or a list that this server does not have.
        _ => {}
    }
    if is_modern {
        let comma = if text.ends_with('{') { "" } else { "," };
        let _ = write!(text, "{comma}\"resultType\":\"complete\"");
    }
    text.push_str("}}");
    Some(Answer { form, starts_session: asked.method == "initialize", message: text })
}

/// Appends this many tools, those that are called first. Their size is realistic.
fn push_tools(text: &mut String, tools: usize) {
    for n in 0..tools.max(2) {
        let name = match n {
            0 => GIVE.to_owned(),
            1 => STREAM.to_owned(),
            _ => format!("tool_{n:05}"),
        };
        let comma = if n == 0 { "" } else { "," };
        let _ = write!(
            text,
            "{comma}{{\"name\":\"{name}\",\"description\":\"Gives as many bytes as it is asked for; it stands in for \
             a tool whose description takes a line or two to say what it does and when to use it.\",\
             \"inputSchema\":{{\"type\":\"object\",\"properties\":{{\"bytes\":{{\"type\":\"integer\",\
             \"description\":\"how many bytes to give\"}}}},\"required\":[\"bytes\"]}},\
             \"annotations\":{{\"readOnlyHint\":true}}}}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn ask(message: &str, tools: usize) -> Value {
        let answer = answer(message.as_bytes(), tools).expect("it has an id");
        serde_json::from_str(&answer.message).expect("it is JSON")
    }

    #[test]
    fn answers_have_the_requested_size_and_the_format_of_the_era() {
        let legacy = ask(
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"give","arguments":{"bytes":7}}}"#,
            2,
        );
        assert_eq!(legacy["id"], "a");
        assert_eq!(legacy["result"]["content"][0]["text"], "xxxxxxx");
        assert!(legacy["result"].get("resultType").is_none());
        let modern = ask(
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
            200,
        );
        assert_eq!(modern["result"]["tools"].as_array().map(Vec::len), Some(200));
        assert_eq!(modern["result"]["resultType"], "complete");
        assert_eq!(ask(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, 2)["result"], serde_json::json!({}));
        assert!(answer(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, 2).is_none());
    }
}

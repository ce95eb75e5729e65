//! The server behind everything that is measured: it gives as many bytes as it is asked for, as cheaply as possible,
//! in both protocol eras, over Streamable HTTP and on its pipes.
//!
//! It keeps no sessions and checks nothing: what it costs is in every figure, so it had better be little.

mod http;
mod pipe;

pub(crate) use http::serve as over_http;
pub(crate) use pipe::serve as over_pipes;

use std::fmt::Write;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The tool that gives bytes.
pub(crate) const GIVE: &str = "give";
/// The tool that gives them as an event stream, where the transport has those.
pub(crate) const STREAM: &str = "stream";

/// A message, as far as the answer depends on it.
#[derive(Deserialize)]
struct Asked<'a> {
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

/// How an answer goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Events,
}

/// The answer to a message: nothing if it wants none.
struct Answer {
    form: Form,
    /// Whether this began a session.
    begins: bool,
    message: String,
}

/// Answers `message` as a server with so many tools.
fn answer(message: &[u8], tools: usize) -> Option<Answer> {
    let asked: Asked<'_> = serde_json::from_slice(message).ok()?;
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
                form = Form::Events;
            }
            text.push_str("\"content\":[{\"type\":\"text\",\"text\":\"");
            text.extend(std::iter::repeat_n('x', bytes.unwrap_or(0)));
            text.push_str("\"}]");
        }
        // A ping, or a list of something that is not here.
        _ => {}
    }
    if is_modern {
        let comma = if text.ends_with('{') { "" } else { "," };
        let _ = write!(text, "{comma}\"resultType\":\"complete\"");
    }
    text.push_str("}}");
    Some(Answer { form, begins: asked.method == "initialize", message: text })
}

/// So many tools, the ones that are called first. Their size is that of real ones.
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
    fn it_gives_what_it_is_asked_for_in_the_form_of_the_era() {
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

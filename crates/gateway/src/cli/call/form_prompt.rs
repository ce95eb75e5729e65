//! Prompts at the terminal for the forms that a server sends during a call (elicitation).

use bytes::Bytes;
use gripfast::text::{escaped, escaped_lines};
use gripfast::transport::{BoxFuture, Listener};
use gripfast::wire::envelope::{self, Message};
use gripfast::wire::patch::Object;
use gripfast::{Json, JsonText};
use serde_json::{Map, Value, json};
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prompts on stderr and reads the answers from stdin.
pub(super) struct FormPrompt {
    /// The server that sends the forms.
    pub(super) server: String,
    /// Set while a prompt is on the terminal, so that progress lines do not overwrite it.
    pub(super) asking: Arc<AtomicBool>,
}

impl Listener for FormPrompt {
    fn on_message(&self, _message: &[u8]) {}

    fn on_request(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        let Ok(Message::Request(elicitation)) = Message::parse(&request) else { return None };
        if elicitation.method != "elicitation/create" {
            return None;
        }
        let params = elicitation.params?.to_owned();
        let (asking, server) = (Arc::clone(&self.asking), self.server.clone());
        Some(Box::pin(async move {
            let answering = tokio::task::spawn_blocking(move || {
                asking.store(true, Ordering::Relaxed);
                let answer = fill_in(&server, &params, &mut io::stdin().lock(), &mut io::stderr().lock());
                asking.store(false, Ordering::Relaxed);
                answer
            });
            let answer = answering.await.map_err(io::Error::other).and_then(|answer| answer);
            // The terminal is gone.
            let result = answer.unwrap_or_else(|_| json!({ "action": "cancel" }));
            let result = JsonText::parse(result.to_string()).expect("a JSON value prints as JSON");
            match Message::parse(&request) {
                Ok(Message::Request(elicitation)) => envelope::response(elicitation.id, &result),
                Ok(_) | Err(_) => Vec::new(),
            }
        }))
    }
}

/// Prompts for each field of a form, in the order of its schema. The end of the input declines the form.
fn fill_in(server: &str, params: &Json, input: &mut dyn BufRead, out: &mut dyn Write) -> io::Result<Value> {
    let order = field_names(params);
    let params: Value = serde_json::from_str(params.get())?;
    let declined = || json!({ "action": "decline" });
    if params["mode"].as_str().is_some_and(|mode| mode != "form") {
        return Ok(declined());
    }
    let message = params["message"].as_str().unwrap_or_default();
    // Overwrites the progress line.
    writeln!(out, "\r{:60}\rserver `{server}` asks: {}", "", escaped_lines(message))?;
    let schema = &params["requestedSchema"];
    if order.is_empty() {
        write!(out, "  agree? [y/N] ")?;
        out.flush()?;
        let agreed =
            read_line(input)?.is_some_and(|typed| matches!(&*typed.to_ascii_lowercase(), "y" | "yes"));
        return Ok(if agreed { json!({ "action": "accept", "content": {} }) } else { declined() });
    }
    writeln!(out, "  (Ctrl-D declines)")?;
    let mut content = Map::new();
    for name in &order {
        let field = &schema["properties"][name];
        let required = schema["required"].as_array().is_some_and(|names| names.iter().any(|it| it == name));
        loop {
            write!(out, "  {}", escaped(&prompt(name, field, required)))?;
            out.flush()?;
            let Some(typed) = read_line(input)? else {
                writeln!(out)?;
                return Ok(declined());
            };
            match parse_value(&typed, field, required) {
                Ok(Some(value)) => {
                    content.insert(name.clone(), value);
                    break;
                }
                Ok(None) => break,
                Err(expected) => writeln!(out, "  expected {}", escaped(&expected))?,
            }
        }
    }
    Ok(json!({ "action": "accept", "content": content }))
}

/// The fields of a form in the order of the schema, which a `Value` does not keep.
fn field_names(params: &Json) -> Vec<String> {
    let order = || {
        let params = Object::parse(params).ok()?;
        let fields = params.object("requestedSchema")?.object("properties")?;
        Some(fields.iter().map(|(name, _)| name.to_owned()).collect())
    };
    order().unwrap_or_default()
}

/// Reads one trimmed line; `None` at the end of the input.
fn read_line(input: &mut dyn BufRead) -> io::Result<Option<String>> {
    let mut typed = String::new();
    Ok((input.read_line(&mut typed)? > 0).then(|| typed.trim().to_owned()))
}

/// The prompt for one field.
fn prompt(name: &str, field: &Value, required: bool) -> String {
    let title = field["title"].as_str().unwrap_or(name);
    let mut notes: Vec<String> = field["description"].as_str().map(str::to_owned).into_iter().collect();
    match (choices(field), field["type"].as_str()) {
        (Some(choices), Some("array")) => {
            notes.push(format!("some of {}, separated by commas", choices.join(", ")))
        }
        (Some(choices), _) => notes.push(format!("one of {}", choices.join(", "))),
        (None, Some("boolean")) => notes.push("y or n".to_owned()),
        (None, Some(kind @ ("number" | "integer"))) => notes.push(kind.to_owned()),
        (None, _) => {}
    }
    if !required {
        notes.push("optional".to_owned());
    }
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    let default = match &field["default"] {
        Value::Null => String::new(),
        Value::String(text) => format!(" [{text}]"),
        other => format!(" [{other}]"),
    };
    format!("{title}{notes}{default}: ")
}

/// The allowed values of a field, if its schema lists them.
fn choices(field: &Value) -> Option<Vec<&str>> {
    let field = if field["type"] == "array" { &field["items"] } else { field };
    let named = field["enum"].as_array().map(|values| values.iter().filter_map(Value::as_str).collect());
    named.or_else(|| {
        let options = field["oneOf"].as_array().or_else(|| field["anyOf"].as_array())?;
        Some(options.iter().filter_map(|option| option["const"].as_str()).collect())
    })
}

/// The value of a field; `None` to leave it out. The error names what was expected.
fn parse_value(typed: &str, field: &Value, required: bool) -> Result<Option<Value>, String> {
    if typed.is_empty() {
        return match &field["default"] {
            Value::Null if required => Err("a value".to_owned()),
            Value::Null => Ok(None),
            default => Ok(Some(default.clone())),
        };
    }
    let one_of = |typed: &str| match choices(field) {
        Some(choices) if !choices.contains(&typed) => Err(format!("one of {}", choices.join(", "))),
        Some(_) | None => Ok(Value::from(typed)),
    };
    match field["type"].as_str() {
        Some("boolean") => match &*typed.to_ascii_lowercase() {
            "y" | "yes" | "true" => Ok(Some(true.into())),
            "n" | "no" | "false" => Ok(Some(false.into())),
            _ => Err("y or n".to_owned()),
        },
        Some("integer") => {
            typed.parse::<i64>().map(|number| Some(number.into())).map_err(|_| "a whole number".into())
        }
        Some("number") => match serde_json::from_str(typed) {
            Ok(number @ Value::Number(_)) => Ok(Some(number)),
            Ok(_) | Err(_) => Err("a number".to_owned()),
        },
        Some("array") => {
            let values: Result<Vec<Value>, String> =
                typed.split(',').map(|value| one_of(value.trim())).collect();
            values.map(|values| Some(values.into()))
        }
        _ => one_of(typed).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(schema: &str, typed: &str) -> (Value, String) {
        let mut shown = Vec::new();
        let params = format!(r#"{{"message":"Who\u001b[2J?","requestedSchema":{schema}}}"#);
        let params = JsonText::parse(params).unwrap();
        let answer = fill_in("demo", &params, &mut typed.as_bytes(), &mut shown).unwrap();
        (answer, String::from_utf8(shown).unwrap())
    }

    #[test]
    fn each_field_is_asked_for_until_its_value_is_valid() {
        let schema = r#"{ "required": ["name", "age", "size", "sure"], "properties": {
            "name": { "type": "string", "title": "Your name", "default": "Ann" },
            "age": { "type": "integer", "description": "in years" },
            "size": { "type": "string", "enum": ["s", "m"] },
            "sure": { "type": "boolean" },
            "tags": { "type": "array", "items": { "enum": ["a", "b"] } },
            "note": { "type": "string" }
        }}"#;
        let (answer, shown) = answered(schema, "\n\nold\n41\nxl\nm\nperhaps\ny\na, b\n\n");
        let content = json!({ "name": "Ann", "age": 41, "size": "m", "sure": true, "tags": ["a", "b"] });
        assert_eq!(answer, json!({ "action": "accept", "content": content }), "{shown}");
        for expected in
            ["Your name [Ann]: ", "age (in years; integer): ", "expected a whole number", "note (optional): "]
        {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
    }

    #[test]
    fn the_end_of_the_input_declines_the_form() {
        let schema = r#"{"properties":{"name":{"type":"string"}}}"#;
        assert_eq!(answered(schema, "").0, json!({ "action": "decline" }));
        assert_eq!(answered("{}", "\n").0, json!({ "action": "decline" }));
        assert_eq!(answered("{}", "y\n").0, json!({ "action": "accept", "content": {} }));
    }

    #[test]
    fn g07_a_form_cannot_send_control_sequences_to_the_terminal() {
        let schema = r#"{"properties":{"a\u001b[2J":{"title":"b\u001b]0;x\u0007\n"}}}"#;
        let (_, shown) = answered(schema, "x\n");
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown:?}");
    }
}

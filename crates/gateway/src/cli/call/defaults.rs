//! `--accept-defaults`: the forms that a server wants to have filled in on the way to its answer are accepted with the
//! defaults that they name themselves.

use bytes::Bytes;
use gripfast::RawValue;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::wire::envelope::{self, Message};
use gripfast::wire::patch::{Object, Patch};
use serde_json::{Value, json};

/// What a server is told that it may ask.
pub(super) fn capabilities() -> Value {
    json!({ "elicitation": { "form": {} } })
}

/// Answers for the person who is not asked.
pub(super) struct Defaults;

impl Listener for Defaults {
    fn said(&self, _message: &[u8]) {}

    fn asked(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        let Ok(Message::Request(asked)) = Message::parse(&request) else { return None };
        if asked.method != "elicitation/create" {
            return None;
        }
        let filled = asked.params.and_then(|params| filled_in(&Object::parse(params).ok()?));
        let action = if filled.is_some() { "accept" } else { "decline" };
        let mut result = Patch::new().set_text("action", action);
        if let Some(content) = filled {
            result = result.set_owned("content", content);
        }
        let response = envelope::response(asked.id, &result.to_object());
        Some(Box::pin(std::future::ready(response)))
    }
}

/// The form with its defaults; `None` if a field must be there and has none, or if it is no form at all.
fn filled_in(form: &Object<'_>) -> Option<Box<RawValue>> {
    if form.text("mode").is_some_and(|mode| mode != "form") {
        return None;
    }
    let schema = form.object("requestedSchema")?;
    let mut content = Patch::new();
    let mut filled = Vec::new();
    if let Some(properties) = schema.object("properties") {
        for (name, property) in properties.iter() {
            let Ok(property) = Object::parse(property) else { continue };
            if let Some(default) = property.get("default") {
                content = content.set_owned(name.to_owned(), default.to_owned());
                filled.push(name.to_owned());
            }
        }
    }
    let required = schema.get("required").map_or("[]", RawValue::get);
    let required: Vec<String> = serde_json::from_str(required).ok()?;
    required.iter().all(|name| filled.contains(name)).then(|| content.to_object())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::Outcome;

    fn answered(params: Value) -> Option<Value> {
        let request = json!({ "jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params });
        let answer = Defaults.asked(Bytes::from(request.to_string()))?;
        let answer = futures_util::FutureExt::now_or_never(answer).expect("nobody has to think");
        let Ok(Message::Response(response)) = Message::parse(&answer) else { panic!("no response") };
        let Outcome::Result(result) = response.outcome else { panic!("an error") };
        Some(serde_json::from_str(result.get()).expect("a result is JSON"))
    }

    #[test]
    fn a_form_is_accepted_with_its_own_defaults_as_they_are_spelled() {
        let schema = json!({ "type": "object", "required": ["name"], "properties": {
            "name": { "type": "string", "default": "Ann" },
            "score": { "type": "number", "default": 95.5 },
            "comment": { "type": "string" },
        }});
        let answer = answered(json!({ "message": "Who?", "requestedSchema": schema }));
        assert_eq!(answer, Some(json!({ "action": "accept", "content": { "name": "Ann", "score": 95.5 } })));
    }

    #[test]
    fn what_a_person_has_to_say_is_declined() {
        let open =
            json!({ "type": "object", "required": ["name"], "properties": { "name": { "type": "string" } } });
        let declined = Some(json!({ "action": "decline" }));
        assert_eq!(answered(json!({ "message": "Who?", "requestedSchema": open })), declined);
        assert_eq!(
            answered(json!({ "mode": "url", "message": "Go", "url": "https://example.com/" })),
            declined
        );
    }

    #[test]
    fn nothing_else_is_answered() {
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#;
        assert!(Defaults.asked(Bytes::from_static(request.as_bytes())).is_none());
    }
}

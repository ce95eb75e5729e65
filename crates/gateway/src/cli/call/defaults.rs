//! `--accept-defaults`: accepts forms that a server sends during a call (elicitation), with the defaults in their
//! schemas.

use bytes::Bytes;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::wire::envelope::{self, Message};
use gripfast::wire::patch::{Object, Patch};
use gripfast::{Json, JsonText};
use serde_json::{Value, json};

/// Client capabilities of a call that can answer forms.
pub(super) fn capabilities() -> Value {
    json!({ "elicitation": { "form": {} } })
}

/// Answers each form with its defaults.
pub(super) struct DefaultAnswers;

impl Listener for DefaultAnswers {
    fn on_message(&self, _message: &[u8]) {}

    fn on_request(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        let Ok(Message::Request(elicitation)) = Message::parse(&request) else { return None };
        if elicitation.method != "elicitation/create" {
            return None;
        }
        let filled = elicitation.params.and_then(|params| default_content(&Object::parse(params).ok()?));
        let action = if filled.is_some() { "accept" } else { "decline" };
        let mut result = Patch::new().set_text("action", action);
        if let Some(content) = filled {
            result = result.set_owned("content", content);
        }
        let response = envelope::response(elicitation.id, &result.to_object());
        Some(Box::pin(std::future::ready(response)))
    }
}

/// The content of a form from its defaults; `None` if a required field has none, or if the request is not a form.
fn default_content(form: &Object<'_>) -> Option<JsonText> {
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
    let required = schema.get("required").map_or("[]", Json::get);
    let required: Vec<String> = serde_json::from_str(required).ok()?;
    required.iter().all(|name| filled.contains(name)).then(|| content.to_object())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::Outcome;

    fn answered(params: Value) -> Option<Value> {
        let request = json!({ "jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params });
        let answer = DefaultAnswers.on_request(Bytes::from(request.to_string()))?;
        let answer = futures_util::FutureExt::now_or_never(answer).expect("the answer is ready at once");
        let Ok(Message::Response(response)) = Message::parse(&answer) else { panic!("no response") };
        let Outcome::Result(result) = response.outcome else { panic!("an error") };
        Some(serde_json::from_str(result.get()).expect("a result is JSON"))
    }

    #[test]
    fn a_form_is_accepted_with_its_own_defaults_unchanged() {
        let schema = json!({ "type": "object", "required": ["name"], "properties": {
            "name": { "type": "string", "default": "Ann" },
            "score": { "type": "number", "default": 95.5 },
            "comment": { "type": "string" },
        }});
        let answer = answered(json!({ "message": "Who?", "requestedSchema": schema }));
        assert_eq!(answer, Some(json!({ "action": "accept", "content": { "name": "Ann", "score": 95.5 } })));
    }

    #[test]
    fn a_form_with_required_fields_and_no_defaults_is_declined() {
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
    fn requests_other_than_elicitation_are_not_answered() {
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#;
        assert!(DefaultAnswers.on_request(Bytes::from_static(request.as_bytes())).is_none());
    }
}

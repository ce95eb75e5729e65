//! Input that a modern server requires before it answers: the server returns `input_required`, and the client repeats
//! the request with the input. This module puts the input requests to a [`Listener`] as legacy server requests and
//! adds the responses to the next request.

use crate::transport::Listener;
use crate::upstream::Answer;
use bytes::Bytes;
use gripfast_wire::envelope::{self, Message};
use gripfast_wire::patch::{Object, Patch, patch_payload};
use gripfast_wire::{Json, JsonText, Outcome};

/// Maximum number of rounds of input for one request.
pub const MAX_ROUNDS: usize = 8;

/// Result of collecting input.
#[derive(Debug)]
pub enum CollectedInput {
    /// No input is required: the answer is final.
    NotRequired,
    /// All input requests are answered: repeat the request with these parameters.
    Retry(JsonText),
    /// The listener refused, with this message.
    Refused(String),
    /// The input cannot be collected, for this reason: the listener does not support it, or it is not a valid
    /// request.
    Unsupported(String),
}

/// Collects from `listener` the input that `answer` requires; `params` are those of the request.
pub async fn collect(listener: &dyn Listener, params: &Json, answer: &Answer) -> CollectedInput {
    if !answer.members().input_required {
        return CollectedInput::NotRequired;
    }
    let Outcome::Result(result) = answer.outcome() else { return CollectedInput::NotRequired };
    collect_from_result(listener, params, result).await
}

/// Collects the input for a result with `resultType: "input_required"` that did not come from a server of this host.
pub async fn collect_from_result(listener: &dyn Listener, params: &Json, result: &Json) -> CollectedInput {
    let Ok(result) = Object::parse(result) else { return CollectedInput::NotRequired };
    let mut responses = Patch::new();
    if let Some(requests) = result.object("inputRequests") {
        for (key, request) in requests.iter() {
            match ask(listener, request).await {
                Ok(response) => responses = responses.set_owned(key.to_owned(), response),
                Err(without) => return without,
            }
        }
    }
    let mut retry = Patch::new().set_owned("inputResponses", responses.to_object());
    if let Some(state) = result.get("requestState") {
        retry = retry.set_owned("requestState", state.to_owned());
    }
    match patch_payload(Some(params), &retry, &Patch::new()) {
        Ok(params) => CollectedInput::Retry(params),
        Err(error) => CollectedInput::Unsupported(error.to_string()),
    }
}

/// Puts one input request to the listener.
async fn ask(listener: &dyn Listener, request: &Json) -> Result<JsonText, CollectedInput> {
    let unclear =
        || CollectedInput::Unsupported("the server's input request is not a valid request".to_owned());
    let request = Object::parse(request).map_err(|_| unclear())?;
    let method = request.text("method").ok_or_else(unclear)?;
    let params = request.get("params").map(to_legacy_params);
    let message = Bytes::from(envelope::request(0, &method, params.as_deref()));
    let Some(answer) = listener.on_request(message) else {
        let text = format!("the server needs `{method}`, which this client does not support");
        return Err(CollectedInput::Unsupported(text));
    };
    let response = answer.await;
    match Message::parse(&response) {
        Ok(Message::Response(response)) => match response.outcome {
            Outcome::Result(result) => Ok(result.to_owned()),
            Outcome::Error(error) => Err(CollectedInput::Refused(error.message.into_owned())),
        },
        Ok(_) | Err(_) => Err(unclear()),
    }
}

/// Adds the `elicitationId` that legacy URL elicitations have and modern ones do not.
fn to_legacy_params(params: &Json) -> JsonText {
    let Ok(object) = Object::parse(params) else { return params.to_owned() };
    let by_url = object.text("mode").is_some_and(|mode| mode == "url");
    if !by_url || object.has("elicitationId") {
        return params.to_owned();
    }
    // The id only has to be unique among those the same client sees, and the URL is.
    let id = object.text("url").unwrap_or_default().into_owned();
    Patch::new().set_text("elicitationId", &id).apply(&object)
}

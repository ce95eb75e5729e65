//! Input that a modern server wants before it answers a legacy client: its questions are put to the client
//! as requests, and the answers go back with a new request.

use super::ask::{Asked, Fault};
use bytes::Bytes;
use gripfast::wire::envelope::{self, Message};
use gripfast::wire::patch::{Object, Patch, patch_payload};
use gripfast::wire::results::ResultType;
use gripfast::wire::{Era, Outcome, codes};
use gripfast::{Answer, RawValue};

/// What came of looking for wanted input.
pub(super) enum Collected {
    /// The answer is an answer.
    NothingWanted,
    /// The client answered; ask the server again with this.
    Retry(Box<RawValue>),
    /// The client cannot be asked, or would not answer.
    Refused(Fault),
}

/// Collects the input that `answer` wants from the client of `asked`, whose request had these `params`.
pub(super) async fn collect(asked: &Asked<'_>, params: &RawValue, answer: &Answer) -> Collected {
    // A modern client is told what is wanted, and comes back by itself.
    if asked.era == Era::Modern {
        return Collected::NothingWanted;
    }
    let Outcome::Result(result) = answer.outcome() else { return Collected::NothingWanted };
    let Ok(result) = Object::parse(result) else { return Collected::NothingWanted };
    if !matches!(ResultType::read(&result), ResultType::InputRequired) {
        return Collected::NothingWanted;
    }
    let mut responses = Patch::new();
    if let Some(requests) = result.object("inputRequests") {
        for (key, request) in requests.iter() {
            match ask(asked, request).await {
                Ok(response) => responses = responses.set_owned(key.to_owned(), response),
                Err(fault) => return Collected::Refused(fault),
            }
        }
    }
    let mut retry = Patch::new().set_owned("inputResponses", responses.to_object());
    if let Some(state) = result.get("requestState") {
        retry = retry.set_owned("requestState", state.to_owned());
    }
    match patch_payload(Some(params), &retry, &Patch::new()) {
        Ok(params) => Collected::Retry(params),
        Err(error) => Collected::Refused(Fault::new(codes::INVALID_PARAMS, error.to_string())),
    }
}

/// Puts one question to the client.
async fn ask(asked: &Asked<'_>, request: &RawValue) -> Result<Box<RawValue>, Fault> {
    let unclear = || Fault::new(codes::INTERNAL_ERROR, "the server asks something that is no request");
    let request = Object::parse(request).map_err(|_| unclear())?;
    let method = request.text("method").ok_or_else(unclear)?;
    let params = request.get("params").map(in_old_words);
    let message = Bytes::from(envelope::request(0, &method, params.as_deref()));
    let Some(answer) = asked.ear.asked(message) else {
        let text = format!("the server needs `{method}`, which this client does not have");
        return Err(Fault::new(codes::INTERNAL_ERROR, text));
    };
    let response = answer.await;
    match Message::parse(&response) {
        Ok(Message::Response(response)) => match response.outcome {
            Outcome::Result(result) => Ok(result.to_owned()),
            Outcome::Error(error) => Err(Fault::new(error.code, error.message)),
        },
        Ok(_) | Err(_) => Err(unclear()),
    }
}

/// A URL question of the legacy era has an id of its own, which the modern one dropped.
fn in_old_words(params: &RawValue) -> Box<RawValue> {
    let Ok(object) = Object::parse(params) else { return params.to_owned() };
    let by_url = object.text("mode").is_some_and(|mode| mode == "url");
    if !by_url || object.get("elicitationId").is_some() {
        return params.to_owned();
    }
    // It only has to differ from others that the same client sees, and its address does.
    let id = object.text("url").unwrap_or_default().into_owned();
    Patch::new().set_text("elicitationId", &id).apply(&object)
}

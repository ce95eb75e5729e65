//! Input that a modern server wants before it answers. Such a server does not ask on the way: it answers that it wants
//! to know something, and is asked again with that. Here its questions are put to a [`Listener`], in the words in which a
//! legacy server asks, and the answers become part of the next request.

use crate::transport::Listener;
use crate::upstream::Answer;
use bytes::Bytes;
use gripfast_wire::envelope::{self, Message};
use gripfast_wire::patch::{Object, Patch, patch_payload};
use gripfast_wire::{Outcome, RawValue};

/// How often a server may want more before whoever asks loses patience.
pub const ROUNDS: usize = 8;

/// What came of looking for wanted input.
#[derive(Debug)]
pub enum Collected {
    /// The answer is an answer.
    NothingWanted,
    /// All questions are answered: the server is to be asked again with these parameters.
    Retry(Box<RawValue>),
    /// Whoever was asked refused to answer, in these words.
    Refused(String),
    /// It could not be asked, for this reason: there is nobody who can be asked this, or it is no question.
    NotAsked(String),
}

/// Collects from `listener` what `answer` wants; the request had these `params`.
pub async fn collect(listener: &dyn Listener, params: &RawValue, answer: &Answer) -> Collected {
    if !answer.members().input_required {
        return Collected::NothingWanted;
    }
    let Outcome::Result(result) = answer.outcome() else { return Collected::NothingWanted };
    collect_for(listener, params, result).await
}

/// The same for a result with `resultType: "input_required"` that did not come from a server of this host.
pub async fn collect_for(listener: &dyn Listener, params: &RawValue, result: &RawValue) -> Collected {
    let Ok(result) = Object::parse(result) else { return Collected::NothingWanted };
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
        Ok(params) => Collected::Retry(params),
        Err(error) => Collected::NotAsked(error.to_string()),
    }
}

/// Puts one question.
async fn ask(listener: &dyn Listener, request: &RawValue) -> Result<Box<RawValue>, Collected> {
    let unclear = || Collected::NotAsked("the server asks something that is no request".to_owned());
    let request = Object::parse(request).map_err(|_| unclear())?;
    let method = request.text("method").ok_or_else(unclear)?;
    let params = request.get("params").map(in_old_words);
    let message = Bytes::from(envelope::request(0, &method, params.as_deref()));
    let Some(answer) = listener.asked(message) else {
        let text = format!("the server needs `{method}`, which this client does not have");
        return Err(Collected::NotAsked(text));
    };
    let response = answer.await;
    match Message::parse(&response) {
        Ok(Message::Response(response)) => match response.outcome {
            Outcome::Result(result) => Ok(result.to_owned()),
            Outcome::Error(error) => Err(Collected::Refused(error.message.into_owned())),
        },
        Ok(_) | Err(_) => Err(unclear()),
    }
}

/// A URL question of the legacy era has an id of its own, which the modern one dropped.
fn in_old_words(params: &RawValue) -> Box<RawValue> {
    let Ok(object) = Object::parse(params) else { return params.to_owned() };
    let by_url = object.text("mode").is_some_and(|mode| mode == "url");
    if !by_url || object.has("elicitationId") {
        return params.to_owned();
    }
    // It only has to differ from others that the same client sees, and its address does.
    let id = object.text("url").unwrap_or_default().into_owned();
    Patch::new().set_text("elicitationId", &id).apply(&object)
}

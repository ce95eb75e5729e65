//! A POST of a modern client: checked against its headers, answered with JSON or a stream, or with the
//! question that has to be answered first. Going away is cancelling.

use super::Gateway;
use super::ask::{Fault, who_answers};
use super::body::Received;
use super::client::Client;
use super::http::{First, KEEP_ALIVE, begin_call, first, json_response, plain, stream, wire};
use super::listen::Listening;
use super::outbox::Outbox;
use super::pieces::{self, Event};
use super::presence;
use super::questions::Abilities;
use super::refusal::{self, Overload};
use super::respond;
use super::suspended::{Inputs, ModernEar, NotGiven, Origin, Step, Suspended};
use crate::shares::{Peer, Share};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use gripfast::wire::envelope::{self, Message, Request};
use gripfast::wire::headers::{Mirrored, ParamHeaders};
use gripfast::wire::patch::Object;
use gripfast::wire::{Era, Id, RequestId, codes, sse};
use gripfast::{Principal, RawValue};
use http::{HeaderMap, StatusCode};
use std::sync::Arc;

pub(super) async fn post(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    message: &Message<'_>,
    body: &Received,
) -> Response {
    let Message::Request(request) = message else { return plain(StatusCode::ACCEPTED, "") };
    if let Err(fault) = verify(headers, request, annotated(gateway, request, &body.peer.principal()).as_ref())
    {
        return wire(respond::error(Era::Modern, Some(request.id), &fault), StatusCode::BAD_REQUEST);
    }
    if request.method == "subscriptions/listen" {
        return listen(gateway, request.id, request.params, &body.peer);
    }
    match begin_or_resume(gateway, request, body, presence::without_session(body.peer.principal())) {
        Ok(call) => deliver(gateway, request.id.to_request_id(), call).await,
        Err(NotBegun::NoRoom(overload)) => refusal::overloaded(Some(request.id), &overload),
        Err(NotBegun::Fault(fault)) => {
            wire(respond::error(Era::Modern, Some(request.id), &fault), StatusCode::OK)
        }
    }
}

/// Why a call does not begin.
pub(super) enum NotBegun {
    /// What it comes back to is not there.
    Fault(Fault),
    /// Too many are under way.
    NoRoom(Overload),
}

impl NotBegun {
    /// The error that says so.
    pub(super) fn into_fault(self) -> Fault {
        match self {
            Self::Fault(fault) => fault,
            Self::NoRoom(overload) => overload.fault(),
        }
    }
}

/// Whether the headers of a request say what its body says.
pub(super) fn verify(
    headers: &HeaderMap,
    request: &Request<'_>,
    annotated: Option<&ParamHeaders>,
) -> Result<(), Fault> {
    let mirrored = Mirrored::collect(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    let verified = mirrored.verify(request, annotated);
    verified.map_err(|mismatch| Fault::new(codes::HEADER_MISMATCH, mismatch.to_string()))
}

/// What the called tool wants mirrored in headers, if this is a call and the tool wants that. A tool that the client may
/// not see wants nothing: a mismatch would tell that it exists.
fn annotated(gateway: &Gateway, request: &Request<'_>, principal: &Principal) -> Option<ParamHeaders> {
    if request.method != "tools/call" {
        return None;
    }
    let name = Object::parse(request.params?).ok()?.text("name")?.into_owned();
    let menu = gateway.host.menu_for(principal);
    let (_, tool) = menu.menu.tool(&name)?;
    let tool = Object::parse(&tool.raw).ok()?;
    // Few tools do, and reading a schema takes longer than looking for the word.
    let schema = tool.get("inputSchema").filter(|schema| schema.get().contains("x-mcp-header"))?;
    ParamHeaders::from_input_schema(schema).ok()
}

/// The call that this request begins, or that it comes back to. `who` tells who its client is to the servers,
/// given what it can be asked.
pub(super) fn begin_or_resume(
    gateway: &Arc<Gateway>,
    request: &Request<'_>,
    body: &Received,
    who: impl FnOnce(Abilities) -> gripfast::Client,
) -> Result<Suspended, NotBegun> {
    match resumed(gateway, request, &body.peer.principal()).map_err(NotBegun::Fault)? {
        Some(call) => Ok(call),
        None => begin(gateway, request, body, who).map_err(NotBegun::NoRoom),
    }
}

fn begin(
    gateway: &Arc<Gateway>,
    request: &Request<'_>,
    body: &Received,
    who: impl FnOnce(Abilities) -> gripfast::Client,
) -> Result<Suspended, Overload> {
    let admitted = gateway.admit(body)?;
    let client = Client::of_request(request.params, who, gateway.memory_of(&body.peer));
    let inputs = Arc::new(Inputs::of(body.peer.principal(), gateway.sessions.questions()));
    let outbox = Arc::new(Outbox::to(&client));
    let ear = ModernEar { outbox: Arc::clone(&outbox), inputs: Arc::clone(&inputs), client: client.clone() };
    let of = (request.to_own(), admitted);
    let call = begin_call(gateway, Era::Modern, of, Arc::clone(&outbox), Arc::new(ear), client, None);
    let origin = Origin { principal: body.peer.principal(), asked: body.counted() };
    Ok(Suspended::new(outbox, inputs, call, origin))
}

/// The call that this request brings input for. A state that is not ours is the server's own business.
fn resumed(
    gateway: &Gateway,
    request: &Request<'_>,
    principal: &Principal,
) -> Result<Option<Suspended>, Fault> {
    let params = request.params.and_then(|params| Object::parse(params).ok());
    let Some(params) = params else { return Ok(None) };
    let state = params.text("requestState");
    let Some(number) = state.and_then(|state| gateway.sessions.open_state(&state)) else { return Ok(None) };
    let call = gateway.waiting.take(number, principal, request).map_err(|not_given| {
        let text = match not_given {
            NotGiven::Ended => "the call that waited for this input has ended; begin it again",
            NotGiven::ForAnother => "this `requestState` is of another request; come back with the same one",
        };
        Fault::new(codes::INVALID_PARAMS, text)
    })?;
    if let Some(responses) = params.object("inputResponses") {
        call.inputs.give(&responses);
    }
    Ok(Some(call))
}

/// What the client gets next: the answer, a stream that ends with it, or a question.
async fn deliver(gateway: &Arc<Gateway>, id: RequestId, mut call: Suspended) -> Response {
    let (outbox, inputs, place) = (Arc::clone(&call.outbox), Arc::clone(&call.inputs), call.place);
    let begun = async {
        tokio::select! {
            biased;
            begun = first(&outbox, place) => Some(begun),
            () = inputs.wanted() => None,
            // From here on there are signs of life. Errors that have a status of their own come sooner.
            () = tokio::time::sleep(KEEP_ALIVE) => Some(First::Stream),
        }
    };
    match call.until(begun).await {
        Some(First::Answer(answer, status)) => json_response(under(&id, answer, &outbox), status),
        Some(First::Stream) => stream(pieces::events(events(Arc::clone(gateway), id, call.goes_by_itself()))),
        None => json_response(input_required(gateway, &id, call), StatusCode::OK),
    }
}

/// The rest of a call as events. The call lives as long as the stream does, or until it is suspended.
fn events(
    gateway: Arc<Gateway>,
    id: RequestId,
    call: Suspended,
) -> impl futures_util::Stream<Item = Event> + Send + 'static {
    let event = |message| Event::Message(sse::Writer::new().event("message"), message);
    futures_util::stream::unfold(Some((gateway, id, call)), move |state| async move {
        let (gateway, id, mut call) = state?;
        match tokio::time::timeout(KEEP_ALIVE, call.next()).await {
            Err(_) => Some((Event::keep_alive(), Some((gateway, id, call)))),
            Ok(Step::End) => None,
            Ok(Step::Said(message)) => Some((event(message), Some((gateway, id, call)))),
            Ok(Step::Answered(answer)) => {
                Some((event(under(&id, answer, &call.outbox)), Some((gateway, id, call))))
            }
            Ok(Step::Wanted) => {
                let question = input_required(&gateway, &id, call);
                Some((event(question), None))
            }
        }
    })
}

/// The answer under the id of the request that it goes to: after a question that is another one than the
/// call began with.
pub(super) fn under(id: &RequestId, answer: Bytes, outbox: &Outbox) -> Bytes {
    if envelope::is_answer_to(&answer, id.as_id()) {
        return answer;
    }
    envelope::with_id(&answer, id.as_id()).map_or(answer, |answer| outbox.counted(answer.into()))
}

/// Suspends the call and tells the client what is wanted.
pub(super) fn input_required(gateway: &Gateway, id: &RequestId, call: Suspended) -> Bytes {
    let requests = call.inputs.requests();
    let fault = |text: &str| {
        respond::error(Era::Modern, Some(id.as_id()), &Fault::new(codes::INTERNAL_ERROR, text)).message.into()
    };
    let Some((number, state)) = gateway.sessions.seal_state() else {
        return fault("the call cannot be suspended");
    };
    let result = format!(
        "{{\"resultType\":\"input_required\",\"inputRequests\":{requests},\"requestState\":{},\"_meta\":{}}}",
        serde_json::Value::from(state),
        who_answers()
    );
    match RawValue::from_string(result) {
        Ok(result) => {
            let asking = call.outbox.counted(envelope::response(id.as_id(), &result).into());
            gateway.waiting.hold(number, call.goes_by_itself());
            asking
        }
        Err(_) => fault("the server asked something that is not JSON"),
    }
}

/// The stream of a modern client that listens. It ends with an answer when the gateway does.
fn listen(gateway: &Arc<Gateway>, id: Id<'_>, params: Option<&RawValue>, peer: &Peer) -> Response {
    let who = presence::without_session(peer.principal());
    let client = Client::of_request(params, who, gateway.memory_of(peer));
    // What it listens to is kept for as long as it does.
    let held = match client.memory.take(params.map_or(0, |params| params.get().len())) {
        Ok(held) => held,
        Err(exhausted) => return refusal::overloaded(Some(id), &Overload::of_memory(exhausted)),
    };
    let (id, params) = (id.to_request_id(), params.map(RawValue::to_owned));
    let begin = Stage::Opening(Arc::clone(gateway), id, params, client, held);
    let events = futures_util::stream::unfold(begin, |stage| async move {
        match stage {
            Stage::Opening(gateway, id, params, client, held) => {
                let listening = Listening::begin(&gateway, &id, params.as_deref(), &client).await;
                let hello = sse::Writer::message(&listening.acknowledged());
                Some((hello.into(), Stage::Open(gateway, listening, held)))
            }
            Stage::Open(gateway, mut listening, held) => {
                let next = tokio::select! {
                    next = tokio::time::timeout(KEEP_ALIVE, listening.next()) => next,
                    () = gateway.leaving.cancelled() => Ok(None),
                };
                match next {
                    Err(_) => {
                        Some((Bytes::from_static(sse::KEEP_ALIVE), Stage::Open(gateway, listening, held)))
                    }
                    Ok(Some(news)) => {
                        let events: Vec<u8> = news.iter().flat_map(|one| sse::Writer::message(one)).collect();
                        Some((events.into(), Stage::Open(gateway, listening, held)))
                    }
                    Ok(None) => Some((sse::Writer::message(&listening.over()).into(), Stage::Over)),
                }
            }
            Stage::Over => None,
        }
    });
    stream(events.map(Ok))
}

/// How far a stream of changes has come.
enum Stage {
    Opening(Arc<Gateway>, RequestId, Option<Box<RawValue>>, Client, Share),
    Open(Arc<Gateway>, Listening, Share),
    Over,
}

#[cfg(test)]
mod tests {
    use super::super::running::Running;
    use super::super::{Seal, Terms};
    use super::*;
    use gripfast::Host;
    use http_body_util::BodyExt;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_says_nothing_for_long_shows_signs_of_life() {
        let gateway =
            Gateway::new(Host::builder().build(), Seal::of_this_process().unwrap(), &Terms::default());
        let outbox = Arc::new(Outbox::default());
        let working = Running::new(std::future::pending);
        let origin = Origin { principal: Principal::local(), asked: Bytes::new() };
        let call = Suspended::new(Arc::clone(&outbox), Arc::default(), working, origin);
        let response = deliver(&gateway, RequestId::from(1), call).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut body = response.into_body();
        let sign = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(sign, sse::KEEP_ALIVE);
        outbox.finish(Some(Bytes::from_static(br#"{"jsonrpc":"2.0","id":9,"result":{}}"#)));
        let answer = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(String::from_utf8_lossy(&answer).contains(r#""id":1"#), "{answer:?}");
    }
}

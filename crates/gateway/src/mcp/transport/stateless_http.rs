//! POST requests of modern clients: checked against their headers, then answered with JSON, an event stream, or an
//! input-required result. Closing the connection cancels the call.

use super::body::ReceivedMessage;
use super::chunks;
use super::chunks::StreamEvent;
use super::event_id::lost_call;
use super::replay_buffer::ReplayBuffer;
use super::streamable_http::{
    CountedResponse, KEEP_ALIVE, begin_call, json_response, stream, text_response, wire,
};
use crate::mcp::Gateway;
use crate::mcp::client::Client;
use crate::mcp::elicitation::ElicitationSupport;
use crate::mcp::elicitation::input_required::{
    CallOrigin, CallStep, HeldCallId, InputRequiredCall, ModernListener, RequestedInputs, ResumeError,
};
use crate::mcp::notify::listen::ListenStream;
use crate::mcp::registration;
use crate::mcp::request::dispatch::{RequestOutcome, RpcFault, server_info_meta};
use crate::mcp::request::overload;
use crate::mcp::request::overload::Overload;
use crate::mcp::request::respond;
use crate::server::quota::{Peer, QuotaPermit};
use crate::server::runtime::inline_call::CallProgress;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use gripfast::wire::envelope::{self, Message, Request};
use gripfast::wire::headers::{MirroredHeaders, ParamHeaders};
use gripfast::wire::patch::Object;
use gripfast::wire::{Era, Id, RequestId, codes, sse};
use gripfast::{CallError, Json, JsonText, Principal};
use http::{HeaderMap, StatusCode};
use std::sync::Arc;

pub(crate) async fn post(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    message: &Message<'_>,
    body: &ReceivedMessage,
) -> Response {
    let Message::Request(request) = message else { return text_response(StatusCode::ACCEPTED, "") };
    if let Err(fault) =
        verify(headers, request, param_headers(gateway, request, &body.peer.principal()).as_ref())
    {
        return wire(respond::error(Era::Modern, Some(request.id), &fault), StatusCode::BAD_REQUEST);
    }
    if request.method == "subscriptions/listen" {
        return listen(gateway, headers, request.id, request.params, &body.peer);
    }
    let identify = registration::of_request(gateway, headers, body.peer.principal());
    match begin_or_resume(gateway, request, body, identify) {
        Ok(call) => deliver(gateway, request.id.to_request_id(), call).await,
        Err(StartError::NoRoom(overload)) => overload::overloaded(Some(request.id), &overload),
        Err(refused @ (StartError::Fault(_) | StartError::Lost(_))) => {
            let refusal = respond::respond(Era::Modern, &request.method, request.id, refused.into_outcome());
            wire(refusal, StatusCode::OK)
        }
    }
}

/// Reason why a call does not start.
pub(crate) enum StartError {
    /// The request is invalid, or the call to resume does not exist.
    Fault(RpcFault),
    /// A limit is reached.
    NoRoom(Overload),
    /// The call to resume was in a process that is gone.
    Lost(CallError),
}

impl StartError {
    /// Outcome of the request, for the client.
    pub(crate) fn into_outcome(self) -> RequestOutcome {
        match self {
            Self::Fault(fault) => RequestOutcome::Fault(fault),
            Self::NoRoom(overload) => RequestOutcome::Fault(overload.fault()),
            Self::Lost(lost) => RequestOutcome::Failed(lost),
        }
    }
}

/// Checks that the mirrored headers of a request match its body.
pub(crate) fn verify(
    headers: &HeaderMap,
    request: &Request<'_>,
    annotated: Option<&ParamHeaders>,
) -> Result<(), RpcFault> {
    let mirrored =
        MirroredHeaders::collect(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    let verified = mirrored.verify(request, annotated);
    verified.map_err(|mismatch| RpcFault::new(codes::HEADER_MISMATCH, mismatch.to_string()))
}

/// Parameters of the called tool that must be mirrored in headers. For a tool that the client may not see the result is
/// `None`, because a mismatch would reveal that the tool exists.
fn param_headers(gateway: &Gateway, request: &Request<'_>, principal: &Principal) -> Option<ParamHeaders> {
    if request.method != "tools/call" {
        return None;
    }
    let name = Object::parse(request.params?).ok()?.text("name")?.into_owned();
    let catalog = gateway.host.catalog_snapshot_for(principal);
    let (_, tool) = catalog.merged.tool(&name)?;
    let tool = Object::parse(&tool.raw).ok()?;
    // Few tools have such headers, and the text search is cheaper than parsing the schema.
    let schema = tool.get("inputSchema").filter(|schema| schema.get().contains("x-mcp-header"))?;
    ParamHeaders::from_input_schema(schema).ok()
}

/// Starts the call of this request, or resumes the one that it repeats. `identify` returns the identity of the client
/// for its elicitation support.
pub(crate) fn begin_or_resume(
    gateway: &Arc<Gateway>,
    request: &Request<'_>,
    body: &ReceivedMessage,
    identify: impl FnOnce(ElicitationSupport) -> gripfast::Client,
) -> Result<InputRequiredCall, StartError> {
    match resume(gateway, request, &body.peer.principal())? {
        Some(call) => Ok(call),
        None => begin(gateway, request, body, identify).map_err(StartError::NoRoom),
    }
}

fn begin(
    gateway: &Arc<Gateway>,
    request: &Request<'_>,
    body: &ReceivedMessage,
    identify: impl FnOnce(ElicitationSupport) -> gripfast::Client,
) -> Result<InputRequiredCall, Overload> {
    let admitted = gateway.admit(body)?;
    let client = Arc::new(Client::from_request(request.params, identify, gateway.memory_of(&body.peer)));
    let inputs = Arc::new(RequestedInputs::new(body.peer.principal(), gateway.sessions.elicitations()));
    let replay_buffer = Arc::new(ReplayBuffer::for_client(&client));
    let listener = ModernListener {
        replay_buffer: Arc::clone(&replay_buffer),
        inputs: Arc::clone(&inputs),
        client: client.clone(),
    };
    let admitted_request = (request.to_owned_request(), admitted);
    let call = begin_call(
        gateway,
        Era::Modern,
        admitted_request,
        Arc::clone(&replay_buffer),
        Arc::new(listener),
        client,
        None,
    );
    let origin = CallOrigin { principal: body.peer.principal(), request: body.counted() };
    Ok(InputRequiredCall::new(replay_buffer, inputs, call, origin))
}

/// Resumes the call that this request brings input for. A `requestState` that the gateway did not issue belongs to the
/// server.
fn resume(
    gateway: &Gateway,
    request: &Request<'_>,
    principal: &Principal,
) -> Result<Option<InputRequiredCall>, StartError> {
    let params = request.params.and_then(|params| Object::parse(params).ok());
    let Some(params) = params else { return Ok(None) };
    let state = params.text("requestState");
    let Some(held) = state.and_then(|state| HeldCallId::open(&gateway.tokens, &state)) else {
        return Ok(None);
    };
    let number = match held {
        HeldCallId::Here(number) => number,
        HeldCallId::Gone => {
            let lost = "the call that waited for this input is lost: the gateway was restarted meanwhile; whether the \
                        call was carried out is unknown";
            return Err(StartError::Lost(lost_call(lost)));
        }
    };
    let call = gateway.input_required.take(number, principal, request).map_err(|not_given| {
        let text = match not_given {
            ResumeError::Ended => "the call that waited for this input has ended; start it again",
            ResumeError::OtherRequest => {
                "this `requestState` belongs to another request; repeat the original request"
            }
        };
        StartError::Fault(RpcFault::new(codes::INVALID_PARAMS, text))
    })?;
    if let Some(responses) = params.object("inputResponses") {
        call.inputs.answer(&responses);
    }
    Ok(Some(call))
}

/// Delivers the next result: the answer, a stream that ends with it, or an input-required result.
async fn deliver(gateway: &Arc<Gateway>, id: RequestId, mut call: InputRequiredCall) -> Response {
    let (replay_buffer, inputs, position) =
        (Arc::clone(&call.replay_buffer), Arc::clone(&call.inputs), call.position);
    let first = async {
        tokio::select! {
            biased;
            _ = replay_buffer.next(position) => true,
            () = inputs.wanted() => false,
            // From here on the stream sends keep-alives. Errors with an HTTP status of their own come earlier.
            () = tokio::time::sleep(KEEP_ALIVE) => true,
        }
    };
    let answer = match call.until(first).await {
        CallProgress::Answered(answer) => Some(answer),
        CallProgress::Wanted(true) => replay_buffer.sole_answer(position),
        CallProgress::Wanted(false) => {
            return json_response(input_required(gateway, &id, call), StatusCode::OK);
        }
    };
    match answer {
        Some(CountedResponse { message, status }) => {
            CountedResponse { message: with_id(&id, message, &replay_buffer), status }.into_response()
        }
        None => stream(chunks::events(events(Arc::clone(gateway), id, call.detached()))),
    }
}

/// Rest of a call as events. Dropping the stream cancels the call, unless it waits for input.
fn events(
    gateway: Arc<Gateway>,
    id: RequestId,
    call: InputRequiredCall,
) -> impl futures_util::Stream<Item = StreamEvent> + Send + 'static {
    let event = |message| StreamEvent::Message(sse::Writer::new().event("message"), message);
    futures_util::stream::unfold(Some((gateway, id, call)), move |state| async move {
        let (gateway, id, mut call) = state?;
        match tokio::time::timeout(KEEP_ALIVE, call.next()).await {
            Err(_) => Some((StreamEvent::keep_alive(), Some((gateway, id, call)))),
            Ok(CallStep::End) => None,
            Ok(CallStep::Notification(message)) => Some((event(message), Some((gateway, id, call)))),
            Ok(CallStep::Answered(answer)) => {
                Some((event(with_id(&id, answer, &call.replay_buffer)), Some((gateway, id, call))))
            }
            Ok(CallStep::InputRequired) => {
                let result = input_required(&gateway, &id, call);
                Some((event(result), None))
            }
        }
    })
}

/// Replaces the id of the answer: after an input-required result, the repeated request has another id than the call
/// started with.
pub(crate) fn with_id(id: &RequestId, answer: Bytes, replay_buffer: &ReplayBuffer) -> Bytes {
    if envelope::is_answer_to(&answer, id.as_id()) {
        return answer;
    }
    envelope::with_id(&answer, id.as_id()).map_or(answer, |answer| replay_buffer.counted(answer.into()))
}

/// Holds the call, and returns the input-required result.
pub(crate) fn input_required(gateway: &Gateway, id: &RequestId, call: InputRequiredCall) -> Bytes {
    let requests = call.inputs.requests();
    let fault = |text: &str| {
        respond::error(Era::Modern, Some(id.as_id()), &RpcFault::new(codes::INTERNAL_ERROR, text))
            .message
            .into()
    };
    let Some((number, state)) = HeldCallId::issue(&gateway.tokens) else {
        return fault("cannot hold the call: the system provided no random numbers");
    };
    let result = format!(
        "{{\"resultType\":\"input_required\",\"inputRequests\":{requests},\"requestState\":{},\"_meta\":{}}}",
        serde_json::Value::from(state),
        server_info_meta()
    );
    match JsonText::parse(result) {
        Ok(result) => {
            let asking = call.replay_buffer.counted(envelope::response(id.as_id(), &result).into());
            gateway.input_required.hold(number, call.detached());
            asking
        }
        Err(_) => fault("the server's request for input is not valid JSON"),
    }
}

/// Opens a `subscriptions/listen` stream. When the gateway shuts down, the stream ends with a response.
fn listen(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    id: Id<'_>,
    params: Option<&Json>,
    peer: &Peer,
) -> Response {
    let identify = registration::of_request(gateway, headers, peer.principal());
    let client = Client::from_request(params, identify, gateway.memory_of(peer));
    // The filter is kept as long as the stream.
    let held = match client.memory.take(params.map_or(0, |params| params.get().len())) {
        Ok(held) => held,
        Err(exhausted) => return overload::overloaded(Some(id), &Overload::memory(exhausted)),
    };
    let (id, params) = (id.to_request_id(), params.map(Json::to_owned));
    let opening = Stage::Opening(Arc::clone(gateway), id, params, client, held);
    let events = futures_util::stream::unfold(opening, |stage| async move {
        match stage {
            Stage::Opening(gateway, id, params, client, held) => {
                let listening = ListenStream::open(&gateway, &id, params.as_deref(), &client).await;
                let ack = sse::Writer::message(&listening.ack_message());
                Some((ack.into(), Stage::Open(gateway, listening, held)))
            }
            Stage::Open(gateway, mut listening, held) => {
                let next = tokio::select! {
                    next = tokio::time::timeout(KEEP_ALIVE, listening.next()) => next,
                    () = gateway.shutting_down.cancelled() => Ok(None),
                };
                match next {
                    Err(_) => {
                        Some((Bytes::from_static(sse::KEEP_ALIVE), Stage::Open(gateway, listening, held)))
                    }
                    Ok(Some(messages)) => {
                        let events: Vec<u8> =
                            messages.iter().flat_map(|one| sse::Writer::message(one)).collect();
                        Some((events.into(), Stage::Open(gateway, listening, held)))
                    }
                    Ok(None) => Some((sse::Writer::message(&listening.final_response()).into(), Stage::Over)),
                }
            }
            Stage::Over => None,
        }
    });
    stream(events.map(Ok))
}

/// State of a listen stream.
enum Stage {
    Opening(Arc<Gateway>, RequestId, Option<JsonText>, Client, QuotaPermit),
    Open(Arc<Gateway>, ListenStream, QuotaPermit),
    Over,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Limits, TokenCipher};
    use crate::server::runtime::inline_call::InlineCall;
    use futures_util::future::AbortHandle;
    use gripfast::Host;
    use http_body_util::BodyExt;

    #[tokio::test(start_paused = true)]
    async fn a_silent_call_gets_keep_alives() {
        let gateway =
            Gateway::new(Host::builder().build(), TokenCipher::ephemeral().unwrap(), &Limits::default());
        let replay_buffer = Arc::new(ReplayBuffer::default());
        let (handle, registration) = AbortHandle::new_pair();
        let output = Arc::clone(&replay_buffer);
        let working = (InlineCall::new(output, None, registration, std::future::pending), handle);
        let origin = CallOrigin { principal: Principal::local(), request: Bytes::new() };
        let call = InputRequiredCall::new(Arc::clone(&replay_buffer), Arc::default(), working, origin);
        let response = deliver(&gateway, RequestId::from(1), call).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut body = response.into_body();
        let sign = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(sign, sse::KEEP_ALIVE);
        replay_buffer.finish(Some(Bytes::from_static(br#"{"jsonrpc":"2.0","id":9,"result":{}}"#)));
        let answer = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(String::from_utf8_lossy(&answer).contains(r#""id":1"#), "{answer:?}");
    }
}

//! Streamable HTTP of both eras: one POST per message, answered with JSON or an event stream; in the legacy era also
//! sessions, and a GET stream for unsolicited server messages.

mod cancel;
mod client;
mod connect;
mod connection_error;
mod egress;
mod fetch;
mod h1_connection;
mod h1_response;
mod h2_connection;
mod happy_eyeballs;
mod headers;
mod pool;
mod proxy;
mod response;
mod stream;

pub(super) use super::http::response::{BodyKind, Events, RequestFacts, body_kind, refusal};
pub(crate) use super::http::response::{read_body, retry_after};
pub(crate) use client::{Address, HttpClient, HttpRequest};

pub(super) use super::http::cancel::RequestReceipt;
pub(crate) use fetch::{HttpEndpoint, get, send};

use super::inbox::{Inbox, Incoming, LinkContext};
use super::pending_replies::DAMAGED_GRACE;
use super::{
    BoxFuture, Link, LinkInfo, Listener, Outgoing, ReadResult, Reply, Safety, SendError, Session,
    UnsolicitedStream, box_future, is_call_notification,
};
use bytes::Bytes;
use gripfast_core::failure::{During, Evidence, Observed};
use gripfast_core::redact;
use gripfast_core::supervise::upstream::CloseMode;
use gripfast_wire::envelope::{self, Message};
use gripfast_wire::results;
use gripfast_wire::{Era, Id, JsonText, Outcome, batch};
use headers::{MessageHeaders, SESSION_ID, mirrored};
use http::{HeaderName, HeaderValue, Method, Response};
use pool::Body;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use stream::FirstStream;
use tokio::time::Sleep;
use url::Url;

/// A link to a Streamable HTTP endpoint.
pub(super) struct HttpLink {
    client: HttpClient,
    address: Arc<Address>,
    inbox: Inbox,
    headers: MessageHeaders,
    max_message: usize,
    first_stream: FirstStream,
}

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON_OR_EVENTS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Time limit for the DELETE that ends a session, which is a courtesy.
const DELETE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for a message without a response.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_BATCH: usize = 1000;
/// Maximum number of consecutive resumptions of a cut response stream that bring no further event.
const MAX_FUTILE_RESUMES: usize = 3;
/// Minimum interval between two resumptions, whatever the server asks for.
const MIN_RESUME_INTERVAL: Duration = Duration::from_millis(100);

impl HttpLink {
    pub(super) fn new(client: HttpClient, url: Url, context: LinkContext) -> Result<Self, Observed> {
        let LinkContext { inbox, max_message, .. } = context;
        let address = client.address(url)?;
        let (headers, first_stream) = (MessageHeaders::new(address.host.clone()), FirstStream::default());
        Ok(Self { client, address, inbox, headers, max_message, first_stream })
    }

    /// Creates a POST with a message. Requests have a method that modern servers get in a header too.
    fn message_request(
        &self,
        session: &Session,
        method: Option<&str>,
        name: Option<&str>,
        message: Vec<u8>,
    ) -> HttpRequest {
        HttpRequest {
            method: Method::POST,
            to: Arc::clone(&self.address),
            headers: self.headers.for_message(session, method, name),
            body: message.into(),
            mirrored: Vec::new(),
            sent: None,
            safety: Safety::AtMostOnce,
        }
    }

    /// Creates a request without a message.
    fn empty_request(&self, method: Method, session: &Session, accept: HeaderValue) -> HttpRequest {
        let headers = Arc::new(headers::session_headers(session, accept));
        HttpRequest {
            method,
            to: Arc::clone(&self.address),
            headers,
            body: Bytes::new(),
            mirrored: Vec::new(),
            sent: None,
            safety: Safety::Replayable,
        }
    }

    async fn post(&self, session: &Session, request: &mut Outgoing<'_>) -> Result<Response<Body>, Evidence> {
        let message = std::mem::take(&mut request.message);
        let http_request = HttpRequest {
            mirrored: mirrored(request),
            sent: Some(Arc::clone(&request.sent)),
            safety: request.safety,
            ..self.message_request(session, Some(request.method), request.name.as_deref(), message)
        };
        self.client.send(http_request, request.during).await
    }

    async fn send_request(
        &self,
        session: &Session,
        mut request: Outgoing<'_>,
        cancel_guard: &mut CancelOnDrop<'_>,
    ) -> Result<Reply, Box<SendError>> {
        let during = request.during;
        if request.listener.is_some() {
            self.first_stream.wait_until_open().await;
        }
        let response = self.post(session, &mut request).await?;
        cancel_guard.receipt = RequestReceipt::Confirmed;
        if !response.status().is_success() {
            let (evidence, answer) = refusal(response, RequestFacts::for_session(session), during).await;
            return Err(Box::new(SendError { evidence, answer }));
        }
        // The session id is assigned by the handshake.
        let session_id = match during {
            During::Handshake => response::header_text(response.headers(), &SESSION_ID),
            During::Call | During::Probe => None,
        };
        let garbled = |text: String| Evidence::sent(during, Observed::Malformed(text)).into();
        let counted = request.memory.as_deref();
        let reply = match body_kind(&response) {
            BodyKind::Json => {
                let read =
                    response::read_body_counted(response.into_body(), self.max_message, during, counted);
                let (body, memory) = read.await?;
                let message = self.answer_from_json(&body, &request).await;
                let message = message.ok_or_else(|| garbled(not_a_response(&body)))?;
                Reply { memory, ..Reply::new(message) }
            }
            BodyKind::Events => {
                let (message, result) = self.answer_from_events(session, response, &request).await?;
                Reply { result, ..Reply::with_memory(message, during, counted)? }
            }
            BodyKind::Empty => return Err(garbled("it accepted the request and sent no answer".to_owned())),
            BodyKind::Other(kind) => {
                let kind =
                    if kind.is_empty() { "a body without a content type" } else { &format!("`{kind}`") };
                return Err(garbled(format!("it answered with {kind} instead of JSON or an event stream")));
            }
        };
        Ok(Reply { session_id, ..reply })
    }

    /// Finds the response in a JSON body: one message, or a batch with the response among others. Whatever id it
    /// carries, on this connection it can only be ours.
    async fn answer_from_json(&self, body: &Bytes, request: &Outgoing<'_>) -> Option<Bytes> {
        if !envelope::is_batch(body) {
            // The caller reads the response itself and sees then whether it is one; it may be too large to read twice.
            let is_seen_later = request.during == During::Call;
            let is_answer = is_seen_later || matches!(Message::parse(body), Ok(Message::Response(_)));
            return is_answer.then(|| body.clone());
        }
        let mut answer = None;
        for message in batch::split(body, MAX_BATCH).ok()? {
            let message = body.slice_ref(message);
            if matches!(Message::parse(&message), Ok(Message::Response(_))) {
                answer = Some(message);
            } else {
                self.forward(message, request.listener.as_ref()).await;
            }
        }
        answer
    }

    /// Reads the response from an event stream, and forwards the messages before it.
    async fn answer_from_events(
        &self,
        session: &Session,
        response: Response<Body>,
        request: &Outgoing<'_>,
    ) -> Result<(Bytes, Option<ReadResult>), Box<SendError>> {
        let mut events = self.events(response, request);
        let mut last_event: Option<String> = None;
        let (mut retry, mut futile) = (Duration::ZERO, 0);
        loop {
            let cut = match self.next_answer(&mut events, request).await {
                Ok(Some(answer)) => {
                    events.finish();
                    return Ok(answer);
                }
                Ok(None) => Observed::Closed("its event stream ended before the answer".to_owned()),
                Err(Evidence { observed: cut @ Observed::Closed(_), .. }) => cut,
                // A resumed stream would bring the same.
                Err(evidence) => return Err(evidence.into()),
            };
            // A server may have its clients resume until it is done: each stream brings an event then.
            futile = if events.last_event_id().is_some() { 0 } else { futile + 1 };
            last_event = events.last_event_id().map(str::to_owned).or(last_event);
            retry = events.retry().unwrap_or(retry);
            let resumed = match &last_event {
                Some(last) if futile <= MAX_FUTILE_RESUMES => {
                    let pause = if futile > 0 { retry.max(stream::FIRST_RETRY_DELAY) } else { retry };
                    self.resume(session, last, pause, request).await
                }
                Some(_) | None => None,
            };
            match resumed {
                Some(resumed) => events = resumed,
                None => return Err(Evidence::sent(request.during, cut).into()),
            }
            retry = retry.max(MIN_RESUME_INTERVAL);
        }
    }

    async fn next_answer(
        &self,
        events: &mut Events,
        request: &Outgoing<'_>,
    ) -> Result<Option<(Bytes, Option<ReadResult>)>, Evidence> {
        let mut damaged: Option<(Pin<Box<Sleep>>, Observed)> = None;
        loop {
            let next = match &mut damaged {
                None => events.next(request.during).await,
                Some((over, observed)) => tokio::select! {
                    next = events.next(request.during) => next,
                    () = over.as_mut() => Err(Evidence::sent(request.during, observed.clone())),
                },
            };
            let event = match (next, damaged.take()) {
                (Ok(Some(event)), still) => {
                    damaged = still;
                    event
                }
                // The response has arrived, although damaged: the stream is not resumed for it.
                (Ok(None) | Err(_), Some((_, observed))) => {
                    return Err(Evidence::sent(request.during, observed));
                }
                (Ok(None), None) => return Ok(None),
                (Err(evidence), None) => return Err(evidence),
            };
            let message = Bytes::from(event.data);
            match ReadResult::parse(&message) {
                Ok((Message::Response(response), result)) => {
                    // Some servers respond with an id that is none, or with an id of their own; a response with the id
                    // of another request belongs to that request.
                    let id = response.id.as_ref().and_then(Id::as_u64);
                    let is_error = matches!(response.outcome, Outcome::Error(_));
                    // An error answers the POST that it came on, whatever id it has.
                    if is_error || id.is_none_or(|id| id == request.id) {
                        return Ok(Some((message, result)));
                    }
                }
                Ok((Message::Request(_) | Message::Notification(_), _)) => {
                    self.forward(message.clone(), request.listener.as_ref()).await;
                }
                // A priming event has no data; anything else that is neither a message nor a response does not fail the
                // call.
                Err(_) if damaged.is_none() => {
                    if envelope::damaged_answers(&message).contains(&request.id) {
                        let observed = Observed::Malformed(not_a_response(&message));
                        damaged = Some((Box::pin(tokio::time::sleep(DAMAGED_GRACE)), observed));
                    }
                }
                Err(_) => {}
            }
        }
    }

    /// Resumes a cut stream after its last event, in the legacy era. The caller's deadline limits the resumptions.
    async fn resume(
        &self,
        session: &Session,
        last_event: &str,
        pause: Duration,
        request: &Outgoing<'_>,
    ) -> Option<Events> {
        if session.era == Era::Modern {
            return None;
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let mut http_request = self.empty_request(Method::GET, session, EVENTS);
        Arc::make_mut(&mut http_request.headers)
            .insert(LAST_EVENT_ID, HeaderValue::from_str(last_event).ok()?);
        let response = self.client.send(http_request, request.during).await.ok()?;
        let resumed = response.status().is_success() && matches!(body_kind(&response), BodyKind::Events);
        resumed.then(|| self.events(response, request))
    }

    /// Creates the event stream that brings the response to a request.
    fn events(&self, response: Response<Body>, request: &Outgoing<'_>) -> Events {
        Events::new(response.into_body(), self.max_message).with_memory(request.memory.clone())
    }

    /// Forwards a message: progress, log messages and requests that precede a response go to the listener of the call,
    /// everything else to the supervisor.
    async fn forward(&self, message: Bytes, listener: Option<&Arc<dyn Listener>>) {
        let (is_progress, is_request) = match Message::parse(&message) {
            Ok(Message::Notification(said)) => (is_call_notification(&said.method), false),
            Ok(Message::Request(_)) => (false, true),
            Ok(Message::Response(_)) | Err(_) => (false, false),
        };
        match listener {
            Some(listener) if is_progress || is_request => listener.on_message(&message),
            None if is_progress => {}
            Some(_) | None => self.inbox.put(Incoming::Message(message)).await,
        }
    }

    async fn post_message(&self, session: &Session, message: Vec<u8>) -> Result<(), Evidence> {
        let http_request = self.message_request(session, None, None, message);
        let response = self.client.send(http_request, During::Call).await?;
        if response.status().is_success() {
            return Ok(());
        }
        let (evidence, _) = refusal(response, RequestFacts::for_session(session), During::Call).await;
        Err(evidence)
    }
}

impl Link for HttpLink {
    fn request<'a>(
        &'a self,
        session: &'a Session,
        request: Outgoing<'a>,
    ) -> BoxFuture<'a, Result<Reply, Box<SendError>>> {
        box_future(|| async move {
            let mut cancel_guard = CancelOnDrop::new(self, session, &request);
            let outcome = self.send_request(session, request, &mut cancel_guard).await;
            cancel_guard.disarm();
            outcome
        })
    }

    fn send<'a>(
        &'a self,
        session: &'a Session,
        message: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), Box<SendError>>> {
        Box::pin(async move {
            match tokio::time::timeout(SEND_TIMEOUT, self.post_message(session, message)).await {
                Ok(sent) => sent.map_err(Into::into),
                Err(_) => Err(Evidence::sent(During::Call, Observed::NoAnswer(SEND_TIMEOUT)).into()),
            }
        })
    }

    fn listen(self: Arc<Self>, session: Arc<Session>) -> Option<UnsolicitedStream> {
        // The modern era has no GET stream; listening is a request of its own there.
        (session.era == Era::Legacy).then(|| {
            self.first_stream.start();
            let task = tokio::spawn(async move {
                // However it ends, calls do not wait for it any longer.
                let opening = self.first_stream.opening_guard();
                stream::run(&self, &session, opening).await;
            });
            UnsolicitedStream::from_task(task.abort_handle())
        })
    }

    fn close<'a>(&'a self, session: Option<&'a Session>, manner: CloseMode) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(session) =
                session.filter(|session| session.id.is_some() && manner == CloseMode::Graceful)
            else {
                return;
            };
            let delete = self.empty_request(Method::DELETE, session, JSON);
            // Some servers do not know DELETE; either way the session is over for us.
            let _ = tokio::time::timeout(DELETE_TIMEOUT, self.client.send(delete, During::Call)).await;
        })
    }

    fn info(&self) -> LinkInfo {
        LinkInfo { pid: None, url: Some(redact::url(self.address.url.as_str())) }
    }
}

/// Sends `notifications/cancelled` to a legacy server for a request that its caller drops, because a disconnect cancels
/// nothing there. In the modern era closing the stream is enough.
struct CancelOnDrop<'a> {
    link: &'a HttpLink,
    session: &'a Session,
    id: u64,
    armed: bool,
    receipt: RequestReceipt,
}

impl<'a> CancelOnDrop<'a> {
    fn new(link: &'a HttpLink, session: &'a Session, request: &Outgoing<'_>) -> Self {
        // The specification forbids cancelling a handshake.
        let needs_cancel = session.era == Era::Legacy && request.during != During::Handshake;
        Self { link, session, id: request.id, armed: needs_cancel, receipt: RequestReceipt::Unconfirmed }
    }

    fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let Ok(raw) = JsonText::parse(self.id.to_string()) else { return };
        let Ok(id) = Id::from_raw(&raw) else { return };
        let message = results::cancelled(id, None);
        let http_request = self.link.message_request(self.session, None, None, message);
        self.link.client.send_cancel(http_request, self.receipt);
    }
}

/// Describes a body that is not a JSON-RPC response, with its beginning.
pub(crate) fn not_a_response(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(500)]);
    // It goes to logs and terminals, which may obey control characters.
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(120).collect();
    let text = if text.trim().is_empty() { "nothing" } else { &text };
    format!("its answer is not a JSON-RPC response: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_answer_is_quoted_without_control_characters() {
        let said = not_a_response(b"\x1b]0;owned\x07\r\n\x1b[2J<html>\x9b31m");
        assert!(said.contains("<html>") && !said.contains(char::is_control), "{said:?}");
        assert!(not_a_response(b"\r\n\0").ends_with("nothing"));
    }
}

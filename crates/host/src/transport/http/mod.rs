//! Streamable HTTP, both eras: one POST per message, answered with JSON or an event stream; in the legacy
//! era a session, and a GET stream for what the server says unasked.

mod answer;
mod client;
mod connect;
mod egress;
mod fetch;
mod happy_eyeballs;
mod headers;
mod pool;
mod proxy;
mod stream;
mod trunk;
mod withdraw;

pub(super) use answer::{Asked, Events, Kind, kind_of, refusal};
pub(crate) use answer::{retry_after, whole as read_whole};
pub(crate) use client::{Address, Ask, HttpClient};

pub(crate) use fetch::{get, send};
pub(super) use withdraw::Taken;

use super::inbox::{Inbox, Incoming as News, Surroundings};
use super::pending::MENDED_WITHIN;
use super::{
    BoxFuture, Link, LinkFacts, Listener, Listening, Outgoing, Reply, Safety, Session, Trouble,
    is_about_a_call,
};
use bytes::Bytes;
use gripfast_core::failure::{During, Evidence, Observed};
use gripfast_core::redact;
use gripfast_core::supervise::upstream::Manner;
use gripfast_wire::envelope::{self, Message};
use gripfast_wire::results;
use gripfast_wire::{Era, Id, Outcome, RawValue, batch};
use headers::{MessageHeaders, SESSION_ID, mirror};
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

/// Farewells are a courtesy; nobody waits longer for one.
const FAREWELL_WITHIN: Duration = Duration::from_secs(2);
/// A message that has no answer is taken quickly or not at all.
const SEND_WITHIN: Duration = Duration::from_secs(10);
const LARGEST_BATCH: usize = 1000;
/// How often a cut answer stream is picked up again by its last event, if it brings no further one.
const RESUMPTIONS_IN_VAIN: usize = 3;
/// The least time between two resumptions, whatever the server asks for.
const RESUMPTIONS_APART: Duration = Duration::from_millis(100);

impl HttpLink {
    pub(super) fn new(client: HttpClient, url: Url, surroundings: Surroundings) -> Result<Self, Observed> {
        let Surroundings { inbox, max_message, stderr: _, secrets: _, children: _, host_id: _ } =
            surroundings;
        let address = client.address(url)?;
        let (headers, first_stream) = (MessageHeaders::default(), FirstStream::default());
        Ok(Self { client, address, inbox, headers, max_message, first_stream })
    }

    /// Brings a message.
    fn bring(&self, session: &Session, message: Vec<u8>) -> Ask {
        let (to, headers) = (Arc::clone(&self.address), self.headers.of(session));
        Ask {
            method: Method::POST,
            to,
            headers,
            body: message.into(),
            sent: None,
            safety: Safety::AtMostOnce,
        }
    }

    /// Asks without a message.
    fn ask(&self, method: Method, session: &Session, accept: HeaderValue) -> Ask {
        let headers = Arc::new(headers::of_session(session, accept));
        Ask {
            method,
            to: Arc::clone(&self.address),
            headers,
            body: Bytes::new(),
            sent: None,
            safety: Safety::Replayable,
        }
    }

    async fn post(&self, session: &Session, request: &mut Outgoing) -> Result<Response<Body>, Evidence> {
        let message = std::mem::take(&mut request.message);
        let mut ask = self.bring(session, message);
        ask.sent = Some(Arc::clone(&request.sent));
        ask.safety = request.safety;
        mirror(&mut ask.headers, session.era, request);
        self.client.send(ask, request.during).await
    }

    async fn exchange(
        &self,
        session: &Session,
        mut request: Outgoing,
        goodbye: &mut Goodbye<'_>,
    ) -> Result<Reply, Box<Trouble>> {
        let during = request.during;
        if request.listener.is_some() {
            self.first_stream.settled().await;
        }
        let response = self.post(session, &mut request).await?;
        goodbye.taken = Taken::Surely;
        if !response.status().is_success() {
            let (evidence, answer) = refusal(response, Asked::with(session), during).await;
            return Err(Box::new(Trouble { evidence, answer }));
        }
        // A session is given with the handshake.
        let session_id = match during {
            During::Handshake => answer::text_of(response.headers(), &SESSION_ID),
            During::Call | During::Probe => None,
        };
        let garbled = |text: String| Evidence::sent(during, Observed::Garbled(text)).into();
        let counted = request.memory.as_deref();
        let reply = match kind_of(&response) {
            Kind::Json => {
                let read = answer::whole_counted(response.into_body(), self.max_message, during, counted);
                let (body, memory) = read.await?;
                let message = self.answer_in(&body, &request).await;
                let message = message.ok_or_else(|| garbled(not_a_response(&body)))?;
                Reply { message, session_id: None, memory }
            }
            Kind::Events => {
                Reply::counted(self.answer_among(session, response, &request).await?, during, counted)?
            }
            Kind::Empty => return Err(garbled("it took the request and gave no answer".to_owned())),
            Kind::Other(kind) => {
                let kind = if kind.is_empty() { "something without a type" } else { &format!("`{kind}`") };
                return Err(garbled(format!("it answered with {kind} instead of JSON or an event stream")));
            }
        };
        Ok(Reply { session_id, ..reply })
    }

    /// The answer in a JSON body: one message, or a batch with the answer among others. Whatever id it
    /// carries, on this connection it can only be ours.
    async fn answer_in(&self, body: &Bytes, request: &Outgoing) -> Option<Bytes> {
        if !envelope::is_batch(body) {
            // Whoever calls reads the answer, and sees then whether it is one; it may be too large to read twice.
            let is_seen_later = request.during == During::Call;
            let is_answer = is_seen_later || matches!(Message::parse(body), Ok(Message::Response(_)));
            return is_answer.then(|| body.clone());
        }
        let mut answer = None;
        for message in batch::split(body, LARGEST_BATCH).ok()? {
            let message = body.slice_ref(message);
            if matches!(Message::parse(&message), Ok(Message::Response(_))) {
                answer = Some(message);
            } else {
                self.hear(message, request.listener.as_ref()).await;
            }
        }
        answer
    }

    /// The answer on an event stream, after everything else that the server says first.
    async fn answer_among(
        &self,
        session: &Session,
        response: Response<Body>,
        request: &Outgoing,
    ) -> Result<Bytes, Box<Trouble>> {
        let mut events = self.events(response, request);
        let mut last_event: Option<String> = None;
        let (mut retry, mut in_vain) = (Duration::ZERO, 0);
        loop {
            let cut = match self.next_answer(&mut events, request).await {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => Observed::Closed("its event stream ended before the answer".to_owned()),
                Err(Evidence { observed: cut @ Observed::Closed(_), .. }) => cut,
                // Picked up again, it would be the same.
                Err(evidence) => return Err(evidence.into()),
            };
            // A server may have its clients come back until it is done: each stream brings an event then.
            in_vain = if events.last_event_id().is_some() { 0 } else { in_vain + 1 };
            last_event = events.last_event_id().map(str::to_owned).or(last_event);
            retry = events.retry().unwrap_or(retry);
            let resumed = match &last_event {
                Some(last) if in_vain <= RESUMPTIONS_IN_VAIN => {
                    let pause = if in_vain > 0 { retry.max(stream::FIRST_PAUSE) } else { retry };
                    self.resume(session, last, pause, request).await
                }
                Some(_) | None => None,
            };
            match resumed {
                Some(resumed) => events = resumed,
                None => return Err(Evidence::sent(request.during, cut).into()),
            }
            retry = retry.max(RESUMPTIONS_APART);
        }
    }

    async fn next_answer(&self, events: &mut Events, request: &Outgoing) -> Result<Option<Bytes>, Evidence> {
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
                // The answer came, however it looks: the stream is not picked up for it.
                (Ok(None) | Err(_), Some((_, observed))) => {
                    return Err(Evidence::sent(request.during, observed));
                }
                (Ok(None), None) => return Ok(None),
                (Err(evidence), None) => return Err(evidence),
            };
            let message = Bytes::from(event.data);
            match Message::parse(&message) {
                Ok(Message::Response(response)) => {
                    // Some servers answer with an id that is none, or with their own word for it; the id of
                    // another request is somebody else's answer.
                    let id = response.id.as_ref().and_then(Id::as_u64);
                    let is_error = matches!(response.outcome, Outcome::Error(_));
                    // An error answers the POST that it came on, whatever id it has.
                    if is_error || id.is_none_or(|id| id == request.id) {
                        return Ok(Some(message));
                    }
                }
                Ok(Message::Request(_) | Message::Notification(_)) => {
                    self.hear(message.clone(), request.listener.as_ref()).await;
                }
                // A priming event has no data; anything else that is no message and no answer is not worth a call.
                Err(_) if damaged.is_none() => {
                    if envelope::damaged_answers(&message).contains(&request.id) {
                        let observed = Observed::Garbled(not_a_response(&message));
                        damaged = Some((Box::pin(tokio::time::sleep(MENDED_WITHIN)), observed));
                    }
                }
                Err(_) => {}
            }
        }
    }

    /// In the legacy era a cut stream can be picked up after its last event. Whoever waits for the answer says for how
    /// long.
    async fn resume(
        &self,
        session: &Session,
        last_event: &str,
        pause: Duration,
        request: &Outgoing,
    ) -> Option<Events> {
        if session.era == Era::Modern {
            return None;
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let mut ask = self.ask(Method::GET, session, EVENTS);
        Arc::make_mut(&mut ask.headers).insert(LAST_EVENT_ID, HeaderValue::from_str(last_event).ok()?);
        let response = self.client.send(ask, request.during).await.ok()?;
        let resumed = response.status().is_success() && matches!(kind_of(&response), Kind::Events);
        resumed.then(|| self.events(response, request))
    }

    /// The events of a stream that is to bring the answer to a request.
    fn events(&self, response: Response<Body>, request: &Outgoing) -> Events {
        Events::of(response.into_body(), self.max_message).counted(request.memory.clone())
    }

    /// Progress, log messages and what the server asks on the way belong to the call; everything else to
    /// the link's owner.
    async fn hear(&self, message: Bytes, listener: Option<&Arc<dyn Listener>>) {
        let (progress, question) = match Message::parse(&message) {
            Ok(Message::Notification(said)) => (is_about_a_call(&said.method), false),
            Ok(Message::Request(_)) => (false, true),
            Ok(Message::Response(_)) | Err(_) => (false, false),
        };
        match listener {
            Some(listener) if progress || question => listener.said(&message),
            None if progress => {}
            Some(_) | None => self.inbox.put(News::Message(message)).await,
        }
    }

    async fn say(&self, session: &Session, message: Vec<u8>) -> Result<(), Evidence> {
        let ask = self.bring(session, message);
        let response = self.client.send(ask, During::Call).await?;
        if response.status().is_success() {
            return Ok(());
        }
        let (evidence, _) = refusal(response, Asked::with(session), During::Call).await;
        Err(evidence)
    }
}

impl Link for HttpLink {
    fn request<'a>(
        &'a self,
        session: &'a Session,
        request: Outgoing,
    ) -> BoxFuture<'a, Result<Reply, Box<Trouble>>> {
        Box::pin(async move {
            let mut goodbye = Goodbye::owed_by(self, session, &request);
            let outcome = self.exchange(session, request, &mut goodbye).await;
            goodbye.settled();
            outcome
        })
    }

    fn send<'a>(&'a self, session: &'a Session, message: Vec<u8>) -> BoxFuture<'a, Result<(), Box<Trouble>>> {
        Box::pin(async move {
            match tokio::time::timeout(SEND_WITHIN, self.say(session, message)).await {
                Ok(sent) => sent.map_err(Into::into),
                Err(_) => Err(Evidence::sent(During::Call, Observed::Silence(SEND_WITHIN)).into()),
            }
        })
    }

    fn listen(self: Arc<Self>, session: Arc<Session>) -> Option<Listening> {
        // The modern era has no GET stream; there, listening is a request of its own.
        (session.era == Era::Legacy).then(|| {
            self.first_stream.begins();
            let task = tokio::spawn(async move {
                // However it ends, nobody waits for it any longer.
                let opening = self.first_stream.while_opening();
                stream::follow(&self, &session, opening).await;
            });
            Listening::in_task(task.abort_handle())
        })
    }

    fn close<'a>(&'a self, session: Option<&'a Session>, manner: Manner) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(session) = session.filter(|session| session.id.is_some() && manner == Manner::Politely)
            else {
                return;
            };
            let farewell = self.ask(Method::DELETE, session, JSON);
            // Servers may not know DELETE; either way the session is over for us.
            let _ = tokio::time::timeout(FAREWELL_WITHIN, self.client.send(farewell, During::Call)).await;
        })
    }

    fn facts(&self) -> LinkFacts {
        LinkFacts { pid: None, url: Some(redact::url(self.address.url.as_str())) }
    }
}

/// What is owed to a legacy server when a caller loses interest: its disconnecting would not cancel
/// anything there. In the modern era closing the stream says it all.
struct Goodbye<'a> {
    link: &'a HttpLink,
    session: &'a Session,
    id: u64,
    owed: bool,
    taken: Taken,
}

impl<'a> Goodbye<'a> {
    fn owed_by(link: &'a HttpLink, session: &'a Session, request: &Outgoing) -> Self {
        // The specification forbids cancelling a handshake.
        let owed = session.era == Era::Legacy && request.during != During::Handshake;
        Self { link, session, id: request.id, owed, taken: Taken::Perhaps }
    }

    fn settled(&mut self) {
        self.owed = false;
    }
}

impl Drop for Goodbye<'_> {
    fn drop(&mut self) {
        if !self.owed {
            return;
        }
        let Ok(raw) = RawValue::from_string(self.id.to_string()) else { return };
        let Ok(id) = Id::from_raw(&raw) else { return };
        let message = results::cancelled(id, None);
        let ask = self.link.bring(self.session, message);
        self.link.client.withdraw(ask, self.taken);
    }
}

/// What is said of an answer that is none, with its beginning.
pub(crate) fn not_a_response(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(500)]);
    // It goes to logs and terminals, which obey some of what may be in it.
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(120).collect();
    let text = if text.trim().is_empty() { "nothing" } else { &text };
    format!("its answer is not a JSON-RPC response: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_an_answer_that_is_none_commands_no_terminal() {
        let said = not_a_response(b"\x1b]0;owned\x07\r\n\x1b[2J<html>\x9b31m");
        assert!(said.contains("<html>") && !said.contains(char::is_control), "{said:?}");
        assert!(not_a_response(b"\r\n\0").ends_with("nothing"));
    }
}

//! HTTP with a separate event stream, as of 2024-11-05: one GET stream carries all server messages, and its first event
//! names the endpoint for our POSTs.

use super::http::{
    Address, EVENTS, Events, HttpClient, HttpRequest, JSON, RequestFacts, RequestReceipt, body_kind, refusal,
};
use super::inbox::{Inbox, Incoming, LinkContext};
use super::pending_replies::{FrameState, PendingReplies};
use super::{
    BoxFuture, HOST_ID, Link, LinkInfo, Outgoing, Reply, Safety, SendError, Session, UnsolicitedStream,
};
use bytes::Bytes;
use gripfast_core::failure::{During, Evidence, Observed};
use gripfast_core::redact;
use gripfast_core::supervise::upstream::CloseMode;
use gripfast_wire::envelope::{self, Addressee};
use gripfast_wire::results;
use gripfast_wire::sse::TooLarge;
use gripfast_wire::{Id, JsonText};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use url::Url;

/// A link to a legacy HTTP+SSE endpoint.
pub(super) struct LegacySseLink {
    client: HttpClient,
    url: Url,
    endpoint: Arc<Address>,
    pending: Arc<PendingReplies>,
    reader: AbortHandle,
}

/// Time limit for the first event, which must name the endpoint; a slower server is not taken for a legacy one.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a POST without a deadline of its caller: some servers never answer a POST to a dead session.
const POST_TIMEOUT: Duration = Duration::from_secs(10);

impl LegacySseLink {
    /// Opens the stream and waits for the endpoint event.
    pub(super) async fn open(client: HttpClient, url: Url, context: LinkContext) -> Result<Self, Observed> {
        match tokio::time::timeout(ENDPOINT_TIMEOUT, Self::connect(client, url, context)).await {
            Ok(opened) => opened,
            Err(_) => Err(Observed::NoAnswer(ENDPOINT_TIMEOUT)),
        }
    }

    async fn connect(client: HttpClient, url: Url, context: LinkContext) -> Result<Self, Observed> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, EVENTS);
        if let Ok(id) = HeaderValue::from_str(&context.host_id) {
            headers.insert(HeaderName::from_static(HOST_ID), id);
        }
        let to = client.address(url.clone())?;
        let http_request = HttpRequest {
            method: Method::GET,
            to,
            headers: headers.into(),
            body: Bytes::new(),
            mirrored: Vec::new(),
            sent: None,
            safety: Safety::Replayable,
        };
        let response =
            client.send(http_request, During::Handshake).await.map_err(|evidence| evidence.observed)?;
        if !response.status().is_success() {
            return Err(refusal(response, RequestFacts::WithoutSession, During::Handshake).await.0.observed);
        }
        if !matches!(body_kind(&response), super::http::BodyKind::Events) {
            return Err(Observed::Malformed("its answer to GET is not an event stream".to_owned()));
        }
        let LinkContext { inbox, max_message, .. } = context;
        let mut events = Events::new(response.into_body(), max_message);
        let endpoint = loop {
            match events.next(During::Handshake).await.map_err(|evidence| evidence.observed)? {
                Some(event) if event.event == "endpoint" => break resolve(&url, event.data.trim())?,
                Some(_) => {}
                None => {
                    return Err(Observed::Closed(
                        "its event stream ended before it named its endpoint".to_owned(),
                    ));
                }
            }
        };
        let endpoint = client.address(endpoint)?;
        let pending = Arc::new(PendingReplies::default());
        let reader = tokio::spawn(read_events(events, Arc::clone(&pending), inbox)).abort_handle();
        Ok(Self { client, url, endpoint, pending, reader })
    }

    fn post(&self, message: Vec<u8>) -> HttpRequest {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, JSON);
        let to = Arc::clone(&self.endpoint);
        HttpRequest {
            method: Method::POST,
            to,
            headers: headers.into(),
            body: message.into(),
            mirrored: Vec::new(),
            sent: None,
            safety: Safety::AtMostOnce,
        }
    }

    async fn deliver(&self, message: Vec<u8>, during: During, safety: Safety) -> Result<(), Box<SendError>> {
        let http_request = HttpRequest { safety, ..self.post(message) };
        let response = self.client.send(http_request, during).await?;
        if response.status().is_success() {
            return Ok(());
        }
        // The session is part of the endpoint URL, so every POST carries one.
        let (evidence, answer) = refusal(response, RequestFacts::WithSession, during).await;
        Err(Box::new(SendError { evidence, answer }))
    }
}

/// Resolves the endpoint that the server names: relative, absolute, or just a query. Another origin is refused, because
/// our headers hold credentials.
fn resolve(url: &Url, endpoint: &str) -> Result<Url, Observed> {
    let resolved = url
        .join(endpoint)
        .map_err(|error| Observed::Malformed(format!("it named an invalid endpoint: {error}")))?;
    if resolved.origin() != url.origin() {
        return Err(Observed::BadConfig(format!(
            "it named an endpoint on another origin ({}), which is refused",
            resolved.origin().ascii_serialization()
        )));
    }
    Ok(resolved)
}

async fn read_events(mut events: Events, pending: Arc<PendingReplies>, inbox: Inbox) {
    let ended = loop {
        match events.next_of_any_size(During::Call).await {
            // An event without a message, such as one that only sets an id, is ignored.
            Ok(Some(Ok(event))) => {
                let _ = pending.dispatch(Bytes::from(event.data), &inbox).await;
            }
            Ok(Some(Err(TooLarge { limit, beginning }))) => match envelope::addressee(&beginning, &[]) {
                Addressee::Answer(id) => pending.fail(id, Observed::TooLarge(limit), &inbox),
                Addressee::NotAnAnswer => {}
                // `Closed` and not `TooLarge`: most pending requests are unrelated to this message.
                Addressee::Unknown => {
                    break Observed::Closed(format!(
                        "the server sent a message over the limit of {limit} bytes that names no request; \
                         raise `max_message` if it is wanted"
                    ));
                }
            },
            Ok(None) => break Observed::Closed("its event stream ended".to_owned()),
            Err(evidence) => break evidence.observed,
        }
    };
    pending.fail_all(&ended);
    inbox.put(Incoming::Lost(Evidence::sent(During::Call, ended))).await;
}

impl Link for LegacySseLink {
    fn request<'a>(
        &'a self,
        _session: &'a Session,
        request: Outgoing<'a>,
    ) -> BoxFuture<'a, Result<Reply, Box<SendError>>> {
        Box::pin(async move {
            let frame = Arc::new(FrameState::with_flag(request.sent));
            let (listener, memory) = (request.listener, request.memory);
            let answer =
                self.pending.insert(request.id, request.during, listener, memory, Arc::clone(&frame))?;
            let (id, during) = (request.id, request.during);
            let mut cancel_guard =
                CancelOnDrop { link: self, id, during, armed: true, receipt: RequestReceipt::Unconfirmed };
            // From here on the server may have seen it.
            frame.begin();
            // Some servers answer the POST only when they are done with the request. The caller's deadline covers both.
            let delivering = self.deliver(request.message, request.during, request.safety);
            tokio::pin!(answer, delivering);
            let mut delivered = false;
            let outcome = loop {
                tokio::select! {
                    // The stream has priority: some servers respond there before they answer the POST.
                    biased;
                    outcome = &mut answer => break outcome,
                    result = &mut delivering, if !delivered => match result {
                        Ok(()) => {
                            delivered = true;
                            cancel_guard.receipt = RequestReceipt::Confirmed;
                        }
                        Err(error) => {
                            cancel_guard.armed = false;
                            self.pending.remove(cancel_guard.id);
                            return Err(error);
                        }
                    },
                }
            };
            cancel_guard.armed = false;
            outcome.unwrap_or_else(|_| {
                let gone = Observed::Closed("the connection to the server was dropped".to_owned());
                Err(Evidence::sent(request.during, gone).into())
            })
        })
    }

    fn send<'a>(
        &'a self,
        _session: &'a Session,
        message: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), Box<SendError>>> {
        Box::pin(async move {
            let delivering = self.deliver(message, During::Call, Safety::AtMostOnce);
            match tokio::time::timeout(POST_TIMEOUT, delivering).await {
                Ok(delivered) => delivered,
                Err(_) => Err(Evidence::sent(During::Call, Observed::NoAnswer(POST_TIMEOUT)).into()),
            }
        })
    }

    fn listen(self: Arc<Self>, _session: Arc<Session>) -> Option<UnsolicitedStream> {
        // The one stream carries everything already.
        None
    }

    fn close<'a>(&'a self, _session: Option<&'a Session>, _manner: CloseMode) -> BoxFuture<'a, ()> {
        self.reader.abort();
        self.pending.fail_all(&Observed::Closed("the connection to the server was closed".to_owned()));
        Box::pin(std::future::ready(()))
    }

    fn info(&self) -> LinkInfo {
        LinkInfo { pid: None, url: Some(redact::url(self.url.as_str())) }
    }
}

impl Drop for LegacySseLink {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Sends `notifications/cancelled` for a request that its caller drops.
struct CancelOnDrop<'a> {
    link: &'a LegacySseLink,
    id: u64,
    during: During,
    armed: bool,
    receipt: RequestReceipt,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        self.link.pending.remove(self.id);
        let Ok(raw) = JsonText::parse(self.id.to_string()) else { return };
        let Ok(id) = Id::from_raw(&raw) else { return };
        // The specification forbids cancelling a handshake.
        if self.during != During::Handshake {
            self.link.client.send_cancel(self.link.post(results::cancelled(id, None)), self.receipt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_may_be_relative_absolute_or_a_query_but_not_of_another_origin() {
        let url = Url::parse("http://localhost:8080/api/sse").unwrap();
        let at = |endpoint| resolve(&url, endpoint).map(|url| url.to_string());
        assert_eq!(at("/message?sessionId=1").unwrap(), "http://localhost:8080/message?sessionId=1");
        assert_eq!(at("message?sessionId=1").unwrap(), "http://localhost:8080/api/message?sessionId=1");
        assert_eq!(at("?sessionId=1").unwrap(), "http://localhost:8080/api/sse?sessionId=1");
        assert_eq!(at("http://localhost:8080/m").unwrap(), "http://localhost:8080/m");
        assert!(at("http://localhost:8081/m").is_err());
        assert!(at("//evil.example/m").is_err());
        assert!(at("https://localhost:8080/m").is_err());
    }
}

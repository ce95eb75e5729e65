//! HTTP with a separate event stream, as of 2024-11-05: one GET stream carries everything the server says,
//! its first event names the address for our POSTs.

use super::http::{Address, Ask, Asked, EVENTS, Events, HttpClient, JSON, Taken, kind_of, refusal};
use super::inbox::{Inbox, Incoming as News, Surroundings};
use super::pending::{FrameFate, Pending};
use super::{BoxFuture, HOST_ID, Link, LinkFacts, Listening, Outgoing, Reply, Safety, Session, Trouble};
use bytes::Bytes;
use gripfast_core::failure::{During, Evidence, Observed};
use gripfast_core::redact;
use gripfast_core::supervise::upstream::Manner;
use gripfast_wire::envelope::{self, Addressee};
use gripfast_wire::results;
use gripfast_wire::sse::TooLarge;
use gripfast_wire::{Id, RawValue};
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
    pending: Arc<Pending>,
    reader: AbortHandle,
}

/// The first event must name the endpoint; a server that keeps us waiting is not one of these.
const ENDPOINT_WITHIN: Duration = Duration::from_secs(10);
/// A dead session is answered by some servers with nothing at all, so a POST that nobody else times is not waited for
/// longer.
const POST_WITHIN: Duration = Duration::from_secs(10);

impl LegacySseLink {
    /// Opens the stream and waits for the address of our POSTs.
    pub(super) async fn open(
        client: HttpClient,
        url: Url,
        surroundings: Surroundings,
    ) -> Result<Self, Observed> {
        match tokio::time::timeout(ENDPOINT_WITHIN, Self::greet(client, url, surroundings)).await {
            Ok(opened) => opened,
            Err(_) => Err(Observed::Silence(ENDPOINT_WITHIN)),
        }
    }

    async fn greet(client: HttpClient, url: Url, surroundings: Surroundings) -> Result<Self, Observed> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, EVENTS);
        if let Ok(id) = HeaderValue::from_str(&surroundings.host_id) {
            headers.insert(HeaderName::from_static(HOST_ID), id);
        }
        let to = client.address(url.clone())?;
        let ask = Ask {
            method: Method::GET,
            to,
            headers: headers.into(),
            body: Bytes::new(),
            sent: None,
            safety: Safety::Replayable,
        };
        let response = client.send(ask, During::Handshake).await.map_err(|evidence| evidence.observed)?;
        if !response.status().is_success() {
            return Err(refusal(response, Asked::WithoutSession, During::Handshake).await.0.observed);
        }
        if !matches!(kind_of(&response), super::http::Kind::Events) {
            return Err(Observed::Garbled("its answer to GET is not an event stream".to_owned()));
        }
        let Surroundings { inbox, max_message, stderr: _, secrets: _, children: _, host_id: _ } =
            surroundings;
        let mut events = Events::of(response.into_body(), max_message);
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
        let pending = Arc::new(Pending::default());
        let reader = tokio::spawn(follow(events, Arc::clone(&pending), inbox)).abort_handle();
        Ok(Self { client, url, endpoint, pending, reader })
    }

    fn post(&self, message: Vec<u8>) -> Ask {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, JSON);
        let to = Arc::clone(&self.endpoint);
        Ask {
            method: Method::POST,
            to,
            headers: headers.into(),
            body: message.into(),
            sent: None,
            safety: Safety::AtMostOnce,
        }
    }

    async fn deliver(&self, message: Vec<u8>, during: During, safety: Safety) -> Result<(), Box<Trouble>> {
        let ask = Ask { safety, ..self.post(message) };
        let response = self.client.send(ask, during).await?;
        if response.status().is_success() {
            return Ok(());
        }
        // The session is in the address, so every POST carries one.
        let (evidence, answer) = refusal(response, Asked::WithSession, during).await;
        Err(Box::new(Trouble { evidence, answer }))
    }
}

/// The endpoint as the server names it: relative, absolute, or just a query; on the same origin only, for
/// our headers hold credentials.
fn resolve(url: &Url, endpoint: &str) -> Result<Url, Observed> {
    let resolved = url
        .join(endpoint)
        .map_err(|error| Observed::Garbled(format!("it named an endpoint that is no address: {error}")))?;
    if resolved.origin() != url.origin() {
        return Err(Observed::BadConfig(format!(
            "it named an endpoint on another origin ({}), which is not followed",
            resolved.origin().ascii_serialization()
        )));
    }
    Ok(resolved)
}

async fn follow(mut events: Events, pending: Arc<Pending>, inbox: Inbox) {
    let ended = loop {
        match events.next_of_any_size(During::Call).await {
            // What is no message, such as an event that only sets an id, is for nobody.
            Ok(Some(Ok(event))) => {
                let _ = pending.dispatch(Bytes::from(event.data), &inbox).await;
            }
            Ok(Some(Err(TooLarge { limit, beginning }))) => match envelope::addressee(&beginning, &[]) {
                Addressee::Answer(id) => pending.fail(id, Observed::TooLarge(limit), &inbox),
                Addressee::Nobody => {}
                // Most of those who wait have no part in it.
                Addressee::Unknown => {
                    break Observed::Closed(format!(
                        "it sent a message over the limit of {limit} bytes (`max_message`), and nobody can tell to whom"
                    ));
                }
            },
            Ok(None) => break Observed::Closed("its event stream ended".to_owned()),
            Err(evidence) => break evidence.observed,
        }
    };
    pending.fail_all(&ended);
    inbox.put(News::Lost(Evidence::sent(During::Call, ended))).await;
}

impl Link for LegacySseLink {
    fn request<'a>(
        &'a self,
        _session: &'a Session,
        request: Outgoing,
    ) -> BoxFuture<'a, Result<Reply, Box<Trouble>>> {
        Box::pin(async move {
            let fate = Arc::new(FrameFate::marking(request.sent));
            let (listener, memory) = (request.listener, request.memory);
            let answer =
                self.pending.join(request.id, request.during, listener, memory, Arc::clone(&fate))?;
            let (id, during) = (request.id, request.during);
            let mut goodbye = Goodbye { link: self, id, during, due: true, taken: Taken::Perhaps };
            // From here on the server may have seen it.
            fate.begin();
            // Some servers answer the POST when they are done with the request. Its caller times both together.
            let delivering = self.deliver(request.message, request.during, request.safety);
            tokio::pin!(answer, delivering);
            let mut delivered = false;
            let outcome = loop {
                tokio::select! {
                    // The stream has the last word: some servers answer there before they answer the POST.
                    biased;
                    outcome = &mut answer => break outcome,
                    result = &mut delivering, if !delivered => match result {
                        Ok(()) => {
                            delivered = true;
                            goodbye.taken = Taken::Surely;
                        }
                        Err(trouble) => {
                            goodbye.due = false;
                            self.pending.forget(goodbye.id);
                            return Err(trouble);
                        }
                    },
                }
            };
            goodbye.due = false;
            outcome.unwrap_or_else(|_| {
                let gone = Observed::Closed("the link was dropped".to_owned());
                Err(Evidence::sent(request.during, gone).into())
            })
        })
    }

    fn send<'a>(
        &'a self,
        _session: &'a Session,
        message: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), Box<Trouble>>> {
        Box::pin(async move {
            let delivering = self.deliver(message, During::Call, Safety::AtMostOnce);
            match tokio::time::timeout(POST_WITHIN, delivering).await {
                Ok(delivered) => delivered,
                Err(_) => Err(Evidence::sent(During::Call, Observed::Silence(POST_WITHIN)).into()),
            }
        })
    }

    fn listen(self: Arc<Self>, _session: Arc<Session>) -> Option<Listening> {
        // The one stream carries everything already.
        None
    }

    fn close<'a>(&'a self, _session: Option<&'a Session>, _manner: Manner) -> BoxFuture<'a, ()> {
        self.reader.abort();
        self.pending.fail_all(&Observed::Closed("the link was closed".to_owned()));
        Box::pin(std::future::ready(()))
    }

    fn facts(&self) -> LinkFacts {
        LinkFacts { pid: None, url: Some(redact::url(self.url.as_str())) }
    }
}

impl Drop for LegacySseLink {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// A caller that loses interest owes the server `notifications/cancelled`.
struct Goodbye<'a> {
    link: &'a LegacySseLink,
    id: u64,
    during: During,
    due: bool,
    taken: Taken,
}

impl Drop for Goodbye<'_> {
    fn drop(&mut self) {
        if !self.due {
            return;
        }
        self.link.pending.forget(self.id);
        let Ok(raw) = RawValue::from_string(self.id.to_string()) else { return };
        let Ok(id) = Id::from_raw(&raw) else { return };
        // The specification forbids cancelling a handshake.
        if self.during != During::Handshake {
            self.link.client.withdraw(self.link.post(results::cancelled(id, None)), self.taken);
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

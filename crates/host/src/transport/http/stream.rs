//! GET stream of the legacy era for unsolicited server messages. It is read for as long as the session lives, and
//! resumed after its last event when it is cut.

use super::response;
use super::response::{BodyKind, Events, RequestFacts};
use super::{EVENTS, HttpLink, LAST_EVENT_ID, MIN_RESUME_INTERVAL};
use crate::transport::Session;
use crate::transport::inbox::Incoming;
use bytes::Bytes;
use gripfast_core::failure::{During, Evidence, Observed};
use gripfast_wire::envelope::Message;
use http::{HeaderValue, Method};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

pub(super) const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Opening state of the first stream of a link. Some servers send requests that belong to a call on this stream;
/// without it the request is lost, and the call waits for an answer for ever. So the first calls of clients that can
/// answer requests wait for it, which takes no longer than the listing of the tools beside it. A stream in a renewed
/// session is not waited for: the calls that it is renewed for have waited already.
#[derive(Debug, Default)]
pub(super) struct FirstStream {
    started: AtomicBool,
    is_opening: AtomicBool,
    opened: Notify,
}

/// Marks the stream as opening while this lives.
pub(super) struct OpeningGuard<'a>(&'a FirstStream);

impl FirstStream {
    /// Maximum time that calls wait for a server that does not answer the GET.
    const OPEN_TIMEOUT: Duration = Duration::from_secs(1);

    pub(super) fn start(&self) {
        if !self.started.swap(true, Ordering::AcqRel) {
            self.is_opening.store(true, Ordering::Release);
        }
    }

    pub(super) fn opening_guard(&self) -> OpeningGuard<'_> {
        OpeningGuard(self)
    }

    /// Waits until the stream is open, refused or late.
    pub(super) async fn wait_until_open(&self) {
        if !self.is_opening.load(Ordering::Acquire) {
            return;
        }
        let mut settled = pin!(self.opened.notified());
        settled.as_mut().enable();
        if self.is_opening.load(Ordering::Acquire) {
            let _ = tokio::time::timeout(Self::OPEN_TIMEOUT, settled).await;
            // Later calls do not wait again.
            self.is_opening.store(false, Ordering::Release);
        }
    }
}

impl Drop for OpeningGuard<'_> {
    fn drop(&mut self) {
        self.0.is_opening.store(false, Ordering::Release);
        self.0.opened.notify_waiters();
    }
}

/// Reads the stream for as long as the server has one. Failures are reported to the supervisor, which then checks the
/// link: an idle upstream is known to be unreachable before the next call.
pub(super) async fn run(link: &HttpLink, session: &Session, opening: OpeningGuard<'_>) {
    let mut opening = Some(opening);
    let mut last_event: Option<String> = None;
    let mut pause = FIRST_RETRY_DELAY;
    let mut was_open = false;
    loop {
        let mut http_request = link.empty_request(Method::GET, session, EVENTS);
        if let Some(last) = last_event.as_deref().and_then(|last| HeaderValue::from_str(last).ok()) {
            Arc::make_mut(&mut http_request.headers).insert(LAST_EVENT_ID, last);
        }
        // Boxed, because there is one of these for each server: once the stream is open, its memory is free.
        let answered = Box::pin(link.client.send(http_request, During::Probe)).await;
        drop(opening.take());
        let retry = match answered {
            Ok(response) => match (response.status().as_u16(), response::body_kind(&response)) {
                (200..=299, BodyKind::Events) => {
                    was_open = true;
                    let (events, had_messages) =
                        forward_events(link, Events::new(response.into_body(), link.max_message)).await;
                    last_event = events.last_event_id().map(str::to_owned).or(last_event);
                    if had_messages {
                        pause = FIRST_RETRY_DELAY;
                    }
                    // A minimum applies to the delay that the server asks for; it is longer for a stream without
                    // messages.
                    let least = if had_messages { MIN_RESUME_INTERVAL } else { FIRST_RETRY_DELAY };
                    events.retry().map(|retry| retry.max(least))
                }
                // An intermediary has a temporary failure, or closes silent streams.
                (408 | 409 | 425 | 429 | 500 | 502..=599, _) => {
                    let (evidence, _) =
                        response::refusal(response, RequestFacts::for_session(session), During::Probe).await;
                    link.inbox.put(stream_refused(session, evidence)).await;
                    None
                }
                // The server has no such stream, which says nothing about a session that is this young. The
                // specification wants 405; in practice servers send 404 and more.
                _ if !was_open => return,
                // The server had one: another server has taken its place.
                (200..=299 | 405 | 406 | 501, _) => {
                    let gone = Observed::Closed("it has no event stream any more".to_owned());
                    return link.inbox.put(Incoming::Lost(Evidence::sent(During::Probe, gone))).await;
                }
                _ => {
                    let (evidence, _) =
                        response::refusal(response, RequestFacts::for_session(session), During::Probe).await;
                    return link.inbox.put(stream_refused(session, evidence)).await;
                }
            },
            Err(evidence) => {
                link.inbox.put(stream_refused(session, evidence)).await;
                None
            }
        };
        tokio::time::sleep(retry.unwrap_or(pause).min(MAX_RETRY_DELAY)).await;
        pause = (pause * 2).min(MAX_RETRY_DELAY);
    }
}

fn stream_refused(session: &Session, evidence: Evidence) -> Incoming {
    Incoming::StreamRefused { session: session.id.clone(), evidence }
}

/// Forwards the messages of the stream until it is cut or ends; both are resumed.
async fn forward_events(link: &HttpLink, mut events: Events) -> (Events, bool) {
    let mut had_messages = false;
    loop {
        let event = match events.next(During::Probe).await {
            Ok(Some(event)) => event,
            // No caller waits for it; later events may be wanted.
            Err(Evidence { observed: Observed::TooLarge(_), .. }) => continue,
            Ok(None) | Err(_) => return (events, had_messages),
        };
        had_messages |= !event.data.is_empty();
        let message = Bytes::from(event.data);
        // Responses belong to their POSTs; here they can only be replays of old ones.
        if matches!(Message::parse(&message), Ok(Message::Request(_) | Message::Notification(_))) {
            link.inbox.put(Incoming::Message(message)).await;
        }
    }
}

//! The GET stream of the legacy era: what the server says unasked. It is followed for as long as the
//! session lives, and picked up after its last event when it is cut.

use super::answer::{self, Asked, Events, Kind};
use super::{EVENTS, HttpLink, LAST_EVENT_ID, RESUMPTIONS_APART};
use crate::transport::Session;
use crate::transport::inbox::Incoming as News;
use bytes::Bytes;
use gripfast_core::failure::{During, Evidence, Observed};
use gripfast_wire::envelope::Message;
use http::{HeaderValue, Method};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Whether the first stream of a link is open yet. Some servers ask there what a call wants to know, and what they ask
/// while there is no stream is lost, to them as well: their call waits for an answer that nobody gives. So the first
/// calls of those who can be asked wait for it, which takes no longer than the listing of the tools beside it. A stream
/// that follows in a new session is not waited for: the calls that it is renewed for have waited already.
#[derive(Debug, Default)]
pub(super) struct FirstStream {
    begun: AtomicBool,
    is_opening: AtomicBool,
    settled: Notify,
}

/// As long as this lives, a stream is being opened.
pub(super) struct WhileOpening<'a>(&'a FirstStream);

impl FirstStream {
    /// A server that says nothing about its stream does not keep calls from it for longer.
    const PATIENCE: Duration = Duration::from_secs(1);

    pub(super) fn begins(&self) {
        if !self.begun.swap(true, Ordering::AcqRel) {
            self.is_opening.store(true, Ordering::Release);
        }
    }

    pub(super) fn while_opening(&self) -> WhileOpening<'_> {
        WhileOpening(self)
    }

    /// Waits until it is open, refused or late.
    pub(super) async fn settled(&self) {
        if !self.is_opening.load(Ordering::Acquire) {
            return;
        }
        let mut settled = pin!(self.settled.notified());
        settled.as_mut().enable();
        if self.is_opening.load(Ordering::Acquire) {
            let _ = tokio::time::timeout(Self::PATIENCE, settled).await;
            // Whoever comes later does not wait again.
            self.is_opening.store(false, Ordering::Release);
        }
    }
}

impl Drop for WhileOpening<'_> {
    fn drop(&mut self) {
        self.0.is_opening.store(false, Ordering::Release);
        self.0.settled.notify_waiters();
    }
}

/// Follows the stream for as long as the server has one. Whatever stands in the way is told to the owner,
/// who then looks after the link: an idle upstream is known to be away before anybody calls.
pub(super) async fn follow(link: &HttpLink, session: &Session, opening: WhileOpening<'_>) {
    let mut opening = Some(opening);
    let mut last_event: Option<String> = None;
    let mut pause = FIRST_PAUSE;
    let mut was_open = false;
    loop {
        let mut ask = link.ask(Method::GET, session, EVENTS);
        if let Some(last) = last_event.as_deref().and_then(|last| HeaderValue::from_str(last).ok()) {
            Arc::make_mut(&mut ask.headers).insert(LAST_EVENT_ID, last);
        }
        // In a box, because there is one of these for each server: once the stream is open, its memory is free.
        let answered = Box::pin(link.client.send(ask, During::Probe)).await;
        drop(opening.take());
        let retry = match answered {
            Ok(response) => match (response.status().as_u16(), answer::kind_of(&response)) {
                (200..=299, Kind::Events) => {
                    was_open = true;
                    let (events, heard_anything) =
                        hear(link, Events::of(response.into_body(), link.max_message)).await;
                    last_event = events.last_event_id().map(str::to_owned).or(last_event);
                    if heard_anything {
                        pause = FIRST_PAUSE;
                    }
                    // Nobody is asked again and again, however little it asks to wait; least of all who says nothing.
                    let least = if heard_anything { RESUMPTIONS_APART } else { FIRST_PAUSE };
                    events.retry().map(|retry| retry.max(least))
                }
                // A gateway on the way has a bad moment, or does not wait for a stream that is silent.
                (408 | 409 | 425 | 429 | 500 | 502..=599, _) => {
                    let (evidence, _) = answer::refusal(response, Asked::with(session), During::Probe).await;
                    link.inbox.put(refused(session, evidence)).await;
                    None
                }
                // It has no such stream, in whatever words: that says nothing about a session that is this
                // young. The specification wants 405, the field says 404 and more.
                _ if !was_open => return,
                // It had one. Another server has taken its place.
                (200..=299 | 405 | 406 | 501, _) => {
                    let gone = Observed::Closed("it has no event stream any more".to_owned());
                    return link.inbox.put(News::Lost(Evidence::sent(During::Probe, gone))).await;
                }
                _ => {
                    let (evidence, _) = answer::refusal(response, Asked::with(session), During::Probe).await;
                    return link.inbox.put(refused(session, evidence)).await;
                }
            },
            Err(evidence) => {
                link.inbox.put(refused(session, evidence)).await;
                None
            }
        };
        tokio::time::sleep(retry.unwrap_or(pause).min(LONGEST_PAUSE)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn refused(session: &Session, evidence: Evidence) -> News {
    News::StreamRefused { session: session.id.clone(), evidence }
}

/// Hands over what the stream says until it is cut or ends; both are picked up again.
async fn hear(link: &HttpLink, mut events: Events) -> (Events, bool) {
    let mut heard_anything = false;
    loop {
        let event = match events.next(During::Probe).await {
            Ok(Some(event)) => event,
            // Nobody waits for it; what comes after it may be wanted.
            Err(Evidence { observed: Observed::TooLarge(_), .. }) => continue,
            Ok(None) | Err(_) => return (events, heard_anything),
        };
        heard_anything |= !event.data.is_empty();
        let message = Bytes::from(event.data);
        // Answers to requests belong to their POSTs; here they can only be replays of old ones.
        if matches!(Message::parse(&message), Ok(Message::Request(_) | Message::Notification(_))) {
            link.inbox.put(News::Message(message)).await;
        }
    }
}

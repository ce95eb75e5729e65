//! The GET stream of the legacy era: what the server says unasked. It is followed for as long as the
//! session lives, and picked up after its last event when it is cut.

use super::answer::{self, Events, Kind};
use super::{EVENTS, HttpLink, LAST_EVENT_ID};
use crate::transport::Session;
use crate::transport::inbox::Incoming as News;
use bytes::Bytes;
use gripfast_core::failure::During;
use gripfast_wire::envelope::Message;
use http::{HeaderValue, Method};
use std::time::Duration;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Follows the stream until the server has none, or refuses, or cannot be reached. The owner hears of the
/// latter two: an idle upstream is then known to be away before anybody calls.
pub(super) async fn follow(link: &HttpLink, session: &Session) {
    let mut last_event: Option<String> = None;
    let mut pause = FIRST_PAUSE;
    loop {
        let mut ask = link.ask(Method::GET, session, EVENTS, Vec::new());
        if let Some(last) = last_event.as_deref().and_then(|last| HeaderValue::from_str(last).ok()) {
            ask.headers.insert(LAST_EVENT_ID, last);
        }
        let response = match link.client.send(ask, During::Probe).await {
            Ok(response) => response,
            Err(evidence) => return link.inbox.put(News::StreamRefused(evidence)).await,
        };
        match response.status().as_u16() {
            200..=299 => {}
            // It has no such stream, which the specification allows.
            405 | 406 | 501 => return,
            _ => {
                let (evidence, _) = answer::refusal(response, session.id.is_some(), During::Probe).await;
                return link.inbox.put(News::StreamRefused(evidence)).await;
            }
        }
        if !matches!(answer::kind_of(&response), Kind::Events) {
            return;
        }
        let mut events = Events::of(response.into_body(), link.max_message);
        let mut heard_anything = false;
        // Cut or ended: both are picked up again.
        while let Ok(Some(event)) = events.next(During::Probe).await {
            heard_anything = true;
            let message = Bytes::from(event.data);
            // Answers to requests belong to their POSTs; here they can only be replays of old ones.
            if matches!(Message::parse(&message), Ok(Message::Request(_) | Message::Notification(_))) {
                link.inbox.put(News::Message(message)).await;
            }
        }
        last_event = events.last_event_id().map(str::to_owned).or(last_event);
        pause = if heard_anything { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        tokio::time::sleep(events.retry().unwrap_or(pause).min(LONGEST_PAUSE)).await;
    }
}

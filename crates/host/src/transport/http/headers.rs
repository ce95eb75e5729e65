//! HTTP headers of outgoing messages: those that all messages of a session share, and those that mirror the body of one
//! message.

use super::client::IDENTITY;
use super::{JSON, JSON_OR_EVENTS};
use crate::sync::Mutex;
use crate::transport::{Outgoing, Session};
use gripfast_wire::{Era, ProtocolVersion};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Headers of messages to one address, made once for each method and name of a session.
pub(super) struct MessageHeaders {
    host: HeaderValue,
    made: Mutex<MadeHeaders>,
}

/// Headers that were made for the current session.
#[derive(Default)]
struct MadeHeaders {
    id: Option<String>,
    version: Option<ProtocolVersion>,
    /// Method and name, with their headers; the oldest first.
    headers: Vec<(Option<String>, Option<String>, Arc<HeaderMap>)>,
}

impl MessageHeaders {
    /// Number of methods and names whose headers are kept.
    const MAX_KEPT: usize = 32;

    pub(super) fn new(host: HeaderValue) -> Self {
        Self { host, made: Mutex::default() }
    }

    /// Returns the headers of a message. A request to a modern server has its method and the name of its item among
    /// them.
    pub(super) fn for_message(
        &self,
        session: &Session,
        method: Option<&str>,
        name: Option<&str>,
    ) -> Arc<HeaderMap> {
        let method = method.filter(|_| session.era == Era::Modern);
        let mut made = self.made.lock();
        if made.id != session.id || made.version != session.version {
            let (id, version) = (session.id.clone(), session.version.clone());
            *made = MadeHeaders { id, version, headers: Vec::new() };
        }
        let is_made = |known: &&(Option<String>, Option<String>, _)| {
            (known.0.as_deref(), known.1.as_deref()) == (method, name)
        };
        if let Some((_, _, headers)) = made.headers.iter().rfind(is_made) {
            return Arc::clone(headers);
        }
        let mut headers = session_headers(session, JSON_OR_EVENTS);
        headers.insert(HOST, self.host.clone());
        headers.insert(CONTENT_TYPE, JSON);
        for (header, value) in [(METHOD, method), (NAME, name)] {
            headers.extend(
                value.and_then(|value| HeaderValue::from_str(value).ok()).map(|value| (header, value)),
            );
        }
        let headers = Arc::new(headers);
        if made.headers.len() == Self::MAX_KEPT {
            made.headers.remove(0);
        }
        made.headers.push((method.map(str::to_owned), name.map(str::to_owned), Arc::clone(&headers)));
        headers
    }
}

/// Creates the headers of a request without a message within a session.
pub(super) fn session_headers(session: &Session, accept: HeaderValue) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(ACCEPT, accept);
    headers.insert(ACCEPT_ENCODING, IDENTITY);
    if let Some(id) = session.id.as_ref().and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert(SESSION_ID, id);
    }
    let version = session.version.as_ref().filter(|version| version.needs_version_header());
    if let Some(version) = version.and_then(|version| HeaderValue::from_str(version.as_str()).ok()) {
        headers.insert(PROTOCOL_VERSION, version);
    }
    headers
}

/// Returns the headers that mirror parts of the body, besides method and name. The values are encoded already.
pub(super) fn mirrored(request: &Outgoing<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let header = |(name, value): &(String, String)| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?))
    };
    request.headers.iter().filter_map(header).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_made_once_per_session() {
        let message_headers = MessageHeaders::new(HeaderValue::from_static("example.com"));
        let session = |id: Option<&str>, version: Option<ProtocolVersion>| Session {
            era: Era::Legacy,
            version,
            id: id.map(str::to_owned),
        };
        let before = message_headers.for_message(&session(None, None), None, None);
        assert!(!before.contains_key(SESSION_ID) && !before.contains_key(PROTOCOL_VERSION));
        assert_eq!((&before[ACCEPT], &before[CONTENT_TYPE]), (&JSON_OR_EVENTS, &JSON));
        let first = session(Some("one"), Some(ProtocolVersion::LATEST_LEGACY));
        assert!(Arc::ptr_eq(
            &message_headers.for_message(&first, None, None),
            &message_headers.for_message(&first, None, None)
        ));
        assert_eq!(message_headers.for_message(&first, None, None)[SESSION_ID], "one");
        assert_eq!(
            message_headers.for_message(&first, None, None)[PROTOCOL_VERSION],
            ProtocolVersion::LATEST_LEGACY.as_str()
        );
        let modern = Session { era: Era::Modern, ..session(None, Some(ProtocolVersion::MODERN)) };
        let calls =
            ["a", "b", "a"].map(|name| message_headers.for_message(&modern, Some("tools/call"), Some(name)));
        assert!(Arc::ptr_eq(&calls[0], &calls[2]) && !Arc::ptr_eq(&calls[0], &calls[1]));
        assert_eq!([METHOD, NAME, HOST].map(|name| &calls[1][name]), ["tools/call", "b", "example.com"]);
        for number in 0..100 {
            message_headers.for_message(&modern, Some("tools/call"), Some(&number.to_string()));
        }
        assert_eq!(message_headers.made.lock().headers.len(), MessageHeaders::MAX_KEPT);
        let second = session(Some("two"), Some(ProtocolVersion::LATEST_LEGACY));
        assert_eq!(message_headers.for_message(&second, None, None)[SESSION_ID], "two");
        let older = session(Some("two"), Some(ProtocolVersion::V2025_03_26));
        assert!(
            !message_headers.for_message(&older, None, None).contains_key(PROTOCOL_VERSION),
            "that version has no such header"
        );
    }
}

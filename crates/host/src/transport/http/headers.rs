//! HTTP headers of outgoing messages: those that all messages of a session share, and those that mirror the body of one
//! message.

use super::client::IDENTITY;
use super::{JSON, JSON_OR_EVENTS};
use crate::sync::Mutex;
use crate::transport::{Outgoing, Session};
use gripfast_wire::{Era, ProtocolVersion};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Headers of messages, made once for a session and a method.
#[derive(Default)]
pub(super) struct MessageHeaders {
    last: Mutex<Option<CachedHeaders>>,
}

/// Headers of the last message, with the values that they depend on.
struct CachedHeaders {
    id: Option<String>,
    version: Option<ProtocolVersion>,
    method: Option<String>,
    headers: Arc<HeaderMap>,
}

impl MessageHeaders {
    /// Returns the headers of a message. A request to a modern server has its method among them.
    pub(super) fn for_message(&self, session: &Session, method: Option<&str>) -> Arc<HeaderMap> {
        let method = method.filter(|_| session.era == Era::Modern);
        let mut last = self.last.lock();
        if let Some(cached) = &*last
            && cached.id == session.id
            && cached.version == session.version
            && cached.method.as_deref() == method
        {
            return Arc::clone(&cached.headers);
        }
        let mut headers = session_headers(session, JSON_OR_EVENTS);
        headers.insert(CONTENT_TYPE, JSON);
        if let Some(method) = method.and_then(|method| HeaderValue::from_str(method).ok()) {
            headers.insert(METHOD, method);
        }
        let headers = Arc::new(headers);
        let (id, version) = (session.id.clone(), session.version.clone());
        let method = method.map(str::to_owned);
        *last = Some(CachedHeaders { id, version, method, headers: Arc::clone(&headers) });
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

/// Returns the headers that mirror parts of the body, besides the method. The values are encoded already.
pub(super) fn mirrored(request: &Outgoing) -> Vec<(HeaderName, HeaderValue)> {
    let name = request.name.as_ref().and_then(|name| Some((NAME, HeaderValue::from_str(name).ok()?)));
    let others = request.headers.iter().filter_map(|(name, value)| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?))
    });
    name.into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_made_once_per_session() {
        let message_headers = MessageHeaders::default();
        let session = |id: Option<&str>, version: Option<ProtocolVersion>| Session {
            era: Era::Legacy,
            version,
            id: id.map(str::to_owned),
        };
        let before = message_headers.for_message(&session(None, None), None);
        assert!(!before.contains_key(SESSION_ID) && !before.contains_key(PROTOCOL_VERSION));
        assert_eq!((&before[ACCEPT], &before[CONTENT_TYPE]), (&JSON_OR_EVENTS, &JSON));
        let first = session(Some("one"), Some(ProtocolVersion::LATEST_LEGACY));
        assert!(Arc::ptr_eq(
            &message_headers.for_message(&first, None),
            &message_headers.for_message(&first, None)
        ));
        assert_eq!(message_headers.for_message(&first, None)[SESSION_ID], "one");
        assert_eq!(
            message_headers.for_message(&first, None)[PROTOCOL_VERSION],
            ProtocolVersion::LATEST_LEGACY.as_str()
        );
        let second = session(Some("two"), Some(ProtocolVersion::LATEST_LEGACY));
        assert_eq!(message_headers.for_message(&second, None)[SESSION_ID], "two");
        let older = session(Some("two"), Some(ProtocolVersion::V2025_03_26));
        assert!(
            !message_headers.for_message(&older, None).contains_key(PROTOCOL_VERSION),
            "that version has no such header"
        );
    }
}

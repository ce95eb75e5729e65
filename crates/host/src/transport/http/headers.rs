//! HTTP headers of outgoing messages: those that all messages of a session share, and those that mirror the body of one
//! message.

use super::{JSON, JSON_OR_EVENTS};
use crate::sync::Mutex;
use crate::transport::{Outgoing, Session};
use gripfast_wire::{Era, ProtocolVersion};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Headers of messages, made once for a session.
#[derive(Default)]
pub(super) struct MessageHeaders {
    last: Mutex<Option<CachedHeaders>>,
}

/// Headers of the last session, with the values that they depend on.
struct CachedHeaders {
    id: Option<String>,
    version: Option<ProtocolVersion>,
    headers: Arc<HeaderMap>,
}

impl MessageHeaders {
    pub(super) fn for_session(&self, session: &Session) -> Arc<HeaderMap> {
        let mut last = self.last.lock();
        if let Some(cached) = &*last
            && cached.id == session.id
            && cached.version == session.version
        {
            return Arc::clone(&cached.headers);
        }
        let mut headers = session_headers(session, JSON_OR_EVENTS);
        headers.insert(CONTENT_TYPE, JSON);
        let headers = Arc::new(headers);
        let (id, version) = (session.id.clone(), session.version.clone());
        *last = Some(CachedHeaders { id, version, headers: Arc::clone(&headers) });
        headers
    }
}

/// Creates the headers of a request without a message within a session.
pub(super) fn session_headers(session: &Session, accept: HeaderValue) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(ACCEPT, accept);
    if let Some(id) = session.id.as_ref().and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert(SESSION_ID, id);
    }
    let version = session.version.as_ref().filter(|version| version.needs_version_header());
    if let Some(version) = version.and_then(|version| HeaderValue::from_str(version.as_str()).ok()) {
        headers.insert(PROTOCOL_VERSION, version);
    }
    headers
}

/// Adds the headers that mirror the body, most of them in the modern era. The values are encoded already.
pub(super) fn mirror(headers: &mut Arc<HeaderMap>, era: Era, request: &Outgoing) {
    let mut put = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            Arc::make_mut(headers).insert(name, value);
        }
    };
    if era == Era::Modern {
        put(METHOD, &request.method);
    }
    if let Some(name) = &request.name {
        put(NAME, name);
    }
    for (name, value) in &request.headers {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            put(name, value);
        }
    }
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
        let before = message_headers.for_session(&session(None, None));
        assert!(!before.contains_key(SESSION_ID) && !before.contains_key(PROTOCOL_VERSION));
        assert_eq!((&before[ACCEPT], &before[CONTENT_TYPE]), (&JSON_OR_EVENTS, &JSON));
        let first = session(Some("one"), Some(ProtocolVersion::LATEST_LEGACY));
        assert!(Arc::ptr_eq(&message_headers.for_session(&first), &message_headers.for_session(&first)));
        assert_eq!(message_headers.for_session(&first)[SESSION_ID], "one");
        assert_eq!(
            message_headers.for_session(&first)[PROTOCOL_VERSION],
            ProtocolVersion::LATEST_LEGACY.as_str()
        );
        let second = session(Some("two"), Some(ProtocolVersion::LATEST_LEGACY));
        assert_eq!(message_headers.for_session(&second)[SESSION_ID], "two");
        let older = session(Some("two"), Some(ProtocolVersion::V2025_03_26));
        assert!(
            !message_headers.for_session(&older).contains_key(PROTOCOL_VERSION),
            "that version has no such header"
        );
    }
}

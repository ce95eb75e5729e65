//! The headers of what is sent to a server: those that all messages of a session carry alike, and those that repeat
//! what one of them says.

use super::{JSON, JSON_OR_EVENTS};
use crate::transport::{Outgoing, Session};
use gripfast_wire::{Era, ProtocolVersion};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::{Arc, Mutex, PoisonError};

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The headers of messages, made once for a session.
#[derive(Default)]
pub(super) struct MessageHeaders {
    last: Mutex<Option<Made>>,
}

/// What was made for the session that last sent something, by what is said of a session.
struct Made {
    id: Option<String>,
    version: Option<ProtocolVersion>,
    headers: Arc<HeaderMap>,
}

impl MessageHeaders {
    pub(super) fn of(&self, session: &Session) -> Arc<HeaderMap> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*last
            && made.id == session.id
            && made.version == session.version
        {
            return Arc::clone(&made.headers);
        }
        let mut headers = of_session(session, JSON_OR_EVENTS);
        headers.insert(CONTENT_TYPE, JSON);
        let headers = Arc::new(headers);
        let (id, version) = (session.id.clone(), session.version.clone());
        *last = Some(Made { id, version, headers: Arc::clone(&headers) });
        headers
    }
}

/// The headers of a request within a session that brings no message.
pub(super) fn of_session(session: &Session, accept: HeaderValue) -> HeaderMap {
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

/// The headers that repeat what the body says, most of them in the modern era. The values are encoded already.
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
    fn the_headers_of_a_session_are_made_once_and_those_of_the_next_one_anew() {
        let made = MessageHeaders::default();
        let session = |id: Option<&str>, version: Option<ProtocolVersion>| Session {
            era: Era::Legacy,
            version,
            id: id.map(str::to_owned),
        };
        let before = made.of(&session(None, None));
        assert!(!before.contains_key(SESSION_ID) && !before.contains_key(PROTOCOL_VERSION));
        assert_eq!((&before[ACCEPT], &before[CONTENT_TYPE]), (&JSON_OR_EVENTS, &JSON));
        let first = session(Some("one"), Some(ProtocolVersion::LATEST_LEGACY));
        assert!(Arc::ptr_eq(&made.of(&first), &made.of(&first)));
        assert_eq!(made.of(&first)[SESSION_ID], "one");
        assert_eq!(made.of(&first)[PROTOCOL_VERSION], ProtocolVersion::LATEST_LEGACY.as_str());
        let second = session(Some("two"), Some(ProtocolVersion::LATEST_LEGACY));
        assert_eq!(made.of(&second)[SESSION_ID], "two");
        let older = session(Some("two"), Some(ProtocolVersion::V2025_03_26));
        assert!(!made.of(&older).contains_key(PROTOCOL_VERSION), "that version has no such header");
    }
}

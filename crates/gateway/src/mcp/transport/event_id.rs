//! Event ids of call streams, from which a legacy client resumes a stream. They name the process and the stream, because
//! sessions outlive processes and streams do not; and the request, so that a client that resumes too late gets an error
//! under the id of its request.

use crate::mcp::address::{AddressKind, IdOrigin, Replica};
use crate::mcp::request::dispatch::RequestOutcome;
use crate::mcp::request::respond;
use crate::mcp::session::token::TokenCipher;
use bytes::Bytes;
use gripfast::wire::envelope::Request;
use gripfast::wire::{Era, RequestId};
use gripfast::{CallError, CallOutcome, Code, JsonText};
use std::sync::Arc;

/// Name of a call's stream in its event ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamName(Arc<str>);

/// Point of a call's stream at which a client resumes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ResumePoint {
    pub(crate) name: StreamName,
    /// Process that has the stream.
    pub(crate) issuer: Replica,
    /// Whether that is this process.
    pub(crate) origin: IdOrigin,
    pub(crate) number: u64,
    pub(crate) position: usize,
    /// Method and id of the request, if its answer is pending.
    waits_for: Option<(&'static str, RequestId)>,
}

const TOOL_CALL: &str = "tools/call";
/// Longer request ids are not included.
const MAX_ID_LEN: usize = 256;
/// Start of the id of an event, before the answer and with the answer.
const PENDING: &str = "s";
const ENDED: &str = "e";

impl StreamName {
    /// Name of the stream with this number, for the call that `request` started. Encrypted once; each event adds its
    /// position.
    pub(crate) fn issue(tokens: &TokenCipher, number: u64, request: &Request<'_>) -> Self {
        let (kind, id) = (if request.method == TOOL_CALL { b't' } else { b'o' }, request.id.as_raw());
        let content = if id.len() <= MAX_ID_LEN { [&[kind], id.as_bytes()].concat() } else { Vec::new() };
        // Without random numbers the stream cannot be resumed, but it is delivered.
        Self(tokens.seal(AddressKind::Stream, number, &content).unwrap_or_default().into())
    }

    /// Id of the event before `position`.
    pub(crate) fn event_id(&self, position: usize) -> String {
        format!("{PENDING}.{}.{position}", self.0)
    }

    /// Id of the event with the answer: no answer is pending after it.
    pub(crate) fn end_event_id(&self, position: usize) -> String {
        format!("{ENDED}.{}.{position}", self.0)
    }
}

impl ResumePoint {
    /// Parses an event id of a call stream; `None` if gripfast did not issue it.
    pub(crate) fn parse(tokens: &TokenCipher, id: &str) -> Option<Self> {
        let (state, rest) = id.split_once('.')?;
        let (name, position) = rest.rsplit_once('.')?;
        let position = position.parse().ok()?;
        let (address, content) = tokens.open(AddressKind::Stream, name)?;
        let waits_for = match state {
            PENDING => request_in(&content),
            ENDED => None,
            _ => return None,
        };
        let (origin, number) = (tokens.origin_of(&address), address.number);
        let (name, issuer) = (StreamName(name.into()), address.replica);
        Some(Self { name, issuer, origin, number, position, waits_for })
    }

    /// Error for a call whose answer is lost; `None` if no answer is pending.
    pub(crate) fn lost_answer(&self) -> Option<Bytes> {
        let (method, id) = self.waits_for.as_ref()?;
        let lost = lost_call(
            "the answer to this request is lost: the gateway was restarted meanwhile, or the answer was not fetched \
             in time; whether the request was carried out is unknown",
        );
        Some(respond::respond(Era::Legacy, method, id.as_id(), RequestOutcome::Failed(lost)).message.into())
    }
}

/// Error for a call whose result this process does not have.
pub(crate) fn lost_call(text: &str) -> CallError {
    CallError::new(Code::OutcomeUnknown, "", CallOutcome::Unknown, text).with_hint(
        "check the effect before you repeat the call; `gripfast calls` shows what is known about it",
    )
}

/// Method and id of the request in the content of an event id.
fn request_in(content: &[u8]) -> Option<(&'static str, RequestId)> {
    let (kind, id) = content.split_first()?;
    let id = JsonText::parse(String::from_utf8(id.to_vec()).ok()?).ok()?;
    let method = if *kind == b't' { TOOL_CALL } else { "" };
    Some((method, RequestId::from_raw(&id).ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use gripfast::wire::envelope::Message;

    pub(crate) const CALL: &str = r#"{"jsonrpc":"2.0","id":"a-1","method":"tools/call"}"#;

    pub(crate) fn name(tokens: &TokenCipher, request: &str) -> StreamName {
        let Ok(Message::Request(request)) = Message::parse(request.as_bytes()) else { panic!("a request") };
        StreamName::issue(tokens, 7, &request)
    }

    #[test]
    fn an_event_id_names_process_stream_position_and_request() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = TokenCipher::load_or_create(directory.path()).unwrap();
        let name = name(&tokens, CALL);
        let point = ResumePoint::parse(&tokens, &name.event_id(3)).unwrap();
        assert_eq!((&point.name, point.origin, point.number, point.position), (&name, IdOrigin::Here, 7, 3));
        assert_eq!(point.waits_for, Some(("tools/call", RequestId::from("a-1"))));
        let ended = ResumePoint::parse(&tokens, &name.end_event_id(3)).unwrap();
        assert_eq!((ended.number, ended.position, ended.waits_for), (7, 3, None));
        let restarted = TokenCipher::load_or_create(directory.path()).unwrap();
        let later = ResumePoint::parse(&restarted, &name.event_id(3)).unwrap();
        assert_eq!((later.origin, later.waits_for), (IdOrigin::Gone, point.waits_for));
        let id = name.event_id(3);
        let session = tokens.seal(AddressKind::Session, 7, b"t1").unwrap();
        let (other_state, other_kind) = (id.replacen('s', "x", 1), format!("s.{session}.3"));
        for other in ["", "s.", "s..3", "s-1-2-3", &id[2..], &format!("{id}x"), &other_state, &other_kind] {
            assert_eq!(ResumePoint::parse(&tokens, other), None, "{other}");
        }
    }

    #[test]
    fn the_longest_event_id_fits_a_header_and_a_longer_request_id_is_left_out() {
        let tokens = TokenCipher::ephemeral().unwrap();
        let with_id = |length: usize| {
            let request = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(length));
            name(&tokens, &request).event_id(usize::MAX)
        };
        let fits = ResumePoint::parse(&tokens, &with_id(254)).unwrap();
        assert_eq!(fits.waits_for, Some(("", RequestId::from("x".repeat(254).as_str()))));
        assert!(with_id(254).len() < 512, "{}", with_id(254).len());
        assert_eq!(ResumePoint::parse(&tokens, &with_id(255)).unwrap().waits_for, None);
    }

    #[test]
    fn c05_a_call_resumed_too_late_has_an_unknown_outcome() {
        let tokens = TokenCipher::ephemeral().unwrap();
        let lost = |request: &str| {
            let point = ResumePoint::parse(&tokens, &name(&tokens, request).event_id(1)).unwrap();
            serde_json::from_slice::<serde_json::Value>(&point.lost_answer().unwrap()).unwrap()
        };
        let call = lost(CALL);
        assert_eq!((&call["id"], &call["result"]["isError"]), (&"a-1".into(), &true.into()));
        let failure = &call["result"]["_meta"]["gripfast/failure"];
        assert_eq!((&failure["code"], &failure["outcome"]), (&"outcome_unknown".into(), &"unknown".into()));
        let other = lost(r#"{"jsonrpc":"2.0","id":5,"method":"prompts/get"}"#);
        assert_eq!((&other["id"], &other["error"]["data"]["code"]), (&5.into(), &"outcome_unknown".into()));
    }
}

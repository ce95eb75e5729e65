//! The JSON-RPC 2.0 envelope over borrowed bytes: kind of message, id, method and payload. Payloads stay raw; this
//! module knows no MCP methods.
//!
//! It is strict where two parsers could disagree about a message (repeated members, members that differ from a known
//! one only in letter case), and lenient where strictness would only lose an answer: an error object of an unusual
//! shape still ends the request it answers, and unknown members are left where they are.

use std::borrow::Cow;
use std::ops::Range;

use gripfast_core::json_text::Json;

pub use self::damaged::damaged_answers;
pub use self::id::{Id, RequestId};
pub use crate::envelope::truncated::{Addressee, addressee, request_id};
use crate::patch::{Object, ObjectMembers};
use crate::scan::{self, looks_like};
use crate::{codes, raw};

mod damaged;
mod id;
#[cfg(test)]
mod tests;
mod truncated;

/// One JSON-RPC message, borrowed from the bytes it arrived in.
#[derive(Clone, Debug)]
pub enum Message<'a> {
    /// Expects an answer.
    Request(Request<'a>),
    /// Expects no answer.
    Notification(Notification<'a>),
    /// Answers a request.
    Response(Response<'a>),
}

/// A message with a method and an id.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// As the peer spelled it.
    pub id: Id<'a>,
    /// With escapes resolved.
    pub method: Cow<'a, str>,
    /// `None` when absent or `null`.
    pub params: Option<&'a Json>,
}

/// A request that outlives the message it came in.
#[derive(Clone, Debug)]
pub struct OwnedRequest {
    /// Id, method and parameters, one after the other.
    text: Box<str>,
    id_len: usize,
    method_len: usize,
}

impl Request<'_> {
    /// A copy that can be stored. It is cheaper than keeping the message and parsing it again.
    pub fn to_owned_request(&self) -> OwnedRequest {
        let (id, params) = (self.id.as_raw(), self.params.map_or("", Json::get));
        let text = [id, &self.method, params].concat().into();
        OwnedRequest { text, id_len: id.len(), method_len: self.method.len() }
    }
}

impl OwnedRequest {
    /// The request, borrowed again.
    pub fn as_request(&self) -> Request<'_> {
        let (id, rest) = self.text.split_at(self.id_len);
        let (method, params) = rest.split_at(self.method_len);
        let params = (!params.is_empty()).then(|| Json::assume_valid(params));
        Request { id: Id::assume_valid(id), method: Cow::Borrowed(method), params }
    }
}

/// A message with a method and no id.
#[derive(Clone, Debug)]
pub struct Notification<'a> {
    /// With escapes resolved.
    pub method: Cow<'a, str>,
    /// `None` when absent or `null`.
    pub params: Option<&'a Json>,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct Response<'a> {
    /// `None` if the peer left it out or sent `null`: then only the transport knows which request this answers.
    pub id: Option<Id<'a>>,
    /// Result or error.
    pub outcome: Outcome<'a>,
}

/// Result or error of a request.
#[derive(Clone, Debug)]
pub enum Outcome<'a> {
    /// `result`, any JSON value.
    Result(&'a Json),
    /// `error`.
    Error(ErrorObject<'a>),
}

/// The `error` member of a response.
#[derive(Clone, Debug)]
pub struct ErrorObject<'a> {
    /// The whole member as it arrived, to be passed on.
    pub raw: &'a Json,
    /// [`codes::INTERNAL_ERROR`] if the peer sent no valid code.
    pub code: i64,
    /// Empty if the peer sent none.
    pub message: Cow<'a, str>,
    /// Additional data of the peer.
    pub data: Option<&'a Json>,
}

/// Reason why bytes are not a JSON-RPC message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Not JSON at all, or cut short.
    #[error("not valid JSON at line {line}, column {column}")]
    NotJson {
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in bytes.
        column: usize,
    },
    /// Valid JSON, but not an object.
    #[error("a JSON-RPC message must be a JSON object, but this is another value")]
    NotObject,
    /// An array at the top: split it with [`crate::batch::split`].
    #[error("a JSON-RPC batch where one message was expected")]
    Batch,
    /// `jsonrpc` is missing or not `"2.0"`.
    #[error("the message has no \"jsonrpc\": \"2.0\"")]
    NotJsonRpc,
    /// A member of the envelope appears twice, so that two parsers could see two different messages.
    #[error("the member `{0}` appears more than once")]
    DuplicateKey(&'static str),
    /// A member that a case-insensitive parser would take for a known one.
    #[error("the message has a member that differs from `{0}` only in letter case")]
    LookAlikeKey(&'static str),
    /// The id is neither a string nor a number (or `null` in a request).
    #[error("the id is neither a string nor a number")]
    BadId,
    /// `method` is not a string.
    #[error("the method is not a string")]
    BadMethod,
    /// Method and answer in one message, or result and error in one answer.
    #[error("the message mixes a request with an answer, or a result with an error")]
    Mixed,
    /// No method, no result, no error.
    #[error("the message is neither a request nor an answer")]
    NeitherKind,
    /// The message is a notification, which has no id to replace.
    #[error("a notification has no id to replace")]
    NoId,
}

impl<'a> Message<'a> {
    /// Parses the envelope. Costs one scan of the bytes and, for an ordinary message, no allocation.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Self::from_members(&Members::read(bytes)?)
    }

    /// Parses the envelope as [`Message::parse`] does, and returns the members of `result` from the same scan; `None` if
    /// it is not an object, or has a key twice.
    pub fn parse_with_result(bytes: &'a [u8]) -> Result<(Self, Option<Object<'a>>), Malformed> {
        let (mut members, mut taken) = (Members::default(), Ok(()));
        let mut of_result = ObjectMembers::new();
        let is_decoded = scan::each_member_and_inner(
            bytes,
            "result",
            |key, value| {
                if taken.is_ok() {
                    taken = members.take(&key, value);
                }
            },
            |key, value| of_result.push((key, value)),
        )?;
        taken?;
        let is_object = |result: &&Json| is_decoded && result.get().starts_with('{');
        let result = members.result.filter(is_object).and_then(|result| Object::of(result, of_result).ok());
        Ok((Self::from_members(&members)?, result))
    }

    /// Parses the envelope of a message whose members are already known.
    pub(crate) fn from_object(object: &Object<'a>) -> Result<Self, Malformed> {
        let mut members = Members::default();
        object.iter().try_for_each(|(key, value)| members.take(key, value))?;
        Self::from_members(&members)
    }

    fn from_members(members: &Members<'a>) -> Result<Self, Malformed> {
        if members.jsonrpc.is_none_or(|version| raw::text(version).as_deref() != Some("2.0")) {
            return Err(Malformed::NotJsonRpc);
        }
        let Some(method) = members.method else {
            return Ok(Self::Response(Response { id: members.answered_id()?, outcome: members.outcome()? }));
        };
        if members.result.is_some() || members.error.is_some() {
            return Err(Malformed::Mixed);
        }
        let method = raw::text(method).ok_or(Malformed::BadMethod)?;
        let params = members.params.filter(|params| !raw::is_null(params));
        Ok(match members.id {
            Some(id) => Self::Request(Request { id: Id::from_raw(id)?, method, params }),
            None => Self::Notification(Notification { method, params }),
        })
    }

    /// The id, if there is one.
    pub fn id(&self) -> Option<Id<'a>> {
        match self {
            Self::Request(request) => Some(request.id),
            Self::Notification(_) => None,
            Self::Response(response) => response.id,
        }
    }

    /// The method of a request or notification.
    pub fn method(&self) -> Option<&str> {
        match self {
            Self::Request(request) => Some(&request.method),
            Self::Notification(notification) => Some(&notification.method),
            Self::Response(_) => None,
        }
    }

    /// The parameters of a request or notification.
    pub fn params(&self) -> Option<&'a Json> {
        match self {
            Self::Request(request) => request.params,
            Self::Notification(notification) => notification.params,
            Self::Response(_) => None,
        }
    }
}

/// Returns whether the bytes are a top-level array, which is a batch in revision 2025-03-26 only.
pub fn is_batch(bytes: &[u8]) -> bool {
    scan::first_byte(bytes) == Some(b'[')
}

/// The same message with another id; every other byte stays, unknown members and whitespace included.
///
/// An answer without an id (or with `null`) gets one. If the message is already parsed, [`Id::replace_in`] does the
/// same without a second scan.
pub fn with_id(bytes: &[u8], new: Id<'_>) -> Result<Vec<u8>, Malformed> {
    let members = Members::read(bytes)?;
    match members.id {
        Some(id) => {
            let span = raw::span_in(bytes, id.get()).expect("the id was borrowed from these bytes");
            Ok(spliced(bytes, span, new.as_raw()))
        }
        None if members.method.is_some() => Err(Malformed::NoId),
        None if members.result.is_none() && members.error.is_none() => Err(Malformed::NeitherKind),
        None => {
            // The scan found an object with at least one member, so the last brace is its end.
            let end = memchr::memrchr(b'}', bytes).expect("an object ends with a brace");
            Ok(spliced(bytes, end..end, &format!(",\"id\":{}", new.as_raw())))
        }
    }
}

/// A request with an id of our own.
pub fn request(id: u64, method: &str, params: Option<&Json>) -> Vec<u8> {
    let mut out = open_request(id, method, params.map_or(0, |params| params.get().len()));
    push_params(&mut out, params);
    out.into_bytes()
}

/// A request with an id of our own, and these members as the `_meta` of its parameters, which must have none. `None` if
/// the parameters are not an object. Keys are written as they are, without escapes.
pub fn request_with_meta<'m>(
    id: u64,
    method: &str,
    params: Option<&Json>,
    meta: impl Iterator<Item = (&'static str, &'m Json)> + Clone,
) -> Option<Vec<u8>> {
    let params = params.filter(|params| !raw::is_null(params)).map_or("{}", Json::get).trim_ascii();
    let members = params.strip_prefix('{')?.strip_suffix('}')?.trim_ascii_end();
    let added: usize = meta.clone().map(|(key, value)| key.len() + value.get().len() + 4).sum();
    let mut out = open_request(id, method, members.len() + added);
    out.push_str(",\"params\":{");
    out.push_str(members);
    out.push_str(if members.is_empty() { "\"_meta\":{" } else { ",\"_meta\":{" });
    for (index, (key, value)) in meta.enumerate() {
        out.push_str(if index == 0 { "\"" } else { ",\"" });
        out.push_str(key);
        out.push_str("\":");
        out.push_str(value.get());
    }
    out.push_str("}}}");
    Some(out.into_bytes())
}

/// A notification.
pub fn notification(method: &str, params: Option<&Json>) -> Vec<u8> {
    let mut out = open_message(method.len() + params.map_or(0, |params| params.get().len()));
    push_method(&mut out, method);
    push_params(&mut out, params);
    out.into_bytes()
}

/// The answer to a successful request.
pub fn response(id: Id<'_>, result: &Json) -> Vec<u8> {
    response_from_pieces(id, &[result.get()])
}

/// Returns whether a message is the answer to this request, as [`response`] and [`error_response`] write it. Compares
/// only its beginning, so an answer in another spelling is not recognised.
pub fn is_answer_to(message: &[u8], id: Id<'_>) -> bool {
    let mut beginning = open_message(id.as_raw().len());
    push_id(&mut beginning, Some(id));
    beginning.push(',');
    message.starts_with(beginning.as_bytes())
}

/// The answer to a successful request, with a result in pieces. The caller guarantees that the pieces together are
/// valid JSON; checking that would take longer than sending them.
pub fn response_from_pieces(id: Id<'_>, result: &[&str]) -> Vec<u8> {
    let mut out = open_message(result.iter().map(|piece| piece.len()).sum());
    push_id(&mut out, Some(id));
    out.push_str(",\"result\":");
    for piece in result {
        out.push_str(piece);
    }
    out.push('}');
    out.into_bytes()
}

/// The answer to a failed request; `id` is `None` if that of the request could not be read.
pub fn error_response(id: Option<Id<'_>>, code: i64, message: &str, data: Option<&Json>) -> Vec<u8> {
    let mut out = open_message(message.len() + data.map_or(0, |data| data.get().len()));
    push_id(&mut out, id);
    out.push_str(",\"error\":{\"code\":");
    out.push_str(&code.to_string());
    out.push_str(",\"message\":");
    raw::push_quoted(&mut out, message);
    if let Some(data) = data {
        out.push_str(",\"data\":");
        out.push_str(data.get());
    }
    out.push_str("}}");
    out.into_bytes()
}

/// The answer that forwards a peer's `error` member unchanged, with another id.
pub fn forwarded_error(id: Id<'_>, error: &Json) -> Vec<u8> {
    let mut out = open_message(error.get().len());
    push_id(&mut out, Some(id));
    out.push_str(",\"error\":");
    out.push_str(error.get());
    out.push('}');
    out.into_bytes()
}

/// The known members of an envelope, before they are checked together.
#[derive(Default)]
struct Members<'a> {
    jsonrpc: Option<&'a Json>,
    id: Option<&'a Json>,
    method: Option<&'a Json>,
    params: Option<&'a Json>,
    result: Option<&'a Json>,
    error: Option<&'a Json>,
}

impl<'a> Members<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut members = Self::default();
        let mut taken = Ok(());
        scan::each_member(bytes, |key, value| {
            if taken.is_ok() {
                taken = members.take(&key, value);
            }
        })?;
        taken.map(|()| members)
    }

    fn take(&mut self, key: &str, value: &'a Json) -> Result<(), Malformed> {
        let (name, slot) = match key {
            "jsonrpc" => ("jsonrpc", &mut self.jsonrpc),
            "id" => ("id", &mut self.id),
            "method" => ("method", &mut self.method),
            "params" => ("params", &mut self.params),
            "result" => ("result", &mut self.result),
            "error" => ("error", &mut self.error),
            other => {
                let known = ["jsonrpc", "id", "method", "params", "result", "error"];
                let look_alike = known.into_iter().find(|known| looks_like(other, known));
                return look_alike.map_or(Ok(()), |known| Err(Malformed::LookAlikeKey(known)));
            }
        };
        match slot.replace(value) {
            None => Ok(()),
            Some(_) => Err(Malformed::DuplicateKey(name)),
        }
    }

    fn answered_id(&self) -> Result<Option<Id<'a>>, Malformed> {
        self.id.filter(|id| !raw::is_null(id)).map(Id::from_raw).transpose()
    }

    fn outcome(&self) -> Result<Outcome<'a>, Malformed> {
        // JSON-RPC 1.0 required both members with one of them null, and some libraries still write that.
        let result = self.result;
        let error = self.error.filter(|error| result.is_none() || !raw::is_null(error));
        match (result, error) {
            (Some(result), None) => Ok(Outcome::Result(result)),
            (None, Some(error)) => Ok(Outcome::Error(ErrorObject::read(error))),
            (Some(result), Some(error)) if raw::is_null(result) => {
                Ok(Outcome::Error(ErrorObject::read(error)))
            }
            (Some(_), Some(_)) => Err(Malformed::Mixed),
            (None, None) => Err(Malformed::NeitherKind),
        }
    }
}

impl From<scan::ScanError> for Malformed {
    fn from(fault: scan::ScanError) -> Self {
        match fault {
            scan::ScanError::NotJson { line, column } => Self::NotJson { line, column },
            scan::ScanError::Array => Self::Batch,
            scan::ScanError::Scalar => Self::NotObject,
        }
    }
}

impl<'a> ErrorObject<'a> {
    /// Parses an `error` member. Never fails: an error of an unusual shape is still the answer that a caller waits for.
    pub fn read(error: &'a Json) -> Self {
        let unreadable = Self {
            raw: error,
            code: codes::INTERNAL_ERROR,
            message: raw::text(error).unwrap_or_default(),
            data: None,
        };
        let Ok(object) = Object::parse(error) else { return unreadable };
        Self {
            code: object.get("code").and_then(|code| raw::integer(code.get())).unwrap_or(unreadable.code),
            message: object.get("message").and_then(raw::text).unwrap_or_default(),
            data: object.get("data"),
            ..unreadable
        }
    }
}

fn spliced(bytes: &[u8], span: Range<usize>, new: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() - span.len() + new.len());
    out.extend_from_slice(&bytes[..span.start]);
    out.extend_from_slice(new.as_bytes());
    out.extend_from_slice(&bytes[span.end..]);
    out
}

fn open_message(payload: usize) -> String {
    // Room for the fixed parts of the longest envelope that is written here.
    let mut out = String::with_capacity(payload + 96);
    out.push_str("{\"jsonrpc\":\"2.0\"");
    out
}

fn push_id(out: &mut String, id: Option<Id<'_>>) {
    out.push_str(",\"id\":");
    out.push_str(id.map_or("null", |id| id.as_raw()));
}

fn open_request(id: u64, method: &str, payload: usize) -> String {
    let mut out = open_message(method.len() + payload);
    out.push_str(",\"id\":");
    out.push_str(itoa::Buffer::new().format(id));
    push_method(&mut out, method);
    out
}

fn push_method(out: &mut String, method: &str) {
    out.push_str(",\"method\":");
    raw::push_quoted(out, method);
}

fn push_params(out: &mut String, params: Option<&Json>) {
    if let Some(params) = params {
        out.push_str(",\"params\":");
        out.push_str(params.get());
    }
    out.push('}');
}

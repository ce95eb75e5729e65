//! Reads responses to a POST, JSON or an event stream, bounded in size; and turns refusals into evidence.

use super::pool::Body;
use super::proxy::ForwardedBy;
use crate::memory::{AnswerMemory, Reservation, grow};
use crate::transport::{Session, no_memory};
use bytes::{Bytes, BytesMut};
use gripfast_core::failure::recovery::DEFAULT_BUSY_PAUSE;
use gripfast_core::failure::{During, Evidence, HttpAnswer, Observed, RpcError};
use gripfast_wire::envelope::{Addressee, Message, Response as RpcResponse, addressee};
use gripfast_wire::{Era, Outcome, sse};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Body as _;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;

/// Kind of body of a successful response.
pub(in crate::transport) enum BodyKind {
    Json,
    Events,
    Empty,
    Other(String),
}

pub(in crate::transport) fn body_kind(response: &Response<Body>) -> BodyKind {
    const JSON: &str = "application/json";
    const EVENTS: &str = "text/event-stream";
    let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    // Most servers write nothing else.
    match kind {
        kind if kind == JSON.as_bytes() => return BodyKind::Json,
        kind if kind == EVENTS.as_bytes() => return BodyKind::Events,
        _ => {}
    }
    let kind = str::from_utf8(kind).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    match response.status().as_u16() {
        _ if essence.eq_ignore_ascii_case(JSON) => BodyKind::Json,
        _ if essence.eq_ignore_ascii_case(EVENTS) => BodyKind::Events,
        202 | 204 | 205 => BodyKind::Empty,
        _ => BodyKind::Other(essence.to_ascii_lowercase()),
    }
}

/// Reads the whole body, if it is within the limit.
pub(crate) async fn read_body(body: Body, limit: usize, during: During) -> Result<Bytes, Evidence> {
    read_body_counted(body, limit, during, None).await.map(|(body, _)| body)
}

/// Reads the whole body, if it is within the limit and the memory budget. Memory is reserved while it is read.
pub(crate) async fn read_body_counted(
    body: Body,
    limit: usize,
    during: During,
    memory: Option<&dyn AnswerMemory>,
) -> Result<(Bytes, Option<Arc<dyn Reservation>>), Evidence> {
    let mut body = body;
    // A body whose announced length is over the limit is not read.
    if body.size_hint().lower() > limit as u64 {
        return Err(Evidence::sent(during, Observed::TooLarge(limit)));
    }
    // An announced length is allocated at once, so it is reserved at once.
    let mut counted = Counted::new(memory, during);
    counted.reserve_total(usize::try_from(body.size_hint().exact().unwrap_or(0)).unwrap_or(limit))?;
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    loop {
        let data = match body.frame().await {
            None if body.was_cut() => {
                let text = "the answer was cut: its stream was reset before its end".to_owned();
                return Err(Evidence::sent(during, Observed::Closed(text)));
            }
            None => break,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => data,
                Err(_trailers) => continue,
            },
            Some(Err(error)) => {
                let text = format!("the connection broke in the middle of an answer: {error}");
                return Err(Evidence::sent(during, Observed::Closed(text)));
            }
        };
        let length = first.as_ref().map_or(0, Bytes::len).max(rest.len()) + data.len();
        if length > limit {
            return Err(Evidence::sent(during, Observed::TooLarge(limit)));
        }
        counted.reserve_total(length)?;
        // Most responses are one piece, which then needs no copy.
        match first.take() {
            None if rest.is_empty() => first = Some(data),
            None => rest.extend_from_slice(&data),
            Some(begin) => {
                // The remaining length is known if the server announced it.
                let more = body.size_hint().exact().and_then(|more| usize::try_from(more).ok()).unwrap_or(0);
                rest.reserve(begin.len() + data.len() + more.min(limit));
                rest.extend_from_slice(&begin);
                rest.extend_from_slice(&data);
            }
        }
    }
    Ok((first.unwrap_or_else(|| rest.freeze()), counted.reserved))
}

/// Memory reserved for a response that is being read.
struct Counted<'a> {
    memory: Option<&'a dyn AnswerMemory>,
    during: During,
    reserved: Option<Arc<dyn Reservation>>,
    bytes: usize,
}

impl<'a> Counted<'a> {
    fn new(memory: Option<&'a dyn AnswerMemory>, during: During) -> Self {
        Self { memory, during, reserved: None, bytes: 0 }
    }

    /// Reserves memory up to this total.
    fn reserve_total(&mut self, bytes: usize) -> Result<(), Evidence> {
        let Some(memory) = self.memory.filter(|_| bytes > self.bytes) else { return Ok(()) };
        let more = bytes - self.bytes;
        let reserved = match &mut self.reserved {
            Some(reserved) => grow(reserved, more),
            None => memory.reserve(more).map(|reserved| self.reserved = Some(reserved)),
        };
        reserved.map_err(|error| no_memory(self.during, error, true))?;
        self.bytes = bytes;
        Ok(())
    }
}

/// Events of a stream.
pub(in crate::transport) struct Events {
    body: Body,
    reader: sse::Reader,
    /// Memory budget that an unfinished event is counted against.
    memory: Option<Arc<dyn AnswerMemory>>,
    /// Reservation for the unfinished event.
    reserved: Option<Arc<dyn Reservation>>,
    bytes: usize,
}

impl Events {
    pub(in crate::transport) fn new(body: Body, limit: usize) -> Self {
        Self { body, reader: sse::Reader::new(limit), memory: None, reserved: None, bytes: 0 }
    }

    /// Counts unfinished events against a memory budget.
    pub(in crate::transport) fn with_memory(self, memory: Option<Arc<dyn AnswerMemory>>) -> Self {
        Self { memory, ..self }
    }

    /// Reserves memory for the unfinished event. A small one is not counted before it is complete.
    fn reserve_unfinished(&mut self, during: During) -> Result<(), Evidence> {
        const SMALL: usize = 64 << 10;
        let Some(memory) = &self.memory else { return Ok(()) };
        let held = self.reader.buffered();
        if held < self.bytes || held <= SMALL {
            (self.reserved, self.bytes) = (None, 0);
        }
        if held <= SMALL || held == self.bytes {
            return Ok(());
        }
        let more = held - self.bytes;
        let reserved = match &mut self.reserved {
            Some(reserved) => grow(reserved, more),
            None => memory.reserve(more).map(|reserved| self.reserved = Some(reserved)),
        };
        self.bytes = held;
        reserved.map_err(|error| {
            let is_answer = matches!(addressee(&self.reader.beginning(), &[]), Addressee::Answer(_));
            no_memory(during, error, is_answer)
        })
    }

    /// Returns the next event; `None` at the end of the stream. The stream continues after an event that is too large.
    pub(in crate::transport) async fn next(
        &mut self,
        during: During,
    ) -> Result<Option<sse::Event>, Evidence> {
        match self.next_of_any_size(during).await? {
            Some(Ok(event)) => Ok(Some(event)),
            Some(Err(too_large)) => Err(Evidence::sent(during, Observed::TooLarge(too_large.limit))),
            None => Ok(None),
        }
    }

    /// Returns the next event, even if it is too large, for callers that look for its request.
    pub(in crate::transport) async fn next_of_any_size(
        &mut self,
        during: During,
    ) -> Result<Option<Result<sse::Event, sse::TooLarge>>, Evidence> {
        loop {
            if let Some(event) = self.reader.next_event() {
                return Ok(Some(event));
            }
            match self.body.frame().await {
                None if self.body.was_cut() => {
                    let text = "the event stream broke: it was reset before its end".to_owned();
                    return Err(Evidence::sent(during, Observed::Closed(text)));
                }
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.reader.push(&data);
                        self.reserve_unfinished(during)?;
                    }
                }
                Some(Err(error)) => {
                    let text = format!("the event stream broke: {error}");
                    return Err(Evidence::sent(during, Observed::Closed(text)));
                }
            }
        }
    }

    /// Ends the stream after its answer. The rest is not needed.
    pub(in crate::transport) fn finish(self) {
        self.body.leave_rest();
    }

    pub(in crate::transport) fn last_event_id(&self) -> Option<&str> {
        self.reader.last_event_id()
    }

    pub(in crate::transport) fn retry(&self) -> Option<Duration> {
        self.reader.retry()
    }
}

/// Context of a request that a server refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transport) enum RequestFacts {
    /// Modern era, which has no sessions.
    Modern,
    /// Legacy era, within a session.
    WithSession,
    /// Legacy era, without a session.
    WithoutSession,
}

impl RequestFacts {
    pub(in crate::transport) fn for_session(session: &Session) -> Self {
        match (session.era, &session.id) {
            (Era::Modern, _) => Self::Modern,
            (Era::Legacy, Some(_)) => Self::WithSession,
            (Era::Legacy, None) => Self::WithoutSession,
        }
    }
}

/// Builds evidence of a refusal from its status, its headers and the beginning of its body.
pub(in crate::transport) async fn refusal(
    response: Response<Body>,
    request: RequestFacts,
    during: During,
) -> (Evidence, Option<Bytes>) {
    const LIMIT: usize = 64 << 10;
    const WITHIN: Duration = Duration::from_secs(2);
    let (head, body) = response.into_parts();
    // A body that is too long, too slow or broken is ignored; the status is evidence enough.
    let body = match tokio::time::timeout(WITHIN, read_body(body, LIMIT, during)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) | Err(_) => Bytes::new(),
    };
    let rpc = rpc_error(&body);
    let answer = HttpAnswer {
        status: head.status.as_u16(),
        retry_after: retry_after(&head.headers),
        challenge: header_text(&head.headers, &WWW_AUTHENTICATE).map(Into::into),
        body: String::from_utf8_lossy(&body).chars().take(500).collect(),
        rpc: rpc.clone(),
        had_session: request == RequestFacts::WithSession,
        modern: request == RequestFacts::Modern,
        proxy: head.extensions.get().map(|ForwardedBy(proxy)| (**proxy).into()),
    };
    let message = rpc.is_some().then_some(body);
    (Evidence::sent(during, Observed::Http(answer)), message)
}

/// Returns the error in a JSON-RPC response, with or without an id.
pub(in crate::transport) fn rpc_error(body: &[u8]) -> Option<RpcError> {
    match Message::parse(body) {
        Ok(Message::Response(RpcResponse { outcome: Outcome::Error(error), .. })) => {
            Some(RpcError { code: error.code, message: error.message.into_owned() })
        }
        Ok(_) | Err(_) => None,
    }
}

pub(in crate::transport) fn header_text(headers: &HeaderMap, name: &http::HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Parses `Retry-After` in seconds; a date would need a clock that agrees with the server's. Any other form counts as a
/// wait of unspecified length.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?;
    let seconds = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    Some(seconds.map_or(DEFAULT_BUSY_PAUSE, Duration::from_secs))
}

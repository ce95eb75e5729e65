//! Reading what a server answers to a POST: JSON or an event stream, bounded in size; and turning
//! refusals into evidence.

use super::pool::Body;
use super::proxy::ForwardedBy;
use crate::memory::{AnswerMemory, Reservation};
use crate::transport::{Session, no_memory};
use bytes::{Bytes, BytesMut};
use gripfast_core::failure::recovery::UNSPECIFIED_PATIENCE;
use gripfast_core::failure::{During, Evidence, HttpAnswer, Observed, RpcError};
use gripfast_wire::envelope::{Addressee, Message, Response as RpcResponse, addressee};
use gripfast_wire::{Era, Outcome, sse};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, Response};
use http_body::Body as _;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;

/// What kind of body a success carries.
pub(in crate::transport) enum Kind {
    Json,
    Events,
    Empty,
    Other(String),
}

pub(in crate::transport) fn kind_of(response: &Response<Body>) -> Kind {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let is = |known: &str| essence.eq_ignore_ascii_case(known);
    match response.status().as_u16() {
        _ if is("application/json") => Kind::Json,
        _ if is("text/event-stream") => Kind::Events,
        202 | 204 | 205 => Kind::Empty,
        _ => Kind::Other(essence.to_ascii_lowercase()),
    }
}

/// The whole body, if it is within the limit.
pub(crate) async fn whole(body: Body, limit: usize, during: During) -> Result<Bytes, Evidence> {
    whole_counted(body, limit, during, None).await.map(|(body, _)| body)
}

/// The whole body, if it is within the limit and there is memory for it. The memory is reserved while it is read.
pub(crate) async fn whole_counted(
    body: Body,
    limit: usize,
    during: During,
    memory: Option<&dyn AnswerMemory>,
) -> Result<(Bytes, Option<Box<dyn Reservation>>), Evidence> {
    let mut body = body;
    // Nothing of it is read if the server says how long it is.
    if body.size_hint().lower() > limit as u64 {
        return Err(Evidence::sent(during, Observed::TooLarge(limit)));
    }
    // A length that the server names is allocated at once, so it is reserved at once.
    let mut counted = Counted::by(memory, during);
    counted.reach(usize::try_from(body.size_hint().exact().unwrap_or(0)).unwrap_or(limit))?;
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
        counted.reach(length)?;
        // Most answers are one piece, which then needs no copy.
        match first.take() {
            None if rest.is_empty() => first = Some(data),
            None => rest.extend_from_slice(&data),
            Some(begin) => {
                // What is still to come is known if the server said how long its answer is.
                let more = body.size_hint().exact().and_then(|more| usize::try_from(more).ok()).unwrap_or(0);
                rest.reserve(begin.len() + data.len() + more.min(limit));
                rest.extend_from_slice(&begin);
                rest.extend_from_slice(&data);
            }
        }
    }
    Ok((first.unwrap_or_else(|| rest.freeze()), counted.reserved))
}

/// What is reserved for an answer that is being read.
struct Counted<'a> {
    memory: Option<&'a dyn AnswerMemory>,
    during: During,
    reserved: Option<Box<dyn Reservation>>,
    bytes: usize,
}

impl<'a> Counted<'a> {
    fn by(memory: Option<&'a dyn AnswerMemory>, during: During) -> Self {
        Self { memory, during, reserved: None, bytes: 0 }
    }

    /// Has at least this many bytes reserved.
    fn reach(&mut self, bytes: usize) -> Result<(), Evidence> {
        let Some(memory) = self.memory.filter(|_| bytes > self.bytes) else { return Ok(()) };
        let more = bytes - self.bytes;
        let reserved = match &mut self.reserved {
            Some(reserved) => reserved.grow(more),
            None => memory.reserve(more).map(|reserved| self.reserved = Some(reserved)),
        };
        reserved.map_err(|error| no_memory(self.during, error, true))?;
        self.bytes = bytes;
        Ok(())
    }
}

/// The events of a stream, one after another.
pub(in crate::transport) struct Events {
    body: Body,
    reader: sse::Reader,
    /// The memory that an unfinished event is counted against.
    memory: Option<Arc<dyn AnswerMemory>>,
    /// What is reserved for the unfinished event.
    reserved: Option<Box<dyn Reservation>>,
    bytes: usize,
}

impl Events {
    pub(in crate::transport) fn of(body: Body, limit: usize) -> Self {
        Self { body, reader: sse::Reader::new(limit), memory: None, reserved: None, bytes: 0 }
    }

    /// The same, whose unfinished events are counted.
    pub(in crate::transport) fn counted(self, memory: Option<Arc<dyn AnswerMemory>>) -> Self {
        Self { memory, ..self }
    }

    /// Reserves memory for the unfinished event. A small one is not counted before it is whole.
    fn count(&mut self, during: During) -> Result<(), Evidence> {
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
            Some(reserved) => reserved.grow(more),
            None => memory.reserve(more).map(|reserved| self.reserved = Some(reserved)),
        };
        self.bytes = held;
        reserved.map_err(|error| {
            let is_answer = matches!(addressee(&self.reader.beginning(), &[]), Addressee::Answer(_));
            no_memory(during, error, is_answer)
        })
    }

    /// The next event; `None` at the end of the stream. After one that is too large the stream goes on.
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

    /// The same for those who care whom an event was for that is too large.
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
                        self.count(during)?;
                    }
                }
                Some(Err(error)) => {
                    let text = format!("the event stream broke: {error}");
                    return Err(Evidence::sent(during, Observed::Closed(text)));
                }
            }
        }
    }

    pub(in crate::transport) fn last_event_id(&self) -> Option<&str> {
        self.reader.last_event_id()
    }

    pub(in crate::transport) fn retry(&self) -> Option<Duration> {
        self.reader.retry()
    }
}

/// How a request was put that a server refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transport) enum Asked {
    /// In the modern era, which has no sessions.
    Modern,
    /// In the legacy era, within a session.
    WithSession,
    /// In the legacy era, without one.
    WithoutSession,
}

impl Asked {
    pub(in crate::transport) fn with(session: &Session) -> Self {
        match (session.era, &session.id) {
            (Era::Modern, _) => Self::Modern,
            (Era::Legacy, Some(_)) => Self::WithSession,
            (Era::Legacy, None) => Self::WithoutSession,
        }
    }
}

/// What a refusal says: its status, its headers, and the beginning of its body.
pub(in crate::transport) async fn refusal(
    response: Response<Body>,
    asked: Asked,
    during: During,
) -> (Evidence, Option<Bytes>) {
    const LIMIT: usize = 64 << 10;
    const WITHIN: Duration = Duration::from_secs(2);
    let (head, body) = response.into_parts();
    // A body that is too long, too slow or broken tells nothing; the status still does.
    let body = match tokio::time::timeout(WITHIN, whole(body, LIMIT, during)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) | Err(_) => Bytes::new(),
    };
    let rpc = rpc_error(&body);
    let answer = HttpAnswer {
        status: head.status.as_u16(),
        retry_after: retry_after(&head.headers),
        challenge: text_of(&head.headers, &WWW_AUTHENTICATE).map(Into::into),
        body: String::from_utf8_lossy(&body).chars().take(500).collect(),
        rpc: rpc.clone(),
        had_session: asked == Asked::WithSession,
        modern: asked == Asked::Modern,
        proxy: head.extensions.get().map(|ForwardedBy(proxy)| (**proxy).into()),
    };
    let message = rpc.is_some().then_some(body);
    (Evidence::sent(during, Observed::Http(answer)), message)
}

/// The error in a JSON-RPC response, whether or not it names a request.
pub(in crate::transport) fn rpc_error(body: &[u8]) -> Option<RpcError> {
    match Message::parse(body) {
        Ok(Message::Response(RpcResponse { outcome: Outcome::Error(error), .. })) => {
            Some(RpcError { code: error.code, message: error.message.into_owned() })
        }
        Ok(_) | Err(_) => None,
    }
}

pub(in crate::transport) fn text_of(headers: &HeaderMap, name: &http::HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// How long a server asks to be left alone (`Retry-After`), if it does. Seconds only: a date would need a clock that agrees
/// with the server's. Whoever asks in another form is given what those are given who name no time.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let asked = headers.get(RETRY_AFTER)?;
    let seconds = asked.to_str().ok().and_then(|text| text.trim().parse().ok());
    Some(seconds.map_or(UNSPECIFIED_PATIENCE, Duration::from_secs))
}

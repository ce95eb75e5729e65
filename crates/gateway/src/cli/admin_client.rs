//! A running gateway, asked over HTTP, and what it answers.

use super::address::GatewayUrl;
use super::args::Global;
use super::channel::Channel;
use super::credentials::{AdminToken, ClientKey};
use super::exit::Exit;
use super::stop::Failure;
use super::trust;
use bytes::Bytes;
use gripfast::Code;
use gripfast::wire::envelope::Message;
use gripfast::wire::sse;
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Error;
use serde::Deserialize;
use std::error::Error as _;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A gateway that can be asked.
pub(crate) struct Gateway<'u> {
    url: &'u GatewayUrl,
    channel: Channel,
    token: AdminToken,
    /// It has said that it wants the token.
    wants_token: AtomicBool,
}

/// Why an MCP message has no answer.
pub(crate) enum Unanswered {
    /// The gateway was not reached, or refused the message.
    Failed(Failure),
    /// The connection was lost after the message was sent, for this cause.
    Lost(String),
}

impl From<Failure> for Unanswered {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What it answered.
pub(crate) struct Reply {
    status: StatusCode,
    pub(crate) body: Bytes,
}

/// What happens, as the gateway tells it.
pub(crate) struct EventStream {
    body: Incoming,
    reader: sse::Reader,
}

impl EventStream {
    /// The next event as JSON; `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(event) = self.reader.next_event() {
                return event.ok().map(|event| event.data);
            }
            let frame = self.body.frame().await?.ok()?;
            self.reader.push(frame.data_ref().map_or(&[], |data| data));
        }
    }
}

/// The body of an answer that is a no.
#[derive(Debug, Deserialize)]
struct Refused {
    error: Refusal,
}

/// Why the gateway says no.
#[derive(Debug, Deserialize)]
pub(crate) struct Refusal {
    code: String,
    text: String,
    #[serde(default)]
    pub(crate) hint: Option<String>,
}

/// It answers from memory.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The status of a thousand servers fits many times.
const LARGEST: usize = 16 << 20;
/// A server's largest message, with room for what is around it.
const LARGEST_ANSWER: usize = 1 << 30;

impl<'u> Gateway<'u> {
    /// Opens the channel to the gateway at `url`; whether it answers is seen when it is asked.
    ///
    /// # Errors
    /// Nobody could tell who it is, or the config that was named cannot be read.
    pub(crate) async fn at(global: &Global, url: &'u GatewayUrl) -> Result<Self, Failure> {
        let (channel, token) = Channel::to(global, url).await?;
        Ok(Self { url, channel, token, wants_token: AtomicBool::new(false) })
    }

    /// Whether it is known to be a gateway of this user and this state directory.
    pub(crate) fn is_own(&self) -> bool {
        self.channel.is_socket()
    }

    pub(crate) fn url(&self) -> &GatewayUrl {
        self.url
    }

    /// Shows the token with every request through the control socket, also where the gateway would answer without it.
    pub(crate) fn show_token(&self) {
        self.wants_token.fetch_or(self.channel.is_socket(), Ordering::Relaxed);
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Reply, Failure> {
        self.asked(Method::GET, path, &[]).await
    }

    /// Asks the gateway to act. What listens on the network, and cannot be sent the token, is not asked: it could only
    /// refuse, or pretend.
    pub(crate) async fn post(&self, path: &str) -> Result<Reply, Failure> {
        if !self.channel.is_socket() && self.token.value().is_none() {
            self.see_that_it_answers().await?;
            return Err(self.token.not_sent(self.url));
        }
        // Acting needs the token in any case.
        self.wants_token.store(true, Ordering::Relaxed);
        self.asked(Method::POST, path, &[]).await
    }

    async fn see_that_it_answers(&self) -> Result<(), Failure> {
        let request = Request::get(self.channel.address(self.url, "/healthz")).body(Full::default());
        let asking = self.channel.request(request.map_err(|error| self.unaskable(&error))?);
        match tokio::time::timeout(ANSWER_WITHIN, asking).await {
            Ok(answered) => answered.map(drop).map_err(|error| self.unreachable(&error)),
            Err(_) => Err(self.silent()),
        }
    }

    async fn asked(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Result<Reply, Failure> {
        let asking = async {
            let response = self.admitted(method, path, headers).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), LARGEST).collect().await;
            let body =
                body.map_err(|error| self.no_gateway(&format!("its answer broke off: {error}")))?.to_bytes();
            Ok(Reply { status, body })
        };
        let reply =
            tokio::time::timeout(ANSWER_WITHIN, asking).await.unwrap_or_else(|_| Err(self.silent()))?;
        match reply.refusal() {
            Some(refusal) if reply.is_unauthorized() => Err(self.token.refused(self.url, Some(refusal))),
            Some(_) | None => Ok(reply),
        }
    }

    /// The answer of the admin API. It tells whoever is on its machine without being shown anything, so the token is
    /// shown when it asks for it, and then at once.
    async fn admitted(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response<Incoming>, Failure> {
        loop {
            let shows = self.wants_token.load(Ordering::Relaxed);
            let token = self.token.value().filter(|_| shows);
            let mut request = Request::builder().method(&method).uri(self.channel.address(self.url, path));
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request =
                bearer(request, token)?.body(Full::default()).map_err(|error| self.unaskable(&error))?;
            let response = self.channel.request(request).await.map_err(|error| self.unreachable(&error))?;
            let wanted = response.status() == StatusCode::UNAUTHORIZED && self.token.value().is_some();
            if !wanted || self.wants_token.swap(true, Ordering::Relaxed) {
                return Ok(response);
            }
        }
    }

    /// POSTs an MCP message and waits for its response, alone or at the end of a stream, for as long as the gateway
    /// takes: it has limits of its own.
    pub(crate) async fn message(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Bytes, Unanswered> {
        let mut request = Request::builder().method(Method::POST).uri(self.channel.address(self.url, path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let key = ClientKey::of_environment(self.url, self.channel.is_socket());
        let request = bearer(request, key.as_ref().and_then(ClientKey::value))?;
        let request = request.body(Full::from(body)).map_err(|error| self.unaskable(&error))?;
        let response = match self.channel.request(request).await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Err(self.unreachable(&error).into()),
            Err(error) => return Err(Unanswered::Lost(innermost(&error))),
        };
        if response.status() == StatusCode::UNAUTHORIZED {
            return Err(ClientKey::refused(key.as_ref(), self.url).into());
        }
        let kind = response.headers().get(header::CONTENT_TYPE);
        let streamed = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let mut body = Limited::new(response.into_body(), LARGEST_ANSWER);
        let broke = |error: &dyn fmt::Display| Unanswered::Lost(error.to_string());
        if !streamed {
            return Ok(body.collect().await.map_err(|error| broke(&error))?.to_bytes());
        }
        let mut events = sse::Reader::new(LARGEST_ANSWER);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| broke(&error))?;
            events.push(frame.data_ref().map_or(&[], |data| data));
            while let Some(event) = events.next_event() {
                let data = event.map_err(|error| broke(&error))?.data;
                if let Ok(Message::Response(_)) = Message::parse(data.as_bytes()) {
                    return Ok(data.into());
                }
            }
        }
        Err(broke(&"the stream ended"))
    }

    /// What happens from now on, or from after the event of this id.
    pub(crate) async fn events(&self, last_seen: Option<&str>) -> Result<EventStream, Failure> {
        let headers: Vec<(&str, &str)> = last_seen.map(|id| ("last-event-id", id)).into_iter().collect();
        let asking = self.admitted(Method::GET, "/api/v1/events", &headers);
        let response = match tokio::time::timeout(ANSWER_WITHIN, asking).await {
            Ok(response) => response?,
            Err(_) => return Err(self.silent()),
        };
        if response.status() == StatusCode::UNAUTHORIZED {
            return Err(self.token.refused(self.url, None));
        }
        if !response.status().is_success() {
            return Err(self.no_gateway(&format!("HTTP {}", response.status().as_u16())));
        }
        Ok(EventStream { body: response.into_body(), reader: sse::Reader::new(LARGEST) })
    }

    /// The answer as it should look. Whatever else listens there is not a gateway.
    pub(crate) fn read<'r, T: Deserialize<'r>>(&self, reply: &'r Reply) -> Result<T, Failure> {
        serde_json::from_slice(&reply.body).map_err(|_| self.no_gateway(&reply.summary()))
    }

    fn unreachable(&self, error: &Error) -> Failure {
        if !error.is_connect() {
            return self.no_gateway(&innermost(error));
        }
        match trust::objection(causes(error)) {
            Some(rustls::Error::InvalidMessage(_)) => return self.no_gateway("it does not speak https"),
            Some(objection) => {
                let why = gripfast::tls::objection(&objection);
                let text = format!("what listens at {} is not believed: {why}", self.url);
                let hint = format!(
                    "${} names a file with certificates to believe, of an authority or of the gateway itself",
                    trust::VARIABLE
                );
                return Failure::new(Exit::Unreachable, text).with_hint(hint);
            }
            None => {}
        }
        // A socket that was there a moment ago is gone with its gateway.
        let refused = |cause: &io::Error| {
            matches!(cause.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
        };
        let why = match causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()) {
            Some(cause) if refused(cause) => String::new(),
            _ => format!(" ({})", innermost(error)),
        };
        let text = format!("no gateway at {}{why}; start one with `gripfast serve`", self.url);
        Failure::new(Exit::Unreachable, text).with_hint("`--url` names another")
    }

    fn unaskable(&self, error: &http::Error) -> Failure {
        Failure::new(Exit::General, format!("cannot ask the gateway at {}: {error}", self.url))
    }

    fn silent(&self) -> Failure {
        let text = format!("the gateway at {} did not answer within {} s", self.url, ANSWER_WITHIN.as_secs());
        Failure::new(Exit::Unreachable, text)
    }

    /// The failure of a message after which the gateway went away, other than a call.
    pub(crate) fn went_away(&self, cause: &str) -> Failure {
        let text = format!("the gateway at {} went away before it answered ({cause})", self.url);
        Failure::new(Exit::Unreachable, text).with_hint("`gripfast status` shows whether it is back")
    }

    pub(crate) fn no_gateway(&self, what: &str) -> Failure {
        let text = format!("what listens at {} is not a gripfast gateway ({what})", self.url);
        Failure::new(Exit::Unreachable, text).with_hint("`--url` names another")
    }
}

impl Reply {
    /// The status, and a plain word about it if there is one.
    fn summary(&self) -> String {
        let status = format!("HTTP {}", self.status.as_u16());
        match str::from_utf8(&self.body).map(str::trim) {
            Ok(said) if !said.is_empty() && said.len() <= 200 && !said.contains(char::is_control) => {
                format!("{status}: {said}")
            }
            Ok(_) | Err(_) => status,
        }
    }

    /// The no, if it is one.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        if self.status.is_success() {
            return None;
        }
        serde_json::from_slice(&self.body).ok().map(|Refused { error }| error)
    }

    /// Whether what was asked for makes no sense to the gateway.
    pub(crate) fn is_unprocessable(&self) -> bool {
        self.status == StatusCode::UNPROCESSABLE_ENTITY
    }

    fn is_unauthorized(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let code = Code::ALL.into_iter().find(|code| code.word() == refusal.code);
        let failure = Self::new(code.map_or(Exit::General, Exit::from), refusal.text);
        match refusal.hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }
}

/// A request that shows this, if there is something to show.
fn bearer(request: request::Builder, secret: Option<&str>) -> Result<request::Builder, Failure> {
    let Some(secret) = secret else { return Ok(request) };
    let mut value = HeaderValue::from_str(&format!("Bearer {secret}"))
        .map_err(|_| Failure::new(Exit::General, "the token or key holds characters that none has"))?;
    value.set_sensitive(true);
    Ok(request.header(header::AUTHORIZATION, value))
}

/// A name as one piece of a path.
pub(crate) fn piece(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

fn innermost(error: &Error) -> String {
    causes(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_one_piece_of_a_path() {
        assert_eq!(piece("git-hub.v2"), "git-hub.v2");
        assert_eq!(piece("a/b c?é"), "a%2Fb%20c%3F%C3%A9");
    }
}

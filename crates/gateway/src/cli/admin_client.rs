//! HTTP client for the admin API and the MCP endpoint of a running gateway.

use super::address::GatewayUrl;
use super::args::GlobalArgs;
use super::connector::GatewayChannel;
use super::credentials::{AdminToken, ClientKey};
use super::error::FailureReport;
use super::exit::Exit;
use super::trust;
use bytes::Bytes;
use gripfast::wire::envelope::Message;
use gripfast::wire::sse;
use gripfast_gateway::api::types::{ErrorView, RefusalView};
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Error;
use serde::de::DeserializeOwned;
use std::error::Error as _;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Client of one gateway.
pub(crate) struct AdminClient<'u> {
    url: &'u GatewayUrl,
    channel: GatewayChannel,
    token: AdminToken,
    /// True if the gateway has asked for the token.
    wants_token: AtomicBool,
}

/// The reason for which an MCP message has no answer.
pub(crate) enum NoAnswer {
    /// The gateway was not reached, or refused the message.
    Failed(FailureReport),
    /// The connection was lost after the message was sent; holds the cause.
    Lost(String),
}

impl From<FailureReport> for NoAnswer {
    fn from(failure: FailureReport) -> Self {
        Self::Failed(failure)
    }
}

/// An answer of the admin API: parsed, and as the gateway sent it.
pub(crate) struct AdminReply<T> {
    pub(crate) value: T,
    pub(crate) json: String,
}

/// An answer that has not been parsed yet.
struct RawReply {
    status: StatusCode,
    body: Bytes,
}

/// The event stream of a gateway.
pub(crate) struct EventStream {
    body: Incoming,
    reader: sse::Reader,
}

impl EventStream {
    /// The next event as JSON; `None` at the end of the stream.
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

/// Time limit for an answer of the admin API, which comes from memory.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer of the admin API. The status of a thousand servers fits many times.
const MAX_REPLY: usize = 16 << 20;
/// Largest MCP message: the largest message of a server, with room for the envelope.
const MAX_MESSAGE: usize = 1 << 30;

impl<'u> AdminClient<'u> {
    /// Opens the channel to the gateway at `url`. Sends nothing over the network yet.
    ///
    /// # Errors
    /// The named config, or the certificates that the user names, cannot be read.
    pub(crate) async fn connect(global: &GlobalArgs, url: &'u GatewayUrl) -> Result<Self, FailureReport> {
        let (channel, token) = GatewayChannel::open(global, url).await?;
        Ok(Self { url, channel, token, wants_token: AtomicBool::new(false) })
    }

    /// Returns true if the gateway is known to belong to this user and this state directory.
    pub(crate) fn is_own(&self) -> bool {
        self.channel.is_socket()
    }

    pub(crate) fn url(&self) -> &GatewayUrl {
        self.url
    }

    /// Sends the token with every request through the control socket, even if the gateway would answer without it.
    pub(crate) fn always_send_token(&self) {
        self.wants_token.fetch_or(self.channel.is_socket(), Ordering::Relaxed);
    }

    /// Reads `path` below `/api/v1`.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<AdminReply<T>, FailureReport> {
        self.send(Method::GET, path).await
    }

    /// Asks the gateway to act, by a POST to `path` below `/api/v1`. A gateway on the network that may not be sent the token is not asked: it could only
    /// refuse, or be an impostor.
    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str) -> Result<AdminReply<T>, FailureReport> {
        if !self.channel.is_socket() && self.token.value().is_none() {
            self.check_alive().await?;
            return Err(self.token.not_sent(self.url));
        }
        // Actions always need the token.
        self.wants_token.store(true, Ordering::Relaxed);
        self.send(Method::POST, path).await
    }

    async fn check_alive(&self) -> Result<(), FailureReport> {
        let request = Request::get(self.channel.uri(self.url, "/healthz")).body(Full::default());
        let asking = self.channel.request(request.map_err(|error| self.invalid_request(&error))?);
        match tokio::time::timeout(TIMEOUT, asking).await {
            Ok(answered) => answered.map(drop).map_err(|error| self.unreachable(&error)),
            Err(_) => Err(self.timed_out()),
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
    ) -> Result<AdminReply<T>, FailureReport> {
        let asking = async {
            let response = self.send_authorized(method, path, &[]).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_REPLY).collect().await;
            let body = body
                .map_err(|error| self.not_a_gateway(&format!("its answer was cut off: {error}")))?
                .to_bytes();
            Ok(RawReply { status, body })
        };
        let reply = tokio::time::timeout(TIMEOUT, asking).await.unwrap_or_else(|_| Err(self.timed_out()))?;
        match reply.error() {
            Some(refusal) if reply.status == StatusCode::UNAUTHORIZED => {
                Err(self.token.refused(self.url, refusal.hint))
            }
            Some(refusal) => Err(refusal.into()),
            // If it has another shape, the program at that address is not a gateway.
            None => match serde_json::from_slice(&reply.body) {
                Ok(value) => {
                    Ok(AdminReply { value, json: String::from_utf8_lossy(&reply.body).into_owned() })
                }
                Err(_) => Err(self.not_a_gateway(&reply.summary())),
            },
        }
    }

    /// The answer of the admin API. It answers local readers without a token, so the token is sent once the gateway
    /// asks for it, and with every request from then on.
    async fn send_authorized(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response<Incoming>, FailureReport> {
        loop {
            let shows = self.wants_token.load(Ordering::Relaxed);
            let token = self.token.value().filter(|_| shows);
            let uri = self.channel.uri(self.url, &format!("/api/v1{path}"));
            let mut request = Request::builder().method(&method).uri(uri);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request = bearer(request, token)?
                .body(Full::default())
                .map_err(|error| self.invalid_request(&error))?;
            let response = self.channel.request(request).await.map_err(|error| self.unreachable(&error))?;
            let wanted = response.status() == StatusCode::UNAUTHORIZED && self.token.value().is_some();
            if !wanted || self.wants_token.swap(true, Ordering::Relaxed) {
                return Ok(response);
            }
        }
    }

    /// POSTs an MCP message and waits for its response, as JSON or at the end of an event stream. Has no time limit:
    /// the gateway has its own.
    pub(crate) async fn post_message(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Bytes, NoAnswer> {
        let mut request = Request::builder().method(Method::POST).uri(self.channel.uri(self.url, path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let key = ClientKey::from_env(self.url, self.channel.is_socket());
        let request = bearer(request, key.as_ref().and_then(ClientKey::value))?;
        let request = request.body(Full::from(body)).map_err(|error| self.invalid_request(&error))?;
        let response = match self.channel.request(request).await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Err(self.unreachable(&error).into()),
            Err(error) => return Err(NoAnswer::Lost(root_cause(&error))),
        };
        if response.status() == StatusCode::UNAUTHORIZED {
            return Err(ClientKey::refused(key.as_ref(), self.url).into());
        }
        let kind = response.headers().get(header::CONTENT_TYPE);
        let streamed = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let mut body = Limited::new(response.into_body(), MAX_MESSAGE);
        let broke = |error: &dyn fmt::Display| NoAnswer::Lost(error.to_string());
        if !streamed {
            return Ok(body.collect().await.map_err(|error| broke(&error))?.to_bytes());
        }
        let mut events = sse::Reader::new(MAX_MESSAGE);
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

    /// The events from now on, or those after the event with the id `last_seen`.
    pub(crate) async fn events(&self, last_seen: Option<&str>) -> Result<EventStream, FailureReport> {
        let headers: Vec<(&str, &str)> = last_seen.map(|id| ("last-event-id", id)).into_iter().collect();
        let asking = self.send_authorized(Method::GET, "/events", &headers);
        let response = match tokio::time::timeout(TIMEOUT, asking).await {
            Ok(response) => response?,
            Err(_) => return Err(self.timed_out()),
        };
        if response.status() == StatusCode::UNAUTHORIZED {
            return Err(self.token.refused(self.url, None));
        }
        if !response.status().is_success() {
            return Err(self.not_a_gateway(&format!("HTTP {}", response.status().as_u16())));
        }
        Ok(EventStream { body: response.into_body(), reader: sse::Reader::new(MAX_REPLY) })
    }

    fn unreachable(&self, error: &Error) -> FailureReport {
        if !error.is_connect() {
            return self.not_a_gateway(&root_cause(error));
        }
        match trust::tls_error(causes(error)) {
            Some(rustls::Error::InvalidMessage(_)) => return self.not_a_gateway("it does not speak https"),
            Some(objection) => {
                let why = gripfast::tls::describe_error(&objection);
                let text = format!("the certificate at {} is not trusted: {why}", self.url);
                let hint = format!(
                    "${} names a PEM file with certificates to trust, of an authority or of the gateway itself",
                    trust::CA_VARIABLE
                );
                return FailureReport::new(Exit::Unreachable, text).with_hint(hint);
            }
            None => {}
        }
        // `NotFound`: the control socket is removed when its gateway ends.
        let refused = |cause: &io::Error| {
            matches!(cause.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
        };
        let why = match causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()) {
            Some(cause) if refused(cause) => String::new(),
            _ => format!(" ({})", root_cause(error)),
        };
        let text = format!("no gateway at {}{why}; start one with `gripfast serve`", self.url);
        FailureReport::new(Exit::Unreachable, text).with_hint("`--url` names another gateway")
    }

    fn invalid_request(&self, error: &http::Error) -> FailureReport {
        FailureReport::new(Exit::General, format!("cannot ask the gateway at {}: {error}", self.url))
    }

    fn timed_out(&self) -> FailureReport {
        let text = format!("the gateway at {} did not answer within {} s", self.url, TIMEOUT.as_secs());
        FailureReport::new(Exit::Unreachable, text)
    }

    /// The failure of a request, other than a call, whose connection was lost before the answer.
    pub(crate) fn connection_lost(&self, cause: &str) -> FailureReport {
        let text =
            format!("the connection to the gateway at {} was lost before it answered ({cause})", self.url);
        FailureReport::new(Exit::Unreachable, text).with_hint("`gripfast status` shows whether it is running")
    }

    pub(crate) fn not_a_gateway(&self, what: &str) -> FailureReport {
        let text = format!("the program at {} is not a gripfast gateway ({what})", self.url);
        FailureReport::new(Exit::Unreachable, text).with_hint("`--url` names another gateway")
    }
}

impl RawReply {
    /// The HTTP status, and the body if it is a short plain text.
    fn summary(&self) -> String {
        let status = format!("HTTP {}", self.status.as_u16());
        match str::from_utf8(&self.body).map(str::trim) {
            Ok(text) if !text.is_empty() && text.len() <= 200 && !text.contains(char::is_control) => {
                format!("{status}: {text}")
            }
            Ok(_) | Err(_) => status,
        }
    }

    /// The error, if the answer is one.
    fn error(&self) -> Option<ErrorView> {
        if self.status.is_success() {
            return None;
        }
        serde_json::from_slice(&self.body).ok().map(|RefusalView { error }| error)
    }
}

/// Adds `secret`, if there is one, as a bearer token.
fn bearer(request: request::Builder, secret: Option<&str>) -> Result<request::Builder, FailureReport> {
    let Some(secret) = secret else { return Ok(request) };
    let mut value = HeaderValue::from_str(&format!("Bearer {secret}")).map_err(|_| {
        FailureReport::new(
            Exit::General,
            "the token or key contains characters that are not allowed in a header",
        )
    })?;
    value.set_sensitive(true);
    Ok(request.header(header::AUTHORIZATION, value))
}

/// The path of a server, with `rest` after its name.
pub(crate) fn upstream_path(name: &str, rest: &str) -> String {
    format!("/upstreams/{}{rest}", path_segment(name))
}

/// A name as one percent-encoded segment of a path.
pub(crate) fn path_segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

fn root_cause(error: &Error) -> String {
    causes(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_becomes_one_path_segment() {
        assert_eq!(path_segment("git-hub.v2"), "git-hub.v2");
        assert_eq!(path_segment("a/b c?é"), "a%2Fb%20c%3F%C3%A9");
    }
}

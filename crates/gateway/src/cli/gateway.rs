//! A running gateway, asked over HTTP, and what it answers.

use super::address::GatewayUrl;
use super::exit::Exit;
use super::stop::Failure;
use super::trust;
use bytes::Bytes;
use gripfast::Code;
use gripfast::wire::envelope::Message;
use gripfast::wire::sse;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use std::error::Error as _;
use std::fmt;
use std::io;
use std::time::Duration;

/// A gateway that can be asked.
pub(crate) struct Gateway<'u> {
    url: &'u GatewayUrl,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
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

/// It is on this machine or near it.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// It answers from memory.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The status of a thousand servers fits many times.
const LARGEST: usize = 16 << 20;
/// A server's largest message, with room for what is around it.
const LARGEST_ANSWER: usize = 1 << 30;

impl<'u> Gateway<'u> {
    /// Needs a runtime.
    ///
    /// # Errors
    /// Nobody could tell who it is.
    pub(crate) fn at(url: &'u GatewayUrl) -> Result<Self, Failure> {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(CONNECT_WITHIN));
        Ok(Self { url, client: Client::builder(TokioExecutor::new()).build(trust::connector(url, tcp)?) })
    }

    pub(crate) fn url(&self) -> &GatewayUrl {
        self.url
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Reply, Failure> {
        self.ask(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, token: Option<&str>) -> Result<Reply, Failure> {
        self.ask(Method::POST, path, token).await
    }

    async fn ask(&self, method: Method, path: &str, token: Option<&str>) -> Result<Reply, Failure> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
                Failure::new(Exit::General, "the admin token holds characters that no token has")
            })?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Full::default()).map_err(|error| {
            Failure::new(Exit::General, format!("cannot ask the gateway at {}: {error}", self.url))
        })?;
        match tokio::time::timeout(ANSWER_WITHIN, self.exchange(request)).await {
            Ok(reply) => reply,
            Err(_) => Err(self.silent()),
        }
    }

    /// POSTs an MCP message and waits for its response, alone or at the end of a stream, for as long as the gateway
    /// takes: it has limits of its own.
    pub(crate) async fn message(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Bytes, Failure> {
        let mut request = Request::builder().method(Method::POST).uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(key) = std::env::var("GRIPFAST_KEY").ok().filter(|key| !key.is_empty()) {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
                .map_err(|_| Failure::new(Exit::General, "$GRIPFAST_KEY holds characters that no key has"))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Full::from(body)).map_err(|error| {
            Failure::new(Exit::General, format!("cannot ask the gateway at {}: {error}", self.url))
        })?;
        let response = self.client.request(request).await.map_err(|error| self.unreachable(&error))?;
        if response.status() == StatusCode::UNAUTHORIZED {
            let text = format!("the gateway at {} wants a key, or another one", self.url);
            return Err(Failure::new(Exit::Denied, text)
                .with_hint("`gripfast keys add NAME` makes one; $GRIPFAST_KEY is sent"));
        }
        let kind = response.headers().get(header::CONTENT_TYPE);
        let streamed = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let mut body = Limited::new(response.into_body(), LARGEST_ANSWER);
        let broke = |error: &dyn fmt::Display| self.no_gateway(&format!("its answer broke off: {error}"));
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
        let mut request = Request::builder().uri(format!("{}/api/v1/events", self.url));
        if let Some(id) = last_seen {
            request = request.header("last-event-id", id);
        }
        let request = request.body(Full::default()).map_err(|error| {
            Failure::new(Exit::General, format!("cannot ask the gateway at {}: {error}", self.url))
        })?;
        let response = match tokio::time::timeout(ANSWER_WITHIN, self.client.request(request)).await {
            Ok(response) => response.map_err(|error| self.unreachable(&error))?,
            Err(_) => return Err(self.silent()),
        };
        if !response.status().is_success() {
            return Err(self.no_gateway(&format!("HTTP {}", response.status().as_u16())));
        }
        Ok(EventStream { body: response.into_body(), reader: sse::Reader::new(LARGEST) })
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Reply, Failure> {
        let response = self.client.request(request).await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST).collect().await;
        let body =
            body.map_err(|error| self.no_gateway(&format!("its answer broke off: {error}")))?.to_bytes();
        Ok(Reply { status, body })
    }

    /// The answer as it should look. Whatever else listens there is not a gateway.
    pub(crate) fn read<'r, T: Deserialize<'r>>(&self, reply: &'r Reply) -> Result<T, Failure> {
        if reply.is_unauthorized() && reply.refusal().is_some() {
            let text = format!(
                "the gateway at {} shows itself on its own machine, and to who has its token",
                self.url
            );
            return Err(
                Failure::new(Exit::Denied, text).with_hint("ask on that machine, or look at its dashboard")
            );
        }
        serde_json::from_slice(&reply.body).map_err(|_| self.no_gateway(&reply.summary()))
    }

    fn unreachable(&self, error: &Error) -> Failure {
        if !error.is_connect() {
            return self.no_gateway(&innermost(error));
        }
        match trust::objection(causes(error)) {
            Some(rustls::Error::InvalidMessage(_)) => return self.no_gateway("it does not speak https"),
            Some(objection) => {
                let text = format!("what listens at {} is not believed: {objection}", self.url);
                let hint = format!(
                    "${} names a file with certificates to believe, of an authority or of the gateway itself",
                    trust::VARIABLE
                );
                return Failure::new(Exit::Unreachable, text).with_hint(hint);
            }
            None => {}
        }
        let refused = |cause: &io::Error| cause.kind() == io::ErrorKind::ConnectionRefused;
        let why = match causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()) {
            Some(cause) if refused(cause) => String::new(),
            _ => format!(" ({})", innermost(error)),
        };
        let text = format!("no gateway at {}{why}; start one with `gripfast serve`", self.url);
        Failure::new(Exit::Unreachable, text).with_hint("`--url` names another")
    }

    fn silent(&self) -> Failure {
        let text = format!("the gateway at {} did not answer within {} s", self.url, ANSWER_WITHIN.as_secs());
        Failure::new(Exit::Unreachable, text)
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

    pub(crate) fn is_unauthorized(&self) -> bool {
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

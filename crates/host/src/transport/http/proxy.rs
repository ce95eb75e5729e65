//! Connections through a proxy that the environment names. Errors name the proxy, so that they are not attributed to
//! the server.

use super::connect::{BoxError, connect_failure};
use super::happy_eyeballs::Tcp;
use gripfast_core::failure::ConnectStepFailed;
use http::Uri;
use http::header::HeaderValue;
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioIo;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_service::Service;

/// A proxy on the way to a target.
#[derive(Clone)]
pub(super) struct Proxy {
    uri: Uri,
    /// Address for messages, without user and password.
    name: Arc<str>,
    credentials: Option<HeaderValue>,
}

/// Error of a proxy.
#[derive(Debug)]
pub(super) struct ProxyError {
    text: String,
    /// True if a person has to give the proxy a user and a password.
    pub(super) needs_credentials: bool,
}

impl fmt::Display for ProxyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl StdError for ProxyError {}

impl ProxyError {
    /// Finds this error in a chain of causes.
    pub(super) fn find_in<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e Self> {
        std::iter::successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref())
    }
}

impl Proxy {
    pub(super) fn from_intercept(found: &Intercept) -> Self {
        let uri = found.uri().clone();
        let authority = match (uri.host(), uri.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (Some(host), None) => host.to_owned(),
            (None, _) => String::new(),
        };
        let name = format!("{}://{authority}", uri.scheme_str().unwrap_or("http")).into();
        Self { uri, name, credentials: found.basic_auth().cloned() }
    }

    /// Returns the address for messages.
    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Connects to the proxy itself.
    pub(super) async fn connect(&self, mut tcp: Tcp) -> Result<TokioIo<TcpStream>, BoxError> {
        tcp.call(self.uri.clone()).await.map_err(|error| {
            let (step, text) = connect_failure(&*error);
            let why = match step {
                // Not the fault of the proxy.
                ConnectStepFailed::OutOfResources => return error,
                ConnectStepFailed::Dns => format!("its name does not resolve: {text}"),
                ConnectStepFailed::Refused
                | ConnectStepFailed::Tls
                | ConnectStepFailed::TimedOut
                | ConnectStepFailed::Other => text,
            };
            self.error(&format!("cannot be reached: {why}"))
        })
    }

    /// Opens a CONNECT tunnel to `target`.
    async fn tunnel(&self, stream: &mut TcpStream, target: &str) -> Result<(), BoxError> {
        /// Maximum size of the response head to CONNECT.
        const LONGEST: usize = 8 << 10;
        let mut head = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n").into_bytes();
        if let Some(credentials) = &self.credentials {
            head.extend(b"proxy-authorization: ");
            head.extend(credentials.as_bytes());
            head.extend(b"\r\n");
        }
        head.extend(b"\r\n");
        let broken = |error: io::Error| self.error(&format!("broke the connection: {error}"));
        stream.write_all(&head).await.map_err(broken)?;
        let mut answer = Vec::new();
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            let is_http = answer.len() < 5 || answer.starts_with(b"HTTP/");
            if !is_http || answer.len() > LONGEST {
                return Err(self.error("does not answer in HTTP"));
            }
            if stream.read_buf(&mut answer).await.map_err(broken)? == 0 {
                return Err(
                    self.error(&format!("closed the connection instead of opening a tunnel to {target}"))
                );
            }
        }
        let head = String::from_utf8_lossy(&answer);
        let status =
            head.lines().next().and_then(|line| line.split_once(' ')).map(|(_, status)| status.trim());
        let status = status.filter(|status| status.len() >= 3).unwrap_or_default();
        match status.as_bytes() {
            // The target sends nothing before we do.
            [b'2', _, _, ..] if answer.ends_with(b"\r\n\r\n") => Ok(()),
            [b'2', _, _, ..] => Err(self.error("does not answer in HTTP")),
            [b'4', b'0', b'7', ..] => Err(credentials_required(&self.name).into()),
            [] => Err(self.error("does not answer in HTTP")),
            _ => Err(self.error(&format!("refuses a tunnel to {target}: it answers `{status}`"))),
        }
    }

    fn error(&self, what: &str) -> BoxError {
        ProxyError { text: format!("the proxy `{}` {what}", self.name), needs_credentials: false }.into()
    }
}

/// Error that a person has to repair.
fn credentials_required(name: &str) -> ProxyError {
    let text = format!(
        "the proxy `{name}` wants a user and a password (407): the variable that names it may hold them, as in \
         `http://USER:PASSWORD@HOST:PORT`"
    );
    ProxyError { text, needs_credentials: true }
}

/// Connector through a CONNECT tunnel.
#[derive(Clone)]
pub(super) struct Tunnel {
    pub(super) proxy: Proxy,
    pub(super) tcp: Tcp,
}

impl Service<Uri> for Tunnel {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let Self { proxy, tcp } = self.clone();
        Box::pin(async move {
            let mut stream = proxy.connect(tcp).await?.into_inner();
            let host = target.host().unwrap_or_default();
            let port = target.port_u16().unwrap_or(443);
            proxy.tunnel(&mut stream, &format!("{host}:{port}")).await?;
            Ok(TokioIo::new(stream))
        })
    }
}

/// Marks a response that came through a forwarding proxy: it may be the proxy's own.
#[derive(Clone)]
pub(super) struct ForwardedBy(pub(super) Arc<str>);

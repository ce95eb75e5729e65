//! The channel to a gateway: its control socket if there is one, else the network.

use super::address::GatewayUrl;
use super::args::GlobalArgs;
use super::config;
use super::credentials::{AdminToken, SocketError};
use super::error::FailureReport;
use super::trust;
use bytes::Bytes;
#[cfg(unix)]
use gripfast_gateway::server::control_socket;
use gripfast_gateway::server::control_socket::FoundSocket;
#[cfg(unix)]
use http::Uri;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
#[cfg(unix)]
use hyper_util::rt::TokioIo;
#[cfg(unix)]
use std::io;
#[cfg(unix)]
use std::pin::Pin;
#[cfg(unix)]
use std::task::{Context, Poll};
use std::time::Duration;
#[cfg(unix)]
use tokio::net::UnixStream;

/// Time limit for a connection; a gateway is on this machine or near it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Base URL of requests through the socket; every gateway accepts this host name.
#[cfg(unix)]
const SOCKET_BASE_URL: &str = "http://localhost";

/// The channel to one gateway.
pub(crate) enum GatewayChannel {
    #[cfg(unix)]
    Socket(Client<SocketConnector, Full<Bytes>>),
    Network(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

impl GatewayChannel {
    /// Opens the channel to the gateway at `url`, with the admin token that may be sent through it.
    ///
    /// # Errors
    /// The named config, or the certificates that the user names, cannot be read.
    pub(crate) async fn open(
        global: &GlobalArgs,
        url: &GatewayUrl,
    ) -> Result<(Self, AdminToken), FailureReport> {
        let addresses = url.local_addresses();
        if addresses.is_empty() {
            return Ok((Self::network(url)?, AdminToken::from_env(url)));
        }
        let reason = match config::gateway_state_dir(global)? {
            None => SocketError::NoStateDir,
            #[cfg(unix)]
            Some(state_dir) => {
                let listening: Vec<_> =
                    addresses.into_iter().flat_map(control_socket::listening_for).collect();
                match control_socket::find(&state_dir, &listening).await {
                    Ok(Some(found)) => {
                        let token = AdminToken::from_state_dir(&state_dir, found.owner());
                        let client = Client::builder(TokioExecutor::new()).build(SocketConnector(found));
                        return Ok((Self::Socket(client), token));
                    }
                    Ok(None) => SocketError::NotThere(state_dir),
                    Err(error) => SocketError::Unusable {
                        folder: state_dir.join(control_socket::FOLDER),
                        why: error.to_string(),
                    },
                }
            }
            #[cfg(not(unix))]
            Some(state_dir) => SocketError::NotThere(state_dir),
        };
        Ok((Self::network(url)?, AdminToken::without_socket(reason)))
    }

    fn network(url: &GatewayUrl) -> Result<Self, FailureReport> {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        Ok(Self::Network(Client::builder(TokioExecutor::new()).build(trust::connector(url, tcp)?)))
    }

    /// Returns true if the channel is the control socket, so that the gateway is known to use this state directory.
    pub(crate) fn is_socket(&self) -> bool {
        match self {
            #[cfg(unix)]
            Self::Socket(_) => true,
            Self::Network(_) => false,
        }
    }

    /// The URI of `path` for this channel.
    pub(crate) fn uri(&self, url: &GatewayUrl, path: &str) -> String {
        match self {
            #[cfg(unix)]
            Self::Socket(_) => format!("{SOCKET_BASE_URL}{path}"),
            Self::Network(_) => format!("{url}{path}"),
        }
    }

    pub(crate) async fn request(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        match self {
            #[cfg(unix)]
            Self::Socket(client) => client.request(request).await,
            Self::Network(client) => client.request(request).await,
        }
    }
}

/// Connects to a control socket, whatever the URI.
#[cfg(unix)]
#[derive(Clone)]
pub(crate) struct SocketConnector(FoundSocket);

#[cfg(unix)]
impl tower_service::Service<Uri> for SocketConnector {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let found = self.0.clone();
        Box::pin(async move { found.connect().await.map(TokioIo::new) })
    }
}

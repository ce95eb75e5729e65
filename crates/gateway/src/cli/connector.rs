//! The channel to a gateway: its control socket, where there is one, and else the network.

use super::address::GatewayUrl;
use super::args::Global;
use super::config;
use super::credentials::{AdminToken, NoSocket};
use super::stop::Failure;
use super::trust;
use bytes::Bytes;
#[cfg(unix)]
use gripfast_gateway::control_socket::{self, Found};
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

/// Time for a connection; a gateway is on this machine or near it.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// The name by which a gateway is asked through its socket; every gateway goes by it.
#[cfg(unix)]
const THROUGH_SOCKET: &str = "http://localhost";

/// The channel to one gateway.
pub(crate) enum Channel {
    #[cfg(unix)]
    Socket(Client<SocketConnector, Full<Bytes>>),
    Network(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

impl Channel {
    /// The channel to the gateway at `url`, and the admin token that may be sent through it.
    ///
    /// # Errors
    /// The config that was named cannot be read, or the certificates that the user names.
    pub(crate) async fn to(global: &Global, url: &GatewayUrl) -> Result<(Self, AdminToken), Failure> {
        let addresses = url.local_addresses();
        if addresses.is_empty() {
            return Ok((Self::network(url)?, AdminToken::of_environment(url)));
        }
        let reason = match config::state_dir_of_gateway(global)? {
            None => NoSocket::NoStateDir,
            #[cfg(unix)]
            Some(state_dir) => {
                let listening: Vec<_> =
                    addresses.into_iter().flat_map(control_socket::listening_for).collect();
                match control_socket::find(&state_dir, &listening).await {
                    Ok(Some(found)) => {
                        let token = AdminToken::of_state_dir(&state_dir, found.owner());
                        let client = Client::builder(TokioExecutor::new()).build(SocketConnector(found));
                        return Ok((Self::Socket(client), token));
                    }
                    Ok(None) => NoSocket::NotThere(state_dir),
                    Err(error) => NoSocket::Unusable {
                        folder: state_dir.join(control_socket::FOLDER),
                        why: error.to_string(),
                    },
                }
            }
            #[cfg(not(unix))]
            Some(state_dir) => NoSocket::NotThere(state_dir),
        };
        Ok((Self::network(url)?, AdminToken::without_socket(reason)))
    }

    fn network(url: &GatewayUrl) -> Result<Self, Failure> {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(CONNECT_WITHIN));
        Ok(Self::Network(Client::builder(TokioExecutor::new()).build(trust::connector(url, tcp)?)))
    }

    /// Whether the gateway is known to be one of this state directory.
    pub(crate) fn is_socket(&self) -> bool {
        match self {
            #[cfg(unix)]
            Self::Socket(_) => true,
            Self::Network(_) => false,
        }
    }

    /// The URI of `path` in this channel.
    pub(crate) fn address(&self, url: &GatewayUrl, path: &str) -> String {
        match self {
            #[cfg(unix)]
            Self::Socket(_) => format!("{THROUGH_SOCKET}{path}"),
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

/// Connects to a control socket, whatever is asked for.
#[cfg(unix)]
#[derive(Clone)]
pub(crate) struct SocketConnector(Found);

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

//! Connects to a name with several addresses, as in Happy Eyeballs (RFC 8305): an address that does not answer costs a
//! quarter of a second, not the whole connect timeout.

use super::connect::{BoxError, Resolver};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gripfast_core::address::attempt_order;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tower_service::Service;

/// Delay after which the next address is tried as well.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// TCP connector.
#[derive(Clone)]
pub(super) struct Tcp {
    connector: HttpConnector,
    resolver: Resolver,
}

impl Tcp {
    /// Creates a connector; `within` is the time limit for one address.
    pub(super) fn new(resolver: Resolver, within: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(within));
        connector.set_keepalive(Some(Duration::from_secs(60)));
        Self { connector, resolver }
    }

    async fn connect(mut self, target: Uri) -> Result<TokioIo<TcpStream>, BoxError> {
        let host = target.host().unwrap_or_default();
        if host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
            return Ok(self.connector.call(target).await?);
        }
        let default_port = if target.scheme_str() == Some("https") { 443 } else { 80 };
        let port = target.port_u16().unwrap_or(default_port);
        let name: Name = host.parse()?;
        let found = self.resolver.call(name).await?;
        self.connect_first(attempt_order(found.map(|address| SocketAddr::new(address.ip(), port)))).await
    }

    /// Connects to the first of these addresses that answers.
    async fn connect_first(&self, addresses: Vec<SocketAddr>) -> Result<TokioIo<TcpStream>, BoxError> {
        let attempt = |address: SocketAddr| {
            let mut connector = self.connector.clone();
            async move {
                let target: Uri = format!("http://{address}").parse()?;
                Ok::<_, BoxError>(connector.call(target).await?)
            }
        };
        let mut untried = addresses.into_iter().peekable();
        let mut attempts = FuturesUnordered::new();
        // Failure of the first address, which is the one that people know.
        let mut failure = None;
        loop {
            match untried.next() {
                Some(address) => attempts.push(attempt(address)),
                None if attempts.is_empty() => {
                    let nowhere = || io::Error::other("its name has no address").into();
                    return Err(failure.unwrap_or_else(nowhere));
                }
                None => {}
            }
            let are_left = untried.peek().is_some();
            tokio::select! {
                Some(ended) = attempts.next() => match ended {
                    Ok(stream) => return Ok(stream),
                    Err(error) => drop(failure.get_or_insert(error)),
                },
                () = tokio::time::sleep(ATTEMPT_DELAY), if are_left => {}
            }
        }
    }
}

impl Service<Uri> for Tcp {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        Box::pin(self.clone().connect(target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::http::connect::Resolver;
    use std::net::Ipv4Addr;
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::time::Instant;

    const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    fn tcp() -> Tcp {
        Tcp::new(Resolver::unfiltered(), Duration::from_secs(10))
    }

    /// A port that answers nothing: its queue is full.
    #[cfg(target_os = "linux")]
    async fn dead() -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(ANYWHERE).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        while let Ok(Ok(stream)) =
            tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
        {
            queued.push(stream);
        }
        (listener, queued)
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_address_that_does_not_answer_does_not_hold_up_the_next_one() {
        let live = TcpListener::bind(ANYWHERE).await.unwrap();
        let live = live.local_addr().map(|address| (address, live)).unwrap();
        let (dead, _queued) = dead().await;
        let dead = dead.local_addr().map(|address| (address, dead)).unwrap();
        let begun = Instant::now();
        let stream = tcp().connect_first(vec![dead.0, dead.0, live.0]).await.unwrap();
        assert_eq!(stream.inner().peer_addr().unwrap(), live.0);
        let took = begun.elapsed();
        assert!(took >= 2 * ATTEMPT_DELAY && took < Duration::from_secs(4), "{took:?}");
    }

    #[tokio::test]
    async fn a_refused_address_is_skipped_at_once_and_the_first_error_is_reported() {
        let gone = TcpListener::bind(ANYWHERE).await.unwrap().local_addr().unwrap();
        let live = TcpListener::bind(ANYWHERE).await.unwrap();
        let begun = Instant::now();
        tcp().connect_first(vec![gone, gone, live.local_addr().unwrap()]).await.unwrap();
        assert!(begun.elapsed() < ATTEMPT_DELAY, "{:?}", begun.elapsed());
        let error = tcp().connect_first(vec![gone, gone]).await.unwrap_err();
        let (step, _) = crate::transport::http::connect::connect_failure(&*error);
        assert_eq!(step, gripfast_core::failure::ConnectStepFailed::Refused);
        assert!(tcp().connect_first(Vec::new()).await.unwrap_err().to_string().contains("no address"));
    }

    #[tokio::test]
    async fn a_name_is_resolved_and_reached_at_the_port_of_its_url() {
        let live = TcpListener::bind(ANYWHERE).await.unwrap();
        let port = live.local_addr().unwrap().port();
        let target = format!("http://localhost:{port}/mcp").parse().unwrap();
        tcp().call(target).await.unwrap();
    }
}

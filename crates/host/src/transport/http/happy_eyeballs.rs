//! Connecting to a name with several addresses, as in Happy Eyeballs (RFC 8305): an address that does not answer costs a
//! quarter of a second, not the whole time for a connection.

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

/// How long an address has until the next one is tried as well.
const NEXT_AFTER: Duration = Duration::from_millis(250);

/// Makes TCP connections.
#[derive(Clone)]
pub(super) struct Tcp {
    connector: HttpConnector,
    resolver: Resolver,
}

impl Tcp {
    /// `within` is the time for one address.
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
        let usual = if target.scheme_str() == Some("https") { 443 } else { 80 };
        let port = target.port_u16().unwrap_or(usual);
        let name: Name = host.parse()?;
        let found = self.resolver.call(name).await?;
        self.first_of(attempt_order(found.map(|address| SocketAddr::new(address.ip(), port)))).await
    }

    /// The first of these addresses that answers.
    async fn first_of(&self, addresses: Vec<SocketAddr>) -> Result<TokioIo<TcpStream>, BoxError> {
        let attempt = |address: SocketAddr| {
            let mut connector = self.connector.clone();
            async move {
                let target: Uri = format!("http://{address}").parse()?;
                Ok::<_, BoxError>(connector.call(target).await?)
            }
        };
        let mut untried = addresses.into_iter().peekable();
        let mut attempts = FuturesUnordered::new();
        // Of the address that comes first, which is the one that people know.
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
                () = tokio::time::sleep(NEXT_AFTER), if are_left => {}
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
        let stream = tcp().first_of(vec![dead.0, dead.0, live.0]).await.unwrap();
        assert_eq!(stream.inner().peer_addr().unwrap(), live.0);
        let took = begun.elapsed();
        assert!(took >= 2 * NEXT_AFTER && took < Duration::from_secs(4), "{took:?}");
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_followed_by_the_next_at_once_and_the_first_failure_is_told() {
        let gone = TcpListener::bind(ANYWHERE).await.unwrap().local_addr().unwrap();
        let live = TcpListener::bind(ANYWHERE).await.unwrap();
        let begun = Instant::now();
        tcp().first_of(vec![gone, gone, live.local_addr().unwrap()]).await.unwrap();
        assert!(begun.elapsed() < NEXT_AFTER, "{:?}", begun.elapsed());
        let error = tcp().first_of(vec![gone, gone]).await.unwrap_err();
        let (trouble, _) = crate::transport::http::connect::trouble_in(&*error);
        assert_eq!(trouble, gripfast_core::failure::DialTrouble::Refused);
        assert!(tcp().first_of(Vec::new()).await.unwrap_err().to_string().contains("no address"));
    }

    #[tokio::test]
    async fn a_name_is_resolved_and_reached_at_the_port_of_its_url() {
        let live = TcpListener::bind(ANYWHERE).await.unwrap();
        let port = live.local_addr().unwrap().port();
        let target = format!("http://localhost:{port}/mcp").parse().unwrap();
        tcp().call(target).await.unwrap();
    }
}

//! Connections: TCP without delay, TLS with the roots of the system and of the operator, and the proxies that the
//! environment names.

use super::egress::Egress;
use super::happy_eyeballs::Tcp;
use super::proxy::{Proxy, ProxyError, Tunnel};
use crate::config::is_loopback;
use crate::file_limit;
use crate::private_files::{self, StrictModes};
use crate::tls::{TrustedCertificates, describe_error};
use crate::transport::target::TlsFiles;
use gripfast_core::failure::{ConnectStepFailed, Observed};
use http::header::HeaderValue;
use http::{HeaderMap, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::error::Error as StdError;
use std::fs::File;
use std::io::{self, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tower_service::Service;
use url::Url;

pub(super) type BoxError = Box<dyn StdError + Send + Sync>;

/// Opens connections for one upstream. Each is direct or goes through a proxy on its own, because a redirect may lead
/// to another scheme or host than the configured one.
#[derive(Clone)]
pub(crate) struct Connector {
    /// For targets that the config names, and for proxies.
    tcp: Tcp,
    /// For all other targets: names resolve to addresses that `egress` allows.
    filtered: Tcp,
    egress: Arc<Egress>,
    proxies: Arc<Matcher>,
    tls: Arc<Tls>,
}

/// TLS config, made when it is first needed: reading the system's roots takes a while.
struct Tls {
    files: TlsFiles,
    config: OnceLock<Result<ClientConfig, Observed>>,
}

impl Tls {
    fn config(&self) -> Result<ClientConfig, Observed> {
        self.config.get_or_init(|| tls_config(&self.files)).clone()
    }
}

impl Connector {
    /// Time limit for a TCP connection.
    const TCP_TIMEOUT: Duration = Duration::from_secs(10);

    /// Creates a connector for `target` and the targets that it redirects to.
    pub(crate) fn new(target: &Uri, egress: Egress, files: TlsFiles) -> Result<Self, Observed> {
        let egress = Arc::new(egress);
        let tcp = |egress: Option<Arc<Egress>>| {
            Tcp::new(Resolver { inner: GaiResolver::new(), egress }, Self::TCP_TIMEOUT)
        };
        let tls = Arc::new(Tls { files, config: OnceLock::new() });
        let proxies = Arc::new(Matcher::from_env());
        let connector =
            Self { tcp: tcp(None), filtered: tcp(Some(Arc::clone(&egress))), egress, proxies, tls };
        if is_encrypted(target) {
            connector.tls.config()?;
        }
        match connector.proxy(target).map(|proxy| proxy.uri().scheme_str() == Some("http")) {
            None | Some(true) => Ok(connector),
            Some(false) => {
                let text = "the environment names a proxy of an unsupported kind; use an `http://` proxy";
                Err(Observed::BadConfig(text.to_owned()))
            }
        }
    }

    /// The same without the proxies of the environment.
    pub(super) fn without_proxies(self) -> Self {
        Self { proxies: Arc::new(Matcher::builder().build()), ..self }
    }

    /// Returns the proxy for `target`. There is none for this machine: plaintext for a local server must not leave the
    /// machine.
    fn proxy(&self, target: &Uri) -> Option<Intercept> {
        let is_here = Url::parse(&target.to_string()).is_ok_and(|target| is_loopback(&target));
        if is_here { None } else { self.proxies.intercept(target) }
    }

    /// Connects to `target`.
    pub(super) async fn connect(&self, target: Uri) -> Result<Stream, BoxError> {
        let Self { tcp, filtered, egress, proxies: _, tls } = self.clone();
        let mut direct = tcp.clone();
        if !egress.is_configured(&target) {
            let host = target.host().unwrap_or_default();
            // An IP address instead of a name is not resolved.
            if let Ok(address) = host.trim_matches(['[', ']']).parse() {
                egress.check(host, address)?;
            }
            direct = filtered;
        }
        let (io, forwarded) = match (self.proxy(&target), is_encrypted(&target)) {
            (None, false) => (MaybeHttpsStream::Http(direct.call(target).await?), false),
            (None, true) => {
                (with_tls(direct, tls.config().map_err(config_error)?).call(target).await?, false)
            }
            // Plain HTTP through a proxy: each request names the whole URL.
            (Some(proxy), false) => {
                (MaybeHttpsStream::Http(Proxy::from_intercept(&proxy).connect(tcp).await?), true)
            }
            // HTTPS through a proxy: a CONNECT tunnel.
            (Some(proxy), true) => {
                let tunnel = Tunnel { proxy: Proxy::from_intercept(&proxy), tcp };
                (with_tls(tunnel, tls.config().map_err(config_error)?).call(target).await?, false)
            }
        };
        Ok(Stream { io, forwarded })
    }

    /// Returns the address of the proxy that reads requests to `target`, for messages.
    pub(super) fn forwarding_proxy(&self, target: &Uri) -> Option<Arc<str>> {
        let proxy = self.proxy(target).filter(|_| !is_encrypted(target))?;
        Some(Proxy::from_intercept(&proxy).name())
    }

    /// Returns the `Proxy-Authorization` header for requests to `target`. A tunnel needs none, because the proxy does
    /// not read its requests.
    pub(super) fn proxy_authorization(&self, target: &Uri) -> Option<HeaderValue> {
        let proxy = self.proxy(target).filter(|_| !is_encrypted(target))?;
        proxy.basic_auth().cloned().map(|mut auth| {
            auth.set_sensitive(true);
            auth
        })
    }
}

fn is_encrypted(target: &Uri) -> bool {
    target.scheme_str() == Some("https")
}

fn with_tls<C>(inner: C, config: ClientConfig) -> HttpsConnector<C> {
    HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .wrap_connector(inner)
}

fn tls_config(files: &TlsFiles) -> Result<ClientConfig, Observed> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let extra = match &files.ca_file {
        // A user who can change this file decides which servers are trusted.
        Some(path) => {
            open_checked(Path::new(path), "certificate file", files.strict_modes)?;
            read_certificates(path)?
        }
        None => Vec::new(),
    };
    let verifier = TrustedCertificates::new(extra, Arc::clone(&provider)).map_err(|error| bad_tls(&error))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad_tls(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    match (&files.client_cert, &files.client_key) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(cert), key) => {
            // A key may be in the same file as its certificate.
            let key_file = key.as_ref().unwrap_or(cert);
            let key = read_key(Path::new(key_file), files.strict_modes)?;
            builder.with_client_auth_cert(read_certificates(cert)?, key).map_err(|error| bad_tls(&error))
        }
        (None, Some(_)) => Err(Observed::BadConfig("`client_key` is set without `client_cert`".to_owned())),
    }
}

/// Opens a file, unless another user could have changed it.
fn open_checked(path: &Path, what: &str, strict: StrictModes) -> Result<File, Observed> {
    let unusable = |why: &dyn StdError| Observed::BadConfig(format!("{what} `{}`: {why}", path.display()));
    let file = File::open(path).map_err(|error| unusable(&error))?;
    let metadata = file.metadata().map_err(|error| unusable(&error))?;
    private_files::check_with(strict, path, &metadata)
        .map_err(|found| Observed::BadConfig(format!("{what} {found}; {}", found.remedy())))?;
    Ok(file)
}

/// Reads a private key, unless another user could have changed it.
fn read_key(path: &Path, strict: StrictModes) -> Result<PrivateKeyDer<'static>, Observed> {
    let unusable =
        |why: &dyn StdError| Observed::BadConfig(format!("client key `{}`: {why}", path.display()));
    let file = open_checked(path, "client key", strict)?;
    PrivateKeyDer::from_pem_reader(BufReader::new(file)).map_err(|error| unusable(&error))
}

fn read_certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, Observed> {
    let unreadable =
        |error: &dyn StdError| Observed::BadConfig(format!("certificate file `{path}`: {error}"));
    let certificates = CertificateDer::pem_file_iter(path)
        .map_err(|error| unreadable(&error))?
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(&error))?;
    if certificates.is_empty() {
        return Err(Observed::BadConfig(format!("certificate file `{path}` contains no certificate")));
    }
    Ok(certificates)
}

fn bad_tls(error: &dyn StdError) -> Observed {
    Observed::BadConfig(format!("TLS cannot be set up: {error}"))
}

/// Finds the step of connecting that failed, by type along the chain of causes.
pub(super) fn connect_failure(error: &(dyn StdError + 'static)) -> (ConnectStepFailed, String) {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    let mut innermost = error.to_string();
    while let Some(error) = cause {
        innermost = error.to_string();
        if let Some(ProxyError { .. }) = error.downcast_ref() {
            return (ConnectStepFailed::Other, innermost);
        }
        let system = error.downcast_ref::<DnsError>().map(|DnsError(error)| error);
        if let Some(text) = system.or_else(|| error.downcast_ref()).and_then(file_limit::exhausted) {
            return (ConnectStepFailed::OutOfResources, text.to_owned());
        }
        if let Some(DnsError(error)) = error.downcast_ref() {
            return (ConnectStepFailed::Dns, error.to_string());
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            if let Some(error) = find_tls_error(error) {
                return (ConnectStepFailed::Tls, describe_error(error));
            }
            match error.kind() {
                io::ErrorKind::ConnectionRefused => return (ConnectStepFailed::Refused, error.to_string()),
                io::ErrorKind::TimedOut => return (ConnectStepFailed::TimedOut, error.to_string()),
                _ => {}
            }
        }
        cause = error.source();
    }
    (ConnectStepFailed::Other, innermost)
}

/// Finds a TLS error. It is wrapped in one or two I/O errors, whose chain of causes leaves out what they wrap.
fn find_tls_error(error: &io::Error) -> Option<&rustls::Error> {
    let inner = error.get_ref()?;
    inner.downcast_ref().or_else(|| find_tls_error(inner.downcast_ref()?))
}

/// The system's resolver, with an error type of its own. With egress rules it omits the addresses that they forbid.
#[derive(Clone)]
pub(crate) struct Resolver {
    inner: GaiResolver,
    egress: Option<Arc<Egress>>,
}

#[cfg(test)]
impl Resolver {
    pub(super) fn unfiltered() -> Self {
        Self { inner: GaiResolver::new(), egress: None }
    }
}

#[derive(Debug)]
struct DnsError(io::Error);

impl std::fmt::Display for DnsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for DnsError {}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(|error| DnsError(error).into())
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let host = name.to_string();
        let (lookup, egress) = (self.inner.call(name), self.egress.clone());
        Box::pin(async move {
            let addresses = lookup.await.map_err(DnsError)?;
            let Some(egress) = egress else { return Ok(addresses.collect::<Vec<_>>().into_iter()) };
            let mut allowed = Vec::new();
            let mut denied = None;
            for address in addresses {
                match egress.check(&host, address.ip()) {
                    Ok(()) => allowed.push(address),
                    Err(error) => denied = Some(error),
                }
            }
            match denied {
                Some(error) if allowed.is_empty() => Err(error.into()),
                Some(_) | None => Ok(allowed.into_iter()),
            }
        })
    }
}

fn config_error(observed: Observed) -> BoxError {
    match observed {
        Observed::BadConfig(text) => text.into(),
        other => format!("{other:?}").into(),
    }
}

/// A connection, and whether requests on it must name the whole URL.
pub(crate) struct Stream {
    io: MaybeHttpsStream<TokioIo<TcpStream>>,
    forwarded: bool,
}

impl Stream {
    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self.io, MaybeHttpsStream::Https(_))
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.io.connected().proxy(self.forwarded)
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }
}

/// Marks all values as sensitive, so that debug output never shows them.
pub(super) fn mark_sensitive(headers: &mut HeaderMap) {
    headers.values_mut().for_each(|value: &mut HeaderValue| value.set_sensitive(true));
}

#[cfg(test)]
mod tests {
    use super::super::egress::EgressDenied;
    use super::*;
    use url::Url;

    #[cfg(unix)]
    #[test]
    fn b03_a_lack_of_file_descriptors_is_not_a_fault_of_the_server() {
        use rustix::io::Errno;
        let error = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        let lacks =
            |error: &(dyn StdError + 'static)| connect_failure(error).0 == ConnectStepFailed::OutOfResources;
        assert!(lacks(&error(Errno::MFILE)) && lacks(&error(Errno::NFILE)));
        assert!(lacks(&DnsError(error(Errno::MFILE))), "the resolver needs one, too");
        assert!(!lacks(&error(Errno::CONNREFUSED)) && !lacks(&DnsError(error(Errno::NOENT))));
    }

    /// A name does not show where it leads: the addresses that it resolves to are checked.
    #[tokio::test]
    async fn a_name_that_resolves_to_loopback_needs_a_loopback_server_in_the_config() {
        let resolve = async |named: &str| {
            let egress = Some(Arc::new(Egress::new(&Url::parse(named).unwrap(), [])));
            let mut resolver = Resolver { inner: GaiResolver::new(), egress };
            resolver.call("localhost".parse().unwrap()).await
        };
        let error = resolve("https://mcp.example/mcp").await.unwrap_err();
        assert!(EgressDenied::find_in(&*error).is_some(), "{error}");
        assert!(resolve("http://127.0.0.1:1/mcp").await.unwrap().all(|address| address.ip().is_loopback()));
    }
}

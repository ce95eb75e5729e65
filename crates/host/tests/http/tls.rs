//! TLS: whom to trust, what to show, and what is said when it does not work. The certificates are made on the
//! spot; the server is the sample server behind something that ends TLS.

use crate::script::join;
use crate::stage::{NAME, echo, host, legacy, ready_host, serve, spec, until, until_state, with_tls};
use gripfast::config::{Template, TlsSpec};
#[cfg(unix)]
use gripfast::private_files::StrictModes;
use gripfast::{NextAction, State};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

/// An authority, a certificate for the server and one for a client, as files.
pub(crate) struct Papers {
    files: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Papers {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let files = TempDir::new().unwrap();
        std::fs::write(files.path().join("ca.pem"), issuer.pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let client =
            CertificateParams::new(vec!["client".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        std::fs::write(files.path().join("client.pem"), client.pem()).unwrap();
        std::fs::write(files.path().join("client.key"), key.serialize_pem()).unwrap();
        Self { files, issuer }
    }

    pub(crate) fn file(&self, name: &str) -> Template {
        path(&self.files.path().join(name))
    }

    /// What a client needs to trust the server.
    pub(crate) fn trust(&self) -> TlsSpec {
        TlsSpec { ca_file: Some(self.file("ca.pem")), ..TlsSpec::default() }
    }

    /// What a client needs to be trusted as well.
    fn trust_and_show(&self) -> TlsSpec {
        TlsSpec {
            client_cert: Some(self.file("client.pem")),
            client_key: Some(self.file("client.key")),
            ..self.trust()
        }
    }

    /// Ends TLS in front of `addr`.
    pub(crate) async fn front(&self, addr: SocketAddr, clients: Clients) -> Front {
        let acceptor = self.acceptor(clients, &[]);
        let listener = TcpListener::bind(crate::stage::anywhere()).await.unwrap();
        let front = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        join(stream, addr).await;
                    }
                });
            }
        });
        Front { addr: front, accepting }
    }

    /// What ends TLS, for clients that may choose among these protocols.
    pub(crate) fn acceptor(&self, clients: Clients, protocols: &[&str]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let names = ["localhost", "127.0.0.1", "mcp.example.invalid"].map(str::to_owned);
        let certificate =
            CertificateParams::new(names.to_vec()).unwrap().signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            Clients::Anybody => builder.with_no_client_auth(),
            Clients::WithCertificate => {
                let mut roots = RootCertStore::empty();
                roots.add(self.issuer.der().clone()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Whom a TLS server lets in.
pub(crate) enum Clients {
    Anybody,
    WithCertificate,
}

/// Something that ends TLS.
pub(crate) struct Front {
    addr: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Front {
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/mcp", self.addr)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn path(path: &Path) -> Template {
    Template::parse(path.to_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_server_of_the_operators_own_authority_is_trusted_by_address_and_by_name() {
    let (server, papers) = (serve(legacy()).await, Papers::new());
    let front = papers.front(server.addr(), Clients::Anybody).await;
    let by_name = format!("https://localhost:{}/mcp", front.addr().port());
    for url in [front.url(), by_name] {
        let host = ready_host(with_tls(spec(&url), papers.trust())).await;
        assert_eq!(echo(&host, "secret").await.as_deref(), Ok("secret"), "{url}");
    }
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_refused_and_the_status_says_why() {
    let (server, papers) = (serve(legacy()).await, Papers::new());
    let front = papers.front(server.addr(), Clients::Anybody).await;
    let host = host(spec(&front.url()));
    let refused = until(&host, |status| status.supervision.cause.is_some()).await;
    let cause = refused.supervision.cause.unwrap();
    assert!(cause.starts_with("TLS failed: "), "{cause}");
    assert!(cause.contains("certificate"), "{cause}");
    assert_eq!(server.initializes(), 0);
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_gets_the_configured_one() {
    let (server, papers) = (serve(legacy()).await, Papers::new());
    let front = papers.front(server.addr(), Clients::WithCertificate).await;
    let host = ready_host(with_tls(spec(&front.url()), papers.trust_and_show())).await;
    assert_eq!(echo(&host, "me").await.as_deref(), Ok("me"));
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_and_gets_none_is_a_clear_cause() {
    let (server, papers) = (serve(legacy()).await, Papers::new());
    let front = papers.front(server.addr(), Clients::WithCertificate).await;
    let host = host(with_tls(spec(&front.url()), papers.trust()));
    let refused = until(&host, |status| status.supervision.cause.is_some()).await;
    let cause = refused.supervision.cause.unwrap();
    assert!(cause.starts_with("TLS failed: ") && cause.contains("CertificateRequired"), "{cause}");
}

#[tokio::test]
async fn b09_a_file_that_is_not_there_or_holds_nothing_is_a_config_error_with_its_path() {
    let papers = Papers::new();
    let empty = papers.files.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let no_key = TlsSpec { client_key: Some(papers.file("no.key")), ..papers.trust_and_show() };
    let no_cert = TlsSpec { client_cert: Some(papers.file("no.pem")), ..papers.trust_and_show() };
    let cases = [
        (TlsSpec { ca_file: Some(papers.file("missing.pem")), ..TlsSpec::default() }, "missing.pem"),
        (TlsSpec { ca_file: Some(path(&empty)), ..TlsSpec::default() }, "empty.pem"),
        (no_key, "no.key"),
        (no_cert, "no.pem"),
    ];
    for (files, name) in cases {
        let host = host(with_tls(spec("https://127.0.0.1:9/mcp"), files));
        let status = until_state(&host, State::ConfigError).await.supervision;
        let cause = status.cause.unwrap();
        assert!(cause.contains(papers.files.path().join(name).to_str().unwrap()), "{cause}");
        assert_eq!(status.next_action, Some(NextAction::Configure));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn g05_a_client_key_that_others_can_write_is_a_config_error_unless_modes_do_not_count() {
    use std::os::unix::fs::PermissionsExt;
    let (server, papers) = (serve(legacy()).await, Papers::new());
    let front = papers.front(server.addr(), Clients::WithCertificate).await;
    for file in ["client.key", "ca.pem"] {
        let path = papers.files.path().join(file);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o660)).unwrap();
        let refusing = host(with_tls(spec(&front.url()), papers.trust_and_show()));
        let cause = until_state(&refusing, State::ConfigError).await.supervision.cause.unwrap();
        let why = format!("{file}` is not safe to use: its group can write it (mode 0660)");
        assert!(cause.contains(&why) && cause.contains("chmod go-w"), "{cause}");
        let mode = if file == "ca.pem" { 0o660 } else { 0o600 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(server.initializes(), 0);
    let lax = TlsSpec { strict_modes: StrictModes::Off, ..papers.trust_and_show() };
    let host = ready_host(with_tls(spec(&front.url()), lax)).await;
    assert_eq!(echo(&host, "me").await.as_deref(), Ok("me"));
}

#[tokio::test]
async fn a_redirect_from_http_to_https_is_followed_with_the_operators_authority() {
    let (server, papers) = (serve(legacy()).await, Papers::new());
    let front = papers.front(server.addr(), Clients::Anybody).await;
    let target = front.url();
    let plain = crate::script::Script::new(move |_| crate::script::redirect(308, &target)).await;
    let host = ready_host(with_tls(spec(&plain.url()), papers.trust())).await;
    assert_eq!(echo(&host, "hi").await.as_deref(), Ok("hi"));
}

#[tokio::test]
async fn a_redirect_from_https_to_http_is_not_followed_and_the_status_says_so() {
    let (server, papers) = (serve(legacy()).await, Papers::new());
    let tap = crate::script::Script::in_front_of(server.addr()).await;
    let target = tap.url();
    let redirecting = crate::script::Script::new(move |_| crate::script::redirect(307, &target)).await;
    let front = papers.front(redirecting.addr(), Clients::Anybody).await;
    let host = host(with_tls(spec(&front.url()), papers.trust()));
    let cause = until_state(&host, State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains("redirects from https to http"), "{cause}");
    assert_eq!((server.initializes(), tap.heard().len()), (0, 0));
}

/// B09: plain http that is spoken to a port for https.
#[tokio::test]
async fn b09_a_port_that_speaks_tls_gets_a_hint_to_write_https() {
    let (server, papers) = (serve(legacy()).await, Papers::new());
    let front = papers.front(server.addr(), Clients::Anybody).await;
    let host = host(spec(&format!("http://{}/mcp", front.addr())));
    let mut events = host.events();
    loop {
        let cause = host.status_of(NAME).unwrap().supervision.cause;
        if let Some(cause) = cause {
            assert!(cause.contains("`url` begins with `https://`"), "{cause}");
            return;
        }
        let _ = tokio::time::timeout(std::time::Duration::from_millis(20), events.recv()).await;
    }
}

//! TLS: trust anchors, client certificates, and error messages. The certificates are generated; the server is the
//! sample server behind a TLS terminator.

use crate::http_host::{
    NAME, echo, host, legacy, ready_host, serve, spec, wait_for_state, wait_until, with_tls,
};
use crate::scripted_server::join;
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

/// A certificate authority, a server certificate and a client certificate, as files.
pub(crate) struct TestCertificates {
    files: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl TestCertificates {
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

    /// Settings to trust the server.
    pub(crate) fn trust(&self) -> TlsSpec {
        TlsSpec { ca_file: Some(self.file("ca.pem")), ..TlsSpec::default() }
    }

    /// Settings to trust the server and to present the client certificate.
    fn trust_with_client_certificate(&self) -> TlsSpec {
        TlsSpec {
            client_cert: Some(self.file("client.pem")),
            client_key: Some(self.file("client.key")),
            ..self.trust()
        }
    }

    /// Starts a TLS terminator in front of `addr`.
    pub(crate) async fn serve(&self, addr: SocketAddr, clients: Clients) -> TlsServer {
        let acceptor = self.acceptor(clients, &[]);
        let listener = TcpListener::bind(crate::http_host::any_local_port()).await.unwrap();
        let tls_server = listener.local_addr().unwrap();
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
        TlsServer { addr: tls_server, accepting }
    }

    /// TLS acceptor that offers these ALPN protocols.
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
            Clients::Any => builder.with_no_client_auth(),
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

/// Clients that a TLS server accepts.
pub(crate) enum Clients {
    Any,
    WithCertificate,
}

/// A TLS terminator.
pub(crate) struct TlsServer {
    addr: SocketAddr,
    accepting: JoinHandle<()>,
}

impl TlsServer {
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/mcp", self.addr)
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn path(path: &Path) -> Template {
    Template::parse(path.to_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_server_of_a_private_ca_is_trusted_by_address_and_by_name() {
    let (server, certificates) = (serve(legacy()).await, TestCertificates::new());
    let tls_server = certificates.serve(server.addr(), Clients::Any).await;
    let by_name = format!("https://localhost:{}/mcp", tls_server.addr().port());
    for url in [tls_server.url(), by_name] {
        let host = ready_host(with_tls(spec(&url), certificates.trust())).await;
        assert_eq!(echo(&host, "secret").await.as_deref(), Ok("secret"), "{url}");
    }
}

#[tokio::test]
async fn a_server_with_an_untrusted_certificate_is_refused_with_a_cause() {
    let (server, certificates) = (serve(legacy()).await, TestCertificates::new());
    let tls_server = certificates.serve(server.addr(), Clients::Any).await;
    let host = host(spec(&tls_server.url()));
    let refused = wait_until(&host, |status| status.supervision.cause.is_some()).await;
    let cause = refused.supervision.cause.unwrap();
    assert!(cause.starts_with("TLS failed: "), "{cause}");
    assert!(cause.contains("certificate"), "{cause}");
    assert_eq!(server.initializes(), 0);
}

#[tokio::test]
async fn a_server_that_requires_a_client_certificate_gets_it() {
    let (server, certificates) = (serve(legacy()).await, TestCertificates::new());
    let tls_server = certificates.serve(server.addr(), Clients::WithCertificate).await;
    let host =
        ready_host(with_tls(spec(&tls_server.url()), certificates.trust_with_client_certificate())).await;
    assert_eq!(echo(&host, "me").await.as_deref(), Ok("me"));
}

#[tokio::test]
async fn a_missing_client_certificate_is_a_clear_cause() {
    let (server, certificates) = (serve(legacy()).await, TestCertificates::new());
    let tls_server = certificates.serve(server.addr(), Clients::WithCertificate).await;
    let host = host(with_tls(spec(&tls_server.url()), certificates.trust()));
    let refused = wait_until(&host, |status| status.supervision.cause.is_some()).await;
    let cause = refused.supervision.cause.unwrap();
    assert!(cause.starts_with("TLS failed: ") && cause.contains("CertificateRequired"), "{cause}");
}

#[tokio::test]
async fn b09_a_missing_or_empty_tls_file_is_a_config_error_with_its_path() {
    let certificates = TestCertificates::new();
    let empty = certificates.files.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let no_key = TlsSpec {
        client_key: Some(certificates.file("no.key")),
        ..certificates.trust_with_client_certificate()
    };
    let no_cert = TlsSpec {
        client_cert: Some(certificates.file("no.pem")),
        ..certificates.trust_with_client_certificate()
    };
    let cases = [
        (TlsSpec { ca_file: Some(certificates.file("missing.pem")), ..TlsSpec::default() }, "missing.pem"),
        (TlsSpec { ca_file: Some(path(&empty)), ..TlsSpec::default() }, "empty.pem"),
        (no_key, "no.key"),
        (no_cert, "no.pem"),
    ];
    for (files, name) in cases {
        let host = host(with_tls(spec("https://127.0.0.1:9/mcp"), files));
        let status = wait_for_state(&host, State::ConfigError).await.supervision;
        let cause = status.cause.unwrap();
        assert!(cause.contains(certificates.files.path().join(name).to_str().unwrap()), "{cause}");
        assert_eq!(status.next_action, Some(NextAction::Configure));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn g05_tls_files_writable_by_others_are_a_config_error_with_strict_modes() {
    use std::os::unix::fs::PermissionsExt;
    let (server, certificates) = (serve(legacy()).await, TestCertificates::new());
    let tls_server = certificates.serve(server.addr(), Clients::WithCertificate).await;
    for file in ["client.key", "ca.pem"] {
        let path = certificates.files.path().join(file);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o660)).unwrap();
        let refusing = host(with_tls(spec(&tls_server.url()), certificates.trust_with_client_certificate()));
        let cause = wait_for_state(&refusing, State::ConfigError).await.supervision.cause.unwrap();
        let why = format!("{file}` is not safe to use: its group can write it (mode 0660)");
        assert!(cause.contains(&why) && cause.contains("chmod go-w"), "{cause}");
        let mode = if file == "ca.pem" { 0o660 } else { 0o600 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(server.initializes(), 0);
    let lax = TlsSpec { strict_modes: StrictModes::Off, ..certificates.trust_with_client_certificate() };
    let host = ready_host(with_tls(spec(&tls_server.url()), lax)).await;
    assert_eq!(echo(&host, "me").await.as_deref(), Ok("me"));
}

#[tokio::test]
async fn a_redirect_from_http_to_https_uses_the_private_ca() {
    let (server, certificates) = (serve(legacy()).await, TestCertificates::new());
    let tls_server = certificates.serve(server.addr(), Clients::Any).await;
    let target = tls_server.url();
    let plain =
        crate::scripted_server::ScriptedServer::new(move |_| crate::scripted_server::redirect(308, &target))
            .await;
    let host = ready_host(with_tls(spec(&plain.url()), certificates.trust())).await;
    assert_eq!(echo(&host, "hi").await.as_deref(), Ok("hi"));
}

#[tokio::test]
async fn a_redirect_from_https_to_http_is_not_followed_and_the_status_says_so() {
    let (server, certificates) = (serve(legacy()).await, TestCertificates::new());
    let tap = crate::scripted_server::ScriptedServer::in_front_of(server.addr()).await;
    let target = tap.url();
    let redirecting =
        crate::scripted_server::ScriptedServer::new(move |_| crate::scripted_server::redirect(307, &target))
            .await;
    let tls_server = certificates.serve(redirecting.addr(), Clients::Any).await;
    let host = host(with_tls(spec(&tls_server.url()), certificates.trust()));
    let cause = wait_for_state(&host, State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains("redirects from https to http"), "{cause}");
    assert_eq!((server.initializes(), tap.requests().len()), (0, 0));
}

/// B09: plain HTTP at a port that expects HTTPS.
#[tokio::test]
async fn b09_plain_http_to_a_tls_port_gets_a_hint_to_use_https() {
    let (server, certificates) = (serve(legacy()).await, TestCertificates::new());
    let tls_server = certificates.serve(server.addr(), Clients::Any).await;
    let host = host(spec(&format!("http://{}/mcp", tls_server.addr())));
    let mut events = host.subscribe_events();
    loop {
        let cause = host.server_status(NAME).unwrap().supervision.cause;
        if let Some(cause) = cause {
            assert!(cause.contains("`url` must begin with `https://`"), "{cause}");
            return;
        }
        let _ = tokio::time::timeout(std::time::Duration::from_millis(20), events.recv()).await;
    }
}

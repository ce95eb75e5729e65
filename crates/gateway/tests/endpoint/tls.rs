//! TLS listener: connections of a rustls client, certificate files that change while connections are open, plain HTTP
//! on the TLS port, and unfinished handshakes.

use crate::client::{HttpResponse, LEGACY, initialize, spoken};
use crate::test_gateway::{TestGateway, at, demo, pass};
use bytes::Bytes;
use gripfast::config::{AccessConfig, ListenerTls};
use gripfast_gateway::mcp::Limits;
use gripfast_gateway::server::{ListenError, Server, ServerSettings};
use gripfast_testkit::wait::{until_async, within};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Certificate authority, and one of its certificates with its key in files.
struct CertificateFiles {
    files: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// Certificate in the file.
    cert: CertificateDer<'static>,
}

impl CertificateFiles {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut certs =
            Self { files: TempDir::new().unwrap(), issuer, cert: CertificateDer::from_slice(&[]) };
        certs.renew();
        certs
    }

    /// Writes a new certificate and key.
    fn renew(&mut self) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.write("cert.pem", &certificate.pem());
        self.write("key.pem", &key.serialize_pem());
        self.cert = certificate.der().clone();
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.files.path().join(name), text).unwrap();
    }

    fn listener(&self) -> ListenerTls {
        ListenerTls { cert: self.files.path().join("cert.pem"), key: self.files.path().join("key.pem") }
    }

    /// Config with these files and a server's table.
    fn config(&self, server: &str) -> String {
        let ListenerTls { cert, key } = self.listener();
        format!("[gateway.tls]\ncert = {cert:?}\nkey = {key:?}\n\n{server}")
    }

    /// Connects with a TLS handshake that offers these protocols.
    async fn connect(
        &self,
        gateway: &TestGateway,
        protocols: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(&gateway.http.address).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        within("a handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await
    }

    /// Client on a new connection, and the certificate that the listener presented.
    async fn client(&self, gateway: &TestGateway) -> (Client, CertificateDer<'static>) {
        let stream = self.connect(gateway, &["h2", "http/1.1"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        (Client { sender, address: gateway.http.address.clone() }, shown)
    }

    /// Waits until new connections get the certificate of the file.
    async fn until_shown(&self, gateway: &TestGateway) {
        until_async("the new certificate", async || self.client(gateway).await.1 == self.cert).await;
    }
}

struct Client {
    sender: http1::SendRequest<Full<Bytes>>,
    address: String,
}

impl Client {
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> HttpResponse {
        let mut request = Request::builder().method(method).uri(path).header("host", &self.address);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body)).unwrap();
        let response = within("a response", self.sender.send_request(request)).await.unwrap();
        let (head, body) = response.into_parts();
        let text = within("a body", body.collect()).await.unwrap().to_bytes();
        let text = String::from_utf8(text.to_vec()).unwrap();
        HttpResponse { status: head.status.as_u16(), headers: head.headers, text }
    }

    async fn post(&mut self, headers: &[(&str, &str)], body: String) -> HttpResponse {
        let usual = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        self.send(Method::POST, "/mcp", &[&usual, headers].concat(), body).await
    }

    async fn status(&mut self) -> Value {
        self.send(Method::GET, "/api/v1/status", &[], String::new()).await.message()
    }
}

async fn encrypted() -> (gripfast_demo::RunningServer, CertificateFiles, TestGateway) {
    let (demo, certs) = (demo().await, CertificateFiles::new());
    let gateway = TestGateway::with(&certs.config(&at("demo", &demo.url(), "legacy", &[]))).await;
    (demo, certs, gateway)
}

#[tokio::test]
async fn g05_a_listener_with_a_certificate_serves_both_eras_over_https() {
    let (_demo, certs, gateway) = encrypted().await;
    let (mut client, shown) = certs.client(&gateway).await;
    assert_eq!(shown, certs.cert);
    let hello = client.post(&[], initialize(LEGACY).to_string()).await;
    assert_eq!(hello.status, 200, "{hello:?}");
    assert!(hello.headers.contains_key("mcp-session-id"));
    let (headers, message) = spoken(json!(1), "tools/list", json!({}));
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    let listed = client.post(&headers, message).await;
    assert!(
        listed.message()["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()),
        "{listed:?}"
    );
    assert_eq!(client.status().await["tls"]["error"], Value::Null);
    assert!(certs.connect(&gateway, &["h2"]).await.is_err(), "nothing else is spoken");
}

#[tokio::test]
async fn g05_browsers_are_told_to_keep_to_https_under_a_public_name() {
    let (demo, certs) = (demo().await, CertificateFiles::new());
    let config = certs.config(&at("demo", &demo.url(), "legacy", &[]));
    let gateway =
        TestGateway::with(&format!("[gateway]\npublic_url = \"https://mcp.example\"\n{config}")).await;
    let (mut client, _) = certs.client(&gateway).await;
    for (host, told) in [("mcp.example", true), ("localhost", false), (&*gateway.http.address, false)] {
        client.address = host.to_owned();
        for path in ["/", "/api/v1/status", "/mcp"] {
            let answer = client.send(Method::GET, path, &[], String::new()).await;
            let policy =
                answer.headers.get("strict-transport-security").and_then(|value| value.to_str().ok());
            assert_eq!(policy, told.then_some("max-age=31536000"), "{path} of {host}");
        }
    }
}

#[tokio::test]
async fn g05_a_client_that_trusts_another_authority_does_not_connect() {
    let (_demo, _papers, gateway) = encrypted().await;
    let refused = CertificateFiles::new().connect(&gateway, &["http/1.1"]).await.unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
}

#[tokio::test]
async fn a_new_certificate_is_used_for_new_connections_and_open_ones_go_on() {
    let (_demo, mut certs, gateway) = encrypted().await;
    let (mut before, shown) = certs.client(&gateway).await;
    certs.renew();
    assert_ne!(shown, certs.cert);
    certs.until_shown(&gateway).await;
    assert_eq!(before.status().await["tls"]["error"], Value::Null);
}

#[tokio::test]
async fn unusable_files_are_refused_and_the_current_certificate_stays() {
    let (_demo, mut certs, gateway) = encrypted().await;
    let (mut client, first) = certs.client(&gateway).await;
    // A key that is not of this certificate, as if only one of the two files had been replaced yet.
    certs.write("key.pem", &KeyPair::generate().unwrap().serialize_pem());
    let until_refused = async |client: &mut Client, why: &str| {
        let refused =
            async || client.status().await["tls"]["error"].as_str().is_some_and(|error| error.contains(why));
        until_async(why, refused).await;
    };
    until_refused(&mut client, "does not match the certificate").await;
    certs.write("cert.pem", "-----BEGIN CERTIFICATE-----\n");
    until_refused(&mut client, "cert.pem` is not a PEM certificate").await;
    std::fs::remove_file(certs.listener().key).unwrap();
    until_refused(&mut client, "cannot read").await;
    assert_eq!(certs.client(&gateway).await.1, first, "it is still shown");
    certs.renew();
    certs.until_shown(&gateway).await;
    assert_eq!(client.status().await["tls"]["error"], Value::Null);
}

#[tokio::test]
async fn plain_http_on_an_https_port_is_answered_with_the_reason() {
    let (_demo, _papers, gateway) = encrypted().await;
    let told = gateway.http.post(&[], initialize(LEGACY).to_string()).await;
    assert_eq!(told.status, 400);
    assert!(told.text.contains("uses TLS"), "{told:?}");
}

#[tokio::test]
async fn g05_an_unfinished_handshake_ends_and_does_not_affect_others() {
    let (_demo, certs, gateway) = encrypted().await;
    let mut silent = TcpStream::connect(&gateway.http.address).await.unwrap();
    let mut slow = TcpStream::connect(&gateway.http.address).await.unwrap();
    // The beginning of a record whose rest never comes.
    slow.write_all(&[0x16, 3, 1, 2, 0, 1]).await.unwrap();
    let (mut client, _) = certs.client(&gateway).await;
    while client.status().await["clients"]["connections"] != 3 {
        tokio::task::yield_now().await;
    }
    pass(Duration::from_secs(11)).await;
    for stream in [&mut silent, &mut slow] {
        let mut rest = Vec::new();
        // It is closed or reset, depending on unread bytes.
        let _ = within("the end of the connection", stream.read_to_end(&mut rest)).await;
    }
    assert_eq!(client.status().await["upstreams"][0]["name"], "demo", "others are served");
}

#[tokio::test]
async fn g05_a_certificate_does_not_replace_auth() {
    let (_demo, certs, gateway) = encrypted().await;
    let access = AccessConfig { tls: Some(certs.listener()), ..AccessConfig::default() };
    let mut settings = ServerSettings {
        listen: ([0, 0, 0, 0], 0).into(),
        state_dir: Some(gateway.state_dir().to_owned()),
        limits: Limits::default(),
        access,
        cluster: None,
    };
    let refused = Server::bind(gateway.host.clone(), &settings).await.err();
    assert!(matches!(refused, Some(ListenError::NotLoopback(_))), "{refused:?}");
    settings.access.keys = true;
    assert!(Server::bind(gateway.host.clone(), &settings).await.is_ok());
    certs.write("cert.pem", "");
    let refused = Server::bind(gateway.host.clone(), &settings).await.err();
    assert!(matches!(refused, Some(ListenError::Tls(_))), "{refused:?}");
}

#[tokio::test]
async fn g05_handshakes_that_do_not_end_do_not_keep_others_out() {
    let (certs, demo) = (CertificateFiles::new(), demo().await);
    let limits = "[gateway.limits]\nconnections = 64\nconnections_per_client = 64\n\n";
    let gateway =
        TestGateway::with(&format!("{limits}{}", certs.config(&at("demo", &demo.url(), "legacy", &[]))))
            .await;
    let mut crowd = Vec::new();
    for first in [&[][..], &[0x16, 3, 1]].into_iter().cycle().take(100) {
        let mut stream = TcpStream::connect(&gateway.http.address).await.unwrap();
        stream.write_all(first).await.unwrap();
        crowd.push(stream);
    }
    let served = async {
        let (mut client, _) = certs.client(&gateway).await;
        client.send(Method::GET, "/healthz", &[], String::new()).await.status
    };
    let served = tokio::time::timeout(Duration::from_secs(1), served).await;
    assert_eq!(served.expect("an answer in time"), 200);
    drop(crowd);
}

//! A store over TLS (`rediss://`), whose certificate authority is in `SSL_CERT_FILE`.

use super::service::Service;
use super::through;
use crate::client::LegacyClient;
use gripfast_testkit::peers::free_port;
use gripfast_testkit::store_server::{RunningStore, StoreServer};
use gripfast_testkit::wait::until_async;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Writes the certificate of a new authority, and a certificate of it for `localhost` with its key.
fn certificates(dir: &Path) -> [PathBuf; 3] {
    let files = ["ca.pem", "cert.pem", "key.pem"].map(|name| dir.join(name));
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let cert = params.signed_by(&key, &issuer).unwrap();
    for (file, content) in files.iter().zip([issuer.pem(), cert.pem(), key.serialize_pem()]) {
        std::fs::write(file, content).unwrap();
    }
    files
}

#[tokio::test]
async fn a_service_uses_a_store_over_tls_and_refuses_one_of_an_unknown_authority() {
    if !StoreServer::Redis.require() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [ca, cert, key] = certificates(dir.path());
    let port = free_port().to_string();
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let options =
        ["--tls-port", &port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no"];
    let mut service = Service::on(RunningStore::start_with(StoreServer::Redis, &options));
    let url = format!("rediss://localhost:{port}/0");
    service.start_through(url, &["stranger"], "");
    until_async("the authority is not known", async || {
        let cause = service.at("stranger").status().await["cluster"]["cause"].to_string();
        cause.contains("UnknownIssuer")
    })
    .await;
    service.kill("stranger");
    service.ca_file = Some(ca);
    service.start_replicas(&["a", "b"], "");
    service.until_complete().await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    assert_eq!(through(&client, &service.at("b").http).call_tool("demo__counter", json!({})).await, "1");
    let clients = service.store.command("CLIENT LIST");
    let plain = format!("laddr=127.0.0.1:{}", service.store.port());
    assert_eq!(clients.matches(&plain).count(), 1, "only this test connects without TLS: {clients}");
    service.kill("a");
    let at_b = through(&client, &service.at("b").http);
    assert_eq!(at_b.call_tool("demo__counter", json!({})).await, "1", "the session is taken over");
}

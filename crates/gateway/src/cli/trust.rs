//! TLS trust for connections to a gateway: the system's certificate authorities, and certificates that the user or the
//! gateway's own config names.

use super::address::GatewayUrl;
use super::error::FailureReport;
use super::exit::Exit;
use gripfast::tls::TrustedCertificates;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Environment variable with a PEM file of certificates to trust, of authorities or of gateways.
pub(super) const CA_VARIABLE: &str = "GRIPFAST_CA";

/// The connector for the gateway at `url`, on top of `tcp`.
pub(super) fn connector(
    url: &GatewayUrl,
    mut tcp: HttpConnector,
) -> Result<HttpsConnector<HttpConnector>, FailureReport> {
    let cannot = |why: String| {
        FailureReport::new(Exit::General, format!("cannot connect to the gateway at {url}: {why}"))
    };
    tcp.enforce_http(false);
    let builder = HttpsConnectorBuilder::new().with_tls_config(config(url).map_err(cannot)?);
    Ok(builder.https_or_http().enable_http1().wrap_connector(tcp))
}

fn config(url: &GatewayUrl) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    if !url.is_encrypted() {
        // Without TLS the system's authorities are not needed, and reading them takes a while.
        return Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    }
    let mut named = Vec::new();
    if let Some(own) = url.own_certificate() {
        // If it cannot be read, the system's authorities may be enough.
        named.extend(certificates(&own.cert).unwrap_or_default());
    }
    if let Some(path) = std::env::var_os(CA_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from) {
        named.extend(certificates(&path).map_err(|why| format!("${CA_VARIABLE}: {why}"))?);
    }
    let believed =
        TrustedCertificates::new(named, provider).map_err(|error| error.to_string())?.for_any_name();
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(believed)).with_no_client_auth())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = |error: &dyn Error| format!("`{}`: {error}", path.display());
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))?.collect();
    match certificates.map_err(|error| unreadable(&error))? {
        none if none.is_empty() => Err(format!("`{}` contains no PEM certificate", path.display())),
        some => Ok(some),
    }
}

/// The TLS error among the causes of a failed connection, if there is one.
pub(super) fn tls_error<'e>(
    mut causes: impl Iterator<Item = &'e (dyn Error + 'static)>,
) -> Option<rustls::Error> {
    causes.find_map(|cause| {
        cause
            .downcast_ref::<rustls::Error>()
            .cloned()
            .or_else(|| wrapped_tls_error(cause.downcast_ref::<io::Error>()?))
    })
}

/// The TLS error inside an I/O error, which `source()` does not return.
fn wrapped_tls_error(error: &io::Error) -> Option<rustls::Error> {
    let inner = error.get_ref()?;
    inner
        .downcast_ref::<rustls::Error>()
        .cloned()
        .or_else(|| wrapped_tls_error(inner.downcast_ref::<io::Error>()?))
}

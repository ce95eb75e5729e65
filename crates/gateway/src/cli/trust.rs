//! Who is believed to be the gateway: whoever the system's authorities vouch for, or one that the user names; and
//! whoever has the key of a certificate that the user, or the gateway's own config, names.

use super::address::GatewayUrl;
use super::exit::Exit;
use super::stop::Failure;
use gripfast::tls::Believed;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names a file with certificates to believe, of authorities or of gateways, in PEM form.
pub(super) const VARIABLE: &str = "GRIPFAST_CA";

/// Connections to the gateway at `url`, by `tcp`.
pub(super) fn connector(
    url: &GatewayUrl,
    mut tcp: HttpConnector,
) -> Result<HttpsConnector<HttpConnector>, Failure> {
    let cannot = |why: String| Failure::new(Exit::General, format!("cannot ask the gateway at {url}: {why}"));
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
        // Reading the system's authorities takes a while, and nobody is going to ask them.
        return Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    }
    let mut named = Vec::new();
    if let Some(own) = url.own_certificate() {
        // Where it cannot be read, the system's authorities may do.
        named.extend(certificates(&own.cert).unwrap_or_default());
    }
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from) {
        named.extend(certificates(&path).map_err(|why| format!("${VARIABLE}: {why}"))?);
    }
    let believed = Believed::with(named, provider).map_err(|error| error.to_string())?.always();
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(believed)).with_no_client_auth())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = |error: &dyn Error| format!("`{}`: {error}", path.display());
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))?.collect();
    match certificates.map_err(|error| unreadable(&error))? {
        none if none.is_empty() => Err(format!("`{}` holds no certificate in PEM form", path.display())),
        some => Ok(some),
    }
}

/// What TLS had against a connection, if it was TLS.
pub(super) fn objection<'e>(
    mut causes: impl Iterator<Item = &'e (dyn Error + 'static)>,
) -> Option<rustls::Error> {
    causes.find_map(|cause| {
        cause.downcast_ref::<rustls::Error>().cloned().or_else(|| inside(cause.downcast_ref::<io::Error>()?))
    })
}

/// I/O errors leave what they wrap out of the chain of causes.
fn inside(error: &io::Error) -> Option<rustls::Error> {
    let inner = error.get_ref()?;
    inner.downcast_ref::<rustls::Error>().cloned().or_else(|| inside(inner.downcast_ref::<io::Error>()?))
}

//! Certificate and key of the listener, from two files that are checked periodically. Changed files apply to new
//! connections; files that cannot be used are refused, and the current certificate stays.

use crate::reload::{FileChecks, Reloader};
use gripfast::config::ListenerTls;
use gripfast::private_files::{self, StrictModes, UnsafeFile};
use gripfast::sync::{Mutex, RwLock};
use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// TLS of the listener.
pub(crate) struct Tls {
    files: ListenerTls,
    strict_modes: StrictModes,
    /// Content of the files at startup.
    initial: PemFiles,
    acceptor: TlsAcceptor,
    served: Arc<ServedCertificate>,
    refused: Mutex<Option<String>>,
}

/// Reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateProblem {
    /// One of the files cannot be read.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// Another user could have changed the key.
    #[error("the key {0}")]
    Unsafe(UnsafeFile),
    /// The certificate file does not contain a valid certificate.
    #[error("`{}` is not a PEM certificate: {why}", path.display())]
    NoCertificate {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        why: String,
    },
    /// The key file does not contain a private key. The cause is left out, because it could quote a secret.
    #[error("`{}` is not a PEM private key", path.display())]
    NoKey {
        /// Path of the file.
        path: PathBuf,
    },
    /// Certificate and key do not belong together.
    #[error("the key in `{}` does not match the certificate in `{}`", key.display(), cert.display())]
    DoNotMatch {
        /// Path of the certificate.
        cert: PathBuf,
        /// Path of the key.
        key: PathBuf,
    },
}

/// Checks if the listener can use these files; returns a warning about them, if there is one.
///
/// # Errors
/// See [`CertificateProblem`].
pub fn check(files: &ListenerTls, strict_modes: StrictModes) -> Result<Option<String>, CertificateProblem> {
    let texts = PemFiles::read(files, strict_modes)?;
    texts.certified(files, &rustls::crypto::ring::default_provider())?;
    Ok(texts.warning)
}

impl Tls {
    /// Loads the current content of the files.
    pub(crate) fn load(files: &ListenerTls, strict_modes: StrictModes) -> Result<Self, CertificateProblem> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let initial = PemFiles::read(files, strict_modes)?;
        initial.warn();
        let served = Arc::new(ServedCertificate(RwLock::new(initial.certified(files, &provider)?)));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .expect("the provider has ciphers for the usual versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&served) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { files: files.clone(), strict_modes, initial, acceptor, served, refused: Mutex::default() })
    }

    /// Path of the certificate.
    pub(crate) fn cert(&self) -> &Path {
        &self.files.cert
    }

    /// Reason why the current content of the files is not in use.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.lock().clone()
    }

    /// Performs the TLS handshake, without a timeout.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        self.acceptor.accept(stream).await
    }

    /// Checks the files while it is polled, and applies their content when it has changed. Two files cannot be replaced
    /// at once, so a pair that does not match may be followed by one that does.
    pub(crate) async fn watch(&self) {
        let mut looks = FileChecks::new(Ok(self.initial.clone()));
        let mut tick = tokio::time::interval(Reloader::CHECK_INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let now = self.read_files().await;
            if looks.has_settled(now.clone()) {
                self.apply(now);
            }
        }
    }

    async fn read_files(&self) -> FilesRead {
        let (files, strict_modes) = (self.files.clone(), self.strict_modes);
        let read = move || PemFiles::read(&files, strict_modes).map_err(|error| describe(&error));
        tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    fn apply(&self, files: FilesRead) {
        let provider = self.acceptor.config().crypto_provider();
        let taken = files
            .and_then(|texts| {
                texts.warn();
                texts.certified(&self.files, provider).map_err(|error| describe(&error))
            })
            .map(|certified| *self.served.0.write() = certified);
        let cert = self.files.cert.display();
        match &taken {
            Ok(()) => tracing::info!(%cert, "new TLS certificate in use"),
            Err(error) => {
                tracing::warn!(%cert, %error, "new TLS certificate refused; the current one stays in use");
            }
        }
        *self.refused.lock() = taken.err();
    }
}

/// Certificate for new connections.
#[derive(Debug)]
struct ServedCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

/// Content of both files, or the error.
type FilesRead = Result<PemFiles, String>;

#[derive(Clone, PartialEq, Eq)]
struct PemFiles {
    cert: Vec<u8>,
    key: Vec<u8>,
    /// Warning about the permissions of the key.
    warning: Option<String>,
}

impl PemFiles {
    /// Maximum file size, many times that of a certificate chain.
    const MAX_SIZE: u64 = 1 << 20;

    fn read(files: &ListenerTls, strict_modes: StrictModes) -> Result<Self, CertificateProblem> {
        let (cert, _) = Self::text(&files.cert)?;
        let (key, metadata) = Self::text(&files.key)?;
        let warning = match (private_files::check(&files.key, &metadata), strict_modes) {
            (Err(found), StrictModes::On) => return Err(CertificateProblem::Unsafe(found)),
            (Err(found), StrictModes::Off) => Some(format!("the key {found}; {}", found.remedy())),
            (Ok(()), _) if private_files::is_world_readable(&metadata) => {
                let key = files.key.display();
                Some(format!("every user of this machine can read the key `{key}`; `chmod 600 {key}`"))
            }
            (Ok(()), _) => None,
        };
        Ok(Self { cert, key, warning })
    }

    /// Content and metadata of the same open file.
    fn text(path: &Path) -> Result<(Vec<u8>, Metadata), CertificateProblem> {
        let read = || {
            let mut text = Vec::new();
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            file.take(Self::MAX_SIZE).read_to_end(&mut text)?;
            io::Result::Ok((text, metadata))
        };
        read().map_err(|source| CertificateProblem::Unreadable { path: path.to_owned(), source })
    }

    fn warn(&self) {
        if let Some(warning) = &self.warning {
            tracing::warn!("{warning}");
        }
    }

    fn certified(
        &self,
        files: &ListenerTls,
        provider: &CryptoProvider,
    ) -> Result<Arc<CertifiedKey>, CertificateProblem> {
        let no_certificate =
            |why: String| CertificateProblem::NoCertificate { path: files.cert.clone(), why };
        let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&self.cert).collect();
        let chain = chain.map_err(|error| no_certificate(error.to_string()))?;
        if chain.is_empty() {
            return Err(no_certificate("the file contains no certificate".to_owned()));
        }
        let no_key = || CertificateProblem::NoKey { path: files.key.clone() };
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| no_key())?;
        let key = provider.key_provider.load_private_key(key).map_err(|_| no_key())?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) => Ok(Arc::new(certified)),
            Err(rustls::Error::InvalidCertificate(error)) => Err(no_certificate(format!("{error:?}"))),
            Err(_) => {
                Err(CertificateProblem::DoNotMatch { cert: files.cert.clone(), key: files.key.clone() })
            }
        }
    }
}

fn describe(error: &CertificateProblem) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Value of `Strict-Transport-Security` for a request over TLS: browsers then use https for this host for a year.
/// `None` for IP addresses, which RFC 6797 excludes, and for `localhost`, which other programs serve too.
pub(crate) fn strict_transport(headers: &HeaderMap) -> Option<HeaderValue> {
    let authority: Authority = headers.get(HOST)?.to_str().ok()?.parse().ok()?;
    let host = authority.host().to_ascii_lowercase();
    let is_local = host == "localhost" || host.ends_with(".localhost");
    let is_address = host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok();
    (!is_local && !is_address).then(|| HeaderValue::from_static("max-age=31536000"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    /// Self-signed certificate and its key, in PEM form.
    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn certificate_errors_name_the_file_and_never_quote_the_key() {
        let directory = tempfile::tempdir().unwrap();
        let files =
            ListenerTls { cert: directory.path().join("cert.pem"), key: directory.path().join("key.pem") };
        let ((cert, key), (_, another)) = (pair(), pair());
        let damaged = cert.replacen("MII", "!!!", 1);
        let hollow = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let cases = [
            (Some(&*cert), Some(&*key), None),
            (None, Some(&*key), Some("cannot read `CERT`")),
            (Some(&*cert), None, Some("cannot read `KEY`")),
            (
                Some(""),
                Some(&*key),
                Some("`CERT` is not a PEM certificate: the file contains no certificate"),
            ),
            (Some(&*key), Some(&*key), Some("`CERT` is not a PEM certificate")),
            (Some(&*damaged), Some(&*key), Some("`CERT` is not a PEM certificate")),
            (Some(hollow), Some(&*key), Some("`CERT` is not a PEM certificate")),
            (Some(&*cert), Some(&*cert), Some("`KEY` is not a PEM private key")),
            (Some(&*cert), Some("hunter22"), Some("`KEY` is not a PEM private key")),
            (
                Some(&*cert),
                Some(&*another),
                Some("the key in `KEY` does not match the certificate in `CERT`"),
            ),
        ];
        for (cert, key, expected) in cases {
            for (path, text) in [(&files.cert, cert), (&files.key, key)] {
                match text {
                    Some(text) => std::fs::write(path, text).unwrap(),
                    None => std::fs::remove_file(path).unwrap(),
                }
            }
            private(&files.key);
            let checked = check(&files, StrictModes::On).map_err(|error| describe(&error));
            let Some(expected) = expected else {
                assert_eq!(checked, Ok(None));
                continue;
            };
            let expected = expected.replace("CERT`", &format!("{}`", files.cert.display()));
            let expected = expected.replace("KEY`", &format!("{}`", files.key.display()));
            let checked = checked.unwrap_err();
            assert!(checked.starts_with(&expected), "{checked}\n{expected}");
            assert!(!checked.contains("hunter22"), "{checked}");
        }
    }

    fn private(path: &Path) {
        set_mode(path, 0o600);
    }

    fn set_mode(path: &Path, mode: u32) {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The file may not exist.
            let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
        }
        #[cfg(not(unix))]
        let _ = (path, mode);
    }

    #[cfg(unix)]
    #[test]
    fn g05_a_writable_key_is_refused_and_a_world_readable_one_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let files =
            ListenerTls { cert: directory.path().join("cert.pem"), key: directory.path().join("key.pem") };
        let (cert, key) = pair();
        std::fs::write(&files.cert, cert).unwrap();
        std::fs::write(&files.key, key).unwrap();
        // Permissions of the certificate do not matter: it is public, and has to match the key.
        set_mode(&files.cert, 0o666);
        let checked = |mode: u32, strict| {
            set_mode(&files.key, mode);
            check(&files, strict).map_err(|error| describe(&error))
        };
        for fine in [0o600, 0o400, 0o640] {
            assert_eq!(checked(fine, StrictModes::On), Ok(None), "{fine:o}");
        }
        let warning = checked(0o644, StrictModes::On).unwrap().unwrap();
        assert!(warning.contains("can read the key") && warning.contains("`chmod 600 "), "{warning}");
        for loose in [0o660, 0o602] {
            let refused = checked(loose, StrictModes::On).unwrap_err();
            assert!(refused.contains("key.pem` is not safe to use"), "{refused}");
            let accepted = checked(loose, StrictModes::Off).unwrap().unwrap();
            assert!(accepted.contains("chmod go-w"), "{accepted}");
        }
    }
}

//! What the listener proves itself with: a certificate and its key, from two files that are looked at now and then.
//! Changed files are taken for new connections; files that cannot be used are refused, and what is in use stays.

use crate::reload::{Looks, Reloader};
use gripfast::config::ListenerTls;
use gripfast::private_files::{self, StrictModes, UnsafeFile};
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
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The listener's side of TLS.
pub(crate) struct Tls {
    files: ListenerTls,
    strict_modes: StrictModes,
    /// What the files held at first.
    begun_with: Texts,
    acceptor: TlsAcceptor,
    shown: Arc<Shown>,
    refused: Mutex<Option<String>>,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadCertificate {
    /// One of the files cannot be read.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another user could have changed the key.
    #[error("the key {0}")]
    Unsafe(UnsafeFile),
    /// The file of the certificate holds something else.
    #[error("`{}` is no certificate in PEM form: {why}", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file of the key holds something else. What exactly is not repeated: it may be a secret.
    #[error("`{}` is no private key in PEM form", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// Each is fine, together they are not.
    #[error("the key in `{}` is not that of the certificate in `{}`", key.display(), cert.display())]
    DoNotMatch {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
}

/// Whether the listener could prove itself with these files, and what is worth knowing about them nevertheless.
///
/// # Errors
/// See [`BadCertificate`].
pub fn check(files: &ListenerTls, strict_modes: StrictModes) -> Result<Option<String>, BadCertificate> {
    let texts = Texts::read(files, strict_modes)?;
    texts.certified(files, &rustls::crypto::ring::default_provider())?;
    Ok(texts.warning)
}

impl Tls {
    /// With what the files hold now.
    pub(crate) fn of(files: &ListenerTls, strict_modes: StrictModes) -> Result<Self, BadCertificate> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let begun_with = Texts::read(files, strict_modes)?;
        begun_with.warn();
        let shown = Arc::new(Shown(RwLock::new(begun_with.certified(files, &provider)?)));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .expect("the provider has ciphers for the usual versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self {
            files: files.clone(),
            strict_modes,
            begun_with,
            acceptor,
            shown,
            refused: Mutex::default(),
        })
    }

    /// The file of the certificate.
    pub(crate) fn cert(&self) -> &Path {
        &self.files.cert
    }

    /// Why what is in the files at present is not what is in use.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shakes hands with a client. However long that takes.
    pub(crate) async fn shake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        self.acceptor.accept(stream).await
    }

    /// Looks at the files for as long as it is polled, and takes what they hold when that has changed. Two files
    /// cannot be replaced at once, so a pair that does not match may be followed by one that does.
    pub(crate) async fn watch(&self) {
        let mut looks = Looks::beginning_with(Ok(self.begun_with.clone()));
        let mut tick = tokio::time::interval(Reloader::LOOKS_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let now = self.look().await;
            if looks.has_settled(now.clone()) {
                self.take(now);
            }
        }
    }

    async fn look(&self) -> Look {
        let (files, strict_modes) = (self.files.clone(), self.strict_modes);
        let read = move || Texts::read(&files, strict_modes).map_err(|error| told(&error));
        tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    fn take(&self, look: Look) {
        let provider = self.acceptor.config().crypto_provider();
        let taken = look
            .and_then(|texts| {
                texts.warn();
                texts.certified(&self.files, provider).map_err(|error| told(&error))
            })
            .map(|certified| *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = certified);
        let cert = self.files.cert.display();
        match &taken {
            Ok(()) => tracing::info!(%cert, "the listener has a new certificate"),
            Err(error) => {
                tracing::warn!(%cert, %error, "the new certificate was refused; the one in use stays");
            }
        }
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = taken.err();
    }
}

/// What is shown to whoever connects next.
#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// What the two files hold, or why that cannot be known.
type Look = Result<Texts, String>;

#[derive(Clone, PartialEq, Eq)]
struct Texts {
    cert: Vec<u8>,
    key: Vec<u8>,
    /// What is worth knowing about who can read the key, or could have changed it.
    warning: Option<String>,
}

impl Texts {
    /// A certificate with everything that vouches for it fits many times.
    const LARGEST: u64 = 1 << 20;

    fn read(files: &ListenerTls, strict_modes: StrictModes) -> Result<Self, BadCertificate> {
        let (cert, _) = Self::text(&files.cert)?;
        let (key, metadata) = Self::text(&files.key)?;
        let warning = match (private_files::judge(&files.key, &metadata), strict_modes) {
            (Err(found), StrictModes::On) => return Err(BadCertificate::Unsafe(found)),
            (Err(found), StrictModes::Off) => Some(format!("the key {found}; {}", found.remedy())),
            (Ok(()), _) if private_files::everybody_reads(&metadata) => {
                let key = files.key.display();
                Some(format!("every user of this machine can read the key `{key}`; `chmod 600 {key}`"))
            }
            (Ok(()), _) => None,
        };
        Ok(Self { cert, key, warning })
    }

    /// What a file holds, and what the file system says of that very file.
    fn text(path: &Path) -> Result<(Vec<u8>, Metadata), BadCertificate> {
        let read = || {
            let mut text = Vec::new();
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            file.take(Self::LARGEST).read_to_end(&mut text)?;
            io::Result::Ok((text, metadata))
        };
        read().map_err(|source| BadCertificate::Unreadable { path: path.to_owned(), source })
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
    ) -> Result<Arc<CertifiedKey>, BadCertificate> {
        let no_certificate = |why: String| BadCertificate::NoCertificate { path: files.cert.clone(), why };
        let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&self.cert).collect();
        let chain = chain.map_err(|error| no_certificate(error.to_string()))?;
        if chain.is_empty() {
            return Err(no_certificate("there is none in it".to_owned()));
        }
        let no_key = || BadCertificate::NoKey { path: files.key.clone() };
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| no_key())?;
        let key = provider.key_provider.load_private_key(key).map_err(|_| no_key())?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) => Ok(Arc::new(certified)),
            Err(rustls::Error::InvalidCertificate(error)) => Err(no_certificate(format!("{error:?}"))),
            Err(_) => Err(BadCertificate::DoNotMatch { cert: files.cert.clone(), key: files.key.clone() }),
        }
    }
}

fn told(error: &BadCertificate) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// The value of `Strict-Transport-Security` for a request over TLS: browsers then use https for this host for a year. None
/// for IP addresses, for which RFC 6797 knows no such policy, and for `localhost`, which other programs serve too.
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

    /// A certificate of its own, and its key, in PEM form.
    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn whatever_is_wrong_with_a_certificate_names_the_file_and_repeats_no_key() {
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
            (Some(""), Some(&*key), Some("`CERT` is no certificate in PEM form: there is none in it")),
            (Some(&*key), Some(&*key), Some("`CERT` is no certificate in PEM form")),
            (Some(&*damaged), Some(&*key), Some("`CERT` is no certificate in PEM form")),
            (Some(hollow), Some(&*key), Some("`CERT` is no certificate in PEM form")),
            (Some(&*cert), Some(&*cert), Some("`KEY` is no private key in PEM form")),
            (Some(&*cert), Some("hunter22"), Some("`KEY` is no private key in PEM form")),
            (
                Some(&*cert),
                Some(&*another),
                Some("the key in `KEY` is not that of the certificate in `CERT`"),
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
            let told = check(&files, StrictModes::On).map_err(|error| told(&error));
            let Some(expected) = expected else {
                assert_eq!(told, Ok(None));
                continue;
            };
            let expected = expected.replace("CERT`", &format!("{}`", files.cert.display()));
            let expected = expected.replace("KEY`", &format!("{}`", files.key.display()));
            let told = told.unwrap_err();
            assert!(told.starts_with(&expected), "{told}\n{expected}");
            assert!(!told.contains("hunter22"), "{told}");
        }
    }

    fn private(path: &Path) {
        set_mode(path, 0o600);
    }

    fn set_mode(path: &Path, mode: u32) {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // It may have been removed.
            let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
        }
        #[cfg(not(unix))]
        let _ = (path, mode);
    }

    #[cfg(unix)]
    #[test]
    fn g05_a_key_that_others_can_write_is_refused_and_one_that_everybody_can_read_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let files =
            ListenerTls { cert: directory.path().join("cert.pem"), key: directory.path().join("key.pem") };
        let (cert, key) = pair();
        std::fs::write(&files.cert, cert).unwrap();
        std::fs::write(&files.key, key).unwrap();
        // What others do to the certificate does not matter: it is shown to everybody, and has to match the key.
        set_mode(&files.cert, 0o666);
        let checked = |mode: u32, strict| {
            set_mode(&files.key, mode);
            check(&files, strict).map_err(|error| told(&error))
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

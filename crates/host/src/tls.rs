//! Certificate verification for TLS connections to servers: certificates of the system's authorities, of additional
//! authorities, and individually trusted self-signed certificates. Also describes TLS errors for people.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_platform_verifier::Verifier;
use std::sync::Arc;

/// Certificate verifier with additional trusted certificates.
#[derive(Debug)]
pub struct TrustedCertificates {
    /// Certificates that are trusted themselves. The usual tools make self-signed certificates as CA certificates,
    /// which the standard verification rejects as server certificates.
    named: Vec<CertificateDer<'static>>,
    /// Accepts these certificates for any name and at any time.
    any_name: bool,
    others: Verifier,
}

impl TrustedCertificates {
    /// Trusts the system's authorities and these certificates, each for its names and validity period.
    ///
    /// # Errors
    /// A certificate is invalid, or the system's authorities cannot be read.
    pub fn new(named: Vec<CertificateDer<'static>>, provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let others = Verifier::new_with_extra_roots(named.clone(), provider)?;
        Ok(Self { named, any_name: false, others })
    }

    /// Accepts the named certificates for any name and at any time, for a server of the same operator that was told
    /// to use them.
    #[must_use]
    pub fn for_any_name(self) -> Self {
        Self { any_name: true, ..self }
    }
}

impl ServerCertVerifier for TrustedCertificates {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_named = self.named.contains(shown);
        if is_named && self.any_name {
            return Ok(ServerCertVerified::assertion());
        }
        match self.others.verify_server_cert(shown, chain, name, ocsp, now) {
            // Rejected as a CA certificate. That check comes after the validity period and before the names.
            Err(Error::InvalidCertificate(CertificateError::Other(_))) if is_named => {
                verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.others.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.others.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.others.supported_verify_schemes()
    }
}

/// Describes a TLS error for people.
pub fn describe_error(error: &Error) -> String {
    use CertificateError as Certificate;
    match error {
        Error::InvalidMessage(_) => "the peer does not speak TLS".to_owned(),
        Error::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. }) => {
            "its certificate has expired".to_owned()
        }
        Error::InvalidCertificate(Certificate::NotValidYet | Certificate::NotValidYetContext { .. }) => {
            "its certificate is not valid yet, or the clock of this machine is wrong".to_owned()
        }
        Error::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        ) => "its certificate is for another name".to_owned(),
        Error::InvalidCertificate(Certificate::UnknownIssuer) => {
            "its certificate was not issued by an authority that this machine trusts".to_owned()
        }
        Error::InvalidCertificate(Certificate::Other(other)) => {
            format!("its certificate is not trusted, it may be self-signed: {other}")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::InvalidMessage;

    #[test]
    fn a_self_signed_certificate_is_trusted_for_its_own_names_and_validity_only() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["here.example".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(2200, 1, 1);
        let shown = params.self_signed(&key).unwrap().der().clone();
        let believed = |named| {
            TrustedCertificates::new(named, Arc::new(rustls::crypto::ring::default_provider())).unwrap()
        };
        let verdict = |believed: &TrustedCertificates, name: &str, year: u64| {
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs((year - 1970) * 31_557_600));
            let name = ServerName::try_from(name).unwrap();
            believed.verify_server_cert(&shown, &[], &name, &[], now).map_err(|error| describe_error(&error))
        };
        let (named, unnamed) = (believed(vec![shown.clone()]), believed(Vec::new()));
        assert!(verdict(&named, "here.example", 2100).is_ok());
        assert_eq!(
            verdict(&named, "there.example", 2100).unwrap_err(),
            "its certificate is for another name"
        );
        assert_eq!(verdict(&named, "here.example", 2300).unwrap_err(), "its certificate has expired");
        assert!(verdict(&unnamed, "here.example", 2100).is_err());
        assert!(verdict(&named.for_any_name(), "there.example", 2300).is_ok());
    }

    #[test]
    fn common_tls_errors_have_readable_texts() {
        let wrong = |error| describe_error(&Error::InvalidCertificate(error));
        assert_eq!(wrong(CertificateError::Expired), "its certificate has expired");
        assert_eq!(wrong(CertificateError::NotValidForName), "its certificate is for another name");
        assert!(
            wrong(CertificateError::UnknownIssuer)
                .starts_with("its certificate was not issued by an authority")
        );
        let plain = describe_error(&Error::InvalidMessage(InvalidMessage::InvalidContentType));
        assert_eq!(plain, "the peer does not speak TLS");
        assert_eq!(describe_error(&Error::DecryptError), Error::DecryptError.to_string());
    }
}

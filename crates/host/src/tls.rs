//! Who is believed to be a server, and what is said where it is not: whoever the system's authorities vouch for, or
//! those that the user names; and whoever has the key of a certificate that the user names.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_platform_verifier::Verifier;
use std::sync::Arc;

/// Whom to believe.
#[derive(Debug)]
pub struct Believed {
    /// Whoever shows one of these, and has its key, needs nobody to vouch for it. Certificates that vouch for themselves
    /// are made as those of an authority by the usual tools, and no authority would pass.
    named: Vec<CertificateDer<'static>>,
    /// Whether that counts under whichever name, and whenever.
    always: bool,
    others: Verifier,
}

impl Believed {
    /// Those that the system believes, and these, each for the names and the time that are written in it.
    ///
    /// # Errors
    /// One of them is no certificate, or the system's authorities cannot be read.
    pub fn with(named: Vec<CertificateDer<'static>>, provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let others = Verifier::new_with_extra_roots(named.clone(), provider)?;
        Ok(Self { named, always: false, others })
    }

    /// The same under any name and at any time: for a server of our own that was told to show these.
    #[must_use]
    pub fn always(self) -> Self {
        Self { always: true, ..self }
    }
}

impl ServerCertVerifier for Believed {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_named = self.named.contains(shown);
        if is_named && self.always {
            return Ok(ServerCertVerified::assertion());
        }
        match self.others.verify_server_cert(shown, chain, name, ocsp, now) {
            // For being that of an authority, which is looked at after its time and before its names.
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

/// What TLS has against a peer, for a person.
pub fn objection(error: &Error) -> String {
    use CertificateError as Certificate;
    match error {
        Error::InvalidMessage(_) => "what answers there does not speak TLS".to_owned(),
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
            "nobody whom this machine believes vouches for its certificate".to_owned()
        }
        Error::InvalidCertificate(Certificate::Other(other)) => {
            format!("its certificate cannot be believed, it may vouch for itself: {other}")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::InvalidMessage;

    #[test]
    fn a_certificate_that_vouches_for_itself_is_believed_for_its_own_names_and_time_only() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["here.example".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(2200, 1, 1);
        let shown = params.self_signed(&key).unwrap().der().clone();
        let believed =
            |named| Believed::with(named, Arc::new(rustls::crypto::ring::default_provider())).unwrap();
        let verdict = |believed: &Believed, name: &str, year: u64| {
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs((year - 1970) * 31_557_600));
            let name = ServerName::try_from(name).unwrap();
            believed.verify_server_cert(&shown, &[], &name, &[], now).map_err(|error| objection(&error))
        };
        let (named, unnamed) = (believed(vec![shown.clone()]), believed(Vec::new()));
        assert!(verdict(&named, "here.example", 2100).is_ok());
        assert_eq!(
            verdict(&named, "there.example", 2100).unwrap_err(),
            "its certificate is for another name"
        );
        assert_eq!(verdict(&named, "here.example", 2300).unwrap_err(), "its certificate has expired");
        assert!(verdict(&unnamed, "here.example", 2100).is_err());
        assert!(verdict(&named.always(), "there.example", 2300).is_ok());
    }

    #[test]
    fn what_people_meet_is_said_in_words() {
        let wrong = |error| objection(&Error::InvalidCertificate(error));
        assert_eq!(wrong(CertificateError::Expired), "its certificate has expired");
        assert_eq!(wrong(CertificateError::NotValidForName), "its certificate is for another name");
        assert!(wrong(CertificateError::UnknownIssuer).starts_with("nobody whom this machine believes"));
        let plain = objection(&Error::InvalidMessage(InvalidMessage::InvalidContentType));
        assert_eq!(plain, "what answers there does not speak TLS");
        assert_eq!(objection(&Error::DecryptError), Error::DecryptError.to_string());
    }
}

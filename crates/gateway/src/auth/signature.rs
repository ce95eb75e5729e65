//! Verification of token signatures with `ring`, the library that TLS uses too. Only asymmetric algorithms are
//! accepted: with a secret that issuer and gateway share, the gateway could issue tokens.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{
    self as known, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

/// Accepted signature algorithms.
pub(super) const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs this verifier for `jsonwebtoken`. A provider that the program installed before is kept.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let scheme = Scheme::of(*algorithm).ok_or(ErrorKind::UnsupportedAlgorithm)?;
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(RingVerifier { algorithm: *algorithm, scheme, key: key.kind().clone() }))
}

/// Verification parameters of an algorithm.
enum Scheme {
    Rsa(&'static RsaParameters),
    Curve(&'static dyn VerificationAlgorithm),
}

impl Scheme {
    fn of(algorithm: Algorithm) -> Option<Self> {
        Some(match algorithm {
            Algorithm::RS256 => Self::Rsa(&known::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => Self::Rsa(&known::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => Self::Rsa(&known::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => Self::Rsa(&known::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => Self::Rsa(&known::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => Self::Rsa(&known::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => Self::Curve(&known::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => Self::Curve(&known::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => Self::Curve(&known::ED25519),
            _ => return None,
        })
    }
}

struct RingVerifier {
    algorithm: Algorithm,
    scheme: Scheme,
    key: DecodingKeyKind,
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let checked = match (&self.scheme, &self.key) {
            (Scheme::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (Scheme::Curve(scheme), DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(*scheme, key).verify(message, signature)
            }
            (Scheme::Rsa(_), DecodingKeyKind::SecretOrDer(_))
            | (Scheme::Curve(_), DecodingKeyKind::RsaModulusExponent { .. }) => return Err(Error::new()),
        };
        checked.map_err(|_| Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

//! Signatures of tokens, checked by the same library that checks those of TLS. Only public keys are of use: a
//! secret that issuer and gateway share could be used by either to make tokens.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{
    self as known, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

/// The algorithms whose signatures count.
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

/// Has signatures checked here. A program that has brought something else keeps it.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let scheme = Scheme::of(*algorithm).ok_or(ErrorKind::UnsupportedAlgorithm)?;
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(Checked { algorithm: *algorithm, scheme, key: key.kind().clone() }))
}

/// How a signature is checked.
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

struct Checked {
    algorithm: Algorithm,
    scheme: Scheme,
    key: DecodingKeyKind,
}

impl Verifier<Vec<u8>> for Checked {
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

impl JwtVerifier for Checked {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

//! A client that proves itself by a signature (`private_key_jwt`, RFC 7523) instead of a secret. The SDK has it too, with a
//! second cryptographic library; signing with the one that is there takes these lines.

use crate::clock;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gripfast_core::time::Wall;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use std::time::Duration;

/// A private key, of whatever kind.
pub(super) enum SigningKey {
    Es256(EcdsaKeyPair),
    Es384(EcdsaKeyPair),
    Rs256(Box<RsaKeyPair>),
    EdDsa(Ed25519KeyPair),
}

/// It is shown at once. Clocks differ by less.
const GOOD_FOR: Duration = Duration::from_secs(120);

impl SigningKey {
    /// Reads a key in PEM form.
    pub(super) fn from_pem(pem: &str) -> Result<Self, String> {
        let unusable = || {
            "is no private key that can be used: P-256, P-384, Ed25519 or RSA with 2048 bits or more, in PKCS #8 form"
                .to_owned()
        };
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| unusable())?;
        let random = clock::randomness();
        match &key {
            PrivateKeyDer::Pkcs8(der) => {
                let der = der.secret_pkcs8_der();
                let ecdsa = |algorithm| EcdsaKeyPair::from_pkcs8(algorithm, der, &random);
                let found = ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING).map(Self::Es256);
                let found = found.or_else(|_| ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING).map(Self::Es384));
                let found = found.or_else(|_| RsaKeyPair::from_pkcs8(der).map(Box::new).map(Self::Rs256));
                let found =
                    found.or_else(|_| Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map(Self::EdDsa));
                found.map_err(|_| unusable())
            }
            PrivateKeyDer::Pkcs1(der) => {
                let found = RsaKeyPair::from_der(der.secret_pkcs1_der()).map(Box::new);
                found.map(Self::Rs256).map_err(|_| unusable())
            }
            _ => Err(unusable()),
        }
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Es256(_) => "ES256",
            Self::Es384(_) => "ES384",
            Self::Rs256(_) => "RS256",
            Self::EdDsa(_) => "EdDSA",
        }
    }

    /// Says to `audience`, for once and for a short while, that we are this client.
    pub(super) fn assert(
        &self,
        client_id: &str,
        key_id: Option<&str>,
        audience: &str,
        now: Wall,
    ) -> Option<String> {
        let unique: [u8; 16] = clock::secret_bytes()?;
        let mut header = json!({ "alg": self.algorithm(), "typ": "client-authentication+jwt" });
        if let Some(key_id) = key_id {
            header["kid"] = key_id.into();
        }
        let claims = json!({
            "iss": client_id,
            "sub": client_id,
            "aud": audience,
            "iat": now.since_epoch().as_secs(),
            "exp": (now.since_epoch() + GOOD_FOR).as_secs(),
            "jti": URL_SAFE_NO_PAD.encode(unique),
        });
        let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let said = format!("{}.{}", part(&header), part(&claims));
        let signature = self.sign(said.as_bytes())?;
        Some(format!("{said}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = clock::randomness();
        match self {
            Self::Es256(key) | Self::Es384(key) => {
                key.sign(&random, message).ok().map(|signature| signature.as_ref().to_vec())
            }
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).ok()?;
                Some(signature)
            }
            Self::EdDsa(key) => Some(key.sign(message).as_ref().to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, UnparsedPublicKey};
    use serde_json::Value;

    fn now() -> Wall {
        Wall::at(Duration::from_secs(1_000_000))
    }

    #[test]
    fn an_assertion_is_signed_by_the_key_and_says_who_to_whom_and_for_how_long() {
        let kinds: [(_, &dyn ring::signature::VerificationAlgorithm, _); 3] = [
            (&rcgen::PKCS_ECDSA_P256_SHA256, &ECDSA_P256_SHA256_FIXED, "ES256"),
            (&rcgen::PKCS_ECDSA_P384_SHA384, &ECDSA_P384_SHA384_FIXED, "ES384"),
            (&rcgen::PKCS_ED25519, &ED25519, "EdDSA"),
        ];
        for (kind, verified_by, algorithm) in kinds {
            let pair = rcgen::KeyPair::generate_for(kind).unwrap();
            let key = SigningKey::from_pem(&pair.serialize_pem()).unwrap();
            let said = key.assert("robot", Some("k1"), "https://id.example.com", now()).unwrap();
            let parts: Vec<&str> = said.split('.').collect();
            let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
            let signed = format!("{}.{}", parts[0], parts[1]);
            let public = UnparsedPublicKey::new(verified_by, pair.public_key_raw());
            public.verify(signed.as_bytes(), &decoded(parts[2])).unwrap();
            let header: Value = serde_json::from_slice(&decoded(parts[0])).unwrap();
            assert_eq!((header["alg"].as_str(), header["kid"].as_str()), (Some(algorithm), Some("k1")));
            let claims: Value = serde_json::from_slice(&decoded(parts[1])).unwrap();
            assert_eq!((&claims["iss"], &claims["sub"]), (&json!("robot"), &json!("robot")));
            assert_eq!(claims["aud"], "https://id.example.com");
            assert_eq!((&claims["iat"], &claims["exp"]), (&json!(1_000_000), &json!(1_000_120)));
            let another = key.assert("robot", Some("k1"), "https://id.example.com", now()).unwrap();
            assert_ne!(another.split('.').nth(1), Some(parts[1]), "each is good for once");
        }
    }

    #[test]
    fn what_is_no_key_is_said_and_not_shown() {
        for text in ["", "s3cret", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            let why = SigningKey::from_pem(text).err().unwrap();
            assert!(why.contains("no private key") && !why.contains("s3cret"), "{why}");
        }
    }
}

//! Client authentication by signature (`private_key_jwt`, RFC 7523) instead of a secret. The SDK has it too, with a
//! second cryptographic library; signing with the one that is already linked takes these lines.

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

/// A private key of any supported kind.
pub(super) enum SigningKey {
    Es256(EcdsaKeyPair),
    Es384(EcdsaKeyPair),
    Rs256(Box<RsaKeyPair>),
    EdDsa(Ed25519KeyPair),
}

/// Lifetime of an assertion. It is used at once, and clocks differ by less.
const ASSERTION_LIFETIME: Duration = Duration::from_secs(120);

impl SigningKey {
    /// Parses a key in PEM form.
    pub(super) fn from_pem(pem: &str) -> Result<Self, String> {
        let unusable = || {
            "is not a usable private key; use P-256, P-384, Ed25519 or RSA with 2048 bits or more, in PKCS #8 form"
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

    /// Creates a signed assertion of the client's identity for `audience`, valid once and for a short time.
    pub(super) fn sign_assertion(
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
            "exp": (now.since_epoch() + ASSERTION_LIFETIME).as_secs(),
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
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
        UnparsedPublicKey,
    };
    use serde_json::Value;

    fn now() -> Wall {
        Wall::from_unix_epoch(Duration::from_secs(1_000_000))
    }

    #[test]
    fn an_assertion_is_signed_and_has_issuer_audience_and_expiry() {
        let kinds: [(_, &dyn ring::signature::VerificationAlgorithm, _); 3] = [
            (&rcgen::PKCS_ECDSA_P256_SHA256, &ECDSA_P256_SHA256_FIXED, "ES256"),
            (&rcgen::PKCS_ECDSA_P384_SHA384, &ECDSA_P384_SHA384_FIXED, "ES384"),
            (&rcgen::PKCS_ED25519, &ED25519, "EdDSA"),
        ];
        for (kind, verified_by, algorithm) in kinds {
            let pair = rcgen::KeyPair::generate_for(kind).unwrap();
            let key = SigningKey::from_pem(&pair.serialize_pem()).unwrap();
            let said = key.sign_assertion("robot", Some("k1"), "https://id.example.com", now()).unwrap();
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
            let another = key.sign_assertion("robot", Some("k1"), "https://id.example.com", now()).unwrap();
            assert_ne!(another.split('.').nth(1), Some(parts[1]), "each is valid once");
        }
    }

    #[test]
    fn an_invalid_key_is_an_error_that_does_not_show_it() {
        for text in ["", "s3cret", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            let why = SigningKey::from_pem(text).err().unwrap();
            assert!(why.contains("not a usable private key") && !why.contains("s3cret"), "{why}");
        }
    }

    #[test]
    fn an_rsa_key_signs_in_both_pem_forms() {
        let whole = base64::engine::general_purpose::STANDARD.decode(RSA).unwrap();
        // The older form, which does not name the algorithm, is inside the newer one.
        let older = base64::engine::general_purpose::STANDARD.encode(&whole[26..]);
        for (label, key) in [("PRIVATE KEY", RSA), ("RSA PRIVATE KEY", older.as_str())] {
            let pem = format!("-----BEGIN {label}-----\n{key}\n-----END {label}-----\n");
            let key = SigningKey::from_pem(&pem).unwrap();
            let SigningKey::Rs256(pair) = &key else { panic!("{}", key.algorithm()) };
            let said = key.sign_assertion("robot", None, "https://id.example.com", now()).unwrap();
            let (signed, signature) = said.rsplit_once('.').unwrap();
            let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public().as_ref());
            public.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
            let header = URL_SAFE_NO_PAD.decode(signed.split('.').next().unwrap()).unwrap();
            let header: Value = serde_json::from_slice(&header).unwrap();
            assert_eq!((&header["alg"], &header["kid"]), (&json!("RS256"), &Value::Null));
        }
    }

    // Made with openssl for this test only: nothing here can generate keys of this kind.
    const RSA: &str = concat!(
        "MIIEvAIBADANBgkqhkiG9w0BAQEFAASCBKYwggSiAgEAAoIBAQDClQlcAuqj8V3gP6p3N4d8Ho5ZePyBS6b+qucE7Vqy",
        "TlCg+6MBTEWHstqB/M365jFUBYxpC6zOpSoHwVisJ0bePlCQ2tiRftJlxD6ZLd3jJMehdQREwQ2fVcsQpvTJlF1w9S8W",
        "NPThJ+tG9h4arVIZ6h0cz+7zORSzKzNYS6N+FJanBEioCdt2+A55YbYJpadu5IlVmQUqiHCNUP5fwkiHd2i97GuHn/s4",
        "Bk1XwPy//3fZ9hPAT94wS2lEOvtxD8wg7qCIyZgaFtWxq2ZU3PveDmR9fotiCgffR3dbT8uTCuJvlvVkiJu//IWGMjCx",
        "OKxS7TUGBr5jdE9XnzNYZMNFAgMBAAECggEADurOkiF+HA3twLqYxrV420zbZGQYVZA3b/gpqFDK/nbvCvxnoXqXrQDK",
        "7CK1ptm9Z9/aBRaaS6hRWdFaiy4iqniUBBrm9faHSjp6gxNHWrnP3SKjrmKveOrim7b09rw7UqTVVIpASL+e86x8H9bw",
        "P6DZVQNi4f4bBmZWNBtuYASxSgphDEicaSADOQJ6SUfOJ4IWj18xj9r/d3Z23oweJmLVNe1Cl03Ua+gAU0CVPYidezc8",
        "aPwShv5soNz4rTs/f98GIRzdpaBwJif9t3Vz/PT2BVn6zykRzU6DmKnj//EUY12wf9p4tbqZceEEM5YbKfi6V9Myq44P",
        "TmMbZ8P1AQKBgQDqU2YV6SeCbCFfBRvlnDOYa9yNDxMhXTapnNLJwSXBowW94ssZE2nh4pJbPr3zYIDC4Venkq9qw2WR",
        "IRyoYYLIZ6N/w8YNTWN+xFbaxi9TMLHVmeCuFOw8NL2jzle4C2+/VrzNoFKE1a9w+NcAewTzopTfwL+azDUQb4eASl2l",
        "AQKBgQDUlIyAFXUvImH8TYAGhr0t4tRQ1XVYpbATEKXUeIzf1JX3ZkIsTLoUteXdUkzhZQFWK1GRBMa0ATlgE9pdMKYI",
        "i6a3PTzGRlVeT3iZzRzKMi+BE+T8inuJvUxlFqg5jJHilK0rudGBW7tfJfZI5+j19+02z5McKg5ZzLj50nVKRQKBgCk6",
        "kUyroEr/UYPRd04YBK/90mlzTI9jQjnnoOLkvArs7xaw78EyvD+FSPELAgrvYNhpI64VTg3/4T/+zncF6SfvrEHPpWoz",
        "wpzMWOfXVP5TJAcMMw8OGV6ifPd0V9THFltZHJElcz9yBZNgBRxNiNqBMaaI2G2ZHoEMzo+RBhcBAoGAc2jijncX06sa",
        "/1sj8mccNdk741bACoyJdxBGt39rG+nSMSp3Ko3NSIkobmvMCWJIw3tpIQ4ywm8Xsy2UE5vhyCnpLPo2EH8GwdjrZLSS",
        "uMNePvmKDAEy6Ki43PjcA8JpQVXuXhrXvx8KLrHxb8tYEpGzW1p+R4Adomse0aKMwvECgYAeatSPTfVqcH27TmSsDuJD",
        "9qefO8Hg8+bvee7KRNbHgkxQmdkyzBesD9AMS7qFb5wLA4ccirmpL/Ucijuhlld3ptkQr9t90m8aBeZOWw3oGmO1v0WG",
        "KuJaSLHhNpxd3q5j9RBmh7UQGjdgJUD9Ool6c0mojwBvsOC1IK3Hqq7cUg==",
    );
}

//! Validation of signed tokens (JWT): issuer, audience, expiry, scopes, type and signature. The current time is an
//! argument.

use super::AuthError;
use super::issuer::{Issuer, IssuerKeyError};
use super::signature::{self, ALGORITHMS};
use gripfast::config::{JwtConfig, TokenTypes};
use gripfast::private_files::StrictModes;
use gripfast::{AuthFailure, Principal};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// The tokens of one issuer.
pub(super) struct Tokens {
    config: JwtConfig,
    issuer: Arc<Issuer>,
}

/// Prefix of principals from tokens, so that a token cannot name the principal of a key.
const PREFIX: &str = "jwt:";
/// Tolerated difference between the clocks of issuer and gateway.
const LEEWAY: Duration = Duration::from_secs(60);
/// Maximum length of a token. The headers of a request are bounded too.
const MAX_TOKEN_LEN: usize = 16 << 10;
const MAX_NAME_LEN: usize = 256;

impl Tokens {
    pub(super) fn new(config: JwtConfig, strict_modes: StrictModes) -> Self {
        signature::install();
        Self { issuer: Arc::new(Issuer::new(config.jwks.clone(), strict_modes)), config }
    }

    /// Principal and expiry of a token that is valid at `wall`. A token accepted within the leeway expires with the
    /// leeway.
    pub(super) async fn authenticate(
        &self,
        token: &str,
        wall: Duration,
    ) -> Result<(Principal, Duration), AuthError> {
        let refuse = |message: &str| AuthError::refused(AuthFailure::InvalidToken, message);
        if token.len() > MAX_TOKEN_LEN {
            return Err(refuse("not a valid token"));
        }
        // A token with an unknown algorithm, such as `none`, cannot be decoded.
        let header = decode_header(token).map_err(|_| refuse("not a valid token"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(refuse("the token is signed with an algorithm that is not accepted"));
        }
        if header.crit.is_some() {
            return Err(refuse("the token has a `crit` header, which is not supported"));
        }
        if !is_accepted_type(header.typ.as_deref(), self.config.typ) {
            return Err(refuse("this type of token (`typ`) is not accepted here; send an access token"));
        }
        let key = match self.issuer.key(header.kid.as_deref(), header.alg).await {
            Ok(key) => key,
            Err(IssuerKeyError::Unknown) => {
                return Err(refuse("the token is not signed by a key of the issuer"));
            }
            Err(IssuerKeyError::Unreachable) => return Err(AuthError::CannotCheck),
        };
        let mut wanted = Validation::new(header.alg);
        wanted.set_issuer(&[&self.config.issuer]);
        wanted.set_audience(&[&self.config.audience]);
        wanted.set_required_spec_claims(&["exp", "iss", "aud"]);
        wanted.validate_exp = false;
        let claims = decode::<Map<String, Value>>(token, &key, &wanted)
            .map_err(|error| refuse(message_for(error.kind())))?
            .claims;
        self.check_claims(&claims).map_err(refuse)?;
        // The signature is verified, so that the name may be recorded even if the token is refused below.
        let name = claims.get(&self.config.name).and_then(Value::as_str).filter(|name| is_valid_name(name));
        let name = name.map(|name| format!("{PREFIX}{name}"));
        let ends = valid_until(&claims, wall).map_err(|error| error.with_principal(name.clone()))?;
        self.check_scopes(&claims).map_err(|error| error.with_principal(name.clone()))?;
        let name = name.ok_or_else(|| refuse("the token lacks a valid name claim"))?;
        Ok((Principal::new(name), ends))
    }

    /// Checks issuer, audience and kind of the token. The library that verifies the signature accepts a list of issuers
    /// and does not detect ID tokens.
    fn check_claims(&self, claims: &Map<String, Value>) -> Result<(), &'static str> {
        if claims.get("iss").and_then(Value::as_str) != Some(&self.config.issuer) {
            return Err(WRONG_ISSUER);
        }
        let is_ours = match claims.get("aud") {
            Some(Value::String(audience)) => *audience == self.config.audience,
            Some(Value::Array(audiences)) => {
                audiences.iter().all(Value::is_string)
                    && audiences.iter().any(|audience| audience.as_str() == Some(&self.config.audience))
            }
            _ => false,
        };
        if !is_ours {
            return Err(WRONG_AUDIENCE);
        }
        if is_id_token(claims) {
            return Err("this is an ID token, which does not authorize requests; send an access token");
        }
        Ok(())
    }

    fn check_scopes(&self, claims: &Map<String, Value>) -> Result<(), AuthError> {
        let values = ["scope", "scp"].into_iter().filter_map(|claim| claims.get(claim));
        let granted: Vec<&str> = values
            .flat_map(|value| match value {
                Value::String(words) => words.split_ascii_whitespace().collect(),
                Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
                _ => Vec::new(),
            })
            .collect();
        let has_all = self.config.scopes.iter().all(|wanted| granted.contains(&wanted.as_str()));
        if has_all { Ok(()) } else { Err(AuthError::InsufficientScope { principal: None }) }
    }
}

const WRONG_ISSUER: &str = "the token is from another issuer";
const WRONG_AUDIENCE: &str = "the token is for another audience";

/// True if the `typ` header is accepted. Case does not matter, and the prefix `application/` is optional (RFC 7515,
/// section 4.1.9).
fn is_accepted_type(typ: Option<&str>, accepted: TokenTypes) -> bool {
    const MEDIA: &str = "application/";
    let short = |typ: &str| {
        let typ = typ.to_ascii_lowercase();
        typ.strip_prefix(MEDIA).map_or(typ.clone(), str::to_owned)
    };
    match (typ.map(short).as_deref(), accepted) {
        (Some("at+jwt"), TokenTypes::Any | TokenTypes::AccessToken) => true,
        (Some("jwt") | None, TokenTypes::Any) => true,
        (Some(_) | None, TokenTypes::Any | TokenTypes::AccessToken) => false,
    }
}

/// True for the claims of an OpenID Connect ID token: they contain the client's `nonce` or the hash of an access token
/// or code, or name their type, as Keycloak does.
fn is_id_token(claims: &Map<String, Value>) -> bool {
    let has = |claim: &str| claims.get(claim).is_some_and(|value| !value.is_null());
    let is_named = |claim: &Value| claim.as_str().is_some_and(|typ| typ.eq_ignore_ascii_case("ID"));
    ["nonce", "at_hash", "c_hash"].into_iter().any(has) || claims.get("typ").is_some_and(is_named)
}

/// Text for a rejected token, without details that help to forge one.
fn message_for(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidIssuer => WRONG_ISSUER,
        ErrorKind::InvalidAudience => WRONG_AUDIENCE,
        ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) => {
            "the token lacks a valid `iss`, `aud` or `exp` claim"
        }
        _ => "the token is not signed by a key of the issuer",
    }
}

/// Expiry of a token that is valid at `wall`.
fn valid_until(claims: &Map<String, Value>, wall: Duration) -> Result<Duration, AuthError> {
    let refuse = |message: &str| AuthError::refused(AuthFailure::InvalidToken, message);
    let at = |claim: &str| claims.get(claim).map(|value| value.as_f64().filter(|time| time.is_finite()));
    let (now, leeway) = (wall.as_secs_f64(), LEEWAY.as_secs_f64());
    let ends = match at("exp") {
        Some(Some(until)) if now < until => until,
        Some(Some(until)) if now < until + leeway => until + leeway,
        Some(Some(_)) => return Err(AuthError::refused(AuthFailure::Expired, "the token has expired")),
        Some(None) | None => return Err(refuse("the token lacks a valid `exp` claim")),
    };
    let ends = Duration::try_from_secs_f64(ends).unwrap_or(Duration::MAX);
    match at("nbf") {
        None => Ok(ends),
        Some(Some(from)) if now + leeway >= from => Ok(ends),
        Some(_) => Err(refuse("the token is not valid yet")),
    }
}

fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_LEN && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::super::{AdmissionError, Authenticator};
    use super::*;
    use crate::server::quota::Peer;
    use crate::server::request_rate::RequestRates;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use gripfast::config::{AccessConfig, Jwks};
    use http::header::AUTHORIZATION;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
    use serde_json::json;
    use std::path::Path;
    use tempfile::TempDir;

    const NOW: u64 = 1_800_000_000;

    /// A token issuer with its public keys in a file.
    struct Authority {
        directory: TempDir,
        curve: EcdsaKeyPair,
        edwards: Ed25519KeyPair,
    }

    impl Authority {
        fn new() -> Self {
            let random = SystemRandom::new();
            let curve = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
            let curve = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, curve.as_ref(), &random);
            let edwards = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
            let edwards = Ed25519KeyPair::from_pkcs8(edwards.as_ref()).unwrap();
            let authority = Self { directory: tempfile::tempdir().unwrap(), curve: curve.unwrap(), edwards };
            authority.publishes(&json!([authority.curve_key("one"), authority.edwards_key("two")]));
            authority
        }

        fn curve_key(&self, id: &str) -> Value {
            let point = self.curve.public_key().as_ref();
            let (x, y) = (coded(&point[1..33]), coded(&point[33..]));
            json!({ "kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "x": x, "y": y })
        }

        fn edwards_key(&self, id: &str) -> Value {
            let point = coded(self.edwards.public_key().as_ref());
            json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": id, "x": point })
        }

        fn publishes(&self, keys: &Value) {
            std::fs::write(self.file(), json!({ "keys": keys }).to_string()).unwrap();
        }

        fn file(&self) -> std::path::PathBuf {
            self.directory.path().join("jwks.json")
        }

        fn tokens(&self) -> Tokens {
            tokens(&self.file(), &[])
        }

        /// A token with this header and these claims, signed with the P-256 key.
        fn signs(&self, header: &Value, claims: &Value) -> String {
            let message = message(header, claims);
            let signed = self.curve.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
            format!("{message}.{}", coded(signed.as_ref()))
        }
    }

    fn tokens(file: &Path, scopes: &[&str]) -> Tokens {
        tokens_by(StrictModes::On, file, scopes)
    }

    fn tokens_by(strict_modes: StrictModes, file: &Path, scopes: &[&str]) -> Tokens {
        Tokens::new(config(file, scopes), strict_modes)
    }

    fn config(file: &Path, scopes: &[&str]) -> JwtConfig {
        JwtConfig {
            issuer: "https://login.example".to_owned(),
            audience: "https://mcp.example/mcp".to_owned(),
            jwks: Jwks::File(file.to_owned()),
            name: "sub".to_owned(),
            scopes: scopes.iter().map(ToString::to_string).collect(),
            typ: TokenTypes::Any,
        }
    }

    fn coded(bytes: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn message(header: &Value, claims: &Value) -> String {
        format!("{}.{}", coded(header.to_string().as_bytes()), coded(claims.to_string().as_bytes()))
    }

    fn es256() -> Value {
        json!({ "alg": "ES256", "kid": "one" })
    }

    fn claims() -> Value {
        json!({ "iss": "https://login.example", "aud": "https://mcp.example/mcp", "sub": "alice", "exp": NOW + 300 })
    }

    fn with(member: &str, value: Value) -> Value {
        let mut claims = claims();
        claims[member] = value;
        claims
    }

    async fn principal_of(tokens: &Tokens, token: &str) -> Result<Principal, AuthError> {
        tokens.authenticate(token, Duration::from_secs(NOW)).await.map(|(principal, _)| principal)
    }

    async fn rejection(tokens: &Tokens, token: &str) -> String {
        match principal_of(tokens, token).await {
            Err(AuthError::Refused { message: rejection, .. }) => rejection,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn g05_a_valid_token_gives_its_principal() {
        let authority = Authority::new();
        let tokens = authority.tokens();
        let alice = Ok(Principal::new("jwt:alice"));
        assert_eq!(principal_of(&tokens, &authority.signs(&es256(), &claims())).await, alice);
        let several = with("aud", json!(["https://other.example", "https://mcp.example/mcp"]));
        assert_eq!(principal_of(&tokens, &authority.signs(&es256(), &several)).await, alice);
        let message = message(&json!({ "alg": "EdDSA", "kid": "two" }), &claims());
        let token = format!("{message}.{}", coded(authority.edwards.sign(message.as_bytes()).as_ref()));
        assert_eq!(principal_of(&tokens, &token).await, alice);
    }

    #[tokio::test(start_paused = true)]
    async fn g05_an_address_without_requests_left_has_no_signature_verified() {
        let authority = Authority::new();
        let access = AccessConfig { jwt: Some(config(&authority.file(), &[])), ..AccessConfig::default() };
        let limits = Arc::new(RequestRates::new(2));
        let host = gripfast::Host::builder().build();
        let shutdown = tokio_util::sync::CancellationToken::new();
        let access =
            Authenticator::from_config(&access, None, "https://mcp.example", Some(limits), &host, shutdown);
        let access = access.unwrap().unwrap();
        let address = Peer::from_address([192, 0, 2, 1].into());
        let shows = async |token: &str| {
            let headers = [(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())].into_iter().collect();
            match access.authenticate_limited(&address, &headers).await {
                Ok(_) => 200,
                Err(AdmissionError::Unauthenticated(_)) => 401,
                Err(AdmissionError::RateLimited(_)) => 429,
            }
        };
        let of = |name: &str| {
            let claims = json!({ "iss": "https://login.example", "aud": "https://mcp.example/mcp", "sub": name,
                "exp": 4_000_000_000_u64 });
            authority.signs(&es256(), &claims)
        };
        let (known, fresh) = (of("alice"), of("bob"));
        assert_eq!(shows(&known).await, 200);
        for status in [401, 401, 429] {
            assert_eq!(shows("made.up.token").await, status);
        }
        assert_eq!(shows(&fresh).await, 429, "it is valid, but not verified");
        assert_eq!(shows(&known).await, 200, "it was valid before");
        assert_eq!(shows(&known).await, 429, "its principal has a rate limit too");
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(shows(&fresh).await, 200);
    }

    #[tokio::test]
    async fn g05_tokens_without_an_accepted_signature_are_refused() {
        let authority = Authority::new();
        let tokens = authority.tokens();
        let unsigned = message(&json!({ "alg": "none", "kid": "one" }), &claims());
        assert_eq!(rejection(&tokens, &format!("{unsigned}.")).await, "not a valid token");
        assert_eq!(rejection(&tokens, &unsigned).await, "not a valid token");
        let good = authority.signs(&es256(), &claims());
        let (_, signature) = good.rsplit_once('.').unwrap();
        let other = message(&es256(), &with("sub", json!("mallory")));
        let not_signed = "the token is not signed by a key of the issuer";
        assert_eq!(rejection(&tokens, &format!("{other}.{signature}")).await, not_signed);
        // The public key as if it were a secret.
        let hs256 = authority.signs(&json!({ "alg": "HS256", "kid": "one" }), &claims());
        assert!(rejection(&tokens, &hs256).await.contains("is not accepted"));
        let confused = authority.signs(&json!({ "alg": "ES256", "kid": "two" }), &claims());
        assert_eq!(rejection(&tokens, &confused).await, not_signed);
        let foreign = Authority::new().signs(&es256(), &claims());
        assert_eq!(rejection(&tokens, &foreign).await, not_signed);
        let critical = authority.signs(&json!({ "alg": "ES256", "kid": "one", "crit": ["b64"] }), &claims());
        assert!(rejection(&tokens, &critical).await.contains("not supported"));
        assert_eq!(rejection(&tokens, &"x".repeat(MAX_TOKEN_LEN + 1)).await, "not a valid token");
    }

    #[tokio::test]
    async fn g05_tokens_with_a_wrong_issuer_audience_or_time_are_refused() {
        let authority = Authority::new();
        let tokens = authority.tokens();
        for (claims, expected) in [
            (with("iss", json!("https://evil.example")), "the token is from another issuer"),
            (with("aud", json!("https://other.example")), "the token is for another audience"),
            (with("exp", json!(NOW - 61)), "the token has expired"),
            (with("nbf", json!(NOW + 61)), "the token is not valid yet"),
            (with("exp", json!("tomorrow")), "the token lacks a valid"),
            (with("exp", Value::Null), "the token lacks a valid"),
            (with("aud", Value::Null), "the token"),
            (with("sub", json!("")), "the token lacks a valid name claim"),
            (with("sub", json!("a\nb")), "the token lacks a valid name claim"),
            (with("sub", json!(7)), "the token lacks a valid name claim"),
        ] {
            let rejection = rejection(&tokens, &authority.signs(&es256(), &claims)).await;
            assert!(rejection.starts_with(expected), "{claims}: {rejection}");
        }
        let nearly = with("exp", json!(NOW - 59));
        assert!(principal_of(&tokens, &authority.signs(&es256(), &nearly)).await.is_ok(), "clocks differ");
    }

    #[tokio::test]
    async fn g05_a_token_must_name_one_issuer_and_this_audience() {
        let authority = Authority::new();
        let tokens = authority.tokens();
        let (issuer, audience) = ("https://login.example", "https://mcp.example/mcp");
        for claims in [
            with("iss", json!([issuer])),
            with("iss", json!([issuer, "https://evil.example"])),
            with("iss", json!({ "0": issuer })),
            with("aud", json!([])),
            with("aud", json!([audience, 7])),
            with("aud", json!([[audience]])),
            with("aud", json!({ audience: true })),
            with("aud", json!(format!("{audience}/"))),
            with("aud", json!("https://mcp.example")),
        ] {
            let rejection = rejection(&tokens, &authority.signs(&es256(), &claims)).await;
            assert!(rejection.starts_with("the token"), "{claims}: {rejection}");
        }
    }

    #[tokio::test]
    async fn g05_id_tokens_and_other_token_types_are_refused() {
        let authority = Authority::new();
        let tokens = authority.tokens();
        let strict =
            Tokens::new(JwtConfig { typ: TokenTypes::AccessToken, ..tokens.config.clone() }, StrictModes::On);
        let typed = |typ: &str| json!({ "alg": "ES256", "kid": "one", "typ": typ });
        for (header, is_accepted, is_access_token) in [
            (es256(), true, false),
            (typed("JWT"), true, false),
            (typed("jwt"), true, false),
            (typed("application/jwt"), true, false),
            (typed("at+jwt"), true, true),
            (typed("AT+JWT"), true, true),
            (typed("application/at+jwt"), true, true),
            (typed("ID"), false, false),
            (typed("id+jwt"), false, false),
            (typed("dpop+jwt"), false, false),
            (typed("logout+jwt"), false, false),
            (typed("Refresh"), false, false),
            (typed(""), false, false),
            (typed("application/"), false, false),
            (typed("text/jwt"), false, false),
        ] {
            let token = authority.signs(&header, &claims());
            for (tokens, accepted) in [(&tokens, is_accepted), (&strict, is_access_token)] {
                let known = principal_of(tokens, &token).await;
                assert_eq!(known.is_ok(), accepted, "{header}: {known:?}");
            }
        }
        for (claim, value) in [
            ("nonce", json!("n-0S6_WzA2Mj")),
            ("at_hash", json!("77QmUPtjPfzWtF2AnpK9RQ")),
            ("c_hash", json!("LDktKdoQak3Pk0cnXxCltA")),
            ("typ", json!("ID")),
            ("typ", json!("id")),
        ] {
            let claims = with(claim, value);
            for header in [es256(), typed("JWT"), typed("at+jwt")] {
                let rejection = rejection(&tokens, &authority.signs(&header, &claims)).await;
                assert!(rejection.starts_with("this is an ID token"), "{claims}: {rejection}");
            }
        }
        // The `typ` claim of Keycloak's access tokens.
        let bearer = authority.signs(&typed("JWT"), &with("typ", json!("Bearer")));
        assert!(principal_of(&tokens, &bearer).await.is_ok());
    }

    #[tokio::test]
    async fn a_token_needs_the_required_scopes() {
        let authority = Authority::new();
        let tokens = tokens(&authority.file(), &["mcp", "tools"]);
        for (claims, enough) in [
            (claims(), false),
            (with("scope", json!("mcp other")), false),
            (with("scope", json!("tools mcp")), true),
            (with("scp", json!(["mcp", "tools"])), true),
        ] {
            let principal_of = principal_of(&tokens, &authority.signs(&es256(), &claims)).await;
            let refused = Err(AuthError::InsufficientScope { principal: Some("jwt:alice".to_owned()) });
            assert_eq!(principal_of == refused, !enough, "{claims}");
        }
    }

    #[tokio::test]
    async fn an_issuer_can_rotate_keys_and_tokens_of_removed_keys_are_refused() {
        let authority = Authority::new();
        let tokens = authority.tokens();
        let (old, new) = (es256(), json!({ "alg": "ES256", "kid": "three" }));
        let (old, new) = (authority.signs(&old, &claims()), authority.signs(&new, &claims()));
        assert!(principal_of(&tokens, &old).await.is_ok() && principal_of(&tokens, &new).await.is_err());
        authority.publishes(&json!([authority.curve_key("three"), { "kty": "of the future" }]));
        let later = std::time::SystemTime::now() + Duration::from_secs(5);
        std::fs::File::options().append(true).open(authority.file()).unwrap().set_modified(later).unwrap();
        assert!(principal_of(&tokens, &new).await.is_ok() && principal_of(&tokens, &old).await.is_err());
        let nameless = authority.signs(&json!({ "alg": "ES256" }), &claims());
        assert!(principal_of(&tokens, &nameless).await.is_ok(), "there is only one matching key");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn g05_a_jwks_file_that_others_can_write_is_refused_with_strict_modes() {
        use std::os::unix::fs::PermissionsExt;
        let authority = Authority::new();
        let token = authority.signs(&es256(), &claims());
        std::fs::set_permissions(authority.file(), std::fs::Permissions::from_mode(0o664)).unwrap();
        let strict = tokens_by(StrictModes::On, &authority.file(), &[]);
        assert_eq!(principal_of(&strict, &token).await, Err(AuthError::CannotCheck));
        let lax = tokens_by(StrictModes::Off, &authority.file(), &[]);
        assert!(principal_of(&lax, &token).await.is_ok());
    }

    #[tokio::test]
    async fn without_the_keys_of_the_issuer_tokens_cannot_be_checked() {
        let authority = Authority::new();
        let tokens = tokens(Path::new("/nowhere/jwks.json"), &[]);
        let token = authority.signs(&es256(), &claims());
        assert_eq!(principal_of(&tokens, &token).await, Err(AuthError::CannotCheck));
    }

    #[tokio::test]
    async fn rsa_signatures_are_accepted_with_both_paddings() {
        let authority = Authority::new();
        authority.publishes(&json!([{ "kty": "RSA", "kid": "rsa", "n": MODULUS, "e": "AQAB" }]));
        let tokens = authority.tokens();
        for token in [RS256, PS256] {
            assert_eq!(principal_of(&tokens, token).await, Ok(Principal::new("jwt:carol")));
            let (begin, end) = token.split_at(token.len() - 100);
            let changed = if end.starts_with('A') { "B" } else { "A" };
            assert!(principal_of(&tokens, &format!("{begin}{changed}{}", &end[1..])).await.is_err());
        }
    }

    // Created with openssl for this test, with a key that was not kept.
    const MODULUS: &str = concat!(
        "m-gNclOkz4BHQ5Zzdlkjxb9C8b7sXlVeyjSmJT4uGc64r-2CzxS4MwHvRaMlkdciT6ZwgkOUWK0lcLHZlOhQSomgWF",
        "7TG2kmYR4BMLqycKquViYhNMqgT6-7sz_uNPRfB-Tka3bawxpNCxr62yIWQEBCuaiKcdb7IlaLq2PeUE_Gucx-w74M",
        "UcCsJ4bv4EuNYYoFPN6TtMygjmEoAbe54g9lOD8waiyuVb_-mkNZPtiVFTCl8MQymYnJFRr7qiJoIBxFk-5fn6nXqR",
        "cPaXFAALVUrykeVU6PX5Oqwte7th_ke7jdc6EnbIFX5fTq2IWC26VPqRO41SSfdMwcpwurCQ",
    );
    const RS256: &str = concat!(
        "eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYSJ9.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJhdWQiOiJod",
        "HRwczovL21jcC5leGFtcGxlL21jcCIsInN1YiI6ImNhcm9sIiwiZXhwIjo0MDAwMDAwMDAwfQ.V4Po0Wi8km6VnE4C",
        "wFv8VyqaB9v2ouM12zRrLal4XEIty4g9EMkRX8KEdsfjYvEoeesRCGY0sKvseaHSV-sEsgZ6GLKqhr-U2dtEUuUtLD",
        "6udhos-ZdLE8M7Udvhi42IhKj9mnHb4zEdycZE2Zp-8RGd2Qf0p8GS8t6zgkxpZwixLrAMnqw4iD2i0H56b0PesBZB",
        "Du1wNRxUxzlc_AACfq2LiORCrO9S3XIlve9tRQoweavc6-xUqwltCe4lNcfovXbDhErj98wqA0jVI7Tlt6Ac2WvT4y",
        "Eme8Er53mflmYOeF61MDAEhvJ0A1m8UyeqLNyegRs40B4JKArWqMnUtg",
    );
    const PS256: &str = concat!(
        "eyJhbGciOiJQUzI1NiIsImtpZCI6InJzYSJ9.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJhdWQiOiJod",
        "HRwczovL21jcC5leGFtcGxlL21jcCIsInN1YiI6ImNhcm9sIiwiZXhwIjo0MDAwMDAwMDAwfQ.Ir4GsuvUffsxX5jL",
        "fTu4EUdaGcgSCIHYe0TKloFZ0mHIzoWzLTmoMq_VDrgbyW3E6kgRkZX_R5JZC981Piz286YfgUI9sMyfVt5ZhqGObp",
        "kSOiVOBl07YM4QtBYYfurxtHwdN_BQUJ_K3Lv2mBXxlCMrE7YoKvB1csp3jQZ0W06PxM4ac2JFqfen0jnkLvv6K7Nv",
        "e4kfRwxQLtk-BMZ_Cy1-B_ZFS6rW5AbiiI-caN6zdDiw5sqSoCYP4rjKY7txSL8JjpRIrDZHNiAvvnaPsLc9LBa4Mw",
        "R5N4V1T6Qe274iDP2jGnjIuKYRULBtWbG2lgu3imu58zKTheWMUqLytg",
    );
}

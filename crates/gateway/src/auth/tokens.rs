//! Signed tokens of an issuer: whose they are, if they are meant for us, are still good, and were signed with a key of
//! the issuer by an algorithm that counts. Time is an argument.

use super::Stranger;
use super::issuer::{Issuer, NoKey};
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

/// What comes before the name that a token says, so that nobody can be taken for the owner of a key.
const PREFIX: &str = "jwt:";
/// How far the clocks of issuer and gateway may be apart.
const LEEWAY: Duration = Duration::from_secs(60);
/// A longer one is something else. The head of a request is bounded too.
const LONGEST: usize = 16 << 10;
const LONGEST_NAME: usize = 256;

impl Tokens {
    pub(super) fn of(config: JwtConfig, strict_modes: StrictModes) -> Self {
        signature::install();
        Self { issuer: Arc::new(Issuer::new(config.jwks.clone(), strict_modes)), config }
    }

    /// Whose token this is at `wall`, and when it ends. One that is let in because clocks differ ends with that.
    pub(super) async fn whose(&self, token: &str, wall: Duration) -> Result<(Principal, Duration), Stranger> {
        let refuse = |why: &str| Stranger::refused(AuthFailure::InvalidToken, why);
        if token.len() > LONGEST {
            return Err(refuse("this is no token"));
        }
        // An algorithm that is not known, such as `none`, makes it unreadable.
        let header = decode_header(token).map_err(|_| refuse("this is no token"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(refuse("the token is signed in a way that does not count here"));
        }
        if header.crit.is_some() {
            return Err(refuse("the token wants something understood that is not known here"));
        }
        if !is_typed(header.typ.as_deref(), self.config.typ) {
            return Err(refuse("this type of token (`typ`) is not accepted here; send an access token"));
        }
        let key = match self.issuer.key(header.kid.as_deref(), header.alg).await {
            Ok(key) => key,
            Err(NoKey::Unknown) => return Err(refuse("the token is not signed by a key of the issuer")),
            Err(NoKey::Unreachable) => return Err(Stranger::CannotCheck),
        };
        let mut wanted = Validation::new(header.alg);
        wanted.set_issuer(&[&self.config.issuer]);
        wanted.set_audience(&[&self.config.audience]);
        wanted.set_required_spec_claims(&["exp", "iss", "aud"]);
        wanted.validate_exp = false;
        let claims = decode::<Map<String, Value>>(token, &key, &wanted)
            .map_err(|error| refuse(why(error.kind())))?
            .claims;
        self.is_meant_for_us(&claims).map_err(refuse)?;
        // From here on the signature vouches for the name, also in what is recorded of a refusal.
        let name = claims.get(&self.config.name).and_then(Value::as_str).filter(|name| is_name(name));
        let name = name.map(|name| format!("{PREFIX}{name}"));
        let ends = is_good_at(&claims, wall).map_err(|stranger| stranger.of(name.clone()))?;
        self.has_scopes(&claims).map_err(|stranger| stranger.of(name.clone()))?;
        let name = name.ok_or_else(|| refuse("the token does not say whose it is"))?;
        Ok((Principal::named(name), ends))
    }

    /// Whether these are the claims of an access token of our issuer for our audience. The library that checks the
    /// signature lets a list of issuers pass, and knows nothing of ID tokens.
    fn is_meant_for_us(&self, claims: &Map<String, Value>) -> Result<(), &'static str> {
        if claims.get("iss").and_then(Value::as_str) != Some(&self.config.issuer) {
            return Err(OF_ANOTHER_ISSUER);
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
            return Err(FOR_SOMEBODY_ELSE);
        }
        if is_id_token(claims) {
            return Err(
                "this is an ID token, which says who somebody is and authorizes nothing; send an access token",
            );
        }
        Ok(())
    }

    fn has_scopes(&self, claims: &Map<String, Value>) -> Result<(), Stranger> {
        let said = ["scope", "scp"].into_iter().filter_map(|claim| claims.get(claim));
        let granted: Vec<&str> = said
            .flat_map(|said| match said {
                Value::String(words) => words.split_ascii_whitespace().collect(),
                Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
                _ => Vec::new(),
            })
            .collect();
        let has_all = self.config.scopes.iter().all(|wanted| granted.contains(&wanted.as_str()));
        if has_all { Ok(()) } else { Err(Stranger::LacksScope { principal: None }) }
    }
}

const OF_ANOTHER_ISSUER: &str = "the token is of another issuer";
const FOR_SOMEBODY_ELSE: &str = "the token is meant for somebody else";

/// Whether the header `typ` is one that is accepted. Case does not matter, and `application/` may stand before it (RFC
/// 7515, section 4.1.9).
fn is_typed(typ: Option<&str>, accepted: TokenTypes) -> bool {
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

/// Whether claims are those of an OpenID Connect ID token: they repeat the client's `nonce`, bind an access token or a
/// code by its hash, or name their type, as Keycloak does.
fn is_id_token(claims: &Map<String, Value>) -> bool {
    let has = |claim: &str| claims.get(claim).is_some_and(|value| !value.is_null());
    let is_named = |claim: &Value| claim.as_str().is_some_and(|typ| typ.eq_ignore_ascii_case("ID"));
    ["nonce", "at_hash", "c_hash"].into_iter().any(has) || claims.get("typ").is_some_and(is_named)
}

/// Why a token is not good, in words that do not help to make one.
fn why(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidIssuer => OF_ANOTHER_ISSUER,
        ErrorKind::InvalidAudience => FOR_SOMEBODY_ELSE,
        ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) => {
            "the token does not say who issued it, for whom, and until when it is good"
        }
        _ => "the token is not signed by a key of the issuer",
    }
}

/// When a token ends that is good at `wall`.
fn is_good_at(claims: &Map<String, Value>, wall: Duration) -> Result<Duration, Stranger> {
    let refuse = |why: &str| Stranger::refused(AuthFailure::InvalidToken, why);
    let at = |claim: &str| claims.get(claim).map(|value| value.as_f64().filter(|time| time.is_finite()));
    let (now, leeway) = (wall.as_secs_f64(), LEEWAY.as_secs_f64());
    let ends = match at("exp") {
        Some(Some(until)) if now < until => until,
        Some(Some(until)) if now < until + leeway => until + leeway,
        Some(Some(_)) => return Err(Stranger::refused(AuthFailure::Expired, "the token has expired")),
        Some(None) | None => return Err(refuse("the token does not say until when it is good")),
    };
    let ends = Duration::try_from_secs_f64(ends).unwrap_or(Duration::MAX);
    match at("nbf") {
        None => Ok(ends),
        Some(Some(from)) if now + leeway >= from => Ok(ends),
        Some(_) => Err(refuse("the token is not good yet")),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= LONGEST_NAME && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::super::{Access, NotAdmitted};
    use super::*;
    use crate::request_limits::RequestLimits;
    use crate::shares::Peer;
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

    /// Somebody who issues tokens, and whose public keys are in a file.
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

        /// A token with this header and these claims, signed by the key of the curve.
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
        Tokens::of(config(file, scopes), strict_modes)
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

    async fn whose(tokens: &Tokens, token: &str) -> Result<Principal, Stranger> {
        tokens.whose(token, Duration::from_secs(NOW)).await.map(|(principal, _)| principal)
    }

    async fn why(tokens: &Tokens, token: &str) -> String {
        match whose(tokens, token).await {
            Err(Stranger::Refused { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn g05_a_token_of_the_issuer_for_us_is_whose_it_says() {
        let authority = Authority::new();
        let tokens = authority.tokens();
        let alice = Ok(Principal::named("jwt:alice"));
        assert_eq!(whose(&tokens, &authority.signs(&es256(), &claims())).await, alice);
        let several = with("aud", json!(["https://other.example", "https://mcp.example/mcp"]));
        assert_eq!(whose(&tokens, &authority.signs(&es256(), &several)).await, alice);
        let message = message(&json!({ "alg": "EdDSA", "kid": "two" }), &claims());
        let token = format!("{message}.{}", coded(authority.edwards.sign(message.as_bytes()).as_ref()));
        assert_eq!(whose(&tokens, &token).await, alice);
    }

    #[tokio::test(start_paused = true)]
    async fn g05_an_address_without_requests_left_has_no_signature_verified() {
        let authority = Authority::new();
        let access = AccessConfig { jwt: Some(config(&authority.file(), &[])), ..AccessConfig::default() };
        let limits = Arc::new(RequestLimits::new(2));
        let host = gripfast::Host::builder().build();
        let leaving = tokio_util::sync::CancellationToken::new();
        let access = Access::of(&access, None, "https://mcp.example", Some(limits), &host, leaving);
        let access = access.unwrap().unwrap();
        let address = Peer::at([192, 0, 2, 1].into());
        let shows = async |token: &str| {
            let headers = [(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())].into_iter().collect();
            match access.limited_peer(&address, &headers).await {
                Ok(_) => 200,
                Err(NotAdmitted::Stranger(_)) => 401,
                Err(NotAdmitted::TooMany(_)) => 429,
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
        assert_eq!(shows(&fresh).await, 429, "it is valid, but nobody looks");
        assert_eq!(shows(&known).await, 200, "it was valid before");
        assert_eq!(shows(&known).await, 429, "its principal has a rate, too");
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(shows(&fresh).await, 200);
    }

    #[tokio::test]
    async fn g05_tokens_without_a_signature_that_counts_are_refused() {
        let authority = Authority::new();
        let tokens = authority.tokens();
        let unsigned = message(&json!({ "alg": "none", "kid": "one" }), &claims());
        assert_eq!(why(&tokens, &format!("{unsigned}.")).await, "this is no token");
        assert_eq!(why(&tokens, &unsigned).await, "this is no token");
        let good = authority.signs(&es256(), &claims());
        let (_, signature) = good.rsplit_once('.').unwrap();
        let other = message(&es256(), &with("sub", json!("mallory")));
        let not_signed = "the token is not signed by a key of the issuer";
        assert_eq!(why(&tokens, &format!("{other}.{signature}")).await, not_signed);
        // The public key as if it were a secret.
        let hs256 = authority.signs(&json!({ "alg": "HS256", "kid": "one" }), &claims());
        assert!(why(&tokens, &hs256).await.contains("does not count"));
        let confused = authority.signs(&json!({ "alg": "ES256", "kid": "two" }), &claims());
        assert_eq!(why(&tokens, &confused).await, not_signed);
        let stranger = Authority::new().signs(&es256(), &claims());
        assert_eq!(why(&tokens, &stranger).await, not_signed);
        let critical = authority.signs(&json!({ "alg": "ES256", "kid": "one", "crit": ["b64"] }), &claims());
        assert!(why(&tokens, &critical).await.contains("not known here"));
        assert_eq!(why(&tokens, &"x".repeat(LONGEST + 1)).await, "this is no token");
    }

    #[tokio::test]
    async fn g05_tokens_of_others_for_others_or_of_another_time_are_refused() {
        let authority = Authority::new();
        let tokens = authority.tokens();
        for (claims, said) in [
            (with("iss", json!("https://evil.example")), "the token is of another issuer"),
            (with("aud", json!("https://other.example")), "the token is meant for somebody else"),
            (with("exp", json!(NOW - 61)), "the token has expired"),
            (with("nbf", json!(NOW + 61)), "the token is not good yet"),
            (with("exp", json!("tomorrow")), "the token does not say"),
            (with("exp", Value::Null), "the token does not say"),
            (with("aud", Value::Null), "the token"),
            (with("sub", json!("")), "the token does not say whose it is"),
            (with("sub", json!("a\nb")), "the token does not say whose it is"),
            (with("sub", json!(7)), "the token does not say whose it is"),
        ] {
            let why = why(&tokens, &authority.signs(&es256(), &claims)).await;
            assert!(why.starts_with(said), "{claims}: {why}");
        }
        let nearly = with("exp", json!(NOW - 59));
        assert!(whose(&tokens, &authority.signs(&es256(), &nearly)).await.is_ok(), "clocks differ");
    }

    #[tokio::test]
    async fn g05_a_token_names_one_issuer_and_our_audience_among_its_own() {
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
            let why = why(&tokens, &authority.signs(&es256(), &claims)).await;
            assert!(why.starts_with("the token"), "{claims}: {why}");
        }
    }

    #[tokio::test]
    async fn g05_an_id_token_and_other_types_of_tokens_are_refused() {
        let authority = Authority::new();
        let tokens = authority.tokens();
        let strict =
            Tokens::of(JwtConfig { typ: TokenTypes::AccessToken, ..tokens.config.clone() }, StrictModes::On);
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
                let known = whose(tokens, &token).await;
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
                let why = why(&tokens, &authority.signs(&header, &claims)).await;
                assert!(why.starts_with("this is an ID token"), "{claims}: {why}");
            }
        }
        // What Keycloak says of an access token.
        let bearer = authority.signs(&typed("JWT"), &with("typ", json!("Bearer")));
        assert!(whose(&tokens, &bearer).await.is_ok());
    }

    #[tokio::test]
    async fn a_token_needs_the_scopes_that_are_asked_for() {
        let authority = Authority::new();
        let tokens = tokens(&authority.file(), &["mcp", "tools"]);
        for (claims, enough) in [
            (claims(), false),
            (with("scope", json!("mcp other")), false),
            (with("scope", json!("tools mcp")), true),
            (with("scp", json!(["mcp", "tools"])), true),
        ] {
            let whose = whose(&tokens, &authority.signs(&es256(), &claims)).await;
            let refused = Err(Stranger::LacksScope { principal: Some("jwt:alice".to_owned()) });
            assert_eq!(whose == refused, !enough, "{claims}");
        }
    }

    #[tokio::test]
    async fn an_issuer_may_change_its_keys_and_what_it_took_back_is_good_for_nothing() {
        let authority = Authority::new();
        let tokens = authority.tokens();
        let (old, new) = (es256(), json!({ "alg": "ES256", "kid": "three" }));
        let (old, new) = (authority.signs(&old, &claims()), authority.signs(&new, &claims()));
        assert!(whose(&tokens, &old).await.is_ok() && whose(&tokens, &new).await.is_err());
        authority.publishes(&json!([authority.curve_key("three"), { "kty": "of the future" }]));
        let later = std::time::SystemTime::now() + Duration::from_secs(5);
        std::fs::File::options().append(true).open(authority.file()).unwrap().set_modified(later).unwrap();
        assert!(whose(&tokens, &new).await.is_ok() && whose(&tokens, &old).await.is_err());
        let nameless = authority.signs(&json!({ "alg": "ES256" }), &claims());
        assert!(whose(&tokens, &nameless).await.is_ok(), "there is only one that fits");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn g05_keys_in_a_file_that_others_can_write_check_nothing_unless_modes_do_not_count() {
        use std::os::unix::fs::PermissionsExt;
        let authority = Authority::new();
        let token = authority.signs(&es256(), &claims());
        std::fs::set_permissions(authority.file(), std::fs::Permissions::from_mode(0o664)).unwrap();
        let strict = tokens_by(StrictModes::On, &authority.file(), &[]);
        assert_eq!(whose(&strict, &token).await, Err(Stranger::CannotCheck));
        let lax = tokens_by(StrictModes::Off, &authority.file(), &[]);
        assert!(whose(&lax, &token).await.is_ok());
    }

    #[tokio::test]
    async fn where_the_keys_are_not_there_nothing_can_be_checked() {
        let authority = Authority::new();
        let tokens = tokens(Path::new("/nowhere/jwks.json"), &[]);
        let token = authority.signs(&es256(), &claims());
        assert_eq!(whose(&tokens, &token).await, Err(Stranger::CannotCheck));
    }

    #[tokio::test]
    async fn signatures_by_rsa_count_in_both_paddings() {
        let authority = Authority::new();
        authority.publishes(&json!([{ "kty": "RSA", "kid": "rsa", "n": MODULUS, "e": "AQAB" }]));
        let tokens = authority.tokens();
        for token in [RS256, PS256] {
            assert_eq!(whose(&tokens, token).await, Ok(Principal::named("jwt:carol")));
            let (begin, end) = token.split_at(token.len() - 100);
            let changed = if end.starts_with('A') { "B" } else { "A" };
            assert!(whose(&tokens, &format!("{begin}{changed}{}", &end[1..])).await.is_err());
        }
    }

    // Made with openssl for this test, from a key that is not kept.
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

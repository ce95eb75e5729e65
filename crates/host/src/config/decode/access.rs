//! Decodes the access keys of the table `gateway`: public URL, origins, authentication, TLS and strict modes.

use super::fields::{Field, Fields, Problems};
use crate::config::access::{AccessConfig, Jwks, JwtConfig, ListenerTls, TokenTypes, is_confidential};
use crate::config::keys;
use crate::config::keys::choices::TOKEN_TYPES;
use crate::private_files::StrictModes;
use std::net::SocketAddr;
use std::path::PathBuf;
use url::Url;

pub(super) fn access(fields: &mut Fields<'_>, listen: SocketAddr, problems: &mut Problems) -> AccessConfig {
    let mut access = AccessConfig::default();
    let public_url = fields.take("public_url");
    let has_name = public_url.is_some() || !listen.ip().is_unspecified();
    if let Some(field) = public_url
        && let Some(text) = field.text(problems)
    {
        match url(text) {
            Some(url) => access.public_url = Some(url),
            None => problems.error(
                field
                    .error("expected the URL that clients use")
                    .with_hint("for example \"https://mcp.example.com\", without `/mcp`"),
            ),
        }
    }
    access.allowed_origins = allowed_origins(fields, problems);
    if let Some(mut auth) = fields.table("auth", problems) {
        auth.flag("keys", &mut access.keys, problems);
        if let Some(field) = auth.take("jwt") {
            access.jwt = jwt(&field, problems);
            if access.jwt.is_some() && !has_name {
                problems.error(
                    field
                        .error("`auth.jwt` requires `public_url`, because `listen` is every address")
                        .with_hint("set `public_url` in the table `gateway` to the URL that clients use, for example \"https://mcp.example.com\""),
                );
            }
        }
        auth.finish(problems);
    }
    if let Some(field) = fields.take("tls") {
        access.tls = tls(&field, problems);
    }
    if fields.take("strict_modes").and_then(|field| field.flag(problems)) == Some(false) {
        access.strict_modes = StrictModes::Off;
    }
    access
}

fn allowed_origins(fields: &mut Fields<'_>, problems: &mut Problems) -> Vec<String> {
    let field = fields.take("allowed_origins");
    let mut origins = Vec::new();
    for element in field.as_ref().and_then(|field| field.elements(problems)).into_iter().flatten() {
        let Some(text) = element.text(problems) else { continue };
        // As browsers write it: without the default port, and without a path.
        let origin = url(text).map(|url| url.origin().ascii_serialization());
        match origin.filter(|origin| text.trim_end_matches('/').eq_ignore_ascii_case(origin)) {
            Some(origin) => origins.push(origin),
            None => problems.error(
                element
                    .error("expected an origin as browsers send it: scheme, host and a port that is not the default one")
                    .with_hint("for example \"http://localhost:6274\""),
            ),
        }
    }
    origins
}

fn tls(field: &Field<'_>, problems: &mut Problems) -> Option<ListenerTls> {
    let mut table = Fields::open(field, &keys::TLS, problems)?;
    let cert = optional_text(&mut table, "cert", problems);
    let key = optional_text(&mut table, "key", problems);
    table.finish(problems);
    let (Some(cert), Some(key)) = (cert, key) else {
        problems.error(
            field
                .error("expected `cert` and `key`")
                .with_hint("the PEM files of the certificate chain and of its private key"),
        );
        return None;
    };
    Some(ListenerTls { cert: PathBuf::from(cert), key: PathBuf::from(key) })
}

fn jwt(field: &Field<'_>, problems: &mut Problems) -> Option<JwtConfig> {
    let mut table = Fields::open(field, &keys::JWT, problems)?;
    let issuer = optional_confidential(&mut table, "issuer", problems);
    let audience = optional_text(&mut table, "audience", problems);
    let jwks = optional_confidential(&mut table, "jwks", problems);
    let name = optional_text(&mut table, "name", problems).unwrap_or_else(|| "sub".to_owned());
    let mut scopes = Vec::new();
    table.words("scopes", &mut scopes, problems);
    let mut typ = TokenTypes::default();
    table.choice("typ", TOKEN_TYPES, &mut typ, problems);
    table.finish(problems);
    let (Some(issuer), Some(audience), Some(jwks)) = (issuer, audience, jwks) else {
        problems.error(
            field.error("expected `issuer`, `audience` and `jwks`").with_hint(
                "the values of the claims `iss` and `aud`, and the URL or file of the issuer's keys",
            ),
        );
        return None;
    };
    let jwks = match url(&jwks) {
        Some(url) => Jwks::Url(url),
        None if jwks.contains("://") => {
            problems.error(field.error("expected the URL or the file of the issuer's keys in `jwks`"));
            return None;
        }
        None => Jwks::File(PathBuf::from(jwks)),
    };
    Some(JwtConfig { issuer, audience, jwks, name, scopes, typ })
}

/// A string that, if it is a URL, must be https, or http on loopback.
fn optional_confidential(
    table: &mut Fields<'_>,
    name: &'static str,
    problems: &mut Problems,
) -> Option<String> {
    let field = table.take(name)?;
    let text = nonempty_text(&field, problems)?;
    if url(&text).is_some_and(|url| !is_confidential(&url)) {
        problems.error(
            field
                .error("plain http is accepted for loopback addresses only")
                .with_hint("use `https://`: plain http can be read and changed on the network"),
        );
    }
    Some(text)
}

fn optional_text(table: &mut Fields<'_>, name: &'static str, problems: &mut Problems) -> Option<String> {
    nonempty_text(&table.take(name)?, problems)
}

fn nonempty_text(field: &Field<'_>, problems: &mut Problems) -> Option<String> {
    let text = field.text(problems)?;
    if text.trim().is_empty() {
        problems.error(field.error("expected a string that is not empty"));
        return None;
    }
    Some(text.to_owned())
}

fn url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

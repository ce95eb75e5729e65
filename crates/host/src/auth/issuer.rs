//! Metadata of the authorization server that the config names (`oauth.issuer`), from its own well-known URLs. Only its
//! own endpoints ever get a configured secret.

use super::http::AuthHttp;
use crate::config::is_confidential;
use rmcp::transport::auth::AuthorizationMetadata;
use url::Url;

/// Error text for a config with a secret and no issuer.
pub(crate) const MISSING_ISSUER: &str = "a `client_secret` or `private_key` needs `oauth.issuer`, the address of the \
                                  authorization server that may receive it";

/// Parses the URL of an issuer.
pub(crate) fn parse(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("`oauth.issuer` cannot be used: {error}"))?;
    if !is_confidential(&url) {
        return Err("`oauth.issuer` must begin with `https://`, or be on this machine".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
        return Err("`oauth.issuer` must not have a query, a fragment or a user name".to_owned());
    }
    Ok(url)
}

/// Returns whether an issuer named in metadata or a login is this one. A slash after the host makes no difference.
pub(super) fn is_same(named: &str, issuer: &Url) -> bool {
    Url::parse(named).is_ok_and(|named| named == *issuer)
}

/// Fetches the metadata of the issuer that the config names. Its token endpoint may get a configured secret.
pub(super) async fn configured_metadata(
    http: &AuthHttp,
    issuer: &Url,
) -> Result<AuthorizationMetadata, String> {
    let metadata = fetch_metadata(http, issuer).await?;
    if !Url::parse(&metadata.token_endpoint).is_ok_and(|endpoint| is_confidential(&endpoint)) {
        let endpoint = &metadata.token_endpoint;
        return Err(format!("the issuer's token endpoint `{endpoint}` is not an `https` address"));
    }
    Ok(metadata)
}

/// Fetches the metadata of an issuer that a server's metadata names, from the issuer's own URLs: a server could combine
/// the name of another issuer with endpoints of its own.
pub(super) async fn named_metadata(http: &AuthHttp, issuer: &str) -> Result<AuthorizationMetadata, String> {
    let url = Url::parse(issuer).map_err(|error| format!("the issuer `{issuer}` is not a URL: {error}"))?;
    fetch_metadata(http, &url).await
}

/// Fetches the metadata that an issuer publishes about itself (RFC 8414, OpenID Connect Discovery).
async fn fetch_metadata(http: &AuthHttp, issuer: &Url) -> Result<AuthorizationMetadata, String> {
    for address in well_known_urls(issuer) {
        let document = http.get_json(address.clone()).await;
        let document = document.map_err(|why| format!("the issuer's metadata at `{address}`: {why}"))?;
        let Some(metadata) = document.and_then(|document| serde_json::from_value(document).ok()) else {
            continue;
        };
        let metadata: AuthorizationMetadata = metadata;
        let named = metadata.issuer.as_deref().unwrap_or("no issuer");
        if !is_same(named, issuer) {
            return Err(format!("the metadata at `{address}` names {named} instead of {issuer}"));
        }
        return Ok(metadata);
    }
    Err(format!("the issuer {issuer} has no metadata at its well-known URLs"))
}

/// Returns the URLs at which an issuer publishes its metadata, the usual one first.
fn well_known_urls(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let mut paths = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        paths.push(format!("{path}/.well-known/openid-configuration"));
    }
    let at = |path: &String| {
        let mut address = issuer.clone();
        address.set_path(path);
        address
    };
    paths.iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_a_plain_https_or_loopback_url() {
        for good in
            ["https://id.example", "https://id.example/tenant", "http://127.0.0.1:8080", "http://localhost/x"]
        {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in [
            "http://id.example",
            "id.example",
            "https://id.example?x",
            "https://id.example#x",
            "https://me@id.example",
            "file:///etc",
            "http://10.0.0.1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn metadata_is_fetched_from_the_well_known_urls() {
        let of = |issuer: &str| -> Vec<String> {
            well_known_urls(&parse(issuer).unwrap()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            of("https://id.example"),
            [
                "https://id.example/.well-known/oauth-authorization-server",
                "https://id.example/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            of("https://id.example/tenant/"),
            [
                "https://id.example/.well-known/oauth-authorization-server/tenant",
                "https://id.example/.well-known/openid-configuration/tenant",
                "https://id.example/tenant/.well-known/openid-configuration"
            ]
        );
    }

    #[test]
    fn issuers_are_compared_as_urls_including_the_path() {
        let issuer = parse("https://id.example").unwrap();
        assert!(is_same("https://id.example/", &issuer) && is_same("https://id.example", &issuer));
        assert!(!is_same("https://id.example/tenant", &issuer) && !is_same("no issuer", &issuer));
        assert!(!is_same("https://id.example.evil", &issuer) && !is_same("http://id.example", &issuer));
    }
}

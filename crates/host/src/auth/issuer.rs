//! The authorization server that the config names (`oauth.issuer`): its metadata, from its own well-known addresses. Only
//! its own endpoints ever get a configured secret.

use super::http::AuthHttp;
use crate::config::is_confidential;
use rmcp::transport::auth::AuthorizationMetadata;
use url::Url;

/// The mistake of a config with a secret and no issuer.
pub(crate) const MISSING: &str = "a `client_secret` or `private_key` needs `oauth.issuer`, the address of the \
                                  authorization server that may receive it";

/// Reads the address of an issuer.
pub(crate) fn parse(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("`oauth.issuer` cannot be used: {error}"))?;
    if !is_confidential(&url) {
        return Err("`oauth.issuer` must begin with `https://`, or be on this machine".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
        return Err("`oauth.issuer` has no query, fragment or user name".to_owned());
    }
    Ok(url)
}

/// Whether metadata or a login name this issuer. A slash after the host goes without saying.
pub(super) fn is_same(named: &str, issuer: &Url) -> bool {
    Url::parse(named).is_ok_and(|named| named == *issuer)
}

/// Fetches the metadata of the issuer that the config names. Its token endpoint may get a configured secret.
pub(super) async fn metadata(http: &AuthHttp, issuer: &Url) -> Result<AuthorizationMetadata, String> {
    let metadata = published(http, issuer).await?;
    if !Url::parse(&metadata.token_endpoint).is_ok_and(|endpoint| is_confidential(&endpoint)) {
        let endpoint = &metadata.token_endpoint;
        return Err(format!("the issuer's token endpoint `{endpoint}` is not an `https` address"));
    }
    Ok(metadata)
}

/// Fetches the metadata of an issuer that a server's metadata names, from the issuer's own addresses: a server could
/// have put the name of another issuer onto endpoints of its own.
pub(super) async fn named(http: &AuthHttp, issuer: &str) -> Result<AuthorizationMetadata, String> {
    let url = Url::parse(issuer).map_err(|error| format!("the issuer `{issuer}` is no address: {error}"))?;
    published(http, &url).await
}

/// The metadata that an issuer publishes about itself (RFC 8414, OpenID Connect Discovery).
async fn published(http: &AuthHttp, issuer: &Url) -> Result<AuthorizationMetadata, String> {
    for address in addresses(issuer) {
        let document = http.get_json(address.clone()).await;
        let document = document.map_err(|why| format!("the issuer's metadata at `{address}`: {why}"))?;
        let Some(metadata) = document.and_then(|document| serde_json::from_value(document).ok()) else {
            continue;
        };
        let metadata: AuthorizationMetadata = metadata;
        let named = metadata.issuer.as_deref().unwrap_or("no issuer");
        if !is_same(named, issuer) {
            return Err(format!("the metadata at `{address}` is of {named}, and not of {issuer}"));
        }
        return Ok(metadata);
    }
    Err(format!("the issuer {issuer} has no metadata at its well-known addresses"))
}

/// Where an issuer publishes its metadata, the usual address first.
fn addresses(issuer: &Url) -> Vec<Url> {
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
    fn an_issuer_is_https_or_on_this_machine_and_nothing_but_an_address() {
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
    fn metadata_is_looked_for_where_the_standards_say() {
        let of = |issuer: &str| -> Vec<String> {
            addresses(&parse(issuer).unwrap()).iter().map(ToString::to_string).collect()
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
    fn an_issuer_is_compared_as_an_address_and_its_path_counts() {
        let issuer = parse("https://id.example").unwrap();
        assert!(is_same("https://id.example/", &issuer) && is_same("https://id.example", &issuer));
        assert!(!is_same("https://id.example/tenant", &issuer) && !is_same("no issuer", &issuer));
        assert!(!is_same("https://id.example.evil", &issuer) && !is_same("http://id.example", &issuer));
    }
}

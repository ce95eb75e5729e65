//! The keys of the table `gateway` about who may use it.

use super::fields::{Fields, Problems};
use crate::config::access::AccessConfig;
use url::Url;

pub(super) fn access(fields: &mut Fields<'_>, problems: &mut Problems) -> AccessConfig {
    let mut access = AccessConfig::default();
    if let Some(field) = fields.take("public_url")
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
    if let Some(mut auth) = fields.table("auth", problems) {
        if let Some(keys) = auth.take("keys").and_then(|field| field.flag(problems)) {
            access.keys = keys;
        }
        auth.finish(problems);
    }
    access
}

fn url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

//! Decodes the table `oauth` of a server.

use super::FileDialect;
use super::fields::{Field, Fields, Problems};
use crate::auth::issuer;
use crate::config::keys;
use crate::config::node::Value;
use crate::config::spec::{Grant, OAuthSpec, Target};

/// Takes the table, with the names that other clients use for its keys.
pub(super) fn oauth(fields: &mut Fields<'_>, problems: &mut Problems) -> Option<OAuthSpec> {
    let field = fields.take("oauth")?;
    // Other clients write `false` for "never". A server without a login needs no such setting.
    if field.dialect != FileDialect::Native && !matches!(field.node.value, Value::Table(_)) {
        return None;
    }
    let mut table = Fields::open(&field, &keys::OAUTH, problems)?;
    let mut spec = OAuthSpec::default();
    let issuer = table.take("issuer");
    spec.issuer = issuer.as_ref().and_then(|field| field.nonempty_template(problems));
    if let (Some(field), Some(literal)) = (&issuer, spec.issuer.as_ref().and_then(|issuer| issuer.literal()))
        && let Err(why) = issuer::parse(literal)
    {
        problems.error(field.error(why).with_hint("for example \"https://id.example.com\""));
    }
    let id = table.take_or_alias("client_id", &["clientId", "CLIENT_ID"], problems);
    spec.client_id = id.and_then(|field| field.nonempty_template(problems));
    let secret = table.take_or_alias("client_secret", &["clientSecret", "CLIENT_SECRET"], problems);
    spec.client_secret =
        secret.and_then(|field| field.nonempty_template(problems)).map(crate::config::Template::into_secret);
    let key = table.take("private_key");
    spec.private_key =
        key.and_then(|field| field.nonempty_template(problems)).map(crate::config::Template::into_secret);
    let key_id = table.take("private_key_id");
    spec.private_key_id = key_id.and_then(|field| field.text(problems).map(str::to_owned));
    let document = table.take("client_metadata_url");
    spec.client_metadata_url = document.and_then(|field| https(&field, problems));
    if let Some(field) = table.take_or_alias("scopes", &["scope"], problems) {
        spec.scopes = match (&field.node.value, field.dialect) {
            (Value::Str(text), FileDialect::Foreign | FileDialect::Hermes) => {
                text.split_whitespace().map(str::to_owned).collect()
            }
            _ => field.words(problems).unwrap_or_default(),
        };
    }
    table.choice("grant", keys::choices::GRANTS, &mut spec.grant, problems);
    if let Some(field) = table.take_or_alias("callback_port", &["callbackPort"], problems) {
        let port = field.whole_number(1..=u32::from(u16::MAX), problems);
        spec.callback_port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or_default();
    }
    table.finish(problems);
    let proofs = usize::from(spec.client_secret.is_some()) + usize::from(spec.private_key.is_some());
    match spec.grant {
        Grant::ClientCredentials if spec.client_id.is_none() || proofs != 1 => {
            let text =
                "`client_credentials` needs a `client_id`, and either a `client_secret` or a `private_key`";
            problems.error(field.error(text));
        }
        Grant::AuthorizationCode if spec.private_key.is_some() => {
            let text = "`private_key` requires `grant = \"client_credentials\"`";
            problems.error(field.error(text));
        }
        Grant::ClientCredentials | Grant::AuthorizationCode => {}
    }
    if spec.private_key_id.is_some() && spec.private_key.is_none() {
        problems.error(field.error("`private_key_id` requires `private_key`, which is missing"));
    }
    if spec.has_secret() && issuer.is_none() {
        let hint =
            "add `issuer = \"https://…\"` to `oauth`: the issuer in the authorization server's own metadata";
        problems.error(field.error(issuer::MISSING_ISSUER).with_hint(hint));
    }
    if spec.client_secret.is_some() && spec.client_id.is_none() {
        problems.error(field.error("`client_secret` requires `client_id`, which is missing"));
    }
    Some(spec)
}

/// Returns whether a server without a URL has the table.
pub(super) fn is_misplaced(fields: &Option<OAuthSpec>, target: &Target) -> bool {
    fields.is_some() && matches!(target, Target::Stdio { .. })
}

fn https(field: &Field<'_>, problems: &mut Problems) -> Option<String> {
    let text = field.text(problems)?;
    if text.starts_with("https://") {
        return Some(text.to_owned());
    }
    problems.error(field.error("expected an address that begins with `https://`"));
    None
}

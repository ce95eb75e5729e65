//! The table `oauth` of a server.

use crate::auth::issuer;
use crate::config::fields::{Field, FileDialect, Problems};
use crate::config::keys::{Codec, KeyValue, ValueKind, impl_codec, keys, table, words};
use crate::config::node::Value;
use crate::config::template::Template;

keys! {
    /// Settings of the OAuth client for the authorization server of a server with a `url`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct OAuthSpec: Default, check credentials {
        /// Address of the authorization server (`https`, or on this machine). Tokens are requested at its own
        /// endpoints, whatever the server names. Required with a `client_secret` or a `private_key`, which are sent to
        /// no other authorization server, and for an authorization server in a private network.
        pub issuer: Option<Template> as Option<Issuer> = None, "the authorization server that the server names";
        /// Id of a client that is already registered at the authorization server.
        pub client_id | "clientId" | "CLIENT_ID": Option<Template> = None, "gripfast registers a client";
        /// Secret of `client_id`, if it has one.
        pub client_secret | "clientSecret" | "CLIENT_SECRET": Option<Template> as Option<Secret> = None;
        /// PEM key (PKCS #8; P-256, P-384, Ed25519, or RSA) with which the client signs instead of sending a secret
        /// (`private_key_jwt`); with `client_credentials`. Usually a reference: `"${file:/run/secrets/key}"`.
        pub private_key: Option<Template> as Option<Secret> = None;
        /// Id of `private_key` at the authorization server (`kid`), if it requires one.
        pub private_key_id: Option<String> = None;
        /// The `https` address of a client metadata document, for authorization servers that identify clients by such
        /// documents. Used if there is no `client_id`.
        pub client_metadata_url: Option<String> as Option<HttpsAddress> = None;
        /// Scopes to request.
        pub scopes | "scope": Vec<String> as Scopes = Vec::new(), "the scopes that the server asks for";
        /// OAuth grant: with `authorization_code` a person logs in by `gripfast login`; with `client_credentials` the
        /// client uses its `client_id` and its `client_secret` or `private_key`, without a person.
        pub grant: Grant = Grant::AuthorizationCode;
        /// Port on which `gripfast login` waits for the browser. Set it if the client was registered with a fixed port.
        pub callback_port | "callbackPort": u16 [1..=u16::MAX] = 0, "any free port";
    }
}

impl OAuthSpec {
    /// Returns whether there is a secret, which must be sent only to the configured authorization server.
    pub fn has_secret(&self) -> bool {
        self.client_secret.is_some() || self.private_key.is_some()
    }
}

/// OAuth grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grant {
    /// A person logs in with a browser.
    #[default]
    AuthorizationCode,
    /// The client authenticates with its own secret or signature.
    ClientCredentials,
}

words!(Grant { AuthorizationCode = "authorization_code", ClientCredentials = "client_credentials" });

/// Codec of the table, which other clients replace by `false`.
pub(super) struct OptionalOAuth;

impl Codec for OptionalOAuth {
    type Value = Option<OAuthSpec>;
    type Range = ();

    fn kind((): ()) -> ValueKind {
        ValueKind::Table(table::<OAuthSpec>)
    }

    fn read(field: &Field<'_>, (): (), problems: &mut Problems) -> Option<Option<OAuthSpec>> {
        match (&field.node.value, field.dialect) {
            (Value::Table(_), _) => OAuthSpec::read(field, (), problems).map(Some),
            (_, FileDialect::Native) => problems.refuse(field.expected("a table")),
            // Other clients write `false` for "never". A server without a login needs no such setting.
            (_, FileDialect::Foreign | FileDialect::Hermes) => None,
        }
    }

    fn settings(_: &Option<OAuthSpec>, _: &str, _: Option<&str>) -> Vec<KeyValue> {
        Vec::new()
    }
}

fn credentials(spec: &mut OAuthSpec, field: &Field<'_>, _is_clean: bool, problems: &mut Problems) {
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
    if spec.has_secret() && field.get("issuer").is_none() {
        let hint =
            "add `issuer = \"https://…\"` to `oauth`: the issuer in the authorization server's own metadata";
        problems.error(field.error(issuer::MISSING_ISSUER).with_hint(hint));
    }
    if spec.client_secret.is_some() && spec.client_id.is_none() {
        problems.error(field.error("`client_secret` requires `client_id`, which is missing"));
    }
}

/// Codec of `issuer`.
struct Issuer;

impl_codec!(Issuer => Template, ValueKind::Text, read_issuer);

fn read_issuer(field: &Field<'_>, problems: &mut Problems) -> Option<Template> {
    let issuer = field.nonempty_template(problems)?;
    if let Some(Err(why)) = issuer.literal().map(issuer::parse) {
        problems.error(field.error(why).with_hint("for example \"https://id.example.com\""));
    }
    Some(issuer)
}

/// Codec of a string that `Debug` does not show.
struct Secret;

impl_codec!(
    Secret => Template,
    ValueKind::Text,
    |field, problems| field.nonempty_template(problems).map(Template::into_secret)
);

/// Codec of `client_metadata_url`.
struct HttpsAddress;

impl_codec!(HttpsAddress => String, ValueKind::Text, read_https_address);

fn read_https_address(field: &Field<'_>, problems: &mut Problems) -> Option<String> {
    let text = field.text(problems)?;
    if text.starts_with("https://") {
        return Some(text.to_owned());
    }
    problems.refuse(field.error("expected an address that begins with `https://`"))
}

/// Codec of `scopes`; other clients write them as one string.
struct Scopes;

impl_codec!(Scopes => Vec<String>, ValueKind::TextList, read_scopes);

fn read_scopes(field: &Field<'_>, problems: &mut Problems) -> Option<Vec<String>> {
    match (&field.node.value, field.dialect) {
        (Value::Str(text), FileDialect::Foreign | FileDialect::Hermes) => {
            Some(text.split_whitespace().map(str::to_owned).collect())
        }
        _ => field.words(problems),
    }
}

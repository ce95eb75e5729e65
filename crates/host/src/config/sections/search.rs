//! The table `gateway.search`: the optional ranking of tools by embeddings.

use crate::config::fields::{Field, Problems};
use crate::config::keys::{NonEmpty, ValueKind, impl_codec, keys};
use crate::config::sections::target::endpoint;
use crate::config::template::Template;
use crate::config::units::DurationRange;
use std::time::Duration;

const QUERY_RANGE: DurationRange = DurationRange::between(Duration::from_millis(10), Duration::from_secs(10));

keys! {
    /// Search over tools. Without this table tools are found by their words, in the gateway itself. Changes take effect
    /// at the next start.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SearchConfig: Default {
        /// Endpoint that ranks tools by meaning, besides the ranking by words. Off by default: with it, the texts of tools
        /// and the queries of `search_tools` are sent to this endpoint.
        pub embeddings: Option<EmbeddingsConfig> = None;
    }
}

keys! {
    /// Endpoint for embeddings with the API of OpenAI, such as OpenAI itself, Ollama, vLLM or LM Studio. gripfast sends
    /// it the names, titles, descriptions and parameters of tools, the names of their servers, and the queries of
    /// `search_tools`; nothing else. If it does not answer, tools are found by their words alone.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct EmbeddingsConfig, check require_endpoint {
        /// URL of the endpoint, with its path: `"https://api.openai.com/v1/embeddings"`. With `key` or `headers` it must
        /// be https, or http on loopback.
        pub url: Template as EndpointTemplate = Template::default(), required;
        /// Name of the model: `"text-embedding-3-small"`.
        pub model: String as NonEmpty = String::new(), required;
        /// API key, sent as `Authorization: Bearer`. Keep it out of this file with `${env:NAME}` or `${file:PATH}`.
        pub key: Option<Template> as Option<SecretTemplate> = None;
        /// Further headers, for endpoints that want the key elsewhere: `{ api-key = "${env:NAME}" }`.
        pub headers: Vec<(String, Template)> as HeaderTemplates = Vec::new();
        /// Time limit for the embedding of a query. After it the search answers by words alone, and the endpoint is asked
        /// again after some seconds. Too short: a slow endpoint is never used. Too long: searches wait for an endpoint
        /// that is away.
        pub timeout: Duration [QUERY_RANGE] = Duration::from_millis(300);
    }
}

fn require_endpoint(
    embeddings: &mut EmbeddingsConfig,
    field: &Field<'_>,
    is_clean: bool,
    problems: &mut Problems,
) {
    if field.get("url").is_none() || field.get("model").is_none() {
        let hint = "the URL of the endpoint, such as \"http://127.0.0.1:11434/v1/embeddings\", and the name of a model";
        problems.error(field.error("expected `url` and `model`").with_hint(hint));
    } else if let (true, Some(url), Some(text)) = (is_clean, field.get("url"), embeddings.url.literal())
        && let Err(error) = endpoint(text)
    {
        problems.error(url.error(error.to_string()));
    }
}

/// Codec of `url`, whose password is not shown.
struct EndpointTemplate;

impl_codec!(
    EndpointTemplate => Template,
    ValueKind::Text,
    |field, problems| field.nonempty_template(problems).map(Template::into_url)
);

/// Codec of `key`.
struct SecretTemplate;

impl_codec!(
    SecretTemplate => Template,
    ValueKind::Text,
    |field, problems| field.nonempty_template(problems).map(Template::into_secret)
);

/// Codec of `headers`.
struct HeaderTemplates;

impl_codec!(
    HeaderTemplates => Vec<(String, Template)>,
    ValueKind::map(ValueKind::Text),
    read_headers
);

fn read_headers(field: &Field<'_>, problems: &mut Problems) -> Option<Vec<(String, Template)>> {
    let mut headers = Vec::new();
    for (key, field) in field.pairs(problems) {
        if http::HeaderName::from_bytes(key.name.as_bytes()).is_err() {
            problems.error(field.error(format!("`{}` cannot be the name of a header", key.name)));
        }
        headers.push((key.name.clone(), field.nonempty_template(problems)?.into_secret()));
    }
    Some(headers)
}

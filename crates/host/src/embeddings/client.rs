//! HTTP client of the embeddings endpoint: one request for some texts, and the checks of its answer.

use crate::config::{EmbeddingsConfig, endpoint, is_confidential};
use crate::transport::{HttpEndpoint, expand};
use bytes::Bytes;
use gripfast_core::failure::classify::classify;
use gripfast_core::failure::{During, Evidence, Observed};
use gripfast_core::redact;
use gripfast_core::search::Embedding;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// Largest answer. A batch of long vectors has a few megabytes.
const MAX_ANSWER: usize = 16 << 20;

/// Time limit for a batch of tools. No search waits for it, and a model on a small machine may need long.
pub(super) const BATCH_TIMEOUT: Duration = Duration::from_secs(60);

/// Reason why an endpoint sent no embeddings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum EmbeddingsError {
    /// It refuses this request. The next one may be fine.
    #[error("{0}")]
    Refused(String),
    /// It cannot be used for now.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for EmbeddingsError {
    fn from(cause: String) -> Self {
        Self::Failed(cause)
    }
}

/// Open client of an endpoint, with expanded secrets.
pub(super) struct EmbeddingsClient {
    requester: HttpEndpoint,
    headers: HeaderMap,
    model: String,
    /// URL without secrets, for messages.
    shown: String,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<AnswerItem>,
}

#[derive(Deserialize)]
struct AnswerItem {
    index: Option<usize>,
    embedding: Vec<f32>,
}

impl EmbeddingsClient {
    /// Expands the references of the config. Connects only when something is sent.
    pub(super) async fn open(config: &EmbeddingsConfig) -> Result<Self, String> {
        let url = expanded(expand(&config.url).await, "url")?;
        let url = endpoint(&url).map_err(|error| format!("`gateway.search.embeddings.url`: {error}"))?;
        let shown = redact::url(url.as_str());
        let mut headers = HeaderMap::new();
        if let Some(key) = &config.key {
            let key = expanded(expand(key).await, "key")?;
            headers.insert(AUTHORIZATION, header_value(&format!("Bearer {key}"), "key")?);
        }
        for (name, value) in &config.headers {
            let value = header_value(&expanded(expand(value).await, "headers")?, "headers")?;
            let name: HeaderName =
                name.parse().map_err(|_| format!("`{name}` cannot be the name of a header"))?;
            headers.insert(name, value);
        }
        if !headers.is_empty() && !is_confidential(&url) {
            return Err(format!("`{shown}` is not an `https` address, so no key is sent there"));
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let requester = HttpEndpoint::new(&url).map_err(|evidence| error_text(&shown, &evidence))?;
        Ok(Self { requester, headers, model: config.model.clone(), shown })
    }

    /// The vectors of these texts, in their order.
    pub(super) async fn embed(
        &self,
        texts: &[String],
        within: Duration,
    ) -> Result<Vec<Embedding>, EmbeddingsError> {
        let body = json!({ "model": self.model, "input": texts }).to_string();
        let sending = self.requester.send(Method::POST, self.headers.clone(), Bytes::from(body), MAX_ANSWER);
        let answer = match tokio::time::timeout(within, sending).await {
            Ok(answer) => answer.map_err(|evidence| error_text(&self.shown, &evidence))?,
            Err(_) => return Err(format!("`{}` did not answer within {within:?}", self.shown).into()),
        };
        match answer.status() {
            status if status.is_success() => {}
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                let step = "set a valid `key` in the table `gateway.search.embeddings`";
                return Err(format!("`{}` refuses the key ({status}): {step}", self.shown).into());
            }
            StatusCode::NOT_FOUND => {
                let step = "check `url` and `model` in the table `gateway.search.embeddings`";
                return Err(format!("`{}` does not exist (404): {step}", self.shown).into());
            }
            status @ (StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY) => {
                return Err(EmbeddingsError::Refused(format!("`{}` answered with {status}", self.shown)));
            }
            status => return Err(format!("`{}` answered with {status}", self.shown).into()),
        }
        read(answer.body(), texts.len())
            .map_err(|why| format!("`{}` did not answer with embeddings: {why}", self.shown).into())
    }
}

/// Reads the vectors of `count` texts.
fn read(body: &[u8], count: usize) -> Result<Vec<Embedding>, String> {
    let answer: Answer = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if answer.data.len() != count {
        return Err(format!("{} vectors for {count} texts", answer.data.len()));
    }
    let mut vectors: Vec<Option<Embedding>> = vec![None; count];
    for (place, item) in answer.data.into_iter().enumerate() {
        let slot = vectors.get_mut(item.index.unwrap_or(place));
        let slot = slot.filter(|slot| slot.is_none()).ok_or("a vector has a wrong index")?;
        *slot = Some(Embedding::new(&item.embedding).map_err(|error| error.to_string())?);
    }
    let vectors: Vec<Embedding> = vectors.into_iter().flatten().collect();
    match vectors.iter().all(|vector| vector.dimension() == vectors[0].dimension()) {
        true => Ok(vectors),
        false => Err("vectors of different dimensions".to_owned()),
    }
}

fn expanded(value: Result<String, Observed>, key: &str) -> Result<String, String> {
    value.map_err(|observed| {
        let evidence = Evidence::unsent(During::Handshake, observed);
        format!("`gateway.search.embeddings.{key}` cannot be used: {}", classify(&evidence))
    })
}

fn header_value(text: &str, key: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| format!("`gateway.search.embeddings.{key}` is not a valid header value"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn error_text(shown: &str, evidence: &Evidence) -> String {
    match &evidence.observed {
        // The limit is fixed, so the advice about servers does not apply.
        Observed::TooLarge(limit) => format!("`{shown}` sent an answer larger than {limit} bytes"),
        _ => format!("`{shown}`: {}", classify(evidence)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dimension_of(answer: &str, count: usize) -> Result<usize, String> {
        read(answer.as_bytes(), count).map(|vectors| vectors[0].dimension())
    }

    #[test]
    fn vectors_are_sorted_by_their_index() {
        let answer = br#"{"object":"list","data":[{"index":1,"embedding":[0,2]},{"index":0,"embedding":[3,0]}],"usage":{}}"#;
        let vectors = read(answer, 2).unwrap();
        assert_eq!(vectors, [Embedding::new(&[1.0, 0.0]).unwrap(), Embedding::new(&[0.0, 1.0]).unwrap()]);
        assert_eq!(dimension_of(r#"{"data":[{"embedding":[1]},{"embedding":[1]}]}"#, 2), Ok(1));
    }

    /// G05
    #[tokio::test]
    async fn g05_no_key_is_sent_over_plain_http_to_another_machine() {
        let template = |text: &str| crate::config::Template::parse(text).unwrap();
        let config = EmbeddingsConfig {
            url: template("http://192.0.2.1/v1/embeddings"),
            model: "small".to_owned(),
            key: Some(template("sesame")),
            headers: Vec::new(),
            timeout: Duration::from_millis(300),
        };
        let why = EmbeddingsClient::open(&config).await.err().unwrap();
        assert_eq!(
            why,
            "`http://192.0.2.1/v1/embeddings` is not an `https` address, so no key is sent there"
        );
        assert!(EmbeddingsClient::open(&EmbeddingsConfig { key: None, ..config }).await.is_ok());
    }

    #[test]
    fn answers_that_are_no_embeddings_are_refused() {
        for (answer, why) in [
            ("", "EOF"),
            ("<html>", "expected value"),
            (r#"{"error":{"message":"no"}}"#, "missing field `data`"),
            (r#"{"data":[]}"#, "0 vectors for 2 texts"),
            (r#"{"data":[{"embedding":[1]},{"embedding":[1,2]}]}"#, "different dimensions"),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#, "wrong index"),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":9,"embedding":[1]}]}"#, "wrong index"),
            (r#"{"data":[{"embedding":[1]},{"embedding":[NaN]}]}"#, "expected value"),
            (r#"{"data":[{"embedding":[1]},{"embedding":[1e300]}]}"#, "out of range"),
            (r#"{"data":[{"embedding":[1]},{"embedding":[0]}]}"#, "zeros"),
            (r#"{"data":[{"embedding":[1]},{"embedding":[]}]}"#, "without numbers"),
            (r#"{"data":[{"embedding":"AAAA"},{"embedding":[1]}]}"#, "invalid type"),
        ] {
            let error = dimension_of(answer, 2).unwrap_err();
            assert!(error.contains(why), "{answer}: {error}");
        }
    }
}

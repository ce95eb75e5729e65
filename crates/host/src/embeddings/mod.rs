//! Optional ranking of tools by embeddings (`gateway.search.embeddings`), besides the lexical index.
//!
//! A task of the host sends the texts of tools in batches after the catalog has changed, and asks an endpoint that has
//! failed again after a pause. A search waits for one vector only: that of its query, for a short time. Everything here
//! may be missing; then the lexical ranking is the answer. Vectors are kept in memory, by the digest of their text.
//!
//! An endpoint that refuses a request may refuse one of its texts only. A batch is then sent in halves, until the
//! refused text is alone. If the endpoint answers another text, the refused one stays without a vector.

mod client;

use self::client::{BATCH_TIMEOUT, EmbeddingsClient, EmbeddingsError};
use crate::catalog::{CatalogSnapshot, tool_texts};
use crate::clock::Clock;
use crate::config::EmbeddingsConfig;
use crate::host::{Host, HostInner};
use crate::sync::Mutex;
use gripfast_core::search::{Embedding, EmbeddingTable, EndpointHealth};
use gripfast_core::text::escaped;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::AbortHandle;

/// Texts of one request.
const BATCH: usize = 32;
/// Memory for the vectors of tools. Ten thousand vectors of 1,536 numbers fit. Tools beyond it are found by words only.
const MAX_BYTES: usize = 64 << 20;
/// Queries whose vectors are kept.
const MAX_QUERIES: usize = 256;
/// Queries that wait for the endpoint, or are compared with the tools, at the same time. Others are answered by words
/// alone.
const MAX_WAITING: usize = 16;
/// Text that is sent to see whether an endpoint is back, or refuses every text.
const PROBE: &str = "tools";

type TextDigest = [u8; 32];

/// Vectors of the tools of a host, and the endpoint that computes them.
pub(crate) struct ToolEmbeddings {
    config: EmbeddingsConfig,
    clock: Clock,
    state: Mutex<VectorState>,
    /// Wakes the task after a query has failed or was refused.
    failed_query: Notify,
    waiting: Arc<Semaphore>,
    task: Mutex<Option<AbortHandle>>,
}

#[derive(Default)]
struct VectorState {
    health: EndpointHealth,
    /// Closed after a failure, so that rotated secrets are read again.
    client: Option<Arc<EmbeddingsClient>>,
    /// Set by the first vector.
    dimension: Option<usize>,
    known: BTreeMap<TextDigest, Arc<Embedding>>,
    bytes: usize,
    /// Tools of the catalog with the digests of their texts.
    tools: Vec<(String, TextDigest)>,
    /// Tools without a vector, in the order in which they are sent.
    missing: VecDeque<(TextDigest, String)>,
    table: Arc<EmbeddingTable>,
    /// Texts of tools that the endpoint refuses.
    refused: BTreeSet<TextDigest>,
    /// Texts of the next request at most, while the endpoint refuses a batch.
    batch: Option<usize>,
    /// A query was refused: the endpoint may refuse every text.
    is_suspect: bool,
    /// Latest queries, newest first. Those that the endpoint refuses have no vector.
    queries: VecDeque<(TextDigest, Option<Arc<Embedding>>)>,
}

/// The vector of a query, with the permit for its comparison.
pub(crate) struct QueryVector {
    pub(crate) vector: Arc<Embedding>,
    pub(crate) permit: OwnedSemaphorePermit,
}

/// State of the embeddings endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingsStatus {
    /// Name of the model.
    pub model: String,
    /// Tools that can be searched.
    pub tools: usize,
    /// Tools that have a vector.
    pub embedded: usize,
    /// Cause, while the endpoint fails and tools are found by their words alone.
    pub cause: Option<String>,
}

impl ToolEmbeddings {
    pub(crate) fn new(config: EmbeddingsConfig, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            config,
            clock,
            state: Mutex::default(),
            failed_query: Notify::new(),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            task: Mutex::default(),
        })
    }

    /// Starts the task. It ends with the host.
    pub(crate) fn start(self: &Arc<Self>, host: &Host) {
        let (own, host, changes) =
            (Arc::clone(self), Arc::downgrade(&host.inner), host.inner.change_signal.subscribe());
        *self.task.lock() = Some(tokio::spawn(own.run(host, changes)).abort_handle());
    }

    /// Ends the task.
    pub(crate) fn stop(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }

    pub(crate) fn status(&self) -> EmbeddingsStatus {
        let state = self.state.lock();
        EmbeddingsStatus {
            model: self.config.model.clone(),
            tools: state.tools.len(),
            embedded: state.table.len(),
            cause: state.health.cause().map(str::to_owned),
        }
    }

    /// Vectors of the tools that have one.
    pub(crate) fn table(&self) -> Arc<EmbeddingTable> {
        Arc::clone(&self.state.lock().table)
    }

    /// The vector of a query; `None` if it is not known in time, or if too many queries wait.
    pub(crate) async fn query_vector(&self, query: &str) -> Option<QueryVector> {
        let permit = Arc::clone(&self.waiting).try_acquire_owned().ok()?;
        let digest = digest(query);
        let client = {
            let mut state = self.state.lock();
            if let Some(known) = state.known_query(&digest) {
                return known.map(|vector| QueryVector { vector, permit });
            }
            if state.table.is_empty() || state.health.retry_at().is_some() {
                return None;
            }
            state.client.clone()?
        };
        let answer = client.embed(&[query.to_owned()], self.config.timeout).await;
        match answer.and_then(|mut vectors| Ok(self.learn_query(digest, vectors.remove(0))?)) {
            Ok(vector) => Some(QueryVector { vector, permit }),
            Err(error) => {
                match error {
                    EmbeddingsError::Refused(_) => self.refuse_query(digest),
                    EmbeddingsError::Failed(cause) => self.fail(cause),
                }
                self.failed_query.notify_one();
                None
            }
        }
    }

    fn learn_query(&self, digest: TextDigest, vector: Embedding) -> Result<Arc<Embedding>, String> {
        let mut state = self.state.lock();
        state.check_dimension(&vector)?;
        let vector = Arc::new(vector);
        state.add_query(digest, Some(Arc::clone(&vector)));
        Ok(vector)
    }

    /// Notes that the endpoint refuses a query. Other queries are still sent.
    fn refuse_query(&self, digest: TextDigest) {
        let mut state = self.state.lock();
        state.add_query(digest, None);
        state.is_suspect = true;
    }

    async fn run(self: Arc<Self>, host: Weak<HostInner>, mut changes: watch::Receiver<u64>) {
        let mut revision = None;
        loop {
            changes.borrow_and_update();
            let Some(inner) = host.upgrade() else { return };
            self.follow_catalog(&Host { inner }, &mut revision).await;
            let (retry_at, is_suspect, batch) = {
                let mut state = self.state.lock();
                (state.health.retry_at(), std::mem::take(&mut state.is_suspect), state.next_batch())
            };
            if let Some(at) = retry_at.filter(|at| self.clock.mono() < *at) {
                tokio::time::sleep_until(self.clock.instant(at)).await;
                continue;
            }
            if batch.is_empty() && retry_at.is_none() && !is_suspect {
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    () = self.failed_query.notified() => {}
                }
                continue;
            }
            match self.embed(&batch).await {
                Ok(vectors) => self.learn(&batch, vectors),
                Err(EmbeddingsError::Refused(cause)) => self.split(&batch, cause).await,
                Err(EmbeddingsError::Failed(cause)) => self.fail(cause),
            }
        }
    }

    /// Sends less in the next request. A text that is refused alone is left out, if the endpoint answers another text.
    async fn split(&self, batch: &[(TextDigest, String)], cause: String) {
        let [(digest, _)] = batch else {
            return match batch.len() {
                0 => self.fail(cause),
                count => self.state.lock().batch = Some(count / 2),
            };
        };
        match self.embed(&[]).await {
            Ok(_) => {
                let tool = self.state.lock().refuse(*digest).unwrap_or_default();
                let tool = escaped(&tool);
                tracing::warn!(
                    "the embeddings endpoint refuses the text of tool `{tool}`, which is found by its words alone: {cause}"
                );
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// Takes over the tools of the present catalog, if it has changed.
    async fn follow_catalog(&self, host: &Host, revision: &mut Option<u64>) {
        let snapshot = host.is_searchable().then(|| host.catalog_snapshot());
        let current = snapshot.as_ref().map(|snapshot| snapshot.revision);
        if *revision == current {
            return;
        }
        let texts = match snapshot {
            Some(snapshot) => {
                tokio::task::spawn_blocking(move || texts_of(&snapshot)).await.unwrap_or_default()
            }
            None => Vec::new(),
        };
        self.state.lock().set_tools(texts);
        *revision = current;
    }

    async fn embed(&self, batch: &[(TextDigest, String)]) -> Result<Vec<Embedding>, EmbeddingsError> {
        let opened = self.state.lock().client.clone();
        let client = match opened {
            Some(client) => client,
            None => Arc::new(EmbeddingsClient::open(&self.config).await?),
        };
        let texts: Vec<String> = match batch {
            [] => vec![PROBE.to_owned()],
            batch => batch.iter().map(|(_, text)| text.clone()).collect(),
        };
        let vectors = client.embed(&texts, BATCH_TIMEOUT).await?;
        let mut state = self.state.lock();
        for vector in &vectors {
            state.check_dimension(vector)?;
        }
        state.client = Some(client);
        Ok(vectors)
    }

    fn learn(&self, batch: &[(TextDigest, String)], vectors: Vec<Embedding>) {
        let mut state = self.state.lock();
        for ((digest, _), vector) in batch.iter().zip(vectors) {
            state.insert(*digest, vector);
        }
        state.missing.retain(|(digest, _)| !batch.iter().any(|(sent, _)| sent == digest));
        state.batch =
            state.batch.filter(|_| !batch.is_empty()).map(|size| size * 2).filter(|size| *size < BATCH);
        state.drop_beyond_room();
        state.publish();
        if state.health.answered() {
            tracing::info!("the embeddings endpoint answers again; tools are found by words and by meaning");
        }
    }

    fn fail(&self, cause: String) {
        let mut state = self.state.lock();
        state.client = None;
        if state.health.failed(cause.clone(), self.clock.mono()) {
            tracing::warn!("embeddings cannot be used, tools are found by their words alone: {cause}");
        }
    }
}

impl VectorState {
    /// A known query, with its vector if the endpoint did not refuse it.
    fn known_query(&mut self, digest: &TextDigest) -> Option<Option<Arc<Embedding>>> {
        let at = self.queries.iter().position(|(known, _)| known == digest)?;
        let query = self.queries.remove(at)?;
        let vector = query.1.clone();
        self.queries.push_front(query);
        Some(vector)
    }

    fn add_query(&mut self, digest: TextDigest, vector: Option<Arc<Embedding>>) {
        self.queries.push_front((digest, vector));
        self.queries.truncate(MAX_QUERIES);
    }

    /// Texts of the next request.
    fn next_batch(&self) -> Vec<(TextDigest, String)> {
        self.missing.iter().take(self.batch.unwrap_or(BATCH)).cloned().collect()
    }

    /// Leaves out a text that the endpoint refuses. Returns the name of its tool.
    fn refuse(&mut self, digest: TextDigest) -> Option<String> {
        self.missing.retain(|(missing, _)| *missing != digest);
        self.refused.insert(digest);
        self.tools.iter().find(|(_, of)| *of == digest).map(|(tool, _)| tool.clone())
    }

    /// Drops texts whose vectors would not fit into memory, so that they are not sent in vain.
    fn drop_beyond_room(&mut self) {
        let Some(dimension) = self.dimension else { return };
        let wanted: BTreeSet<&TextDigest> = self.tools.iter().map(|(_, digest)| digest).collect();
        let known = wanted.into_iter().filter_map(|digest| self.known.get(digest));
        let bytes: usize = known.map(|vector| vector.heap_bytes()).sum();
        self.missing.truncate(MAX_BYTES.saturating_sub(bytes) / (dimension * size_of::<f32>()));
    }

    fn check_dimension(&mut self, vector: &Embedding) -> Result<(), String> {
        let (found, expected) = (vector.dimension(), *self.dimension.get_or_insert(vector.dimension()));
        if found == expected {
            return Ok(());
        }
        let step = "if the model behind its name has changed, restart the gateway";
        Err(format!(
            "the embeddings endpoint sent a vector of {found} numbers, but earlier ones had {expected}; {step}"
        ))
    }

    /// Takes over the tools of a catalog with their texts.
    fn set_tools(&mut self, texts: Vec<(String, String)>) {
        let (mut tools, mut missing, mut seen) = (Vec::new(), VecDeque::new(), BTreeSet::new());
        for (tool, text) in texts {
            let digest = digest(&text);
            tools.push((tool, digest));
            let has_answer = self.known.contains_key(&digest) || self.refused.contains(&digest);
            if !has_answer && seen.insert(digest) {
                missing.push_back((digest, text));
            }
        }
        (self.tools, self.missing) = (tools, missing);
        if !self.refused.is_empty() {
            let present: BTreeSet<&TextDigest> = self.tools.iter().map(|(_, digest)| digest).collect();
            self.refused.retain(|digest| present.contains(digest));
        }
        self.drop_beyond_room();
        self.publish();
    }

    /// Keeps a vector, if there is room. Vectors of tools that are gone make room first.
    fn insert(&mut self, digest: TextDigest, vector: Embedding) {
        let bytes = vector.heap_bytes();
        if self.bytes + bytes > MAX_BYTES {
            let wanted: BTreeSet<&TextDigest> = self.tools.iter().map(|(_, digest)| digest).collect();
            self.known.retain(|digest, _| wanted.contains(digest));
            self.bytes = self.known.values().map(|vector| vector.heap_bytes()).sum();
        }
        if self.bytes + bytes <= MAX_BYTES && self.known.insert(digest, Arc::new(vector)).is_none() {
            self.bytes += bytes;
        }
    }

    fn publish(&mut self) {
        let known =
            |(tool, digest): &(String, TextDigest)| Some((tool.clone(), Arc::clone(self.known.get(digest)?)));
        self.table = Arc::new(EmbeddingTable::new(self.tools.iter().filter_map(known)));
    }
}

impl Host {
    /// State of the embeddings endpoint; `None` if there is none.
    pub fn embeddings_status(&self) -> Option<EmbeddingsStatus> {
        self.inner.embeddings.as_ref().map(|embeddings| embeddings.status())
    }
}

/// Asks an embeddings endpoint once. Returns the number of numbers in its vectors.
///
/// # Errors
/// The reason, as a text for people.
pub async fn check_embeddings(config: &EmbeddingsConfig) -> Result<usize, String> {
    let client = EmbeddingsClient::open(config).await?;
    let vectors = client.embed(&[PROBE.to_owned()], BATCH_TIMEOUT / 4).await;
    let vectors = vectors.map_err(|error| error.to_string())?;
    Ok(vectors[0].dimension())
}

fn texts_of(snapshot: &CatalogSnapshot) -> Vec<(String, String)> {
    tool_texts(snapshot, gripfast_core::search::embedding_text)
}

fn digest(text: &str) -> TextDigest {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(numbers: &[f32]) -> Embedding {
        Embedding::new(numbers).unwrap()
    }

    fn tools(names: &[&str]) -> Vec<(String, String)> {
        names.iter().map(|name| ((*name).to_owned(), format!("text of {name}"))).collect()
    }

    #[test]
    fn a_text_is_sent_once_whatever_tools_have_it_and_whenever() {
        let mut state = VectorState::default();
        let same = |name: &str| (name.to_owned(), "same".to_owned());
        state.set_tools(vec![same("a"), same("b")]);
        assert_eq!(state.missing.len(), 1);
        state.insert(digest("same"), vector(&[1.0]));
        state.set_tools(Vec::new());
        assert_eq!((state.table.len(), state.missing.len()), (0, 0));
        state.set_tools(vec![same("b"), same("c")]);
        assert_eq!((state.table.len(), state.missing.len()), (2, 0), "the vector was kept");
    }

    #[test]
    fn vectors_take_bounded_memory_and_those_of_absent_tools_go_first() {
        let mut state = VectorState::default();
        let long = vec![1.0; 8192];
        let fit = MAX_BYTES / (8192 * 4);
        let names: Vec<String> = (0..fit + 3).map(|number| number.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        state.set_tools(tools(&names[..fit]));
        for (tool, text) in tools(&names[..fit]) {
            assert!(!tool.is_empty());
            state.insert(digest(&text), vector(&long));
        }
        state.set_tools(tools(&names[2..]));
        for (_, text) in tools(&names[fit..]) {
            state.insert(digest(&text), vector(&long));
        }
        state.publish();
        assert_eq!((state.known.len(), state.table.len()), (fit, fit), "one tool has no vector");
        assert!(state.bytes <= MAX_BYTES);
    }

    #[test]
    fn tools_beyond_the_memory_are_not_sent_again_with_each_change() {
        let mut state = VectorState::default();
        let long = vec![1.0; 8192];
        let fit = MAX_BYTES / (8192 * 4);
        let names: Vec<String> = (0..fit + 40).map(|number| number.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        state.set_tools(tools(&names));
        assert_eq!(state.missing.len(), fit + 40, "the dimension is not known yet");
        while let Some((digest, _)) = state.missing.pop_front() {
            state.check_dimension(&vector(&long)).unwrap();
            state.insert(digest, vector(&long));
            state.drop_beyond_room();
        }
        assert_eq!(state.known.len(), fit);
        state.set_tools(tools(&names));
        assert_eq!(state.missing.len(), 0, "there is no room");
        state.set_tools(tools(&names[5..]));
        assert_eq!(state.missing.len(), 5, "absent tools make room");
    }

    #[test]
    fn a_refused_text_is_not_sent_again_while_a_tool_has_it() {
        let mut state = VectorState::default();
        state.set_tools(tools(&["a", "b"]));
        assert_eq!(state.refuse(digest("text of a")).as_deref(), Some("a"));
        for _ in 0..2 {
            state.set_tools(tools(&["a", "b"]));
            assert_eq!(state.next_batch(), [(digest("text of b"), "text of b".to_owned())]);
        }
        state.set_tools(tools(&["b"]));
        assert!(state.refused.is_empty(), "absent texts are forgotten");
    }

    fn without_endpoint() -> Arc<ToolEmbeddings> {
        let config = EmbeddingsConfig {
            url: Default::default(),
            model: "m".to_owned(),
            key: None,
            headers: Vec::new(),
            timeout: std::time::Duration::from_millis(300),
        };
        ToolEmbeddings::new(config, Clock::new())
    }

    #[tokio::test]
    async fn known_queries_wait_for_a_permit_like_others() {
        let embeddings = without_endpoint();
        embeddings.learn_query(digest("rain"), vector(&[1.0])).unwrap();
        let mut compared = Vec::new();
        for _ in 0..MAX_WAITING {
            compared.push(embeddings.query_vector("rain").await.unwrap());
        }
        assert!(embeddings.query_vector("rain").await.is_none(), "too many are compared");
        compared.pop();
        assert!(embeddings.query_vector("rain").await.is_some());
    }

    #[test]
    fn latest_queries_are_kept() {
        let embeddings = without_endpoint();
        for number in 0..MAX_QUERIES + 9 {
            embeddings.learn_query(digest(&number.to_string()), vector(&[1.0, 2.0])).unwrap();
        }
        let mut state = embeddings.state.lock();
        assert_eq!(state.queries.len(), MAX_QUERIES);
        assert!(state.known_query(&digest("0")).is_none());
        assert!(state.known_query(&digest("9")).is_some());
        let why = state.check_dimension(&vector(&[1.0])).unwrap_err();
        assert!(why.contains("1 numbers, but earlier ones had 2"), "{why}");
    }
}

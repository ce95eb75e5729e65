//! Search over the tools of the merged catalog. The index is updated together with the catalog, by the tools that have
//! changed. A search uses only the tools that its client may see, for scores too.

use super::snapshot::CatalogSnapshot;
use crate::client::Principal;
use crate::embeddings::QueryVector;
use crate::host::Host;
use gripfast_core::catalog::Item;
use gripfast_core::search::{EmbeddingTable, Hit, ParameterText, ToolIndex, ToolText, VisibleTools, fuse};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

/// Tools of each ranking that are merged, at least.
const MIN_FUSED: usize = 50;

/// Views whose visible tools are kept. As many as there are cached views.
const MAX_VIEWS: usize = 64;

/// Index of the tools of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct ToolSearch {
    index: ToolIndex,
    /// The snapshot that the index has the tools of.
    indexed: Option<Arc<CatalogSnapshot>>,
    /// Number of tools that were added to the index, or replaced in it, so far.
    inserted: u64,
    /// Some tools did not fit into the index.
    is_full: bool,
    /// Visible tools of the views that were searched since the last change, newest first.
    views: Vec<(Weak<CatalogSnapshot>, VisibleTools)>,
}

/// A tool that matches a search.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundTool {
    /// Its public name.
    pub name: String,
    /// Its server.
    pub server: String,
    /// Relevance; higher is better.
    pub score: f32,
}

impl Host {
    /// Searches the tools that clients of this principal see, best first. `server` limits the search to one server.
    pub fn search_tools(
        &self,
        principal: &Principal,
        query: &str,
        limit: usize,
        server: Option<&str>,
    ) -> Vec<FoundTool> {
        let current = self.catalog_snapshot();
        let view = self.catalog_snapshot_for(principal);
        let mut search = self.inner.catalog_cache.search.lock();
        search.update(&current);
        let hits = search.search(&view, query, limit, server);
        drop(search);
        hits.into_iter().filter_map(|hit| found_tool(&view, hit)).collect()
    }

    /// Searches as [`Host::search_tools`] does, and by embeddings too if the host has an endpoint for them. Waits for
    /// the endpoint for a short time only; without its answer the tools are found by their words.
    pub async fn find_tools(
        &self,
        principal: &Principal,
        query: &str,
        limit: usize,
        server: Option<&str>,
    ) -> Vec<FoundTool> {
        let by_words = |limit| self.search_tools(principal, query, limit, server);
        let Some(embeddings) = &self.inner.embeddings else { return by_words(limit) };
        let Some(question) = embeddings.query_vector(query).await else { return by_words(limit) };
        let count = limit.max(MIN_FUSED);
        let view = self.catalog_snapshot_for(principal);
        let nearest = nearest(embeddings.table(), question, count, &view, server).await;
        let words = by_words(count).into_iter().map(|found| found.name).collect();
        let hits = fuse(&[words, nearest], limit).into_iter();
        hits.filter_map(|hit| found_tool(&view, hit)).collect()
    }

    /// Number of tools that were added to the search index, or replaced in it, so far.
    pub fn indexed_tools(&self) -> u64 {
        self.inner.catalog_cache.search.lock().inserted
    }

    /// Updates the index after the merged catalog has changed.
    pub(super) fn index_tools(&self, snapshot: &Arc<CatalogSnapshot>) {
        if self.is_searchable() {
            self.inner.catalog_cache.search.lock().update(snapshot);
        }
    }
}

impl ToolSearch {
    /// Searches the tools of a view.
    fn search(
        &mut self,
        view: &Arc<CatalogSnapshot>,
        query: &str,
        limit: usize,
        server: Option<&str>,
    ) -> Vec<Hit> {
        let is_whole = self.indexed.as_ref().is_some_and(|indexed| Arc::ptr_eq(indexed, view));
        if !is_whole {
            self.prepare(view);
        }
        let visible = (!is_whole).then(|| &self.views[0].1);
        self.index.search(query, limit, visible, |tool| is_of(view, tool, server))
    }

    /// Moves the visible tools of a view to the front, computed again if the index has changed.
    fn prepare(&mut self, view: &Arc<CatalogSnapshot>) {
        let index = &self.index;
        self.views.retain(|(_, visible)| visible.is_valid_for(index));
        match self.views.iter().position(|(known, _)| known.as_ptr() == Arc::as_ptr(view)) {
            Some(at) => self.views[..=at].rotate_right(1),
            None => {
                let visible = index.visible_tools(|tool| view.merged.tool(tool).is_some());
                self.views.insert(0, (Arc::downgrade(view), visible));
                self.views.truncate(MAX_VIEWS);
            }
        }
    }

    /// Brings the index to this snapshot, unless it has a later one.
    fn update(&mut self, snapshot: &Arc<CatalogSnapshot>) {
        let before = self.indexed.take();
        if let Some(before) = before.as_ref().filter(|before| before.revision >= snapshot.revision) {
            self.indexed = Some(Arc::clone(before));
            return;
        }
        let merged = &snapshot.merged;
        // Tools that are gone make room for others.
        if let Some(before) = &before {
            let present: BTreeSet<&str> =
                merged.tools.entries.iter().map(|entry| entry.public.as_str()).collect();
            for entry in before.merged.tools.entries.iter().filter(|entry| !present.contains(&*entry.public))
            {
                self.index.remove(&entry.public);
            }
        }
        for entry in &merged.tools.entries {
            let source = &merged.sources[entry.source];
            let item = &source.catalog.tools[entry.item];
            let known = before.as_ref().and_then(|before| before.merged.tool(&entry.public));
            let is_known = known.is_some_and(|(to, known)| {
                to.server == source.server && known.key == item.key && known.raw.get() == item.raw.get()
            });
            if !is_known || !self.index.has_text_of(&entry.public) {
                insert(&mut self.index, &entry.public, &source.server, item);
                self.inserted += 1;
            }
        }
        self.warn_if_full(merged.tools.entries.len());
        self.indexed = Some(Arc::clone(snapshot));
    }

    /// Logs that the index is full, once until it has room for all tools.
    fn warn_if_full(&mut self, tools: usize) {
        let (names_only, absent) = (self.index.names_only(), tools.saturating_sub(self.index.len()));
        let is_full = names_only + absent > 0;
        if is_full && !self.is_full {
            tracing::warn!(
                "the search index is full: {names_only} tools are found by their names alone, and {absent} not at all"
            );
        }
        self.is_full = is_full;
    }
}

/// Returns true for a tool of the view that belongs to the wanted server.
fn is_of(view: &CatalogSnapshot, tool: &str, server: Option<&str>) -> bool {
    let owner = view.merged.tool(tool).map(|(to, _)| to.server);
    owner.is_some_and(|owner| server.is_none_or(|wanted| wanted == owner))
}

fn found_tool(view: &CatalogSnapshot, hit: Hit) -> Option<FoundTool> {
    let (to, _) = view.merged.tool(&hit.key)?;
    Some(FoundTool { server: to.server.to_owned(), name: hit.key, score: hit.score })
}

/// The visible tools nearest to a question. Thousands of long vectors take milliseconds, so they are compared on another
/// thread.
async fn nearest(
    table: Arc<EmbeddingTable>,
    question: QueryVector,
    count: usize,
    view: &Arc<CatalogSnapshot>,
    server: Option<&str>,
) -> Vec<String> {
    let (view, server) = (Arc::clone(view), server.map(str::to_owned));
    let compare = move || {
        // The permit ends with the comparison, even if the client has gone.
        let QueryVector { vector, permit: _permit } = question;
        table.nearest(&vector, count, |tool| is_of(&view, tool, server.as_deref()))
    };
    tokio::task::spawn_blocking(compare).await.unwrap_or_default()
}

/// A text of each tool, by its public name.
pub(crate) fn tool_texts(
    snapshot: &CatalogSnapshot,
    text: fn(&ToolText<'_>) -> String,
) -> Vec<(String, String)> {
    let merged = &snapshot.merged;
    let tools = merged.tools.entries.iter().map(|entry| {
        let source = &merged.sources[entry.source];
        let text = with_text(&source.server, &source.catalog.tools[entry.item], text);
        (entry.public.clone(), text)
    });
    tools.collect()
}

fn insert(index: &mut ToolIndex, public: &str, server: &str, item: &Item) {
    with_text(server, item, |text| index.insert(public, text));
}

/// Reads the text of a tool.
fn with_text<T>(server: &str, item: &Item, read: impl FnOnce(&ToolText<'_>) -> T) -> T {
    let tool: Value = serde_json::from_str(item.raw.get()).unwrap_or(Value::Null);
    let properties = tool["inputSchema"]["properties"].as_object();
    let parameters: Vec<ParameterText<'_>> = properties
        .into_iter()
        .flatten()
        .map(|(name, schema)| ParameterText { name, description: schema["description"].as_str() })
        .collect();
    read(&ToolText {
        server,
        name: &item.key,
        title: tool["title"].as_str().or_else(|| tool["annotations"]["title"].as_str()),
        description: tool["description"].as_str(),
        parameters: &parameters,
    })
}

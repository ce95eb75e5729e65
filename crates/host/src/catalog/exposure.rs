//! Exposure of the merged catalog: the tools that are in a client's list, and those that it finds by search. `core`
//! decides; this module applies the decision to a snapshot.

use super::snapshot::{CatalogSnapshot, RenderedList};
use crate::host::{Host, HostEntry};
use crate::sync::RwLock;
use gripfast_core::catalog::merge::MergedCatalog;
use gripfast_core::exposure::{self, ExposedTool, Exposure, ExposureRule, ExposureSettings};
use gripfast_core::token_estimate::estimate_tokens;
use gripfast_wire::{Era, Json};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Settings of the host, and whether any server uses search.
#[derive(Debug, Default)]
pub(crate) struct ExposureState {
    settings: RwLock<Arc<ExposureSettings>>,
    is_searchable: AtomicBool,
}

impl Host {
    /// Sets the exposure of tools to clients. Servers may have a setting of their own.
    pub fn set_exposure(&self, settings: ExposureSettings) {
        let state = &self.inner.catalog_cache.exposure;
        *state.settings.write() = Arc::new(settings);
        self.refresh_searchable();
        self.inner.change_signal.notify();
    }

    /// The exposure of tools to clients.
    pub fn exposure(&self) -> Arc<ExposureSettings> {
        Arc::clone(&self.inner.catalog_cache.exposure.settings.read())
    }

    /// Returns true if a server has an exposure other than [`Exposure::All`], so that clients may have to search.
    pub fn is_searchable(&self) -> bool {
        self.inner.catalog_cache.exposure.is_searchable.load(Ordering::Acquire)
    }

    /// The exposure of a server.
    ///
    /// # Errors
    /// There is no server with this name.
    pub fn server_exposure(&self, server: &str) -> Result<Exposure, gripfast_core::failure::CallError> {
        Ok(self.entry(server)?.exposure().unwrap_or(self.exposure().exposure))
    }

    /// Notes whether any server uses search, after the settings or the servers have changed.
    pub(crate) fn refresh_searchable(&self) {
        let settings = self.exposure();
        let uses_search =
            |entry: &Arc<HostEntry>| entry.exposure().unwrap_or(settings.exposure) != Exposure::All;
        let is_searchable = self.entries().iter().any(uses_search);
        self.inner.catalog_cache.exposure.is_searchable.store(is_searchable, Ordering::Release);
    }
}

impl HostEntry {
    /// The server's own exposure.
    fn exposure(&self) -> Option<Exposure> {
        self.spec.as_ref().and_then(|spec| spec.exposure)
    }

    /// The rule for its tools.
    pub(super) fn exposure_rule(&self, settings: &ExposureSettings) -> ExposureRule {
        let always = self.spec.as_ref().map_or(&[][..], |spec| &spec.always);
        ExposureRule::new(settings, self.exposure(), always)
    }
}

/// Exposure of the tools of one snapshot.
#[derive(Debug, Default)]
pub(super) struct SnapshotExposure {
    /// Tokens of a list above which tools with `auto` are found by search.
    limit: u32,
    /// Clients get the search tools even if no tool is hidden: the gateway uses search, and so does a server.
    offers_search: bool,
    /// In the order of the merged tools. Empty if all tools are in the list.
    tools: Vec<ExposedTool>,
    listed: OnceLock<Option<ListedTools>>,
}

/// The tools in a client's list, if others are hidden.
#[derive(Debug)]
struct ListedTools {
    places: Vec<usize>,
    tools: RenderedList,
    legacy_tools: Option<RenderedList>,
}

impl PartialEq for SnapshotExposure {
    fn eq(&self, other: &Self) -> bool {
        (self.limit, self.offers_search, &self.tools) == (other.limit, other.offers_search, &other.tools)
    }
}

impl SnapshotExposure {
    /// The exposure of all tools of `merged`, whose sources have these rules. Tokens of a tool that has not changed are
    /// taken from the snapshot `before`.
    pub(super) fn of(
        merged: &MergedCatalog,
        rules: &[ExposureRule],
        settings: &ExposureSettings,
        before: Option<&CatalogSnapshot>,
    ) -> Self {
        let mut tools: Vec<ExposedTool> = Vec::with_capacity(merged.tools.entries.len());
        for entry in &merged.tools.entries {
            let item = &merged.sources[entry.source].catalog.tools[entry.item];
            let exposure = rules[entry.source].of_tool(&entry.public, &item.key);
            tools.push(ExposedTool { exposure, tokens: 0 });
        }
        let uses_search = |rule: &ExposureRule| rule.exposure() == Exposure::Search;
        let offers_search = settings.exposure == Exposure::Search && rules.iter().any(uses_search);
        if tools.iter().all(|tool| tool.exposure == Exposure::All) {
            return Self { limit: settings.limit, offers_search, ..Self::default() };
        }
        for (entry, tool) in merged.tools.entries.iter().zip(&mut tools) {
            let raw = &merged.sources[entry.source].catalog.tools[entry.item].raw;
            let known = before.and_then(|before| before.known_tokens(&entry.public, raw));
            tool.tokens = known.unwrap_or_else(|| tokens_of(&entry.public, raw));
        }
        Self { limit: settings.limit, offers_search, tools, listed: OnceLock::new() }
    }

    /// The exposure of the tools at these places.
    pub(super) fn filtered(&self, places: &[usize]) -> Self {
        let tools = if self.tools.is_empty() {
            Vec::new()
        } else {
            places.iter().map(|at| self.tools[*at]).collect()
        };
        Self { limit: self.limit, offers_search: self.offers_search, tools, listed: OnceLock::new() }
    }
}

impl CatalogSnapshot {
    /// The tools in the list of clients of this era.
    pub fn listed_tools(&self, era: Era) -> &RenderedList {
        match (self.listed(), era) {
            (None, _) => self.tools_for(era),
            (Some(ListedTools { legacy_tools: Some(tools), .. }), Era::Legacy) => tools,
            (Some(listed), Era::Legacy | Era::Modern) => &listed.tools,
        }
    }

    /// The tools in the list of a client that has loaded these tools; `None` if that is [`Self::listed_tools`].
    pub fn listed_tools_with(&self, era: Era, loaded: &[String]) -> Option<RenderedList> {
        let listed = self.listed()?;
        let loaded: BTreeSet<usize> =
            loaded.iter().filter_map(|name| self.merged.tools.position(name)).collect();
        let places: BTreeSet<usize> = loaded.iter().chain(&listed.places).copied().collect();
        if places.len() == listed.places.len() {
            return None;
        }
        Some(self.tools_for(era).filtered(&places.into_iter().collect::<Vec<_>>()))
    }

    /// Returns true if the search tools are in the list: some tools are not, or the gateway uses search for a server.
    pub fn offers_search(&self) -> bool {
        self.exposure.offers_search || self.listed().is_some()
    }

    /// Returns true if the tool with this public name is in the list.
    pub fn is_listed(&self, tool: &str) -> bool {
        match (self.merged.tools.position(tool), self.listed()) {
            (Some(at), Some(listed)) => listed.places.binary_search(&at).is_ok(),
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// The definition of a tool as clients of this era get it, by its public name.
    pub fn tool_definition(&self, era: Era, tool: &str) -> Option<&str> {
        let at = self.merged.tools.position(tool)?;
        Some(self.tools_for(era).page(at, 1).0)
    }

    /// Estimated tokens of all tools, and of those in the list.
    pub fn estimated_tokens(&self) -> (u64, u64) {
        let tools = &self.exposure.tools;
        if tools.is_empty() {
            let merged = &self.merged;
            let tokens = merged.tools.entries.iter().map(|entry| {
                let item = &merged.sources[entry.source].catalog.tools[entry.item];
                u64::from(tokens_of(&entry.public, &item.raw))
            });
            let all = tokens.sum();
            return (all, all);
        }
        let all: u64 = tools.iter().map(|tool| u64::from(tool.tokens)).sum();
        let listed = self
            .listed()
            .map_or(all, |listed| listed.places.iter().map(|at| u64::from(tools[*at].tokens)).sum());
        (all, listed)
    }

    fn listed(&self) -> Option<&ListedTools> {
        let exposure = &self.exposure;
        let decide = || {
            let places = exposure::listed(&exposure.tools, exposure.limit)?;
            let tools = self.tools.filtered(&places);
            let legacy_tools = self.legacy_tools.as_ref().map(|tools| tools.filtered(&places));
            Some(ListedTools { places, tools, legacy_tools })
        };
        exposure.listed.get_or_init(decide).as_ref()
    }

    /// The tokens of a tool, if it is the same as in this snapshot.
    fn known_tokens(&self, public: &str, raw: &Json) -> Option<u32> {
        let at = self.merged.tools.position(public)?;
        let entry = &self.merged.tools.entries[at];
        let known = &self.merged.sources[entry.source].catalog.tools[entry.item];
        (known.raw.get() == raw.get()).then(|| Some(self.exposure.tools.get(at)?.tokens))?
    }
}

impl RenderedList {
    /// Estimated tokens of a list of tools.
    pub fn estimated_tokens(&self) -> u64 {
        let tokens = self.iter().map(|tool| {
            let tool: Value = serde_json::from_str(tool).unwrap_or(Value::Null);
            u64::from(tokens_of_definition(tool["name"].as_str().unwrap_or_default(), &tool))
        });
        tokens.sum()
    }
}

/// Estimated tokens of what a client gives its model of a tool: name, description and schema of the arguments, in JSON
/// without spaces.
fn tokens_of(public: &str, raw: &Json) -> u32 {
    let tool: Value = serde_json::from_str(raw.get()).unwrap_or(Value::Null);
    tokens_of_definition(public, &tool)
}

fn tokens_of_definition(public: &str, tool: &Value) -> u32 {
    let given = json!({
        "name": public,
        "description": tool["description"],
        "inputSchema": tool["inputSchema"],
    });
    u32::try_from(estimate_tokens(&given.to_string())).unwrap_or(u32::MAX)
}

//! Compares gripfast's estimate of tokens with a tokenizer, for the catalog of each collected server.

use std::collections::BTreeMap;
use std::path::Path;

use gripfast_measure::figure::Figure;
use gripfast_measure::{MeasureError, Result};
use serde_json::{Value, json};

use crate::catalog::Collected;
use crate::drivers;
use crate::packages::Packages;

/// Largest error of a valid estimate.
const MAX_ERROR: f64 = 0.1;

/// The catalog with the largest error.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EstimateError {
    pub(crate) catalogs: usize,
    server: String,
    encoding: String,
    estimated: u64,
    counted: u64,
}

impl EstimateError {
    /// Estimates and counts the tokens of each catalog.
    pub(crate) fn measure(index: &Path, packages: &Packages, collected: &Collected) -> Result<Self> {
        let mut catalogs: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for (key, tool) in &collected.definitions {
            let server = key.split('/').next().unwrap_or_default();
            catalogs.entry(server).or_default().push(tool.clone());
        }
        let lists: Vec<&[Value]> = catalogs.values().map(Vec::as_slice).collect();
        let estimates = drivers::tokens(index, &lists)?;
        let texts: Vec<String> = lists.iter().flat_map(|list| list.iter().map(given)).collect();
        let mut largest: Option<Self> = None;
        for (encoding, counts) in drivers::count_tokens(packages, &texts)? {
            let mut counts = counts.into_iter();
            for ((server, tools), estimated) in catalogs.iter().zip(&estimates) {
                let (server, encoding) = ((*server).to_owned(), encoding.clone());
                let counted = counts.by_ref().take(tools.len()).sum();
                let error = Self { catalogs: lists.len(), server, encoding, estimated: *estimated, counted };
                if largest.as_ref().is_none_or(|largest| largest.share() < error.share()) {
                    largest = Some(error);
                }
            }
        }
        largest.ok_or_else(|| MeasureError::new("tokens", &"no catalogs"))
    }

    fn share(&self) -> f64 {
        self.estimated.abs_diff(self.counted) as f64 / self.counted.max(1) as f64
    }

    /// The goal with its measured value.
    pub(crate) fn goal(&self) -> Figure {
        let Self { catalogs, server, encoding, estimated, counted } = self;
        Figure {
            goal: format!(
                "estimated tokens of each of {catalogs} catalogs: at most 10 % from `gpt-tokenizer`"
            ),
            measured: format!(
                "largest error {:.1} %: `{server}`, {estimated} estimated, {counted} counted, {encoding}",
                self.share() * 100.0
            ),
            met: self.share() <= MAX_ERROR,
        }
    }
}

/// Text of a tool that a model reads, as the gateway counts it.
fn given(tool: &Value) -> String {
    let members =
        ["name", "description", "inputSchema"].map(|member| (member.to_owned(), tool[member].clone()));
    json!(members.into_iter().collect::<serde_json::Map<String, Value>>()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_above_ten_percent_misses_the_goal() {
        let error = |estimated| EstimateError {
            catalogs: 40,
            server: "files".to_owned(),
            encoding: "o200k_base".to_owned(),
            estimated,
            counted: 1000,
        };
        assert!(error(1100).goal().met && error(900).goal().met);
        assert!(!error(1101).goal().met && !error(899).goal().met);
        let measured = error(1200).goal().measured;
        assert_eq!(measured, "largest error 20.0 %: `files`, 1200 estimated, 1000 counted, o200k_base");
    }
}

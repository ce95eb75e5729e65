//! Drives the measured searches: gripfast's index through a program of ours, FastMCP's transform through a script.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use gripfast_measure::{MeasureError, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bm25::LIMIT;
use crate::catalog::PublicTool;
use crate::packages::Packages;

/// Script of the tests that counts the tokens of texts.
const TOKENIZER_SCRIPT: &str = include_str!("../../../testkit/peers/count-tokens.mjs");

const FASTMCP_SCRIPT: &str = include_str!("../../search/fastmcp_search.py");

/// Answers and measurements of gripfast's index.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IndexReport {
    pub(crate) tools: usize,
    pub(crate) answers: Vec<Vec<String>>,
    pub(crate) build_ms: f64,
    pub(crate) heap_bytes: usize,
    pub(crate) resident_bytes: u64,
    pub(crate) search_p50_us: f64,
    pub(crate) search_p99_us: f64,
    pub(crate) update_tools: usize,
    pub(crate) update_ms: f64,
}

/// Asks gripfast's index. With `copies`, the tools are copied until there are so many.
pub(crate) fn gripfast(
    program: &Path,
    tools: &[PublicTool],
    questions: &[String],
    copies: Option<usize>,
) -> Result<IndexReport> {
    let mut command = Command::new(program);
    if let Some(count) = copies {
        command.arg("scale").arg(count.to_string());
    }
    answer(&mut command, tools, questions)
}

/// Asks FastMCP's search transform, as a client of a FastMCP server with all tools.
pub(crate) fn fastmcp(
    packages: &Packages,
    tools: &[PublicTool],
    questions: &[String],
) -> Result<Vec<Vec<String>>> {
    let mut command = Command::new(packages.fastmcp()?);
    answer(command.args(["-c", FASTMCP_SCRIPT]), tools, questions)
}

/// Estimated tokens of lists of tools, by gripfast's estimate.
pub(crate) fn tokens(program: &Path, lists: &[&[Value]]) -> Result<Vec<u64>> {
    exchange(Command::new(program).arg("tokens"), &json!(lists))
}

/// Tokens of each text by `gpt-tokenizer`, for each of its encodings.
pub(crate) fn count_tokens(packages: &Packages, texts: &[String]) -> Result<BTreeMap<String, Vec<u64>>> {
    let dir = packages.tokenizer()?;
    let script = dir.join("count-tokens.mjs");
    std::fs::write(&script, TOKENIZER_SCRIPT)?;
    exchange(Command::new("node").arg(script).env("PEER_MODULES", dir), &json!(texts))
}

fn answer<T: DeserializeOwned>(
    command: &mut Command,
    tools: &[PublicTool],
    questions: &[String],
) -> Result<T> {
    exchange(command, &json!({"tools": tools, "questions": questions, "limit": LIMIT}))
}

/// Gives a program its input and reads its answer.
fn exchange<T: DeserializeOwned>(command: &mut Command, input: &Value) -> Result<T> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let shown = command.get_program().to_string_lossy().into_owned();
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.to_string().as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(MeasureError::new(&shown, &output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| MeasureError::new(&shown, &error))
}

//! Measures a gateway with the collected catalogs: the tokens that a client lists, and the time from a list change of a
//! server until the search finds its new tool. The servers are copies of this program that replay a catalog.

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gripfast_measure::{MeasureError, Result};
use serde_json::{Value, json};

use crate::catalog::{Collected, RunningServer};
use crate::drivers;

/// Repetitions of a list change, of which the median is reported.
const CHANGES: usize = 9;

/// Pause before each list change: gripfast lists a server at most twice within a second.
const BETWEEN_CHANGES: Duration = Duration::from_millis(1100);

/// Longest wait for a new tool.
const PATIENCE: Duration = Duration::from_secs(30);

/// Tool of a replayed server that adds a tool, before it answers.
const ADD: &str = "bench_add_tool";

/// Lists and times of a gateway with all servers and `exposure = "search"`.
#[derive(Debug)]
pub(crate) struct GatewayReport {
    pub(crate) tools: usize,
    /// Estimated tokens of the list of a client, and of the full list.
    pub(crate) listed_tokens: u64,
    pub(crate) all_tokens: u64,
    /// Time from the request for a list change until a search has found the new tool: median and longest.
    pub(crate) change_ms: f64,
    pub(crate) longest_change_ms: f64,
    /// Tools of the server that changed.
    pub(crate) changed_tools: usize,
}

/// Programs of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatewayInputs<'a> {
    pub(crate) gripfast: &'a Path,
    pub(crate) index: &'a Path,
    pub(crate) dir: &'a Path,
}

/// Runs a gateway over all collected catalogs.
pub(crate) fn measure(programs: GatewayInputs<'_>, collected: &Collected) -> Result<GatewayReport> {
    let Some((largest, _, changed_tools)) = collected.listed.iter().max_by_key(|(_, _, tools)| tools) else {
        return Err(MeasureError::new("catalogs", &"no servers"));
    };
    if collected.definitions.len() < collected.tools.len() {
        return Err(MeasureError::new(
            "catalogs.json",
            &"an older run wrote it; run without --keep-catalogs",
        ));
    }
    let home = tempfile::tempdir()?;
    let own = std::env::current_exe()?;
    let dir = std::path::absolute(programs.dir)?;
    let mut config = "[gateway]\nexposure = \"search\"\nstartup_wait = \"600s\"\n".to_owned();
    for (server, _, _) in &collected.listed {
        let args = json!(["--replay", server, "--dir", dir]);
        config.push_str(&format!("[servers.{server}]\ncommand = {}\nargs = {args}\n", json!(own)));
    }
    let file = home.path().join("gripfast.toml");
    std::fs::write(&file, config)?;
    let mut command = Command::new(std::path::absolute(programs.gripfast)?);
    command.arg("stdio").arg("--config").arg(&file).arg("--state-dir").arg(home.path().join("state"));
    let mut gateway = RunningServer::spawn("gripfast stdio", command, home.path())?;
    gateway.initialize()?;
    let listed = list(&mut gateway, &json!({}))?;
    let all = list(&mut gateway, &json!({"_meta": {"gripfast/exposure": "all"}}))?;
    let all: Vec<Value> = all.into_iter().filter(|tool| !listed.contains(tool)).collect();
    let tokens = drivers::tokens(programs.index, &[&listed, &all])?;
    let mut times = Vec::new();
    for round in 0..CHANGES {
        std::thread::sleep(BETWEEN_CHANGES);
        times.push(change(&mut gateway, largest, round)?.as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(GatewayReport {
        tools: all.len(),
        listed_tokens: tokens[0],
        all_tokens: tokens[1],
        change_ms: times[CHANGES / 2],
        longest_change_ms: times[CHANGES - 1],
        changed_tools: *changed_tools,
    })
}

fn list(gateway: &mut RunningServer, params: &Value) -> Result<Vec<Value>> {
    let mut tools = Vec::new();
    let mut params = params.clone();
    loop {
        let mut page = gateway.request("tools/list", params.clone())?;
        if let Value::Array(found) = page["tools"].take() {
            tools.extend(found);
        }
        match page["nextCursor"].take() {
            Value::String(cursor) => params["cursor"] = cursor.into(),
            _ => return Ok(tools),
        }
    }
}

/// Lets a server add a tool, and searches until it is found. The time includes the request to the server, its
/// notification, the new listing and the searches.
fn change(gateway: &mut RunningServer, server: &str, round: usize) -> Result<Duration> {
    let word = format!("novelty{round}");
    let start = Instant::now();
    let arguments = json!({"name": format!("{server}__{ADD}"), "arguments": {"word": word}});
    gateway.request("tools/call", json!({"name": "call_tool", "arguments": arguments}))?;
    let search = json!({"name": "search_tools", "arguments": {"query": word, "limit": 1}});
    while start.elapsed() < PATIENCE {
        let found = gateway.request("tools/call", search.clone())?;
        let name = found["structuredContent"]["tools"][0]["name"].as_str();
        if name.is_some_and(|name| name.ends_with(&word)) {
            return Ok(start.elapsed());
        }
    }
    Err(MeasureError::new("search_tools", &format!("the new tool of `{server}` was not found")))
}

/// Serves the collected catalog of a server on stdin and stdout.
pub(crate) fn replay(dir: &Path, server: &str) -> Result<()> {
    let mut collected = Collected::read(dir)?;
    let of_server = |key: &String| key.split_once('/').is_some_and(|(name, _)| name == server);
    collected.definitions.retain(|key, _| of_server(key));
    let mut tools: Vec<Value> = collected.definitions.into_values().collect();
    let word = json!({"type": "object", "properties": {"word": {"type": "string"}}});
    tools.push(json!({"name": ADD, "description": "Adds a tool.", "inputSchema": word}));
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Value = match serde_json::from_str(&line?) {
            Ok(message) => message,
            Err(_) => continue,
        };
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": server, "version": "1"},
            }),
            Some("tools/list") => json!({"tools": tools}),
            Some("tools/call") => {
                let name = &message["params"]["arguments"]["word"];
                tools.push(
                    json!({"name": name, "description": "A new tool.", "inputSchema": {"type": "object"}}),
                );
                writeln!(out, "{}", json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))?;
                json!({"content": []})
            }
            Some("ping") => json!({}),
            Some(_) | None => Value::Null,
        };
        if message["id"].is_null() {
            continue;
        }
        let mut answer = json!({"jsonrpc": "2.0", "id": message["id"]});
        match result {
            Value::Null => answer["error"] = json!({"code": -32601, "message": "method not found"}),
            result => answer["result"] = result,
        }
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

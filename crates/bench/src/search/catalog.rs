//! Collects the catalogs of public servers: starts each over stdio, lists its tools and stops it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use gripfast_measure::{MeasureError, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::packages::Packages;
use crate::servers::PublicServer;

/// Servers that are installed and listed at the same time.
const WORKERS: usize = 2;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Most pages of a list.
const MAX_PAGES: usize = 50;

/// A tool of a public server: the text that search reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PublicTool {
    pub(crate) server: String,
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) parameters: Vec<PublicParameter>,
}

/// A parameter of a tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PublicParameter {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
}

impl PublicTool {
    fn parse(server: &str, tool: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let parameters = tool["inputSchema"]["properties"].as_object().into_iter().flatten();
        Some(Self {
            server: server.to_owned(),
            name: text(&tool["name"])?,
            title: text(&tool["title"]).or_else(|| text(&tool["annotations"]["title"])),
            description: text(&tool["description"]),
            parameters: parameters
                .map(|(name, schema)| PublicParameter {
                    name: name.clone(),
                    description: text(&schema["description"]),
                })
                .collect(),
        })
    }

    /// Its name in the questions.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.server, self.name)
    }
}

/// The tools of all servers that could be listed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Collected {
    pub(crate) tools: Vec<PublicTool>,
    /// Listed servers with package, version and number of tools.
    pub(crate) listed: Vec<(String, String, usize)>,
    /// Servers that were left out, with the reason.
    pub(crate) failed: Vec<(String, String)>,
    /// Definitions of the tools as their servers wrote them, by [`PublicTool::key`].
    #[serde(default)]
    pub(crate) definitions: BTreeMap<String, Value>,
}

impl Collected {
    /// The catalogs of the last run.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(dir.join("catalogs.json"))?;
        serde_json::from_str(&text).map_err(|error| MeasureError::new("catalogs.json", &error))
    }

    /// Fails with fewer servers or tools than a valid run needs.
    pub(crate) fn check(&self, servers: usize, tools: usize) -> Result<()> {
        if self.listed.len() >= servers && self.tools.len() >= tools {
            return Ok(());
        }
        let found = format!("{} servers with {} tools are too few", self.listed.len(), self.tools.len());
        Err(MeasureError::new("catalogs", &found))
    }
}

/// Installs and lists all servers.
pub(crate) fn collect(packages: &Packages, dir: &Path, servers: Vec<PublicServer>) -> Result<Collected> {
    let home = tempfile::tempdir()?;
    // Servers for Google read an application's identity from a file before they list anything.
    let identity =
        json!({"installed": {"client_id": "x", "client_secret": "x", "redirect_uris": ["http://localhost"]}});
    std::fs::write(home.path().join("oauth.json"), identity.to_string())?;
    let queue = Mutex::new(servers.into_iter());
    let lists = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().ok().and_then(|mut queue| queue.next());
                    let Some(server) = next else { break };
                    let list = list(packages, home.path(), &server);
                    match &list {
                        Ok(tools) => eprintln!("{}: {} tools", server.name, tools.len()),
                        Err(why) => eprintln!("{}: left out: {why}", server.name),
                    }
                    if let Ok(mut lists) = lists.lock() {
                        lists.push((server, list));
                    }
                }
            });
        }
    });
    let mut lists = lists.into_inner().map_err(|error| MeasureError::new("catalogs", &error))?;
    lists.sort_by_key(|(server, _)| server.name);
    let mut collected = Collected::default();
    for (server, list) in lists {
        let package = format!("{} {}", server.package, server.version);
        match list {
            Ok(tools) => {
                collected.listed.push((server.name.to_owned(), package, tools.len()));
                for (tool, definition) in tools {
                    collected.definitions.insert(tool.key(), definition);
                    collected.tools.push(tool);
                }
            }
            Err(why) => collected.failed.push((format!("{} ({package})", server.name), why.to_string())),
        }
    }
    let text = serde_json::to_string(&collected).map_err(|error| MeasureError::new("catalogs", &error))?;
    std::fs::write(dir.join("catalogs.json"), text)?;
    Ok(collected)
}

fn list(packages: &Packages, home: &Path, server: &PublicServer) -> Result<Vec<(PublicTool, Value)>> {
    let program = packages.install(server)?;
    let mut running = RunningServer::start(&program, home, server)?;
    running.initialize()?;
    let mut tools = Vec::new();
    let mut params = json!({});
    for _ in 0..MAX_PAGES {
        let page = running.request("tools/list", params)?;
        let found = page["tools"].as_array().into_iter().flatten();
        tools.extend(found.filter_map(|tool| Some((PublicTool::parse(server.name, tool)?, tool.clone()))));
        match &page["nextCursor"] {
            Value::String(cursor) => params = json!({"cursor": cursor}),
            _ => break,
        }
    }
    if tools.is_empty() { Err(MeasureError::new("tools/list", &"no tools")) } else { Ok(tools) }
}

/// A started server. Dropping it kills its process group.
pub(crate) struct RunningServer {
    child: Child,
    stdin: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
}

impl RunningServer {
    fn start(program: &Path, home: &Path, server: &PublicServer) -> Result<Self> {
        let fill = |text: &str| text.replace("{home}", &home.to_string_lossy());
        let mut command = Command::new(program);
        command.args(server.arguments.iter().map(|argument| fill(argument)));
        command.env_clear();
        command.envs(server.environment.iter().map(|(name, value)| (name, fill(value))));
        Self::spawn(server.name, command, home)
    }

    /// Starts a program that speaks MCP on stdin and stdout, in a home of its own.
    pub(crate) fn spawn(name: &str, mut command: Command, home: &Path) -> Result<Self> {
        command.env("HOME", home).env("CI", "1").env("NO_COLOR", "1");
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.current_dir(home).process_group(0);
        let mut child = command.spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.ok_or_else(|| MeasureError::new(name, &"no pipes"))?;
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            // Lines that are no JSON are log lines of the server.
            let lines = BufReader::new(stdout).lines().map_while(std::io::Result::ok);
            for message in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, stdin, messages, last_id: 0 })
    }

    /// Opens the session.
    pub(crate) fn initialize(&mut self) -> Result<()> {
        let client = json!({"name": "gripfast-bench", "version": env!("CARGO_PKG_VERSION")});
        self.request(
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}),
        )?;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        writeln!(self.stdin, "{message}")?;
        Ok(self.stdin.flush()?)
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut message =
                self.messages.recv_timeout(left).map_err(|error| MeasureError::new(method, &error))?;
            if message["method"].is_string() {
                // A request of the server, for example for roots: this client has none.
                if !message["id"].is_null() {
                    let error = json!({"code": -32601, "message": "not supported"});
                    self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}))?;
                }
            } else if message["id"] == id {
                return match message["result"].take() {
                    Value::Null => Err(MeasureError::new(method, &message["error"]["message"])),
                    result => Ok(result),
                };
            }
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        // The child leads a process group of its own, so this ends nothing else.
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

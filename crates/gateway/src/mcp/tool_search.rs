//! Tools of the gateway for tools that are not in a client's list (`exposure`): search, definitions, and calls. A call
//! becomes a plain call of the tool that it names before it is dispatched, so that everything behind is the same.

use super::Gateway;
use super::request::dispatch::{ClientRequest, RequestOutcome, raw, server_info_meta};
use super::request::overload::Overload;
use super::tool_summary::{one_line, parameter_list, shortened};
use gripfast::config::suggest;
use gripfast::exposure::{CALL, CALL_READ_ONLY, DESCRIBE, SEARCH};
use gripfast::wire::Era;
use gripfast::wire::patch::{Object, Patch};
use gripfast::{CallError, CallOutcome, CatalogSnapshot, Code, FoundTool, Json, JsonText, RenderedList};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Tools that a search returns if it does not set a limit, and at most.
const DEFAULT_LIMIT: u64 = 5;
const MAX_LIMIT: u64 = 50;
/// Definitions that one call returns at most.
const MAX_NAMES: usize = 50;
/// Bytes of the definitions that one call returns. The first one is always returned.
const MAX_DEFINITIONS: usize = 1 << 20;
/// Copies of the definitions that exist while an answer is written: as structured content, as text, and in JSON.
const COPIES: usize = 4;
/// Bytes of the definitions that are read for the answer to a search. Later tools are returned by their names alone.
const MAX_READ: usize = 4 << 20;
/// Bytes of a tool's name, and characters of it in the text of an answer. Tools with longer names are not returned.
const MAX_NAME: usize = 1024;
const MAX_SHOWN_NAME: usize = 200;
/// Characters of a query that are used.
const MAX_QUERY: usize = 1000;
/// Servers that the definition of the search names.
const MAX_SERVERS: usize = 40;

/// Definitions of the tools for clients of this era; empty if the client has all tools in its list.
pub(crate) fn definitions(catalog: &CatalogSnapshot, era: Era) -> RenderedList {
    if !catalog.offers_search() {
        return RenderedList::default();
    }
    let call = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "Name of the tool, as `search_tools` returns it." },
            "arguments": { "type": "object", "description": "Arguments of the tool." },
        },
        "required": ["name"],
        "additionalProperties": false,
    });
    let mut tools = [
        search_definition(catalog),
        json!({
            "name": DESCRIBE,
            "title": "Describe tools",
            "description": "Returns the full definitions of tools: description, argument schema, output schema and \
                            annotations.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "names": {
                        "type": "array",
                        "items": { "type": "string" },
                        "maxItems": MAX_NAMES,
                        "description": "Names of the tools, as `search_tools` returns them.",
                    },
                },
                "required": ["names"],
                "additionalProperties": false,
            },
            "outputSchema": {
                "type": "object",
                "properties": {
                    "tools": { "type": "array", "items": { "type": "object" } },
                    "unknown": { "type": "array", "items": { "type": "string" } },
                    "left_out": {
                        "type": "array",
                        "items": { "type": "string" },
                        "description": "Tools whose definitions would make the answer too large. Ask for them alone.",
                    },
                },
                "required": ["tools"],
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        }),
        json!({
            "name": CALL_READ_ONLY,
            "title": "Call a read-only tool",
            "description": "Calls a tool that changes nothing (`readOnlyHint`), and returns its result. For other \
                            tools use `call_tool`.",
            "inputSchema": call,
            "annotations": { "readOnlyHint": true },
        }),
        json!({
            "name": CALL,
            "title": "Call a tool",
            "description": "Calls any tool by its name and returns its result.",
            "inputSchema": call,
            "annotations": { "readOnlyHint": false, "destructiveHint": true },
        }),
    ];
    if era == Era::Legacy {
        // Whether a tool really supports tasks, its server decides when it is called.
        for tool in &mut tools[2..] {
            tool["execution"] = json!({ "taskSupport": "optional" });
        }
    }
    RenderedList::of(tools.iter().map(Value::to_string))
}

/// Servers of the tools that the client may call.
fn servers(catalog: &CatalogSnapshot) -> Vec<&str> {
    let merged = &catalog.merged;
    let mut servers: Vec<&str> = Vec::new();
    for entry in &merged.tools.entries {
        let server = merged.sources[entry.source].server.as_str();
        if servers.last() != Some(&server) {
            servers.push(server);
        }
    }
    servers
}

fn search_definition(catalog: &CatalogSnapshot) -> Value {
    let mut servers = servers(catalog);
    let more = if servers.len() > MAX_SERVERS { " and others" } else { "" };
    servers.truncate(MAX_SERVERS);
    json!({
        "name": SEARCH,
        "title": "Search tools",
        "description": format!(
            "Finds tools by what they do. Most tools are not in the tool list: search here first, then call a found \
             tool with `call_read_only_tool` or `call_tool`. `describe_tools` has the details. Servers: {}{more}.",
            servers.join(", ")
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": { "type": "string", "description": "What the tool should do, in a few words." },
                "limit": { "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT },
                "server": { "type": "string", "description": "Only tools of this server." },
            },
            "required": ["query"],
            "additionalProperties": false,
        },
        "outputSchema": {
            "type": "object",
            "properties": { "tools": { "type": "array", "items": {
                "type": "object",
                "properties": {
                    "name": { "type": "string" },
                    "server": { "type": "string" },
                    "description": { "type": "string" },
                    "parameters": { "type": "string" },
                    "score": { "type": "number" },
                },
                "required": ["name", "server", "description", "parameters", "score"],
            } } },
            "required": ["tools"],
        },
        "annotations": { "readOnlyHint": true, "openWorldHint": false },
    })
}

/// Tests if the gateway itself answers calls of this tool.
pub(super) fn answers(tool: &str) -> bool {
    matches!(tool, SEARCH | DESCRIBE)
}

/// The plain call that a call of `call_tool` or `call_read_only_tool` stands for.
pub(super) struct PlainCall {
    pub(super) params: JsonText,
    /// Only a tool that its server marks as read-only may be called.
    pub(super) read_only: bool,
}

impl PlainCall {
    /// Reads the plain call; `None` for any other request.
    pub(super) fn of(request: &ClientRequest<'_>) -> Result<Option<Self>, RequestOutcome> {
        if request.method != "tools/call" {
            return Ok(None);
        }
        let Some(params) = request.params.and_then(|params| Object::parse(params).ok()) else {
            return Ok(None);
        };
        let Ok(Some(called)) = params.text_strict("name") else { return Ok(None) };
        if called != CALL && called != CALL_READ_ONLY {
            return Ok(None);
        }
        let WrappedCall { name, arguments } = WrappedCall::read(&params)
            .map_err(|text| tool_error(request.era, &format!("`{called}` {text}")))?;
        let call = Patch::new().set_text("name", &name);
        let call = match arguments {
            Some(arguments) => call.set("arguments", arguments),
            None => call.remove("arguments"),
        };
        Ok(Some(Self { params: call.apply(&params), read_only: called == CALL_READ_ONLY }))
    }
}

/// The refusal of a tool that is not known to be read-only.
pub(super) fn may_write(server: &str, name: &str) -> RequestOutcome {
    let text = format!("tool `{name}` may change something: its server does not mark it as read-only");
    let error = CallError::new(Code::InvalidRequest, server, CallOutcome::NotSent, text);
    RequestOutcome::Failed(error.with_hint(format!("call it with `{CALL}`")))
}

impl Gateway {
    /// Answers a call of `search_tools` or `describe_tools`.
    pub(super) async fn answer_tool_search(
        &self,
        request: &ClientRequest<'_>,
        params: &Object<'_>,
        tool: &str,
    ) -> RequestOutcome {
        self.wait_for_startup().await;
        let arguments =
            || match params.get("arguments").map(|arguments| serde_json::from_str(arguments.get())) {
                Some(Ok(Value::Object(arguments))) => Ok(arguments),
                Some(_) => Err("needs an object as `arguments`".to_owned()),
                None => Ok(serde_json::Map::new()),
            };
        let answer = match (arguments(), tool) {
            (Ok(arguments), SEARCH) => self.search(request, &arguments).await,
            (Ok(arguments), _) => self.describe(request, &arguments),
            (Err(text), _) => Err(text),
        };
        answer.unwrap_or_else(|text| tool_error(request.era, &format!("`{tool}` {text}")))
    }

    async fn search(
        &self,
        request: &ClientRequest<'_>,
        arguments: &serde_json::Map<String, Value>,
    ) -> Result<RequestOutcome, String> {
        refuse_others(arguments, &["query", "limit", "server"])?;
        let query = arguments.get("query").and_then(Value::as_str).map(str::trim).unwrap_or_default();
        if query.is_empty() {
            return Err("needs a `query`: what the tool should do, in a few words".to_owned());
        }
        let query: String = query.chars().take(MAX_QUERY).collect();
        let limit = match arguments.get("limit") {
            None | Some(Value::Null) => DEFAULT_LIMIT,
            Some(limit) => match whole_number(limit) {
                Some(limit @ 1..) => limit.min(MAX_LIMIT),
                Some(0) | None => return Err(format!("needs a `limit` from 1 to {MAX_LIMIT}")),
            },
        };
        let server = match arguments.get("server") {
            None | Some(Value::Null) => None,
            Some(server) => Some(server.as_str().ok_or("needs the name of a server as `server`")?),
        };
        if let Some(server) = server {
            check_server(&self.host.catalog_snapshot_for(request.principal()), server)?;
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let found = self.host.find_tools(request.principal(), &query, limit, server).await;
        let catalog = self.host.catalog_snapshot_for(request.principal());
        self.load(request, &catalog, found.iter().map(|tool| &*tool.name));
        let mut room = MAX_READ;
        let tools = found.iter().filter_map(|tool| Summary::of(&catalog, tool, &mut room));
        let tools: Vec<Summary> = tools.collect();
        let lines: Vec<String> = tools.iter().map(Summary::line).collect();
        let text =
            if lines.is_empty() { "no tool was found; try other words".to_owned() } else { lines.join("\n") };
        let tools: Vec<Value> = tools.iter().map(Summary::json).collect();
        Ok(tool_result(request.era, &text, &raw(&json!({ "tools": tools }))))
    }

    fn describe(
        &self,
        request: &ClientRequest<'_>,
        arguments: &serde_json::Map<String, Value>,
    ) -> Result<RequestOutcome, String> {
        refuse_others(arguments, &["names"])?;
        let names = arguments.get("names").and_then(Value::as_array);
        let names: Option<Vec<&str>> = names.and_then(|names| names.iter().map(Value::as_str).collect());
        let Some(names) = names.filter(|names| !names.is_empty() && names.len() <= MAX_NAMES) else {
            return Err(format!("needs `names`: a list of 1 to {MAX_NAMES} names of tools"));
        };
        let catalog = self.host.catalog_snapshot_for(request.principal());
        let described = Described::of(&catalog, request.era, &names);
        if described.definitions.is_empty() {
            let unknown = described.unknown.iter();
            let lines: Vec<String> = unknown.map(|name| format!("unknown tool: {name}")).collect();
            return Ok(tool_error(request.era, &lines.join("\n")));
        }
        // The answer itself counts when it is written.
        let _copies = match request.client.memory.take(described.bytes * COPIES) {
            Ok(permit) => permit,
            Err(exceeded) => return Ok(RequestOutcome::Fault(Overload::memory(exceeded).fault())),
        };
        self.load(request, &catalog, described.definitions.iter().map(|(name, _)| *name));
        let text = described.json();
        let structured = JsonText::parse(text).map_err(|error| format!("failed: {error}"))?;
        Ok(tool_result(request.era, structured.get(), &structured))
    }

    /// Adds found tools to the list of a legacy client, if the config says so.
    fn load<'n>(
        &self,
        request: &ClientRequest<'_>,
        catalog: &CatalogSnapshot,
        found: impl Iterator<Item = &'n str>,
    ) {
        if request.era == Era::Legacy && self.host.exposure().load {
            let hidden: Vec<String> =
                found.filter(|name| !catalog.is_listed(name)).map(str::to_owned).collect();
            request.client.loaded.load(&hidden);
        }
    }
}

/// Definitions for an answer of `describe_tools`.
struct Described<'a> {
    /// Names and definitions.
    definitions: Vec<(&'a str, &'a str)>,
    /// Size of the definitions.
    bytes: usize,
    unknown: Vec<&'a str>,
    left_out: Vec<&'a str>,
}

impl<'a> Described<'a> {
    /// Finds the definitions, each once. If they are too large together, later ones are left out.
    fn of(catalog: &'a CatalogSnapshot, era: Era, names: &[&'a str]) -> Self {
        let mut described =
            Self { definitions: Vec::new(), bytes: 0, unknown: Vec::new(), left_out: Vec::new() };
        let mut seen = BTreeSet::new();
        for name in names.iter().filter(|name| seen.insert(**name)) {
            match catalog.tool_definition(era, name) {
                None => described.unknown.push(name),
                Some(definition)
                    if !described.definitions.is_empty()
                        && described.bytes + definition.len() > MAX_DEFINITIONS =>
                {
                    described.left_out.push(name);
                }
                Some(definition) => {
                    described.bytes += definition.len();
                    described.definitions.push((name, definition));
                }
            }
        }
        described
    }

    /// The answer, with the definitions as the servers wrote them.
    fn json(&self) -> String {
        let definitions: Vec<&str> = self.definitions.iter().map(|(_, definition)| *definition).collect();
        let left_out = match self.left_out.as_slice() {
            [] => String::new(),
            names => format!(",\"left_out\":{}", json!(names)),
        };
        format!("{{\"tools\":[{}],\"unknown\":{}{left_out}}}", definitions.join(","), json!(self.unknown))
    }
}

/// Reads a whole number, which some clients write as `5.0`.
fn whole_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number =
            value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=1e15).contains(number))?;
        Some(number as u64)
    })
}

/// Tests that the client knows tools of a server. The error names the servers that it knows, the nearest first.
fn check_server(catalog: &CatalogSnapshot, server: &str) -> Result<(), String> {
    let mut known = servers(catalog);
    if known.contains(&server) {
        return Ok(());
    }
    suggest::nearest_first(server, &mut known);
    let more = if known.len() > MAX_SERVERS { " and others" } else { "" };
    known.truncate(MAX_SERVERS);
    let server = shortened(server, MAX_SHOWN_NAME);
    Err(format!("knows no tools of a server `{server}`; servers: {}{more}", known.join(", ")))
}

/// Call inside the arguments of a search tool.
struct WrappedCall<'a> {
    name: String,
    arguments: Option<&'a Json>,
}

impl<'a> WrappedCall<'a> {
    /// Reads the call, or returns what it needs.
    fn read(params: &Object<'a>) -> Result<Self, String> {
        let missing = || "needs `name`: the name of a tool".to_owned();
        let given = params.get_strict("arguments").map_err(|error| error.to_string())?.ok_or_else(missing)?;
        let given = Object::parse(given).map_err(|_| "needs an object as `arguments`".to_owned())?;
        if let Some((other, _)) = given.iter().find(|(member, _)| !matches!(*member, "name" | "arguments")) {
            return Err(format!(
                "has no parameter `{other}`; the arguments of the tool belong into `arguments`"
            ));
        }
        let name = given.text_strict("name").map_err(|error| error.to_string())?.ok_or_else(missing)?;
        let arguments = given.get_strict("arguments").map_err(|error| error.to_string())?;
        let arguments = arguments.filter(|arguments| arguments.get() != "null");
        if arguments.is_some_and(|arguments| Object::parse(arguments).is_err()) {
            return Err("needs an object in its parameter `arguments`".to_owned());
        }
        Ok(Self { name: name.into_owned(), arguments })
    }
}

/// A found tool in short form.
struct Summary<'a> {
    found: &'a FoundTool,
    description: String,
    parameters: String,
}

impl<'a> Summary<'a> {
    /// The summary of a tool. `room` has the bytes of definitions that may still be read.
    fn of(catalog: &CatalogSnapshot, found: &'a FoundTool, room: &mut usize) -> Option<Self> {
        let (_, item) = catalog.merged.tool(&found.name)?;
        if found.name.len() > MAX_NAME {
            return None;
        }
        let Some(rest) = room.checked_sub(item.raw.get().len()) else {
            return Some(Self { found, description: String::new(), parameters: "…".to_owned() });
        };
        *room = rest;
        let tool = Object::parse(&item.raw).ok()?;
        let description = tool.text("description").or_else(|| tool.text("title")).unwrap_or_default();
        let parameters = tool.object("inputSchema").map(|schema| parameter_list(&schema)).unwrap_or_default();
        Some(Self { found, description: one_line(&description), parameters })
    }

    fn line(&self) -> String {
        let name = shortened(&self.found.name, MAX_SHOWN_NAME);
        format!("- {name}({}): {}", self.parameters, self.description)
    }

    fn json(&self) -> Value {
        json!({
            "name": self.found.name,
            "server": self.found.server,
            "description": self.description,
            "parameters": self.parameters,
            "score": self.found.score,
        })
    }
}

fn refuse_others(arguments: &serde_json::Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match arguments.keys().find(|member| !known.contains(&member.as_str())) {
        Some(other) => Err(format!("has no parameter `{other}`; it takes `{}`", known.join("`, `"))),
        None => Ok(()),
    }
}

/// Result with structured content.
fn tool_result(era: Era, text: &str, structured: &Json) -> RequestOutcome {
    let result = json!({ "content": [{ "type": "text", "text": text }] });
    finished(era, result, Some(structured))
}

/// Error of one of these tools, in a form that a model can read and correct.
fn tool_error(era: Era, text: &str) -> RequestOutcome {
    finished(era, json!({ "content": [{ "type": "text", "text": text }], "isError": true }), None)
}

fn finished(era: Era, mut result: Value, structured: Option<&Json>) -> RequestOutcome {
    if era == Era::Modern {
        result["resultType"] = "complete".into();
        result["_meta"] = server_info_meta();
    }
    let result = raw(&result);
    let patched = structured.and_then(|structured| {
        let object = Object::parse(&result).ok()?;
        Some(Patch::new().set("structuredContent", structured).apply(&object))
    });
    RequestOutcome::Result(patched.unwrap_or(result))
}

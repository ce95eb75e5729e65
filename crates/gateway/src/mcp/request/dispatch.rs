//! Dispatch of a client request: answered by the gateway itself, from the catalog, or by a server under the server's
//! own name for the item.

use super::cursor::{CursorTarget, ListVersion};
use super::era;
use super::extensions;
use super::forward::ForwardedAnswer;
use super::route::route;
use crate::mcp::Gateway;
use crate::mcp::client::Client;
use crate::mcp::status_tool;
use crate::mcp::tasks::CallMode;
use crate::mcp::tool_search::{self, PlainCall};
use gripfast::transport::Listener;
use gripfast::wire::era::meta;
use gripfast::wire::log::LogLevel;
use gripfast::wire::patch::{Object, Patch, patch_payload};
use gripfast::wire::results::List;
use gripfast::wire::{Era, Id, ProtocolVersion, codes, envelope};
use gripfast::{
    CacheScope, CallError, CallOutcome, CatalogSnapshot, Code, Destination, Freshness, ItemKind, Json,
    JsonText, Principal, RenderedList, UnlistedItem,
};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// Request of a client, with everything that its answer depends on.
pub(crate) struct ClientRequest<'a> {
    /// Protocol era of the request.
    pub(crate) era: Era,
    /// Request id of the client.
    pub(crate) id: Id<'a>,
    pub(crate) method: &'a str,
    pub(crate) params: Option<&'a Json>,
    /// Only a tool that its server marks as read-only may be called.
    pub(crate) read_only: bool,
    /// Receives the progress of the call, and the requests of the server.
    pub(crate) listener: Arc<dyn Listener>,
    /// Capabilities and identity of the client.
    pub(crate) client: Arc<Client>,
}

/// Outcome of a request, before it is written in wire form.
pub(crate) enum RequestOutcome {
    /// Answer of a server.
    Answer(ForwardedAnswer),
    /// Result of the gateway itself.
    Result(JsonText),
    /// Page of a list.
    Page(ListPage),
    /// Error of the gateway itself.
    Fault(RpcFault),
    /// The server could not answer.
    Failed(CallError),
}

impl ClientRequest<'_> {
    /// Principal of the client.
    pub(crate) fn principal(&self) -> &Principal {
        self.client.host_client.principal()
    }
}

impl RequestOutcome {
    /// Tests if no memory has to be acquired for the response: it is reserved already, or it is an error of the
    /// gateway, which is small.
    pub(crate) fn always_fits(&self) -> bool {
        match self {
            Self::Answer(forwarded) => forwarded.answer.has_reservation(),
            Self::Fault(_) | Self::Failed(_) => true,
            Self::Result(_) | Self::Page(_) => false,
        }
    }

    /// Size of the server's answer in bytes; 0 for responses of the gateway itself.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Answer(forwarded) => forwarded.answer.size(),
            Self::Result(_) | Self::Page(_) | Self::Fault(_) | Self::Failed(_) => 0,
        }
    }

    /// Reports denied items as unknown to the client; the reason is for the operator only.
    fn unless_denied(self, unknown: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Failed(error) if error.code == Code::Denied => unknown(),
            outcome => outcome,
        }
    }
}

/// JSON-RPC error of the gateway itself.
#[derive(Debug)]
pub(crate) struct RpcFault {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl RpcFault {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> RequestOutcome {
        RequestOutcome::Fault(Self::new(codes::INVALID_PARAMS, message))
    }
}

/// Server, and its own name for an item.
type ServerItem = (Arc<str>, String);

/// Items on one page: enough for most clients to get everything at once, and still a bounded message.
const PAGE_SIZE: usize = 1000;

impl Gateway {
    /// Answers a request, within a telemetry span if an exporter is installed. From here on, a call through a search
    /// tool is the call of the tool that it names.
    pub(crate) async fn dispatch(&self, request: ClientRequest<'_>) -> RequestOutcome {
        let plain = if self.host.is_searchable() {
            match PlainCall::of(&request) {
                Ok(plain) => plain,
                Err(outcome) => return outcome,
            }
        } else {
            None
        };
        let request = match &plain {
            Some(PlainCall { params, read_only }) => {
                ClientRequest { params: Some(params), read_only: *read_only, ..request }
            }
            None => request,
        };
        let Some(telemetry) = self.telemetry.get() else { return self.answer(request).await };
        let span = telemetry.server_span(request.id, request.method, request.params);
        // Boxed, so that requests without telemetry need no space for the span in their future.
        let outcome = Box::pin(span.run(self.answer(request))).await;
        span.finish_served(&outcome);
        outcome
    }

    async fn answer(&self, request: ClientRequest<'_>) -> RequestOutcome {
        match request.method {
            "ping" => result(&json!({})),
            "server/discover" => self.discover(&request).await,
            "tools/list" => self.list(&request, List::Tools).await,
            "resources/list" => self.list(&request, List::Resources).await,
            "resources/templates/list" => self.list(&request, List::ResourceTemplates).await,
            "prompts/list" => self.list(&request, List::Prompts).await,
            "tools/call" => self.call_tool(&request).await,
            "prompts/get" => self.get_prompt(&request).await,
            "resources/read" => self.read(&request).await,
            "completion/complete" => self.complete(&request).await,
            "logging/setLevel" => self.set_level(&request),
            "resources/subscribe" => self.subscribe(&request).await,
            "resources/unsubscribe" => self.unsubscribe(&request),
            "tasks/get" | "tasks/result" | "tasks/update" | "tasks/cancel" => {
                self.forward_task(&request).await
            }
            "tasks/list" => self.list_tasks(&request).await,
            _ => self.forward_unknown(&request).await,
        }
    }

    /// Result of `initialize` for a client that requests version `wanted`, and the negotiated version.
    pub(crate) async fn initialize(
        &self,
        wanted: &ProtocolVersion,
        principal: &Principal,
    ) -> (ProtocolVersion, JsonText) {
        self.wait_for_startup().await;
        self.list_changes.refresh(principal);
        let version = match wanted.era() {
            Era::Legacy if wanted.is_known() => wanted.clone(),
            Era::Legacy | Era::Modern => ProtocolVersion::LATEST_LEGACY,
        };
        let mut answer = json!({
            "protocolVersion": version.as_str(),
            "capabilities": self.legacy_capabilities(&version, principal),
            "serverInfo": server_info(),
        });
        if let Some(instructions) = self.instructions(principal) {
            answer["instructions"] = instructions.into();
        }
        (version, raw(&answer))
    }

    async fn discover(&self, request: &ClientRequest<'_>) -> RequestOutcome {
        self.wait_for_startup().await;
        let mut answer = json!({
            "supportedVersions": era::supported_versions(),
            "capabilities": self.capabilities(Era::Modern, request.principal()),
            "resultType": "complete",
            "_meta": server_info_meta(),
        });
        let Freshness { ttl, mut scope } = self.host.server_info_freshness();
        if request.principal().name() != Principal::LOCAL {
            // Name of the authenticated principal, which is different for each client.
            answer["_meta"]["gripfast/client"] = request.principal().name().into();
            scope = CacheScope::Private;
        }
        answer["ttlMs"] = millis(ttl).into();
        answer["cacheScope"] = scope_name(scope).into();
        if let Some(instructions) = self.instructions(request.principal()) {
            answer["instructions"] = instructions.into();
        }
        result(&answer)
    }

    fn legacy_capabilities(&self, version: &ProtocolVersion, principal: &Principal) -> Value {
        let mut capabilities = self.capabilities(Era::Legacy, principal);
        if version.has_tasks() && self.host.has_tasks(Era::Legacy) {
            capabilities["tasks"] =
                json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
        }
        capabilities
    }

    /// Capabilities that the servers really have for this principal. Lists always have `listChanged`: a server that is
    /// unavailable may come back with other tools.
    fn capabilities(&self, era: Era, principal: &Principal) -> Value {
        let catalog = self.host.catalog_snapshot_for(principal);
        let mut capabilities = json!({ "tools": { "listChanged": true } });
        if !catalog.resources.is_empty() || !catalog.templates.is_empty() {
            capabilities["resources"] = json!({ "listChanged": true });
            if self.host.has_resource_updates() {
                capabilities["resources"]["subscribe"] = true.into();
            }
        }
        if !catalog.prompts.is_empty() {
            capabilities["prompts"] = json!({ "listChanged": true });
        }
        if !catalog.prompts.is_empty() || !catalog.templates.is_empty() {
            capabilities["completions"] = json!({});
        }
        if self.host.has_logging() {
            capabilities["logging"] = json!({});
        }
        let has_apps = catalog.merged.sources.iter().any(|source| !source.linked.is_empty());
        let (servers, mut declared) = (catalog.merged.servers(), self.host.extensions());
        declared.retain(|extended| servers.contains(extended.server.as_str()));
        if let Some(extensions) = extensions::union(era, &declared, has_apps) {
            capabilities["extensions"] = extensions;
        }
        capabilities
    }

    /// Instructions of the servers that offer something to this principal, joined under their names.
    fn instructions(&self, principal: &Principal) -> Option<String> {
        let catalog = self.host.catalog_snapshot_for(principal);
        let servers = catalog.merged.servers();
        let mut sections = self.host.instructions();
        sections.retain(|(server, _)| servers.contains(server.as_str()));
        if self.host.is_view() {
            // Another replica adds what its clients have to know.
        } else if let Some(missing) = self.missing_servers(principal, &servers) {
            sections.push(("gripfast".to_owned(), missing));
        }
        match sections.as_slice() {
            [] => None,
            [(_, only)] if self.host.server_names().len() == 1 => Some(only.clone()),
            several => {
                let parts = several.iter().map(|(server, text)| format!("# {server}\n{text}"));
                Some(parts.collect::<Vec<_>>().join("\n\n"))
            }
        }
    }

    async fn list(&self, request: &ClientRequest<'_>, list: List) -> RequestOutcome {
        self.wait_for_startup().await;
        let catalog = self.host.catalog_snapshot_for(request.principal());
        let tools = ToolList::of(&catalog, request);
        let digest = rendered(&catalog, &tools, list, request.era).digest();
        let version = ListVersion { digest, list: list.member() };
        let from = match request.params.map(Object::parse).transpose() {
            Err(error) => return RpcFault::invalid(error.to_string()),
            Ok(params) => match params.as_ref().and_then(|params| params.get("cursor")) {
                None => 0,
                Some(null) if null.get() == "null" => 0,
                Some(_) => {
                    let text = params.as_ref().and_then(|params| params.text("cursor"));
                    match text.map_or(CursorTarget::Invalid, |text| version.resolve(&text)) {
                        CursorTarget::Item(from) => from,
                        CursorTarget::OtherVersion => {
                            return RpcFault::invalid(
                                "the list has changed since this cursor was issued; list again without a cursor",
                            );
                        }
                        CursorTarget::Invalid => {
                            return RpcFault::invalid("unknown cursor; list again without a cursor");
                        }
                    }
                }
            },
        };
        let fresh = match request.era {
            Era::Modern => Some(self.host.list_freshness(list)),
            Era::Legacy => None,
        };
        let mut own = Vec::new();
        if list == List::Tools {
            own.extend(self.status_tool.then(status_tool::definition));
            let search = tool_search::definitions(&catalog, request.era);
            own.extend((!search.is_empty()).then(|| search.page(0, usize::MAX).0.to_owned()));
        }
        let own = (!own.is_empty()).then(|| own.join(","));
        RequestOutcome::Page(ListPage::of(catalog, tools, list, version, from, fresh, own.as_deref()))
    }

    async fn call_tool(&self, request: &ClientRequest<'_>) -> RequestOutcome {
        let (params, name) = match params_with_text(request.params, "name") {
            Ok(found) => found,
            Err(outcome) => return outcome,
        };
        if self.status_tool && name == status_tool::NAME {
            return result(&self.status_result(request.principal(), request.era));
        }
        if tool_search::answers(&name) && self.host.is_searchable() {
            return Box::pin(self.answer_tool_search(request, &params, &name)).await;
        }
        let lookup = |catalog: &CatalogSnapshot| {
            let (to, tool) = catalog.merged.tool(&name)?;
            let item = (to.server.into(), params.with_text("name", to.key));
            let wrapped = catalog.wraps_output_for(request.era, &name);
            Some((item, tool.hints.read_only, wrapped, catalog.requires_task(&name)))
        };
        let wanted = UnlistedItem::Name(&name);
        let hidden = || {
            let (server, key) = self.hidden(ItemKind::Tool, &name)?;
            Some(((server, params.with_text("name", &key)), false, false, false))
        };
        let ((server, mut params), reads_only, wrapped, tasks_only) =
            match self.find("tool", wanted, lookup, hidden).await {
                Ok(found) => found,
                Err(outcome) => return outcome,
            };
        if request.read_only && !reads_only && self.may_call(request, &server, &params) {
            return tool_search::may_write(&server, &name);
        }
        if self.host.is_searchable() {
            request.client.loaded.note_call(&name);
        }
        let mode = self.call_mode(request, &server, tasks_only);
        if matches!(mode, CallMode::WithoutTask) {
            params =
                patch_payload(Some(&params), &Patch::new().remove("task"), &Patch::new()).unwrap_or(params);
        }
        let outcome = match mode {
            // A denied tool must look unknown, so the refusal is only for tools that the client may call.
            CallMode::Refused(fault) if self.may_call(request, &server, &params) => {
                RequestOutcome::Fault(fault)
            }
            CallMode::AwaitTask => Box::pin(self.await_task(request, &server, params)).await,
            CallMode::AsRequested | CallMode::WithoutTask | CallMode::Refused(_) => {
                self.forward(request, &server, Ok(params)).await
            }
        };
        let RequestOutcome::Answer(mut forwarded) = outcome else {
            return outcome.unless_denied(|| unknown_item("tool", wanted));
        };
        if let Some((own, public)) = self.record_task(request, &server, &forwarded.answer) {
            forwarded = forwarded.with_task(own, public);
        }
        RequestOutcome::Answer(if wrapped { forwarded.with_wrapped_output() } else { forwarded })
    }

    fn may_call(&self, request: &ClientRequest<'_>, server: &str, params: &Json) -> bool {
        let Ok(tool) = text_param(Some(params), "name") else { return false };
        let decision = self.host.explain_access(Some(request.principal()), server, ItemKind::Tool, &tool);
        decision.is_ok_and(|decision| decision.allowed)
    }

    async fn get_prompt(&self, request: &ClientRequest<'_>) -> RequestOutcome {
        let name = match text_param(request.params, "name") {
            Ok(name) => name,
            Err(outcome) => return outcome,
        };
        let (server, key) = match self.prompt(&name).await {
            Ok(origin) => origin,
            Err(outcome) => return outcome,
        };
        let params = patch_payload(request.params, &Patch::new().set_text("name", &key), &Patch::new());
        let outcome = self.forward(request, &server, params).await;
        outcome.unless_denied(|| unknown_item("prompt", UnlistedItem::Name(&name)))
    }

    async fn read(&self, request: &ClientRequest<'_>) -> RequestOutcome {
        let uri = match text_param(request.params, "uri") {
            Ok(uri) => uri,
            Err(outcome) => return outcome,
        };
        let lookup = |catalog: &CatalogSnapshot| catalog.merged.resource(&uri).map(origin);
        let hidden = || self.hidden(ItemKind::Resource, &uri);
        let (server, key) = match self.find("resource", UnlistedItem::Uri(&uri), lookup, hidden).await {
            Ok(origin) => origin,
            Err(outcome) => return outcome,
        };
        let params = patch_payload(request.params, &Patch::new().set_text("uri", &key), &Patch::new());
        match self.forward(request, &server, params).await {
            // A cache must not give it to clients that may not read it.
            RequestOutcome::Answer(read) if self.host.has_client_policies() => {
                RequestOutcome::Answer(read.with_private_scope())
            }
            outcome => outcome.unless_denied(|| unknown_item("resource", UnlistedItem::Uri(&uri))),
        }
    }

    /// Server of a prompt, and its own name for it.
    async fn prompt(&self, name: &str) -> Result<ServerItem, RequestOutcome> {
        let lookup = |catalog: &CatalogSnapshot| catalog.merged.prompt(name).map(|(to, _)| origin(to));
        let hidden = || self.hidden(ItemKind::Prompt, name);
        self.find("prompt", UnlistedItem::Name(name), lookup, hidden).await
    }

    /// Finds an item that the config hides.
    fn hidden(&self, kind: ItemKind, name: &str) -> Option<ServerItem> {
        let (server, key) = self.host.find_hidden(kind, name)?;
        Some((server.into(), key))
    }

    /// Finds an item in the catalog, now or after a server that may have it was listed; otherwise an item that the
    /// config hides, so that the host denies the call and records why.
    async fn find<T>(
        &self,
        what: &str,
        wanted: UnlistedItem<'_>,
        lookup: impl Fn(&CatalogSnapshot) -> Option<T>,
        hidden: impl Fn() -> Option<T>,
    ) -> Result<T, RequestOutcome> {
        let found = self.host.find_item(wanted, lookup).await.map_err(RequestOutcome::Failed)?;
        found.or_else(hidden).ok_or_else(|| unknown_item(what, wanted))
    }

    async fn complete(&self, request: &ClientRequest<'_>) -> RequestOutcome {
        let params = request.params.and_then(|params| Object::parse(params).ok());
        let Some(reference) = params.as_ref().and_then(|params| params.object("ref")) else {
            return RpcFault::invalid("`completion/complete` needs a `ref`");
        };
        let (name, uri) = (reference.text("name"), reference.text("uri"));
        let (found, member) = match (name, uri) {
            (Some(name), _) => (self.prompt(&name).await, "name"),
            (None, Some(uri)) => {
                let lookup =
                    |catalog: &CatalogSnapshot| catalog.merged.template_or_resource(&uri).map(origin);
                let hidden = || self.hidden(ItemKind::Resource, &uri);
                (self.find("resource", UnlistedItem::Uri(&uri), lookup, hidden).await, "uri")
            }
            (None, None) => {
                return RpcFault::invalid("`ref` needs the `name` of a prompt or the `uri` of a resource");
            }
        };
        let (server, key) = match found {
            Ok(origin) => origin,
            Err(outcome) => return outcome,
        };
        let patched = Patch::new().set_text(member, &key).apply(&reference);
        let params = patch_payload(request.params, &Patch::new().set_owned("ref", patched), &Patch::new());
        let outcome = self.forward(request, &server, params).await;
        outcome.unless_denied(|| match (reference.text("name"), reference.text("uri")) {
            (Some(name), _) => unknown_item("prompt", UnlistedItem::Name(&name)),
            (None, uri) => unknown_item("resource", UnlistedItem::Uri(&uri.unwrap_or_default())),
        })
    }

    /// `logging/setLevel`. The level reaches a server with the next request to it.
    fn set_level(&self, request: &ClientRequest<'_>) -> RequestOutcome {
        let Some(level) = LogLevel::from_params(request.params) else {
            return RpcFault::invalid("`level` is not a log level of the protocol");
        };
        request.client.level.set(level);
        result(&json!({}))
    }

    /// Forwards a method that the gateway does not know, if exactly one server can be meant.
    async fn forward_unknown(&self, request: &ClientRequest<'_>) -> RequestOutcome {
        self.wait_for_startup().await;
        let catalog = self.host.catalog_snapshot();
        let (names, extended) = (self.host.server_names(), self.host.extensions());
        let by_method = match names.as_slice() {
            [only] => Some(&**only),
            _ => extensions::server_of(&extended, request.method),
        };
        match route(&catalog.merged, by_method, request.params) {
            Ok(Some(to)) => {
                let outcome = self.forward(request, &to.server.into(), Ok(to.params)).await;
                outcome.unless_denied(|| no_method(request.method))
            }
            Ok(None) => no_method(request.method),
            Err(error) => RpcFault::invalid(error.to_string()),
        }
    }
}

/// Tools that a client gets.
enum ToolList {
    /// Those that `exposure` lists.
    Listed,
    /// The same, and those that the client has loaded.
    Loaded(RenderedList),
    /// All that it may call, because it asks for them.
    All,
}

impl ToolList {
    /// Member of `_meta` by which a client asks for all tools, with the value `all`.
    const EXPOSURE: &str = "gripfast/exposure";

    fn of(catalog: &CatalogSnapshot, request: &ClientRequest<'_>) -> Self {
        if !catalog.offers_search() {
            return Self::Listed;
        }
        let params = request.params.and_then(|params| Object::parse(params).ok());
        let meta = params.and_then(|params| params.object("_meta"));
        if meta.and_then(|meta| meta.text(Self::EXPOSURE)).is_some_and(|exposure| exposure == "all") {
            return Self::All;
        }
        let loaded = request.client.loaded.names();
        catalog.listed_tools_with(request.era, &loaded).map_or(Self::Listed, Self::Loaded)
    }
}

/// One page of a rendered list, which is copied only once, into the response.
pub(crate) struct ListPage {
    catalog: Arc<CatalogSnapshot>,
    tools: ToolList,
    list: List,
    era: Era,
    from: usize,
    /// Text after the items.
    rest: String,
}

impl ListPage {
    /// Creates a page. Freshness is only stated in the modern era. `own` is an item of the gateway itself, at the end
    /// of the last page.
    fn of(
        catalog: Arc<CatalogSnapshot>,
        tools: ToolList,
        list: List,
        version: ListVersion,
        from: usize,
        fresh: Option<Freshness>,
        own: Option<&str>,
    ) -> Self {
        let era = if fresh.is_some() { Era::Modern } else { Era::Legacy };
        let mut rest = String::new();
        match (rendered(&catalog, &tools, list, era).page(from, PAGE_SIZE), own) {
            ((_, Some(from)), _) => {
                rest.push_str("],\"nextCursor\":\"");
                rest.push_str(&version.cursor(from));
                rest.push('"');
            }
            ((items, None), Some(own)) => {
                rest.push_str(if items.is_empty() { "" } else { "," });
                rest.push_str(own);
                rest.push(']');
            }
            ((_, None), None) => rest.push(']'),
        }
        if let Some(Freshness { ttl, scope }) = fresh {
            let (ttl, scope, meta) = (millis(ttl), scope_name(scope), server_info_meta());
            rest.push_str(&format!(
                ",\"resultType\":\"complete\",\"ttlMs\":{ttl},\"cacheScope\":\"{scope}\",\"_meta\":{meta}"
            ));
        }
        rest.push('}');
        Self { catalog, tools, list, era, from, rest }
    }

    /// Response to the list request.
    pub(crate) fn response(&self, id: Id<'_>) -> Vec<u8> {
        let (items, _) = rendered(&self.catalog, &self.tools, self.list, self.era).page(self.from, PAGE_SIZE);
        envelope::response_from_pieces(id, &["{\"", self.list.member(), "\":[", items, &self.rest])
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn scope_name(scope: CacheScope) -> &'static str {
    match scope {
        CacheScope::Public => "public",
        CacheScope::Private => "private",
    }
}

fn rendered<'c>(catalog: &'c CatalogSnapshot, tools: &'c ToolList, list: List, era: Era) -> &'c RenderedList {
    match list {
        List::Tools => match tools {
            ToolList::Listed => catalog.listed_tools(era),
            ToolList::Loaded(tools) => tools,
            ToolList::All => catalog.tools_for(era),
        },
        List::Resources => &catalog.resources,
        List::ResourceTemplates => &catalog.templates,
        List::Prompts => &catalog.prompts,
    }
}

/// Text member of `params` that decides where a request goes. Refused if the name occurs twice in different spellings.
pub(crate) fn text_param(params: Option<&Json>, name: &'static str) -> Result<String, RequestOutcome> {
    params_with_text(params, name).map(|(_, text)| text.into_owned())
}

/// The same, together with all params.
fn params_with_text<'a>(
    params: Option<&'a Json>,
    name: &'static str,
) -> Result<(Object<'a>, Cow<'a, str>), RequestOutcome> {
    let missing = || RpcFault::invalid(format!("`params` needs `{name}`"));
    let params = params.ok_or_else(missing)?;
    let object = Object::parse(params).map_err(|error| RpcFault::invalid(error.to_string()))?;
    let text = object.text_strict(name).map_err(|error| RpcFault::invalid(error.to_string()))?;
    Ok((object, text.ok_or_else(missing)?))
}

fn origin(destination: Destination<'_>) -> ServerItem {
    (destination.server.into(), destination.key.to_owned())
}

pub(crate) fn unknown_item(what: &str, wanted: UnlistedItem<'_>) -> RequestOutcome {
    let (UnlistedItem::Name(name) | UnlistedItem::Uri(name)) = wanted;
    let mut fault = RpcFault::new(codes::INVALID_PARAMS, format!("unknown {what}: {name}"));
    let code = if what == "tool" { Code::UnknownTool } else { Code::InvalidRequest };
    let mut data = json!({ "code": code.as_str(), "outcome": CallOutcome::NotSent.as_str() });
    if let UnlistedItem::Uri(uri) = wanted {
        data["uri"] = uri.into();
    }
    fault.data = Some(data);
    RequestOutcome::Fault(fault)
}

fn no_method(method: &str) -> RequestOutcome {
    RequestOutcome::Fault(RpcFault::new(codes::METHOD_NOT_FOUND, format!("method not found: {method}")))
}

fn result(value: &Value) -> RequestOutcome {
    RequestOutcome::Result(raw(value))
}

fn server_info() -> Value {
    json!({ "name": "gripfast", "version": env!("CARGO_PKG_VERSION") })
}

/// `_meta` with the server info of the gateway, for modern results.
pub(crate) fn server_info_meta() -> Value {
    json!({ meta::SERVER_INFO: server_info() })
}

pub(crate) fn raw(value: &Value) -> JsonText {
    JsonText::parse(value.to_string()).expect("a JSON value prints as JSON")
}

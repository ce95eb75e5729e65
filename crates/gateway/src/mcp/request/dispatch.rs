//! Who answers a request, and under which name: the gateway itself, the menu, or one of the servers.

use super::Gateway;
use super::client::Client;
use super::cursor::{Edition, Place};
use super::era;
use super::extensions;
use super::forward::PassedOn;
use super::route::route;
use super::status_tool;
use super::tasks::Manner;
use gripfast::transport::Listener;
use gripfast::wire::era::meta;
use gripfast::wire::log::LogLevel;
use gripfast::wire::patch::{Object, Patch, patch_payload};
use gripfast::wire::results::List;
use gripfast::wire::{Era, Id, ProtocolVersion, codes, envelope};
use gripfast::{
    CacheScope, CallError, Code, Destination, Fate, Freshness, Kind, Principal, RawValue, Rendered, Served,
    Wanted,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A request of a client, as far as the answer depends on it.
pub(crate) struct Asked<'a> {
    /// The era in which the client asks.
    pub(crate) era: Era,
    /// What the client calls the request.
    pub(crate) id: Id<'a>,
    pub(crate) method: &'a str,
    pub(crate) params: Option<&'a RawValue>,
    /// Who hears of its progress, and is asked.
    pub(crate) ear: Arc<dyn Listener>,
    /// What the client can be asked and wants to hear.
    pub(crate) client: Client,
}

/// What the client is told.
pub(crate) enum Told {
    /// What a server answered.
    Answer(PassedOn),
    /// A result of our own.
    Result(Box<RawValue>),
    /// A page of a list.
    Page(Page),
    /// An error of our own.
    Fault(Fault),
    /// A server could not answer.
    Failed(CallError),
}

impl Asked<'_> {
    /// On whose behalf the client asks.
    fn principal(&self) -> &Principal {
        self.client.at_servers.principal()
    }
}

impl Told {
    /// Whether there is memory for it in any case: it is reserved, or it is an error of ours, which is small.
    pub(super) fn always_fits(&self) -> bool {
        match self {
            Self::Answer(passed_on) => passed_on.answer.is_counted(),
            Self::Fault(_) | Self::Failed(_) => true,
            Self::Result(_) | Self::Page(_) => false,
        }
    }

    /// What is denied looks unknown to clients; the reason is for the operator.
    fn unless_denied(self, unknown: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Failed(error) if error.code == Code::Denied => unknown(),
            told => told,
        }
    }
}

/// A JSON-RPC error of our own.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl Fault {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Told {
        Told::Fault(Self::new(codes::INVALID_PARAMS, message))
    }
}

/// A server, and its own name for something.
type Origin = (String, String);

/// Items on one page: more than most clients will ever see, and still a bounded message.
const PAGE: usize = 1000;

impl Gateway {
    /// Answers a request.
    pub(crate) async fn ask(&self, asked: Asked<'_>) -> Told {
        let Some(telemetry) = self.telemetry.get() else { return self.answer(asked).await };
        let span = telemetry.serving(asked.id, asked.method, asked.params);
        // Apart, so that those whom nobody is told of need not carry room for it.
        let told = Box::pin(span.around(self.answer(asked))).await;
        span.served(&told);
        told
    }

    async fn answer(&self, asked: Asked<'_>) -> Told {
        match asked.method {
            "ping" => result(&json!({})),
            "server/discover" => self.discover(&asked).await,
            "tools/list" => self.list(&asked, List::Tools).await,
            "resources/list" => self.list(&asked, List::Resources).await,
            "resources/templates/list" => self.list(&asked, List::ResourceTemplates).await,
            "prompts/list" => self.list(&asked, List::Prompts).await,
            "tools/call" => self.call_tool(&asked).await,
            "prompts/get" => self.get_prompt(&asked).await,
            "resources/read" => self.read(&asked).await,
            "completion/complete" => self.complete(&asked).await,
            "logging/setLevel" => self.set_level(&asked),
            "resources/subscribe" => self.subscribe(&asked).await,
            "resources/unsubscribe" => self.unsubscribe(&asked),
            "tasks/get" | "tasks/result" | "tasks/update" | "tasks/cancel" => self.task(&asked).await,
            "tasks/list" => self.list_tasks(&asked).await,
            _ => self.pass_on(&asked).await,
        }
    }

    /// The answer to `initialize`, for a client that asked for `wanted`; and the version that was agreed on.
    pub(crate) async fn initialize(
        &self,
        wanted: &ProtocolVersion,
        principal: &Principal,
    ) -> (ProtocolVersion, Box<RawValue>) {
        self.settle().await;
        self.herald.catch_up(principal);
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

    async fn discover(&self, asked: &Asked<'_>) -> Told {
        self.settle().await;
        let mut answer = json!({
            "supportedVersions": era::spoken(),
            "capabilities": self.capabilities(Era::Modern, asked.principal()),
            "resultType": "complete",
            "_meta": who_answers(),
        });
        let Freshness { ttl, mut scope } = self.host.facts_freshness();
        if asked.principal().name() != Principal::LOCAL {
            // By which name its key or token made it known, which is nobody else's business.
            answer["_meta"]["gripfast/client"] = asked.principal().name().into();
            scope = CacheScope::Private;
        }
        answer["ttlMs"] = millis(ttl).into();
        answer["cacheScope"] = word(scope).into();
        if let Some(instructions) = self.instructions(asked.principal()) {
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

    /// What is really served to whom. Lists are always told to be changing: a server that is away may come back
    /// with other tools.
    fn capabilities(&self, era: Era, principal: &Principal) -> Value {
        let menu = self.host.menu_for(principal);
        let mut capabilities = json!({ "tools": { "listChanged": true } });
        if !menu.resources.is_empty() || !menu.templates.is_empty() {
            capabilities["resources"] = json!({ "listChanged": true });
            if self.host.tells_of_resources() {
                capabilities["resources"]["subscribe"] = true.into();
            }
        }
        if !menu.prompts.is_empty() {
            capabilities["prompts"] = json!({ "listChanged": true });
        }
        if !menu.prompts.is_empty() || !menu.templates.is_empty() {
            capabilities["completions"] = json!({});
        }
        if self.host.logs() {
            capabilities["logging"] = json!({});
        }
        let has_apps = menu.menu.sources.iter().any(|source| !source.linked.is_empty());
        let (servers, mut declared) = (menu.menu.servers(), self.host.extensions());
        declared.retain(|extended| servers.contains(extended.server.as_str()));
        if let Some(extensions) = extensions::union(era, &declared, has_apps) {
            capabilities["extensions"] = extensions;
        }
        capabilities
    }

    /// The instructions of the servers that have something for this principal, joined under their names.
    fn instructions(&self, principal: &Principal) -> Option<String> {
        let menu = self.host.menu_for(principal);
        let servers = menu.menu.servers();
        let mut said = self.host.instructions();
        said.retain(|(server, _)| servers.contains(server.as_str()));
        if let Some(missing) = self.missing_servers(principal, &servers) {
            said.push(("gripfast".to_owned(), missing));
        }
        match said.as_slice() {
            [] => None,
            [(_, only)] if self.host.names().len() == 1 => Some(only.clone()),
            several => {
                let parts = several.iter().map(|(server, text)| format!("# {server}\n{text}"));
                Some(parts.collect::<Vec<_>>().join("\n\n"))
            }
        }
    }

    async fn list(&self, asked: &Asked<'_>, list: List) -> Told {
        self.settle().await;
        let menu = self.host.menu_for(asked.principal());
        let edition = Edition { process: self.process, revision: menu.revision, list: list.member() };
        let from = match asked.params.map(Object::parse).transpose() {
            Err(error) => return Fault::invalid(error.to_string()),
            Ok(params) => match params.as_ref().and_then(|params| params.get("cursor")) {
                None => 0,
                Some(null) if null.get() == "null" => 0,
                Some(_) => {
                    let text = params.as_ref().and_then(|params| params.text("cursor"));
                    match text.map_or(Place::Nowhere, |text| edition.place(&text)) {
                        Place::Item(from) => from,
                        Place::Elsewhere => {
                            return Fault::invalid("the list has changed since this cursor; begin again");
                        }
                        Place::Nowhere => return Fault::invalid("the cursor is not one of ours"),
                    }
                }
            },
        };
        let fresh = match asked.era {
            Era::Modern => Some(self.host.list_freshness(list)),
            Era::Legacy => None,
        };
        let own = (self.status_tool && list == List::Tools).then(status_tool::definition);
        Told::Page(Page::of(menu, list, edition, from, fresh, own.as_deref()))
    }

    async fn call_tool(&self, asked: &Asked<'_>) -> Told {
        let (params, name) = match deciding(asked.params, "name") {
            Ok(found) => found,
            Err(told) => return told,
        };
        if self.status_tool && name == status_tool::NAME {
            return result(&self.status_result(asked.principal(), asked.era));
        }
        let look = |menu: &Served| {
            let (to, _) = menu.menu.tool(&name)?;
            Some((origin(to), menu.wraps_output_for(asked.era, &name), menu.is_only_a_task(&name)))
        };
        let wanted = Wanted::Name(&name);
        let hidden = || Some((self.host.hidden(Kind::Tool, &name)?, false, false));
        let ((server, key), wrapped, tasks_only) = match self.find("tool", wanted, look, hidden).await {
            Ok(found) => found,
            Err(told) => return told,
        };
        let mut patch = Patch::new().set_text("name", &key);
        let manner = self.manner(asked, &server, tasks_only);
        if matches!(manner, Manner::Plainly) {
            patch = patch.remove("task");
        }
        let params = patch.apply(&params);
        let told = match manner {
            // What is denied is refused like what is unknown, and not for what it is.
            Manner::Refused(fault) if self.may_call(asked, &server, &key) => Told::Fault(fault),
            Manner::Carried => Box::pin(self.carry_task(asked, &server, params)).await,
            Manner::AsAsked | Manner::Plainly | Manner::Refused(_) => {
                self.forward(asked, &server, Ok(params)).await
            }
        };
        let Told::Answer(mut passed_on) = told else { return told.unless_denied(|| unknown("tool", wanted)) };
        if let Some((own, public)) = self.note_task(asked, &server, &passed_on.answer) {
            passed_on = passed_on.about_task(own, public);
        }
        Told::Answer(if wrapped { passed_on.with_wrapped_output() } else { passed_on })
    }

    fn may_call(&self, asked: &Asked<'_>, server: &str, tool: &str) -> bool {
        let decision = self.host.explain(Some(asked.principal()), server, Kind::Tool, tool);
        decision.is_ok_and(|decision| decision.allowed)
    }

    async fn get_prompt(&self, asked: &Asked<'_>) -> Told {
        let name = match member(asked.params, "name") {
            Ok(name) => name,
            Err(told) => return told,
        };
        let (server, key) = match self.prompt(&name).await {
            Ok(origin) => origin,
            Err(told) => return told,
        };
        let params = patch_payload(asked.params, &Patch::new().set_text("name", &key), &Patch::new());
        let told = self.forward(asked, &server, params).await;
        told.unless_denied(|| unknown("prompt", Wanted::Name(&name)))
    }

    async fn read(&self, asked: &Asked<'_>) -> Told {
        let uri = match member(asked.params, "uri") {
            Ok(uri) => uri,
            Err(told) => return told,
        };
        let look = |menu: &Served| menu.menu.resource(&uri).map(origin);
        let hidden = || self.host.hidden(Kind::Resource, &uri);
        let (server, key) = match self.find("resource", Wanted::Uri(&uri), look, hidden).await {
            Ok(origin) => origin,
            Err(told) => return told,
        };
        let params = patch_payload(asked.params, &Patch::new().set_text("uri", &key), &Patch::new());
        match self.forward(asked, &server, params).await {
            // Whoever keeps it must not give it to those who may not read it.
            Told::Answer(read) if self.host.tells_clients_apart() => Told::Answer(read.for_this_client()),
            told => told.unless_denied(|| unknown("resource", Wanted::Uri(&uri))),
        }
    }

    /// Whose a prompt is, and what its server calls it.
    async fn prompt(&self, name: &str) -> Result<Origin, Told> {
        let look = |menu: &Served| menu.menu.prompt(name).map(|(to, _)| origin(to));
        let hidden = || self.host.hidden(Kind::Prompt, name);
        self.find("prompt", Wanted::Name(name), look, hidden).await
    }

    /// Something on the menu, now or once a server that may have it was listed; or what its server hides,
    /// where the host will say no and write down why.
    async fn find<T>(
        &self,
        what: &str,
        wanted: Wanted<'_>,
        look: impl Fn(&Served) -> Option<T>,
        hidden: impl Fn() -> Option<T>,
    ) -> Result<T, Told> {
        let found = self.host.find(wanted, look).await.map_err(Told::Failed)?;
        found.or_else(hidden).ok_or_else(|| unknown(what, wanted))
    }

    async fn complete(&self, asked: &Asked<'_>) -> Told {
        let params = asked.params.and_then(|params| Object::parse(params).ok());
        let Some(reference) = params.as_ref().and_then(|params| params.object("ref")) else {
            return Fault::invalid("`completion/complete` needs a `ref`");
        };
        let (name, uri) = (reference.text("name"), reference.text("uri"));
        let (found, member) = match (name, uri) {
            (Some(name), _) => (self.prompt(&name).await, "name"),
            (None, Some(uri)) => {
                let look = |menu: &Served| menu.menu.template_or_resource(&uri).map(origin);
                let hidden = || self.host.hidden(Kind::Resource, &uri);
                (self.find("resource", Wanted::Uri(&uri), look, hidden).await, "uri")
            }
            (None, None) => {
                return Fault::invalid("`ref` needs the `name` of a prompt or the `uri` of a resource");
            }
        };
        let (server, key) = match found {
            Ok(origin) => origin,
            Err(told) => return told,
        };
        let patched = Patch::new().set_text(member, &key).apply(&reference);
        let params = patch_payload(asked.params, &Patch::new().set_owned("ref", patched), &Patch::new());
        let told = self.forward(asked, &server, params).await;
        told.unless_denied(|| match (reference.text("name"), reference.text("uri")) {
            (Some(name), _) => unknown("prompt", Wanted::Name(&name)),
            (None, uri) => unknown("resource", Wanted::Uri(&uri.unwrap_or_default())),
        })
    }

    /// A client says how severe a log message must be. Its next request brings that to the server that it is for.
    fn set_level(&self, asked: &Asked<'_>) -> Told {
        let Some(level) = LogLevel::in_params(asked.params) else {
            return Fault::invalid("`level` is not one that the protocol knows");
        };
        asked.client.level.set(level);
        result(&json!({}))
    }

    /// A method we do not know goes to the one server that can be meant by it, if there is one.
    async fn pass_on(&self, asked: &Asked<'_>) -> Told {
        self.settle().await;
        let menu = self.host.menu();
        let (names, extended) = (self.host.names(), self.host.extensions());
        let by_method = match names.as_slice() {
            [only] => Some(&**only),
            _ => extensions::owner_of(&extended, asked.method),
        };
        match route(&menu.menu, by_method, asked.params) {
            Ok(Some(to)) => {
                let told = self.forward(asked, &to.server, Ok(to.params)).await;
                told.unless_denied(|| no_method(asked.method))
            }
            Ok(None) => no_method(asked.method),
            Err(error) => Fault::invalid(error.to_string()),
        }
    }
}

/// One page of a list, as it was rendered: it is copied once, into the response.
pub(crate) struct Page {
    menu: Arc<Served>,
    list: List,
    era: Era,
    from: usize,
    /// What follows the items.
    rest: String,
}

impl Page {
    /// For how long it is good is said in the modern era only.
    /// `own` is an item of the gateway itself, at the end of the last page.
    fn of(
        menu: Arc<Served>,
        list: List,
        edition: Edition,
        from: usize,
        fresh: Option<Freshness>,
        own: Option<&str>,
    ) -> Self {
        let era = if fresh.is_some() { Era::Modern } else { Era::Legacy };
        let mut rest = String::new();
        match (rendered(&menu, list, era).page(from, PAGE), own) {
            ((_, Some(from)), _) => {
                rest.push_str("],\"nextCursor\":\"");
                rest.push_str(&edition.cursor(from));
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
            let (ttl, scope, meta) = (millis(ttl), word(scope), who_answers());
            rest.push_str(&format!(
                ",\"resultType\":\"complete\",\"ttlMs\":{ttl},\"cacheScope\":\"{scope}\",\"_meta\":{meta}"
            ));
        }
        rest.push('}');
        Self { menu, list, era, from, rest }
    }

    /// The response to a request for it.
    pub(super) fn response(&self, id: Id<'_>) -> Vec<u8> {
        let (items, _) = rendered(&self.menu, self.list, self.era).page(self.from, PAGE);
        envelope::response_of(id, &["{\"", self.list.member(), "\":[", items, &self.rest])
    }
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn word(scope: CacheScope) -> &'static str {
    match scope {
        CacheScope::Public => "public",
        CacheScope::Private => "private",
    }
}

fn rendered(menu: &Served, list: List, era: Era) -> &Rendered {
    match list {
        List::Tools => menu.tools_for(era),
        List::Resources => &menu.resources,
        List::ResourceTemplates => &menu.templates,
        List::Prompts => &menu.prompts,
    }
}

/// A member that decides where a request goes. Its name must not be written in two ways.
pub(super) fn member(params: Option<&RawValue>, name: &'static str) -> Result<String, Told> {
    deciding(params, name).map(|(_, text)| text)
}

/// The same, with all the others.
fn deciding<'a>(params: Option<&'a RawValue>, name: &'static str) -> Result<(Object<'a>, String), Told> {
    let missing = || Fault::invalid(format!("`params` needs `{name}`"));
    let params = params.ok_or_else(missing)?;
    let object = Object::parse(params).map_err(|error| Fault::invalid(error.to_string()))?;
    let text = object.text_deciding(name).map_err(|error| Fault::invalid(error.to_string()))?;
    let text = text.ok_or_else(missing)?.into_owned();
    Ok((object, text))
}

fn origin(destination: Destination<'_>) -> Origin {
    (destination.server.to_owned(), destination.key.to_owned())
}

pub(super) fn unknown(what: &str, wanted: Wanted<'_>) -> Told {
    let (Wanted::Name(name) | Wanted::Uri(name)) = wanted;
    let mut fault = Fault::new(codes::INVALID_PARAMS, format!("unknown {what}: {name}"));
    let code = if what == "tool" { Code::UnknownTool } else { Code::InvalidRequest };
    let mut data = json!({ "code": code.word(), "outcome": Fate::NotSent.word() });
    if let Wanted::Uri(uri) = wanted {
        data["uri"] = uri.into();
    }
    fault.data = Some(data);
    Told::Fault(fault)
}

fn no_method(method: &str) -> Told {
    Told::Fault(Fault::new(codes::METHOD_NOT_FOUND, format!("method not found: {method}")))
}

fn result(value: &Value) -> Told {
    Told::Result(raw(value))
}

fn server_info() -> Value {
    json!({ "name": "gripfast", "version": env!("CARGO_PKG_VERSION") })
}

/// The `_meta` in which a modern result says who made it.
pub(super) fn who_answers() -> Value {
    json!({ meta::SERVER_INFO: server_info() })
}

pub(crate) fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).expect("a JSON value prints as JSON")
}

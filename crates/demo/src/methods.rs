//! Answers requests: which method exists in which era, and what it says. Knows nothing of transports; tools have
//! a file of their own.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use crate::{
    catalog::{self, COMPLETIONS, COUNTER, ECHO, GREETING, page},
    frame::{Delivery, Frame},
    inquire, later,
    options::EraChoice,
    peer::{Outlet, Peer, Request},
    rpc::{
        self, Era, INVALID_PARAMS, LEGACY_VERSIONS, META_SUBSCRIPTION, METHOD_NOT_FOUND, MODERN_VERSION,
        Message, NOT_INITIALIZED, RESOURCE_NOT_FOUND, RpcError,
    },
    showcase, tools,
    world::{Change, World},
};

/// What is said, and how honestly it is put on the wire.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) outcome: Result<Value, RpcError>,
    pub(crate) delivery: Delivery,
}

impl From<Result<Value, RpcError>> for Reply {
    fn from(outcome: Result<Value, RpcError>) -> Self {
        Self { outcome, delivery: Delivery::WHOLE }
    }
}

/// Handles one request to its end. `None` if it was cancelled: a cancelled request is not answered.
///
/// The answer is looked for before the cancellation, so what can be answered at once still is when a pipe closes
/// behind its last request. Dropping the future cancels the request as well.
pub(crate) async fn perform(world: &Arc<World>, request: Request) -> Option<Frame> {
    let _handling = world.handling();
    tokio::select! {
        biased;
        reply = answer(world, &request) => {
            let outcome = match request.era {
                Era::Modern => reply
                    .outcome
                    .map(|result| rpc::modernise(&request.call.method, result, world.server_info())),
                Era::Legacy => reply.outcome,
            };
            Some(Frame::Answer(rpc::answer(&request.call.id, outcome), reply.delivery))
        }
        () = request.running.token.cancelled() => None,
    }
}

/// Handles the members of a batch side by side. `None` if nothing in it wants an answer.
pub(crate) async fn perform_batch(
    world: &Arc<World>,
    peer: &Arc<Peer>,
    outlet: &Outlet,
    members: Vec<Value>,
) -> Option<Frame> {
    let answers = members.into_iter().map(|member| async move {
        match Message::sort(member) {
            Message::Request(call) => {
                let request = Request::begin(call, Era::Legacy, peer, outlet.clone());
                match perform(world, request).await? {
                    Frame::Answer(answer, _) => Some(answer),
                    Frame::Message(_) | Frame::Junk(_) => None,
                }
            }
            Message::Notification { method, params } => {
                notice(peer, &method, &params);
                None
            }
            Message::Response { id, body } => {
                peer.answered(&id, body);
                None
            }
            Message::Malformed(error) => Some(error.answer(&Value::Null)),
        }
    });
    let answers: Vec<Value> = join_all(answers).await.into_iter().flatten().collect();
    (!answers.is_empty()).then(|| Frame::Answer(Value::Array(answers), Delivery::WHOLE))
}

/// Handles a notification of the client.
pub(crate) fn notice(peer: &Arc<Peer>, method: &str, params: &Value) {
    match method {
        "notifications/cancelled" => peer.cancel(&params["requestId"]),
        "notifications/roots/list_changed" => inquire::roots_changed(peer),
        // `notifications/initialized` changes nothing here: a client that got its answer is ready.
        _ => {}
    }
}

async fn answer(world: &Arc<World>, request: &Request) -> Reply {
    let faults = world.faults();
    let method = request.call.method.as_str();
    let handshake = matches!(method, "initialize" | "server/discover");
    if (handshake && faults.never_answer_initialize)
        || (method == "server/discover" && faults.ignore_discover)
    {
        return std::future::pending().await;
    }
    if !faults.answer_delay.is_zero() {
        tokio::time::sleep(faults.answer_delay).await;
    }
    if let Err(error) = admit(world, request) {
        return Err(error).into();
    }
    if method == "tools/call" {
        return tools::call(world, request).await;
    }
    let outcome = match (request.era, method) {
        (Era::Modern, "server/discover") => Ok(discover(world)),
        (Era::Modern, "subscriptions/listen") => listen(world, request).await,
        (Era::Legacy, "initialize") => initialize(world, request),
        (Era::Legacy, "ping") if !faults.no_ping => Ok(json!({})),
        (Era::Legacy, "logging/setLevel") => set_level(request),
        (Era::Legacy, "resources/subscribe") => text(request, "uri").map(|uri| {
            request.peer.subscribe(uri);
            json!({})
        }),
        (Era::Legacy, "resources/unsubscribe") => text(request, "uri").map(|uri| {
            request.peer.unsubscribe(uri);
            json!({})
        }),
        (Era::Legacy, "tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/list")
        | (Era::Modern, "tasks/get" | "tasks/update" | "tasks/cancel")
            if world.options.showcase =>
        {
            later::answer(world, request).await
        }
        (_, "tools/list") => list(world, request, "tools", world.tools()),
        (_, "resources/list") => list(world, request, "resources", catalog::resources()),
        (_, "resources/templates/list") => {
            list(world, request, "resourceTemplates", catalog::resource_templates())
        }
        (_, "prompts/list") => list(world, request, "prompts", catalog::prompts()),
        (_, "resources/read") => read(world, request),
        (_, "prompts/get") => prompt(request),
        (_, "completion/complete") => Ok(complete(request)),
        (_, unknown) => Err(RpcError::new(METHOD_NOT_FOUND, format!("method not found: {unknown}"))),
    };
    outcome.into()
}

/// Whether the request may be looked at: its era is spoken, its envelope is whole, and in the legacy era the
/// handshake has happened.
fn admit(world: &World, request: &Request) -> Result<(), RpcError> {
    let method = request.call.method.as_str();
    match (request.era, world.options.era) {
        (Era::Modern, EraChoice::Both | EraChoice::Modern) => request.call.check_envelope(),
        (Era::Legacy, EraChoice::Both | EraChoice::Legacy) => {
            if request.peer.version().is_some() || matches!(method, "initialize" | "ping") {
                Ok(())
            } else {
                Err(RpcError::new(NOT_INITIALIZED, "Bad Request: Server not initialized"))
            }
        }
        (Era::Modern, EraChoice::Legacy) => {
            Err(RpcError::new(NOT_INITIALIZED, "Bad Request: Server not initialized"))
        }
        // An `initialize` names the version it wants; anything else without an envelope lacks one.
        (Era::Legacy, EraChoice::Modern) => match request.param("protocolVersion") {
            Value::String(requested) if method == "initialize" => Err(rpc::unsupported_version(requested)),
            _ => request.call.check_envelope(),
        },
    }
}

/// The same in both eras; what `subscribe` and `logging` mean on the wire differs.
fn capabilities(world: &World, era: Era) -> Value {
    let mut capabilities = json!({
        "tools": { "listChanged": true },
        "resources": { "subscribe": true, "listChanged": false },
        "prompts": { "listChanged": false },
        "completions": {},
        "logging": {},
    });
    if world.options.showcase {
        capabilities["extensions"] = showcase::extensions();
        match era {
            Era::Legacy => capabilities["tasks"] = later::capability(),
            Era::Modern => capabilities["extensions"][later::TASKS] = json!({}),
        }
    }
    capabilities
}

const INSTRUCTIONS: &str =
    "A sample server. `echo`, `add` and `sleep` are honest; `crash` and `misbehave` are not.";

fn initialize(world: &World, request: &Request) -> Result<Value, RpcError> {
    let requested = text(request, "protocolVersion")?;
    let newest = world.options.legacy_version.as_str();
    let known = LEGACY_VERSIONS.contains(&requested) && requested <= newest;
    let version = if known { requested } else { newest };
    request.peer.initialize(version, request.param("capabilities").clone());
    world.count_initialize();
    Ok(json!({
        "protocolVersion": version,
        "capabilities": capabilities(world, Era::Legacy),
        "serverInfo": world.server_info(),
        "instructions": INSTRUCTIONS,
    }))
}

fn discover(world: &World) -> Value {
    json!({
        "supportedVersions": [MODERN_VERSION],
        "capabilities": capabilities(world, Era::Modern),
        "instructions": INSTRUCTIONS,
        // Asked again after a restart, it should be seen to answer.
        "ttlMs": 0,
        "cacheScope": "public",
        "_meta": { rpc::META_SERVER_INFO: world.server_info() },
    })
}

fn set_level(request: &Request) -> Result<Value, RpcError> {
    let level = text(request, "level")?;
    if request.peer.set_level(level) {
        Ok(json!({}))
    } else {
        Err(RpcError::invalid(format!("`{level}` is not a log level")))
    }
}

/// Tells of changes until the request is cancelled or the server ends. Only the end of the server is answered.
async fn listen(world: &World, request: &Request) -> Result<Value, RpcError> {
    let id = &request.call.id;
    let wanted = request.param("notifications");
    let tools = wanted["toolsListChanged"] == true;
    let uris: Vec<&str> =
        wanted["resourceSubscriptions"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let tasks: Vec<&str> =
        wanted["taskIds"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    // From here on no change is missed, and the acknowledgement says so.
    let mut changes = world.changes.subscribe();
    let mut accepted = json!({});
    if tools {
        accepted["toolsListChanged"] = json!(true);
    }
    if !uris.is_empty() {
        accepted["resourceSubscriptions"] = json!(uris);
    }
    if !tasks.is_empty() {
        accepted["taskIds"] = json!(tasks);
    }
    let meta = json!({ META_SUBSCRIPTION: id });
    let acknowledged = json!({ "notifications": accepted, "_meta": meta });
    request.notify("notifications/subscriptions/acknowledged", acknowledged).await;
    loop {
        let change = tokio::select! {
            change = changes.recv() => change,
            () = world.life.cancelled() => Err(RecvError::Closed),
        };
        match change {
            Ok(change) => {
                let wanted = match &change {
                    Change::Tools => tools,
                    Change::Resource(uri) => uris.contains(&uri.as_str()),
                    Change::Task(task) => task["taskId"].as_str().is_some_and(|id| tasks.contains(&id)),
                };
                if wanted {
                    request.outlet.send(Frame::Message(change.notification(Some(id)))).await;
                }
            }
            // Some were missed. Naming one of each kind is right: they say "look again".
            Err(RecvError::Lagged(_)) => {
                let kinds = uris.iter().map(|uri| Change::Resource((*uri).to_owned()));
                for change in kinds.chain(tools.then_some(Change::Tools)) {
                    request.outlet.send(Frame::Message(change.notification(Some(id)))).await;
                }
            }
            Err(RecvError::Closed) => return Ok(json!({ "_meta": meta })),
        }
    }
}

fn list(world: &World, request: &Request, key: &str, items: Vec<Value>) -> Result<Value, RpcError> {
    page(key, items, request.param("cursor"), world.options.page_size)
}

fn read(world: &World, request: &Request) -> Result<Value, RpcError> {
    let uri = text(request, "uri")?;
    let shown = showcase::read(uri, &world.options.name).filter(|_| world.options.showcase);
    if let Some(content) = shown {
        return Ok(json!({ "contents": [content] }));
    }
    let content = match uri {
        GREETING => "Hello from the sample server.".to_owned(),
        COUNTER => world.counter().to_string(),
        other => match other.strip_prefix(ECHO) {
            Some(text) if !text.is_empty() => text.to_owned(),
            Some(_) | None => {
                let code = match request.era {
                    Era::Legacy => RESOURCE_NOT_FOUND,
                    Era::Modern => INVALID_PARAMS,
                };
                return Err(RpcError::new(code, "resource not found").with_data(json!({ "uri": uri })));
            }
        },
    };
    Ok(json!({ "contents": [{ "uri": uri, "mimeType": "text/plain", "text": content }] }))
}

fn prompt(request: &Request) -> Result<Value, RpcError> {
    let name = text(request, "name")?;
    if name != "greet" {
        return Err(RpcError::invalid(format!("unknown prompt: {name}")));
    }
    let Some(whom) = request.param("arguments")["name"].as_str() else {
        return Err(RpcError::invalid("the prompt `greet` needs the argument `name`"));
    };
    let text = format!("Please greet {whom} in one friendly sentence.");
    Ok(json!({
        "description": "Asks for a greeting.",
        "messages": [{ "role": "user", "content": { "type": "text", "text": text } }],
    }))
}

fn complete(request: &Request) -> Value {
    let typed = request.param("argument")["value"].as_str().unwrap_or_default();
    let values: Vec<&str> = COMPLETIONS.into_iter().filter(|name| name.starts_with(typed)).collect();
    json!({ "completion": { "values": values, "total": values.len(), "hasMore": false } })
}

pub(crate) fn text<'a>(request: &'a Request, name: &str) -> Result<&'a str, RpcError> {
    request.param(name).as_str().ok_or_else(|| RpcError::invalid(format!("`{name}` must be a text")))
}

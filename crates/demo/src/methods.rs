//! Handles requests and notifications: the methods of each era. Knows nothing about transports; tools are in `tools`.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use crate::{
    background_tasks,
    catalog::{self, COMPLETIONS, COUNTER, ECHO, GREETING, page},
    elicit,
    frame::{Delivery, Frame},
    options::EraChoice,
    peer::{MessageSink, Peer, Request},
    rpc::{
        self, Era, INVALID_PARAMS, LEGACY_VERSIONS, META_SUBSCRIPTION, METHOD_NOT_FOUND, MODERN_VERSION,
        Message, NOT_INITIALIZED, RESOURCE_NOT_FOUND, RpcError,
    },
    showcase,
    state::{Change, ServerState},
    tools,
};

/// Result of a request, and the way it is written.
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
/// The answer is polled before the cancellation, so that requests that can be answered at once still are when a pipe
/// closes after its last request. Dropping the future cancels the request as well.
pub(crate) async fn perform(state: &Arc<ServerState>, request: Request) -> Option<Frame> {
    let _handling = state.track_request();
    tokio::select! {
        biased;
        reply = answer(state, &request) => {
            let outcome = match request.era {
                Era::Modern => reply
                    .outcome
                    .map(|result| rpc::modernise(&request.call.method, result, state.server_info())),
                Era::Legacy => reply.outcome,
            };
            Some(Frame::Answer(rpc::answer(&request.call.id, outcome), reply.delivery))
        }
        () = request.in_flight.token.cancelled() => None,
    }
}

/// Handles the members of a batch concurrently. `None` if none of them expects an answer.
pub(crate) async fn perform_batch(
    state: &Arc<ServerState>,
    peer: &Arc<Peer>,
    outlet: &MessageSink,
    members: Vec<Value>,
) -> Option<Frame> {
    let answers = members.into_iter().map(|member| async move {
        match Message::from_value(member) {
            Message::Request(call) => {
                let request = Request::begin(call, Era::Legacy, peer, outlet.clone());
                match perform(state, request).await? {
                    Frame::Answer(answer, _) => Some(answer),
                    Frame::Message(_) | Frame::Junk(_) => None,
                }
            }
            Message::Notification { method, params } => {
                handle_notification(peer, &method, &params);
                None
            }
            Message::Response { id, body } => {
                peer.resolve_question(&id, body);
                None
            }
            Message::Malformed(error) => Some(error.answer(&Value::Null)),
        }
    });
    let answers: Vec<Value> = join_all(answers).await.into_iter().flatten().collect();
    (!answers.is_empty()).then(|| Frame::Answer(Value::Array(answers), Delivery::WHOLE))
}

/// Handles a notification of the client.
pub(crate) fn handle_notification(peer: &Arc<Peer>, method: &str, params: &Value) {
    match method {
        "notifications/cancelled" => peer.cancel(&params["requestId"]),
        "notifications/roots/list_changed" => elicit::roots_changed(peer),
        // `notifications/initialized` changes nothing: the client is ready after the answer to `initialize`.
        _ => {}
    }
}

async fn answer(state: &Arc<ServerState>, request: &Request) -> Reply {
    let faults = state.faults();
    let method = request.call.method.as_str();
    let handshake = matches!(method, "initialize" | "server/discover");
    if (handshake && faults.never_answer_initialize)
        || (method == "server/discover" && faults.ignore_discover)
    {
        return std::future::pending().await;
    }
    if let Some(delay) = faults.answer_delay {
        tokio::time::sleep(delay).await;
    }
    if let Err(error) = admit(state, request) {
        return Err(error).into();
    }
    if method == "tools/call" {
        return tools::call(state, request).await;
    }
    let outcome = match (request.era, method) {
        (Era::Modern, "server/discover") => Ok(discover(state)),
        (Era::Modern, "subscriptions/listen") => listen(state, request).await,
        (Era::Legacy, "initialize") => initialize(state, request),
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
            if state.options.showcase =>
        {
            background_tasks::answer(state, request).await
        }
        (_, "tools/list") => list(state, request, "tools", state.tools()),
        (_, "resources/list") => list(state, request, "resources", catalog::resources()),
        (_, "resources/templates/list") => {
            list(state, request, "resourceTemplates", catalog::resource_templates())
        }
        (_, "prompts/list") => list(state, request, "prompts", catalog::prompts()),
        (_, "resources/read") => read(state, request),
        (_, "prompts/get") => prompt(request),
        (_, "completion/complete") => Ok(complete(request)),
        (_, unknown) => Err(RpcError::new(METHOD_NOT_FOUND, format!("method not found: {unknown}"))),
    };
    outcome.into()
}

/// Checks that the era of the request is supported, its envelope is complete and, in the legacy era, the handshake has
/// happened.
fn admit(state: &ServerState, request: &Request) -> Result<(), RpcError> {
    let method = request.call.method.as_str();
    match (request.era, state.options.era) {
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
        // `initialize` requests a version; anything else without an envelope is incomplete.
        (Era::Legacy, EraChoice::Modern) => match request.param("protocolVersion") {
            Value::String(requested) if method == "initialize" => Err(rpc::unsupported_version(requested)),
            _ => request.call.check_envelope(),
        },
    }
}

/// The capabilities of the server. They are the same in both eras, except for tasks.
fn capabilities(state: &ServerState, era: Era) -> Value {
    let mut capabilities = json!({
        "tools": { "listChanged": true },
        "resources": { "subscribe": true, "listChanged": false },
        "prompts": { "listChanged": false },
        "completions": {},
        "logging": {},
    });
    if state.options.showcase {
        capabilities["extensions"] = showcase::extensions();
        match era {
            Era::Legacy => capabilities["tasks"] = background_tasks::capability(),
            Era::Modern => capabilities["extensions"][background_tasks::TASKS] = json!({}),
        }
    }
    capabilities
}

const INSTRUCTIONS: &str =
    "A sample server. `echo`, `add` and `sleep` behave well; `crash` and `misbehave` do not.";

fn initialize(state: &ServerState, request: &Request) -> Result<Value, RpcError> {
    let requested = text(request, "protocolVersion")?;
    let newest = state.options.legacy_version.as_str();
    let known = LEGACY_VERSIONS.contains(&requested) && requested <= newest;
    let version = if known { requested } else { newest };
    request.peer.initialize(version, request.param("capabilities").clone());
    state.count_initialize();
    Ok(json!({
        "protocolVersion": version,
        "capabilities": capabilities(state, Era::Legacy),
        "serverInfo": state.server_info(),
        "instructions": INSTRUCTIONS,
    }))
}

fn discover(state: &ServerState) -> Value {
    json!({
        "supportedVersions": [MODERN_VERSION],
        "capabilities": capabilities(state, Era::Modern),
        "instructions": INSTRUCTIONS,
        // Not cached, so that tests see it answer again after a restart.
        "ttlMs": 0,
        "cacheScope": "public",
        "_meta": { rpc::META_SERVER_INFO: state.server_info() },
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

/// Sends notifications of changes until the request is cancelled or the server ends. Only the end of the server is
/// answered.
async fn listen(state: &ServerState, request: &Request) -> Result<Value, RpcError> {
    let id = &request.call.id;
    let wanted = request.param("notifications");
    let tools = wanted["toolsListChanged"] == true;
    let uris: Vec<&str> =
        wanted["resourceSubscriptions"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let tasks: Vec<&str> =
        wanted["taskIds"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    // No change is missed from here on, as the acknowledgement promises.
    let mut changes = state.changes.subscribe();
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
            () = state.shutdown.cancelled() => Err(RecvError::Closed),
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
            // Some changes were missed. One notification of each kind is enough to make the client list again.
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

fn list(state: &ServerState, request: &Request, key: &str, items: Vec<Value>) -> Result<Value, RpcError> {
    page(key, items, request.param("cursor"), state.options.page_size)
}

fn read(state: &ServerState, request: &Request) -> Result<Value, RpcError> {
    let uri = text(request, "uri")?;
    let shown = showcase::read(uri, &state.options.name).filter(|_| state.options.showcase);
    if let Some(content) = shown {
        return Ok(json!({ "contents": [content] }));
    }
    let content = match uri {
        GREETING => "Hello from the sample server.".to_owned(),
        COUNTER => state.counter().to_string(),
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

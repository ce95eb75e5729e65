//! Method dispatch, shared by HTTP and stdio.

use serde_json::{Value, json};

use crate::caller::{Caller, level_named};
use crate::inputs::Stop;
use crate::rpc::{
    INTERNAL_ERROR, INVALID_PARAMS, LEGACY_VERSIONS, META_SERVER_INFO, MODERN_VERSION, RESOURCE_NOT_FOUND,
    Request, RpcError,
};
use crate::state::{Era, ServerState};
use crate::{catalog, skills, tasks, tools};

/// Result of `initialize`.
pub(crate) fn initialize(request: &Request) -> Value {
    let wanted = request.params["protocolVersion"].as_str();
    let version = wanted.filter(|wanted| LEGACY_VERSIONS.contains(wanted)).unwrap_or(LEGACY_VERSIONS[0]);
    json!({ "protocolVersion": version, "capabilities": capabilities(), "serverInfo": server_info() })
}

/// Answer to any other request. The required members of modern requests were checked before.
pub(crate) async fn answer(
    shared: &ServerState,
    caller: &Caller,
    request: &Request,
) -> Result<Value, RpcError> {
    let result = match (caller.era(), request.method.as_str()) {
        (Era::Legacy, "ping") => Ok(json!({})),
        (Era::Legacy, "logging/setLevel") => set_level(caller, request),
        (Era::Legacy, "resources/subscribe" | "resources/unsubscribe") => subscribe(caller, request),
        (Era::Modern, "server/discover") => Ok(discover()),
        (Era::Modern, "tasks/get" | "tasks/update" | "tasks/cancel") => {
            tasks::answer(shared, caller, request)
        }
        (Era::Modern, "skills/list" | "skills/get" | "resources/directory/read") => skills::answer(request),
        (_, "tools/list") => Ok(json!({ "tools": catalog::tools(shared) })),
        (_, "prompts/list") => Ok(json!({ "prompts": catalog::prompts(shared) })),
        (_, "resources/list") => Ok(json!({ "resources": catalog::resources(shared) })),
        (_, "resources/templates/list") => Ok(json!({ "resourceTemplates": catalog::templates() })),
        (era, "resources/read") => read(era, request.text("uri")?),
        (_, "completion/complete") => complete(request),
        (_, "tools/call") => or_input_required(tools::call(shared, caller, request).await),
        (_, "prompts/get") => or_input_required(tools::prompt(shared, caller, request).await),
        (_, unknown) => Err(RpcError::method_not_found(unknown)),
    };
    match caller.era() {
        Era::Legacy => result,
        Era::Modern => result.map(|result| to_modern(&request.method, result)),
    }
}

fn capabilities() -> Value {
    json!({
        "tools": { "listChanged": true },
        "prompts": { "listChanged": true },
        "resources": { "subscribe": true },
        "completions": {},
        "logging": {},
    })
}

fn server_info() -> Value {
    json!({ "name": "conformance-server", "version": env!("CARGO_PKG_VERSION") })
}

fn discover() -> Value {
    let mut capabilities = capabilities();
    capabilities["extensions"] =
        json!({ tasks::EXTENSION: {}, skills::EXTENSION: { "directoryRead": true } });
    json!({ "supportedVersions": [MODERN_VERSION], "capabilities": capabilities })
}

/// Adds the members that every modern result has: its type, the server, and for some results a TTL.
fn to_modern(method: &str, mut result: Value) -> Value {
    let cacheable = method.ends_with("/list")
        || matches!(method, "server/discover" | "resources/read" | "skills/get" | "resources/directory/read");
    if result.get("resultType").is_none() {
        result["resultType"] = "complete".into();
    }
    if cacheable && result["resultType"] == "complete" {
        result["ttlMs"] = 60_000.into();
        result["cacheScope"] = "public".into();
    }
    result["_meta"][META_SERVER_INFO] = server_info();
    result
}

/// Turns a request for input into a result, which it is in the modern era.
fn or_input_required(outcome: Result<Value, Stop>) -> Result<Value, RpcError> {
    match outcome {
        Ok(result) => Ok(result),
        Err(Stop::Error(error)) => Err(error),
        Err(Stop::RequestFailed(why)) => Err(RpcError::new(INTERNAL_ERROR, why)),
        Err(Stop::InputRequired { requests, state }) => {
            let mut result = json!({ "resultType": "input_required", "inputRequests": requests });
            if let Some(state) = state {
                result["requestState"] = state.into();
            }
            Ok(result)
        }
    }
}

fn set_level(caller: &Caller, request: &Request) -> Result<Value, RpcError> {
    let unknown = || RpcError::new(INVALID_PARAMS, "there is no such level");
    let level = level_named(request.text("level")?).ok_or_else(unknown)?;
    if let Some(client) = caller.as_legacy() {
        client.set_level(level);
    }
    Ok(json!({}))
}

fn subscribe(caller: &Caller, request: &Request) -> Result<Value, RpcError> {
    let uri = request.text("uri")?;
    match (caller.as_legacy(), request.method.as_str()) {
        (Some(client), "resources/subscribe") => client.subscribe(uri),
        (Some(client), _) => client.unsubscribe(uri),
        (None, _) => {}
    }
    Ok(json!({}))
}

fn read(era: Era, uri: &str) -> Result<Value, RpcError> {
    let content = catalog::content(uri).or_else(|| skills::content(uri).filter(|_| era == Era::Modern));
    content.map(|content| json!({ "contents": [content] })).ok_or_else(|| {
        let code = match era {
            Era::Legacy => RESOURCE_NOT_FOUND,
            Era::Modern => INVALID_PARAMS,
        };
        RpcError::new(code, "resource not found").with(json!({ "uri": uri }))
    })
}

fn complete(request: &Request) -> Result<Value, RpcError> {
    let begun = request.params["argument"]["value"].as_str();
    let begun = begun.ok_or_else(|| RpcError::new(INVALID_PARAMS, "there is nothing to complete"))?;
    let known = ["paris", "park", "party", "test", "testing"];
    let values: Vec<_> = known.into_iter().filter(|value| value.starts_with(begun)).collect();
    Ok(json!({ "completion": { "values": values, "total": values.len(), "hasMore": false } }))
}

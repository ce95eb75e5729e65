//! Implementation of the tools. Those that violate the protocol are in `misbehave`.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::{
    background_tasks,
    catalog::COUNTER,
    elicit,
    frame::{Delivery, Part, Then},
    methods::{Reply, text},
    misbehave,
    peer::Request,
    process,
    rpc::{Era, MISSING_CLIENT_CAPABILITY, RpcError},
    showcase,
    state::{Change, ProcessOwner, ServerState},
};

const PROGRESS_EVERY: Duration = Duration::from_millis(100);

pub(crate) async fn call(state: &Arc<ServerState>, request: &Request) -> Reply {
    let name = match text(request, "name") {
        Ok(name) if state.has_tool(name) => name,
        Ok(name) => return Err(RpcError::invalid(format!("unknown tool: {name}"))).into(),
        Err(error) => return Err(error).into(),
    };
    let _calling = state.track_call();
    let number = state.count_call();
    let faults = state.faults();
    if faults.exit_in_call == Some(number) {
        return die(Part::Nothing, faults.exit_code());
    }
    request.log("info", json!({ "tool": name, "call": number })).await;
    let arguments = request.param("arguments");
    let mut reply = match name {
        "echo" => required(arguments, "text", Value::as_str)
            .map(|text| structured(text, json!({ "text": text })))
            .into(),
        "add" => add(arguments).into(),
        "sleep" => sleep(request, arguments).await.into(),
        "counter" => counter(state, arguments).await.into(),
        "fail" => Ok(failure(arguments["message"].as_str().unwrap_or("told to fail"))).into(),
        "reject" => Err(RpcError::invalid("told to reject")).into(),
        "ask" => ask(state, request, arguments).await.into(),
        "route" => required(arguments, "region", Value::as_str)
            .map(|region| plain(&format!("routed to {region}")))
            .into(),
        "words" => showcase::call_words(arguments).into(),
        "panel" => Ok(showcase::call_panel(request)).into(),
        "job" => background_tasks::begin(state, request).into(),
        "visit" => background_tasks::visit(state, request).await.into(),
        "finish" => background_tasks::finish(state, request).await.into(),
        "roots" => elicit::call(request, &elicit::ROOTS).await.into(),
        "sample" => elicit::call(request, &elicit::SAMPLING).await.into(),
        "crash" => crash(state, arguments),
        "misbehave" => misbehave::call(state, request, arguments).await,
        synthetic => Ok(plain(&json!({ "tool": synthetic, "arguments": arguments }).to_string())).into(),
    };
    if faults.exit_after.is_some_and(|limit| number >= limit) {
        reply.delivery = Delivery::new(reply.delivery.part, Then::Die(faults.exit_code()));
    }
    reply
}

/// A result with one text.
pub(crate) fn plain(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

pub(crate) fn structured(text: &str, content: Value) -> Value {
    let mut result = plain(text);
    result["structuredContent"] = content;
    result
}

pub(crate) fn failure(text: &str) -> Value {
    let mut result = plain(text);
    result["isError"] = json!(true);
    result
}

pub(crate) fn required<'a, T>(
    arguments: &'a Value,
    name: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<T, RpcError> {
    read(&arguments[name])
        .ok_or_else(|| RpcError::invalid(format!("the argument `{name}` is missing or of the wrong type")))
}

fn add(arguments: &Value) -> Result<Value, RpcError> {
    let sum = if let (Some(a), Some(b)) = (arguments["a"].as_i64(), arguments["b"].as_i64()) {
        // Integers stay integers if the sum fits.
        a.checked_add(b).map_or_else(|| json!(a as f64 + b as f64), |sum| json!(sum))
    } else {
        json!(required(arguments, "a", Value::as_f64)? + required(arguments, "b", Value::as_f64)?)
    };
    Ok(structured(&sum.to_string(), json!({ "sum": sum })))
}

/// Sleeps, with progress. Dropping the future cancels it.
async fn sleep(request: &Request, arguments: &Value) -> Result<Value, RpcError> {
    let ms = required(arguments, "ms", Value::as_u64)?;
    let started = Instant::now();
    let wake = started + Duration::from_millis(ms);
    let token = request.call.meta("progressToken");
    let mut next = started + PROGRESS_EVERY;
    while !token.is_null() && next < wake {
        sleep_until(next).await;
        let slept = (next - started).as_millis() as u64;
        let progress =
            json!({ "progressToken": token, "progress": slept, "total": ms, "message": "sleeping" });
        request.notify("notifications/progress", progress).await;
        next += PROGRESS_EVERY;
    }
    sleep_until(wake).await;
    Ok(plain(&format!("slept {ms} ms")))
}

async fn counter(state: &ServerState, arguments: &Value) -> Result<Value, RpcError> {
    let by = match &arguments["by"] {
        Value::Null => 1,
        _ => required(arguments, "by", Value::as_u64)?,
    };
    let key = arguments["key"].as_str().unwrap_or("-");
    if key.is_empty() || key.contains(char::is_whitespace) {
        return Err(RpcError::invalid("the argument `key` must be one word"));
    }
    let value = match state.count(by, key) {
        Ok(value) => value,
        Err(error) => return Ok(failure(&format!("the counter file cannot be written: {error}"))),
    };
    state.announce(Change::Resource(COUNTER.to_owned())).await;
    if let Some(ms) = arguments["ms"].as_u64() {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    Ok(structured(&value.to_string(), json!({ "value": value })))
}

/// Asks for a yes or no: with a request to the client in the legacy era, with `input_required` in the modern one.
pub(crate) async fn ask(
    state: &ServerState,
    request: &Request,
    arguments: &Value,
) -> Result<Value, RpcError> {
    let question = arguments["question"].as_str().unwrap_or("Go on?");
    let mut form = json!({
        "message": question,
        "requestedSchema": {
            "type": "object",
            "properties": { "ok": { "type": "boolean", "title": question } },
            "required": ["ok"],
        },
    });
    match request.era {
        Era::Legacy => {
            if !request.client_can("elicitation") {
                return Ok(failure("this client did not declare `elicitation`"));
            }
            match request.ask_client("elicitation/create", form).await {
                Some(body) if body["result"].is_object() => Ok(plain(&answer_text(&body["result"]))),
                Some(body) => Ok(failure(&format!("the client refused the question: {}", body["error"]))),
                None => Ok(failure("the client disconnected before it answered")),
            }
        }
        Era::Modern => {
            if !request.client_can("elicitation") {
                let missing = json!({ "requiredCapabilities": { "elicitation": { "form": {} } } });
                let text = "the tool `ask` needs a client with `elicitation`";
                return Err(RpcError::new(MISSING_CLIENT_CAPABILITY, text).with_data(missing));
            }
            // The state proves that this server asked the question. It is sent to the client and back, and not stored.
            let request_state = state.tag(question);
            let answer = &request.param("inputResponses")["confirm"];
            if answer.is_null() {
                form["mode"] = json!("form");
                return Ok(json!({
                    "resultType": "input_required",
                    "inputRequests": { "confirm": { "method": "elicitation/create", "params": form } },
                    "requestState": request_state,
                }));
            }
            if *request.param("requestState") != request_state.as_str() {
                return Err(RpcError::invalid("`requestState` does not belong to this question"));
            }
            Ok(plain(&answer_text(answer)))
        }
    }
}

fn answer_text(answer: &Value) -> String {
    match answer["action"].as_str() {
        Some("accept") if answer["content"]["ok"] == true => "the answer was yes".to_owned(),
        Some("accept") => "the answer was no".to_owned(),
        Some(action) => format!("there was no answer: {action}"),
        None => "there was no answer".to_owned(),
    }
}

fn crash(state: &ServerState, arguments: &Value) -> Reply {
    let code = arguments["code"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(1);
    match (arguments["how"].as_str().unwrap_or("exit"), state.owner) {
        ("exit", ProcessOwner::Process) => process::exit(code),
        ("abort", ProcessOwner::Process) => std::process::abort(),
        ("exit" | "abort", ProcessOwner::Embedder) => die(Part::Nothing, code),
        ("half_frame", _) => die(Part::Half, code),
        (other, _) => Err(RpcError::invalid(format!("`{other}` is not a way to crash"))).into(),
    }
}

fn die(part: Part, code: i32) -> Reply {
    Reply { outcome: Ok(plain("goodbye")), delivery: Delivery::new(part, Then::Die(code)) }
}

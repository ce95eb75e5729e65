//! Implementation of tools and prompts for both eras.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::caller::Caller;
use crate::catalog::{PNG, WAV};
use crate::inputs::{Inputs, Question, RequestState, Stop};
use crate::rpc::{INTERNAL_ERROR, INVALID_PARAMS, Request, RpcError, notification};
use crate::state::{Change, Era, ServerState};
use crate::tasks::{self, SCALED_SECOND, Task};

/// Pause between two messages of a tool.
const SHORT_DELAY: Duration = Duration::from_millis(5);
/// Delay of the answer after a closed stream: long enough for a gateway to notice that the call is slow.
const LONG_DELAY: Duration = Duration::from_millis(1500);

pub(crate) async fn call(shared: &ServerState, caller: &Caller, request: &Request) -> Result<Value, Stop> {
    match perform(shared, caller, request).await {
        Err(Stop::RequestFailed(why)) => Ok(failed(&why)),
        other => other,
    }
}

async fn perform(shared: &ServerState, caller: &Caller, request: &Request) -> Result<Value, Stop> {
    if let Some(result) = call_without_input(shared, caller, request).await? {
        return Ok(result);
    }
    match call_with_input(shared, caller, request).await? {
        Some(result) => Ok(result),
        None => job(shared, caller, request).await,
    }
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn failed(why: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": why }], "isError": true })
}

/// Tools that need only their arguments; `None` for other tools.
async fn call_without_input(
    shared: &ServerState,
    caller: &Caller,
    request: &Request,
) -> Result<Option<Value>, RpcError> {
    let argument = |name: &str| request.params["arguments"][name].as_str().unwrap_or_default();
    let image = || json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let embedded = |uri: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": "text/plain", "text": "Embedded." } });
    let result = match request.text("name")? {
        "test_simple_text" | "test_passing_tool" | "json_schema_2020_12_tool" => text("A simple text."),
        "test_image_content" => json!({ "content": [image()] }),
        "test_audio_content" => {
            json!({ "content": [{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }] })
        }
        "test_embedded_resource" => json!({ "content": [embedded("test://embedded-resource")] }),
        "test_multiple_content_types" => {
            let words = json!({ "type": "text", "text": "Text, image, resource:" });
            json!({ "content": [words, image(), embedded("test://mixed-content-resource")] })
        }
        "test_error_handling" => failed("This tool always fails."),
        "test_x_mcp_header" => text(argument("region")),
        "greet" => text(&format!("Hello, {}!", argument("name"))),
        "test_trigger_tool_change" => {
            shared.change_tools();
            text("The list of tools is another.")
        }
        "test_trigger_prompt_change" => {
            shared.change_prompts();
            text("The list of prompts is another.")
        }
        "test_trigger_resource_update" => {
            shared.broadcast(Change::Resource(argument("uri").to_owned()));
            text("The resource is another.")
        }
        "test_tool_with_logging" | "test_logging_tool" => {
            for step in ["begins", "goes on", "ends"] {
                caller.log(&format!("the tool {step}")).await;
                sleep(SHORT_DELAY).await;
            }
            text("It was logged.")
        }
        "test_tool_with_progress" => {
            let token = request.meta("progressToken");
            for progress in [0, 50, 100] {
                if !token.is_null() {
                    let params = json!({ "progressToken": token, "progress": progress, "total": 100 });
                    caller.send(notification("notifications/progress", &params)).await;
                }
                sleep(SHORT_DELAY).await;
            }
            text("It went on until its end.")
        }
        "test_reconnection" => {
            caller.close().await;
            sleep(LONG_DELAY).await;
            text("The answer after the reconnection.")
        }
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// Tools that request input from the client; `None` for other tools.
async fn call_with_input(
    shared: &ServerState,
    caller: &Caller,
    request: &Request,
) -> Result<Option<Value>, Stop> {
    let name = request.text("name")?;
    let state = match name {
        "test_input_required_result_request_state"
        | "test_input_required_result_multiple_inputs"
        | "test_input_required_result_multi_round"
        | "test_input_required_result_tampered_state" => RequestState::Always,
        _ => RequestState::Never,
    };
    let inputs = Inputs::new(shared, caller, request, state)?;
    let argument = |name: &str| request.params["arguments"][name].as_str().unwrap_or_default();
    let answered = |answer: &Value| text(&format!("The client answered: {answer}"));
    let asked_for = |member: &'static str, kind: &'static str, message: &'static str| {
        form(message, &json!({ member: { "type": kind } }), &[member])
    };
    let answer = match name {
        "test_sampling" => inputs.ask("answer", SAMPLE, prompt_for_model(argument("prompt"))).await?,
        "test_missing_capability" => inputs.ask("answer", SAMPLE, prompt_for_model("Hello?")).await?,
        "test_elicitation" => {
            let properties = json!({ "username": { "type": "string" }, "email": { "type": "string" } });
            inputs.ask("user", ELICIT, form(argument("message"), &properties, &["username", "email"])).await?
        }
        "test_elicitation_sep1034_defaults" => inputs.ask("user", ELICIT, with_defaults()).await?,
        "test_elicitation_sep1330_enums" => inputs.ask("choices", ELICIT, with_choices()).await?,
        "test_streaming_elicitation" | "test_input_required_result_request_state" => {
            inputs.ask("confirm", ELICIT, asked_for("ok", "boolean", "Please confirm")).await?
        }
        "test_input_required_result_tampered_state" => {
            inputs.ask("confirm", ELICIT, asked_for("ok", "boolean", "Please confirm")).await?
        }
        "test_input_required_result_elicitation" => {
            inputs.ask("user_name", ELICIT, asked_for("name", "string", "What is your name?")).await?
        }
        "test_input_required_result_sampling" => {
            inputs.ask("capital_question", SAMPLE, prompt_for_model("What is the capital of France?")).await?
        }
        "test_input_required_result_list_roots" => {
            inputs.ask("client_roots", "roots/list", json!({})).await?
        }
        "test_input_required_result_multi_round" => {
            let name = inputs.ask("step1", ELICIT, asked_for("name", "string", "What is your name?")).await?;
            let colour = asked_for("color", "string", "What is your favourite colour?");
            json!([name, inputs.ask("step2", ELICIT, colour).await?])
        }
        "test_input_required_result_multiple_inputs" => json!(inputs.ask_all(three_questions()).await?),
        "test_input_required_result_capabilities" => {
            let mut questions = three_questions();
            questions.retain(|question| inputs.can_ask(question.method));
            json!(inputs.ask_all(questions).await?)
        }
        _ => return Ok(None),
    };
    Ok(Some(answered(&answer)))
}

const ELICIT: &str = "elicitation/create";
const SAMPLE: &str = "sampling/createMessage";

fn prompt_for_model(prompt: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": prompt } }], "maxTokens": 100 })
}

fn form(message: &str, properties: &Value, required: &[&str]) -> Value {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    json!({ "message": message, "requestedSchema": schema })
}

fn three_questions() -> Vec<Question> {
    let name = form("What is your name?", &json!({ "name": { "type": "string" } }), &["name"]);
    vec![
        Question { key: "user_name", method: ELICIT, params: name },
        Question { key: "greeting", method: SAMPLE, params: prompt_for_model("Greet me") },
        Question { key: "client_roots", method: "roots/list", params: json!({}) },
    ]
}

fn with_defaults() -> Value {
    let properties = json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true },
    });
    form("Is all of this right?", &properties, &[])
}

fn with_choices() -> Value {
    let titled =
        |values: [&str; 3]| values.map(|value| json!({ "const": value, "title": format!("The {value}") }));
    let (options, values) = (["option1", "option2", "option3"], ["value1", "value2", "value3"]);
    let properties = json!({
        "untitledSingle": { "type": "string", "enum": options },
        "titledSingle": { "type": "string", "oneOf": titled(values) },
        "legacyEnum": { "type": "string", "enum": ["opt1", "opt2"], "enumNames": ["One", "Two"] },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled(values) } },
    });
    form("Choose", &properties, &[])
}

/// Tools that become tasks for clients that support them, and otherwise run within the call.
async fn job(shared: &ServerState, caller: &Caller, request: &Request) -> Result<Value, Stop> {
    let name = request.text("name")?;
    let as_task = caller.era() == Era::Modern && tasks::supported_by(caller);
    let confirm = || form("Really?", &json!({ "confirm": { "type": "boolean" } }), &["confirm"]);
    let wanted = |key: &str| (key.to_owned(), json!({ "method": ELICIT, "params": confirm() }));
    match (name, as_task) {
        ("slow_compute", _) => {
            let seconds = request.params["arguments"]["seconds"].as_f64().unwrap_or_default();
            if as_task && seconds > 0.0 {
                return Ok(Task::new(seconds, [], Ok(text("computed"))).begin(shared));
            }
            // A client without tasks should not wait for long.
            sleep(SCALED_SECOND.mul_f64(seconds.clamp(0.0, 1.0))).await;
            Ok(text("computed"))
        }
        ("failing_job", true) => Ok(Task::new(1.0, [], Ok(failed("the job failed"))).begin(shared)),
        ("protocol_error_job", true) => {
            let end = Err(RpcError::new(INTERNAL_ERROR, "the job broke"));
            Ok(Task::new(1.0, [], end).begin(shared))
        }
        ("confirm_delete", true) => {
            Ok(Task::new(0.0, [wanted("confirm")], Ok(text("deleted"))).begin(shared))
        }
        ("multi_input", true) => {
            let both = [wanted("first"), wanted("second")];
            Ok(Task::new(0.0, both, Ok(text("both are known"))).begin(shared))
        }
        ("test_tool_with_task", true) => {
            let inputs = Inputs::new(shared, caller, request, RequestState::Always)?;
            let question = form("What is your name?", &json!({ "name": { "type": "string" } }), &["name"]);
            let answer = inputs.ask("user_name", ELICIT, question).await?;
            Ok(Task::new(1.0, [], Ok(text(&format!("done for {}", answer["content"])))).begin(shared))
        }
        (
            "failing_job" | "protocol_error_job" | "confirm_delete" | "multi_input" | "test_tool_with_task",
            _,
        ) => match caller.era() {
            Era::Legacy => Ok(failed("this only runs as a task, which this protocol version does not have")),
            Era::Modern => Err(tasks::missing().into()),
        },
        (unknown, _) => Err(RpcError::new(INVALID_PARAMS, format!("unknown tool: {unknown}")).into()),
    }
}

pub(crate) async fn prompt(shared: &ServerState, caller: &Caller, request: &Request) -> Result<Value, Stop> {
    let argument = |name: &str| request.params["arguments"][name].as_str().unwrap_or_default();
    let said = |content: Value| json!({ "role": "user", "content": content });
    let text = |text: String| said(json!({ "type": "text", "text": text }));
    let messages = match request.text("name")? {
        "test_simple_prompt" | "test_passing_prompt" => vec![text("A simple prompt.".to_owned())],
        "test_prompt_with_arguments" => {
            vec![text(format!("With arg1 = {} and arg2 = {}.", argument("arg1"), argument("arg2")))]
        }
        "test_prompt_with_embedded_resource" => {
            let resource =
                json!({ "uri": argument("resourceUri"), "mimeType": "text/plain", "text": "Embedded." });
            vec![
                said(json!({ "type": "resource", "resource": resource })),
                text("Look at this resource.".to_owned()),
            ]
        }
        "test_prompt_with_image" => vec![
            said(json!({ "type": "image", "data": PNG, "mimeType": "image/png" })),
            text("Look at this image.".to_owned()),
        ],
        "test_input_required_result_prompt" => {
            let inputs = Inputs::new(shared, caller, request, RequestState::Never)?;
            let question =
                form("In which context?", &json!({ "context": { "type": "string" } }), &["context"]);
            let answer = inputs.ask("user_context", ELICIT, question).await?;
            vec![text(format!("In the context of {}.", answer["content"]))]
        }
        unknown => return Err(RpcError::new(INVALID_PARAMS, format!("unknown prompt: {unknown}")).into()),
    };
    Ok(json!({ "messages": messages }))
}

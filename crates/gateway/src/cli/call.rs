//! `gripfast call`: calls one tool, through a running gateway or, with `--config`, by starting the server.

mod arguments;
mod defaults;
mod form_prompt;

use super::address::GatewayUrl;
use super::args::{CallArgs, GlobalArgs, OutputFormat};
use super::call::form_prompt::FormPrompt;
use super::config;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::local_host::{HostOptions, runtime, with_host};
use super::mcp_client;
use super::mcp_client::{CallReport, McpClient, ToolSource};
use super::render::{Content, Screen, with_progress};
pub(crate) use arguments::{Arguments, parse_pairs};
use bytes::Bytes;
use defaults::DefaultAnswers;
use gripfast::JsonText;
use gripfast::input::{self, CollectedInput};
use gripfast::transport::Listener;
use gripfast::wire::envelope::ErrorObject;
use gripfast::wire::patch::Patch;
use gripfast::wire::results::{CallResult, List, Tool};
use gripfast::{Answer, CallError, CallOptions, CallOutcome, Host, Outcome};
use gripfast_gateway::api::types::FleetView;
use std::sync::Arc;
use std::time::Duration;

/// Calls the tool through the gateway; or starts the server, calls the tool, and stops the server again.
pub(crate) fn run(global: &GlobalArgs, args: &CallArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    // The arguments are checked before anything is started.
    let arguments = Arguments::read(&args.arguments)?;
    match ToolSource::resolve(global, args.gateway.url.as_ref())? {
        ToolSource::Gateway(url, fleet) => {
            let response = call_gateway(global, &url, fleet.as_deref(), args, arguments.as_ref(), screen)?;
            let outcome = mcp_client::outcome(&response).ok_or_else(|| mcp_client::invalid_answer(&url))?;
            show(args, &outcome, screen)
        }
        ToolSource::Config => match call_directly(global, args, arguments.as_ref(), screen)? {
            Ok(answer) => show(args, &answer.outcome(), screen),
            Err(failure) => Err(config::without_gateway_hints(global, &args.server, failure).into()),
        },
    }
}

/// Answers forms that the server sends during the call: with their defaults, or with the user's input at the terminal.
/// `None` without a terminal.
fn listener(args: &CallArgs, screen: &Screen) -> Option<Arc<dyn Listener>> {
    if args.accept_defaults {
        return Some(Arc::new(DefaultAnswers));
    }
    let person = || FormPrompt { server: args.server.clone(), asking: screen.asking() };
    screen.can_ask().then(|| Arc::new(person()) as Arc<dyn Listener>)
}

/// Calls the tool through the gateway. A failure that the gateway reports in its answer becomes a `FailureReport`.
fn call_gateway(
    global: &GlobalArgs,
    url: &GatewayUrl,
    fleet: Option<&FleetView>,
    args: &CallArgs,
    arguments: Option<&Arguments>,
    screen: &mut Screen,
) -> Result<Bytes, FailureReport> {
    let CallArgs { server, tool, .. } = args;
    mcp_client::require_server(url, fleet, server)?;
    let listener = listener(args, screen);
    let calling = async {
        let mut client = McpClient::connect(global, url).await?;
        if listener.is_some() {
            client.declare_capabilities(&defaults::capabilities());
        }
        match client.call(server, tool, arguments, listener.as_deref()).await? {
            CallReport::Answered(response) => match mcp_client::outcome(&response) {
                Some(Outcome::Result(result)) => {
                    mcp_client::failure_in_result(result).map_or(Ok(response.clone()), Err)
                }
                // The server had not been listed when the call was sent, and it has no such tool.
                Some(Outcome::Error(error)) if mcp_client::is_unknown_tool(&error) => {
                    let unknown = mcp_client::unknown_tool(server, tool, &[]);
                    Err(client.explain_denial(server, tool).await.unwrap_or(unknown))
                }
                Some(Outcome::Error(_)) | None => Ok(response),
            },
            CallReport::Unknown(failure) => Err(client.explain_denial(server, tool).await.unwrap_or(failure)),
        }
    };
    runtime()?.block_on(with_progress(screen, &format!("server `{server}`"), calling))
}

fn call_directly(
    global: &GlobalArgs,
    args: &CallArgs,
    arguments: Option<&Arguments>,
    screen: &mut Screen,
) -> Result<Result<Answer, FailureReport>, CommandError> {
    let opened = config::open(global, screen)?;
    let CallArgs { server, tool, .. } = args;
    let spec = match opened.server(server).and_then(config::server_spec) {
        Ok(spec) => spec,
        Err(failure) => return Ok(Err(failure)),
    };
    let mut spec = spec.clone();
    let timeouts = &mut spec.supervision.timeouts;
    if let Some(wait) = args.wait {
        timeouts.reconnect_wait = wait;
        // The time limit of the call includes the wait for the server.
        timeouts.call = timeouts.call.saturating_add(wait);
    }
    let patience = timeouts.reconnect_wait;
    let what = format!("server `{server}`");
    let listener = listener(args, screen);
    let capabilities = listener.as_ref().map(|_| defaults::capabilities());
    let host_options = HostOptions {
        state_dir: opened.state_dir(global)?,
        strict_modes: opened.strict_modes(),
        logins: Some(opened.logins(global)?),
        capabilities,
    };
    with_host(host_options, &[(server.as_str(), &spec)], async |host| {
        let calling = async {
            let schema = match arguments {
                // A server that cannot be listed fails the call too, with a better error.
                Some(Arguments::Pairs(_)) => host.catalog(server, patience).await.ok(),
                Some(Arguments::Json(_)) | None => None,
            };
            let tool = schema.as_ref().and_then(|catalog| catalog.tool(tool));
            let schema = tool.and_then(|tool| Tool::read(&tool.raw).ok()).and_then(|tool| tool.input_schema);
            let arguments = arguments.map(|arguments| arguments.to_json(schema));
            request(host, args, arguments, listener).await
        };
        let answer = with_progress(screen, &what, calling).await.map_err(super::tools::list_failure)?;
        let refused = matches!(answer.outcome(), Outcome::Error(error) if error.code == INVALID_PARAMS);
        match if refused { unknown_tool(host, server, tool).await } else { None } {
            Some(failure) => Err(failure),
            None => Ok(answer),
        }
    })
}

/// Calls the tool, and repeats the call with the input that the server requires first, if it can be answered.
async fn request(
    host: &Host,
    args: &CallArgs,
    arguments: Option<JsonText>,
    listener: Option<Arc<dyn Listener>>,
) -> Result<Answer, CallError> {
    let CallArgs { server, tool, .. } = args;
    let Some(listener) = listener else { return host.call(server, tool, arguments).await };
    let mut params = Patch::new().set_text("name", tool);
    if let Some(arguments) = arguments {
        params = params.set_owned("arguments", arguments);
    }
    let mut params = params.to_object();
    let mut rounds = 0;
    loop {
        let options = CallOptions { listener: Some(Arc::clone(&listener)), ..CallOptions::default() };
        let answer = host.request_with(server, "tools/call", Some(&params), options).await?;
        params = match input::collect(&*listener, &params, &answer).await {
            CollectedInput::Retry(params) if rounds < input::MAX_ROUNDS => params,
            CollectedInput::NotRequired
            | CollectedInput::Retry(_)
            | CollectedInput::Refused(_)
            | CollectedInput::Unsupported(_) => return Ok(answer),
        };
        rounds += 1;
    }
}

/// The failure of a request that the server answered with an error.
pub(crate) fn server_error(server: &str, error: &ErrorObject<'_>) -> FailureReport {
    let text = format!("server `{server}` answered with an error: {} ({})", error.message, error.code);
    FailureReport::new(Exit::ToolError, text)
}

/// The error code of servers for an unknown tool, among other errors.
const INVALID_PARAMS: i64 = -32602;

/// The failure of a tool that the server does not list. The host could not report it: the call was sent as soon as
/// there was a connection, before the server was listed.
async fn unknown_tool(host: &Host, server: &str, tool: &str) -> Option<FailureReport> {
    /// The server has just answered, so its catalog is either there or will not come.
    const PATIENCE: Duration = Duration::from_secs(2);
    let catalog = host.catalog(server, PATIENCE).await.ok()?;
    if catalog.tool(tool).is_some() {
        return None;
    }
    let names = catalog.tools.iter().map(|item| item.key.as_str());
    let refused = CallOutcome::Refused;
    Some(mcp_client::unknown_item_after(refused, List::Tools, server, tool, names))
}

fn show(args: &CallArgs, outcome: &Outcome<'_>, screen: &mut Screen) -> Result<Exit, CommandError> {
    let CallArgs { server, tool, .. } = args;
    let result = match (outcome, args.output.form) {
        (Outcome::Result(result), OutputFormat::Json) => {
            screen.raw_json(result.get())?;
            result
        }
        (Outcome::Result(result), OutputFormat::Text) => {
            let content = Content::of(result);
            content.lines.iter().try_for_each(|line| screen.line(line))?;
            if content.lines.is_empty() {
                screen.message(&format!("`{tool}` answered without content"))?;
            }
            result
        }
        (Outcome::Error(error), form) => {
            if form == OutputFormat::Json {
                screen.json_text(&format!(r#"{{"error":{}}}"#, error.raw.get()))?;
            }
            return Err(server_error(server, error).into());
        }
    };
    if CallResult::read(result).is_ok_and(|result| result.is_error) {
        let text = format!("tool `{tool}` of server `{server}` returned an error");
        return Err(FailureReport::new(Exit::ToolError, text).into());
    }
    Ok(Exit::Ok)
}

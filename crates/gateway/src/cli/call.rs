//! `gripfast call`: one call of one tool.

mod arguments;
mod defaults;
mod person;

use super::address::GatewayUrl;
use super::args::{CallArgs, Form, Global};
use super::client::{self, Asked, Called, Client};
use super::config;
use super::exit::Exit;
use super::fleet::{Means, runtime, with_host};
use super::render::{Content, Screen, with_progress};
use super::status::Fleet;
use super::stop::{Failure, Stop};
pub(crate) use arguments::{Arguments, pairs};
use bytes::Bytes;
use defaults::Defaults;
use gripfast::config::suggest;
use gripfast::input::{self, Collected};
use gripfast::transport::Listener;
use gripfast::wire::envelope::ErrorObject;
use gripfast::wire::patch::Patch;
use gripfast::wire::results::{CallResult, Tool};
use gripfast::{Answer, CallError, CallOptions, Code, Fate, Host, Outcome};
use person::Person;
use serde_json::json;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

/// Asks the gateway; or starts the server, calls the tool, and stops the server again.
pub(crate) fn run(global: &Global, args: &CallArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    // What was typed is judged before anything is started.
    let arguments = Arguments::read(&args.arguments)?;
    match Asked::of(global, args.gateway.url.as_ref())? {
        Asked::Gateway(url, fleet) => {
            match through(global, &url, fleet.as_deref(), args, arguments.as_ref(), screen)? {
                Ok(response) => match client::outcome(&response) {
                    Some(outcome) => show(args, &outcome, screen),
                    None => {
                        Err(Failure::new(Exit::Unreachable, format!("the gateway at {url} answers nonsense"))
                            .into())
                    }
                },
                Err(failure) => Err(told(args, failure, screen)?),
            }
        }
        Asked::Config => match call(global, args, arguments.as_ref(), screen)? {
            Ok(answer) => show(args, &answer.outcome(), screen),
            Err(failure) => Err(told(args, config::without_gateway(global, &args.server, failure), screen)?),
        },
    }
}

fn told(args: &CallArgs, failure: Failure, screen: &mut Screen) -> Result<Stop, Stop> {
    if let (Form::Json, Some(error)) = (args.output.form, failure.as_json()) {
        screen.json(&json!({ "error": error }))?;
    }
    Ok(failure.into())
}

/// Answers what the server asks during the call: with its own defaults, or as a person at the terminal says. `None` if
/// nobody can be asked.
fn listener(args: &CallArgs, screen: &Screen) -> Option<Arc<dyn Listener>> {
    if args.accept_defaults {
        return Some(Arc::new(Defaults));
    }
    let person = || Person { server: args.server.clone(), asking: screen.asking() };
    screen.can_ask().then(|| Arc::new(person()) as Arc<dyn Listener>)
}

/// The response of a gateway, which has to be one; a failure that it tells of is one of ours.
fn through(
    global: &Global,
    url: &GatewayUrl,
    fleet: Option<&Fleet>,
    args: &CallArgs,
    arguments: Option<&Arguments>,
    screen: &mut Screen,
) -> Result<Result<Bytes, Failure>, Stop> {
    let CallArgs { server, tool, .. } = args;
    if let Err(failure) = client::known(url, fleet, server) {
        return Ok(Err(failure));
    }
    let listener = listener(args, screen);
    let asked = async {
        let mut client = Client::of(global, url).await?;
        if listener.is_some() {
            client.can(&defaults::capabilities());
        }
        match client.call(server, tool, arguments, listener.as_deref()).await? {
            Called::Answered(response) => match client::outcome(&response) {
                Some(Outcome::Result(result)) => client::failure(result).map_or(Ok(response.clone()), Err),
                // The gateway was asked for a tool that it did not list, and it does not have it.
                Some(Outcome::Error(error)) if client::is_unknown_tool(&error) => {
                    let unknown = client::unknown_tool(server, tool, &[]);
                    Err(client.denied(server, tool).await.unwrap_or(unknown))
                }
                Some(Outcome::Error(_)) | None => Ok(response),
            },
            Called::Unknown(failure) => Err(client.denied(server, tool).await.unwrap_or(failure)),
        }
    };
    Ok(runtime()?.block_on(with_progress(screen, &format!("`{server}`"), asked)))
}

fn call(
    global: &Global,
    args: &CallArgs,
    arguments: Option<&Arguments>,
    screen: &mut Screen,
) -> Result<Result<Answer, Failure>, Stop> {
    let opened = config::open(global, screen)?;
    let CallArgs { server, tool, .. } = args;
    let spec = match opened.server(server).and_then(config::usable) {
        Ok(spec) => spec,
        Err(failure) => return Ok(Err(failure)),
    };
    let mut spec = spec.clone();
    let timeouts = &mut spec.supervision.timeouts;
    if let Some(wait) = args.wait {
        timeouts.reconnect_wait = wait;
        // The time of the call itself begins with the wait.
        timeouts.call = timeouts.call.saturating_add(wait);
    }
    let patience = timeouts.reconnect_wait;
    let what = format!("`{server}`");
    let listener = listener(args, screen);
    let abilities = listener.as_ref().map(|_| defaults::capabilities());
    let means = Means {
        state_dir: opened.state_dir(global)?,
        strict_modes: opened.strict_modes(),
        logins: Some(opened.logins(global)?),
        abilities,
    };
    with_host(means, &[(server.as_str(), &spec)], async |host| {
        let asked = async {
            let schema = match arguments {
                // A server that cannot be listed fails the call too, with the better words.
                Some(Arguments::Pairs(_)) => host.catalog(server, patience).await.ok(),
                Some(Arguments::Json(_)) | None => None,
            };
            let tool = schema.as_ref().and_then(|catalog| catalog.tool(tool));
            let schema = tool.and_then(|tool| Tool::read(&tool.raw).ok()).and_then(|tool| tool.input_schema);
            let arguments = arguments.map(|arguments| arguments.to_json(schema));
            ask(host, args, arguments, listener).await
        };
        let answer = with_progress(screen, &what, asked).await.map_err(super::tools::unlisted)?;
        let refused = matches!(answer.outcome(), Outcome::Error(error) if error.code == INVALID_PARAMS);
        match if refused { unknown_tool(host, server, tool).await } else { None } {
            Some(failure) => Err(failure),
            None => Ok(answer),
        }
    })
}

/// Makes the call, and makes it again with what the server wants to know first, if that may be answered.
async fn ask(
    host: &Host,
    args: &CallArgs,
    arguments: Option<Box<RawValue>>,
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
        let answer = host.request_with(server, "tools/call", Some(params.clone()), options).await?;
        params = match input::collect(&*listener, &params, &answer).await {
            Collected::Retry(params) if rounds < input::ROUNDS => params,
            Collected::NothingWanted
            | Collected::Retry(_)
            | Collected::Refused(_)
            | Collected::NotAsked(_) => return Ok(answer),
        };
        rounds += 1;
    }
}

/// The failure of a request that the server answered with an error.
pub(crate) fn declined(server: &str, error: &ErrorObject<'_>) -> Failure {
    let text = format!("server `{server}` answered with an error: {} ({})", error.message, error.code);
    Failure::new(Exit::ToolError, text)
}

/// What servers answer to a name they do not know, and to much else.
const INVALID_PARAMS: i64 = -32602;

/// The host's words for a tool that the server does not list. The host itself could not say them: the call
/// went out as soon as there was a link, before the server was listed.
async fn unknown_tool(host: &Host, server: &str, tool: &str) -> Option<Failure> {
    /// The server has just answered, so its catalog is there or will not come.
    const PATIENCE: Duration = Duration::from_secs(2);
    let catalog = host.catalog(server, PATIENCE).await.ok()?;
    if catalog.tool(tool).is_some() {
        return None;
    }
    let hint = match suggest::nearest(tool, catalog.tools.iter().map(|item| item.key.as_str())) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("`gripfast tools {server}` lists its tools"),
    };
    let text = format!("upstream `{server}` has no tool named `{tool}`");
    Some(CallError::new(Code::UnknownTool, server, Fate::Refused, text).hint(hint).into())
}

fn show(args: &CallArgs, outcome: &Outcome<'_>, screen: &mut Screen) -> Result<Exit, Stop> {
    let CallArgs { server, tool, .. } = args;
    let result = match (outcome, args.output.form) {
        (Outcome::Result(result), Form::Json) => {
            screen.result(result.get())?;
            result
        }
        (Outcome::Result(result), Form::Text) => {
            let content = Content::of(result);
            content.lines.iter().try_for_each(|line| screen.line(line))?;
            if content.lines.is_empty() {
                screen.talk(&format!("`{tool}` answered without content"))?;
            }
            result
        }
        (Outcome::Error(error), form) => {
            if form == Form::Json {
                screen.json_text(&format!(r#"{{"error":{}}}"#, error.raw.get()))?;
            }
            return Err(declined(server, error).into());
        }
    };
    if CallResult::read(result).is_ok_and(|result| result.is_error) {
        let text = format!("tool `{tool}` of `{server}` answered that it failed");
        return Err(Failure::new(Exit::ToolError, text).into());
    }
    Ok(Exit::Ok)
}

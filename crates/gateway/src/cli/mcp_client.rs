//! MCP client of a running gateway: lists what its servers offer, under their own names, and calls tools.
//!
//! Uses the modern era, in which each request stands alone: no session is left behind, and a closed connection cancels
//! the request.

use super::address::GatewayUrl;
use super::admin_client::{AdminClient, NoAnswer, path_segment};
use super::args::GlobalArgs;
use super::call::Arguments;
use super::config;
use super::credentials::ClientKey;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use bytes::Bytes;
use gripfast::input::{self, CollectedInput};
use gripfast::transport::Listener;
use gripfast::wire::envelope::{self, ErrorObject, Message};
use gripfast::wire::era::RequestContext;
use gripfast::wire::headers::{self, ParamHeaders};
use gripfast::wire::patch::{Object, Patch};
use gripfast::wire::results::{CallResult, List, Page, ResultType, Tool};
use gripfast::wire::{Outcome, ProtocolVersion};
use gripfast::{CallError, CallOutcome, Code, Json, JsonText, Principal};
use gripfast_gateway::api::types::{DecisionView, FleetView};
use http::header::{ACCEPT, CONTENT_TYPE};
use serde_json::{Value, json};

/// Source of tools, resources and prompts.
pub(crate) enum ToolSource {
    /// The gateway at this URL, with its servers. `None` if the client has a key, but not the admin token that the
    /// status needs.
    Gateway(GatewayUrl, Option<Box<FleetView>>),
    /// The servers of the config, started for the duration of the command.
    Config,
}

impl ToolSource {
    /// The servers of a named config, else the gateway. A missing gateway is an error: starting all servers of a config
    /// a second time, beside a gateway at another address, would surprise the user.
    pub(crate) fn resolve(global: &GlobalArgs, typed: Option<&GatewayUrl>) -> Result<Self, CommandError> {
        if global.config.is_some() {
            return Ok(Self::Config);
        }
        let url = GatewayUrl::resolve(global, typed)?;
        match super::local_host::runtime()?.block_on(fleet(global, &url)) {
            Ok(fleet) => Ok(Self::Gateway(url, Some(Box::new(fleet)))),
            Err(failure) if failure.exit == Exit::Denied && ClientKey::is_set() => {
                Ok(Self::Gateway(url, None))
            }
            Err(failure) if failure.exit == Exit::Unreachable && typed.is_none() => {
                let file =
                    config::find(None).map_or_else(|_| "FILE".into(), |path| path.display().to_string());
                let hint =
                    format!("`--url` names another gateway; `--config {file}` works without a gateway");
                Err(failure.with_hint(hint).into())
            }
            Err(failure) => Err(failure.into()),
        }
    }
}

async fn fleet(global: &GlobalArgs, url: &GatewayUrl) -> Result<FleetView, FailureReport> {
    Ok(AdminClient::connect(global, url).await?.get("/status").await?.value)
}

/// Fails if the gateway has no server of this name, as far as its servers are known.
pub(crate) fn require_server(
    url: &GatewayUrl,
    fleet: Option<&FleetView>,
    server: &str,
) -> Result<(), FailureReport> {
    let Some(fleet) = fleet else { return Ok(()) };
    if fleet.names().any(|name| name == server) {
        return Ok(());
    }
    let hint = config::did_you_mean(server, fleet.names()).unwrap_or_else(|| {
        "`gripfast status` lists its servers; `--config FILE` works without a gateway".to_owned()
    });
    let text = format!("the gateway at {url} has no server `{server}`");
    Err(FailureReport::for_server(server, Code::UnknownServer, text, Some(hint)))
}

/// A tool, resource, template or prompt of a server behind the gateway.
pub(crate) struct Offer {
    pub(crate) server: String,
    /// The server's own name or URI.
    pub(crate) name: String,
    /// The name or URI under which clients of the gateway see it.
    pub(crate) public: String,
    /// The item as the server wrote it.
    pub(crate) raw: JsonText,
}

impl Offer {
    /// `None` if the item does not name its origin, and so does not come from gripfast.
    fn parse(list: List, served: &Json) -> Option<Self> {
        const ORIGIN: &str = "gripfast/origin";
        let tool = Object::parse(served).ok()?;
        let meta = tool.object("_meta")?;
        let origin = meta.object(ORIGIN)?;
        let (server, name) =
            (origin.text("server")?.into_owned(), origin.text(list.item_key())?.into_owned());
        let own = Patch::new().set_text(list.item_key(), &name);
        let raw = if meta.len() == 1 {
            own.remove("_meta").apply(&tool)
        } else {
            own.set_owned("_meta", Patch::new().remove(ORIGIN).apply(&meta)).apply(&tool)
        };
        Some(Self { server, name, public: tool.text(list.item_key())?.into_owned(), raw })
    }

    /// The arguments that its schema wants mirrored in headers.
    fn param_headers(&self, arguments: Option<&Json>) -> Vec<(String, String)> {
        let schema = Tool::read(&self.raw).ok().and_then(|tool| tool.input_schema);
        let annotated = schema.and_then(|schema| ParamHeaders::from_input_schema(schema).ok());
        annotated.and_then(|wanted| wanted.for_arguments(arguments).ok()).unwrap_or_default()
    }
}

/// Result of a call.
pub(crate) enum CallReport {
    /// A JSON-RPC response.
    Answered(Bytes),
    /// Nothing was sent: the server offers no such tool to this client.
    Unknown(FailureReport),
}

/// MCP client for the duration of one command.
pub(crate) struct McpClient<'u> {
    gateway: AdminClient<'u>,
    context: RequestContext,
}

/// Page limit of a list. The gateway sends up to a thousand items per page.
const MAX_PAGES: usize = 1000;

impl<'u> McpClient<'u> {
    pub(crate) async fn connect(global: &GlobalArgs, url: &'u GatewayUrl) -> Result<Self, FailureReport> {
        let context = RequestContext {
            version: ProtocolVersion::MODERN,
            client_info: Some(raw(&json!({ "name": "gripfast-cli", "version": env!("CARGO_PKG_VERSION") }))),
            capabilities: raw(&json!({})),
            log_level: None,
        };
        Ok(Self { gateway: AdminClient::connect(global, url).await?, context })
    }

    /// Declares these capabilities with every request.
    pub(crate) fn declare_capabilities(&mut self, capabilities: &Value) {
        self.context.capabilities = raw(capabilities);
    }

    /// All items of a list, of all servers, whatever the gateway's `exposure` is.
    pub(crate) async fn offers(&self, list: List) -> Result<Vec<Offer>, FailureReport> {
        let mut offers = Vec::new();
        let mut params = json!({ "_meta": { "gripfast/exposure": "all" } });
        for _ in 0..MAX_PAGES {
            let answer = self.request(list.method(), &raw(&params)).await?;
            let page = match outcome(&answer) {
                Some(Outcome::Result(result)) => Page::read(result, list).ok(),
                Some(Outcome::Error(_)) | None => None,
            };
            let page = page
                .ok_or_else(|| self.gateway.not_a_gateway(&format!("it does not list {}", list.member())))?;
            offers.extend(page.items.into_iter().filter_map(|item| Offer::parse(list, item)));
            match page.next_cursor {
                Some(cursor) => params["cursor"] = Value::from(cursor),
                None => return Ok(offers),
            }
        }
        Err(self.gateway.not_a_gateway(&format!("it returns endless pages of {}", list.member())))
    }

    /// Sends a read-only request and returns the answer.
    pub(crate) async fn request(&self, method: &str, params: &Json) -> Result<Bytes, FailureReport> {
        self.send(method, params, &[]).await.map_err(|unanswered| match unanswered {
            NoAnswer::Failed(failure) => failure,
            NoAnswer::Lost(cause) => self.gateway.connection_lost(&cause),
        })
    }

    /// Calls a tool by its server's own name. Input that the server requires during the call is asked from `listener`.
    pub(crate) async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: Option<&Arguments>,
        listener: Option<&dyn Listener>,
    ) -> Result<CallReport, FailureReport> {
        let offers = self.offers(List::Tools).await?;
        let its: Vec<&Offer> = offers.iter().filter(|offer| offer.server == server).collect();
        let offer = its.iter().find(|offer| offer.name == tool);
        let public = match offer {
            Some(offer) => offer.public.clone(),
            // The server has not been listed yet and may have the tool; the gateway finds out.
            None if its.is_empty() => format!("{server}__{tool}"),
            None => return Ok(CallReport::Unknown(unknown_tool(server, tool, &its))),
        };
        let schema = offer.and_then(|offer| Tool::read(&offer.raw).ok()).and_then(|tool| tool.input_schema);
        let arguments = arguments.map(|arguments| arguments.to_json(schema));
        let arguments = arguments.as_deref();
        let mut params = Patch::new().set_text("name", &public);
        if let Some(arguments) = arguments {
            params = params.set("arguments", arguments);
        }
        let mirrored = offer.map(|offer| offer.param_headers(arguments)).unwrap_or_default();
        let mut params = params.to_object();
        let mut rounds = 0;
        loop {
            let answered = self.send("tools/call", &params, &mirrored).await;
            let answer = answered.map_err(|unanswered| match unanswered {
                NoAnswer::Failed(failure) => failure,
                NoAnswer::Lost(_) => call_lost(server),
            })?;
            let collected = match (outcome(&answer), listener) {
                (Some(Outcome::Result(result)), Some(listener)) if wants_input(result) => {
                    input::collect_from_result(listener, &params, result).await
                }
                (_, _) => CollectedInput::NotRequired,
            };
            params = match collected {
                CollectedInput::Retry(params) if rounds < input::MAX_ROUNDS => params,
                CollectedInput::NotRequired
                | CollectedInput::Retry(_)
                | CollectedInput::Refused(_)
                | CollectedInput::Unsupported(_) => return Ok(CallReport::Answered(answer)),
            };
            rounds += 1;
        }
    }

    /// The failure of a tool that the config denies to this client and the gateway therefore hides, with the reason.
    pub(crate) async fn explain_denial(&self, server: &str, tool: &str) -> Option<FailureReport> {
        let me = self.principal().await;
        let path = format!("/policy/{}/{}/{}", path_segment(&me), path_segment(server), path_segment(tool));
        let DecisionView { allowed, reason, .. } = self.gateway.get(&path).await.ok()?.value;
        let text = format!("tool `{tool}` of server `{server}` may not be called: {reason}");
        let hint = format!("`gripfast policy test {me} {server} {tool}` explains the decision");
        (!allowed).then(|| FailureReport::for_server(server, Code::Denied, text, Some(hint)))
    }

    /// The principal as which the gateway knows this client.
    async fn principal(&self) -> String {
        let answer = self.request("server/discover", &raw(&json!({}))).await.unwrap_or_default();
        let info = match outcome(&answer) {
            Some(Outcome::Result(result)) => serde_json::from_str(result.get()).unwrap_or(Value::Null),
            Some(Outcome::Error(_)) | None => Value::Null,
        };
        info["_meta"]["gripfast/client"].as_str().unwrap_or(Principal::LOCAL).to_owned()
    }

    async fn send(
        &self,
        method: &str,
        params: &Json,
        mirrored: &[(String, String)],
    ) -> Result<Bytes, NoAnswer> {
        let cannot = |_| FailureReport::new(Exit::General, format!("invalid parameters for `{method}`"));
        let params = self.context.apply_to(Some(params)).map_err(cannot)?;
        let standard = headers::standard_headers(method, Some(&params)).map_err(cannot)?;
        let mut headers = vec![
            (CONTENT_TYPE.as_str(), "application/json"),
            (ACCEPT.as_str(), "application/json, text/event-stream"),
            (headers::PROTOCOL_VERSION, self.context.version.as_str()),
            (headers::METHOD, standard.method),
        ];
        headers.extend(standard.name.as_deref().map(|name| (headers::NAME, name)));
        headers.extend(mirrored.iter().map(|(name, value)| (&**name, &**value)));
        self.gateway.post_message("/mcp", &headers, envelope::request(1, method, Some(&params))).await
    }
}

/// The outcome in a response.
pub(crate) fn outcome(response: &[u8]) -> Option<Outcome<'_>> {
    match Message::parse(response) {
        Ok(Message::Response(response)) => Some(response.outcome),
        Ok(Message::Request(_) | Message::Notification(_)) | Err(_) => None,
    }
}

/// The failure of a request to which the gateway sent no JSON-RPC response.
pub(crate) fn invalid_answer(url: &GatewayUrl) -> FailureReport {
    FailureReport::new(Exit::Unreachable, format!("the gateway at {url} sent an invalid answer"))
}

/// The failure in a result, which the gateway put there for the client's model.
pub(crate) fn failure_in_result(result: &Json) -> Option<FailureReport> {
    let result: Value = serde_json::from_str(result.get()).ok()?;
    let part = result["_meta"]["gripfast/failure"].as_object()?;
    let full = result["content"][0]["text"].as_str()?;
    // The part for machines contains the hint as well.
    let text = full.split_once("\nhint: ").map_or(full, |(text, _)| text);
    Some(FailureReport::from_gateway(text, &Value::Object(part.clone())))
}

/// Returns true if the error is `unknown_tool`.
pub(crate) fn is_unknown_tool(error: &ErrorObject<'_>) -> bool {
    let error: Option<Value> = serde_json::from_str(error.raw.get()).ok();
    error.is_some_and(|error| error["data"]["code"] == Code::UnknownTool.as_str())
}

/// Returns true if a result asks for input before the call continues.
fn wants_input(result: &Json) -> bool {
    CallResult::read(result).is_ok_and(|result| matches!(result.result_type, ResultType::InputRequired))
}

/// The failure of a call whose connection to the gateway was lost.
fn call_lost(server: &str) -> FailureReport {
    let text = "the connection to the gateway was lost during the call; it may have been carried out";
    let hint = format!("`gripfast calls --server {server}` shows its outcome");
    CallError::new(Code::OutcomeUnknown, server, CallOutcome::Unknown, text.to_owned()).with_hint(hint).into()
}

/// The gateway's own failure in an error answer, if it has one.
pub(crate) fn failure_in_error(error: &ErrorObject<'_>) -> Option<FailureReport> {
    let raw: Value = serde_json::from_str(error.raw.get()).ok()?;
    let part = raw["data"].as_object().filter(|part| part.contains_key("outcome"))?;
    Some(FailureReport::from_gateway(&error.message, &Value::Object(part.clone())))
}

pub(crate) fn unknown_tool(server: &str, tool: &str, its: &[&Offer]) -> FailureReport {
    unknown_item(List::Tools, server, tool, its.iter().map(|offer| offer.name.as_str()))
}

/// The failure of a request for an item that is not in a server's list.
pub(crate) fn unknown_item<'n>(
    list: List,
    server: &str,
    wanted: &str,
    names: impl Iterator<Item = &'n str>,
) -> FailureReport {
    unknown_item_after(CallOutcome::NotSent, list, server, wanted, names)
}

/// The same, for a request that had this outcome.
pub(crate) fn unknown_item_after<'n>(
    outcome: CallOutcome,
    list: List,
    server: &str,
    wanted: &str,
    names: impl Iterator<Item = &'n str>,
) -> FailureReport {
    let word = list.member().trim_end_matches('s');
    let hint = config::did_you_mean(wanted, names)
        .unwrap_or_else(|| format!("`gripfast {word}s {server}` lists its {word}s"));
    let text = format!("server `{server}` has no {word} named `{wanted}`");
    CallError::new(Code::UnknownTool, server, outcome, text).with_hint(hint).into()
}

fn raw(value: &Value) -> JsonText {
    JsonText::parse(value.to_string()).expect("a JSON value prints as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(served: &str) -> Offer {
        Offer::parse(List::Tools, &JsonText::parse(served.to_owned()).unwrap()).unwrap()
    }

    #[test]
    fn a_tool_is_shown_as_its_server_wrote_it() {
        let offer = read(
            r#"{ "name":"demo__echo", "n": 1.0, "_meta":{"gripfast/origin":{"server":"demo","name":"echo"}}}"#,
        );
        assert_eq!((&*offer.server, &*offer.name, &*offer.public), ("demo", "echo", "demo__echo"));
        assert_eq!(offer.raw.get(), r#"{ "name":"echo", "n": 1.0}"#);
        let offer =
            read(r#"{"name":"echo","_meta":{"a":1,"gripfast/origin":{"server":"demo","name":"echo"}}}"#);
        assert_eq!(offer.raw.get(), r#"{"name":"echo","_meta":{"a":1}}"#);
        assert!(
            Offer::parse(List::Tools, &JsonText::parse(r#"{"name":"echo"}"#.to_owned()).unwrap()).is_none()
        );
    }

    #[test]
    fn a_failure_is_read_back_from_a_result_unchanged() {
        let text = "server `demo` was lost";
        let error = CallError::new(Code::OutcomeUnknown, "demo", CallOutcome::Unknown, text)
            .with_hint("look first".to_owned());
        let result = json!({
            "content": [{ "type": "text", "text": format!("{text}\nhint: look first") }],
            "isError": true,
            "_meta": { "gripfast/failure": error.to_json() },
        });
        assert_eq!(failure_in_result(&raw(&result)), Some(FailureReport::from(error)));
        assert_eq!(failure_in_result(&raw(&json!({ "content": [], "isError": true }))), None);
    }
}

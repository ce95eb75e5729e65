//! A running gateway as an MCP client finds it: what its servers offer, under their own names, and one call.
//!
//! The modern era, in which each request stands alone: nothing is left behind when the process ends, and going
//! away is cancelling.

use super::address::GatewayUrl;
use super::args::Global;
use super::call::Arguments;
use super::config;
use super::credentials::ClientKey;
use super::exit::Exit;
use super::gateway::{Gateway, Unanswered, piece};
use super::status::Fleet;
use super::stop::{Failure, Stop};
use bytes::Bytes;
use gripfast::config::suggest;
use gripfast::input::{self, Collected};
use gripfast::transport::Listener;
use gripfast::wire::envelope::{self, ErrorObject, Message};
use gripfast::wire::era::RequestContext;
use gripfast::wire::headers::{self, ParamHeaders};
use gripfast::wire::patch::{Object, Patch};
use gripfast::wire::results::{CallResult, List, Page, ResultType, Tool};
use gripfast::wire::{Outcome, ProtocolVersion};
use gripfast::{CallError, Code, Fate, Principal, RawValue};
use http::header::{ACCEPT, CONTENT_TYPE};
use serde::Deserialize;
use serde_json::{Value, json};

/// Who is asked about tools.
pub(crate) enum Asked {
    /// The gateway that runs there, with these servers; with `None` where it shows its tools to this client, and its
    /// servers only to who has its token.
    Gateway(GatewayUrl, Option<Box<Fleet>>),
    /// The servers of the config, started for the time of the question.
    Config,
}

impl Asked {
    /// A config that was named is used without a gateway. Otherwise there has to be one: starting every server
    /// of a config once more, unasked, beside a gateway that is only somewhere else would surprise.
    pub(crate) fn of(global: &Global, typed: Option<&GatewayUrl>) -> Result<Self, Stop> {
        if global.config.is_some() {
            return Ok(Self::Config);
        }
        let url = GatewayUrl::meant(global, typed)?;
        match super::fleet::runtime()?.block_on(fleet(global, &url)) {
            Ok(fleet) => Ok(Self::Gateway(url, Some(Box::new(fleet)))),
            Err(failure) if failure.exit == Exit::Denied && ClientKey::is_set() => {
                Ok(Self::Gateway(url, None))
            }
            Err(failure) if failure.exit == Exit::Unreachable && typed.is_none() => {
                let file =
                    config::find(None).map_or_else(|_| "FILE".into(), |path| path.display().to_string());
                let hint = format!("`--url` names another; `--config {file}` does without a gateway");
                Err(failure.with_hint(hint).into())
            }
            Err(failure) => Err(failure.into()),
        }
    }
}

async fn fleet(global: &Global, url: &GatewayUrl) -> Result<Fleet, Failure> {
    let gateway = Gateway::at(global, url).await?;
    let reply = gateway.get("/api/v1/status").await?;
    gateway.read(&reply)
}

/// The server of this name is among those of the gateway, as far as it tells.
pub(crate) fn known(url: &GatewayUrl, fleet: Option<&Fleet>, server: &str) -> Result<(), Failure> {
    let Some(fleet) = fleet else { return Ok(()) };
    if fleet.names().any(|name| name == server) {
        return Ok(());
    }
    let hint = match suggest::nearest(server, fleet.names()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => "`gripfast status` lists its servers; `--config FILE` does without a gateway".to_owned(),
    };
    let text = format!("the gateway at {url} has no server `{server}`");
    Err(Failure::about(server, Code::UnknownServer, text, Some(hint)))
}

/// A tool, resource, template or prompt of a server behind the gateway.
pub(crate) struct Offer {
    pub(crate) server: String,
    /// The server's own name or URI for it.
    pub(crate) name: String,
    /// The name or URI under which clients of the gateway see it.
    pub(crate) public: String,
    /// As the server wrote it.
    pub(crate) raw: Box<RawValue>,
}

impl Offer {
    /// `None` without a note of its origin: then it is not a gripfast that offers it.
    fn read(list: List, served: &RawValue) -> Option<Self> {
        const ORIGIN: &str = "gripfast/origin";
        let tool = Object::parse(served).ok()?;
        let meta = tool.object("_meta")?;
        let origin = meta.object(ORIGIN)?;
        let (server, name) = (origin.text("server")?.into_owned(), origin.text(list.key())?.into_owned());
        let own = Patch::new().set_text(list.key(), &name);
        let raw = if meta.len() == 1 {
            own.remove("_meta").apply(&tool)
        } else {
            own.set_owned("_meta", Patch::new().remove(ORIGIN).apply(&meta)).apply(&tool)
        };
        Some(Self { server, name, public: tool.text(list.key())?.into_owned(), raw })
    }

    /// What it wants repeated in headers.
    fn mirrored(&self, arguments: Option<&RawValue>) -> Vec<(String, String)> {
        let schema = Tool::read(&self.raw).ok().and_then(|tool| tool.input_schema);
        let annotated = schema.and_then(|schema| ParamHeaders::from_input_schema(schema).ok());
        annotated.and_then(|wanted| wanted.for_arguments(arguments).ok()).unwrap_or_default()
    }
}

/// What came of a call.
pub(crate) enum Called {
    /// A JSON-RPC response.
    Answered(Bytes),
    /// Nothing was sent: the server offers no such tool, as far as clients are shown.
    Unknown(Failure),
}

/// A client for the time of one verb.
pub(crate) struct Client<'u> {
    gateway: Gateway<'u>,
    context: RequestContext,
}

/// Of a thousand tools each.
const MOST_PAGES: usize = 1000;

impl<'u> Client<'u> {
    pub(crate) async fn of(global: &Global, url: &'u GatewayUrl) -> Result<Self, Failure> {
        let context = RequestContext {
            version: ProtocolVersion::MODERN,
            client_info: Some(raw(&json!({ "name": "gripfast-cli", "version": env!("CARGO_PKG_VERSION") }))),
            capabilities: raw(&json!({})),
            log_level: None,
        };
        Ok(Self { gateway: Gateway::at(global, url).await?, context })
    }

    /// Declares these capabilities with every request.
    pub(crate) fn can(&mut self, capabilities: &Value) {
        self.context.capabilities = raw(capabilities);
    }

    /// Every item of a list, of every server.
    pub(crate) async fn offers(&self, list: List) -> Result<Vec<Offer>, Failure> {
        let mut offers = Vec::new();
        let mut params = json!({});
        for _ in 0..MOST_PAGES {
            let answer = self.answer(list.method(), &raw(&params)).await?;
            let page = match outcome(&answer) {
                Some(Outcome::Result(result)) => Page::read(result, list).ok(),
                Some(Outcome::Error(_)) | None => None,
            };
            let page = page
                .ok_or_else(|| self.gateway.no_gateway(&format!("it does not list its {}", list.member())))?;
            offers.extend(page.items.into_iter().filter_map(|item| Offer::read(list, item)));
            match page.next_cursor {
                Some(cursor) => params["cursor"] = Value::from(cursor),
                None => return Ok(offers),
            }
        }
        Err(self.gateway.no_gateway(&format!("its list of {} has no end", list.member())))
    }

    /// The answer to a request that changes nothing.
    pub(crate) async fn answer(&self, method: &str, params: &RawValue) -> Result<Bytes, Failure> {
        self.ask(method, params, &[]).await.map_err(|unanswered| match unanswered {
            Unanswered::Failed(failure) => failure,
            Unanswered::Lost(cause) => self.gateway.went_away(&cause),
        })
    }

    /// Calls a tool by its server's own name for it. What the server asks on the way is put to `listener`.
    pub(crate) async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: Option<&Arguments>,
        listener: Option<&dyn Listener>,
    ) -> Result<Called, Failure> {
        let offers = self.offers(List::Tools).await?;
        let its: Vec<&Offer> = offers.iter().filter(|offer| offer.server == server).collect();
        let offer = its.iter().find(|offer| offer.name == tool);
        let public = match offer {
            Some(offer) => offer.public.clone(),
            // A server that has not been listed yet may have it; the gateway finds out.
            None if its.is_empty() => format!("{server}__{tool}"),
            None => return Ok(Called::Unknown(unknown_tool(server, tool, &its))),
        };
        let schema = offer.and_then(|offer| Tool::read(&offer.raw).ok()).and_then(|tool| tool.input_schema);
        let arguments = arguments.map(|arguments| arguments.to_json(schema));
        let arguments = arguments.as_deref();
        let mut params = Patch::new().set_text("name", &public);
        if let Some(arguments) = arguments {
            params = params.set("arguments", arguments);
        }
        let mirrored = offer.map(|offer| offer.mirrored(arguments)).unwrap_or_default();
        let mut params = params.to_object();
        let mut rounds = 0;
        loop {
            let answered = self.ask("tools/call", &params, &mirrored).await;
            let answer = answered.map_err(|unanswered| match unanswered {
                Unanswered::Failed(failure) => failure,
                Unanswered::Lost(_) => lost(server),
            })?;
            let collected = match (outcome(&answer), listener) {
                (Some(Outcome::Result(result)), Some(listener)) if wants_input(result) => {
                    input::collect_for(listener, &params, result).await
                }
                (_, _) => Collected::NothingWanted,
            };
            params = match collected {
                Collected::Retry(params) if rounds < input::ROUNDS => params,
                Collected::NothingWanted
                | Collected::Retry(_)
                | Collected::Refused(_)
                | Collected::NotAsked(_) => return Ok(Called::Answered(answer)),
            };
            rounds += 1;
        }
    }

    /// A tool that this client is not shown because the config denies it, in the words for its operator.
    pub(crate) async fn denied(&self, server: &str, tool: &str) -> Option<Failure> {
        #[derive(Deserialize)]
        struct Decision {
            allowed: bool,
            reason: String,
        }
        let me = self.me().await;
        let path = format!("/api/v1/policy/{}/{}/{}", piece(&me), piece(server), piece(tool));
        let reply = self.gateway.get(&path).await.ok()?;
        let Decision { allowed, reason } = self.gateway.read(&reply).ok()?;
        let text = format!("tool `{tool}` of upstream `{server}` may not be called: {reason}");
        let hint = format!("`gripfast policy test {me} {server} {tool}` explains it");
        (!allowed).then(|| Failure::about(server, Code::Denied, text, Some(hint)))
    }

    /// As whom the gateway knows this client.
    async fn me(&self) -> String {
        let answer = self.answer("server/discover", &raw(&json!({}))).await.unwrap_or_default();
        let told = match outcome(&answer) {
            Some(Outcome::Result(result)) => serde_json::from_str(result.get()).unwrap_or(Value::Null),
            Some(Outcome::Error(_)) | None => Value::Null,
        };
        told["_meta"]["gripfast/client"].as_str().unwrap_or(Principal::LOCAL).to_owned()
    }

    async fn ask(
        &self,
        method: &str,
        params: &RawValue,
        mirrored: &[(String, String)],
    ) -> Result<Bytes, Unanswered> {
        let cannot = |_| Failure::new(Exit::General, format!("`{method}` cannot be asked like this"));
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
        self.gateway.message("/mcp", &headers, envelope::request(1, method, Some(&params))).await
    }
}

/// What a response says.
pub(crate) fn outcome(response: &[u8]) -> Option<Outcome<'_>> {
    match Message::parse(response) {
        Ok(Message::Response(response)) => Some(response.outcome),
        Ok(Message::Request(_) | Message::Notification(_)) | Err(_) => None,
    }
}

/// The failure that a gateway put into a result for the client's model to read.
pub(crate) fn failure(result: &RawValue) -> Option<Failure> {
    let result: Value = serde_json::from_str(result.get()).ok()?;
    let part = result["_meta"]["gripfast/failure"].as_object()?;
    let said = result["content"][0]["text"].as_str()?;
    // The hint is in the part for machines as well.
    let text = said.split_once("\nhint: ").map_or(said, |(text, _)| text);
    Some(Failure::passed_on(text, &Value::Object(part.clone())))
}

/// Whether the gateway says that it knows no such tool.
pub(crate) fn is_unknown_tool(error: &ErrorObject<'_>) -> bool {
    let error: Option<Value> = serde_json::from_str(error.raw.get()).ok();
    error.is_some_and(|error| error["data"]["code"] == Code::UnknownTool.word())
}

/// Whether a result asks for input before the call goes on.
fn wants_input(result: &RawValue) -> bool {
    CallResult::read(result).is_ok_and(|result| matches!(result.result_type, ResultType::InputRequired))
}

/// The failure of a call whose gateway went away.
fn lost(server: &str) -> Failure {
    let text = "the gateway went away during the call; whether it was carried out is unknown";
    let hint = format!("`gripfast calls --server {server}` shows what became of it");
    CallError::new(Code::OutcomeUnknown, server, Fate::Unknown, text.to_owned()).hint(hint).into()
}

/// The failure of the gateway's own that an error answer holds, if it holds one.
pub(crate) fn told(error: &ErrorObject<'_>) -> Option<Failure> {
    let raw: Value = serde_json::from_str(error.raw.get()).ok()?;
    let part = raw["data"].as_object().filter(|part| part.contains_key("outcome"))?;
    Some(Failure::passed_on(&error.message, &Value::Object(part.clone())))
}

pub(crate) fn unknown_tool(server: &str, tool: &str, its: &[&Offer]) -> Failure {
    unknown_item(List::Tools, server, tool, its.iter().map(|offer| offer.name.as_str()))
}

/// The failure of asking for something that is not in a server's list.
pub(crate) fn unknown_item<'n>(
    list: List,
    server: &str,
    wanted: &str,
    names: impl Iterator<Item = &'n str>,
) -> Failure {
    let word = list.member().trim_end_matches('s');
    let hint = match suggest::nearest(wanted, names) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("`gripfast {word}s {server}` lists its {word}s"),
    };
    let text = format!("upstream `{server}` has no {word} named `{wanted}`");
    CallError::new(Code::UnknownTool, server, Fate::NotSent, text).hint(hint).into()
}

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).expect("a JSON value prints as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(served: &str) -> Offer {
        Offer::read(List::Tools, &RawValue::from_string(served.to_owned()).unwrap()).unwrap()
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
            Offer::read(List::Tools, &RawValue::from_string(r#"{"name":"echo"}"#.to_owned()).unwrap())
                .is_none()
        );
    }

    #[test]
    fn a_failure_comes_out_as_it_went_in() {
        let text = "upstream `demo` was lost";
        let error =
            CallError::new(Code::OutcomeUnknown, "demo", Fate::Unknown, text).hint("look first".to_owned());
        let told = json!({
            "content": [{ "type": "text", "text": format!("{text}\nhint: look first") }],
            "isError": true,
            "_meta": { "gripfast/failure": error.machine_part() },
        });
        assert_eq!(failure(&raw(&told)), Some(Failure::from(error)));
        assert_eq!(failure(&raw(&json!({ "content": [], "isError": true }))), None);
    }
}

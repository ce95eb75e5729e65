//! URL elicitation of legacy servers. Records which client each URL was sent to, so that the completion notification
//! reaches that client; and turns the error "URL elicitation required" into an input-required result for modern
//! clients. A modern client answers by repeating the request; the server itself knows if the URL was visited.

use crate::mcp::Gateway;
use crate::mcp::request::dispatch::{ClientRequest, RequestOutcome, RpcFault, server_info_meta};
use crate::mcp::tasks::registry::{EntryKind, TaskLocation, TaskRegistry};
use bytes::Bytes;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::wire::envelope::Message;
use gripfast::wire::patch::{Object, Patch};
use gripfast::wire::{Era, Outcome, codes, url_elicitation};
use gripfast::{Answer, Client, Json, JsonText};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Prefix of the gateway's own keys in `inputRequests`; keys of servers do not start with it.
const KEY_PREFIX: &str = "gripfast-page-";
/// Time that a person may take to visit a URL.
const RETENTION: Duration = Duration::from_secs(3600);
/// Maximum number of URLs in one error.
const MAX_URLS: usize = 100;

impl Gateway {
    /// Listener for a call; for a legacy client that can visit URLs it also records URL elicitations.
    pub(crate) fn listener_for(&self, request: &ClientRequest<'_>, server: &Arc<str>) -> Arc<dyn Listener> {
        match request.era {
            Era::Modern => Arc::clone(&request.listener),
            Era::Legacy if !request.client.abilities.supports_url() => Arc::clone(&request.listener),
            Era::Legacy => Arc::new(UrlRecorder {
                listener: Arc::clone(&request.listener),
                tasks: Arc::clone(&self.tasks),
                client: request.client.host_client.clone(),
                server: Arc::clone(server),
            }),
        }
    }

    /// Answer to a request that the server refused with "URL elicitation required"; `None` if it was another answer, or
    /// the client gets it unchanged.
    pub(crate) fn url_elicitation_required(
        &self,
        request: &ClientRequest<'_>,
        server: &str,
        answer: &Answer,
    ) -> Option<RequestOutcome> {
        let Outcome::Error(error) = answer.outcome() else { return None };
        if error.code != codes::URL_ELICITATION_REQUIRED || answer.era() == Era::Modern {
            return None;
        }
        let urls = error.data.map(url_elicitation::elicitations).unwrap_or_default();
        match request.era {
            Era::Legacy => {
                for id in urls.into_iter().take(MAX_URLS).filter_map(url_elicitation::elicitation_id) {
                    record(&self.tasks, &request.client.host_client, server, &id);
                }
                None
            }
            Era::Modern if !may_want_input(request.method) => None,
            Era::Modern if !request.client.abilities.supports_url() => Some(url_unsupported()),
            Era::Modern => input_required_result(&urls).map(RequestOutcome::Result),
        }
    }
}

/// Answer of a client to the gateway's URL elicitation, read from a repeated request.
pub(crate) enum UrlVisit {
    /// The request has no such answer.
    Unanswered,
    /// The user accepted. Holds the parameters for the server, without the answer.
    Accepted(JsonText),
    /// The user declined.
    Declined,
}

impl UrlVisit {
    pub(crate) fn from_params(params: &Json) -> Self {
        if !params.get().contains(KEY_PREFIX) {
            return Self::Unanswered;
        }
        let Ok(object) = Object::parse(params) else { return Self::Unanswered };
        let Some(responses) = object.object("inputResponses") else { return Self::Unanswered };
        let mut ours = responses.iter().filter(|(key, _)| key.starts_with(KEY_PREFIX)).peekable();
        if ours.peek().is_none() {
            return Self::Unanswered;
        }
        let accepts = |answer: &Json| {
            let action = Object::parse(answer).ok().and_then(|answer| answer.text("action"));
            action.is_some_and(|action| action == "accept")
        };
        if ours.all(|(_, answer)| accepts(answer)) {
            return Self::Accepted(Patch::new().remove("inputResponses").apply(&object));
        }
        Self::Declined
    }
}

fn may_want_input(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

fn input_required_result(urls: &[&Json]) -> Option<JsonText> {
    let urls_to_visit = urls.iter().take(MAX_URLS).filter_map(|url| url_elicitation::to_modern(url));
    let requests = urls_to_visit.enumerate().fold(Patch::new(), |requests, (number, params)| {
        let question = Patch::new().set_text("method", "elicitation/create").set_owned("params", params);
        requests.set_owned(format!("{KEY_PREFIX}{}", number + 1), question.to_object())
    });
    if requests.is_empty() {
        return None;
    }
    let result = Patch::new()
        .set_text("resultType", "input_required")
        .set_owned("inputRequests", requests.to_object())
        .set_owned("_meta", crate::mcp::request::dispatch::raw(&server_info_meta()));
    Some(result.to_object())
}

fn url_unsupported() -> RequestOutcome {
    let text = "a URL has to be visited first, and the client did not declare URL elicitation";
    let mut fault = RpcFault::new(codes::MISSING_CLIENT_CAPABILITY, text);
    fault.data = Some(json!({ "requiredCapabilities": { "elicitation": { "url": {} } } }));
    RequestOutcome::Fault(fault)
}

fn record(tasks: &TaskRegistry, client: &Client, server: &str, id: &str) {
    let location = TaskLocation { server: server.to_owned(), dedicated_to: None, id: id.to_owned() };
    tasks.insert(client, EntryKind::Url, location, Some(RETENTION));
}

/// Listener that records which URLs the client of a call is sent to.
struct UrlRecorder {
    listener: Arc<dyn Listener>,
    tasks: Arc<TaskRegistry>,
    client: Client,
    server: Arc<str>,
}

impl Listener for UrlRecorder {
    fn on_message(&self, message: &[u8]) {
        self.listener.on_message(message);
    }

    fn on_request(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        if let Ok(Message::Request(parsed)) = Message::parse(&request)
            && parsed.method == "elicitation/create"
            && let Some(id) = parsed.params.and_then(url_elicitation::elicitation_id)
        {
            record(&self.tasks, &self.client, &self.server, &id);
        }
        self.listener.on_request(request)
    }
}

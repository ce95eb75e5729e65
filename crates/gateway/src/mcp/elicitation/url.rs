//! Pages that a person has to visit before a legacy server goes on: whose each is, so that the right client hears when
//! it is done; and the refusal that names them, put to a modern client as wanted input. That client's answer is the same
//! request once more, and the server knows by itself whether the page was visited.

use super::Gateway;
use super::ask::{Asked, Fault, Told, who_answers};
use super::begun::{Begun, Kind, Place};
use bytes::Bytes;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::wire::envelope::Message;
use gripfast::wire::patch::{Object, Patch};
use gripfast::wire::{Era, Outcome, codes, pages};
use gripfast::{Answer, Client, RawValue};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Under what we ask for a page; no other answer begins like this.
const KEY: &str = "gripfast-page-";
/// How long a person may take.
const KEPT_FOR: Duration = Duration::from_secs(3600);
/// More pages at once are for no person.
const MOST: usize = 100;

impl Gateway {
    /// Who hears a call: of a legacy client also which pages it is sent to.
    pub(super) fn ear_of(&self, asked: &Asked<'_>, server: &str) -> Arc<dyn Listener> {
        match asked.era {
            Era::Modern => Arc::clone(&asked.ear),
            Era::Legacy => Arc::new(Noting {
                ear: Arc::clone(&asked.ear),
                begun: Arc::clone(&self.begun),
                client: asked.client.at_servers.clone(),
                server: server.to_owned(),
            }),
        }
    }

    /// What a client is told whose request was refused because of pages; `None` if it was not, or may hear it as it is.
    pub(super) fn pages_required(&self, asked: &Asked<'_>, server: &str, answer: &Answer) -> Option<Told> {
        let Outcome::Error(said) = answer.outcome() else { return None };
        if said.code != codes::URL_ELICITATION_REQUIRED || answer.era() == Era::Modern {
            return None;
        }
        let pages = said.data.map(pages::required).unwrap_or_default();
        match asked.era {
            Era::Legacy => {
                for id in pages.into_iter().take(MOST).filter_map(pages::id_in) {
                    note(&self.begun, &asked.client.at_servers, server, &id);
                }
                None
            }
            Era::Modern if !may_want_input(asked.method) => None,
            Era::Modern if !asked.client.abilities.can_visit() => Some(cannot_visit()),
            Era::Modern => wanted(&pages).map(Told::Result),
        }
    }
}

/// What a request says about pages that we asked for.
pub(super) enum Visit {
    /// Nothing.
    Unsaid,
    /// The person goes there. The rest of the request is for the server, which knows nothing of our question.
    Accepted(Box<RawValue>),
    /// The person will not.
    Declined,
}

impl Visit {
    pub(super) fn read(params: &RawValue) -> Self {
        if !params.get().contains(KEY) {
            return Self::Unsaid;
        }
        let Ok(object) = Object::parse(params) else { return Self::Unsaid };
        let Some(responses) = object.object("inputResponses") else { return Self::Unsaid };
        let mut ours = responses.iter().filter(|(key, _)| key.starts_with(KEY)).peekable();
        if ours.peek().is_none() {
            return Self::Unsaid;
        }
        let accepts = |answer: &RawValue| {
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

fn wanted(pages: &[&RawValue]) -> Option<Box<RawValue>> {
    let questions = pages.iter().take(MOST).filter_map(|page| pages::in_modern_words(page));
    let requests = questions.enumerate().fold(Patch::new(), |requests, (number, params)| {
        let question = Patch::new().set_text("method", "elicitation/create").set_owned("params", params);
        requests.set_owned(format!("{KEY}{}", number + 1), question.to_object())
    });
    if requests.is_empty() {
        return None;
    }
    let result = Patch::new()
        .set_text("resultType", "input_required")
        .set_owned("inputRequests", requests.to_object())
        .set_owned("_meta", super::ask::raw(&who_answers()));
    Some(result.to_object())
}

fn cannot_visit() -> Told {
    let text =
        "a page has to be visited first, and the client did not declare that it can send a person to one";
    let mut fault = Fault::new(codes::MISSING_CLIENT_CAPABILITY, text);
    fault.data = Some(json!({ "requiredCapabilities": { "elicitation": { "url": {} } } }));
    Told::Fault(fault)
}

fn note(begun: &Begun, client: &Client, server: &str, id: &str) {
    let place = Place { server: server.to_owned(), own: None, id: id.to_owned() };
    begun.begin(client, Kind::Page, place, Some(KEPT_FOR));
}

/// Hears a call, and notes which pages its client is sent to.
struct Noting {
    ear: Arc<dyn Listener>,
    begun: Arc<Begun>,
    client: Client,
    server: String,
}

impl Listener for Noting {
    fn said(&self, message: &[u8]) {
        self.ear.said(message);
    }

    fn asked(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        if let Ok(Message::Request(asked)) = Message::parse(&request)
            && asked.method == "elicitation/create"
            && let Some(id) = asked.params.and_then(pages::id_in)
        {
            note(&self.begun, &self.client, &self.server, &id);
        }
        self.ear.asked(request)
    }
}

//! Tasks: who has them, and where requests about one go.
//!
//! Between a client and a server of one era they pass as they are. Where the two mean different things by a task, none
//! is begun for the client; a tool that can only be called as one is called so on its behalf, and waited for.

use super::Gateway;
use super::ask::{Asked, Fault, Told, member, raw};
use super::begun::{self, Begun, Kind, Place};
use super::follows::{Board, Follows};
use super::forward::At;
use futures_util::future::join_all;
use gripfast::transport::Listener;
use gripfast::wire::envelope::Message;
use gripfast::wire::patch::{Object, Patch, patch_payload};
use gripfast::wire::tasks::{self, Begun as NewTask, Progress};
use gripfast::wire::{Era, Outcome, codes};
use gripfast::{
    Answer, CallError, CallOptions, Client, Code, Fate, Host, RawValue, SubscribeOptions, Subscribed,
};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How a tool is to be called.
pub(super) enum Manner {
    /// As the client asks.
    AsAsked,
    /// Without the wish for a task, which is one in another era only.
    Plainly,
    /// As a task of ours, because the tool knows no other way and the client knows no tasks.
    Carried,
    /// Not at all.
    Refused(Fault),
}

/// How long a task is waited for on behalf of a client that knows none.
const CARRIED_FOR: Duration = Duration::from_secs(600);
/// Between two looks at it, whatever its server would like.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
const USUAL_WAIT: Duration = Duration::from_secs(1);
/// Tasks on one page of the list, each of which its server is asked about.
const PAGE: usize = 50;
/// A server that takes longer to say how it stands with a task does not hold up the list.
const LIST_WITHIN: Duration = Duration::from_secs(5);
const CURSOR: &str = "after-";

/// Whether the parameters of a call wish for a task, in the manner of the legacy era.
pub(super) fn is_wished_for(params: Option<&RawValue>) -> bool {
    let Some(params) = params.filter(|params| params.get().contains("task")) else { return false };
    Object::parse(params).is_ok_and(|params| params.has("task"))
}

impl Gateway {
    /// How a tool of `server` is called for a client; `required`: the tool can only be called as a task.
    pub(super) fn manner(&self, asked: &Asked<'_>, server: &str, required: bool) -> Manner {
        let wished = is_wished_for(asked.params);
        if !wished && !required {
            return Manner::AsAsked;
        }
        match (asked.era, self.host.era_of(server)) {
            (Era::Legacy, Some(Era::Modern)) if wished && asked.client.has_tasks => {
                let text = "method not found: this tool cannot be called as a task";
                Manner::Refused(Fault::new(codes::METHOD_NOT_FOUND, text))
            }
            (Era::Legacy, Some(Era::Legacy)) if asked.client.has_tasks => Manner::AsAsked,
            (Era::Modern | Era::Legacy, Some(Era::Legacy)) if required => Manner::Carried,
            (Era::Modern, Some(Era::Legacy)) if wished => Manner::Plainly,
            (Era::Modern | Era::Legacy, _) => Manner::AsAsked,
        }
    }

    /// Remembers the task that a call may have begun for its client; answers with its own and its public id.
    pub(super) fn note_task(
        &self,
        asked: &Asked<'_>,
        server: &str,
        answer: &Answer,
    ) -> Option<(String, String)> {
        let may_begin = match asked.era {
            Era::Legacy => is_wished_for(asked.params),
            Era::Modern => asked.client.has_tasks,
        };
        if !may_begin || answer.era() != asked.era {
            return None;
        }
        let Outcome::Result(result) = answer.outcome() else { return None };
        let NewTask { id, lifetime } = NewTask::read(asked.era, result)?;
        let (client, id) = (&asked.client.at_servers, id.into_owned());
        let own = client.key().filter(|_| !answer.is_shared()).cloned();
        let place = Place { server: server.to_owned(), own, id: id.clone() };
        let public = self.begun.begin(client, Kind::Task, place, lifetime)?;
        Some((id, public))
    }

    /// A request about one task.
    pub(super) async fn task(&self, asked: &Asked<'_>) -> Told {
        if let Some(refusal) = self.without_tasks(asked) {
            return refusal;
        }
        let public = match member(asked.params, "taskId") {
            Ok(public) => public,
            Err(told) => return told,
        };
        let Some(place) = self.begun.task(&asked.client.at_servers, &public) else {
            return match self.host.has_tasks(asked.era) {
                true => Fault::invalid(format!("unknown task: {public}")),
                false => unknown_method(asked.method),
            };
        };
        let params = patch_payload(asked.params, &Patch::new().set_text("taskId", &place.id), &Patch::new());
        match self.forward_at(asked, &place.server, params, At::home(&place)).await {
            Told::Answer(passed_on) => Told::Answer(passed_on.about_task(place.id, public)),
            told => told,
        }
    }

    /// `tasks/list` of a legacy client: its own tasks at all servers, each as its server sees it now.
    pub(super) async fn list_tasks(&self, asked: &Asked<'_>) -> Told {
        if let Some(refusal) = self.without_tasks(asked) {
            return refusal;
        }
        let cursor = asked.params.and_then(|params| Object::parse(params).ok()?.text("cursor"));
        let after = match cursor.as_deref().map(|cursor| cursor.strip_prefix(CURSOR)?.parse().ok()) {
            None => 0,
            Some(Some(after)) => after,
            Some(None) => return Fault::invalid("the cursor is not one of ours"),
        };
        let client = &asked.client.at_servers;
        let mut known = self.begun.tasks(client, after, PAGE + 1);
        if known.is_empty() && !self.host.has_tasks(asked.era) {
            return unknown_method(asked.method);
        }
        let more = known.len() > PAGE;
        known.truncate(PAGE);
        let next = known.last().filter(|_| more).map(|(number, ..)| format!("{CURSOR}{number}"));
        let looks = known.iter().map(|(_, public, place)| self.look_at(client, public, place));
        let tasks: Vec<String> = join_all(looks).await.into_iter().flatten().collect();
        let next = next.map(|next| format!(",\"nextCursor\":\"{next}\"")).unwrap_or_default();
        let list = format!("{{\"tasks\":[{}]{next}}}", tasks.join(","));
        match RawValue::from_string(list) {
            Ok(list) => Told::Result(list),
            Err(_) => Told::Fault(Fault::new(codes::INTERNAL_ERROR, "the list of tasks cannot be written")),
        }
    }

    /// A task as its server sees it now, under its public name; nothing if the server does not say.
    async fn look_at(&self, client: &Client, public: &str, place: &Place) -> Option<String> {
        let options = CallOptions {
            patience: Some(LIST_WITHIN),
            client: Some(client.clone()),
            shared: place.own.is_none(),
            ..CallOptions::default()
        };
        let answer =
            self.host.request_with(&place.server, "tasks/get", Some(params_of(&place.id)), options).await;
        let answer = answer.ok()?;
        let Outcome::Result(task) = answer.outcome() else { return None };
        let task = Object::parse(task).ok()?;
        Some(tasks::renamed(&task, &place.id, public).apply(&task).get().to_owned())
    }

    /// Lets a modern client hear what becomes of one of its tasks. Answers whether it will.
    pub(super) async fn follow_task(
        &self,
        client: &Client,
        follows: &Follows,
        public: &str,
        patience: Duration,
    ) -> bool {
        let Some(place) = self.begun.task(client, public) else { return false };
        let (server, id, shared) = (place.server.clone(), place.id.clone(), place.own.is_none());
        let ear = Ear {
            board: Arc::clone(&follows.board),
            begun: Arc::clone(&self.begun),
            client: client.clone(),
            public: public.to_owned(),
            place,
        };
        let options = SubscribeOptions { patience: Some(patience), client: Some(client.clone()), shared };
        match self.host.subscribe_to_task(&server, &id, Arc::new(ear), options).await {
            Ok(Subscribed::Following(subscription)) => follows.keep(public, subscription).is_ok(),
            Ok(Subscribed::Declined(_) | Subscribed::Unsupported) | Err(_) => false,
        }
    }

    /// What a client is told that cannot have asked for a task.
    fn without_tasks(&self, asked: &Asked<'_>) -> Option<Told> {
        if asked.client.has_tasks {
            return None;
        }
        if asked.era == Era::Legacy || !self.host.has_tasks(Era::Modern) {
            return Some(unknown_method(asked.method));
        }
        let mut fault =
            Fault::new(codes::MISSING_CLIENT_CAPABILITY, "the client did not declare that it has tasks");
        fault.data = Some(json!({ "requiredCapabilities": { "extensions": { tasks::EXTENSION: {} } } }));
        Some(Told::Fault(fault))
    }

    /// Calls a tool as a task, for a client that knows none, and waits for what comes of it. A client that gives up
    /// cancels it.
    pub(super) async fn carry_task(&self, asked: &Asked<'_>, server: &str, params: Box<RawValue>) -> Told {
        let wish = raw(&json!({ "ttl": CARRIED_FOR.as_millis() as u64 }));
        let params = patch_payload(Some(&params), &Patch::new().set_owned("task", wish), &Patch::new());
        let until = Instant::now() + CARRIED_FOR;
        let mut client = asked.client.clone();
        client.at_servers = client.at_servers.at_one_instance();
        let asked = &Asked { ear: asked.ear.clone(), client, ..*asked };
        let passed_on = match self.forward(asked, server, params).await {
            Told::Answer(passed_on) => passed_on,
            told => return told,
        };
        let begun = match passed_on.answer.outcome() {
            Outcome::Result(result) => NewTask::read(Era::Legacy, result).map(|begun| begun.id.into_owned()),
            Outcome::Error(_) => None,
        };
        let Some(id) = begun else { return Told::Answer(passed_on) };
        let (shared, client) = (passed_on.answer.is_shared(), asked.client.at_servers.clone());
        let mut carried =
            Carried { host: self.host.clone(), server: server.to_owned(), id, client, shared, over: false };
        let mut progress = match passed_on.answer.outcome() {
            Outcome::Result(result) => progress_of(result, true),
            Outcome::Error(_) => Progress::WantsToBeAsked,
        };
        while let Progress::Working(every) = progress {
            let pause = every.unwrap_or(USUAL_WAIT).clamp(SHORTEST_WAIT, LONGEST_WAIT);
            if Instant::now() + pause >= until {
                return Told::Failed(took_too_long(server));
            }
            tokio::time::sleep(pause).await;
            let looked = match self.ask_about(asked, &carried, "tasks/get").await {
                Told::Answer(looked) => looked,
                told => return told,
            };
            progress = match looked.answer.outcome() {
                Outcome::Result(task) => progress_of(task, false),
                Outcome::Error(_) => return Told::Answer(looked),
            };
        }
        let told = self.ask_about(asked, &carried, "tasks/result").await;
        carried.over = matches!(told, Told::Answer(_));
        told
    }

    async fn ask_about(&self, asked: &Asked<'_>, carried: &Carried, method: &'static str) -> Told {
        let asked = Asked { method, ear: asked.ear.clone(), client: asked.client.clone(), ..*asked };
        let at = if carried.shared { At::Shared } else { At::Own };
        self.forward_at(&asked, &carried.server, Ok(params_of(&carried.id)), at).await
    }
}

/// Hears of one task on behalf of its client.
struct Ear {
    board: Arc<Board>,
    begun: Arc<Begun>,
    client: Client,
    public: String,
    place: Place,
}

impl Listener for Ear {
    fn said(&self, message: &[u8]) {
        // A server that began to count anew may have given the id to somebody else's task.
        if self.begun.task(&self.client, &self.public).as_ref() != Some(&self.place) {
            return;
        }
        let Ok(Message::Notification(said)) = Message::parse(message) else { return };
        let Some(params) = said.params else { return };
        let message = begun::under(message, params, &self.place.id, &self.public);
        self.board.put(self.public.clone(), message.into(), &self.public);
    }
}

fn progress_of(result: &RawValue, begun: bool) -> Progress {
    let result = Object::parse(result).ok();
    let task = if begun { result.and_then(|result| result.object("task")) } else { result };
    task.as_ref().map_or(Progress::WantsToBeAsked, Progress::read)
}

fn params_of(id: &str) -> Box<RawValue> {
    Patch::new().set_text("taskId", id).to_object()
}

fn unknown_method(method: &str) -> Told {
    Told::Fault(Fault::new(codes::METHOD_NOT_FOUND, format!("method not found: {method}")))
}

fn took_too_long(server: &str) -> CallError {
    let text = format!(
        "upstream `{server}` calls this tool as a task, which had not ended after {} minutes; it was cancelled",
        CARRIED_FOR.as_secs() / 60
    );
    CallError::new(Code::Timeout, server, Fate::Unknown, text)
        .hint("use a client that has tasks, and ask for the result later")
}

/// A task that is waited for. Its server is told if nobody does any more.
struct Carried {
    host: Host,
    server: String,
    id: String,
    client: Client,
    shared: bool,
    over: bool,
}

impl Drop for Carried {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let (host, server, params) = (self.host.clone(), self.server.clone(), params_of(&self.id));
        let options = CallOptions {
            patience: Some(LIST_WITHIN),
            client: Some(self.client.clone()),
            shared: self.shared,
            ..CallOptions::default()
        };
        tokio::spawn(async move {
            // A server that cannot be told will find out by the lifetime that it was asked for.
            let _ = host.request_with(&server, "tasks/cancel", Some(params), options).await;
        });
    }
}

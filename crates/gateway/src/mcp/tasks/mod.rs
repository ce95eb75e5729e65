//! Tasks: decides if a tool is called as a task, and forwards requests about a task to the instance that has it.
//!
//! Between a client and a server of the same era, tasks pass unchanged. Across eras the client gets no task; a tool
//! that can only be called as a task is awaited by the gateway. In a service of several replicas the id of a modern
//! client's task names its replica (`task_address`); the tasks of a legacy client are where its session is.

pub(crate) mod registry;
pub(crate) mod task_address;

use super::Gateway;
use super::notify::subscriptions::{Subscriptions, UpdateQueue};
use super::request::dispatch::{ClientRequest, RequestOutcome, RpcFault, raw, text_param};
use super::request::forward::InstanceChoice;
use super::tasks::registry::{EntryKind, TaskLocation, TaskRegistry};
use super::tasks::task_address::{ForeignTask, TaskAddress};
use futures_util::future::join_all;
use gripfast::transport::Listener;
use gripfast::wire::envelope::Message;
use gripfast::wire::patch::{Object, Patch, patch_payload};
use gripfast::wire::tasks::{self, CreatedTask, TaskProgress};
use gripfast::wire::{Era, Outcome, codes};
use gripfast::{
    Answer, CallError, CallOptions, CallOutcome, Client, Code, Host, Json, JsonText, Principal,
    SubscribeOptions, SubscribeOutcome,
};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Form in which a tool is called.
pub(crate) enum CallMode {
    /// As the client requests.
    AsRequested,
    /// Without the member `task`, which only has a meaning in the legacy era.
    WithoutTask,
    /// As a task that the gateway awaits, because the tool requires one and the client does not support tasks.
    AwaitTask,
    /// Refused.
    Refused(RpcFault),
}

/// Maximum duration of a task that the gateway awaits for a client.
const AWAIT_TIMEOUT: Duration = Duration::from_secs(600);
/// Bounds for the poll interval that a server suggests.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Tasks on one page of the list; each costs a request to its server.
const PAGE_SIZE: usize = 50;
/// A server that takes longer to report a task is left out of the list.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
const CURSOR_PREFIX: &str = "after-";

/// Tests if a call requests a task, in the form of the legacy era.
pub(crate) fn is_requested(params: Option<&Json>) -> bool {
    let Some(params) = params.filter(|params| params.get().contains("task")) else { return false };
    Object::parse(params).is_ok_and(|params| params.has("task"))
}

impl Gateway {
    /// Form in which a tool of `server` is called for a client; `required`: the tool can only be called as a task.
    pub(crate) fn call_mode(&self, request: &ClientRequest<'_>, server: &str, required: bool) -> CallMode {
        let requested = is_requested(request.params);
        if !requested && !required {
            return CallMode::AsRequested;
        }
        match (request.era, self.host.server_era(server)) {
            (Era::Legacy, Some(Era::Modern)) if requested && request.client.has_tasks => {
                let text = "method not found: this tool cannot be called as a task";
                CallMode::Refused(RpcFault::new(codes::METHOD_NOT_FOUND, text))
            }
            (Era::Legacy, Some(Era::Legacy)) if request.client.has_tasks => CallMode::AsRequested,
            (Era::Modern | Era::Legacy, Some(Era::Legacy)) if required => CallMode::AwaitTask,
            (Era::Modern, Some(Era::Legacy)) if requested => CallMode::WithoutTask,
            (Era::Modern | Era::Legacy, _) => CallMode::AsRequested,
        }
    }

    /// Records the task that a call may have started for its client. Returns the id of the server and the id for the
    /// client.
    pub(crate) fn record_task(
        &self,
        request: &ClientRequest<'_>,
        server: &str,
        answer: &Answer,
    ) -> Option<(String, String)> {
        let may_begin = || match request.era {
            Era::Legacy => is_requested(request.params),
            Era::Modern => request.client.has_tasks,
        };
        if answer.era() != request.era || !may_begin() {
            return None;
        }
        let Outcome::Result(result) = answer.outcome() else { return None };
        let CreatedTask { id, lifetime } = CreatedTask::read(request.era, result)?;
        let (client, id) = (&request.client.host_client, id.into_owned());
        let own = client.key().filter(|_| !answer.is_shared()).cloned();
        let location = TaskLocation { server: server.to_owned(), dedicated_to: own, id: id.clone() };
        let public = match self.addressed_task(request, &location) {
            Some(address) => self.tasks.insert_as(address, client, EntryKind::Task, location, lifetime)?,
            None => self.tasks.insert(client, EntryKind::Task, location, lifetime)?,
        };
        Some((id, public))
    }

    /// The id of a task of a modern client, if other replicas must understand it.
    fn addressed_task(&self, request: &ClientRequest<'_>, location: &TaskLocation) -> Option<String> {
        self.sessions.member().filter(|_| request.era == Era::Modern)?;
        TaskAddress::issue(&self.tokens, request.principal(), location)
    }

    /// Looks for a task that another process began, and that is not known there any more.
    fn foreign_task(&self, principal: &Principal, public: &str) -> ForeignTask {
        match TaskAddress::open(&self.tokens, public) {
            Some(address) => {
                address.resolve_at(self.tokens.own(), principal, |server| self.host.is_remote(server))
            }
            None => ForeignTask::Unknown,
        }
    }

    /// The location of a task for a request about it, or the refusal.
    fn find_task(&self, request: &ClientRequest<'_>, public: &str) -> Result<TaskLocation, RequestOutcome> {
        if let Some(location) = self.tasks.task(&request.client.host_client, public) {
            return Ok(location);
        }
        let foreign = match request.era {
            Era::Modern => self.foreign_task(request.principal(), public),
            Era::Legacy => ForeignTask::Unknown,
        };
        match foreign {
            ForeignTask::At(location) => Ok(location),
            ForeignTask::Ended { server, replica } => Err(RpcFault::invalid(format!(
                "unknown task: replica `{replica}`, which began it, is gone, and its server `{server}` with it; call the \
                 tool again"
            ))),
            ForeignTask::Unknown if self.host.has_tasks(request.era) => {
                Err(RpcFault::invalid(format!("unknown task: {public}")))
            }
            ForeignTask::Unknown => Err(unknown_method(request.method)),
        }
    }

    /// Forwards a request about one task.
    pub(crate) async fn forward_task(&self, request: &ClientRequest<'_>) -> RequestOutcome {
        if let Some(refusal) = self.without_tasks(request) {
            return refusal;
        }
        let public = match text_param(request.params, "taskId") {
            Ok(public) => public,
            Err(outcome) => return outcome,
        };
        let location = match self.find_task(request, &public) {
            Ok(location) => location,
            Err(refusal) => return refusal,
        };
        let params =
            patch_payload(request.params, &Patch::new().set_text("taskId", &location.id), &Patch::new());
        let (server, instance) = (Arc::from(&*location.server), InstanceChoice::of_task(&location));
        match self.forward_to_instance(request, &server, params, instance).await {
            RequestOutcome::Answer(forwarded) => {
                RequestOutcome::Answer(forwarded.with_task(location.id, public))
            }
            outcome => outcome,
        }
    }

    /// `tasks/list` of a legacy client: its own tasks at all servers, each in its current state.
    pub(crate) async fn list_tasks(&self, request: &ClientRequest<'_>) -> RequestOutcome {
        if let Some(refusal) = self.without_tasks(request) {
            return refusal;
        }
        let cursor = request.params.and_then(|params| Object::parse(params).ok()?.text("cursor"));
        let after = match cursor.as_deref().map(|cursor| cursor.strip_prefix(CURSOR_PREFIX)?.parse().ok()) {
            None => 0,
            Some(Some(after)) => after,
            Some(None) => return RpcFault::invalid("unknown cursor; list again without a cursor"),
        };
        let client = &request.client.host_client;
        let mut known = self.tasks.tasks(client, after, PAGE_SIZE + 1);
        if known.is_empty() && !self.host.has_tasks(request.era) {
            return unknown_method(request.method);
        }
        let more = known.len() > PAGE_SIZE;
        known.truncate(PAGE_SIZE);
        let next = known.last().filter(|_| more).map(|(number, ..)| format!("{CURSOR_PREFIX}{number}"));
        let states = known.iter().map(|(_, public, location)| self.task_state(client, public, location));
        let tasks: Vec<String> = join_all(states).await.into_iter().flatten().collect();
        let next = next.map(|next| format!(",\"nextCursor\":\"{next}\"")).unwrap_or_default();
        let list = format!("{{\"tasks\":[{}]{next}}}", tasks.join(","));
        match JsonText::parse(list) {
            Ok(list) => RequestOutcome::Result(list),
            Err(_) => {
                RequestOutcome::Fault(RpcFault::new(codes::INTERNAL_ERROR, "cannot encode the list of tasks"))
            }
        }
    }

    /// Current state of a task at its server, with the id of the client; `None` if the server does not answer.
    async fn task_state(&self, client: &Client, public: &str, location: &TaskLocation) -> Option<String> {
        let options = CallOptions {
            timeout: Some(LIST_TIMEOUT),
            client: Some(client.clone()),
            use_shared_instance: location.dedicated_to.is_none(),
            ..CallOptions::default()
        };
        let answer = self
            .host
            .request_with(&location.server, "tasks/get", Some(&params_of(&location.id)), options)
            .await;
        let answer = answer.ok()?;
        let Outcome::Result(task) = answer.outcome() else { return None };
        let task = Object::parse(task).ok()?;
        Some(tasks::rename_task(&task, &location.id, public).apply(&task).get().to_owned())
    }

    /// Subscribes a modern client to one of its tasks. Returns false if that is not possible.
    pub(crate) async fn subscribe_task(
        &self,
        client: &Client,
        subscriptions: &Subscriptions,
        public: &str,
        timeout: Duration,
    ) -> bool {
        let (location, is_registered) = match self.tasks.task(client, public) {
            Some(location) => (location, true),
            // The server accepts a subscription from any replica, if it does not run in one.
            None => match self.foreign_task(client.principal(), public) {
                ForeignTask::At(location) => (location, false),
                ForeignTask::Ended { .. } | ForeignTask::Unknown => return false,
            },
        };
        let (server, id, shared) =
            (location.server.clone(), location.id.clone(), location.dedicated_to.is_none());
        let listener = TaskListener {
            updates: Arc::clone(&subscriptions.updates),
            tasks: Arc::clone(&self.tasks),
            client: client.clone(),
            public: public.to_owned(),
            location,
            is_registered,
        };
        let options = SubscribeOptions {
            timeout: Some(timeout),
            client: Some(client.clone()),
            use_shared_instance: shared,
        };
        match self.host.subscribe_to_task(&server, &id, Arc::new(listener), options).await {
            Ok(SubscribeOutcome::Subscribed(subscription)) => {
                subscriptions.insert(public, subscription).is_ok()
            }
            Ok(SubscribeOutcome::Declined(_) | SubscribeOutcome::Unsupported) | Err(_) => false,
        }
    }

    /// Refusal for a client that does not support tasks.
    fn without_tasks(&self, request: &ClientRequest<'_>) -> Option<RequestOutcome> {
        if request.client.has_tasks {
            return None;
        }
        if request.era == Era::Legacy || !self.host.has_tasks(Era::Modern) {
            return Some(unknown_method(request.method));
        }
        let mut fault =
            RpcFault::new(codes::MISSING_CLIENT_CAPABILITY, "the client did not declare the tasks extension");
        fault.data = Some(json!({ "requiredCapabilities": { "extensions": { tasks::EXTENSION: {} } } }));
        Some(RequestOutcome::Fault(fault))
    }

    /// Calls a tool as a task for a client without task support, and waits for the result. Dropping the future cancels
    /// the task.
    pub(crate) async fn await_task(
        &self,
        request: &ClientRequest<'_>,
        server: &Arc<str>,
        params: JsonText,
    ) -> RequestOutcome {
        let task_params = raw(&json!({ "ttl": AWAIT_TIMEOUT.as_millis() as u64 }));
        let params =
            patch_payload(Some(&params), &Patch::new().set_owned("task", task_params), &Patch::new());
        let until = Instant::now() + AWAIT_TIMEOUT;
        let host_client = request.client.host_client.with_single_instance();
        let client = Arc::new(request.client.with_host_client(host_client));
        let request = &ClientRequest { listener: request.listener.clone(), client, ..*request };
        let forwarded = match self.forward(request, server, params).await {
            RequestOutcome::Answer(forwarded) => forwarded,
            outcome => return outcome,
        };
        let created = match forwarded.answer.outcome() {
            Outcome::Result(result) => {
                CreatedTask::read(Era::Legacy, result).map(|created| created.id.into_owned())
            }
            Outcome::Error(_) => None,
        };
        let Some(id) = created else { return RequestOutcome::Answer(forwarded) };
        let (shared, client) = (forwarded.answer.is_shared(), request.client.host_client.clone());
        let mut awaited = AwaitedTask {
            host: self.host.clone(),
            server: server.to_string(),
            id,
            client,
            shared,
            finished: false,
        };
        let mut progress = match forwarded.answer.outcome() {
            Outcome::Result(result) => progress_of(result, true),
            Outcome::Error(_) => TaskProgress::FetchResult,
        };
        while let TaskProgress::Working(every) = progress {
            let pause = every.unwrap_or(DEFAULT_POLL_INTERVAL).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL);
            if Instant::now() + pause >= until {
                return RequestOutcome::Failed(task_timeout(server));
            }
            tokio::time::sleep(pause).await;
            let polled = match self.query_task(request, &awaited, "tasks/get").await {
                RequestOutcome::Answer(polled) => polled,
                outcome => return outcome,
            };
            progress = match polled.answer.outcome() {
                Outcome::Result(task) => progress_of(task, false),
                Outcome::Error(_) => return RequestOutcome::Answer(polled),
            };
        }
        let outcome = self.query_task(request, &awaited, "tasks/result").await;
        awaited.finished = matches!(outcome, RequestOutcome::Answer(_));
        outcome
    }

    async fn query_task(
        &self,
        request: &ClientRequest<'_>,
        awaited: &AwaitedTask,
        method: &'static str,
    ) -> RequestOutcome {
        let request = ClientRequest {
            method,
            listener: request.listener.clone(),
            client: request.client.clone(),
            ..*request
        };
        let instance = if awaited.shared { InstanceChoice::Shared } else { InstanceChoice::Dedicated };
        let server = Arc::from(&*awaited.server);
        self.forward_to_instance(&request, &server, Ok(params_of(&awaited.id)), instance).await
    }
}

/// Listens for notifications about one task on behalf of its client.
struct TaskListener {
    updates: Arc<UpdateQueue>,
    tasks: Arc<TaskRegistry>,
    client: Client,
    public: String,
    location: TaskLocation,
    /// Whether this process began the task.
    is_registered: bool,
}

impl Listener for TaskListener {
    fn on_message(&self, message: &[u8]) {
        // After a restart, a server may have given the same id to a task of another client.
        let present = self.tasks.task(&self.client, &self.public);
        if self.is_registered && present.as_ref() != Some(&self.location) {
            return;
        }
        let Ok(Message::Notification(notification)) = Message::parse(message) else { return };
        let Some(params) = notification.params else { return };
        let message = registry::with_public_id(message, params, &self.location.id, &self.public);
        self.updates.push(self.public.clone(), message.into(), &self.public);
    }
}

fn progress_of(result: &Json, created: bool) -> TaskProgress {
    let result = Object::parse(result).ok();
    let task = if created { result.and_then(|result| result.object("task")) } else { result };
    task.as_ref().map_or(TaskProgress::FetchResult, TaskProgress::read)
}

fn params_of(id: &str) -> JsonText {
    Patch::new().set_text("taskId", id).to_object()
}

fn unknown_method(method: &str) -> RequestOutcome {
    RequestOutcome::Fault(RpcFault::new(codes::METHOD_NOT_FOUND, format!("method not found: {method}")))
}

fn task_timeout(server: &str) -> CallError {
    let text = format!(
        "server `{server}` did not finish the task of this tool call within {} minutes; the task was cancelled",
        AWAIT_TIMEOUT.as_secs() / 60
    );
    CallError::new(Code::Timeout, server, CallOutcome::Unknown, text)
        .with_hint("use a client that supports tasks, and fetch the result later")
}

/// Task that the gateway waits for. Dropping it before the end cancels the task at its server.
struct AwaitedTask {
    host: Host,
    server: String,
    id: String,
    client: Client,
    shared: bool,
    finished: bool,
}

impl Drop for AwaitedTask {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let (host, server, params) = (self.host.clone(), self.server.clone(), params_of(&self.id));
        let options = CallOptions {
            timeout: Some(LIST_TIMEOUT),
            client: Some(self.client.clone()),
            use_shared_instance: self.shared,
            ..CallOptions::default()
        };
        tokio::spawn(async move {
            // If the request fails, the task ends at its `ttl`.
            let _ = host.request_with(&server, "tasks/cancel", Some(&params), options).await;
        });
    }
}

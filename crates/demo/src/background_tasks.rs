//! Work that continues after the answer, for the showcase: jobs, which are tasks in the form of the client's era, and
//! pages that a person has to visit. The tool `finish` ends both; nothing here takes time by itself.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
};

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    peer::{Peer, Request, lock},
    rpc::{self, Era, METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY, RpcError},
    state::{Change, ServerState},
    tools::{failure, plain, required},
};

/// Tasks, as an extension of the modern era.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";
const RELATED: &str = "io.modelcontextprotocol/related-task";
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// All jobs and pages. Ids are counted from one, as many servers do, so that the ids of two servers collide.
#[derive(Debug, Default)]
pub(crate) struct BackgroundTasks {
    jobs: Mutex<BTreeMap<String, Job>>,
    pages: Mutex<BTreeMap<String, Page>>,
    ended: watch::Sender<u64>,
}

#[derive(Debug)]
struct Job {
    era: Era,
    /// The client that gets the status notifications.
    peer: Weak<Peer>,
    text: String,
    question: Option<String>,
    /// Number of polls after which the job ends; `None` if it waits for `finish`.
    looks: Option<u64>,
    end: Option<End>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    Cancelled,
}

#[derive(Debug)]
struct Page {
    peer: Weak<Peer>,
    visited: bool,
}

/// The tools, in the order of the list.
pub(crate) fn tools() -> Vec<Value> {
    vec![
        json!({
            "name": "job",
            "title": "Job",
            "description": "Runs as a task until `finish` ends it, it was polled `looks` times, or its question is answered.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "text": { "type": "string" },
                    "question": { "type": "string" },
                    "looks": { "type": "integer", "minimum": 0 },
                },
            },
            "execution": { "taskSupport": "required" },
        }),
        json!({
            "name": "visit",
            "title": "Visit",
            "description": "Requires that a person visits a page first.",
            "inputSchema": {
                "type": "object",
                "properties": { "page": { "type": "string" }, "ask": { "type": "boolean" } },
                "required": ["page"],
            },
        }),
        json!({
            "name": "finish",
            "title": "Finish",
            "description": "Ends a job, or marks a page as visited.",
            "inputSchema": {
                "type": "object",
                "properties": { "id": { "type": "string" }, "aloud": { "type": "boolean" } },
                "required": ["id"],
            },
        }),
    ]
}

/// The capability of the legacy era.
pub(crate) fn capability() -> Value {
    json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } })
}

impl Job {
    fn status(&self) -> &'static str {
        match (self.end, &self.question) {
            (Some(End::Done), _) => "completed",
            (Some(End::Cancelled), _) => "cancelled",
            (None, Some(_)) => "input_required",
            (None, None) => "working",
        }
    }

    fn summary(&self, id: &str) -> Value {
        let mut task = json!({
            "taskId": id,
            "status": self.status(),
            "createdAt": "2026-01-01T00:00:00Z",
            "lastUpdatedAt": "2026-01-01T00:00:00Z",
        });
        let (lifetime, pause) = match self.era {
            Era::Legacy => ("ttl", "pollInterval"),
            Era::Modern => ("ttlMs", "pollIntervalMs"),
        };
        task[lifetime] = json!(600_000);
        task[pause] = json!(10);
        task
    }

    /// The task with the additional members of the modern era.
    fn details(&self, id: &str) -> Value {
        let mut task = self.summary(id);
        match (self.era, self.status(), &self.question) {
            (Era::Modern, "completed", _) => {
                task["result"] = plain(&self.text);
                task["result"]["resultType"] = "complete".into();
            }
            (Era::Modern, "input_required", Some(question)) => {
                task["inputRequests"] =
                    json!({ "q": { "method": "elicitation/create", "params": form(question) } });
            }
            (_, _, _) => {}
        }
        task
    }
}

fn form(question: &str) -> Value {
    json!({ "mode": "form", "message": question, "requestedSchema": { "type": "object", "properties": {} } })
}

/// Starts a job.
pub(crate) fn begin(state: &ServerState, request: &Request) -> Result<Value, RpcError> {
    let arguments = request.param("arguments");
    match request.era {
        Era::Legacy if !request.param("task").is_object() => {
            return Err(RpcError::new(METHOD_NOT_FOUND, "the tool `job` can only be called as a task"));
        }
        Era::Modern if !request.client_capabilities()["extensions"][TASKS].is_object() => {
            return Err(missing_capability());
        }
        Era::Legacy | Era::Modern => {}
    }
    let job = Job {
        era: request.era,
        peer: Arc::downgrade(&request.peer),
        text: arguments["text"].as_str().unwrap_or("done").to_owned(),
        question: arguments["question"].as_str().map(str::to_owned),
        looks: arguments["looks"].as_u64(),
        end: None,
    };
    let mut jobs = lock(&state.background_tasks.jobs);
    let id = format!("job-{}", jobs.len() + 1);
    let task = job.summary(&id);
    jobs.insert(id, job);
    Ok(match request.era {
        Era::Legacy => json!({ "task": task }),
        Era::Modern => {
            let mut result = task;
            result["resultType"] = "task".into();
            result
        }
    })
}

fn missing_capability() -> RpcError {
    let data = json!({ "requiredCapabilities": { "extensions": { TASKS: {} } } });
    RpcError::new(MISSING_CLIENT_CAPABILITY, "this needs a client with support for tasks").with_data(data)
}

/// Answers a request about a job.
pub(crate) async fn answer(state: &ServerState, request: &Request) -> Result<Value, RpcError> {
    let method = request.call.method.as_str();
    if method == "tasks/list" {
        let jobs = lock(&state.background_tasks.jobs);
        return Ok(json!({ "tasks": jobs.iter().map(|(id, job)| job.summary(id)).collect::<Vec<_>>() }));
    }
    let id = request.param("taskId").as_str().ok_or_else(|| RpcError::invalid("`taskId` must be a text"))?;
    match method {
        "tasks/result" => return result(state, request, id).await,
        "tasks/cancel" => state.background_tasks.end(state, id, End::Cancelled).await?,
        "tasks/update" => {
            let answered = request.param("inputResponses")["q"].clone();
            state.background_tasks.record_answer(id, &answered)?;
            state.background_tasks.end(state, id, End::Done).await?;
        }
        _ => {
            let looked_at = {
                let mut jobs = lock(&state.background_tasks.jobs);
                let job = jobs.get_mut(id).ok_or_else(unknown_task)?;
                job.looks = job.looks.map(|looks| looks.saturating_sub(1));
                job.looks == Some(0) && job.end.is_none()
            };
            if looked_at {
                state.background_tasks.end(state, id, End::Done).await?;
            }
        }
    }
    match (request.era, method) {
        (Era::Modern, "tasks/cancel" | "tasks/update") => Ok(json!({})),
        (_, _) => Ok(lock(&state.background_tasks.jobs).get(id).ok_or_else(unknown_task)?.details(id)),
    }
}

fn unknown_task() -> RpcError {
    RpcError::invalid("there is no such task")
}

/// Waits for the end of a job and returns its result; asks the job's question meanwhile.
async fn result(state: &ServerState, request: &Request, id: &str) -> Result<Value, RpcError> {
    let mut ended = state.background_tasks.ended.subscribe();
    let related = json!({ RELATED: { "taskId": id } });
    loop {
        let (end, question, text) = {
            let jobs = lock(&state.background_tasks.jobs);
            let job = jobs.get(id).ok_or_else(unknown_task)?;
            (job.end, job.question.clone(), job.text.clone())
        };
        match (end, question) {
            (Some(End::Done), _) => {
                let mut result = plain(&text);
                result["_meta"] = related;
                return Ok(result);
            }
            (Some(End::Cancelled), _) => return Ok(failure("the job was cancelled")),
            (None, Some(question)) => {
                let mut form = form(&question);
                form["_meta"] = related.clone();
                let body = request.ask_client("elicitation/create", form).await.unwrap_or_default();
                state.background_tasks.record_answer(id, &body["result"])?;
                state.background_tasks.end(state, id, End::Done).await?;
            }
            (None, None) => {
                let _ = ended.changed().await;
            }
        }
    }
}

/// Requires that a page is visited first. In the legacy era the call is refused until then, or asks during the call.
pub(crate) async fn visit(state: &ServerState, request: &Request) -> Result<Value, RpcError> {
    let arguments = request.param("arguments");
    let page = required(arguments, "page", Value::as_str)?;
    let visited = {
        let mut pages = lock(&state.background_tasks.pages);
        let peer = Arc::downgrade(&request.peer);
        pages.entry(page.to_owned()).or_insert(Page { peer, visited: false }).visited
    };
    let answered = request.param("inputResponses")["page"]["action"] == "accept";
    if visited || answered {
        return Ok(plain(&format!("{page} was visited")));
    }
    let url = format!("https://example.com/{page}");
    let question = json!({ "mode": "url", "url": url, "message": "Please visit this page" });
    match request.era {
        Era::Legacy => {
            let mut question = question;
            question["elicitationId"] = page.into();
            if arguments["ask"] == true {
                let body = request.ask_client("elicitation/create", question).await.unwrap_or_default();
                return Ok(plain(body["result"]["action"].as_str().unwrap_or("no answer")));
            }
            let error = RpcError::new(URL_ELICITATION_REQUIRED, "a page has to be visited first");
            Err(error.with_data(json!({ "elicitations": [question] })))
        }
        Era::Modern => Ok(json!({
            "resultType": "input_required",
            "inputRequests": { "page": { "method": "elicitation/create", "params": question } },
        })),
    }
}

/// Ends a job, or marks a page as visited. Notifies the client of the job or page or, with `aloud`, the caller.
pub(crate) async fn finish(state: &ServerState, request: &Request) -> Result<Value, RpcError> {
    let arguments = request.param("arguments");
    let id = required(arguments, "id", Value::as_str)?;
    let caller = (arguments["aloud"] == true).then_some(request);
    let visitor = {
        let mut pages = lock(&state.background_tasks.pages);
        pages.get_mut(id).map(|page| {
            page.visited = true;
            page.peer.clone()
        })
    };
    let Some(visitor) = visitor else {
        state.background_tasks.end_and_notify(state, id, End::Done, caller).await?;
        return Ok(plain("finished"));
    };
    let params = json!({ "elicitationId": id });
    notify(visitor, caller, "notifications/elicitation/complete", params).await;
    Ok(plain("visited"))
}

/// Notifies a legacy peer or, if given, the caller on the stream of its request.
async fn notify(peer: Weak<Peer>, caller: Option<&Request>, method: &str, params: Value) {
    match (caller, peer.upgrade()) {
        (Some(request), _) => request.notify(method, params).await,
        (None, Some(peer)) if peer.version().is_some() => peer.send(rpc::notification(method, params)).await,
        (None, _) => {}
    }
}

impl BackgroundTasks {
    /// Stores the answer to a job's question.
    fn record_answer(&self, id: &str, answer: &Value) -> Result<(), RpcError> {
        let mut jobs = lock(&self.jobs);
        let job = jobs.get_mut(id).ok_or_else(unknown_task)?;
        job.text = format!("{}: {}", job.text, answer["action"].as_str().unwrap_or("no answer"));
        Ok(())
    }

    async fn end(&self, state: &ServerState, id: &str, end: End) -> Result<(), RpcError> {
        self.end_and_notify(state, id, end, None).await
    }

    async fn end_and_notify(
        &self,
        state: &ServerState,
        id: &str,
        end: End,
        caller: Option<&Request>,
    ) -> Result<(), RpcError> {
        let (task, era, peer) = {
            let mut jobs = lock(&self.jobs);
            let job = jobs.get_mut(id).ok_or_else(unknown_task)?;
            if job.end.is_some() {
                return Err(RpcError::invalid("the job has ended already"));
            }
            job.end = Some(end);
            (job.details(id), job.era, job.peer.clone())
        };
        self.ended.send_modify(|ended| *ended += 1);
        match era {
            Era::Legacy => notify(peer, caller, "notifications/tasks/status", task).await,
            Era::Modern => {
                // Fails only without receivers.
                let _ = state.changes.send(Change::Task(task));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_the_form_of_each_era() {
        let job =
            |era, end| Job { era, peer: Weak::new(), text: "x".to_owned(), question: None, looks: None, end };
        let legacy = job(Era::Legacy, None).details("job-1");
        assert_eq!((&legacy["status"], &legacy["ttl"]), (&"working".into(), &600_000.into()));
        let modern = job(Era::Modern, Some(End::Done)).details("job-1");
        assert_eq!((&modern["status"], &modern["ttlMs"]), (&"completed".into(), &600_000.into()));
        assert_eq!(modern["result"]["content"][0]["text"], "x");
    }
}

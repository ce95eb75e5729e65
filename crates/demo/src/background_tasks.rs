//! What goes on after the answer, for the showcase: jobs, which are tasks in the manner of the client's era, and pages that
//! a person has to visit. Either is over when the tool `finish` is told so; nothing here takes time by itself.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
};

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    peer::{Peer, Request, lock},
    rpc::{self, Era, METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY, RpcError},
    tools::{failure, plain, required},
    world::{Change, World},
};

/// Tasks, as an extension of the modern era.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";
const RELATED: &str = "io.modelcontextprotocol/related-task";
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// Everything that goes on. Ids are counted from one, as many servers do: those of two servers are alike.
#[derive(Debug, Default)]
pub(crate) struct Later {
    jobs: Mutex<BTreeMap<String, Job>>,
    pages: Mutex<BTreeMap<String, Page>>,
    ended: watch::Sender<u64>,
}

#[derive(Debug)]
struct Job {
    era: Era,
    /// Who is told what becomes of it.
    peer: Weak<Peer>,
    text: String,
    question: Option<String>,
    /// It ends when it was looked at this often; `None` if it waits to be finished.
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
            "description": "Works until it is finished, looked at often enough, or told what it asks.",
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
            "description": "Needs a person to visit a page first.",
            "inputSchema": {
                "type": "object",
                "properties": { "page": { "type": "string" }, "ask": { "type": "boolean" } },
                "required": ["page"],
            },
        }),
        json!({
            "name": "finish",
            "title": "Finish",
            "description": "Ends a job, or says that a page was visited.",
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

    /// With what the modern era says besides.
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

/// Begins a job.
pub(crate) fn begin(world: &World, request: &Request) -> Result<Value, RpcError> {
    let arguments = request.param("arguments");
    match request.era {
        Era::Legacy if !request.param("task").is_object() => {
            return Err(RpcError::new(METHOD_NOT_FOUND, "the tool `job` can only be called as a task"));
        }
        Era::Modern if !request.client_capabilities()["extensions"][TASKS].is_object() => {
            return Err(missing());
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
    let mut jobs = lock(&world.later.jobs);
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

fn missing() -> RpcError {
    let data = json!({ "requiredCapabilities": { "extensions": { TASKS: {} } } });
    RpcError::new(MISSING_CLIENT_CAPABILITY, "this needs a client that has tasks").with_data(data)
}

/// Answers a request about a job.
pub(crate) async fn answer(world: &World, request: &Request) -> Result<Value, RpcError> {
    let method = request.call.method.as_str();
    if method == "tasks/list" {
        let jobs = lock(&world.later.jobs);
        return Ok(json!({ "tasks": jobs.iter().map(|(id, job)| job.summary(id)).collect::<Vec<_>>() }));
    }
    let id = request.param("taskId").as_str().ok_or_else(|| RpcError::invalid("`taskId` must be a text"))?;
    match method {
        "tasks/result" => return result(world, request, id).await,
        "tasks/cancel" => world.later.end(world, id, End::Cancelled).await?,
        "tasks/update" => {
            let answered = request.param("inputResponses")["q"].clone();
            world.later.told(id, &answered)?;
            world.later.end(world, id, End::Done).await?;
        }
        _ => {
            let looked_at = {
                let mut jobs = lock(&world.later.jobs);
                let job = jobs.get_mut(id).ok_or_else(unknown)?;
                job.looks = job.looks.map(|looks| looks.saturating_sub(1));
                job.looks == Some(0) && job.end.is_none()
            };
            if looked_at {
                world.later.end(world, id, End::Done).await?;
            }
        }
    }
    match (request.era, method) {
        (Era::Modern, "tasks/cancel" | "tasks/update") => Ok(json!({})),
        (_, _) => Ok(lock(&world.later.jobs).get(id).ok_or_else(unknown)?.details(id)),
    }
}

fn unknown() -> RpcError {
    RpcError::invalid("there is no such task")
}

/// What came of a job, once it has come to an end; what it asks is asked on the way.
async fn result(world: &World, request: &Request, id: &str) -> Result<Value, RpcError> {
    let mut ended = world.later.ended.subscribe();
    let related = json!({ RELATED: { "taskId": id } });
    loop {
        let (end, question, text) = {
            let jobs = lock(&world.later.jobs);
            let job = jobs.get(id).ok_or_else(unknown)?;
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
                world.later.told(id, &body["result"])?;
                world.later.end(world, id, End::Done).await?;
            }
            (None, None) => {
                let _ = ended.changed().await;
            }
        }
    }
}

/// Needs a page to be visited first. A legacy server refuses until it was, or asks on the way.
pub(crate) async fn visit(world: &World, request: &Request) -> Result<Value, RpcError> {
    let arguments = request.param("arguments");
    let page = required(arguments, "page", Value::as_str)?;
    let visited = {
        let mut pages = lock(&world.later.pages);
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

/// Ends a job, or says that a page was visited. Whoever is concerned is told, or, if it is said `aloud`, whoever called this.
pub(crate) async fn finish(world: &World, request: &Request) -> Result<Value, RpcError> {
    let arguments = request.param("arguments");
    let id = required(arguments, "id", Value::as_str)?;
    let aloud = (arguments["aloud"] == true).then_some(request);
    let visitor = {
        let mut pages = lock(&world.later.pages);
        pages.get_mut(id).map(|page| {
            page.visited = true;
            page.peer.clone()
        })
    };
    let Some(visitor) = visitor else {
        world.later.end_aloud(world, id, End::Done, aloud).await?;
        return Ok(plain("finished"));
    };
    let params = json!({ "elicitationId": id });
    tell(visitor, aloud, "notifications/elicitation/complete", params).await;
    Ok(plain("visited"))
}

/// Tells a legacy peer, or whoever asked on the way to the answer.
async fn tell(peer: Weak<Peer>, aloud: Option<&Request>, method: &str, params: Value) {
    match (aloud, peer.upgrade()) {
        (Some(request), _) => request.notify(method, params).await,
        (None, Some(peer)) if peer.version().is_some() => peer.say(rpc::notification(method, params)).await,
        (None, _) => {}
    }
}

impl Later {
    /// The answer to what a job asked.
    fn told(&self, id: &str, answer: &Value) -> Result<(), RpcError> {
        let mut jobs = lock(&self.jobs);
        let job = jobs.get_mut(id).ok_or_else(unknown)?;
        job.text = format!("{}: {}", job.text, answer["action"].as_str().unwrap_or("no answer"));
        Ok(())
    }

    async fn end(&self, world: &World, id: &str, end: End) -> Result<(), RpcError> {
        self.end_aloud(world, id, end, None).await
    }

    async fn end_aloud(
        &self,
        world: &World,
        id: &str,
        end: End,
        aloud: Option<&Request>,
    ) -> Result<(), RpcError> {
        let (task, era, peer) = {
            let mut jobs = lock(&self.jobs);
            let job = jobs.get_mut(id).ok_or_else(unknown)?;
            if job.end.is_some() {
                return Err(RpcError::invalid("the job has ended already"));
            }
            job.end = Some(end);
            (job.details(id), job.era, job.peer.clone())
        };
        self.ended.send_modify(|ended| *ended += 1);
        match era {
            Era::Legacy => tell(peer, aloud, "notifications/tasks/status", task).await,
            Era::Modern => {
                // Nobody may be listening.
                let _ = world.changes.send(Change::Task(task));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_says_how_it_stands_in_the_words_of_each_era() {
        let job =
            |era, end| Job { era, peer: Weak::new(), text: "x".to_owned(), question: None, looks: None, end };
        let legacy = job(Era::Legacy, None).details("job-1");
        assert_eq!((&legacy["status"], &legacy["ttl"]), (&"working".into(), &600_000.into()));
        let modern = job(Era::Modern, Some(End::Done)).details("job-1");
        assert_eq!((&modern["status"], &modern["ttlMs"]), (&"completed".into(), &600_000.into()));
        assert_eq!(modern["result"]["content"][0]["text"], "x");
    }
}

//! State that all connections of one server share: the counter, the tools, the sessions, the active faults.

use std::{
    collections::VecDeque,
    fs::OpenOptions,
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    background_tasks::BackgroundTasks,
    catalog,
    http::Sessions,
    options::{Faults, Options, RefusalDuration},
    peer::lock,
    process,
    rpc::{self, META_SUBSCRIPTION},
};

/// Number of keys of `counter` calls that are kept for [`crate::RunningServer::counter_keys`].
const MAX_KEYS: usize = 65_536;

#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) options: Options,
    pub(crate) owner: ProcessOwner,
    pub(crate) sessions: Sessions,
    /// Cancelled when the server ends.
    pub(crate) shutdown: CancellationToken,
    /// All Tokio tasks that the server started.
    pub(crate) tasks: TaskTracker,
    pub(crate) changes: broadcast::Sender<Change>,
    pub(crate) flow: watch::Sender<Flow>,
    faults: Mutex<Active>,
    counter: Mutex<Counter>,
    calls: AtomicU64,
    initializes: AtomicU64,
    in_flight: watch::Sender<usize>,
    /// Number of tool calls among the requests in flight.
    calling: watch::Sender<usize>,
    tools: Mutex<Vec<Value>>,
    tools_added: AtomicU64,
    /// Work that continues after its answer.
    pub(crate) background_tasks: BackgroundTasks,
    secret: RandomState,
}

/// Owner of the process, which decides what a fatal fault ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessOwner {
    /// The server has its own process, which exits.
    Process,
    /// The server runs inside a test: only the connection or the pipe ends.
    Embedder,
}

/// Reading and writing on the server's sockets and its stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Open,
    /// Nothing is read; answers are still written.
    NotReading,
    /// Nothing is read and nothing is written, as if packets were dropped. On stdio the same as `NotReading`.
    BlackHole,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Tools,
    Resource(String),
    /// Status of a modern task.
    Task(Value),
}

impl Change {
    /// The notification of this change, within a modern subscription if there is one.
    pub(crate) fn notification(&self, subscription: Option<&Value>) -> Value {
        let (method, mut params) = match self {
            Self::Tools => ("notifications/tools/list_changed", json!({})),
            Self::Resource(uri) => ("notifications/resources/updated", json!({ "uri": uri })),
            Self::Task(task) => ("notifications/tasks", task.clone()),
        };
        if let Some(id) = subscription {
            params["_meta"] = json!({ META_SUBSCRIPTION: id });
        }
        rpc::notification(method, params)
    }
}

#[derive(Debug)]
struct Active {
    faults: Arc<Faults>,
    since: Instant,
    refused: u64,
}

#[derive(Debug, Default)]
struct Counter {
    value: u64,
    keys: VecDeque<String>,
}

impl ServerState {
    pub(crate) fn new(options: Options, owner: ProcessOwner) -> Arc<Self> {
        let counted = options.counter_file.as_deref().map_or(0, process::count_lines);
        Arc::new(Self {
            tools: Mutex::new(catalog::tools(&options)),
            faults: Mutex::new(Active {
                faults: Arc::new(options.faults.clone()),
                since: Instant::now(),
                refused: 0,
            }),
            options,
            owner,
            sessions: Sessions::default(),
            shutdown: CancellationToken::new(),
            tasks: TaskTracker::new(),
            changes: broadcast::Sender::new(64),
            flow: watch::Sender::new(Flow::Open),
            counter: Mutex::new(Counter { value: counted, keys: VecDeque::new() }),
            calls: AtomicU64::new(0),
            initializes: AtomicU64::new(0),
            in_flight: watch::Sender::new(0),
            calling: watch::Sender::new(0),
            tools_added: AtomicU64::new(0),
            background_tasks: BackgroundTasks::default(),
            secret: RandomState::new(),
        })
    }

    pub(crate) fn server_info(&self) -> Value {
        json!({ "name": self.options.name, "title": "gripfast sample server", "version": env!("CARGO_PKG_VERSION") })
    }

    pub(crate) fn faults(&self) -> Arc<Faults> {
        Arc::clone(&lock(&self.faults).faults)
    }

    /// Replaces the faults from the next request on. The duration of a refusal starts now.
    pub(crate) fn set_faults(&self, faults: Faults) {
        *lock(&self.faults) = Active { faults: Arc::new(faults), since: Instant::now(), refused: 0 };
    }

    /// The status with which the next request is refused, if any. Counts the request.
    pub(crate) fn refusal(&self) -> Option<u16> {
        let mut active = lock(&self.faults);
        let refusal = active.faults.refuse?;
        let refused = match refusal.lasts {
            RefusalDuration::Forever => true,
            RefusalDuration::For(time) => active.since.elapsed() < time,
            RefusalDuration::Requests(count) => active.refused < count,
        };
        active.refused += u64::from(refused);
        refused.then_some(refusal.status)
    }

    /// Adds to the counter, writes a line to the counter file, and returns the new value. The line is written before
    /// the answer is sent, so that a crash between the two is visible as a side effect without an answer.
    pub(crate) fn count(&self, by: u64, key: &str) -> io::Result<u64> {
        let mut counter = lock(&self.counter);
        counter.value = counter.value.saturating_add(by);
        if counter.keys.len() == MAX_KEYS {
            counter.keys.pop_front();
        }
        counter.keys.push_back(key.to_owned());
        if let Some(path) = &self.options.counter_file {
            let line = format!("{key} {} {}\n", counter.value, std::process::id());
            OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())?;
        }
        Ok(counter.value)
    }

    pub(crate) fn counter(&self) -> u64 {
        lock(&self.counter).value
    }

    pub(crate) fn counter_keys(&self) -> Vec<String> {
        lock(&self.counter).keys.iter().cloned().collect()
    }

    /// Counts a `tools/call` and returns its number, from 1.
    pub(crate) fn count_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn count_initialize(&self) {
        self.initializes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn initializes(&self) -> u64 {
        self.initializes.load(Ordering::Relaxed)
    }

    /// Counts a request as in flight until the guard is dropped.
    pub(crate) fn track_request(&self) -> Handling<'_> {
        Handling::begin(&self.in_flight)
    }

    /// Counts a tool call as in flight until the guard is dropped.
    pub(crate) fn track_call(&self) -> Handling<'_> {
        Handling::begin(&self.calling)
    }

    pub(crate) fn in_flight(&self) -> watch::Receiver<usize> {
        self.in_flight.subscribe()
    }

    pub(crate) fn calls_in_flight(&self) -> watch::Receiver<usize> {
        self.calling.subscribe()
    }

    pub(crate) fn tools(&self) -> Vec<Value> {
        lock(&self.tools).clone()
    }

    pub(crate) fn has_tool(&self, name: &str) -> bool {
        lock(&self.tools).iter().any(|tool| tool["name"] == name)
    }

    /// Adds a tool, with a generated name unless one is given, and returns its name. Does not notify clients: see
    /// `announce`.
    pub(crate) fn add_tool(&self, name: Option<&str>) -> String {
        let name = name.map_or_else(
            || format!("added_{}", self.tools_added.fetch_add(1, Ordering::Relaxed) + 1),
            str::to_owned,
        );
        let mut tools = lock(&self.tools);
        tools.retain(|tool| tool["name"] != name.as_str());
        tools.push(catalog::synthetic_tool(&name));
        name
    }

    /// Removes a tool. Returns whether there was one.
    pub(crate) fn remove_tool(&self, name: &str) -> bool {
        let mut tools = lock(&self.tools);
        let before = tools.len();
        tools.retain(|tool| tool["name"] != name);
        tools.len() < before
    }

    /// Replaces the description of a tool. Returns whether there is such a tool.
    pub(crate) fn change_tool(&self, name: &str, description: &str) -> bool {
        let mut tools = lock(&self.tools);
        let tool = tools.iter_mut().find(|tool| tool["name"] == name);
        tool.map(|tool| tool["description"] = json!(description)).is_some()
    }

    /// Notifies all subscribers: open `subscriptions/listen` requests and the pipe receive from `changes`, sessions are
    /// notified here, whether or not their stream is open at the moment.
    pub(crate) async fn announce(&self, change: Change) {
        for session in self.sessions.all() {
            session.peer.notify(&change).await;
        }
        // Fails only without receivers.
        drop(self.changes.send(change));
    }

    /// Changes the flow, for a time or until the next change.
    pub(crate) fn set_flow(self: &Arc<Self>, flow: Flow, time: Option<Duration>) {
        self.flow.send_replace(flow);
        if let Some(time) = time {
            let state = Arc::clone(self);
            self.tasks.spawn(async move {
                let reopen = async {
                    tokio::time::sleep(time).await;
                    state.flow.send_replace(Flow::Open);
                };
                state.shutdown.run_until_cancelled(reopen).await;
            });
        }
    }

    /// An unguessable id: two hashes with keys from the system's randomness.
    pub(crate) fn random_id(&self) -> String {
        let fresh = RandomState::new();
        format!("{:016x}{:016x}", fresh.hash_one("session"), self.secret.hash_one(fresh.hash_one("salt")))
    }

    /// A tag for a text that only this instance of the server can have created.
    pub(crate) fn tag(&self, text: &str) -> String {
        format!("st-{:016x}", self.secret.hash_one(text))
    }
}

pub(crate) struct Handling<'a>(&'a watch::Sender<usize>);

impl<'a> Handling<'a> {
    fn begin(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Handling<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

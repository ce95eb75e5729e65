//! What all connections of one server share: the counter, the tools, the sessions, the active faults.

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
    catalog,
    http::Sessions,
    later::Later,
    options::{Faults, Lasts, Options},
    peer::lock,
    process,
    rpc::{self, META_SUBSCRIPTION},
};

/// Keys of `counter` calls that are remembered for [`crate::RunningServer::counter_keys`].
const KEYS_KEPT: usize = 65_536;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) owner: Owner,
    pub(crate) sessions: Sessions,
    /// Ends with the server.
    pub(crate) life: CancellationToken,
    /// Every task that the server started.
    pub(crate) tasks: TaskTracker,
    pub(crate) changes: broadcast::Sender<Change>,
    pub(crate) flow: watch::Sender<Flow>,
    faults: Mutex<Active>,
    counter: Mutex<Counter>,
    calls: AtomicU64,
    initializes: AtomicU64,
    in_flight: watch::Sender<usize>,
    /// Of those in flight, the calls of tools.
    calling: watch::Sender<usize>,
    tools: Mutex<Vec<Value>>,
    tools_added: AtomicU64,
    /// What goes on after its answer.
    pub(crate) later: Later,
    secret: RandomState,
}

/// Who dies when the server is told to die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The process is the server's own.
    Process,
    /// The process is somebody's test: only the connection or the pipe ends.
    Embedder,
}

/// What moves on the server's sockets, and on its stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Open,
    /// Nothing is read; answers still go out.
    NotReading,
    /// Nothing is read and nothing is written, as if packets were dropped. On stdio the same as `NotReading`.
    BlackHole,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Tools,
    Resource(String),
    /// What became of a task of the modern era.
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

impl World {
    pub(crate) fn new(options: Options, owner: Owner) -> Arc<Self> {
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
            life: CancellationToken::new(),
            tasks: TaskTracker::new(),
            changes: broadcast::Sender::new(64),
            flow: watch::Sender::new(Flow::Open),
            counter: Mutex::new(Counter { value: counted, keys: VecDeque::new() }),
            calls: AtomicU64::new(0),
            initializes: AtomicU64::new(0),
            in_flight: watch::Sender::new(0),
            calling: watch::Sender::new(0),
            tools_added: AtomicU64::new(0),
            later: Later::default(),
            secret: RandomState::new(),
        })
    }

    pub(crate) fn server_info(&self) -> Value {
        json!({ "name": self.options.name, "title": "gripfast sample server", "version": env!("CARGO_PKG_VERSION") })
    }

    pub(crate) fn faults(&self) -> Arc<Faults> {
        Arc::clone(&lock(&self.faults).faults)
    }

    /// Takes effect with the next request; a refusal's time starts now.
    pub(crate) fn set_faults(&self, faults: Faults) {
        *lock(&self.faults) = Active { faults: Arc::new(faults), since: Instant::now(), refused: 0 };
    }

    /// The status with which the next request is to be refused, if it is. Counts it.
    pub(crate) fn refusal(&self) -> Option<u16> {
        let mut active = lock(&self.faults);
        let refusal = active.faults.refuse?;
        let refused = match refusal.lasts {
            Lasts::Ever => true,
            Lasts::For(time) => active.since.elapsed() < time,
            Lasts::Requests(count) => active.refused < count,
        };
        active.refused += u64::from(refused);
        refused.then_some(refusal.status)
    }

    /// Adds to the counter, writes it down, and gives the new value. The line is on disk before the answer is
    /// on the wire, so that a crash between the two is visible as a side effect without an answer.
    pub(crate) fn count(&self, by: u64, key: &str) -> io::Result<u64> {
        let mut counter = lock(&self.counter);
        counter.value = counter.value.saturating_add(by);
        if counter.keys.len() == KEYS_KEPT {
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

    /// Counts a `tools/call` and gives its number, from 1.
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
    pub(crate) fn handling(&self) -> Handling<'_> {
        Handling::begin(&self.in_flight)
    }

    /// Counts the call of a tool as under way until the guard is dropped.
    pub(crate) fn calling(&self) -> Handling<'_> {
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

    /// Adds a tool, under a fresh name unless one is given, and says which. Tells nobody: see `announce`.
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

    /// Says whether there was such a tool.
    pub(crate) fn remove_tool(&self, name: &str) -> bool {
        let mut tools = lock(&self.tools);
        let before = tools.len();
        tools.retain(|tool| tool["name"] != name);
        tools.len() < before
    }

    /// Rewrites the description of a tool. Says whether there was such a tool.
    pub(crate) fn change_tool(&self, name: &str, description: &str) -> bool {
        let mut tools = lock(&self.tools);
        let tool = tools.iter_mut().find(|tool| tool["name"] == name);
        tool.map(|tool| tool["description"] = json!(description)).is_some()
    }

    /// Tells everybody who wants to know: open `subscriptions/listen` requests and the pipe follow `changes`,
    /// sessions are told here, whether or not their stream is open at the moment.
    pub(crate) async fn announce(&self, change: Change) {
        for session in self.sessions.all() {
            session.peer.notify(&change).await;
        }
        // Fails only if nobody listens.
        drop(self.changes.send(change));
    }

    /// Changes what moves on the wire, for a while or until the next change.
    pub(crate) fn set_flow(self: &Arc<Self>, flow: Flow, time: Option<Duration>) {
        self.flow.send_replace(flow);
        if let Some(time) = time {
            let world = Arc::clone(self);
            self.tasks.spawn(async move {
                let reopen = async {
                    tokio::time::sleep(time).await;
                    world.flow.send_replace(Flow::Open);
                };
                world.life.run_until_cancelled(reopen).await;
            });
        }
    }

    /// An unguessable name: two hashes with keys from the system's randomness.
    pub(crate) fn random_id(&self) -> String {
        let fresh = RandomState::new();
        format!("{:016x}{:016x}", fresh.hash_one("session"), self.secret.hash_one(fresh.hash_one("salt")))
    }

    /// A tag that only this server, in this life, can have given for this text.
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

//! Steady load: several clients of both eras, each of which starts a call at a fixed interval whether or not the last
//! one was answered, alternating between read-only calls and calls with a side effect. Every call has its own token
//! and is recorded.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use crate::client::{Client, Reply};
use crate::gateway::START_TIMEOUT;
use crate::ledger::{Call, End, Kind};
use crate::lock;
use gripfast_measure::Era;
use gripfast_measure::{MeasureError, Result};

/// Rate and kind of the load.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Number of clients.
    pub clients: usize,
    /// Average interval between calls of one client.
    pub every: Duration,
    /// Time that the server works on a call.
    pub work: Duration,
    /// Deadline of a call.
    pub deadline: Duration,
}

/// Time after its deadline at which a call counts as hung, because the machine may be busy.
pub const GRACE: Duration = Duration::from_secs(3);
/// Retry interval of a client that cannot connect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(10);
/// Pause after a check that failed, and while a check has no answer.
const CHECK_INTERVALS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// Limit of concurrent checks.
const MAX_CHECKS: usize = 64;

/// Public names of the tools of one server.
#[derive(Debug, Clone)]
pub struct Tools {
    /// Read-only tool.
    pub echo: String,
    /// Read-only tool that takes a while.
    pub sleep: String,
    /// Tool with a side effect.
    pub counter: String,
    /// Tool that makes the server misbehave.
    pub misbehave: String,
}

impl Tools {
    /// Finds the tools among the names that a gateway lists. Gateways add a prefix; gripfast's is the server name.
    #[must_use]
    pub fn find_in(names: &[String], server: &str) -> Option<Self> {
        let find = |tool: &str| {
            let mut fitting = names.iter().filter(|name| name.ends_with(tool));
            fitting.clone().find(|name| name.contains(server)).or_else(|| fitting.next()).cloned()
        };
        Some(Self {
            echo: find("echo")?,
            sleep: find("sleep")?,
            counter: find("counter")?,
            misbehave: find("misbehave")?,
        })
    }

    /// Names in gripfast's scheme, for a server that was never listed.
    #[must_use]
    pub fn for_server(server: &str) -> Self {
        let name = |tool: &str| format!("{server}__{tool}");
        Self {
            echo: name("echo"),
            sleep: name("sleep"),
            counter: name("counter"),
            misbehave: name("misbehave"),
        }
    }
}

/// A running load. Dropping it ends it immediately.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<Arc<Client>>,
    generators: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    began: Instant,
    pace: Pace,
    tools: Tools,
    tag: String,
    running: watch::Sender<bool>,
    in_flight: TaskTracker,
    calls: Mutex<Vec<Call>>,
    serial: AtomicU64,
    repeated_handshakes: AtomicU64,
}

impl Load {
    /// Performs the handshakes and starts to call. `tag` is part of every token.
    ///
    /// # Errors
    /// The gateway refuses a handshake.
    pub async fn start(
        url: &str,
        eras: &[Era],
        tools: Tools,
        tag: &str,
        pace: Pace,
        seed: u64,
    ) -> Result<Self> {
        let clients: Result<Vec<Client>> =
            (0..pace.clients).map(|number| Client::new(url, eras[number % eras.len()])).collect();
        Self::start_with(clients?, tools, tag, pace, seed).await
    }

    /// Same as [`Self::start`], with clients that the caller has created. Each one calls at `pace`.
    ///
    /// # Errors
    /// The gateway refuses a handshake.
    pub async fn start_with(
        made: Vec<Client>,
        tools: Tools,
        tag: &str,
        pace: Pace,
        seed: u64,
    ) -> Result<Self> {
        let mut clients = Vec::new();
        for client in made {
            let met = tokio::time::timeout(START_TIMEOUT, client.initialize()).await;
            match met.map_err(|_| MeasureError::new("the gateway", &"no answer to the handshake"))? {
                Reply::Result(_) => clients.push(Arc::new(client)),
                other => {
                    return Err(MeasureError::new(
                        "the handshake with the gateway failed",
                        &format!("{other:?}"),
                    ));
                }
            }
        }
        let shared = Arc::new(Shared {
            began: Instant::now(),
            pace,
            tools,
            tag: tag.to_owned(),
            running: watch::Sender::new(true),
            in_flight: TaskTracker::new(),
            calls: Mutex::default(),
            serial: AtomicU64::new(0),
            repeated_handshakes: AtomicU64::new(0),
        });
        let mut pumps = JoinSet::new();
        for (number, client) in clients.iter().enumerate() {
            let dice = Rng(seed.wrapping_add(number as u64));
            pumps.spawn(generate_calls(Arc::clone(&shared), Arc::clone(client), dice));
        }
        Ok(Self { shared, clients, generators: pumps })
    }

    /// Offset from the start of the load, as recorded in its calls.
    #[must_use]
    pub fn elapsed_at(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.shared.began)
    }

    /// Tools that the load calls.
    #[must_use]
    pub fn tools(&self) -> &Tools {
        &self.shared.tools
    }

    /// Number of handshakes that were repeated because a session was gone.
    #[must_use]
    pub fn repeated_handshakes(&self) -> u64 {
        self.shared.repeated_handshakes.load(Ordering::Relaxed)
    }

    /// Stops starting calls and waits until none is in flight.
    pub async fn pause(&self) {
        self.shared.running.send_replace(false);
        self.shared.in_flight.close();
        self.shared.in_flight.wait().await;
        self.shared.in_flight.reopen();
    }

    /// Resumes after [`Self::pause`].
    pub fn resume(&self) {
        self.shared.running.send_replace(true);
    }

    /// Sends check calls until one that starts after this point is answered. Returns the time of the answer; `None`
    /// after `limit`.
    pub async fn wait_until_back(&self, limit: Duration) -> Option<Instant> {
        let began = Instant::now();
        let (tell, mut told) = mpsc::unbounded_channel();
        let looking = Arc::new(AtomicUsize::new(0));
        for client in self.clients.iter().cycle() {
            if looking.load(Ordering::Relaxed) < MAX_CHECKS {
                looking.fetch_add(1, Ordering::Relaxed);
                let (tell, looking) = (tell.clone(), Arc::clone(&looking));
                let look = Shared::run_call(
                    Arc::clone(&self.shared),
                    Arc::clone(client),
                    Kind::Read,
                    Duration::ZERO,
                );
                self.shared.in_flight.spawn(async move {
                    let answered = look.await == End::Answered;
                    looking.fetch_sub(1, Ordering::Relaxed);
                    // The receiver may have returned already.
                    let _ = tell.send(answered.then(Instant::now));
                });
            }
            match tokio::time::timeout(CHECK_INTERVALS.1, told.recv()).await {
                Ok(Some(Some(at))) => return Some(at),
                Ok(Some(None)) => tokio::time::sleep(CHECK_INTERVALS.0).await,
                Ok(None) | Err(_) => {}
            }
            if began.elapsed() > limit {
                return None;
            }
        }
        None
    }

    /// Sends check calls with every client, each until one is answered. Returns the time of the last answer; `None`
    /// after `limit`.
    pub async fn wait_until_all_back(&self, limit: Duration) -> Option<Instant> {
        let mut checks = JoinSet::new();
        for client in &self.clients {
            let (shared, client) = (Arc::clone(&self.shared), Arc::clone(client));
            checks.spawn(async move {
                let check =
                    || Shared::run_call(Arc::clone(&shared), Arc::clone(&client), Kind::Read, Duration::ZERO);
                while check().await != End::Answered {
                    tokio::time::sleep(CHECK_INTERVALS.0).await;
                }
            });
        }
        tokio::time::timeout(limit, async { while checks.join_next().await.is_some() {} }).await.ok()?;
        Some(Instant::now())
    }

    /// Starts this many calls of every client at the same moment.
    pub fn burst(&self, count: usize) {
        let work = self.shared.pace.work;
        let kinds = [Kind::SideEffect, Kind::Read];
        for (client, kind) in self
            .clients
            .iter()
            .flat_map(|client| kinds.iter().cycle().take(count).map(move |kind| (client, *kind)))
        {
            let call = Shared::run_call(Arc::clone(&self.shared), Arc::clone(client), kind, work);
            self.shared.in_flight.spawn(call);
        }
    }

    /// All clients.
    #[must_use]
    pub fn clients(&self) -> &[Arc<Client>] {
        &self.clients
    }

    /// One client of the load, for a request outside of it.
    #[must_use]
    pub fn client(&self) -> Option<Arc<Client>> {
        self.clients.first().cloned()
    }

    /// Stops the load and returns all recorded calls.
    pub async fn stop(mut self) -> Vec<Call> {
        self.pause().await;
        self.generators.shutdown().await;
        std::mem::take(&mut *lock(&self.shared.calls))
    }
}

/// Starts the calls of one client at its interval.
async fn generate_calls(shared: Arc<Shared>, client: Arc<Client>, mut dice: Rng) {
    let mut running = shared.running.subscribe();
    for kind in [Kind::Read, Kind::SideEffect].into_iter().cycle() {
        // Up to 20 % jitter, so that clients do not call in lockstep.
        let share = 0.8 + 0.4 * dice.next_f64();
        tokio::time::sleep(shared.pace.every.mul_f64(share)).await;
        if running.wait_for(|running| *running).await.is_err() {
            return;
        }
        let work = shared.pace.work;
        shared.in_flight.spawn(Shared::run_call(Arc::clone(&shared), Arc::clone(&client), kind, work));
    }
}

impl Shared {
    /// Executes and records one call.
    async fn run_call(shared: Arc<Self>, client: Arc<Client>, kind: Kind, work: Duration) -> End {
        let began = Instant::now();
        let token = format!("{}-{}", shared.tag, shared.serial.fetch_add(1, Ordering::Relaxed));
        let deadline = began + shared.pace.deadline;
        let ending = shared.send_until_answered(&client, kind, work, &token, deadline);
        let ending = tokio::time::timeout_at((deadline + GRACE).into(), ending).await;
        let (end, answer) = ending.unwrap_or((End::Hung, None));
        let call = Call {
            token,
            kind,
            began: began - shared.began,
            ended: shared.began.elapsed(),
            end: end.clone(),
            answer,
        };
        lock(&shared.calls).push(call);
        end
    }

    /// Sends the call like any client: retries if nothing was sent, and replaces a lost session. Returns its end, and
    /// the value in the answer to a call with a side effect.
    async fn send_until_answered(
        &self,
        client: &Client,
        kind: Kind,
        work: Duration,
        token: &str,
        deadline: Instant,
    ) -> (End, Option<String>) {
        let work = work.as_millis();
        let (tool, arguments, wanted) = match kind {
            Kind::Read if work > 0 => {
                (&self.tools.sleep, json!({ "ms": work }), Some(format!("slept {work} ms")))
            }
            Kind::Read => (&self.tools.echo, json!({ "text": token }), Some(token.to_owned())),
            Kind::SideEffect => (&self.tools.counter, json!({ "key": token, "ms": work }), None),
        };
        let end = loop {
            match client.call(tool, &arguments).await {
                Reply::Result(result) => {
                    let answer = result["content"][0]["text"].as_str().filter(|_| kind == Kind::SideEffect);
                    return (end_of_result(&result, wanted.as_deref()), answer.map(str::to_owned));
                }
                Reply::Error(text) => break end_of_error(text),
                Reply::Interrupted(text) => break End::ConnectionLost(text),
                Reply::ConnectFailed(text) if Instant::now() >= deadline => break End::ConnectionLost(text),
                Reply::ConnectFailed(_) => tokio::time::sleep(RECONNECT_INTERVAL).await,
                Reply::NoSession => {
                    self.repeated_handshakes.fetch_add(1, Ordering::Relaxed);
                    if let Reply::Error(text) = client.initialize().await {
                        break end_of_error(text);
                    }
                }
            }
        };
        (end, None)
    }
}

/// Evaluates a JSON-RPC error. Its data have the same words as the failure of a tool.
fn end_of_error(text: String) -> End {
    let error: Value = serde_json::from_str(&text).unwrap_or_default();
    let word = |key: &str| error["data"][key].as_str().map(str::to_owned);
    End::Failed { code: word("code"), outcome: word("outcome"), text }
}

/// Evaluates a tool result for a caller that expects this text.
fn end_of_result(result: &Value, wanted: Option<&str>) -> End {
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    if result["isError"] == true {
        let part = &result["_meta"]["gripfast/failure"];
        let word = |key: &str| part[key].as_str().map(str::to_owned);
        return End::Failed { code: word("code"), outcome: word("outcome"), text: text.to_owned() };
    }
    match wanted {
        Some(wanted) if wanted != text => End::WrongAnswer(format!("expected {wanted}, got {text}")),
        Some(_) | None => End::Answered,
    }
}

/// Deterministic pseudo-random numbers: the same seed gives the same schedule.
#[derive(Debug, Clone, Copy)]
pub struct Rng(pub u64);

impl Rng {
    /// Next number, at least 0 and less than 1.
    pub fn next_f64(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 40) as f64 / (1u64 << 24) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_found_under_any_prefix() {
        let names = |prefix: &str| {
            ["echo", "sleep", "counter", "misbehave"].map(|tool| format!("{prefix}{tool}")).to_vec()
        };
        assert_eq!(Tools::find_in(&names(""), "demo").unwrap().echo, "echo");
        let two = [names("other_"), names("demo.")].concat();
        assert_eq!(Tools::find_in(&two, "demo").unwrap().counter, "demo.counter");
        assert!(Tools::find_in(&[], "demo").is_none());
    }

    #[test]
    fn the_answer_to_another_call_is_noticed() {
        let result = json!({ "content": [{ "type": "text", "text": "b" }] });
        assert_eq!(end_of_result(&result, Some("b")), End::Answered);
        assert!(matches!(end_of_result(&result, Some("a")), End::WrongAnswer(_)));
    }

    #[test]
    fn random_numbers_are_deterministic_and_in_range() {
        let rolls = |seed| {
            let mut dice = Rng(seed);
            (0..100).map(|_| dice.next_f64()).collect::<Vec<_>>()
        };
        assert_eq!(rolls(7), rolls(7));
        assert!(rolls(7).iter().all(|roll| (0.0..1.0).contains(roll)));
        assert_ne!(rolls(7), rolls(8));
    }
}

//! A steady load: several clients of both eras, each starting a call every so often whether or not the last one was
//! answered, reading and counting by turns. Every call is known by a token of its own and written down.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use crate::client::{Client, Era, Reply};
use crate::gateway::LONG_ENOUGH;
use crate::ledger::{Call, End, Kind};
use crate::{Cannot, Result, lock};

/// How much is asked of the gateway.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How many clients.
    pub clients: usize,
    /// How often each starts a call, more or less.
    pub every: Duration,
    /// How long the server works on a call.
    pub work: Duration,
    /// How long a caller waits for its answer.
    pub deadline: Duration,
}

/// Past its deadline a call is not hung at once: the machine may be busy.
pub const GRACE: Duration = Duration::from_secs(3);
/// Somebody who cannot connect tries again.
const DIAL_AGAIN: Duration = Duration::from_millis(10);
/// After a look that was answered with an error, and while one is not answered at all.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// Looks that may be under way at a time.
const MOST_LOOKS: usize = 64;

/// The names under which the tools of one server are offered.
#[derive(Debug, Clone)]
pub struct Tools {
    /// Reads.
    pub echo: String,
    /// Reads, slowly.
    pub sleep: String,
    /// Has a side effect.
    pub counter: String,
    /// The one with the vices.
    pub misbehave: String,
}

impl Tools {
    /// Finds them among the names that a gateway lists. Gateways put something in front; ours the server's name.
    #[must_use]
    pub fn among(names: &[String], server: &str) -> Option<Self> {
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

    /// As our gateway would name them, for a server that was never listed.
    #[must_use]
    pub fn of(server: &str) -> Self {
        let name = |tool: &str| format!("{server}__{tool}");
        Self {
            echo: name("echo"),
            sleep: name("sleep"),
            counter: name("counter"),
            misbehave: name("misbehave"),
        }
    }
}

/// A load that runs. Dropping it ends it at once.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<Arc<Client>>,
    pumps: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    began: Instant,
    pace: Pace,
    tools: Tools,
    tag: String,
    running: watch::Sender<bool>,
    under_way: TaskTracker,
    calls: Mutex<Vec<Call>>,
    serial: AtomicU64,
    renewals: AtomicU64,
}

impl Load {
    /// Shakes hands and begins to call. `tag` goes into every token.
    ///
    /// # Errors
    /// The gateway cannot be greeted.
    pub async fn begin(
        url: &str,
        eras: &[Era],
        tools: Tools,
        tag: &str,
        pace: Pace,
        seed: u64,
    ) -> Result<Self> {
        let clients: Result<Vec<Client>> =
            (0..pace.clients).map(|number| Client::new(url, eras[number % eras.len()])).collect();
        Self::begin_with(clients?, tools, tag, pace, seed).await
    }

    /// As [`Self::begin`], with clients that the caller has made. Each one calls at `pace`.
    ///
    /// # Errors
    /// The gateway refuses a handshake.
    pub async fn begin_with(
        made: Vec<Client>,
        tools: Tools,
        tag: &str,
        pace: Pace,
        seed: u64,
    ) -> Result<Self> {
        let mut clients = Vec::new();
        for client in made {
            let met = tokio::time::timeout(LONG_ENOUGH, client.meet()).await;
            match met.map_err(|_| Cannot::because("the gateway", &"it does not answer a greeting"))? {
                Reply::Result(_) => clients.push(Arc::new(client)),
                other => return Err(Cannot::because("the gateway cannot be greeted", &format!("{other:?}"))),
            }
        }
        let shared = Arc::new(Shared {
            began: Instant::now(),
            pace,
            tools,
            tag: tag.to_owned(),
            running: watch::Sender::new(true),
            under_way: TaskTracker::new(),
            calls: Mutex::default(),
            serial: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
        });
        let mut pumps = JoinSet::new();
        for (number, client) in clients.iter().enumerate() {
            let dice = Dice(seed.wrapping_add(number as u64));
            pumps.spawn(pump(Arc::clone(&shared), Arc::clone(client), dice));
        }
        Ok(Self { shared, clients, pumps })
    }

    /// The time since the load began, as its calls know it.
    #[must_use]
    pub fn since_began(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.shared.began)
    }

    /// The tools that it calls.
    #[must_use]
    pub fn tools(&self) -> &Tools {
        &self.shared.tools
    }

    /// How often a client had to shake hands again because its session was gone.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        self.shared.renewals.load(Ordering::Relaxed)
    }

    /// Starts no more calls, and waits until none is under way.
    pub async fn pause(&self) {
        self.shared.running.send_replace(false);
        self.shared.under_way.close();
        self.shared.under_way.wait().await;
        self.shared.under_way.reopen();
    }

    /// Goes on after [`Self::pause`].
    pub fn resume(&self) {
        self.shared.running.send_replace(true);
    }

    /// Looks until a call that begins from now on is answered. Answers with the moment it was; `None` after `limit`.
    pub async fn until_back(&self, limit: Duration) -> Option<Instant> {
        let began = Instant::now();
        let (tell, mut told) = mpsc::unbounded_channel();
        let looking = Arc::new(AtomicUsize::new(0));
        for client in self.clients.iter().cycle() {
            if looking.load(Ordering::Relaxed) < MOST_LOOKS {
                looking.fetch_add(1, Ordering::Relaxed);
                let (tell, looking) = (tell.clone(), Arc::clone(&looking));
                let look = Shared::carry_out(
                    Arc::clone(&self.shared),
                    Arc::clone(client),
                    Kind::Reads,
                    Duration::ZERO,
                );
                self.shared.under_way.spawn(async move {
                    let answered = look.await == End::Answered;
                    looking.fetch_sub(1, Ordering::Relaxed);
                    // Whoever looked may have seen enough.
                    let _ = tell.send(answered.then(Instant::now));
                });
            }
            match tokio::time::timeout(LOOK_AGAIN.1, told.recv()).await {
                Ok(Some(Some(at))) => return Some(at),
                Ok(Some(None)) => tokio::time::sleep(LOOK_AGAIN.0).await,
                Ok(None) | Err(_) => {}
            }
            if began.elapsed() > limit {
                return None;
            }
        }
        None
    }

    /// One client of the load, for a request that is no part of it.
    #[must_use]
    pub fn client(&self) -> Option<Arc<Client>> {
        self.clients.first().cloned()
    }

    /// Ends, and hands over what became of every call.
    pub async fn end(mut self) -> Vec<Call> {
        self.pause().await;
        self.pumps.shutdown().await;
        std::mem::take(&mut *lock(&self.shared.calls))
    }
}

/// One client's calls, started by the clock.
async fn pump(shared: Arc<Shared>, client: Arc<Client>, mut dice: Dice) {
    let mut running = shared.running.subscribe();
    for kind in [Kind::Reads, Kind::Counts].into_iter().cycle() {
        // A fifth up or down, so that clients do not march in step.
        let share = 0.8 + 0.4 * dice.roll();
        tokio::time::sleep(shared.pace.every.mul_f64(share)).await;
        if running.wait_for(|running| *running).await.is_err() {
            return;
        }
        let work = shared.pace.work;
        shared.under_way.spawn(Shared::carry_out(Arc::clone(&shared), Arc::clone(&client), kind, work));
    }
}

impl Shared {
    /// One call from beginning to end, written down.
    async fn carry_out(shared: Arc<Self>, client: Arc<Client>, kind: Kind, work: Duration) -> End {
        let began = Instant::now();
        let token = format!("{}-{}", shared.tag, shared.serial.fetch_add(1, Ordering::Relaxed));
        let deadline = began + shared.pace.deadline;
        let ending = shared.asked(&client, kind, work, &token, deadline);
        let end = tokio::time::timeout_at((deadline + GRACE).into(), ending).await.unwrap_or(End::Hung);
        let call = Call {
            token,
            kind,
            began: began - shared.began,
            ended: shared.began.elapsed(),
            end: end.clone(),
        };
        lock(&shared.calls).push(call);
        end
    }

    /// As any client does: what could not even be sent is sent again, and a session that is gone is replaced.
    async fn asked(
        &self,
        client: &Client,
        kind: Kind,
        work: Duration,
        token: &str,
        deadline: Instant,
    ) -> End {
        let work = work.as_millis();
        let (tool, arguments, wanted) = match kind {
            Kind::Reads if work > 0 => {
                (&self.tools.sleep, json!({ "ms": work }), Some(format!("slept {work} ms")))
            }
            Kind::Reads => (&self.tools.echo, json!({ "text": token }), Some(token.to_owned())),
            Kind::Counts => (&self.tools.counter, json!({ "key": token, "ms": work }), None),
        };
        loop {
            match client.call(tool, &arguments).await {
                Reply::Result(result) => return heard(&result, wanted.as_deref()),
                Reply::Error(text) => return End::Failed { code: None, outcome: None, text },
                Reply::Broken(text) => return End::Cut(text),
                Reply::Unreached(text) if Instant::now() >= deadline => return End::Cut(text),
                Reply::Unreached(_) => tokio::time::sleep(DIAL_AGAIN).await,
                Reply::NoSession => {
                    self.renewals.fetch_add(1, Ordering::Relaxed);
                    if let Reply::Error(text) = client.meet().await {
                        return End::Failed { code: None, outcome: None, text };
                    }
                }
            }
        }
    }
}

/// What a tool's result means to a caller that wanted this text.
fn heard(result: &Value, wanted: Option<&str>) -> End {
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    if result["isError"] == true {
        let part = &result["_meta"]["gripfast/failure"];
        let word = |key: &str| part[key].as_str().map(str::to_owned);
        return End::Failed { code: word("code"), outcome: word("outcome"), text: text.to_owned() };
    }
    match wanted {
        Some(wanted) if wanted != text => End::Wrong(format!("wanted {wanted}, got {text}")),
        Some(_) | None => End::Answered,
    }
}

/// Numbers that only look random: the same seed gives the same run, as far as a run can be the same.
#[derive(Debug, Clone, Copy)]
pub struct Dice(pub u64);

impl Dice {
    /// At least 0 and less than 1.
    pub fn roll(&mut self) -> f64 {
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
    fn tools_are_found_under_whatever_prefix() {
        let names = |prefix: &str| {
            ["echo", "sleep", "counter", "misbehave"].map(|tool| format!("{prefix}{tool}")).to_vec()
        };
        assert_eq!(Tools::among(&names(""), "demo").unwrap().echo, "echo");
        let two = [names("other_"), names("demo.")].concat();
        assert_eq!(Tools::among(&two, "demo").unwrap().counter, "demo.counter");
        assert!(Tools::among(&[], "demo").is_none());
    }

    #[test]
    fn an_answer_to_somebody_else_is_noticed() {
        let result = json!({ "content": [{ "type": "text", "text": "b" }] });
        assert_eq!(heard(&result, Some("b")), End::Answered);
        assert!(matches!(heard(&result, Some("a")), End::Wrong(_)));
    }

    #[test]
    fn dice_fall_the_same_way_again_and_stay_in_range() {
        let rolls = |seed| {
            let mut dice = Dice(seed);
            (0..100).map(|_| dice.roll()).collect::<Vec<_>>()
        };
        assert_eq!(rolls(7), rolls(7));
        assert!(rolls(7).iter().all(|roll| (0.0..1.0).contains(roll)));
        assert_ne!(rolls(7), rolls(8));
    }
}

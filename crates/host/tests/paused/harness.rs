//! A server that exists only in memory and does as it is told, so that hours pass in microseconds.

use gripfast::config::{ServerSpec, Target, Template};
use gripfast::store::Store;
use gripfast::transport::{
    BoxFuture, Dialer, Inbox, Incoming, Link, LinkFacts, Listening, Outgoing, Reply, Route, Session,
    Surroundings, Trouble,
};
use gripfast::{Answer, CallError, Host, RawValue, SpawnOptions, State};
use gripfast_core::failure::{DialTrouble, During, Evidence, HttpAnswer, Observed};
use gripfast_core::supervise::upstream::{LinkKind, Manner};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What the server does with one `tools/call`.
#[derive(Clone)]
pub(crate) enum Act {
    /// Answers at once.
    Answer,
    /// Answers after a while.
    Slowly(Duration),
    /// Never answers.
    Hang,
    /// Answers with a result that says `isError`.
    ToolError,
    /// Answers with a JSON-RPC error.
    Reject(i64, &'static str),
    /// Refuses with an HTTP status before acting.
    Refuse(HttpAnswer),
    /// Acts, and the connection breaks before the answer.
    DoThenBreak,
    /// Answers with something that is not MCP.
    Nonsense,
    /// Reports progress at this pace, for ever.
    Progress(Duration),
    /// Reports progress at this pace, so many times, and is then never heard of again.
    ProgressThenHang(Duration, u32),
    /// Asks the caller something, and answers so long after its answer.
    AskThenWork(Duration),
    /// The same, after it has reported progress once.
    ReportAskThenWork(Duration),
    /// Asks the caller this many things at once, and answers without waiting for any answer.
    AskAtOnce(u64),
}

/// What is wrong with one of its lists.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ListFault {
    /// It is never answered.
    Hangs,
    /// HTTP 500.
    Fails,
    /// The next page is the same page.
    Circles,
    /// It is over the limit of a message.
    TooLarge,
    /// The process dies.
    Kills,
}

/// One in-memory server, from outside.
#[derive(Clone)]
pub(crate) struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<Life>,
    /// Changes when the present link is cut.
    cut: watch::Sender<u64>,
    /// Changes when something is sent to the server.
    answered: watch::Sender<u64>,
    /// Changes when all streams of the modern era are ended.
    ended: watch::Sender<u64>,
}

struct Life {
    kind: LinkKind,
    route: Route,
    /// What a dial meets; `None` is an open door.
    dial: Option<Observed>,
    dials: Vec<Instant>,
    handshake_hangs: bool,
    /// Leaves `server/discover` unanswered.
    ignores_discover: bool,
    knows_ping: bool,
    answers_probes: bool,
    /// How long it takes to answer one.
    answers_probes_within: Duration,
    takes_answers: bool,
    takes_levels: bool,
    /// Whether it gives out ids of sessions, and wants to see them.
    has_sessions: bool,
    /// Speaks the modern era, and only that.
    modern: bool,
    /// Turns the numbers of subscriptions into texts.
    numbers_are_texts: bool,
    /// What it declines to tell of; anything else of a resource is followed.
    declined: Vec<&'static str>,
    /// The errors that the next requests of its own host get, in place of an answer.
    refusals: VecDeque<HttpAnswer>,
    session: u64,
    tools: Vec<Value>,
    /// What its instructions, its prompt `ask` and its resource template `demo://{x}` say; without it, it has none.
    texts: Option<String>,
    /// How long it takes to list them; `None` if it cannot.
    lists_within: Option<Duration>,
    /// What is wrong with its lists, by their methods.
    list_faults: HashMap<&'static str, ListFault>,
    /// For how long it says that they are good.
    lists_good_for: Option<Duration>,
    /// The answer to `resources/read`.
    read: Value,
    acts: VecDeque<Act>,
    otherwise: Act,
    requests: Vec<String>,
    params: Vec<(String, Value)>,
    /// The resources and tasks that each open stream of the modern era tells of, by the id of its request.
    streams: BTreeMap<u64, Vec<String>>,
    /// How often the last of them was closed.
    gaps: u32,
    executed: HashMap<String, u32>,
    cancelled: u32,
    in_flight: u32,
    most_in_flight: u32,
    /// What it has written to stderr when it ends.
    last_words: Option<String>,
    resident: Option<u64>,
    /// Every link that was ever opened, by its number.
    links: Vec<Inbox>,
    closed: Vec<usize>,
    ends_within: Duration,
    /// On which link a call was last carried out.
    served: HashMap<String, usize>,
    /// What was sent to it without being a request, and on which link.
    sent: Vec<(usize, Value)>,
}

impl Server {
    pub(crate) fn new(kind: LinkKind) -> Self {
        let life = Life {
            kind,
            route: Route::Custom,
            dial: None,
            dials: Vec::new(),
            handshake_hangs: false,
            ignores_discover: false,
            knows_ping: true,
            answers_probes: true,
            answers_probes_within: Duration::ZERO,
            takes_answers: true,
            takes_levels: true,
            has_sessions: true,
            modern: false,
            numbers_are_texts: false,
            declined: Vec::new(),
            refusals: VecDeque::new(),
            session: 1,
            tools: vec![tool("act", json!({})), tool("read", json!({ "readOnlyHint": true }))],
            texts: None,
            lists_within: Some(Duration::ZERO),
            list_faults: HashMap::new(),
            lists_good_for: None,
            read: json!({ "contents": [] }),
            acts: VecDeque::new(),
            otherwise: Act::Answer,
            requests: Vec::new(),
            params: Vec::new(),
            streams: BTreeMap::new(),
            gaps: 0,
            executed: HashMap::new(),
            cancelled: 0,
            in_flight: 0,
            most_in_flight: 0,
            last_words: None,
            resident: None,
            links: Vec::new(),
            closed: Vec::new(),
            ends_within: Duration::ZERO,
            served: HashMap::new(),
            sent: Vec::new(),
        };
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(life),
                cut: watch::Sender::new(0),
                answered: watch::Sender::new(0),
                ended: watch::Sender::new(0),
            }),
        }
    }

    fn life<T>(&self, act: impl FnOnce(&mut Life) -> T) -> T {
        act(&mut self.inner.state.lock().unwrap())
    }

    /// Passes for a link of another kind.
    pub(crate) fn on(self, route: Route) -> Self {
        self.life(|life| life.route = route);
        self
    }

    /// Speaks the modern era.
    pub(crate) fn modern(self) -> Self {
        self.life(|life| life.modern = true);
        self
    }

    /// Turns the numbers of subscriptions into texts.
    pub(crate) fn with_numbers_as_texts(self) -> Self {
        self.life(|life| life.numbers_are_texts = true);
        self
    }

    /// Knows nothing of sessions.
    pub(crate) fn without_sessions(self) -> Self {
        self.life(|life| life.has_sessions = false);
        self
    }

    /// Does not answer whoever tells it a log level.
    pub(crate) fn ignore_levels(&self) {
        self.life(|life| life.takes_levels = false);
    }

    /// Declines to tell of a resource from now on.
    pub(crate) fn decline(&self, uri: &'static str) {
        self.life(|life| life.declined.push(uri));
    }

    /// Refuses the next subscriptions with these.
    pub(crate) fn refuse_next(&self, answers: impl IntoIterator<Item = HttpAnswer>) {
        self.life(|life| life.refusals.extend(answers));
    }

    /// Tells of a changed resource, unasked.
    pub(crate) async fn update(&self, uri: &str) {
        let params = json!({ "uri": uri, "of the future": 1.0 });
        self.say(json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params }))
            .await;
    }

    /// Ends every stream of the modern era, as a proxy would.
    pub(crate) fn end_streams(&self) {
        self.inner.ended.send_modify(|ended| *ended += 1);
    }

    /// What each open stream of the modern era tells of.
    pub(crate) fn streams(&self) -> Vec<Vec<String>> {
        self.life(|life| life.streams.values().cloned().collect())
    }

    /// How often there was no stream of the modern era any more.
    pub(crate) fn gaps(&self) -> u32 {
        self.life(|life| life.gaps)
    }

    /// The parameters of every request for this method.
    pub(crate) fn asked(&self, method: &str) -> Vec<Value> {
        self.life(|life| {
            let asked = life.params.iter().filter(|(seen, _)| seen == method);
            asked.map(|(_, params)| params.clone()).collect()
        })
    }

    /// The server is gone: its link breaks and nobody opens.
    pub(crate) async fn go_away(&self) {
        self.life(|life| life.dial = Some(refused()));
        self.break_link().await;
    }

    pub(crate) fn come_back(&self) {
        self.life(|life| life.dial = None);
    }

    pub(crate) fn shut(&self, observed: Observed) {
        self.life(|life| life.dial = Some(observed));
    }

    fn ended(&self) -> Observed {
        Observed::Exited {
            code: None,
            signal: Some(9),
            last_words: self.life(|life| life.last_words.clone()),
        }
    }

    /// Writes this to stderr.
    pub(crate) fn write_to_stderr(&self, words: &str) {
        self.life(|life| life.last_words = Some(words.to_owned()));
    }

    /// Its links break; the server is there at once again.
    pub(crate) async fn break_link(&self) {
        let open = self.open_links();
        let inboxes: Vec<Inbox> =
            self.life(|life| open.iter().map(|link| life.links[*link].clone()).collect());
        self.inner.cut.send_modify(|cut| *cut += 1);
        for inbox in inboxes {
            let ended = self.ended();
            inbox.put(Incoming::Lost(Evidence::sent(During::Call, ended))).await;
        }
    }

    /// One of its links is gone, and says so.
    pub(crate) async fn lose(&self, link: usize) {
        let inbox = self.life(|life| life.links[link].clone());
        let ended = self.ended();
        inbox.put(Incoming::Lost(Evidence::sent(During::Call, ended))).await;
    }

    pub(crate) fn forget_session(&self) {
        self.life(|life| life.session += 1);
    }

    pub(crate) fn next_acts(&self, acts: impl IntoIterator<Item = Act>) {
        self.life(|life| life.acts.extend(acts));
    }

    pub(crate) fn forget_acts(&self) {
        self.life(|life| life.acts.clear());
    }

    pub(crate) fn always(&self, act: Act) {
        self.life(|life| life.otherwise = act);
    }

    pub(crate) fn hang_in_handshake(&self) {
        self.life(|life| life.handshake_hangs = true);
    }

    /// A legacy server that leaves unanswered what it does not know.
    pub(crate) fn ignore_discover(&self) {
        self.life(|life| life.ignores_discover = true);
    }

    pub(crate) fn stop_answering_probes(&self) {
        self.life(|life| life.answers_probes = false);
    }

    pub(crate) fn answer_probes_within(&self, within: Duration) {
        self.life(|life| life.answers_probes_within = within);
    }

    pub(crate) fn answer_probes(&self) {
        self.life(|life| life.answers_probes = true);
    }

    /// What is sent to it is not taken any more, and whoever sends waits.
    pub(crate) fn stop_taking_answers(&self) {
        self.life(|life| life.takes_answers = false);
    }

    /// How many answers were begun to be sent to it.
    pub(crate) fn answers_begun(&self) -> u64 {
        *self.inner.answered.borrow()
    }

    pub(crate) fn without_ping(&self) {
        self.life(|life| life.knows_ping = false);
    }

    pub(crate) fn offer(&self, names: &[&str]) {
        self.life(|life| life.tools = names.iter().map(|name| tool(name, json!({}))).collect());
    }

    /// Answers every `resources/read` with this.
    pub(crate) fn has_to_read(&self, result: Value) {
        self.life(|life| life.read = result);
    }

    /// Offers these tools, whole.
    pub(crate) fn offer_tools(&self, tools: Vec<Value>) {
        self.life(|life| life.tools = tools);
    }

    /// Has instructions, a prompt and a resource template that say this.
    pub(crate) fn offer_texts(&self, text: &str) {
        self.life(|life| life.texts = Some(text.to_owned()));
    }

    /// It holds this much memory.
    /// How long it takes to list its tools from now on; `None` if it cannot.
    pub(crate) fn list_within(&self, within: Option<Duration>) {
        self.life(|life| life.lists_within = within);
    }

    /// What is wrong with one of its lists from now on, if anything is.
    pub(crate) fn break_list(&self, method: &'static str, fault: Option<ListFault>) {
        self.life(|life| match fault {
            Some(fault) => drop(life.list_faults.insert(method, fault)),
            None => drop(life.list_faults.remove(method)),
        });
    }

    /// For how long it says that its lists are good.
    pub(crate) fn lists_are_good_for(&self, time: Duration) {
        self.life(|life| life.lists_good_for = Some(time));
    }

    pub(crate) fn hold_memory(&self, bytes: u64) {
        self.life(|life| life.resident = Some(bytes));
    }

    pub(crate) async fn say(&self, message: Value) {
        let latest = self.life(|life| life.links.len() - 1);
        self.say_on(latest, message).await;
    }

    /// A link that is closed takes this long to end.
    pub(crate) fn end_slowly(&self, within: Duration) {
        self.life(|life| life.ends_within = within);
    }

    /// Says something on one of its links.
    pub(crate) async fn say_on(&self, link: usize, message: Value) {
        let inbox = self.life(|life| life.links[link].clone());
        inbox.put(Incoming::Message(message.to_string().into_bytes().into())).await;
    }

    /// The link on which the call with this key was last carried out.
    pub(crate) fn served_on(&self, key: &str) -> usize {
        self.life(|life| life.served[key])
    }

    /// The links that are open.
    pub(crate) fn open_links(&self) -> Vec<usize> {
        self.life(|life| (0..life.links.len()).filter(|link| !life.closed.contains(link)).collect())
    }

    /// The answers to its question with this id, and the links they came on.
    pub(crate) fn answers_to(&self, id: u64) -> Vec<(usize, Value)> {
        self.life(|life| life.sent.iter().filter(|(_, message)| message["id"] == id).cloned().collect())
    }

    /// The links on which it was told this without being asked for an answer.
    pub(crate) fn told(&self, method: &str) -> Vec<usize> {
        let told = |life: &mut Life| {
            let such = life.sent.iter().filter(|(_, message)| message["method"] == method);
            such.map(|(link, _)| *link).collect()
        };
        self.life(told)
    }

    pub(crate) fn dials(&self) -> usize {
        self.life(|life| life.dials.len())
    }

    pub(crate) fn dial_times(&self) -> Vec<Instant> {
        self.life(|life| life.dials.clone())
    }

    /// How often a method was received.
    pub(crate) fn received(&self, method: &str) -> usize {
        self.life(|life| life.requests.iter().filter(|seen| *seen == method).count())
    }

    /// How often the call with this key was carried out.
    pub(crate) fn executed(&self, key: &str) -> u32 {
        self.life(|life| life.executed.get(key).copied().unwrap_or(0))
    }

    pub(crate) fn cancelled(&self) -> u32 {
        self.life(|life| life.cancelled)
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.life(|life| life.in_flight)
    }

    pub(crate) fn most_in_flight(&self) -> u32 {
        self.life(|life| life.most_in_flight)
    }
}

pub(crate) fn refused() -> Observed {
    Observed::Dial { trouble: DialTrouble::Refused, text: "connection refused".to_owned() }
}

fn tool(name: &str, annotations: Value) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": annotations })
}

impl Dialer for Server {
    fn kind(&self) -> LinkKind {
        self.life(|life| life.kind)
    }

    fn routes(&self) -> Vec<Route> {
        vec![self.life(|life| life.route)]
    }

    fn open(
        &self,
        _route: Route,
        surroundings: Surroundings,
    ) -> BoxFuture<'_, Result<Arc<dyn Link>, Evidence>> {
        let opened = self.life(|life| {
            life.dials.push(Instant::now());
            match &life.dial {
                Some(observed) => Err(Evidence::unsent(During::Handshake, observed.clone())),
                None => {
                    life.links.push(surroundings.inbox);
                    Ok(life.links.len() - 1)
                }
            }
        });
        let mut cut = self.inner.cut.subscribe();
        let born = *cut.borrow_and_update();
        let server = self.clone();
        Box::pin(async move {
            let link: Arc<dyn Link> = Arc::new(MemoryLink { server, number: opened?, cut, born });
            Ok(link)
        })
    }
}

struct MemoryLink {
    server: Server,
    number: usize,
    cut: watch::Receiver<u64>,
    born: u64,
}

impl Link for MemoryLink {
    fn request<'a>(
        &'a self,
        session: &'a Session,
        request: Outgoing,
    ) -> BoxFuture<'a, Result<Reply, Box<Trouble>>> {
        Box::pin(async move {
            let mut cut = self.cut.clone();
            let during = request.during;
            if *cut.borrow() != self.born {
                return Err(
                    Evidence::unsent(during, Observed::Closed("the link is broken".to_owned())).into()
                );
            }
            request.sent.set();
            let mut watch = Unanswered { server: &self.server, due: request.method == "tools/call" };
            let answer = tokio::select! {
                answer = self.server.serve(self.number, session, &request) => answer,
                _ = cut.wait_for(|cut| *cut != self.born) => {
                    let ended = self.server.ended();
                    Err(Evidence::sent(during, ended).into())
                }
            };
            watch.due = false;
            answer
        })
    }

    fn send<'a>(
        &'a self,
        _session: &'a Session,
        message: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), Box<Trouble>>> {
        let message = serde_json::from_slice(&message).unwrap();
        self.server.life(|life| life.sent.push((self.number, message)));
        self.server.inner.answered.send_modify(|answered| *answered += 1);
        let taken = self.server.life(|life| life.takes_answers);
        Box::pin(async move { if taken { Ok(()) } else { std::future::pending().await } })
    }

    fn listen(self: Arc<Self>, _session: Arc<Session>) -> Option<Listening> {
        None
    }

    fn close<'a>(&'a self, _session: Option<&'a Session>, _manner: Manner) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            tokio::time::sleep(self.server.life(|life| life.ends_within)).await;
            self.server.life(|life| life.closed.push(self.number));
        })
    }

    fn facts(&self) -> LinkFacts {
        LinkFacts::default()
    }

    fn resident(&self) -> Option<u64> {
        self.server.life(|life| life.resident)
    }
}

/// A request that is dropped before its answer is a cancelled one.
struct Unanswered<'a> {
    server: &'a Server,
    due: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.due {
            self.server.life(|life| life.cancelled += 1);
        }
    }
}

struct Working<'a>(&'a Server);

impl<'a> Working<'a> {
    fn on(server: &'a Server) -> Self {
        server.life(|life| {
            life.in_flight += 1;
            life.most_in_flight = life.most_in_flight.max(life.in_flight);
        });
        Self(server)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.life(|life| life.in_flight -= 1);
    }
}

impl Server {
    async fn serve(&self, link: usize, session: &Session, request: &Outgoing) -> Result<Reply, Box<Trouble>> {
        let message: Value = serde_json::from_slice(&request.message).unwrap();
        let id = request.id;
        let known_session = self.life(|life| {
            life.requests.push(request.method.clone());
            life.params.push((request.method.clone(), message["params"].clone()));
            life.session.to_string()
        });
        let opening = matches!(request.method.as_str(), "initialize" | "server/discover");
        let modern = self.life(|life| life.modern);
        let has_sessions = self.life(|life| life.has_sessions);
        if !opening && !modern && has_sessions && session.id.as_deref() != Some(&known_session) {
            let answer = HttpAnswer { status: 404, had_session: true, ..HttpAnswer::default() };
            return Err(Evidence::sent(request.during, Observed::Http(answer)).into());
        }
        let is_probe = request.during == During::Probe;
        if is_probe && !self.life(|life| life.answers_probes) {
            std::future::pending::<()>().await;
        }
        let pause = self.life(|life| life.answers_probes_within);
        if is_probe && !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let fault = self.life(|life| life.list_faults.get(request.method.as_str()).copied());
        if let Some(fault) = fault {
            return self.broken_list(id, request, fault).await;
        }
        match request.method.as_str() {
            "server/discover" if self.life(|life| life.ignores_discover) => std::future::pending().await,
            "server/discover" if modern => Ok(result(
                id,
                json!({ "supportedVersions": ["2026-07-28"], "capabilities": offers(), "resultType": "complete" }),
            )),
            "server/discover" => Ok(error(id, -32601, "Method not found")),
            "initialize" if modern => Ok(error(id, -32022, "Unsupported protocol version")),
            "initialize" => {
                if self.life(|life| life.handshake_hangs) {
                    std::future::pending::<()>().await;
                }
                let mut initialized = json!({ "protocolVersion": "2025-11-25", "capabilities": offers(),
                    "serverInfo": { "name": "memory", "version": "1" } });
                if let Some(text) = self.life(|life| life.texts.clone()) {
                    initialized["instructions"] = text.into();
                    initialized["capabilities"]["prompts"] = json!({});
                }
                let mut reply = result(id, initialized);
                reply.session_id = has_sessions.then_some(known_session);
                Ok(reply)
            }
            "ping" if !self.life(|life| life.knows_ping) => Ok(error(id, -32601, "Method not found")),
            "ping" => Ok(result(id, json!({}))),
            "tools/list" => match self.life(|life| life.lists_within) {
                Some(within) => {
                    if !within.is_zero() {
                        tokio::time::sleep(within).await;
                    }
                    let mut listed = json!({ "tools": self.life(|life| life.tools.clone()) });
                    if let Some(good_for) = self.life(|life| life.lists_good_for) {
                        listed["ttlMs"] = (good_for.as_millis() as u64).into();
                    }
                    Ok(result(id, listed))
                }
                None => Ok(error(id, -32603, "the database is starting")),
            },
            "prompts/list" if let Some(text) = self.life(|life| life.texts.clone()) => {
                Ok(result(id, json!({ "prompts": [{ "name": "ask", "description": text }] })))
            }
            "resources/templates/list" if let Some(text) = self.life(|life| life.texts.clone()) => {
                let template = json!({ "uriTemplate": "demo://{x}", "name": "x", "description": text });
                Ok(result(id, json!({ "resourceTemplates": [template] })))
            }
            "tools/call" => {
                let key = message["params"]["arguments"]["key"].as_str().unwrap_or("").to_owned();
                self.life(|life| life.served.insert(key, link));
                self.act(id, request, &message["params"]).await
            }
            "resources/read" => Ok(result(id, self.life(|life| life.read.clone()))),
            "resources/subscribe" => self.subscribe(id, request, &message["params"]),
            "logging/setLevel" if !self.life(|life| life.takes_levels) => std::future::pending().await,
            "tasks/get" => {
                let id_of_task = &message["params"]["taskId"];
                Ok(result(
                    id,
                    json!({ "taskId": id_of_task, "status": "looked at", "resultType": "complete" }),
                ))
            }
            "subscriptions/listen" => self.listen(id, &message["params"]).await,
            _ => Ok(result(id, json!({ "echo": request.method }))),
        }
    }

    async fn broken_list(
        &self,
        id: u64,
        request: &Outgoing,
        fault: ListFault,
    ) -> Result<Reply, Box<Trouble>> {
        let trouble = |observed| Err(Evidence::sent(request.during, observed).into());
        match fault {
            ListFault::Hangs => std::future::pending().await,
            ListFault::Fails => trouble(Observed::Http(HttpAnswer {
                status: 500,
                had_session: true,
                ..HttpAnswer::default()
            })),
            ListFault::Circles => Ok(result(id, json!({ "resources": [], "nextCursor": "again" }))),
            ListFault::TooLarge => trouble(Observed::TooLarge(1 << 20)),
            ListFault::Kills => trouble(Observed::Closed("end of file".to_owned())),
        }
    }

    fn subscribe(&self, id: u64, request: &Outgoing, params: &Value) -> Result<Reply, Box<Trouble>> {
        if let Some(answer) = self.life(|life| life.refusals.pop_front()) {
            return Err(Evidence::sent(request.during, Observed::Http(answer)).into());
        }
        let declined = self.life(|life| life.declined.iter().any(|uri| params["uri"] == **uri));
        if declined { Ok(error(id, -32002, "Resource not found")) } else { Ok(result(id, json!({}))) }
    }

    async fn listen(&self, id: u64, params: &Value) -> Result<Reply, Box<Trouble>> {
        let mut ended = self.inner.ended.subscribe();
        let granted = |life: &Life, member: &str| -> Vec<String> {
            let wanted = params["notifications"][member].as_array().into_iter().flatten();
            let granted = wanted.filter_map(Value::as_str).filter(|name| !life.declined.contains(name));
            granted.map(str::to_owned).collect()
        };
        let (uris, tasks) = self.life(|life| {
            let (uris, tasks) = (granted(life, "resourceSubscriptions"), granted(life, "taskIds"));
            life.streams.insert(id, [&*uris, &*tasks].concat());
            (uris, tasks)
        });
        let _open = OpenStream { server: self, id };
        let is_text = self.life(|life| life.numbers_are_texts);
        let number = if is_text { json!(id.to_string()) } else { json!(id) };
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": number });
        let granted = json!({ "resourceSubscriptions": uris, "taskIds": tasks, "toolsListChanged": true });
        let params = json!({ "notifications": granted, "_meta": meta });
        self.say(
            json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params }),
        )
        .await;
        let _ = ended.changed().await;
        Ok(result(id, json!({ "resultType": "complete" })))
    }

    async fn act(&self, id: u64, request: &Outgoing, params: &Value) -> Result<Reply, Box<Trouble>> {
        let _working = Working::on(self);
        let key = params["arguments"]["key"].as_str().unwrap_or("").to_owned();
        let execute = || self.life(|life| *life.executed.entry(key.clone()).or_default() += 1);
        let act = self.life(|life| life.acts.pop_front().unwrap_or_else(|| life.otherwise.clone()));
        let done = || result(id, json!({ "content": [{ "type": "text", "text": "done" }] }));
        match act {
            Act::Answer => {
                execute();
                Ok(done())
            }
            Act::Slowly(pause) => {
                execute();
                tokio::time::sleep(pause).await;
                Ok(done())
            }
            Act::Hang => {
                execute();
                std::future::pending().await
            }
            Act::ToolError => {
                execute();
                Ok(result(
                    id,
                    json!({ "content": [{ "type": "text", "text": "session not found" }], "isError": true }),
                ))
            }
            Act::Reject(code, text) => Ok(error(id, code, text)),
            Act::Refuse(answer) => Err(Evidence::sent(request.during, Observed::Http(answer)).into()),
            Act::DoThenBreak => {
                execute();
                Err(Evidence::sent(request.during, Observed::Closed("connection reset".to_owned())).into())
            }
            Act::Nonsense => {
                Err(Evidence::sent(request.during, Observed::Garbled("hello".to_owned())).into())
            }
            Act::AskThenWork(pause) | Act::ReportAskThenWork(pause) => {
                execute();
                if let Act::ReportAskThenWork(_) = act {
                    report(request, params);
                }
                let listener = request.listener.as_ref().unwrap();
                let mut answered = self.inner.answered.subscribe();
                listener.said(question(1).to_string().as_bytes());
                answered.changed().await.unwrap();
                tokio::time::sleep(pause).await;
                Ok(done())
            }
            Act::AskAtOnce(questions) => {
                execute();
                let listener = request.listener.as_ref().unwrap();
                for number in 0..questions {
                    listener.said(question(number).to_string().as_bytes());
                }
                Ok(done())
            }
            Act::Progress(pace) => {
                execute();
                loop {
                    tokio::time::sleep(pace).await;
                    report(request, params);
                }
            }
            Act::ProgressThenHang(pace, times) => {
                execute();
                for _ in 0..times {
                    tokio::time::sleep(pace).await;
                    report(request, params);
                }
                std::future::pending().await
            }
        }
    }
}

/// Reports progress of a call.
fn report(request: &Outgoing, params: &Value) {
    let token = &params["_meta"]["progressToken"];
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
        "params": { "progressToken": token, "progress": 1 } });
    if let Some(listener) = &request.listener {
        listener.said(progress.to_string().as_bytes());
    }
}

/// A question of the server, under an id of its own.
pub(crate) fn question(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {} })
}

fn offers() -> Value {
    json!({
        "tools": { "listChanged": true },
        "resources": { "subscribe": true },
        "logging": {},
        "extensions": { "io.modelcontextprotocol/tasks": {} },
    })
}

struct OpenStream<'a> {
    server: &'a Server,
    id: u64,
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        self.server.life(|life| {
            life.streams.remove(&self.id);
            life.gaps += u32::from(life.streams.is_empty());
        });
    }
}

fn result(id: u64, result: Value) -> Reply {
    let message = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
    Reply::of(message.into_bytes().into())
}

fn error(id: u64, code: i64, text: &str) -> Reply {
    let message =
        json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": text } }).to_string();
    Reply::of(message.into_bytes().into())
}

/// A spec with short words for what tests change. Its target is never dialed.
pub(crate) fn spec() -> ServerSpec {
    let command = Template::parse("in-memory").unwrap();
    let target = Target::Stdio {
        command,
        args: Vec::new(),
        env: Vec::new(),
        inherit_env: Vec::new(),
        network_env: true,
        cwd: None,
    };
    ServerSpec::new(target)
}

pub(crate) fn add(host: &Host, name: &str, spec: ServerSpec, server: &Server) {
    let dialer: Arc<dyn Dialer> = Arc::new(server.clone());
    host.spawn_with(name, spec, SpawnOptions { dialer: Some(dialer), ..SpawnOptions::default() }).unwrap();
}

/// A host with one in-memory server named `it`, up and listed.
pub(crate) async fn host_with(kind: LinkKind) -> (Host, Server) {
    host_with_spec(kind, spec()).await
}

pub(crate) async fn host_with_spec(kind: LinkKind, spec: ServerSpec) -> (Host, Server) {
    let (host, server) = (Host::builder().build(), Server::new(kind));
    let lazy = spec.supervision.lazy;
    add(&host, "it", spec, &server);
    if !lazy {
        until(&host, State::Ready).await;
    }
    (host, server)
}

pub(crate) fn host_on(store: &Arc<dyn Store>) -> Host {
    Host::builder().store(Arc::clone(store)).build()
}

/// Waits, in virtual time, until `it` is in this state.
pub(crate) async fn until(host: &Host, state: State) {
    let mut events = host.events();
    while host.status_of("it").unwrap().supervision.state != state {
        let _ = events.recv().await;
    }
}

pub(crate) async fn call(host: &Host, tool: &str, key: &str) -> Result<Answer, CallError> {
    host.call("it", tool, Some(raw(json!({ "key": key })))).await
}

pub(crate) fn raw(value: Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(&value).unwrap()
}

/// Lets everything happen that is due now, without letting time pass.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn tool_names(host: &Host) -> Vec<String> {
    let catalog = host.catalog("it", Duration::from_secs(1)).await.unwrap();
    catalog.tools.iter().map(|tool| tool.key.clone()).collect()
}

//! A scripted in-memory server for tests in virtual time.

use gripfast::config::{ServerSpec, Target, Template};
use gripfast::store::Store;
use gripfast::transport::{
    BoxFuture, Dialer, Inbox, Incoming, Link, LinkContext, LinkInfo, Outgoing, Reply, Route, SendError,
    Session, UnsolicitedStream,
};
use gripfast::{Answer, CallError, Host, JsonText, SpawnOptions, State};
use gripfast_core::failure::{ConnectStepFailed, During, Evidence, HttpAnswer, Observed};
use gripfast_core::supervise::upstream::{CloseMode, LinkKind};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Reaction of the server to one `tools/call`.
#[derive(Clone)]
pub(crate) enum CallAction {
    /// Answers immediately.
    Answer,
    /// Answers after this time.
    AnswerAfter(Duration),
    /// Never answers.
    Hang,
    /// Answers with an `isError` result.
    ToolError,
    /// Answers with a JSON-RPC error.
    Reject(i64, &'static str),
    /// Refuses with an HTTP status before executing.
    Refuse(HttpAnswer),
    /// Executes the call, and the connection breaks before the answer.
    ExecuteThenBreak,
    /// Answers with something that is not MCP.
    Nonsense,
    /// Reports progress at this interval without end.
    Progress(Duration),
    /// Reports progress at this interval this many times, and then hangs.
    ProgressThenHang(Duration, u32),
    /// Sends an elicitation, and answers the call this long after its response.
    AskThenWork(Duration),
    /// Same, after it has reported progress once.
    ProgressAskThenWork(Duration),
    /// Sends this many elicitations together, and answers the call without waiting for responses.
    AskMany(u64),
}

/// Fault of one of its lists.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ListFault {
    /// Never answered.
    Hangs,
    /// HTTP 500.
    Fails,
    /// The next page is the same page.
    RepeatsPage,
    /// Larger than the message limit.
    TooLarge,
    /// The process dies.
    Kills,
}

/// Handle of one in-memory server.
#[derive(Clone)]
pub(crate) struct MemoryServer {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<ServerState>,
    /// Changes when the current link is cut.
    cut: watch::Sender<u64>,
    /// Changes when a message is sent to the server.
    answered: watch::Sender<u64>,
    /// Changes when all streams of the modern era are ended.
    ended: watch::Sender<u64>,
}

struct ServerState {
    kind: LinkKind,
    route: Route,
    /// Result of a connection attempt; `None` for success.
    dial: Option<Observed>,
    dials: Vec<Instant>,
    handshake_hangs: bool,
    /// Leaves `server/discover` unanswered.
    ignores_discover: bool,
    knows_ping: bool,
    answers_probes: bool,
    /// Time to answer a probe.
    answers_probes_within: Duration,
    takes_answers: bool,
    takes_levels: bool,
    /// Issues session ids and requires them.
    has_sessions: bool,
    /// Speaks only the modern era.
    modern: bool,
    /// Turns numeric subscription ids into strings.
    numbers_are_texts: bool,
    /// Resources whose subscription it declines; all others are accepted.
    declined: Vec<&'static str>,
    /// Errors for the next subscription requests.
    refusals: VecDeque<HttpAnswer>,
    session: u64,
    tools: Vec<Value>,
    /// Text of its instructions, its prompt `ask` and its resource template `demo://{x}`; `None` if it has none of
    /// them.
    texts: Option<String>,
    /// Time to list the tools; `None` if it cannot.
    lists_within: Option<Duration>,
    /// List faults by method.
    list_faults: HashMap<&'static str, ListFault>,
    /// Announced TTL of the lists.
    list_ttl: Option<Duration>,
    /// Result of `resources/read`.
    read: Value,
    queued_actions: VecDeque<CallAction>,
    default_action: CallAction,
    requests: Vec<String>,
    params: Vec<(String, Value)>,
    /// Resources and tasks on each open stream of the modern era, by request id.
    streams: BTreeMap<u64, Vec<String>>,
    /// Number of times that the last stream was closed.
    gaps: u32,
    executed: HashMap<String, u32>,
    cancelled: u32,
    in_flight: u32,
    most_in_flight: u32,
    /// Its stderr output when it exits.
    last_words: Option<String>,
    resident: Option<u64>,
    /// All links that were ever opened, by number.
    links: Vec<Inbox>,
    closed: Vec<usize>,
    ends_within: Duration,
    /// Link on which a call was last executed.
    served: HashMap<String, usize>,
    /// Messages sent to it that are not requests, with their link.
    sent: Vec<(usize, Value)>,
}

impl MemoryServer {
    pub(crate) fn new(kind: LinkKind) -> Self {
        let life = ServerState {
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
            list_ttl: None,
            read: json!({ "contents": [] }),
            queued_actions: VecDeque::new(),
            default_action: CallAction::Answer,
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

    fn state<T>(&self, act: impl FnOnce(&mut ServerState) -> T) -> T {
        act(&mut self.inner.state.lock().unwrap())
    }

    /// Uses another route for its links.
    pub(crate) fn with_route(self, route: Route) -> Self {
        self.state(|life| life.route = route);
        self
    }

    /// Speaks the modern era.
    pub(crate) fn modern(self) -> Self {
        self.state(|life| life.modern = true);
        self
    }

    /// Turns numeric subscription ids into strings.
    pub(crate) fn with_numbers_as_texts(self) -> Self {
        self.state(|life| life.numbers_are_texts = true);
        self
    }

    /// Has no sessions.
    pub(crate) fn without_sessions(self) -> Self {
        self.state(|life| life.has_sessions = false);
        self
    }

    /// Leaves `logging/setLevel` unanswered.
    pub(crate) fn ignore_levels(&self) {
        self.state(|life| life.takes_levels = false);
    }

    /// Declines subscriptions to this resource from now on.
    pub(crate) fn decline(&self, uri: &'static str) {
        self.state(|life| life.declined.push(uri));
    }

    /// Refuses the next subscription requests with these answers.
    pub(crate) fn refuse_next(&self, answers: impl IntoIterator<Item = HttpAnswer>) {
        self.state(|life| life.refusals.extend(answers));
    }

    /// Sends an update notification for a resource.
    pub(crate) async fn send_resource_updated(&self, uri: &str) {
        let params = json!({ "uri": uri, "of the future": 1.0 });
        self.send_message(
            json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params }),
        )
        .await;
    }

    /// Ends every stream of the modern era, as a proxy would.
    pub(crate) fn end_streams(&self) {
        self.inner.ended.send_modify(|ended| *ended += 1);
    }

    /// Resources on each open stream of the modern era.
    pub(crate) fn streams(&self) -> Vec<Vec<String>> {
        self.state(|life| life.streams.values().cloned().collect())
    }

    /// Number of times that the last stream of the modern era was closed.
    pub(crate) fn gaps(&self) -> u32 {
        self.state(|life| life.gaps)
    }

    /// Parameters of all requests with this method.
    pub(crate) fn params_of(&self, method: &str) -> Vec<Value> {
        self.state(|life| {
            let asked = life.params.iter().filter(|(seen, _)| seen == method);
            asked.map(|(_, params)| params.clone()).collect()
        })
    }

    /// Breaks the links and refuses new connections.
    pub(crate) async fn go_down(&self) {
        self.state(|life| life.dial = Some(refused()));
        self.break_link().await;
    }

    pub(crate) fn come_up(&self) {
        self.state(|life| life.dial = None);
    }

    pub(crate) fn fail_connects_with(&self, observed: Observed) {
        self.state(|life| life.dial = Some(observed));
    }

    fn exit_observed(&self) -> Observed {
        Observed::Exited {
            code: None,
            signal: Some(9),
            stderr_line: self.state(|life| life.last_words.clone()),
        }
    }

    /// Sets its stderr output.
    pub(crate) fn write_to_stderr(&self, words: &str) {
        self.state(|life| life.last_words = Some(words.to_owned()));
    }

    /// Breaks the links; new connections succeed.
    pub(crate) async fn break_link(&self) {
        let open = self.open_links();
        let inboxes: Vec<Inbox> =
            self.state(|life| open.iter().map(|link| life.links[*link].clone()).collect());
        self.inner.cut.send_modify(|cut| *cut += 1);
        for inbox in inboxes {
            let ended = self.exit_observed();
            inbox.put(Incoming::Lost(Evidence::sent(During::Call, ended))).await;
        }
    }

    /// Reports one of its links as lost.
    pub(crate) async fn lose_link(&self, link: usize) {
        let inbox = self.state(|life| life.links[link].clone());
        let ended = self.exit_observed();
        inbox.put(Incoming::Lost(Evidence::sent(During::Call, ended))).await;
    }

    pub(crate) fn forget_session(&self) {
        self.state(|life| life.session += 1);
    }

    pub(crate) fn queue_actions(&self, acts: impl IntoIterator<Item = CallAction>) {
        self.state(|life| life.queued_actions.extend(acts));
    }

    pub(crate) fn clear_actions(&self) {
        self.state(|life| life.queued_actions.clear());
    }

    pub(crate) fn set_default_action(&self, act: CallAction) {
        self.state(|life| life.default_action = act);
    }

    pub(crate) fn hang_in_handshake(&self) {
        self.state(|life| life.handshake_hangs = true);
    }

    /// Leaves unknown requests unanswered, like some legacy servers.
    pub(crate) fn ignore_discover(&self) {
        self.state(|life| life.ignores_discover = true);
    }

    pub(crate) fn stop_answering_probes(&self) {
        self.state(|life| life.answers_probes = false);
    }

    pub(crate) fn answer_probes_within(&self, within: Duration) {
        self.state(|life| life.answers_probes_within = within);
    }

    pub(crate) fn answer_probes(&self) {
        self.state(|life| life.answers_probes = true);
    }

    /// Stops accepting messages, so that senders block.
    pub(crate) fn stop_taking_answers(&self) {
        self.state(|life| life.takes_answers = false);
    }

    /// Number of messages that the host started to send to it.
    pub(crate) fn answers_begun(&self) -> u64 {
        *self.inner.answered.borrow()
    }

    pub(crate) fn without_ping(&self) {
        self.state(|life| life.knows_ping = false);
    }

    pub(crate) fn set_tool_names(&self, names: &[&str]) {
        self.state(|life| life.tools = names.iter().map(|name| tool(name, json!({}))).collect());
    }

    /// Sets the result of `resources/read`.
    pub(crate) fn set_read_result(&self, result: Value) {
        self.state(|life| life.read = result);
    }

    /// Sets the tools, with all members.
    pub(crate) fn set_tools(&self, tools: Vec<Value>) {
        self.state(|life| life.tools = tools);
    }

    /// Sets the text of its instructions, prompt and resource template.
    pub(crate) fn set_texts(&self, text: &str) {
        self.state(|life| life.texts = Some(text.to_owned()));
    }

    /// Sets the time to list the tools; `None` if it cannot.
    pub(crate) fn set_list_delay(&self, within: Option<Duration>) {
        self.state(|life| life.lists_within = within);
    }

    /// Sets or removes the fault of a list.
    pub(crate) fn break_list(&self, method: &'static str, fault: Option<ListFault>) {
        self.state(|life| match fault {
            Some(fault) => drop(life.list_faults.insert(method, fault)),
            None => drop(life.list_faults.remove(method)),
        });
    }

    /// Sets the announced TTL of the lists.
    pub(crate) fn set_list_ttl(&self, time: Duration) {
        self.state(|life| life.list_ttl = Some(time));
    }

    pub(crate) fn set_resident_memory(&self, bytes: u64) {
        self.state(|life| life.resident = Some(bytes));
    }

    pub(crate) async fn send_message(&self, message: Value) {
        let latest = self.state(|life| life.links.len() - 1);
        self.send_message_on(latest, message).await;
    }

    /// Sets the time that a closed link takes to end.
    pub(crate) fn set_close_delay(&self, within: Duration) {
        self.state(|life| life.ends_within = within);
    }

    /// Sends a message on one of its links.
    pub(crate) async fn send_message_on(&self, link: usize, message: Value) {
        let inbox = self.state(|life| life.links[link].clone());
        inbox.put(Incoming::Message(message.to_string().into_bytes().into())).await;
    }

    /// Link on which the call with this key was last executed.
    pub(crate) fn served_on(&self, key: &str) -> usize {
        self.state(|life| life.served[key])
    }

    /// Numbers of the open links.
    pub(crate) fn open_links(&self) -> Vec<usize> {
        self.state(|life| (0..life.links.len()).filter(|link| !life.closed.contains(link)).collect())
    }

    /// Responses to its request with this id, with their links.
    pub(crate) fn answers_to(&self, id: u64) -> Vec<(usize, Value)> {
        self.state(|life| life.sent.iter().filter(|(_, message)| message["id"] == id).cloned().collect())
    }

    /// Links on which it received this notification.
    pub(crate) fn links_notified(&self, method: &str) -> Vec<usize> {
        let told = |life: &mut ServerState| {
            let such = life.sent.iter().filter(|(_, message)| message["method"] == method);
            such.map(|(link, _)| *link).collect()
        };
        self.state(told)
    }

    pub(crate) fn connects(&self) -> usize {
        self.state(|life| life.dials.len())
    }

    pub(crate) fn connect_times(&self) -> Vec<Instant> {
        self.state(|life| life.dials.clone())
    }

    /// Number of requests with this method.
    pub(crate) fn received(&self, method: &str) -> usize {
        self.state(|life| life.requests.iter().filter(|seen| *seen == method).count())
    }

    /// Number of executions of the call with this key.
    pub(crate) fn executed(&self, key: &str) -> u32 {
        self.state(|life| life.executed.get(key).copied().unwrap_or(0))
    }

    pub(crate) fn cancelled(&self) -> u32 {
        self.state(|life| life.cancelled)
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.state(|life| life.in_flight)
    }

    pub(crate) fn most_in_flight(&self) -> u32 {
        self.state(|life| life.most_in_flight)
    }
}

pub(crate) fn refused() -> Observed {
    Observed::Connect { step: ConnectStepFailed::Refused, text: "connection refused".to_owned() }
}

fn tool(name: &str, annotations: Value) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": annotations })
}

impl Dialer for MemoryServer {
    fn kind(&self) -> LinkKind {
        self.state(|life| life.kind)
    }

    fn routes(&self) -> Vec<Route> {
        vec![self.state(|life| life.route)]
    }

    fn connect(
        &self,
        _route: Route,
        surroundings: LinkContext,
    ) -> BoxFuture<'_, Result<Arc<dyn Link>, Evidence>> {
        let opened = self.state(|life| {
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
    server: MemoryServer,
    number: usize,
    cut: watch::Receiver<u64>,
    born: u64,
}

impl Link for MemoryLink {
    fn request<'a>(
        &'a self,
        session: &'a Session,
        request: Outgoing<'a>,
    ) -> BoxFuture<'a, Result<Reply, Box<SendError>>> {
        Box::pin(async move {
            let mut cut = self.cut.clone();
            let during = request.during;
            if *cut.borrow() != self.born {
                return Err(
                    Evidence::unsent(during, Observed::Closed("the link is broken".to_owned())).into()
                );
            }
            request.sent.set();
            let mut watch = CancelGuard { server: &self.server, due: request.method == "tools/call" };
            let answer = tokio::select! {
                answer = self.server.serve(self.number, session, &request) => answer,
                _ = cut.wait_for(|cut| *cut != self.born) => {
                    let ended = self.server.exit_observed();
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
    ) -> BoxFuture<'a, Result<(), Box<SendError>>> {
        let message = serde_json::from_slice(&message).unwrap();
        self.server.state(|life| life.sent.push((self.number, message)));
        self.server.inner.answered.send_modify(|answered| *answered += 1);
        let taken = self.server.state(|life| life.takes_answers);
        Box::pin(async move { if taken { Ok(()) } else { std::future::pending().await } })
    }

    fn listen(self: Arc<Self>, _session: Arc<Session>) -> Option<UnsolicitedStream> {
        None
    }

    fn close<'a>(&'a self, _session: Option<&'a Session>, _manner: CloseMode) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            tokio::time::sleep(self.server.state(|life| life.ends_within)).await;
            self.server.state(|life| life.closed.push(self.number));
        })
    }

    fn info(&self) -> LinkInfo {
        LinkInfo::default()
    }

    fn resident_memory(&self) -> Option<u64> {
        self.server.state(|life| life.resident)
    }
}

/// Counts a request that is dropped before its answer as cancelled.
struct CancelGuard<'a> {
    server: &'a MemoryServer,
    due: bool,
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        if self.due {
            self.server.state(|life| life.cancelled += 1);
        }
    }
}

struct InFlightGuard<'a>(&'a MemoryServer);

impl<'a> InFlightGuard<'a> {
    fn track(server: &'a MemoryServer) -> Self {
        server.state(|life| {
            life.in_flight += 1;
            life.most_in_flight = life.most_in_flight.max(life.in_flight);
        });
        Self(server)
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.state(|life| life.in_flight -= 1);
    }
}

impl MemoryServer {
    async fn serve(
        &self,
        link: usize,
        session: &Session,
        request: &Outgoing<'_>,
    ) -> Result<Reply, Box<SendError>> {
        let message: Value = serde_json::from_slice(&request.message).unwrap();
        let id = request.id;
        let known_session = self.state(|life| {
            life.requests.push(request.method.to_owned());
            life.params.push((request.method.to_owned(), message["params"].clone()));
            life.session.to_string()
        });
        let opening = matches!(request.method, "initialize" | "server/discover");
        let modern = self.state(|life| life.modern);
        let has_sessions = self.state(|life| life.has_sessions);
        if !opening && !modern && has_sessions && session.id.as_deref() != Some(&known_session) {
            let answer = HttpAnswer { status: 404, had_session: true, ..HttpAnswer::default() };
            return Err(Evidence::sent(request.during, Observed::Http(answer)).into());
        }
        let is_probe = request.during == During::Probe;
        if is_probe && !self.state(|life| life.answers_probes) {
            std::future::pending::<()>().await;
        }
        let pause = self.state(|life| life.answers_probes_within);
        if is_probe && !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let fault = self.state(|life| life.list_faults.get(request.method).copied());
        if let Some(fault) = fault {
            return self.broken_list(id, request, fault).await;
        }
        match request.method {
            "server/discover" if self.state(|life| life.ignores_discover) => std::future::pending().await,
            "server/discover" if modern => Ok(result(
                id,
                json!({ "supportedVersions": ["2026-07-28"], "capabilities": offers(), "resultType": "complete" }),
            )),
            "server/discover" => Ok(error(id, -32601, "Method not found")),
            "initialize" if modern => Ok(error(id, -32022, "Unsupported protocol version")),
            "initialize" => {
                if self.state(|life| life.handshake_hangs) {
                    std::future::pending::<()>().await;
                }
                let mut initialized = json!({ "protocolVersion": "2025-11-25", "capabilities": offers(),
                    "serverInfo": { "name": "memory", "version": "1" } });
                if let Some(text) = self.state(|life| life.texts.clone()) {
                    initialized["instructions"] = text.into();
                    initialized["capabilities"]["prompts"] = json!({});
                }
                let mut reply = result(id, initialized);
                reply.session_id = has_sessions.then_some(known_session);
                Ok(reply)
            }
            "ping" if !self.state(|life| life.knows_ping) => Ok(error(id, -32601, "Method not found")),
            "ping" => Ok(result(id, json!({}))),
            "tools/list" => match self.state(|life| life.lists_within) {
                Some(within) => {
                    if !within.is_zero() {
                        tokio::time::sleep(within).await;
                    }
                    let mut listed = json!({ "tools": self.state(|life| life.tools.clone()) });
                    if let Some(good_for) = self.state(|life| life.list_ttl) {
                        listed["ttlMs"] = (good_for.as_millis() as u64).into();
                    }
                    Ok(result(id, listed))
                }
                None => Ok(error(id, -32603, "the database is starting")),
            },
            "prompts/list" if let Some(text) = self.state(|life| life.texts.clone()) => {
                Ok(result(id, json!({ "prompts": [{ "name": "ask", "description": text }] })))
            }
            "resources/templates/list" if let Some(text) = self.state(|life| life.texts.clone()) => {
                let template = json!({ "uriTemplate": "demo://{x}", "name": "x", "description": text });
                Ok(result(id, json!({ "resourceTemplates": [template] })))
            }
            "tools/call" => {
                let key = message["params"]["arguments"]["key"].as_str().unwrap_or("").to_owned();
                self.state(|life| life.served.insert(key, link));
                self.act(id, request, &message["params"]).await
            }
            "resources/read" => Ok(result(id, self.state(|life| life.read.clone()))),
            "resources/subscribe" => self.subscribe(id, request, &message["params"]),
            "logging/setLevel" if !self.state(|life| life.takes_levels) => std::future::pending().await,
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
        request: &Outgoing<'_>,
        fault: ListFault,
    ) -> Result<Reply, Box<SendError>> {
        let trouble = |observed| Err(Evidence::sent(request.during, observed).into());
        match fault {
            ListFault::Hangs => std::future::pending().await,
            ListFault::Fails => trouble(Observed::Http(HttpAnswer {
                status: 500,
                had_session: true,
                ..HttpAnswer::default()
            })),
            ListFault::RepeatsPage => Ok(result(id, json!({ "resources": [], "nextCursor": "again" }))),
            ListFault::TooLarge => trouble(Observed::TooLarge(1 << 20)),
            ListFault::Kills => trouble(Observed::Closed("end of file".to_owned())),
        }
    }

    fn subscribe(&self, id: u64, request: &Outgoing<'_>, params: &Value) -> Result<Reply, Box<SendError>> {
        if let Some(answer) = self.state(|life| life.refusals.pop_front()) {
            return Err(Evidence::sent(request.during, Observed::Http(answer)).into());
        }
        let declined = self.state(|life| life.declined.iter().any(|uri| params["uri"] == **uri));
        if declined { Ok(error(id, -32002, "Resource not found")) } else { Ok(result(id, json!({}))) }
    }

    async fn listen(&self, id: u64, params: &Value) -> Result<Reply, Box<SendError>> {
        let mut ended = self.inner.ended.subscribe();
        let granted = |life: &ServerState, member: &str| -> Vec<String> {
            let wanted = params["notifications"][member].as_array().into_iter().flatten();
            let granted = wanted.filter_map(Value::as_str).filter(|name| !life.declined.contains(name));
            granted.map(str::to_owned).collect()
        };
        let (uris, tasks) = self.state(|life| {
            let (uris, tasks) = (granted(life, "resourceSubscriptions"), granted(life, "taskIds"));
            life.streams.insert(id, [&*uris, &*tasks].concat());
            (uris, tasks)
        });
        let _open = OpenStream { server: self, id };
        let is_text = self.state(|life| life.numbers_are_texts);
        let number = if is_text { json!(id.to_string()) } else { json!(id) };
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": number });
        let granted = json!({ "resourceSubscriptions": uris, "taskIds": tasks, "toolsListChanged": true });
        let params = json!({ "notifications": granted, "_meta": meta });
        self.send_message(
            json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params }),
        )
        .await;
        let _ = ended.changed().await;
        Ok(result(id, json!({ "resultType": "complete" })))
    }

    async fn act(&self, id: u64, request: &Outgoing<'_>, params: &Value) -> Result<Reply, Box<SendError>> {
        let _working = InFlightGuard::track(self);
        let key = params["arguments"]["key"].as_str().unwrap_or("").to_owned();
        let execute = || self.state(|life| *life.executed.entry(key.clone()).or_default() += 1);
        let act =
            self.state(|life| life.queued_actions.pop_front().unwrap_or_else(|| life.default_action.clone()));
        let done = || result(id, json!({ "content": [{ "type": "text", "text": "done" }] }));
        match act {
            CallAction::Answer => {
                execute();
                Ok(done())
            }
            CallAction::AnswerAfter(pause) => {
                execute();
                tokio::time::sleep(pause).await;
                Ok(done())
            }
            CallAction::Hang => {
                execute();
                std::future::pending().await
            }
            CallAction::ToolError => {
                execute();
                Ok(result(
                    id,
                    json!({ "content": [{ "type": "text", "text": "session not found" }], "isError": true }),
                ))
            }
            CallAction::Reject(code, text) => Ok(error(id, code, text)),
            CallAction::Refuse(answer) => Err(Evidence::sent(request.during, Observed::Http(answer)).into()),
            CallAction::ExecuteThenBreak => {
                execute();
                Err(Evidence::sent(request.during, Observed::Closed("connection reset".to_owned())).into())
            }
            CallAction::Nonsense => {
                Err(Evidence::sent(request.during, Observed::Malformed("hello".to_owned())).into())
            }
            CallAction::AskThenWork(pause) | CallAction::ProgressAskThenWork(pause) => {
                execute();
                if let CallAction::ProgressAskThenWork(_) = act {
                    send_progress(request, params);
                }
                let listener = request.listener.as_ref().unwrap();
                let mut answered = self.inner.answered.subscribe();
                listener.on_message(elicitation(1).to_string().as_bytes());
                answered.changed().await.unwrap();
                tokio::time::sleep(pause).await;
                Ok(done())
            }
            CallAction::AskMany(questions) => {
                execute();
                let listener = request.listener.as_ref().unwrap();
                for number in 0..questions {
                    listener.on_message(elicitation(number).to_string().as_bytes());
                }
                Ok(done())
            }
            CallAction::Progress(pace) => {
                execute();
                loop {
                    tokio::time::sleep(pace).await;
                    send_progress(request, params);
                }
            }
            CallAction::ProgressThenHang(pace, times) => {
                execute();
                for _ in 0..times {
                    tokio::time::sleep(pace).await;
                    send_progress(request, params);
                }
                std::future::pending().await
            }
        }
    }
}

/// Sends a progress notification of a call.
fn send_progress(request: &Outgoing<'_>, params: &Value) {
    let token = &params["_meta"]["progressToken"];
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
        "params": { "progressToken": token, "progress": 1 } });
    if let Some(listener) = &request.listener {
        listener.on_message(progress.to_string().as_bytes());
    }
}

/// An elicitation request of the server with this id.
pub(crate) fn elicitation(id: u64) -> Value {
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
    server: &'a MemoryServer,
    id: u64,
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        self.server.state(|life| {
            life.streams.remove(&self.id);
            life.gaps += u32::from(life.streams.is_empty());
        });
    }
}

fn result(id: u64, result: Value) -> Reply {
    let message = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
    Reply::new(message.into_bytes().into())
}

fn error(id: u64, code: i64, text: &str) -> Reply {
    let message =
        json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": text } }).to_string();
    Reply::new(message.into_bytes().into())
}

/// A spec with the defaults of the tests. Its target is never used.
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

pub(crate) fn add(host: &Host, name: &str, spec: ServerSpec, server: &MemoryServer) {
    let dialer: Arc<dyn Dialer> = Arc::new(server.clone());
    host.spawn_with(name, spec, SpawnOptions { dialer: Some(dialer), ..SpawnOptions::default() }).unwrap();
}

/// A host with one in-memory server `it`, connected and listed.
pub(crate) async fn host_with(kind: LinkKind) -> (Host, MemoryServer) {
    host_with_spec(kind, spec()).await
}

pub(crate) async fn host_with_spec(kind: LinkKind, spec: ServerSpec) -> (Host, MemoryServer) {
    let (host, server) = (Host::builder().build(), MemoryServer::new(kind));
    let lazy = spec.supervision.lazy;
    add(&host, "it", spec, &server);
    if !lazy {
        wait_for_state(&host, State::Ready).await;
    }
    (host, server)
}

pub(crate) fn host_on(store: &Arc<dyn Store>) -> Host {
    Host::builder().store(Arc::clone(store)).build()
}

/// Waits, in virtual time, until `it` is in this state.
pub(crate) async fn wait_for_state(host: &Host, state: State) {
    let mut events = host.subscribe_events();
    while host.server_status("it").unwrap().supervision.state != state {
        let _ = events.recv().await;
    }
}

pub(crate) async fn call(host: &Host, tool: &str, key: &str) -> Result<Answer, CallError> {
    host.call("it", tool, Some(raw(json!({ "key": key })))).await
}

pub(crate) fn raw(value: Value) -> JsonText {
    JsonText::of(&value).unwrap()
}

/// Runs all tasks that are ready, without advancing the clock.
pub(crate) async fn run_ready_tasks() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn tool_names(host: &Host) -> Vec<String> {
    let catalog = host.catalog("it", Duration::from_secs(1)).await.unwrap();
    catalog.tools.iter().map(|tool| tool.key.clone()).collect()
}

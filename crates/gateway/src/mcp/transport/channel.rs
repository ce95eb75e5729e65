//! A client on one channel that carries everything, in either era: stdio, and the old HTTP+SSE.

use super::Gateway;
use super::aside::{Aside, Channel, Way};
use super::ask::Fault;
use super::body::{Admitted, Received};
use super::client::{Client, name_in};
use super::era::{self, Around};
use super::http::answer;
use super::left_out::LeftOut;
use super::listen::Listening;
use super::modern::{self, NotBegun};
use super::presence::Presence;
use super::questions::{Abilities, Questions};
use super::refusal::Overload;
use super::respond;
use super::suspended::Step;
use super::under_way::{Number, UnderWay};
use crate::shares::Peer;
use bytes::Bytes;
use gripfast::RawValue;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::wire::envelope::{self, Message, Request};
use gripfast::wire::era::InitializeParams;
use gripfast::wire::results::Cancelled;
use gripfast::wire::{Era, Id, ProtocolVersion, RequestId, batch, codes, roots};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

/// One client's side of the channel.
pub(super) struct Conversation {
    gateway: Arc<Gateway>,
    out: mpsc::Sender<Bytes>,
    /// The same for what may be left out, and for questions.
    channel: Channel,
    running: Arc<Mutex<UnderWay<AbortHandle>>>,
    /// What the client can be asked and wants to hear, from its `initialize` on.
    client: Client,
    questions: Arc<Questions>,
    /// With the conversation end the instances that servers have for it alone.
    presence: Presence,
    /// Answers that are due.
    tasks: JoinSet<()>,
    /// Subscriptions, which never end by themselves.
    listening: JoinSet<()>,
    herald: Option<AbortHandle>,
    /// What was agreed on in the handshake, if there was one.
    version: Option<ProtocolVersion>,
}

const LARGEST_BATCH: usize = 100;
/// Subscriptions on one channel.
const MOST_LISTENING: usize = 16;
/// A client that has said its last word may wait this long for its answers. One that died cannot be told
/// from it, and must not keep us for as long as a call may take.
pub(super) const DRAIN_FOR: Duration = Duration::from_secs(10);

impl Conversation {
    pub(super) fn new(gateway: Arc<Gateway>, out: mpsc::Sender<Bytes>, peer: &Peer) -> Self {
        let presence = Presence::begin(&gateway.host, peer.principal());
        let abilities = Abilities::default();
        let memory = gateway.memory_of(peer);
        let questions = Questions::of(peer.principal(), gateway.sessions.questions());
        let questions = Arc::new(questions.numbered_from(gateway.process >> 32));
        Self {
            gateway,
            channel: Channel::over(&out),
            out,
            running: Arc::default(),
            client: Client::with(abilities, presence.client(abilities), memory),
            questions,
            presence,
            tasks: JoinSet::new(),
            listening: JoinSet::new(),
            herald: None,
            version: None,
        }
    }

    /// Takes what the client says. Answers follow on the channel, in whatever order they come.
    pub(super) async fn take(&mut self, body: &Received) {
        while self.tasks.try_join_next().is_some() || self.listening.try_join_next().is_some() {}
        if envelope::is_batch(&body.bytes) {
            self.take_batch(body).await;
        } else {
            self.take_one(body, AnswerTo::Channel).await;
        }
    }

    /// A batch is answered as a batch, when the last of its members is.
    async fn take_batch(&mut self, body: &Received) {
        let messages = match batch::split(&body.bytes, LARGEST_BATCH) {
            Ok(messages) => messages,
            Err(error) => return self.refuse(None, &era::unreadable_batch(&error), AnswerTo::Channel).await,
        };
        if !self.version.as_ref().is_some_and(ProtocolVersion::allows_batches) {
            let fault = Fault::new(codes::INVALID_REQUEST, "this protocol version has no batches");
            return self.refuse(None, &fault, AnswerTo::Channel).await;
        }
        // The request that brought them has been counted.
        let more = u32::try_from(messages.len()).unwrap_or(u32::MAX).saturating_sub(1);
        if let Some(limits) = self.gateway.request_limits.get()
            && let Err(too_many) = limits.spend(&body.peer, more)
        {
            return self.refuse(None, &Overload::too_fast(too_many).fault(), AnswerTo::Channel).await;
        }
        let mut due = Vec::new();
        for message in messages {
            let (answer, answered) = oneshot::channel();
            let message = body.part(body.bytes.slice_ref(message));
            self.take_one(&message, AnswerTo::Batch(answer)).await;
            due.push(answered);
        }
        let (out, memory) = (self.out.clone(), Arc::clone(&self.client.memory));
        self.tasks.spawn(async move {
            // A notification has no answer, and neither has a call that was cancelled.
            let answers = futures_util::future::join_all(due).await;
            let answers: Vec<Bytes> = answers.into_iter().flatten().collect();
            if let Some(joined) = memory.join(answers) {
                let _ = out.send(joined).await;
            }
        });
    }

    /// A message cannot be taken, and was not looked into.
    pub(super) async fn turn_away(&self, id: Option<Id<'_>>, fault: &Fault) {
        self.refuse(id, fault, AnswerTo::Channel).await;
    }

    /// Waits for the answers that are still due, for a while. Subscriptions have an answer when we leave, and none
    /// when their client does.
    pub(super) async fn finish(mut self) {
        if let Some(herald) = self.herald.take() {
            herald.abort();
        }
        if !self.gateway.leaving.is_cancelled() {
            self.listening.abort_all();
        }
        let due = async {
            while self.tasks.join_next().await.is_some() {}
            while self.listening.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(DRAIN_FOR, due).await;
        // Whoever writes for us ends when nobody has anything to say any more.
        self.tasks.shutdown().await;
        self.listening.shutdown().await;
    }

    /// The client lost its channel, which does not cancel anything: its calls go on by themselves.
    pub(super) fn abandon(mut self) {
        if let Some(herald) = self.herald.take() {
            herald.abort();
        }
        self.listening.abort_all();
        tokio::spawn(async move { while self.tasks.join_next().await.is_some() {} });
    }

    async fn take_one(&mut self, body: &Received, to: AnswerTo) {
        let message = Message::parse(&body.bytes);
        if let (Ok(message), Err(fault)) = (&message, era::not_too_deep(&body.bytes, self.gateway.nesting)) {
            return match message {
                Message::Request(request) => self.refuse(Some(request.id), &fault, to).await,
                Message::Notification(_) => {}
                Message::Response(response) => self.questions.failed(response.id, &fault),
            };
        }
        match message {
            Err(error) => self.refuse(None, &era::unreadable(&error), to).await,
            Ok(Message::Request(request)) if request.method == "initialize" => match to {
                AnswerTo::Channel => self.initialize(&request).await,
                AnswerTo::Batch(_) => {
                    let fault = Fault::new(codes::INVALID_REQUEST, "`initialize` stands alone");
                    self.refuse(Some(request.id), &fault, to).await;
                }
            },
            Ok(Message::Request(request)) => match era::of(&request, Around::Silent) {
                Ok(Era::Modern) if request.method == "subscriptions/listen" => match self.listen(&request) {
                    Ok(()) => {}
                    Err(refused) => self.refuse(Some(request.id), &refused.into_fault(), to).await,
                },
                Ok(Era::Modern) => self.begin_modern(&request, body, to).await,
                Ok(Era::Legacy) => match self.admit(&request, body) {
                    Ok(admitted) => self.begin(&request, admitted, to),
                    Err(refused) => self.refuse(Some(request.id), &refused.into_fault(), to).await,
                },
                Err(fault) => self.refuse(Some(request.id), &fault, to).await,
            },
            Ok(Message::Notification(notification)) => {
                if notification.method == Cancelled::METHOD
                    && let Some(cancelled) = notification.params.and_then(Cancelled::read)
                {
                    let id = cancelled.request_id.to_request_id();
                    let calls = lock(&self.running).take(&id);
                    calls.iter().for_each(AbortHandle::abort);
                }
                if notification.method == roots::CHANGED {
                    self.gateway.roots_changed(&self.client);
                }
                if notification.method == "notifications/initialized" {
                    self.announce();
                }
            }
            Ok(Message::Response(_)) => {
                self.questions.answered(body.counted());
            }
        }
    }

    async fn initialize(&mut self, request: &Request<'_>) {
        let wanted = request.params.and_then(|params| InitializeParams::read(params).ok());
        let Some(wanted) = wanted else {
            let fault = Fault::new(codes::INVALID_PARAMS, "`initialize` needs parameters");
            return self.refuse(Some(request.id), &fault, AnswerTo::Channel).await;
        };
        let abilities = Abilities::read(wanted.capabilities);
        let memory = Arc::clone(&self.client.memory);
        let mut client = Client::with(abilities, self.presence.client(abilities), Arc::clone(&memory));
        client.at_servers = client.at_servers.heard_by(Arc::new(Aside {
            way: self.channel.clone(),
            left_out: LeftOut::default(),
            abilities,
            level: Arc::clone(&client.level),
            questions: Arc::clone(&self.questions),
            memory,
        }));
        if let Some(name) = name_in(wanted.client_info) {
            client.at_servers = client.at_servers.named(name);
        }
        self.client = client;
        // Whoever begins anew is told anew, from its `initialized` on.
        if let Some(herald) = self.herald.take() {
            herald.abort();
        }
        let principal = self.client.at_servers.principal();
        let (version, result) = self.gateway.initialize(&wanted.version, principal).await;
        self.client.has_tasks = version.has_tasks();
        self.version = Some(version);
        let hello = self.client.memory.hold(envelope::response(request.id, &result).into());
        let hello = match hello {
            Ok(hello) => hello,
            Err(exhausted) => {
                let fault = Overload::of_memory(exhausted).fault();
                return self.refuse(Some(request.id), &fault, AnswerTo::Channel).await;
            }
        };
        AnswerTo::Channel.say(&self.out, hello).await;
    }

    /// Whether a request may begin: there is room for it, and no other goes by its id, for two answers under one id
    /// could not be told apart on one channel.
    fn may_begin(&self, request: &Request<'_>) -> Result<(), NotBegun> {
        let id = request.id.to_request_id();
        if lock(&self.running).has(&id) {
            let text = format!("the id {} is in use by a request that is under way", id.as_raw());
            return Err(NotBegun::Fault(Fault::new(codes::INVALID_REQUEST, text)));
        }
        // Those count as well that have ended and whose answers nobody reads.
        if self.tasks.len() >= UnderWay::<AbortHandle>::MOST {
            return Err(NotBegun::NoRoom(Overload::of_session("requests are under way")));
        }
        Ok(())
    }

    fn admit(&self, request: &Request<'_>, body: &Received) -> Result<Admitted, NotBegun> {
        self.may_begin(request)?;
        self.gateway.admit(body).map_err(NotBegun::NoRoom)
    }

    fn begin(&mut self, request: &Request<'_>, admitted: Admitted, to: AnswerTo) {
        let (gateway, client) = (Arc::clone(&self.gateway), self.client.clone());
        let questions = Arc::clone(&self.questions);
        let (channel, left_out) = (self.channel.clone(), LeftOut::default());
        let ear = Arc::new(ToChannel { channel, left_out, client: client.clone(), questions });
        let (own, out) = (request.to_own(), self.out.clone());
        self.run(request.id.to_request_id(), to, async move {
            let heard = Arc::clone(&ear);
            let request = own.as_request();
            let work = pin!(answer(&gateway, Era::Legacy, &request, ear, client));
            let answered = admitted.while_good(work).await;
            if let Some(notice) = heard.left_out.take().filter(|notice| heard.client.wants(notice)) {
                let _ = out.send(notice).await;
            }
            answered.map(|answered| answered.message)
        });
    }

    /// A modern client cannot be asked. It is told what is wanted, and comes back with it.
    async fn begin_modern(&mut self, request: &Request<'_>, body: &Received, to: AnswerTo) {
        let who = |abilities| self.presence.client(abilities);
        let may_begin = self.may_begin(request);
        let begun = may_begin.and_then(|()| modern::begin_or_resume(&self.gateway, request, body, who));
        let mut call = match begun {
            Ok(call) => call.goes_by_itself(),
            Err(not_begun) => {
                let refusal = respond::error(Era::Modern, Some(request.id), &not_begun.into_fault());
                return to.say(&self.out, refusal.message.into()).await;
            }
        };
        let (gateway, out, id) = (Arc::clone(&self.gateway), self.out.clone(), request.id.to_request_id());
        self.run(id.clone(), to, async move {
            loop {
                match call.next().await {
                    Step::Said(message) => out.send(message).await.ok()?,
                    Step::Answered(answer) => return Some(modern::under(&id, answer, &call.outbox)),
                    Step::Wanted => return Some(modern::input_required(&gateway, &id, call)),
                    Step::End => return None,
                }
            }
        });
    }

    /// Does this until it is cancelled under its id, and says what is to be said last.
    fn run(
        &mut self,
        id: RequestId,
        to: AnswerTo,
        work: impl Future<Output = Option<Bytes>> + Send + 'static,
    ) {
        let (out, running) = (self.out.clone(), Arc::clone(&self.running));
        let tasks = &mut self.tasks;
        // The lock is held until the call is noted: one that is answered at once must not be noted after its end.
        lock(&self.running).begin(id, |number| {
            let noted = Noted { running, number };
            tasks.spawn(async move {
                let last = work.await;
                drop(noted);
                if let Some(last) = last {
                    to.say(&out, last).await;
                }
            })
        });
    }

    /// A stream of changes of the modern era: told of on the channel, until it is cancelled.
    fn listen(&mut self, request: &Request<'_>) -> Result<(), NotBegun> {
        if self.listening.len() >= MOST_LISTENING {
            return Err(NotBegun::NoRoom(Overload::of_session("subscriptions are open")));
        }
        self.may_begin(request)?;
        let (gateway, out) = (Arc::clone(&self.gateway), self.out.clone());
        let (id, params) = (request.id.to_request_id(), request.params.map(RawValue::to_owned));
        let who = |abilities| self.presence.client(abilities);
        let client = Client::of_request(request.params, who, Arc::clone(&self.client.memory));
        let running = Arc::clone(&self.running);
        // What it listens to is kept for as long as it does.
        let length = params.as_deref().map_or(0, |params| params.get().len());
        let held = client.memory.take(length);
        let held = held.map_err(|exhausted| NotBegun::NoRoom(Overload::of_memory(exhausted)))?;
        let tell = {
            let id = id.clone();
            async move {
                let _held = held;
                let mut listening = Listening::begin(&gateway, &id, params.as_deref(), &client).await;
                if out.send(listening.acknowledged()).await.is_err() {
                    return;
                }
                loop {
                    let news = tokio::select! {
                        news = listening.next() => news,
                        () = gateway.leaving.cancelled() => None,
                    };
                    let (messages, is_last) = match news {
                        Some(news) => (news, false),
                        None => (vec![listening.over()], true),
                    };
                    for message in messages {
                        if out.send(message).await.is_err() {
                            return;
                        }
                    }
                    if is_last {
                        return;
                    }
                }
            }
        };
        let tasks = &mut self.listening;
        lock(&self.running).begin(id, |number| {
            let noted = Noted { running, number };
            tasks.spawn(async move {
                tell.await;
                drop(noted);
            })
        });
        Ok(())
    }

    /// A legacy client is told of changed lists, and of what it follows, from its `initialized` on.
    fn announce(&mut self) {
        if self.herald.is_some() {
            return;
        }
        let (out, principal) = (self.out.clone(), self.client.at_servers.principal());
        let mut marks = self.gateway.herald.follow(principal);
        let mut told = *marks.borrow();
        let follows = Arc::clone(&self.client.follows);
        let task = tokio::spawn(async move {
            loop {
                let now = *marks.borrow_and_update();
                let lists = std::mem::replace(&mut told, now).news(now);
                let lists = lists.map(|method| envelope::notification(method, None).into());
                for message in lists.chain(follows.tell().0) {
                    if out.send(message).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    changed = marks.changed() => if changed.is_err() { return },
                    () = follows.changed() => {}
                }
            }
        });
        self.herald = Some(task.abort_handle());
    }

    async fn refuse(&self, id: Option<Id<'_>>, fault: &Fault, to: AnswerTo) {
        to.say(&self.out, respond::error(Era::Legacy, id, fault).message.into()).await;
    }
}

fn lock(running: &Mutex<UnderWay<AbortHandle>>) -> MutexGuard<'_, UnderWay<AbortHandle>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call that is under way until this is dropped, in whatever way it ends.
struct Noted {
    running: Arc<Mutex<UnderWay<AbortHandle>>>,
    number: Number,
}

impl Drop for Noted {
    fn drop(&mut self) {
        lock(&self.running).end(self.number);
    }
}

/// Where an answer goes.
enum AnswerTo {
    /// To the client, as soon as it is there.
    Channel,
    /// To the others of its batch.
    Batch(oneshot::Sender<Bytes>),
}

impl AnswerTo {
    async fn say(self, channel: &mpsc::Sender<Bytes>, message: Bytes) {
        // A client that is gone is noticed by whoever reads from it.
        match self {
            Self::Channel => drop(channel.send(message).await),
            Self::Batch(others) => drop(others.send(message)),
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        if let Some(herald) = self.herald.take() {
            herald.abort();
        }
    }
}

/// Hears a call on behalf of its client. Progress that does not fit is not worth waiting for; it is counted.
struct ToChannel {
    channel: Channel,
    left_out: LeftOut,
    client: Client,
    questions: Arc<Questions>,
}

impl Listener for ToChannel {
    fn said(&self, message: &[u8]) {
        if self.client.wants(message) {
            self.left_out.say(
                message,
                |notice| self.client.wants(notice),
                |message| self.client.memory.hold(message).is_ok_and(|message| self.channel.say(message)),
            );
        }
    }

    fn asked(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        if !self.client.memory.has_room(request.len()) {
            return None;
        }
        let (channel, memory) = (self.channel.clone(), Arc::clone(&self.client.memory));
        let send = move |message| channel.send(memory.hold_always(message));
        self.questions.ask(self.client.abilities, &request, send)
    }
}

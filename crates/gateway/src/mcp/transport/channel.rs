//! Client on a single duplex channel, in either era: stdio, the stdio bridge, and the old HTTP+SSE. Reading and writing
//! the channel is left to these transports.

use super::body::{AdmittedRequest, ReceivedMessage};
use super::dropped_messages::DroppedMessages;
use super::stateless_http;
use super::stateless_http::StartError;
use super::streamable_http::answer;
use crate::mcp::Gateway;
use crate::mcp::client::{Client, name_in};
use crate::mcp::elicitation::input_required::CallStep;
use crate::mcp::elicitation::{ElicitationSupport, PendingElicitations};
use crate::mcp::in_flight::{CallNumber, InFlightCalls};
use crate::mcp::notify::change_feed::ChangeFeed;
use crate::mcp::notify::delivered::DeliveredVersions;
use crate::mcp::notify::listen::ListenStream;
use crate::mcp::notify::push::{ClientChannel, PermanentChannel, Push};
use crate::mcp::registration::ClientRegistration;
use crate::mcp::request::dispatch::RpcFault;
use crate::mcp::request::era;
use crate::mcp::request::era::EraContext;
use crate::mcp::request::overload::Overload;
use crate::mcp::request::respond;
use crate::server::quota::Peer;
use bytes::Bytes;
use gripfast::Json;
use gripfast::sync::Mutex;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::wire::envelope::{self, Message, Request};
use gripfast::wire::era::InitializeParams;
use gripfast::wire::results::Cancelled;
use gripfast::wire::{Era, Id, ProtocolVersion, RequestId, batch, codes, roots};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

/// Gateway side of one client's channel.
pub(crate) struct ChannelClient {
    gateway: Arc<Gateway>,
    out: mpsc::Sender<Bytes>,
    /// Weak handle on `out` for droppable messages and for requests of servers.
    channel: PermanentChannel,
    in_flight: Arc<Mutex<InFlightCalls<AbortHandle>>>,
    /// Capabilities and identity of the client, set by its `initialize`.
    client: Arc<Client>,
    elicitations: Arc<PendingElicitations>,
    /// Ends the instances that are dedicated to the client together with the channel.
    registration: ClientRegistration,
    /// Calls in flight.
    tasks: JoinSet<()>,
    /// Streams of `subscriptions/listen`, which do not end on their own.
    listening: JoinSet<()>,
    list_changes: Option<AbortHandle>,
    /// Negotiated protocol version, after a handshake.
    version: Option<ProtocolVersion>,
}

const MAX_BATCH: usize = 100;
/// Maximum number of listen streams on one channel.
const MAX_LISTENING: usize = 16;
/// Time for the remaining answers after the client has closed its input. A client that died looks the same, so the wait
/// must be shorter than a call may take.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

impl ChannelClient {
    pub(crate) fn new(gateway: Arc<Gateway>, out: mpsc::Sender<Bytes>, peer: &Peer) -> Self {
        let registration = ClientRegistration::new(&gateway.host, peer.principal());
        let abilities = ElicitationSupport::default();
        let memory = gateway.memory_of(peer);
        let elicitations =
            Arc::new(PendingElicitations::new(peer.principal(), gateway.sessions.elicitations()));
        Self {
            gateway,
            channel: PermanentChannel::new(&out),
            out,
            in_flight: Arc::default(),
            client: Arc::new(Client::legacy(abilities, registration.client(abilities), memory)),
            elicitations,
            registration,
            tasks: JoinSet::new(),
            listening: JoinSet::new(),
            list_changes: None,
            version: None,
        }
    }

    /// Handles a message of the client. Answers are sent on the channel in the order of completion.
    pub(crate) async fn handle(&mut self, body: &ReceivedMessage) {
        while self.tasks.try_join_next().is_some() || self.listening.try_join_next().is_some() {}
        if envelope::is_batch(&body.bytes) {
            self.handle_batch(body).await;
        } else {
            self.handle_one(body, ReplyTarget::Channel).await;
        }
    }

    /// Answers a batch as a batch, when its last member is answered.
    async fn handle_batch(&mut self, body: &ReceivedMessage) {
        let messages = match batch::split(&body.bytes, MAX_BATCH) {
            Ok(messages) => messages,
            Err(error) => {
                return self.refuse(None, &era::batch_fault(&error), ReplyTarget::Channel).await;
            }
        };
        if !self.version.as_ref().is_some_and(ProtocolVersion::allows_batches) {
            let fault = RpcFault::new(codes::INVALID_REQUEST, "this protocol version has no batches");
            return self.refuse(None, &fault, ReplyTarget::Channel).await;
        }
        // One of them was counted with the HTTP request or line.
        let more = u32::try_from(messages.len()).unwrap_or(u32::MAX).saturating_sub(1);
        if let Some(limits) = self.gateway.request_limits.get()
            && let Err(too_many) = limits.spend(&body.peer, more)
        {
            return self.refuse(None, &Overload::rate(too_many).fault(), ReplyTarget::Channel).await;
        }
        let mut due = Vec::new();
        for message in messages {
            let (answer, answered) = oneshot::channel();
            let message = body.part(body.bytes.slice_ref(message));
            self.handle_one(&message, ReplyTarget::Batch(answer)).await;
            due.push(answered);
        }
        let (out, memory) = (self.out.clone(), Arc::clone(&self.client.memory));
        self.tasks.spawn(async move {
            // Notifications and cancelled calls have no answer.
            let answers = futures_util::future::join_all(due).await;
            let answers: Vec<Bytes> = answers.into_iter().flatten().collect();
            if let Some(joined) = memory.join(answers) {
                let _ = out.send(joined).await;
            }
        });
    }

    /// Refuses a message that was not parsed.
    pub(crate) async fn reject(&self, id: Option<Id<'_>>, fault: &RpcFault) {
        self.refuse(id, fault, ReplyTarget::Channel).await;
    }

    /// Waits for the remaining answers, up to [`DRAIN_TIMEOUT`]. Listen streams get their response when the gateway
    /// shuts down, and none when the client leaves.
    pub(crate) async fn finish(mut self) {
        if let Some(task) = self.list_changes.take() {
            task.abort();
        }
        if !self.gateway.shutting_down.is_cancelled() {
            self.listening.abort_all();
        }
        let due = async {
            while self.tasks.join_next().await.is_some() {}
            while self.listening.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, due).await;
        // The writer task ends when all senders are dropped.
        self.tasks.shutdown().await;
        self.listening.shutdown().await;
    }

    /// Ends the channel of a client that lost its connection. Its calls are not cancelled.
    pub(crate) fn abandon(mut self) {
        if let Some(task) = self.list_changes.take() {
            task.abort();
        }
        self.listening.abort_all();
        tokio::spawn(async move { while self.tasks.join_next().await.is_some() {} });
    }

    async fn handle_one(&mut self, body: &ReceivedMessage, to: ReplyTarget) {
        let message = Message::parse(&body.bytes);
        if let (Ok(message), Err(fault)) = (&message, era::check_depth(&body.bytes, self.gateway.max_nesting))
        {
            return match message {
                Message::Request(request) => self.refuse(Some(request.id), &fault, to).await,
                Message::Notification(_) => {}
                Message::Response(response) => self.elicitations.fail(response.id, &fault),
            };
        }
        match message {
            Err(error) => self.refuse(None, &era::parse_fault(&error), to).await,
            Ok(Message::Request(request)) if request.method == "initialize" => match to {
                ReplyTarget::Channel => self.initialize(&request).await,
                ReplyTarget::Batch(_) => {
                    let fault =
                        RpcFault::new(codes::INVALID_REQUEST, "`initialize` must not be part of a batch");
                    self.refuse(Some(request.id), &fault, to).await;
                }
            },
            Ok(Message::Request(request)) => match era::detect(&request, EraContext::Unknown) {
                Ok(Era::Modern) if request.method == "subscriptions/listen" => match self.listen(&request) {
                    Ok(()) => {}
                    Err(refused) => self.refuse_start(&request, refused, to).await,
                },
                Ok(Era::Modern) => self.begin_modern(&request, body, to).await,
                Ok(Era::Legacy) => match self.admit(&request, body) {
                    Ok(admitted) => self.begin(&request, admitted, to),
                    Err(refused) => self.refuse_start(&request, refused, to).await,
                },
                Err(fault) => self.refuse(Some(request.id), &fault, to).await,
            },
            Ok(Message::Notification(notification)) => {
                if notification.method == Cancelled::METHOD
                    && let Some(cancelled) = notification.params.and_then(Cancelled::read)
                {
                    let id = cancelled.request_id.to_request_id();
                    let calls = self.in_flight.lock().take(&id);
                    calls.iter().for_each(AbortHandle::abort);
                }
                if notification.method == roots::CHANGED {
                    self.gateway.roots_changed(&self.client);
                }
                if notification.method == "notifications/initialized" {
                    self.notify_list_changes();
                }
            }
            Ok(Message::Response(_)) => {
                self.elicitations.resolve(body.counted());
            }
        }
    }

    async fn initialize(&mut self, request: &Request<'_>) {
        let wanted = request.params.and_then(|params| InitializeParams::read(params).ok());
        let Some(wanted) = wanted else {
            let fault = RpcFault::new(codes::INVALID_PARAMS, "`initialize` needs parameters");
            return self.refuse(Some(request.id), &fault, ReplyTarget::Channel).await;
        };
        let abilities = ElicitationSupport::from_capabilities(wanted.capabilities);
        let memory = Arc::clone(&self.client.memory);
        let mut client = Client::legacy(abilities, self.registration.client(abilities), Arc::clone(&memory));
        client.host_client = client.host_client.with_listener(Arc::new(Push {
            channel: self.channel.clone(),
            dropped: DroppedMessages::default(),
            abilities,
            level: Arc::clone(&client.level),
            elicitations: Arc::clone(&self.elicitations),
            memory,
        }));
        if let Some(name) = name_in(wanted.client_info) {
            client.host_client = client.host_client.with_name(name);
        }
        self.client = Arc::new(client);
        // A client that repeats `initialize` is notified again from its next `initialized` on.
        if let Some(task) = self.list_changes.take() {
            task.abort();
        }
        let principal = self.client.host_client.principal();
        let (version, result) = self.gateway.initialize(&wanted.version, principal).await;
        Arc::make_mut(&mut self.client).has_tasks = version.has_tasks();
        self.version = Some(version);
        let hello = self.client.memory.hold(envelope::response(request.id, &result));
        let hello = match hello {
            Ok(hello) => hello,
            Err(exhausted) => {
                let fault = Overload::memory(exhausted).fault();
                return self.refuse(Some(request.id), &fault, ReplyTarget::Channel).await;
            }
        };
        ReplyTarget::Channel.send(&self.out, hello).await;
    }

    /// Tests if a request may start: there is room for it, and no request with the same id is in flight, because two
    /// answers with one id could not be told apart on one channel.
    fn may_begin(&self, request: &Request<'_>) -> Result<(), StartError> {
        let id = request.id.to_request_id();
        if self.in_flight.lock().contains(&id) {
            let text = format!("the id {} is already used by a request in flight", id.as_raw());
            return Err(StartError::Fault(RpcFault::new(codes::INVALID_REQUEST, text)));
        }
        // Includes calls whose answers the client does not read.
        if self.tasks.len() >= InFlightCalls::<AbortHandle>::MAX {
            return Err(StartError::NoRoom(Overload::session("requests are in flight")));
        }
        Ok(())
    }

    fn admit(&self, request: &Request<'_>, body: &ReceivedMessage) -> Result<AdmittedRequest, StartError> {
        self.may_begin(request)?;
        self.gateway.admit(body).map_err(StartError::NoRoom)
    }

    fn begin(&mut self, request: &Request<'_>, admitted: AdmittedRequest, to: ReplyTarget) {
        let (gateway, client) = (Arc::clone(&self.gateway), self.client.clone());
        let elicitations = Arc::clone(&self.elicitations);
        let (channel, dropped) = (self.channel.clone(), DroppedMessages::default());
        let listener = Arc::new(ChannelListener { channel, dropped, client: client.clone(), elicitations });
        let (own, out) = (request.to_owned_request(), self.out.clone());
        self.run(request.id.to_request_id(), to, async move {
            let own_listener = Arc::clone(&listener);
            let request = own.as_request();
            let work = pin!(answer(&gateway, Era::Legacy, &request, listener, client));
            let answered = admitted.while_authorized(work).await;
            if let Some(notice) =
                own_listener.dropped.take().filter(|notice| own_listener.client.wants(notice))
            {
                let _ = out.send(notice).await;
            }
            answered.map(|answered| answered.message)
        });
    }

    /// Starts a request of a modern client, which gets an input-required result instead of requests.
    async fn begin_modern(&mut self, request: &Request<'_>, body: &ReceivedMessage, to: ReplyTarget) {
        let identify = |abilities| self.registration.client(abilities);
        let may_begin = self.may_begin(request);
        let started =
            may_begin.and_then(|()| stateless_http::begin_or_resume(&self.gateway, request, body, identify));
        let mut call = match started {
            Ok(call) => call.detached(),
            Err(refused) => return self.refuse_start(request, refused, to).await,
        };
        let (gateway, out, id) = (Arc::clone(&self.gateway), self.out.clone(), request.id.to_request_id());
        self.run(id.clone(), to, async move {
            loop {
                match call.next().await {
                    CallStep::Notification(message) => out.send(message).await.ok()?,
                    CallStep::Answered(answer) => {
                        return Some(stateless_http::with_id(&id, answer, &call.replay_buffer));
                    }
                    CallStep::InputRequired => {
                        return Some(stateless_http::input_required(&gateway, &id, call));
                    }
                    CallStep::End => return None,
                }
            }
        });
    }

    /// Runs `work` until it is cancelled under its id, and sends its output as the last message.
    fn run(
        &mut self,
        id: RequestId,
        to: ReplyTarget,
        work: impl Future<Output = Option<Bytes>> + Send + 'static,
    ) {
        let (out, in_flight) = (self.out.clone(), Arc::clone(&self.in_flight));
        let tasks = &mut self.tasks;
        // The lock is held until the call is registered: otherwise a call that ends at once would be registered after
        // its end.
        self.in_flight.lock().insert(id, |number| {
            let entry = InFlightEntry { in_flight, number };
            tasks.spawn(async move {
                let last = work.await;
                drop(entry);
                if let Some(last) = last {
                    to.send(&out, last).await;
                }
            })
        });
    }

    /// Starts a `subscriptions/listen` stream, which lasts until it is cancelled.
    fn listen(&mut self, request: &Request<'_>) -> Result<(), StartError> {
        if self.listening.len() >= MAX_LISTENING {
            return Err(StartError::NoRoom(Overload::session("subscriptions are open")));
        }
        self.may_begin(request)?;
        let (gateway, out) = (Arc::clone(&self.gateway), self.out.clone());
        let (id, params) = (request.id.to_request_id(), request.params.map(Json::to_owned));
        let identify = |abilities| self.registration.client(abilities);
        let client = Client::from_request(request.params, identify, Arc::clone(&self.client.memory));
        let in_flight = Arc::clone(&self.in_flight);
        // The filter is kept as long as the stream.
        let length = params.as_deref().map_or(0, |params| params.get().len());
        let held = client.memory.take(length);
        let held = held.map_err(|exhausted| StartError::NoRoom(Overload::memory(exhausted)))?;
        let stream = {
            let id = id.clone();
            async move {
                let _held = held;
                let mut listening = ListenStream::open(&gateway, &id, params.as_deref(), &client).await;
                if out.send(listening.ack_message()).await.is_err() {
                    return;
                }
                loop {
                    let next = tokio::select! {
                        next = listening.next() => next,
                        () = gateway.shutting_down.cancelled() => None,
                    };
                    let (messages, is_last) = match next {
                        Some(next) => (next, false),
                        None => (vec![listening.final_response()], true),
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
        self.in_flight.lock().insert(id, |number| {
            let entry = InFlightEntry { in_flight, number };
            tasks.spawn(async move {
                stream.await;
                drop(entry);
            })
        });
        Ok(())
    }

    /// Notifies a legacy client of changed lists and updated resources, from its `initialized` on.
    fn notify_list_changes(&mut self) {
        if self.list_changes.is_some() {
            return;
        }
        let out = self.out.clone();
        let subscriptions = vec![Arc::clone(&self.client.subscriptions)];
        let mut changes = ChangeFeed::new(&self.gateway, &self.client, subscriptions);
        let mut delivered = DeliveredVersions::new(changes.versions());
        let task = tokio::spawn(async move {
            loop {
                for message in changes.take(&mut delivered, |_| true).messages {
                    if out.send(message).await.is_err() {
                        return;
                    }
                }
                if changes.changed().await.is_none() {
                    return;
                }
            }
        });
        self.list_changes = Some(task.abort_handle());
    }

    /// Answers a request that does not start.
    async fn refuse_start(&self, request: &Request<'_>, refused: StartError, to: ReplyTarget) {
        let refusal = respond::respond(Era::Modern, &request.method, request.id, refused.into_outcome());
        to.send(&self.out, refusal.message.into()).await;
    }

    async fn refuse(&self, id: Option<Id<'_>>, fault: &RpcFault, to: ReplyTarget) {
        to.send(&self.out, respond::error(Era::Legacy, id, fault).message.into()).await;
    }
}

/// Registration of a call in flight, removed on drop.
struct InFlightEntry {
    in_flight: Arc<Mutex<InFlightCalls<AbortHandle>>>,
    number: CallNumber,
}

impl Drop for InFlightEntry {
    fn drop(&mut self) {
        self.in_flight.lock().remove(self.number);
    }
}

/// Target of an answer.
enum ReplyTarget {
    /// To the client at once.
    Channel,
    /// To the batch that collects it.
    Batch(oneshot::Sender<Bytes>),
}

impl ReplyTarget {
    async fn send(self, channel: &mpsc::Sender<Bytes>, message: Bytes) {
        // A closed channel is noticed by the reader.
        match self {
            Self::Channel => drop(channel.send(message).await),
            Self::Batch(others) => drop(others.send(message)),
        }
    }
}

impl Drop for ChannelClient {
    fn drop(&mut self) {
        if let Some(task) = self.list_changes.take() {
            task.abort();
        }
    }
}

/// Listener for a call of one client. Messages that do not fit on the channel are dropped and counted.
struct ChannelListener {
    channel: PermanentChannel,
    dropped: DroppedMessages,
    client: Arc<Client>,
    elicitations: Arc<PendingElicitations>,
}

impl Listener for ChannelListener {
    fn on_message(&self, message: &[u8]) {
        if self.client.wants(message) {
            self.dropped.send_or_count(
                message,
                |notice| self.client.wants(notice),
                |message| {
                    self.client.memory.hold(message).is_ok_and(|message| self.channel.try_send(message))
                },
            );
        }
    }

    fn on_request(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        if !self.client.memory.has_room(request.len()) {
            return None;
        }
        let (channel, memory) = (self.channel.clone(), Arc::clone(&self.client.memory));
        let send = move |message| channel.send(memory.hold_unchecked(message));
        self.elicitations.elicit(self.client.abilities, &request, send)
    }
}

//! Streamable HTTP, both eras on one path. A legacy client has a session and may come back for what it
//! missed; a modern one says everything in each request.

use super::Gateway;
use super::aside::GetStream;
use super::ask::{Asked, Fault, Told};
use super::body::{self, Admitted, Received};
use super::client::{Client, name_in};
use super::era::{self, Around};
use super::heard::Heard;
use super::herald::Marks;
use super::modern;
use super::outbox::{Next, Outbox};
use super::pieces::{self, Event};
use super::questions::{Abilities, Questions};
use super::refusal::{self, Overload};
use super::respond::{self, Response as Wire};
use super::running::Running;
use super::session::{InUse, Listening, Session};
use super::sessions::NoSession;
use super::wishes::is_wish;
use crate::memory;
use crate::shares::Peer;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::AbortHandle;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::wire::envelope::{self, Message, OwnRequest};
use gripfast::wire::era::InitializeParams;
use gripfast::wire::results::Cancelled;
use gripfast::wire::{Era, Id, ProtocolVersion, RequestId, batch, codes, roots, sse};
use gripfast::{CallError, Code, Fate, RawValue};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const LARGEST_BATCH: usize = 100;
/// An answer that takes no longer is one JSON body. A slower one comes on a stream: nobody on the way takes the
/// silence for an end, and whoever loses the connection may come back for it.
const SOON: Duration = Duration::from_secs(1);
/// When a client whose stream broke off is to come back.
const COME_BACK_AFTER: Duration = Duration::from_secs(1);
/// Silence on an open stream is broken by a comment, so that nothing on the way takes it for dead.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) fn router(gateway: Arc<Gateway>) -> Router {
    Router::new().route(Gateway::ENDPOINT, any(serve_routed)).with_state(gateway)
}

async fn serve_routed(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let peer = Peer::of(&request);
    serve(&gateway, request, peer).await
}

/// Answers a request to the endpoint.
pub(super) async fn serve<B>(gateway: &Arc<Gateway>, request: http::Request<B>, peer: Peer) -> Response
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    gateway.pulse.beat();
    let (head, body) = request.into_parts();
    match head.method {
        Method::POST => match body::read(&gateway.memory, peer, body).await {
            Ok(body) => {
                let body = body.traced_by(&head.headers).let_in_by(&head.extensions);
                post(gateway, &head.headers, &body).await
            }
            Err(refusal) => *refusal,
        },
        // The modern era has neither streams to open nor sessions to end.
        Method::GET | Method::DELETE if says_modern(said_version(&head.headers).as_ref()) => {
            not_allowed("POST")
        }
        Method::GET => get(gateway, &head.headers, &peer).await,
        Method::DELETE => {
            match find_session(gateway, &head.headers, said_version(&head.headers), &peer).await {
                Ok(session) => {
                    gateway.sessions.end(session.session()).await;
                    plain(StatusCode::OK, "")
                }
                Err(refusal) => *refusal,
            }
        }
        _ => not_allowed("POST, GET, DELETE"),
    }
}

fn not_allowed(allowed: &'static str) -> Response {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

async fn post(gateway: &Arc<Gateway>, headers: &HeaderMap, body: &Received) -> Response {
    if envelope::is_batch(&body.bytes) {
        return post_batch(gateway, headers, body).await;
    }
    let message = match Message::parse(&body.bytes) {
        Ok(message) => message,
        Err(error) => {
            return wire(
                respond::error(Era::Legacy, None, &era::unreadable(&error)),
                StatusCode::BAD_REQUEST,
            );
        }
    };
    if let Err(fault) = era::not_too_deep(&body.bytes, gateway.nesting) {
        let (id, era) = (message.id(), Era::Legacy);
        if let Message::Response(_) = message
            && let Ok(in_use) = find_session(gateway, headers, said_version(headers), &body.peer).await
        {
            in_use.session().questions.failed(id, &fault);
        }
        return wire(respond::error(era, id, &fault), StatusCode::BAD_REQUEST);
    }
    let version = said_version(headers);
    match era_of(version.as_ref(), &message) {
        Ok(Era::Modern) => modern::post(gateway, headers, &message, body).await,
        Ok(Era::Legacy) => post_legacy(gateway, headers, version, &message, body).await,
        Err(fault) => {
            // A version that nobody speaks matters only if the request means it.
            let fault = match &message {
                Message::Request(request) if fault.code == codes::UNSUPPORTED_PROTOCOL_VERSION => {
                    modern::verify(headers, request, None).err().unwrap_or(fault)
                }
                _ => fault,
            };
            wire(respond::error(Era::Modern, message.id(), &fault), StatusCode::BAD_REQUEST)
        }
    }
}

/// The era of a message: what it says itself, or what the version in its headers says of it.
fn era_of(version: Option<&ProtocolVersion>, message: &Message<'_>) -> Result<Era, Fault> {
    let around = if says_modern(version) { Around::SaysModern } else { Around::Silent };
    match (message, around) {
        (Message::Request(request), around) => era::of(request, around),
        (Message::Notification(_) | Message::Response(_), Around::SaysModern) => Ok(Era::Modern),
        (Message::Notification(_) | Message::Response(_), Around::Silent) => Ok(Era::Legacy),
    }
}

fn said_version(headers: &HeaderMap) -> Option<ProtocolVersion> {
    headers.get(PROTOCOL_VERSION).and_then(|value| value.to_str().ok()).map(ProtocolVersion::new)
}

fn says_modern(version: Option<&ProtocolVersion>) -> bool {
    version.is_some_and(|version| version.era() == Era::Modern)
}

async fn post_legacy(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    version: Option<ProtocolVersion>,
    message: &Message<'_>,
    body: &Received,
) -> Response {
    if let Message::Request(request) = message
        && request.method == "initialize"
    {
        return initialize(gateway, request.id, request.params, &body.peer).await;
    }
    let in_use = match find_session(gateway, headers, version, &body.peer).await {
        Ok(in_use) => in_use,
        Err(refusal) => return *refusal,
    };
    let session = in_use.session();
    match message {
        Message::Request(request) => {
            let outbox = Arc::new(Outbox::to(&session.client));
            // What is listed from here on is at least as new as these.
            let marks = gateway.herald.marks(&session.peer.principal());
            let mut call =
                match begin_legacy(gateway, session, session.client.clone(), request, body, &outbox) {
                    Ok(call) => call,
                    Err(overload) => return refusal::overloaded(Some(request.id), &overload),
                };
            session.heard().listed(&request.method, marks);
            let begun = call.until(tokio::time::timeout(SOON, first(&outbox, 0))).await;
            drop(call);
            match begun {
                Ok(First::Answer(answer, status)) => json_response(answer, status),
                // Whoever loses the stream may come back for the rest: the call goes on without it.
                Ok(First::Stream) | Err(_) => {
                    let number = session.keep_stream(Arc::clone(&outbox));
                    let name = StreamName::of(gateway.process, number, request);
                    let opening = session.version.primes_streams().then(|| opening(&name));
                    let rest = outbox_events(outbox, 0, name, in_use);
                    stream(futures_util::stream::iter(opening.map(Ok)).chain(rest))
                }
            }
        }
        Message::Notification(notification) => {
            notice(gateway, session, notification);
            plain(StatusCode::ACCEPTED, "")
        }
        Message::Response(_) => {
            session.questions.answered(body.counted());
            plain(StatusCode::ACCEPTED, "")
        }
    }
}

/// Begins a call of a legacy client, which goes on if its client hangs up.
fn begin_legacy(
    gateway: &Arc<Gateway>,
    session: &Arc<Session>,
    client: Client,
    request: &envelope::Request<'_>,
    body: &Received,
    outbox: &Arc<Outbox>,
) -> Result<Running, Overload> {
    session.has_room()?;
    let admitted = gateway.admit(body)?;
    let questions = Arc::clone(&session.questions);
    let ear = Arc::new(LegacyEar { outbox: Arc::clone(outbox), questions, client: client.clone() });
    let kept = Some(Arc::clone(session));
    let of = (request.to_own(), admitted);
    let (call, handle) = begin_call(gateway, Era::Legacy, of, Arc::clone(outbox), ear, client, kept);
    session.running(request.id.to_request_id(), handle, outbox);
    Ok(call)
}

fn notice(gateway: &Gateway, session: &Session, notification: &envelope::Notification<'_>) {
    if notification.method == roots::CHANGED {
        gateway.roots_changed(&session.client);
    }
    if notification.method == Cancelled::METHOD
        && let Some(cancelled) = notification.params.and_then(Cancelled::read)
    {
        session.cancel(&cancelled.request_id.to_request_id());
    }
}

async fn post_batch(gateway: &Arc<Gateway>, headers: &HeaderMap, body: &Received) -> Response {
    let in_use = match find_session(gateway, headers, said_version(headers), &body.peer).await {
        Ok(in_use) => in_use,
        Err(refusal) => return *refusal,
    };
    let session = in_use.session();
    let refuse = |fault: &Fault| wire(respond::error(Era::Legacy, None, fault), StatusCode::BAD_REQUEST);
    if !session.version.allows_batches() {
        return refuse(&Fault::new(codes::INVALID_REQUEST, "this protocol version has no batches"));
    }
    let messages = match batch::split(&body.bytes, LARGEST_BATCH) {
        Ok(messages) => messages,
        Err(error) => return refuse(&era::unreadable_batch(&error)),
    };
    // The request that brought them has been counted.
    let more = u32::try_from(messages.len()).unwrap_or(u32::MAX).saturating_sub(1);
    if let Some(limits) = gateway.request_limits.get()
        && let Err(too_many) = limits.spend(&body.peer, more)
    {
        return refusal::too_many_requests(too_many);
    }
    let due: Vec<Arc<Outbox>> = messages
        .into_iter()
        .filter_map(|message| begin_member(gateway, session, &body.part(body.bytes.slice_ref(message))))
        .collect();
    let answers = futures_util::future::join_all(due.iter().map(|outbox| outbox.answer())).await;
    drop(due);
    match session.client.memory.join(answers.into_iter().flatten().collect()) {
        Some(joined) => json_response(joined, StatusCode::OK),
        None => plain(StatusCode::ACCEPTED, ""),
    }
}

/// Begins one message of a batch. Like any call of a legacy client it goes on if its client hangs up.
fn begin_member(gateway: &Arc<Gateway>, session: &Arc<Session>, message: &Received) -> Option<Arc<Outbox>> {
    let outbox = Arc::new(Outbox::to(&session.client));
    let refuse = |id: Option<Id<'_>>, fault: &Fault| {
        outbox.finish(Some(respond::error(Era::Legacy, id, fault).message.into()));
    };
    let parsed = Message::parse(&message.bytes);
    if let (Ok(parsed), Err(fault)) = (&parsed, era::not_too_deep(&message.bytes, gateway.nesting)) {
        match parsed {
            Message::Request(request) => refuse(Some(request.id), &fault),
            Message::Notification(_) => return None,
            Message::Response(response) => {
                session.questions.failed(response.id, &fault);
                return None;
            }
        }
        return Some(outbox);
    }
    match parsed {
        Ok(Message::Request(request)) if request.method == "initialize" => {
            refuse(Some(request.id), &Fault::new(codes::INVALID_REQUEST, "`initialize` stands alone"));
        }
        Ok(Message::Request(request)) => {
            // Nobody reads a batch before all of it is answered, so its members cannot be asked anything.
            let client = session.client.unasked();
            match begin_legacy(gateway, session, client, &request, message, &outbox) {
                Ok(call) => drop(call),
                Err(overload) => refuse(Some(request.id), &overload.fault()),
            }
        }
        Ok(Message::Notification(notification)) => {
            notice(gateway, session, &notification);
            return None;
        }
        Ok(Message::Response(_)) => {
            session.questions.answered(message.counted());
            return None;
        }
        Err(error) => refuse(None, &Fault::new(codes::INVALID_REQUEST, error.to_string())),
    }
    Some(outbox)
}

async fn initialize(gateway: &Arc<Gateway>, id: Id<'_>, params: Option<&RawValue>, peer: &Peer) -> Response {
    let wanted = params.and_then(|params| InitializeParams::read(params).ok());
    let Some(wanted) = wanted else {
        let fault = Fault::new(codes::INVALID_PARAMS, "`initialize` needs parameters");
        return wire(respond::error(Era::Legacy, Some(id), &fault), StatusCode::OK);
    };
    let (version, result) = gateway.initialize(&wanted.version, &peer.principal()).await;
    let hello = match gateway.memory_of(peer).hold(envelope::response(id, &result).into()) {
        Ok(hello) => hello,
        Err(exhausted) => return refusal::overloaded(Some(id), &Overload::of_memory(exhausted)),
    };
    let abilities = Abilities::read(wanted.capabilities);
    let told = gateway.herald.marks(&peer.principal());
    let session = match gateway.sessions.begin(&version, abilities, name_in(wanted.client_info), peer, told) {
        Ok(session) => session,
        Err(error) => return *no_session(&error, Some(id)),
    };
    let mut response = json_response(hello, StatusCode::OK);
    if let Ok(id) = HeaderValue::from_str(&session.id) {
        response.headers_mut().insert(SESSION_ID, id);
    }
    response
}

/// The GET stream of a legacy session: what changed since the client was last told, and what changes.
async fn get(gateway: &Arc<Gateway>, headers: &HeaderMap, peer: &Peer) -> Response {
    let in_use = match find_session(gateway, headers, said_version(headers), peer).await {
        Ok(in_use) => in_use,
        Err(refusal) => return *refusal,
    };
    let session = in_use.session();
    let last = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    if let Some((name, place)) = last.and_then(StreamName::read) {
        let known = (name.process == gateway.process).then(|| session.stream(name.number)).flatten();
        match (known, name.lost_answer()) {
            (Some(outbox), _) => {
                return match Session::listen(in_use) {
                    Ok(listening) => stream(outbox_events(outbox, place, name, listening)),
                    Err(overload) => refusal::overloaded(None, &overload),
                };
            }
            // What another process called so is lost with it, and what ended long ago is forgotten. Whoever waits for
            // the answer is told so.
            (None, Some(lost)) => {
                let event = sse::Writer::new().id(&name.end(place)).data(&lost).finish();
                return stream(futures_util::stream::once(std::future::ready(Ok(event.into()))));
            }
            // Its client had the answer, and hears of news as without an id.
            (None, None) => {}
        }
    }
    if let Some((marks, changes)) = last.and_then(|last| news_place(gateway, last)) {
        let ours = gateway.herald.gave(&peer.principal(), marks);
        *session.heard() = Heard::of(if ours { marks } else { told_before_us(gateway, peer) });
        if let Some(changes) = changes {
            session.client.follows.heard(changes);
        }
    }
    match Session::listen(in_use) {
        Ok(listening) => stream(pieces::events(news(gateway, listening))),
        Err(overload) => refusal::overloaded(None, &overload),
    }
}

/// What a legacy client has to be told of lists and of what it follows, now and from now on. What certainly
/// reached it is remembered with its session, so nothing is missed between two streams.
fn news(
    gateway: &Arc<Gateway>,
    session: Listening,
) -> impl futures_util::Stream<Item = Event> + Send + 'static {
    session.session().take_back();
    let get_stream = session.session().get_streams.open();
    let marks = gateway.herald.follow(&session.session().peer.principal());
    let begin = (marks, Telling { session, get_stream }, Arc::clone(gateway));
    futures_util::stream::unfold(begin, |(mut marks, telling, gateway)| async move {
        loop {
            let (session, get_stream) = (telling.session.session(), &telling.get_stream);
            let now = *marks.borrow_and_update();
            let lists = session.heard().tell(now);
            let (changes, count) = session.client.follows.tell();
            let id = news_id(&gateway, now, count);
            let events: Vec<u8> = lists
                .map(|method| Bytes::from(envelope::notification(method, None)))
                .chain(changes)
                .flat_map(|message| sse::Writer::new().id(&id).data(&message).finish())
                .collect();
            if !events.is_empty() {
                return Some((Event::Whole(events.into()), (marks, telling, gateway)));
            }
            let changed = tokio::select! {
                changed = changed_or_due(&mut marks, &gateway.leaving) => changed?,
                () = session.client.follows.changed() => true,
                message = get_stream.next() => {
                    let event = Event::Message(sse::Writer::new().event("message"), message);
                    return Some((event, (marks, telling, gateway)));
                }
                () = session.ended.cancelled() => return None,
            };
            if !changed {
                // A client that hung up would have been noticed since.
                session.heard().arrived(now);
                session.client.follows.arrived();
                return Some((Event::keep_alive(), (marks, telling, gateway)));
            }
        }
    })
}

/// A stream on which a session is told of changes; what it was told last may be lost with it.
struct Telling {
    session: Listening,
    get_stream: GetStream,
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.session.session().take_back();
    }
}

/// How far a client was told, as the id of an event. Changes of resources are counted for each client, and
/// from the beginning by each process.
fn news_id(gateway: &Gateway, marks: Marks, changes: u64) -> String {
    match changes {
        0 => marks.to_event_id(),
        changes => format!("{}~{:x}-{changes}", marks.to_event_id(), gateway.process),
    }
}

/// The reverse of it. Another process counted other changes.
fn news_place(gateway: &Gateway, id: &str) -> Option<(Marks, Option<u64>)> {
    let (marks, changes) = match id.split_once('~') {
        Some((marks, changes)) => (marks, changes.split_once('-')),
        None => (id, None),
    };
    let ours = changes.filter(|(process, _)| *process == format!("{:x}", gateway.process));
    Some((Marks::from_event_id(marks)?, ours.and_then(|(_, count)| count.parse().ok())))
}

/// Whether there is news (`true`) or it is time for a sign of life (`false`); `None` at the gateway's end.
pub(super) async fn changed_or_due(
    marks: &mut tokio::sync::watch::Receiver<Marks>,
    leaving: &CancellationToken,
) -> Option<bool> {
    tokio::select! {
        changed = tokio::time::timeout(KEEP_ALIVE, marks.changed()) => match changed {
            Ok(Ok(())) => Some(true),
            Ok(Err(_)) => None,
            Err(_) => Some(false),
        },
        () = leaving.cancelled() => None,
    }
}

/// The session that a request belongs to, in use by it.
async fn find_session(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    version: Option<ProtocolVersion>,
    peer: &Peer,
) -> Result<InUse, Box<Response>> {
    let refuse = |status, text: &str| {
        let fault = Fault::new(-32600, text);
        Box::new(wire(respond::error(Era::Legacy, None, &fault), status))
    };
    let Some(id) = headers.get(SESSION_ID).and_then(|id| id.to_str().ok()) else {
        return Err(refuse(StatusCode::BAD_REQUEST, "Bad Request: Missing session ID"));
    };
    if let Some(version) = version.filter(|version| !version.is_known()) {
        let text = format!("Bad Request: Unsupported protocol version: {version}");
        return Err(refuse(StatusCode::BAD_REQUEST, &text));
    }
    match gateway.sessions.find(id, peer, || told_before_us(gateway, peer)).await {
        Ok(session) => {
            if session.take_owed() {
                carry_on(gateway, &session);
            }
            Ok(session.in_use())
        }
        Err(error) => Err(no_session(&error, None)),
    }
}

/// Follows again what the client of a session followed before it was in memory here, for as long as it is.
fn carry_on(gateway: &Arc<Gateway>, session: &Session) {
    let (gateway, client, ended) = (Arc::clone(gateway), session.client.clone(), session.ended.clone());
    tokio::spawn(async move {
        let leaving = gateway.leaving.clone();
        tokio::select! {
            () = gateway.follow_again(&client.at_servers, &client.follows) => {}
            () = ended.cancelled() => {}
            () = leaving.cancelled() => {}
        }
    });
}

/// Why there is no session for a request.
fn no_session(error: &NoSession, id: Option<Id<'_>>) -> Box<Response> {
    Box::new(match error {
        NoSession::Unknown => {
            let fault = Fault::new(codes::INVALID_REQUEST, "Session not found");
            wire(respond::error(Era::Legacy, id, &fault), StatusCode::NOT_FOUND)
        }
        NoSession::NoRoom(exhausted) => {
            refusal::overloaded(id, &Overload::new(*exhausted, "sessions are in use"))
        }
        NoSession::NoEntropy => plain(StatusCode::INTERNAL_SERVER_ERROR, "no session could be made\n"),
    })
}

/// What a client was told whose session is older than we are: we cannot know. It is told once to look again
/// at whatever there is; a change that happened in between would otherwise never reach it.
fn told_before_us(gateway: &Gateway, peer: &Peer) -> Marks {
    let principal = peer.principal();
    let (menu, now) = (gateway.host.menu_for(&principal), gateway.herald.marks(&principal));
    let unless = |nothing: bool, mark| if nothing { mark } else { Marks::UNKNOWN };
    Marks {
        tools: unless(menu.tools.is_empty(), now.tools),
        resources: unless(menu.resources.is_empty() && menu.templates.is_empty(), now.resources),
        prompts: unless(menu.prompts.is_empty(), now.prompts),
    }
}

/// Answers one request and writes what it is told into `outbox`. What the client of a session wishes for by it is
/// remembered before it is answered.
pub(super) fn begin_call(
    gateway: &Arc<Gateway>,
    era: Era,
    (request, admitted): (OwnRequest, Admitted),
    outbox: Arc<Outbox>,
    ear: Arc<dyn Listener>,
    client: Client,
    session: Option<Arc<Session>>,
) -> (Running, AbortHandle) {
    let gateway = Arc::clone(gateway);
    // Made before the call is: one that is given up before its first step has an end too.
    let end = EndOnDrop(Arc::clone(&outbox));
    Running::new(|| async move {
        let (_end, request) = (end, request.as_request());
        let work = pin!(answer(&gateway, era, &request, ear, client));
        let answered = admitted.while_good(work).await;
        let Some(Answer { message, status }) = answered else { return };
        if let Some(session) = session.filter(|_| is_wish(&request.method)) {
            gateway.sessions.keep_wishes(&session).await;
        }
        outbox.finish_with_status(message, status);
    })
}

/// A response whose bytes are counted, and the HTTP status that goes with it.
pub(super) struct Answer {
    pub(super) message: Bytes,
    pub(super) status: u16,
}

/// The response to one request.
pub(super) async fn answer(
    gateway: &Gateway,
    era: Era,
    request: &envelope::Request<'_>,
    ear: Arc<dyn Listener>,
    client: Client,
) -> Answer {
    let memory = Arc::clone(&client.memory);
    let told = match &*request.method {
        foreign if era::lacks(era, foreign) => {
            Told::Fault(Fault::new(codes::METHOD_NOT_FOUND, format!("method not found: {foreign}")))
        }
        method => {
            gateway.ask(Asked { era, id: request.id, method, params: request.params, ear, client }).await
        }
    };
    let always_fits = told.always_fits();
    // What was reserved for the answer of a server is given back here, and taken again for what goes to the client.
    let Wire { message, status } = respond::respond(era, &request.method, request.id, told);
    if always_fits {
        return Answer { message: memory.hold_always(message.into()), status };
    }
    match memory.hold(message.into()) {
        Ok(message) => Answer { message, status },
        Err(exhausted) => {
            let text = format!("there is no memory for the answer: {}", memory::explained(exhausted));
            let failed = CallError::new(Code::Overloaded, "", Fate::Done, text)
                .hint("read the answers that wait, and ask for less at a time");
            let Wire { message, status } =
                respond::respond(era, &request.method, request.id, Told::Failed(failed));
            Answer { message: memory.hold_always(message.into()), status }
        }
    }
}

/// Hears a call of a legacy client: progress, log messages and questions go on its stream.
struct LegacyEar {
    outbox: Arc<Outbox>,
    questions: Arc<Questions>,
    client: Client,
}

impl Listener for LegacyEar {
    fn said(&self, message: &[u8]) {
        if self.client.wants(message) {
            self.outbox.push(Bytes::copy_from_slice(message));
        }
    }

    fn asked(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        if !self.client.memory.has_room(request.len()) {
            return None;
        }
        let outbox = Arc::clone(&self.outbox);
        self.questions.ask(self.client.abilities, &request, move |message| outbox.push_always(message))
    }
}

/// A call that was cancelled has no answer; its stream ends all the same.
pub(super) struct EndOnDrop(pub(super) Arc<Outbox>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.finish(None);
    }
}

pub(super) enum First {
    /// The answer came without anything before it: one JSON body.
    Answer(Bytes, StatusCode),
    /// Something else came first, or nothing will: an event stream.
    Stream,
}

/// What comes from `place` on: just the answer, or more.
pub(super) async fn first(outbox: &Outbox, place: usize) -> First {
    let _ = outbox.next(place).await;
    match outbox.only_the_answer(place) {
        Some((answer, status)) => {
            First::Answer(answer, StatusCode::from_u16(status).unwrap_or(StatusCode::OK))
        }
        None => First::Stream,
    }
}

/// The first event of a stream: nothing but a place to come back to, and when.
fn opening(name: &StreamName) -> Bytes {
    sse::Writer::new().id(&name.at(0)).retry(COME_BACK_AFTER).data(b"").finish().into()
}

/// What the stream of a call goes by in the ids of its events. Sessions outlive processes and streams do not, so it
/// says which process it is of; and until the answer has come, for which request it is, so that whoever comes back too
/// late can be told under that id.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StreamName {
    process: u64,
    number: u64,
    /// `t` for a call of a tool and `o` for any other request, and the request's id in base64.
    request: Option<Arc<str>>,
}

impl StreamName {
    const TOOL_CALL: &str = "tools/call";
    /// The id of a request that is longer is not repeated in the ids of events.
    const LONGEST_ID: usize = 256;

    fn of(process: u64, number: u64, request: &envelope::Request<'_>) -> Self {
        let kind = if request.method == Self::TOOL_CALL { 't' } else { 'o' };
        let id = request.id.as_raw();
        let repeated = || format!("{kind}{}", URL_SAFE_NO_PAD.encode(id)).into();
        Self { process, number, request: (id.len() <= Self::LONGEST_ID).then(repeated) }
    }

    /// The id of the event before `place`.
    fn at(&self, place: usize) -> String {
        match &self.request {
            Some(request) => format!("{}-{request}", self.end(place)),
            None => self.end(place),
        }
    }

    /// The same for the event of the answer: nobody waits for one after it.
    fn end(&self, place: usize) -> String {
        format!("s-{:x}-{}-{place}", self.process, self.number)
    }

    /// The reverse of both.
    fn read(id: &str) -> Option<(Self, usize)> {
        let mut parts = id.strip_prefix("s-")?.splitn(4, '-');
        let process = u64::from_str_radix(parts.next()?, 16).ok()?;
        let (number, place) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let name = Self { process, number, request: parts.next().map(Into::into) };
        (name.request.is_none() || name.waits_for().is_some()).then_some((name, place))
    }

    /// The method and the id of the request that waits for its answer.
    fn waits_for(&self) -> Option<(&'static str, RequestId)> {
        let (kind, id) = self.request.as_deref()?.split_at_checked(1)?;
        let method = match kind {
            "t" => Self::TOOL_CALL,
            "o" => "",
            _ => return None,
        };
        let id = String::from_utf8(URL_SAFE_NO_PAD.decode(id).ok()?).ok()?;
        let id = RawValue::from_string(id).ok()?;
        Some((method, RequestId::from_raw(&id).ok()?))
    }

    /// The end of a call whose answer is not to be had any more; `None` if nobody waits for it.
    fn lost_answer(&self) -> Option<Bytes> {
        let (method, id) = self.waits_for()?;
        let text = "the answer to this request is lost: the gateway was restarted meanwhile, or the answer was not \
                    fetched in time; whether the request was carried out is unknown";
        let lost = CallError::new(Code::OutcomeUnknown, "", Fate::Unknown, text).hint(
            "check the effect before you repeat the call; `gripfast calls` shows what is known about it",
        );
        Some(respond::respond(Era::Legacy, method, id.as_id(), Told::Failed(lost)).message.into())
    }
}

/// The messages of one request as events, from `place` on.
fn outbox_events(
    outbox: Arc<Outbox>,
    place: usize,
    name: StreamName,
    user: impl Send + 'static,
) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let place = place.min(outbox.next_place());
    let events = futures_util::stream::unfold(
        (outbox, place, name, user),
        move |(outbox, place, name, user)| async move {
            let (event, place) = match tokio::time::timeout(KEEP_ALIVE, outbox.next(place)).await {
                Err(_) => (Event::keep_alive(), place),
                Ok(Next::End) => return None,
                Ok(Next::Message(message, next)) => {
                    let id = if outbox.is_answered_before(next) { name.end(next) } else { name.at(next) };
                    (Event::Message(sse::Writer::new().id(&id), message), next)
                }
            };
            Some((event, (outbox, place, name, user)))
        },
    );
    pieces::events(events)
}

/// An event stream.
pub(super) fn stream(
    events: impl futures_util::Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    response
}

pub(super) fn json_response(body: Bytes, status: StatusCode) -> Response {
    let mut response = Response::new(pieces::body(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn wire(response: Wire, status: StatusCode) -> Response {
    json_response(response.message.into(), status)
}

pub(super) fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(request: &str) -> StreamName {
        let Ok(Message::Request(request)) = Message::parse(request.as_bytes()) else { panic!("a request") };
        StreamName::of(0xab, 7, &request)
    }

    const CALL: &str = r#"{"jsonrpc":"2.0","id":"a-1","method":"tools/call"}"#;

    #[test]
    fn the_id_of_an_event_says_of_which_process_which_stream_where_and_for_which_request() {
        let name = name(CALL);
        assert_eq!(StreamName::read(&name.at(3)), Some((name.clone(), 3)));
        assert_eq!(name.waits_for(), Some(("tools/call", RequestId::from("a-1"))));
        let (ended, place) = StreamName::read(&name.end(3)).unwrap();
        assert_eq!((ended.number, place, ended.waits_for()), (7, 3, None));
        for other in ["s-7-3", "s-ab-7", "s-ab-7-3-1", "s-ab-7-3-t%", "s-xy-7-3", "s-ab--3", "1-2-3"] {
            assert_eq!(StreamName::read(other), None, "{other}");
        }
    }

    #[test]
    fn c05_a_call_that_is_picked_up_too_late_ends_as_unknown_under_its_id() {
        let read = |message: Bytes| serde_json::from_slice::<serde_json::Value>(&message).unwrap();
        let lost = read(name(CALL).lost_answer().unwrap());
        assert_eq!((&lost["id"], &lost["result"]["isError"]), (&"a-1".into(), &true.into()));
        let failure = &lost["result"]["_meta"]["gripfast/failure"];
        assert_eq!((&failure["code"], &failure["outcome"]), (&"outcome_unknown".into(), &"unknown".into()));
        let lost = read(name(r#"{"jsonrpc":"2.0","id":5,"method":"prompts/get"}"#).lost_answer().unwrap());
        assert_eq!((&lost["id"], &lost["error"]["data"]["code"]), (&5.into(), &"outcome_unknown".into()));
    }

    #[tokio::test]
    async fn c03_a_reader_that_falls_behind_is_told_how_much_it_missed_and_gets_the_answer() {
        let (outbox, name) = (Arc::new(Outbox::default()), name(CALL));
        let mut events = Box::pin(outbox_events(Arc::clone(&outbox), 0, name.clone(), ()));
        outbox.push(Bytes::from_static(b"{}"));
        let Ok(first) = events.next().await.unwrap();
        assert!(first.starts_with(format!("id: {}\n", name.at(1)).as_bytes()), "{first:?}");
        for _ in 0..5000 {
            outbox.push(Bytes::from_static(b"{}"));
        }
        let Ok(notice) = events.next().await.unwrap();
        assert!(String::from_utf8_lossy(&notice).contains("3976 messages were left out"), "{notice:?}");
        outbox.finish(Some(Bytes::from_static(b"[]")));
        let Ok(last) = events.collect::<Vec<_>>().await.pop().unwrap();
        assert_eq!(last, format!("id: {}\ndata: []\n\n", name.end(5002)), "no answer comes after it");
        let again: Vec<_> = outbox_events(outbox, 1, name, ()).collect().await;
        assert_eq!(again.len(), 1 + 1024 + 1, "whoever comes back gets the same");
    }
}

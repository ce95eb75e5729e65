//! Streamable HTTP transport, both eras on one path. A legacy client has a session and can resume its streams; requests
//! of a modern client are stateless and handled in `stateless_http`.

use super::body;
use super::body::{AdmittedRequest, ReceivedMessage};
use super::chunks;
use super::chunks::StreamEvent;
use super::event_id::{ResumePoint, StreamName};
use super::replay_buffer::{ReplayBuffer, ReplayItem};
use super::stateless_http;
use crate::cluster::Member;
use crate::cluster::route::{ForwardedArrival, OutgoingForward, Routed, RoutedMessage, Target};
use crate::mcp::Gateway;
use crate::mcp::address::IdOrigin;
use crate::mcp::client::{Client, name_in};
use crate::mcp::elicitation::input_required::HeldCallId;
use crate::mcp::elicitation::{ElicitationSupport, OpenElicitations, PendingElicitations};
use crate::mcp::notify::change_feed::{ChangeFeed, PendingChanges};
use crate::mcp::notify::list_changes::ListVersions;
use crate::mcp::notify::push::GetStream;
use crate::mcp::request::dispatch::{ClientRequest, RequestOutcome, RpcFault};
use crate::mcp::request::era;
use crate::mcp::request::era::EraContext;
use crate::mcp::request::overload;
use crate::mcp::request::overload::Overload;
use crate::mcp::request::respond;
use crate::mcp::request::respond::WireResponse;
use crate::mcp::session::preferences::sets_preference;
use crate::mcp::session::registry::SessionError;
use crate::mcp::session::state::{OpenStream, Session, SessionUse};
use crate::mcp::tasks::task_address::TaskAddress;
use crate::server::memory;
use crate::server::quota::Peer;
use crate::server::runtime::inline_call::{CallProgress, InlineCall};
use gripfast::large_message;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::AbortHandle;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::wire::envelope::{self, Message, OwnedRequest};
use gripfast::wire::era::InitializeParams;
use gripfast::wire::patch::Object;
use gripfast::wire::results::Cancelled;
use gripfast::wire::{Era, Id, ProtocolVersion, batch, codes, roots, sse};
use gripfast::{CallError, CallOutcome, Code, Destination, Json};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const MAX_BATCH: usize = 100;
/// An answer within this time is one JSON body. A slower one comes on an event stream, so that proxies do not cut an
/// idle connection and the client can resume it.
const STREAM_AFTER: Duration = Duration::from_secs(1);
/// Shortest reconnect delay for clients (`retry` of SSE).
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// Range of the delays, so that the clients of a lost replica do not all come back at once.
const RECONNECT_SPREAD: Duration = Duration::from_secs(1);
/// Interval of SSE comments on an idle stream, so that proxies do not close it.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(crate) fn router(gateway: Arc<Gateway>) -> Router {
    Router::new().route(Gateway::ENDPOINT, any(serve_routed)).with_state(gateway)
}

async fn serve_routed(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let peer = Peer::from_request(&request);
    serve(&gateway, request, peer).await
}

/// Answers a request to the MCP endpoint.
pub(crate) async fn serve<B>(gateway: &Arc<Gateway>, request: http::Request<B>, peer: Peer) -> Response
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let (head, body) = request.into_parts();
    match head.method {
        Method::POST => match body::read(&gateway.memory, peer, body).await {
            Ok(body) => {
                let body = body.with_trace_headers(&head.headers).with_credential(&head.extensions);
                post(gateway, &head, &body).await
            }
            Err(refusal) => *refusal,
        },
        // The modern era has neither GET streams nor sessions.
        Method::GET | Method::DELETE if is_modern(version_header(&head.headers).as_ref()) => {
            not_allowed("POST")
        }
        Method::GET => {
            if let Some(member) = gateway.sessions.member()
                && let Some(routing) = elsewhere(gateway, member, &head, None, &peer)
                && let Some(response) = routing.await
            {
                return response;
            }
            get(gateway, &head.headers, &peer).await
        }
        Method::DELETE => {
            if let Some(member) = gateway.sessions.member()
                && let Some(routing) = elsewhere(gateway, member, &head, None, &peer)
                && let Some(response) = routing.await
            {
                return response;
            }
            match find_session(gateway, &head.headers, version_header(&head.headers), &peer).await {
                Ok(session) => {
                    gateway.sessions.end(session.session()).await;
                    text_response(StatusCode::OK, "")
                }
                Err(refusal) => *refusal,
            }
        }
        _ => not_allowed("POST, GET, DELETE"),
    }
}

fn not_allowed(allowed: &'static str) -> Response {
    let mut response = text_response(StatusCode::METHOD_NOT_ALLOWED, "");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

async fn post(gateway: &Arc<Gateway>, head: &Parts, body: &ReceivedMessage) -> Response {
    let headers = &head.headers;
    if envelope::is_batch(&body.bytes) {
        if let Some(member) = gateway.sessions.member()
            && let Some(routing) = elsewhere(gateway, member, head, Some((body, None)), &body.peer)
            && let Some(response) = routing.await
        {
            return response;
        }
        return post_batch(gateway, headers, body).await;
    }
    let message = match Message::parse(&body.bytes) {
        Ok(message) => message,
        Err(error) => {
            return wire(
                respond::error(Era::Legacy, None, &era::parse_fault(&error)),
                StatusCode::BAD_REQUEST,
            );
        }
    };
    if let Some(member) = gateway.sessions.member()
        && let Some(routing) = elsewhere(gateway, member, head, Some((body, Some(&message))), &body.peer)
        && let Some(response) = routing.await
    {
        return response;
    }
    if let Err(fault) = era::check_depth(&body.bytes, gateway.max_nesting) {
        let (id, era) = (message.id(), Era::Legacy);
        if let Message::Response(_) = message
            && let Ok(in_use) = find_session(gateway, headers, version_header(headers), &body.peer).await
        {
            in_use.session().elicitations.fail(id, &fault);
        }
        return wire(respond::error(era, id, &fault), StatusCode::BAD_REQUEST);
    }
    let version = version_header(headers);
    match era_of(version.as_ref(), &message) {
        Ok(Era::Modern) => stateless_http::post(gateway, headers, &message, body).await,
        Ok(Era::Legacy) => post_legacy(gateway, headers, version, &message, body).await,
        Err(fault) => {
            // The error about an unsupported version only applies if header and body agree on it.
            let fault = match &message {
                Message::Request(request) if fault.code == codes::UNSUPPORTED_PROTOCOL_VERSION => {
                    stateless_http::verify(headers, request, None).err().unwrap_or(fault)
                }
                _ => fault,
            };
            wire(respond::error(Era::Modern, message.id(), &fault), StatusCode::BAD_REQUEST)
        }
    }
}

/// The response of another replica; `None` if this one serves the request, which the future may find out. `sent` is the
/// body of a POST, with its message unless it is a batch.
///
/// Boxed, because the future is large and most requests do not need it.
fn elsewhere<'a>(
    gateway: &'a Arc<Gateway>,
    member: &'a Arc<Member>,
    head: &'a Parts,
    sent: Option<(&'a ReceivedMessage, Option<&'a Message<'a>>)>,
    peer: &'a Peer,
) -> Option<BoxFuture<'a, Option<Response>>> {
    let target = target_of(gateway, member, head, sent.and_then(|(_, message)| message), peer)?;
    if member.serves(gateway, target, head) {
        return None;
    }
    Some(Box::pin(route_elsewhere(gateway, member, target, head, sent, peer)))
}

async fn route_elsewhere(
    gateway: &Arc<Gateway>,
    member: &Arc<Member>,
    target: Target<'_>,
    head: &Parts,
    sent: Option<(&ReceivedMessage, Option<&Message<'_>>)>,
    peer: &Peer,
) -> Option<Response> {
    let request = match sent.and_then(|(_, message)| message) {
        Some(Message::Request(request)) => Some(request),
        Some(Message::Notification(_) | Message::Response(_)) | None => None,
    };
    let nothing = Bytes::new();
    let message = RoutedMessage {
        forward: OutgoingForward { head, body: sent.map_or(&nothing, |(body, _)| &body.bytes), peer },
        request,
        era: if is_modern(version_header(&head.headers).as_ref()) { Era::Modern } else { Era::Legacy },
    };
    match member.route(gateway, target, &message).await {
        Routed::Here => None,
        Routed::Elsewhere(response) => Some(response),
    }
}

/// The process that a request concerns; `None` if any may serve it.
fn target_of<'a>(
    gateway: &Gateway,
    member: &Member,
    head: &'a Parts,
    message: Option<&Message<'_>>,
    peer: &'a Peer,
) -> Option<Target<'a>> {
    let headers = &head.headers;
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let version = version_header(headers);
    let boot = match message {
        Some(message) => match (message, era_of(version.as_ref(), message)) {
            (Message::Request(request), Ok(Era::Modern)) => {
                let params = Object::parse(request.params?).ok()?;
                let issuer = if request.method.starts_with("tasks/") {
                    TaskAddress::open(&gateway.tokens, &params.text("taskId")?)?.replica
                } else if let Some(state) = params.text("requestState") {
                    HeldCallId::issuer(&gateway.tokens, &state)?
                } else {
                    // The forwarder had a reason. This replica may have no servers any more, because it shuts down.
                    let is_forwarded = head.extensions.get::<ForwardedArrival>().is_some();
                    let goes_home = is_forwarded || needs_own_instance(gateway, &request.method, &params);
                    return goes_home.then_some(Target::Home(peer));
                };
                let boot = member.other_replica(&issuer)?;
                return Some(Target::Boot { boot, session: None });
            }
            (_, Ok(Era::Modern) | Err(_)) => return None,
            (Message::Request(request), Ok(Era::Legacy)) if request.method == "initialize" => return None,
            // The question was asked by the process that its id names. It may be alive again before a heartbeat reports it.
            (Message::Response(response), Ok(Era::Legacy)) => response.id.and_then(OpenElicitations::boot_of),
            (_, Ok(Era::Legacy)) => None,
        },
        // The stream of a call is at the process that its event ids name.
        None if head.method == Method::GET => {
            let point = text(LAST_EVENT_ID).and_then(|last| ResumePoint::parse(&gateway.tokens, last));
            point.filter(|point| point.issuer.name.is_some()).map(|point| point.issuer.boot)
        }
        None => None,
    };
    let session = text(SESSION_ID);
    match boot {
        Some(boot) => Some(Target::Boot { boot, session }),
        None => session.map(Target::Session),
    }
}

/// Returns whether a request of a client without a session is for a server of which this client has its own instance.
fn needs_own_instance(gateway: &Gateway, method: &str, params: &Object<'_>) -> bool {
    let catalog = gateway.host.catalog_snapshot();
    let listed = &catalog.merged;
    // An item without a server may be a tool of the gateway itself that calls another tool, or be listed only later.
    let is_per_client = |to: Option<Destination<'_>>| gateway.host.is_per_client(to.map(|to| to.server));
    let is_prompt_of_one = |name: &str| is_per_client(listed.prompt(name).map(|(to, _)| to));
    match method {
        "tools/call" => {
            params.text("name").is_some_and(|name| is_per_client(listed.tool(&name).map(|(to, _)| to)))
        }
        "prompts/get" => params.text("name").is_some_and(|name| is_prompt_of_one(&name)),
        "resources/read" => params.text("uri").is_some_and(|uri| is_per_client(listed.resource(&uri))),
        "completion/complete" => params.object("ref").is_some_and(|reference| {
            match (reference.text("name"), reference.text("uri")) {
                (Some(name), _) => is_prompt_of_one(&name),
                (None, Some(uri)) => is_per_client(listed.template_or_resource(&uri)),
                (None, None) => false,
            }
        }),
        _ => false,
    }
}

/// Era of a message, from its own context or the version header.
fn era_of(version: Option<&ProtocolVersion>, message: &Message<'_>) -> Result<Era, RpcFault> {
    let context = if is_modern(version) { EraContext::Modern } else { EraContext::Unknown };
    match (message, context) {
        (Message::Request(request), context) => era::detect(request, context),
        (Message::Notification(_) | Message::Response(_), EraContext::Modern) => Ok(Era::Modern),
        (Message::Notification(_) | Message::Response(_), EraContext::Unknown) => Ok(Era::Legacy),
    }
}

fn version_header(headers: &HeaderMap) -> Option<ProtocolVersion> {
    headers.get(PROTOCOL_VERSION).and_then(|value| value.to_str().ok()).map(ProtocolVersion::new)
}

fn is_modern(version: Option<&ProtocolVersion>) -> bool {
    version.is_some_and(|version| version.era() == Era::Modern)
}

async fn post_legacy(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    version: Option<ProtocolVersion>,
    message: &Message<'_>,
    body: &ReceivedMessage,
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
            let replay_buffer = Arc::new(ReplayBuffer::for_client(&session.client));
            let mut call =
                match begin_legacy(gateway, session, session.client.clone(), request, body, &replay_buffer) {
                    Ok(call) => call,
                    Err(overload) => return overload::overloaded(Some(request.id), &overload),
                };
            match call.until(tokio::time::timeout(STREAM_AFTER, replay_buffer.next(0))).await {
                CallProgress::Answered(answer) => answer.into_response(),
                // The call continues without the connection, so that the client can resume the stream.
                CallProgress::Wanted(_) => {
                    drop(call);
                    let number = session.keep_stream(Arc::clone(&replay_buffer));
                    let name = StreamName::issue(&gateway.tokens, number, request);
                    let opening = session.version.primes_streams().then(|| opening(&name));
                    let rest = replay_events(replay_buffer, 0, name, in_use);
                    stream(futures_util::stream::iter(opening.map(Ok)).chain(rest))
                }
            }
        }
        Message::Notification(notification) => {
            handle_notification(gateway, session, notification);
            text_response(StatusCode::ACCEPTED, "")
        }
        Message::Response(_) => {
            session.elicitations.resolve(body.counted());
            text_response(StatusCode::ACCEPTED, "")
        }
    }
}

/// Starts a call of a legacy client, which continues if the client disconnects.
fn begin_legacy(
    gateway: &Arc<Gateway>,
    session: &Arc<Session>,
    client: Arc<Client>,
    request: &envelope::Request<'_>,
    body: &ReceivedMessage,
    replay_buffer: &Arc<ReplayBuffer>,
) -> Result<InlineCall<ReplayBuffer>, Overload> {
    session.has_room()?;
    let admitted = gateway.admit(body)?;
    // The list in the answer is at least as new as these versions.
    if request.method.ends_with("/list") {
        let (principal, loaded) = (session.peer.principal(), client.loaded.names());
        let versions = gateway.list_changes.client_versions(&principal, &loaded);
        session.delivered().listed(&request.method, versions);
    }
    let elicitations = Arc::clone(&session.elicitations);
    let listener = Arc::new(LegacyListener {
        replay_buffer: Arc::clone(replay_buffer),
        elicitations,
        client: client.clone(),
    });
    let admitted_request = (request.to_owned_request(), admitted);
    let replay_buffer = Arc::clone(replay_buffer);
    let (call, _) =
        begin_call(gateway, Era::Legacy, admitted_request, replay_buffer, listener, client, Some(session));
    Ok(call)
}

fn handle_notification(gateway: &Gateway, session: &Session, notification: &envelope::Notification<'_>) {
    if notification.method == roots::CHANGED {
        gateway.roots_changed(&session.client);
    }
    if notification.method == Cancelled::METHOD
        && let Some(cancelled) = notification.params.and_then(Cancelled::read)
    {
        session.cancel(&cancelled.request_id.to_request_id());
    }
}

async fn post_batch(gateway: &Arc<Gateway>, headers: &HeaderMap, body: &ReceivedMessage) -> Response {
    let in_use = match find_session(gateway, headers, version_header(headers), &body.peer).await {
        Ok(in_use) => in_use,
        Err(refusal) => return *refusal,
    };
    let session = in_use.session();
    let refuse = |fault: &RpcFault| wire(respond::error(Era::Legacy, None, fault), StatusCode::BAD_REQUEST);
    if !session.version.allows_batches() {
        return refuse(&RpcFault::new(codes::INVALID_REQUEST, "this protocol version has no batches"));
    }
    let messages = match batch::split(&body.bytes, MAX_BATCH) {
        Ok(messages) => messages,
        Err(error) => return refuse(&era::batch_fault(&error)),
    };
    // One of them was counted with the HTTP request.
    let more = u32::try_from(messages.len()).unwrap_or(u32::MAX).saturating_sub(1);
    if let Some(limits) = gateway.request_limits.get()
        && let Err(too_many) = limits.spend(&body.peer, more)
    {
        return overload::too_many_requests(too_many);
    }
    let due: Vec<Arc<ReplayBuffer>> = messages
        .into_iter()
        .filter_map(|message| begin_member(gateway, session, &body.part(body.bytes.slice_ref(message))))
        .collect();
    let answers =
        futures_util::future::join_all(due.iter().map(|replay_buffer| replay_buffer.answer())).await;
    drop(due);
    match session.client.memory.join(answers.into_iter().flatten().collect()) {
        Some(joined) => json_response(joined, StatusCode::OK),
        None => text_response(StatusCode::ACCEPTED, ""),
    }
}

/// Starts one message of a batch. Like any call of a legacy client it continues if the client disconnects.
fn begin_member(
    gateway: &Arc<Gateway>,
    session: &Arc<Session>,
    message: &ReceivedMessage,
) -> Option<Arc<ReplayBuffer>> {
    let replay_buffer = Arc::new(ReplayBuffer::for_client(&session.client));
    let refuse = |id: Option<Id<'_>>, fault: &RpcFault| {
        replay_buffer.finish(Some(respond::error(Era::Legacy, id, fault).message.into()));
    };
    let parsed = Message::parse(&message.bytes);
    if let (Ok(parsed), Err(fault)) = (&parsed, era::check_depth(&message.bytes, gateway.max_nesting)) {
        match parsed {
            Message::Request(request) => refuse(Some(request.id), &fault),
            Message::Notification(_) => return None,
            Message::Response(response) => {
                session.elicitations.fail(response.id, &fault);
                return None;
            }
        }
        return Some(replay_buffer);
    }
    match parsed {
        Ok(Message::Request(request)) if request.method == "initialize" => {
            refuse(
                Some(request.id),
                &RpcFault::new(codes::INVALID_REQUEST, "`initialize` must not be part of a batch"),
            );
        }
        Ok(Message::Request(request)) => {
            // The client reads nothing before the whole batch is answered, so servers cannot send requests to it.
            let client = Arc::new(session.client.without_elicitation());
            match begin_legacy(gateway, session, client, &request, message, &replay_buffer) {
                Ok(call) => drop(call),
                Err(overload) => refuse(Some(request.id), &overload.fault()),
            }
        }
        Ok(Message::Notification(notification)) => {
            handle_notification(gateway, session, &notification);
            return None;
        }
        Ok(Message::Response(_)) => {
            session.elicitations.resolve(message.counted());
            return None;
        }
        Err(error) => refuse(None, &RpcFault::new(codes::INVALID_REQUEST, error.to_string())),
    }
    Some(replay_buffer)
}

async fn initialize(gateway: &Arc<Gateway>, id: Id<'_>, params: Option<&Json>, peer: &Peer) -> Response {
    let wanted = params.and_then(|params| InitializeParams::read(params).ok());
    let Some(wanted) = wanted else {
        let fault = RpcFault::new(codes::INVALID_PARAMS, "`initialize` needs parameters");
        return wire(respond::error(Era::Legacy, Some(id), &fault), StatusCode::OK);
    };
    let (version, result) = gateway.initialize(&wanted.version, &peer.principal()).await;
    let hello = match gateway.memory_of(peer).hold(envelope::response(id, &result)) {
        Ok(hello) => hello,
        Err(exhausted) => return overload::overloaded(Some(id), &Overload::memory(exhausted)),
    };
    let abilities = ElicitationSupport::from_capabilities(wanted.capabilities);
    let sent = gateway.list_changes.versions(&peer.principal());
    let session = match gateway.sessions.begin(&version, abilities, name_in(wanted.client_info), peer, sent) {
        Ok(session) => session,
        Err(error) => return *no_session(&error, Some(id)),
    };
    let mut response = json_response(hello, StatusCode::OK);
    if let Ok(id) = HeaderValue::from_str(&session.id) {
        response.headers_mut().insert(SESSION_ID, id);
    }
    response
}

/// GET stream of a legacy session: resumes the stream of a call, or delivers pending and future notifications.
async fn get(gateway: &Arc<Gateway>, headers: &HeaderMap, peer: &Peer) -> Response {
    let in_use = match find_session(gateway, headers, version_header(headers), peer).await {
        Ok(in_use) => in_use,
        Err(refusal) => return *refusal,
    };
    let session = in_use.session();
    let last = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    if let Some(point) = last.and_then(|last| ResumePoint::parse(&gateway.tokens, last)) {
        let known = match point.origin {
            IdOrigin::Here => session.stream(point.number),
            IdOrigin::Gone => None,
        };
        match (known, point.lost_answer()) {
            (Some(replay_buffer), _) => {
                return match Session::listen(in_use) {
                    Ok(listening) => {
                        stream(replay_events(replay_buffer, point.position, point.name, listening))
                    }
                    Err(overload) => overload::overloaded(None, &overload),
                };
            }
            // The stream belongs to another process, or ended too long ago. The client gets an error for its request.
            (None, Some(lost)) => {
                let event =
                    sse::Writer::new().id(&point.name.end_event_id(point.position)).data(&lost).finish();
                return stream(futures_util::stream::once(std::future::ready(Ok(event.into()))));
            }
            // The client had received the answer; it gets notifications as without an event id.
            (None, None) => {}
        }
    }
    if let Some((versions, changes)) = last.and_then(|last| parse_change_event_id(gateway, last)) {
        session.delivered().resume(versions);
        if let Some(changes) = changes {
            session.client.subscriptions.ack_up_to(changes);
        }
    }
    match Session::listen(in_use) {
        Ok(listening) => stream(chunks::events(change_events(gateway, listening))),
        Err(overload) => overload::overloaded(None, &overload),
    }
}

/// Notifications of changed lists and resources, pending and future. The session records which of them have arrived, so
/// none is lost between two streams.
fn change_events(
    gateway: &Arc<Gateway>,
    session: OpenStream,
) -> impl futures_util::Stream<Item = StreamEvent> + Send + 'static {
    session.session().rewind_to_acked();
    let get_stream = session.session().get_streams.open();
    let subscriptions = vec![Arc::clone(&session.session().client.subscriptions)];
    let feed = ChangeFeed::new(gateway, &session.session().client, subscriptions);
    let begin = (feed, ChangeStream { session, get_stream }, Arc::clone(gateway));
    futures_util::stream::unfold(begin, |(mut feed, change_stream, gateway)| async move {
        loop {
            let (session, get_stream) = (change_stream.session.session(), &change_stream.get_stream);
            let PendingChanges { messages, versions, updates } =
                feed.take(&mut session.delivered(), |_| true);
            if !messages.is_empty() {
                let id = change_event_id(&gateway, versions, updates);
                let events = messages.iter().flat_map(|one| sse::Writer::new().id(&id).data(one).finish());
                let events = StreamEvent::Whole(events.collect::<Vec<u8>>().into());
                return Some((events, (feed, change_stream, gateway)));
            }
            let changed = tokio::select! {
                changed = tokio::time::timeout(KEEP_ALIVE, feed.changed()) => changed,
                message = get_stream.next() => {
                    let event = StreamEvent::Message(sse::Writer::new().event("message"), message);
                    return Some((event, (feed, change_stream, gateway)));
                }
                () = session.ended.cancelled() => return None,
                () = gateway.shutting_down.cancelled() => return None,
            };
            match changed {
                Ok(changed) => changed?,
                Err(_) => {
                    // By now a closed connection would have been detected.
                    session.delivered().ack(versions);
                    session.client.subscriptions.ack();
                    return Some((StreamEvent::keep_alive(), (feed, change_stream, gateway)));
                }
            }
        }
    })
}

/// GET stream of a session. When it is dropped, notifications that are not acknowledged count as unsent.
struct ChangeStream {
    session: OpenStream,
    get_stream: GetStream,
}

impl Drop for ChangeStream {
    fn drop(&mut self) {
        self.session.session().rewind_to_acked();
    }
}

/// Event id with the list versions and the number of resource updates that were sent. Updates are counted per client
/// and process.
fn change_event_id(gateway: &Gateway, versions: ListVersions, changes: u64) -> String {
    match changes {
        0 => versions.to_event_id(),
        changes => format!("{}~{}-{changes}", versions.to_event_id(), gateway.tokens.boot()),
    }
}

/// Parses such an event id. The update count of another process is ignored.
fn parse_change_event_id(gateway: &Gateway, id: &str) -> Option<(ListVersions, Option<u64>)> {
    let (versions, changes) = match id.split_once('~') {
        Some((versions, changes)) => (versions, changes.split_once('-')),
        None => (id, None),
    };
    let ours = changes.filter(|(boot, _)| *boot == gateway.tokens.boot().to_string());
    Some((ListVersions::from_event_id(versions)?, ours.and_then(|(_, count)| count.parse().ok())))
}

/// Finds the session of a request, and marks it as in use.
async fn find_session(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    version: Option<ProtocolVersion>,
    peer: &Peer,
) -> Result<SessionUse, Box<Response>> {
    let refuse = |status, text: &str| {
        let fault = RpcFault::new(-32600, text);
        Box::new(wire(respond::error(Era::Legacy, None, &fault), status))
    };
    let Some(id) = headers.get(SESSION_ID).and_then(|id| id.to_str().ok()) else {
        return Err(refuse(StatusCode::BAD_REQUEST, "Bad Request: Missing session ID"));
    };
    if let Some(version) = version.filter(|version| !version.is_known()) {
        let text = format!("Bad Request: Unsupported protocol version: {version}");
        return Err(refuse(StatusCode::BAD_REQUEST, &text));
    }
    match gateway.sessions.find(id, peer, || unknown_versions(gateway, peer)).await {
        Ok(session) => {
            if session.take_restore_pending() {
                resubscribe(gateway, &session);
            }
            Ok(session.in_use())
        }
        Err(error) => Err(no_session(&error, None)),
    }
}

/// Re-establishes the subscriptions of a restored session in the background, until the session ends.
fn resubscribe(gateway: &Arc<Gateway>, session: &Session) {
    let (gateway, client, ended) = (Arc::clone(gateway), session.client.clone(), session.ended.clone());
    tokio::spawn(async move {
        let shutdown = gateway.shutting_down.clone();
        tokio::select! {
            () = gateway.resubscribe(&client.host_client, &client.subscriptions) => {}
            () = ended.cancelled() => {}
            () = shutdown.cancelled() => {}
        }
    });
}

/// Error response for a request without a valid session.
fn no_session(error: &SessionError, id: Option<Id<'_>>) -> Box<Response> {
    Box::new(match error {
        SessionError::Unknown => {
            let fault = RpcFault::new(codes::INVALID_REQUEST, "Session not found");
            wire(respond::error(Era::Legacy, id, &fault), StatusCode::NOT_FOUND)
        }
        SessionError::NoRoom(exhausted) => {
            overload::overloaded(id, &Overload::new(*exhausted, "sessions are in use"))
        }
        SessionError::NoEntropy => text_response(
            StatusCode::INTERNAL_SERVER_ERROR,
            "cannot create a session: the system provided no random numbers\n",
        ),
    })
}

/// Assumed list versions of a client whose session was restored. Its real ones are unknown, so it is notified once
/// about every list that is not empty.
fn unknown_versions(gateway: &Gateway, peer: &Peer) -> ListVersions {
    let principal = peer.principal();
    let (catalog, now) =
        (gateway.host.catalog_snapshot_for(&principal), gateway.list_changes.versions(&principal));
    let unless = |nothing: bool, version| if nothing { version } else { ListVersions::UNKNOWN };
    ListVersions {
        tools: unless(catalog.tools.is_empty(), now.tools),
        resources: unless(catalog.resources.is_empty() && catalog.templates.is_empty(), now.resources),
        prompts: unless(catalog.prompts.is_empty(), now.prompts),
    }
}

/// Starts one request, and writes its messages to `replay_buffer`. The client of a session can cancel it, and changed
/// preferences of the session are saved before the answer.
pub(crate) fn begin_call(
    gateway: &Arc<Gateway>,
    era: Era,
    (request, admitted): (OwnedRequest, AdmittedRequest),
    replay_buffer: Arc<ReplayBuffer>,
    listener: Arc<dyn Listener>,
    client: Arc<Client>,
    session: Option<&Arc<Session>>,
) -> (InlineCall<ReplayBuffer>, AbortHandle) {
    let gateway = Arc::clone(gateway);
    let (handle, registration) = AbortHandle::new_pair();
    let id = || request.as_request().id.to_request_id();
    let tracked = session.map(|session| session.track_call(id(), handle.clone()));
    let saved = session.filter(|_| sets_preference(&request.as_request().method)).cloned();
    let call = InlineCall::new(replay_buffer, tracked, registration, || async move {
        let request = request.as_request();
        let work = pin!(answer(&gateway, era, &request, listener, client));
        let answered = admitted.while_authorized(work).await?;
        if let Some(session) = saved {
            gateway.sessions.save_preferences(&session).await;
        }
        Some(answered)
    });
    (call, handle)
}

/// Response with its memory permit, and its HTTP status.
pub(crate) struct CountedResponse {
    pub(crate) message: Bytes,
    pub(crate) status: u16,
}

impl CountedResponse {
    pub(crate) fn into_response(self) -> Response {
        json_response(self.message, StatusCode::from_u16(self.status).unwrap_or(StatusCode::OK))
    }
}

/// Answers one request.
pub(crate) async fn answer(
    gateway: &Gateway,
    era: Era,
    request: &envelope::Request<'_>,
    listener: Arc<dyn Listener>,
    client: Arc<Client>,
) -> CountedResponse {
    let memory = Arc::clone(&client.memory);
    let outcome = match &*request.method {
        foreign if era::lacks(era, foreign) => RequestOutcome::Fault(RpcFault::new(
            codes::METHOD_NOT_FOUND,
            format!("method not found: {foreign}"),
        )),
        method => {
            gateway
                .dispatch(ClientRequest {
                    era,
                    id: request.id,
                    method,
                    params: request.params,
                    read_only: false,
                    listener,
                    client,
                })
                .await
        }
    };
    let always_fits = outcome.always_fits();
    // The reservation for the server's answer ends here; the response to the client acquires its own memory.
    let WireResponse { message, status } = large_message::process(outcome.size(), || {
        respond::respond(era, &request.method, request.id, outcome)
    })
    .await;
    if always_fits {
        return CountedResponse { message: memory.hold_unchecked(message), status };
    }
    match memory.hold(message) {
        Ok(message) => CountedResponse { message, status },
        Err(exhausted) => {
            let text = format!("no memory for the answer: {}", memory::explanation(exhausted));
            let failed = CallError::new(Code::Overloaded, "", CallOutcome::Done, text)
                .with_hint("read the pending answers, and request less at a time");
            let WireResponse { message, status } =
                respond::respond(era, &request.method, request.id, RequestOutcome::Failed(failed));
            CountedResponse { message: memory.hold_unchecked(message), status }
        }
    }
}

/// Listener for a call of a legacy client: notifications and requests of the server go to its stream.
struct LegacyListener {
    replay_buffer: Arc<ReplayBuffer>,
    elicitations: Arc<PendingElicitations>,
    client: Arc<Client>,
}

impl Listener for LegacyListener {
    fn on_message(&self, message: &[u8]) {
        if self.client.wants(message) {
            self.replay_buffer.push(Bytes::copy_from_slice(message));
        }
    }

    fn on_request(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        if !self.client.memory.has_room(request.len()) {
            return None;
        }
        let replay_buffer = Arc::clone(&self.replay_buffer);
        self.elicitations
            .elicit(self.client.abilities, &request, move |message| replay_buffer.push_required(message))
    }
}

/// First event of a stream: only an id to resume from, and the reconnect delay.
fn opening(name: &StreamName) -> Bytes {
    let id = name.event_id(0);
    // The id is encrypted, so its bytes are as good as random ones.
    let share = id.bytes().fold(0_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(u16::from(byte)));
    let delay = RECONNECT_DELAY + RECONNECT_SPREAD * u32::from(share) / u32::from(u16::MAX);
    sse::Writer::new().id(&id).retry(delay).data(b"").finish().into()
}

/// Messages of one call as events, from `position` on.
fn replay_events(
    replay_buffer: Arc<ReplayBuffer>,
    position: usize,
    name: StreamName,
    user: impl Send + 'static,
) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let position = position.min(replay_buffer.next_position());
    let events = futures_util::stream::unfold(
        (replay_buffer, position, name, user),
        move |(replay_buffer, position, name, user)| async move {
            let (event, position) = match tokio::time::timeout(KEEP_ALIVE, replay_buffer.next(position)).await
            {
                Err(_) => (StreamEvent::keep_alive(), position),
                Ok(ReplayItem::End) => return None,
                Ok(ReplayItem::Message(message, next)) => {
                    let id = if replay_buffer.is_answered_before(next) {
                        name.end_event_id(next)
                    } else {
                        name.event_id(next)
                    };
                    (StreamEvent::Message(sse::Writer::new().id(&id), message), next)
                }
            };
            Some((event, (replay_buffer, position, name, user)))
        },
    );
    chunks::events(events)
}

/// Response with an event stream.
pub(crate) fn stream(
    events: impl futures_util::Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    response
}

pub(crate) fn json_response(body: Bytes, status: StatusCode) -> Response {
    let mut response = Response::new(chunks::body(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(crate) fn wire(response: WireResponse, status: StatusCode) -> Response {
    json_response(response.message.into(), status)
}

pub(crate) fn text_response(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::TokenCipher;
    use crate::mcp::transport::event_id::tests::{CALL, name};

    /// The future of a request is copied when it begins. What only replicas need is boxed.
    #[tokio::test]
    async fn the_future_of_a_request_does_not_grow() {
        const BOUND: usize = 2968;
        let host = gripfast::Host::builder().build();
        let gateway = Gateway::new(host, TokenCipher::ephemeral().unwrap(), &crate::mcp::Limits::default());
        let request = http::Request::new(http_body_util::Full::new(Bytes::new()));
        let served = serve(&gateway, request, Peer::local());
        assert!(size_of_val(&served) <= BOUND, "{} bytes", size_of_val(&served));
    }

    #[test]
    fn the_reconnect_delays_of_streams_differ() {
        let tokens = TokenCipher::ephemeral().unwrap();
        let delay = |_: u32| -> u64 {
            let text = String::from_utf8(opening(&name(&tokens, CALL)).to_vec()).unwrap();
            let delay = text.lines().find_map(|line| line.strip_prefix("retry: "));
            delay.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
        };
        let delays: Vec<u64> = (0..1000).map(delay).collect();
        assert!(delays.iter().all(|delay| (500..=1500).contains(delay)), "{delays:?}");
        for tenth in 0..10 {
            let range = 500 + tenth * 100..600 + tenth * 100;
            let count = delays.iter().filter(|delay| range.contains(*delay)).count();
            assert!((50..150).contains(&count), "{count} of 1000 delays in {range:?}");
        }
    }

    #[tokio::test]
    async fn c03_a_slow_reader_gets_the_number_of_dropped_messages_and_the_answer() {
        let tokens = TokenCipher::ephemeral().unwrap();
        let (replay_buffer, name) = (Arc::new(ReplayBuffer::default()), name(&tokens, CALL));
        let mut events = Box::pin(replay_events(Arc::clone(&replay_buffer), 0, name.clone(), ()));
        replay_buffer.push(Bytes::from_static(b"{}"));
        let Ok(first) = events.next().await.unwrap();
        assert!(first.starts_with(format!("id: {}\n", name.event_id(1)).as_bytes()), "{first:?}");
        for _ in 0..5000 {
            replay_buffer.push(Bytes::from_static(b"{}"));
        }
        let Ok(notice) = events.next().await.unwrap();
        assert!(String::from_utf8_lossy(&notice).contains("3976 messages were dropped"), "{notice:?}");
        replay_buffer.finish(Some(Bytes::from_static(b"[]")));
        let Ok(last) = events.collect::<Vec<_>>().await.pop().unwrap();
        assert_eq!(
            last,
            format!("id: {}\ndata: []\n\n", name.end_event_id(5002)),
            "no answer comes after it"
        );
        let again: Vec<_> = replay_events(replay_buffer, 1, name, ()).collect().await;
        assert_eq!(again.len(), 1 + 1024 + 1, "a client that resumes gets the same");
    }
}

//! Bridge between a client of `gripfast stdio` and a running gateway, over a Unix socket.
//!
//! The bridge sends one line with the names of the environment variables that its config needs, the gateway answers
//! with one line of their digests, and from then on the socket carries MCP as stdin and stdout do. When the gateway
//! goes away, the bridge restores the client's session at the next one: it repeats the handshake, the log level, the
//! subscriptions and read-only requests. A tool call that was in flight is answered with `outcome_unknown`.

use super::stdio::{ClientLine, next_line};
use crate::mcp::Gateway;
use crate::mcp::request::dispatch::{RequestOutcome, RpcFault};
use crate::mcp::request::era;
use crate::mcp::request::era::EraContext;
use crate::mcp::request::respond;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use gripfast::sync::Mutex;
use gripfast::wire::envelope::{self, Message, Notification, Request};
use gripfast::wire::results::{self, Cancelled};
use gripfast::wire::{Era, RequestId, batch, codes};
use gripfast::{CallError, CallOutcome, Code};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf,
};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// Maximum size of the first line of either side.
const MAX_HELLO: u64 = 256 << 10;
/// Timeout for the first line of either side.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request that is kept for repetition.
const MAX_REPEATED: usize = 64 << 10;
/// Maximum number of messages in a batch; the gateway accepts no more.
const MAX_BATCH: usize = 100;
/// Maximum number of restored subscriptions; the gateway allows no more per client.
const MAX_SUBSCRIPTIONS: usize = 1000;
/// Maximum number of tracked requests; the gateway allows no more per client.
const MAX_IN_FLIGHT: usize = 1024;
/// Lines that may wait for a client that does not read.
const QUEUE_LEN: usize = 64;
const TOO_LONG: &str = "the message exceeds the limit of 16 MiB and was not read";
const GONE: &str = "the connection to the gateway was lost";
const LOST: &str = "the connection to the gateway was lost during this request; it is unknown whether the request was carried out";
/// Prefix of the ids of the bridge's own requests.
const OWN_ID_PREFIX: &str = "gripfast-bridge-";

/// Name of the socket of the gateway for this config file in the state directory. Each gateway version has its own
/// name.
#[must_use]
pub fn socket_name(config: &Path, version: &str) -> String {
    let config = std::fs::canonicalize(config).unwrap_or_else(|_| config.to_owned());
    let text = [config.as_os_str().as_bytes(), b"\0", version.as_bytes()].concat();
    let digest = digest::digest(&digest::SHA256, &text);
    digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// First line of a bridge.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    /// Names of the environment variables that its config needs.
    variables: BTreeSet<String>,
}

/// First line of a gateway.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    /// HMAC key of the digests, new for each connection.
    salt: String,
    /// Digest of each variable; `None` if it is not set.
    variables: BTreeMap<String, Option<String>>,
}

impl Answer {
    fn to(hello: Hello, environment: impl Fn(&str) -> Option<OsString>) -> io::Result<Self> {
        let mut salt = [0; 32];
        SystemRandom::new().fill(&mut salt).map_err(|_| io::Error::other("no random numbers"))?;
        let salt = STANDARD_NO_PAD.encode(salt);
        let variables = hello.variables.into_iter().map(|name| {
            let value = environment(&name).map(|value| digest_of(&salt, &value));
            (name, value)
        });
        let variables = variables.collect();
        Ok(Self { salt, variables })
    }

    /// Variables that have another value in this process.
    fn mismatches(&self, environment: impl Fn(&str) -> Option<OsString>) -> Vec<String> {
        let differs = |(name, there): &(&String, &Option<String>)| {
            environment(name).map(|value| digest_of(&self.salt, &value)) != **there
        };
        self.variables.iter().filter(differs).map(|(name, _)| name.clone()).collect()
    }
}

fn digest_of(salt: &str, value: &OsString) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, salt.as_bytes());
    STANDARD_NO_PAD.encode(hmac::sign(&key, value.as_bytes()))
}

fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Serves the client of one bridge.
pub(crate) async fn serve(gateway: &Arc<Gateway>, stream: UnixStream) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let hello: Hello = first_line(&mut reader).await?;
    let mut answer = serde_json::to_vec(&Answer::to(hello, environment)?)?;
    answer.push(b'\n');
    writer.write_all(&answer).await?;
    gateway.serve_stdio(reader, writer).await
}

async fn first_line<T: for<'de> Deserialize<'de>>(
    reader: &mut (impl AsyncBufReadExt + Unpin),
) -> io::Result<T> {
    let mut line = Vec::new();
    let mut limited = reader.take(MAX_HELLO);
    let read = limited.read_until(b'\n', &mut line);
    let read = tokio::time::timeout(HELLO_TIMEOUT, read).await.map_err(|_| io::ErrorKind::TimedOut)?;
    if read? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

/// Stream in both directions.
pub trait DuplexStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> DuplexStream for S {}

/// Connection that carries the lines of one client.
pub type BridgeConnection = Box<dyn DuplexStream>;

/// Reason why a running gateway cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// These variables have other values there.
    #[error("environment variables of the config have other values in the running gateway: {}", .0.join(", "))]
    EnvironmentMismatch(Vec<String>),
    /// The gateway is gone or does not answer.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Joins the gateway at the other end, for a config that needs these variables.
///
/// # Errors
/// See [`JoinError`].
pub async fn join(stream: UnixStream, variables: BTreeSet<String>) -> Result<BridgeConnection, JoinError> {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut hello = serde_json::to_vec(&Hello { variables }).map_err(io::Error::from)?;
    hello.push(b'\n');
    writer.write_all(&hello).await?;
    let mut reader = BufReader::new(reader);
    let answer: Answer = first_line(&mut reader).await?;
    match answer.mismatches(environment) {
        differing if differing.is_empty() => Ok(Box::new(tokio::io::join(reader, writer))),
        differing => Err(JoinError::EnvironmentMismatch(differing)),
    }
}

/// Forwards the lines of a client over `connection` until the client leaves. When a connection is lost, continues with
/// the next one from `reconnect`.
///
/// # Errors
/// Errors of `reconnect`, and of writing to `output`.
pub async fn run<E: From<io::Error>>(
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    mut connection: BridgeConnection,
    mut reconnect: impl AsyncFnMut() -> Result<BridgeConnection, E>,
) -> Result<(), E> {
    let (to_bridge, mut lines) = mpsc::channel(1);
    let (out, queue) = mpsc::channel(QUEUE_LEN);
    tokio::spawn(read(input, to_bridge));
    let mut writing = tokio::spawn(write(output, queue));
    let session = Mutex::new(Session::default());
    let carrying = async {
        let mut first = Vec::new();
        loop {
            let (reader, writer) = tokio::io::split(connection);
            let has_left = {
                let mut down = pin!(to_client(reader, &out, &session));
                let up = pin!(to_gateway(writer, first, &mut lines, &out, &session));
                tokio::select! {
                    () = &mut down => false,
                    _open = up => {
                        // The client has closed its input, and may still wait for answers.
                        down.await;
                        true
                    }
                }
            };
            if has_left {
                drop(out);
                return Ok::<(), E>(());
            }
            let lost = session.lock().fail_in_flight();
            for message in lost {
                let _ = out.send(message).await;
            }
            connection = reconnect().await?;
            let (repeated, notifications) = session.lock().restore();
            first = repeated;
            for message in notifications {
                let _ = out.send(message).await;
            }
        }
    };
    tokio::select! {
        carried = carrying => carried?,
        // The client does not read any more.
        written = &mut writing => return Ok(joined(written)?),
    }
    Ok(joined(writing.await)?)
}

fn joined(written: Result<io::Result<()>, tokio::task::JoinError>) -> io::Result<()> {
    written.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Reads the lines of the client, independent of the connection.
async fn read(input: impl AsyncRead + Unpin, to_bridge: mpsc::Sender<ClientLine>) {
    let mut input = BufReader::new(input);
    while let Ok(Some(line)) = next_line(&mut input).await {
        if to_bridge.send(line).await.is_err() {
            return;
        }
    }
}

async fn write(mut output: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Bytes>) -> io::Result<()> {
    while let Some(line) = queue.recv().await {
        output.write_all(&line).await?;
        if !line.ends_with(b"\n") {
            output.write_all(b"\n").await?;
        }
        output.flush().await?;
    }
    Ok(())
}

/// Forwards the messages of the gateway until the connection ends.
async fn to_client(reader: ReadHalf<BridgeConnection>, out: &mpsc::Sender<Bytes>, session: &Mutex<Session>) {
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        match reader.read_until(b'\n', &mut line).await {
            // An incomplete line is not a message.
            Ok(_) if line.ends_with(b"\n") => {}
            Ok(_) | Err(_) => return,
        }
        if session.lock().observe_gateway(&line) && out.send(line.into()).await.is_err() {
            return;
        }
    }
}

/// Sends `first` and then the lines of the client. Ends with the client; the end of the connection is detected by
/// [`to_client`], which still forwards the last answers.
async fn to_gateway(
    mut writer: WriteHalf<BridgeConnection>,
    first: Vec<Bytes>,
    lines: &mut mpsc::Receiver<ClientLine>,
    out: &mpsc::Sender<Bytes>,
    session: &Mutex<Session>,
) -> WriteHalf<BridgeConnection> {
    let mut first = first.into_iter();
    loop {
        let line = match first.next() {
            Some(line) => line,
            None => match lines.recv().await {
                Some(ClientLine::Whole(line)) => {
                    let line = Bytes::from(line);
                    session.lock().observe_client(&line);
                    line
                }
                Some(ClientLine::TooLong { beginning, end }) => {
                    let id = envelope::request_id(&beginning, &end);
                    let fault = RpcFault::new(codes::INVALID_REQUEST, TOO_LONG);
                    let id = id.as_ref().map(RequestId::as_id);
                    let _ = out.send(respond::error(Era::Legacy, id, &fault).message.into()).await;
                    continue;
                }
                None => {
                    let _ = writer.shutdown().await;
                    return writer;
                }
            },
        };
        let end: &[u8] = if line.ends_with(b"\n") { b"" } else { b"\n" };
        let sent = async {
            writer.write_all(&line).await?;
            writer.write_all(end).await?;
            writer.flush().await
        };
        if sent.await.is_err() {
            std::future::pending::<()>().await;
        }
        session.lock().mark_sent();
    }
}

/// Session state of a client that must be restored at the next gateway, and requests that must be answered when a
/// gateway is lost.
#[derive(Default)]
struct Session {
    /// Handshake of a legacy client.
    initialize: Option<(RequestId, Bytes)>,
    is_initialized: bool,
    log_level: Option<Bytes>,
    /// By URI.
    subscriptions: BTreeMap<String, Bytes>,
    in_flight: HashMap<RequestId, InFlight>,
    /// Requests that the gateway cannot have seen yet, because their line is not completely written.
    unsent: Vec<RequestId>,
    /// Requests of the gateway that the client has not answered.
    server_requests: HashSet<RequestId>,
    /// Number of the bridge's own requests so far.
    own_ids: u64,
}

/// Request that is not answered yet.
struct InFlight {
    era: Era,
    method: String,
    is_repeatable: bool,
    /// The request, if it may be sent again: always before it was first sent, afterwards only if it is repeatable.
    line: Option<Bytes>,
}

impl Session {
    fn observe_client(&mut self, line: &Bytes) {
        for message in messages(line) {
            let whole = line.slice_ref(message);
            match Message::parse(message) {
                Ok(Message::Request(request)) => self.observe_request(&request, &whole),
                Ok(Message::Notification(notification)) => match &*notification.method {
                    "notifications/initialized" => self.is_initialized = true,
                    // The request may never be answered.
                    Cancelled::METHOD => drop(cancelled(&notification).map(|id| self.in_flight.remove(&id))),
                    _ => {}
                },
                Ok(Message::Response(response)) => {
                    response.id.map(|id| self.server_requests.remove(&id.to_request_id()));
                }
                Err(_) => {}
            }
        }
    }

    fn observe_request(&mut self, request: &Request<'_>, line: &Bytes) {
        let uri = || {
            serde_json::from_str::<SubscriptionParams>(request.params?.get()).ok().map(|params| params.uri)
        };
        // A slice would keep a whole large batch in memory.
        let copy = || Bytes::copy_from_slice(line);
        match &*request.method {
            "initialize" => self.initialize = Some((request.id.to_request_id(), copy())),
            "logging/setLevel" => self.log_level = Some(copy()),
            "resources/subscribe" if self.subscriptions.len() < MAX_SUBSCRIPTIONS => {
                self.subscriptions.extend(uri().map(|uri| (uri, copy())));
            }
            "resources/unsubscribe" => drop(uri().map(|uri| self.subscriptions.remove(&uri))),
            _ => {}
        }
        if self.in_flight.len() < MAX_IN_FLIGHT {
            let is_repeatable = is_read_only(&request.method) && line.len() <= MAX_REPEATED;
            let era = era::detect(request, EraContext::Unknown).unwrap_or(Era::Legacy);
            let line = Some(if is_repeatable { copy() } else { line.clone() });
            let in_flight = InFlight { era, method: request.method.to_string(), is_repeatable, line };
            self.in_flight.insert(request.id.to_request_id(), in_flight);
            self.unsent.push(request.id.to_request_id());
        }
    }

    /// Marks everything from the client as seen by the gateway.
    fn mark_sent(&mut self) {
        for id in self.unsent.drain(..) {
            if let Some(request) = self.in_flight.get_mut(&id).filter(|request| !request.is_repeatable) {
                request.line = None;
            }
        }
    }

    /// Returns true if the line is for the client.
    fn observe_gateway(&mut self, line: &[u8]) -> bool {
        let mut is_for_client = true;
        for message in messages(line) {
            match Message::parse(message) {
                Ok(Message::Response(response)) => {
                    if let Some(id) = response.id {
                        is_for_client &= !id.as_text().is_some_and(|text| text.starts_with(OWN_ID_PREFIX));
                        self.in_flight.remove(&id.to_request_id());
                    }
                }
                Ok(Message::Request(request)) => {
                    self.server_requests.insert(request.id.to_request_id());
                }
                Ok(Message::Notification(notification)) => {
                    cancelled(&notification).map(|id| self.server_requests.remove(&id));
                }
                Err(_) => {}
            }
        }
        is_for_client
    }

    /// Messages for the client when the gateway is lost: errors for requests that are not repeated, and cancellations
    /// of server requests.
    fn fail_in_flight(&mut self) -> Vec<Bytes> {
        let server_requests = std::mem::take(&mut self.server_requests);
        let withdrawn = server_requests.iter().map(|id| results::cancelled(id.as_id(), Some(GONE)).into());
        let mut messages: Vec<Bytes> = withdrawn.collect();
        self.in_flight.retain(|id, request| {
            if request.line.is_none() {
                let lost = CallError::new(Code::OutcomeUnknown, "", CallOutcome::Unknown, LOST).with_hint(
                    "check the effect before you repeat the call; `gripfast calls` shows what is known about it",
                );
                let answer = respond::respond(request.era, &request.method, id.as_id(), RequestOutcome::Failed(lost));
                messages.push(answer.message.into());
            }
            request.line.is_some()
        });
        messages
    }

    /// First messages for the next gateway, and notifications for the client.
    fn restore(&mut self) -> (Vec<Bytes>, Vec<Bytes>) {
        let mut first = Vec::new();
        let initialize = self.initialize.clone();
        if let Some((id, line)) = &initialize {
            match self.in_flight.contains_key(id) {
                true => first.push(line.clone()),
                false => first.extend(self.with_own_id(line)),
            }
        }
        if self.is_initialized {
            first.push(envelope::notification("notifications/initialized", None).into());
        }
        let session_setup: Vec<Bytes> =
            self.log_level.iter().chain(self.subscriptions.values()).cloned().collect();
        first.extend(session_setup.iter().filter_map(|line| self.with_own_id(line)));
        let is_sent = |id: &RequestId| initialize.as_ref().is_some_and(|(sent, _)| sent == id);
        let in_flight = self.in_flight.iter().filter(|(id, _)| !is_sent(id));
        first.extend(in_flight.filter_map(|(_, request)| request.line.clone()));
        // The client missed list changes while it was disconnected.
        let lists = ["tools", "resources", "prompts"].into_iter().filter(|_| self.is_initialized);
        let notifications =
            lists.map(|list| envelope::notification(&format!("notifications/{list}/list_changed"), None));
        (first, notifications.map(Bytes::from).collect())
    }

    /// Replaces the id of a request by one of the bridge, so that the answer is not forwarded to the client.
    fn with_own_id(&mut self, line: &Bytes) -> Option<Bytes> {
        self.own_ids += 1;
        let id = RequestId::from(format!("{OWN_ID_PREFIX}{}", self.own_ids).as_str());
        envelope::with_id(line, id.as_id()).ok().map(Bytes::from)
    }
}

/// Parameters of a subscription.
#[derive(Deserialize)]
struct SubscriptionParams {
    uri: String,
}

/// Messages in a line.
fn messages(line: &[u8]) -> Vec<&[u8]> {
    match envelope::is_batch(line) {
        true => batch::split(line, MAX_BATCH).unwrap_or_default(),
        false => vec![line],
    }
}

fn cancelled(notification: &Notification<'_>) -> Option<RequestId> {
    let params = notification.params.filter(|_| notification.method == Cancelled::METHOD)?;
    Cancelled::read(params).map(|cancelled| cancelled.request_id.to_request_id())
}

/// Tests if a request may be sent twice without harm.
fn is_read_only(method: &str) -> bool {
    matches!(
        method,
        "initialize"
            | "ping"
            | "server/discover"
            | "tools/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "prompts/list"
            | "prompts/get"
            | "completion/complete"
            | "logging/setLevel"
            | "subscriptions/listen"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn line(message: &Value) -> Bytes {
        Bytes::from(format!("{message}\n"))
    }

    fn request(id: u64, method: &str, params: &Value) -> Bytes {
        line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
    }

    fn read_all(lines: &[Bytes]) -> Vec<Value> {
        lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    fn methods(lines: &[Bytes]) -> Vec<String> {
        read_all(lines).iter().map(|one| one["method"].as_str().unwrap().to_owned()).collect()
    }

    fn answer(session: &mut Session, id: &Value) -> bool {
        session.observe_gateway(&line(&json!({ "jsonrpc": "2.0", "id": id, "result": {} })))
    }

    #[test]
    fn session_state_is_restored_at_the_next_gateway_unseen_by_the_client() {
        let mut session = Session::default();
        session.observe_client(&request(1, "initialize", &json!({ "protocolVersion": "2025-11-25" })));
        assert!(answer(&mut session, &json!(1)));
        session.observe_client(&line(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })));
        session.observe_client(&request(2, "logging/setLevel", &json!({ "level": "debug" })));
        session.observe_client(&request(3, "resources/subscribe", &json!({ "uri": "a:1" })));
        session.observe_client(&request(4, "resources/subscribe", &json!({ "uri": "a:2" })));
        session.observe_client(&request(5, "resources/unsubscribe", &json!({ "uri": "a:1" })));
        for id in 2..=5 {
            assert!(answer(&mut session, &json!(id)));
        }
        assert!(session.fail_in_flight().is_empty());
        let (first, notifications) = session.restore();
        let expected = ["initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe"];
        assert_eq!(methods(&first), expected);
        let first = read_all(&first);
        assert_eq!(
            (&first[0]["params"]["protocolVersion"], &first[3]["params"]["uri"]),
            (&json!("2025-11-25"), &json!("a:2"))
        );
        for one in first.iter().filter(|one| !one["id"].is_null()) {
            assert!(!answer(&mut session, &one["id"]), "{one}");
        }
        assert_eq!(notifications.len(), 3, "the lists may have changed");
    }

    #[test]
    fn read_only_requests_are_repeated_and_others_have_an_unknown_outcome() {
        let mut session = Session::default();
        session.observe_client(&request(1, "initialize", &json!({})));
        session.observe_client(&request(2, "tools/list", &json!({})));
        session.observe_client(&request(3, "tools/call", &json!({ "name": "pay" })));
        session.observe_client(&request(4, "tools/call", &json!({ "name": "pay" })));
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 4 } });
        session.observe_client(&line(&cancel));
        session.mark_sent();
        session.observe_client(&request(5, "tools/call", &json!({ "name": "pay" })));
        let messages = read_all(&session.fail_in_flight());
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert_eq!(messages[0]["id"], 3);
        assert_eq!(
            messages[0]["result"]["_meta"]["gripfast/failure"]["code"], "outcome_unknown",
            "{messages:?}"
        );
        let (first, notifications) = session.restore();
        let mut first: Vec<u64> = read_all(&first).iter().map(|one| one["id"].as_u64().unwrap()).collect();
        first[1..].sort_unstable();
        assert_eq!(
            (first, notifications.len()),
            (vec![1, 2, 5], 0),
            "also a call that the gateway has not seen"
        );
        session.mark_sent();
        assert_eq!(session.fail_in_flight().len(), 1, "now it has");
    }

    #[test]
    fn requests_of_a_lost_gateway_are_cancelled() {
        let mut session = Session::default();
        for id in ["gripfast-7", "gripfast-8"] {
            let ask = json!({ "jsonrpc": "2.0", "id": id, "method": "roots/list" });
            assert!(session.observe_gateway(&line(&ask)));
        }
        session.observe_client(&line(&json!({ "jsonrpc": "2.0", "id": "gripfast-7", "result": {} })));
        let messages = read_all(&session.fail_in_flight());
        assert_eq!(messages.len(), 1, "{messages:?}");
        let (method, id) = (&messages[0]["method"], &messages[0]["params"]["requestId"]);
        assert_eq!((method, id), (&json!("notifications/cancelled"), &json!("gripfast-8")));
        assert!(session.fail_in_flight().is_empty());
    }

    #[test]
    fn differing_variables_are_named_without_their_values() {
        let here = |name: &str| match name {
            "SAME" => Some("same".into()),
            "OTHER" | "ONLY_HERE" => Some("hunter22".into()),
            _ => None,
        };
        let there = |name: &str| match name {
            "SAME" => Some("same".into()),
            "OTHER" | "ONLY_THERE" => Some("hunter23".into()),
            _ => None,
        };
        let names = ["SAME", "OTHER", "ONLY_HERE", "ONLY_THERE", "NOWHERE"].map(str::to_owned);
        let answer = Answer::to(Hello { variables: names.into() }, there).unwrap();
        assert_eq!(answer.mismatches(here), ["ONLY_HERE", "ONLY_THERE", "OTHER"]);
        let again = Answer::to(Hello { variables: ["SAME".to_owned()].into() }, there).unwrap();
        assert_ne!(answer.variables["SAME"], again.variables["SAME"], "under another salt");
        assert!(!serde_json::to_string(&answer).unwrap().contains("hunter"));
    }

    #[test]
    fn the_socket_name_depends_on_config_and_version() {
        let (one, other) = (Path::new("/etc/a.toml"), Path::new("/etc/b.toml"));
        assert_eq!(socket_name(one, "1.0.0"), socket_name(one, "1.0.0"));
        assert!(
            socket_name(one, "1.0.0") != socket_name(other, "1.0.0")
                && socket_name(one, "1.0.0") != socket_name(one, "1.0.1")
        );
    }
}

//! The bridge between a client of `gripfast stdio` and a gateway that runs already, over a unix socket.
//!
//! The bridge sends one line with the names of the variables that its config needs, the gateway answers with one line of
//! their digests, and from then on the socket carries MCP as stdin and stdout do. When the gateway goes away, the bridge
//! restores the client's session at the next one: it repeats the handshake, the log level, the subscriptions and requests
//! that change nothing. A tool call that was in flight is answered with `outcome_unknown`.

use super::Gateway;
use super::ask::{Fault, Told};
use super::era::{self, Around};
use super::respond;
use super::stdio::{Line, next_line};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use gripfast::wire::envelope::{self, Message, Notification, Request};
use gripfast::wire::results::{self, Cancelled};
use gripfast::wire::{Era, RequestId, batch, codes};
use gripfast::{CallError, Code, Fate};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf,
};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// The largest first line of either side.
const LARGEST_HELLO: u64 = 256 << 10;
/// Time for the first line of either side.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// A request that is larger is not kept to be repeated.
const LARGEST_REPEATED: usize = 64 << 10;
/// Messages of a batch that are looked at, which are all that a gateway takes.
const LARGEST_BATCH: usize = 100;
/// Subscriptions that are restored, which are all that a gateway lets a client have.
const MOST_SUBSCRIPTIONS: usize = 1000;
/// Requests in flight that are kept, which are all that a gateway lets a client have.
const MOST_IN_FLIGHT: usize = 1024;
/// Lines that may wait for a client that does not read.
const QUEUED: usize = 64;
const TOO_LONG: &str = "the message is over the limit of 16 MiB, and was not read";
const GONE: &str = "the gateway went away";
const LOST: &str =
    "the gateway went away during this request; whether the request was carried out is unknown";
/// The ids of requests that the bridge makes itself begin with this.
const OWN: &str = "gripfast-bridge-";

/// The name under which a gateway for this config file is found in its state directory. Gateways of another version
/// have another name.
#[must_use]
pub fn name(config: &Path, version: &str) -> String {
    let config = std::fs::canonicalize(config).unwrap_or_else(|_| config.to_owned());
    let text = [config.as_os_str().as_bytes(), b"\0", version.as_bytes()].concat();
    let digest = digest::digest(&digest::SHA256, &text);
    digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first line of a bridge.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    /// The names of the variables that its config needs.
    variables: BTreeSet<String>,
}

/// The first line of a gateway.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    /// The key of the digests, made for this connection.
    salt: String,
    /// The digest of each variable; `None` where it is not set.
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

    /// The variables that have another value here.
    fn differing(&self, environment: impl Fn(&str) -> Option<OsString>) -> Vec<String> {
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
    let mut limited = reader.take(LARGEST_HELLO);
    let read = limited.read_until(b'\n', &mut line);
    let read = tokio::time::timeout(HELLO_WITHIN, read).await.map_err(|_| io::ErrorKind::TimedOut)?;
    if read? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

/// A stream in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that carries the lines of one client.
pub type Connection = Box<dyn Stream>;

/// Why a gateway that runs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NotJoined {
    /// These variables have other values there.
    #[error("variables that the config needs have other values in the running gateway: {}", .0.join(", "))]
    OtherVariables(Vec<String>),
    /// It went away, or does not answer.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Joins the gateway at the other end, for a config that needs these variables.
///
/// # Errors
/// See [`NotJoined`].
pub async fn join(stream: UnixStream, variables: BTreeSet<String>) -> Result<Connection, NotJoined> {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut hello = serde_json::to_vec(&Hello { variables }).map_err(io::Error::from)?;
    hello.push(b'\n');
    writer.write_all(&hello).await?;
    let mut reader = BufReader::new(reader);
    let answer: Answer = first_line(&mut reader).await?;
    match answer.differing(environment) {
        differing if differing.is_empty() => Ok(Box::new(tokio::io::join(reader, writer))),
        differing => Err(NotJoined::OtherVariables(differing)),
    }
}

/// Carries the lines of a client over `connection` until the client leaves, and over the next connection that
/// `reconnect` gives whenever one is lost.
///
/// # Errors
/// Those of `reconnect`; stdout breaks.
pub async fn carry<E: From<io::Error>>(
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    mut connection: Connection,
    mut reconnect: impl AsyncFnMut() -> Result<Connection, E>,
) -> Result<(), E> {
    let (say, mut lines) = mpsc::channel(1);
    let (out, queue) = mpsc::channel(QUEUED);
    tokio::spawn(read(input, say));
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
                        // The client has said its last word, and may have answers yet to come.
                        down.await;
                        true
                    }
                }
            };
            if has_left {
                drop(out);
                return Ok::<(), E>(());
            }
            let lost = lock(&session).lost();
            for message in lost {
                let _ = out.send(message).await;
            }
            connection = reconnect().await?;
            let (repeated, news) = lock(&session).restore();
            first = repeated;
            for message in news {
                let _ = out.send(message).await;
            }
        }
    };
    tokio::select! {
        carried = carrying => carried?,
        // Nobody hears the rest.
        written = &mut writing => return Ok(joined(written)?),
    }
    Ok(joined(writing.await)?)
}

fn joined(written: Result<io::Result<()>, tokio::task::JoinError>) -> io::Result<()> {
    written.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Reads the lines of the client, whichever connection they will go over.
async fn read(input: impl AsyncRead + Unpin, say: mpsc::Sender<Line>) {
    let mut input = BufReader::new(input);
    while let Ok(Some(line)) = next_line(&mut input).await {
        if say.send(line).await.is_err() {
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

/// Passes on what the gateway says, until it goes away.
async fn to_client(reader: ReadHalf<Connection>, out: &mpsc::Sender<Bytes>, session: &Mutex<Session>) {
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        match reader.read_until(b'\n', &mut line).await {
            // Half a line is no message.
            Ok(_) if line.ends_with(b"\n") => {}
            Ok(_) | Err(_) => return,
        }
        if lock(session).hear_gateway(&line) && out.send(line.into()).await.is_err() {
            return;
        }
    }
}

/// Sends `first` and then what the client says. Ends with the client; when the gateway goes away it is left to
/// [`to_client`] to notice, which has the last answers to pass on.
async fn to_gateway(
    mut writer: WriteHalf<Connection>,
    first: Vec<Bytes>,
    lines: &mut mpsc::Receiver<Line>,
    out: &mpsc::Sender<Bytes>,
    session: &Mutex<Session>,
) -> WriteHalf<Connection> {
    let mut first = first.into_iter();
    loop {
        let line = match first.next() {
            Some(line) => line,
            None => match lines.recv().await {
                Some(Line::Whole(line)) => {
                    let line = Bytes::from(line);
                    lock(session).hear_client(&line);
                    line
                }
                Some(Line::TooLong { beginning, end }) => {
                    let id = envelope::request_id(&beginning, &end);
                    let fault = Fault::new(codes::INVALID_REQUEST, TOO_LONG);
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
        lock(session).sent();
    }
}

fn lock(session: &Mutex<Session>) -> MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the next gateway has to be told about a client, and what the client has to be told about the last gateway.
#[derive(Default)]
struct Session {
    /// The handshake of a legacy client.
    initialize: Option<(RequestId, Bytes)>,
    is_initialized: bool,
    log_level: Option<Bytes>,
    /// By their URIs.
    subscriptions: BTreeMap<String, Bytes>,
    in_flight: HashMap<RequestId, InFlight>,
    /// Those that the gateway cannot have seen yet, because the end of their line was not written.
    unsent: Vec<RequestId>,
    /// Requests of the gateway that the client has not answered.
    asked: HashSet<RequestId>,
    /// Requests that the bridge has made itself.
    made: u64,
}

/// A request that is not answered yet.
struct InFlight {
    era: Era,
    method: String,
    is_repeatable: bool,
    /// To be sent again, if that does no harm: until it is sent for the first time, and then if it is repeatable.
    line: Option<Bytes>,
}

impl Session {
    fn hear_client(&mut self, line: &Bytes) {
        for message in messages(line) {
            let whole = line.slice_ref(message);
            match Message::parse(message) {
                Ok(Message::Request(request)) => self.hear_request(&request, &whole),
                Ok(Message::Notification(notification)) => match &*notification.method {
                    "notifications/initialized" => self.is_initialized = true,
                    // It may never be answered.
                    Cancelled::METHOD => drop(cancelled(&notification).map(|id| self.in_flight.remove(&id))),
                    _ => {}
                },
                Ok(Message::Response(response)) => {
                    response.id.map(|id| self.asked.remove(&id.to_request_id()));
                }
                Err(_) => {}
            }
        }
    }

    fn hear_request(&mut self, request: &Request<'_>, line: &Bytes) {
        let uri = || serde_json::from_str::<Followed>(request.params?.get()).ok().map(|params| params.uri);
        // Not a part of a large batch, of which all would stay in memory.
        let copy = || Bytes::copy_from_slice(line);
        match &*request.method {
            "initialize" => self.initialize = Some((request.id.to_request_id(), copy())),
            "logging/setLevel" => self.log_level = Some(copy()),
            "resources/subscribe" if self.subscriptions.len() < MOST_SUBSCRIPTIONS => {
                self.subscriptions.extend(uri().map(|uri| (uri, copy())));
            }
            "resources/unsubscribe" => drop(uri().map(|uri| self.subscriptions.remove(&uri))),
            _ => {}
        }
        if self.in_flight.len() < MOST_IN_FLIGHT {
            let is_repeatable = changes_nothing(&request.method) && line.len() <= LARGEST_REPEATED;
            let era = era::of(request, Around::Silent).unwrap_or(Era::Legacy);
            let line = Some(if is_repeatable { copy() } else { line.clone() });
            let in_flight = InFlight { era, method: request.method.to_string(), is_repeatable, line };
            self.in_flight.insert(request.id.to_request_id(), in_flight);
            self.unsent.push(request.id.to_request_id());
        }
    }

    /// The gateway may have seen everything that the client has said.
    fn sent(&mut self) {
        for id in self.unsent.drain(..) {
            if let Some(request) = self.in_flight.get_mut(&id).filter(|request| !request.is_repeatable) {
                request.line = None;
            }
        }
    }

    /// Whether this is for the client.
    fn hear_gateway(&mut self, line: &[u8]) -> bool {
        let mut is_for_client = true;
        for message in messages(line) {
            match Message::parse(message) {
                Ok(Message::Response(response)) => {
                    if let Some(id) = response.id {
                        is_for_client &= !id.as_text().is_some_and(|text| text.starts_with(OWN));
                        self.in_flight.remove(&id.to_request_id());
                    }
                }
                Ok(Message::Request(request)) => drop(self.asked.insert(request.id.to_request_id())),
                Ok(Message::Notification(notification)) => {
                    cancelled(&notification).map(|id| self.asked.remove(&id));
                }
                Err(_) => {}
            }
        }
        is_for_client
    }

    /// What the client is told when the gateway has gone: the end of requests that are not repeated, and of questions.
    fn lost(&mut self) -> Vec<Bytes> {
        let asked = std::mem::take(&mut self.asked);
        let withdrawn = asked.iter().map(|id| results::cancelled(id.as_id(), Some(GONE)).into());
        let mut told: Vec<Bytes> = withdrawn.collect();
        self.in_flight.retain(|id, request| {
            if request.line.is_none() {
                let lost = CallError::new(Code::OutcomeUnknown, "", Fate::Unknown, LOST).hint(
                    "check the effect before you repeat the call; `gripfast calls` shows what is known about it",
                );
                let answer = respond::respond(request.era, &request.method, id.as_id(), Told::Failed(lost));
                told.push(answer.message.into());
            }
            request.line.is_some()
        });
        told
    }

    /// What the next gateway is sent first, and what the client is told about it.
    fn restore(&mut self) -> (Vec<Bytes>, Vec<Bytes>) {
        let mut first = Vec::new();
        let initialize = self.initialize.clone();
        if let Some((id, line)) = &initialize {
            match self.in_flight.contains_key(id) {
                true => first.push(line.clone()),
                false => first.extend(self.own(line)),
            }
        }
        if self.is_initialized {
            first.push(envelope::notification("notifications/initialized", None).into());
        }
        let standing: Vec<Bytes> =
            self.log_level.iter().chain(self.subscriptions.values()).cloned().collect();
        first.extend(standing.iter().filter_map(|line| self.own(line)));
        let is_sent = |id: &RequestId| initialize.as_ref().is_some_and(|(sent, _)| sent == id);
        let in_flight = self.in_flight.iter().filter(|(id, _)| !is_sent(id));
        first.extend(in_flight.filter_map(|(_, request)| request.line.clone()));
        // Changes of the lists in between were told to nobody.
        let lists = ["tools", "resources", "prompts"].into_iter().filter(|_| self.is_initialized);
        let news =
            lists.map(|list| envelope::notification(&format!("notifications/{list}/list_changed"), None));
        (first, news.map(Bytes::from).collect())
    }

    /// A request of the client under an id of the bridge, which keeps the answer from the client.
    fn own(&mut self, line: &Bytes) -> Option<Bytes> {
        self.made += 1;
        let id = RequestId::from(format!("{OWN}{}", self.made).as_str());
        envelope::with_id(line, id.as_id()).ok().map(Bytes::from)
    }
}

/// The parameters of a subscription.
#[derive(Deserialize)]
struct Followed {
    uri: String,
}

/// The messages in a line.
fn messages(line: &[u8]) -> Vec<&[u8]> {
    match envelope::is_batch(line) {
        true => batch::split(line, LARGEST_BATCH).unwrap_or_default(),
        false => vec![line],
    }
}

fn cancelled(notification: &Notification<'_>) -> Option<RequestId> {
    let params = notification.params.filter(|_| notification.method == Cancelled::METHOD)?;
    Cancelled::read(params).map(|cancelled| cancelled.request_id.to_request_id())
}

/// Whether a request may be carried out twice.
fn changes_nothing(method: &str) -> bool {
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
        session.hear_gateway(&line(&json!({ "jsonrpc": "2.0", "id": id, "result": {} })))
    }

    #[test]
    fn the_next_gateway_is_told_what_the_last_one_knew_and_the_client_hears_none_of_it() {
        let mut session = Session::default();
        session.hear_client(&request(1, "initialize", &json!({ "protocolVersion": "2025-11-25" })));
        assert!(answer(&mut session, &json!(1)));
        session.hear_client(&line(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })));
        session.hear_client(&request(2, "logging/setLevel", &json!({ "level": "debug" })));
        session.hear_client(&request(3, "resources/subscribe", &json!({ "uri": "a:1" })));
        session.hear_client(&request(4, "resources/subscribe", &json!({ "uri": "a:2" })));
        session.hear_client(&request(5, "resources/unsubscribe", &json!({ "uri": "a:1" })));
        for id in 2..=5 {
            assert!(answer(&mut session, &json!(id)));
        }
        assert!(session.lost().is_empty());
        let (first, news) = session.restore();
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
        assert_eq!(news.len(), 3, "the lists may have changed");
    }

    #[test]
    fn requests_that_change_nothing_are_repeated_and_others_have_an_unknown_outcome() {
        let mut session = Session::default();
        session.hear_client(&request(1, "initialize", &json!({})));
        session.hear_client(&request(2, "tools/list", &json!({})));
        session.hear_client(&request(3, "tools/call", &json!({ "name": "pay" })));
        session.hear_client(&request(4, "tools/call", &json!({ "name": "pay" })));
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 4 } });
        session.hear_client(&line(&cancel));
        session.sent();
        session.hear_client(&request(5, "tools/call", &json!({ "name": "pay" })));
        let told = read_all(&session.lost());
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0]["id"], 3);
        assert_eq!(told[0]["result"]["_meta"]["gripfast/failure"]["code"], "outcome_unknown", "{told:?}");
        let (first, news) = session.restore();
        let mut first: Vec<u64> = read_all(&first).iter().map(|one| one["id"].as_u64().unwrap()).collect();
        first[1..].sort_unstable();
        assert_eq!((first, news.len()), (vec![1, 2, 5], 0), "also a call that the gateway has not seen");
        session.sent();
        assert_eq!(session.lost().len(), 1, "now it has");
    }

    #[test]
    fn questions_of_a_gateway_that_has_gone_are_withdrawn() {
        let mut session = Session::default();
        for id in ["gripfast-7", "gripfast-8"] {
            let ask = json!({ "jsonrpc": "2.0", "id": id, "method": "roots/list" });
            assert!(session.hear_gateway(&line(&ask)));
        }
        session.hear_client(&line(&json!({ "jsonrpc": "2.0", "id": "gripfast-7", "result": {} })));
        let told = read_all(&session.lost());
        assert_eq!(told.len(), 1, "{told:?}");
        let (method, id) = (&told[0]["method"], &told[0]["params"]["requestId"]);
        assert_eq!((method, id), (&json!("notifications/cancelled"), &json!("gripfast-8")));
        assert!(session.lost().is_empty());
    }

    #[test]
    fn variables_with_other_values_are_named_and_no_value_is_sent() {
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
        assert_eq!(answer.differing(here), ["ONLY_HERE", "ONLY_THERE", "OTHER"]);
        let again = Answer::to(Hello { variables: ["SAME".to_owned()].into() }, there).unwrap();
        assert_ne!(answer.variables["SAME"], again.variables["SAME"], "under another salt");
        assert!(!serde_json::to_string(&answer).unwrap().contains("hunter"));
    }

    #[test]
    fn a_gateway_is_known_by_its_config_and_its_version() {
        let (one, other) = (Path::new("/etc/a.toml"), Path::new("/etc/b.toml"));
        assert_eq!(name(one, "1.0.0"), name(one, "1.0.0"));
        assert!(name(one, "1.0.0") != name(other, "1.0.0") && name(one, "1.0.0") != name(one, "1.0.1"));
    }
}

//! Requests of servers to clients: elicitation, sampling, roots.
//!
//! Each client declares what it supports; other requests are declined at once. A legacy client gets the request on the
//! stream of the call that caused it, and answers with a response. The gateway replaces the server's request id with
//! its own, because two servers may use the same one.

pub(crate) mod input_required;
pub(crate) mod url;

use super::Gateway;
use super::client::Client;
use super::fair_table::FairTable;
use super::request::dispatch::RpcFault;
use super::request::extensions;
use bytes::Bytes;
use gripfast::BootId;
use gripfast::Principal;
use gripfast::sync::Mutex;
use gripfast::transport::BoxFuture;
use gripfast::wire::envelope::{self, Message, Request};
use gripfast::wire::patch::Object;
use gripfast::wire::{Id, Json, JsonText, RequestId, apps, codes, results};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Kinds of requests that a client supports, from its declared capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ElicitationSupport {
    form: bool,
    url: bool,
    sampling: bool,
    roots: bool,
    /// The client shows MCP apps. Session ids issued before this field existed do not have it.
    #[serde(default)]
    apps: bool,
}

/// The `extensions` of a client that shows MCP apps.
pub(crate) fn apps_extension() -> serde_json::Value {
    json!({ apps::EXTENSION: extensions::apps_capability() })
}

impl ElicitationSupport {
    /// Reads the capabilities of a client. An empty `elicitation` means form mode, as in protocol versions without URL
    /// mode.
    pub(crate) fn from_capabilities(capabilities: Option<&Json>) -> Self {
        let Some(declared) = capabilities.and_then(|raw| Object::parse(raw).ok()) else {
            return Self::default();
        };
        let elicitation = declared.object("elicitation");
        let has = |object: &Object<'_>, name| object.has(name);
        Self {
            form: elicitation.as_ref().is_some_and(|modes| has(modes, "form") || !has(modes, "url")),
            url: elicitation.as_ref().is_some_and(|modes| has(modes, "url")),
            sampling: declared.object("sampling").is_some(),
            roots: declared.object("roots").is_some(),
            apps: declared.object("extensions").is_some_and(|extensions| has(&extensions, apps::EXTENSION)),
        }
    }

    /// The same as MCP capabilities, for a server that expects them in each request.
    pub(crate) fn to_capabilities(self) -> JsonText {
        let mut capabilities = serde_json::Map::new();
        let modes = [("form", self.form), ("url", self.url)].into_iter().filter(|(_, can)| *can);
        let modes: serde_json::Map<_, _> = modes.map(|(mode, _)| (mode.to_owned(), json!({}))).collect();
        if !modes.is_empty() {
            capabilities.insert("elicitation".to_owned(), modes.into());
        }
        for (name, can) in [("sampling", self.sampling), ("roots", self.roots)] {
            if can {
                capabilities.insert(name.to_owned(), json!({}));
            }
        }
        if self.apps {
            capabilities.insert("extensions".to_owned(), apps_extension());
        }
        super::request::dispatch::raw(&capabilities.into())
    }

    /// Tests if the client supports URL elicitation.
    pub(crate) fn supports_url(self) -> bool {
        self.url
    }

    /// Tests if the client supports any request.
    pub(crate) fn any(self) -> bool {
        self != Self::default()
    }

    /// Response to a request that the client does not support: form declined, no roots. `None` for methods that only an
    /// error can answer.
    pub(crate) fn decline(self, request: &Request<'_>) -> Option<BoxFuture<'static, Vec<u8>>> {
        let result = match &*request.method {
            "elicitation/create" => json!({ "action": "decline" }),
            "roots/list" => json!({ "roots": [] }),
            _ => return None,
        };
        let answer = envelope::response(request.id, &super::request::dispatch::raw(&result));
        Some(Box::pin(std::future::ready(answer)))
    }

    /// Tests if the client supports this request.
    pub(crate) fn allows(self, request: &Request<'_>) -> bool {
        match &*request.method {
            "elicitation/create" => {
                let params = request.params.and_then(|params| Object::parse(params).ok());
                let by_url = params.and_then(|params| params.text("mode")).is_some_and(|mode| mode == "url");
                if by_url { self.url } else { self.form }
            }
            "sampling/createMessage" => self.sampling,
            "roots/list" => self.roots,
            _ => false,
        }
    }
}

impl Gateway {
    /// Handles `notifications/roots/list_changed`. The gateway caches no roots; servers that may have cached them are
    /// notified.
    pub(crate) fn roots_changed(&self, client: &Client) {
        if let Some(key) = client.host_client.key().filter(|_| client.abilities.roots) {
            self.host.notify_roots_changed(key);
        }
    }
}

/// Unanswered requests of all clients, limited per principal.
pub(crate) struct OpenElicitations {
    boot: BootId,
    /// Number of the next request. Unique in the process, because a session can be evicted and restored while a client
    /// still answers an earlier request.
    next_number: AtomicU64,
    table: Arc<Mutex<FairTable<oneshot::Sender<()>>>>,
}

impl OpenElicitations {
    /// Creates a table for at most `max_per_principal` open requests of one principal and `max_total` altogether. Above
    /// it the oldest is evicted: of the same principal, or of the principal with the most.
    pub(crate) fn new(boot: BootId, max_per_principal: usize, max_total: usize) -> Self {
        let table = Arc::new(Mutex::new(FairTable::new(max_per_principal, max_total)));
        Self { boot, next_number: AtomicU64::new(0), table }
    }

    /// Id of the next request to a client. It names the boot: a client may answer after the gateway was restarted, and
    /// that answer must match no request of the new process.
    fn next_id(&self) -> RequestId {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        RequestId::from(format!("gripfast-{}-{number}", self.boot).as_str())
    }

    /// Boot of the process that sent the request with this id to a client; `None` if gripfast did not send it.
    pub(crate) fn boot_of(id: Id<'_>) -> Option<BootId> {
        let id: String = serde_json::from_str(id.as_raw()).ok()?;
        let (boot, _) = id.strip_prefix("gripfast-")?.rsplit_once('-')?;
        BootId::parse(boot)
    }

    /// Registers a request to a client of this principal.
    pub(crate) fn open(&self, principal: &Principal) -> OpenElicitation {
        let (evict, evicted) = oneshot::channel();
        let (number, dropped) = self.table.lock().insert(principal, evict);
        // Outside the lock: dropping the senders wakes the waiting tasks.
        drop(dropped);
        OpenElicitation { table: Arc::clone(&self.table), number, evicted }
    }
}

/// One open request, counted until this is dropped.
pub(crate) struct OpenElicitation {
    table: Arc<Mutex<FairTable<oneshot::Sender<()>>>>,
    number: u64,
    evicted: oneshot::Receiver<()>,
}

impl OpenElicitation {
    /// Waits for `answer`; `None` if the request is evicted first.
    pub(crate) async fn unless_evicted<T>(mut self, answer: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            answer = answer => Some(answer),
            // The sender is dropped when the request is evicted.
            _ = &mut self.evicted => None,
        }
    }
}

impl Drop for OpenElicitation {
    fn drop(&mut self) {
        let left = self.table.lock().remove(self.number);
        drop(left);
    }
}

/// Unanswered requests to one client.
pub(crate) struct PendingElicitations {
    open: Mutex<HashMap<RequestId, oneshot::Sender<Bytes>>>,
    /// Principal of the client.
    principal: Principal,
    all: Arc<OpenElicitations>,
}

/// A request to a client: the message for the client, and the future response for the server.
struct Elicitation {
    to_client: Bytes,
    answer: BoxFuture<'static, Vec<u8>>,
}

/// Time that a person has for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum number of open requests to one client, so that a client that never answers does not fill the memory.
const MAX_OPEN: usize = 100;

impl PendingElicitations {
    /// Unanswered requests to a client of this principal.
    pub(crate) fn new(principal: Principal, all: &Arc<OpenElicitations>) -> Self {
        Self { open: Mutex::default(), principal, all: Arc::clone(all) }
    }

    /// Sends a server's request to the client through `send`, or declines it if the client does not support it. When
    /// the returned future is dropped, a cancellation is sent the same way.
    pub(crate) fn elicit(
        self: &Arc<Self>,
        abilities: ElicitationSupport,
        request: &Bytes,
        send: impl Fn(Bytes) + Send + Sync + 'static,
    ) -> Option<BoxFuture<'static, Vec<u8>>> {
        let Ok(Message::Request(parsed)) = Message::parse(request) else { return None };
        if !abilities.allows(&parsed) {
            return abilities.decline(&parsed);
        }
        let send = Arc::new(send);
        let Elicitation { to_client, answer } = self.insert(request, Arc::clone(&send) as _)?;
        send(to_client);
        Some(answer)
    }

    /// Registers a server's request under an id of the gateway.
    fn insert(
        self: &Arc<Self>,
        request: &[u8],
        send: Arc<dyn Fn(Bytes) + Send + Sync>,
    ) -> Option<Elicitation> {
        let Ok(Message::Request(parsed)) = Message::parse(request) else { return None };
        let servers_id = parsed.id.to_request_id();
        let our_id = self.all.next_id();
        let to_client = Bytes::from(envelope::with_id(request, our_id.as_id()).ok()?);
        let (respond, answered) = oneshot::channel();
        {
            let mut open = self.open.lock();
            if open.len() >= MAX_OPEN {
                return None;
            }
            open.insert(our_id.clone(), respond);
        }
        let closing = WithdrawOnDrop { elicitations: Arc::clone(self), id: our_id, send };
        let open = self.all.open(&self.principal);
        let answer = Box::pin(async move {
            let _closing = closing;
            match tokio::time::timeout(ANSWER_TIMEOUT, open.unless_evicted(answered)).await {
                Ok(Some(Ok(response))) => {
                    envelope::with_id(&response, servers_id.as_id()).unwrap_or_else(|_| {
                        no_answer_response(&servers_id, "the client's answer is not a response")
                    })
                }
                Ok(Some(Err(_))) => no_answer_response(&servers_id, "the client disconnected"),
                Ok(None) => no_answer_response(&servers_id, "too many open requests to this client"),
                Err(_) => no_answer_response(&servers_id, "the client did not answer in time"),
            }
        });
        Some(Elicitation { to_client, answer })
    }

    /// Answers the server with an error, because the client's response cannot be forwarded.
    pub(crate) fn fail(&self, id: Option<Id<'_>>, fault: &RpcFault) {
        self.resolve(envelope::error_response(id, fault.code, &fault.message, None).into());
    }

    /// Forwards a response of the client. Returns false if no request is open under its id.
    pub(crate) fn resolve(&self, response: Bytes) -> bool {
        let id = match Message::parse(&response) {
            Ok(Message::Response(answer)) => answer.id.map(|id| id.to_request_id()),
            Ok(_) | Err(_) => None,
        };
        let parsed = id.and_then(|id| self.open.lock().remove(&id));
        parsed.is_some_and(|respond| respond.send(response).is_ok())
    }
}

/// Removes an open request when its call ends or times out, and cancels it at the client.
struct WithdrawOnDrop {
    elicitations: Arc<PendingElicitations>,
    id: RequestId,
    send: Arc<dyn Fn(Bytes) + Send + Sync>,
}

impl Drop for WithdrawOnDrop {
    fn drop(&mut self) {
        let is_unanswered = self.elicitations.open.lock().remove(&self.id).is_some();
        if is_unanswered {
            let why = "the answer is no longer needed";
            (self.send)(results::cancelled(self.id.as_id(), Some(why)).into());
        }
    }
}

fn no_answer_response(servers_id: &RequestId, why: &str) -> Vec<u8> {
    envelope::error_response(Some(servers_id.as_id()), codes::INTERNAL_ERROR, why, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::address::random_boot;

    fn abilities(capabilities: &str) -> ElicitationSupport {
        ElicitationSupport::from_capabilities(Some(&JsonText::parse(capabilities.to_owned()).unwrap()))
    }

    fn allowed(abilities: ElicitationSupport, request: &str) -> bool {
        let Ok(Message::Request(request)) = Message::parse(request.as_bytes()) else { panic!("a request") };
        abilities.allows(&request)
    }

    const FORM: &str = r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?"}}"#;
    const URL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"mode":"url"}}"#;
    const ROOTS: &str = r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#;

    #[test]
    fn a_client_gets_only_requests_that_it_supports() {
        let plain = abilities(r#"{"elicitation":{}}"#);
        assert!(allowed(plain, FORM) && !allowed(plain, URL) && !allowed(plain, ROOTS));
        let by_url = abilities(r#"{"elicitation":{"url":{}},"roots":{}}"#);
        assert!(!allowed(by_url, FORM) && allowed(by_url, URL) && allowed(by_url, ROOTS));
        assert!(!allowed(abilities("{}"), FORM));
    }

    impl Default for OpenElicitations {
        fn default() -> Self {
            Self::new(random_boot(), 1000, 2000)
        }
    }

    impl Default for PendingElicitations {
        fn default() -> Self {
            Self::new(Principal::local(), &Arc::default())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_principal_with_too_many_open_requests_loses_its_own_oldest() {
        let all = Arc::new(OpenElicitations::new(random_boot(), 2, 3));
        let ask = |name: &str| {
            // Each in a session of its own.
            let elicitations = Arc::new(PendingElicitations::new(Principal::new(name), &all));
            let question = put(&elicitations);
            let response = response_to(&question, "yes");
            (elicitations, tokio::spawn(question.answer), response)
        };
        let modest = ask("modest");
        tokio::task::yield_now().await;
        let greedy = [ask("greedy"), ask("greedy"), ask("greedy")];
        let [(first, given_up, _), rest @ ..] = greedy;
        let answer = String::from_utf8(given_up.await.unwrap()).unwrap();
        assert!(answer.contains("too many open requests"), "{answer}");
        assert!(first.open.lock().is_empty());
        let third = ask("third");
        tokio::task::yield_now().await;
        let open: Vec<_> = [&modest].into_iter().chain(&rest).chain([&third]).collect();
        let still: Vec<_> = open.iter().map(|(elicitations, _, _)| elicitations.open.lock().len()).collect();
        assert_eq!(still, [1, 0, 1, 1], "three in all: the one with the most has given up its oldest");
        for (elicitations, answer, response) in [modest, third] {
            assert!(elicitations.resolve(response));
            assert!(String::from_utf8(answer.await.unwrap()).unwrap().contains("yes"));
        }
    }

    fn put(elicitations: &Arc<PendingElicitations>) -> Elicitation {
        elicitations.insert(FORM.as_bytes(), Arc::new(|_| {})).unwrap()
    }

    fn id_of(question: &Elicitation) -> String {
        match Message::parse(&question.to_client) {
            Ok(Message::Request(request)) => request.id.as_raw().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn response_to(question: &Elicitation, said: &str) -> Bytes {
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"said":"{said}"}}}}"#, id_of(question)).into()
    }

    #[tokio::test]
    async fn a_request_is_cancelled_only_when_its_answer_is_no_longer_needed() {
        let elicitations = Arc::new(PendingElicitations::default());
        let ask = || {
            let (say, sent) = std::sync::mpsc::channel();
            let answer = elicitations.elicit(
                abilities(r#"{"elicitation":{}}"#),
                &Bytes::from_static(FORM.as_bytes()),
                move |message| drop(say.send(message)),
            );
            (answer.unwrap(), sent)
        };
        let (answer, sent) = ask();
        drop(answer);
        let sent: Vec<serde_json::Value> =
            sent.iter().map(|one| serde_json::from_slice(&one).unwrap()).collect();
        let own = |number| format!("gripfast-{}-{number}", elicitations.all.boot);
        assert_eq!((&sent[0]["id"], &sent[0]["method"]), (&own(0).into(), &"elicitation/create".into()));
        assert_eq!(sent[1]["method"], "notifications/cancelled");
        assert_eq!((&sent[1]["params"]["requestId"], sent.len()), (&sent[0]["id"], 2));
        let (answer, sent) = ask();
        let response = json!({ "jsonrpc": "2.0", "id": own(1), "result": {} });
        assert!(elicitations.resolve(response.to_string().into()));
        answer.await;
        assert_eq!(sent.iter().count(), 1, "nothing but the question");
    }

    #[tokio::test]
    async fn two_servers_with_the_same_request_id_get_their_own_answers() {
        let elicitations = Arc::new(PendingElicitations::default());
        let (one, two) = (put(&elicitations), put(&elicitations));
        assert_ne!(id_of(&one), id_of(&two));
        for (question, said) in [(&two, "two"), (&one, "one")] {
            assert!(elicitations.resolve(response_to(question, said)));
        }
        let answer = String::from_utf8(one.answer.await).unwrap();
        assert!(answer.contains(r#""id":1"#) && answer.contains("one"), "{answer}");
        assert!(String::from_utf8(two.answer.await).unwrap().contains("two"));
    }

    #[tokio::test]
    async fn answers_to_unknown_and_cancelled_requests_are_ignored() {
        let elicitations = Arc::new(PendingElicitations::default());
        let unknown = br#"{"jsonrpc":"2.0","id":"gripfast-0","result":{}}"#;
        assert!(!elicitations.resolve(Bytes::from_static(unknown)));
        let question = put(&elicitations);
        let response = response_to(&question, "late");
        drop(question.answer);
        assert!(!elicitations.resolve(response));
    }

    #[tokio::test]
    async fn a_late_answer_matches_no_request_of_a_later_process_or_a_restored_session() {
        let (before, after) = (Arc::<OpenElicitations>::default(), Arc::<OpenElicitations>::default());
        let session = |all| Arc::new(PendingElicitations::new(Principal::local(), all));
        let late = response_to(&put(&session(&before)), "late");
        for restored in [session(&before), session(&after)] {
            let question = put(&restored);
            assert!(!restored.resolve(late.clone()), "{}", id_of(&question));
            assert_eq!(restored.open.lock().len(), 1, "it still waits for its own answer");
            assert!(restored.resolve(response_to(&question, "own")));
        }
    }
}

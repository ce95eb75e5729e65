//! Questions of servers to clients: elicitation, sampling, roots.
//!
//! What a client can be asked, it says itself; a server that asks for more is told so at once.
//!
//! A legacy client is asked by a request of ours on the stream of the call that caused it, and answers with
//! a response. A server's id and ours never meet: two servers may count alike.

use super::ask::Fault;
use super::client::Client;
use super::fair_table::FairTable;
use super::{Gateway, extensions};
use bytes::Bytes;
use gripfast::Principal;
use gripfast::transport::BoxFuture;
use gripfast::wire::envelope::{self, Message, Request};
use gripfast::wire::patch::Object;
use gripfast::wire::{Id, RawValue, RequestId, apps, codes, results};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// What a client can be asked, as it said itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Abilities {
    form: bool,
    url: bool,
    sampling: bool,
    roots: bool,
    /// It shows apps. Ids of sessions that began before this was asked do not say.
    #[serde(default)]
    apps: bool,
}

/// The `extensions` of a client that shows apps.
pub(super) fn shows_apps() -> serde_json::Value {
    json!({ apps::EXTENSION: extensions::about_apps() })
}

impl Abilities {
    /// Reads the capabilities of a client. An empty `elicitation` means forms, as it did before there was
    /// anything else.
    pub(crate) fn read(capabilities: Option<&RawValue>) -> Self {
        let Some(said) = capabilities.and_then(|raw| Object::parse(raw).ok()) else { return Self::default() };
        let elicitation = said.object("elicitation");
        let has = |object: &Object<'_>, name| object.has(name);
        Self {
            form: elicitation.as_ref().is_some_and(|modes| has(modes, "form") || !has(modes, "url")),
            url: elicitation.as_ref().is_some_and(|modes| has(modes, "url")),
            sampling: said.object("sampling").is_some(),
            roots: said.object("roots").is_some(),
            apps: said.object("extensions").is_some_and(|extensions| has(&extensions, apps::EXTENSION)),
        }
    }

    /// The same as the capabilities of a client, for a server that wants to see them in each request.
    pub(crate) fn to_capabilities(self) -> Box<RawValue> {
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
            capabilities.insert("extensions".to_owned(), shows_apps());
        }
        super::ask::raw(&capabilities.into())
    }

    /// Whether the client can send a person to a page.
    pub(crate) fn can_visit(self) -> bool {
        self.url
    }

    /// Whether the client can be asked anything at all.
    pub(crate) fn any(self) -> bool {
        self != Self::default()
    }

    /// What a server is told that asks for more than the client can do: nobody filled in the form, there
    /// are no roots. `None` where only an error says it.
    pub(crate) fn decline(self, request: &Request<'_>) -> Option<BoxFuture<'static, Vec<u8>>> {
        let result = match &*request.method {
            "elicitation/create" => json!({ "action": "decline" }),
            "roots/list" => json!({ "roots": [] }),
            _ => return None,
        };
        let answer = envelope::response(request.id, &super::ask::raw(&result));
        Some(Box::pin(std::future::ready(answer)))
    }

    /// Whether the client can be asked this.
    pub(crate) fn allow(self, request: &Request<'_>) -> bool {
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
    /// A client that can be asked for its roots has others now. It is asked anew whenever a server wants to know them;
    /// servers that may remember what they were told are told to ask.
    pub(super) fn roots_changed(&self, client: &Client) {
        if let Some(key) = client.at_servers.key().filter(|_| client.abilities.roots) {
            self.host.roots_changed(key);
        }
    }
}

/// The questions that clients have not answered yet, of all of them: how many one principal may have open.
pub(crate) struct OpenQuestions(Arc<Mutex<FairTable<oneshot::Sender<()>>>>);

impl OpenQuestions {
    /// At most `each` of one principal, and `all` in all. Beyond it the oldest is given up, of all together the oldest of
    /// the principal that has the most.
    pub(crate) fn new(each: usize, all: usize) -> Self {
        Self(Arc::new(Mutex::new(FairTable::new(each, all))))
    }

    /// A client of this principal is asked something.
    pub(crate) fn open(&self, principal: &Principal) -> OpenQuestion {
        let (give_up, given_up) = oneshot::channel();
        let (number, gone) = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(principal, give_up);
        // Outside the lock: those who wait for them are told.
        drop(gone);
        OpenQuestion { among: Arc::clone(&self.0), number, given_up }
    }
}

/// A question that counts as open until this is dropped.
pub(crate) struct OpenQuestion {
    among: Arc<Mutex<FairTable<oneshot::Sender<()>>>>,
    number: u64,
    given_up: oneshot::Receiver<()>,
}

impl OpenQuestion {
    /// The answer, unless the question has to make room for others before.
    pub(crate) async fn unless_given_up<T>(mut self, answer: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            answer = answer => Some(answer),
            // The sender is dropped when the question is given up.
            _ = &mut self.given_up => None,
        }
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        let left = self.among.lock().unwrap_or_else(PoisonError::into_inner).remove(self.number);
        drop(left);
    }
}

/// The questions that one client has not answered yet.
pub(crate) struct Questions {
    asked: AtomicU64,
    open: Mutex<HashMap<RequestId, oneshot::Sender<Bytes>>>,
    /// Whose client it is.
    principal: Principal,
    all: Arc<OpenQuestions>,
}

/// A question on its way: what the client is sent, and what the server will be answered.
struct Question {
    to_client: Bytes,
    answer: BoxFuture<'static, Vec<u8>>,
}

/// How long a person may think.
const ANSWER_WITHIN: Duration = Duration::from_secs(600);
/// A client that never answers does not fill our memory.
const MOST_OPEN: usize = 100;

impl Questions {
    /// Those of a client of this principal.
    pub(crate) fn of(principal: Principal, all: &Arc<OpenQuestions>) -> Self {
        Self { asked: AtomicU64::new(0), open: Mutex::default(), principal, all: Arc::clone(all) }
    }

    /// Numbers them from here on, so that an answer to a question of another process answers none of these.
    pub(crate) fn numbered_from(self, first: u64) -> Self {
        Self { asked: AtomicU64::new(first), ..self }
    }

    /// Asks the client by whatever way `send` is, or declines for it if it cannot be asked this. A question that
    /// nobody waits for any more is withdrawn by the same way.
    pub(crate) fn ask(
        self: &Arc<Self>,
        abilities: Abilities,
        request: &Bytes,
        send: impl Fn(Bytes) + Send + Sync + 'static,
    ) -> Option<BoxFuture<'static, Vec<u8>>> {
        let Ok(Message::Request(asked)) = Message::parse(request) else { return None };
        if !abilities.allow(&asked) {
            return abilities.decline(&asked);
        }
        let send = Arc::new(send);
        let Question { to_client, answer } = self.put(request, Arc::clone(&send) as _)?;
        send(to_client);
        Some(answer)
    }

    /// Puts a server's request to the client, under an id of ours.
    fn put(self: &Arc<Self>, request: &[u8], send: Arc<dyn Fn(Bytes) + Send + Sync>) -> Option<Question> {
        let Ok(Message::Request(asked)) = Message::parse(request) else { return None };
        let servers_id = asked.id.to_request_id();
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let our_id = RequestId::from(format!("gripfast-{number}").as_str());
        let to_client = Bytes::from(envelope::with_id(request, our_id.as_id()).ok()?);
        let (tell, answered) = oneshot::channel();
        {
            let mut open = self.lock();
            if open.len() >= MOST_OPEN {
                return None;
            }
            open.insert(our_id.clone(), tell);
        }
        let closing = Closing { questions: Arc::clone(self), id: our_id, send };
        let open = self.all.open(&self.principal);
        let answer = Box::pin(async move {
            let _closing = closing;
            match tokio::time::timeout(ANSWER_WITHIN, open.unless_given_up(answered)).await {
                Ok(Some(Ok(response))) => envelope::with_id(&response, servers_id.as_id())
                    .unwrap_or_else(|_| unanswered(&servers_id, "the client's answer is not a response")),
                Ok(Some(Err(_))) => unanswered(&servers_id, "the client went away"),
                Ok(None) => unanswered(&servers_id, "the client has too many questions to answer"),
                Err(_) => unanswered(&servers_id, "the client did not answer in time"),
            }
        });
        Some(Question { to_client, answer })
    }

    /// The client's answer to a question cannot be passed on, for this reason. The server is told so.
    pub(crate) fn failed(&self, id: Option<Id<'_>>, fault: &Fault) {
        self.answered(envelope::error_response(id, fault.code, &fault.message, None).into());
    }

    /// The client answered. Whether it was asked at all.
    pub(crate) fn answered(&self, response: Bytes) -> bool {
        let id = match Message::parse(&response) {
            Ok(Message::Response(answer)) => answer.id.map(|id| id.to_request_id()),
            Ok(_) | Err(_) => None,
        };
        let asked = id.and_then(|id| self.lock().remove(&id));
        asked.is_some_and(|tell| tell.send(response).is_ok())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RequestId, oneshot::Sender<Bytes>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question whose call or time ended is not waited for any more, and a person need not think about it.
struct Closing {
    questions: Arc<Questions>,
    id: RequestId,
    send: Arc<dyn Fn(Bytes) + Send + Sync>,
}

impl Drop for Closing {
    fn drop(&mut self) {
        let is_unanswered = self.questions.lock().remove(&self.id).is_some();
        if is_unanswered {
            let why = "nobody waits for the answer any more";
            (self.send)(results::cancelled(self.id.as_id(), Some(why)).into());
        }
    }
}

fn unanswered(servers_id: &RequestId, why: &str) -> Vec<u8> {
    envelope::error_response(Some(servers_id.as_id()), codes::INTERNAL_ERROR, why, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abilities(capabilities: &str) -> Abilities {
        Abilities::read(Some(&RawValue::from_string(capabilities.to_owned()).unwrap()))
    }

    fn allowed(abilities: Abilities, request: &str) -> bool {
        let Ok(Message::Request(request)) = Message::parse(request.as_bytes()) else { panic!("a request") };
        abilities.allow(&request)
    }

    const FORM: &str = r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?"}}"#;
    const URL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"mode":"url"}}"#;
    const ROOTS: &str = r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#;

    #[test]
    fn a_client_is_asked_only_what_it_says_it_can_answer() {
        let plain = abilities(r#"{"elicitation":{}}"#);
        assert!(allowed(plain, FORM) && !allowed(plain, URL) && !allowed(plain, ROOTS));
        let by_url = abilities(r#"{"elicitation":{"url":{}},"roots":{}}"#);
        assert!(!allowed(by_url, FORM) && allowed(by_url, URL) && allowed(by_url, ROOTS));
        assert!(!allowed(abilities("{}"), FORM));
    }

    impl Default for OpenQuestions {
        fn default() -> Self {
            Self::new(1000, 2000)
        }
    }

    impl Default for Questions {
        fn default() -> Self {
            Self::of(Principal::local(), &Arc::default())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_principal_with_too_many_questions_gives_up_its_oldest_and_nobody_elses() {
        let all = Arc::new(OpenQuestions::new(2, 3));
        let ask = |name: &str| {
            // Each in a session of its own.
            let questions = Arc::new(Questions::of(Principal::named(name), &all));
            let answer = tokio::spawn(put(&questions).answer);
            (questions, answer)
        };
        let modest = ask("modest");
        tokio::task::yield_now().await;
        let greedy = [ask("greedy"), ask("greedy"), ask("greedy")];
        let [(first, given_up), rest @ ..] = greedy;
        let answer = String::from_utf8(given_up.await.unwrap()).unwrap();
        assert!(answer.contains("too many questions"), "{answer}");
        assert!(first.lock().is_empty());
        let third = ask("third");
        tokio::task::yield_now().await;
        let open: Vec<_> = [&modest].into_iter().chain(&rest).chain([&third]).collect();
        let still: Vec<_> = open.iter().map(|(questions, _)| questions.lock().len()).collect();
        assert_eq!(still, [1, 0, 1, 1], "three in all: the one with the most has given up its oldest");
        for (questions, answer) in [modest, third] {
            assert!(questions.answered(Bytes::from_static(
                br#"{"jsonrpc":"2.0","id":"gripfast-0","result":{"said":"yes"}}"#
            )));
            assert!(String::from_utf8(answer.await.unwrap()).unwrap().contains("yes"));
        }
    }

    fn put(questions: &Arc<Questions>) -> Question {
        questions.put(FORM.as_bytes(), Arc::new(|_| {})).unwrap()
    }

    #[tokio::test]
    async fn a_question_is_withdrawn_when_nobody_waits_for_its_answer_and_only_then() {
        let questions = Arc::new(Questions::default());
        let ask = || {
            let (say, said) = std::sync::mpsc::channel();
            let answer = questions.ask(
                abilities(r#"{"elicitation":{}}"#),
                &Bytes::from_static(FORM.as_bytes()),
                move |message| drop(say.send(message)),
            );
            (answer.unwrap(), said)
        };
        let (answer, said) = ask();
        drop(answer);
        let said: Vec<serde_json::Value> =
            said.iter().map(|one| serde_json::from_slice(&one).unwrap()).collect();
        assert_eq!(
            (&said[0]["id"], &said[0]["method"]),
            (&"gripfast-0".into(), &"elicitation/create".into())
        );
        assert_eq!(said[1]["method"], "notifications/cancelled");
        assert_eq!((&said[1]["params"]["requestId"], said.len()), (&said[0]["id"], 2));
        let (answer, said) = ask();
        assert!(
            questions.answered(Bytes::from_static(br#"{"jsonrpc":"2.0","id":"gripfast-1","result":{}}"#))
        );
        answer.await;
        assert_eq!(said.iter().count(), 1, "nothing but the question");
    }

    #[tokio::test]
    async fn two_servers_that_count_alike_get_their_own_answers_under_their_own_ids() {
        let questions = Arc::new(Questions::default());
        let (one, two) = (put(&questions), put(&questions));
        let id = |question: &Question| match Message::parse(&question.to_client) {
            Ok(Message::Request(request)) => request.id.as_raw().to_owned(),
            other => panic!("{other:?}"),
        };
        assert_ne!(id(&one), id(&two));
        for (question, said) in [(&two, "two"), (&one, "one")] {
            let response =
                format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"said":"{said}"}}}}"#, id(question));
            assert!(questions.answered(response.into()));
        }
        let answer = String::from_utf8(one.answer.await).unwrap();
        assert!(answer.contains(r#""id":1"#) && answer.contains("one"), "{answer}");
        assert!(String::from_utf8(two.answer.await).unwrap().contains("two"));
    }

    #[tokio::test]
    async fn an_answer_to_nothing_and_a_question_that_was_given_up_are_forgotten() {
        let questions = Arc::new(Questions::default());
        assert!(
            !questions.answered(Bytes::from_static(br#"{"jsonrpc":"2.0","id":"gripfast-0","result":{}}"#))
        );
        let question = put(&questions);
        drop(question.answer);
        assert!(
            !questions.answered(Bytes::from_static(br#"{"jsonrpc":"2.0","id":"gripfast-0","result":{}}"#))
        );
    }
}

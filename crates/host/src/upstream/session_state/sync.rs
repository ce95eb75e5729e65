//! Running errands: whatever the present session is to know and does not know yet is told to it, for as long
//! as it lasts. What is due, and when again, is decided by `core::standing`.

use super::answer::Answer;
use super::exchange::judge;
use super::wishes::{SessionNumber, Told};
use super::{Live, Upstream};
use crate::transport::{Outgoing, Reply, Trouble};
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use gripfast_core::event::Event;
use gripfast_core::failure::{During, Failure, Outcome as Fate, Sent};
use gripfast_core::standing::{Ended, Errand, Offers, Restored, Subject, Way};
use gripfast_core::supervise::upstream::{Input, ProbeAnswer};
use gripfast_wire::envelope;
use gripfast_wire::era::RequestContext;
use gripfast_wire::log::{self, LogLevel};
use gripfast_wire::patch::{Object, Patch};
use gripfast_wire::subscriptions::{self, Filter};
use gripfast_wire::{Era, Outcome, RawValue, codes, tasks};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// A stream that is not acknowledged by then is taken as it is.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(10);

/// Tasks that are looked at side by side after a stream was lost.
const LOOKS_AT_ONCE: usize = 8;

/// The stream of changes of the modern era. Dropping it closes it.
struct Stream(JoinHandle<Result<Reply, Box<Trouble>>>);

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Live {
    fn filter(&self, lists: bool, subjects: &[Subject]) -> Filter {
        let said = self.server.capabilities;
        let (mut uris, mut tasks) = (Vec::new(), Vec::new());
        for subject in subjects {
            match subject {
                Subject::Resource(uri) => uris.push(uri.clone()),
                Subject::Task(id) => tasks.push(id.clone()),
            }
        }
        Filter {
            tools: lists && said.tools_changes,
            prompts: lists && said.prompts_changes,
            resources: lists && said.resources_changes,
            uris,
            tasks,
        }
    }

    /// The context of a request about tasks, which only whoever declares them may make.
    fn context_with_tasks(&self) -> RequestContext {
        let capabilities = tasks::declared_in(&self.context.capabilities);
        RequestContext { capabilities, ..self.context.clone() }
    }
}

impl Upstream {
    /// What the server of this session can be told.
    pub(super) fn offers(&self, live: &Live) -> Offers {
        let said = live.server.capabilities;
        match live.session.era {
            Era::Legacy => Offers {
                level: said.logging,
                follow: if said.resources_subscribe { Way::Each } else { Way::None },
            },
            // There, each request says itself how much it wants to hear.
            Era::Modern => Offers {
                level: false,
                follow: Way::Stream {
                    lists: self.hears_of_lists() && !live.filter(true, &[]).is_empty(),
                    resources: said.resources_subscribe,
                    tasks: live.server.has_tasks(),
                },
            },
        }
    }

    /// Only the instance that knows the catalog has to hear that it changes.
    fn hears_of_lists(&self) -> bool {
        !self.role.is_own()
    }

    /// Runs the errands of one session. Ends by being aborted, with the session.
    pub(super) async fn run_errands(self: Arc<Self>, live: Arc<Live>, session: SessionNumber) {
        let mut stream: Option<Stream> = None;
        loop {
            let due = self.wishes.due.notified();
            tokio::pin!(due);
            // Before looking: what is wished for after the look is not missed.
            due.as_mut().enable();
            while let Some(errand) = self.wishes.next(self.clock.mono(), session) {
                let (ended, told) = self.run(&live, &mut stream, errand).await;
                let tasks = self.wishes.ended(self.clock.mono(), session, ended, told);
                self.look_at(&live, tasks).await;
            }
            if let Some(restored) = self.wishes.take_restored(session) {
                let missing = match restored {
                    Restored::Nothing | Restored::Everything => Vec::new(),
                    Restored::Partly { missing } => missing,
                };
                self.announce(self.clock.now(), Event::SessionRestored { missing });
            }
            let wake = self.wishes.wake_at(session);
            let again = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(self.clock.instant(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = again => {}
                end = end_of(&mut stream) => {
                    stream = None;
                    self.wishes.stream_ended(self.clock.mono(), session);
                    // The stream's end may be the server's end: ask, before anybody calls.
                    self.look_into(&live, end);
                }
            }
        }
    }

    async fn run(
        self: &Arc<Self>,
        live: &Arc<Live>,
        stream: &mut Option<Stream>,
        errand: Errand,
    ) -> (Ended, Vec<(Subject, Told)>) {
        match errand {
            Errand::SetLevel(level) => {
                let params = Patch::new().set_text("level", &level).to_object();
                // Whoever calls meanwhile and wants no more than that need not ask for it.
                let claim = LogLevel::named(&level).and_then(|level| live.level.claim(level));
                let told = self.tell_server(live, log::SET_LEVEL, &params).await;
                if let (Some(claim), Told::Done) = (claim, &told) {
                    claim.kept();
                }
                (Ended::Level(told.verdict()), Vec::new())
            }
            Errand::Follow { begin, end } => {
                let ending = end.iter().map(|subject| self.tell_of(live, "resources/unsubscribe", subject));
                // Whatever it says to that: nobody listens any more.
                join_all(ending).await;
                let beginning = begin.into_iter().map(|subject| async move {
                    let told = self.tell_of(live, "resources/subscribe", &subject).await;
                    (subject, told)
                });
                let told = join_all(beginning).await;
                let verdicts = told.iter().map(|(subject, told)| (subject.clone(), told.verdict())).collect();
                (Ended::Followed(verdicts), told)
            }
            Errand::Listen { subjects } => self.listen(live, stream, subjects).await,
        }
    }

    async fn tell_of(self: &Arc<Self>, live: &Arc<Live>, method: &str, subject: &Subject) -> Told {
        let params = match subject {
            Subject::Resource(uri) => Patch::new().set_text("uri", uri).to_object(),
            Subject::Task(id) => Patch::new().set_text("taskId", id).to_object(),
        };
        self.tell_server(live, method, &params).await
    }

    /// Looks at tasks whose followers may have missed something, and tells them how each stands. One that the server
    /// does not know any more has nothing to tell.
    async fn look_at(self: &Arc<Self>, live: &Arc<Live>, ids: Vec<String>) {
        let context = live.context_with_tasks();
        let looks = ids.into_iter().map(|id| {
            let context = &context;
            async move {
                let params = Patch::new().set_text("taskId", &id).to_object();
                let looking = self.own_request_as(live, context, "tasks/get", Some(&params), During::Probe);
                let answer = looking.await.ok().and_then(|message| Answer::read(&message, Era::Modern))?;
                let Outcome::Result(task) = answer.outcome() else { return None };
                self.wishes.task_said(&id, &tasks::status_of(&Object::parse(task).ok()?));
                Some(())
            }
        });
        stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE).collect::<Vec<_>>().await;
    }

    /// One request of our own, whose answer matters only in being one.
    async fn tell_server(self: &Arc<Self>, live: &Arc<Live>, method: &str, params: &RawValue) -> Told {
        let answered = match self.own_request(live, method, Some(params), During::Call).await {
            Ok(message) => judge(Reply::of(message), live),
            Err(trouble) => Err(trouble),
        };
        match answered {
            Ok(answer) if answer.result().is_ok() => Told::Done,
            Ok(answer) => Told::Declined(answer),
            Err(trouble) => self.in_trouble(live, *trouble),
        }
    }

    /// Opens a stream that tells of these, and closes the one before it.
    async fn listen(
        self: &Arc<Self>,
        live: &Arc<Live>,
        stream: &mut Option<Stream>,
        subjects: Vec<Subject>,
    ) -> (Ended, Vec<(Subject, Told)>) {
        let filter = live.filter(self.hears_of_lists(), &subjects);
        if filter.is_empty() {
            *stream = None;
            return (Ended::Listening { granted: Vec::new() }, Vec::new());
        }
        let each = |told: &dyn Fn(&Subject) -> Told| -> Vec<(Subject, Told)> {
            subjects.iter().map(|subject| (subject.clone(), told(subject))).collect()
        };
        let Some((mut opened, acknowledged)) = self.open_stream(live, &filter) else {
            let text = "its context does not fit a request".to_owned();
            let told = Told::Missed(Failure::Nonsense(text), Fate::NotSent);
            return (Ended::NotListening(told.verdict()), each(&|_| told.clone()));
        };
        let granted = tokio::select! {
            granted = acknowledged => Ok(granted.unwrap_or_default()),
            ended = &mut opened.0 => Err(ended),
            () = tokio::time::sleep(ACKNOWLEDGED_WITHIN) => Ok(Vec::new()),
        };
        match granted {
            Ok(granted) => {
                *stream = Some(opened);
                let told = each(&|subject| match granted.contains(subject) {
                    true => Told::Done,
                    false => Told::Declined(not_acknowledged()),
                });
                (Ended::Listening { granted }, told)
            }
            Err(ended) => {
                let told = self.refused_stream(live, ended);
                (Ended::NotListening(told.verdict()), each(&|_| told.clone()))
            }
        }
    }

    fn open_stream(
        self: &Arc<Self>,
        live: &Arc<Live>,
        filter: &Filter,
    ) -> Option<(Stream, tokio::sync::oneshot::Receiver<Vec<Subject>>)> {
        let params = filter.to_params();
        let params = match filter.tasks.is_empty() {
            true => live.context.apply_to(Some(&params)).ok()?,
            false => live.context_with_tasks().apply_to(Some(&params)).ok()?,
        };
        let id = self.mint_id();
        let request = Outgoing {
            id,
            method: subscriptions::LISTEN.to_owned(),
            message: envelope::request(id, subscriptions::LISTEN, Some(&params)),
            name: None,
            headers: Vec::new(),
            during: During::Probe,
            safety: crate::transport::Safety::Replayable,
            sent: Arc::default(),
            listener: None,
            memory: None,
        };
        let acknowledged = self.wishes.opening(*live.told_as.get()?, id);
        let live = Arc::clone(live);
        let task = tokio::spawn(async move { live.link.request(&live.session, request).await });
        Some((Stream(task), acknowledged))
    }

    /// A stream ended before it was acknowledged.
    fn refused_stream(
        self: &Arc<Self>,
        live: &Arc<Live>,
        ended: Result<Result<Reply, Box<Trouble>>, tokio::task::JoinError>,
    ) -> Told {
        match ended {
            Ok(Ok(reply)) => match Answer::read(&reply.message, live.session.era) {
                Some(answer) if answer.result().is_err() => Told::Declined(answer),
                Some(_) | None => {
                    let text = "its stream of changes ended at once".to_owned();
                    Told::Missed(Failure::Lost(text), Fate::Refused)
                }
            },
            Ok(Err(trouble)) => self.in_trouble(live, *trouble),
            Err(_) => Told::Missed(Failure::Lost("the stream was given up".to_owned()), Fate::NotSent),
        }
    }

    /// A request of our own came to nothing: the machine is told what it has to know.
    fn in_trouble(self: &Arc<Self>, live: &Arc<Live>, trouble: Trouble) -> Told {
        let failure = self.secrets.classify(&trouble.evidence);
        let fate = match trouble.evidence.sent {
            Sent::No => Fate::NotSent,
            Sent::Yes => Fate::Unknown,
        };
        if let Failure::Declined(text) = &failure {
            let answer = trouble.answer.and_then(|message| Answer::read(&message, live.session.era));
            let own = || own_error(codes::INTERNAL_ERROR, text, live.session.era);
            return Told::Declined(answer.unwrap_or_else(own));
        }
        self.report(live, &failure);
        Told::Missed(failure, fate)
    }

    fn look_into(
        self: &Arc<Self>,
        live: &Arc<Live>,
        end: Result<Result<Reply, Box<Trouble>>, tokio::task::JoinError>,
    ) {
        let failure = match end {
            Ok(Err(trouble)) => self.secrets.classify(&trouble.evidence),
            Ok(Ok(_)) | Err(_) => Failure::Lost("its stream of changes ended".to_owned()),
        };
        self.report(live, &failure);
    }

    /// A failure outside of anybody's call may have cost the session, or the link.
    fn report(self: &Arc<Self>, live: &Arc<Live>, failure: &Failure) {
        match failure {
            Failure::Declined(_)
            | Failure::LacksResources(_)
            | Failure::Outdated(_)
            | Failure::BeyondScope(_)
            | Failure::Busy { .. } => {}
            Failure::Unreachable(_) | Failure::SessionExpired(_) => {
                let answer = ProbeAnswer::Failed(failure.clone());
                self.tell(Input::ProbeEnded { epoch: live.epoch, answer });
            }
            Failure::Lost(_)
            | Failure::TimedOut(_)
            | Failure::ServerFault(_)
            | Failure::Nonsense(_)
            // Renewed for one thing that is refused whatever it shows, a session would never come to rest.
            | Failure::CredentialRefused(_)
            | Failure::Blocked(_) => {
                let (upstream, live) = (Arc::clone(self), Arc::clone(live));
                tokio::spawn(async move { upstream.look_after(&live).await });
            }
        }
    }
}

async fn end_of(stream: &mut Option<Stream>) -> Result<Result<Reply, Box<Trouble>>, tokio::task::JoinError> {
    match stream {
        Some(stream) => (&mut stream.0).await,
        None => std::future::pending().await,
    }
}

/// What a stream that was opened without something says about it.
fn not_acknowledged() -> Answer {
    let text = "the server does not tell of changes of this";
    own_error(codes::INVALID_PARAMS, text, Era::Modern)
}

/// An error in the words of the protocol, for a server that found none.
fn own_error(code: i64, text: &str, era: Era) -> Answer {
    let message = envelope::error_response(None, code, text, None);
    Answer::read(&message.into(), era).expect("an error response is a response")
}

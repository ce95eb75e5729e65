//! Session sync: performs the sync actions of the present session for as long as it lasts. `core::session_state`
//! decides which action is due and when.

use super::{SessionNumber, SyncResult};
use crate::transport::{Outgoing, Reply, SendError};
use crate::upstream::answer::Answer;
use crate::upstream::call::classify_reply;
use crate::upstream::{Connection, Upstream};
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use gripfast_core::event::Event;
use gripfast_core::failure::{CallOutcome, During, Failure, Sent};
use gripfast_core::session_state::{
    Restored, SubscribeMethod, SubscriptionTarget, SyncAction, SyncEnd, SyncSupport,
};
use gripfast_core::supervise::upstream::{Input, ProbeAnswer};
use gripfast_wire::envelope;
use gripfast_wire::era::RequestContext;
use gripfast_wire::log::{self, LogLevel};
use gripfast_wire::patch::{Object, Patch};
use gripfast_wire::subscriptions::{self, Filter};
use gripfast_wire::{Era, Json, Outcome, codes, tasks};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Time after which an unacknowledged update stream counts as open without targets.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Tasks that are polled concurrently after a stream was lost.
const MAX_CONCURRENT_POLLS: usize = 8;

/// The update stream of the modern era. Dropping it closes it.
struct Stream(JoinHandle<Result<Reply, Box<SendError>>>);

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    fn filter(&self, lists: bool, subjects: &[SubscriptionTarget]) -> Filter {
        let declared = self.server.capabilities;
        let (mut uris, mut tasks) = (Vec::new(), Vec::new());
        for target in subjects {
            match target {
                SubscriptionTarget::Resource(uri) => uris.push(uri.clone()),
                SubscriptionTarget::Task(id) => tasks.push(id.clone()),
            }
        }
        Filter {
            tools: lists && declared.tools_changes,
            prompts: lists && declared.prompts_changes,
            resources: lists && declared.resources_changes,
            uris,
            tasks,
        }
    }

    /// The context of a task request, which must declare the tasks extension.
    fn context_with_tasks(&self) -> RequestContext {
        let capabilities = tasks::with_task_capability(&self.context.capabilities);
        RequestContext { capabilities, ..self.context.clone() }
    }
}

impl Upstream {
    /// The sync actions that the server of this session supports.
    pub(crate) fn sync_support(&self, connection: &Connection) -> SyncSupport {
        let declared = connection.server.capabilities;
        match connection.session.era {
            Era::Legacy => SyncSupport {
                level: declared.logging,
                subscribe: if declared.resources_subscribe {
                    SubscribeMethod::Each
                } else {
                    SubscribeMethod::None
                },
            },
            // Modern requests carry their own log level.
            Era::Modern => SyncSupport {
                level: false,
                subscribe: SubscribeMethod::Stream {
                    lists: self.wants_list_changes() && !connection.filter(true, &[]).is_empty(),
                    resources: declared.resources_subscribe,
                    tasks: connection.server.has_tasks(),
                },
            },
        }
    }

    /// Only the shared instance, which lists the catalog, needs list changes.
    fn wants_list_changes(&self) -> bool {
        !self.role.is_dedicated()
    }

    /// Runs the session sync until it is aborted together with the session.
    pub(crate) async fn run_session_sync(
        self: Arc<Self>,
        connection: Arc<Connection>,
        session: SessionNumber,
    ) {
        let mut stream: Option<Stream> = None;
        loop {
            let due = self.session_state.due.notified();
            tokio::pin!(due);
            // Enabled before the check, so that no change is missed.
            due.as_mut().enable();
            while let Some(action) = self.session_state.next(self.clock.mono(), session) {
                let (ended, results) = self.run_action(&connection, &mut stream, action).await;
                let tasks = self.session_state.action_ended(self.clock.mono(), session, ended, results);
                self.poll_tasks(&connection, tasks).await;
            }
            if let Some(restored) = self.session_state.take_restored(session) {
                let missing = match restored {
                    Restored::Nothing | Restored::Everything => Vec::new(),
                    Restored::Partly { missing } => missing,
                };
                self.announce(self.clock.now(), Event::SessionRestored { missing });
            }
            let wake = self.session_state.wake_at(session);
            let again = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(self.clock.instant(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = again => {}
                end = stream_end(&mut stream) => {
                    stream = None;
                    self.session_state.stream_ended(self.clock.mono(), session);
                    // The server may have ended with the stream: probe before the next call.
                    self.report_stream_end(&connection, end);
                }
            }
        }
    }

    async fn run_action(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        stream: &mut Option<Stream>,
        action: SyncAction,
    ) -> (SyncEnd, Vec<(SubscriptionTarget, SyncResult)>) {
        match action {
            SyncAction::SetLevel(level) => {
                let params = Patch::new().set_text("level", &level).to_object();
                // Calls that want no lower level meanwhile need not request it.
                let claim = LogLevel::from_name(&level).and_then(|level| connection.log_level.claim(level));
                let result = self.send_sync_request(connection, log::SET_LEVEL, &params).await;
                if let (Some(claim), SyncResult::Done) = (claim, &result) {
                    claim.commit();
                }
                (SyncEnd::Level(result.verdict()), Vec::new())
            }
            SyncAction::UpdateSubscriptions { subscribe: begin, unsubscribe: end } => {
                let ending = end
                    .iter()
                    .map(|target| self.send_for_target(connection, "resources/unsubscribe", target));
                // The result does not matter: there is no subscriber left.
                join_all(ending).await;
                let beginning = begin.into_iter().map(|target| async move {
                    let result = self.send_for_target(connection, "resources/subscribe", &target).await;
                    (target, result)
                });
                let results = join_all(beginning).await;
                let verdicts =
                    results.iter().map(|(target, result)| (target.clone(), result.verdict())).collect();
                (SyncEnd::Subscribed(verdicts), results)
            }
            SyncAction::OpenStream { targets: subjects } => self.listen(connection, stream, subjects).await,
        }
    }

    async fn send_for_target(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        method: &str,
        target: &SubscriptionTarget,
    ) -> SyncResult {
        let params = match target {
            SubscriptionTarget::Resource(uri) => Patch::new().set_text("uri", uri).to_object(),
            SubscriptionTarget::Task(id) => Patch::new().set_text("taskId", id).to_object(),
        };
        self.send_sync_request(connection, method, &params).await
    }

    /// Polls the status of tasks whose subscribers may have missed a notification, and forwards it. A task that the
    /// server no longer knows is skipped.
    async fn poll_tasks(self: &Arc<Self>, connection: &Arc<Connection>, ids: Vec<String>) {
        let context = connection.context_with_tasks();
        let looks = ids.into_iter().map(|id| {
            let context = &context;
            async move {
                let params = Patch::new().set_text("taskId", &id).to_object();
                let looking = self.internal_request_with(
                    connection,
                    context,
                    "tasks/get",
                    Some(&params),
                    During::Probe,
                );
                let answer = looking.await.ok().and_then(|message| Answer::parse(&message, Era::Modern))?;
                let Outcome::Result(task) = answer.outcome() else { return None };
                self.session_state.task_updated(&id, &tasks::status_notification(&Object::parse(task).ok()?));
                Some(())
            }
        });
        stream::iter(looks).buffer_unordered(MAX_CONCURRENT_POLLS).collect::<Vec<_>>().await;
    }

    /// Sends one sync request and classifies its answer.
    async fn send_sync_request(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        method: &str,
        params: &Json,
    ) -> SyncResult {
        let answered = match self.internal_request(connection, method, Some(params), During::Call).await {
            Ok(message) => classify_reply(Reply::new(message), connection),
            Err(send_error) => Err(send_error),
        };
        match answered {
            Ok(answer) if answer.result().is_ok() => SyncResult::Done,
            Ok(answer) => SyncResult::Declined(answer),
            Err(send_error) => self.sync_failure(connection, *send_error),
        }
    }

    /// Opens an update stream for these targets and closes the one before.
    async fn listen(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        stream: &mut Option<Stream>,
        subjects: Vec<SubscriptionTarget>,
    ) -> (SyncEnd, Vec<(SubscriptionTarget, SyncResult)>) {
        let filter = connection.filter(self.wants_list_changes(), &subjects);
        if filter.is_empty() {
            *stream = None;
            return (SyncEnd::StreamOpened { granted: Vec::new() }, Vec::new());
        }
        let each =
            |result: &dyn Fn(&SubscriptionTarget) -> SyncResult| -> Vec<(SubscriptionTarget, SyncResult)> {
                subjects.iter().map(|target| (target.clone(), result(target))).collect()
            };
        let Some((mut opened, acknowledged)) = self.open_stream(connection, &filter) else {
            let text = "the request context could not be added to its parameters".to_owned();
            let result = SyncResult::Failed(Failure::InvalidResponse(text), CallOutcome::NotSent);
            return (SyncEnd::StreamNotOpened(result.verdict()), each(&|_| result.clone()));
        };
        let granted = tokio::select! {
            granted = acknowledged => Ok(granted.unwrap_or_default()),
            ended = &mut opened.0 => Err(ended),
            () = tokio::time::sleep(ACKNOWLEDGE_TIMEOUT) => Ok(Vec::new()),
        };
        match granted {
            Ok(granted) => {
                *stream = Some(opened);
                let results = each(&|target| match granted.contains(target) {
                    true => SyncResult::Done,
                    false => SyncResult::Declined(not_acknowledged()),
                });
                (SyncEnd::StreamOpened { granted }, results)
            }
            Err(ended) => {
                let result = self.refused_stream(connection, ended);
                (SyncEnd::StreamNotOpened(result.verdict()), each(&|_| result.clone()))
            }
        }
    }

    fn open_stream(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        filter: &Filter,
    ) -> Option<(Stream, tokio::sync::oneshot::Receiver<Vec<SubscriptionTarget>>)> {
        let params = filter.to_params();
        let params = match filter.tasks.is_empty() {
            true => connection.context.apply_to(Some(&params)).ok()?,
            false => connection.context_with_tasks().apply_to(Some(&params)).ok()?,
        };
        let id = self.next_request_id();
        let request = Outgoing {
            id,
            method: subscriptions::LISTEN,
            message: envelope::request(id, subscriptions::LISTEN, Some(&params)),
            name: None,
            headers: Vec::new(),
            during: During::Probe,
            safety: crate::transport::Safety::Replayable,
            sent: Arc::default(),
            principal: None,
            listener: None,
            memory: None,
        };
        let acknowledged = self.session_state.opening(*connection.session_number.get()?, id);
        let connection = Arc::clone(connection);
        let task = tokio::spawn(async move { connection.link.request(&connection.session, request).await });
        Some((Stream(task), acknowledged))
    }

    /// Classifies an update stream that ended before its acknowledgement.
    fn refused_stream(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        ended: Result<Result<Reply, Box<SendError>>, tokio::task::JoinError>,
    ) -> SyncResult {
        match ended {
            Ok(Ok(reply)) => match Answer::parse(&reply.message, connection.session.era) {
                Some(answer) if answer.result().is_err() => SyncResult::Declined(answer),
                Some(_) | None => {
                    let text = "its update stream ended immediately".to_owned();
                    SyncResult::Failed(Failure::Lost(text), CallOutcome::Refused)
                }
            },
            Ok(Err(send_error)) => self.sync_failure(connection, *send_error),
            Err(_) => SyncResult::Failed(
                Failure::Lost("the update stream was cancelled".to_owned()),
                CallOutcome::NotSent,
            ),
        }
    }

    /// Classifies a failed sync request and reports it to the machine.
    fn sync_failure(self: &Arc<Self>, connection: &Arc<Connection>, send_error: SendError) -> SyncResult {
        let failure = self.secrets.classify(&send_error.evidence);
        let outcome = match send_error.evidence.sent {
            Sent::No => CallOutcome::NotSent,
            Sent::Yes => CallOutcome::Unknown,
        };
        if let Failure::Declined(text) = &failure {
            let answer =
                send_error.answer.and_then(|message| Answer::parse(&message, connection.session.era));
            let own = || own_error(codes::INTERNAL_ERROR, text, connection.session.era);
            return SyncResult::Declined(answer.unwrap_or_else(own));
        }
        self.report_failure(connection, &failure);
        SyncResult::Failed(failure, outcome)
    }

    fn report_stream_end(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        end: Result<Result<Reply, Box<SendError>>, tokio::task::JoinError>,
    ) {
        let failure = match end {
            Ok(Err(send_error)) => self.secrets.classify(&send_error.evidence),
            Ok(Ok(_)) | Err(_) => Failure::Lost("its update stream ended".to_owned()),
        };
        self.report_failure(connection, &failure);
    }

    /// Reports a failure outside of calls, which may have cost the session or the connection.
    fn report_failure(self: &Arc<Self>, connection: &Arc<Connection>, failure: &Failure) {
        match failure {
            Failure::Declined(_)
            | Failure::OutOfResources(_)
            | Failure::HeaderMismatch(_)
            | Failure::InsufficientScope(_)
            | Failure::Busy { .. } => {}
            Failure::Unreachable(_) | Failure::SessionExpired(_) => {
                let answer = ProbeAnswer::Failed(failure.clone());
                self.handle_input(Input::ProbeEnded { epoch: connection.epoch, answer });
            }
            Failure::Lost(_)
            | Failure::TimedOut(_)
            | Failure::ServerFault(_)
            | Failure::InvalidResponse(_)
            // A session that is renewed because of one refused request would be renewed forever.
            | Failure::CredentialRefused(_)
            | Failure::Blocked(_) => {
                let (upstream, connection) = (Arc::clone(self), Arc::clone(connection));
                tokio::spawn(async move { upstream.probe_now(&connection).await });
            }
        }
    }
}

async fn stream_end(
    stream: &mut Option<Stream>,
) -> Result<Result<Reply, Box<SendError>>, tokio::task::JoinError> {
    match stream {
        Some(stream) => (&mut stream.0).await,
        None => std::future::pending().await,
    }
}

/// The answer for a target that the server did not acknowledge.
fn not_acknowledged() -> Answer {
    let text = "the server does not send updates for this";
    own_error(codes::INVALID_PARAMS, text, Era::Modern)
}

/// A JSON-RPC error for a failure without a response of the server.
fn own_error(code: i64, text: &str, era: Era) -> Answer {
    let message = envelope::error_response(None, code, text, None);
    Answer::parse(&message.into(), era).expect("an error response is a response")
}

//! The supervisor task of an upstream. It performs the actions of the supervision machine, each in a task of its own
//! so that it never waits, reports their results, and keeps one timer.

use super::connect::{NewConnection, PendingLink};
use super::listing::ListingOrigin;
use super::standby;
use super::standby::{RetiredConnection, Standby};
use super::{Connection, Upstream, listing, micros};
use crate::transport::{BoxFuture, InFlightCalls, Incoming, Link, Session};
use futures_util::FutureExt;
use futures_util::future::Shared;
use gripfast_core::failure::{During, Evidence, Failure, Observed, RpcError};
use gripfast_core::ids::{Epoch, StandbyId};
use gripfast_core::supervise::keepalive::Probe;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{
    Action, CloseMode, Command, Input, ProbeAnswer, Renewal, StandbyRole,
};
use gripfast_wire::Outcome;
use gripfast_wire::envelope::Message;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

/// Result of an action.
pub(super) enum ActionReport {
    Connected { epoch: Epoch, outcome: Result<Box<NewConnection>, Failure> },
    Renewed { epoch: Epoch, outcome: Result<Box<Connection>, Failure> },
    Probed { epoch: Epoch, answer: ProbeAnswer },
    Listed { epoch: Epoch, outcome: Result<listing::Listing, Failure> },
    StandbyConnected { id: StandbyId, role: StandbyRole, outcome: Result<Box<standby::NewStandby>, Failure> },
    Measured { epoch: Epoch, resident: Option<u64> },
}

pub(super) struct Supervisor {
    pub(super) upstream: Arc<Upstream>,
    pub(super) tasks: JoinSet<ActionReport>,
    /// The running connection attempt or renewal.
    connecting: Option<PendingAction>,
    /// Closing of lost and abandoned links: the next connection is made after it, and the supervisor ends after it.
    closing: ClosingLinks,
    pub(super) inbox: Option<mpsc::Receiver<Incoming>>,
    session_sync: Option<AbortHandle>,
    /// Calls of every connection that still has some.
    calls: Vec<Weak<InFlightCalls>>,
    /// The connection beside the present one.
    pub(super) standby: Option<Standby>,
    /// Replaced connections, kept for the calls that began on them.
    pub(super) retired: Vec<RetiredConnection>,
    /// Closing of standby and retired connections. Only the end of the supervisor waits for it.
    pub(super) closing_standbys: ClosingLinks,
}

/// A running connection attempt or renewal.
pub(super) struct PendingAction {
    task: AbortHandle,
    /// Closed when the task has ended: it may be starting a child when it is aborted.
    done: oneshot::Receiver<()>,
    opening: PendingLink,
}

impl PendingAction {
    /// Aborts the action and waits until its task has ended and the link that it was opening is closed. A child that
    /// is being started at that moment, and a link that is being listed, are waited for only when the supervisor
    /// ends.
    pub(super) fn abort(self) -> impl Future<Output = ()> + Send + 'static {
        self.task.abort();
        async move {
            // Only now is it certain which link it has opened, if any.
            let _ = self.done.await;
            if let Some(opening) = self.opening.take() {
                opening.close(None, CloseMode::Immediate).await;
            }
        }
    }
}

/// Links that are closed one after another.
#[derive(Default)]
pub(super) struct ClosingLinks(Option<Shared<BoxFuture<'static, ()>>>);

impl ClosingLinks {
    pub(super) fn add(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let earlier = self.0.take();
        let closing = tokio::spawn(async move {
            if let Some(earlier) = earlier {
                earlier.await;
            }
            work.await;
        });
        let closed: BoxFuture<'static, ()> = Box::pin(async move {
            let _ = closing.await;
        });
        self.0 = Some(closed.shared());
    }

    pub(super) fn close(&mut self, link: Arc<dyn Link>, session: Option<Arc<Session>>, manner: CloseMode) {
        self.add(async move { link.close(session.as_deref(), manner).await });
    }

    /// Waits until all of them are closed.
    async fn wait(self) {
        if let Some(closing) = self.0 {
            closing.await;
        }
    }
}

/// Runs the supervisor of `upstream` until shutdown, and returns when no process or connection is left.
pub(super) async fn supervise(upstream: Arc<Upstream>) {
    if upstream.listing.borrow().origin == ListingOrigin::Stored {
        let deps = upstream.deps();
        upstream.secrets.set_for_link(deps.dialer.secrets().await);
    }
    upstream.secrets_ready.cancel();
    let supervisor = Supervisor {
        upstream,
        tasks: JoinSet::new(),
        connecting: None,
        closing: ClosingLinks::default(),
        inbox: None,
        session_sync: None,
        calls: Vec::new(),
        standby: None,
        retired: Vec::new(),
        closing_standbys: ClosingLinks::default(),
    };
    supervisor.run().await;
}

impl Supervisor {
    /// A child that the kernel cannot end is not waited for longer than this.
    const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

    async fn run(mut self) {
        let shutdown = self.upstream.shutdown_token.clone();
        let mut ending = false;
        // Waits for a login as long as one is missing.
        let mut login: Option<BoxFuture<'static, ()>> = None;
        loop {
            // Under one lock: a call that ends in between may add an action and clear the timeout.
            let is_over = loop {
                match self
                    .upstream
                    .with_machine(|machine, _| (machine.poll_action(), machine.poll_timeout().is_none()))
                {
                    (Some(action), _) => self.perform(action),
                    (None, nothing_is_due) => break ending && nothing_is_due,
                }
            };
            if is_over {
                break;
            }
            let due = self.arm_timer();
            let timer = async {
                match due {
                    Some(due) => tokio::time::sleep_until(self.upstream.clock.instant(due)).await,
                    None => std::future::pending().await,
                }
            };
            if self.upstream.state() != State::NeedsLogin {
                login = None;
            } else if login.is_none() {
                let dialer = Arc::clone(&self.upstream.deps().dialer);
                login = Some(Box::pin(async move { dialer.credential_changed().await }));
            }
            tokio::select! {
                () = timer => self.upstream.with_machine(|machine, now| machine.handle_timeout(now)),
                () = self.upstream.supervisor_notify.notified() => {}
                () = login_completed(&mut login) => {
                    login = None;
                    self.upstream.send_command(Command::CauseChanged);
                }
                Some(report) = self.tasks.join_next() => {
                    // A task that was aborted or panicked has no report. A listing always has one; for the others the
                    // machine has its own timeouts.
                    if let Ok(report) = report {
                        self.handle_report(report);
                    }
                }
                incoming = next_message(&mut self.inbox) => self.handle_incoming(incoming),
                incoming = standby::next_message(&mut self.standby) => self.handle_standby_message(incoming),
                () = shutdown.cancelled(), if !ending => {
                    ending = true;
                    self.upstream.send_command(Command::Stop);
                }
            }
        }
        self.tasks.abort_all();
        while let Some(done) = self.tasks.join_next().await {
            // Completed when it was no longer wanted, so it was not taken over.
            match done {
                Ok(ActionReport::Connected { outcome: Ok(new_connection), .. }) => {
                    self.closing.close(new_connection.connection.link, None, CloseMode::Immediate);
                }
                Ok(ActionReport::StandbyConnected { outcome: Ok(new_standby), .. }) => {
                    self.closing_standbys.close(
                        new_standby.new_connection.connection.link,
                        None,
                        CloseMode::Immediate,
                    );
                }
                Ok(_) | Err(_) => {}
            }
        }
        std::mem::take(&mut self.closing).wait().await;
        std::mem::take(&mut self.closing_standbys).wait().await;
        // Children that were abandoned during their start are tracked only here.
        self.upstream.children.close();
        let _ = tokio::time::timeout(Self::SHUTDOWN_TIMEOUT, self.upstream.children.wait()).await;
    }

    /// Records when the timer fires, so that a call that needs an earlier time knows that it has to wake the
    /// supervisor.
    fn arm_timer(&self) -> Option<gripfast_core::time::Mono> {
        let due = self.upstream.with_machine(|machine, _| machine.poll_timeout());
        self.upstream.timer_due.store(due.map_or(u64::MAX, micros), Ordering::Release);
        // The timeout may have changed between reading and recording it: check again.
        let again = self.upstream.with_machine(|machine, _| machine.poll_timeout());
        if again != due {
            self.upstream.supervisor_notify.notify_one();
        }
        again
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Connect { epoch } => self.connect(epoch),
            Action::UseSpare { id, epoch } => match self.take_spare(id) {
                Some(new_connection) => self.apply_connection(epoch, new_connection),
                None => self.connect(epoch),
            },
            Action::Close(manner) => self.close_link(manner),
            Action::ConnectStandby { id, role } => self.connect_standby(id, role),
            Action::DropStandby => self.drop_standby(),
            Action::CloseRetired { epoch } => self.close_retired(epoch),
            Action::MeasureMemory { epoch } => self.measure_memory(epoch),
            Action::EndCalls => {
                for calls in self.calls.drain(..).filter_map(|calls| calls.upgrade()) {
                    calls.end_all();
                }
            }
            Action::Probe { epoch, probe } => {
                let upstream = Arc::clone(&self.upstream);
                if let Some(connection) = self.upstream.connection() {
                    self.tasks.spawn(async move {
                        ActionReport::Probed { epoch, answer: upstream.probe(&connection, probe).await }
                    });
                }
            }
            Action::Renew { epoch, renewal } => self.renew(epoch, renewal),
            Action::ListCatalog { epoch } => {
                let upstream = Arc::clone(&self.upstream);
                match self.upstream.connection() {
                    Some(connection) if upstream.needs_listing(&connection) => {
                        self.tasks.spawn(async move {
                            // Calls that waited for the connection have been woken and go first.
                            tokio::task::yield_now().await;
                            ActionReport::Listed { epoch, outcome: upstream.list_current(&connection).await }
                        });
                    }
                    Some(_) => self.upstream.handle_input(Input::CatalogKnown { epoch }),
                    None => {}
                }
            }
        }
    }

    fn handle_report(&mut self, report: ActionReport) {
        match report {
            ActionReport::Connected { epoch, outcome: Ok(new_connection) } => {
                self.apply_connection(epoch, *new_connection)
            }
            ActionReport::Connected { epoch, outcome: Err(failure) } => {
                self.upstream.handle_input(Input::LinkDown { epoch, failure });
            }
            ActionReport::Renewed { epoch, outcome: Ok(connection) } => {
                if !self.upstream.with_machine(|machine, _| machine.awaits(epoch)) {
                    return;
                }
                self.install(*connection);
                self.upstream.handle_input(Input::RenewalEnded { epoch, failure: None });
            }
            ActionReport::Renewed { epoch, outcome: Err(failure) } => {
                self.upstream.handle_input(Input::RenewalEnded { epoch, failure: Some(failure) });
            }
            ActionReport::Probed { epoch, answer } => {
                self.upstream.handle_input(Input::ProbeEnded { epoch, answer })
            }
            ActionReport::Listed { epoch, outcome: Ok(listing) } => {
                let missing = listing.missing.clone();
                // Published first, so that the tools are visible when the state is ready.
                if self.upstream.connection().is_some_and(|connection| connection.epoch == epoch) {
                    self.upstream.apply_listing(epoch, listing);
                }
                self.upstream.handle_input(match missing {
                    None => Input::CatalogListed { epoch },
                    Some(cause) => Input::CatalogPartlyListed { epoch, cause },
                });
                self.upstream.changed.notify_waiters();
            }
            ActionReport::Listed { epoch, outcome: Err(failure) } => {
                self.upstream.handle_input(Input::CatalogFailed { epoch, failure });
            }
            ActionReport::StandbyConnected { id, role, outcome } => self.apply_standby(id, role, outcome),
            ActionReport::Measured { epoch, resident } => {
                if let Some(resident) = resident {
                    self.upstream.handle_input(Input::MemoryMeasured { epoch, resident });
                }
            }
        }
    }

    fn connect(&mut self, epoch: Epoch) {
        let closing = self.closing.0.clone();
        let pending = self.spawn_action(move |upstream, opening| async move {
            if let Some(closing) = closing {
                closing.await;
            }
            ActionReport::Connected { epoch, outcome: upstream.connect(epoch, &opening).await.map(Box::new) }
        });
        self.connecting = Some(pending);
    }

    /// Starts a connection attempt or renewal in its own task.
    pub(super) fn spawn_action<F>(
        &mut self,
        work: impl FnOnce(Arc<Upstream>, PendingLink) -> F,
    ) -> PendingAction
    where
        F: Future<Output = ActionReport> + Send + 'static,
    {
        let opening = PendingLink::default();
        let work = work(Arc::clone(&self.upstream), opening.clone());
        let (done_sender, done) = oneshot::channel::<()>();
        let task = self.tasks.spawn(async move {
            let _done_sender = done_sender;
            work.await
        });
        PendingAction { task, done, opening }
    }

    /// Puts a new connection to use, if it is still wanted.
    fn apply_connection(&mut self, epoch: Epoch, new_connection: NewConnection) {
        let NewConnection { mut connection, inbox, received } = new_connection;
        if !self.upstream.with_machine(|machine, _| machine.awaits(epoch)) {
            // No longer wanted when it succeeded.
            return self.closing.close(connection.link, None, CloseMode::Immediate);
        }
        connection.epoch = epoch;
        self.inbox = Some(inbox);
        let probe = connection.first_probe();
        self.install(connection);
        self.upstream.handle_input(Input::LinkUp { epoch, probe });
        self.upstream.remember_start();
        for incoming in received {
            self.upstream.handle_incoming(epoch, incoming);
        }
    }

    /// Installed before the machine is informed, so that an admitted call finds the connection.
    fn install(&mut self, connection: Connection) {
        let connection = Arc::new(connection);
        self.upstream.set_connection(Some(Arc::clone(&connection)));
        self.start_session_sync(connection);
    }

    /// Starts the session sync of the present session and stops that of the one before.
    pub(super) fn start_session_sync(&mut self, connection: Arc<Connection>) {
        // A renewed session keeps the calls of its link.
        let present = Arc::downgrade(&connection.in_flight);
        self.calls.retain(|calls| calls.strong_count() > 0 && !calls.ptr_eq(&present));
        self.calls.push(present);
        let state = &self.upstream.session_state;
        let session =
            state.begin_session(self.upstream.sync_support(&connection), connection.restore_calls.clone());
        let _ = connection.session_number.set(session);
        let session_sync = tokio::spawn(Arc::clone(&self.upstream).run_session_sync(connection, session));
        if let Some(old) = self.session_sync.replace(session_sync.abort_handle()) {
            old.abort();
        }
    }

    fn renew(&mut self, epoch: Epoch, renewal: Renewal) {
        let Some(connection) = self.upstream.connection() else { return };
        let pending = self.spawn_action(move |upstream, _| async move {
            let outcome = match renewal {
                Renewal::Session => upstream.renew_session(epoch, &connection).await,
                Renewal::Credential => upstream.renew_credential(epoch, &connection).await,
            };
            ActionReport::Renewed { epoch, outcome: outcome.map(Box::new) }
        });
        self.connecting = Some(pending);
    }

    fn close_link(&mut self, manner: CloseMode) {
        if let Some(pending) = self.connecting.take() {
            self.closing.add(pending.abort());
        }
        if let Some(session_sync) = self.session_sync.take() {
            session_sync.abort();
        }
        self.inbox = None;
        if let Some(connection) = self.upstream.set_connection(None) {
            if let Some(session) = connection.session_number.get() {
                self.upstream.session_state.end_session(*session);
            }
            self.closing.close(Arc::clone(&connection.link), Some(Arc::clone(&connection.session)), manner);
        }
    }

    fn handle_incoming(&mut self, incoming: Option<Incoming>) {
        let Some(connection) = self.upstream.connection() else { return };
        match incoming {
            Some(incoming) => self.upstream.handle_incoming(connection.epoch, incoming),
            // The link has no unsolicited messages, for example because its streams were refused.
            None => self.inbox = None,
        }
    }
}

/// An aborted supervisor releases the connection as well.
impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(session_sync) = self.session_sync.take() {
            session_sync.abort();
        }
        self.upstream.set_connection(None);
        // A call admitted now would find no connection, and no supervisor would make another.
        self.upstream.send_command(Command::Stop);
    }
}

async fn next_message(inbox: &mut Option<mpsc::Receiver<Incoming>>) -> Option<Incoming> {
    match inbox {
        Some(inbox) => inbox.recv().await,
        None => std::future::pending().await,
    }
}

async fn login_completed(login: &mut Option<BoxFuture<'static, ()>>) {
    match login {
        Some(login) => login.await,
        None => std::future::pending().await,
    }
}

impl Upstream {
    /// Sends a liveness probe.
    pub(super) async fn probe(&self, connection: &Connection, probe: Probe) -> ProbeAnswer {
        let method = match probe {
            Probe::Ping => "ping",
            Probe::Discover => "server/discover",
            Probe::ListTools => "tools/list",
        };
        let evidence = match self.internal_request(connection, method, None, During::Probe).await {
            Ok(message) => match Message::parse(&message) {
                Ok(Message::Response(response)) => match response.outcome {
                    Outcome::Result(_) => return ProbeAnswer::Alive,
                    Outcome::Error(error) => {
                        let error = RpcError { code: error.code, message: error.message.into_owned() };
                        let observed = Observed::Rpc { error, had_session: connection.has_session() };
                        Evidence::sent(During::Probe, observed)
                    }
                },
                Ok(_) | Err(_) => {
                    let observed = Observed::Malformed("its answer is not a response".to_owned());
                    Evidence::sent(During::Probe, observed)
                }
            },
            Err(send_error) => send_error.evidence,
        };
        let failure = self.secrets.classify(&evidence);
        ProbeAnswer::from_failure(probe, &evidence, failure)
    }
}

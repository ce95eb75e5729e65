//! The one task that owns an upstream. It performs what the machine decides, each thing in a task of its
//! own so that it never waits, reports what came of it, and keeps one timer.

use super::catalog::Origin;
use super::dial::{Dialed, Opening};
use super::second::{self, Retired, Second};
use super::{Live, Upstream, catalog, micros};
use crate::transport::{BoxFuture, Incoming, Link, Session, Underway};
use futures_util::FutureExt;
use futures_util::future::Shared;
use gripfast_core::failure::{During, Evidence, Failure, Observed, RpcError};
use gripfast_core::ids::{Epoch, SecondId};
use gripfast_core::supervise::keepalive::Probe;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{Action, Ask, Input, Manner, ProbeAnswer, Renewal, Role};
use gripfast_wire::Outcome;
use gripfast_wire::envelope::Message;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

/// What came of an action.
pub(super) enum Report {
    Dialed { epoch: Epoch, outcome: Result<Box<Dialed>, Failure> },
    Renewed { epoch: Epoch, outcome: Result<Box<Live>, Failure> },
    Probed { epoch: Epoch, answer: ProbeAnswer },
    Listed { epoch: Epoch, outcome: Result<catalog::Listing, Failure> },
    SecondMade { id: SecondId, role: Role, outcome: Result<Box<second::Made>, Failure> },
    Measured { epoch: Epoch, resident: Option<u64> },
}

pub(super) struct Owner {
    pub(super) upstream: Arc<Upstream>,
    pub(super) tasks: JoinSet<Report>,
    /// The dial or renewal under way.
    making: Option<Making>,
    /// The link that was lost or given up and is being closed: the next one is made after it, and the owner
    /// leaves after it.
    closing: Closing,
    pub(super) inbox: Option<mpsc::Receiver<Incoming>>,
    errands: Option<AbortHandle>,
    /// The calls of every link that was in use, for as long as somebody calls on it.
    calls: Vec<Weak<Underway>>,
    /// The link beside the present one.
    pub(super) second: Option<Second>,
    /// Links that were replaced, in use by the calls that began on them.
    pub(super) retired: Vec<Retired>,
    /// Second and retired links that are being closed. Nobody but the owner's own end waits for them.
    pub(super) leaving: Closing,
}

/// A dial or a renewal under way.
pub(super) struct Making {
    task: AbortHandle,
    /// Closed when the task is over: it may be in the middle of starting a child when it is aborted.
    over: oneshot::Receiver<()>,
    opening: Opening,
}

impl Making {
    /// Gives it up. Ends when its task is over and the link that it was opening is closed. A child that is being started
    /// at that moment, and a link that was opened and is being listed, are waited for at the owner's end only.
    pub(super) fn give_up(self) -> impl Future<Output = ()> + Send + 'static {
        self.task.abort();
        async move {
            // Only then is it certain which link it has opened, if any.
            let _ = self.over.await;
            if let Some(opening) = self.opening.take() {
                opening.close(None, Manner::AtOnce).await;
            }
        }
    }
}

/// Links being closed, one after another.
#[derive(Default)]
pub(super) struct Closing(Option<Shared<BoxFuture<'static, ()>>>);

impl Closing {
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

    pub(super) fn close(&mut self, link: Arc<dyn Link>, session: Option<Arc<Session>>, manner: Manner) {
        self.add(async move { link.close(session.as_deref(), manner).await });
    }

    /// Ends when all of them are closed.
    async fn done(self) {
        if let Some(closing) = self.0 {
            closing.await;
        }
    }
}

/// Owns `upstream` until it is told to go, and returns when nothing of it is left behind.
pub(super) async fn own(upstream: Arc<Upstream>) {
    if upstream.listing.borrow().origin == Origin::Stored {
        let settings = upstream.settings();
        upstream.secrets.filled_in(settings.dialer.secrets().await);
    }
    upstream.secrets_known.cancel();
    let owner = Owner {
        upstream,
        tasks: JoinSet::new(),
        making: None,
        closing: Closing::default(),
        inbox: None,
        errands: None,
        calls: Vec::new(),
        second: None,
        retired: Vec::new(),
        leaving: Closing::default(),
    };
    owner.run().await;
}

impl Owner {
    /// The kernel may hold a child that nobody can kill; nobody waits longer for it than this.
    const GONE_WITHIN: Duration = Duration::from_secs(5);

    async fn run(mut self) {
        let gone = self.upstream.gone.clone();
        let mut ending = false;
        // Looks for a login for as long as one is missing, whatever else happens meanwhile.
        let mut login: Option<BoxFuture<'static, ()>> = None;
        loop {
            // In one look: a call that ends in between may give us something to do, and leave nothing to wait for.
            let is_over = loop {
                match self
                    .upstream
                    .with(|machine, _| (machine.poll_action(), machine.poll_timeout().is_none()))
                {
                    (Some(action), _) => self.perform(action),
                    (None, nothing_is_due) => break ending && nothing_is_due,
                }
            };
            if is_over {
                break;
            }
            let due = self.arm();
            let timer = async {
                match due {
                    Some(due) => tokio::time::sleep_until(self.upstream.clock.instant(due)).await,
                    None => std::future::pending().await,
                }
            };
            if self.upstream.state() != State::NeedsLogin {
                login = None;
            } else if login.is_none() {
                let dialer = Arc::clone(&self.upstream.settings().dialer);
                login = Some(Box::pin(async move { dialer.credential_mended().await }));
            }
            tokio::select! {
                () = timer => self.upstream.with(|machine, now| machine.handle_timeout(now)),
                () = self.upstream.nudge.notified() => {}
                () = made(&mut login) => {
                    login = None;
                    self.upstream.ask(Ask::CauseChanged);
                }
                Some(report) = self.tasks.join_next() => {
                    // A task that was aborted or panicked has no report. A listing always has one; for the others the
                    // machine has a limit of its own.
                    if let Ok(report) = report {
                        self.take(report);
                    }
                }
                incoming = heard(&mut self.inbox) => self.hear(incoming),
                incoming = second::heard(&mut self.second) => self.hear_second(incoming),
                () = gone.cancelled(), if !ending => {
                    ending = true;
                    self.upstream.ask(Ask::Stop);
                }
            }
        }
        self.tasks.abort_all();
        while let Some(done) = self.tasks.join_next().await {
            // Made the very moment it was not wanted any more, and nobody has taken it.
            match done {
                Ok(Report::Dialed { outcome: Ok(dialed), .. }) => {
                    self.closing.close(dialed.live.link, None, Manner::AtOnce);
                }
                Ok(Report::SecondMade { outcome: Ok(made), .. }) => {
                    self.leaving.close(made.dialed.live.link, None, Manner::AtOnce);
                }
                Ok(_) | Err(_) => {}
            }
        }
        std::mem::take(&mut self.closing).done().await;
        std::mem::take(&mut self.leaving).done().await;
        // Children that were given up while they were started are known to nobody else.
        self.upstream.children.close();
        let _ = tokio::time::timeout(Self::GONE_WITHIN, self.upstream.children.wait()).await;
    }

    /// Notes when the timer will fire, so that whoever moves it earlier knows to say so.
    fn arm(&self) -> Option<gripfast_core::time::Mono> {
        let due = self.upstream.with(|machine, _| machine.poll_timeout());
        self.upstream.armed.store(due.map_or(u64::MAX, micros), Ordering::Release);
        // Between the look and the note somebody may have moved it: look again.
        let again = self.upstream.with(|machine, _| machine.poll_timeout());
        if again != due {
            self.upstream.nudge.notify_one();
        }
        again
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Dial { epoch } => self.dial(epoch),
            Action::UseSpare { id, epoch } => match self.spare(id) {
                Some(dialed) => self.take_link(epoch, dialed),
                None => self.dial(epoch),
            },
            Action::HangUp(manner) => self.hang_up(manner),
            Action::DialSecond { id, role } => self.dial_second(id, role),
            Action::DropSecond => self.drop_second(),
            Action::HangUpRetired { epoch } => self.hang_up_retired(epoch),
            Action::Measure { epoch } => self.measure(epoch),
            Action::EndCalls => {
                for calls in self.calls.drain(..).filter_map(|calls| calls.upgrade()) {
                    calls.end_all();
                }
            }
            Action::Probe { epoch, probe } => {
                let upstream = Arc::clone(&self.upstream);
                if let Some(live) = self.upstream.live() {
                    self.tasks.spawn(async move {
                        Report::Probed { epoch, answer: upstream.probe(&live, probe).await }
                    });
                }
            }
            Action::Renew { epoch, renewal } => self.renew(epoch, renewal),
            Action::ListCatalog { epoch } => {
                let upstream = Arc::clone(&self.upstream);
                match self.upstream.live() {
                    Some(live) if upstream.has_to_list(&live) => {
                        self.tasks.spawn(async move {
                            // Those who waited for the link have been woken, and go first.
                            tokio::task::yield_now().await;
                            Report::Listed { epoch, outcome: upstream.list_present(&live).await }
                        });
                    }
                    Some(_) => self.upstream.tell(Input::CatalogKnown { epoch }),
                    None => {}
                }
            }
        }
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Dialed { epoch, outcome: Ok(dialed) } => self.take_link(epoch, *dialed),
            Report::Dialed { epoch, outcome: Err(failure) } => {
                self.upstream.tell(Input::LinkDown { epoch, failure });
            }
            Report::Renewed { epoch, outcome: Ok(live) } => {
                if !self.upstream.with(|machine, _| machine.awaits(epoch)) {
                    return;
                }
                self.install(*live);
                self.upstream.tell(Input::RenewalEnded { epoch, failure: None });
            }
            Report::Renewed { epoch, outcome: Err(failure) } => {
                self.upstream.tell(Input::RenewalEnded { epoch, failure: Some(failure) });
            }
            Report::Probed { epoch, answer } => self.upstream.tell(Input::ProbeEnded { epoch, answer }),
            Report::Listed { epoch, outcome: Ok(listing) } => {
                let missing = listing.missing.clone();
                // Published first: whoever sees it ready sees its tools too.
                if self.upstream.live().is_some_and(|live| live.epoch == epoch) {
                    self.upstream.take_listing(epoch, listing);
                }
                self.upstream.tell(match missing {
                    None => Input::CatalogListed { epoch },
                    Some(cause) => Input::CatalogPartlyListed { epoch, cause },
                });
                self.upstream.changed.notify_waiters();
            }
            Report::Listed { epoch, outcome: Err(failure) } => {
                self.upstream.tell(Input::CatalogFailed { epoch, failure });
            }
            Report::SecondMade { id, role, outcome } => self.take_second(id, role, outcome),
            Report::Measured { epoch, resident } => {
                if let Some(resident) = resident {
                    self.upstream.tell(Input::Measured { epoch, resident });
                }
            }
        }
    }

    fn dial(&mut self, epoch: Epoch) {
        let closing = self.closing.0.clone();
        let making = self.make(move |upstream, opening| async move {
            if let Some(closing) = closing {
                closing.await;
            }
            Report::Dialed { epoch, outcome: upstream.dial(epoch, &opening).await.map(Box::new) }
        });
        self.making = Some(making);
    }

    /// Begins to make something in a task of its own.
    pub(super) fn make<F>(&mut self, work: impl FnOnce(Arc<Upstream>, Opening) -> F) -> Making
    where
        F: Future<Output = Report> + Send + 'static,
    {
        let opening = Opening::default();
        let work = work(Arc::clone(&self.upstream), opening.clone());
        let (until_over, over) = oneshot::channel::<()>();
        let task = self.tasks.spawn(async move {
            let _until_over = until_over;
            work.await
        });
        Making { task, over, opening }
    }

    /// A link is made: put to use, if it is still wanted.
    fn take_link(&mut self, epoch: Epoch, dialed: Dialed) {
        let Dialed { mut live, inbox, heard } = dialed;
        if !self.upstream.with(|machine, _| machine.awaits(epoch)) {
            // Given up the very moment it succeeded.
            return self.closing.close(live.link, None, Manner::AtOnce);
        }
        live.epoch = epoch;
        self.inbox = Some(inbox);
        let probe = live.first_probe();
        self.install(live);
        self.upstream.tell(Input::LinkUp { epoch, probe });
        self.upstream.remember_start();
        for incoming in heard {
            self.upstream.heard(epoch, incoming);
        }
    }

    /// In use before the machine hears of it: whoever is admitted finds it.
    fn install(&mut self, live: Live) {
        let live = Arc::new(live);
        self.upstream.set_live(Some(Arc::clone(&live)));
        self.run_errands(live);
    }

    /// Tells the session in use what it is to know, and hears from it; no longer the one before.
    pub(super) fn run_errands(&mut self, live: Arc<Live>) {
        // A renewed session goes on with those of its link.
        let present = Arc::downgrade(&live.underway);
        self.calls.retain(|calls| calls.strong_count() > 0 && !calls.ptr_eq(&present));
        self.calls.push(present);
        let wishes = &self.upstream.wishes;
        let session = wishes.begin_session(self.upstream.offers(&live), live.calls.clone());
        let _ = live.told_as.set(session);
        let errands = tokio::spawn(Arc::clone(&self.upstream).run_errands(live, session));
        if let Some(old) = self.errands.replace(errands.abort_handle()) {
            old.abort();
        }
    }

    fn renew(&mut self, epoch: Epoch, renewal: Renewal) {
        let Some(live) = self.upstream.live() else { return };
        let making = self.make(move |upstream, _| async move {
            let outcome = match renewal {
                Renewal::Session => upstream.renew_session(epoch, &live).await,
                Renewal::Credential => upstream.renew_credential(epoch, &live).await,
            };
            Report::Renewed { epoch, outcome: outcome.map(Box::new) }
        });
        self.making = Some(making);
    }

    fn hang_up(&mut self, manner: Manner) {
        if let Some(making) = self.making.take() {
            self.closing.add(making.give_up());
        }
        if let Some(errands) = self.errands.take() {
            errands.abort();
        }
        self.inbox = None;
        if let Some(live) = self.upstream.set_live(None) {
            if let Some(session) = live.told_as.get() {
                self.upstream.wishes.end_session(*session);
            }
            self.closing.close(Arc::clone(&live.link), Some(Arc::clone(&live.session)), manner);
        }
    }

    fn hear(&mut self, incoming: Option<Incoming>) {
        let Some(live) = self.upstream.live() else { return };
        match incoming {
            Some(incoming) => self.upstream.heard(live.epoch, incoming),
            // A link without a voice of its own, such as one whose streams were all refused.
            None => self.inbox = None,
        }
    }
}

/// An owner that is aborted lets go of the link all the same.
impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(errands) = self.errands.take() {
            errands.abort();
        }
        self.upstream.set_live(None);
        // Whoever would be admitted to it now finds nothing, and nobody would ever make another.
        self.upstream.ask(Ask::Stop);
    }
}

async fn heard(inbox: &mut Option<mpsc::Receiver<Incoming>>) -> Option<Incoming> {
    match inbox {
        Some(inbox) => inbox.recv().await,
        None => std::future::pending().await,
    }
}

async fn made(login: &mut Option<BoxFuture<'static, ()>>) {
    match login {
        Some(login) => login.await,
        None => std::future::pending().await,
    }
}

impl Upstream {
    /// Asks the server whether it listens.
    pub(super) async fn probe(&self, live: &Live, probe: Probe) -> ProbeAnswer {
        let method = match probe {
            Probe::Ping => "ping",
            Probe::Discover => "server/discover",
            Probe::ListTools => "tools/list",
        };
        let evidence = match self.own_request(live, method, None, During::Probe).await {
            Ok(message) => match Message::parse(&message) {
                Ok(Message::Response(response)) => match response.outcome {
                    Outcome::Result(_) => return ProbeAnswer::Alive,
                    Outcome::Error(error) => {
                        let error = RpcError { code: error.code, message: error.message.into_owned() };
                        let observed = Observed::Rpc { error, had_session: live.has_session() };
                        Evidence::sent(During::Probe, observed)
                    }
                },
                Ok(_) | Err(_) => {
                    let observed = Observed::Garbled("its answer is not a response".to_owned());
                    Evidence::sent(During::Probe, observed)
                }
            },
            Err(trouble) => trouble.evidence,
        };
        let failure = self.secrets.classify(&evidence);
        ProbeAnswer::of(probe, &evidence, failure)
    }
}

//! The one task that owns an upstream. It performs what the machine decides, each thing in a task of its
//! own so that it never waits, reports what came of it, and keeps one timer.

use super::dial::Dialed;
use super::{Live, Upstream, catalog, micros};
use crate::transport::{BoxFuture, Incoming, Link, Session};
use futures_util::FutureExt;
use futures_util::future::Shared;
use gripfast_core::failure::classify::classify;
use gripfast_core::failure::{During, Evidence, Failure, Observed, RpcError};
use gripfast_core::ids::Epoch;
use gripfast_core::supervise::keepalive::Probe;
use gripfast_core::supervise::upstream::{Action, Ask, Input, Manner, ProbeAnswer, Renewal};
use gripfast_wire::envelope::Message;
use gripfast_wire::{Outcome, codes};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

/// What came of an action.
enum Report {
    Dialed { epoch: Epoch, outcome: Result<Box<Dialed>, Failure> },
    Renewed { epoch: Epoch, outcome: Result<Box<Live>, Failure> },
    Probed { epoch: Epoch, answer: ProbeAnswer },
    Listed { epoch: Epoch, outcome: Result<catalog::Listing, Failure> },
}

struct Owner {
    upstream: Arc<Upstream>,
    tasks: JoinSet<Report>,
    /// The dial or renewal under way.
    making: Option<Making>,
    /// Links that are being closed: the next one is made after them, and the owner leaves after them.
    closing: Option<Shared<BoxFuture<'static, ()>>>,
    inbox: Option<mpsc::Receiver<Incoming>>,
    subscription: Option<AbortHandle>,
}

/// A dial or a renewal under way.
struct Making {
    task: AbortHandle,
    /// Closed when the task is over: it may be in the middle of starting a child when it is aborted.
    over: oneshot::Receiver<()>,
}

/// Owns `upstream` until it is told to go, and returns when nothing of it is left behind.
pub(super) async fn own(upstream: Arc<Upstream>) {
    let owner = Owner {
        upstream,
        tasks: JoinSet::new(),
        making: None,
        closing: None,
        inbox: None,
        subscription: None,
    };
    owner.run().await;
}

impl Owner {
    async fn run(mut self) {
        let gone = self.upstream.gone.clone();
        let mut ending = false;
        loop {
            while let Some(action) = self.upstream.with(|machine, _| machine.poll_action()) {
                self.perform(action);
            }
            if ending && self.upstream.with(|machine, _| machine.poll_timeout().is_none()) {
                break;
            }
            let due = self.arm();
            let timer = async {
                match due {
                    Some(due) => tokio::time::sleep_until(self.upstream.clock.instant(due)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = timer => self.upstream.with(|machine, now| machine.handle_timeout(now)),
                () = self.upstream.nudge.notified() => {}
                Some(report) = self.tasks.join_next() => {
                    // A task that was aborted or panicked has no report; the machine's own limits cover it.
                    if let Ok(report) = report {
                        self.take(report);
                    }
                }
                incoming = heard(&mut self.inbox) => self.hear(incoming),
                () = gone.cancelled(), if !ending => {
                    ending = true;
                    self.upstream.ask(Ask::Stop);
                }
            }
        }
        self.tasks.abort_all();
        while let Some(done) = self.tasks.join_next().await {
            // Made the very moment it was not wanted any more, and nobody has taken it.
            if let Ok(Report::Dialed { outcome: Ok(dialed), .. }) = done {
                self.close(dialed.live.link, None, Manner::AtOnce);
            }
        }
        if let Some(closing) = self.closing.take() {
            closing.await;
        }
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
            Action::Dial { epoch } => {
                let (upstream, closing) = (Arc::clone(&self.upstream), self.closing.clone());
                let (until_over, over) = oneshot::channel();
                let task = self.tasks.spawn(async move {
                    let _until_over = until_over;
                    if let Some(closing) = closing {
                        closing.await;
                    }
                    Report::Dialed { epoch, outcome: upstream.dial(epoch).await.map(Box::new) }
                });
                self.making = Some(Making { task, over });
            }
            Action::HangUp(manner) => self.hang_up(manner),
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
                if let Some(live) = self.upstream.live() {
                    self.tasks
                        .spawn(async move { Report::Listed { epoch, outcome: upstream.list(&live).await } });
                }
            }
        }
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Dialed { epoch, outcome: Ok(dialed) } => {
                let Dialed { live, inbox, heard } = *dialed;
                if !self.upstream.with(|machine, _| machine.awaits(epoch)) {
                    // Given up the very moment it succeeded.
                    return self.close(live.link, None, Manner::AtOnce);
                }
                self.inbox = Some(inbox);
                let probe = live.first_probe();
                self.install(live);
                self.upstream.tell(Input::LinkUp { epoch, probe });
                for incoming in heard {
                    self.upstream.heard(epoch, incoming);
                }
            }
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
                // Published first: whoever sees it ready sees its tools too.
                if self.upstream.live().is_some_and(|live| live.epoch == epoch) {
                    self.upstream.publish(listing);
                }
                self.upstream.tell(Input::CatalogListed { epoch });
            }
            Report::Listed { epoch, outcome: Err(failure) } => {
                self.upstream.tell(Input::CatalogFailed { epoch, failure });
            }
        }
    }

    /// In use before the machine hears of it: whoever is admitted finds it.
    fn install(&mut self, live: Live) {
        let live = Arc::new(live);
        self.upstream.set_live(Some(Arc::clone(&live)));
        let subscription = tokio::spawn(Arc::clone(&self.upstream).subscribe(live));
        if let Some(old) = self.subscription.replace(subscription.abort_handle()) {
            old.abort();
        }
    }

    fn renew(&mut self, epoch: Epoch, renewal: Renewal) {
        let upstream = Arc::clone(&self.upstream);
        let Some(live) = self.upstream.live() else { return };
        let (until_over, over) = oneshot::channel();
        let task = self.tasks.spawn(async move {
            let _until_over = until_over;
            let outcome = match renewal {
                Renewal::Session => upstream.renew_session(epoch, &live).await,
                // Without a source of credentials there is only one thing to say: a person is needed.
                Renewal::Credential => {
                    Err(Failure::CredentialRefused("the server refused the configured credential".to_owned()))
                }
            };
            Report::Renewed { epoch, outcome: outcome.map(Box::new) }
        });
        self.making = Some(Making { task, over });
    }

    fn hang_up(&mut self, manner: Manner) {
        if let Some(Making { task, over }) = self.making.take() {
            task.abort();
            let upstream = Arc::clone(&self.upstream);
            self.put_away(async move {
                // Only then is it certain which link it has opened, if any.
                let _ = over.await;
                if let Some(opening) = upstream.set_opening(None) {
                    opening.close(None, Manner::AtOnce).await;
                }
            });
        }
        if let Some(subscription) = self.subscription.take() {
            subscription.abort();
        }
        self.inbox = None;
        if let Some(live) = self.upstream.set_live(None) {
            self.close(Arc::clone(&live.link), Some(Arc::clone(&live.session)), manner);
        }
    }

    fn close(&mut self, link: Arc<dyn Link>, session: Option<Arc<Session>>, manner: Manner) {
        self.put_away(async move { link.close(session.as_deref(), manner).await });
    }

    fn put_away(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let earlier = self.closing.take();
        let closing = tokio::spawn(async move {
            if let Some(earlier) = earlier {
                earlier.await;
            }
            work.await;
        });
        let closed: BoxFuture<'static, ()> = Box::pin(async move {
            let _ = closing.await;
        });
        self.closing = Some(closed.shared());
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
        if let Some(subscription) = self.subscription.take() {
            subscription.abort();
        }
        self.upstream.set_opening(None);
        self.upstream.set_live(None);
    }
}

async fn heard(inbox: &mut Option<mpsc::Receiver<Incoming>>) -> Option<Incoming> {
    match inbox {
        Some(inbox) => inbox.recv().await,
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
        let unknown = |code: i64| code == codes::METHOD_NOT_FOUND && probe != Probe::ListTools;
        match self.own_request(live, method, None, During::Probe).await {
            Ok(message) => match Message::parse(&message) {
                Ok(Message::Response(response)) => match response.outcome {
                    Outcome::Result(_) => ProbeAnswer::Alive,
                    Outcome::Error(error) if unknown(error.code) => ProbeAnswer::Unsupported,
                    Outcome::Error(error) => {
                        let said = RpcError { code: error.code, message: error.message.into_owned() };
                        let evidence = Evidence::sent(During::Probe, Observed::Rpc(said));
                        ProbeAnswer::Failed(classify(&evidence))
                    }
                },
                Ok(_) | Err(_) => {
                    ProbeAnswer::Failed(Failure::Nonsense("its answer is not a response".to_owned()))
                }
            },
            Err(trouble) => {
                let code = match &trouble.evidence.observed {
                    Observed::Http(answer) => answer.rpc.as_ref().map(|rpc| rpc.code),
                    _ => None,
                };
                if code.is_some_and(unknown) {
                    ProbeAnswer::Unsupported
                } else {
                    ProbeAnswer::Failed(classify(&trouble.evidence))
                }
            }
        }
    }
}

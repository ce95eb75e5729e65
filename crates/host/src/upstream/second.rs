//! The owner's second hand: the link beside the present one, and those that were replaced.

use super::dial::{Dialed, keep, while_hearing};
use super::listen::own_answer;
use super::owner::{Making, Owner, Report};
use super::{Listing, Live, Upstream};
use crate::transport::Incoming;
use gripfast_core::failure::Failure;
use gripfast_core::ids::{Epoch, SecondId};
use gripfast_core::supervise::upstream::{Input, Manner, Role};
use gripfast_wire::envelope::Message;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// A link beside the present one.
pub(super) struct Second {
    id: SecondId,
    state: State,
}

enum State {
    Making(Making),
    /// A spare that waits to be needed.
    Waiting(Box<Dialed>),
}

/// A link that was replaced, in use by the calls that began on it.
pub(super) struct Retired {
    live: Arc<Live>,
    hearing: AbortHandle,
}

/// A second link that was just made.
pub(super) struct Made {
    pub(super) dialed: Dialed,
    /// What it offers; a spare was not asked.
    listing: Option<Listing>,
}

impl Owner {
    pub(super) fn dial_second(&mut self, id: SecondId, role: Role) {
        let making = self.make(move |upstream, opening| async move {
            let outcome = match upstream.dial(Epoch::default(), &opening).await {
                Ok(dialed) => upstream.prepare(dialed, role).await,
                Err(failure) => Err(failure),
            };
            Report::SecondMade { id, role, outcome: outcome.map(Box::new) }
        });
        self.second = Some(Second { id, state: State::Making(making) });
    }

    /// A second link is made, or is not.
    pub(super) fn take_second(&mut self, id: SecondId, role: Role, outcome: Result<Box<Made>, Failure>) {
        let outcome = outcome.and_then(|made| match made.dialed.lost() {
            // Dead before it was of use.
            Some(evidence) => {
                let failure = self.upstream.secrets.classify(evidence);
                self.leaving.close(made.dialed.live.link, None, Manner::AtOnce);
                Err(failure)
            }
            None => Ok(made),
        });
        let wanted = self.second.as_ref().is_some_and(|second| second.id == id);
        match outcome {
            // Given up the very moment it succeeded.
            Ok(made) if !wanted => self.leaving.close(made.dialed.live.link, None, Manner::AtOnce),
            Ok(made) => match role {
                Role::Spare => {
                    self.second = Some(Second { id, state: State::Waiting(Box::new(made.dialed)) });
                    self.upstream.tell(Input::SpareUp { id });
                }
                Role::Replacement => {
                    self.second = None;
                    self.replace(id, *made);
                }
            },
            Err(failure) => {
                if wanted {
                    self.second = None;
                }
                self.upstream.tell(Input::SecondDown { id, failure });
            }
        }
    }

    /// Puts a replacement to use in the same moment in which the machine hears of it: nobody is admitted to
    /// the one and finds the other.
    fn replace(&mut self, id: SecondId, made: Made) {
        let Made { dialed: Dialed { mut live, inbox, heard }, listing } = made;
        let probe = live.first_probe();
        let link = Arc::clone(&live.link);
        let switched = self.upstream.with(|machine, now| {
            live.epoch = machine.take_over(now, id, probe)?;
            let live = Arc::new(live);
            Some((self.upstream.set_live(Some(Arc::clone(&live))), live))
        });
        let Some((old, live)) = switched else {
            return self.leaving.close(link, None, Manner::AtOnce);
        };
        if let Some(listing) = listing {
            self.upstream.take_listing(live.epoch, listing);
        }
        if let (Some(old), Some(inbox)) = (old, self.inbox.replace(inbox)) {
            let hearing = tokio::spawn(hear_out(Arc::clone(&self.upstream), Arc::clone(&old), inbox));
            let hearing = hearing.abort_handle();
            self.retired.push(Retired { live: old, hearing });
        }
        let epoch = live.epoch;
        self.run_errands(live);
        for incoming in heard {
            self.upstream.heard(epoch, incoming);
        }
    }

    /// The spare of this number, if it still waits.
    pub(super) fn spare(&mut self, id: SecondId) -> Option<Dialed> {
        match self.second.take_if(|second| second.id == id)?.state {
            State::Waiting(dialed) => Some(*dialed),
            State::Making(making) => {
                self.leaving.add(making.give_up());
                None
            }
        }
    }

    pub(super) fn drop_second(&mut self) {
        match self.second.take().map(|second| second.state) {
            Some(State::Making(making)) => self.leaving.add(making.give_up()),
            Some(State::Waiting(dialed)) => {
                let Live { link, session, .. } = dialed.live;
                self.leaving.close(link, Some(session), Manner::Politely);
            }
            None => {}
        }
    }

    pub(super) fn hang_up_retired(&mut self, epoch: Epoch) {
        for Retired { live, hearing } in self.retired.extract_if(.., |retired| retired.live.epoch == epoch) {
            hearing.abort();
            self.leaving.close(Arc::clone(&live.link), Some(Arc::clone(&live.session)), Manner::Politely);
        }
    }

    /// What a spare says while it waits. Questions wait for the link's turn; only its liveness is confirmed.
    pub(super) fn hear_second(&mut self, incoming: Incoming) {
        let Some(Second { id, state: State::Waiting(dialed) }) = &mut self.second else { return };
        match incoming {
            Incoming::Lost(evidence) => {
                let (id, failure) = (*id, self.upstream.secrets.classify(&evidence));
                if let Some(State::Waiting(dialed)) = self.second.take().map(|second| second.state) {
                    self.leaving.close(dialed.live.link, None, Manner::AtOnce);
                }
                self.upstream.tell(Input::SecondDown { id, failure });
            }
            Incoming::Message(message) if is_ping(&message) => reply(&dialed.live, &message),
            incoming => keep(&mut dialed.heard, incoming),
        }
    }

    pub(super) fn measure(&mut self, epoch: Epoch) {
        let Some(live) = self.upstream.live() else { return };
        self.tasks.spawn(async move {
            let link = Arc::clone(&live.link);
            let resident = tokio::task::spawn_blocking(move || link.resident()).await;
            Report::Measured { epoch, resident: resident.ok().flatten() }
        });
    }
}

impl Upstream {
    /// Makes ready what was dialed for this role.
    async fn prepare(&self, mut dialed: Dialed, role: Role) -> Result<Made, Failure> {
        match role {
            Role::Spare => Ok(Made { dialed, listing: None }),
            Role::Replacement if !self.has_to_list(&dialed.live) => Ok(Made { dialed, listing: None }),
            Role::Replacement => {
                let Dialed { live, inbox, heard } = &mut dialed;
                match while_hearing(inbox, heard, self.list(live, |_tools| {})).await {
                    Ok(listing) => Ok(Made { dialed, listing: Some(listing) }),
                    Err(failure) => {
                        dialed.live.link.close(Some(&dialed.live.session), Manner::Politely).await;
                        Err(failure)
                    }
                }
            }
        }
    }
}

/// What the spare says, while there is one that waits.
pub(super) async fn heard(second: &mut Option<Second>) -> Incoming {
    if let Some(Second { state: State::Waiting(dialed), .. }) = second
        && let Some(incoming) = dialed.inbox.recv().await
    {
        return incoming;
    }
    // There is none, or it is a link without a voice of its own.
    std::future::pending().await
}

/// Takes what a replaced link says unasked, so that it is never stuck with it. Calls that began on it go on
/// there, and so do its questions.
async fn hear_out(upstream: Arc<Upstream>, live: Arc<Live>, mut inbox: mpsc::Receiver<Incoming>) {
    while let Some(incoming) = inbox.recv().await {
        match incoming {
            Incoming::Message(message) => reply(&live, &message),
            Incoming::Question { message, whose } => upstream.asked(&live, message, whose),
            // Its end is what it was replaced for.
            Incoming::Lost(_) | Incoming::StreamRefused { .. } | Incoming::Junk { .. } => {}
            Incoming::Unattributed { beside_calls } => upstream.unattributed(beside_calls),
        }
    }
}

fn is_ping(message: &[u8]) -> bool {
    matches!(Message::parse(message), Ok(Message::Request(request)) if request.method == "ping")
}

/// Answers a question in our own name.
fn reply(live: &Live, message: &[u8]) {
    if let Ok(Message::Request(request)) = Message::parse(message) {
        live.answers.put(own_answer(&request));
    }
}

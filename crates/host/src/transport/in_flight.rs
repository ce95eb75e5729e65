//! The calls under way on one link, and who may be meant by what the server says without naming one of them.
//! It is asked in the order in which the server speaks: what follows a question on the wire cannot change whose
//! question it is.

use super::{Listener, SentMark};
use crate::client::Principal;
use crate::clock::Clock;
use gripfast_core::failure::Sent;
use gripfast_core::ids::ClientKey;
use gripfast_core::isolation::{Caller, ServedPrincipals, Whose, whose};
use gripfast_core::time::Mono;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One call, as whoever speaks to its caller sees it.
pub(crate) trait CallEar: Listener {
    /// The time of the call stands still until this is dropped: somebody thinks about a question.
    fn pause(&self) -> Box<dyn Any + Send>;

    /// The call ends now, whatever the server is about to say.
    fn end(&self);
}

/// The calls under way on one link.
#[derive(Debug)]
pub(crate) struct Underway {
    clock: Clock,
    table: Mutex<Table>,
}

/// How long a server may go on with a call that was withdrawn, and how many of those are remembered.
const WORKS_ON_FOR: Duration = Duration::from_secs(600);
const MOST_WITHDRAWN: usize = 64;

#[derive(Default)]
struct Table {
    /// By the id under which the server knows them; ids only grow, so the newest is last. As many as the
    /// upstream lets go at once.
    calls: BTreeMap<u64, (Caller, Arc<dyn CallEar>)>,
    /// Calls that the server has seen and nobody waits for any more.
    withdrawn: VecDeque<(u64, Caller, Mono)>,
    /// The principals whose calls and subscriptions the link has carried.
    served: ServedPrincipals<Principal>,
    /// The server was stopped: no call goes on, and none begins.
    is_over: bool,
    /// Calls that were in flight when the first of them ended with an error, until another begins.
    at_loss: Option<usize>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (calls, withdrawn) = (self.calls.len(), self.withdrawn.len());
        f.debug_struct("Table").field("calls", &calls).field("withdrawn", &withdrawn).finish()
    }
}

impl Default for Underway {
    fn default() -> Self {
        Self { clock: Clock::new(), table: Mutex::default() }
    }
}

impl Underway {
    /// Notes a call before it is sent. It is under way until the guard is dropped.
    pub(crate) fn enter(
        self: &Arc<Self>,
        id: u64,
        caller: Caller,
        principal: &Principal,
        ear: Arc<dyn CallEar>,
        sent: Arc<SentMark>,
    ) -> Entered {
        let mut table = self.lock();
        if table.is_over {
            ear.end();
        }
        table.served.note(principal);
        table.calls.insert(id, (caller, ear));
        table.at_loss = None;
        drop(table);
        Entered { underway: Arc::clone(self), id, sent, answered: false }
    }

    /// The link carries something else on behalf of `principal`, such as a subscription.
    pub(crate) fn serves(&self, principal: &Principal) {
        self.lock().served.note(principal);
    }

    /// Whether the link has served `principal` and no other.
    pub(crate) fn served_only(&self, principal: &Principal) -> bool {
        self.lock().served.is_only(principal)
    }

    /// Whether the link has served several principals.
    pub(super) fn served_several(&self) -> bool {
        self.lock().served.is_several()
    }

    /// Whom the server means; and the newest of their calls, if it is anybody.
    pub(super) fn whose(&self) -> (Whose, Option<Arc<dyn CallEar>>) {
        let mut table = self.lock();
        table.forget_old(self.clock.mono());
        let under_way: Vec<Caller> = table.calls.values().map(|(caller, _)| caller.clone()).collect();
        let withdrawn: Vec<Caller> = table.withdrawn.iter().map(|(_, caller, _)| caller.clone()).collect();
        let meant = whose(&table.served, &under_way, &withdrawn);
        let newest = match meant {
            Whose::Call | Whose::Client(_) => table.calls.values().next_back(),
            Whose::NoCall
            | Whose::Withdrawn
            | Whose::Mingled
            | Whose::Indistinct
            | Whose::Unclear
            | Whose::SeveralPrincipals => None,
        };
        (meant, newest.map(|(_, ear)| Arc::clone(ear)))
    }

    /// The call that the server knows by this id.
    pub(super) fn call(&self, id: u64) -> Option<Arc<dyn CallEar>> {
        self.lock().calls.get(&id).map(|(_, ear)| Arc::clone(ear))
    }

    /// Whether any call is under way.
    pub(super) fn has_calls(&self) -> bool {
        !self.lock().calls.is_empty()
    }

    /// Whether the server is at work on nothing.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut table = self.lock();
        table.forget_old(self.clock.mono());
        table.calls.is_empty() && table.withdrawn.is_empty()
    }

    /// The calls of one client, the newest last.
    pub(crate) fn of(&self, client: &ClientKey) -> Vec<Arc<dyn CallEar>> {
        let table = self.lock();
        let theirs = table.calls.values().filter(|(caller, _)| caller.key() == Some(client));
        theirs.map(|(_, ear)| Arc::clone(ear)).collect()
    }

    /// A call ended with an error, and is still counted here. If the link is lost, the others follow.
    pub(crate) fn note_loss(&self) {
        let mut table = self.lock();
        let in_flight = table.calls.len() + table.withdrawn.len();
        table.at_loss.get_or_insert(in_flight);
    }

    /// Whether only one call was in flight when the first one ended with an error.
    pub(crate) fn was_alone_at_loss(&self) -> bool {
        self.lock().at_loss == Some(1)
    }

    /// Ends all calls.
    pub(crate) fn end_all(&self) {
        let mut table = self.lock();
        table.is_over = true;
        for (_, ear) in table.calls.values() {
            ear.end();
        }
    }

    /// The server has answered a call that nobody waits for any more: it is not at work on it.
    pub(super) fn settled(&self, id: u64) {
        self.lock().withdrawn.retain(|(withdrawn, _, _)| *withdrawn != id);
    }

    fn leave(&self, id: u64, withdrawn: bool) {
        let mut table = self.lock();
        let Some((caller, _)) = table.calls.remove(&id) else { return };
        if withdrawn {
            if table.withdrawn.len() == MOST_WITHDRAWN {
                table.withdrawn.pop_front();
            }
            table.withdrawn.push_back((id, caller, self.clock.mono()));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Nobody works on a withdrawn call for ever.
    fn forget_old(&mut self, now: Mono) {
        self.withdrawn.retain(|(_, _, at)| now - *at < WORKS_ON_FOR);
    }
}

/// A call that is under way until this is dropped.
pub(crate) struct Entered {
    underway: Arc<Underway>,
    id: u64,
    sent: Arc<SentMark>,
    answered: bool,
}

impl Entered {
    /// The server is done with it, or gone.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.underway.leave(self.id, !self.answered && self.sent.sent() == Sent::Yes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Anybody;

    impl Listener for Anybody {
        fn said(&self, _message: &[u8]) {}
    }

    impl CallEar for Anybody {
        fn pause(&self) -> Box<dyn Any + Send> {
            Box::new(())
        }

        fn end(&self) {}
    }

    fn enter(underway: &Arc<Underway>, id: u64, client: &str) -> Entered {
        let sent = Arc::new(SentMark::default());
        sent.set();
        underway.enter(id, Caller::One(ClientKey::new(client)), &Principal::local(), Arc::new(Anybody), sent)
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_is_not_put_to_somebody_else_while_a_withdrawn_call_may_still_be_at_work() {
        let underway = Arc::new(Underway::default());
        drop(enter(&underway, 1, "a"));
        let two = enter(&underway, 2, "b");
        assert_eq!(underway.whose().0, Whose::Unclear, "it may be the question of the first one");
        underway.settled(1);
        assert_eq!(underway.whose().0, Whose::Call, "the server is done with the first one");
        drop(enter(&underway, 3, "a"));
        tokio::time::advance(WORKS_ON_FOR).await;
        assert_eq!(underway.whose().0, Whose::Call, "or would be");
        drop(two);
        assert!(!underway.is_quiet());
        underway.settled(2);
        assert!(underway.is_quiet());
    }

    #[tokio::test]
    async fn what_was_never_sent_or_was_answered_is_nobodys_question() {
        let underway = Arc::new(Underway::default());
        enter(&underway, 1, "a").answered();
        let never = Arc::new(SentMark::default());
        drop(underway.enter(2, Caller::Unnamed, &Principal::local(), Arc::new(Anybody), never));
        assert_eq!(underway.whose().0, Whose::NoCall);
    }

    #[tokio::test]
    async fn what_is_remembered_of_withdrawn_calls_is_bounded() {
        let underway = Arc::new(Underway::default());
        for id in 0..10_000 {
            drop(enter(&underway, id, "a"));
        }
        assert_eq!(underway.lock().withdrawn.len(), MOST_WITHDRAWN);
        assert_eq!(underway.lock().calls.len(), 0);
    }
}

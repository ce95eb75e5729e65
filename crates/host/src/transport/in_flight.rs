//! Calls in flight on one link, and the attribution of server messages that name none of them. Messages are attributed
//! in the order of the wire: a later message cannot change the owner of an earlier request.

use super::{Listener, SentFlag};
use crate::client::Principal;
use crate::clock::Clock;
use crate::sync::Mutex;
use gripfast_core::failure::Sent;
use gripfast_core::ids::ClientKey;
use gripfast_core::isolation::{Attribution, Caller, ServedPrincipals, attribute};
use gripfast_core::time::Mono;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Listener of one call, which can also pause and end it.
pub(crate) trait CallListener: Listener {
    /// Stops the clock of the call until the guard is dropped, while a person answers a request of the server.
    fn pause(&self) -> Box<dyn Any + Send>;

    /// Ends the call now, even if the server is about to respond.
    fn end(&self);
}

/// Calls in flight on one link.
#[derive(Debug, Default)]
pub(crate) struct InFlightCalls {
    clock: Clock,
    table: Mutex<Table>,
}

/// Time for which a server may continue with a withdrawn call, and the number of withdrawn calls remembered.
const WITHDRAWN_TTL: Duration = Duration::from_secs(600);
const MAX_WITHDRAWN: usize = 64;

#[derive(Default)]
struct Table {
    /// Sorted by the id that the server knows; ids only grow, so the newest is last. Bounded by the upstream's limit of
    /// calls in flight.
    calls: Vec<(u64, Caller, Arc<dyn CallListener>)>,
    /// Calls that the server has seen and whose callers have stopped waiting.
    withdrawn: VecDeque<(u64, Caller, Mono)>,
    /// Principals whose calls and subscriptions the link has carried.
    served: ServedPrincipals<Principal>,
    /// The server was stopped: calls end, and no new one begins.
    stopped: bool,
    /// Number of calls in flight when the first of them failed; reset when a call begins.
    in_flight_at_loss: Option<usize>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (calls, withdrawn) = (self.calls.len(), self.withdrawn.len());
        f.debug_struct("Table").field("calls", &calls).field("withdrawn", &withdrawn).finish()
    }
}

impl InFlightCalls {
    /// Registers a call before it is sent. It is in flight until the guard is dropped.
    pub(crate) fn register(
        self: &Arc<Self>,
        id: u64,
        caller: Caller,
        principal: &Principal,
        listener: Arc<dyn CallListener>,
        sent: Arc<SentFlag>,
    ) -> InFlightCall {
        let mut table = self.table.lock();
        if table.stopped {
            listener.end();
        }
        table.served.record(principal);
        let at = table.calls.partition_point(|(known, ..)| *known < id);
        table.calls.insert(at, (id, caller, listener));
        table.in_flight_at_loss = None;
        drop(table);
        InFlightCall { calls: Arc::clone(self), id, sent, answered: false }
    }

    /// Notes that the link carries something else for `principal`, such as a subscription.
    pub(crate) fn note_principal(&self, principal: &Principal) {
        self.table.lock().served.record(principal);
    }

    /// Returns whether the link has served `principal` and no other.
    pub(crate) fn served_only(&self, principal: &Principal) -> bool {
        self.table.lock().served.is_only(principal)
    }

    /// Returns whether the link has served several principals.
    pub(super) fn served_several(&self) -> bool {
        self.table.lock().served.is_several()
    }

    /// Attributes a server message that names no call. Also returns the newest call that it may belong to, if it is
    /// attributed.
    pub(super) fn attribute(&self) -> (Attribution, Option<Arc<dyn CallListener>>) {
        let mut table = self.table.lock();
        table.remove_expired(self.clock.mono());
        let callers: Vec<Caller> = table.calls.iter().map(|(_, caller, _)| caller.clone()).collect();
        let withdrawn: Vec<Caller> = table.withdrawn.iter().map(|(_, caller, _)| caller.clone()).collect();
        let attribution = attribute(&table.served, &callers, &withdrawn);
        let newest = match attribution {
            Attribution::Call | Attribution::Client(_) => table.calls.last(),
            Attribution::NoCall
            | Attribution::Withdrawn
            | Attribution::AmbiguousCall
            | Attribution::AmbiguousAnonymous
            | Attribution::AmbiguousClient
            | Attribution::AmbiguousPrincipal => None,
        };
        (attribution, newest.map(|(_, _, listener)| Arc::clone(listener)))
    }

    /// Returns the call with this id.
    pub(super) fn get(&self, id: u64) -> Option<Arc<dyn CallListener>> {
        let table = self.table.lock();
        table.find(id).map(|at| Arc::clone(&table.calls[at].2))
    }

    /// Returns whether any call is in flight.
    pub(super) fn has_calls(&self) -> bool {
        !self.table.lock().calls.is_empty()
    }

    /// Returns whether the server has no call to work on, withdrawn ones included.
    pub(crate) fn is_idle(&self) -> bool {
        let mut table = self.table.lock();
        table.remove_expired(self.clock.mono());
        table.calls.is_empty() && table.withdrawn.is_empty()
    }

    /// Returns the calls of one client, the newest last.
    pub(crate) fn calls_of(&self, client: &ClientKey) -> Vec<Arc<dyn CallListener>> {
        let table = self.table.lock();
        let theirs = table.calls.iter().filter(|(_, caller, _)| caller.key() == Some(client));
        theirs.map(|(_, _, listener)| Arc::clone(listener)).collect()
    }

    /// Notes that a call failed while it is still counted here. If the link is lost, the other calls fail after it.
    pub(crate) fn note_loss(&self) {
        let mut table = self.table.lock();
        let in_flight = table.calls.len() + table.withdrawn.len();
        table.in_flight_at_loss.get_or_insert(in_flight);
    }

    /// Returns whether only one call was in flight when the first one failed.
    pub(crate) fn was_alone_at_loss(&self) -> bool {
        self.table.lock().in_flight_at_loss == Some(1)
    }

    /// Ends all calls, and every call that is registered later.
    pub(crate) fn end_all(&self) {
        let mut table = self.table.lock();
        table.stopped = true;
        for (_, _, listener) in &table.calls {
            listener.end();
        }
    }

    /// Forgets a withdrawn call that the server has answered.
    pub(super) fn forget_withdrawn(&self, id: u64) {
        self.table.lock().withdrawn.retain(|(withdrawn, _, _)| *withdrawn != id);
    }

    fn remove(&self, id: u64, withdrawn: bool) {
        let mut table = self.table.lock();
        let Some(at) = table.find(id) else { return };
        let (_, caller, _) = table.calls.remove(at);
        if withdrawn {
            if table.withdrawn.len() == MAX_WITHDRAWN {
                table.withdrawn.pop_front();
            }
            table.withdrawn.push_back((id, caller, self.clock.mono()));
        }
    }
}

impl Table {
    /// Returns the position of a call.
    fn find(&self, id: u64) -> Option<usize> {
        self.calls.binary_search_by_key(&id, |(known, ..)| *known).ok()
    }

    /// Forgets withdrawn calls after `WITHDRAWN_TTL`: no server works on one for ever.
    fn remove_expired(&mut self, now: Mono) {
        self.withdrawn.retain(|(_, _, at)| now - *at < WITHDRAWN_TTL);
    }
}

/// A call that is in flight until this is dropped.
pub(crate) struct InFlightCall {
    calls: Arc<InFlightCalls>,
    id: u64,
    sent: Arc<SentFlag>,
    answered: bool,
}

impl InFlightCall {
    /// Notes that the server has answered the call, or is gone.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        self.calls.remove(self.id, !self.answered && self.sent.sent() == Sent::Yes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoListener;

    impl Listener for NoListener {
        fn on_message(&self, _message: &[u8]) {}
    }

    impl CallListener for NoListener {
        fn pause(&self) -> Box<dyn Any + Send> {
            Box::new(())
        }

        fn end(&self) {}
    }

    fn enter(calls: &Arc<InFlightCalls>, id: u64, client: &str) -> InFlightCall {
        let sent = Arc::new(SentFlag::default());
        sent.set();
        calls.register(
            id,
            Caller::Single(ClientKey::new(client)),
            &Principal::local(),
            Arc::new(NoListener),
            sent,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_ambiguous_while_a_withdrawn_call_may_still_run() {
        let calls = Arc::new(InFlightCalls::default());
        drop(enter(&calls, 1, "a"));
        let two = enter(&calls, 2, "b");
        assert_eq!(calls.attribute().0, Attribution::AmbiguousClient, "it may belong to the first call");
        calls.forget_withdrawn(1);
        assert_eq!(calls.attribute().0, Attribution::Call, "the server has answered the first call");
        drop(enter(&calls, 3, "a"));
        tokio::time::advance(WITHDRAWN_TTL).await;
        assert_eq!(calls.attribute().0, Attribution::Call, "the withdrawn call has expired");
        drop(two);
        assert!(!calls.is_idle());
        calls.forget_withdrawn(2);
        assert!(calls.is_idle());
    }

    #[tokio::test]
    async fn unsent_and_answered_calls_own_no_server_request() {
        let calls = Arc::new(InFlightCalls::default());
        enter(&calls, 1, "a").answered();
        let never = Arc::new(SentFlag::default());
        drop(calls.register(2, Caller::Anonymous, &Principal::local(), Arc::new(NoListener), never));
        assert_eq!(calls.attribute().0, Attribution::NoCall);
    }

    #[tokio::test]
    async fn the_memory_of_withdrawn_calls_is_bounded() {
        let calls = Arc::new(InFlightCalls::default());
        for id in 0..10_000 {
            drop(enter(&calls, id, "a"));
        }
        assert_eq!(calls.table.lock().withdrawn.len(), MAX_WITHDRAWN);
        assert_eq!(calls.table.lock().calls.len(), 0);
    }
}

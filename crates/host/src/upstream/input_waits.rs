//! Calls that wait for a person: they have given their slots back, so that unanswered questions block nobody else. How
//! many of them one client may have is bounded, for they are still in flight at the server. A principal that has
//! authenticated counts as one client, however many sessions it has.

use super::Upstream;
use super::exchange::OpenTicket;
use crate::client::Principal;
use gripfast_core::failure::{CallError, Code, Outcome as Fate};
use gripfast_core::ids::ClientKey;
use gripfast_core::isolation::Caller;
use gripfast_core::supervise::upstream::PausedSlot;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many calls of each client wait for a person.
#[derive(Default)]
pub(super) struct InputWaits {
    /// All of them: new calls look here first.
    total: AtomicU32,
    by_client: Mutex<HashMap<Asked, u32>>,
}

/// Whoever is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Asked {
    Principal(Principal),
    /// Without authentication. Callers without a client count as one.
    Client(Option<ClientKey>),
}

impl Asked {
    fn of(principal: &Principal, caller: &Caller) -> Self {
        match principal.name() {
            Principal::LOCAL => Self::Client(caller.key().cloned()),
            _ => Self::Principal(principal.clone()),
        }
    }
}

impl InputWaits {
    fn lock(&self) -> MutexGuard<'_, HashMap<Asked, u32>> {
        self.by_client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, principal: &Principal, caller: &Caller) -> u32 {
        if self.total.load(Ordering::Acquire) == 0 {
            return 0;
        }
        self.lock().get(&Asked::of(principal, caller)).copied().unwrap_or(0)
    }
}

/// A call that waits for a person until this is dropped; it takes its slot again then, free or not.
pub(super) struct InputWait<'a> {
    upstream: &'a Upstream,
    asked: Asked,
    slot: Option<PausedSlot>,
}

impl Upstream {
    /// Refuses a further call of a client that has as many calls waiting for a person as the server takes at once.
    pub(super) fn refuse_while_asking(
        &self,
        principal: &Principal,
        caller: &Caller,
    ) -> Result<(), CallError> {
        let waiting = self.input_waits.of(principal, caller);
        if waiting == 0 || waiting < self.settings().supervision.max_in_flight {
            return Ok(());
        }
        let name = &*self.name;
        let text = format!(
            "server `{name}` has asked this client {waiting} questions that nobody has answered; \
             no further call is sent before that"
        );
        Err(CallError::new(Code::Overloaded, name, Fate::NotSent, text)
            .hint("answer or cancel the calls that wait for input"))
    }

    /// The call of this ticket waits for a person from now on.
    pub(super) fn waits_for_input<'a>(
        &'a self,
        ticket: &OpenTicket<'_>,
        principal: &Principal,
        caller: &Caller,
    ) -> InputWait<'a> {
        let asked = Asked::of(principal, caller);
        self.input_waits.total.fetch_add(1, Ordering::AcqRel);
        *self.input_waits.lock().entry(asked.clone()).or_default() += 1;
        let slot = self.with(|machine, _| machine.pause(ticket.ticket()));
        InputWait { upstream: self, asked, slot: Some(slot) }
    }
}

impl Drop for InputWait<'_> {
    fn drop(&mut self) {
        let waits = &self.upstream.input_waits;
        waits.total.fetch_sub(1, Ordering::AcqRel);
        let mut by_client = waits.lock();
        if let Some(count) = by_client.get_mut(&self.asked) {
            *count -= 1;
            if *count == 0 {
                by_client.remove(&self.asked);
            }
        }
        drop(by_client);
        if let Some(slot) = self.slot.take() {
            self.upstream.with(|machine, _| machine.resume(slot));
        }
    }
}

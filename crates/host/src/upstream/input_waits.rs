//! Calls that wait for a person: they have given their slots back, so that unanswered questions block nobody else. How
//! many of them one client may have is bounded, for they are still in flight at the server.

use super::Upstream;
use super::exchange::OpenTicket;
use gripfast_core::failure::{CallError, Code, Outcome as Fate};
use gripfast_core::ids::ClientKey;
use gripfast_core::isolation::Caller;
use gripfast_core::supervise::upstream::PausedSlot;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many calls of each client wait for a person. Callers without a client count as one.
#[derive(Default)]
pub(super) struct InputWaits {
    /// All of them: new calls look here first.
    total: AtomicU32,
    by_client: Mutex<HashMap<Option<ClientKey>, u32>>,
}

impl InputWaits {
    fn lock(&self) -> MutexGuard<'_, HashMap<Option<ClientKey>, u32>> {
        self.by_client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, client: Option<&ClientKey>) -> u32 {
        if self.total.load(Ordering::Acquire) == 0 {
            return 0;
        }
        self.lock().get(&client.cloned()).copied().unwrap_or(0)
    }
}

/// A call that waits for a person until this is dropped; it takes its slot again then, free or not.
pub(super) struct InputWait<'a> {
    upstream: &'a Upstream,
    client: Option<ClientKey>,
    slot: Option<PausedSlot>,
}

impl Upstream {
    /// Refuses a further call of a client that has as many calls waiting for a person as the server takes at once.
    pub(super) fn refuse_while_asking(&self, caller: &Caller) -> Result<(), CallError> {
        let waiting = self.input_waits.of(caller.key());
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
    pub(super) fn waits_for_input<'a>(&'a self, ticket: &OpenTicket<'_>, caller: &Caller) -> InputWait<'a> {
        let client = caller.key().cloned();
        self.input_waits.total.fetch_add(1, Ordering::AcqRel);
        *self.input_waits.lock().entry(client.clone()).or_default() += 1;
        let slot = self.with(|machine, _| machine.pause(ticket.ticket()));
        InputWait { upstream: self, client, slot: Some(slot) }
    }
}

impl Drop for InputWait<'_> {
    fn drop(&mut self) {
        let waits = &self.upstream.input_waits;
        waits.total.fetch_sub(1, Ordering::AcqRel);
        let mut by_client = waits.lock();
        if let Some(count) = by_client.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                by_client.remove(&self.client);
            }
        }
        drop(by_client);
        if let Some(slot) = self.slot.take() {
            self.upstream.with(|machine, _| machine.resume(slot));
        }
    }
}

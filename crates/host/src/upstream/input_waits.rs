//! Calls that wait for input from a client. They have released their slots, so that unanswered server requests do not
//! block other calls. Their number per client is limited, because they are still in flight at the server. An
//! authenticated principal counts as one client, whatever the number of its sessions.

use super::Upstream;
use super::call::OpenTicket;
use crate::client::Principal;
use crate::sync::Mutex;
use gripfast_core::failure::{CallError, CallOutcome, Code};
use gripfast_core::ids::ClientKey;
use gripfast_core::isolation::Caller;
use gripfast_core::supervise::upstream::PausedSlot;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of calls that wait for input, by client.
#[derive(Default)]
pub(super) struct InputWaits {
    /// Sum over all clients; new calls check it first.
    total: AtomicU32,
    by_client: Mutex<HashMap<WaitKey, u32>>,
}

/// The client that has to answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum WaitKey {
    Principal(Principal),
    /// Without authentication. All callers without a client count as one.
    Client(Option<ClientKey>),
}

impl WaitKey {
    fn of(principal: &Principal, caller: &Caller) -> Self {
        match principal.name() {
            Principal::LOCAL => Self::Client(caller.key().cloned()),
            _ => Self::Principal(principal.clone()),
        }
    }
}

impl InputWaits {
    fn of(&self, principal: &Principal, caller: &Caller) -> u32 {
        if self.total.load(Ordering::Acquire) == 0 {
            return 0;
        }
        self.by_client.lock().get(&WaitKey::of(principal, caller)).copied().unwrap_or(0)
    }
}

/// A call that waits for input until this is dropped; it then takes its slot again, free or not.
pub(super) struct InputWait<'a> {
    upstream: &'a Upstream,
    key: WaitKey,
    slot: Option<PausedSlot>,
}

impl Upstream {
    /// Refuses a call of a client that already has `max_in_flight` calls waiting for input.
    pub(super) fn refuse_while_waiting(
        &self,
        principal: &Principal,
        caller: &Caller,
    ) -> Result<(), CallError> {
        let waiting = self.input_waits.of(principal, caller);
        if waiting == 0 || waiting < self.spec().supervision.max_in_flight {
            return Ok(());
        }
        let name = &*self.name;
        let text = format!(
            "server `{name}` waits for input from this client in {waiting} calls; \
             no further call is sent before one of them is answered"
        );
        Err(CallError::new(Code::Overloaded, name, CallOutcome::NotSent, text)
            .with_hint("answer or cancel the calls that wait for input"))
    }

    /// Marks the call of this ticket as waiting for input.
    pub(super) fn wait_for_input<'a>(
        &'a self,
        ticket: &OpenTicket<'_>,
        principal: &Principal,
        caller: &Caller,
    ) -> InputWait<'a> {
        let key = WaitKey::of(principal, caller);
        self.input_waits.total.fetch_add(1, Ordering::AcqRel);
        *self.input_waits.by_client.lock().entry(key.clone()).or_default() += 1;
        let slot = self.with_machine(|machine, _| machine.pause(ticket.ticket()));
        InputWait { upstream: self, key, slot: Some(slot) }
    }
}

impl Drop for InputWait<'_> {
    fn drop(&mut self) {
        let waits = &self.upstream.input_waits;
        waits.total.fetch_sub(1, Ordering::AcqRel);
        let mut by_client = waits.by_client.lock();
        if let Some(count) = by_client.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                by_client.remove(&self.key);
            }
        }
        drop(by_client);
        if let Some(slot) = self.slot.take() {
            self.upstream.with_machine(|machine, _| machine.resume(slot));
        }
    }
}

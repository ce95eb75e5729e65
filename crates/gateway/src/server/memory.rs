//! Memory accounting for request bodies and answers, per client and in total. A message is counted as long as any clone
//! or slice of its bytes lives, so a queue, a replay buffer or a socket that holds it needs no accounting of its own.

use super::quota::{Peer, Quota, QuotaExceeded, QuotaPermit};
use bytes::Bytes;
use gripfast::memory::{AnswerMemory, OutOfMemory, Reservation};
use gripfast::wire::batch;
use std::sync::Arc;

/// Memory account of one client.
#[derive(Debug, Clone)]
pub(crate) struct ClientMemory {
    quota: Quota,
    peer: Peer,
}

impl ClientMemory {
    pub(crate) fn new(quota: &Quota, peer: &Peer) -> Self {
        Self { quota: quota.clone(), peer: peer.clone() }
    }

    /// Account without a limit.
    #[cfg(test)]
    pub(crate) fn unbounded() -> Arc<Self> {
        Arc::new(Self::new(&Quota::new(usize::MAX, usize::MAX), &Peer::local()))
    }

    /// Counts a message, if there is room for it.
    pub(crate) fn hold(&self, message: impl MessageBuffer) -> Result<Bytes, QuotaExceeded> {
        let permit = self.quota.acquire(&self.peer, message.as_ref().len())?;
        Ok(with_permit(message, permit))
    }

    /// Counts a message even above the limit: a small one, or one whose memory was reserved before.
    pub(crate) fn hold_unchecked(&self, message: impl MessageBuffer) -> Bytes {
        let permit = self.quota.acquire_unchecked(&self.peer, message.as_ref().len());
        with_permit(message, permit)
    }

    /// Tests if there is room for this many bytes now.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.take(bytes).is_ok()
    }

    /// Acquires memory for something other than a message.
    pub(crate) fn take(&self, bytes: usize) -> Result<QuotaPermit, QuotaExceeded> {
        self.quota.acquire(&self.peer, bytes)
    }

    /// Joins the answers to a batch into one message. Each answer is released as soon as it is copied.
    pub(crate) fn join(&self, answers: Vec<Bytes>) -> Option<Bytes> {
        batch::join(answers).map(|joined| self.hold_unchecked(joined))
    }
}

/// Attaches a permit to a message.
pub(crate) fn with_permit(message: impl MessageBuffer, permit: impl Send + 'static) -> Bytes {
    Bytes::from_owner(Held { message, _permit: permit })
}

/// Buffer of a message: a `Vec<u8>` or `Bytes`.
pub(crate) trait MessageBuffer: AsRef<[u8]> + Send + 'static {}

impl<B: AsRef<[u8]> + Send + 'static> MessageBuffer for B {}

struct Held<M, S> {
    message: M,
    _permit: S,
}

impl<M: AsRef<[u8]>, S> AsRef<[u8]> for Held<M, S> {
    fn as_ref(&self) -> &[u8] {
        self.message.as_ref()
    }
}

impl AnswerMemory for ClientMemory {
    fn reserve(&self, bytes: usize) -> Result<Arc<dyn Reservation>, OutOfMemory> {
        let permit = self.take(bytes).map_err(out_of_memory)?;
        Ok(Arc::new(permit))
    }
}

impl Reservation for QuotaPermit {
    fn grow(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        Self::grow(self, bytes).map_err(out_of_memory)
    }
}

fn out_of_memory(exhausted: QuotaExceeded) -> OutOfMemory {
    OutOfMemory(explanation(exhausted).to_owned())
}

/// Quota that is exhausted, and its config key.
pub(crate) fn explanation(exhausted: QuotaExceeded) -> &'static str {
    match exhausted {
        QuotaExceeded::ByClient => {
            "this client has used up its memory for requests and answers (`gateway.limits.memory_per_client`)"
        }
        QuotaExceeded::ByAll => {
            "all clients together have used up the memory for requests and answers (`gateway.limits.memory`)"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(per_client: usize, total: usize) -> (Quota, ClientMemory) {
        let quota = Quota::new(per_client, total);
        (quota.clone(), ClientMemory::new(&quota, &Peer::local()))
    }

    #[test]
    fn a_message_may_fill_the_limit_and_not_exceed_it() {
        let (quota, memory) = memory(100, 1000);
        assert_eq!(memory.hold(vec![0; 101]).unwrap_err(), QuotaExceeded::ByClient);
        let message = memory.hold(vec![0; 100]).unwrap();
        assert_eq!(memory.hold(vec![0; 1]).unwrap_err(), QuotaExceeded::ByClient);
        drop(message);
        assert_eq!(quota.used(), 0);
    }

    #[test]
    fn a_message_is_counted_until_the_last_clone_or_slice_of_it_is_gone() {
        let (quota, memory) = memory(100, 100);
        let message = memory.hold(vec![7; 60]).unwrap();
        let (clone, slice) = (message.clone(), message.slice(10..20));
        drop(message);
        assert_eq!(quota.used(), 60);
        drop(clone);
        assert_eq!((quota.used(), &*slice), (60, [7; 10].as_slice()));
        drop(slice);
        assert_eq!(quota.used(), 0);
    }

    #[test]
    fn a_joined_batch_replaces_the_memory_of_its_answers() {
        let (quota, memory) = memory(100, 100);
        let answers = [40, 50].map(|length| memory.hold(vec![b'1'; length]).unwrap());
        let joined = memory.join(answers.into()).unwrap();
        assert_eq!((joined.len(), quota.used()), (93, 93));
        assert_eq!(memory.join(Vec::new()), None);
    }
}

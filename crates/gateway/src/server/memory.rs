//! The byte budget: what request bodies and answers take in memory, for one client and for all. A message is counted for
//! as long as any clone or slice of its bytes lives, so a queue, a replay buffer or a socket that holds it needs no
//! accounting of its own.

use crate::shares::{Exhausted, Peer, Share, Shares};
use bytes::Bytes;
use gripfast::memory::{AnswerMemory, OutOfMemory, Reservation};
use gripfast::wire::batch;

/// The memory of one client.
#[derive(Debug, Clone)]
pub(crate) struct ClientMemory {
    shares: Shares,
    peer: Peer,
}

impl ClientMemory {
    pub(crate) fn new(shares: &Shares, peer: &Peer) -> Self {
        Self { shares: shares.clone(), peer: peer.clone() }
    }

    /// Memory without a bound.
    #[cfg(test)]
    pub(crate) fn unbounded() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self::new(&Shares::new(usize::MAX, usize::MAX), &Peer::here()))
    }

    /// Counts a message, if there is room for it.
    pub(crate) fn hold(&self, message: Bytes) -> Result<Bytes, Exhausted> {
        let share = self.shares.take(&self.peer, message.len())?;
        Ok(held(message, share))
    }

    /// Counts a message whether or not there is room: one that is small, or whose memory was reserved before.
    pub(crate) fn hold_always(&self, message: Bytes) -> Bytes {
        let share = self.shares.take_always(&self.peer, message.len());
        held(message, share)
    }

    /// Whether there is room for this much at this moment.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.take(bytes).is_ok()
    }

    /// Reserves memory for something that is no message.
    pub(crate) fn take(&self, bytes: usize) -> Result<Share, Exhausted> {
        self.shares.take(&self.peer, bytes)
    }

    /// The answers to a batch as one message. Each answer is let go as soon as it is copied.
    pub(crate) fn join(&self, answers: Vec<Bytes>) -> Option<Bytes> {
        batch::join(answers).map(|joined| self.hold_always(joined.into()))
    }
}

/// A message that keeps its share.
pub(crate) fn held(message: Bytes, share: impl Send + 'static) -> Bytes {
    Bytes::from_owner(Held { message, _share: share })
}

struct Held<S> {
    message: Bytes,
    _share: S,
}

impl<S> AsRef<[u8]> for Held<S> {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

impl AnswerMemory for ClientMemory {
    fn reserve(&self, bytes: usize) -> Result<Box<dyn Reservation>, OutOfMemory> {
        let share = self.take(bytes).map_err(out_of_memory)?;
        Ok(Box::new(share))
    }
}

impl Reservation for Share {
    fn grow(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        Self::grow(self, bytes).map_err(out_of_memory)
    }
}

fn out_of_memory(exhausted: Exhausted) -> OutOfMemory {
    OutOfMemory(explained(exhausted).to_owned())
}

/// Whose memory is used up, and the key that bounds it.
pub(crate) fn explained(exhausted: Exhausted) -> &'static str {
    match exhausted {
        Exhausted::ByClient => {
            "requests and answers of this client take all the memory it may have \
             (`gateway.limits.memory_per_client`)"
        }
        Exhausted::ByAll => {
            "requests and answers of all clients take all the memory there is for them (`gateway.limits.memory`)"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(each: usize, all: usize) -> (Shares, ClientMemory) {
        let shares = Shares::new(each, all);
        (shares.clone(), ClientMemory::new(&shares, &Peer::here()))
    }

    #[test]
    fn a_message_that_fills_the_budget_is_held_and_one_byte_more_is_not() {
        let (shares, memory) = memory(100, 1000);
        assert_eq!(memory.hold(vec![0; 101].into()).unwrap_err(), Exhausted::ByClient);
        let message = memory.hold(vec![0; 100].into()).unwrap();
        assert_eq!(memory.hold(vec![0; 1].into()).unwrap_err(), Exhausted::ByClient);
        drop(message);
        assert_eq!(shares.taken(), 0);
    }

    #[test]
    fn a_message_is_counted_until_the_last_clone_or_slice_of_it_is_gone() {
        let (shares, memory) = memory(100, 100);
        let message = memory.hold(vec![7; 60].into()).unwrap();
        let (clone, slice) = (message.clone(), message.slice(10..20));
        drop(message);
        assert_eq!(shares.taken(), 60);
        drop(clone);
        assert_eq!((shares.taken(), &*slice), (60, [7; 10].as_slice()));
        drop(slice);
        assert_eq!(shares.taken(), 0);
    }

    #[test]
    fn a_joined_batch_takes_the_place_of_its_answers() {
        let (shares, memory) = memory(100, 100);
        let answers = [40, 50].map(|length| memory.hold(vec![b'1'; length].into()).unwrap());
        let joined = memory.join(answers.into()).unwrap();
        assert_eq!((joined.len(), shares.taken()), (93, 93));
        assert_eq!(memory.join(Vec::new()), None);
    }
}

//! In-flight calls of one client, so that the client can cancel them by request id.

use gripfast::wire::RequestId;

/// In-flight calls, each with its abort handle.
pub(super) struct InFlightCalls<H> {
    /// In the order in which they started. Keyed by number, not by request id: the id is only needed for a cancellation
    /// and for the check of duplicate ids.
    calls: Vec<(CallNumber, RequestId, H)>,
    next: u64,
}

/// Identifies a call, also among calls with the same request id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallNumber(u64);

impl<H> Default for InFlightCalls<H> {
    fn default() -> Self {
        Self { calls: Vec::new(), next: 0 }
    }
}

impl<H> InFlightCalls<H> {
    /// Maximum number of in-flight calls of one client.
    pub(super) const MAX: usize = 1024;

    /// Adds a call, with the handle that `begin` returns. Returns its number.
    pub(super) fn insert(&mut self, id: RequestId, begin: impl FnOnce(CallNumber) -> H) -> CallNumber {
        let number = CallNumber(self.next);
        self.next += 1;
        self.calls.push((number, id, begin(number)));
        number
    }

    /// Removes a call that has ended.
    pub(super) fn remove(&mut self, number: CallNumber) {
        if let Ok(at) = self.calls.binary_search_by_key(&number, |(known, ..)| *known) {
            self.calls.remove(at);
        }
    }

    /// Tests if a call with this id is in flight.
    pub(super) fn contains(&self, id: &RequestId) -> bool {
        self.calls.iter().any(|(_, known, _)| known == id)
    }

    /// Removes the calls with this id and returns their handles.
    pub(super) fn take(&mut self, id: &RequestId) -> Vec<H> {
        self.calls.extract_if(.., |(_, known, _)| known == id).map(|(_, _, handle)| handle).collect()
    }

    /// Removes all calls and returns their handles.
    pub(super) fn take_all(&mut self) -> Vec<H> {
        std::mem::take(&mut self.calls).into_iter().map(|(_, _, handle)| handle).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_call_does_not_remove_another_with_the_same_id() {
        let mut calls = InFlightCalls::default();
        let id = RequestId::from(5);
        let first = calls.insert(id.clone(), |_| "first");
        assert_eq!((calls.contains(&id), calls.take(&id)), (true, vec!["first"]));
        let second = calls.insert(id.clone(), |_| "second");
        calls.remove(first);
        assert_eq!((calls.contains(&id), calls.len()), (true, 1), "a cancelled call ends late");
        calls.remove(second);
        assert_eq!((calls.contains(&id), calls.take_all()), (false, Vec::new()));
    }
}

//! The calls of one client that are under way, so that it can cancel them by the ids that it gave them.

use gripfast::wire::RequestId;
use std::collections::BTreeMap;

/// Calls under way, each with what ends it.
pub(super) struct UnderWay<H> {
    /// In the order in which they began. What a client calls them is asked when it cancels one, or where two of the
    /// same name could not be told apart, and only then.
    calls: BTreeMap<Number, (RequestId, H)>,
    next: u64,
}

/// Tells a call from all others, also from one of the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(u64);

impl<H> Default for UnderWay<H> {
    fn default() -> Self {
        Self { calls: BTreeMap::new(), next: 0 }
    }
}

impl<H> UnderWay<H> {
    /// Calls of one client that may be under way.
    pub(super) const MOST: usize = 1024;

    /// Notes a call that begins with this; answers with its number.
    pub(super) fn begin(&mut self, id: RequestId, begin: impl FnOnce(Number) -> H) -> Number {
        let number = Number(self.next);
        self.next += 1;
        self.calls.insert(number, (id, begin(number)));
        number
    }

    /// A call has ended.
    pub(super) fn end(&mut self, number: Number) {
        self.calls.remove(&number);
    }

    /// Whether a call of this id has begun and not ended.
    pub(super) fn has(&self, id: &RequestId) -> bool {
        self.calls.values().any(|(known, _)| known == id)
    }

    /// What ends the calls of this id.
    pub(super) fn take(&mut self, id: &RequestId) -> Vec<H> {
        let meant = |_: &Number, (known, _): &mut (RequestId, H)| known == id;
        self.calls.extract_if(.., meant).map(|(_, (_, handle))| handle).collect()
    }

    /// What ends each of them.
    pub(super) fn take_all(&mut self) -> Vec<H> {
        std::mem::take(&mut self.calls).into_values().map(|(_, handle)| handle).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_call_is_not_that_of_another_with_the_same_id() {
        let mut under_way = UnderWay::default();
        let id = RequestId::from(5);
        let first = under_way.begin(id.clone(), |_| "first");
        assert_eq!((under_way.has(&id), under_way.take(&id)), (true, vec!["first"]));
        let second = under_way.begin(id.clone(), |_| "second");
        under_way.end(first);
        assert_eq!((under_way.has(&id), under_way.len()), (true, 1), "a cancelled call ends late");
        under_way.end(second);
        assert_eq!((under_way.has(&id), under_way.take_all()), (false, Vec::new()));
    }
}

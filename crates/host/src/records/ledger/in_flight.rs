//! Calls that were begun and have not ended: the head of a new segment.

/// Their lines, each in a slot of its own. As many as the servers have in flight and waiting.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    slots: Vec<StartedCall>,
    free: Vec<LineSlot>,
}

/// Slot of the line of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineSlot(usize);

#[derive(Debug, Default)]
struct StartedCall {
    /// Its start line with the present outcome; empty if the slot is free.
    line: Vec<u8>,
    /// True if the current segments contain it.
    written: bool,
}

impl InFlight {
    /// Slots and line capacity that are kept when there are no calls. Lines with arguments are freed at once.
    const KEPT_SLOTS: usize = 256;
    const KEPT_LINE_BYTES: usize = 1024;

    /// Sets the line of a call, which gets a slot if it has none. The line counts as written; returns whether it did
    /// before.
    pub(super) fn set(&mut self, slot: &mut Option<LineSlot>, line: &[u8]) -> bool {
        let LineSlot(at) = *slot.get_or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.slots.push(StartedCall::default());
                LineSlot(self.slots.len() - 1)
            })
        });
        let call = &mut self.slots[at];
        call.line.clear();
        call.line.extend_from_slice(line);
        std::mem::replace(&mut call.written, true)
    }

    /// Marks a line as not written after all.
    pub(super) fn mark_unwritten(&mut self, slot: Option<LineSlot>) {
        if let Some(LineSlot(at)) = slot {
            self.slots[at].written = false;
        }
    }

    /// Removes a call that has ended. Returns whether its start was written.
    pub(super) fn remove(&mut self, slot: Option<LineSlot>) -> bool {
        let Some(LineSlot(at)) = slot else { return false };
        let call = &mut self.slots[at];
        let was_written = std::mem::take(&mut call.written);
        call.line.clear();
        call.line.shrink_to(Self::KEPT_LINE_BYTES);
        self.free.push(LineSlot(at));
        if self.free.len() == self.slots.len() && self.slots.len() > Self::KEPT_SLOTS {
            *self = Self::default();
        }
        was_written
    }

    /// Returns the lines of all calls.
    pub(super) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.slots.iter().map(|call| call.line.as_slice()).filter(|line| !line.is_empty())
    }

    /// Writes the lines that are not written yet.
    pub(super) fn write_missing<E>(
        &mut self,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for call in self.slots.iter_mut().filter(|call| !call.written && !call.line.is_empty()) {
            write(&call.line)?;
            call.written = true;
        }
        Ok(())
    }

    /// Marks all lines as written.
    pub(super) fn mark_all_written(&mut self) {
        for call in self.slots.iter_mut().filter(|call| !call.line.is_empty()) {
            call.written = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(in_flight: &InFlight) -> Vec<String> {
        let mut lines: Vec<_> =
            in_flight.lines().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn a_call_has_one_line_until_it_ends() {
        let (mut in_flight, mut a, mut b, mut c) = (InFlight::default(), None, None, None);
        assert!(!in_flight.set(&mut a, b"a"));
        assert!(!in_flight.set(&mut b, b"b"));
        assert!(in_flight.set(&mut a, b"a, changed"));
        assert_eq!(kept(&in_flight), ["a, changed", "b"]);
        assert!(in_flight.remove(a));
        assert!(!in_flight.set(&mut c, b"c"), "nothing is left of the previous call");
        assert_eq!(kept(&in_flight), ["b", "c"]);
        assert!(!in_flight.remove(None), "it has no slot");
    }

    #[test]
    fn missing_lines_are_written_once() {
        let (mut in_flight, mut a, mut b) = (InFlight::default(), None, None);
        in_flight.set(&mut a, b"a");
        in_flight.set(&mut b, b"b");
        in_flight.mark_unwritten(a);
        let mut written = Vec::new();
        let mut missing = |in_flight: &mut InFlight| {
            in_flight.write_missing(|line| {
                written.push(line.to_vec());
                Ok::<_, ()>(())
            })
        };
        missing(&mut in_flight).unwrap();
        missing(&mut in_flight).unwrap();
        assert_eq!(written, [b"a"]);
        assert_eq!(in_flight.write_missing(|_| Err("full")), Ok(()));
        in_flight.mark_unwritten(b);
        assert_eq!(in_flight.write_missing(|_| Err("full")), Err("full"));
        assert!(in_flight.remove(a) && !in_flight.remove(b));
    }

    #[test]
    fn kept_capacity_is_bounded() {
        let mut in_flight = InFlight::default();
        let mut slots = vec![None; InFlight::KEPT_SLOTS * 4];
        for slot in &mut slots {
            in_flight.set(slot, &[b'x'; InFlight::KEPT_LINE_BYTES * 4]);
        }
        for slot in slots {
            in_flight.remove(slot);
        }
        assert!(
            in_flight.slots.len() <= InFlight::KEPT_SLOTS && in_flight.free.len() <= InFlight::KEPT_SLOTS
        );
        let mut slot = None;
        in_flight.set(&mut slot, &[b'x'; InFlight::KEPT_LINE_BYTES * 4]);
        in_flight.remove(slot);
        assert!(in_flight.slots.iter().all(|call| call.line.capacity() <= InFlight::KEPT_LINE_BYTES));
    }
}

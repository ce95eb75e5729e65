//! The calls that were begun and have not ended: what a new segment begins with.

/// Their lines, each on a seat of its own. As many as the servers have in flight and waiting.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    seats: Vec<Begun>,
    free: Vec<Seat>,
}

/// Where the line of one call is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seat(usize);

#[derive(Debug, Default)]
struct Begun {
    /// That it was begun, with its present fate; empty if the seat is free.
    line: Vec<u8>,
    /// Whether the present book knows of it.
    on_paper: bool,
}

impl InFlight {
    /// What is kept for the calls to come when there are none. Lines with arguments are let go of at once.
    const SEATS: usize = 256;
    const LINE: usize = 1024;

    /// Keeps the line of a call, which has a seat from now on. It counts as known to the book, and the answer is
    /// whether it was before.
    pub(super) fn keep(&mut self, seat: &mut Option<Seat>, line: &[u8]) -> bool {
        let Seat(at) = *seat.get_or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.seats.push(Begun::default());
                Seat(self.seats.len() - 1)
            })
        });
        let begun = &mut self.seats[at];
        begun.line.clear();
        begun.line.extend_from_slice(line);
        std::mem::replace(&mut begun.on_paper, true)
    }

    /// The book does not know of it after all.
    pub(super) fn is_not_on_paper(&mut self, seat: Option<Seat>) {
        if let Some(Seat(at)) = seat {
            self.seats[at].on_paper = false;
        }
    }

    /// The call ended. Answers whether the book knows that it was begun.
    pub(super) fn leave(&mut self, seat: Option<Seat>) -> bool {
        let Some(Seat(at)) = seat else { return false };
        let begun = &mut self.seats[at];
        let was_on_paper = std::mem::take(&mut begun.on_paper);
        begun.line.clear();
        begun.line.shrink_to(Self::LINE);
        self.free.push(Seat(at));
        if self.free.len() == self.seats.len() && self.seats.len() > Self::SEATS {
            *self = Self::default();
        }
        was_on_paper
    }

    /// The lines of all of them.
    pub(super) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.seats.iter().map(|begun| begun.line.as_slice()).filter(|line| !line.is_empty())
    }

    /// Those that the book does not know of are written down; each that was is on paper.
    pub(super) fn write_missing<E>(
        &mut self,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for begun in self.seats.iter_mut().filter(|begun| !begun.on_paper && !begun.line.is_empty()) {
            write(&begun.line)?;
            begun.on_paper = true;
        }
        Ok(())
    }

    /// The book knows of all of them.
    pub(super) fn are_on_paper(&mut self) {
        for begun in self.seats.iter_mut().filter(|begun| !begun.line.is_empty()) {
            begun.on_paper = true;
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
    fn a_call_has_one_line_until_it_ends_whoever_else_comes_and_goes() {
        let (mut in_flight, mut a, mut b, mut c) = (InFlight::default(), None, None, None);
        assert!(!in_flight.keep(&mut a, b"a"));
        assert!(!in_flight.keep(&mut b, b"b"));
        assert!(in_flight.keep(&mut a, b"a, changed"));
        assert_eq!(kept(&in_flight), ["a, changed", "b"]);
        assert!(in_flight.leave(a));
        assert!(!in_flight.keep(&mut c, b"c"), "nothing of who sat there before");
        assert_eq!(kept(&in_flight), ["b", "c"]);
        assert!(!in_flight.leave(None), "it was never begun");
    }

    #[test]
    fn what_could_not_be_written_is_written_once_when_it_can() {
        let (mut in_flight, mut a, mut b) = (InFlight::default(), None, None);
        in_flight.keep(&mut a, b"a");
        in_flight.keep(&mut b, b"b");
        in_flight.is_not_on_paper(a);
        let mut paper = Vec::new();
        let mut missing = |in_flight: &mut InFlight| {
            in_flight.write_missing(|line| {
                paper.push(line.to_vec());
                Ok::<_, ()>(())
            })
        };
        missing(&mut in_flight).unwrap();
        missing(&mut in_flight).unwrap();
        assert_eq!(paper, [b"a"]);
        assert_eq!(in_flight.write_missing(|_| Err("full")), Ok(()));
        in_flight.is_not_on_paper(b);
        assert_eq!(in_flight.write_missing(|_| Err("full")), Err("full"));
        assert!(in_flight.leave(a) && !in_flight.leave(b));
    }

    #[test]
    fn what_is_kept_for_later_is_bounded() {
        let mut in_flight = InFlight::default();
        let mut seats = vec![None; InFlight::SEATS * 4];
        for seat in &mut seats {
            in_flight.keep(seat, &[b'x'; InFlight::LINE * 4]);
        }
        for seat in seats {
            in_flight.leave(seat);
        }
        assert!(in_flight.seats.len() <= InFlight::SEATS && in_flight.free.len() <= InFlight::SEATS);
        let mut seat = None;
        in_flight.keep(&mut seat, &[b'x'; InFlight::LINE * 4]);
        in_flight.leave(seat);
        assert!(in_flight.seats.iter().all(|begun| begun.line.capacity() <= InFlight::LINE));
    }
}

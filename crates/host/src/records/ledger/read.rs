//! Reading along: all books of a directory, those of other processes too, without getting in anybody's way.

use super::Calls;
use super::book::Place;
use gripfast_core::ledger::fold::{Fold, Owner};
use gripfast_core::ledger::{Query, Selection};
use std::io;
use std::path::Path;

pub(super) fn read(directory: &Path, query: Query) -> io::Result<Calls> {
    let mut selection = Selection::new(query);
    for place in Place::all(directory) {
        let held = place.is_held();
        let numbers = match place.segments() {
            Ok(numbers) => numbers,
            // No call has been noted down here yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        };
        let mut fold = Fold::default();
        for number in numbers {
            place.lines(number, |line| fold.line(line, |row| selection.consider(row)))?;
        }
        // Somebody may have come or gone while we read. What is open is called so until nobody is there
        // before and after.
        let owner = if held || place.is_held() { Owner::Lives } else { Owner::IsGone };
        fold.finish(owner, |row| selection.consider(row));
    }
    let (rows, left_out) = selection.finish();
    Ok(Calls { rows, left_out })
}

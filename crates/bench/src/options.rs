//! What is to be measured, and how thoroughly.

use std::path::PathBuf;
use std::time::Duration;

use crate::calls::{Case, SMALL};
use crate::client::Era;

#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// Our binary.
    pub(crate) gripfast: PathBuf,
    /// Another build of it.
    pub(crate) before: Option<PathBuf>,
    /// The command and the URL of another gateway.
    pub(crate) other: Option<(String, String)>,
    /// How often each figure is taken.
    pub(crate) repeats: usize,
    /// For how long each time.
    pub(crate) slice: Duration,
    pub(crate) size: Size,
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// Counts come out right, times mean little.
    Tiny,
    Quick,
    Whole,
}

impl Order {
    pub(crate) fn wants(&self, case: &Case) -> bool {
        match self.size {
            Size::Whole => true,
            Size::Quick => case.era == Era::Legacy || (case.bytes == SMALL && !case.events),
            Size::Tiny => case.at_once <= 16,
        }
    }

    /// One of these, by how much is measured.
    pub(crate) fn pick<T>(&self, tiny: T, quick: T, whole: T) -> T {
        match self.size {
            Size::Tiny => tiny,
            Size::Quick => quick,
            Size::Whole => whole,
        }
    }
}

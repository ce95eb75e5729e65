//! Options of a run.

use std::path::PathBuf;
use std::time::Duration;

use crate::calls::{Case, SMALL};
use gripfast_measure::Era;

#[derive(Debug, Clone)]
pub(crate) struct RunOptions {
    /// The gripfast binary.
    pub(crate) gripfast: PathBuf,
    /// Further builds of gripfast.
    pub(crate) other_builds: Vec<OtherBuild>,
    /// Command and URL of another gateway.
    pub(crate) other: Option<(String, String)>,
    /// Number of samples per figure.
    pub(crate) repeats: usize,
    /// Duration of a sample.
    pub(crate) slice: Duration,
    pub(crate) size: Size,
}

/// A build of gripfast that is measured beside the first one.
#[derive(Debug, Clone)]
pub(crate) struct OtherBuild {
    /// Lane of its calls over HTTP.
    pub(crate) lane: &'static str,
    /// Lane of its calls to a stdio server.
    pub(crate) lane_to_pipe: &'static str,
    pub(crate) gripfast: PathBuf,
}

/// Extent of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// Counts are valid, times are not.
    Tiny,
    Quick,
    Whole,
}

impl RunOptions {
    pub(crate) fn wants(&self, case: &Case) -> bool {
        match self.size {
            Size::Whole => case.bytes == SMALL || case.server == Era::Legacy,
            Size::Quick => case.bytes == SMALL || (case.server == Era::Legacy && !case.events),
            Size::Tiny => case.at_once == 1,
        }
    }

    /// Picks one of the values by the extent of the run.
    pub(crate) fn pick<T>(&self, tiny: T, quick: T, whole: T) -> T {
        match self.size {
            Size::Tiny => tiny,
            Size::Quick => quick,
            Size::Whole => whole,
        }
    }
}

//! Systems without process groups: the child itself is ended with its handle. Ending its descendants
//! (job objects on Windows) belongs here.

use std::process::ExitStatus;
use tokio::process::Command;

pub(super) fn lead_own_group(_command: &mut Command) {}

pub(super) fn ask_group_to_end(_leader: u32) {}

pub(super) fn kill_group(_leader: u32) {}

pub(super) fn kill_tagged(_variable: &str, _tag: &str) {}

pub(super) fn resident_in_group(_leader: u32) -> Option<u64> {
    None
}

pub(super) fn is_not_a_program(_error: &std::io::Error) -> bool {
    false
}

pub(super) fn signal_of(_status: ExitStatus) -> Option<i32> {
    None
}

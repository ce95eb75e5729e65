//! Systems without process groups: the child itself is ended with its handle. Ending its descendants (job objects on
//! Windows) would belong here.

use std::process::ExitStatus;
use tokio::process::Command;

pub(super) fn set_own_group(_command: &mut Command) {}

pub(super) fn terminate_group(_leader: u32) {}

pub(super) fn kill_group(_leader: u32) {}

pub(super) fn kill_tagged(_variable: &str, _tag: &str) {}

pub(super) fn group_memory(_leader: u32) -> Option<u64> {
    None
}

pub(super) fn is_exec_format_error(_error: &std::io::Error) -> bool {
    false
}

pub(super) fn signal_of(_status: ExitStatus) -> Option<i32> {
    None
}

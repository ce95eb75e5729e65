//! Audit lines of commands that change keys or trust without a gateway. A running gateway notices the change by itself
//! and reports it as an event and a metric.

use super::render::Screen;
use gripfast::config::GatewayConfig;
use gripfast::{SecurityEvent, record_audit};
use std::io;
use std::path::Path;

/// Writes `event` to the audit log in `state_dir`, if the config has one. A failed write is only a warning, because the
/// change has been made already.
pub(crate) fn record(
    state_dir: Option<&Path>,
    gateway: &GatewayConfig,
    event: &SecurityEvent,
    screen: &mut Screen,
) -> io::Result<()> {
    let Some(state_dir) = state_dir else { return Ok(()) };
    match record_audit(state_dir, gateway.audit, event) {
        Ok(()) => Ok(()),
        Err(why) => screen.warning(&format!(
            "the change is not in the audit log: the log in `{}` cannot be written: {why}",
            state_dir.display()
        )),
    }
}

/// The user who runs this command.
pub(crate) fn actor() -> Option<String> {
    #[cfg(unix)]
    let user = Some(format!("uid {}", rustix::process::geteuid().as_raw()));
    #[cfg(not(unix))]
    let user = std::env::var("USERNAME").ok();
    user
}

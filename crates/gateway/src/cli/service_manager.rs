//! The protocol with the service manager that started this process, for example systemd: its listening socket, the
//! state of this process, and the watchdog. Without a service manager, all of it does nothing.

use super::error::FailureReport;
use super::exit::Exit;
use sd_notify::NotifyState;
use std::net::TcpListener;

/// The listening socket that the service manager passes to this process, if any. Removes the variables that name it, so
/// call it before there are threads.
pub(crate) fn take_socket() -> Result<Option<TcpListener>, FailureReport> {
    let mut passed = listenfd::ListenFd::from_env();
    if passed.len() > 1 {
        let text = format!("the service manager passes {} sockets; gripfast takes one", passed.len());
        return Err(FailureReport::new(Exit::General, text)
            .with_hint("keep one `ListenStream=` line in gripfast.socket"));
    }
    if passed.len() == 0 {
        return Ok(None);
    }
    passed.take_tcp_listener(0).map_err(|error| {
        let text = format!("the socket of the service manager cannot be used: {error}");
        FailureReport::new(Exit::General, text).with_hint(
            "`ListenStream=` in gripfast.socket takes an address and a port, such as 127.0.0.1:7331",
        )
    })
}

/// Reports that the gateway serves at `url`.
pub(crate) fn report_ready(url: &str) {
    report(&[NotifyState::Ready, NotifyState::Status(&format!("serves MCP at {url}/mcp"))]);
}

/// Reports that the shutdown has begun.
pub(crate) fn report_stopping(what: &str) {
    report(&[NotifyState::Stopping, NotifyState::Status(what)]);
}

/// Reports at twice the rate that the watchdog asks for that this process works. Each report comes from a task of its
/// own, so there is none while the threads of the runtime hang. Never returns.
pub(crate) async fn feed_watchdog() {
    if let Some(timeout) = sd_notify::watchdog_enabled().filter(|timeout| !timeout.is_zero()) {
        let mut ticks = tokio::time::interval(timeout / 2);
        loop {
            ticks.tick().await;
            // It fails only if the report panics.
            let _ = tokio::spawn(async { report(&[NotifyState::Watchdog]) }).await;
        }
    }
    std::future::pending().await
}

fn report(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot report to the service manager ($NOTIFY_SOCKET): {error}");
    }
}

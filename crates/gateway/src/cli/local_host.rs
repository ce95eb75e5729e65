//! A host for the duration of one command: starts servers of the config, and stops them in order, also on a signal.

use super::args::GlobalArgs;
use super::config::LoadedConfig;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use gripfast::RecordDetail;
use gripfast::auth::Logins;
use gripfast::config::{ServerEntry, ServerSpec};
use gripfast::ledger::LedgerOptions;
use gripfast::private_files::StrictModes;
use gripfast::{AuditOptions, Host};
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Time for blocking threads of the runtime to end after an orderly shutdown; nothing depends on them.
pub(crate) const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(100);

/// Options of the host.
#[derive(Default)]
pub(crate) struct HostOptions {
    /// Directory of its state.
    pub(crate) state_dir: Option<PathBuf>,
    /// Setting for a state directory that another user could have changed.
    pub(crate) strict_modes: StrictModes,
    /// The logins, if not those of its state directory.
    pub(crate) logins: Option<Logins>,
    /// Client capabilities for requests of servers during a call, if any.
    pub(crate) capabilities: Option<Value>,
}

/// Hosts `servers` while `work` runs. All of them are stopped when this returns.
pub(crate) fn with_host<T>(
    options: HostOptions,
    servers: &[(&str, &ServerSpec)],
    work: impl AsyncFnOnce(&Host) -> T,
) -> Result<T, CommandError> {
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let mut signals = Signals::listen().map_err(runtime_failure)?;
        let mut builder = Host::builder()
            .state_dir(options.state_dir)
            .strict_modes(options.strict_modes)
            .logins(options.logins)
            .client_info("gripfast", env!("CARGO_PKG_VERSION"));
        if let Some(capabilities) = options.capabilities {
            builder = builder.capabilities(capabilities);
        }
        let host = builder.build();
        let work = async {
            for (name, spec) in servers {
                let refused = |error| {
                    FailureReport::new(Exit::General, format!("cannot start server `{name}`: {error}"))
                };
                host.spawn(name, (*spec).clone()).map_err(refused)?;
            }
            Ok(work(&host).await)
        };
        let done = tokio::select! {
            biased;
            exit = signals.next() => Err(CommandError::Reported(exit)),
            done = work => done,
        };
        tokio::select! {
            () = host.shutdown() => {}
            // A second signal: remaining child processes end with this process.
            _ = signals.next() => {}
        }
        done
    });
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    done
}

/// Runs `work` with a host on the state directory that knows these servers and does not start them: only stored data is
/// used.
pub(crate) fn with_stored_host<'c, T>(
    global: &GlobalArgs,
    opened: &'c LoadedConfig,
    servers: impl IntoIterator<Item = &'c ServerEntry>,
    audit: AuditOptions,
    work: impl FnOnce(&Host) -> Result<T, FailureReport>,
) -> Result<T, CommandError> {
    let done = runtime()?.block_on(async {
        let host = Host::builder()
            .state_dir(opened.state_dir(global)?)
            .strict_modes(opened.strict_modes())
            .ledger(LedgerOptions { detail: RecordDetail::Nothing, ..LedgerOptions::default() })
            .audit(audit)
            .client_policies(opened.config.clients.clone())
            .build();
        for entry in servers {
            let Ok(spec) = &entry.spec else { continue };
            let mut spec = ServerSpec { disabled: false, ..spec.clone() };
            spec.supervision.lazy = true;
            let spawned = host.spawn(&entry.name, spec);
            spawned.map_err(|error| FailureReport::new(Exit::General, error.to_string()))?;
        }
        host.wait_for_secrets().await;
        let done = work(&host);
        host.shutdown().await;
        done
    })?;
    Ok(done)
}

/// The runtime of a command that needs one.
pub(crate) fn runtime() -> Result<Runtime, FailureReport> {
    runtime_with_threads(None)
}

/// A runtime with this many threads; `None` for one per processor.
pub(crate) fn runtime_with_threads(threads: Option<u32>) -> Result<Runtime, FailureReport> {
    gripfast::large_message::hand_over_tasks();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads.and_then(|threads| usize::try_from(threads).ok()) {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().map_err(runtime_failure)
}

/// A single-threaded runtime.
pub(crate) fn small_runtime() -> Result<Runtime, FailureReport> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(runtime_failure)
}

pub(crate) fn runtime_failure(error: io::Error) -> FailureReport {
    FailureReport::new(Exit::General, format!("cannot start threads, timers or signal handlers: {error}"))
}

/// The signals that stop the process.
#[cfg(unix)]
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub(crate) async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Terminated,
        }
    }
}

/// SIGHUP, which reloads the config.
#[cfg(unix)]
pub(crate) struct Hangups(Option<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Hangups {
    /// Never fails: without a handler, no signal is reported.
    pub(crate) fn listen() -> Self {
        Self(tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok())
    }

    pub(crate) async fn next(&mut self) {
        let received = match &mut self.0 {
            Some(signal) => signal.recv().await,
            None => None,
        };
        if received.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Placeholder for systems without SIGHUP.
#[cfg(not(unix))]
pub(crate) struct Hangups;

#[cfg(not(unix))]
impl Hangups {
    pub(crate) fn listen() -> Self {
        Self
    }

    pub(crate) async fn next(&mut self) {
        std::future::pending().await
    }
}

#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) async fn next(&mut self) -> Exit {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Exit::Interrupted,
            // Without a handler, no signal is reported.
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_has_the_configured_threads_or_one_per_processor() {
        let workers = |threads| runtime_with_threads(threads).unwrap().metrics().num_workers();
        let processors = std::thread::available_parallelism().unwrap().get();
        assert_eq!([workers(Some(3)), workers(None)], [3, processors]);
    }
}

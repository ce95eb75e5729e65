//! A host for the time of one verb: servers of the config are started, asked, and stopped in order, also when
//! a signal comes in between.

use super::exit::Exit;
use super::stop::{Failure, Stop};
use gripfast::Host;
use gripfast::auth::Logins;
use gripfast::config::ServerSpec;
use gripfast::private_files::StrictModes;
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::Runtime;

/// After an orderly shutdown only helpers are left, and they are not worth waiting for.
pub(crate) const LEFTOVERS: Duration = Duration::from_millis(100);

/// What a host knows and can.
#[derive(Default)]
pub(crate) struct Means {
    /// Where it finds what is known about the servers, and keeps what it learns.
    pub(crate) state_dir: Option<PathBuf>,
    /// What is done about one that another user could have changed.
    pub(crate) strict_modes: StrictModes,
    /// The logins that it uses, if they are others than those of its state directory.
    pub(crate) logins: Option<Logins>,
    /// What servers may ask on the way to an answer, if anything.
    pub(crate) abilities: Option<Value>,
}

/// Hosts `servers` while `work` goes on. All of them are gone when this returns.
pub(crate) fn with_host<T>(
    means: Means,
    servers: &[(&str, &ServerSpec)],
    work: impl AsyncFnOnce(&Host) -> T,
) -> Result<T, Stop> {
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let mut signals = Signals::listen().map_err(no_runtime)?;
        let mut builder = Host::builder()
            .state_dir(means.state_dir)
            .strict_modes(means.strict_modes)
            .logins(means.logins)
            .client_info("gripfast", env!("CARGO_PKG_VERSION"));
        if let Some(abilities) = means.abilities {
            builder = builder.capabilities(abilities);
        }
        let host = builder.build();
        let work = async {
            for (name, spec) in servers {
                let refused = |error| Failure::new(Exit::General, format!("cannot host `{name}`: {error}"));
                host.spawn(name, (*spec).clone()).map_err(refused)?;
            }
            Ok(work(&host).await)
        };
        let done = tokio::select! {
            biased;
            exit = signals.next() => Err(Stop::Told(exit)),
            done = work => done,
        };
        tokio::select! {
            () = host.shutdown() => {}
            // Somebody insists. What is left of the children ends with us.
            _ = signals.next() => {}
        }
        done
    });
    runtime.shutdown_timeout(LEFTOVERS);
    done
}

/// The runtime of a verb that needs one.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(no_runtime)
}

/// The runtime of something that one thread is enough for.
pub(crate) fn small_runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_runtime)
}

pub(crate) fn no_runtime(error: io::Error) -> Failure {
    Failure::new(Exit::General, format!("the operating system refuses threads, timers or signals: {error}"))
}

/// The signals that mean "stop, please".
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

/// The signal that means "look at your config, please".
#[cfg(unix)]
pub(crate) struct Hangups(Option<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Hangups {
    /// Where the system does not let us, none comes.
    pub(crate) fn listen() -> Self {
        Self(tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok())
    }

    pub(crate) async fn next(&mut self) {
        let heard = match &mut self.0 {
            Some(signal) => signal.recv().await,
            None => None,
        };
        if heard.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// There is no such signal.
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
            // Without a way to hear of it, it never comes.
            Err(_) => std::future::pending().await,
        }
    }
}

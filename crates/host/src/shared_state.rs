//! State that several hosts share: pins and logins that hold for a whole service of replicas. A host without it keeps
//! both in its state directory.
//!
//! A program that runs several hosts as one service implements [`SharedState`], for example on a shared database. Each
//! field has a version and is changed by compare-and-set. Reads come from a local copy and never wait.

use crate::transport::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Part of the shared state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateTable {
    /// Pins of each server, by its name.
    Pins,
    /// Logins at servers. They contain secrets: the implementation encrypts them.
    Logins,
}

/// Value and version of a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateField {
    /// The version; zero if the field never existed.
    pub version: u64,
    /// The value; `None` if the field was removed or never existed.
    pub value: Option<Arc<str>>,
}

/// Reason why the shared state was not changed or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The field has another version than expected. The local copy has the present one.
    #[error("it was changed elsewhere at the same time; repeat it")]
    Changed,
    /// Changes are refused for this long, with this reason.
    #[error("{reason}")]
    Later {
        /// The rest of that time.
        left: Duration,
        /// The reason and the next step.
        reason: String,
    },
    /// Changes are impossible now, for this reason.
    #[error("{0}")]
    Unavailable(String),
}

/// Shared state of several hosts.
pub trait SharedState: Send + Sync + 'static {
    /// The field in the local copy.
    fn get(&self, table: StateTable, field: &str) -> StateField;

    /// Reads a table again, so that the local copy is as new as this call.
    fn refresh(&self, table: StateTable) -> BoxFuture<'_, Result<(), StateError>>;

    /// Sets a field whose version is still `expected`, or removes it (`None`). Returns its new version. An error that is
    /// not [`StateError::Changed`] may come after the change was made.
    fn set<'a>(
        &'a self,
        table: StateTable,
        field: &'a str,
        expected: u64,
        value: Option<String>,
    ) -> BoxFuture<'a, Result<u64, StateError>>;

    /// Claims the right to replace a login for `lifetime`; `None` if another host has it. The result is the number of the
    /// claim.
    fn claim<'a>(
        &'a self,
        login: &'a str,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<Option<u64>, StateError>>;

    /// Returns whether a claim is still valid and the login still has this version, both at the same moment.
    fn confirm<'a>(
        &'a self,
        login: &'a str,
        claim: u64,
        version: u64,
    ) -> BoxFuture<'a, Result<bool, StateError>>;

    /// Gives a claim back. One that is not given back ends after its lifetime.
    fn release(self: Arc<Self>, login: String, claim: u64) -> BoxFuture<'static, ()>;

    /// Completes a step each time the local copy changed, or changes may be possible again.
    fn changes(&self) -> watch::Receiver<u64>;
}

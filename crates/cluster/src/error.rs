//! Errors of operations on the store.

use gripfast_core::placement::heartbeat::StoreUnreachable;

/// An operation on the store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No connection, or no reply in time. The operation may have been performed.
    #[error("the store is unreachable: {0}")]
    Unreachable(String),
    /// The store refuses the user or the password.
    #[error("the store refuses the credentials of `cluster.store`: {0}")]
    Unauthorized(String),
    /// The store refuses the operation.
    #[error("the store refuses an operation: {0}")]
    Refused(String),
    /// A value has a newer format than this version of gripfast knows.
    #[error("a value in the store has format {found}, and this version knows formats up to {known}")]
    NewerFormat {
        /// The format of the value.
        found: u32,
        /// The newest known format.
        known: u32,
    },
    /// A value cannot be read.
    #[error("the value of `{0}` in the store cannot be read")]
    Malformed(String),
    /// The service marker was made with a key that this replica does not have.
    #[error(
        "the namespace belongs to another service, or `cluster.key` is wrong: the replicas of one service need one key"
    )]
    ForeignService,
    /// A claim was made, but no replica of the store confirmed it in time.
    #[error("no replica of the store confirmed the claim")]
    NotReplicated,
}

impl StoreError {
    /// The form that the machines of `core` take.
    #[must_use]
    pub fn for_machine(&self) -> StoreUnreachable {
        StoreUnreachable
    }
}

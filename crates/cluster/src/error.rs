//! Errors of operations on the store.

use gripfast_core::placement::heartbeat::StoreUnreachable;
use redis::{ErrorKind, RedisError};

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

    /// Returns whether the connection can be used further: the store answered, and only this operation failed.
    pub(crate) fn keeps_connection(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Unauthorized(_) => false,
            Self::Refused(_) | Self::NewerFormat { .. } | Self::Malformed(_) | Self::NotReplicated => true,
        }
    }
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        let code = error.code().unwrap_or_default();
        // A script reports a newer format in this form: `NEWERFORMAT found known`.
        if code == "NEWERFORMAT" {
            let mut numbers =
                error.detail().unwrap_or_default().split(' ').map(|text| text.parse().unwrap_or(0));
            let (found, known) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            return Self::NewerFormat { found, known };
        }
        if error.kind() == ErrorKind::AuthenticationFailed || matches!(code, "NOAUTH" | "WRONGPASS") {
            return Self::Unauthorized(error.to_string());
        }
        // Answers of a store that cannot serve now: it loads its data, is a replica after a failover, or lost its disk.
        let is_away =
            matches!(code, "LOADING" | "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "BUSY");
        match error.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension if !is_away => Self::Refused(error.to_string()),
            _ => Self::Unreachable(error.to_string()),
        }
    }
}

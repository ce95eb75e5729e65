//! Identifiers: epochs of links, clients and principals.

use std::fmt;
use std::sync::Arc;

/// The number of a link or session of one upstream. It only grows: facts about an older epoch do not apply to the
/// present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The bare number, for logs and status.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The number of a standby link of one upstream. It only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StandbyId(u64);

impl StandbyId {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A client, by a key that the embedding program chooses. Two calls with equal keys belong to one client. The key is
/// never shown, because it may be a secret.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(Arc<str>);

impl ClientKey {
    /// The client with this key.
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        Self(key.into())
    }

    /// The key. It may be a secret: digest it, never show it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientKey([redacted])")
    }
}

/// The name of a principal: an authenticated client, or all local clients together. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalName(Arc<str>);

impl PrincipalName {
    /// The name of all local clients: without authentication they cannot be told apart.
    pub const LOCAL: &'static str = "local";

    /// The principal with this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Equality with a fast path: usually a name is compared with itself.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

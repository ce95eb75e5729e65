//! Numbers that tell one thing from its successor.

use std::fmt;
use std::sync::Arc;

/// The number of a link or session of one upstream. It only grows: what was learned about an older
/// epoch says nothing about the present one.
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

/// The number of a second link of one upstream, made beside the present one. It only grows too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SecondId(u64);

impl SecondId {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A client of whoever embeds the host, by a key of its choice. Two calls with equal keys are of one client.
/// The key is never shown: it may be a secret.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(Arc<str>);

impl ClientKey {
    /// The client with this key.
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        Self(key.into())
    }

    /// The key, which may be a secret: to be digested, and never shown.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientKey([redacted])")
    }
}

/// The name of a principal: whoever has authenticated, or everybody on this machine. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalName(Arc<str>);

impl PrincipalName {
    /// The name of everybody on this machine: without authentication they cannot be told apart.
    pub const LOCAL: &'static str = "local";

    /// The principal of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Equality, with the usual case first: one name is compared with itself.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

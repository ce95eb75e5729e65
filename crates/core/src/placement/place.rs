//! Identities: replicas, their boots, sessions, and the epochs that order changes of ownership.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The configured name of a replica. It stays the same over restarts. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaName(Arc<str>);

impl ReplicaName {
    /// The longest name: that of a Kubernetes pod is a DNS label.
    pub const MAX_LENGTH: usize = 63;

    /// The name, if it consists of 1 to 63 letters, digits, hyphens and underscores. A dot would end the name in a
    /// session token.
    pub fn new(name: &str) -> Option<Self> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let fits = (1..=Self::MAX_LENGTH).contains(&name.len()) && name.bytes().all(is_allowed);
        fits.then(|| Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ReplicaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The random number of one start of a replica: a restarted replica has the same name and another boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId(u64);

impl BootId {
    /// The boot with this number, which the caller draws at random.
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Reads the 16 hexadecimal digits that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 16 && text.bytes().all(is_digit)).then_some(())?;
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One running replica: its name and its boot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The configured name.
    pub name: ReplicaName,
    /// The start of the replica.
    pub boot: BootId,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.boot)
    }
}

/// A client session, by the replica that opened it and its number there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// The first owner, which the session token names.
    pub origin: Place,
    /// The number of the session at its first owner. Numbers count up from 1.
    pub number: u64,
}

/// The number of one ownership. A later owner has a higher one; zero is the ownership that a session token grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OwnerEpoch(u64);

impl OwnerEpoch {
    /// The ownership of the replica that opened a session.
    pub const FIRST: Self = Self(0);

    /// The epoch with this number.
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The epoch after `self`: at least the store's time in microseconds, so that a store that lost `self` does not go
    /// back.
    #[must_use]
    pub fn succeed(self, at: StoreTime) -> Self {
        Self((self.0 + 1).max(at.as_micros()))
    }
}

impl fmt::Display for OwnerEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A point on the clock of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StoreTime(u64);

impl StoreTime {
    /// The point this many microseconds after the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The duration since `earlier`; zero if it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// The owner of a session under one epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOwner {
    /// The replica.
    pub place: Place,
    /// The number of its ownership.
    pub epoch: OwnerEpoch,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_name_fits_into_a_session_token() {
        assert!(ReplicaName::new("gateway-0").is_some());
        assert!(ReplicaName::new(&"a".repeat(63)).is_some());
        for refused in ["", "a.b", "a b", "ä", "a/b", "a:b", &"a".repeat(64)] {
            assert_eq!(ReplicaName::new(refused), None, "{refused}");
        }
    }

    #[test]
    fn a_boot_is_sixteen_hexadecimal_digits() {
        let boot = BootId::from_number(0x00ab_cdef);
        assert_eq!(boot.to_string(), "0000000000abcdef");
        assert_eq!(BootId::parse("0000000000abcdef"), Some(boot));
        for refused in ["", "abcdef", "0000000000ABCDEF", "+000000000abcdef", "00000000000abcdefg"] {
            assert_eq!(BootId::parse(refused), None, "{refused}");
        }
    }

    #[test]
    fn an_epoch_grows_even_if_the_clock_of_the_store_goes_back() {
        let old = OwnerEpoch::from_number(1_000);
        assert_eq!(old.succeed(StoreTime::from_micros(5_000)).number(), 5_000);
        assert_eq!(old.succeed(StoreTime::from_micros(10)).number(), 1_001);
    }
}

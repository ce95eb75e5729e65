//! Addresses: ids that name the gateway process which issued them, so that an id of another process is never taken for
//! one of this process. `session::token` encrypts them.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

/// Name of a replica, readable in front of its ids, so that a load balancer can route by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaName(Arc<str>);

impl ReplicaName {
    /// Maximum length: that of a host name without its domain.
    const MAX_LEN: usize = 63;

    /// Checks a name: 1 to 63 letters, digits, `-` and `_`, which need no quoting in a header, in a URL or in the config
    /// of a load balancer.
    pub fn parse(text: &str) -> Option<Self> {
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let valid = (1..=Self::MAX_LEN).contains(&text.len()) && text.bytes().all(is_safe);
        valid.then(|| Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Random number of one start of a gateway. Not a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boot(u64);

impl Boot {
    pub(crate) fn random() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }
}

impl fmt::Display for Boot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One gateway process. The name is `None` without a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replica {
    pub(crate) name: Option<ReplicaName>,
    pub(crate) boot: Boot,
}

impl Replica {
    /// Decides which process an id concerns that `issuer` has issued.
    pub(crate) fn place_of(&self, issuer: &Self) -> Place {
        if self == issuer { Place::Here } else { Place::Gone }
    }
}

/// Process that an id concerns. What it stands for is in the memory of that process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// This process.
    Here,
    /// Another process, which cannot be reached from here. It has ended, or it runs with the same key.
    Gone,
}

/// Kind of an id. An id of one kind is not accepted as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressKind {
    /// Session id of a legacy client.
    Session,
    /// Stream of a call, in its event ids.
    Stream,
    /// `requestState` of a call that waits for input.
    RequestState,
    /// Endpoint of an HTTP+SSE client.
    SseEndpoint,
}

impl AddressKind {
    /// Name in the associated data of the encryption. Never change one: ids outlive the process that issued them.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Stream => "stream",
            Self::RequestState => "state",
            Self::SseEndpoint => "sse",
        }
    }
}

/// An id that names its place: the process that issued it, and the number of the thing there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) replica: Replica,
    pub(crate) kind: AddressKind,
    pub(crate) number: u64,
}

impl Address {
    /// The part that is encrypted: boot, number, and further content. Kind and name are authenticated beside it.
    pub(crate) fn encode(&self, content: &[u8]) -> Vec<u8> {
        [&self.replica.boot.0.to_le_bytes(), &self.number.to_le_bytes(), content].concat()
    }

    /// Reads that part of an id of this kind and name; `None` if it is too short. Returns the further content too.
    pub(crate) fn decode(
        kind: AddressKind,
        name: Option<ReplicaName>,
        bytes: &[u8],
    ) -> Option<(Self, &[u8])> {
        let (boot, rest) = bytes.split_first_chunk()?;
        let (number, content) = rest.split_first_chunk()?;
        let replica = Replica { name, boot: Boot(u64::from_le_bytes(*boot)) };
        Some((Self { replica, kind, number: u64::from_le_bytes(*number) }, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_name_needs_no_quoting_anywhere() {
        for name in ["a", "gateway-0", "Web_7", &"x".repeat(63)] {
            assert_eq!(ReplicaName::parse(name).unwrap().as_str(), name);
        }
        for name in ["", "a.b", "a b", "a/b", "a,b", "ü", "a\n", "a=b", &"x".repeat(64)] {
            assert_eq!(ReplicaName::parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn an_id_concerns_this_process_only_if_name_and_boot_are_its_own() {
        let named = |name: &str, boot| Replica { name: ReplicaName::parse(name), boot: Boot(boot) };
        let own = named("one", 1);
        assert_eq!(own.place_of(&own), Place::Here);
        for other in [named("one", 2), named("two", 1), named("", 1)] {
            assert_eq!(own.place_of(&other), Place::Gone, "{other:?}");
        }
    }

    #[test]
    fn each_start_has_a_boot_of_its_own() {
        assert_ne!(Boot::random(), Boot::random());
        assert_eq!(Boot(0xab).to_string(), "00000000000000ab");
    }
}

//! Addresses: ids that name the gateway process which issued them, so that an id of another process is never taken for
//! one of this process. `session::token` encrypts them.

use gripfast::{BootId, ReplicaName};
use std::hash::{BuildHasher, Hasher, RandomState};

/// A new boot. Its number is not a secret.
pub(crate) fn random_boot() -> BootId {
    BootId::from_number(RandomState::new().build_hasher().finish())
}

/// One gateway process. The name is `None` without a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replica {
    pub(crate) name: Option<ReplicaName>,
    pub(crate) boot: BootId,
}

impl Replica {
    /// Decides which process an id concerns that `issuer` has issued.
    pub(crate) fn origin_of(&self, issuer: &Self) -> IdOrigin {
        if self == issuer { IdOrigin::Here } else { IdOrigin::Gone }
    }
}

/// Process that an id concerns. What it stands for is in the memory of that process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdOrigin {
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
    /// Task of a modern client.
    Task,
}

impl AddressKind {
    /// Name in the associated data of the encryption. Never change one: ids outlive the process that issued them.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Stream => "stream",
            Self::RequestState => "state",
            Self::SseEndpoint => "sse",
            Self::Task => "task",
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
        [&self.replica.boot.number().to_le_bytes(), &self.number.to_le_bytes(), content].concat()
    }

    /// Reads that part of an id of this kind and name; `None` if it is too short. Returns the further content too.
    pub(crate) fn decode(
        kind: AddressKind,
        name: Option<ReplicaName>,
        bytes: &[u8],
    ) -> Option<(Self, &[u8])> {
        let (boot, rest) = bytes.split_first_chunk()?;
        let (number, content) = rest.split_first_chunk()?;
        let replica = Replica { name, boot: BootId::from_number(u64::from_le_bytes(*boot)) };
        Some((Self { replica, kind, number: u64::from_le_bytes(*number) }, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_concerns_this_process_only_if_name_and_boot_are_its_own() {
        let named =
            |name: &str, boot| Replica { name: ReplicaName::new(name), boot: BootId::from_number(boot) };
        let own = named("one", 1);
        assert_eq!(own.origin_of(&own), IdOrigin::Here);
        for other in [named("one", 2), named("two", 1), named("", 1)] {
            assert_eq!(own.origin_of(&other), IdOrigin::Gone, "{other:?}");
        }
    }

    #[test]
    fn each_start_has_a_boot_of_its_own() {
        assert_ne!(random_boot(), random_boot());
    }
}

//! Division of the open-file limit: descriptors for servers and state are reserved, and client connections get the
//! rest.

/// The servers that need file descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DescriptorNeeds {
    /// Child processes that may run at the same time.
    pub processes: u32,
    /// Servers that are reached over the network.
    pub remotes: u32,
}

impl DescriptorNeeds {
    /// Listeners, the runtime, the state directory with ledger and audit log, files that are read occasionally,
    /// commands of the operator, and connections that are being refused.
    const OWN: u64 = 256;
    /// Three pipes and the process itself, twice: a replaced process ends after its successor was started.
    const PER_PROCESS: u64 = 8;
    /// Connections to a server: streams, and the usual number of calls in flight.
    const PER_REMOTE: u64 = 16;

    /// The number of reserved descriptors.
    fn reserved(self) -> u64 {
        let processes = u64::from(self.processes) * Self::PER_PROCESS;
        Self::OWN + processes + u64::from(self.remotes) * Self::PER_REMOTE
    }

    /// The number of `wanted` connections that fit into a limit of `limit` open files. Clients get at least a quarter
    /// of the limit: a gateway that accepts no connection is of no use.
    pub fn connections_within(self, limit: u64, wanted: u32) -> u32 {
        let room = limit.saturating_sub(self.reserved()).max(limit / 4).max(1);
        wanted.min(u32::try_from(room).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_get_the_descriptors_that_are_not_reserved() {
        let needs = DescriptorNeeds { processes: 10, remotes: 4 };
        assert_eq!(needs.reserved(), 256 + 80 + 64);
        assert_eq!(needs.connections_within(8592, 8192), 8192);
        assert_eq!(needs.connections_within(8591, 8192), 8191, "one less, one less");
        assert_eq!(needs.connections_within(1024, 8192), 624);
        assert_eq!(needs.connections_within(1024, 100), 100, "never more than wanted");
        assert_eq!(needs.connections_within(400, 8192), 100, "a quarter where nothing is left");
        assert_eq!(needs.connections_within(0, 8192), 1);
        assert_eq!(DescriptorNeeds::default().connections_within(u64::MAX, 8192), 8192);
    }
}

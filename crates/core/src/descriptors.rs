//! How the limit of open files is shared out: what servers and state need is set aside, and clients have the rest.

/// What a gateway needs descriptors for, besides connections of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Child processes that may run at a time.
    pub processes: u32,
    /// Servers that are reached over the network.
    pub remotes: u32,
}

impl Needs {
    /// Listeners, the runtime, the state directory with its ledger and audit log, files that are read now and then, the
    /// commands of the operator and connections that are being refused.
    const OWN: u64 = 256;
    /// Three pipes and the process itself, twice: one that is replaced ends after its successor was started.
    const PER_PROCESS: u64 = 8;
    /// Connections to a server: streams, and the calls that are usually in flight.
    const PER_REMOTE: u64 = 16;

    /// Descriptors that are set aside.
    fn reserved(self) -> u64 {
        let processes = u64::from(self.processes) * Self::PER_PROCESS;
        Self::OWN + processes + u64::from(self.remotes) * Self::PER_REMOTE
    }

    /// How many of `wanted` connections fit into a limit of `limit` open files. Where little is left, clients have a
    /// quarter: a gateway that nobody can connect to is of no use.
    pub fn connections_within(self, limit: u64, wanted: u32) -> u32 {
        let room = limit.saturating_sub(self.reserved()).max(limit / 4).max(1);
        wanted.min(u32::try_from(room).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_what_servers_and_state_leave() {
        let needs = Needs { processes: 10, remotes: 4 };
        assert_eq!(needs.reserved(), 256 + 80 + 64);
        assert_eq!(needs.connections_within(8592, 8192), 8192);
        assert_eq!(needs.connections_within(8591, 8192), 8191, "one less, one less");
        assert_eq!(needs.connections_within(1024, 8192), 624);
        assert_eq!(needs.connections_within(1024, 100), 100, "never more than wanted");
        assert_eq!(needs.connections_within(400, 8192), 100, "a quarter where nothing is left");
        assert_eq!(needs.connections_within(0, 8192), 1);
        assert_eq!(Needs::default().connections_within(u64::MAX, 8192), 8192);
    }
}

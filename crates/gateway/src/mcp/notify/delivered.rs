//! Notifications that a client was sent, and which of them certainly arrived. A notification on a stream that breaks may
//! not have been read, so it is sent again: a duplicate is harmless, a missing notification is not.

use super::list_changes::ListVersions;

/// Position in a series of notifications up to which one client was sent them, and up to which they arrived.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delivered<T> {
    /// The client certainly knows everything up to here.
    acked: T,
    /// Everything up to here was sent, on a stream that is still open.
    sent: T,
}

/// Sent and acknowledged list versions of one client.
pub(crate) type DeliveredVersions = Delivered<ListVersions>;

impl<T: Copy> Delivered<T> {
    /// State of a client that knows everything up to here.
    pub(crate) fn new(known: T) -> Self {
        Self { acked: known, sent: known }
    }

    /// End of what was sent.
    pub(crate) fn sent(&self) -> T {
        self.sent
    }

    /// Marks everything up to here as sent. Returns the end of what was sent before.
    pub(crate) fn mark_sent(&mut self, now: T) -> T {
        std::mem::replace(&mut self.sent, now)
    }

    /// Marks everything that was sent as arrived: the stream stayed open for long enough after it.
    pub(crate) fn ack_sent(&mut self) {
        self.acked = self.sent;
    }

    /// Marks everything that is not acknowledged as unsent, because a stream broke or a new one begins.
    pub(crate) fn rewind_to_acked(&mut self) {
        self.sent = self.acked;
    }
}

impl DeliveredVersions {
    /// Marks everything up to these versions as arrived: the stream stayed open for long enough after it.
    pub(crate) fn ack(&mut self, versions: ListVersions) {
        let newer =
            |sure: u64, arrived: u64| if sure == ListVersions::UNKNOWN { arrived } else { sure.max(arrived) };
        self.acked = ListVersions {
            tools: newer(self.acked.tools, versions.tools),
            resources: newer(self.acked.resources, versions.resources),
            prompts: newer(self.acked.prompts, versions.prompts),
        };
    }

    /// Marks a list as known: the client has requested it at these versions.
    pub(crate) fn listed(&mut self, method: &str, now: ListVersions) {
        let seen = |delivered: &mut ListVersions| match method {
            "tools/list" => delivered.tools = now.tools,
            "resources/list" | "resources/templates/list" => delivered.resources = now.resources,
            "prompts/list" => delivered.prompts = now.prompts,
            _ => {}
        };
        seen(&mut self.acked);
        seen(&mut self.sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS: &str = "notifications/tools/list_changed";

    fn tools(tools: u64) -> ListVersions {
        ListVersions { tools, ..ListVersions::default() }
    }

    fn mark_sent(delivered: &mut DeliveredVersions, now: ListVersions) -> Vec<&'static str> {
        delivered.mark_sent(now).changes_to(now).collect()
    }

    #[test]
    fn notifications_on_a_broken_stream_are_sent_again() {
        let mut delivered = DeliveredVersions::new(tools(1));
        assert_eq!(mark_sent(&mut delivered, tools(2)), [TOOLS]);
        assert!(mark_sent(&mut delivered, tools(2)).is_empty(), "once per change while the stream stands");
        delivered.rewind_to_acked();
        assert_eq!(mark_sent(&mut delivered, tools(2)), [TOOLS]);
        delivered.ack(tools(2));
        delivered.rewind_to_acked();
        assert!(mark_sent(&mut delivered, tools(2)).is_empty(), "it certainly knows");
    }

    #[test]
    fn a_client_that_has_listed_gets_no_notification() {
        let mut delivered =
            DeliveredVersions::new(ListVersions { tools: ListVersions::UNKNOWN, ..ListVersions::default() });
        delivered.listed("prompts/list", tools(4));
        assert_eq!(mark_sent(&mut delivered, tools(4)), [TOOLS]);
        delivered.listed("tools/list", tools(4));
        delivered.rewind_to_acked();
        assert!(mark_sent(&mut delivered, tools(4)).is_empty());
        assert_eq!(mark_sent(&mut delivered, tools(5)), [TOOLS]);
    }

    #[test]
    fn a_late_acknowledgement_does_not_lower_the_known_versions() {
        let mut delivered = DeliveredVersions::new(tools(1));
        delivered.listed("tools/list", tools(7));
        delivered.ack(tools(3));
        delivered.rewind_to_acked();
        assert!(mark_sent(&mut delivered, tools(7)).is_empty());
    }
}

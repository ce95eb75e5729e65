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
    /// Everything up to here was sent at some time, whether it arrived or not.
    latest: T,
}

/// Sent and acknowledged list versions of one client.
pub(crate) type DeliveredVersions = Delivered<ListVersions>;

impl<T: Copy> Delivered<T> {
    /// State of a client that knows everything up to here.
    pub(crate) fn new(known: T) -> Self {
        Self { acked: known, sent: known, latest: known }
    }

    /// End of what was sent.
    pub(crate) fn sent(&self) -> T {
        self.sent
    }

    /// Marks everything up to here as sent. Returns the end of what was sent before.
    pub(crate) fn mark_sent(&mut self, now: T) -> T {
        self.latest = now;
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
    /// Continues from the versions in `Last-Event-ID`, which may be from another process. For a list of which the client
    /// has got another version since then, it is unknown which one it has.
    pub(crate) fn resume(&mut self, named: ListVersions) {
        let known = |latest: u64, named: u64| {
            if latest == named || latest == ListVersions::UNKNOWN { named } else { ListVersions::UNKNOWN }
        };
        *self = Self::new(ListVersions {
            tools: known(self.latest.tools, named.tools),
            resources: known(self.latest.resources, named.resources),
            prompts: known(self.latest.prompts, named.prompts),
        });
    }

    /// Marks these versions as arrived, because the stream stayed open for long enough after they were sent. A list
    /// for which the client has got another version since then is not changed.
    pub(crate) fn ack(&mut self, versions: ListVersions) {
        let arrived = |acked: &mut u64, sent: u64, version: u64| {
            if sent == version {
                *acked = version;
            }
        };
        arrived(&mut self.acked.tools, self.sent.tools, versions.tools);
        arrived(&mut self.acked.resources, self.sent.resources, versions.resources);
        arrived(&mut self.acked.prompts, self.sent.prompts, versions.prompts);
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
        seen(&mut self.latest);
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
    fn a_client_that_resumes_from_the_last_event_is_not_notified_again() {
        let mut delivered = DeliveredVersions::new(tools(1));
        mark_sent(&mut delivered, tools(2));
        delivered.rewind_to_acked();
        delivered.resume(tools(2));
        assert!(mark_sent(&mut delivered, tools(2)).is_empty());
        let unknown = ListVersions { tools: ListVersions::UNKNOWN, ..ListVersions::default() };
        let mut restored = DeliveredVersions::new(unknown);
        restored.resume(tools(2));
        assert!(
            mark_sent(&mut restored, tools(2)).is_empty(),
            "the event of an earlier process says the same"
        );
        assert_eq!(mark_sent(&mut restored, tools(3)), [TOOLS]);
    }

    #[test]
    fn a_client_that_resumes_from_an_earlier_event_is_notified_even_of_equal_versions() {
        let listed = |delivered: &mut DeliveredVersions| delivered.listed("tools/list", tools(2));
        let sent = |delivered: &mut DeliveredVersions| drop(mark_sent(delivered, tools(2)));
        for got_another in [&listed as &dyn Fn(&mut _), &sent] {
            let mut delivered = DeliveredVersions::new(tools(1));
            got_another(&mut delivered);
            // The list is again as it was at the event that the client names.
            delivered.resume(tools(1));
            assert_eq!(mark_sent(&mut delivered, tools(1)), [TOOLS]);
        }
    }

    #[test]
    fn a_late_acknowledgement_does_not_replace_the_known_versions() {
        let mut delivered = DeliveredVersions::new(tools(1));
        mark_sent(&mut delivered, tools(3));
        delivered.listed("tools/list", tools(7));
        delivered.ack(tools(3));
        delivered.rewind_to_acked();
        assert!(mark_sent(&mut delivered, tools(7)).is_empty());
    }
}

//! Report on the restored session state.

use super::{DesiredSessionState, InitialSync, SubscriptionTarget, SyncStatus, SyncVerdict};

/// Result of restoring a session's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restored {
    /// There was nothing to restore.
    Nothing,
    /// The session has all of the desired state.
    Everything,
    /// Some parts are missing.
    Partly {
        /// The missing parts with their causes; the first few if there are many.
        missing: Vec<String>,
    },
}

impl Restored {
    /// The name in status and feeds.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing_to_restore",
            Self::Everything => "restored",
            Self::Partly { .. } => "partly",
        }
    }
}

impl DesiredSessionState {
    /// Maximum number of missing parts that are named.
    const MAX_NAMED: usize = 10;

    /// The result for the present session, once its first sync is done. Later changes count too: failed parts may
    /// succeed later, and new ones may be wanted.
    pub fn restored(&self) -> Option<Restored> {
        let session = self.session.as_ref()?;
        if session.initial_sync == InitialSync::Running {
            return None;
        }
        let calls = session.calls.iter().map(|(tool, verdict)| match verdict {
            SyncVerdict::Done => None,
            SyncVerdict::Declined(why) | SyncVerdict::Failed(why) => Some(format!("call of `{tool}`: {why}")),
        });
        let level = self.level.as_ref().filter(|_| session.support.level);
        let level = level
            .map(|level| missing_reason(&session.level).map(|why| format!("log level `{level}`: {why}")));
        let followed = self.subscriptions.wanted_targets().map(|(target, status)| {
            let can = session.support.subscribe.covers(target);
            let why = if can { missing_reason(status) } else { Some("the server does not support it") };
            why.map(|why| match target {
                SubscriptionTarget::Resource(uri) => format!("subscription to `{uri}`: {why}"),
                SubscriptionTarget::Task(id) => format!("subscription to task `{id}`: {why}"),
            })
        });
        let (mut total, mut missing, mut unnamed) = (0, Vec::new(), 0);
        for lack in calls.chain(level).chain(followed) {
            total += 1;
            match lack {
                Some(lack) if missing.len() < Self::MAX_NAMED => missing.push(lack),
                Some(_) => unnamed += 1,
                None => {}
            }
        }
        if unnamed > 0 {
            missing.push(format!("and {unnamed} more"));
        }
        Some(match (total, missing.is_empty()) {
            (0, _) => Restored::Nothing,
            (_, true) => Restored::Everything,
            (_, false) => Restored::Partly { missing },
        })
    }

    /// The same, once for each session that had something to restore.
    pub fn take_restored(&mut self) -> Option<Restored> {
        let session =
            self.session.as_mut().filter(|session| session.initial_sync == InitialSync::JustDone)?;
        session.initial_sync = InitialSync::Done;
        self.restored().filter(|restored| *restored != Restored::Nothing)
    }
}

/// The reason for which a part is missing; `None` if it is synced.
fn missing_reason(status: &SyncStatus) -> Option<&str> {
    match status {
        SyncStatus::Synced => None,
        SyncStatus::Pending => Some("not sent yet"),
        SyncStatus::Declined(why) | SyncStatus::Failed { why, .. } => Some(why),
    }
}

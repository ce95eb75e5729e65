//! Desired session state, and the part of it that the present session has: marked calls, log level, and subscriptions
//! to resources and tasks.
//!
//! The desired state belongs to the upstream and outlives its sessions. A new session has nothing, so everything is due
//! again. The marked calls are made before the session is used, so that no client call overtakes them. For the rest the
//! supervisor asks for the next action, performs it and reports its end: one at a time, so that an unsubscribe and a
//! later subscribe of the same target cannot overtake each other.

pub(crate) mod quota;
pub(crate) mod restored;
pub(crate) mod subscriptions;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::session_state::quota::SubscriptionQuota;
pub use crate::session_state::restored::Restored;
pub use crate::session_state::subscriptions::QuotaExceeded;

use crate::ids::Epoch;
use crate::session_state::subscriptions::Subscriptions;
use crate::time::Mono;
use std::collections::BTreeSet;
use std::time::Duration;

/// The desired session state of one upstream, and its sync state in the present session.
#[derive(Debug, Default)]
pub struct DesiredSessionState {
    level: Option<String>,
    subscriptions: Subscriptions,
    session: Option<Session>,
}

/// The sync methods that a server supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncSupport {
    /// `logging/setLevel` for the whole session.
    pub level: bool,
    /// The subscription method.
    pub subscribe: SubscribeMethod,
}

/// Target of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubscriptionTarget {
    /// A resource, by its URI.
    Resource(String),
    /// A task, by the id of its server.
    Task(String),
}

/// Subscription method of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscribeMethod {
    /// None.
    None,
    /// One request per resource. Updates of tasks are sent without subscription, if the server has tasks.
    Each,
    /// One stream that names all targets; another set of targets needs another stream.
    Stream {
        /// The stream also carries list changes, so that it is wanted without targets too.
        lists: bool,
        /// It carries resources.
        resources: bool,
        /// It carries tasks.
        tasks: bool,
    },
}

impl SubscribeMethod {
    fn covers(self, target: &SubscriptionTarget) -> bool {
        match (self, target) {
            (Self::None, _) | (Self::Each, SubscriptionTarget::Task(_)) => false,
            (Self::Each, SubscriptionTarget::Resource(_)) => true,
            (Self::Stream { resources, .. }, SubscriptionTarget::Resource(_)) => resources,
            (Self::Stream { tasks, .. }, SubscriptionTarget::Task(_)) => tasks,
        }
    }
}

/// Action that syncs the session state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncAction {
    /// Set the log level of the session.
    SetLevel(String),
    /// Subscribe to some resources and unsubscribe from others.
    UpdateSubscriptions {
        /// Resources to subscribe to.
        subscribe: Vec<SubscriptionTarget>,
        /// Resources to unsubscribe from.
        unsubscribe: Vec<SubscriptionTarget>,
    },
    /// Open a stream for exactly these targets, besides list changes, in place of the present one. If there are none
    /// and list changes are not wanted, only close the present one.
    OpenStream {
        /// All wanted targets.
        targets: Vec<SubscriptionTarget>,
    },
}

/// Result of a sync action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncEnd {
    /// Of [`SyncAction::SetLevel`].
    Level(SyncVerdict),
    /// Of [`SyncAction::UpdateSubscriptions`]: the verdict on each resource to subscribe to.
    Subscribed(Vec<(SubscriptionTarget, SyncVerdict)>),
    /// Of [`SyncAction::OpenStream`]: the stream is open for these targets.
    StreamOpened {
        /// The targets that the server granted.
        granted: Vec<SubscriptionTarget>,
    },
    /// Of [`SyncAction::OpenStream`]: no new stream was opened.
    StreamNotOpened(SyncVerdict),
}

/// The server's reaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncVerdict {
    /// Accepted.
    Done,
    /// Refused; another attempt in this session is useless.
    Declined(String),
    /// Failed; the server may not have received it.
    Failed(String),
}

/// Sync state of one session.
#[derive(Debug)]
struct Session {
    epoch: Epoch,
    support: SyncSupport,
    /// The tools of the marked calls, and the results.
    calls: Vec<(String, SyncVerdict)>,
    level: SyncStatus,
    stream: SyncStatus,
    /// Status of replacing the stream by one with fewer targets: a server that refused that keeps its stream for a
    /// while.
    narrower: SyncStatus,
    /// The action in progress.
    in_flight: Option<SyncAction>,
    initial_sync: InitialSync,
}

/// Progress of the first sync of a new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InitialSync {
    Running,
    /// Done, and not reported yet.
    JustDone,
    Done,
}

/// Sync status of one part of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SyncStatus {
    /// Not sent yet.
    Pending,
    /// Accepted.
    Synced,
    /// Refused by the server.
    Declined(String),
    /// Failed; retried at the time.
    Failed { retry_at: Mono, attempts: u32, why: String },
}

impl SyncStatus {
    /// Pause after the first failure; it doubles.
    const FIRST_PAUSE: Duration = Duration::from_secs(1);
    const MAX_PAUSE: Duration = Duration::from_secs(60);

    fn is_due(&self, now: Mono) -> bool {
        match self {
            Self::Pending => true,
            Self::Failed { retry_at, .. } => *retry_at <= now,
            Self::Synced | Self::Declined(_) => false,
        }
    }

    fn retry_at(&self) -> Option<Mono> {
        match self {
            Self::Failed { retry_at, .. } => Some(*retry_at),
            Self::Pending | Self::Synced | Self::Declined(_) => None,
        }
    }

    fn apply(&mut self, now: Mono, verdict: SyncVerdict) {
        let attempts = match self {
            Self::Failed { attempts, .. } => *attempts + 1,
            Self::Pending | Self::Synced | Self::Declined(_) => 0,
        };
        *self = match verdict {
            SyncVerdict::Done => Self::Synced,
            SyncVerdict::Declined(why) => Self::Declined(why),
            SyncVerdict::Failed(why) => {
                let pause = (Self::FIRST_PAUSE * (1 << attempts.min(6))).min(Self::MAX_PAUSE);
                Self::Failed { retry_at: now + pause, attempts, why }
            }
        };
    }
}

impl DesiredSessionState {
    /// Pause between the end of a stream and the attempt to open another one.
    const STREAM_REOPEN_PAUSE: Duration = Duration::from_secs(5);

    /// Sets the log level that every session gets.
    pub fn set_level(&mut self, level: &str) {
        if self.level.as_deref() != Some(level) {
            self.level = Some(level.to_owned());
            if let Some(session) = &mut self.session {
                session.level = SyncStatus::Pending;
            }
        }
    }

    /// Records that a client's call set this log level in the session of `epoch`. Every session gets it from now on.
    pub fn note_level_set(&mut self, epoch: Epoch, level: &str) {
        self.set_level(level);
        if let Some(session) = self.session.as_mut().filter(|session| session.epoch == epoch) {
            // Two concurrent requests may arrive in any order.
            let other_in_flight = matches!(session.in_flight, Some(SyncAction::SetLevel(_)));
            session.level = if other_in_flight { SyncStatus::Pending } else { SyncStatus::Synced };
        }
    }

    /// The log level that every session gets.
    pub fn level(&self) -> Option<&str> {
        self.level.as_deref()
    }

    /// Adds a subscriber of a target.
    ///
    /// # Errors
    /// There are too many subscriptions.
    pub fn subscribe(&mut self, target: &SubscriptionTarget) -> Result<(), QuotaExceeded> {
        self.subscriptions.add(target)
    }

    /// Removes a subscriber of a target.
    pub fn unsubscribe(&mut self, target: &SubscriptionTarget) {
        let in_progress = self.session.as_ref().is_some_and(|session| session.in_flight.is_some());
        self.subscriptions.remove(target, in_progress);
        if let Some(session) = &mut self.session {
            // The next request differs from the one that was declined.
            match session.narrower {
                SyncStatus::Declined(_) => session.narrower = SyncStatus::Pending,
                SyncStatus::Pending | SyncStatus::Synced | SyncStatus::Failed { .. } => {}
            }
        }
    }

    /// Returns whether there is a session.
    pub fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Returns whether the present session is subscribed to this target.
    pub fn is_subscribed(&self, target: &SubscriptionTarget) -> bool {
        self.session.is_some() && self.subscriptions.is_synced(target)
    }

    /// The subscribed resources that a change of `uri` concerns: itself, and those that contain it.
    pub fn matching_targets(&self, uri: &str) -> Vec<&SubscriptionTarget> {
        self.subscriptions.matching(uri)
    }

    /// Starts a new session. Only the results of the marked `calls` are known of it.
    pub fn begin_session(&mut self, epoch: Epoch, offers: SyncSupport, calls: Vec<(String, SyncVerdict)>) {
        self.end_session();
        self.session = Some(Session {
            epoch,
            support: offers,
            calls,
            level: SyncStatus::Pending,
            stream: SyncStatus::Pending,
            narrower: SyncStatus::Pending,
            in_flight: None,
            initial_sync: InitialSync::Running,
        });
    }

    /// Ends the session and its sync state.
    pub fn end_session(&mut self) {
        self.session = None;
        self.subscriptions.forget_session();
    }

    /// The next action for the session of `epoch`; none while one is in progress.
    pub fn next_action(&mut self, now: Mono, epoch: Epoch) -> Option<SyncAction> {
        let session = self.session.as_mut().filter(|session| session.epoch == epoch)?;
        if session.in_flight.is_some() {
            return None;
        }
        let level = self.level.as_ref().filter(|_| session.support.level && session.level.is_due(now));
        let action = match level {
            Some(level) => Some(SyncAction::SetLevel(level.clone())),
            None => match session.support.subscribe {
                SubscribeMethod::None => None,
                method @ SubscribeMethod::Each => {
                    self.subscriptions.due_changes(now, method).map(|(begin, end)| {
                        SyncAction::UpdateSubscriptions { subscribe: begin, unsubscribe: end }
                    })
                }
                method @ SubscribeMethod::Stream { lists, .. } => {
                    let begins = lists && session.stream.is_due(now);
                    let grows = self.subscriptions.has_due_subscribe(now, method);
                    let shrinks =
                        session.narrower.is_due(now) && self.subscriptions.has_due_unsubscribe(method);
                    (begins || grows || shrinks)
                        .then(|| SyncAction::OpenStream { targets: self.subscriptions.wanted(method) })
                }
            },
        };
        if action.is_none() && session.initial_sync == InitialSync::Running {
            session.initial_sync = InitialSync::JustDone;
        }
        session.in_flight.clone_from(&action);
        action
    }

    /// The time at which [`Self::next_action`] has something to do, if nothing else changes.
    pub fn wake_at(&self) -> Option<Mono> {
        let session = self.session.as_ref()?;
        let level = session.level.retry_at().filter(|_| session.support.level && self.level.is_some());
        let method = session.support.subscribe;
        let stream = session
            .stream
            .retry_at()
            .filter(|_| matches!(method, SubscribeMethod::Stream { lists: true, .. }));
        let is_too_large = matches!(method, SubscribeMethod::Stream { .. })
            && self.subscriptions.has_due_unsubscribe(method);
        let smaller = session.narrower.retry_at().filter(|_| is_too_large);
        [level, stream, smaller, self.subscriptions.retry_at(method)].into_iter().flatten().min()
    }

    /// Records the end of the action of the session of `epoch`. Returns the targets of which updates may have been
    /// lost: they were subscribed before, in a session or on a stream that has ended.
    pub fn action_ended(&mut self, now: Mono, epoch: Epoch, ended: SyncEnd) -> Vec<SubscriptionTarget> {
        let Some(session) = self.session.as_mut().filter(|session| session.epoch == epoch) else {
            return Vec::new();
        };
        let Some(action) = session.in_flight.take() else { return Vec::new() };
        let again = match (action, ended) {
            (SyncAction::SetLevel(sent), SyncEnd::Level(verdict)) => {
                // Another level may be wanted by now, and is due then.
                if self.level.as_deref() == Some(&*sent) {
                    session.level.apply(now, verdict);
                }
                Vec::new()
            }
            (
                SyncAction::UpdateSubscriptions { subscribe: _, unsubscribe: end },
                SyncEnd::Subscribed(verdicts),
            ) => {
                self.subscriptions.mark_unsubscribed(&end);
                self.subscriptions.apply(now, verdicts)
            }
            (SyncAction::OpenStream { targets }, SyncEnd::StreamOpened { granted }) => {
                session.stream = SyncStatus::Synced;
                session.narrower = SyncStatus::Pending;
                let granted: BTreeSet<SubscriptionTarget> = granted.into_iter().collect();
                let verdicts = targets.into_iter().map(|target| {
                    let verdict = match granted.contains(&target) {
                        true => SyncVerdict::Done,
                        false => SyncVerdict::Declined("the server did not acknowledge it".to_owned()),
                    };
                    (target, verdict)
                });
                let verdicts: Vec<_> = verdicts.collect();
                self.subscriptions.stream_replaced(&verdicts);
                self.subscriptions.apply(now, verdicts)
            }
            (SyncAction::OpenStream { targets }, SyncEnd::StreamNotOpened(verdict)) => {
                // The previous stream continues with its targets.
                match session.stream {
                    SyncStatus::Synced => session.narrower.apply(now, verdict.clone()),
                    SyncStatus::Pending | SyncStatus::Declined(_) | SyncStatus::Failed { .. } => {
                        session.stream.apply(now, verdict.clone());
                    }
                }
                let news = targets.into_iter().filter(|target| !self.subscriptions.is_synced(target));
                let verdicts = news.map(|target| (target, verdict.clone())).collect();
                self.subscriptions.apply(now, verdicts)
            }
            // The supervisor reports only on the action that it was given.
            (
                SyncAction::SetLevel(_)
                | SyncAction::UpdateSubscriptions { .. }
                | SyncAction::OpenStream { .. },
                _,
            ) => Vec::new(),
        };
        self.subscriptions.sweep();
        again
    }

    /// Records that the stream of the session of `epoch` ended without request.
    pub fn stream_ended(&mut self, now: Mono, epoch: Epoch) {
        let Some(session) = self.session.as_mut().filter(|session| session.epoch == epoch) else { return };
        let retry_at = now + Self::STREAM_REOPEN_PAUSE;
        let why = "the stream ended".to_owned();
        session.stream = SyncStatus::Failed { retry_at, attempts: 0, why: why.clone() };
        session.narrower = SyncStatus::Pending;
        let in_progress = session.in_flight.is_some();
        self.subscriptions.stream_lost(&SyncStatus::Failed { retry_at, attempts: 0, why }, in_progress);
    }
}

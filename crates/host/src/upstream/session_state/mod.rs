//! Desired session state of one upstream: log level and subscriptions that every session gets, with the callers that
//! wait for it and the listeners of updates. `core` decides which sync action is due; `sync` performs it.

pub(crate) mod log_level;
pub(crate) mod restore;
pub(crate) mod sync;

use super::answer::Answer;
use super::call::CallDeadlines;
use super::{KeepUp, Upstream};
use crate::client::Principal;
use crate::subscribe::SubscribeOutcome;
use crate::sync::Mutex;
use crate::transport::{InFlightCalls, Listener};
use gripfast_core::failure::{CallError, CallOutcome, Code, Failure};
use gripfast_core::ids::Epoch;
use gripfast_core::session_state::{
    DesiredSessionState, QuotaExceeded, Restored, SubscriptionQuota, SubscriptionTarget, SyncAction, SyncEnd,
    SyncSupport, SyncVerdict,
};
use gripfast_core::time::Mono;
use gripfast_wire::{Era, subscriptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{Notify, oneshot};

/// The desired session state of one upstream.
#[derive(Default)]
pub(crate) struct SessionState {
    table: Mutex<Table>,
    /// Notified when a sync action may be due.
    pub(crate) due: Notify,
    /// Notified when a session has begun.
    session_started: Notify,
}

/// Number of a session. Epochs are not unique here: an instance that is ending and its successor both begin with the
/// same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionNumber(Epoch);

#[derive(Default)]
struct Table {
    desired: DesiredSessionState,
    /// Number of the last session that began.
    last_session: Epoch,
    /// Subscriptions per principal.
    quota: SubscriptionQuota<Principal>,
    /// Listeners of updates.
    listeners: BTreeMap<SubscriptionTarget, Vec<SubscriptionListener>>,
    last_listener: u64,
    /// Callers that wait for the server's acknowledgement. They are released with the session.
    waiting: BTreeMap<SubscriptionTarget, Vec<oneshot::Sender<SyncResult>>>,
    /// The update stream that is being opened: its session, its request id, and the receiver of the acknowledgement.
    opening: Option<(SessionNumber, u64, oneshot::Sender<Vec<SubscriptionTarget>>)>,
}

struct SubscriptionListener {
    number: u64,
    listener: Arc<dyn Listener>,
}

/// Result of one sync request.
#[derive(Debug, Clone)]
pub(crate) enum SyncResult {
    Done,
    /// The server refused, with this answer.
    Declined(Answer),
    Failed(Failure, CallOutcome),
}

impl SyncResult {
    pub(crate) fn verdict(&self) -> SyncVerdict {
        match self {
            Self::Done => SyncVerdict::Done,
            Self::Declined(answer) => SyncVerdict::Declined(match answer.result() {
                Err((code, message)) => format!("{message} ({code})"),
                Ok(_) => "declined".to_owned(),
            }),
            Self::Failed(failure, _) => SyncVerdict::Failed(failure.to_string()),
        }
    }
}

/// State of a subscription in the present session.
enum SubscriptionState {
    /// Active.
    Subscribed,
    /// Being requested.
    Waiting(oneshot::Receiver<SyncResult>),
    /// There is no session.
    NoSession,
}

impl SessionState {
    /// Begins a new session, which replaces the present one.
    pub(crate) fn begin_session(
        &self,
        offers: SyncSupport,
        calls: Vec<(String, SyncVerdict)>,
    ) -> SessionNumber {
        let mut table = self.table.lock();
        table.last_session = table.last_session.next();
        let number = table.last_session;
        table.desired.begin_session(number, offers, calls);
        table.release_waiting();
        drop(table);
        self.session_started.notify_waiters();
        SessionNumber(number)
    }

    /// Ends a session, unless another one has already replaced it.
    pub(crate) fn end_session(&self, session: SessionNumber) {
        let mut table = self.table.lock();
        if table.is_current(session) {
            table.desired.end_session();
            table.release_waiting();
        }
    }

    pub(crate) fn next(&self, now: Mono, session: SessionNumber) -> Option<SyncAction> {
        self.table.lock().desired.next_action(now, session.0)
    }

    /// The log level of every session.
    pub(crate) fn level(&self) -> Option<String> {
        self.table.lock().desired.level().map(str::to_owned)
    }

    pub(crate) fn level_sent(&self, session: SessionNumber, level: &str) {
        self.table.lock().desired.note_level_set(session.0, level);
    }

    pub(crate) fn restored(&self) -> Option<Restored> {
        self.table.lock().desired.restored()
    }

    /// The restore status of this session, once after it was restored.
    pub(crate) fn take_restored(&self, session: SessionNumber) -> Option<Restored> {
        let mut table = self.table.lock();
        if table.is_current(session) { table.desired.take_restored() } else { None }
    }

    pub(crate) fn wake_at(&self, session: SessionNumber) -> Option<Mono> {
        let table = self.table.lock();
        table.desired.wake_at().filter(|_| table.is_current(session))
    }

    /// Applies the result of a sync action: answers the callers that wait, and sends one update to subscribers that
    /// may have missed one. Returns the tasks whose status must be polled for their subscribers.
    pub(crate) fn action_ended(
        &self,
        now: Mono,
        session: SessionNumber,
        ended: SyncEnd,
        results: Vec<(SubscriptionTarget, SyncResult)>,
    ) -> Vec<String> {
        let mut table = self.table.lock();
        if !table.is_current(session) {
            return Vec::new();
        }
        let missed = table.desired.action_ended(now, session.0, ended);
        let waiting: Vec<_> = results
            .into_iter()
            .filter_map(|(about, result)| Some((table.waiting.remove(&about)?, result)))
            .collect();
        let (mut listeners, mut tasks) = (Vec::new(), Vec::new());
        for target in missed {
            let followers = table.listeners_of(&target);
            match target {
                SubscriptionTarget::Resource(uri) => {
                    listeners.push((followers, subscriptions::updated_notification(&uri)))
                }
                SubscriptionTarget::Task(id) => tasks.push(id),
            }
        }
        drop(table);
        for (waiting, result) in waiting {
            for waiter in waiting {
                // The caller may have stopped waiting.
                let _ = waiter.send(result.clone());
            }
        }
        for (listeners, message) in listeners {
            listeners.iter().for_each(|listener| listener.on_message(&message));
        }
        tasks
    }

    pub(crate) fn stream_ended(&self, now: Mono, session: SessionNumber) {
        self.table.lock().desired.stream_ended(now, session.0);
    }

    /// Registers the update stream of request `id`; the receiver gets the granted targets.
    pub(crate) fn opening(
        &self,
        session: SessionNumber,
        id: u64,
    ) -> oneshot::Receiver<Vec<SubscriptionTarget>> {
        let (granted, acknowledged) = oneshot::channel();
        let mut table = self.table.lock();
        if table.is_current(session) {
            table.opening = Some((session, id, granted));
        }
        acknowledged
    }

    /// Handles the acknowledgement of the update stream of request `id`.
    pub(crate) fn acknowledged(&self, session: SessionNumber, id: u64, subjects: Vec<SubscriptionTarget>) {
        let opening = {
            let mut table = self.table.lock();
            table.opening.take_if(|(of, opening, _)| (*of, *opening) == (session, id))
        };
        if let Some((_, _, granted)) = opening {
            let _ = granted.send(subjects);
        }
    }

    /// Forwards a resource update to all subscribers of the resource or of a parent of it.
    pub(crate) fn updated(&self, uri: &str, message: &[u8]) {
        let listeners: Vec<_> = {
            let table = self.table.lock();
            table
                .desired
                .matching_targets(uri)
                .into_iter()
                .flat_map(|followed| table.listeners_of(followed))
                .collect()
        };
        listeners.iter().for_each(|listener| listener.on_message(message));
    }

    /// Forwards a task notification to all subscribers.
    pub(crate) fn task_updated(&self, id: &str, message: &[u8]) {
        let listeners = self.table.lock().listeners_of(&SubscriptionTarget::Task(id.to_owned()));
        listeners.iter().for_each(|listener| listener.on_message(message));
    }

    /// Registers the subscribed principals with a new link.
    pub(crate) fn register_followers(&self, link: &InFlightCalls) {
        self.table.lock().quota.subscribers().for_each(|principal| link.note_principal(principal));
    }

    fn add(
        &self,
        target: &SubscriptionTarget,
        principal: &Principal,
        listener: Arc<dyn Listener>,
    ) -> Result<u64, QuotaExceeded> {
        let mut table = self.table.lock();
        table.quota.acquire(principal, target)?;
        if let Err(full) = table.desired.subscribe(target) {
            table.quota.release(principal, target);
            return Err(full);
        }
        table.last_listener += 1;
        let number = table.last_listener;
        table.listeners.entry(target.clone()).or_default().push(SubscriptionListener { number, listener });
        Ok(number)
    }

    fn remove(&self, target: &SubscriptionTarget, principal: &Principal, number: u64) {
        let mut table = self.table.lock();
        table.quota.release(principal, target);
        table.desired.unsubscribe(target);
        if let Some(listeners) = table.listeners.get_mut(target) {
            listeners.retain(|entry| entry.number != number);
            if listeners.is_empty() {
                table.listeners.remove(target);
                table.waiting.remove(target);
            }
        }
        drop(table);
        self.due.notify_waiters();
    }

    fn subscription_state(&self, target: &SubscriptionTarget) -> SubscriptionState {
        let mut table = self.table.lock();
        if !table.desired.has_session() {
            return SubscriptionState::NoSession;
        }
        if table.desired.is_subscribed(target) {
            return SubscriptionState::Subscribed;
        }
        let (tell, result) = oneshot::channel();
        let waiting = table.waiting.entry(target.clone()).or_default();
        // Callers that stopped waiting are dropped.
        waiting.retain(|waiter| !waiter.is_closed());
        waiting.push(tell);
        drop(table);
        self.due.notify_waiters();
        SubscriptionState::Waiting(result)
    }
}

impl Table {
    fn is_current(&self, session: SessionNumber) -> bool {
        self.desired.has_session() && self.last_session == session.0
    }

    fn listeners_of(&self, target: &SubscriptionTarget) -> Vec<Arc<dyn Listener>> {
        self.listeners.get(target).into_iter().flatten().map(|entry| Arc::clone(&entry.listener)).collect()
    }

    /// Releases callers that wait for a session that has ended; they try again.
    fn release_waiting(&mut self) {
        self.waiting.clear();
        self.opening = None;
    }
}

/// A subscription; dropping it unsubscribes.
pub(crate) struct SubscriptionHandle {
    session_state: Arc<SessionState>,
    pub(crate) target: SubscriptionTarget,
    principal: Principal,
    number: u64,
    /// An idle lazy server would send no updates.
    _hold: KeepUp,
}

impl Drop for SubscriptionHandle {
    fn drop(&mut self) {
        self.session_state.remove(&self.target, &self.principal, self.number);
    }
}

impl Upstream {
    /// Subscribes to a resource or task. Waits as a call does for the connection, and then for the server's
    /// acknowledgement.
    ///
    /// Dropping the future cancels the subscription.
    pub(crate) async fn subscribe(
        self: &Arc<Self>,
        target: SubscriptionTarget,
        principal: Principal,
        listener: Arc<dyn Listener>,
        deadline: Option<Mono>,
    ) -> Result<SubscribeOutcome<SubscriptionHandle>, CallError> {
        let number = self.session_state.add(&target, &principal, listener).map_err(|full| {
            let text = format!("server `{}` accepts no further subscription: {full}", self.name);
            CallError::new(Code::Overloaded, &self.name, CallOutcome::NotSent, text)
        })?;
        if let Some(connection) = self.connection() {
            connection.in_flight.note_principal(&principal);
        }
        let state = Arc::clone(&self.session_state);
        let mut deadlines = CallDeadlines::new(self, &principal, deadline);
        let holder = principal.clone();
        let subscription = SubscriptionHandle {
            session_state: state,
            target,
            principal: holder,
            number,
            _hold: self.keep_up(),
        };
        let limit = self.clock.mono() + self.spec().supervision.timeouts.call;
        let limit = deadline.map_or(limit, |deadline| deadline.min(limit));
        let out_of_time = |outcome| {
            let failure = Failure::TimedOut(self.spec().supervision.timeouts.call);
            CallError::from_failure(&self.name, &failure, outcome)
        };
        loop {
            // Registered before the check, so that no change is missed.
            let (session_started, changed) =
                (self.session_state.session_started.notified(), self.changed.notified());
            tokio::pin!(session_started, changed);
            session_started.as_mut().enable();
            changed.as_mut().enable();
            let ticket = self.wait_for_admission(&mut deadlines, || ()).await?;
            deadlines.link_acquired();
            let epoch = ticket.epoch();
            // One subscription request serves all subscribers, so it uses no slot.
            drop(ticket);
            let Some(connection) = self.connection().filter(|connection| connection.epoch == epoch) else {
                self.yield_to_supervisor(&deadlines).await?;
                continue;
            };
            let can = match subscription.target {
                SubscriptionTarget::Resource(_) => connection.server.capabilities.resources_subscribe,
                SubscriptionTarget::Task(_) => {
                    connection.session.era == Era::Modern && connection.server.has_tasks()
                }
            };
            if !can {
                return Ok(SubscribeOutcome::Unsupported);
            }
            let result = match self.session_state.subscription_state(&subscription.target) {
                SubscriptionState::Subscribed => return Ok(SubscribeOutcome::Subscribed(subscription)),
                SubscriptionState::NoSession => {
                    // The connection is up and its session is about to begin, or both have just ended.
                    tokio::select! {
                        () = session_started => continue,
                        () = changed => continue,
                        () = tokio::time::sleep_until(self.clock.instant(limit)) => {
                            return Err(out_of_time(CallOutcome::NotSent));
                        }
                    }
                }
                SubscriptionState::Waiting(result) => result,
            };
            match tokio::time::timeout_at(self.clock.instant(limit), result).await {
                Ok(Ok(SyncResult::Done)) => return Ok(SubscribeOutcome::Subscribed(subscription)),
                Ok(Ok(SyncResult::Declined(answer))) => return Ok(SubscribeOutcome::Declined(answer)),
                Ok(Ok(SyncResult::Failed(failure, outcome))) => {
                    return Err(CallError::from_failure(&self.name, &failure, outcome));
                }
                // The session has ended; the next one will subscribe.
                Ok(Err(_)) => {}
                Err(_) => return Err(out_of_time(CallOutcome::Unknown)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast_core::session_state::SubscribeMethod;

    const OFFERS: SyncSupport = SyncSupport { level: true, subscribe: SubscribeMethod::Each };

    struct SilentListener;

    impl Listener for SilentListener {
        fn on_message(&self, _message: &[u8]) {}
    }

    fn noon() -> Mono {
        Mono::from_origin(std::time::Duration::from_secs(1000))
    }

    #[test]
    fn a_subscriber_that_leaves_before_the_acknowledgement_leaves_nothing_behind() {
        let state = SessionState::default();
        state.begin_session(OFFERS, Vec::new());
        let news = SubscriptionTarget::Resource("x://news".to_owned());
        let stays = state.add(&news, &Principal::local(), Arc::new(SilentListener)).unwrap();
        for _ in 0..3 {
            let leaves = state.add(&news, &Principal::local(), Arc::new(SilentListener)).unwrap();
            drop(state.subscription_state(&news));
            state.remove(&news, &Principal::local(), leaves);
        }
        assert!(state.table.lock().waiting[&news].len() <= 1);
        state.remove(&news, &Principal::local(), stays);
        let table = state.table.lock();
        assert!(table.waiting.is_empty() && table.listeners.is_empty());
    }

    #[test]
    fn d04_an_ending_instance_does_not_affect_the_session_of_its_successor() {
        let state = SessionState::default();
        let news = SubscriptionTarget::Resource("x://news".to_owned());
        state.add(&news, &Principal::local(), Arc::new(SilentListener)).unwrap();
        let old = state.begin_session(OFFERS, Vec::new());
        let action = state.next(noon(), old).unwrap();
        assert_eq!(
            action,
            SyncAction::UpdateSubscriptions { subscribe: vec![news.clone()], unsubscribe: Vec::new() }
        );
        let new = state.begin_session(OFFERS, Vec::new());
        assert_ne!(old, new);
        assert_eq!(state.next(noon(), old), None, "its sync actions are obsolete");
        let mut result = match state.subscription_state(&news) {
            SubscriptionState::Waiting(result) => result,
            SubscriptionState::Subscribed | SubscriptionState::NoSession => {
                panic!("the new session has no subscription yet")
            }
        };
        let done = || SyncEnd::Subscribed(vec![(news.clone(), SyncVerdict::Done)]);
        state.action_ended(noon(), old, done(), vec![(news.clone(), SyncResult::Done)]);
        assert!(result.try_recv().is_err(), "a result of the old session is ignored");
        state.end_session(old);
        assert_eq!(state.next(noon(), new), Some(action), "the session goes on");
        state.action_ended(noon(), new, done(), vec![(news.clone(), SyncResult::Done)]);
        assert!(matches!(result.try_recv(), Ok(SyncResult::Done)));
        state.end_session(new);
        assert!(matches!(state.subscription_state(&news), SubscriptionState::NoSession));
    }
}

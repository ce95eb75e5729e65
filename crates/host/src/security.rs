//! Security events of the gateway as a whole: each gets a line in the audit log, a log line, an event and a count.
//! `gripfast_core::security` decides which failed authentications are reported one by one and how long their answers wait.

use crate::host::{Host, Inner};
use crate::observe::UpstreamEvent;
use gripfast_core::event::Event;
use gripfast_core::redact;
use gripfast_core::security::{
    AdminAction, AuthFailure, AuthFailures, AuthTarget, AuthThrottle, Decision, KeyChange, SecurityEvent,
    TrustDecision,
};
use gripfast_core::time::Mono;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How often things of security happened since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityCounts {
    /// Failed authentications, each of them.
    pub auth_failures: BTreeMap<(AuthTarget, AuthFailure), u64>,
    /// Actions of the admin API.
    pub admin_actions: BTreeMap<AdminAction, u64>,
    /// Keys that changed, and replaced admin tokens.
    pub key_changes: BTreeMap<KeyChange, u64>,
    /// Decisions about config files.
    pub trust_decisions: BTreeMap<TrustDecision, u64>,
}

/// What a host remembers of security events.
#[derive(Default)]
pub(crate) struct Security(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    throttle: AuthThrottle,
    counts: SecurityCounts,
    recent: VecDeque<UpstreamEvent>,
    /// Whether a task waits to report what was only counted.
    is_awaited: bool,
}

/// Events that are remembered.
const RECENT: usize = 20;

impl Security {
    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    /// A request did not authenticate. Every failure is counted; the first ones of an address are reported at once and
    /// the others together every minute. Answers how long the refusal is to wait: a caller that sends it at once gives
    /// that protection up.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn auth_failed(&self, failure: AuthFailures) -> Duration {
        let Decision { delay, reports } = {
            let mut remembered = self.inner.security.lock();
            *remembered.counts.auth_failures.entry((failure.target, failure.reason)).or_default() +=
                failure.count;
            remembered.throttle.failed(self.now(), failure)
        };
        for report in reports {
            self.inner.tell(SecurityEvent::AuthFailed(report));
        }
        self.await_reports();
        delay
    }

    /// Records an admin action, or a change of keys or trust: a line in the audit log, a log line, an event and a count.
    /// Failed authentications go to [`Host::auth_failed`].
    pub fn record(&self, event: SecurityEvent) {
        {
            let counts = &mut self.inner.security.lock().counts;
            match &event {
                SecurityEvent::AuthFailed(failed) => {
                    *counts.auth_failures.entry((failed.target, failed.reason)).or_default() += failed.count;
                }
                SecurityEvent::AdminAction { action, .. } => {
                    *counts.admin_actions.entry(*action).or_default() += 1;
                }
                SecurityEvent::KeysChanged { change, names, .. } => {
                    *counts.key_changes.entry(*change).or_default() += names.len().max(1) as u64;
                }
                SecurityEvent::TrustChanged { decision, .. } => {
                    *counts.trust_decisions.entry(*decision).or_default() += 1;
                }
            }
        }
        self.inner.tell(event);
    }

    /// How often things of security happened.
    pub fn security_counts(&self) -> SecurityCounts {
        self.inner.security.lock().counts.clone()
    }

    /// The last events that belong to no server, the oldest first.
    pub fn security_events(&self) -> Vec<UpstreamEvent> {
        self.inner.security.lock().recent.iter().cloned().collect()
    }

    /// Sees to it that what was only counted is reported when its minute is over.
    fn await_reports(&self) {
        let due = {
            let mut remembered = self.inner.security.lock();
            let due = remembered.throttle.poll_timeout().filter(|_| !remembered.is_awaited);
            remembered.is_awaited |= due.is_some();
            due
        };
        if let Some(due) = due {
            // It ends with the host, or when there is nothing left to report.
            tokio::spawn(report(Arc::downgrade(&self.inner), due));
        }
    }

    /// Reports what was only counted so far.
    pub(crate) fn finish_reports(&self) {
        let reports = self.inner.security.lock().throttle.finish();
        reports.into_iter().for_each(|report| self.inner.tell(SecurityEvent::AuthFailed(report)));
    }
}

async fn report(host: Weak<Inner>, mut due: Mono) {
    loop {
        let Some(wake) = host.upgrade().map(|inner| inner.clock().instant(due)) else { return };
        tokio::time::sleep_until(wake).await;
        let Some(inner) = host.upgrade() else { return };
        let (reports, next) = {
            let mut remembered = inner.security.lock();
            let reports = remembered.throttle.handle_timeout(inner.clock().mono());
            let next = remembered.throttle.poll_timeout();
            remembered.is_awaited = next.is_some();
            (reports, next)
        };
        reports.into_iter().for_each(|report| inner.tell(SecurityEvent::AuthFailed(report)));
        match next {
            Some(next) => due = next,
            None => return,
        }
    }
}

impl Inner {
    /// Writes the event down and tells those who follow.
    fn tell(&self, event: SecurityEvent) {
        let event = redacted(event);
        let now = self.clock().now();
        self.audit().record(now, &event);
        let kind = event.word();
        match &event {
            SecurityEvent::AuthFailed(failed) => {
                let (target, reason, count) = (failed.target.word(), failed.reason.word(), failed.count);
                let source = failed.source.to_string();
                tracing::warn!(kind, target, reason, source, count, "{event}");
            }
            SecurityEvent::AdminAction { .. }
            | SecurityEvent::KeysChanged { .. }
            | SecurityEvent::TrustChanged { .. } => tracing::info!(kind, "{event}"),
        }
        let told =
            UpstreamEvent { server: None, instance: None, at: now.wall, event: Event::Security(event) };
        {
            let recent = &mut self.security.lock().recent;
            if recent.len() == RECENT {
                recent.pop_front();
            }
            recent.push_back(told.clone());
        }
        self.feed().tell(told);
    }
}

/// The event without secrets in the names that a request chose.
fn redacted(event: SecurityEvent) -> SecurityEvent {
    let name = |name: String| redact::name(&name).into_owned();
    match event {
        SecurityEvent::AuthFailed(failed) => {
            let principal = failed.principal.map(name);
            SecurityEvent::AuthFailed(AuthFailures { principal, ..failed })
        }
        SecurityEvent::AdminAction { action, server, tool, source, status } => {
            let (server, tool) = (server.map(name), tool.map(name));
            SecurityEvent::AdminAction { action, server, tool, source, status }
        }
        event @ (SecurityEvent::KeysChanged { .. } | SecurityEvent::TrustChanged { .. }) => event,
    }
}

//! Security events of the gateway as a whole: each is written to the audit log, logged, published and counted.
//! `gripfast_core::security` decides which failed authentications are reported one by one and how long their answers
//! are delayed.

use crate::host::{Host, HostInner};
use crate::observe::UpstreamEvent;
use crate::sync::Mutex;
use gripfast_core::event::Event;
use gripfast_core::redact;
use gripfast_core::security::{
    AdminAction, AuthFailure, AuthFailures, AuthTarget, AuthThrottle, KeyChange, SecurityEvent,
    ThrottleDecision, TrustDecision,
};
use gripfast_core::time::Mono;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Counts of security events since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityCounts {
    /// Failed authentications.
    pub auth_failures: BTreeMap<(AuthTarget, AuthFailure), u64>,
    /// Actions of the admin API.
    pub admin_actions: BTreeMap<AdminAction, u64>,
    /// Changed keys and replaced admin tokens.
    pub key_changes: BTreeMap<KeyChange, u64>,
    /// Decisions about config files.
    pub trust_decisions: BTreeMap<TrustDecision, u64>,
}

/// Security events of a host: counts, throttle and recent events.
#[derive(Default)]
pub(crate) struct Security(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    throttle: AuthThrottle,
    counts: SecurityCounts,
    recent: VecDeque<UpstreamEvent>,
    /// True while a task will report the counted failures.
    report_is_scheduled: bool,
}

/// Number of recent events that are kept.
const RECENT: usize = 20;

impl Host {
    /// Records a failed authentication. Every failure is counted; the first ones of an address are reported
    /// immediately and the others together every minute. Returns how long the answer must be delayed; a caller that
    /// ignores it gives up this protection.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn record_auth_failure(&self, failure: AuthFailures) -> Duration {
        let ThrottleDecision { delay, reports } = {
            let mut remembered = self.inner.security.0.lock();
            *remembered.counts.auth_failures.entry((failure.target, failure.reason)).or_default() +=
                failure.count;
            remembered.throttle.record_failure(self.now(), failure)
        };
        for report in reports {
            self.inner.publish_security_event(SecurityEvent::AuthFailed(report));
        }
        self.schedule_report();
        delay
    }

    /// Records an admin action, or a change of keys or trust: in the audit log, as a log line, as an event and in the
    /// counts. Failed authentications go to [`Host::record_auth_failure`].
    pub fn record_security_event(&self, event: SecurityEvent) {
        {
            let counts = &mut self.inner.security.0.lock().counts;
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
        self.inner.publish_security_event(event);
    }

    /// Counts of security events.
    pub fn security_counts(&self) -> SecurityCounts {
        self.inner.security.0.lock().counts.clone()
    }

    /// The last events that belong to no server, oldest first.
    pub fn security_events(&self) -> Vec<UpstreamEvent> {
        self.inner.security.0.lock().recent.iter().cloned().collect()
    }

    /// Starts the task that reports counted failures when their minute is over.
    fn schedule_report(&self) {
        let due = {
            let mut remembered = self.inner.security.0.lock();
            let due = remembered.throttle.poll_timeout().filter(|_| !remembered.report_is_scheduled);
            remembered.report_is_scheduled |= due.is_some();
            due
        };
        if let Some(due) = due {
            // The task ends with the host, or when there is nothing left to report.
            tokio::spawn(report(Arc::downgrade(&self.inner), due));
        }
    }

    /// Reports the failures that were only counted so far.
    pub(crate) fn finish_reports(&self) {
        let reports = self.inner.security.0.lock().throttle.finish();
        reports
            .into_iter()
            .for_each(|report| self.inner.publish_security_event(SecurityEvent::AuthFailed(report)));
    }
}

async fn report(host: Weak<HostInner>, mut due: Mono) {
    loop {
        let Some(wake) = host.upgrade().map(|inner| inner.clock.instant(due)) else { return };
        tokio::time::sleep_until(wake).await;
        let Some(inner) = host.upgrade() else { return };
        let (reports, next) = {
            let mut remembered = inner.security.0.lock();
            let reports = remembered.throttle.handle_timeout(inner.clock.mono());
            let next = remembered.throttle.poll_timeout();
            remembered.report_is_scheduled = next.is_some();
            (reports, next)
        };
        reports
            .into_iter()
            .for_each(|report| inner.publish_security_event(SecurityEvent::AuthFailed(report)));
        match next {
            Some(next) => due = next,
            None => return,
        }
    }
}

impl HostInner {
    /// Writes the event to the audit log and publishes it.
    fn publish_security_event(&self, event: SecurityEvent) {
        let event = redacted(event);
        let now = self.clock.now();
        self.audit.record(now, &event);
        let kind = event.kind();
        match &event {
            SecurityEvent::AuthFailed(failed) => {
                let (target, reason, count) = (failed.target.as_str(), failed.reason.as_str(), failed.count);
                let source = failed.source.to_string();
                tracing::warn!(kind, target, reason, source, count, "{event}");
            }
            SecurityEvent::AdminAction { .. }
            | SecurityEvent::KeysChanged { .. }
            | SecurityEvent::TrustChanged { .. } => tracing::info!(kind, "{event}"),
        }
        let published =
            UpstreamEvent { server: None, instance: None, at: now.wall, event: Event::Security(event) };
        {
            let recent = &mut self.security.0.lock().recent;
            if recent.len() == RECENT {
                recent.pop_front();
            }
            recent.push_back(published.clone());
        }
        self.feed.publish(published);
    }
}

/// Masks secrets in names that the request chose.
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

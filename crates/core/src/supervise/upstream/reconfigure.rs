//! Config changes: settings that can change under a working link apply at once; a link that depends on changed settings
//! is replaced, and stays in use until its successor works.

use super::{LinkKind, UpstreamMachine};
use crate::event::{Event, ReplaceCause};
use crate::failure::crashes::PrincipalCrashes;
use crate::supervise::link::Link;
use crate::supervise::spec::SupervisionSpec;
use crate::time::{Mono, Now};

/// Scope of a config change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revision {
    /// Supervision settings: timeouts, budgets, limits. The link stays.
    Rules,
    /// Also the way to reach the server: the link is outdated.
    Link,
}

impl UpstreamMachine {
    /// Applies a changed config. From now on the supervisor connects with the new one.
    pub fn reconfigure(&mut self, now: Now, spec: SupervisionSpec, kind: LinkKind, revision: Revision) {
        self.check_sleep(now);
        let now = now.mono;
        self.apply_spec(now, spec, kind);
        match revision {
            Revision::Rules => self.apply_rules_change(now),
            Revision::Link => self.apply_link_change(now),
        }
        self.report_state(now);
    }

    fn apply_spec(&mut self, now: Mono, spec: SupervisionSpec, kind: LinkKind) {
        self.circuit.reconfigure(spec.circuit);
        self.budget.reconfigure(&spec.restart);
        self.standby.longest_call = self.standby.longest_call.max(spec.timeouts.call);
        let recycles_otherwise = spec.recycle != self.spec.recycle;
        (self.spec, self.kind) = (spec, kind);
        let (recycle_at, measure_at) = (self.recycle_at(now), self.measure_at(now));
        if let Link::Ready(ready) = &mut self.link {
            ready.keepalive.reconfigure(self.spec.keepalive);
            if recycles_otherwise {
                (ready.recycle_at, ready.measure_at) = (recycle_at, measure_at);
            }
        }
    }

    fn apply_rules_change(&mut self, now: Mono) {
        if self.spare_state().is_none() && !self.is_replacing() {
            self.drop_standby();
        }
        match self.link {
            Link::Dormant if !self.spec.lazy => self.begin(now),
            // The change may have removed the cause.
            Link::Waiting { .. } | Link::Parked { .. } | Link::Blocked { .. } => self.connect(now),
            Link::Dormant
            | Link::Connecting { .. }
            | Link::Ready(_)
            | Link::Renewing { .. }
            | Link::Draining { .. }
            | Link::Stopped => {}
        }
        self.maintain_standby(now);
    }

    fn apply_link_change(&mut self, now: Mono) {
        let works = self.is_healthy();
        self.reset_failures();
        if works {
            self.standby.outdated = Some(now);
            self.replace(now, ReplaceCause::ConfigChanged);
        } else {
            self.reconnect(now);
        }
    }

    /// Resets circuit, restart budget and outage, and drops a spare: they belong to the previous config or link.
    pub(super) fn reset_failures(&mut self) {
        self.budget.forgive();
        self.crashes = PrincipalCrashes::default();
        self.outage = None;
        if self.circuit.close() {
            self.events.push_back(Event::CircuitClosed);
        }
        self.drop_standby();
    }
}

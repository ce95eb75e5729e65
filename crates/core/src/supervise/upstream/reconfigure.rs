//! A changed config: what can change under a link that works does so at once; a link that the new config
//! would have made otherwise is replaced, and stays in use until its successor works.

use super::{LinkKind, Upstream};
use crate::event::{Event, ReplaceCause};
use crate::failure::crashes::PrincipalCrashes;
use crate::supervise::link::Link;
use crate::supervise::spec::SupervisionSpec;
use crate::time::{Mono, Now};

/// How much of a config has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revision {
    /// The rules of supervision: timeouts, budgets, limits. The link stays.
    Rules,
    /// How the server is reached or spoken to as well: the link is one of the old config.
    Link,
}

impl Upstream {
    /// The config has changed. From now on the shell dials as the new one says.
    pub fn revise(&mut self, now: Now, spec: SupervisionSpec, kind: LinkKind, revision: Revision) {
        self.look(now);
        let now = now.mono;
        self.take_rules(now, spec, kind);
        match revision {
            Revision::Rules => self.go_by_rules(now),
            Revision::Link => self.go_by_config(now),
        }
        self.show(now);
    }

    fn take_rules(&mut self, now: Mono, spec: SupervisionSpec, kind: LinkKind) {
        self.circuit.revise(spec.circuit);
        self.budget.revise(&spec.restart);
        self.second.longest_call = self.second.longest_call.max(spec.timeouts.call);
        let recycles_otherwise = spec.recycle != self.spec.recycle;
        (self.spec, self.kind) = (spec, kind);
        let (recycle_at, measure_at) = (self.recycle_at(now), self.measure_at(now));
        if let Link::Ready(ready) = &mut self.link {
            ready.keepalive.revise(self.spec.keepalive);
            if recycles_otherwise {
                (ready.recycle_at, ready.measure_at) = (recycle_at, measure_at);
            }
        }
    }

    fn go_by_rules(&mut self, now: Mono) {
        if self.spare_state().is_none() && !self.is_replacing() {
            self.drop_second();
        }
        match self.link {
            Link::Dormant if !self.spec.lazy => self.begin(now),
            // Whatever held it back may be what was changed.
            Link::Waiting { .. } | Link::Parked { .. } | Link::Blocked { .. } => self.dial(now),
            Link::Dormant
            | Link::Connecting { .. }
            | Link::Ready(_)
            | Link::Renewing { .. }
            | Link::Draining { .. }
            | Link::Stopped => {}
        }
        self.tend_second(now);
    }

    fn go_by_config(&mut self, now: Mono) {
        let works = self.works();
        self.forget_troubles();
        if works {
            self.second.outdated = Some(now);
            self.replace(now, ReplaceCause::Changed);
        } else {
            self.redial(now);
        }
    }

    /// Circuit, restart budget and outage belong to what was there before. So does a spare.
    pub(super) fn forget_troubles(&mut self) {
        self.budget.forgive();
        self.crashes = PrincipalCrashes::default();
        self.outage = None;
        if self.circuit.close() {
            self.events.push_back(Event::CircuitClosed);
        }
        self.drop_second();
    }
}

//! What people may ask for: start, stop, reconnect, reload.

use super::{Action, Ask, Manner, Upstream};
use crate::event::ReplaceCause;
use crate::supervise::link::Link;
use crate::time::Mono;
use std::time::Duration;

impl Upstream {
    pub(super) fn on_asked(&mut self, now: Mono, ask: Ask) {
        match ask {
            Ask::Start => match self.link {
                Link::Stopped => self.begin(now),
                Link::Draining { .. } => {
                    self.finish_drain();
                    self.begin(now);
                }
                Link::Dormant if !self.spec.lazy => self.begin(now),
                Link::Dormant
                | Link::Connecting { .. }
                | Link::Ready(_)
                | Link::Renewing { .. }
                | Link::Waiting { .. }
                | Link::Parked { .. }
                | Link::Blocked { .. } => {}
            },
            Ask::Reconnect => self.redial(now),
            Ask::Reload => {
                let works = self.works();
                self.forget_troubles();
                if works {
                    self.replace(now, ReplaceCause::Asked);
                } else {
                    self.redial(now);
                }
            }
            Ask::CauseChanged => match &mut self.link {
                Link::Waiting { .. } | Link::Parked { .. } => self.dial(now),
                Link::Blocked { recheck_at, .. } => {
                    // Two processes that share a login, of which the server takes no token, must not wake each other
                    // with every token that they replace.
                    let rested_at = self.rechecked_at.map_or(now, |at| at + Self::WAKE_EVERY);
                    if rested_at <= now {
                        self.rechecked_at = Some(now);
                        self.dial(now);
                    } else {
                        *recheck_at = rested_at.min(*recheck_at);
                    }
                }
                Link::Dormant
                | Link::Connecting { .. }
                | Link::Ready(_)
                | Link::Renewing { .. }
                | Link::Draining { .. }
                | Link::Stopped => {}
            },
            Ask::Stop => self.stop(now, Self::DRAIN_FOR),
            Ask::Leave { within } => self.stop(now, within),
        }
    }

    pub(super) fn begin(&mut self, now: Mono) {
        self.outage = None;
        self.cause = None;
        if self.spec.lazy && self.holders == 0 {
            self.link = Link::Dormant;
        } else {
            self.dial(now);
        }
    }

    /// Replaces whatever there is by a fresh dial. A stopped upstream stays stopped: only `start` ends that.
    pub(super) fn redial(&mut self, now: Mono) {
        match self.link {
            Link::Stopped | Link::Draining { .. } => {}
            Link::Dormant | Link::Waiting { .. } | Link::Parked { .. } | Link::Blocked { .. } => {
                self.dial(now)
            }
            Link::Connecting { .. } | Link::Ready(_) | Link::Renewing { .. } => {
                self.actions.push_back(Action::HangUp(Manner::Politely));
                self.dial(now);
            }
        }
    }

    fn stop(&mut self, now: Mono, drain_for: Duration) {
        match &mut self.link {
            Link::Stopped => {}
            // Whoever has less time says so later.
            Link::Draining { until } => *until = (*until).min(now + drain_for),
            Link::Ready(_) | Link::Renewing { .. } if self.in_flight > 0 => {
                self.link = Link::Draining { until: now + drain_for };
            }
            Link::Ready(_) | Link::Renewing { .. } => self.finish_drain(),
            Link::Connecting { .. } => {
                self.be_stopped(Some(Manner::AtOnce));
            }
            Link::Dormant | Link::Waiting { .. } | Link::Parked { .. } | Link::Blocked { .. } => {
                self.be_stopped(None);
            }
        }
        self.drop_second();
        self.outage = None;
        self.cause = None;
    }

    pub(super) fn finish_drain(&mut self) {
        self.be_stopped(Some(Manner::Politely));
    }

    fn be_stopped(&mut self, hang_up: Option<Manner>) {
        // A request over HTTP does not end with its link.
        if self.in_flight > 0 {
            self.actions.push_back(Action::EndCalls);
        }
        self.actions.extend(hang_up.map(Action::HangUp));
        self.link = Link::Stopped;
        self.hang_up_retired();
    }
}

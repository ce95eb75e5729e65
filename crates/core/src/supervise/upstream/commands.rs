//! Operator commands: start, stop, reconnect, reload.

use super::{Action, CloseMode, Command, UpstreamMachine};
use crate::event::ReplaceCause;
use crate::supervise::link::Link;
use crate::time::Mono;
use std::time::Duration;

impl UpstreamMachine {
    pub(super) fn on_command(&mut self, now: Mono, command: Command) {
        match command {
            Command::Start => match self.link {
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
            Command::Reconnect => self.reconnect(now),
            Command::Reload => {
                let works = self.is_healthy();
                self.reset_failures();
                if works {
                    self.replace(now, ReplaceCause::Requested);
                } else {
                    self.reconnect(now);
                }
            }
            Command::CauseChanged => match &mut self.link {
                Link::Waiting { .. } | Link::Parked { .. } => self.connect(now),
                Link::Blocked { recheck_at, .. } => {
                    // Two processes that share a login which the server refuses must not wake each other with every
                    // token refresh.
                    let rested_at = self.rechecked_at.map_or(now, |at| at + Self::WAKE_EVERY);
                    if rested_at <= now {
                        self.rechecked_at = Some(now);
                        self.connect(now);
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
            Command::Stop => self.stop(now, Self::DRAIN_FOR),
            Command::Shutdown { within } => self.stop(now, within),
        }
    }

    pub(super) fn begin(&mut self, now: Mono) {
        self.outage = None;
        self.cause = None;
        if self.spec.lazy && self.hold_count == 0 {
            self.link = Link::Dormant;
        } else {
            self.connect(now);
        }
    }

    /// Replaces the present link by a new one. A stopped upstream stays stopped until `start`.
    pub(super) fn reconnect(&mut self, now: Mono) {
        match self.link {
            Link::Stopped | Link::Draining { .. } => {}
            Link::Dormant | Link::Waiting { .. } | Link::Parked { .. } | Link::Blocked { .. } => {
                self.connect(now)
            }
            Link::Connecting { .. } | Link::Ready(_) | Link::Renewing { .. } => {
                self.actions.push_back(Action::Close(CloseMode::Graceful));
                self.connect(now);
            }
        }
    }

    fn stop(&mut self, now: Mono, drain_for: Duration) {
        match &mut self.link {
            Link::Stopped => {}
            // A later stop may shorten the time.
            Link::Draining { until } => *until = (*until).min(now + drain_for),
            Link::Ready(_) | Link::Renewing { .. } if self.in_flight > 0 => {
                self.link = Link::Draining { until: now + drain_for };
            }
            Link::Ready(_) | Link::Renewing { .. } => self.finish_drain(),
            Link::Connecting { .. } => {
                self.set_stopped(Some(CloseMode::Immediate));
            }
            Link::Dormant | Link::Waiting { .. } | Link::Parked { .. } | Link::Blocked { .. } => {
                self.set_stopped(None);
            }
        }
        self.drop_standby();
        self.outage = None;
        self.cause = None;
    }

    pub(super) fn finish_drain(&mut self) {
        self.set_stopped(Some(CloseMode::Graceful));
    }

    fn set_stopped(&mut self, hang_up: Option<CloseMode>) {
        // A request over HTTP does not end with its link.
        if self.in_flight > 0 {
            self.actions.push_back(Action::EndCalls);
        }
        self.actions.extend(hang_up.map(Action::Close));
        self.link = Link::Stopped;
        self.close_retired();
    }
}

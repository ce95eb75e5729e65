//! Throttle for failed authentications: the delay of each answer, and the failures that are reported individually.
//!
//! Requests with a valid credential do not come here, so they are never delayed. They do not reset the failures either:
//! behind a proxy, honest clients and attackers share an address.

use super::{AuthFailure, AuthFailures, AuthTarget, RequestSource};
use crate::time::Mono;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Failed authentications of the last minutes, by address. IPv6 addresses of one /64 count as one.
#[derive(Debug, Default)]
pub struct AuthThrottle {
    /// `None` is the control socket.
    sources: BTreeMap<Option<IpAddr>, Entry>,
    window: Option<Window>,
    /// Failures that are reported without address when the window ends.
    others: Option<AuthFailures>,
}

/// Delay and reports after a failed authentication.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThrottleDecision {
    /// Delay of the answer.
    pub delay: Duration,
    /// Failures to report now.
    pub reports: Vec<AuthFailures>,
}

#[derive(Debug)]
struct Entry {
    /// Failures since the source was last quiet.
    failures: u32,
    /// Number of these that were reported individually.
    reported: u32,
    at: Mono,
    /// Failures to report when the window ends, with the details of the latest.
    unreported: Option<AuthFailures>,
}

/// The window in which the number of individual reports is limited.
#[derive(Debug)]
struct Window {
    ends: Mono,
    reported: u32,
}

/// Treatment of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Treatment {
    /// Only counted by the caller.
    Ignored,
    /// Reported.
    Reported,
    /// Reported, and the answer is delayed.
    Delayed,
}

/// Decides the treatment of a failure. Clients and commands start without a credential to learn which one is wanted,
/// and a gateway that cannot check a token is not the client's fault. An admin action without a credential is reported.
fn treatment(target: AuthTarget, reason: AuthFailure) -> Treatment {
    match (reason, target) {
        (AuthFailure::CannotCheck, _) => Treatment::Ignored,
        (AuthFailure::NoCredential, AuthTarget::Mcp | AuthTarget::AdminRead) => Treatment::Ignored,
        (AuthFailure::NoCredential, AuthTarget::AdminAction | AuthTarget::ControlSocket) => {
            Treatment::Reported
        }
        // The process is refused before it sent anything.
        (AuthFailure::OtherUser, _) => Treatment::Reported,
        // A recognised credential is not a guess: it has to be renewed, or needs another scope.
        (AuthFailure::Expired | AuthFailure::InsufficientScope, _) => Treatment::Reported,
        (
            AuthFailure::Malformed
            | AuthFailure::UnknownKey
            | AuthFailure::InvalidToken
            | AuthFailure::WrongAdminToken
            | AuthFailure::InvalidSignInCode
            | AuthFailure::ForeignOrigin,
            _,
        ) => Treatment::Delayed,
    }
}

impl AuthThrottle {
    /// Number of failures of one source that are answered at once.
    pub const FREE_FAILURES: u32 = 5;
    /// Delay of the next one. It doubles with each further failure.
    pub const FIRST_DELAY: Duration = Duration::from_millis(100);
    /// The longest delay.
    pub const MAX_DELAY: Duration = Duration::from_secs(5);
    /// A source without failures for this long is forgotten.
    pub const FORGET_AFTER: Duration = Duration::from_secs(600);
    /// Maximum number of tracked sources. Those with the oldest last failure are removed first.
    pub const MAX_SOURCES: usize = 4096;
    /// Number of failures of one source that are reported individually.
    pub const MAX_REPORTS_PER_SOURCE: u32 = 3;
    /// Number of failures of all sources that are reported individually per window.
    pub const MAX_REPORTS_PER_WINDOW: u32 = 60;
    /// Number of sources with their own line at the end of a window. The others share one.
    pub const MAX_SUMMARIES: usize = 20;
    /// Time after which counted failures are reported together.
    pub const WINDOW: Duration = Duration::from_secs(60);

    /// Records a failed authentication.
    pub fn record_failure(&mut self, now: Mono, failure: AuthFailures) -> ThrottleDecision {
        let treatment = treatment(failure.target, failure.reason);
        if treatment == Treatment::Ignored {
            return ThrottleDecision::default();
        }
        let mut reports = self.handle_timeout(now);
        let source = match failure.source {
            RequestSource::Address(address) => Some(network(address)),
            RequestSource::ControlSocket | RequestSource::Several => None,
        };
        self.make_room(now, source);
        let window = self.window.get_or_insert(Window { ends: now + Self::WINDOW, reported: 0 });
        let entry = self.sources.entry(source).or_insert(Entry {
            failures: 0,
            reported: 0,
            at: now,
            unreported: None,
        });
        if now - entry.at >= Self::FORGET_AFTER {
            (entry.failures, entry.reported) = (0, 0);
        }
        entry.at = now;
        let delay = match (treatment, source) {
            (Treatment::Delayed, Some(_)) => {
                entry.failures = entry.failures.saturating_add(1);
                delay(entry.failures)
            }
            (Treatment::Ignored | Treatment::Reported | Treatment::Delayed, _) => Duration::ZERO,
        };
        if entry.reported < Self::MAX_REPORTS_PER_SOURCE && window.reported < Self::MAX_REPORTS_PER_WINDOW {
            entry.reported += 1;
            window.reported += 1;
            reports.push(failure);
        } else {
            add(&mut entry.unreported, failure);
        }
        ThrottleDecision { delay, reports }
    }

    /// The time at which [`AuthThrottle::handle_timeout`] has something to report.
    pub fn poll_timeout(&self) -> Option<Mono> {
        let is_owed = self.others.is_some() || self.sources.values().any(|entry| entry.unreported.is_some());
        self.window.as_ref().filter(|_| is_owed).map(|window| window.ends)
    }

    /// Reports the counted failures, if the window has ended.
    pub fn handle_timeout(&mut self, now: Mono) -> Vec<AuthFailures> {
        if self.window.as_ref().is_some_and(|window| window.ends <= now) { self.finish() } else { Vec::new() }
    }

    /// Reports the counted failures, at the end of the process.
    pub fn finish(&mut self) -> Vec<AuthFailures> {
        self.window = None;
        let mut untold: Vec<AuthFailures> =
            self.sources.values_mut().filter_map(|entry| entry.unreported.take()).collect();
        untold.sort_by_key(|failures| std::cmp::Reverse(failures.count));
        for rest in untold.drain(untold.len().min(Self::MAX_SUMMARIES)..) {
            add(&mut self.others, rest);
        }
        untold.extend(
            self.others.take().map(|others| AuthFailures { source: RequestSource::Several, ..others }),
        );
        untold
    }

    /// Makes room for a new source.
    fn make_room(&mut self, now: Mono, source: Option<IpAddr>) {
        if self.sources.len() < Self::MAX_SOURCES || self.sources.contains_key(&source) {
            return;
        }
        self.sources.retain(|_, entry| now - entry.at < Self::FORGET_AFTER || entry.unreported.is_some());
        if self.sources.len() < Self::MAX_SOURCES {
            return;
        }
        // Many at once, so that a flood of addresses does not sort the table for each of them.
        let mut oldest: Vec<(Mono, Option<IpAddr>)> =
            self.sources.iter().map(|(source, entry)| (entry.at, *source)).collect();
        oldest.sort_unstable();
        for (_, source) in oldest.into_iter().take(Self::MAX_SOURCES / 16) {
            if let Some(untold) = self.sources.remove(&source).and_then(|entry| entry.unreported) {
                add(&mut self.others, untold);
            }
        }
    }
}

/// Adds `further` to the count, and keeps its details as the latest.
fn add(counted: &mut Option<AuthFailures>, further: AuthFailures) {
    let before = counted.take().map_or(0, |failures| failures.count);
    *counted = Some(AuthFailures { count: before.saturating_add(further.count), ..further });
}

fn delay(failures: u32) -> Duration {
    match failures.checked_sub(AuthThrottle::FREE_FAILURES + 1) {
        None => Duration::ZERO,
        Some(doublings) => {
            let factor = 2_u32.saturating_pow(doublings);
            AuthThrottle::FIRST_DELAY.saturating_mul(factor).min(AuthThrottle::MAX_DELAY)
        }
    }
}

/// The unit that counts as one address: an IPv4 address, or the /64 of an IPv6 address, which usually belongs to one
/// customer.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address @ IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Mono {
        Mono::from_origin(Duration::from_millis(millis))
    }

    fn from(address: IpAddr) -> AuthFailures {
        let (target, reason) = (AuthTarget::Mcp, AuthFailure::UnknownKey);
        AuthFailures { target, reason, principal: None, source: RequestSource::Address(address), count: 1 }
    }

    fn v4(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(number).into()
    }

    fn millis(throttle: &mut AuthThrottle, now: u64, address: &str) -> u128 {
        throttle.record_failure(at(now), from(address.parse().unwrap())).delay.as_millis()
    }

    #[test]
    fn g05_failures_of_one_address_are_delayed_increasingly() {
        let mut throttle = AuthThrottle::default();
        let delays: Vec<_> = (0..14).map(|now| millis(&mut throttle, now, "192.0.2.1")).collect();
        assert_eq!(delays, [0, 0, 0, 0, 0, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
        assert_eq!(millis(&mut throttle, 20, "192.0.2.2"), 0);
    }

    #[test]
    fn g05_failures_are_forgotten_after_ten_quiet_minutes() {
        let mut throttle = AuthThrottle::default();
        for _ in 0..50 {
            millis(&mut throttle, 0, "192.0.2.1");
        }
        assert_eq!(millis(&mut throttle, 599_999, "192.0.2.1"), 5000);
        assert_eq!(millis(&mut throttle, 599_999 + 600_000, "192.0.2.1"), 0);
    }

    #[test]
    fn g05_addresses_of_one_ipv6_network_count_as_one() {
        let mut throttle = AuthThrottle::default();
        for last in 0..5 {
            assert_eq!(millis(&mut throttle, 0, &format!("2001:db8:0:1::{last}")), 0);
        }
        assert_eq!(millis(&mut throttle, 0, "2001:db8:0:1:ffff::1"), 100);
        assert_eq!(millis(&mut throttle, 0, "2001:db8:0:2::1"), 0);
        assert_eq!(network("::ffff:192.0.2.1".parse().unwrap()), v4(0xc000_0201));
    }

    #[test]
    fn g05_a_request_without_a_credential_is_neither_delayed_nor_reported() {
        let mut throttle = AuthThrottle::default();
        let address = v4(1);
        for reason in [AuthFailure::NoCredential, AuthFailure::CannotCheck] {
            for target in [AuthTarget::Mcp, AuthTarget::AdminRead] {
                for _ in 0..50 {
                    let decision =
                        throttle.record_failure(at(0), AuthFailures { target, reason, ..from(address) });
                    assert_eq!(decision, ThrottleDecision::default());
                }
            }
        }
        let action = || AuthFailures {
            target: AuthTarget::AdminAction,
            reason: AuthFailure::NoCredential,
            ..from(address)
        };
        let decisions: Vec<_> = (0..50).map(|_| throttle.record_failure(at(0), action())).collect();
        assert_eq!(decisions[0].reports, [action()], "an action without the token is reported");
        assert!(decisions.iter().all(|decision| decision.delay.is_zero()), "a command may not know better");
        assert_eq!(throttle.record_failure(at(0), from(address)).delay, Duration::ZERO, "they do not count");
    }

    #[test]
    fn g05_a_recognised_credential_is_reported_and_never_delayed() {
        let mut throttle = AuthThrottle::default();
        for reason in [AuthFailure::Expired, AuthFailure::InsufficientScope] {
            let failure = || AuthFailures { reason, ..from(v4(1)) };
            let decisions: Vec<_> = (0..50).map(|_| throttle.record_failure(at(0), failure())).collect();
            assert!(decisions.iter().all(|decision| decision.delay.is_zero()), "{reason:?}");
            assert!(decisions.iter().any(|decision| !decision.reports.is_empty()), "{reason:?}");
            throttle = AuthThrottle::default();
        }
    }

    #[test]
    fn g05_a_flood_from_one_address_has_three_lines_then_one_per_minute() {
        let mut throttle = AuthThrottle::default();
        let mut reports = Vec::new();
        for now in 0..120_000 {
            reports.extend(throttle.record_failure(at(now), from(v4(1))).reports);
        }
        let counts: Vec<u64> = reports.iter().map(|report| report.count).collect();
        assert_eq!(counts, [1, 1, 1, 59_997]);
        assert_eq!(throttle.poll_timeout(), Some(at(120_000)));
        assert_eq!(throttle.handle_timeout(at(119_999)), []);
        let last = throttle.handle_timeout(at(120_000));
        assert_eq!(last, [AuthFailures { count: 60_000, ..from(v4(1)) }]);
        assert_eq!(throttle.poll_timeout(), None);
    }

    #[test]
    fn g05_a_flood_from_many_addresses_has_few_lines_and_a_bounded_table() {
        let mut throttle = AuthThrottle::default();
        let mut reports = Vec::new();
        let flood = 20_000;
        for number in 0..flood {
            reports.extend(throttle.record_failure(at(u64::from(number)), from(v4(number))).reports);
            assert!(throttle.sources.len() <= AuthThrottle::MAX_SOURCES);
        }
        assert_eq!(reports.len(), AuthThrottle::MAX_REPORTS_PER_WINDOW as usize);
        reports.extend(throttle.handle_timeout(at(60_000)));
        assert_eq!(
            reports.len(),
            AuthThrottle::MAX_REPORTS_PER_WINDOW as usize + AuthThrottle::MAX_SUMMARIES + 1
        );
        assert_eq!(reports.last().unwrap().source, RequestSource::Several);
        assert_eq!(reports.iter().map(|report| report.count).sum::<u64>(), u64::from(flood));
    }

    #[test]
    fn counted_failures_are_reported_at_the_end() {
        let mut throttle = AuthThrottle::default();
        for _ in 0..5 {
            throttle.record_failure(at(0), from(v4(1)));
        }
        assert_eq!(throttle.finish(), [AuthFailures { count: 2, ..from(v4(1)) }]);
        assert_eq!(throttle.finish(), []);
    }
}

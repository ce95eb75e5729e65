//! The throttle of failed authentications: how long the answer to each of them waits, and which of them are reported one by
//! one. Time is an argument.
//!
//! A valid credential is never asked about here, so it is never delayed. It does not forgive failures either: behind a proxy
//! one address has honest clients and attackers.

use super::{AuthFailure, AuthFailures, AuthTarget, Source};
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
    /// Failures that are told without their addresses when the window ends.
    others: Option<AuthFailures>,
}

/// What follows from a failed authentication.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// How long its answer waits.
    pub delay: Duration,
    /// What is reported now.
    pub reports: Vec<AuthFailures>,
}

#[derive(Debug)]
struct Entry {
    /// Failures since the source was last quiet.
    failures: u32,
    /// How many of these were reported one by one.
    reported: u32,
    at: Mono,
    /// Failures that are told when the window ends, with the latest of them.
    untold: Option<AuthFailures>,
}

/// A minute in which so much is reported and no more.
#[derive(Debug)]
struct Window {
    ends: Mono,
    reported: u32,
}

/// What a failure leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Treatment {
    /// It is counted by its caller and by nobody else.
    Ignored,
    /// It is reported.
    Reported,
    /// It is reported, and its answer waits.
    Delayed,
}

/// Clients and commands begin without a credential to learn which one is wanted, and a gateway that cannot check a token is
/// not the client's fault. An action without a credential is worth a line.
fn treatment(target: AuthTarget, reason: AuthFailure) -> Treatment {
    match (reason, target) {
        (AuthFailure::CannotCheck, _) => Treatment::Ignored,
        (AuthFailure::NoCredential, AuthTarget::Mcp | AuthTarget::AdminRead) => Treatment::Ignored,
        (AuthFailure::NoCredential, AuthTarget::AdminAction | AuthTarget::ControlSocket) => {
            Treatment::Reported
        }
        // The process is refused before it has asked for anything.
        (AuthFailure::OtherUser, _) => Treatment::Reported,
        // Nobody guesses a credential that was recognised: it has to be renewed, or needs another scope.
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
    /// Failures of one source that are answered at once.
    pub const FREE: u32 = 5;
    /// The delay of the next one. It doubles with each further failure.
    pub const FIRST_DELAY: Duration = Duration::from_millis(100);
    /// The longest delay.
    pub const LONGEST_DELAY: Duration = Duration::from_secs(5);
    /// A source that has not failed for this long is forgotten.
    pub const QUIET: Duration = Duration::from_secs(600);
    /// Sources that are remembered at a time. The ones that failed longest ago make room.
    pub const SOURCES: usize = 4096;
    /// Failures of one source that are reported one by one.
    pub const FIRST_REPORTS: u32 = 3;
    /// Failures of all sources that are reported one by one in a minute.
    pub const REPORTS: u32 = 60;
    /// Sources that have a line of their own at the end of a minute. The others share one.
    pub const SUMMARIES: usize = 20;
    /// What is not reported at once is told together after this time.
    pub const WINDOW: Duration = Duration::from_secs(60);

    /// Takes note of a failed authentication.
    pub fn failed(&mut self, now: Mono, failure: AuthFailures) -> Decision {
        let treatment = treatment(failure.target, failure.reason);
        if treatment == Treatment::Ignored {
            return Decision::default();
        }
        let mut reports = self.handle_timeout(now);
        let source = match failure.source {
            Source::Address(address) => Some(network(address)),
            Source::ControlSocket | Source::Several => None,
        };
        self.make_room(now, source);
        let window = self.window.get_or_insert(Window { ends: now + Self::WINDOW, reported: 0 });
        let entry =
            self.sources.entry(source).or_insert(Entry { failures: 0, reported: 0, at: now, untold: None });
        if now - entry.at >= Self::QUIET {
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
        if entry.reported < Self::FIRST_REPORTS && window.reported < Self::REPORTS {
            entry.reported += 1;
            window.reported += 1;
            reports.push(failure);
        } else {
            add(&mut entry.untold, failure);
        }
        Decision { delay, reports }
    }

    /// When [`AuthThrottle::handle_timeout`] has something to report.
    pub fn poll_timeout(&self) -> Option<Mono> {
        let is_owed = self.others.is_some() || self.sources.values().any(|entry| entry.untold.is_some());
        self.window.as_ref().filter(|_| is_owed).map(|window| window.ends)
    }

    /// Reports what was only counted, if its minute is over.
    pub fn handle_timeout(&mut self, now: Mono) -> Vec<AuthFailures> {
        if self.window.as_ref().is_some_and(|window| window.ends <= now) { self.finish() } else { Vec::new() }
    }

    /// Reports what was only counted: nothing more will be noted.
    pub fn finish(&mut self) -> Vec<AuthFailures> {
        self.window = None;
        let mut untold: Vec<AuthFailures> =
            self.sources.values_mut().filter_map(|entry| entry.untold.take()).collect();
        untold.sort_by_key(|failures| std::cmp::Reverse(failures.count));
        for rest in untold.drain(untold.len().min(Self::SUMMARIES)..) {
            add(&mut self.others, rest);
        }
        untold.extend(self.others.take().map(|others| AuthFailures { source: Source::Several, ..others }));
        untold
    }

    /// Makes room for a source that is not known yet.
    fn make_room(&mut self, now: Mono, source: Option<IpAddr>) {
        if self.sources.len() < Self::SOURCES || self.sources.contains_key(&source) {
            return;
        }
        self.sources.retain(|_, entry| now - entry.at < Self::QUIET || entry.untold.is_some());
        if self.sources.len() < Self::SOURCES {
            return;
        }
        // Many at a time, so that a flood of addresses does not sort the table for each of them.
        let mut oldest: Vec<(Mono, Option<IpAddr>)> =
            self.sources.iter().map(|(source, entry)| (entry.at, *source)).collect();
        oldest.sort_unstable();
        for (_, source) in oldest.into_iter().take(Self::SOURCES / 16) {
            if let Some(untold) = self.sources.remove(&source).and_then(|entry| entry.untold) {
                add(&mut self.others, untold);
            }
        }
    }
}

/// Counts `further` with what is there, which becomes the latest.
fn add(counted: &mut Option<AuthFailures>, further: AuthFailures) {
    let before = counted.take().map_or(0, |failures| failures.count);
    *counted = Some(AuthFailures { count: before.saturating_add(further.count), ..further });
}

fn delay(failures: u32) -> Duration {
    match failures.checked_sub(AuthThrottle::FREE + 1) {
        None => Duration::ZERO,
        Some(doublings) => {
            let factor = 2_u32.saturating_pow(doublings);
            AuthThrottle::FIRST_DELAY.saturating_mul(factor).min(AuthThrottle::LONGEST_DELAY)
        }
    }
}

/// What counts as one address: an IPv4 address, or the /64 of an IPv6 address, which one customer has to itself.
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
        Mono::at(Duration::from_millis(millis))
    }

    fn from(address: IpAddr) -> AuthFailures {
        let (target, reason) = (AuthTarget::Mcp, AuthFailure::UnknownKey);
        AuthFailures { target, reason, principal: None, source: Source::Address(address), count: 1 }
    }

    fn v4(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(number).into()
    }

    fn millis(throttle: &mut AuthThrottle, now: u64, address: &str) -> u128 {
        throttle.failed(at(now), from(address.parse().unwrap())).delay.as_millis()
    }

    #[test]
    fn g05_failed_answers_of_one_address_wait_longer_and_longer_and_no_others() {
        let mut throttle = AuthThrottle::default();
        let delays: Vec<_> = (0..14).map(|now| millis(&mut throttle, now, "192.0.2.1")).collect();
        assert_eq!(delays, [0, 0, 0, 0, 0, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
        assert_eq!(millis(&mut throttle, 20, "192.0.2.2"), 0);
    }

    #[test]
    fn g05_an_address_that_was_quiet_for_ten_minutes_is_forgiven() {
        let mut throttle = AuthThrottle::default();
        for _ in 0..50 {
            millis(&mut throttle, 0, "192.0.2.1");
        }
        assert_eq!(millis(&mut throttle, 599_999, "192.0.2.1"), 5000);
        assert_eq!(millis(&mut throttle, 599_999 + 600_000, "192.0.2.1"), 0);
    }

    #[test]
    fn g05_addresses_of_one_ipv6_network_are_one() {
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
                    let decision = throttle.failed(at(0), AuthFailures { target, reason, ..from(address) });
                    assert_eq!(decision, Decision::default());
                }
            }
        }
        let action = || AuthFailures {
            target: AuthTarget::AdminAction,
            reason: AuthFailure::NoCredential,
            ..from(address)
        };
        let decisions: Vec<_> = (0..50).map(|_| throttle.failed(at(0), action())).collect();
        assert_eq!(decisions[0].reports, [action()], "an action without the token is reported");
        assert!(decisions.iter().all(|decision| decision.delay.is_zero()), "a command may not know better");
        assert_eq!(throttle.failed(at(0), from(address)).delay, Duration::ZERO, "they do not count");
    }

    #[test]
    fn g05_a_credential_that_was_recognised_is_reported_and_never_delayed() {
        let mut throttle = AuthThrottle::default();
        for reason in [AuthFailure::Expired, AuthFailure::InsufficientScope] {
            let failure = || AuthFailures { reason, ..from(v4(1)) };
            let decisions: Vec<_> = (0..50).map(|_| throttle.failed(at(0), failure())).collect();
            assert!(decisions.iter().all(|decision| decision.delay.is_zero()), "{reason:?}");
            assert!(decisions.iter().any(|decision| !decision.reports.is_empty()), "{reason:?}");
            throttle = AuthThrottle::default();
        }
    }

    #[test]
    fn g05_a_flood_from_one_address_has_three_lines_and_then_one_a_minute() {
        let mut throttle = AuthThrottle::default();
        let mut reports = Vec::new();
        for now in 0..120_000 {
            reports.extend(throttle.failed(at(now), from(v4(1))).reports);
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
            reports.extend(throttle.failed(at(u64::from(number)), from(v4(number))).reports);
            assert!(throttle.sources.len() <= AuthThrottle::SOURCES);
        }
        assert_eq!(reports.len(), AuthThrottle::REPORTS as usize);
        reports.extend(throttle.handle_timeout(at(60_000)));
        assert_eq!(reports.len(), AuthThrottle::REPORTS as usize + AuthThrottle::SUMMARIES + 1);
        assert_eq!(reports.last().unwrap().source, Source::Several);
        assert_eq!(reports.iter().map(|report| report.count).sum::<u64>(), u64::from(flood));
    }

    #[test]
    fn what_was_only_counted_is_reported_at_the_end() {
        let mut throttle = AuthThrottle::default();
        for _ in 0..5 {
            throttle.failed(at(0), from(v4(1)));
        }
        assert_eq!(throttle.finish(), [AuthFailures { count: 2, ..from(v4(1)) }]);
        assert_eq!(throttle.finish(), []);
    }
}

//! Dashboard sign-in: one-time codes, and the browser sessions that they are exchanged for. Only digests are kept.

use crate::time::Mono;
use std::time::Duration;

/// SHA-256 of a code or session key.
pub type SecretDigest = [u8; 32];

/// The valid codes and the open sessions.
#[derive(Debug, Default)]
pub struct SignIns {
    codes: Vec<Entry>,
    sessions: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    digest: SecretDigest,
    until: Mono,
}

impl SignIns {
    /// Lifetime of a code.
    pub const CODE_LIFETIME: Duration = Duration::from_secs(60);
    /// Lifetime of a session.
    pub const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);
    /// Maximum number of valid codes; a further one replaces the oldest.
    pub const MAX_CODES: usize = 8;
    /// Maximum number of open sessions; a further one replaces the oldest.
    pub const MAX_SESSIONS: usize = 32;

    /// Adds a code.
    pub fn issue(&mut self, now: Mono, code: SecretDigest) {
        add(&mut self.codes, Self::MAX_CODES, now, Self::CODE_LIFETIME, code);
    }

    /// Returns whether this code can be exchanged.
    pub fn is_code(&self, now: Mono, code: &SecretDigest) -> bool {
        position(&self.codes, now, code).is_some()
    }

    /// Exchanges a code for a session; `false` if the code is not valid. A code can be exchanged once.
    pub fn exchange(&mut self, now: Mono, code: &SecretDigest, session: SecretDigest) -> bool {
        let Some(at) = position(&self.codes, now, code) else { return false };
        self.codes.remove(at);
        add(&mut self.sessions, Self::MAX_SESSIONS, now, Self::SESSION_LIFETIME, session);
        true
    }

    /// Returns whether this session is open.
    pub fn is_session(&self, now: Mono, session: &SecretDigest) -> bool {
        position(&self.sessions, now, session).is_some()
    }
}

fn add(entries: &mut Vec<Entry>, most: usize, now: Mono, lifetime: Duration, digest: SecretDigest) {
    entries.retain(|entry| now < entry.until);
    if entries.len() >= most {
        entries.remove(0);
    }
    entries.push(Entry { digest, until: now + lifetime });
}

/// Compares with every entry, and all bytes of each, so that the timing reveals nothing.
fn position(entries: &[Entry], now: Mono, digest: &SecretDigest) -> Option<usize> {
    let mut found = None;
    for (at, entry) in entries.iter().enumerate() {
        let differing = |bits: u8, (ours, theirs): (&u8, &u8)| std::hint::black_box(bits | (ours ^ theirs));
        let same = entry.digest.iter().zip(digest).fold(0, differing) == 0;
        if same && now < entry.until {
            found = Some(at);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn g05_a_sign_in_code_is_exchanged_once_and_within_a_minute() {
        let mut sign_ins = SignIns::default();
        sign_ins.issue(at(0), [1; 32]);
        assert!(!sign_ins.exchange(at(1), &[2; 32], [9; 32]), "another code");
        assert!(!sign_ins.is_session(at(1), &[9; 32]) && sign_ins.is_code(at(59), &[1; 32]));
        assert!(sign_ins.exchange(at(59), &[1; 32], [9; 32]));
        assert!(!sign_ins.exchange(at(59), &[1; 32], [8; 32]), "a second time");
        assert!(sign_ins.is_session(at(60), &[9; 32]) && !sign_ins.is_session(at(60), &[8; 32]));
        sign_ins.issue(at(100), [3; 32]);
        assert!(!sign_ins.exchange(at(160), &[3; 32], [7; 32]), "too late");
    }

    #[test]
    fn g05_a_dashboard_session_ends_after_twelve_hours() {
        let mut sign_ins = SignIns::default();
        sign_ins.issue(at(0), [1; 32]);
        assert!(sign_ins.exchange(at(0), &[1; 32], [9; 32]));
        let hours = 12 * 3600;
        assert!(sign_ins.is_session(at(hours - 1), &[9; 32]) && !sign_ins.is_session(at(hours), &[9; 32]));
    }

    #[test]
    fn g05_sign_in_codes_and_sessions_are_bounded_and_the_oldest_makes_room() {
        let mut sign_ins = SignIns::default();
        for code in 0..40 {
            sign_ins.issue(at(0), [code; 32]);
            assert!(sign_ins.codes.len() <= SignIns::MAX_CODES);
        }
        assert!(!sign_ins.is_code(at(1), &[31; 32]) && sign_ins.is_code(at(1), &[32; 32]));
        for session in 0..40 {
            sign_ins.issue(at(0), [session; 32]);
            assert!(sign_ins.exchange(at(0), &[session; 32], [session; 32]));
            assert!(sign_ins.sessions.len() <= SignIns::MAX_SESSIONS);
        }
        assert!(!sign_ins.is_session(at(1), &[7; 32]) && sign_ins.is_session(at(1), &[8; 32]));
    }
}

//! What a session id says: everything that must outlive us, sealed, so that it can be neither made nor
//! changed by others; and whether it still opens, given what is remembered of it.

use super::questions::Abilities;
use super::seal::Seal;
use gripfast::Principal;
use gripfast::wire::ProtocolVersion;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The content of a session id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Pass {
    /// The protocol version.
    v: String,
    /// Makes every id different. It is no secret: nobody can make an id of it.
    n: u64,
    /// What the client can be asked.
    a: Abilities,
    /// When the session began, in seconds of the wall clock.
    c: u64,
    /// How long it may be idle, in seconds. A longer time in the config of today does not bring back what
    /// was over by the config of then, and may be forgotten since.
    i: u64,
    /// Whose it is, by name. Nobody's in particular is everybody's on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    p: Option<String>,
    /// What the client calls itself. Nothing is decided on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    m: Option<String>,
}

/// What is remembered of a session that is not in memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Remembered {
    /// Its client ended it.
    pub(crate) ended: bool,
    /// It was used at this moment of the wall clock, or a little later.
    pub(crate) seen: Option<Duration>,
    /// Ids from up to this moment do not open any more: too many were ended to remember each.
    pub(crate) floor: Option<Duration>,
}

impl Pass {
    /// A new one, for a session that begins at `wall`.
    pub(crate) fn new(
        version: &ProtocolVersion,
        abilities: Abilities,
        wall: Duration,
        idle: Duration,
    ) -> Option<Self> {
        let (v, n) = (version.as_str().to_owned(), random()?);
        // A part of a second that is cut off would end a session before its time.
        let i = idle.as_secs() + u64::from(idle.subsec_nanos() > 0);
        Some(Self { v, n, a: abilities, c: wall.as_secs(), i, p: None, m: None })
    }

    /// The same for a session of `principal`.
    pub(crate) fn of(mut self, principal: &Principal) -> Self {
        self.p = (*principal != Principal::local()).then(|| principal.name().to_owned());
        self
    }

    /// The same for a client that calls itself so.
    pub(crate) fn called(mut self, name: Option<String>) -> Self {
        self.m = name;
        self
    }

    /// What its client calls itself.
    pub(crate) fn name(&self) -> Option<&str> {
        self.m.as_deref()
    }

    /// Whether it is a session of `principal`. Whoever got hold of another's id cannot use it.
    pub(crate) fn is_of(&self, principal: &Principal) -> bool {
        self.p.as_deref().unwrap_or(Principal::LOCAL) == principal.name()
    }

    pub(crate) fn seal(&self, seal: &Seal) -> Option<String> {
        seal.seal(&serde_json::to_vec(self).ok()?)
    }

    /// What the id says, if it is one of ours.
    pub(crate) fn open(id: &str, seal: &Seal) -> Option<Self> {
        serde_json::from_slice(&seal.open(id)?).ok()
    }

    pub(crate) fn version(&self) -> ProtocolVersion {
        ProtocolVersion::new(&self.v)
    }

    pub(crate) fn abilities(&self) -> Abilities {
        self.a
    }

    /// The name under which it is remembered.
    pub(crate) fn key(&self) -> String {
        format!("{:016x}", self.n)
    }

    pub(crate) fn created(&self) -> Duration {
        Duration::from_secs(self.c)
    }

    /// How long it may be idle at the most, whatever a config says.
    pub(crate) fn idle(&self) -> Duration {
        Duration::from_secs(self.i)
    }

    /// Whether a session that is not in memory opens by its id at `wall`, where sessions may be idle for
    /// `idle`. A session that is older than that has to have been seen since.
    pub(crate) fn opens(&self, wall: Duration, idle: Duration, remembered: Remembered) -> bool {
        if remembered.ended || remembered.floor.is_some_and(|floor| self.created() <= floor) {
            return false;
        }
        let last = remembered.seen.unwrap_or_default().max(self.created());
        wall.saturating_sub(last) < idle.min(self.idle())
    }
}

/// A number that nobody can guess.
pub(crate) fn random() -> Option<u64> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(minutes: u64) -> Duration {
        Duration::from_secs(1_700_000_000 + 60 * minutes)
    }

    fn pass() -> Pass {
        Pass::new(&ProtocolVersion::LATEST_LEGACY, Abilities::default(), at(0), HOUR).unwrap()
    }

    fn seen(minutes: u64) -> Remembered {
        Remembered { seen: Some(at(minutes)), ..Remembered::default() }
    }

    #[test]
    fn an_id_carries_its_session_and_when_it_began() {
        let seal = Seal::of_this_process().unwrap();
        let opened = Pass::open(&pass().seal(&seal).unwrap(), &seal).unwrap();
        assert_eq!((opened.created(), opened.version()), (at(0), ProtocolVersion::LATEST_LEGACY));
        assert!(Pass::open("made up", &seal).is_none());
    }

    #[test]
    fn an_id_is_of_one_principal_and_of_no_other() {
        let seal = Seal::of_this_process().unwrap();
        let open = |pass: Pass| Pass::open(&pass.seal(&seal).unwrap(), &seal).unwrap();
        let (alice, bob) = (Principal::named("alice"), Principal::named("bob"));
        let hers = open(pass().of(&alice));
        assert!(hers.is_of(&alice) && !hers.is_of(&bob) && !hers.is_of(&Principal::local()));
        let anybodys = open(pass());
        assert!(anybodys.is_of(&Principal::local()) && !anybodys.is_of(&alice));
    }

    #[test]
    fn a_session_that_began_lately_opens_and_an_older_one_only_if_it_was_seen_since() {
        let pass = pass();
        assert!(pass.opens(at(59), HOUR, Remembered::default()));
        assert!(!pass.opens(at(60), HOUR, Remembered::default()));
        assert!(pass.opens(at(60), HOUR, seen(30)) && pass.opens(at(89), HOUR, seen(30)));
        assert!(!pass.opens(at(90), HOUR, seen(30)));
        assert!(pass.opens(at(0) - HOUR, HOUR, Remembered::default()), "the clock was set back");
    }

    #[test]
    fn what_was_ended_opens_never_again_however_lately_it_was_seen() {
        let ended = Remembered { ended: true, ..seen(10) };
        assert!(!pass().opens(at(11), HOUR, ended));
        let floor = Remembered { floor: Some(at(5)), ..seen(10) };
        assert!(!pass().opens(at(11), HOUR, floor), "it may be one of those that were ended");
        let before = Remembered { floor: Some(at(0) - Duration::from_secs(1)), ..seen(10) };
        assert!(pass().opens(at(11), HOUR, before));
    }

    #[test]
    fn a_longer_time_in_the_config_brings_nothing_back_and_a_shorter_one_holds_at_once() {
        assert!(!pass().opens(at(61), 24 * HOUR, Remembered::default()));
        assert!(!pass().opens(at(20), HOUR / 4, Remembered::default()));
    }

    fn name() -> impl Strategy<Value = String> {
        prop_oneof!["[a-c]{0,2}", Just(Principal::LOCAL.to_owned()), "\\PC{0,20}"]
    }

    proptest! {
        #[test]
        fn an_id_says_what_its_session_is_and_is_of_nobody_but_its_principal(
            (owner, other, called) in (name(), name(), proptest::option::of(name())),
            (minutes, idle) in (0..10_000_u64, 1..100_000_u64),
        ) {
            let seal = Seal::of_this_process().unwrap();
            let (began, idle) = (at(minutes), Duration::from_secs(idle));
            let owner = Principal::named(owner);
            let pass = Pass::new(&ProtocolVersion::V2025_06_18, Abilities::default(), began, idle).unwrap();
            let pass = pass.of(&owner).called(called.clone());
            let opened = Pass::open(&pass.seal(&seal).unwrap(), &seal).unwrap();
            prop_assert_eq!((opened.created(), opened.idle(), opened.key()), (began, idle, pass.key()));
            prop_assert_eq!((opened.version(), opened.name()), (ProtocolVersion::V2025_06_18, called.as_deref()));
            prop_assert!(opened.is_of(&owner));
            prop_assert_eq!(opened.is_of(&Principal::named(other.as_str())), other == owner.name());
        }
    }
}

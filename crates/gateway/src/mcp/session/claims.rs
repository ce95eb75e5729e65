//! Session claims: the content of a session id, which is everything about a session that must survive a restart.
//! Decides if an id is still valid, given the stored record of the session. Encryption is in `token`.

use super::token::TokenCipher;
use crate::mcp::address::{AddressKind, Replica};
use crate::mcp::elicitation::ElicitationSupport;
use gripfast::Principal;
use gripfast::placement::place::{Place, SessionId};
use gripfast::wire::ProtocolVersion;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Content of a session id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SessionClaims {
    /// Protocol version.
    v: String,
    /// Number of the session at the process that opened it. It is in the address. Ids from before 0.2 name no process
    /// and have a random number here.
    #[serde(default, skip_serializing)]
    n: u64,
    /// Process that opened the session, from the address.
    #[serde(skip)]
    opened_by: Option<Replica>,
    /// Kinds of requests that the client supports.
    a: ElicitationSupport,
    /// Start of the session, in seconds of the wall clock.
    c: u64,
    /// Maximum idle time in seconds. A longer time in a later config does not revive a session that was over under the
    /// earlier one, because its end may be forgotten by then.
    i: u64,
    /// Name of the principal; `None` for the local principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    p: Option<String>,
    /// Name of the client. No decision depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    m: Option<String>,
}

/// Stored record of a session that is not in memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StoredSession {
    /// The client has ended it.
    pub(crate) ended: bool,
    /// Wall-clock time of a recorded use; the last use may be a little later.
    pub(crate) last_seen: Option<Duration>,
    /// Ids created up to this time are invalid: too many sessions were ended to store each.
    pub(crate) floor: Option<Duration>,
}

impl SessionClaims {
    /// Claims of a session that starts at `wall`.
    pub(crate) fn new(
        version: &ProtocolVersion,
        abilities: ElicitationSupport,
        wall: Duration,
        idle: Duration,
    ) -> Option<Self> {
        let (v, n) = (version.as_str().to_owned(), random()?);
        // Rounded up: a truncated second would end a session too early.
        let i = idle.as_secs() + u64::from(idle.subsec_nanos() > 0);
        Some(Self { v, n, opened_by: None, a: abilities, c: wall.as_secs(), i, p: None, m: None })
    }

    /// Sets the process that opens the session, and its number there.
    pub(crate) fn opened_by(mut self, replica: &Replica, number: u64) -> Self {
        (self.opened_by, self.n) = (Some(replica.clone()), number);
        self
    }

    /// Tests if these are the claims of this session.
    pub(crate) fn is(&self, session: &SessionId) -> bool {
        let Some(Replica { name: Some(name), boot }) = &self.opened_by else { return false };
        self.n == session.number && *boot == session.origin.boot && *name == session.origin.name
    }

    /// The session as replicas know it; `None` if no replica opened it.
    pub(crate) fn session_id(&self) -> Option<SessionId> {
        let Replica { name, boot } = self.opened_by.clone()?;
        Some(SessionId { origin: Place { name: name?, boot }, number: self.n })
    }

    /// Sets the principal.
    pub(crate) fn with_principal(mut self, principal: &Principal) -> Self {
        self.p = (*principal != Principal::local()).then(|| principal.name().to_owned());
        self
    }

    /// Sets the name of the client.
    pub(crate) fn with_client_name(mut self, name: Option<String>) -> Self {
        self.m = name;
        self
    }

    /// Name of the client.
    pub(crate) fn client_name(&self) -> Option<&str> {
        self.m.as_deref()
    }

    /// Tests if the session belongs to `principal`. A stolen id is useless to another principal.
    pub(crate) fn belongs_to(&self, principal: &Principal) -> bool {
        self.p.as_deref().unwrap_or(Principal::LOCAL) == principal.name()
    }

    pub(crate) fn encode(&self, cipher: &TokenCipher) -> Option<String> {
        cipher.seal(AddressKind::Session, self.n, &serde_json::to_vec(self).ok()?)
    }

    /// Decodes an id; `None` if this gateway did not issue it.
    pub(crate) fn decode(id: &str, cipher: &TokenCipher) -> Option<Self> {
        match cipher.open(AddressKind::Session, id) {
            Some((address, content)) => {
                let claims: Self = serde_json::from_slice(&content).ok()?;
                Some(claims.opened_by(&address.replica, address.number))
            }
            None => serde_json::from_slice(&cipher.open_unaddressed(id)?).ok(),
        }
    }

    pub(crate) fn version(&self) -> ProtocolVersion {
        ProtocolVersion::new(&self.v)
    }

    pub(crate) fn abilities(&self) -> ElicitationSupport {
        self.a
    }

    /// Key of the session in the store.
    pub(crate) fn key(&self) -> String {
        match &self.opened_by {
            Some(replica) => format!("{}-{}", replica.boot, self.n),
            None => format!("{:016x}", self.n),
        }
    }

    pub(crate) fn created(&self) -> Duration {
        Duration::from_secs(self.c)
    }

    /// Maximum idle time, independent of the current config.
    pub(crate) fn idle(&self) -> Duration {
        Duration::from_secs(self.i)
    }

    /// Tests if a session that is not in memory is valid at `wall`, with the configured idle timeout `idle`. A session
    /// that started longer ago must have been used since.
    pub(crate) fn is_valid(&self, wall: Duration, idle: Duration, stored: StoredSession) -> bool {
        if stored.ended || stored.floor.is_some_and(|floor| self.created() <= floor) {
            return false;
        }
        let last = stored.last_seen.unwrap_or_default().max(self.created());
        wall.saturating_sub(last) < idle.min(self.idle())
    }
}

/// Random number from the system's secure source.
pub(crate) fn random() -> Option<u64> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::{BootId, ReplicaName};
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(minutes: u64) -> Duration {
        Duration::from_secs(1_700_000_000 + 60 * minutes)
    }

    fn claims() -> SessionClaims {
        SessionClaims::new(&ProtocolVersion::LATEST_LEGACY, ElicitationSupport::default(), at(0), HOUR)
            .unwrap()
    }

    fn seen(minutes: u64) -> StoredSession {
        StoredSession { last_seen: Some(at(minutes)), ..StoredSession::default() }
    }

    #[test]
    fn a_session_id_carries_its_version_and_start_time() {
        let cipher = TokenCipher::ephemeral().unwrap();
        let opened = SessionClaims::decode(&claims().encode(&cipher).unwrap(), &cipher).unwrap();
        assert_eq!((opened.created(), opened.version()), (at(0), ProtocolVersion::LATEST_LEGACY));
        assert!(SessionClaims::decode("made up", &cipher).is_none());
    }

    #[test]
    fn a_session_id_of_gripfast_0_1_still_opens_with_the_same_key() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("session.key"), [7; 32]).unwrap();
        let cipher = TokenCipher::load_or_create(directory.path()).unwrap();
        // Made by another implementation of the cipher.
        let issued = "AAECAwQFBgcICQoLV1eHAVa5nRwlQyz6iTdKTcP6xp_FAOFMP-eHwnlUHdkY1jJDpCDk8hmlJ-djxAuYtoqeTRMg\
             O8SmcwjuqIFd2esB4b3udXHQ9TndkQDqrXd07N2vA6adauKRHl-621PUMh-tA5Xd5WEPfBOMFQoaSVidPQcVvx5Z\
             DH--KL5eCssCcByZp3gnSK_EcZez_2LtDaCznHVSer4EYlwhv80Di_WwKX-Nsn8bTBYGCA";
        let opened = SessionClaims::decode(issued, &cipher).unwrap();
        assert_eq!((opened.key().as_str(), opened.created()), ("123456789abcdef0", at(0)));
        assert_eq!((opened.version(), opened.idle()), (ProtocolVersion::V2025_06_18, HOUR));
        assert!(opened.belongs_to(&Principal::new("alice")));
        assert_eq!(opened.session_id(), None, "it names no process");
    }

    #[test]
    fn sessions_of_two_processes_with_the_same_number_differ() {
        let named = |boot| Replica { name: ReplicaName::new("web-1"), boot: BootId::from_number(boot) };
        let [one, other] = [1, 2].map(|boot| claims().opened_by(&named(boot), 7));
        assert_ne!(one.key(), other.key());
        let session = one.session_id().unwrap();
        assert!(one.is(&session) && !other.is(&session) && !claims().is(&session));
    }

    #[test]
    fn a_session_id_belongs_to_one_principal() {
        let cipher = TokenCipher::ephemeral().unwrap();
        let open =
            |claims: SessionClaims| SessionClaims::decode(&claims.encode(&cipher).unwrap(), &cipher).unwrap();
        let (alice, bob) = (Principal::new("alice"), Principal::new("bob"));
        let hers = open(claims().with_principal(&alice));
        assert!(hers.belongs_to(&alice) && !hers.belongs_to(&bob) && !hers.belongs_to(&Principal::local()));
        let local = open(claims());
        assert!(local.belongs_to(&Principal::local()) && !local.belongs_to(&alice));
    }

    #[test]
    fn an_old_session_id_is_valid_only_if_it_was_used_since() {
        let claims = claims();
        assert!(claims.is_valid(at(59), HOUR, StoredSession::default()));
        assert!(!claims.is_valid(at(60), HOUR, StoredSession::default()));
        assert!(claims.is_valid(at(60), HOUR, seen(30)) && claims.is_valid(at(89), HOUR, seen(30)));
        assert!(!claims.is_valid(at(90), HOUR, seen(30)));
        assert!(claims.is_valid(at(0) - HOUR, HOUR, StoredSession::default()), "the clock was set back");
    }

    #[test]
    fn an_ended_session_stays_invalid_however_recently_it_was_used() {
        let ended = StoredSession { ended: true, ..seen(10) };
        assert!(!claims().is_valid(at(11), HOUR, ended));
        let floor = StoredSession { floor: Some(at(5)), ..seen(10) };
        assert!(!claims().is_valid(at(11), HOUR, floor), "it may be one of those that were ended");
        let before = StoredSession { floor: Some(at(0) - Duration::from_secs(1)), ..seen(10) };
        assert!(claims().is_valid(at(11), HOUR, before));
    }

    #[test]
    fn a_longer_idle_timeout_revives_nothing_and_a_shorter_one_applies_at_once() {
        assert!(!claims().is_valid(at(61), 24 * HOUR, StoredSession::default()));
        assert!(!claims().is_valid(at(20), HOUR / 4, StoredSession::default()));
    }

    fn name() -> impl Strategy<Value = String> {
        prop_oneof!["[a-c]{0,2}", Just(Principal::LOCAL.to_owned()), "\\PC{0,20}"]
    }

    proptest! {
        #[test]
        fn claims_survive_encoding_and_belong_to_their_principal_only(
            (owner, other, called) in (name(), name(), proptest::option::of(name())),
            (minutes, idle) in (0..10_000_u64, 1..100_000_u64),
        ) {
            let cipher = TokenCipher::ephemeral().unwrap();
            let (began, idle) = (at(minutes), Duration::from_secs(idle));
            let owner = Principal::new(owner);
            let claims = SessionClaims::new(&ProtocolVersion::V2025_06_18, ElicitationSupport::default(), began, idle).unwrap();
            let claims = claims.opened_by(cipher.own(), 7).with_principal(&owner).with_client_name(called.clone());
            let opened = SessionClaims::decode(&claims.encode(&cipher).unwrap(), &cipher).unwrap();
            prop_assert_eq!((opened.created(), opened.idle(), opened.key()), (began, idle, claims.key()));
            prop_assert_eq!((opened.version(), opened.client_name()), (ProtocolVersion::V2025_06_18, called.as_deref()));
            prop_assert!(opened.belongs_to(&owner));
            prop_assert_eq!(opened.belongs_to(&Principal::new(other.as_str())), other == owner.name());
        }
    }
}

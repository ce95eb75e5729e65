//! Authentication of forwarded requests: a MAC over everything on which the receiver acts, and a number that is accepted
//! once. It needs no wall clock.
//!
//! The receiver checks the MAC before it reads the body, whose digest the MAC covers, and uses only headers of
//! [`is_forwarded_header`]. `Authorization` and cookies are not forwarded: the forwarder has checked them.
//!
//! The head of the reply has a MAC too, over the seal of the request. So another process at the address of a lost replica
//! cannot answer in its place, nor name another owner.

use crate::format::FORMAT;
use crate::keys::{ClusterKeys, KeyUse, MAC_LENGTH, hex, unhex};
use gripfast_core::placement::place::{BootId, OwnerEpoch};
use gripfast_core::placement::replay_window::ReplayWindows;
use ring::digest;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The header that carries the seal of a forwarded request.
pub const FORWARD_HEADER: &str = "gripfast-forward";

/// The header that carries the seal of a reply.
pub const REPLY_HEADER: &str = "gripfast-forward-reply";

/// The path of a probe: a request without effect, which only shows that the replica answers. It uses no number, so that
/// `gripfast doctor`, which is another sender each time, leaves nothing at the replicas. A replayed probe proves nothing:
/// the reply is for the seal of that probe.
pub const PROBE_PATH: &str = "/probe";

/// Headers of a client's request that reach the owner.
const FORWARDED_HEADERS: &[&str] = &[
    "accept",
    "baggage",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "traceparent",
    "tracestate",
    "user-agent",
];

/// Returns whether a header, in lower case, is forwarded and covered by the MAC.
#[must_use]
pub fn is_forwarded_header(name: &str) -> bool {
    FORWARDED_HEADERS.contains(&name) || name.starts_with("mcp-param-")
}

/// The parts of a forwarded request on which the receiver acts.
#[derive(Debug, Clone, Copy)]
pub struct ForwardedRequest<'a> {
    /// The method.
    pub method: &'a str,
    /// The path.
    pub path: &'a str,
    /// The query without its question mark; `None` differs from an empty one.
    pub query: Option<&'a str>,
    /// The headers, with names in lower case. Those that are not forwarded are ignored.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The principal that the forwarder authenticated.
    pub principal: &'a str,
    /// The id of its credential, without the secret, so that the call ends with the credential.
    pub credential: &'a str,
    /// The protocol era of the client.
    pub era: &'a str,
}

/// Seals the requests that this replica forwards.
#[derive(Debug)]
pub struct ForwardSealer {
    keys: ClusterKeys,
    me: BootId,
    /// The last number for each receiver. With one count for all, the window of a receiver would pass by while requests
    /// to others are sent. It has an entry for each boot that was forwarded to.
    last_numbers: Mutex<HashMap<BootId, u64>>,
}

impl ForwardSealer {
    /// The sealer of this boot. A boot has one, so that its numbers are used once.
    #[must_use]
    pub fn new(keys: ClusterKeys, me: BootId) -> Self {
        Self { keys, me, last_numbers: Mutex::default() }
    }

    /// The value of [`FORWARD_HEADER`] for a request to this owner. A second attempt needs a new one.
    #[must_use]
    pub fn seal(&self, to: BootId, epoch: OwnerEpoch, request: &ForwardedRequest<'_>, body: &[u8]) -> String {
        let number = self.next_number(to);
        let envelope = Envelope { from: self.me, to, epoch, number, body_digest: BodyDigest::of(body) };
        let mac = self.keys.sign(KeyUse::Forward, &envelope.message(request));
        format!("{}:{}", envelope.text(), hex(&mac))
    }

    fn next_number(&self, to: BootId) -> u64 {
        let mut numbers = self.last_numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let number = numbers.entry(to).or_default();
        *number += 1;
        *number
    }

    /// Returns whether a replica made this reply to the request with this seal. `result` is empty unless the request
    /// was not performed.
    #[must_use]
    pub fn is_authentic_reply(&self, seal: &str, status: u16, result: &str, reply: &str) -> bool {
        let message = reply_message(seal, status, result);
        unhex(reply).is_some_and(|mac| self.keys.verify(KeyUse::ForwardReply, &message, &mac))
    }
}

/// The value of [`REPLY_HEADER`]. The caller has verified the request's seal: a replica that signs refusals of invalid
/// ones could be asked for a proof that a request was not performed, before it is.
#[must_use]
pub fn seal_reply(keys: &ClusterKeys, seal: &str, status: u16, result: &str) -> String {
    hex(&keys.sign(KeyUse::ForwardReply, &reply_message(seal, status, result)))
}

fn reply_message(seal: &str, status: u16, result: &str) -> Vec<u8> {
    format!("{}:{seal}{status}:{result}", seal.len()).into_bytes()
}

/// SHA-256 of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyDigest([u8; 32]);

impl BodyDigest {
    /// The digest of a body.
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, body).as_ref());
        Self(bytes)
    }
}

/// The digest of a body that arrives in parts.
pub struct BodyHasher(digest::Context);

impl BodyHasher {
    /// The hasher of an empty body.
    #[must_use]
    pub fn new() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }

    /// Adds the next part.
    pub fn update(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    /// The digest of all parts so far.
    #[must_use]
    pub fn digest(&self) -> BodyDigest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.clone().finish().as_ref());
        BodyDigest(bytes)
    }
}

impl Default for BodyHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for BodyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyHasher")
    }
}

/// A forwarded request whose seal is valid. The body is checked when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedForward {
    /// The forwarder.
    pub from: BootId,
    /// The boot that the forwarder means: this one.
    pub to: BootId,
    /// The epoch under which the forwarder believes this replica to be the owner.
    pub epoch: OwnerEpoch,
    /// The digest of the body. A body with another one is refused before anything is done.
    pub body_digest: BodyDigest,
}

/// Reason to refuse a forwarded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForwardRefusal {
    /// No seal, or one that cannot be read.
    #[error("the request has no readable seal of a replica")]
    Malformed,
    /// The seal has a newer format.
    #[error("the seal of the request has a newer format")]
    NewerFormat,
    /// The seal does not fit the request, or another key made it.
    #[error("the seal of the request is not valid")]
    InvalidMac,
    /// The request is for another boot. Nothing was done: 421.
    #[error("the request is for another replica")]
    OtherBoot,
    /// The number was used before, or is too old.
    #[error("the request was received before, or more than 65536 later ones were")]
    Replayed,
}

/// Checks the requests that other replicas forward to this one.
#[derive(Debug)]
pub struct ForwardVerifier {
    keys: ClusterKeys,
    me: BootId,
    windows: ReplayWindows,
}

impl ForwardVerifier {
    /// The verifier of this boot.
    #[must_use]
    pub fn new(keys: ClusterKeys, me: BootId) -> Self {
        Self { keys, me, windows: ReplayWindows::default() }
    }

    /// Checks a request before its body is read. Its number counts as used afterwards, except for a probe.
    ///
    /// # Errors
    ///
    /// If the request must not be performed, with the reason.
    pub fn verify(
        &mut self,
        seal: &str,
        request: &ForwardedRequest<'_>,
    ) -> Result<VerifiedForward, ForwardRefusal> {
        let (envelope, mac) = Envelope::read(seal)?;
        if !self.keys.verify(KeyUse::Forward, &envelope.message(request), &mac) {
            return Err(ForwardRefusal::InvalidMac);
        }
        if envelope.to != self.me {
            return Err(ForwardRefusal::OtherBoot);
        }
        if request.path != PROBE_PATH && !self.windows.accept(envelope.from, envelope.number) {
            return Err(ForwardRefusal::Replayed);
        }
        let Envelope { from, to, epoch, body_digest, .. } = envelope;
        Ok(VerifiedForward { from, to, epoch, body_digest })
    }
}

/// The readable part of a seal.
#[derive(Debug, Clone, Copy)]
struct Envelope {
    from: BootId,
    to: BootId,
    epoch: OwnerEpoch,
    number: u64,
    body_digest: BodyDigest,
}

impl Envelope {
    fn text(&self) -> String {
        let Self { from, to, epoch, number, body_digest } = self;
        format!("{FORMAT}:{from}:{to}:{}:{number}:{}", epoch.number(), hex(&body_digest.0))
    }

    fn read(seal: &str) -> Result<(Self, Vec<u8>), ForwardRefusal> {
        let (format, _) = seal.split_once(':').ok_or(ForwardRefusal::Malformed)?;
        match format.parse::<u32>() {
            Ok(FORMAT) => {}
            Ok(newer) if newer > FORMAT => return Err(ForwardRefusal::NewerFormat),
            Ok(_) | Err(_) => return Err(ForwardRefusal::Malformed),
        }
        Self::read_fields(seal).ok_or(ForwardRefusal::Malformed)
    }

    fn read_fields(seal: &str) -> Option<(Self, Vec<u8>)> {
        let parts: Vec<&str> = seal.split(':').collect();
        let [_, from, to, epoch, number, digest, mac] = parts[..] else { return None };
        let envelope = Self {
            from: BootId::parse(from)?,
            to: BootId::parse(to)?,
            epoch: OwnerEpoch::from_number(epoch.parse().ok()?),
            number: number.parse().ok()?,
            body_digest: BodyDigest(unhex(digest)?.try_into().ok()?),
        };
        let mac = unhex(mac).filter(|mac| mac.len() == MAC_LENGTH)?;
        Some((envelope, mac))
    }

    /// The bytes under the MAC. Each part starts with its length, so that moving bytes from one part to the next changes
    /// them.
    fn message(&self, request: &ForwardedRequest<'_>) -> Vec<u8> {
        let mut message = Vec::with_capacity(512);
        let mut add = |part: &[u8]| {
            message.extend_from_slice(&(part.len() as u64).to_be_bytes());
            message.extend_from_slice(part);
        };
        add(self.text().as_bytes());
        add(request.method.as_bytes());
        add(request.path.as_bytes());
        add(&[u8::from(request.query.is_some())]);
        add(request.query.unwrap_or_default().as_bytes());
        add(request.principal.as_bytes());
        add(request.era.as_bytes());
        add(request.credential.as_bytes());
        let mut headers: Vec<_> =
            request.headers.iter().filter(|(name, _)| is_forwarded_header(name)).collect();
        // Proxies may reorder headers of different names; the order within a name stays.
        headers.sort_by_key(|(name, _)| *name);
        add(&(headers.len() as u64).to_be_bytes());
        for (name, value) in headers {
            add(name.as_bytes());
            add(value);
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "a key of at least thirty-two characters";
    const HEADERS: &[(&str, &[u8])] =
        &[("accept", b"application/json"), ("mcp-session-id", b"a.b"), ("cookie", b"secret")];
    const REQUEST: ForwardedRequest<'static> = ForwardedRequest {
        method: "POST",
        path: "/mcp",
        query: Some("a=1"),
        headers: HEADERS,
        principal: "alice",
        credential: "key:abc",
        era: "legacy",
    };

    fn keys() -> ClusterKeys {
        ClusterKeys::new([KEY]).expect("a key")
    }

    fn boot(number: u64) -> BootId {
        BootId::from_number(number)
    }

    fn sealed() -> String {
        ForwardSealer::new(keys(), boot(1)).seal(boot(2), OwnerEpoch::from_number(9), &REQUEST, b"body")
    }

    fn verify(seal: &str, request: &ForwardedRequest<'_>) -> Result<VerifiedForward, ForwardRefusal> {
        ForwardVerifier::new(keys(), boot(2)).verify(seal, request)
    }

    #[test]
    fn a_sealed_request_is_accepted() {
        let verified = verify(&sealed(), &REQUEST).expect("it is valid");
        assert_eq!((verified.from, verified.to, verified.epoch.number()), (boot(1), boot(2), 9));
        assert_eq!(verified.body_digest, BodyDigest::of(b"body"));
        assert_ne!(verified.body_digest, BodyDigest::of(b"another body"));
        let mut parts = BodyHasher::new();
        parts.update(b"bo");
        assert_ne!(parts.digest(), verified.body_digest);
        parts.update(b"dy");
        assert_eq!(parts.digest(), verified.body_digest);
    }

    #[test]
    fn each_part_of_a_request_is_covered() {
        let seal = sealed();
        let changed_value: &[(&str, &[u8])] = &[("accept", b"text/html"), ("mcp-session-id", b"a.b")];
        let added: &[(&str, &[u8])] =
            &[("accept", b"application/json"), ("mcp-session-id", b"a.b"), ("last-event-id", b"7")];
        let removed: &[(&str, &[u8])] = &[("accept", b"application/json")];
        for (part, request) in [
            ("method", ForwardedRequest { method: "DELETE", ..REQUEST }),
            ("path", ForwardedRequest { path: "/mcp/", ..REQUEST }),
            ("query", ForwardedRequest { query: Some("a=2"), ..REQUEST }),
            ("query", ForwardedRequest { query: None, ..REQUEST }),
            ("path and query", ForwardedRequest { path: "/mcpa", query: Some("=1"), ..REQUEST }),
            ("principal", ForwardedRequest { principal: "bob", ..REQUEST }),
            ("credential", ForwardedRequest { credential: "key:abd", ..REQUEST }),
            ("credential", ForwardedRequest { credential: "", ..REQUEST }),
            ("era", ForwardedRequest { era: "modern", ..REQUEST }),
            ("header", ForwardedRequest { headers: changed_value, ..REQUEST }),
            ("header", ForwardedRequest { headers: added, ..REQUEST }),
            ("header", ForwardedRequest { headers: removed, ..REQUEST }),
        ] {
            assert_eq!(verify(&seal, &request), Err(ForwardRefusal::InvalidMac), "{part}");
        }
    }

    #[test]
    fn each_part_of_the_seal_is_covered() {
        let seal = sealed();
        let parts: Vec<&str> = seal.split(':').collect();
        let other_boot = boot(3).to_string();
        let other_digest = hex(&BodyDigest::of(b"another body").0);
        for (part, replaced) in
            [(1, other_boot.as_str()), (2, &other_boot), (3, "8"), (4, "2"), (5, &other_digest)]
        {
            let mut parts = parts.clone();
            parts[part] = replaced;
            assert_eq!(verify(&parts.join(":"), &REQUEST), Err(ForwardRefusal::InvalidMac), "part {part}");
        }
    }

    #[test]
    fn a_seal_that_cannot_be_read_is_refused() {
        let seal = sealed();
        for malformed in ["", "1", "1:", "junk:x", &seal[..seal.len() - 2], &format!("{seal}:00"), "0:x"] {
            assert_eq!(verify(malformed, &REQUEST), Err(ForwardRefusal::Malformed), "{malformed}");
        }
        assert_eq!(verify(&seal.replacen('1', "2", 1), &REQUEST), Err(ForwardRefusal::NewerFormat));
    }

    #[test]
    fn headers_outside_the_list_are_neither_covered_nor_forwarded() {
        let without_cookie: &[(&str, &[u8])] = &[("mcp-session-id", b"a.b"), ("accept", b"application/json")];
        let request = ForwardedRequest { headers: without_cookie, ..REQUEST };
        assert!(verify(&sealed(), &request).is_ok(), "also in another order");
        for dropped in ["authorization", "cookie", "host", "x-forwarded-for", "forwarded", FORWARD_HEADER] {
            assert!(!is_forwarded_header(dropped), "{dropped}");
        }
        assert!(is_forwarded_header("mcp-param-region"));
    }

    #[test]
    fn a_replay_is_refused_by_the_same_another_and_a_restarted_replica() {
        let seal = sealed();
        let mut owner = ForwardVerifier::new(keys(), boot(2));
        assert!(owner.verify(&seal, &REQUEST).is_ok());
        assert_eq!(owner.verify(&seal, &REQUEST), Err(ForwardRefusal::Replayed));
        let mut other = ForwardVerifier::new(keys(), boot(3));
        assert_eq!(other.verify(&seal, &REQUEST), Err(ForwardRefusal::OtherBoot));
        let mut restarted = ForwardVerifier::new(keys(), boot(4));
        assert_eq!(restarted.verify(&seal, &REQUEST), Err(ForwardRefusal::OtherBoot));
    }

    #[test]
    fn a_request_without_a_valid_mac_uses_no_number() {
        let seal = sealed();
        let mut owner = ForwardVerifier::new(keys(), boot(2));
        let forged = ForwardedRequest { principal: "bob", ..REQUEST };
        assert_eq!(owner.verify(&seal, &forged), Err(ForwardRefusal::InvalidMac));
        assert!(owner.verify(&seal, &REQUEST).is_ok(), "the true request is still accepted");
    }

    #[test]
    fn a_reply_is_authentic_for_its_request_status_and_result() {
        let (seal, sealer) = (sealed(), ForwardSealer::new(keys(), boot(1)));
        let reply = seal_reply(&keys(), &seal, 421, "misdirected x");
        assert!(sealer.is_authentic_reply(&seal, 421, "misdirected x", &reply));
        assert!(!sealer.is_authentic_reply(&seal, 200, "misdirected x", &reply));
        assert!(!sealer.is_authentic_reply(&seal, 421, "misdirected y", &reply));
        assert!(!sealer.is_authentic_reply(&format!("{seal}4"), 21, "misdirected x", &reply));
        let other_key = ClusterKeys::new(["another key of thirty-two characters!"]).expect("a key");
        for forged in ["", "00", &seal_reply(&other_key, &seal, 421, "misdirected x")] {
            assert!(!sealer.is_authentic_reply(&seal, 421, "misdirected x", forged));
        }
    }

    /// 5,000 requests to another replica do not make a request late that was sealed before them.
    #[test]
    fn requests_to_other_replicas_do_not_move_the_window() {
        let sealer = ForwardSealer::new(keys(), boot(1));
        let seal = |to| sealer.seal(boot(to), OwnerEpoch::FIRST, &REQUEST, b"body");
        let early = seal(2);
        (0..5_000).for_each(|_| drop(seal(3)));
        let late = seal(2);
        let mut owner = ForwardVerifier::new(keys(), boot(2));
        assert!(owner.verify(&late, &REQUEST).is_ok());
        assert!(owner.verify(&early, &REQUEST).is_ok());
    }

    #[test]
    fn probes_of_any_number_of_senders_leave_room_for_forwarders() {
        let mut owner = ForwardVerifier::new(keys(), boot(2));
        let probe = ForwardedRequest { method: "GET", path: PROBE_PATH, ..REQUEST };
        let seal = |from: u64, request| {
            ForwardSealer::new(keys(), boot(from)).seal(boot(2), OwnerEpoch::FIRST, request, b"")
        };
        for from in 0..=ReplayWindows::MAX_FORWARDERS as u64 {
            assert!(owner.verify(&seal(1_000 + from, &probe), &probe).is_ok());
        }
        assert!(owner.verify(&seal(1, &REQUEST), &REQUEST).is_ok());
        let other = ForwardedRequest { path: "/mcp", ..probe };
        assert_eq!(owner.verify(&seal(1, &probe), &other), Err(ForwardRefusal::InvalidMac));
    }

    #[test]
    fn each_request_has_a_number_of_its_own() {
        let sealer = ForwardSealer::new(keys(), boot(1));
        let mut owner = ForwardVerifier::new(keys(), boot(2));
        for _ in 0..3 {
            let seal = sealer.seal(boot(2), OwnerEpoch::FIRST, &REQUEST, b"body");
            assert!(owner.verify(&seal, &REQUEST).is_ok());
        }
    }

    #[test]
    fn a_replaced_key_opens_while_it_is_in_the_list() {
        let newer = "a newer key of thirty-two characters!!";
        let both = ClusterKeys::new([newer, KEY]).expect("keys");
        let mut owner = ForwardVerifier::new(both, boot(2));
        assert!(owner.verify(&sealed(), &REQUEST).is_ok());
        let only_new = ClusterKeys::new([newer]).expect("keys");
        let mut owner = ForwardVerifier::new(only_new, boot(2));
        assert_eq!(owner.verify(&sealed(), &REQUEST), Err(ForwardRefusal::InvalidMac));
    }
}

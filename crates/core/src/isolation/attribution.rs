//! Attribution of server requests and messages that name no call. On a pipe all calls of all clients share one channel,
//! so such a message goes to a client only if no other client can be meant.

use crate::ids::ClientKey;

/// The client that a call is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// An unidentified client, different from every other caller.
    Anonymous,
    /// A client that may receive, on any of its calls, messages about another of its calls.
    Single(ClientKey),
    /// Several programs with one client key. None may receive messages about a call of another.
    Shared(ClientKey),
}

impl Caller {
    /// The client key, if there is one.
    pub fn key(&self) -> Option<&ClientKey> {
        match self {
            Self::Single(key) | Self::Shared(key) => Some(key),
            Self::Anonymous => None,
        }
    }
}

/// The principals that a link has served since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ServedPrincipals<P> {
    /// None so far.
    #[default]
    None,
    /// Only this one.
    Only(P),
    /// More than one: a message that names no call may be about any of them.
    Several,
}

impl<P: Clone + PartialEq> ServedPrincipals<P> {
    /// Records that the link is about to serve `principal`.
    pub fn record(&mut self, principal: &P) {
        match self {
            Self::None => *self = Self::Only(principal.clone()),
            Self::Only(known) if known == principal => {}
            Self::Only(_) => *self = Self::Several,
            Self::Several => {}
        }
    }

    /// Returns whether the link has served only `principal`.
    pub fn is_only(&self, principal: &P) -> bool {
        match self {
            Self::Only(known) => known == principal,
            Self::None | Self::Several => false,
        }
    }

    /// Returns whether a message that names no call cannot be attributed to one principal.
    pub const fn is_several(&self) -> bool {
        match self {
            Self::Several => true,
            Self::None | Self::Only(_) => false,
        }
    }
}

/// The result of attributing a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribution {
    /// The only call in flight.
    Call,
    /// This client: only it has calls in flight.
    Client(ClientKey),
    /// No call is in flight.
    NoCall,
    /// Only cancelled calls can be meant.
    Withdrawn,
    /// One of several calls of programs with one client key: only one instance per call would separate them.
    AmbiguousCall,
    /// One of several calls of unidentified clients: dedicated instances would not separate them.
    AmbiguousAnonymous,
    /// Calls of different clients are in flight, and any of them can be meant.
    AmbiguousClient,
    /// The link has served several principals, and any of them can be meant.
    AmbiguousPrincipal,
}

impl Attribution {
    /// Returns whether this shows that the clients of the server need dedicated instances.
    pub const fn needs_dedicated_instances(&self) -> bool {
        match self {
            Self::NoCall | Self::AmbiguousCall | Self::AmbiguousClient | Self::AmbiguousPrincipal => true,
            Self::Call | Self::Client(_) | Self::Withdrawn | Self::AmbiguousAnonymous => false,
        }
    }
}

/// Attributes a message of a server that has these calls in flight. The server may also still work on cancelled calls,
/// or send a late message about an answered one, so on a link that has served several principals no message is
/// attributed.
pub fn attribute<P: Clone + PartialEq>(
    served: &ServedPrincipals<P>,
    in_flight: &[Caller],
    withdrawn: &[Caller],
) -> Attribution {
    if served.is_several() {
        return Attribution::AmbiguousPrincipal;
    }
    let Some((first, others)) = in_flight.split_first() else {
        return if withdrawn.is_empty() { Attribution::NoCall } else { Attribution::Withdrawn };
    };
    let mut others = others.iter().chain(withdrawn);
    match first {
        _ if others.clone().next().is_none() => Attribution::Call,
        Caller::Single(client) if others.clone().all(|other| first == other) => {
            Attribution::Client(client.clone())
        }
        Caller::Single(_) | Caller::Shared(_) if others.all(|other| first.key() == other.key()) => {
            Attribution::AmbiguousCall
        }
        Caller::Anonymous if others.all(|other| first == other) => Attribution::AmbiguousAnonymous,
        Caller::Single(_) | Caller::Shared(_) | Caller::Anonymous => Attribution::AmbiguousClient,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONLY: ServedPrincipals<&str> = ServedPrincipals::Only("p");

    fn one(key: &str) -> Caller {
        Caller::Single(ClientKey::new(key))
    }

    fn many(key: &str) -> Caller {
        Caller::Shared(ClientKey::new(key))
    }

    #[test]
    fn a_server_request_belongs_to_the_only_call_in_flight() {
        for caller in [Caller::Anonymous, one("a"), many("a")] {
            assert_eq!(attribute(&ONLY, &[caller], &[]), Attribution::Call);
        }
    }

    #[test]
    fn a_server_request_goes_to_the_only_client_with_calls_in_flight() {
        assert_eq!(attribute(&ONLY, &[one("a"), one("a")], &[]), Attribution::Client(ClientKey::new("a")));
        assert_eq!(attribute(&ONLY, &[one("a"), one("b")], &[]), Attribution::AmbiguousClient);
        assert_eq!(attribute(&ONLY, &[one("a"), Caller::Anonymous], &[]), Attribution::AmbiguousClient);
        assert_eq!(attribute(&ONLY, &[one("a"), many("a")], &[]), Attribution::AmbiguousCall);
    }

    #[test]
    fn programs_with_one_client_key_do_not_get_each_others_requests() {
        assert_eq!(attribute(&ONLY, &[many("a"), many("a")], &[]), Attribution::AmbiguousCall);
        assert_eq!(attribute(&ONLY, &[many("a"), many("b")], &[]), Attribution::AmbiguousClient);
        assert_eq!(
            attribute(&ONLY, &[Caller::Anonymous, Caller::Anonymous], &[]),
            Attribution::AmbiguousAnonymous
        );
    }

    #[test]
    fn a_cancelled_call_may_still_cause_a_server_request() {
        assert_eq!(attribute(&ONLY, &[one("a")], &[one("a")]), Attribution::Client(ClientKey::new("a")));
        assert_eq!(attribute(&ONLY, &[one("a")], &[one("b")]), Attribution::AmbiguousClient);
        assert_eq!(attribute(&ONLY, &[many("a")], &[many("a")]), Attribution::AmbiguousCall);
        assert_eq!(attribute(&ONLY, &[], &[one("a")]), Attribution::Withdrawn);
    }

    #[test]
    fn g05_a_link_that_served_two_principals_is_ambiguous_for_good() {
        let mut served = ServedPrincipals::default();
        assert!(!served.is_only(&"p") && !served.is_several());
        for _ in 0..2 {
            served.record(&"p");
            assert!(served.is_only(&"p") && !served.is_only(&"q"));
            assert_eq!(attribute(&served, &[one("a")], &[]), Attribution::Call);
        }
        served.record(&"q");
        served.record(&"q");
        assert!(served.is_several() && !served.is_only(&"p") && !served.is_only(&"q"));
        for in_flight in [&[][..], &[one("a")], &[one("a"), one("a")], &[Caller::Anonymous]] {
            assert_eq!(attribute(&served, in_flight, &[]), Attribution::AmbiguousPrincipal);
        }
        assert!(Attribution::AmbiguousPrincipal.needs_dedicated_instances());
    }

    #[test]
    fn only_ambiguity_that_dedicated_instances_resolve_needs_them() {
        assert_eq!(attribute(&ONLY, &[], &[]), Attribution::NoCall);
        let mended = |attribution: Attribution| attribution.needs_dedicated_instances();
        assert!(
            mended(Attribution::NoCall)
                && mended(Attribution::AmbiguousClient)
                && mended(Attribution::AmbiguousCall)
        );
        assert!(!mended(Attribution::Call) && !mended(Attribution::Client(ClientKey::new("a"))));
        assert!(!mended(Attribution::Withdrawn) && !mended(Attribution::AmbiguousAnonymous));
    }
}

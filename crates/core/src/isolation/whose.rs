//! Whom a server means that asks, or says something, without naming a call. On a pipe all calls of all
//! clients share one channel, and a question does not say which call it is about; so it goes to a client only
//! if no other can be meant.

use crate::ids::ClientKey;

/// For whom a call is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// Nobody in particular: a stranger to every other caller.
    Unnamed,
    /// A client that may be told on any of its calls what concerns another of them.
    One(ClientKey),
    /// Several programs that count as one client. None may be told what concerns another's call.
    Many(ClientKey),
}

impl Caller {
    /// The client, if it is a named one.
    pub fn key(&self) -> Option<&ClientKey> {
        match self {
            Self::One(key) | Self::Many(key) => Some(key),
            Self::Unnamed => None,
        }
    }
}

/// The principals that a link has served since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ServedPrincipals<P> {
    /// None yet.
    #[default]
    Nobody,
    /// This one alone.
    Only(P),
    /// More than one: from now on a message that names no call may be about any of them.
    Several,
}

impl<P: Clone + PartialEq> ServedPrincipals<P> {
    /// The link is about to serve `principal`.
    pub fn note(&mut self, principal: &P) {
        match self {
            Self::Nobody => *self = Self::Only(principal.clone()),
            Self::Only(known) if known == principal => {}
            Self::Only(_) => *self = Self::Several,
            Self::Several => {}
        }
    }

    /// Whether the link has served `principal` and no other.
    pub fn is_only(&self, principal: &P) -> bool {
        match self {
            Self::Only(known) => known == principal,
            Self::Nobody | Self::Several => false,
        }
    }

    /// Whether a message that names no call cannot be attributed to one principal.
    pub const fn is_several(&self) -> bool {
        match self {
            Self::Several => true,
            Self::Nobody | Self::Only(_) => false,
        }
    }
}

/// Whom a server means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// The only call under way.
    Call,
    /// This client, with one of its calls: no other client has any.
    Client(ClientKey),
    /// Nobody is being served.
    NoCall,
    /// Nobody waits any more for the calls that it may be about.
    Withdrawn,
    /// One of several calls of programs that count as one client: only an instance for each call would tell them apart.
    Mingled,
    /// One of several calls of nobody in particular: instances of their own would not tell them apart.
    Indistinct,
    /// Calls of different clients are under way, and it may be about any of them.
    Unclear,
    /// The link has served several principals, and it may be about something that any of them has ever asked for.
    SeveralPrincipals,
}

impl Whose {
    /// Whether this shows that the clients of the server need instances of their own.
    pub const fn calls_for_separation(&self) -> bool {
        match self {
            Self::NoCall | Self::Mingled | Self::Unclear | Self::SeveralPrincipals => true,
            Self::Call | Self::Client(_) | Self::Withdrawn | Self::Indistinct => false,
        }
    }
}

/// Whom a server means that has these calls under way. It may also still be at work on calls that were
/// withdrawn, or say something late about one that it has answered: so a link that has served several principals
/// means none of them.
pub fn whose<P: Clone + PartialEq>(
    served: &ServedPrincipals<P>,
    under_way: &[Caller],
    withdrawn: &[Caller],
) -> Whose {
    if served.is_several() {
        return Whose::SeveralPrincipals;
    }
    let Some((first, others)) = under_way.split_first() else {
        return if withdrawn.is_empty() { Whose::NoCall } else { Whose::Withdrawn };
    };
    let mut others = others.iter().chain(withdrawn);
    match first {
        _ if others.clone().next().is_none() => Whose::Call,
        Caller::One(client) if others.clone().all(|other| first == other) => Whose::Client(client.clone()),
        Caller::One(_) | Caller::Many(_) if others.all(|other| first.key() == other.key()) => Whose::Mingled,
        Caller::Unnamed if others.all(|other| first == other) => Whose::Indistinct,
        Caller::One(_) | Caller::Many(_) | Caller::Unnamed => Whose::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONLY: ServedPrincipals<&str> = ServedPrincipals::Only("p");

    fn one(key: &str) -> Caller {
        Caller::One(ClientKey::new(key))
    }

    fn many(key: &str) -> Caller {
        Caller::Many(ClientKey::new(key))
    }

    #[test]
    fn a_question_belongs_to_the_only_call_under_way() {
        for caller in [Caller::Unnamed, one("a"), many("a")] {
            assert_eq!(whose(&ONLY, &[caller], &[]), Whose::Call);
        }
    }

    #[test]
    fn a_question_goes_to_a_client_whose_calls_are_the_only_ones_and_to_nobody_beside_another() {
        assert_eq!(whose(&ONLY, &[one("a"), one("a")], &[]), Whose::Client(ClientKey::new("a")));
        assert_eq!(whose(&ONLY, &[one("a"), one("b")], &[]), Whose::Unclear);
        assert_eq!(whose(&ONLY, &[one("a"), Caller::Unnamed], &[]), Whose::Unclear);
        assert_eq!(whose(&ONLY, &[one("a"), many("a")], &[]), Whose::Mingled);
    }

    #[test]
    fn programs_that_count_as_one_client_are_not_asked_for_each_other() {
        assert_eq!(whose(&ONLY, &[many("a"), many("a")], &[]), Whose::Mingled);
        assert_eq!(whose(&ONLY, &[many("a"), many("b")], &[]), Whose::Unclear);
        assert_eq!(whose(&ONLY, &[Caller::Unnamed, Caller::Unnamed], &[]), Whose::Indistinct);
    }

    #[test]
    fn a_call_that_was_withdrawn_may_still_be_the_one_that_asks() {
        assert_eq!(whose(&ONLY, &[one("a")], &[one("a")]), Whose::Client(ClientKey::new("a")));
        assert_eq!(whose(&ONLY, &[one("a")], &[one("b")]), Whose::Unclear);
        assert_eq!(whose(&ONLY, &[many("a")], &[many("a")]), Whose::Mingled);
        assert_eq!(whose(&ONLY, &[], &[one("a")]), Whose::Withdrawn);
    }

    #[test]
    fn g05_a_link_that_served_two_principals_means_neither_however_few_calls_are_left() {
        let mut served = ServedPrincipals::default();
        assert!(!served.is_only(&"p") && !served.is_several());
        for _ in 0..2 {
            served.note(&"p");
            assert!(served.is_only(&"p") && !served.is_only(&"q"));
            assert_eq!(whose(&served, &[one("a")], &[]), Whose::Call);
        }
        served.note(&"q");
        served.note(&"q");
        assert!(served.is_several() && !served.is_only(&"p") && !served.is_only(&"q"));
        for under_way in [&[][..], &[one("a")], &[one("a"), one("a")], &[Caller::Unnamed]] {
            assert_eq!(whose(&served, under_way, &[]), Whose::SeveralPrincipals);
        }
        assert!(Whose::SeveralPrincipals.calls_for_separation());
    }

    #[test]
    fn only_what_own_instances_would_mend_calls_for_them() {
        assert_eq!(whose(&ONLY, &[], &[]), Whose::NoCall);
        let mended = |whose: Whose| whose.calls_for_separation();
        assert!(mended(Whose::NoCall) && mended(Whose::Unclear) && mended(Whose::Mingled));
        assert!(!mended(Whose::Call) && !mended(Whose::Client(ClientKey::new("a"))));
        assert!(!mended(Whose::Withdrawn) && !mended(Whose::Indistinct));
    }
}

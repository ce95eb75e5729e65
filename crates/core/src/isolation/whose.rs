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
}

impl Whose {
    /// Whether this shows that the clients of the server need instances of their own.
    pub const fn calls_for_separation(&self) -> bool {
        match self {
            Self::NoCall | Self::Mingled | Self::Unclear => true,
            Self::Call | Self::Client(_) | Self::Withdrawn | Self::Indistinct => false,
        }
    }
}

/// Whom a server means that has these calls under way. It may also still be at work on calls that were
/// withdrawn.
pub fn whose(under_way: &[Caller], withdrawn: &[Caller]) -> Whose {
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

    fn one(key: &str) -> Caller {
        Caller::One(ClientKey::new(key))
    }

    fn many(key: &str) -> Caller {
        Caller::Many(ClientKey::new(key))
    }

    #[test]
    fn a_question_belongs_to_the_only_call_under_way() {
        for caller in [Caller::Unnamed, one("a"), many("a")] {
            assert_eq!(whose(&[caller], &[]), Whose::Call);
        }
    }

    #[test]
    fn a_question_goes_to_a_client_whose_calls_are_the_only_ones_and_to_nobody_beside_another() {
        assert_eq!(whose(&[one("a"), one("a")], &[]), Whose::Client(ClientKey::new("a")));
        assert_eq!(whose(&[one("a"), one("b")], &[]), Whose::Unclear);
        assert_eq!(whose(&[one("a"), Caller::Unnamed], &[]), Whose::Unclear);
        assert_eq!(whose(&[one("a"), many("a")], &[]), Whose::Mingled);
    }

    #[test]
    fn programs_that_count_as_one_client_are_not_asked_for_each_other() {
        assert_eq!(whose(&[many("a"), many("a")], &[]), Whose::Mingled);
        assert_eq!(whose(&[many("a"), many("b")], &[]), Whose::Unclear);
        assert_eq!(whose(&[Caller::Unnamed, Caller::Unnamed], &[]), Whose::Indistinct);
    }

    #[test]
    fn a_call_that_was_withdrawn_may_still_be_the_one_that_asks() {
        assert_eq!(whose(&[one("a")], &[one("a")]), Whose::Client(ClientKey::new("a")));
        assert_eq!(whose(&[one("a")], &[one("b")]), Whose::Unclear);
        assert_eq!(whose(&[many("a")], &[many("a")]), Whose::Mingled);
        assert_eq!(whose(&[], &[one("a")]), Whose::Withdrawn);
    }

    #[test]
    fn only_what_own_instances_would_mend_calls_for_them() {
        assert_eq!(whose(&[], &[]), Whose::NoCall);
        let mended = |whose: Whose| whose.calls_for_separation();
        assert!(mended(Whose::NoCall) && mended(Whose::Unclear) && mended(Whose::Mingled));
        assert!(!mended(Whose::Call) && !mended(Whose::Client(ClientKey::new("a"))));
        assert!(!mended(Whose::Withdrawn) && !mended(Whose::Indistinct));
    }
}

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

    /// Whether what concerns a call of `other` may be told on a call of this one.
    fn may_hear(&self, other: &Self) -> bool {
        matches!((self, other), (Self::One(one), Self::One(two)) if one == two)
    }

    /// Whether these count as the same client.
    fn is_same(&self, other: &Self) -> bool {
        self.key().is_some() && self.key() == other.key()
    }
}

/// Whom a server means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The call at this place among those under way.
    Call(usize),
    /// Nobody is being served.
    NoCall,
    /// Nobody waits any more for the calls that it may be about.
    Withdrawn,
    /// One of several calls that are all of one client, or of nobody in particular: instances of their own
    /// would not tell them apart.
    Indistinct,
    /// Calls of different clients are under way, and it may be about any of them.
    Unclear,
}

impl Whose {
    /// Whether this shows that the clients of the server need instances of their own.
    pub const fn calls_for_separation(self) -> bool {
        match self {
            Self::NoCall | Self::Unclear => true,
            Self::Call(_) | Self::Withdrawn | Self::Indistinct => false,
        }
    }
}

/// Whom a server means that has these calls under way, the newest last. It may also still be at work on
/// calls that were withdrawn.
pub fn whose(under_way: &[Caller], withdrawn: &[Caller]) -> Whose {
    let Some((newest, others)) = under_way.split_last() else {
        return if withdrawn.is_empty() { Whose::NoCall } else { Whose::Withdrawn };
    };
    let mut others = others.iter().chain(withdrawn);
    if others.clone().all(|other| newest.may_hear(other)) {
        return Whose::Call(under_way.len() - 1);
    }
    let nobody_named = |caller: &Caller| caller.key().is_none();
    let all_unnamed = nobody_named(newest) && others.clone().all(nobody_named);
    if all_unnamed || others.all(|other| newest.is_same(other)) { Whose::Indistinct } else { Whose::Unclear }
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
            assert_eq!(whose(&[caller], &[]), Whose::Call(0));
        }
    }

    #[test]
    fn a_question_goes_to_a_client_whose_calls_are_the_only_ones_and_to_nobody_beside_another() {
        assert_eq!(whose(&[one("a"), one("a")], &[]), Whose::Call(1));
        assert_eq!(whose(&[one("a"), one("b")], &[]), Whose::Unclear);
        assert_eq!(whose(&[one("a"), Caller::Unnamed], &[]), Whose::Unclear);
        assert_eq!(whose(&[one("a"), many("a")], &[]), Whose::Indistinct);
    }

    #[test]
    fn programs_that_count_as_one_client_are_not_asked_for_each_other() {
        assert_eq!(whose(&[many("a"), many("a")], &[]), Whose::Indistinct);
        assert_eq!(whose(&[many("a"), many("b")], &[]), Whose::Unclear);
        assert_eq!(whose(&[Caller::Unnamed, Caller::Unnamed], &[]), Whose::Indistinct);
    }

    #[test]
    fn a_call_that_was_withdrawn_may_still_be_the_one_that_asks() {
        assert_eq!(whose(&[one("a")], &[one("a")]), Whose::Call(0));
        assert_eq!(whose(&[one("a")], &[one("b")]), Whose::Unclear);
        assert_eq!(whose(&[many("a")], &[many("a")]), Whose::Indistinct);
        assert_eq!(whose(&[], &[one("a")]), Whose::Withdrawn);
    }

    #[test]
    fn only_what_own_instances_would_mend_calls_for_them() {
        assert_eq!(whose(&[], &[]), Whose::NoCall);
        let mended = |whose: Whose| whose.calls_for_separation();
        assert!(mended(Whose::NoCall) && mended(Whose::Unclear));
        assert!(!mended(Whose::Call(0)) && !mended(Whose::Withdrawn) && !mended(Whose::Indistinct));
    }
}

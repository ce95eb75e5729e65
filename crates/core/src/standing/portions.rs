//! Who follows how much of one upstream: nobody has more than half of what there is room for, however many sessions
//! it has, so that there is something left for the others.

use super::Subject;
use super::following::{Following, Full};
use std::collections::BTreeMap;

/// What each principal follows at one upstream. Whoever follows nothing is not in it.
#[derive(Debug)]
pub struct Portions<W> {
    of: BTreeMap<W, Portion>,
}

#[derive(Debug, Default)]
struct Portion {
    followers: usize,
    subjects: BTreeMap<Subject, u32>,
}

impl<W> Default for Portions<W> {
    fn default() -> Self {
        Self { of: BTreeMap::new() }
    }
}

impl<W: Ord + Clone> Portions<W> {
    /// What one principal may follow, and with how many followers.
    pub const MOST_SUBJECTS: usize = Following::MOST_SUBJECTS / 2;
    /// The same for its followers.
    pub const MOST_FOLLOWERS: usize = Following::MOST_FOLLOWERS / 2;

    /// `who` follows something, perhaps once more.
    ///
    /// # Errors
    /// It follows too much already.
    pub fn take(&mut self, who: &W, subject: &Subject) -> Result<(), Full> {
        if let Some(portion) = self.of.get(who) {
            let another = !portion.subjects.contains_key(subject);
            if portion.followers >= Self::MOST_FOLLOWERS
                || (another && portion.subjects.len() >= Self::MOST_SUBJECTS)
            {
                return Err(Full);
            }
        }
        let portion = self.of.entry(who.clone()).or_default();
        portion.followers += 1;
        *portion.subjects.entry(subject.clone()).or_default() += 1;
        Ok(())
    }

    /// Those that follow something.
    pub fn followers(&self) -> impl Iterator<Item = &W> {
        self.of.keys()
    }

    /// `who` follows something once less.
    pub fn give_back(&mut self, who: &W, subject: &Subject) {
        let Some(portion) = self.of.get_mut(who) else { return };
        let Some(times) = portion.subjects.get_mut(subject) else { return };
        *times -= 1;
        portion.followers -= 1;
        if *times == 0 {
            portion.subjects.remove(subject);
        }
        if portion.subjects.is_empty() {
            self.of.remove(who);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(number: usize) -> Subject {
        Subject::Resource(format!("file:///{number}"))
    }

    #[test]
    fn one_principal_follows_half_of_what_there_is_and_another_the_other_half() {
        let mut portions = Portions::default();
        for number in 0..Portions::<&str>::MOST_SUBJECTS {
            assert_eq!(portions.take(&"greedy", &resource(number)), Ok(()));
        }
        let another = resource(Portions::<&str>::MOST_SUBJECTS);
        assert_eq!(portions.take(&"greedy", &another), Err(Full));
        assert_eq!(portions.take(&"greedy", &resource(0)), Ok(()), "once more the same is no more");
        assert_eq!(portions.take(&"other", &another), Ok(()));
        portions.give_back(&"greedy", &resource(0));
        assert_eq!(portions.take(&"greedy", &another), Err(Full), "it is followed once still");
        portions.give_back(&"greedy", &resource(0));
        assert_eq!(portions.take(&"greedy", &another), Ok(()));
    }

    #[test]
    fn nor_has_it_more_than_half_of_the_followers_and_nothing_is_left_of_who_follows_nothing() {
        let mut portions = Portions::default();
        for _ in 0..Portions::<&str>::MOST_FOLLOWERS {
            assert_eq!(portions.take(&"greedy", &resource(0)), Ok(()));
        }
        assert_eq!(portions.take(&"greedy", &resource(0)), Err(Full));
        for _ in 0..Portions::<&str>::MOST_FOLLOWERS {
            portions.give_back(&"greedy", &resource(0));
        }
        portions.give_back(&"greedy", &resource(0));
        portions.give_back(&"stranger", &resource(0));
        assert!(portions.of.is_empty());
    }
}

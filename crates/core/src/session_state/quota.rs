//! Subscription quota per principal at one upstream: a principal gets at most half of the total, however many sessions
//! it has, so that others can subscribe too.

use super::SubscriptionTarget;
use super::subscriptions::{QuotaExceeded, Subscriptions};
use std::collections::BTreeMap;

/// The subscriptions of each principal at one upstream. Principals without any are not in the map.
#[derive(Debug)]
pub struct SubscriptionQuota<W> {
    usage: BTreeMap<W, PrincipalUsage>,
}

#[derive(Debug, Default)]
struct PrincipalUsage {
    subscriptions: usize,
    targets: BTreeMap<SubscriptionTarget, u32>,
}

impl<W> Default for SubscriptionQuota<W> {
    fn default() -> Self {
        Self { usage: BTreeMap::new() }
    }
}

impl<W: Ord + Clone> SubscriptionQuota<W> {
    /// Maximum number of targets of one principal.
    pub const MAX_TARGETS: usize = Subscriptions::MAX_TARGETS / 2;
    /// Maximum number of subscriptions of one principal.
    pub const MAX_SUBSCRIPTIONS: usize = Subscriptions::MAX_SUBSCRIPTIONS / 2;

    /// Counts a subscription of `principal`, perhaps a repeated one.
    ///
    /// # Errors
    /// The principal has reached its limit.
    pub fn acquire(&mut self, principal: &W, target: &SubscriptionTarget) -> Result<(), QuotaExceeded> {
        if let Some(usage) = self.usage.get(principal) {
            let another = !usage.targets.contains_key(target);
            if usage.subscriptions >= Self::MAX_SUBSCRIPTIONS
                || (another && usage.targets.len() >= Self::MAX_TARGETS)
            {
                return Err(QuotaExceeded);
            }
        }
        let usage = self.usage.entry(principal.clone()).or_default();
        usage.subscriptions += 1;
        *usage.targets.entry(target.clone()).or_default() += 1;
        Ok(())
    }

    /// The principals with subscriptions.
    pub fn subscribers(&self) -> impl Iterator<Item = &W> {
        self.usage.keys()
    }

    /// Removes one subscription of `principal`.
    pub fn release(&mut self, principal: &W, target: &SubscriptionTarget) {
        let Some(usage) = self.usage.get_mut(principal) else { return };
        let Some(times) = usage.targets.get_mut(target) else { return };
        *times -= 1;
        usage.subscriptions -= 1;
        if *times == 0 {
            usage.targets.remove(target);
        }
        if usage.targets.is_empty() {
            self.usage.remove(principal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(number: usize) -> SubscriptionTarget {
        SubscriptionTarget::Resource(format!("file:///{number}"))
    }

    #[test]
    fn one_principal_gets_at_most_half_of_the_targets() {
        let mut portions = SubscriptionQuota::default();
        for number in 0..SubscriptionQuota::<&str>::MAX_TARGETS {
            assert_eq!(portions.acquire(&"greedy", &resource(number)), Ok(()));
        }
        let another = resource(SubscriptionQuota::<&str>::MAX_TARGETS);
        assert_eq!(portions.acquire(&"greedy", &another), Err(QuotaExceeded));
        assert_eq!(portions.acquire(&"greedy", &resource(0)), Ok(()), "once more the same is no more");
        assert_eq!(portions.acquire(&"other", &another), Ok(()));
        portions.release(&"greedy", &resource(0));
        assert_eq!(portions.acquire(&"greedy", &another), Err(QuotaExceeded), "it is followed once still");
        portions.release(&"greedy", &resource(0));
        assert_eq!(portions.acquire(&"greedy", &another), Ok(()));
    }

    #[test]
    fn one_principal_gets_at_most_half_of_the_subscriptions() {
        let mut portions = SubscriptionQuota::default();
        for _ in 0..SubscriptionQuota::<&str>::MAX_SUBSCRIPTIONS {
            assert_eq!(portions.acquire(&"greedy", &resource(0)), Ok(()));
        }
        assert_eq!(portions.acquire(&"greedy", &resource(0)), Err(QuotaExceeded));
        for _ in 0..SubscriptionQuota::<&str>::MAX_SUBSCRIPTIONS {
            portions.release(&"greedy", &resource(0));
        }
        portions.release(&"greedy", &resource(0));
        portions.release(&"stranger", &resource(0));
        assert!(portions.usage.is_empty());
    }
}

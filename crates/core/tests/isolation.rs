//! Invariants of instance allocation and attribution, on random histories.

use gripfast_core::ids::ClientKey;
use gripfast_core::isolation::{
    Assignment, Attribution, CallNeeds, Caller, DedicatedFor, InstanceAllocator, InstanceNumber,
    InstanceOwner, Isolation, ServedPrincipals, attribute,
};
use gripfast_core::time::Mono;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const MOST: usize = 3;
const IDLE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Take { client: u8, many: bool, can_be_asked: bool },
    GiveBack(u8),
    Leave(u8),
    Separate,
    Stop,
    Start,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_u64..15).prop_map(Step::Pass),
        8 => (0_u8..6, any::<bool>(), any::<bool>())
            .prop_map(|(client, many, can_be_asked)| Step::Take { client, many, can_be_asked }),
        6 => any::<u8>().prop_map(Step::GiveBack),
        1 => (0_u8..6).prop_map(Step::Leave),
        1 => Just(Step::Separate),
        1 => Just(Step::Stop),
        1 => Just(Step::Start),
    ]
}

fn key(client: u8) -> ClientKey {
    ClientKey::new(format!("client-{client}"))
}

fn rule() -> impl Strategy<Value = Isolation> {
    prop_oneof![Just(Isolation::Auto), Just(Isolation::Shared), Just(Isolation::PerClient)]
}

proptest! {
    /// In any history, two clients never share a dedicated instance, and a client has one at a time, unless its calls
    /// must not meet, and then they do not. The limit holds, no instance ends during a call, and no unused one outlives
    /// its timeout.
    #[test]
    fn any_history_separates_clients_and_ends_unused_instances(
        rule in rule(),
        steps in prop::collection::vec(step(), 0..120)
    ) {
        let mut seats = InstanceAllocator::new(rule, DedicatedFor::None, MOST, IDLE);
        let (mut now, mut stopped) = (Duration::ZERO, false);
        // The existing instances and their calls, as the host keeps them.
        let mut instances: BTreeMap<InstanceOwner, (ClientKey, InstanceNumber)> = BTreeMap::new();
        let mut calls: Vec<(InstanceOwner, InstanceNumber)> = Vec::new();
        for step in steps {
            match step {
                Step::Pass(seconds) => {
                    now += Duration::from_secs(seconds);
                    for ended in seats.handle_timeout(Mono::from_origin(now)) {
                        let number = instances.remove(&ended).map(|(_, number)| number);
                        prop_assert!(number.is_some());
                        prop_assert!(!calls.iter().any(|(_, used)| Some(*used) == number), "ended under a call");
                    }
                    prop_assert!(seats.poll_timeout().is_none_or(|at| at > Mono::from_origin(now)));
                }
                Step::Take { client, many, can_be_asked } => {
                    let key = key(client);
                    let caller = if many { Caller::Shared(key.clone()) } else { Caller::Single(key.clone()) };
                    let needs = match (can_be_asked, many) {
                        (false, _) => CallNeeds::Nothing,
                        (true, false) => CallNeeds::ServerRequests,
                        (true, true) => CallNeeds::Exclusive,
                    };
                    let is_alone = needs == CallNeeds::Exclusive && rule == Isolation::Auto;
                    match seats.assign(Mono::from_origin(now), &caller, needs, |_| true) {
                        Assignment::Shared => prop_assert!(rule != Isolation::PerClient || stopped),
                        Assignment::Dedicated(holder, number) => {
                            prop_assert_eq!(instances.get(&holder), Some(&(key.clone(), number)));
                            let in_use = calls.iter().any(|(_, used)| *used == number);
                            prop_assert!(!(is_alone && in_use), "two calls that must not meet");
                            prop_assert!(is_alone || holder == InstanceOwner::single(key));
                            calls.push((holder, number));
                        }
                        Assignment::NewDedicated(holder, number) => {
                            prop_assert!(!instances.values().any(|(_, known)| *known == number));
                            prop_assert!(is_alone || holder == InstanceOwner::single(key.clone()));
                            prop_assert_eq!(instances.insert(holder.clone(), (key, number)), None);
                            calls.push((holder, number));
                        }
                        Assignment::Full { .. } => {
                            prop_assert_eq!((rule, instances.len()), (Isolation::PerClient, MOST));
                        }
                    }
                }
                Step::GiveBack(which) if !calls.is_empty() => {
                    let (holder, number) = calls.remove(usize::from(which) % calls.len());
                    seats.release(Mono::from_origin(now), &holder, number);
                }
                Step::GiveBack(_) => {}
                Step::Leave(client) => {
                    let gone = seats.remove_client(&key(client));
                    let theirs: Vec<InstanceOwner> = instances
                        .iter()
                        .filter(|(_, (owner, _))| *owner == key(client))
                        .map(|(holder, _)| holder.clone())
                        .collect();
                    prop_assert_eq!(&gone, &theirs);
                    for holder in gone {
                        instances.remove(&holder);
                    }
                }
                Step::Separate => {
                    seats.dedicate_for(DedicatedFor::Interactive);
                }
                Step::Stop => {
                    stopped = true;
                    seats.stop();
                    instances.clear();
                }
                Step::Start => {
                    stopped = false;
                    seats.start();
                }
            }
            prop_assert!(instances.len() <= MOST);
            prop_assert!(rule != Isolation::Shared || instances.is_empty());
        }
        // After all calls have ended, all instances end.
        for (holder, number) in calls {
            seats.release(Mono::from_origin(now), &holder, number);
        }
        now += IDLE;
        prop_assert_eq!(seats.handle_timeout(Mono::from_origin(now)).len(), instances.len());
        prop_assert_eq!(seats.poll_timeout(), None);
    }

    /// A server request that is attributed to a call reaches the only client that can be meant.
    #[test]
    fn a_server_request_never_reaches_another_client(
        under_way in prop::collection::vec((0_u8..3, 0_u8..3), 0..6),
        withdrawn in prop::collection::vec((0_u8..3, 0_u8..3), 0..3)
    ) {
        let caller = |(kind, client): &(u8, u8)| match kind {
            0 => Caller::Anonymous,
            1 => Caller::Single(key(*client)),
            _ => Caller::Shared(key(*client)),
        };
        let under_way: Vec<Caller> = under_way.iter().map(caller).collect();
        let withdrawn: Vec<Caller> = withdrawn.iter().map(caller).collect();
        let all: Vec<&Caller> = under_way.iter().chain(&withdrawn).collect();
        match attribute(&ServedPrincipals::Only(()), &under_way, &withdrawn) {
            Attribution::Call => prop_assert!(under_way.len() == 1 && withdrawn.is_empty()),
            Attribution::Client(client) => {
                let theirs = Caller::Single(client);
                prop_assert!(!under_way.is_empty() && all.iter().all(|caller| **caller == theirs), "{all:?}");
            }
            Attribution::NoCall => prop_assert!(all.is_empty()),
            Attribution::Withdrawn => prop_assert!(under_way.is_empty() && !withdrawn.is_empty()),
            Attribution::AmbiguousCall => prop_assert!(all.iter().all(|caller| caller.key() == all[0].key())),
            Attribution::AmbiguousAnonymous => prop_assert!(all.iter().all(|caller| **caller == Caller::Anonymous)),
            Attribution::AmbiguousClient => prop_assert!(all.iter().any(|caller| caller.key() != all[0].key())),
            Attribution::AmbiguousPrincipal => prop_assert!(false, "one principal was served"),
        }
    }
}

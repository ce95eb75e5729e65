//! What holds of seats and questions whatever the clients do, on random histories.

use gripfast_core::ids::ClientKey;
use gripfast_core::isolation::{
    Apart, Caller, Holder, Isolation, Needs, Seat, SeatNumber, Seats, ServedPrincipals, Whose, whose,
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
    /// No history gives two clients one instance, or one client two at a time, unless its calls must not meet, and then
    /// they do not; there are never more than allowed; none ends under a call, and none that is unused stays for longer than it may.
    #[test]
    fn no_history_mixes_clients_up_or_keeps_what_nobody_uses(
        rule in rule(),
        steps in prop::collection::vec(step(), 0..120)
    ) {
        let mut seats = Seats::new(rule, Apart::None, MOST, IDLE);
        let (mut now, mut stopped) = (Duration::ZERO, false);
        // The instances that are there, and the calls on them, as a shell would keep them.
        let mut instances: BTreeMap<Holder, (ClientKey, SeatNumber)> = BTreeMap::new();
        let mut calls: Vec<(Holder, SeatNumber)> = Vec::new();
        for step in steps {
            match step {
                Step::Pass(seconds) => {
                    now += Duration::from_secs(seconds);
                    for ended in seats.handle_timeout(Mono::at(now)) {
                        let number = instances.remove(&ended).map(|(_, number)| number);
                        prop_assert!(number.is_some());
                        prop_assert!(!calls.iter().any(|(_, used)| Some(*used) == number), "ended under a call");
                    }
                    prop_assert!(seats.poll_timeout().is_none_or(|at| at > Mono::at(now)));
                }
                Step::Take { client, many, can_be_asked } => {
                    let key = key(client);
                    let caller = if many { Caller::Many(key.clone()) } else { Caller::One(key.clone()) };
                    let needs = match (can_be_asked, many) {
                        (false, _) => Needs::Nothing,
                        (true, false) => Needs::Questions,
                        (true, true) => Needs::Solitude,
                    };
                    let is_alone = needs == Needs::Solitude && rule == Isolation::Auto;
                    match seats.take(Mono::at(now), &caller, needs, |_| true) {
                        Seat::Base => prop_assert!(rule != Isolation::PerClient || stopped),
                        Seat::Own(holder, number) => {
                            prop_assert_eq!(instances.get(&holder), Some(&(key.clone(), number)));
                            let in_use = calls.iter().any(|(_, used)| *used == number);
                            prop_assert!(!(is_alone && in_use), "two calls that must not meet");
                            prop_assert!(is_alone || holder == Holder::only(key));
                            calls.push((holder, number));
                        }
                        Seat::New(holder, number) => {
                            prop_assert!(!instances.values().any(|(_, known)| *known == number));
                            prop_assert!(is_alone || holder == Holder::only(key.clone()));
                            prop_assert_eq!(instances.insert(holder.clone(), (key, number)), None);
                            calls.push((holder, number));
                        }
                        Seat::Full { .. } => {
                            prop_assert_eq!((rule, instances.len()), (Isolation::PerClient, MOST));
                        }
                    }
                }
                Step::GiveBack(which) if !calls.is_empty() => {
                    let (holder, number) = calls.remove(usize::from(which) % calls.len());
                    seats.give_back(Mono::at(now), &holder, number);
                }
                Step::GiveBack(_) => {}
                Step::Leave(client) => {
                    let gone = seats.leave(&key(client));
                    let theirs: Vec<Holder> = instances
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
                    seats.separate(Apart::Asked);
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
        // When all calls are over, everything ends by itself.
        for (holder, number) in calls {
            seats.give_back(Mono::at(now), &holder, number);
        }
        now += IDLE;
        prop_assert_eq!(seats.handle_timeout(Mono::at(now)).len(), instances.len());
        prop_assert_eq!(seats.poll_timeout(), None);
    }

    /// A question that is given to a call is given to the only client that can be meant by it.
    #[test]
    fn a_question_never_reaches_a_client_that_may_not_be_meant(
        under_way in prop::collection::vec((0_u8..3, 0_u8..3), 0..6),
        withdrawn in prop::collection::vec((0_u8..3, 0_u8..3), 0..3)
    ) {
        let caller = |(kind, client): &(u8, u8)| match kind {
            0 => Caller::Unnamed,
            1 => Caller::One(key(*client)),
            _ => Caller::Many(key(*client)),
        };
        let under_way: Vec<Caller> = under_way.iter().map(caller).collect();
        let withdrawn: Vec<Caller> = withdrawn.iter().map(caller).collect();
        let all: Vec<&Caller> = under_way.iter().chain(&withdrawn).collect();
        match whose(&ServedPrincipals::Only(()), &under_way, &withdrawn) {
            Whose::Call => prop_assert!(under_way.len() == 1 && withdrawn.is_empty()),
            Whose::Client(client) => {
                let theirs = Caller::One(client);
                prop_assert!(!under_way.is_empty() && all.iter().all(|caller| **caller == theirs), "{all:?}");
            }
            Whose::NoCall => prop_assert!(all.is_empty()),
            Whose::Withdrawn => prop_assert!(under_way.is_empty() && !withdrawn.is_empty()),
            Whose::Mingled => prop_assert!(all.iter().all(|caller| caller.key() == all[0].key())),
            Whose::Indistinct => prop_assert!(all.iter().all(|caller| **caller == Caller::Unnamed)),
            Whose::Unclear => prop_assert!(all.iter().any(|caller| caller.key() != all[0].key())),
            Whose::SeveralPrincipals => prop_assert!(false, "one principal was served"),
        }
    }
}

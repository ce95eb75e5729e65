//! The scripts against the model that the histories of `core::placement` use: the same operations, the same replies.

#[path = "../../../core/tests/placement/store.rs"]
mod store;

use crate::{Service, place, record};
use gripfast_cluster::store::Store;
use gripfast_core::jitter::Jitter;
use gripfast_core::placement::exclusive::ClaimReply;
use gripfast_core::placement::place::{OwnerEpoch, SessionId, SessionOwner, StoreTime};
use gripfast_core::placement::routing::{TakeoverCause, TakeoverReply};
use gripfast_core::placement::term::LeaseSpec;
use std::time::Duration;
use store::StoreModel;

const NAMES: [&str; 2] = ["one", "two"];
const BOOTS: u64 = 3;

/// The real store, the model, and what the replicas know.
struct Pair<'a> {
    service: &'a Service,
    stores: Vec<Store>,
    model: StoreModel,
    /// The model's clock: it follows the times that the real store shows.
    now: StoreTime,
    random: Jitter,
    /// The epoch of each lease that each replica last knew.
    epochs: [[OwnerEpoch; 2]; BOOTS as usize],
    owners: [SessionOwner; 2],
}

impl Pair<'_> {
    fn pick(&mut self, limit: u64) -> u64 {
        let drawn = self.random.up_to(Duration::from_secs(limit)).as_secs();
        drawn.min(limit - 1)
    }

    fn session(number: usize) -> SessionId {
        SessionId { origin: place(1), number: number as u64 + 1 }
    }

    fn follow(&mut self, micros: u64) {
        self.now = self.now.max(StoreTime::from_micros(micros));
    }

    async fn step(&mut self) {
        let boot = self.pick(BOOTS);
        let (me, index) = (place(boot + 1), boot as usize);
        let which = self.pick(2) as usize;
        let name = NAMES[which];
        match self.pick(9) {
            0 | 1 => self.beat(boot + 1).await,
            2 | 3 => {
                let above = self.epochs[index][which];
                let real = self.stores[index].claim(name, above).await.expect("the store runs");
                if let ClaimReply::Claimed { epoch } = real {
                    self.follow(epoch.number());
                    self.epochs[index][which] = epoch;
                }
                let model = self.model.claim(self.now, &me, name, above);
                match (real, model) {
                    // The time left differs by the duration of the test.
                    (ClaimReply::Taken { .. }, ClaimReply::Taken { .. })
                    | (ClaimReply::Grace { .. }, ClaimReply::Grace { .. }) => {}
                    (real, model) => assert_eq!(real, model),
                }
            }
            4 => {
                let epoch = self.epochs[index][which];
                self.stores[index].release(name, epoch).await.expect("the store runs");
                self.model.release(&me, name, epoch);
            }
            5 | 6 => self.take_over(boot + 1, which).await,
            7 => {
                let records = [(Self::session(which), self.owners[which].epoch)];
                let last = self.owners[which].epoch;
                let real = self.stores[index].put_back(&records, last).await.expect("the store runs");
                assert_eq!(real, self.model.put_back(self.now, &me, &records, last));
                let looked_up = self.stores[index].look_up(&Self::session(which)).await.expect("it runs");
                assert_eq!(looked_up, self.model.look_up(&Self::session(which)));
            }
            _ => {
                if self.pick(4) == 0 {
                    let () = self.service.raw(&["FLUSHALL"]);
                    self.model.data = store::StoreContent::default();
                }
            }
        }
    }

    async fn beat(&mut self, boot: u64) {
        let known = self.epochs[boot as usize - 1];
        let leases: Vec<(&str, OwnerEpoch)> =
            NAMES.into_iter().zip(known).filter(|(_, epoch)| *epoch > OwnerEpoch::FIRST).collect();
        let success = self.service.beat(boot, &leases).await;
        let real = &success.reply;
        self.follow(real.store_time.as_micros());
        let leases: Vec<_> = leases.iter().map(|(name, epoch)| ((*name).to_owned(), *epoch)).collect();
        let model = self.model.heartbeat(self.now, &record(boot).live(), &leases, &[]);
        let (mut replicas, mut taken) = (real.replicas.clone(), real.taken.clone());
        replicas.sort_by_key(|live| live.place.boot);
        taken.sort_by_key(|(session, _)| session.number);
        assert_eq!(
            (real.record_since, real.last_takeover, &real.lost, &taken, &replicas),
            (model.record_since, model.last_takeover, &model.lost, &model.taken, &model.replicas)
        );
        assert_eq!(real.grace_left.is_zero(), model.grace_left.is_zero());
        if self.pick(2) == 0 {
            self.service.end_grace();
            self.model.end_grace();
        }
    }

    async fn take_over(&mut self, boot: u64, which: usize) {
        let session = Self::session(which);
        let first = SessionOwner { place: place(1), epoch: OwnerEpoch::FIRST };
        let from = if self.pick(3) == 0 { first } else { self.owners[which].clone() };
        let cause = [TakeoverCause::Refused, TakeoverCause::RecordEnded][self.pick(2) as usize];
        let store = &self.stores[boot as usize - 1];
        let real = store.take_over(&session, &from, cause).await.expect("the store runs");
        if let TakeoverReply::Taken { epoch, .. } = real {
            self.follow(epoch.number());
            self.owners[which] = SessionOwner { place: place(boot), epoch };
        }
        let model = self.model.take_over(self.now, &place(boot), &session, &from, cause);
        match (&real, &model) {
            (TakeoverReply::Grace { .. }, TakeoverReply::Grace { .. }) => {}
            _ => assert_eq!(real, model),
        }
    }
}

#[tokio::test]
async fn the_scripts_and_their_model_give_the_same_replies() {
    let Some(service) = Service::start() else { return };
    for seed in 0..20 {
        println!("seed {seed}");
        let () = service.raw(&["FLUSHALL"]);
        let stores = (1..=BOOTS).map(|boot| service.store(boot)).collect();
        let first = SessionOwner { place: place(1), epoch: OwnerEpoch::FIRST };
        let mut pair = Pair {
            service: &service,
            stores,
            model: StoreModel::new(LeaseSpec::default()),
            now: StoreTime::from_micros(0),
            random: Jitter::seeded(seed),
            epochs: [[OwnerEpoch::FIRST; 2]; BOOTS as usize],
            owners: [first.clone(), first],
        };
        for _ in 0..60 {
            pair.step().await;
        }
    }
}

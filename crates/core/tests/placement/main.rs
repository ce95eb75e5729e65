//! Replicas of one service in virtual time: several replicas, their store and the network between them. Named scenarios,
//! and random histories.

mod histories;
mod leases;
mod service_simulation;
mod sessions;
mod store;

use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

//! The life of one upstream, told in virtual time. Each story is a promise.

mod callers;
mod circuit;
#[path = "../common/mod.rs"]
mod common;
mod owner;
mod principals;
mod sessions;
mod status;

use common::*;
use gripfast_core::supervise::spec::SupervisionSpec;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{Ask, LinkKind, ProbeAnswer};

const BOTH: [LinkKind; 2] = [LinkKind::Process, LinkKind::Remote];

fn parked() -> World {
    let mut world = World::new(LinkKind::Process, SupervisionSpec::default());
    world.ask(Ask::Start);
    while world.state() != State::Parked {
        world.link_down(refused());
        world.pass(100 * MS);
    }
    world
}

fn open_circuit() -> World {
    let mut world = World::ready(LinkKind::Remote);
    for _ in 0..3 {
        world.fail_call(timed_out());
        world.probe_ended(ProbeAnswer::Alive);
    }
    world
}

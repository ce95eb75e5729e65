//! Scenarios of one upstream in virtual time.

mod callers;
mod circuit;
#[path = "../common/mod.rs"]
mod common;
mod principals;
mod sessions;
mod status;
mod supervisor;

use common::*;
use gripfast_core::supervise::spec::SupervisionSpec;
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{Command, LinkKind, ProbeAnswer};

const BOTH: [LinkKind; 2] = [LinkKind::Process, LinkKind::Remote];

fn parked() -> Simulation {
    let mut sim = Simulation::new(LinkKind::Process, SupervisionSpec::default());
    sim.command(Command::Start);
    while sim.state() != State::Parked {
        sim.link_down(refused());
        sim.advance(100 * MS);
    }
    sim
}

fn open_circuit() -> Simulation {
    let mut sim = Simulation::ready(LinkKind::Remote);
    for _ in 0..3 {
        sim.fail_call(timed_out());
        sim.probe_ended(ProbeAnswer::Alive);
    }
    sim
}

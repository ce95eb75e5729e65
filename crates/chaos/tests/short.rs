//! Every fault in its short form: the counts that hold on any machine, however busy. Times are not looked at.
#![cfg(target_os = "linux")]

use std::path::PathBuf;

use gripfast_chaos::fault::{FAULTS, Fault, Form};
use gripfast_chaos::gateway::Subject;
use gripfast_chaos::row::{Order, Progress};
use gripfast_chaos::{fleet, renewal, row, soak};
use tokio::task::JoinSet;

/// One test per fault, named after it.
macro_rules! short {
    ($($name:ident)*) => {
        const TOLD: &[&str] = &[$(stringify!($name)),*];
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                strike(stringify!($name)).await;
            }
        )*
    };
}

short! {
    killed_idle
    killed_with_spare
    killed_in_call
    killed_ten_times
    killed_over_and_over
    leaves_grandchildren
    exits_at_start
    crash_loop
    never_initializes
    slow_start
    frozen
    junk_on_stdout
    huge_frame
    fills_stderr
    restarted
    restarted_400
    session_expired
    reset
    stream_cut
    black_hole
    slow_drip
    answers_500
    answers_429
    token_expired
    token_expired_bare
    token_missing
    name_lost
    down_at_start
    other_tools
    gateway_killed
}

#[test]
fn no_fault_is_left_out() {
    let told: Vec<String> = TOLD.iter().map(|name| name.replace('_', "-")).collect();
    let known: Vec<&str> = FAULTS.iter().map(|fault| fault.name).collect();
    assert_eq!(told, known);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_a_session_that_expires_under_many_calls_costs_one_handshake_and_no_call() {
    let renewal = renewal::run(&order()).await.unwrap();
    assert_eq!((renewal.failed, renewal.handshakes), (0, 1), "{renewal:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b08_a_server_that_flaps_costs_the_others_no_call() {
    let neighbours = fleet::run(&order()).await.unwrap();
    assert_eq!(neighbours.complaints(), [""; 0], "{neighbours:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_clients_and_servers_cost_honest_clients_no_call() {
    let soak = soak::run(&order()).await.unwrap();
    assert_eq!(soak.complaints(), [""; 0], "{soak:#?}");
}

/// All transports of a fault side by side: they wait more than they work.
async fn strike(name: &str) {
    let fault = Fault::named(&name.replace('_', "-")).expect("a fault of this name");
    let mut rows = JoinSet::new();
    for transport in fault.transports {
        rows.spawn(async move { row::run(fault, *transport, &order()).await });
    }
    for row in rows.join_all().await {
        let row = row.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(row.complaints(fault), [""; 0], "{row:#?}");
    }
}

fn order() -> Order {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let gripfast = root.join(target).join("debug/gripfast");
    let gripfast = gripfast.canonicalize().unwrap_or_else(|error| {
        panic!("{}: {error}\nhint: `cargo build -p gripfast-gateway` makes it", gripfast.display())
    });
    Order {
        subject: Subject { gripfast, peer: None },
        form: Form::Short,
        repeats: None,
        seed: 1,
        progress: Progress::default(),
    }
}

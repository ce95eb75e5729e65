//! Every fault in a short run: checks the counts, which do not depend on the load of the machine. Times are not
//! checked.
#![cfg(target_os = "linux")]

use std::path::PathBuf;

use gripfast_chaos::fault::{FAULTS, Fault, RunLength};
use gripfast_chaos::gateway::{Subject, ToolAccess};
use gripfast_chaos::row::{Progress, RunOptions};
use gripfast_chaos::{neighbours, renewal, row, soak};
use tokio::task::JoinSet;

/// Generates one test per fault.
macro_rules! short {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                strike(stringify!($name), ToolAccess::Listed).await;
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
fn every_fault_has_a_test() {
    let tested: Vec<String> = TESTED.iter().map(|name| name.replace('_', "-")).collect();
    let known: Vec<&str> = FAULTS.iter().map(|fault| fault.name).collect();
    assert_eq!(tested, known);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_an_expired_session_under_many_calls_costs_one_handshake_and_no_call() {
    let renewal = renewal::run(&options()).await.unwrap();
    assert_eq!((renewal.failed, renewal.handshakes), (0, 1), "{renewal:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b08_a_flapping_server_costs_the_others_no_call() {
    let neighbours = neighbours::run(&options()).await.unwrap();
    assert_eq!(neighbours.complaints(), [""; 0], "{neighbours:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_clients_and_servers_cost_honest_clients_no_call() {
    let soak = soak::run(&options()).await.unwrap();
    assert_eq!(soak.complaints(), [""; 0], "{soak:#?}");
}

/// H02
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_by_search_survive_a_kill_between_calls() {
    strike("killed_idle", ToolAccess::Search).await;
}

/// H02
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_by_search_survive_a_kill_in_a_call() {
    strike("killed_in_call", ToolAccess::Search).await;
}

/// H02
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_by_search_survive_a_restarted_server() {
    strike("restarted", ToolAccess::Search).await;
}

/// H02
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_by_search_survive_an_expired_session() {
    strike("session_expired", ToolAccess::Search).await;
}

/// H02
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_by_search_survive_a_killed_gateway() {
    strike("gateway_killed", ToolAccess::Search).await;
}

/// Runs all transports of a fault side by side, because they mostly wait.
async fn strike(name: &str, access: ToolAccess) {
    let fault = Fault::by_name(&name.replace('_', "-")).expect("a fault of this name");
    let mut rows = JoinSet::new();
    for transport in fault.transports {
        let mut options = options();
        options.subject.access = access;
        rows.spawn(async move { row::run(fault, *transport, &options).await });
    }
    for row in rows.join_all().await {
        let row = row.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(row.complaints(fault), [""; 0], "{row:#?}");
    }
}

fn options() -> RunOptions {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let gripfast = root.join(target).join("debug/gripfast");
    let gripfast = gripfast.canonicalize().unwrap_or_else(|error| {
        panic!("{}: {error}\nhint: `cargo build -p gripfast-gateway` makes it", gripfast.display())
    });
    RunOptions {
        subject: Subject { gripfast, peer: None, access: ToolAccess::Listed },
        length: RunLength::Short,
        repeats: None,
        seed: 1,
        progress: Progress::default(),
    }
}

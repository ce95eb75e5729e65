//! Every fault of a service of three replicas in a short run. Times are not checked.
#![cfg(target_os = "linux")]

use std::path::PathBuf;

use gripfast_chaos::fault::RunLength;
use gripfast_chaos::gateway::{Subject, ToolAccess};
use gripfast_chaos::replicas::fault::{REPLICA_FAULTS, ReplicaFault};
use gripfast_chaos::replicas::row;
use gripfast_chaos::row::{Progress, RunOptions};

/// Generates one test per fault.
macro_rules! short {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                strike(stringify!($name)).await;
            }
        )*
    };
}

short! {
    owner_killed
    owner_replaced
    forwarder_killed
    rolling_restart
    rolling_restart_haproxy
    rolling_restart_nginx
    key_rotated
    owner_stopped
    owner_stopped_in_call
    owner_stopped_with_stream
    holder_killed
    holder_stopped
    store_killed
    store_killed_aof
    store_emptied_after_takeover
    store_slow
    store_refused
    store_dropped
    replica_refused
    replica_dropped
    two_takeovers
    old_name_back
    tool_approved
    budget_reply_lost
    budget_holder_killed
    refresh_stopped
    refresh_killed
}

#[test]
fn every_fault_of_replicas_has_a_test() {
    let tested: Vec<String> = TESTED.iter().map(|name| name.replace('_', "-")).collect();
    let known: Vec<&str> = REPLICA_FAULTS.iter().map(|fault| fault.name).collect();
    assert_eq!(tested, known);
}

#[expect(clippy::print_stderr, reason = "a test that is left out says so in its output")]
async fn strike(name: &str) {
    let left_out = std::env::var("GRIPFAST_MISSING_PEERS").unwrap_or_default();
    if left_out.split(',').any(|left_out| left_out == "valkey") {
        eprintln!("left out: this test needs a store, which could not be installed");
        return;
    }
    let fault = ReplicaFault::by_name(&name.replace('_', "-")).expect("a fault of this name");
    if fault.action.balancer().is_some_and(|balancer| !balancer.require()) {
        return;
    }
    let row = row::run(fault, &options()).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(row.complaints(fault), [""; 0], "{row:#?}\n{}", row.remarks.join("\n"));
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

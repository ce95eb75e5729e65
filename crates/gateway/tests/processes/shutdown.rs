//! Stop of a server and end of a host: no child, grandchild or zombie is left.

use crate::own_process::in_own_process;
use crate::test_host::{GRIPFAST, MARK, TestHost, call};
use gripfast::config::ServerSpec;
use gripfast::{Code, Host};
use gripfast_testkit::proc::{command_line, is_alive, living_children, signal, zombies};
use gripfast_testkit::wait::poll;
use rustix::process::Signal;
use serde_json::json;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Flags of a server that only SIGKILL ends.
const STUBBORN: &[&str] = &["--ignore-stdin-close", "--ignore-sigterm"];

#[test]
fn g06_a_child_whose_stdin_is_closed_ends_by_itself_and_leaves_no_zombie() {
    in_own_process(
        module_path!(),
        "g06_a_child_whose_stdin_is_closed_ends_by_itself_and_leaves_no_zombie",
        async {
            let test_host = TestHost::new();
            let exit = test_host.file("exit");
            let script = format!("\"$GRIPFAST\" demo-server; echo $? >{exit}");
            let took = removed(&test_host, test_host.shell(&script)).await;
            assert_eq!(test_host.lines("exit"), ["0"], "the child exited without a signal");
            assert!(took < Duration::from_secs(2), "{took:?}");
        },
    );
}

#[test]
fn g06_a_child_that_ignores_a_closed_stdin_is_asked_to_end_with_a_signal() {
    in_own_process(
        module_path!(),
        "g06_a_child_that_ignores_a_closed_stdin_is_asked_to_end_with_a_signal",
        async {
            let test_host = TestHost::new();
            let exit = test_host.file("exit");
            let script =
                format!("trap : TERM; \"$GRIPFAST\" demo-server --ignore-stdin-close; echo $? >{exit}");
            removed(&test_host, test_host.shell(&script)).await;
            assert_eq!(test_host.lines("exit"), [(128 + Signal::TERM.as_raw()).to_string()]);
        },
    );
}

#[test]
fn g06_a_child_that_ignores_signals_too_is_killed() {
    in_own_process(module_path!(), "g06_a_child_that_ignores_signals_too_is_killed", async {
        let test_host = TestHost::new();
        let took = removed(&test_host, test_host.demo(STUBBORN)).await;
        assert!(took < Duration::from_secs(8), "{took:?}");
    });
}

#[tokio::test]
async fn g06_a_stopped_server_has_no_process_until_it_is_started_again() {
    let test_host = TestHost::new();
    let old = test_host.spawn_ready("demo", test_host.demo(&[])).await;
    test_host.host.stop("demo").unwrap();
    test_host.nothing_is_left().await;
    let error = test_host.call("demo", "echo", json!({ "text": "x" })).await.unwrap_err();
    assert_eq!(error.code, Code::Stopped, "{error}");
    test_host.host.start("demo").unwrap();
    assert_ne!(test_host.ready("demo").await, old);
    test_host.echo("demo", "back").await;
}

#[tokio::test]
async fn g06_wrappers_are_stopped_together_with_the_wrapped_process() {
    let test_host = TestHost::new();
    let stubborn = STUBBORN.join(" ");
    let wrappers = [
        // As npx and its like do: a shell that starts a shell that starts the server, and waits.
        ("nested", format!(r#"sh -c '"$GRIPFAST" demo-server {stubborn}; true'; true"#)),
        ("in the background", format!(r#"exec 3<&0; "$GRIPFAST" demo-server {stubborn} <&3 & wait"#)),
    ];
    for (name, script) in &wrappers {
        test_host.spawn_ready(name, test_host.shell(script)).await;
        test_host.echo(name, "wrapped").await;
    }
    assert_eq!(test_host.processes().len(), 5);
    test_host.host.shutdown().await;
    test_host.nothing_is_left().await;
}

#[tokio::test]
async fn g06_a_grandchild_does_not_outlive_the_child_that_died() {
    let test_host = TestHost::new();
    let old = test_host.spawn_ready("demo", test_host.demo(&["--fork-grandchild"])).await;
    let grandchildren: Vec<u32> = test_host.processes().into_iter().filter(|pid| *pid != old).collect();
    assert_eq!(grandchildren.len(), 1);
    signal(old, Signal::KILL);
    // The grandchild holds the pipes open, so only the child's own end can be noticed.
    test_host.replaced("demo", old).await;
    poll(|| (!is_alive(grandchildren[0])).then_some(())).await.expect("the grandchild is gone");
    test_host.echo("demo", "alone again").await;
}

#[tokio::test]
async fn c05_nothing_is_written_to_a_dead_child_whose_pipes_a_grandchild_holds() {
    let test_host = TestHost::new();
    let old = test_host.spawn_ready("demo", test_host.demo(&["--fork-grandchild"])).await;
    signal(old, Signal::KILL);
    // Reaped: its end is known.
    poll(|| (!std::path::Path::new(&format!("/proc/{old}")).exists()).then_some(())).await.unwrap();
    // The grandchild would take every byte and answer none.
    for call in 0..5 {
        let counted = test_host.call("demo", "counter", json!({ "key": call.to_string() })).await;
        assert!(counted.is_ok(), "{counted:?}");
    }
}

#[tokio::test]
async fn g06_a_grandchild_that_left_the_group_is_found_by_its_environment() {
    let test_host = TestHost::new();
    let spec = test_host.shell(r#"setsid sleep 600 & exec "$GRIPFAST" demo-server"#);
    test_host.spawn_ready("demo", spec).await;
    let own_group =
        test_host.call("demo", "misbehave", json!({ "how": "grandchild", "own_group": true })).await;
    let own_group: u32 = own_group.unwrap().parse().unwrap();
    poll(|| (test_host.processes().len() == 3).then_some(())).await.expect("child, own session, own group");
    assert!(is_alive(own_group));
    test_host.host.remove_server("demo").await.unwrap();
    test_host.nothing_is_left().await;
}

#[test]
fn g06_nothing_outlives_a_host_that_was_killed() {
    let name = "g06_nothing_outlives_a_host_that_was_killed";
    in_own_process(module_path!(), name, async {
        let test_host = TestHost::new();
        let script = r#"setsid sleep 600 & exec "$GRIPFAST" demo-server --fork-grandchild --ignore-stdin-close --ignore-sigterm"#;
        let config = format!(
            "[servers.demo]\ncommand = \"/bin/sh\"\nargs = [\"-c\", '''{script}''']\nenv = {{ GRIPFAST = {GRIPFAST:?}, {MARK} = {:?} }}\n",
            test_host.path("").to_str().unwrap().trim_end_matches('/')
        );
        std::fs::write(test_host.path("gripfast.toml"), config).unwrap();
        let mut gripfast = Command::new(GRIPFAST)
            .args(["call", "--config", &test_host.file("gripfast.toml"), "demo", "sleep", r#"{"ms": 60000}"#])
            .env("HOME", test_host.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        poll(|| (test_host.processes().len() == 3).then_some(()))
            .await
            .expect("the server and its grandchildren");
        let watcher = poll(|| {
            living_children(gripfast.id())
                .into_iter()
                .find(|pid| command_line(*pid).contains("gripfast-leash"))
        });
        let watcher = watcher.await.expect("the watcher");
        signal(gripfast.id(), Signal::KILL);
        gripfast.wait().unwrap();
        test_host.nothing_is_left().await;
        poll(|| (!is_alive(watcher)).then_some(())).await.expect("the watcher goes last");
    });
}

#[test]
fn g06_a_watcher_that_was_killed_is_replaced_with_the_next_child() {
    let name = "g06_a_watcher_that_was_killed_is_replaced_with_the_next_child";
    in_own_process(module_path!(), name, async {
        let test_host = TestHost::new();
        let old = test_host.spawn_ready("demo", test_host.demo(&[])).await;
        let watcher = watcher();
        signal(watcher, Signal::KILL);
        poll(|| (!is_alive(watcher)).then_some(())).await.unwrap();
        signal(old, Signal::KILL);
        test_host.replaced("demo", old).await;
        assert!(self::watcher() != watcher && zombies(std::process::id()).is_empty());
    });
}

#[test]
fn g06_a_shutdown_lets_calls_finish_and_leaves_nothing_behind() {
    let name = "g06_a_shutdown_lets_calls_finish_and_leaves_nothing_behind";
    in_own_process(module_path!(), name, async {
        let test_host = TestHost::new();
        test_host.spawn_ready("demo", test_host.demo(&["--fork-grandchild"])).await;
        let host = test_host.host.clone();
        let slow = tokio::spawn(async move { call(&host, "demo", "sleep", json!({ "ms": 500 })).await });
        test_host.until("demo", |status| status.supervision.in_flight == 1).await;
        test_host.host.shutdown().await;
        assert_eq!(slow.await.unwrap().as_deref(), Ok("slept 500 ms"));
        assert!(zombies(std::process::id()).is_empty());
        test_host.nothing_is_left().await;
    });
}

#[tokio::test]
async fn g06_a_shutdown_ends_all_servers_side_by_side() {
    let test_host = TestHost::new();
    for name in ["a", "b", "c", "d"] {
        test_host.host.spawn(name, test_host.demo(STUBBORN)).unwrap();
    }
    for name in ["a", "b", "c", "d"] {
        test_host.ready(name).await;
    }
    let begun = Instant::now();
    test_host.host.shutdown().await;
    // Each takes four seconds: two after its stdin was closed, two after it was asked to end. One after the other: 16.
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    test_host.nothing_is_left().await;
}

#[test]
fn g06_a_shutdown_in_the_middle_of_a_handshake_leaves_nothing_behind() {
    let name = "g06_a_shutdown_in_the_middle_of_a_handshake_leaves_nothing_behind";
    in_own_process(module_path!(), name, async {
        let test_host = TestHost::new();
        let flags = [&["--never-answer-initialize"], STUBBORN].concat();
        test_host.host.spawn("mute", test_host.demo(&flags)).unwrap();
        poll(|| (!test_host.processes().is_empty()).then_some(())).await.unwrap();
        test_host.host.shutdown().await;
        assert_eq!(
            living_children(std::process::id()),
            [watcher()],
            "the child is gone when shutdown returns"
        );
        assert!(zombies(std::process::id()).is_empty());
    });
}

#[test]
fn g06_a_host_that_is_dropped_without_a_shutdown_leaves_nothing_behind() {
    let name = "g06_a_host_that_is_dropped_without_a_shutdown_leaves_nothing_behind";
    in_own_process(module_path!(), name, async {
        let mut test_host = TestHost::new();
        for (server, era) in [("modern", "modern"), ("legacy", "legacy")] {
            let flags = [STUBBORN, &["--fork-grandchild", "--era", era]].concat();
            test_host.spawn_ready(server, test_host.demo(&flags)).await;
        }
        let flags = [&["--never-answer-initialize"], STUBBORN].concat();
        test_host.host.spawn("mute", test_host.demo(&flags)).unwrap();
        poll(|| (test_host.processes().len() == 5).then_some(())).await.unwrap();
        test_host.host = Host::builder().build();
        test_host.nothing_is_left().await;
        poll(|| zombies(std::process::id()).is_empty().then_some(())).await.expect("no zombies");
    });
}

/// Starts a server, removes it, and checks that no process is left when the removal returns. Returns the time that the
/// removal took.
async fn removed(test_host: &TestHost, spec: ServerSpec) -> Duration {
    let pid = test_host.spawn_ready("demo", spec).await;
    let begun = Instant::now();
    test_host.host.remove_server("demo").await.unwrap();
    let took = begun.elapsed();
    assert!(!is_alive(pid));
    assert!(zombies(std::process::id()).is_empty());
    test_host.nothing_is_left().await;
    took
}

/// The watcher of this process.
fn watcher() -> u32 {
    let children = living_children(std::process::id());
    children.into_iter().find(|pid| command_line(*pid).contains("gripfast-leash")).unwrap()
}

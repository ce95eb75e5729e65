//! State directories that are corrupt, full or read-only: they cause a warning and stop neither the gateway nor a call.

use crate::gateway_process::GatewayProcess;
use crate::sandbox::{GRIPFAST, Sandbox, stdio};
use gripfast::store::{LocalStore, Store};
use gripfast_testkit::wait::until_some;
use rustix::process::Signal;
use serde_json::json;
use std::process::{Command, Stdio};

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with(&format!("[gateway]\nstate_dir = \"state\"\n{}", stdio("demo", &[])));
    std::fs::create_dir(sandbox.path("state")).unwrap();
    sandbox
}

/// Serves with a state directory on a file system of 64 KiB, after running `prepare` on it.
#[cfg(target_os = "linux")]
fn serve_on(sandbox: &Sandbox, prepare: &str) -> GatewayProcess {
    sandbox.trust();
    let script = format!(
        "mount -t tmpfs -o size=64k,mode=0700 tmpfs state && {prepare} && exec \"$0\" serve --listen 127.0.0.1:0"
    );
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "/bin/sh", "-c", &script, GRIPFAST]);
    command.current_dir(sandbox.path("")).env("HOME", sandbox.path("home"));
    GatewayProcess::of(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Checks that everything works for a client. Returns the stderr of the gateway.
fn serves(serving: GatewayProcess) -> String {
    let client = serving.client();
    for number in 0..50 {
        let text = format!("hello {number}");
        assert!(client.call("demo__echo", json!({ "text": text })).contains(&text));
    }
    serving.end(Signal::TERM)
}

#[test]
fn a_corrupt_state_directory_is_moved_aside_and_calls_are_served() {
    let sandbox = sandbox();
    std::fs::write(sandbox.path("state/state.db"), vec![b'x'; 9000]).unwrap();
    let said = serves(GatewayProcess::start(&sandbox, &[]));
    assert!(said.contains("the state file was corrupt; a new one was created"), "{said}");
    let kept = std::fs::read_dir(sandbox.path("state")).unwrap().flatten();
    let aside = kept.filter(|file| file.file_name().to_string_lossy().starts_with("state.db.corrupt-"));
    assert_eq!(aside.count(), 1);
    let again = serves(GatewayProcess::start(&sandbox, &[]));
    assert!(!again.contains("corrupt"), "{again}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_state_directory_stops_neither_the_gateway_nor_a_call() {
    let said = serves(serve_on(&sandbox(), "{ head -c 65536 /dev/zero > state/filler; true; }"));
    assert!(said.contains("state"), "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_read_only_state_directory_stops_neither_the_gateway_nor_a_call() {
    let said = serves(serve_on(&sandbox(), "mount -o remount,ro state"));
    assert!(said.contains("state"), "{said}");
}

/// A changed tool stays held until approval, whatever happens to the file with the approvals.
#[test]
fn g02_a_state_file_that_is_lost_or_damaged_releases_no_tool() {
    type Damage = fn(&std::path::Path);
    let damages: [(&str, Damage); 7] = [
        ("deleted", |file| std::fs::remove_file(file).unwrap()),
        ("empty", |file| std::fs::write(file, "").unwrap()),
        ("overwritten", |file| std::fs::write(file, vec![b'x'; 9000]).unwrap()),
        ("truncated", |file| {
            let half = std::fs::metadata(file).unwrap().len() / 2;
            std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(half).unwrap();
        }),
        ("overwritten behind its head", |file| {
            let mut bytes = std::fs::read(file).unwrap();
            bytes[4096..].fill(0xff);
            std::fs::write(file, bytes).unwrap();
        }),
        ("a directory", |file| {
            std::fs::remove_file(file).unwrap();
            std::fs::create_dir(file).unwrap();
        }),
        ("without its pins", |file| {
            let (store, _) = LocalStore::open(file.parent().unwrap()).unwrap();
            store.retain("approvals", Box::new(|_, _| false));
            store.flush();
        }),
    ];
    for (damage, strike) in damages {
        let sandbox = sandbox();
        let serving = GatewayProcess::start(&sandbox, &[]);
        assert!(
            serving.client().call("demo__echo", json!({ "text": "hello" })).contains("hello"),
            "{damage}"
        );
        serving.end(Signal::TERM);
        drop(LocalStore::open(&sandbox.path("state")).unwrap());
        until_some("all of it in one file", || (!sandbox.path("state/state.db-wal").exists()).then_some(()));
        strike(&sandbox.path("state/state.db"));
        let serving = GatewayProcess::start(&sandbox, &[]);
        let answer = serving.client().call("demo__echo", json!({ "text": "hello" }));
        assert!(answer.contains("unknown_tool") && answer.contains("not_sent"), "{damage}: {answer}");
        let status = until_some("needs_approval", || {
            let status = sandbox.run(&["status", "demo", "--url", &serving.url]);
            status.stdout.contains("needs_approval").then_some(status)
        });
        assert!(status.stdout.contains("approvals lost, because `state.db` is"), "{damage}: {status}");
        let shown = sandbox.run(&["pins", "diff", "demo", "--url", &serving.url]);
        assert!(shown.stdout.contains("+ Returns its text."), "{damage}: {shown}");
        let approved = sandbox.run(&["pins", "approve", "demo", "echo", "--url", &serving.url]);
        assert_eq!(approved.code, Some(0), "{damage}: {approved}");
        let client = serving.client();
        assert!(client.call("demo__echo", json!({ "text": "hello" })).contains("hello"), "{damage}");
        let answer = client.call("demo__add", json!({ "a": 1, "b": 2 }));
        assert!(answer.contains("unknown_tool"), "one approval releases one tool; {damage}: {answer}");
        assert_eq!(sandbox.run(&["pins", "approve", "demo", "--url", &serving.url]).code, Some(0));
        assert!(!client.call("demo__add", json!({ "a": 1, "b": 2 })).contains("unknown_tool"), "{damage}");
        serving.end(Signal::TERM);
        if damage != "a directory" {
            let serving = GatewayProcess::start(&sandbox, &[]);
            let answer = serving.client().call("demo__add", json!({ "a": 1, "b": 2 }));
            assert!(!answer.contains("unknown_tool"), "the approvals are kept; {damage}: {answer}");
        }
    }
}

/// A server without approvals is trusted on first use, also next to servers whose approvals were lost.
#[test]
fn g02_a_server_that_was_never_approved_is_trusted_on_first_use_after_a_loss() {
    let sandbox = sandbox();
    let serving = GatewayProcess::start(&sandbox, &[]);
    assert!(serving.client().call("demo__echo", json!({ "text": "hello" })).contains("hello"));
    let counts = sandbox.path("state/approvals");
    let is_whole = |file: &std::fs::DirEntry| file.path().extension().is_some_and(|end| end == "json");
    until_some("the tools are counted", || std::fs::read_dir(&counts).ok()?.flatten().find(is_whole));
    serving.end(Signal::KILL);
    for file in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = std::fs::remove_file(sandbox.path("state").join(file));
    }
    let both = format!("[gateway]\nstate_dir = \"state\"\n{}{}", stdio("demo", &[]), stdio("other", &[]));
    std::fs::write(sandbox.path("gripfast.toml"), both).unwrap();
    let serving = GatewayProcess::start(&sandbox, &[]);
    let client = serving.client();
    assert!(client.call("other__echo", json!({ "text": "hello" })).contains("hello"));
    assert!(client.call("demo__echo", json!({ "text": "hello" })).contains("unknown_tool"));
}

#[test]
fn damaged_small_files_are_moved_aside_and_replaced_and_status_says_so() {
    for damage in ["", "damaged"] {
        let sandbox = sandbox();
        std::fs::create_dir(sandbox.path("state/logins")).unwrap();
        for file in ["admin.token", "session.key"] {
            std::fs::write(sandbox.path("state").join(file), damage).unwrap();
        }
        let serving = GatewayProcess::start(&sandbox, &[]);
        assert!(serving.client().call("demo__echo", json!({ "text": "hello" })).contains("hello"));
        let words = ["reconnect", "demo", "--state-dir", "state", "--url", &serving.url];
        assert_eq!(sandbox.run(&words).code, Some(0), "the new token works");
        let status = sandbox.run(&["status", "--url", &serving.url]);
        for file in ["admin.token", "session.key"] {
            let aside = format!("state/{file}.corrupt");
            assert_eq!(std::fs::read_to_string(sandbox.path(&aside)).unwrap(), damage);
            assert!(status.stdout.contains(&format!("a damaged file was moved to {aside}")), "{status}");
        }
        for file in ["admin.token", "session.key"] {
            std::fs::remove_file(sandbox.path(&format!("state/{file}.corrupt"))).unwrap();
        }
        let status = sandbox.run(&["status", "--url", &serving.url]);
        assert!(!status.stdout.contains("damaged"), "it is said until a person has removed them: {status}");
    }
}

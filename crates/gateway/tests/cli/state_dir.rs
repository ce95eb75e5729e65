//! A state directory that is corrupt, full or read-only is said aloud and done without: neither the gateway nor a
//! call stops for it.

use crate::sandbox::{GRIPFAST, Sandbox, stdio};
use crate::serving::Serving;
use rustix::process::Signal;
use serde_json::json;
use std::process::{Command, Stdio};

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with(&format!("[gateway]\nstate_dir = \"state\"\n{}", stdio("demo", &[])));
    std::fs::create_dir(sandbox.path("state")).unwrap();
    sandbox
}

/// Serves where the state directory is a file system of 64 KiB, to which `prepare` is done first.
#[cfg(target_os = "linux")]
fn serve_on(sandbox: &Sandbox, prepare: &str) -> Serving {
    sandbox.trust();
    let script = format!(
        "mount -t tmpfs -o size=64k,mode=0700 tmpfs state && {prepare} && exec \"$0\" serve --listen 127.0.0.1:0"
    );
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "/bin/sh", "-c", &script, GRIPFAST]);
    command.current_dir(sandbox.path("")).env("HOME", sandbox.path("home"));
    Serving::of(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Everything that a client does works; gives what the gateway said.
fn serves(serving: Serving) -> String {
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
    let said = serves(Serving::start(&sandbox, &[]));
    assert!(said.contains("the state file was corrupt; a new one was begun"), "{said}");
    let kept = std::fs::read_dir(sandbox.path("state")).unwrap().flatten();
    let aside = kept.filter(|file| file.file_name().to_string_lossy().starts_with("state.db.corrupt-"));
    assert_eq!(aside.count(), 1);
    let again = serves(Serving::start(&sandbox, &[]));
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

//! Servers that no retry can start: the cause is reported at once, other servers work, and a later fix is found.

use crate::test_host::{TestHost, millis};
use gripfast::config::{ServerSpec, Target, Template};
use gripfast::{CallOutcome, Code, State};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[tokio::test]
async fn b09_a_server_that_cannot_start_says_why_at_once_and_others_work() {
    let test_host = TestHost::new();
    let no_program = test_host.file("no-program");
    std::fs::write(test_host.path("plain-text"), "not a program").unwrap();
    std::fs::write(test_host.path("garbage"), b"\x00\x01\x02").unwrap();
    make_executable(&test_host.path("garbage"));
    let cases = [
        ("missing", test_host.command(&no_program, &[]), "no-program` was not found"),
        ("not on the path", test_host.command("gripfast-no-such-program", &[]), "was not found on the PATH"),
        ("not executable", test_host.command(&test_host.file("plain-text"), &[]), "permission denied"),
        (
            "not a program",
            test_host.command(&test_host.file("garbage"), &[]),
            "garbage` is not a program that this system can run",
        ),
        ("nowhere", in_directory(test_host.demo(&[]), &test_host.file("no-dir")), "`cwd` is not a directory"),
        (
            "unset",
            with_argument(test_host.demo(&[]), "${GRIPFAST_TEST_UNSET}"),
            "`GRIPFAST_TEST_UNSET` is not set",
        ),
    ];
    for (name, spec, _) in &cases {
        test_host.host.spawn(name, spec.clone()).unwrap();
    }
    test_host.spawn_ready("fine", test_host.demo(&[])).await;
    for (name, _, words) in &cases {
        let status = test_host.state(name, State::ConfigError).await;
        let cause = status.supervision.cause.unwrap();
        assert!(cause.contains(words), "{name}: {cause}");
        assert!(status.supervision.next_attempt.is_some(), "{name} is looked at again");
        assert_eq!(status.supervision.restarts, 0, "{name} is not retried in a storm");
        let error = test_host.call(name, "echo", json!({ "text": "x" })).await.unwrap_err();
        assert_eq!((error.code, error.outcome), (Code::Unreachable, CallOutcome::NotSent), "{error}");
        assert!(error.text.contains(words) && error.hint.is_some(), "{error}");
    }
    test_host.echo("fine", "undisturbed").await;
}

#[tokio::test]
async fn b09_a_program_that_has_been_installed_is_found_by_a_reconnect() {
    let test_host = TestHost::new();
    test_host.host.spawn("late", test_host.command(&test_host.file("late"), &[])).unwrap();
    test_host.state("late", State::ConfigError).await;
    install(&test_host, "late");
    test_host.host.reconnect("late").unwrap();
    test_host.ready("late").await;
    test_host.echo("late", "installed").await;
}

#[tokio::test]
async fn b09_a_program_that_was_installed_is_found_without_a_request() {
    let test_host = TestHost::new();
    let mut spec = test_host.command(&test_host.file("late"), &[]);
    spec.supervision.restart.parked_probe = millis(100);
    test_host.host.spawn("late", spec).unwrap();
    test_host.state("late", State::ConfigError).await;
    install(&test_host, "late");
    test_host.ready("late").await;
    test_host.echo("late", "installed").await;
}

fn install(test_host: &TestHost, name: &str) {
    let ready = test_host.path("being-installed");
    std::fs::write(&ready, "#!/bin/sh\nexec \"$GRIPFAST\" demo-server\n").unwrap();
    make_executable(&ready);
    std::fs::rename(ready, test_host.path(name)).unwrap();
}

fn make_executable(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn in_directory(mut spec: ServerSpec, directory: &str) -> ServerSpec {
    if let Target::Stdio { cwd, .. } = &mut spec.target {
        *cwd = Some(Template::parse(directory).unwrap());
    }
    spec
}

fn with_argument(mut spec: ServerSpec, argument: &str) -> ServerSpec {
    if let Target::Stdio { args, .. } = &mut spec.target {
        args.push(Template::parse(argument).unwrap());
    }
    spec
}

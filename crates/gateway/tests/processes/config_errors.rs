//! What retrying cannot mend is said at once, disturbs nobody, and is found to be mended when it is.

use crate::stage::{Stage, millis};
use gripfast::config::{ServerSpec, Target, Template};
use gripfast::{Code, Fate, State};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[tokio::test]
async fn b09_what_cannot_be_started_says_why_at_once_and_the_others_are_fine() {
    let stage = Stage::new();
    let no_program = stage.file("no-program");
    std::fs::write(stage.path("plain-text"), "not a program").unwrap();
    std::fs::write(stage.path("garbage"), b"\x00\x01\x02").unwrap();
    make_executable(&stage.path("garbage"));
    let cases = [
        ("missing", stage.command(&no_program, &[]), "no-program` was not found"),
        ("not on the path", stage.command("gripfast-no-such-program", &[]), "was not found on the PATH"),
        ("not executable", stage.command(&stage.file("plain-text"), &[]), "permission denied"),
        (
            "not a program",
            stage.command(&stage.file("garbage"), &[]),
            "garbage` is not a program that this system can run",
        ),
        ("nowhere", in_directory(stage.demo(&[]), &stage.file("no-dir")), "`cwd` is not a directory"),
        (
            "unset",
            with_argument(stage.demo(&[]), "${GRIPFAST_TEST_UNSET}"),
            "`GRIPFAST_TEST_UNSET` is not set",
        ),
    ];
    for (name, spec, _) in &cases {
        stage.host.spawn(name, spec.clone()).unwrap();
    }
    stage.spawn_ready("fine", stage.demo(&[])).await;
    for (name, _, words) in &cases {
        let status = stage.state(name, State::ConfigError).await;
        let cause = status.supervision.cause.unwrap();
        assert!(cause.contains(words), "{name}: {cause}");
        assert!(status.supervision.next_attempt.is_some(), "{name} is looked at again");
        assert_eq!(status.supervision.restarts, 0, "{name} is not retried in a storm");
        let error = stage.call(name, "echo", json!({ "text": "x" })).await.unwrap_err();
        assert_eq!((error.code, error.outcome), (Code::Unreachable, Fate::NotSent), "{error}");
        assert!(error.text.contains(words) && error.hint.is_some(), "{error}");
    }
    stage.echo("fine", "undisturbed").await;
}

#[tokio::test]
async fn b09_a_program_that_has_been_installed_is_found_by_a_reconnect() {
    let stage = Stage::new();
    stage.host.spawn("late", stage.command(&stage.file("late"), &[])).unwrap();
    stage.state("late", State::ConfigError).await;
    install(&stage, "late");
    stage.host.reconnect("late").unwrap();
    stage.ready("late").await;
    stage.echo("late", "installed").await;
}

#[tokio::test]
async fn b09_a_program_that_has_been_installed_is_found_by_and_by_without_anybody_asking() {
    let stage = Stage::new();
    let mut spec = stage.command(&stage.file("late"), &[]);
    spec.supervision.restart.parked_probe = millis(100);
    stage.host.spawn("late", spec).unwrap();
    stage.state("late", State::ConfigError).await;
    install(&stage, "late");
    stage.ready("late").await;
    stage.echo("late", "installed").await;
}

fn install(stage: &Stage, name: &str) {
    let ready = stage.path("being-installed");
    std::fs::write(&ready, "#!/bin/sh\nexec \"$GRIPFAST\" demo-server\n").unwrap();
    make_executable(&ready);
    std::fs::rename(ready, stage.path(name)).unwrap();
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

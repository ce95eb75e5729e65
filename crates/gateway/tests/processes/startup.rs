//! Starts that fail or misbehave: early exits, slow handshakes, junk on stdout, era probes.

use crate::test_host::{TestHost, millis};
use gripfast::config::{Target, Template};
use gripfast::{CallOutcome, Code, Event, State};
use gripfast_testkit::proc::signal;
use gripfast_testkit::wait::poll;
use rustix::process::Signal;
use serde_json::json;

#[tokio::test]
async fn b03_a_child_that_exits_at_once_is_parked_with_exit_code_and_stderr() {
    let test_host = TestHost::new();
    let starts = test_host.file("starts");
    let flags = ["--exit-at-start", "always", "--exit-code", "3", "--starts-file", &starts];
    test_host.host.spawn("demo", test_host.demo(&flags)).unwrap();
    let parked = test_host.state("demo", State::Parked).await;
    let cause = parked.supervision.cause.unwrap();
    assert!(cause.contains("code 3") && cause.contains("exiting at start, as told"), "{cause}");
    assert_eq!(parked.stderr.last().unwrap(), "demo server: exiting at start, as told");
    assert!(parked.supervision.next_attempt.is_some(), "parked is slow, not dead");
    assert_eq!(test_host.lines("starts").len(), 6, "the first start and five restarts");
}

#[tokio::test]
async fn a_secret_that_a_child_prints_is_redacted() {
    let test_host = TestHost::new();
    std::fs::write(test_host.path("password"), "correct-horse-battery\n").unwrap();
    let said = "echo 'listening at /srv/notes'; echo \"bad login $LOGIN, $API_KEY, $1 in $HOME\" >&2; exit 3";
    let mut spec = test_host.shell(said);
    let Target::Stdio { args, env, .. } = &mut spec.target else { panic!("a child") };
    args.extend(["sh", "--token=argument-of-it"].map(|word| Template::parse(word).unwrap()));
    let set = [
        ("LOGIN", format!("me:${{file:{}}}", test_host.file("password"))),
        ("API_KEY", "written out".to_owned()),
        ("HOME", "/srv/${HOME}".to_owned()),
    ];
    env.extend(set.map(|(name, value)| (name.to_owned(), Template::parse(&value).unwrap())));
    spec.supervision.restart.max = 1;
    test_host.host.spawn("demo", spec).unwrap();
    let parked = test_host.state("demo", State::Parked).await;
    let home = std::env::var("HOME").unwrap_or_default();
    let shown = format!(
        "bad login me:{}, {}, --token={} in /srv/{home}",
        "*".repeat("correct-horse-battery".len()),
        "*".repeat("written out".len()),
        "*".repeat("argument-of-it".len())
    );
    assert_eq!(parked.stderr.last().unwrap(), &shown);
    let refused = test_host.call("demo", "echo", json!({ "text": "hello" })).await.unwrap_err();
    let told = format!("{refused} {:?}", test_host.status("demo"));
    assert!(told.contains(&shown), "{told}");
    for secret in ["correct-horse", "written out", "argument-of-it"] {
        assert!(!told.contains(secret), "{told}");
    }
}

#[tokio::test]
async fn b03_a_call_wakes_a_parked_server_at_most_once_in_five_seconds() {
    let test_host = TestHost::new();
    let starts = test_host.file("starts");
    let mut spec = test_host.demo(&["--exit-at-start", "always", "--starts-file", &starts]);
    spec.supervision.restart.max = 1;
    test_host.host.spawn("demo", spec).unwrap();
    test_host.state("demo", State::Parked).await;
    let before = test_host.lines("starts").len();
    let refused = test_host.call("demo", "echo", json!({ "text": "wake up" })).await.unwrap_err();
    assert_eq!((refused.code, refused.outcome), (Code::Unreachable, CallOutcome::NotSent), "{refused}");
    poll(|| (test_host.lines("starts").len() > before).then_some(())).await.unwrap();
    test_host.state("demo", State::Parked).await;
    let woken = test_host.lines("starts").len();
    test_host.call("demo", "echo", json!({ "text": "wake up" })).await.unwrap_err();
    assert_eq!(test_host.status("demo").supervision.state, State::Parked, "the second call is no alarm");
    assert_eq!(test_host.lines("starts").len(), woken);
}

#[tokio::test]
async fn b03_a_parked_server_that_has_recovered_is_revived_by_a_call() {
    let test_host = TestHost::new();
    let mut spec = test_host
        .shell(&format!("[ -e {} ] || exit 1; exec \"$GRIPFAST\" demo-server", test_host.file("go")));
    spec.supervision.restart.max = 1;
    test_host.host.spawn("demo", spec).unwrap();
    test_host.state("demo", State::Parked).await;
    std::fs::write(test_host.path("go"), "").unwrap();
    // C04: the call that wakes it is held until the attempt has ended.
    test_host.echo("demo", "wake up").await;
    test_host.ready("demo").await;
    test_host.echo("demo", "good morning").await;
}

#[tokio::test]
async fn b02_a_child_that_fails_its_first_starts_recovers_without_a_call() {
    let test_host = TestHost::new();
    let starts = test_host.file("starts");
    test_host.spawn_ready("demo", test_host.demo(&["--exit-at-start", "3x", "--starts-file", &starts])).await;
    test_host.echo("demo", "at last").await;
    assert_eq!(test_host.lines("starts").len(), 4);
}

#[tokio::test]
async fn b04_a_child_that_connects_and_dies_each_time_is_parked() {
    let test_host = TestHost::new();
    let mut spec = test_host.demo(&["--live-for", "400ms"]);
    spec.supervision.restart.max = 2;
    test_host.spawn_ready("demo", spec).await;
    let parked = test_host.state("demo", State::Parked).await;
    assert_eq!(parked.supervision.restarts, 2);
    assert!(parked.tools > 0, "its tools stay listed while it is away");
    test_host.nothing_is_left().await;
}

#[tokio::test]
async fn g07_junk_on_stdout_is_skipped_counted_and_reported() {
    let test_host = TestHost::new();
    let mut events = test_host.host.subscribe_events();
    test_host.spawn_ready("demo", test_host.demo(&["--junk-on-stdout"])).await;
    test_host.echo("demo", "between the junk").await;
    let answer = test_host.call("demo", "misbehave", json!({ "how": "junk" })).await;
    assert_eq!(answer.as_deref(), Ok("junk"));
    let mut told = Vec::new();
    while told.last() != Some(&10) {
        let event = tokio::time::timeout(millis(10_000), events.recv()).await.unwrap().unwrap().event;
        if let Event::JunkSkipped { lines, sample } = event {
            assert!(!sample.is_empty());
            told.push(lines);
        }
    }
    assert_eq!(told, [1, 10], "told when it begins, and then ever more rarely");
}

#[tokio::test]
async fn d08_a_child_that_exits_on_the_probe_is_remembered_as_legacy() {
    let test_host = TestHost::new();
    let starts = test_host.file("starts");
    let old = test_host
        .spawn_ready("demo", test_host.demo(&["--exit-on-discover", "--starts-file", &starts]))
        .await;
    assert_eq!(test_host.status("demo").era, Some("legacy"));
    assert_eq!(test_host.lines("starts").len(), 2, "one for the probe, one to stay");
    test_host.echo("demo", "old friend").await;
    signal(old, Signal::KILL);
    test_host.replaced("demo", old).await;
    assert_eq!(test_host.lines("starts").len(), 3, "it is not probed again");
}

#[tokio::test]
async fn d08_a_child_that_ignores_the_probe_is_treated_as_legacy() {
    let test_host = TestHost::new();
    let starts = test_host.file("starts");
    let mut spec = test_host.demo(&["--ignore-discover", "--starts-file", &starts]);
    spec.supervision.timeouts.connect = millis(3000);
    test_host.spawn_ready("demo", spec).await;
    assert_eq!(test_host.status("demo").era, Some("legacy"));
    assert_eq!(test_host.lines("starts").len(), 1, "the same child is asked in the other way");
    test_host.echo("demo", "slow friend").await;
}

#[tokio::test]
async fn c03_a_slow_server_shows_its_last_line_and_starts_on_a_longer_attempt() {
    let test_host = TestHost::new();
    let starts = test_host.file("starts");
    let gate = test_host.file("gate");
    // The first start never answers; later ones answer when the gate is opened.
    let mut spec = test_host.shell(&format!(
        "echo x >> {starts}; echo 'installing packages' >&2; \
         [ $(wc -l < {starts}) -ge 2 ] || exec tail -f /dev/null; \
         cat {gate} > /dev/null; exec \"$GRIPFAST\" demo-server"
    ));
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    spec.supervision.timeouts.connect = millis(500);
    test_host.host.spawn("demo", spec).unwrap();
    let first = test_host.until("demo", |status| status.attempt.is_some()).await.attempt.unwrap();
    assert_eq!(first.may_download, None);
    let later = test_host
        .until("demo", |status| {
            status.attempt.as_ref().is_some_and(|attempt| {
                attempt.limit > millis(500) && attempt.last_line.as_deref() == Some("installing packages")
            })
        })
        .await;
    assert_eq!(later.supervision.state, State::Starting);
    let text = later.attempt.unwrap().text();
    assert!(
        text.starts_with("no handshake yet after ") && text.ends_with("; stderr: installing packages"),
        "{text}"
    );
    tokio::task::spawn_blocking(move || std::fs::write(gate, "open")).await.unwrap().unwrap();
    test_host.ready("demo").await;
    assert_eq!(test_host.status("demo").attempt, None);
}

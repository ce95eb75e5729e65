//! Fake gateway on the port of a gateway that is down: commands connect to it and send no secret.

use crate::gateway_process::GatewayProcess;
use crate::in_process_gateway::STATE;
use crate::sandbox::{Sandbox, stdio};
use gripfast_testkit::wait::until_some;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// Every command that takes the address of a gateway, with valid arguments, and true if it is an action.
const COMMANDS: &[(&[&str], bool)] = &[
    (&["reconnect", "demo"], true),
    (&["reload"], true),
    (&["reload", "demo"], true),
    (&["stop", "demo"], true),
    (&["start", "demo"], true),
    (&["dashboard", "--no-open"], true),
    (&["pins", "approve", "demo"], true),
    (&["pins", "approve", "demo", "echo"], true),
    (&["status"], false),
    (&["status", "demo"], false),
    (&["status", "--watch"], false),
    (&["logs", "demo"], false),
    (&["events"], false),
    (&["events", "-f"], false),
    (&["doctor"], false),
    (&["connect", "cursor"], false),
    (&["tools"], false),
    (&["resources"], false),
    (&["prompts"], false),
    (&["call", "demo", "echo"], false),
    (&["calls"], false),
    (&["replicas"], false),
    (&["pins", "ls"], false),
    (&["pins", "diff"], false),
];

/// The admin token of a gateway on another machine.
const ELSEWHERE: &str = "token-of-a-gateway-on-another-machine";

/// Answers every request with 401 and records what it receives.
struct FakeGateway {
    url: String,
    heard: Arc<Mutex<String>>,
}

impl FakeGateway {
    fn listen(address: &str) -> Self {
        // A child that the killed gateway was starting may hold the socket until it runs its own program.
        let listener = until_some("the port", || TcpListener::bind(address).ok());
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heard = Arc::<Mutex<String>>::default();
        let kept = Arc::clone(&heard);
        std::thread::spawn(move || {
            for mut connection in listener.incoming().map_while(Result::ok) {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && connection.read_exact(&mut byte).is_ok() {
                    head.push(byte[0]);
                }
                kept.lock().unwrap().push_str(&String::from_utf8_lossy(&head));
                let body = r#"{"error":{"code":"unauthorized","text":"this needs the admin token"}}"#;
                // The command may be gone.
                let _ = write!(
                    connection,
                    "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nconnection: close\r\n\
                     content-length: {}\r\n\r\n{body}",
                    body.len()
                );
            }
        });
        Self { url, heard }
    }

    fn heard(&self) -> String {
        std::mem::take(&mut *self.heard.lock().unwrap())
    }
}

/// Sandbox whose gateway was killed, a fake gateway on its port, and the admin token of the killed one.
fn killed_gateway_and_fake() -> (Sandbox, FakeGateway, String) {
    let sandbox = Sandbox::with_demo(&[]);
    let gateway = GatewayProcess::start(&sandbox, &[]);
    let address = gateway.url.strip_prefix("http://").unwrap().to_owned();
    gateway.end(Signal::KILL);
    let token = std::fs::read_to_string(sandbox.path(STATE).join("admin.token")).unwrap();
    (sandbox, FakeGateway::listen(&address), token.trim().to_owned())
}

/// Checks that the received requests contain no secret.
fn assert_ignorant(heard: &str, token: &str, words: &[&str]) {
    for secret in [token, ELSEWHERE] {
        assert!(!heard.contains(secret), "{words:?} has sent `{secret}`:\n{heard}");
    }
}

#[test]
fn g05_a_process_on_the_gateways_port_gets_no_admin_token_by_any_command() {
    let (sandbox, fake, token) = killed_gateway_and_fake();
    let mut asked = 0;
    for (words, acts) in COMMANDS {
        let typed = sandbox.run(&[words, &["--url", &fake.url][..]].concat());
        let set = sandbox.run_with(words, &[("GRIPFAST_TOKEN", ELSEWHERE), ("GRIPFAST_URL", &fake.url)]);
        let heard = fake.heard();
        asked += usize::from(!heard.is_empty());
        assert_ignorant(&heard, &token, words);
        for ran in [typed, set] {
            assert!(!acts || ran.code != Some(0), "{words:?}: {ran}");
            assert!(!acts || !heard.contains("POST"), "{words:?} was asked of a stranger:\n{heard}");
        }
    }
    assert!(asked >= COMMANDS.len() - 1, "all of them but `connect` look there: {asked}");
}

#[test]
fn g05_a_config_that_names_another_address_draws_no_secret() {
    let (sandbox, fake, token) = killed_gateway_and_fake();
    let address = fake.url.strip_prefix("http://").unwrap();
    let config = format!("[gateway]\nlisten = {address:?}\n{}", stdio("demo", &[]));
    let sandbox = sandbox.file("gripfast.toml", &config);
    let secrets = [("GRIPFAST_TOKEN", ELSEWHERE), ("GRIPFAST_KEY", ELSEWHERE), ("GRIPFAST_URL", "")];
    let mut asked = 0;
    for (words, acts) in COMMANDS {
        let named = [words, &["--config", "gripfast.toml"][..]].concat();
        for (words, variables) in [(*words, &secrets[2..]), (*words, &secrets), (&named, &secrets[2..])] {
            let ran = sandbox.run_with(words, variables);
            let heard = fake.heard();
            asked += usize::from(!heard.is_empty());
            assert_ignorant(&heard, &token, words);
            // Pins can be approved without a gateway.
            assert!(!acts || words[0] == "pins" || ran.code != Some(0), "{words:?}: {ran}");
        }
    }
    assert!(asked > COMMANDS.len() / 2, "the config was gone by: {asked}");
}

#[test]
fn g05_a_gateway_on_another_machine_is_sent_no_admin_token_in_clear() {
    let (sandbox, fake, token) = killed_gateway_and_fake();
    // The address leads to this machine and is not a loopback address.
    let authority = fake.url.replace("http://127.0.0.1", "0.0.0.0");
    let variables = [("GRIPFAST_TOKEN", ELSEWHERE), ("GRIPFAST_CLEARTEXT", &authority)];
    for (words, acts) in COMMANDS {
        let url = format!("http://{authority}");
        let words = [words, &["--url", &url, "--state-dir", STATE][..]].concat();
        let ran = sandbox.run_with(&words, &variables);
        let heard = fake.heard();
        assert!(!heard.is_empty() || words[0] == "connect", "{words:?}: {ran}");
        assert_ignorant(&heard, &token, &words);
        assert!(!acts || ran.code == Some(6), "{words:?}: {ran}");
    }
}

#[test]
fn the_table_has_every_command_that_takes_a_gateway_address() {
    let mut missing = BTreeSet::new();
    for verb in verbs(&[]) {
        let help = Sandbox::empty().run(&[&verb, "--help"]).stdout;
        let all: Vec<Vec<String>> = match help.contains("\nCommands:\n") {
            true => verbs(&[&verb]).into_iter().map(|inner| vec![verb.clone(), inner]).collect(),
            false => vec![vec![verb.clone()]],
        };
        for words in all {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let help = Sandbox::empty().run(&[&words[..], &["--help"]].concat()).stdout;
            if help.contains("URL of the gateway")
                && !COMMANDS.iter().any(|(known, _)| known.starts_with(&words))
            {
                missing.insert(words.join(" "));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

/// Subcommands after these arguments.
fn verbs(words: &[&str]) -> Vec<String> {
    let help = Sandbox::empty().run(&[words, &["--help"]].concat()).stdout;
    let listed = help.split("\nCommands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.map(|line| line.split_whitespace().next().unwrap().to_owned());
    names.filter(|name| name != "help").collect()
}

//! Device-flow logins at a terminal, completed on another device.

use super::Workspace;
use gripfast_testkit::authority::{Authority, AuthorityOptions, fetch};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::Duration;

async fn authority() -> Authority {
    let device_codes_last = Some(Duration::from_secs(600));
    Authority::start(AuthorityOptions {
        device_code_lifetime: device_codes_last,
        ..AuthorityOptions::default()
    })
    .await
}

/// E04
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e04_a_terminal_shows_a_code_and_is_logged_in_once_it_is_entered() {
    let authority = authority().await;
    let workspace = Workspace::with(&authority);
    let mut command = workspace.gripfast(&["login", "notes", "--device"]);
    let mut login = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut page = String::new();
    BufReader::new(login.stdout.take().unwrap()).read_line(&mut page).unwrap();
    let answer = fetch(page.trim()).await;
    assert!(answer.contains("go back to your device"), "{page}: {answer}");
    let mut said = String::new();
    login.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(login.wait().unwrap().success(), "{said}");
    let (_, code) = page.trim().split_once("user_code=").unwrap();
    assert!(said.contains(code) && said.contains("logged in to `notes`"), "{said}");
    let gateway = workspace.serve();
    workspace.until_state(&gateway, "ready");
    for secret in authority.secrets() {
        assert!(!said.contains(&secret), "{secret} can be seen");
    }
}

/// E04
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e04_without_a_local_browser_the_device_flow_is_offered() {
    let authority = authority().await;
    let workspace = Workspace::with(&authority);
    let mut command = workspace.gripfast(&["login", "notes", "--no-browser"]);
    let mut login = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(login.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut offered = lines.filter(|line| line.starts_with("or open "));
    let offer = offered.next().unwrap();
    let page = offer.split(' ').nth(2).unwrap();
    let code = offer.split(' ').next_back().unwrap();
    fetch(&format!("{page}?user_code={code}")).await;
    // It writes more lines; the pipe has to be drained.
    assert_eq!(offered.count(), 0);
    assert!(login.wait().unwrap().success());
    let gateway = workspace.serve();
    workspace.until_state(&gateway, "ready");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_the_device_flow_names_the_alternative() {
    let authority = Authority::start(AuthorityOptions::default()).await;
    let workspace = Workspace::with(&authority);
    let output = workspace.gripfast(&["login", "notes", "--device"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("gripfast login notes --no-browser"), "{said}");
}

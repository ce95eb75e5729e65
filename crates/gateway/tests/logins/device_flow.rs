//! Logins on another device, as people at a terminal have them.

use super::Desk;
use gripfast_testkit::authority::{Authority, Manners, fetch};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::Duration;

async fn authority() -> Authority {
    let device_codes_last = Some(Duration::from_secs(600));
    Authority::start(Manners { device_codes_last, ..Manners::default() }).await
}

/// E04
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e04_a_terminal_shows_a_code_and_is_logged_in_when_somebody_has_entered_it() {
    let authority = authority().await;
    let desk = Desk::with(&authority);
    let mut command = desk.gripfast(&["login", "notes", "--device"]);
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
    let gateway = desk.serve();
    desk.until_state(&gateway, "ready");
    for secret in authority.secrets() {
        assert!(!said.contains(&secret), "{secret} can be seen");
    }
}

/// E04
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e04_who_has_no_browser_here_is_offered_one_elsewhere() {
    let authority = authority().await;
    let desk = Desk::with(&authority);
    let mut command = desk.gripfast(&["login", "notes", "--no-browser"]);
    let mut login = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(login.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut offered = lines.filter(|line| line.starts_with("or open "));
    let offer = offered.next().unwrap();
    let page = offer.split(' ').nth(2).unwrap();
    let code = offer.split(' ').next_back().unwrap();
    fetch(&format!("{page}?user_code={code}")).await;
    // It goes on talking, and somebody has to listen.
    assert_eq!(offered.count(), 0);
    assert!(login.wait().unwrap().success());
    let gateway = desk.serve();
    desk.until_state(&gateway, "ready");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_codes_says_what_else_there_is() {
    let authority = Authority::start(Manners::default()).await;
    let desk = Desk::with(&authority);
    let output = desk.gripfast(&["login", "notes", "--device"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("gripfast login notes --no-browser"), "{said}");
}

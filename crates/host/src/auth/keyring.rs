//! One entry in the system's keyring, by the program that the system has for it: `secret-tool` where there is a Secret
//! Service, `security` on macOS. A library for this would bring a D-Bus client and some fifty crates.

use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// A keyring that is locked asks its owner to open it, who may not be there.
const WITHIN: Duration = Duration::from_secs(10);
/// Neither a key nor a complaint is longer.
const LONGEST: u64 = 4 << 10;

#[cfg(not(target_os = "macos"))]
const ATTRIBUTES: [&str; 4] = ["application", "gripfast", "kind", "logins"];

/// What is kept there.
pub(super) async fn find() -> io::Result<Option<String>> {
    #[cfg(not(target_os = "macos"))]
    let (program, args) = ("secret-tool", [&["lookup"][..], &ATTRIBUTES].concat());
    #[cfg(target_os = "macos")]
    let (program, args) = ("security", ["find-generic-password", "-s", "gripfast", "-a", "logins", "-w"]);
    let said = ask(program, &args, "").await?;
    // Whether there is none, or it cannot be asked. `security` has a code for the former, `secret-tool` says nothing.
    let none = match said.code {
        Some(44) => cfg!(target_os = "macos"),
        Some(1) => cfg!(not(target_os = "macos")) && said.complaint.is_empty(),
        Some(_) | None => false,
    };
    match said.code {
        Some(0) => Ok(Some(said.text)),
        _ if none && is_locked_away().await? => Err(io::Error::other("the keyring is locked")),
        _ if none => Ok(None),
        _ => Err(complaint(program, &said)),
    }
}

/// Whether the entry is there and cannot be read. `secret-tool lookup` says nothing in that case either, but `search` names
/// what is locked. `security` tells the two apart by itself.
async fn is_locked_away() -> io::Result<bool> {
    #[cfg(not(target_os = "macos"))]
    {
        let program = "secret-tool";
        let said = ask(program, &[&["search"][..], &ATTRIBUTES].concat(), "").await?;
        match (said.code, said.text.is_empty(), said.complaint.is_empty()) {
            (_, false, _) => Ok(true),
            (Some(0), true, true) => Ok(false),
            // It went away between two questions; that says nothing about what it holds.
            (_, true, _) => Err(complaint(program, &said)),
        }
    }
    #[cfg(target_os = "macos")]
    Ok(false)
}

/// Keeps this there. It is told on stdin: what stands on a command line can be seen by others.
pub(super) async fn keep(text: &str) -> io::Result<()> {
    #[cfg(not(target_os = "macos"))]
    let (program, args, told) = (
        "secret-tool",
        [&["store", "--label", "gripfast: logins"][..], &ATTRIBUTES].concat(),
        text.to_owned(),
    );
    #[cfg(target_os = "macos")]
    let (program, args, told) =
        ("security", ["-i"], format!("add-generic-password -s gripfast -a logins -w {text}\n"));
    let said = ask(program, &args, &told).await?;
    if said.code == Some(0) { Ok(()) } else { Err(complaint(program, &said)) }
}

struct Said {
    code: Option<i32>,
    text: String,
    complaint: String,
}

async fn ask(program: &str, args: &[&str], told: &str) -> io::Result<Said> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| {
        io::Error::new(error.kind(), format!("the keyring cannot be asked without `{program}`: {error}"))
    })?;
    let missing = || io::Error::other("a pipe is missing");
    let mut stdin = child.stdin.take().ok_or_else(missing)?;
    let mut stdout = child.stdout.take().ok_or_else(missing)?.take(LONGEST);
    let mut stderr = child.stderr.take().ok_or_else(missing)?.take(LONGEST);
    let asking = async {
        // Who only looks something up may be gone before it was told anything.
        let _ = stdin.write_all(told.as_bytes()).await;
        drop(stdin);
        let (mut text, mut complaint) = (String::new(), String::new());
        tokio::try_join!(stdout.read_to_string(&mut text), stderr.read_to_string(&mut complaint))?;
        let code = child.wait().await?.code();
        let complaint = complaint.trim().to_owned();
        io::Result::Ok(Said { code, text, complaint })
    };
    match tokio::time::timeout(WITHIN, asking).await {
        Ok(said) => said,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the keyring does not answer; is it locked?")),
    }
}

fn complaint(program: &str, said: &Said) -> io::Error {
    io::Error::other(format!("the keyring cannot be used: `{program}` says: {}", said.complaint))
}

//! One entry in the system's keyring, through the system's own program: `secret-tool` where there is a Secret Service,
//! `security` on macOS. A library for this would bring a D-Bus client and some fifty crates.

use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// Time limit: a locked keyring asks its owner to unlock it, who may not be there.
const TOOL_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of the program's output; keys and error messages are shorter.
const MAX_OUTPUT_BYTES: u64 = 4 << 10;

#[cfg(not(target_os = "macos"))]
const ATTRIBUTES: [&str; 4] = ["application", "gripfast", "kind", "logins"];

/// Reads the entry.
pub(super) async fn find() -> io::Result<Option<String>> {
    #[cfg(not(target_os = "macos"))]
    let (program, args) = ("secret-tool", [&["lookup"][..], &ATTRIBUTES].concat());
    #[cfg(target_os = "macos")]
    let (program, args) = ("security", ["find-generic-password", "-s", "gripfast", "-a", "logins", "-w"]);
    let output = run_tool(program, &args, "").await?;
    // Tells a missing entry from a keyring that cannot be read: `security` has a code for the former, `secret-tool`
    // prints nothing.
    let none = match output.code {
        Some(44) => cfg!(target_os = "macos"),
        Some(1) => cfg!(not(target_os = "macos")) && output.stderr.is_empty(),
        Some(_) | None => false,
    };
    match output.code {
        Some(0) => Ok(Some(output.stdout)),
        _ if none && is_locked().await? => Err(io::Error::other("the keyring is locked")),
        _ if none => Ok(None),
        _ => Err(tool_error(program, &output)),
    }
}

/// Returns whether the entry exists and cannot be read. `secret-tool lookup` prints nothing in that case either, but
/// `search` lists locked entries. `security` tells the two apart by itself.
async fn is_locked() -> io::Result<bool> {
    #[cfg(not(target_os = "macos"))]
    {
        let program = "secret-tool";
        let output = run_tool(program, &[&["search"][..], &ATTRIBUTES].concat(), "").await?;
        match (output.code, output.stdout.is_empty(), output.stderr.is_empty()) {
            (_, false, _) => Ok(true),
            (Some(0), true, true) => Ok(false),
            // The keyring went away between two commands; that says nothing about what it holds.
            (_, true, _) => Err(tool_error(program, &output)),
        }
    }
    #[cfg(target_os = "macos")]
    Ok(false)
}

/// Stores the entry. It is passed on stdin, because command lines are visible to other users.
pub(super) async fn store(text: &str) -> io::Result<()> {
    #[cfg(not(target_os = "macos"))]
    let (program, args, input) = (
        "secret-tool",
        [&["store", "--label", "gripfast: logins"][..], &ATTRIBUTES].concat(),
        text.to_owned(),
    );
    #[cfg(target_os = "macos")]
    let (program, args, input) =
        ("security", ["-i"], format!("add-generic-password -s gripfast -a logins -w {text}\n"));
    let output = run_tool(program, &args, &input).await?;
    if output.code == Some(0) { Ok(()) } else { Err(tool_error(program, &output)) }
}

struct KeyringOutput {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

async fn run_tool(program: &str, args: &[&str], input: &str) -> io::Result<KeyringOutput> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("the keyring needs `{program}`, which cannot be started: {error}"),
        )
    })?;
    let missing = || io::Error::other("a pipe is missing");
    let mut stdin = child.stdin.take().ok_or_else(missing)?;
    let mut stdout = child.stdout.take().ok_or_else(missing)?.take(MAX_OUTPUT_BYTES);
    let mut stderr = child.stderr.take().ok_or_else(missing)?.take(MAX_OUTPUT_BYTES);
    let running = async {
        // A lookup may exit before it has read stdin.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let (mut text, mut stderr_text) = (String::new(), String::new());
        tokio::try_join!(stdout.read_to_string(&mut text), stderr.read_to_string(&mut stderr_text))?;
        let code = child.wait().await?.code();
        let stderr_text = stderr_text.trim().to_owned();
        io::Result::Ok(KeyringOutput { code, stdout: text, stderr: stderr_text })
    };
    match tokio::time::timeout(TOOL_TIMEOUT, running).await {
        Ok(output) => output,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the keyring does not answer; is it locked?")),
    }
}

fn tool_error(program: &str, output: &KeyringOutput) -> io::Error {
    io::Error::other(format!("the keyring cannot be used: `{program}` says: {}", output.stderr))
}

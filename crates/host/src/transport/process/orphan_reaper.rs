//! Orphan reaper: ends our child processes when this process is killed.
//!
//! A small watcher process reads a pipe from us, on which we name the process groups that we lead. When the pipe
//! closes, however this process ended, the watcher kills the groups that are left and all processes that carry our tag.
//! It is a shell script of a few lines: it needs no binary of ours, which an embedding program would not have, and no
//! `unsafe`.

use super::{ChildLifetime, lease_watcher};
use crate::sync::Mutex;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Registers one child with the watcher.
#[derive(Debug, Clone)]
pub(super) struct OrphanReaper {
    tag: String,
    lifetime: ChildLifetime,
}

impl OrphanReaper {
    /// Environment variable by which our descendants are recognised in any process group.
    pub(super) const VARIABLE: &'static str = "GRIPFAST_LEASH";

    pub(super) fn new(lifetime: ChildLifetime) -> Self {
        static CHILDREN: AtomicU64 = AtomicU64::new(0);
        let child = CHILDREN.fetch_add(1, Ordering::Relaxed);
        Self { tag: format!("{}.{child}", *RUN_TAG), lifetime }
    }

    pub(super) fn tag(&self) -> &str {
        &self.tag
    }

    pub(super) fn register(&self, leader: u32) {
        WATCHER.lock().register(leader);
        if self.lifetime == ChildLifetime::Lease {
            lease_watcher::register(leader, &self.tag);
        }
    }

    pub(super) fn unregister(&self, leader: u32) {
        WATCHER.lock().unregister(leader);
        if self.lifetime == ChildLifetime::Lease {
            lease_watcher::unregister(leader);
        }
    }
}

/// Tag of this process. Process ids are reused, so it also has a unique number.
static RUN_TAG: LazyLock<String> =
    LazyLock::new(|| format!("{}-{:x}", std::process::id(), crate::clock::unique_number()));

static WATCHER: Mutex<Watcher> = Mutex::new(Watcher { process: None, groups: BTreeSet::new() });

struct Watcher {
    process: Option<Child>,
    groups: BTreeSet<u32>,
}

impl Watcher {
    fn register(&mut self, leader: u32) {
        self.groups.insert(leader);
        if !self.send("+", leader) {
            self.restart();
        }
    }

    fn unregister(&mut self, leader: u32) {
        if self.groups.remove(&leader) {
            // A watcher that has ended has nothing to forget.
            self.send("-", leader);
        }
    }

    fn send(&mut self, sign: &str, leader: u32) -> bool {
        let pipe = self.process.as_mut().and_then(|process| process.stdin.as_mut());
        pipe.is_some_and(|pipe| writeln!(pipe, "{sign} {leader}").is_ok())
    }

    /// Starts the watcher, because it never ran or was killed, and registers all groups again.
    fn restart(&mut self) {
        if let Some(mut gone) = self.process.take() {
            drop(gone.stdin.take());
            let _ = gone.wait();
        }
        match spawn_watcher() {
            Ok(process) => {
                crate::file_limit::restore_for(process.id());
                self.process = Some(process);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot start the orphan reaper: children may outlive a killed gripfast");
                return;
            }
        }
        for leader in self.groups.clone() {
            self.send("+", leader);
        }
    }
}

fn spawn_watcher() -> std::io::Result<Child> {
    spawn_script(SCRIPT, "gripfast-leash", &format!("{}={}.", OrphanReaper::VARIABLE, *RUN_TAG))
}

/// Starts a watcher: a script that reads a pipe from us, with one argument.
#[cfg(unix)]
pub(super) fn spawn_script(script: &str, name: &str, argument: &str) -> std::io::Result<Child> {
    use std::os::unix::process::CommandExt;
    Command::new("/bin/sh")
        .args(["-c", script, name, argument])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        // Not in our group: a Ctrl-C at the terminal must not end it before us.
        .process_group(0)
        .spawn()
}

#[cfg(not(unix))]
pub(super) fn spawn_script(_: &str, _: &str, _: &str) -> std::io::Result<Child> {
    Err(std::io::Error::from(std::io::ErrorKind::Unsupported))
}

/// Reads `+ GROUP` and `- GROUP` until the pipe closes, then kills the remaining groups and the tagged processes. Not
/// `kill -KILL -- -GROUP`: dash takes `--` for a process id.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
groups=
while read -r sign group; do
    case $sign in
    +) groups="$groups $group" ;;
    -)
        kept=
        for one in $groups; do [ "$one" = "$group" ] || kept="$kept $one"; done
        groups=$kept
        ;;
    esac
done
[ -n "$groups" ] || exit 0
for group in $groups; do kill -s KILL -- "-$group"; done
for environ in /proc/[0-9]*/environ; do
    if tr '\0' '\n' <"$environ" | grep -qF "$1"; then
        pid=${environ#/proc/}
        kill -KILL "${pid%/environ}"
    fi
done
"#;

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};

    #[test]
    fn a_group_without_our_tag_ends_with_the_pipe() {
        let mut child = Command::new("/bin/sh");
        child.args(["-c", "sleep 60; true"]).env_clear().process_group(0).stdin(Stdio::null());
        let mut child = child.spawn().unwrap();
        let mut watcher = spawn_script(SCRIPT, "gripfast-leash", "GRIPFAST_LEASH=of-another-test.").unwrap();
        writeln!(watcher.stdin.as_mut().unwrap(), "+ {}", child.id()).unwrap();
        drop(watcher.stdin.take());
        watcher.wait().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}

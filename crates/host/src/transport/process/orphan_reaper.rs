//! The leash: what ends our children when we are killed and can do nothing any more.
//!
//! One small watcher process reads a pipe from us. We tell it which groups we lead. When the pipe closes,
//! because we ended in whatever way, it kills the groups that are left, and whoever carries our tag. The
//! watcher is a shell script of a few lines: it needs no binary of ours, which an embedding program would
//! not have, and no `unsafe`.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Ties one child to our life.
#[derive(Debug, Clone)]
pub(super) struct Leash {
    tag: String,
}

impl Leash {
    /// The variable by which our descendants are known, wherever they went.
    pub(super) const VARIABLE: &'static str = "GRIPFAST_LEASH";

    pub(super) fn new() -> Self {
        static CHILDREN: AtomicU64 = AtomicU64::new(0);
        let child = CHILDREN.fetch_add(1, Ordering::Relaxed);
        Self { tag: format!("{}.{child}", *OUR_TAG) }
    }

    pub(super) fn tag(&self) -> &str {
        &self.tag
    }

    pub(super) fn tie(&self, leader: u32) {
        WATCHER.lock().unwrap_or_else(PoisonError::into_inner).tie(leader);
    }

    pub(super) fn untie(&self, leader: u32) {
        WATCHER.lock().unwrap_or_else(PoisonError::into_inner).untie(leader);
    }
}

/// Process ids are used again; the time makes the tag ours alone.
static OUR_TAG: LazyLock<String> =
    LazyLock::new(|| format!("{}-{:x}", std::process::id(), crate::clock::unique_number()));

static WATCHER: Mutex<Watcher> = Mutex::new(Watcher { process: None, groups: BTreeSet::new() });

struct Watcher {
    process: Option<Child>,
    groups: BTreeSet<u32>,
}

impl Watcher {
    fn tie(&mut self, leader: u32) {
        self.groups.insert(leader);
        if !self.say("+", leader) {
            self.restart();
        }
    }

    fn untie(&mut self, leader: u32) {
        if self.groups.remove(&leader) {
            // A watcher that is gone has nothing to forget.
            self.say("-", leader);
        }
    }

    fn say(&mut self, sign: &str, leader: u32) -> bool {
        let pipe = self.process.as_mut().and_then(|process| process.stdin.as_mut());
        pipe.is_some_and(|pipe| writeln!(pipe, "{sign} {leader}").is_ok())
    }

    /// The watcher was never started, or somebody killed it: a new one learns everything anew.
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
                tracing::warn!(%error, "no watcher could be started: children may outlive a killed gripfast");
                return;
            }
        }
        for leader in self.groups.clone() {
            self.say("+", leader);
        }
    }
}

#[cfg(unix)]
fn spawn_watcher() -> std::io::Result<Child> {
    use std::os::unix::process::CommandExt;
    Command::new("/bin/sh")
        .args(["-c", SCRIPT, "gripfast-leash", &format!("{}={}.", Leash::VARIABLE, *OUR_TAG)])
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
fn spawn_watcher() -> std::io::Result<Child> {
    Err(std::io::Error::from(std::io::ErrorKind::Unsupported))
}

/// Reads `+ GROUP` and `- GROUP` until the pipe closes, then kills what is left.
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
for group in $groups; do kill -KILL -- "-$group"; done
for environ in /proc/[0-9]*/environ; do
    if tr '\0' '\n' <"$environ" | grep -qF "$1"; then
        pid=${environ#/proc/}
        kill -KILL "${pid%/environ}"
    fi
done
"#;

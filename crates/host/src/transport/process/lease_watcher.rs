//! Lease watcher: kills the children of singleton servers when their lease is not renewed in time, also if this process
//! is stopped (SIGSTOP) and can kill nothing.
//!
//! It is a shell script, as the orphan reaper is. This process names the children and, after each renewal, the time at
//! which the leases end. `read` has no time limit in a plain shell, so a part of the script writes a line when a time is
//! over. Both sides read the same clock: `/proc/uptime`, which goes on while the machine sleeps, or the wall clock on a
//! system without that file.

use super::orphan_reaper::{OrphanReaper, spawn_script};
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::Child;
use std::time::Duration;

static WATCHER: Mutex<LeaseWatcher> =
    Mutex::new(LeaseWatcher { process: None, children: BTreeMap::new(), ends: 0 });

struct LeaseWatcher {
    process: Option<Child>,
    /// The tag of each child, by its process group.
    children: BTreeMap<u32, String>,
    /// End of the leases, in hundredths of a second of the watcher's clock.
    ends: u64,
}

/// Registers a child. It is killed when the leases end.
pub(super) fn register(leader: u32, tag: &str) {
    let mut watcher = WATCHER.lock();
    watcher.children.insert(leader, tag.to_owned());
    // With the end: the watcher was not told about renewals while there were no children, and would kill this one.
    let lines = watcher.renewal() + &child_line(leader, tag);
    if watcher.process.is_none() || !watcher.send(&lines) {
        watcher.restart();
    }
}

/// Forgets a child that has ended.
pub(super) fn unregister(leader: u32) {
    let mut watcher = WATCHER.lock();
    if watcher.children.remove(&leader).is_some() {
        // A watcher that has ended has nothing to forget.
        watcher.send(&format!("- {leader}\n"));
    }
}

/// Time that this process has to stop the children itself, out of the margin before the store forgets a lease. A child
/// that the watcher kills first looks like a crash, and is started once more.
const OWN_TIME: Duration = Duration::from_millis(300);

/// Lets the children of singleton servers live as long as `left` says, and a moment longer. The clock is read first: a
/// pause of this process between the two makes the end earlier, never later.
pub(crate) fn renew_child_leases(left: &dyn Fn() -> Duration) {
    let now = watcher_clock();
    let ends = now + u64::try_from((left() + OWN_TIME).as_millis() / 10).unwrap_or_default();
    let mut watcher = WATCHER.lock();
    watcher.ends = ends;
    // Without children there is nothing to kill. The next one gets the time when it is registered.
    if !watcher.children.is_empty() && !watcher.send(&renewal_line(ends, ends - now)) {
        watcher.restart();
    }
}

/// The watcher's clock, in hundredths of a second.
fn watcher_clock() -> u64 {
    let uptime = std::fs::read_to_string("/proc/uptime");
    let uptime = uptime.ok().and_then(|text| text.split(' ').next()?.replace('.', "").parse().ok());
    uptime.unwrap_or_else(|| u64::try_from(crate::clock::unix_time().as_millis() / 10).unwrap_or_default())
}

impl LeaseWatcher {
    /// Writes a line at once: parts of two lines would mix.
    fn send(&mut self, line: &str) -> bool {
        let pipe = self.process.as_mut().and_then(|process| process.stdin.as_mut());
        pipe.is_some_and(|pipe| pipe.write_all(line.as_bytes()).is_ok())
    }

    /// The line with the present end.
    fn renewal(&self) -> String {
        renewal_line(self.ends, self.ends.saturating_sub(watcher_clock()))
    }

    /// Starts the watcher, because it never ran or was killed, and registers all children again.
    fn restart(&mut self) {
        if let Some(mut gone) = self.process.take() {
            drop(gone.stdin.take());
            let _ = gone.wait();
        }
        let variable = format!("{}=", OrphanReaper::VARIABLE);
        match spawn_script(SCRIPT, "gripfast-lease", &variable) {
            Ok(process) => {
                crate::file_limit::restore_for(process.id());
                self.process = Some(process);
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    "cannot start the lease watcher: a singleton server may outlive its lease if gripfast is stopped"
                );
                return;
            }
        }
        let renewal = self.renewal();
        self.send(&renewal);
        for (leader, tag) in self.children.clone() {
            self.send(&child_line(leader, &tag));
        }
    }
}

fn child_line(leader: u32, tag: &str) -> String {
    format!("+ {leader} {tag}\n")
}

/// The end of the leases, and the time until then in the form that `sleep` takes.
fn renewal_line(ends: u64, left: u64) -> String {
    format!("= {ends} {}.{:02}\n", left / 100, left % 100)
}

/// The first part passes lines on, and writes `t` each second and when a lease may have ended. The second part keeps
/// the children and the end, and kills when it has come. `q` follows the last line: the orphan reaper acts then.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
{
    while :; do sleep 1; echo t; done &
    while read -r sign first second; do
        echo "$sign $first $second"
        case $sign in =) { sleep "$second" || sleep "${second%.*}"; echo t; } & ;; esac
    done
    echo q
} 2>/dev/null | {
    uptime() {
        if read -r now rest </proc/uptime; then now=${now%.*}${now#*.}; else now=$(date +%s)99; fi 2>/dev/null
    }
    children=
    end=0
    while read -r sign first second; do
        case $sign in
        +) children="$children $first/$second" ;;
        -)
            kept=
            for one in $children; do [ "${one%%/*}" = "$first" ] || kept="$kept $one"; done
            children=$kept
            ;;
        =) end=$first ;;
        q) kill -KILL 0 ;;
        esac
        uptime
        [ -n "$children" ] && [ "$now" -ge "$end" ] || continue
        for one in $children; do kill -s KILL -- "-${one%%/*}"; done 2>/dev/null
        for one in $children; do
            for environ in /proc/[0-9]*/environ; do
                if tr '\0' '\n' <"$environ" | grep -qxF "$1${one#*/}"; then
                    pid=${environ#/proc/}
                    kill -KILL "${pid%/environ}"
                fi
            done
        done 2>/dev/null
        children=
    done
    kill -KILL 0
}
"#;

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    /// A child in a group of its own, and a watcher that knows it.
    fn watched() -> (Child, Child) {
        let mut child = Command::new("/bin/sh");
        child.args(["-c", "sleep 60; true"]).process_group(0).stdin(Stdio::null());
        let child = child.spawn().unwrap();
        let watcher = spawn_script(SCRIPT, "gripfast-lease", "GRIPFAST_LEASH=").unwrap();
        (child, watcher)
    }

    fn write(watcher: &mut Child, line: &str) {
        watcher.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    #[test]
    fn a_child_is_killed_when_its_lease_is_not_renewed_in_time() {
        use std::os::unix::process::ExitStatusExt;
        let (mut child, mut watcher) = watched();
        let begun = Instant::now();
        let now = watcher_clock();
        write(&mut watcher, &renewal_line(now + 30, 30));
        write(&mut watcher, &child_line(child.id(), "none"));
        write(&mut watcher, &renewal_line(now + 170, 170));
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(1_650), "the renewal counts: {took:?}");
        drop(watcher.stdin.take());
        watcher.wait().unwrap();
    }

    #[test]
    fn a_child_that_has_ended_is_not_killed_and_the_watcher_ends_with_its_pipe() {
        let (mut child, mut watcher) = watched();
        let ends = watcher_clock() + 6_000;
        write(&mut watcher, &renewal_line(ends, 6_000));
        write(&mut watcher, &child_line(child.id(), "none"));
        write(&mut watcher, &format!("- {}\n", child.id()));
        write(&mut watcher, &renewal_line(0, 0));
        drop(watcher.stdin.take());
        watcher.wait().unwrap();
        assert!(child.try_wait().unwrap().is_none(), "its number may belong to another process by now");
        super::super::os::kill_group(child.id());
        child.wait().unwrap();
    }
}

//! A program that is run for what it says on stdout. It has a limit for all it does: when that is over it has ended, and
//! with it everything that it started in its process group.

use std::io::{self, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// What the program says until it ends, which it has to within this time. What it leaves running behind, such as the
/// agent of a password manager, is not waited for, even if it still has our pipe.
///
/// # Errors
/// It cannot be run, fails, takes too long, or says more than this or what is not text.
pub(super) fn output(mut command: Command, within: Duration, most: u64) -> io::Result<String> {
    command.stdout(Stdio::piped());
    lead_own_group(&mut command);
    let mut running = Running(command.spawn()?);
    crate::file_limit::restore_for(running.0.id());
    let mut stdout = running.0.stdout.take().ok_or_else(|| io::Error::other("it has no stdout"))?;
    never_wait_for(&stdout)?;
    let mut said = Vec::new();
    let mut waited = Duration::ZERO;
    let status = loop {
        // Asked first: of one that has ended everything is there to be read.
        let ended = running.0.try_wait()?;
        hear(&mut stdout, &mut said, most, ended.is_some())?;
        match ended {
            Some(status) => break status,
            None if waited >= within => {
                return Err(io::Error::other(format!("it did not end within {} s", within.as_secs())));
            }
            None => {}
        }
        let pause = (waited / 4).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        std::thread::sleep(pause);
        waited += pause;
    };
    if !status.success() {
        return Err(io::Error::other(status.to_string()));
    }
    String::from_utf8(said).map_err(|_| io::Error::other("what it says is not text"))
}

/// Most programs take some milliseconds, and a dial waits for them.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Takes in what there is to be read.
fn hear(stdout: &mut ChildStdout, said: &mut Vec<u8>, most: u64, ended: bool) -> io::Result<()> {
    if !(cfg!(unix) || ended) {
        return Ok(());
    }
    let room = (most + 1).saturating_sub(said.len() as u64);
    match stdout.take(room).read_to_end(said) {
        Ok(_) => {}
        // What was read before stays read.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    if said.len() as u64 > most {
        return Err(io::Error::other(format!("it says more than {most} bytes")));
    }
    Ok(())
}

/// A program that was started. Whoever drops it before it has ended ends it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        kill_group(self.0.id());
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(unix)]
fn lead_own_group(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

#[cfg(unix)]
fn never_wait_for(stdout: &ChildStdout) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(stdout, true)?)
}

#[cfg(unix)]
fn kill_group(leader: u32) {
    use rustix::process::{Pid, Signal, kill_process_group};
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // No such group any more is what we want.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Systems without process groups: the program itself is ended with its handle.
#[cfg(not(unix))]
fn lead_own_group(_command: &mut Command) {}

/// Systems whose pipes always wait: they are read when the program has ended, so it may say what fits into one.
#[cfg(not(unix))]
fn never_wait_for(_stdout: &ChildStdout) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn kill_group(_leader: u32) {}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use rustix::process::{Pid, test_kill_process};
    use std::io::{PipeReader, PipeWriter, Write};

    const AT_ONCE: Duration = Duration::from_millis(50);
    const STUCK: Duration = Duration::from_secs(60);

    /// What comes of a script, a pipe that it reads, and one that ends when nothing of it is left.
    fn run(script: &str, within: Duration, most: u64) -> (io::Result<String>, PipeWriter, PipeReader) {
        let [(stdin, told), (left, stderr)] = [(); 2].map(|()| io::pipe().expect("there are pipes"));
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(stdin).stderr(stderr);
        (output(command, within, most), told, left)
    }

    fn wording(outcome: io::Result<String>) -> String {
        outcome.expect_err("it is of no use").to_string()
    }

    /// B08, G06
    #[test]
    fn b08_a_program_that_closes_its_stdout_and_stays_is_ended_with_all_it_started() {
        for script in ["exec >&-; sleep 1000", "sleep 1000 & exec >&-; wait", "sleep 1000 & wait"] {
            let (outcome, _told, mut left) = run(script, AT_ONCE, 100);
            assert_eq!(wording(outcome), "it did not end within 0 s", "{script}");
            assert_eq!(io::read_to_string(&mut left).unwrap(), "", "nothing of it is left");
        }
    }

    #[test]
    fn g06_a_program_whose_words_are_of_no_use_is_not_left_behind() {
        for (script, why) in [
            (r"echo $$ >&2; printf '\377'", "what it says is not text"),
            ("echo $$ >&2; exec yes", "it says more than 100 bytes"),
            ("echo $$ >&2; exit 3", "exit status: 3"),
        ] {
            let (outcome, _told, mut left) = run(script, STUCK, 100);
            assert_eq!(wording(outcome), why);
            let pid: i32 = io::read_to_string(&mut left).unwrap().trim().parse().unwrap();
            assert!(test_kill_process(Pid::from_raw(pid).unwrap()).is_err(), "not even a zombie: {script}");
        }
    }

    #[test]
    fn what_a_program_leaves_running_is_neither_waited_for_nor_ended() {
        let script = "exec 3<&0; (read line <&3; echo $line >&2) & echo secret";
        let (outcome, mut told, mut left) = run(script, STUCK, 100);
        assert_eq!(outcome.unwrap(), "secret\n");
        told.write_all(b"still here\n").unwrap();
        assert_eq!(io::read_to_string(&mut left).unwrap(), "still here\n");
    }

    #[test]
    fn much_is_heard_to_the_last_byte() {
        let (outcome, ..) = run("head -c 300000 /dev/zero | tr '\\0' x", STUCK, 300_000);
        assert_eq!(outcome.unwrap().len(), 300_000);
    }
}

//! Runs a program for its output on stdout, within a time limit. When the limit is over, the program and everything it
//! started in its process group are killed.

use std::io::{self, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Runs the program and returns its output. Processes that it leaves running, such as the agent of a password manager,
/// are not waited for, even if they still hold the pipe.
///
/// # Errors
/// The program cannot be run, fails, does not end in time, or writes more than `most` bytes or something that is not
/// UTF-8.
pub(super) fn output(mut command: Command, within: Duration, most: u64) -> io::Result<String> {
    command.stdout(Stdio::piped());
    start_process_group(&mut command);
    let mut running = KillOnDrop(command.spawn()?);
    crate::file_limit::restore_for(running.0.id());
    let mut stdout = running.0.stdout.take().ok_or_else(|| io::Error::other("it has no stdout"))?;
    set_nonblocking(&stdout)?;
    let mut output_bytes = Vec::new();
    let mut waited = Duration::ZERO;
    let status = loop {
        // Checked before reading: once the program has ended, all of its output can be read.
        let ended = running.0.try_wait()?;
        read_available(&mut stdout, &mut output_bytes, most, ended.is_some())?;
        match ended {
            Some(status) => break status,
            None if waited >= within => {
                return Err(io::Error::other(format!("it did not end within {} s", within.as_secs())));
            }
            None => {}
        }
        let pause = (waited / 4).clamp(MIN_PAUSE, MAX_PAUSE);
        std::thread::sleep(pause);
        waited += pause;
    };
    if !status.success() {
        return Err(io::Error::other(status.to_string()));
    }
    String::from_utf8(output_bytes).map_err(|_| io::Error::other("its output is not UTF-8 text"))
}

/// Most programs take some milliseconds, and a connection attempt waits for them.
const MIN_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(20);

/// Reads the output that is available.
fn read_available(
    stdout: &mut ChildStdout,
    output_bytes: &mut Vec<u8>,
    most: u64,
    ended: bool,
) -> io::Result<()> {
    if !(cfg!(unix) || ended) {
        return Ok(());
    }
    let room = (most + 1).saturating_sub(output_bytes.len() as u64);
    match stdout.take(room).read_to_end(output_bytes) {
        Ok(_) => {}
        // Bytes that were read before the error are kept.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    if output_bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it writes more than {most} bytes")));
    }
    Ok(())
}

/// A child process that is killed with its process group on drop, unless it has ended.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
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
fn start_process_group(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

#[cfg(unix)]
fn set_nonblocking(stdout: &ChildStdout) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(stdout, true)?)
}

#[cfg(unix)]
fn kill_group(leader: u32) {
    use rustix::process::{Pid, Signal, kill_process_group};
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // An error means that the group is gone, which is the goal.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Without process groups only the program itself is killed, by its handle.
#[cfg(not(unix))]
fn start_process_group(_command: &mut Command) {}

/// Without non-blocking pipes the output is read after the program has ended, so it must fit into one pipe buffer.
#[cfg(not(unix))]
fn set_nonblocking(_stdout: &ChildStdout) -> io::Result<()> {
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

    /// The result of a script, a pipe that it reads, and a pipe that closes when none of its processes is alive.
    fn run(script: &str, within: Duration, most: u64) -> (io::Result<String>, PipeWriter, PipeReader) {
        let [(stdin, input), (alive, stderr)] = [(); 2].map(|()| io::pipe().expect("there are pipes"));
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(stdin).stderr(stderr);
        (output(command, within, most), input, alive)
    }

    fn wording(outcome: io::Result<String>) -> String {
        outcome.expect_err("the program fails").to_string()
    }

    /// B08, G06
    #[test]
    fn b08_a_program_that_outlives_its_limit_is_killed_with_its_process_group() {
        for script in ["exec >&-; sleep 1000", "sleep 1000 & exec >&-; wait", "sleep 1000 & wait"] {
            let (outcome, _input, mut alive) = run(script, AT_ONCE, 100);
            assert_eq!(wording(outcome), "it did not end within 0 s", "{script}");
            assert_eq!(io::read_to_string(&mut alive).unwrap(), "", "nothing of it is alive");
        }
    }

    #[test]
    fn g06_a_program_with_unusable_output_is_not_left_behind() {
        for (script, why) in [
            (r"echo $$ >&2; printf '\377'", "its output is not UTF-8 text"),
            ("echo $$ >&2; exec yes", "it writes more than 100 bytes"),
            ("echo $$ >&2; exit 3", "exit status: 3"),
        ] {
            let (outcome, _input, mut alive) = run(script, STUCK, 100);
            assert_eq!(wording(outcome), why);
            let pid: i32 = io::read_to_string(&mut alive).unwrap().trim().parse().unwrap();
            assert!(test_kill_process(Pid::from_raw(pid).unwrap()).is_err(), "not even a zombie: {script}");
        }
    }

    #[test]
    fn a_background_process_of_the_program_is_neither_awaited_nor_killed() {
        let script = "exec 3<&0; (read line <&3; echo $line >&2) & echo secret";
        let (outcome, mut input, mut alive) = run(script, STUCK, 100);
        assert_eq!(outcome.unwrap(), "secret\n");
        input.write_all(b"still here\n").unwrap();
        assert_eq!(io::read_to_string(&mut alive).unwrap(), "still here\n");
    }

    #[test]
    fn large_output_is_read_to_the_last_byte() {
        let (outcome, ..) = run("head -c 300000 /dev/zero | tr '\\0' x", STUCK, 300_000);
        assert_eq!(outcome.unwrap().len(), 300_000);
    }
}

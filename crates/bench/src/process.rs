//! Child processes: started, and stopped on drop.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use gripfast_measure::{MeasureError, Result, proc};
use rustix::process::Signal;

/// A child process. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    what: &'static str,
}

impl Process {
    pub(crate) fn start(what: &'static str, command: &mut Command) -> Result<Self> {
        proc::without_proxies(command);
        let child = command.spawn().map_err(|error| MeasureError::new(what, &error))?;
        Ok(Self { child, what })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// First line of its stdout, which must be piped.
    pub(crate) fn first_line(&mut self) -> Result<String> {
        let stdout =
            self.child.stdout.take().ok_or_else(|| MeasureError::new(self.what, &"stdout is not piped"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if line.is_empty() {
            Err(MeasureError::new(self.what, &"the process exited without output"))
        } else {
            Ok(line)
        }
    }

    /// Pipes of a stdio server.
    pub(crate) fn pipes(&mut self) -> Result<(std::process::ChildStdin, std::process::ChildStdout)> {
        let pipes = self.child.stdin.take().zip(self.child.stdout.take());
        pipes.ok_or_else(|| MeasureError::new(self.what, &"stdin and stdout are not piped"))
    }

    /// Asks the process to exit and waits for it.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.end()
    }

    /// Same as [`Self::stop`], by reference.
    pub(crate) fn end(&mut self) -> Result<()> {
        // It may have ended already.
        let _ = proc::signal(self.pid(), Signal::TERM);
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sets stdin and stdout to pipes.
pub(crate) fn piped(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::piped()).stdout(Stdio::piped())
}

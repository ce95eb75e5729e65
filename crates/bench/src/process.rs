//! Child processes: started, measured through `/proc`, and stopped on drop.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{BenchError, Result};

/// A child process. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    what: &'static str,
}

impl Process {
    pub(crate) fn start(what: &'static str, command: &mut Command) -> Result<Self> {
        // A proxy from the environment would stand between the gateway and its servers on loopback.
        for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(proxy);
        }
        let child = command.spawn().map_err(|error| BenchError::new(what, &error))?;
        Ok(Self { child, what })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// First line of its stdout, which must be piped.
    pub(crate) fn first_line(&mut self) -> Result<String> {
        let stdout =
            self.child.stdout.take().ok_or_else(|| BenchError::new(self.what, &"stdout is not piped"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if line.is_empty() {
            Err(BenchError::new(self.what, &"the process exited without output"))
        } else {
            Ok(line)
        }
    }

    /// Pipes of a stdio server.
    pub(crate) fn pipes(&mut self) -> Result<(std::process::ChildStdin, std::process::ChildStdout)> {
        let pipes = self.child.stdin.take().zip(self.child.stdout.take());
        pipes.ok_or_else(|| BenchError::new(self.what, &"stdin and stdout are not piped"))
    }

    /// Asks the process to exit and waits for it.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.end()
    }

    /// Same as [`Self::stop`], by reference.
    pub(crate) fn end(&mut self) -> Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
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

/// CPU time of all threads of these processes.
pub(crate) fn cpu_time(pids: &[u32]) -> Duration {
    let of_thread = |path: std::path::PathBuf| {
        let text = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ')
            .next()
            .and_then(|nanos| nanos.parse().ok())
            .map_or(Duration::ZERO, Duration::from_nanos)
    };
    let of_process = |pid: &u32| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        threads.map(|thread| of_thread(thread.path())).sum::<Duration>()
    };
    pids.iter().map(of_process).sum()
}

/// Resident memory of these processes, in bytes.
pub(crate) fn resident_memory(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
    };
    pids.iter().map(of).sum()
}

/// Child processes of a process.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        after_name.split(' ').nth(1).and_then(|parent| parent.parse().ok()) == Some(parent)
    };
    pids.filter(is_child).collect()
}

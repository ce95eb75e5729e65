//! Processes that tests have started and not ended. They are found by a variable of their environment, on systems with
//! `/proc`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Variable that all processes of a test run inherit. Its value names the run.
pub(super) const VARIABLE: &str = "GRIPFAST_TEST_RUN";
/// Time for processes to exit after the last test.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The processes of a run that do not exit, each as a line with its id, command line and test.
pub(super) fn after_run(run: &str) -> Vec<String> {
    let began = Instant::now();
    loop {
        let left = processes(run);
        if left.is_empty() || began.elapsed() > EXIT_TIMEOUT {
            return left;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn processes(run: &str) -> Vec<String> {
    let mark = format!("{VARIABLE}={run}");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_run = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
        let words = |file: &str| {
            let text = fs::read(entry.path().join(file)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            text.split_terminator('\0').map(str::to_owned).collect::<Vec<_>>()
        };
        let environment = words("environ");
        environment.contains(&mark).then(|| {
            let test = environment.iter().find_map(|word| word.strip_prefix("NEXTEST_ATTEMPT_ID="));
            format!("{pid} {} (test {})", words("cmdline").join(" "), test.unwrap_or("unknown"))
        })
    });
    of_run.collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_of_the_run_is_named_until_it_ends() {
        let run = format!("of-test-{}", std::process::id());
        let mut command = Command::new("cat");
        command.arg("-").env(VARIABLE, &run).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The kernel shows the environment of a process some time after `spawn` has returned. A process that answers
        // has its environment.
        child.stdin.as_mut().unwrap().write_all(b"a").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let found = processes(&run);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("cat -"), "{found:?}");
        assert_eq!(after_run(&run), [""; 0]);
    }
}

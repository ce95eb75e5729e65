//! Environment of a measurement: command, machine, load and date, for the header of generated pages.

use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

/// Environment of a run.
#[derive(Debug, Serialize)]
pub struct Place {
    /// Command that repeats the run.
    pub command: String,
    /// Processors, memory and system.
    pub machine: String,
    /// Load average before the run.
    pub load: String,
    /// Start date in UTC.
    pub date: String,
}

impl Place {
    /// Detects the current environment. `program` is the command as a person types it; `private` lists options whose
    /// values are local paths and are left out.
    #[must_use]
    pub fn detect(program: &str, private: &[&str]) -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            command: command(program, private, std::env::args().skip(1)),
            machine: machine(),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
            date: today(),
        }
    }
}

/// Formats the command line as a person would type it.
fn command(program: &str, private: &[&str], mut args: impl Iterator<Item = String>) -> String {
    let mut words = vec![program.to_owned()];
    while let Some(arg) = args.next() {
        match arg.as_str() {
            word if private.contains(&word) => drop(args.next()),
            word if word.contains(' ') => words.push(format!("'{word}'")),
            word => words.push(word.to_owned()),
        }
    }
    words.join(" ")
}

fn machine() -> String {
    let of = |file: &str, key: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        line.trim_start_matches([':', ' ', '\t']).trim().to_owned()
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = of("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0) / (1 << 20);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let model = of("/proc/cpuinfo", "model name");
    let model = if model.is_empty() { "unnamed".to_owned() } else { model };
    format!("{processors} processors ({model}), {memory} GiB, Linux {}", kernel.trim())
}

fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    date(seconds / 86_400)
}

/// Date in UTC of this many days after 1970-01-01.
fn date(days: u64) -> String {
    let is_leap =
        |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        let dates = [0, 58, 59, 11_016, 11_017, 20_000, 20_453].map(date);
        let known = [
            "1970-01-01",
            "1970-02-28",
            "1970-03-01",
            "2000-02-29",
            "2000-03-01",
            "2024-10-04",
            "2025-12-31",
        ];
        assert_eq!(dates, known);
    }

    #[test]
    fn the_command_has_no_local_paths() {
        let args =
            ["--gripfast", "/somewhere/gripfast", "--seed", "7", "--against", "a b", "--write", "x.md"];
        let private = ["--gripfast", "--write"];
        let command = command("cargo xtask chaos", &private, args.into_iter().map(str::to_owned));
        assert_eq!(command, "cargo xtask chaos --seed 7 --against 'a b'");
    }
}

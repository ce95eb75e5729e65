//! Where references in a config get their values from. The config never reads the environment by itself:
//! whoever expands a template brings a [`Lookup`], the real one or a test's own.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The outside world as far as a config may refer to it.
pub trait Lookup {
    /// The value of an environment variable; `None` when it is not set.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// The names of all environment variables that are set; none where that is not to be known.
    fn variables(&self) -> Vec<String> {
        Vec::new()
    }

    /// The text of a small file, such as a mounted secret.
    ///
    /// # Errors
    /// Whatever keeps the file from being read as text.
    fn file(&self, path: &Path) -> io::Result<String>;

    /// What a program writes to stdout.
    ///
    /// # Errors
    /// It cannot be run, fails, takes too long or says too much; or programs are not run here.
    fn command(&self, line: &str) -> io::Result<String> {
        let _ = line;
        Err(io::Error::other("programs are not run here"))
    }
}

/// The environment and the files of this process, read at the moment of asking.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnvironment;

impl ProcessEnvironment {
    /// A secret is a few lines. The limit keeps `${file:/dev/zero}` from filling the memory.
    pub const LARGEST_FILE: u64 = 1 << 20;

    /// A password manager that wants more time wants a person.
    pub const COMMAND_WITHIN: Duration = Duration::from_secs(10);
}

impl Lookup for ProcessEnvironment {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn variables(&self) -> Vec<String> {
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        std::fs::File::open(path)?.take(Self::LARGEST_FILE + 1).read_to_string(&mut text)?;
        if text.len() as u64 > Self::LARGEST_FILE {
            return Err(io::Error::other(format!("larger than {} bytes", Self::LARGEST_FILE)));
        }
        Ok(text)
    }

    /// Waits until it has ended, or its time is up: not for a task that shares its thread with others.
    fn command(&self, line: &str) -> io::Result<String> {
        let mut words = line.split_whitespace();
        let program = words.next().ok_or_else(|| io::Error::other("no program is named"))?;
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stderr(Stdio::null());
        super::program::output(command, Self::COMMAND_WITHIN, Self::LARGEST_FILE)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_program_brings_a_value_and_one_that_fails_says_nothing_of_it() {
        let world = ProcessEnvironment;
        assert_eq!(world.command("printf %s secret").unwrap(), "secret");
        assert_eq!(world.command("false").unwrap_err().to_string(), "exit status: 1");
        assert!(world.command("no-such-program-at-all").is_err());
        assert!(world.command("   ").is_err());
    }
}

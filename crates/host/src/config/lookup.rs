//! Source of the values that references in a config expand to. The config never reads the environment by itself: the
//! caller that expands a template provides a [`Lookup`], the real one or one of a test.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Environment variables, files and programs that a config may refer to.
pub trait Lookup {
    /// The value of an environment variable; `None` if it is not set.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// The names of all environment variables that are set; empty if the lookup does not list them.
    fn variables(&self) -> Vec<String> {
        Vec::new()
    }

    /// The text of a small file, such as a mounted secret.
    ///
    /// # Errors
    /// The file cannot be read as text.
    fn file(&self, path: &Path) -> io::Result<String>;

    /// The output of a program on stdout.
    ///
    /// # Errors
    /// The program cannot be run, fails, takes too long or writes too much; or this lookup runs no programs.
    fn command(&self, line: &str) -> io::Result<String> {
        let _ = line;
        Err(io::Error::other("programs are not run here"))
    }
}

/// The environment and the files of this process, read at the time of each call.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnvironment;

impl ProcessEnvironment {
    /// Largest file or output, in bytes. A secret is a few lines; the limit keeps `${file:/dev/zero}` from filling the
    /// memory.
    pub const MAX_FILE_BYTES: u64 = 1 << 20;

    /// Time limit for a program. A password manager that needs longer is waiting for a person.
    pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
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
        std::fs::File::open(path)?.take(Self::MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
        if text.len() as u64 > Self::MAX_FILE_BYTES {
            return Err(io::Error::other(format!("larger than {} bytes", Self::MAX_FILE_BYTES)));
        }
        Ok(text)
    }

    /// Blocks the thread until the program has ended or its time limit is over: do not call it on an async worker.
    fn command(&self, line: &str) -> io::Result<String> {
        let mut words = line.split_whitespace();
        let program = words.next().ok_or_else(|| io::Error::other("no program is named"))?;
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stderr(Stdio::null());
        super::program::output(command, Self::COMMAND_TIMEOUT, Self::MAX_FILE_BYTES)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_program_provides_the_value_and_a_failing_one_gives_an_error() {
        let world = ProcessEnvironment;
        assert_eq!(world.command("printf %s secret").unwrap(), "secret");
        assert_eq!(world.command("false").unwrap_err().to_string(), "exit status: 1");
        assert!(world.command("no-such-program-at-all").is_err());
        assert!(world.command("   ").is_err());
    }
}

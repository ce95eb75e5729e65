//! Where references in a config get their values from. The config never reads the environment by itself:
//! whoever expands a template brings a [`Lookup`], the real one or a test's own.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;

/// The outside world as far as a config may refer to it.
pub trait Lookup {
    /// The value of an environment variable; `None` when it is not set.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// The text of a small file, such as a mounted secret.
    ///
    /// # Errors
    /// Whatever keeps the file from being read as text.
    fn file(&self, path: &Path) -> io::Result<String>;
}

/// The environment and the files of this process, read at the moment of asking.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnvironment;

impl ProcessEnvironment {
    /// A secret is a few lines. The limit keeps `${file:/dev/zero}` from filling the memory.
    pub const LARGEST_FILE: u64 = 1 << 20;
}

impl Lookup for ProcessEnvironment {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        std::fs::File::open(path)?.take(Self::LARGEST_FILE + 1).read_to_string(&mut text)?;
        if text.len() as u64 > Self::LARGEST_FILE {
            return Err(io::Error::other(format!("larger than {} bytes", Self::LARGEST_FILE)));
        }
        Ok(text)
    }
}

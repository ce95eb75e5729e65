//! Which file is the config, and reading it without trusting its size or its encoding.

use super::diagnostic::Diagnostic;
use super::lookup::Lookup;
use super::{Config, node::Lines};
use etcetera::BaseStrategy;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Why there is no config.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No file where one was looked for.
    #[error("no config file found; looked for {}", list(looked_for))]
    NotFound {
        /// Where, in order.
        looked_for: Vec<PathBuf>,
    },
    /// A file that cannot be read.
    #[error("cannot read config file `{}`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file that is too large to be a config.
    #[error("config file `{}` is larger than {} MiB", path.display(), Config::LARGEST >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A file that makes no sense as a whole. Shown as compilers show it, one finding after the other.
    #[error("{}", render(diagnostics))]
    Invalid {
        /// Everything that is wrong with it.
        diagnostics: Vec<Diagnostic>,
    },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}

fn render(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(Diagnostic::render).collect::<Vec<_>>().join("\n\n")
}

/// The directories in which a config is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Where gripfast was started.
    pub current_dir: PathBuf,
    /// The platform's directory for configs: `~/.config` or `%APPDATA%`. `None` without a home.
    pub config_dir: Option<PathBuf>,
}

impl Places {
    /// Those of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let config_dir = etcetera::choose_base_strategy().ok().map(|strategy| strategy.config_dir());
        Self { current_dir: PathBuf::from("."), config_dir }
    }
}

impl Config {
    /// The name of the native config file.
    pub const FILE_NAME: &str = "gripfast.toml";

    /// The variable that names a config file.
    pub const VARIABLE: &str = "GRIPFAST_CONFIG";

    /// Larger files are refused unread.
    pub const LARGEST: u64 = 8 << 20;

    /// Decides which file is the config: `explicit`, then `$GRIPFAST_CONFIG`, then `gripfast.toml` in the
    /// current directory, then in `gripfast/` of the platform's. A file that somebody has named is the
    /// answer whether it exists or not; falling back to another one would hide the mistake.
    ///
    /// # Errors
    /// [`ConfigError::NotFound`] when nobody has named one and none exists.
    pub fn find(
        explicit: Option<&Path>,
        lookup: &dyn Lookup,
        places: &Places,
    ) -> Result<PathBuf, ConfigError> {
        if let Some(path) = explicit {
            return Ok(path.to_owned());
        }
        if let Some(path) = lookup.variable(Self::VARIABLE).filter(|path| !path.is_empty()) {
            return Ok(PathBuf::from(path));
        }
        let here = places.current_dir.join(Self::FILE_NAME);
        let at_home = places.config_dir.as_ref().map(|dir| dir.join("gripfast").join(Self::FILE_NAME));
        let looked_for: Vec<PathBuf> = [Some(here), at_home].into_iter().flatten().collect();
        match looked_for.iter().find(|path| path.is_file()) {
            Some(path) => Ok(path.clone()),
            None => Err(ConfigError::NotFound { looked_for }),
        }
    }

    /// Reads and understands a file.
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => ConfigError::NotFound { looked_for: vec![path.to_owned()] },
            _ => ConfigError::Unreadable { path: path.to_owned(), source },
        };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(Self::LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > Self::LARGEST {
            return Err(ConfigError::TooLarge { path: path.to_owned() });
        }
        match String::from_utf8(bytes) {
            Ok(text) => Self::parse(&text, path),
            Err(error) => Err(not_text(path, error.as_bytes(), error.utf8_error().valid_up_to())),
        }
    }
}

fn not_text(path: &Path, bytes: &[u8], valid: usize) -> ConfigError {
    let text = String::from_utf8_lossy(&bytes[..valid]);
    let mut diagnostic = Diagnostic::error("", Lines::of(&text).at(valid), "the file is not UTF-8 text");
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        diagnostic = diagnostic.with_hint("it looks like UTF-16; save it as UTF-8");
    }
    diagnostic.file = path.to_owned();
    ConfigError::Invalid { diagnostics: vec![diagnostic] }
}

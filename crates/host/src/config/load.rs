//! Finds and reads the config file. Checks its size, encoding, owner and modes before it is decoded.

use super::diagnostic::Diagnostic;
use super::effective::SettingFrom;
use super::lookup::Lookup;
use super::{Config, node::Lines, node::Position};
use crate::private_files::{self, StrictModes, UnsafeFile};
use etcetera::BaseStrategy;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Reason why a config could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No config file found.
    #[error("no config file found; looked for {}", list(looked_for))]
    NotFound {
        /// Paths that were tried, in order.
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
    /// A file that another user could have changed.
    #[error("config file {0}")]
    Unsafe(UnsafeFile),
    /// A file that cannot be used as a whole. Displayed like compiler output, one diagnostic after the other.
    #[error("{}", render(diagnostics))]
    Invalid {
        /// All mistakes in the file.
        diagnostics: Vec<Diagnostic>,
    },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}

fn render(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(Diagnostic::render).collect::<Vec<_>>().join("\n\n")
}

/// The directories in which a config is searched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchPaths {
    /// The working directory of gripfast.
    pub current_dir: PathBuf,
    /// The platform's directory for configs: `~/.config` or `%APPDATA%`. `None` without a home.
    pub config_dir: Option<PathBuf>,
}

impl SearchPaths {
    /// The directories of this process.
    #[must_use]
    pub fn from_process() -> Self {
        let config_dir = etcetera::choose_base_strategy().ok().map(|strategy| strategy.config_dir());
        Self { current_dir: PathBuf::from("."), config_dir }
    }
}

/// Path of a config file, and how it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// The file.
    pub path: PathBuf,
    /// Origin of the choice.
    pub origin: ConfigOrigin,
}

/// Origin of a config file, which decides how far it is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigOrigin {
    /// Named by a person, on the command line or in `$GRIPFAST_CONFIG`.
    Named,
    /// Found in the current directory, where it may be part of a cloned repository or an unpacked archive.
    CurrentDirectory,
    /// Found in the platform's config directory.
    PlatformDirectory,
}

/// Content of a config file. It is read once, so that the checks of owner and modes apply to the bytes that are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigText {
    path: PathBuf,
    bytes: Vec<u8>,
    safety: Result<(), UnsafeFile>,
}

impl ConfigText {
    /// Reads a file.
    ///
    /// # Errors
    /// The file does not exist, cannot be read, or is too large.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => ConfigError::NotFound { looked_for: vec![path.to_owned()] },
            _ => ConfigError::Unreadable { path: path.to_owned(), source },
        };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(unreadable)?;
        let judged = private_files::check(path, &file.metadata().map_err(unreadable)?);
        file.take(Config::LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > Config::LARGEST {
            return Err(ConfigError::TooLarge { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned(), bytes, safety: judged })
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Content of the file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The reason why another user could have changed the file, if there is one.
    #[must_use]
    pub fn unsafe_file(&self) -> Option<&UnsafeFile> {
        self.safety.as_ref().err()
    }

    /// Decodes the file without regard to its owner and modes: for display, not for use.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] when the file as a whole cannot be used.
    pub fn parse(&self) -> Result<Config, ConfigError> {
        match str::from_utf8(&self.bytes) {
            Ok(text) => Config::parse(text, &self.path),
            Err(error) => Err(not_utf8(&self.path, &self.bytes, error.valid_up_to())),
        }
    }

    /// Decodes the file, unless another user could have changed it. `strict_modes = false` in the file makes that a
    /// warning if a person has named or trusted the file; otherwise a user who can change it could add that line too.
    ///
    /// # Errors
    /// [`ConfigError::Unsafe`], and those of [`ConfigText::parse`].
    pub fn config(&self, origin: ConfigOrigin) -> Result<Config, ConfigError> {
        let Some(found) = self.unsafe_file() else { return self.parse() };
        let counts = match origin {
            ConfigOrigin::Named | ConfigOrigin::CurrentDirectory => true,
            ConfigOrigin::PlatformDirectory => false,
        };
        match self.parse() {
            Ok(mut config) if counts && config.gateway.access.strict_modes == StrictModes::Off => {
                let warning = unsafe_file_warning(&config, found);
                config.warnings.insert(0, warning);
                Ok(config)
            }
            Ok(_) | Err(_) => Err(ConfigError::Unsafe(found.clone())),
        }
    }
}

impl Config {
    /// The name of the native config file.
    pub const FILE_NAME: &str = "gripfast.toml";

    /// The environment variable that names a config file.
    pub const ENV_VAR: &str = "GRIPFAST_CONFIG";

    /// Largest size of a config file, in bytes.
    pub const LARGEST: u64 = 8 << 20;

    /// Chooses the config file: `explicit`, then `$GRIPFAST_CONFIG`, then `gripfast.toml` in the current directory,
    /// then in `gripfast/` of the platform's config directory. A named file is returned whether it exists or not,
    /// because a fallback to another file would hide the mistake. The caller decides whether it trusts a file in the
    /// current directory.
    ///
    /// # Errors
    /// [`ConfigError::NotFound`] if no file is named and none exists.
    pub fn find(
        explicit: Option<&Path>,
        lookup: &dyn Lookup,
        places: &SearchPaths,
    ) -> Result<ConfigFile, ConfigError> {
        let variable = || lookup.variable(Self::ENV_VAR).filter(|path| !path.is_empty()).map(PathBuf::from);
        if let Some(path) = explicit.map(Path::to_owned).or_else(variable) {
            return Ok(ConfigFile { path, origin: ConfigOrigin::Named });
        }
        let here = places.current_dir.join(Self::FILE_NAME);
        let at_home = places.config_dir.as_ref().map(|dir| dir.join("gripfast").join(Self::FILE_NAME));
        if here.is_file() {
            let is_at_home = at_home.is_some_and(|at_home| is_same_file(&here, &at_home));
            let origin =
                if is_at_home { ConfigOrigin::PlatformDirectory } else { ConfigOrigin::CurrentDirectory };
            return Ok(ConfigFile { path: here, origin });
        }
        match at_home {
            Some(path) if path.is_file() => Ok(ConfigFile { path, origin: ConfigOrigin::PlatformDirectory }),
            at_home => Err(ConfigError::NotFound { looked_for: [here].into_iter().chain(at_home).collect() }),
        }
    }

    /// Reads and decodes a file that a person or a program has named.
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        ConfigText::read(path)?.config(ConfigOrigin::Named)
    }
}

/// The warning for an unsafe config file that is used because it sets `strict_modes = false`.
fn unsafe_file_warning(config: &Config, found: &UnsafeFile) -> Diagnostic {
    const KEY: &str = "gateway.strict_modes";
    let at = config.settings().into_iter().find_map(|setting| match setting.from {
        SettingFrom::File(at) if setting.path == KEY => Some(at),
        SettingFrom::File(_) | SettingFrom::Default => None,
    });
    let message = format!("config file {found}; it is used because `strict_modes` is off");
    let mut warning = Diagnostic::warning(KEY, at.unwrap_or(Position::START), message);
    warning.file.clone_from(&found.path);
    warning.with_hint(found.remedy())
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().ok().is_some_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

fn not_utf8(path: &Path, bytes: &[u8], valid: usize) -> ConfigError {
    let text = String::from_utf8_lossy(&bytes[..valid]);
    let mut diagnostic =
        Diagnostic::error("", Lines::new(&text).position(valid), "the file is not UTF-8 text");
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        diagnostic = diagnostic.with_hint("it looks like UTF-16; save it as UTF-8");
    }
    diagnostic.file = path.to_owned();
    ConfigError::Invalid { diagnostics: vec![diagnostic] }
}

//! Which file is the config, and reading it without trusting its size, its encoding or who could have written it.

use super::diagnostic::Diagnostic;
use super::effective::SettingFrom;
use super::lookup::Lookup;
use super::{Config, node::Lines, node::Position};
use crate::private_files::{self, StrictModes, UnsafeFile};
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
    /// A file that another user could have changed.
    #[error("config file {0}")]
    Unsafe(UnsafeFile),
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

/// A config file, and how it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// The file.
    pub path: PathBuf,
    /// Why this one.
    pub origin: ConfigOrigin,
}

/// How a config file was chosen, which decides how far it is believed before anybody has looked at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigOrigin {
    /// A person has named it, on the command line or in `$GRIPFAST_CONFIG`.
    Named,
    /// It was found in the current directory, where anybody may have put it: a repository that was cloned, an archive that
    /// was unpacked.
    CurrentDirectory,
    /// It was found in the platform's config directory.
    PlatformDirectory,
}

/// A config file as it was read, once: what is judged is what is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigText {
    path: PathBuf,
    bytes: Vec<u8>,
    judged: Result<(), UnsafeFile>,
}

impl ConfigText {
    /// Reads a file.
    ///
    /// # Errors
    /// There is none, it cannot be read, or it is too large.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => ConfigError::NotFound { looked_for: vec![path.to_owned()] },
            _ => ConfigError::Unreadable { path: path.to_owned(), source },
        };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(unreadable)?;
        let judged = private_files::judge(path, &file.metadata().map_err(unreadable)?);
        file.take(Config::LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > Config::LARGEST {
            return Err(ConfigError::TooLarge { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned(), bytes, judged })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Who could have changed it, if that is another user.
    #[must_use]
    pub fn problem(&self) -> Option<&UnsafeFile> {
        self.judged.as_ref().err()
    }

    /// Understands it, whoever could have changed it: to be looked at, not to be used.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] when the file as a whole cannot be used.
    pub fn parse(&self) -> Result<Config, ConfigError> {
        match str::from_utf8(&self.bytes) {
            Ok(text) => Config::parse(text, &self.path),
            Err(error) => Err(not_text(&self.path, &self.bytes, error.valid_up_to())),
        }
    }

    /// Understands it, unless another user could have changed it. `strict_modes = false` in the file itself makes that a
    /// warning where a person vouches for the file; where nobody does, whoever could change it could add that line too.
    ///
    /// # Errors
    /// [`ConfigError::Unsafe`], and those of [`ConfigText::parse`].
    pub fn config(&self, origin: ConfigOrigin) -> Result<Config, ConfigError> {
        let Some(found) = self.problem() else { return self.parse() };
        let counts = match origin {
            ConfigOrigin::Named | ConfigOrigin::CurrentDirectory => true,
            ConfigOrigin::PlatformDirectory => false,
        };
        match self.parse() {
            Ok(mut config) if counts && config.gateway.access.strict_modes == StrictModes::Off => {
                let warning = accepted(&config, found);
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

    /// The variable that names a config file.
    pub const VARIABLE: &str = "GRIPFAST_CONFIG";

    /// Larger files are refused unread.
    pub const LARGEST: u64 = 8 << 20;

    /// Decides which file is the config: `explicit`, then `$GRIPFAST_CONFIG`, then `gripfast.toml` in the
    /// current directory, then in `gripfast/` of the platform's. A file that somebody has named is the
    /// answer whether it exists or not; falling back to another one would hide the mistake. Whether the one in the
    /// current directory is to be trusted is for the caller to find out.
    ///
    /// # Errors
    /// [`ConfigError::NotFound`] when nobody has named one and none exists.
    pub fn find(
        explicit: Option<&Path>,
        lookup: &dyn Lookup,
        places: &Places,
    ) -> Result<ConfigFile, ConfigError> {
        let variable = || lookup.variable(Self::VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        if let Some(path) = explicit.map(Path::to_owned).or_else(variable) {
            return Ok(ConfigFile { path, origin: ConfigOrigin::Named });
        }
        let here = places.current_dir.join(Self::FILE_NAME);
        let at_home = places.config_dir.as_ref().map(|dir| dir.join("gripfast").join(Self::FILE_NAME));
        if here.is_file() {
            let is_at_home = at_home.is_some_and(|at_home| is_same(&here, &at_home));
            let origin =
                if is_at_home { ConfigOrigin::PlatformDirectory } else { ConfigOrigin::CurrentDirectory };
            return Ok(ConfigFile { path: here, origin });
        }
        match at_home {
            Some(path) if path.is_file() => Ok(ConfigFile { path, origin: ConfigOrigin::PlatformDirectory }),
            at_home => Err(ConfigError::NotFound { looked_for: [here].into_iter().chain(at_home).collect() }),
        }
    }

    /// Reads and understands a file that a person, or a program, has named.
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        ConfigText::read(path)?.config(ConfigOrigin::Named)
    }
}

/// The warning that an unsafe config is used because it says so itself.
fn accepted(config: &Config, found: &UnsafeFile) -> Diagnostic {
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

fn is_same(one: &Path, other: &Path) -> bool {
    one.canonicalize().ok().is_some_and(|one| other.canonicalize().is_ok_and(|other| one == other))
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

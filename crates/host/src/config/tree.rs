//! Content of a file in any supported format, without positions and without interpretation. Used to read the config
//! files of other programs.

use super::diagnostic::{Diagnostic, Source};
use super::formats::Format;
use super::load::ConfigError;
use super::node::{Node, Value};
use std::path::Path;

/// A value in a file, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tree {
    /// Null.
    Null,
    /// True or false.
    Bool(bool),
    /// A number, as written.
    Number(String),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Self>),
    /// A table.
    Table(Vec<(String, Self)>),
}

impl Tree {
    /// Parses a text. `path` gives the format by its extension, and the file name for diagnostics.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] if the text is not valid in that format.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        match Format::of(path, text).parse(text) {
            Ok(root) => Ok(root.as_ref().map_or(Self::Null, Self::from)),
            Err(error) => {
                let mut diagnostic = Diagnostic::error("", error.at, error.message);
                Source::new(path, text, None).complete(&mut diagnostic);
                Err(ConfigError::Invalid { diagnostics: vec![diagnostic] })
            }
        }
    }

    /// The value of a key, if this is a table that has it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.entries().iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The entries of a table; empty for any other value.
    #[must_use]
    pub fn entries(&self) -> &[(String, Self)] {
        match self {
            Self::Table(entries) => entries,
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::List(_) => &[],
        }
    }

    /// The string, if this is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::List(_) | Self::Table(_) => None,
        }
    }
}

impl From<&Node> for Tree {
    fn from(node: &Node) -> Self {
        match &node.value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Number(text) => Self::Number(text.clone()),
            // No caller looks for dates.
            Value::Date => Self::Null,
            Value::Str(text) => Self::Text(text.clone()),
            Value::List(nodes) => Self::List(nodes.iter().map(Self::from).collect()),
            Value::Table(entries) => {
                Self::Table(entries.iter().map(|(key, node)| (key.name.clone(), Self::from(node))).collect())
            }
        }
    }
}

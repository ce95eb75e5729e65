//! Detects the format of a config file and parses it into the tree.

mod jsonc;
mod toml;
mod yaml;

use super::node::{Node, SyntaxError};
use std::path::Path;

/// A text format of config files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Toml,
    /// JSON with comments and trailing commas, as editors accept them.
    Jsonc,
    Yaml,
}

impl Format {
    /// Detects the format by extension or, if there is none, by content: `/dev/fd/63` and dot files have no extension.
    pub(super) fn of(path: &Path, text: &str) -> Self {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "toml" => Self::Toml,
            "json" | "jsonc" => Self::Jsonc,
            "yaml" | "yml" => Self::Yaml,
            _ => Self::by_content(text),
        }
    }

    /// Detects the format by the first line that is neither empty nor a `#` comment.
    fn by_content(text: &str) -> Self {
        let Some(line) = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))
        else {
            return Self::Toml;
        };
        if line.starts_with('{') || line.starts_with("//") || line.starts_with("/*") {
            return Self::Jsonc;
        }
        match (line.find('='), line.find(':')) {
            _ if line.starts_with('[') => Self::Toml,
            (Some(equals), Some(colon)) if equals < colon => Self::Toml,
            (Some(_), None) => Self::Toml,
            _ => Self::Yaml,
        }
    }

    /// Parses the whole text; `None` if there is nothing in it but white space and comments.
    pub(super) fn parse(self, text: &str) -> Result<Option<Node>, SyntaxError> {
        match self {
            Self::Toml => toml::parse(text).map(Some),
            Self::Jsonc => jsonc::parse(text),
            Self::Yaml => yaml::parse(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_detected_by_extension_and_then_by_content() {
        let of = |path: &str, text: &str| Format::of(Path::new(path), text);
        assert_eq!(of("a.TOML", "{}"), Format::Toml);
        assert_eq!(of("a.jsonc", ""), Format::Jsonc);
        assert_eq!(of("a.yml", ""), Format::Yaml);
        assert_eq!(of("/dev/fd/63", "# c\n\n[servers.a]\n"), Format::Toml);
        assert_eq!(of("x", "servers.a.url = \"http://h\""), Format::Toml);
        assert_eq!(of("x", "  // c\n{}"), Format::Jsonc);
        assert_eq!(of("x", "---\nmcp_servers:\n"), Format::Yaml);
        assert_eq!(of("x", "mcp_servers: { a: { args: [b=c] } }"), Format::Yaml);
        assert_eq!(of("x", ""), Format::Toml);
    }
}

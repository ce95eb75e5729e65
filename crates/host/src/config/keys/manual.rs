//! The tables as a page of the manual.

use super::{FILE, Kind, Row, Table, Usual};
use crate::config::units;

const INTRODUCTION: &str = "\
# The config

gripfast takes the file that `--config` names, or `$GRIPFAST_CONFIG`, or `./gripfast.toml`, or `gripfast/gripfast.toml`
in the platform's config directory. Its own form is TOML, in which a key that it does not know is a mistake. JSON and
JSONC with `mcpServers` or `servers`, and YAML with `mcp_servers`, are taken as other clients have them: the keys are the
same, other clients' names of them are understood, and what is not known is ignored with a warning.

Durations are texts of whole numbers with units: `\"100ms\"`, `\"30s\"`, `\"5m\"`, `\"1h30m\"`, `\"2d\"`. Sizes are numbers of
bytes or texts such as `\"16MiB\"`. `gripfast check` validates a file without starting anything, `gripfast schema` prints
this page as a JSON Schema for editors.

This page is made from the code; `cargo xtask reference --write` renews it.
";

/// The reference of the config, in Markdown.
#[must_use]
pub fn manual() -> String {
    let mut page = INTRODUCTION.to_owned();
    section("", &FILE, &mut page);
    page
}

fn section(path: &str, table: &Table, page: &mut String) {
    if !path.is_empty() {
        *page += &format!("\n## `{path}`\n\n{}\n", table.about);
    }
    *page += "\n| key | value | default | |\n|---|---|---|---|\n";
    for row in table.rows() {
        *page += &line(path, row);
    }
    for row in table.rows() {
        let path = join(path, row.name);
        match &row.kind {
            Kind::Table(inner) => section(&path, inner, page),
            Kind::Tables(inner) => section(&format!("{path}[]"), inner, page),
            Kind::Map(Kind::Table(inner)) => section(&format!("{path}.NAME"), inner, page),
            _ => {}
        }
    }
}

fn line(path: &str, row: &Row) -> String {
    let usual = match &row.usual {
        Usual::Needed => "needed".to_owned(),
        Usual::Nothing => String::new(),
        Usual::Words(words) => (*words).to_owned(),
        Usual::Is(_) | Usual::Gateway(_) | Usual::Server(_) => {
            row.usual.written().map(|written| format!("`{}`", row.kind.quoted(&written))).unwrap_or_default()
        }
    };
    format!("| `{}` | {} | {usual} | {} |\n", row.name, row.kind.shown(&join(path, row.name)), row.about)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl Kind {
    /// What may stand there, in words.
    fn shown(&self, path: &str) -> String {
        match self {
            Self::Flag => "`true`, `false`".to_owned(),
            Self::Number(range) => format!("{} to {}", range.start(), range.end()),
            Self::Duration(span) => span.allowed(),
            Self::DurationOr(span, word) => format!("{}, or `\"{word}\"`", span.allowed()),
            Self::Size(range) => {
                let [least, most] = [*range.start(), *range.end()].map(units::show_size);
                format!("{least} to {most}")
            }
            Self::Choice(words) => quoted_all(&words()),
            Self::Choices(words) => format!("a list of {}", quoted_all(words)),
            Self::Text | Self::Template => "a text".to_owned(),
            Self::Words | Self::Templates => "a list of texts".to_owned(),
            Self::Anything => "anything".to_owned(),
            Self::Table(_) => format!("a table: [`{path}`](#{})", anchor(path)),
            Self::Tables(_) => format!("a list of tables: [`{path}[]`](#{})", anchor(path)),
            Self::ServerKeys => "keys of [`servers.NAME`](#serversname)".to_owned(),
            Self::Map(Self::Table(_)) => {
                let path = format!("{path}.NAME");
                format!("tables: [`{path}`](#{})", anchor(&path))
            }
            Self::Map(inner) => format!("a table of your own keys, each with {}", inner.shown(path)),
        }
    }

    /// A value as it is written in a file.
    pub(super) fn quoted(&self, written: &str) -> String {
        match self {
            Self::Flag | Self::Number(_) | Self::Words | Self::Choices(_) | Self::Templates => {
                written.to_owned()
            }
            Self::Duration(_)
            | Self::DurationOr(..)
            | Self::Size(_)
            | Self::Choice(_)
            | Self::Text
            | Self::Template
            | Self::Anything
            | Self::Table(_)
            | Self::Tables(_)
            | Self::ServerKeys
            | Self::Map(_) => format!("\"{written}\""),
        }
    }
}

fn quoted_all(words: &[&str]) -> String {
    words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
}

/// What a heading is called in links.
fn anchor(path: &str) -> String {
    path.to_lowercase()
        .chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-'))
        .collect()
}

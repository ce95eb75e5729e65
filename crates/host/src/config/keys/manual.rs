//! The config reference in Markdown, generated from the key tables.

use super::{DefaultValue, Row, Table, ValueKind, table};
use crate::config::sections::FileKeys;
use crate::config::units;

const INTRODUCTION: &str = "\
# The config

gripfast reads the file that `--config` names, or `$GRIPFAST_CONFIG`, or `./gripfast.toml`, or `gripfast/gripfast.toml`
in the platform's config directory. The native format is TOML; there an unknown key is an error. JSON and JSONC files
with `mcpServers` or `servers`, and YAML files with `mcp_servers`, are read as other clients write them: the keys are
the same, the names that other clients use for them are understood, and unknown keys are ignored with a warning.

Durations are strings of whole numbers with units: `\"100ms\"`, `\"30s\"`, `\"5m\"`, `\"1h30m\"`, `\"2d\"`. Sizes are
numbers of bytes or strings such as `\"16MiB\"`. `gripfast check` validates a file without starting anything,
`gripfast schema` prints this page as a JSON Schema for editors.

This page is generated from the code; `cargo xtask reference --write` updates it.
";

/// The config reference, in Markdown.
#[must_use]
pub fn manual() -> String {
    let mut page = INTRODUCTION.to_owned();
    section("", &table::<FileKeys>(), &mut page);
    page
}

fn section(path: &str, table: &Table, page: &mut String) {
    if !path.is_empty() {
        *page += &format!("\n## `{path}`\n\n{}\n", table.doc);
    }
    *page += "\n| key | value | default | |\n|---|---|---|---|\n";
    for row in table.rows.iter() {
        *page += &line(path, row);
    }
    let mut details = table.rows.iter().filter_map(|row| Some((row, split_summary(row.doc).1?))).peekable();
    if details.peek().is_some() {
        *page += "\n";
    }
    for (row, detail) in details {
        *page += &format!("- `{}`: {detail}\n", row.name);
    }
    for row in table.rows.iter() {
        let path = join(path, row.name);
        match &row.kind {
            ValueKind::Table(inner) => section(&path, &inner(), page),
            ValueKind::Tables(inner) => section(&format!("{path}[]"), &inner(), page),
            ValueKind::Map(inner) => {
                if let ValueKind::Table(inner) = &**inner {
                    section(&format!("{path}.NAME"), &inner(), page);
                }
            }
            _ => {}
        }
    }
}

fn line(path: &str, row: &Row) -> String {
    let default = match &row.default {
        DefaultValue::Required => "required".to_owned(),
        DefaultValue::Absent => String::new(),
        DefaultValue::Described(words) => (*words).to_owned(),
        DefaultValue::Written(written) => format!("`{}`", row.kind.quoted(written)),
    };
    format!(
        "| `{}` | {} | {default} | {} |\n",
        row.name,
        row.kind.shown(&join(path, row.name)),
        split_summary(row.doc).0
    )
}

/// The first sentence of a text, for the table, and the rest, for the list below it.
fn split_summary(doc: &str) -> (&str, Option<&str>) {
    let starts_sentence = |rest: &str| rest.starts_with(|char: char| char.is_uppercase() || char == '`');
    let end = doc.match_indices(". ").map(|(at, _)| at + 1).find(|end| starts_sentence(&doc[end + 1..]));
    end.map_or((doc, None), |end| (&doc[..end], Some(&doc[end + 1..])))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl ValueKind {
    /// The allowed values, in words.
    fn shown(&self, path: &str) -> String {
        match self {
            Self::Flag => "`true`, `false`".to_owned(),
            Self::Number(range) => format!("{} to {}", range.start(), range.end()),
            Self::Duration(span) => span.describe(),
            Self::DurationOr(span, word) => format!("{}, or `\"{word}\"`", span.describe()),
            Self::Size(range) => {
                let [least, most] = [*range.start(), *range.end()].map(units::format_size);
                format!("{least} to {most}")
            }
            Self::Choice(words) => quoted_all(words),
            Self::Choices(words) => format!("a list of {}", quoted_all(words)),
            Self::Text => "a string".to_owned(),
            Self::TextList | Self::Templates => "a list of strings".to_owned(),
            Self::TemplateOrList => "a string, or a list of strings".to_owned(),
            Self::AnyJson => "any value".to_owned(),
            Self::Table(_) => format!("a table: [`{path}`](#{})", anchor(path)),
            Self::Tables(_) => format!("a list of tables: [`{path}[]`](#{})", anchor(path)),
            Self::ServerKeys => "keys of [`servers.NAME`](#serversname)".to_owned(),
            Self::Map(inner) if matches!(**inner, Self::Table(_)) => {
                let path = format!("{path}.NAME");
                format!("tables: [`{path}`](#{})", anchor(&path))
            }
            Self::Map(inner) => format!("a table of your own keys, each with {}", inner.shown(path)),
        }
    }

    /// A value as it is written in a file.
    pub(super) fn quoted(&self, written: &str) -> String {
        if self.is_quoted() { format!("\"{written}\"") } else { written.to_owned() }
    }

    /// Returns whether a file has quotes around the value.
    pub(super) fn is_quoted(&self) -> bool {
        !matches!(
            self,
            Self::Flag
                | Self::Number(_)
                | Self::TextList
                | Self::Choices(_)
                | Self::Templates
                | Self::TemplateOrList
                | Self::AnyJson
        )
    }
}

fn quoted_all(words: &[&str]) -> String {
    words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
}

/// The link target of a heading.
fn anchor(path: &str) -> String {
    path.to_lowercase()
        .chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_is_the_summary() {
        assert_eq!(split_summary("Time limit."), ("Time limit.", None));
        assert_eq!(
            split_summary("A file, e.g. a key. `x` is one. End."),
            ("A file, e.g. a key.", Some("`x` is one. End."))
        );
    }
}

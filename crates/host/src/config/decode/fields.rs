//! Decodes one table: takes known keys, by name or alias, and reports the rest. Every value is checked where it is
//! read, and a wrong one is reported and skipped, so that one run finds all mistakes.

use super::FileDialect;
use crate::config::diagnostic::{Diagnostic, quoted};
use crate::config::keys::{Row, Table, ValueKind};
use crate::config::node::{KeyNode, Node, Position, Value};
use crate::config::suggest::nearest;
use crate::config::template::Template;
use crate::config::units::{self, DurationRange};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Errors and warnings found so far.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) errors: Vec<Diagnostic>,
    pub(super) warnings: Vec<Diagnostic>,
}

impl Problems {
    pub(super) fn error(&mut self, diagnostic: Diagnostic) {
        self.errors.push(diagnostic);
    }

    pub(super) fn warning(&mut self, diagnostic: Diagnostic) {
        self.warnings.push(diagnostic);
    }
}

/// One value with the full path of its key.
#[derive(Debug, Clone)]
pub(super) struct Field<'n> {
    pub(super) path: String,
    pub(super) key_at: Position,
    pub(super) node: &'n Node,
    pub(super) dialect: FileDialect,
}

impl<'n> Field<'n> {
    /// A field of the file itself.
    pub(super) fn top(key: &KeyNode, node: &'n Node) -> Self {
        Self { path: key.name.clone(), key_at: key.at, node, dialect: FileDialect::Native }
    }

    pub(super) fn error(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(&self.path, self.node.at, message)
    }

    pub(super) fn warning(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::warning(&self.path, self.node.at, message)
    }

    pub(super) fn expected(&self, what: &str) -> Diagnostic {
        self.error(format!("expected {what}, found {}", self.node.value.kind()))
    }

    pub(super) fn text(&self, problems: &mut Problems) -> Option<&'n str> {
        match &self.node.value {
            Value::Str(text) => Some(text),
            _ => {
                problems.error(self.expected("a string"));
                None
            }
        }
    }

    /// A string; in files of other clients also a number or a boolean, as in `PORT: 8080`.
    pub(super) fn scalar(&self, problems: &mut Problems) -> Option<String> {
        match (&self.node.value, self.dialect) {
            (Value::Str(text), _) => Some(text.clone()),
            (Value::Number(text), FileDialect::Foreign | FileDialect::Hermes) => Some(text.clone()),
            (Value::Bool(flag), FileDialect::Foreign | FileDialect::Hermes) => Some(flag.to_string()),
            (Value::Number(_) | Value::Bool(_), FileDialect::Native) => {
                problems.error(self.expected("a string").with_hint("put it in quotes"));
                None
            }
            _ => {
                problems.error(self.expected("a string"));
                None
            }
        }
    }

    pub(super) fn template(&self, problems: &mut Problems) -> Option<Template> {
        let text = self.scalar(problems)?;
        match Template::parse(&text) {
            Ok(template) => Some(template),
            Err(error) => {
                let diagnostic = self.error(error.message);
                problems.error(match error.hint {
                    Some(hint) => diagnostic.with_hint(hint),
                    None => diagnostic,
                });
                None
            }
        }
    }

    /// A template that may not be empty.
    pub(super) fn nonempty_template(&self, problems: &mut Problems) -> Option<Template> {
        let template = self.template(problems)?;
        if template.source().trim().is_empty() {
            problems.error(self.error("expected a string that is not empty"));
            return None;
        }
        Some(template)
    }

    pub(super) fn flag(&self, problems: &mut Problems) -> Option<bool> {
        match &self.node.value {
            Value::Bool(flag) => Some(*flag),
            Value::Str(text) => {
                let hint = match text.to_ascii_lowercase().as_str() {
                    "true" | "yes" | "on" | "1" => Some("write true, without quotes"),
                    "false" | "no" | "off" | "0" => Some("write false, without quotes"),
                    _ => None,
                };
                let diagnostic = self.expected("true or false");
                problems.error(match hint {
                    Some(hint) => diagnostic.with_hint(hint),
                    None => diagnostic,
                });
                None
            }
            _ => {
                problems.error(self.expected("true or false"));
                None
            }
        }
    }

    pub(super) fn duration(&self, span: DurationRange, problems: &mut Problems) -> Option<Duration> {
        let duration = match &self.node.value {
            Value::Str(text) => match units::parse_duration(text) {
                Some(duration) => duration,
                None => {
                    let hint = match text.trim().parse::<u64>() {
                        Ok(number) => {
                            format!("write \"{number}s\" for seconds or \"{number}ms\" for milliseconds")
                        }
                        Err(_) => {
                            "write whole numbers with units: \"100ms\", \"30s\", \"5m\", \"1h30m\"".to_owned()
                        }
                    };
                    problems.error(self.error(format!("{} is not a duration", quoted(text))).with_hint(hint));
                    return None;
                }
            },
            Value::Number(text) => {
                let hint = format!("write \"{text}s\" for seconds or \"{text}ms\" for milliseconds");
                problems.error(self.expected("a duration with a unit").with_hint(hint));
                return None;
            }
            _ => {
                problems.error(self.expected("a duration such as \"30s\""));
                return None;
            }
        };
        if !span.contains(duration) {
            let message =
                format!("{} is out of range; allowed: {}", units::format_duration(duration), span.describe());
            problems.error(self.error(message));
            return None;
        }
        Some(duration)
    }

    pub(super) fn whole_number(&self, range: RangeInclusive<u32>, problems: &mut Problems) -> Option<u32> {
        let Value::Number(text) = &self.node.value else {
            problems.error(self.expected("a whole number"));
            return None;
        };
        match text.parse::<i128>() {
            Ok(number) if (i128::from(*range.start())..=i128::from(*range.end())).contains(&number) => {
                u32::try_from(number).ok()
            }
            Ok(_) => {
                let message = format!(
                    "{} is out of range; allowed: {} to {}",
                    quoted(text),
                    range.start(),
                    range.end()
                );
                problems.error(self.error(message));
                None
            }
            Err(_) => {
                problems.error(self.error(format!("expected a whole number, found {}", quoted(text))));
                None
            }
        }
    }

    pub(super) fn size(&self, range: RangeInclusive<u64>, problems: &mut Problems) -> Option<u64> {
        let error = match &self.node.value {
            Value::Str(text) | Value::Number(text) => match units::parse_size(text) {
                Some(size) if range.contains(&size) => return Some(size),
                Some(_) => {
                    let [least, most] = [*range.start(), *range.end()].map(units::format_size);
                    self.error(format!("{} is out of range; allowed: {least} to {most}", quoted(text)))
                }
                None => self
                    .error(format!("{} is not a size", quoted(text)))
                    .with_hint("write a number of bytes, or a size such as \"16MiB\""),
            },
            _ => self.expected("a size such as \"16MiB\""),
        };
        problems.error(error);
        None
    }

    /// A word from a fixed set.
    pub(super) fn choice<T: Copy>(
        &self,
        choices: &[(&'static str, T)],
        problems: &mut Problems,
    ) -> Option<T> {
        let text = self.text(problems)?;
        if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == text) {
            return Some(*choice);
        }
        let names = || choices.iter().map(|(name, _)| *name);
        let list: Vec<String> = names().map(|name| format!("`{name}`")).collect();
        let diagnostic = self.error(format!("{} is not one of {}", quoted(text), list.join(", ")));
        problems.error(match nearest(text, names()) {
            Some(name) => diagnostic.with_hint(format!("did you mean `{name}`?")),
            None => diagnostic,
        });
        None
    }

    /// The elements of a list, each with its own path.
    pub(super) fn elements(&self, problems: &mut Problems) -> Option<Vec<Self>> {
        let Value::List(list) = &self.node.value else {
            let diagnostic = self.expected("a list");
            problems.error(match &self.node.value {
                Value::Str(_) => diagnostic.with_hint("write [\"…\"] with square brackets"),
                _ => diagnostic,
            });
            return None;
        };
        Some(
            list.iter()
                .enumerate()
                .map(|(index, node)| Self {
                    path: format!("{}[{index}]", self.path),
                    key_at: node.at,
                    node,
                    dialect: self.dialect,
                })
                .collect(),
        )
    }

    /// A list of non-empty strings: patterns, names.
    pub(super) fn words(&self, problems: &mut Problems) -> Option<Vec<String>> {
        let mut words = Vec::new();
        for element in self.elements(problems)? {
            match element.text(problems) {
                Some("") => {
                    problems.error(element.error("expected a name or a pattern, found an empty string"))
                }
                Some(text) => words.push(text.to_owned()),
                None => {}
            }
        }
        Some(words)
    }

    /// The entries of a table whose keys the user chooses.
    pub(super) fn pairs(&self, problems: &mut Problems) -> Vec<(&'n KeyNode, Self)> {
        let Value::Table(entries) = &self.node.value else {
            problems.error(self.expected("a table"));
            return Vec::new();
        };
        let field = |key: &KeyNode, node| Self {
            path: format!("{}.{}", self.path, key.name),
            key_at: key.at,
            node,
            dialect: self.dialect,
        };
        entries
            .iter()
            // VS Code writes null for "not set".
            .filter(|(_, node)| !matches!(node.value, Value::Null))
            .map(|(key, node)| (key, field(key, node)))
            .collect()
    }
}

/// A table with known keys, which `config::keys` describes.
pub(super) struct Fields<'n> {
    pub(super) path: String,
    table: &'static Table,
    dialect: FileDialect,
    remaining: Vec<&'n (KeyNode, Node)>,
    taken: Vec<&'static str>,
    /// Keys of other clients that are understood, besides the aliases.
    foreign: Vec<&'static str>,
    aliases: Vec<(&'static str, &'static str)>,
}

impl<'n> Fields<'n> {
    /// Opens the table in a field, or reports that there is none.
    pub(super) fn open(field: &Field<'n>, table: &'static Table, problems: &mut Problems) -> Option<Self> {
        let Value::Table(entries) = &field.node.value else {
            problems.error(field.expected("a table"));
            return None;
        };
        Some(Self {
            path: field.path.clone(),
            table,
            dialect: field.dialect,
            remaining: entries.iter().collect(),
            taken: Vec::new(),
            foreign: Vec::new(),
            aliases: Vec::new(),
        })
    }

    /// The full path and the position of a field that was not taken yet; the start of the table if there is none.
    pub(super) fn position_of(&self, name: &str) -> (String, Position) {
        let field = self.remaining.iter().find(|(key, _)| key.name == name);
        let at = field.or(self.remaining.first()).map_or(Position::START, |(_, node)| node.at);
        (format!("{}.{name}", self.path), at)
    }

    /// Takes the field of this name. A null value counts as absent.
    pub(super) fn take(&mut self, name: &'static str) -> Option<Field<'n>> {
        self.take_row(name).1
    }

    fn take_row(&mut self, name: &'static str) -> (&'static Row, Option<Field<'n>>) {
        let row = self.table.row(name).expect("the decoder takes keys that its table has");
        self.taken.push(name);
        (row, self.remove(name))
    }

    /// Takes a field that only files of other clients have.
    pub(super) fn take_foreign(&mut self, name: &'static str) -> Option<Field<'n>> {
        if self.dialect == FileDialect::Native {
            return None;
        }
        self.foreign.push(name);
        self.remove(name)
    }

    /// Takes the field of this name or, in files of other clients, of one of its aliases.
    pub(super) fn take_or_alias(
        &mut self,
        name: &'static str,
        aliases: &[&'static str],
        problems: &mut Problems,
    ) -> Option<Field<'n>> {
        let mut found = self.take(name);
        self.aliases.extend(aliases.iter().map(|alias| (*alias, name)));
        if self.dialect == FileDialect::Native {
            return found;
        }
        for alias in aliases {
            let Some(field) = self.remove(alias) else { continue };
            match &found {
                None => found = Some(field),
                Some(first) => {
                    let message = format!("`{alias}` means the same as `{}`, which is also set", first.path);
                    problems.error(
                        Diagnostic::error(field.path, field.key_at, message).with_hint("keep one of them"),
                    );
                }
            }
        }
        found
    }

    fn remove(&mut self, name: &str) -> Option<Field<'n>> {
        let index = self.remaining.iter().position(|(key, _)| key.name == name)?;
        let (key, node) = self.remaining.remove(index);
        let path = format!("{}.{name}", self.path);
        let field = Field { path, key_at: key.at, node, dialect: self.dialect };
        (!matches!(node.value, Value::Null)).then_some(field)
    }

    /// Reads a duration into `into`, which keeps its default if the key is absent.
    pub(super) fn duration(&mut self, name: &'static str, into: &mut Duration, problems: &mut Problems) {
        if let Some(duration) = self.optional_duration(name, problems) {
            *into = duration;
        }
    }

    /// Reads a duration that may be missing.
    pub(super) fn optional_duration(
        &mut self,
        name: &'static str,
        problems: &mut Problems,
    ) -> Option<Duration> {
        let (row, field) = self.take_row(name);
        field?.duration(row.duration_range(), problems)
    }

    /// Reads a whole number into `into`, which keeps its default if the key is absent.
    pub(super) fn whole_number(&mut self, name: &'static str, into: &mut u32, problems: &mut Problems) {
        if let Some(number) = self.optional_number(name, problems) {
            *into = number;
        }
    }

    /// Reads a whole number that may be missing.
    pub(super) fn optional_number(&mut self, name: &'static str, problems: &mut Problems) -> Option<u32> {
        let (row, field) = self.take_row(name);
        match &row.kind {
            ValueKind::Number(range) => field?.whole_number(range.clone(), problems),
            kind => unreachable!("`{name}` is {kind:?} in its table"),
        }
    }

    /// Reads a number of bytes that may be missing.
    pub(super) fn optional_size(&mut self, name: &'static str, problems: &mut Problems) -> Option<u64> {
        let (row, field) = self.take_row(name);
        match &row.kind {
            ValueKind::Size(range) => field?.size(range.clone(), problems),
            kind => unreachable!("`{name}` is {kind:?} in its table"),
        }
    }

    /// Reads a boolean into `into`, which keeps its default if the key is absent.
    pub(super) fn flag(&mut self, name: &'static str, into: &mut bool, problems: &mut Problems) {
        if let Some(flag) = self.take(name).and_then(|field| field.flag(problems)) {
            *into = flag;
        }
    }

    /// Reads a word from a fixed set into `into`, which keeps its default if the key is absent.
    pub(super) fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&'static str, T)],
        into: &mut T,
        problems: &mut Problems,
    ) {
        if let Some(choice) = self.take(name).and_then(|field| field.choice(choices, problems)) {
            *into = choice;
        }
    }

    /// Reads a list of strings into `into`, which keeps its default if the key is absent.
    pub(super) fn words(&mut self, name: &'static str, into: &mut Vec<String>, problems: &mut Problems) {
        if let Some(words) = self.take(name).and_then(|field| field.words(problems)) {
            *into = words;
        }
    }

    /// The range of the durations under this key.
    pub(super) fn duration_range(&self, name: &str) -> DurationRange {
        let row = self.table.row(name).expect("the decoder asks for keys that its table has");
        row.duration_range()
    }

    /// Opens a table inside this one.
    pub(super) fn table(&mut self, name: &'static str, problems: &mut Problems) -> Option<Self> {
        let (row, field) = self.take_row(name);
        match &row.kind {
            ValueKind::Table(table) => Self::open(&field?, table, problems),
            kind => unreachable!("`{name}` is {kind:?} in its table"),
        }
    }

    /// The keys that are allowed here.
    fn known(&self) -> impl Iterator<Item = &'static str> + Clone + use<'_, 'n> {
        self.table.names().chain(self.foreign.iter().copied())
    }

    /// Returns whether a remaining key will be reported as a misspelling of one of `names`.
    pub(super) fn misspells(&self, names: &[&str]) -> bool {
        self.dialect == FileDialect::Native
            && self.remaining.iter().any(|(key, _)| {
                let alias = self.aliases.iter().find(|(alias, _)| *alias == key.name).map(|(_, name)| *name);
                let intended = alias.or_else(|| nearest(&key.name, self.known()));
                intended.is_some_and(|intended| names.contains(&intended))
            })
    }

    /// Reports the remaining keys.
    pub(super) fn finish(self, problems: &mut Problems) {
        debug_assert!(
            self.table.names().all(|name| self.taken.contains(&name)),
            "the decoder takes every key of its table: {:?}",
            self.taken
        );
        for (key, _) in &self.remaining {
            match self.dialect {
                FileDialect::Native => {
                    let alias = self.aliases.iter().find(|(alias, _)| *alias == key.name);
                    problems.error(match alias {
                        Some((_, name)) => {
                            unknown_key_without_hint(key, &self.path).with_hint(format!("write `{name}`"))
                        }
                        None => unknown_key(key, &self.path, self.known()),
                    });
                }
                FileDialect::Foreign | FileDialect::Hermes => {
                    problems.warning(ignored(key, &self.path, self.known()));
                }
            }
        }
    }
}

impl Row {
    /// The range of a duration.
    pub(super) fn duration_range(&self) -> DurationRange {
        match &self.kind {
            ValueKind::Duration(span) | ValueKind::Map(ValueKind::DurationOr(span, _)) => *span,
            kind => unreachable!("`{}` is {kind:?} in its table", self.name),
        }
    }
}

fn unknown_key_without_hint(key: &KeyNode, path: &str) -> Diagnostic {
    let path = if path.is_empty() { key.name.clone() } else { format!("{path}.{}", key.name) };
    Diagnostic::error(path, key.at, format!("unknown key {}", quoted(&key.name)))
}

/// The error for an unknown key, with the nearest known one as a hint.
pub(super) fn unknown_key<'k>(
    key: &KeyNode,
    path: &str,
    known: impl IntoIterator<Item = &'k str> + Clone,
) -> Diagnostic {
    let diagnostic = unknown_key_without_hint(key, path);
    match nearest(&key.name, known.clone()) {
        Some(name) => diagnostic.with_hint(format!("did you mean `{name}`?")),
        None => {
            let names: Vec<&str> = known.into_iter().collect();
            // A longer list, such as the keys of a server, would be no help.
            match names.len() {
                0..=10 => diagnostic.with_hint(format!("known keys: {}", names.join(", "))),
                _ => diagnostic,
            }
        }
    }
}

/// Hints for ignored keys of other clients.
const FOREIGN_KEY_HINTS: &[(&[&str], &str)] = &[
    (
        &["timeout", "request_timeout_ms", "requestTimeout", "tool_timeout_sec"],
        "clients use different units for it; set `timeouts.call`, for example \"300s\"",
    ),
    (
        &["connect_timeout", "connectionTimeout", "startup_timeout_sec", "startup_timeout_ms"],
        "set `timeouts.connect`, for example \"30s\"",
    ),
    (&["autoApprove", "alwaysAllow", "trust"], "the client approves calls"),
    (&["envFile"], "name the variables in `env`, for example \"${env:NAME}\""),
    (&["oauth", "auth"], "gripfast logs in without it: `gripfast login NAME`"),
    (
        &["ssl_verify"],
        "certificates are always checked; set `ca_file` to trust your own certificate authority",
    ),
];

fn ignored<'k>(key: &KeyNode, path: &str, known: impl Iterator<Item = &'k str>) -> Diagnostic {
    let message = format!("ignored unknown key {}", quoted(&key.name));
    let warning = Diagnostic::warning(format!("{path}.{}", key.name), key.at, message);
    let note = FOREIGN_KEY_HINTS.iter().find(|(names, _)| names.contains(&key.name.as_str()));
    match (note, nearest(&key.name, known)) {
        (Some((_, note)), _) => warning.with_hint(*note),
        (None, Some(name)) => warning.with_hint(format!("did you mean `{name}`?")),
        (None, None) => warning,
    }
}

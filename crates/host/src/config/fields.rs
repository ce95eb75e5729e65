//! Decodes one table: takes known keys, by name or alias, and reports the rest. Every value is checked where it is
//! read, and a wrong one is reported and skipped, so that one run finds all mistakes.

use super::Row;
use crate::config::diagnostic::{Diagnostic, quoted};
use crate::config::node::{KeyNode, Node, Position, Value};
use crate::config::suggest::nearest;
use crate::config::template::Template;
use crate::config::units::{self, DurationRange};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Conventions that a file follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum FileDialect {
    /// The native format: an unknown key is an error.
    Native,
    /// A file that other clients read too: aliases are understood, and an unknown key belongs to another client.
    Foreign,
    /// As `Foreign`, with the conventions of Hermes: `keepalive_interval` is a number of seconds, and an include list
    /// takes precedence over the exclude list.
    Hermes,
}

/// Errors and warnings found so far.
#[derive(Debug, Default)]
pub(in crate::config) struct Problems {
    pub(in crate::config) errors: Vec<Diagnostic>,
    pub(in crate::config) warnings: Vec<Diagnostic>,
}

impl Problems {
    pub(in crate::config) fn error(&mut self, diagnostic: Diagnostic) {
        self.errors.push(diagnostic);
    }

    pub(in crate::config) fn warning(&mut self, diagnostic: Diagnostic) {
        self.warnings.push(diagnostic);
    }
}

/// One value with the full path of its key.
#[derive(Debug, Clone)]
pub(in crate::config) struct Field<'n> {
    pub(in crate::config) path: String,
    pub(in crate::config) key_at: Position,
    pub(in crate::config) node: &'n Node,
    pub(in crate::config) dialect: FileDialect,
}

impl<'n> Field<'n> {
    /// A field of the file itself.
    pub(in crate::config) fn top(key: &KeyNode, node: &'n Node) -> Self {
        Self { path: key.name.clone(), key_at: key.at, node, dialect: FileDialect::Native }
    }

    /// The field of a key inside this table. A null value counts as absent.
    pub(in crate::config) fn get(&self, name: &str) -> Option<Self> {
        let Value::Table(entries) = &self.node.value else { return None };
        let (key, node) = entries.iter().find(|(key, _)| key.name == name)?;
        let path = format!("{}.{name}", self.path);
        let field = Self { path, key_at: key.at, node, dialect: self.dialect };
        (!matches!(node.value, Value::Null)).then_some(field)
    }

    pub(in crate::config) fn error(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(&self.path, self.node.at, message)
    }

    pub(in crate::config) fn warning(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::warning(&self.path, self.node.at, message)
    }

    pub(in crate::config) fn expected(&self, what: &str) -> Diagnostic {
        self.error(format!("expected {what}, found {}", self.node.value.kind()))
    }

    pub(in crate::config) fn text(&self, problems: &mut Problems) -> Option<&'n str> {
        match &self.node.value {
            Value::Str(text) => Some(text),
            _ => {
                problems.error(self.expected("a string"));
                None
            }
        }
    }

    /// A string that may not be empty.
    pub(in crate::config) fn nonempty_text(&self, problems: &mut Problems) -> Option<&'n str> {
        let text = self.text(problems)?;
        if text.trim().is_empty() {
            problems.error(self.error("expected a string that is not empty"));
            return None;
        }
        Some(text)
    }

    /// A string; in files of other clients also a number or a boolean, as in `PORT: 8080`.
    pub(in crate::config) fn scalar(&self, problems: &mut Problems) -> Option<String> {
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

    pub(in crate::config) fn template(&self, problems: &mut Problems) -> Option<Template> {
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
    pub(in crate::config) fn nonempty_template(&self, problems: &mut Problems) -> Option<Template> {
        let template = self.template(problems)?;
        if template.source().trim().is_empty() {
            problems.error(self.error("expected a string that is not empty"));
            return None;
        }
        Some(template)
    }

    pub(in crate::config) fn flag(&self, problems: &mut Problems) -> Option<bool> {
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

    pub(in crate::config) fn duration(
        &self,
        span: DurationRange,
        problems: &mut Problems,
    ) -> Option<Duration> {
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
        self.duration_in(duration, span, problems)
    }

    /// A duration, if it lies in the range.
    pub(in crate::config) fn duration_in(
        &self,
        duration: Duration,
        span: DurationRange,
        problems: &mut Problems,
    ) -> Option<Duration> {
        if !span.contains(duration) {
            let message =
                format!("{} is out of range; allowed: {}", units::format_duration(duration), span.describe());
            problems.error(self.error(message));
            return None;
        }
        Some(duration)
    }

    pub(in crate::config) fn whole_number(
        &self,
        range: RangeInclusive<u32>,
        problems: &mut Problems,
    ) -> Option<u32> {
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

    pub(in crate::config) fn size(&self, range: RangeInclusive<u64>, problems: &mut Problems) -> Option<u64> {
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
    pub(in crate::config) fn choice<T: Copy>(
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
    pub(in crate::config) fn elements(&self, problems: &mut Problems) -> Option<Vec<Self>> {
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
    pub(in crate::config) fn words(&self, problems: &mut Problems) -> Option<Vec<String>> {
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
    pub(in crate::config) fn pairs(&self, problems: &mut Problems) -> Vec<(&'n KeyNode, Self)> {
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

/// A table with known keys, as a section declares them.
pub(in crate::config) struct Fields<'n> {
    pub(in crate::config) path: String,
    rows: fn() -> Vec<Row>,
    dialect: FileDialect,
    remaining: Vec<&'n (KeyNode, Node)>,
    taken: Vec<&'static str>,
    /// Keys of other clients that are understood, besides the aliases.
    foreign: Vec<&'static str>,
    aliases: Vec<(&'static str, &'static str)>,
}

impl<'n> Fields<'n> {
    /// Opens the table in a field, or reports that there is none.
    pub(in crate::config) fn open(
        field: &Field<'n>,
        rows: fn() -> Vec<Row>,
        problems: &mut Problems,
    ) -> Option<Self> {
        let Value::Table(entries) = &field.node.value else {
            problems.error(field.expected("a table"));
            return None;
        };
        Some(Self {
            path: field.path.clone(),
            rows,
            dialect: field.dialect,
            remaining: entries.iter().collect(),
            taken: Vec::new(),
            foreign: Vec::new(),
            aliases: Vec::new(),
        })
    }

    /// The full path and the position of a field that was not taken yet; the start of the table if there is none.
    pub(in crate::config) fn position_of(&self, name: &str) -> (String, Position) {
        let field = self.remaining.iter().find(|(key, _)| key.name == name);
        let at = field.or(self.remaining.first()).map_or(Position::START, |(_, node)| node.at);
        (format!("{}.{name}", self.path), at)
    }

    /// Returns whether a field was not taken yet.
    pub(in crate::config) fn has(&self, name: &str) -> bool {
        let field = self.remaining.iter().find(|(key, _)| key.name == name);
        field.is_some_and(|(_, node)| !matches!(node.value, Value::Null))
    }

    /// Takes the field of this name. A null value counts as absent.
    pub(in crate::config) fn take(&mut self, name: &'static str) -> Option<Field<'n>> {
        self.taken.push(name);
        self.remove(name)
    }

    /// Takes a field that only files of other clients have.
    pub(in crate::config) fn take_foreign(&mut self, name: &'static str) -> Option<Field<'n>> {
        if self.dialect == FileDialect::Native {
            return None;
        }
        self.foreign.push(name);
        self.remove(name)
    }

    /// Takes the field of this name or, in files of other clients, of one of its aliases.
    pub(in crate::config) fn take_or_alias(
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

    /// The keys that are allowed here.
    fn known(&self) -> Vec<&'static str> {
        (self.rows)().iter().map(|row| row.name).chain(self.foreign.iter().copied()).collect()
    }

    /// Returns whether a remaining key will be reported as a misspelling of one of `names`.
    pub(in crate::config) fn misspells(&self, names: &[&str]) -> bool {
        self.dialect == FileDialect::Native
            && self.remaining.iter().any(|(key, _)| {
                let alias = self.aliases.iter().find(|(alias, _)| *alias == key.name).map(|(_, name)| *name);
                let intended = alias.or_else(|| nearest(&key.name, self.known()));
                intended.is_some_and(|intended| names.contains(&intended))
            })
    }

    /// Reports the remaining keys.
    pub(in crate::config) fn finish(self, problems: &mut Problems) {
        debug_assert!(
            (self.rows)().iter().all(|row| self.taken.contains(&row.name)),
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

fn unknown_key_without_hint(key: &KeyNode, path: &str) -> Diagnostic {
    let path = if path.is_empty() { key.name.clone() } else { format!("{path}.{}", key.name) };
    Diagnostic::error(path, key.at, format!("unknown key {}", quoted(&key.name)))
}

/// The error for an unknown key, with the nearest known one as a hint.
pub(in crate::config) fn unknown_key<'k>(
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

fn ignored<'k>(key: &KeyNode, path: &str, known: impl IntoIterator<Item = &'k str>) -> Diagnostic {
    let message = format!("ignored unknown key {}", quoted(&key.name));
    let warning = Diagnostic::warning(format!("{path}.{}", key.name), key.at, message);
    let note = FOREIGN_KEY_HINTS.iter().find(|(names, _)| names.contains(&key.name.as_str()));
    match (note, nearest(&key.name, known)) {
        (Some((_, note)), _) => warning.with_hint(*note),
        (None, Some(name)) => warning.with_hint(format!("did you mean `{name}`?")),
        (None, None) => warning,
    }
}

//! Decodes one table: takes known keys, by name or alias, and reports the rest. Every value is checked where it is
//! read, and a wrong one is reported and skipped, so that one run finds all mistakes.

use super::diagnostic::{Diagnostic, quoted};
use super::keys::Row;
use super::node::{KeyNode, Node, Position, Value};
use super::suggest::nearest;
use super::template::Template;
use super::units::{self, DurationRange};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Conventions that a file follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileDialect {
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

    /// Adds an error in the place of a value.
    pub(super) fn refuse<T>(&mut self, diagnostic: Diagnostic) -> Option<T> {
        self.error(diagnostic);
        None
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

    /// The field of a key inside this table. A null value counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<Self> {
        let Value::Table(entries) = &self.node.value else { return None };
        let (key, node) = entries.iter().find(|(key, _)| key.name == name)?;
        let path = format!("{}.{name}", self.path);
        let field = Self { path, key_at: key.at, node, dialect: self.dialect };
        (!matches!(node.value, Value::Null)).then_some(field)
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
            _ => problems.refuse(self.expected("a string")),
        }
    }

    /// A string that may not be empty.
    pub(super) fn nonempty_text(&self, problems: &mut Problems) -> Option<&'n str> {
        let text = self.text(problems)?;
        if text.trim().is_empty() {
            return problems.refuse(self.error("expected a string that is not empty"));
        }
        Some(text)
    }

    /// A string; in files of other clients also a number or a boolean, as in `PORT: 8080`.
    pub(super) fn scalar(&self, problems: &mut Problems) -> Option<String> {
        match (&self.node.value, self.dialect) {
            (Value::Str(text), _) => Some(text.clone()),
            (Value::Number(text), FileDialect::Foreign | FileDialect::Hermes) => Some(text.clone()),
            (Value::Bool(flag), FileDialect::Foreign | FileDialect::Hermes) => Some(flag.to_string()),
            (Value::Number(_) | Value::Bool(_), FileDialect::Native) => {
                problems.refuse(self.expected("a string").with_hint("put it in quotes"))
            }
            _ => problems.refuse(self.expected("a string")),
        }
    }

    pub(super) fn template(&self, problems: &mut Problems) -> Option<Template> {
        match Template::parse(&self.scalar(problems)?) {
            Ok(template) => Some(template),
            Err(error) => problems.refuse(self.error(error.message).with_any_hint(error.hint)),
        }
    }

    /// A template that may not be empty.
    pub(super) fn nonempty_template(&self, problems: &mut Problems) -> Option<Template> {
        let template = self.template(problems)?;
        if template.source().trim().is_empty() {
            return problems.refuse(self.error("expected a string that is not empty"));
        }
        Some(template)
    }

    pub(super) fn flag(&self, problems: &mut Problems) -> Option<bool> {
        let hint = match &self.node.value {
            Value::Bool(flag) => return Some(*flag),
            Value::Str(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => Some("write true, without quotes"),
                "false" | "no" | "off" | "0" => Some("write false, without quotes"),
                _ => None,
            },
            _ => None,
        };
        problems.refuse(self.expected("true or false").with_any_hint(hint))
    }

    pub(super) fn duration(&self, span: DurationRange, problems: &mut Problems) -> Option<Duration> {
        let with_units =
            |number: &str| format!("write \"{number}s\" for seconds or \"{number}ms\" for milliseconds");
        let error = match &self.node.value {
            Value::Str(text) => match units::parse_duration(text) {
                Some(duration) => return self.duration_in(duration, span, problems),
                None => {
                    let hint = match text.trim().parse::<u64>() {
                        Ok(number) => with_units(&number.to_string()),
                        Err(_) => {
                            "write whole numbers with units: \"100ms\", \"30s\", \"5m\", \"1h30m\"".to_owned()
                        }
                    };
                    self.error(format!("{} is not a duration", quoted(text))).with_hint(hint)
                }
            },
            Value::Number(text) => self.expected("a duration with a unit").with_hint(with_units(text)),
            _ => self.expected("a duration such as \"30s\""),
        };
        problems.refuse(error)
    }

    /// A duration, if it lies in the range.
    pub(super) fn duration_in(
        &self,
        duration: Duration,
        span: DurationRange,
        problems: &mut Problems,
    ) -> Option<Duration> {
        if span.contains(duration) {
            return Some(duration);
        }
        problems.refuse(self.out_of_range(&units::format_duration(duration), &span.describe()))
    }

    fn out_of_range(&self, value: &str, allowed: &str) -> Diagnostic {
        self.error(format!("{value} is out of range; allowed: {allowed}"))
    }

    pub(super) fn whole_number(&self, range: RangeInclusive<u32>, problems: &mut Problems) -> Option<u32> {
        let Value::Number(text) = &self.node.value else {
            return problems.refuse(self.expected("a whole number"));
        };
        let Ok(number) = text.parse::<i128>() else {
            return problems.refuse(self.error(format!("expected a whole number, found {}", quoted(text))));
        };
        match u32::try_from(number) {
            Ok(number) if range.contains(&number) => Some(number),
            Ok(_) | Err(_) => {
                let allowed = format!("{} to {}", range.start(), range.end());
                problems.refuse(self.out_of_range(&quoted(text), &allowed))
            }
        }
    }

    pub(super) fn size(&self, range: RangeInclusive<u64>, problems: &mut Problems) -> Option<u64> {
        let error = match &self.node.value {
            Value::Str(text) | Value::Number(text) => match units::parse_size(text) {
                Some(size) if range.contains(&size) => return Some(size),
                Some(_) => {
                    let [least, most] = [*range.start(), *range.end()].map(units::format_size);
                    self.out_of_range(&quoted(text), &format!("{least} to {most}"))
                }
                None => self
                    .error(format!("{} is not a size", quoted(text)))
                    .with_hint("write a number of bytes, or a size such as \"16MiB\""),
            },
            _ => self.expected("a size such as \"16MiB\""),
        };
        problems.refuse(error)
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
        let hint = nearest(text, names()).map(|name| format!("did you mean `{name}`?"));
        let message = format!("{} is not one of {}", quoted(text), list.join(", "));
        problems.refuse(self.error(message).with_any_hint(hint))
    }

    /// The elements of a list, each with its own path.
    pub(super) fn elements(&self, problems: &mut Problems) -> Option<Vec<Self>> {
        let Value::List(list) = &self.node.value else {
            let is_text = matches!(self.node.value, Value::Str(_));
            let hint = is_text.then_some("write [\"…\"] with square brackets");
            return problems.refuse(self.expected("a list").with_any_hint(hint));
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

/// A table with known keys, as a section declares them.
pub(super) struct Fields<'n> {
    pub(super) path: String,
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
    pub(super) fn open(field: &Field<'n>, rows: fn() -> Vec<Row>, problems: &mut Problems) -> Option<Self> {
        let Value::Table(entries) = &field.node.value else {
            return problems.refuse(field.expected("a table"));
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
    pub(super) fn position_of(&self, name: &str) -> (String, Position) {
        let field = self.remaining.iter().find(|(key, _)| key.name == name);
        let at = field.or(self.remaining.first()).map_or(Position::START, |(_, node)| node.at);
        (format!("{}.{name}", self.path), at)
    }

    /// Returns whether a field was not taken yet.
    pub(super) fn has(&self, name: &str) -> bool {
        let field = self.remaining.iter().find(|(key, _)| key.name == name);
        field.is_some_and(|(_, node)| !matches!(node.value, Value::Null))
    }

    /// Takes the field of this name. A null value counts as absent.
    pub(super) fn take(&mut self, name: &'static str) -> Option<Field<'n>> {
        self.taken.push(name);
        self.remove(name)
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

    /// The keys that are allowed here.
    fn known(&self) -> Vec<&'static str> {
        (self.rows)().iter().map(|row| row.name).chain(self.foreign.iter().copied()).collect()
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
pub(super) fn unknown_key<'k>(
    key: &KeyNode,
    path: &str,
    known: impl IntoIterator<Item = &'k str> + Clone,
) -> Diagnostic {
    let hint =
        nearest(&key.name, known.clone()).map(|name| format!("did you mean `{name}`?")).or_else(|| {
            let names: Vec<&str> = known.into_iter().collect();
            // A longer list, such as the keys of a server, would be no help.
            (names.len() <= 10).then(|| format!("known keys: {}", names.join(", ")))
        });
    unknown_key_without_hint(key, path).with_any_hint(hint)
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
    let note = note.map(|(_, note)| (*note).to_owned());
    warning.with_any_hint(
        note.or_else(|| nearest(&key.name, known).map(|name| format!("did you mean `{name}`?"))),
    )
}

//! Strings of a config that may refer to the environment. References are parsed when the config is loaded and expanded
//! when a server is connected, so that a changed variable or a rotated secret file takes effect at the next connect,
//! and the stored config never holds the value.
//!
//! | written | means |
//! |---|---|
//! | `${env:NAME}`, `${NAME}` | the variable; unset blocks that server |
//! | `${env:NAME:-text}`, `${NAME:-text}` | the variable, or `text` if it is unset or empty |
//! | `${file:/path}` | the text of the file without its trailing line breaks |
//! | `${cmd:PROGRAM ARGUMENTS}` | the program's stdout without trailing line breaks; split at spaces, no shell |
//! | `$${` | a literal `${` |
//! | `${v%x}`, `${#v}`, `${v:1:2}`, `${1}` … | left unchanged, for the shell in a `sh -c` argument |
//!
//! A `$` without a following `{` is an ordinary character, and so are two of them: passwords contain dollar signs.
//! Variables of editors, such as `${input:id}` or `${workspaceFolder}`, are errors.

use super::lookup::Lookup;
use crate::file_limit;
use gripfast_core::redact::{self, REDACTED};
use std::fmt;
use std::path::PathBuf;

/// A string with references that are not expanded yet.
///
/// `Debug` and `Display` show the text as written, except that a template that [holds a
/// secret](Self::into_secret) shows its references only.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
    display: DisplayMode,
}

#[derive(Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Reference(Reference),
}

/// The part of the text that `Display` shows.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum DisplayMode {
    #[default]
    AsWritten,
    AsUrl,
    ReferencesOnly,
}

/// A reference in a template.
#[derive(Clone, PartialEq, Eq)]
pub enum Reference {
    /// An environment variable.
    Variable {
        /// Its name.
        name: String,
        /// Value if the variable is unset or empty.
        default: Option<String>,
    },
    /// A file whose text is the value.
    File {
        /// Its path.
        path: PathBuf,
    },
    /// A program whose output is the value, such as a password manager.
    Command {
        /// The program and its arguments, split at spaces.
        line: String,
    },
}

/// Reason why a text is not a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// Description of the mistake.
    pub message: String,
    /// Suggested correction.
    pub hint: Option<String>,
}

/// Reason why a template cannot be expanded now. Blocks the server until the cause changes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// A variable without default is not set.
    #[error("environment variable `{name}` is not set")]
    Unset {
        /// Its name.
        name: String,
    },
    /// A variable's value is not Unicode text.
    #[error("environment variable `{name}` is not valid text")]
    NotText {
        /// Its name.
        name: String,
    },
    /// A program did not provide the value.
    #[error("program `{program}` did not provide the value: {why}")]
    CommandFailed {
        /// The program.
        program: String,
        /// The reason.
        why: String,
    },
    /// A file cannot be read.
    #[error("cannot read `{}`: {why}", path.display())]
    FileUnreadable {
        /// Its path.
        path: PathBuf,
        /// The operating system's reason.
        why: String,
    },
    /// This process or machine has run out of a resource that is needed to read a file or run a program.
    #[error("{what}")]
    LacksResources {
        /// The resource that has run out.
        what: &'static str,
    },
}

/// An expanded template. It may contain secrets, so `Debug` prints `[redacted]` and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Expanded {
    value: String,
    references: Vec<(Reference, String)>,
}

impl Expanded {
    /// The value, for the code that passes it to a process or a connection.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.value
    }

    /// The value, owned.
    #[must_use]
    pub fn into_revealed(self) -> String {
        self.value
    }

    /// The references with the values they were expanded to. Defaults of the config are not included.
    pub fn references(&self) -> impl Iterator<Item = (&Reference, &str)> {
        self.references.iter().map(|(from, value)| (from, value.as_str()))
    }
}

impl fmt::Debug for Expanded {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(REDACTED)
    }
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    /// A `${…}` that is neither a reference nor a shell expression, or that is not closed.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut parts = Parts::default();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            if rest[..start].ends_with('$') {
                parts.literal(&rest[..start - 1]);
                parts.literal("${");
                rest = &rest[start + 2..];
                continue;
            }
            parts.literal(&rest[..start]);
            let Some((body, after)) = rest[start + 2..].split_once('}') else {
                return Err(TemplateError {
                    message: "`${` without a closing `}`".to_owned(),
                    hint: Some("write `$${` for a literal `${`".to_owned()),
                });
            };
            match parse_reference(body)? {
                Some(reference) => parts.list.push(Part::Reference(reference)),
                None => parts.literal(&rest[start..start + body.len() + 3]),
            }
            rest = after;
        }
        parts.literal(rest);
        Ok(Self { text: text.to_owned(), parts: parts.list, display: DisplayMode::AsWritten })
    }

    /// Marks the literal text as secret, as in `env` and `headers`.
    #[must_use]
    pub fn into_secret(self) -> Self {
        Self { display: DisplayMode::ReferencesOnly, ..self }
    }

    /// Marks the text as a URL, of which user, password and query are not shown.
    pub(super) fn into_url(self) -> Self {
        Self { display: DisplayMode::AsUrl, ..self }
    }

    /// The text as written, secrets included. For storing, not for display.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.text
    }

    /// The references, in order.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Reference(reference) => Some(reference),
        })
    }

    /// The text as the config file has it, secrets included.
    pub fn as_written(&self) -> &str {
        &self.text
    }

    /// The literal texts, including the defaults of variables.
    pub fn literal_texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(text) => Some(text.as_str()),
            Part::Reference(Reference::Variable { default, .. }) => default.as_deref(),
            Part::Reference(Reference::File { .. } | Reference::Command { .. }) => None,
        })
    }

    /// The value, if the template has no references.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Expands the references.
    ///
    /// # Errors
    /// The first reference that has no value.
    pub fn expand(&self, lookup: &dyn Lookup) -> Result<Expanded, ExpandError> {
        let mut value = String::with_capacity(self.text.len());
        let mut filled_in = Vec::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => value.push_str(text),
                Part::Reference(reference) => match reference.value(lookup)? {
                    Some(found) => {
                        value.push_str(&found);
                        filled_in.push((reference.clone(), found));
                    }
                    None => value.push_str(reference.default().unwrap_or_default()),
                },
            }
        }
        Ok(Expanded { value, references: filled_in })
    }
}

impl Reference {
    fn default(&self) -> Option<&str> {
        match self {
            Self::Variable { default, .. } => default.as_deref(),
            Self::File { .. } | Self::Command { .. } => None,
        }
    }

    /// The value of the reference; `None` if its default applies.
    fn value(&self, lookup: &dyn Lookup) -> Result<Option<String>, ExpandError> {
        match self {
            Self::Variable { name, default } => {
                let value = lookup.variable(name);
                match (value.filter(|value| default.is_none() || !value.is_empty()), default) {
                    (Some(value), _) => {
                        let text = value.into_string();
                        text.map(Some).map_err(|_| ExpandError::NotText { name: name.clone() })
                    }
                    (None, Some(_)) => Ok(None),
                    (None, None) => Err(ExpandError::Unset { name: name.clone() }),
                }
            }
            Self::File { path } => match lookup.file(path) {
                Ok(text) => Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned())),
                Err(error) => Err(match file_limit::exhausted(&error) {
                    Some(what) => ExpandError::LacksResources { what },
                    None => ExpandError::FileUnreadable { path: path.clone(), why: error.to_string() },
                }),
            },
            Self::Command { line } => match lookup.command(line) {
                Ok(text) => Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned())),
                Err(error) => Err(match file_limit::exhausted_by_start(&error) {
                    Some(what) => ExpandError::LacksResources { what },
                    None => ExpandError::CommandFailed {
                        program: program_name(line).to_owned(),
                        why: error.to_string(),
                    },
                }),
            },
        }
    }
}

fn program_name(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

/// Shows neither defaults nor arguments of programs, because both may be secrets.
impl fmt::Display for Reference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable { name, default: None } => write!(out, "${{env:{name}}}"),
            Self::Variable { name, default: Some(_) } => write!(out, "${{env:{name}:-…}}"),
            Self::File { path } => write!(out, "${{file:{}}}", path.display()),
            Self::Command { line } => write!(out, "${{cmd:{} …}}", program_name(line)),
        }
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.display {
            DisplayMode::AsWritten => out.write_str(&redact::text(&self.text)),
            DisplayMode::AsUrl => out.write_str(&redact::url(&self.text)),
            DisplayMode::ReferencesOnly => self.parts.iter().try_for_each(|part| match part {
                Part::Literal(_) => out.write_str(REDACTED),
                Part::Reference(reference) => write!(out, "{reference}"),
            }),
        }
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.to_string())
    }
}

/// Parts under construction; neighbouring literals become one.
#[derive(Default)]
struct Parts {
    list: Vec<Part>,
}

impl Parts {
    fn literal(&mut self, text: &str) {
        match self.list.last_mut() {
            _ if text.is_empty() => {}
            Some(Part::Literal(last)) => last.push_str(text),
            _ => self.list.push(Part::Literal(text.to_owned())),
        }
    }
}

/// Variables that editors expand, as their documentation names them.
const EDITOR_VARIABLES: &[&str] = &[
    "workspaceFolder",
    "workspaceFolderBasename",
    "workspaceRoot",
    "userHome",
    "pathSeparator",
    "/",
    "execPath",
    "__dirname",
    "file",
    "cwd",
];

/// Parses the text between the braces; `None` for an expression that is left to the shell.
fn parse_reference(body: &str) -> Result<Option<Reference>, TemplateError> {
    if body.is_empty() {
        return Err(TemplateError { message: "`${}` is empty".to_owned(), hint: None });
    }
    if EDITOR_VARIABLES.contains(&body) {
        let hint = match body {
            "userHome" => "write `${HOME}`",
            _ => "write the path itself",
        };
        return Err(unsupported(body, "is a variable of editors, which gripfast does not support", hint));
    }
    if let Some(path) = body.strip_prefix("file:") {
        return file(path).map(Some);
    }
    if let Some(line) = body.strip_prefix("cmd:") {
        if line.trim().is_empty() {
            return Err(unsupported("cmd:", "names no program", "write `${cmd:PROGRAM ARGUMENTS}`"));
        }
        return Ok(Some(Reference::Command { line: line.to_owned() }));
    }
    if let Some(variable) = body.strip_prefix("env:") {
        let (name, default) = split_default(variable);
        if name_length(name) != name.len() || name.is_empty() {
            return Err(unsupported(body, "does not name a variable", "write `${env:NAME}`"));
        }
        return reference(name, default, body).map(Some);
    }
    let (name, operator) = body.split_at(name_length(body));
    match operator.as_bytes() {
        _ if name.is_empty() => shell_or_unknown(body, is_special_parameter),
        [] => reference(name, None, body).map(Some),
        [b':', b'-', ..] => reference(name, Some(&operator[2..]), body).map(Some),
        // `${v:=x}`, `${v:?x}`, `${v:+x}`, and `${v:1:2}` of bash.
        [b':', b'=' | b'?' | b'+' | b' ' | b'0'..=b'9' | b'$' | b'(', ..] => Ok(None),
        [b'%' | b'#' | b'/' | b'^' | b',' | b'@' | b'[' | b'-' | b'+' | b'=' | b'?', ..] => Ok(None),
        [b':', ..] => {
            let what = format!("uses `{name}:`, which gripfast does not support");
            Err(unsupported(body, &what, "write `${env:NAME}` or `${file:/path}`"))
        }
        _ => shell_or_unknown(body, |_| false),
    }
}

fn reference(name: &str, default: Option<&str>, body: &str) -> Result<Reference, TemplateError> {
    if default.is_some_and(|default| default.contains("${")) {
        return Err(unsupported(body, "has a reference inside its default", "write the default out"));
    }
    Ok(Reference::Variable { name: name.to_owned(), default: default.map(str::to_owned) })
}

/// Refuses a relative path, which would name a different file for each working directory of gripfast.
fn file(path: &str) -> Result<Reference, TemplateError> {
    let path = PathBuf::from(path);
    if path.has_root() {
        Ok(Reference::File { path })
    } else {
        let body = format!("file:{}", path.display());
        Err(unsupported(&body, "needs an absolute path", "write `${file:/run/secrets/name}`"))
    }
}

fn split_default(variable: &str) -> (&str, Option<&str>) {
    match variable.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (variable, None),
    }
}

/// The length of the variable name that `text` begins with.
fn name_length(text: &str) -> usize {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return 0;
    }
    text.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')).unwrap_or(text.len())
}

/// `${1}`, `${#v}`, `${!v}`, `${@}` and similar shell parameters.
fn is_special_parameter(body: &str) -> bool {
    body.starts_with(|first: char| first.is_ascii_digit() || "#!@*?$-".contains(first))
}

fn shell_or_unknown(body: &str, of_the_shell: fn(&str) -> bool) -> Result<Option<Reference>, TemplateError> {
    if of_the_shell(body) {
        return Ok(None);
    }
    Err(unsupported(body, "is not a reference that gripfast knows", "write `$${` for a literal `${`"))
}

/// The error for an unsupported reference. Shows only its beginning, because a secret may follow `:-`.
fn unsupported(body: &str, what: &str, hint: &str) -> TemplateError {
    let (beginning, _) = split_default(body);
    let beginning: String = beginning.chars().take(40).collect();
    TemplateError { message: format!("`${{{beginning}}}` {what}"), hint: Some(hint.to_owned()) }
}

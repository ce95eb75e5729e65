//! The arguments of a call as they were typed: a JSON object, `@FILE`, or `-` for stdin. They are checked and
//! passed on byte for byte.

use crate::cli::exit::Exit;
use crate::cli::stop::Failure;
use serde_json::error::Category;
use serde_json::value::RawValue;
use std::fmt;
use std::io;

/// Where the arguments stand.
enum Source<'w> {
    CommandLine,
    File(&'w str),
    Stdin,
}

/// Reads the arguments.
pub(super) fn read(typed: &str) -> Result<Box<RawValue>, Failure> {
    let (source, text) = match (typed, typed.strip_prefix('@')) {
        ("-", _) => (Source::Stdin, io::read_to_string(io::stdin())),
        (_, Some(path)) => (Source::File(path), std::fs::read_to_string(path)),
        (_, None) => (Source::CommandLine, Ok(typed.to_owned())),
    };
    let text = text.map_err(|error| {
        Failure::new(Exit::General, format!("cannot read the arguments{source}: {error}"))
    })?;
    let raw: Box<RawValue> = serde_json::from_str(&text).map_err(|error| source.not_json(&text, &error))?;
    let found = match raw.get().as_bytes().first() {
        Some(b'{') => return Ok(raw),
        Some(b'[') => "a list",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    };
    let text = format!("the arguments{source} must be a JSON object, found {found}");
    Err(Failure::new(Exit::General, text).with_hint(r#"name each argument: '{"text": "hello"}'"#))
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommandLine => Ok(()),
            Self::File(path) => write!(f, " in `{path}`"),
            Self::Stdin => f.write_str(" on stdin"),
        }
    }
}

impl Source<'_> {
    fn not_json(&self, text: &str, error: &serde_json::Error) -> Failure {
        let (line, column) = place(text, error);
        let what = match error.classify() {
            Category::Eof => format!("the arguments{self} end too soon"),
            Category::Syntax | Category::Data | Category::Io => format!("the arguments{self} are not JSON"),
        };
        let text = format!("{what}: line {line}, column {column}{}", excerpt(text, line, column));
        let failure = Failure::new(Exit::General, text);
        match self {
            Self::CommandLine => failure.with_hint(
                r#"write a JSON object in single quotes, '{"text": "hello"}', or `@FILE`, or `-` for stdin"#,
            ),
            Self::File(_) | Self::Stdin => failure,
        }
    }
}

/// Where the mistake is, counted in characters from one. serde_json counts bytes, and says column zero of the
/// next line for what stands at the end of one.
fn place(text: &str, error: &serde_json::Error) -> (usize, usize) {
    let line = |number: usize| text.lines().nth(number.saturating_sub(1)).unwrap_or_default();
    match (error.line(), error.column()) {
        (number, 0) if number > 1 => (number - 1, line(number - 1).chars().count() + 1),
        (number, column) => {
            let line = line(number);
            let before = line[..line.floor_char_boundary(column.saturating_sub(1))].chars().count();
            // What is missing at the end stands after the last character.
            let missing = error.is_eof() && !line.is_empty();
            (number, before + 1 + usize::from(missing))
        }
    }
}

/// The line in question with a caret under the place.
fn excerpt(text: &str, number: usize, column: usize) -> String {
    /// Of longer lines a window around the place is shown.
    const WIDEST: usize = 80;
    let Some(line) = text.lines().nth(number - 1).filter(|line| !line.trim().is_empty()) else {
        return String::new();
    };
    let from = if line.chars().count() <= WIDEST { 0 } else { column.saturating_sub(WIDEST / 2) };
    let shown: String = line.chars().skip(from).take(WIDEST).collect();
    let margin = " ".repeat(number.to_string().len());
    let caret = " ".repeat(column - 1 - from);
    format!("\n{margin} |\n{number} | {}\n{margin} | {caret}^", shown.trim_end())
}

//! Arguments of a call on the command line: a JSON object, `@FILE`, `-` for stdin, or `KEY=VALUE` words. JSON is
//! checked and passed on byte for byte.

use crate::cli::error::FailureReport;
use crate::cli::exit::Exit;
use gripfast::wire::patch::{Object, Patch};
use gripfast::{Json, JsonText};
use serde_json::error::Category;
use std::fmt;
use std::io;

/// Source of the arguments.
enum Source<'w> {
    CommandLine,
    File(&'w str),
    Stdin,
}

/// The arguments of a call.
pub(crate) enum Arguments {
    /// A JSON object, as typed.
    Json(JsonText),
    /// `KEY=VALUE` words, in their order.
    Pairs(Vec<(String, String)>),
}

impl Arguments {
    /// Reads the words after the tool name; `None` if there are none.
    pub(crate) fn read(words: &[String]) -> Result<Option<Self>, FailureReport> {
        match words {
            [] => Ok(None),
            [only] if !is_pair(only) => read_json(only).map(|json| Some(Self::Json(json))),
            words => parse_pairs(words).map(|pairs| Some(Self::Pairs(pairs))),
        }
    }

    /// The arguments as JSON. A value is a string if `schema`, the tool's input schema, declares a string. Otherwise a
    /// value that is valid JSON is taken as JSON, and any other as a string.
    pub(crate) fn to_json(&self, schema: Option<&Json>) -> JsonText {
        let pairs = match self {
            Self::Json(json) => return json.clone(),
            Self::Pairs(pairs) => pairs,
        };
        let schema = schema.and_then(|schema| Object::parse(schema).ok());
        let properties = schema.as_ref().and_then(|schema| schema.object("properties"));
        let is_text = |key: &str| {
            let property = properties.as_ref().and_then(|properties| properties.object(key));
            property.is_some_and(|property| property.text("type").is_some_and(|kind| kind == "string"))
        };
        let object = pairs.iter().fold(Patch::new(), |object, (key, value)| {
            match serde_json::from_str::<JsonText>(value) {
                Ok(json) if !is_text(key) => object.set_owned(key.clone(), json),
                Ok(_) | Err(_) => object.set_text(key.clone(), value),
            }
        });
        object.to_object()
    }
}

/// Returns true if a word is `KEY=VALUE`, and not JSON, a file or stdin.
fn is_pair(word: &str) -> bool {
    !word.trim_start().starts_with(['{', '[', '"', '@']) && word.find('=').is_some_and(|at| at > 0)
}

/// Parses `KEY=VALUE` words.
pub(crate) fn parse_pairs(words: &[String]) -> Result<Vec<(String, String)>, FailureReport> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for word in words {
        let pair = word.split_once('=').filter(|_| is_pair(word));
        let Some((key, value)) = pair else {
            let text = format!("`{word}` is not an argument: expected KEY=VALUE");
            let hint =
                "write KEY=VALUE for each argument, or all of them as one JSON object in single quotes";
            return Err(FailureReport::new(Exit::General, text).with_hint(hint));
        };
        if pairs.iter().any(|(known, _)| known == key) {
            return Err(FailureReport::new(Exit::General, format!("the argument `{key}` is given twice"))
                .with_hint(format!("write a list as JSON: {key}='[\"a\", \"b\"]'")));
        }
        pairs.push((key.to_owned(), value.to_owned()));
    }
    Ok(pairs)
}

/// Reads a JSON object from the source that the word names.
fn read_json(typed: &str) -> Result<JsonText, FailureReport> {
    let (source, text) = match (typed, typed.strip_prefix('@')) {
        ("-", _) => (Source::Stdin, io::read_to_string(io::stdin())),
        (_, Some(path)) => (Source::File(path), std::fs::read_to_string(path)),
        (_, None) => (Source::CommandLine, Ok(typed.to_owned())),
    };
    let text = text.map_err(|error| {
        FailureReport::new(Exit::General, format!("cannot read the arguments{source}: {error}"))
    })?;
    let raw: JsonText = serde_json::from_str(&text).map_err(|error| source.not_json(&text, &error))?;
    let found = match raw.get().as_bytes().first() {
        Some(b'{') => return Ok(raw),
        Some(b'[') => "a list",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    };
    let text = format!("the arguments{source} must be a JSON object, found {found}");
    Err(FailureReport::new(Exit::General, text).with_hint(r#"name each argument: '{"text": "hello"}'"#))
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
    fn not_json(&self, text: &str, error: &serde_json::Error) -> FailureReport {
        let (line, column) = position(text, error);
        let what = match error.classify() {
            Category::Eof => format!("the arguments{self} end too soon"),
            Category::Syntax | Category::Data | Category::Io => format!("the arguments{self} are not JSON"),
        };
        let text = format!("{what}: line {line}, column {column}{}", excerpt(text, line, column));
        let failure = FailureReport::new(Exit::General, text);
        match self {
            Self::CommandLine => failure.with_hint(
                r#"pass a JSON object in single quotes, such as '{"text": "hello"}', KEY=VALUE words, `@FILE`, or `-` for stdin"#,
            ),
            Self::File(_) | Self::Stdin => failure,
        }
    }
}

/// The line and column of the error, counted in characters from one. serde_json counts bytes, and reports an error at
/// the end of a line as column zero of the next line.
fn position(text: &str, error: &serde_json::Error) -> (usize, usize) {
    let line = |number: usize| text.lines().nth(number.saturating_sub(1)).unwrap_or_default();
    match (error.line(), error.column()) {
        (number, 0) if number > 1 => (number - 1, line(number - 1).chars().count() + 1),
        (number, column) => {
            let line = line(number);
            let before = line[..line.floor_char_boundary(column.saturating_sub(1))].chars().count();
            // An early end is reported after the last character.
            let missing = error.is_eof() && !line.is_empty();
            (number, before + 1 + usize::from(missing))
        }
    }
}

/// The line with the error, and a caret under the column.
fn excerpt(text: &str, number: usize, column: usize) -> String {
    /// Longer lines are cut to a window around the column.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(words: &[&str], schema: Option<&str>) -> Result<String, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let schema = schema.map(|schema| JsonText::parse(schema.to_owned()).unwrap());
        let arguments = Arguments::read(&words).map_err(|failure| failure.text)?;
        Ok(arguments.expect("there are words").to_json(schema.as_deref()).get().to_owned())
    }

    #[test]
    fn a_value_that_is_json_is_json_and_any_other_is_text() {
        let json = typed(&["a=1", "b=two words", "c=[1, 2]", "d=\"4\"", "e=x=y", "f=", "g=true"], None);
        let expected = r#"{"a":1,"b":"two words","c":[1, 2],"d":"4","e":"x=y","f":"","g":true}"#;
        assert_eq!(json.as_deref(), Ok(expected));
    }

    #[test]
    fn a_value_is_text_if_the_schema_declares_a_string() {
        let schema = r#"{"properties":{"zip":{"type":"string"},"n":{"type":"number"}}}"#;
        assert_eq!(
            typed(&["zip=01234", "n=1", "zip2=7"], Some(schema)).as_deref(),
            Ok(r#"{"zip":"01234","n":1,"zip2":7}"#)
        );
        assert_eq!(typed(&["zip=true"], Some(schema)).as_deref(), Ok(r#"{"zip":"true"}"#));
    }

    #[test]
    fn json_stays_json_and_words_that_are_neither_are_refused() {
        assert_eq!(typed(&[r#"{"a": "b=c"}"#], None).as_deref(), Ok(r#"{"a": "b=c"}"#));
        assert!(typed(&["a=1", "b"], None).unwrap_err().contains("`b` is not an argument"));
        assert!(typed(&["a=1", "a=2"], None).unwrap_err().contains("given twice"));
        assert!(typed(&["=1"], None).is_err());
    }
}

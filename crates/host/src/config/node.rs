//! The tree that all formats are parsed into. It keeps the order of the file and the position of every key and value,
//! so that the decoder can point at mistakes. It knows nothing about servers.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;

/// A position in a text, as editors count: both numbers start at one, columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character within the line.
    pub column: usize,
}

impl Position {
    /// The start of a text.
    pub const START: Self = Self { line: 1, column: 1 };
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.line, self.column)
    }
}

/// A value and its position.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) at: Position,
}

/// A value that any of the formats can hold.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// As written, because `1.10` is a valid value for a variable and must not become `1.1`.
    Number(String),
    Date,
    Str(String),
    List(Vec<Node>),
    Table(Vec<(KeyNode, Node)>),
}

impl Value {
    /// The kind of value in the words of an error message.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Date => "a date",
            Self::Str(_) => "a string",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// A key of a table and its position.
#[derive(Debug, Clone)]
pub(super) struct KeyNode {
    pub(super) name: String,
    pub(super) at: Position,
}

/// Largest nesting depth of a config file. It bounds every recursion over the tree.
pub(super) const MAX_DEPTH: usize = 64;

/// Syntax error of a parser, with its position.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) at: Position,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl SyntaxError {
    pub(super) fn new(at: Position, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), hint: None }
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn too_deep(at: Position) -> Self {
        Self::new(at, format!("nested more than {MAX_DEPTH} levels deep"))
    }
}

/// Collects the entries of one table and refuses a duplicate key: parsers that keep the first and parsers that keep
/// the last would read two different configs from one file.
#[derive(Debug, Default)]
pub(super) struct Entries {
    list: Vec<(KeyNode, Node)>,
    seen: HashMap<String, Position>,
}

impl Entries {
    pub(super) fn push(&mut self, key: KeyNode, node: Node) -> Result<(), SyntaxError> {
        if let Some(first) = self.seen.insert(key.name.clone(), key.at) {
            return Err(SyntaxError::new(key.at, format!("duplicate key `{}`", key.name))
                .with_hint(format!("the first one is on line {}", first.line)));
        }
        self.list.push((key, node));
        Ok(())
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.seen.contains_key(name)
    }

    pub(super) fn into_table(self) -> Value {
        Value::Table(self.list)
    }
}

/// Turns byte offsets into positions. Offsets mostly arrive in rising order, and a file may be one line of megabytes,
/// so it counts on from the last result.
pub(super) struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
    last: Cell<(usize, usize)>,
}

impl<'t> Lines<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts, last: Cell::new((0, 0)) }
    }

    /// The position of the character at `offset`; beyond the text, of its end.
    pub(super) fn position(&self, offset: usize) -> Position {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        let (from, before) = match self.last.get() {
            (last, column) if (start..=offset).contains(&last) => (last, column),
            _ => (start, 0),
        };
        let before = before + self.text[from..offset].chars().count();
        self.last.set((offset, before));
        Position { line, column: before + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one_in_any_order() {
        let lines = Lines::new("ab\nçd e\n");
        let places = [0, 1, 3, 5, 7, 3, 1, 99].map(|offset| lines.position(offset).to_string());
        assert_eq!(places, ["1:1", "1:2", "2:1", "2:2", "2:4", "2:1", "1:2", "3:1"]);
    }
}

//! Parses TOML into the tree.

use crate::config::node::{Entries, KeyNode, Lines, MAX_DEPTH, Node, Position, SyntaxError, Value};
use toml_edit::{Document, Item, TableLike};

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let lines = Lines::new(text);
    let document = Document::parse(text).map_err(|error| {
        let at = error.span().map_or(Position::START, |span| lines.position(span.start));
        SyntaxError::new(at, error.message().trim().replace('\n', "; "))
    })?;
    table(document.as_table(), Position::START, &lines, 0)
}

fn table(table: &dyn TableLike, at: Position, lines: &Lines<'_>, depth: usize) -> Result<Node, SyntaxError> {
    if depth > MAX_DEPTH {
        return Err(SyntaxError::too_deep(at));
    }
    let mut entries = Entries::default();
    for (name, item) in table.iter() {
        let at = table.key(name).and_then(|key| key.span()).map_or(at, |span| lines.position(span.start));
        entries.push(KeyNode { name: name.to_owned(), at }, node(item, at, lines, depth + 1)?)?;
    }
    Ok(Node { value: entries.into_table(), at })
}

/// `key_at` is the position of values without one of their own, such as a table spread over dotted keys.
fn node(item: &Item, key_at: Position, lines: &Lines<'_>, depth: usize) -> Result<Node, SyntaxError> {
    let value = match item {
        Item::None => return Ok(Node { value: Value::Null, at: key_at }),
        Item::Table(inner) => return table(inner, key_at, lines, depth),
        Item::ArrayOfTables(tables) => {
            let tables = tables.iter().map(|inner| {
                let at = inner.span().map_or(key_at, |span| lines.position(span.start));
                table(inner, at, lines, depth + 1)
            });
            return Ok(Node { value: Value::List(tables.collect::<Result<_, _>>()?), at: key_at });
        }
        Item::Value(value) => value,
    };
    scalar_or_inline(value, key_at, lines, depth)
}

fn scalar_or_inline(
    value: &toml_edit::Value,
    key_at: Position,
    lines: &Lines<'_>,
    depth: usize,
) -> Result<Node, SyntaxError> {
    let at = value.span().map_or(key_at, |span| lines.position(span.start));
    if depth > MAX_DEPTH {
        return Err(SyntaxError::too_deep(at));
    }
    let value = match value {
        toml_edit::Value::String(text) => Value::Str(text.value().clone()),
        toml_edit::Value::Integer(number) => Value::Number(number.value().to_string()),
        toml_edit::Value::Float(number) => Value::Number(number.value().to_string()),
        toml_edit::Value::Boolean(flag) => Value::Bool(*flag.value()),
        toml_edit::Value::Datetime(_) => Value::Date,
        toml_edit::Value::Array(list) => {
            let nodes = list.iter().map(|inner| scalar_or_inline(inner, at, lines, depth + 1));
            Value::List(nodes.collect::<Result<_, _>>()?)
        }
        toml_edit::Value::InlineTable(inner) => return table(inner, at, lines, depth),
    };
    Ok(Node { value, at })
}

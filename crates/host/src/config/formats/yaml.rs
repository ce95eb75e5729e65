//! Parses YAML into the tree, by the core schema of YAML 1.2 (`yes` is a string) plus merge keys, which are common in
//! config files. Tags except `!!str` are refused, and the expansion of aliases is bounded, so that a small file cannot
//! become a large tree.

use crate::config::node::{Entries, KeyNode, MAX_DEPTH, Node, Position, SyntaxError, Value};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};
use std::borrow::Cow;
use std::collections::HashMap;

/// Largest total of all copies made for anchors and aliases, in bytes of text plus nodes.
const MAX_ALIAS_EXPANSION: usize = 1 << 20;

pub(super) fn parse(text: &str) -> Result<Option<Node>, SyntaxError> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event
            .map_err(|error| SyntaxError::new(position(error.marker()), error.info().replace('\n', " ")))?;
        builder.event(event, &span)?;
    }
    // An empty document is parsed as a null.
    Ok(builder.root.filter(|root| !matches!(root.value, Value::Null)))
}

fn position(marker: &Marker) -> Position {
    Position { line: marker.line().max(1), column: marker.col() + 1 }
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    copied: usize,
    root: Option<Node>,
}

/// A collection whose end has not been seen.
struct Open {
    at: Position,
    anchor: usize,
    kind: Collection,
}

enum Collection {
    List(Vec<Node>),
    /// `key` waits for its value. Merges are applied last, wherever they are in the mapping, so that the mapping's own
    /// keys take precedence.
    Table {
        entries: Entries,
        key: Option<(KeyNode, IsMerge)>,
        merges: Vec<Node>,
    },
}

/// Tells whether a key is the plain `<<`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IsMerge {
    Yes,
    No,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), SyntaxError> {
        let at = position(&span.start);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(SyntaxError::new(at, "a second document starts here")
                    .with_hint("keep one document per file; `---` begins another"))
            }
            Event::DocumentStart(_) => Ok(()),
            Event::Scalar(text, style, anchor, tag) => {
                let is_merge = match style {
                    ScalarStyle::Plain if text == "<<" => IsMerge::Yes,
                    _ => IsMerge::No,
                };
                let value = scalar(text, style, tag.as_deref(), at)?;
                self.add(Node { value, at }, anchor, is_merge)
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_tag(tag.as_deref(), &["seq"], at)?;
                self.start(at, anchor, Collection::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                refuse_tag(tag.as_deref(), &["map"], at)?;
                let kind = Collection::Table { entries: Entries::default(), key: None, merges: Vec::new() };
                self.start(at, anchor, kind)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(at),
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor) else {
                    return Err(SyntaxError::new(at, "an alias is inside the value that it refers to"));
                };
                let node = node.clone();
                self.count_copy(&node, at)?;
                self.add(node, 0, IsMerge::No)
            }
        }
    }

    fn start(&mut self, at: Position, anchor: usize, kind: Collection) -> Result<(), SyntaxError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(SyntaxError::too_deep(at));
        }
        self.open.push(Open { at, anchor, kind });
        Ok(())
    }

    fn end(&mut self, at: Position) -> Result<(), SyntaxError> {
        let Some(Open { at, anchor, kind }) = self.open.pop() else {
            return Err(SyntaxError::new(at, "an end without a beginning"));
        };
        let value = match kind {
            Collection::List(list) => Value::List(list),
            Collection::Table { mut entries, merges, .. } => {
                merges.into_iter().try_for_each(|merged| merge(&mut entries, merged))?;
                entries.into_table()
            }
        };
        self.add(Node { value, at }, anchor, IsMerge::No)
    }

    /// Adds a finished node to the open collection and stores it under its anchor.
    fn add(&mut self, node: Node, anchor: usize, is_merge: IsMerge) -> Result<(), SyntaxError> {
        if anchor != 0 {
            self.count_copy(&node, node.at)?;
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => self.root = Some(node),
            Some(Collection::List(list)) => list.push(node),
            Some(Collection::Table { entries, key, merges }) => match key.take() {
                None => *key = Some((key_of(node)?, is_merge)),
                Some((_, IsMerge::Yes)) => merges.push(node),
                Some((name, IsMerge::No)) => entries.push(name, node)?,
            },
        }
        Ok(())
    }

    /// Counts one copy of `node`, so that many copies cannot fill the memory.
    fn count_copy(&mut self, node: &Node, at: Position) -> Result<(), SyntaxError> {
        self.copied = self.copied.saturating_add(weight(node));
        if self.copied > MAX_ALIAS_EXPANSION {
            return Err(SyntaxError::new(at, "the aliases of this file expand to too much data"));
        }
        // A copy may be nested more deeply than its original.
        if self.open.len() + depth(node) > MAX_DEPTH {
            return Err(SyntaxError::too_deep(at));
        }
        Ok(())
    }
}

fn weight(node: &Node) -> usize {
    1 + match &node.value {
        Value::Null | Value::Bool(_) | Value::Date => 0,
        Value::Number(text) | Value::Str(text) => text.len(),
        Value::List(list) => list.iter().map(weight).sum(),
        Value::Table(entries) => entries.iter().map(|(key, value)| key.name.len() + weight(value)).sum(),
    }
}

fn depth(node: &Node) -> usize {
    match &node.value {
        Value::Null | Value::Bool(_) | Value::Date | Value::Number(_) | Value::Str(_) => 0,
        Value::List(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Table(entries) => 1 + entries.iter().map(|(_, value)| depth(value)).max().unwrap_or(0),
    }
}

fn key_of(node: Node) -> Result<KeyNode, SyntaxError> {
    let name = match node.value {
        Value::Str(text) | Value::Number(text) => text,
        Value::Bool(flag) => flag.to_string(),
        Value::Null => "null".to_owned(),
        Value::Date | Value::List(_) | Value::Table(_) => {
            return Err(SyntaxError::new(node.at, format!("{} cannot be a key", node.value.kind())));
        }
    };
    Ok(KeyNode { name, at: node.at })
}

/// Applies `<<: *defaults`, or a list of aliases, of which the earlier takes precedence.
fn merge(entries: &mut Entries, merged: Node) -> Result<(), SyntaxError> {
    match merged.value {
        Value::Table(list) => {
            for (key, node) in list {
                if !entries.contains(&key.name) {
                    entries.push(key, node)?;
                }
            }
            Ok(())
        }
        Value::List(list) if list.iter().all(|node| matches!(node.value, Value::Table(_))) => {
            list.into_iter().try_for_each(|node| merge(entries, node))
        }
        other => {
            Err(SyntaxError::new(merged.at, format!("`<<` merges tables, but this is {}", other.kind())))
        }
    }
}

fn refuse_tag(tag: Option<&Tag>, harmless: &[&str], at: Position) -> Result<(), SyntaxError> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && harmless.contains(&tag.suffix.as_str())) => {
            Err(SyntaxError::new(at, "YAML tags are not supported").with_hint("remove the YAML tag (`!…`)"))
        }
        _ => Ok(()),
    }
}

fn scalar(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    at: Position,
) -> Result<Value, SyntaxError> {
    refuse_tag(tag, &["str"], at)?;
    if style != ScalarStyle::Plain || tag.is_some() {
        return Ok(Value::Str(text.into_owned()));
    }
    Ok(match text.as_ref() {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        other if is_number(other) => Value::Number(text.into_owned()),
        _ => Value::Str(text.into_owned()),
    })
}

/// Recognises the numbers of the core schema, and whatever else Rust parses as a float and starts like a number.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let based = |prefix, radix| {
        text.strip_prefix(prefix)
            .is_some_and(|rest: &str| !rest.is_empty() && rest.chars().all(|digit| digit.is_digit(radix)))
    };
    let special = matches!(digits, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN");
    let begins_like_one = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    special || based("0x", 16) || based("0o", 8) || (begins_like_one && digits.parse::<f64>().is_ok())
}

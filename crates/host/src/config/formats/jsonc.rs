//! Parses JSON with comments and trailing commas into the tree.

use crate::config::node::{Entries, KeyNode, Lines, MAX_DEPTH, Node, SyntaxError, Value};
use jsonc_parser::ast::{ObjectProp, Value as Json};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

/// Comments and trailing commas are in the files of VS Code, Zed and others; any other extension would allow files that
/// only gripfast can read.
const ACCEPTED: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(super) fn parse(text: &str) -> Result<Option<Node>, SyntaxError> {
    let lines = Lines::new(text);
    let parsed = parse_to_ast(text, &CollectOptions::default(), &ACCEPTED)
        .map_err(|error| SyntaxError::new(lines.position(error.range().start), normalized_message(&error)))?;
    parsed.value.map(|value| node(value, &lines, 0)).transpose()
}

/// The parser's message in the style of other diagnostics: it starts with a capital, and may end with a full stop.
fn normalized_message(error: &jsonc_parser::errors::ParseError) -> String {
    let message = error.kind().to_string();
    let mut letters = message.trim_end_matches('.').chars();
    letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect()
}

fn node(json: Json<'_>, lines: &Lines<'_>, depth: usize) -> Result<Node, SyntaxError> {
    let at = lines.position(json.range().start);
    if depth > MAX_DEPTH {
        return Err(SyntaxError::too_deep(at));
    }
    let value = match json {
        Json::NullKeyword(_) => Value::Null,
        Json::BooleanLit(flag) => Value::Bool(flag.value),
        Json::NumberLit(number) => Value::Number(number.value.to_owned()),
        Json::StringLit(text) => Value::Str(text.value.into_owned()),
        Json::Array(list) => {
            let nodes = list.elements.into_iter().map(|inner| node(inner, lines, depth + 1));
            Value::List(nodes.collect::<Result<_, _>>()?)
        }
        Json::Object(object) => {
            let mut entries = Entries::default();
            for ObjectProp { name, value, .. } in object.properties {
                let key = KeyNode { at: lines.position(name.range().start), name: name.into_string() };
                entries.push(key, node(value, lines, depth + 1)?)?;
            }
            entries.into_table()
        }
    };
    Ok(Node { value, at })
}

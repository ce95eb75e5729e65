//! Decodes the key `restore`: calls with arguments of any shape.

use super::fields::{Field, Fields, Problems};
use crate::config::keys::RESTORE_CALL;
use crate::config::node::Value;
use crate::config::restore::{Argument, RestoreCall};

/// Largest number of calls. Each costs a round trip before the first call of a client.
const MAX_CALLS: usize = 32;

pub(super) fn restore(fields: &mut Fields<'_>, problems: &mut Problems) -> Vec<RestoreCall> {
    let Some(field) = fields.take("restore") else { return Vec::new() };
    let Some(elements) = field.elements(problems) else { return Vec::new() };
    if elements.len() > MAX_CALLS {
        problems.error(field.error(format!("{} calls are too many; allowed: {MAX_CALLS}", elements.len())));
    }
    elements.iter().filter_map(|element| call(element, problems)).collect()
}

fn call(element: &Field<'_>, problems: &mut Problems) -> Option<RestoreCall> {
    let mut fields = Fields::open(element, &RESTORE_CALL, problems)?;
    let tool = fields.take("tool");
    let arguments = fields.take("arguments");
    fields.finish(problems);
    let Some(tool) = tool else {
        let example = "write { tool = \"login\", arguments = { user = \"…\" } }";
        problems.error(element.error("`tool` is missing").with_hint(example));
        return None;
    };
    let named = tool.text(problems)?;
    if named.is_empty() {
        problems.error(tool.error("expected the name of a tool, found an empty string"));
        return None;
    }
    let arguments = match arguments {
        Some(field) if !matches!(field.node.value, Value::Table(_)) => {
            problems.error(field.expected("a table"));
            return None;
        }
        Some(field) => argument(&field, problems)?,
        None => Argument::Table(Vec::new()),
    };
    Some(RestoreCall { tool: named.to_owned(), arguments })
}

/// A value as it will be sent. The recursion is bounded, because the parsers limit the depth of the tree.
fn argument(field: &Field<'_>, problems: &mut Problems) -> Option<Argument> {
    Some(match &field.node.value {
        Value::Null => Argument::Plain(serde_json::Value::Null),
        Value::Bool(flag) => Argument::Plain(serde_json::Value::Bool(*flag)),
        Value::Number(text) => match serde_json::from_str::<serde_json::Number>(text) {
            Ok(number) => Argument::Plain(serde_json::Value::Number(number)),
            Err(_) => {
                problems.error(field.error("expected a JSON number, such as 7 or 1.5"));
                return None;
            }
        },
        Value::Date => {
            problems.error(field.expected("a JSON value").with_hint("put it in quotes"));
            return None;
        }
        Value::Str(_) => Argument::Text(field.template(problems)?.into_secret()),
        Value::List(_) => {
            let elements = field.elements(problems)?;
            Argument::List(elements.iter().filter_map(|element| argument(element, problems)).collect())
        }
        Value::Table(_) => {
            let pairs = field.pairs(problems);
            let pairs =
                pairs.iter().filter_map(|(key, field)| Some((key.name.clone(), argument(field, problems)?)));
            Argument::Table(pairs.collect())
        }
    })
}

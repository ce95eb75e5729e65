//! The key `restore`: calls that are made in every new session of a server before all others, such as a login or the
//! choice of a workspace. Strings in their arguments may refer to the environment and are expanded when the call is made.

use crate::config::fields::{Field, Fields, Problems};
use crate::config::keys::{Section, ValueKind, impl_codec, keys, table};
use crate::config::lookup::Lookup;
use crate::config::node;
use crate::config::template::{ExpandError, Template};
use serde_json::Value;
use std::fmt;

/// One call of the key `restore`.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoreCall {
    /// The server's own name of the tool.
    pub tool: String,
    /// Arguments of the call: a table.
    pub arguments: Argument,
}

/// A value whose strings may refer to the environment.
///
/// `Debug` prints `[redacted]`, because the value may contain a password.
#[derive(Clone, PartialEq)]
pub enum Argument {
    /// A string.
    Text(Template),
    /// A list.
    List(Vec<Self>),
    /// A table, in the order of the file.
    Table(Vec<(String, Self)>),
    /// A number, a boolean or null.
    Plain(Value),
}

impl Argument {
    /// The value with all references expanded.
    ///
    /// # Errors
    /// The first reference that has no value.
    pub fn expand(&self, lookup: &dyn Lookup) -> Result<Value, ExpandError> {
        Ok(match self {
            Self::Text(template) => Value::String(template.expand(lookup)?.into_revealed()),
            Self::List(list) => {
                Value::Array(list.iter().map(|item| item.expand(lookup)).collect::<Result<_, _>>()?)
            }
            Self::Table(table) => {
                let entries = table.iter().map(|(key, item)| Ok((key.clone(), item.expand(lookup)?)));
                Value::Object(entries.collect::<Result<_, _>>()?)
            }
            Self::Plain(value) => value.clone(),
        })
    }
}

impl fmt::Debug for Argument {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(gripfast_core::redact::REDACTED)
    }
}

keys! {
    /// A call that is made in every new session.
    pub(super) struct RestoreKeys {
        /// Tool to call, by the server's own name.
        key tool: ValueKind::Text, required;
        /// Arguments of the call. Strings may refer to variables and files.
        key arguments: ValueKind::map(ValueKind::AnyJson);
    }
}

/// Largest number of calls. Each costs a round trip before the first call of a client.
const MAX_CALLS: usize = 32;

impl_codec!(
    Vec<RestoreCall> => Vec<RestoreCall>,
    ValueKind::Tables(table::<RestoreKeys>),
    read_vec_restore_call
);

fn read_vec_restore_call(field: &Field<'_>, problems: &mut Problems) -> Option<Vec<RestoreCall>> {
    let elements = field.elements(problems)?;
    if elements.len() > MAX_CALLS {
        let message = format!("{} calls are too many; allowed: {MAX_CALLS}", elements.len());
        problems.error(field.error(message));
    }
    Some(elements.iter().filter_map(|element| call(element, problems)).collect())
}

fn call(element: &Field<'_>, problems: &mut Problems) -> Option<RestoreCall> {
    let mut fields = Fields::open(element, RestoreKeys::rows, problems)?;
    let tool = fields.take("tool");
    let arguments = fields.take("arguments");
    fields.finish(problems);
    let Some(tool) = tool else {
        let example = "write { tool = \"login\", arguments = { user = \"…\" } }";
        return problems.refuse(element.error("`tool` is missing").with_hint(example));
    };
    let named = tool.text(problems)?;
    if named.is_empty() {
        return problems.refuse(tool.error("expected the name of a tool, found an empty string"));
    }
    let arguments = match arguments {
        Some(field) if !matches!(field.node.value, node::Value::Table(_)) => {
            return problems.refuse(field.expected("a table"));
        }
        Some(field) => argument(&field, problems)?,
        None => Argument::Table(Vec::new()),
    };
    Some(RestoreCall { tool: named.to_owned(), arguments })
}

/// A value as it will be sent. The recursion is bounded, because the parsers limit the depth of the tree.
fn argument(field: &Field<'_>, problems: &mut Problems) -> Option<Argument> {
    Some(match &field.node.value {
        node::Value::Null => Argument::Plain(Value::Null),
        node::Value::Bool(flag) => Argument::Plain(Value::Bool(*flag)),
        node::Value::Number(text) => match serde_json::from_str::<serde_json::Number>(text) {
            Ok(number) => Argument::Plain(Value::Number(number)),
            Err(_) => {
                return problems.refuse(field.error("expected a JSON number, such as 7 or 1.5"));
            }
        },
        node::Value::Date => {
            return problems.refuse(field.expected("a JSON value").with_hint("put it in quotes"));
        }
        node::Value::Str(_) => Argument::Text(field.template(problems)?.into_secret()),
        node::Value::List(_) => {
            let elements = field.elements(problems)?;
            Argument::List(elements.iter().filter_map(|element| argument(element, problems)).collect())
        }
        node::Value::Table(_) => {
            let pairs = field.pairs(problems);
            let pairs =
                pairs.iter().filter_map(|(key, field)| Some((key.name.clone(), argument(field, problems)?)));
            Argument::Table(pairs.collect())
        }
    })
}

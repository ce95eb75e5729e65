//! Calls that are made in every new session of a server before all others, such as a login or the choice of a
//! workspace. Strings in their arguments may refer to the environment and are expanded when the call is made.

use super::lookup::Lookup;
use super::template::{ExpandError, Template};
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

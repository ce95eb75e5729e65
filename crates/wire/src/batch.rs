//! JSON-RPC batches, which revision 2025-03-26 obliges a receiver to take: one array in, the messages in it;
//! the answers, one array out. What the messages are, and whether batches are allowed at all, is decided
//! elsewhere.

use std::fmt;

use serde::de::{Deserializer as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::scan;

/// Why bytes are not a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotABatch {
    /// Not JSON at all, or cut short.
    #[error("not valid JSON at line {line}, column {column}")]
    NotJson {
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in bytes.
        column: usize,
    },
    /// Another JSON value.
    #[error("a batch is an array, and this is another JSON value")]
    NotArray,
    /// JSON-RPC forbids the empty batch.
    #[error("the batch is empty")]
    Empty,
    /// More messages than the receiver is willing to take at once.
    #[error("the batch has more than {limit} messages")]
    TooMany {
        /// The most it takes.
        limit: usize,
    },
}

/// The messages of a batch in order, each as the bytes [`crate::Message::parse`] takes. An element that is no
/// message is handed out all the same: it gets its own error answer, and its neighbours are served.
pub fn split(bytes: &[u8], limit: usize) -> Result<Vec<&[u8]>, NotABatch> {
    let not_json =
        |error: serde_json::Error| NotABatch::NotJson { line: error.line(), column: error.column() };
    if scan::first_byte(bytes) != Some(b'[') {
        serde_json::from_slice::<&RawValue>(bytes).map_err(not_json)?;
        return Err(NotABatch::NotArray);
    }
    let mut messages = Vec::new();
    let mut too_many = false;
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let walked = deserializer
        .deserialize_seq(Walk { messages: &mut messages, limit, too_many: &mut too_many })
        .and_then(|()| deserializer.end());
    if too_many {
        return Err(NotABatch::TooMany { limit });
    }
    walked.map_err(not_json)?;
    if messages.is_empty() { Err(NotABatch::Empty) } else { Ok(messages) }
}

/// The array of these answers, or `None` when there are none: a batch of notifications is not answered at
/// all.
pub fn join<A: AsRef<[u8]>>(answers: Vec<A>) -> Option<Vec<u8>> {
    if answers.is_empty() {
        return None;
    }
    let mut out =
        Vec::with_capacity(answers.iter().map(|answer| answer.as_ref().len() + 1).sum::<usize>() + 1);
    // Each answer is dropped once it is copied: a large batch is not in memory twice.
    for answer in answers {
        out.push(if out.is_empty() { b'[' } else { b',' });
        out.extend_from_slice(answer.as_ref());
    }
    out.push(b']');
    Some(out)
}

/// Stops at the limit instead of collecting what it will refuse.
struct Walk<'w, 'a> {
    messages: &'w mut Vec<&'a [u8]>,
    limit: usize,
    too_many: &'w mut bool,
}

impl<'a> Visitor<'a> for Walk<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON array")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(message) = seq.next_element::<&'a RawValue>()? {
            if self.messages.len() == self.limit {
                *self.too_many = true;
                return Err(serde::de::Error::custom("too many messages"));
            }
            self.messages.push(message.get().as_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_in_order_and_untouched() {
        let batch = br#" [ {"a": 1.0e+5} ,3,
            "x" ] "#;
        assert_eq!(split(batch, 3).unwrap(), [&br#"{"a": 1.0e+5}"#[..], b"3", br#""x""#]);
    }

    #[test]
    fn one_message_too_many_refuses_the_batch() {
        assert_eq!(split(b"[1,2,3]", 2), Err(NotABatch::TooMany { limit: 2 }));
        assert_eq!(split(b"[1,2]", 2).unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_batch_is_told_apart() {
        assert_eq!(split(b" [ ] ", 9), Err(NotABatch::Empty));
        assert_eq!(split(b"{}", 9), Err(NotABatch::NotArray));
        assert_eq!(split(b"[1,]", 9), Err(NotABatch::NotJson { line: 1, column: 4 }));
        assert_eq!(split(b"[1", 9), Err(NotABatch::NotJson { line: 1, column: 2 }));
        assert_eq!(split(b"[1] 2", 9), Err(NotABatch::NotJson { line: 1, column: 5 }));
        assert!(matches!(split(b"", 9), Err(NotABatch::NotJson { .. })));
    }

    #[test]
    fn joined_answers_split_again_and_no_answers_are_no_array() {
        let answers = [b"{\"id\":1}".to_vec(), b"{\"id\":2}".to_vec()];
        let joined = join(answers.to_vec()).unwrap();
        assert_eq!(split(&joined, 9).unwrap(), answers);
        assert_eq!(join::<Vec<u8>>(Vec::new()), None);
    }
}

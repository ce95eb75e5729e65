//! JSON-RPC batches, which receivers must accept in revision 2025-03-26: splits an array into messages and joins
//! answers into an array. The caller decides whether batches are allowed, and parses the messages.

use std::fmt;

use gripfast_core::json_text::Json;
use serde::de::{Deserializer as _, SeqAccess, Visitor};

use crate::scan;

/// Reason why bytes are not a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// Not JSON at all, or cut short.
    #[error("not valid JSON at line {line}, column {column}")]
    NotJson {
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in bytes.
        column: usize,
    },
    /// Another JSON value.
    #[error("a batch must be a JSON array, but this is another value")]
    NotArray,
    /// JSON-RPC forbids the empty batch.
    #[error("the batch is empty")]
    Empty,
    /// More messages than the receiver accepts at once.
    #[error("the batch has more than {limit} messages")]
    TooMany {
        /// Largest number of messages.
        limit: usize,
    },
}

/// The messages of a batch in order, each as bytes for [`crate::Message::parse`]. An element that is not a message is
/// returned too: it gets its own error answer, and the others are processed.
pub fn split(bytes: &[u8], limit: usize) -> Result<Vec<&[u8]>, BatchError> {
    let not_json =
        |error: serde_json::Error| BatchError::NotJson { line: error.line(), column: error.column() };
    if scan::first_byte(bytes) != Some(b'[') {
        serde_json::from_slice::<&Json>(bytes).map_err(not_json)?;
        return Err(BatchError::NotArray);
    }
    let mut messages = Vec::new();
    let mut too_many = false;
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let walked = deserializer
        .deserialize_seq(Walk { messages: &mut messages, limit, too_many: &mut too_many })
        .and_then(|()| deserializer.end());
    if too_many {
        return Err(BatchError::TooMany { limit });
    }
    walked.map_err(not_json)?;
    if messages.is_empty() { Err(BatchError::Empty) } else { Ok(messages) }
}

/// The array of these answers; `None` if there are none, because a batch of notifications is not answered.
pub fn join<A: AsRef<[u8]>>(answers: Vec<A>) -> Option<Vec<u8>> {
    if answers.is_empty() {
        return None;
    }
    let mut out =
        Vec::with_capacity(answers.iter().map(|answer| answer.as_ref().len() + 1).sum::<usize>() + 1);
    // Each answer is dropped after it is copied, so that a large batch is not in memory twice.
    for answer in answers {
        out.push(if out.is_empty() { b'[' } else { b',' });
        out.extend_from_slice(answer.as_ref());
    }
    out.push(b']');
    Some(out)
}

/// Stops at the limit, before it has collected all messages.
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
        while let Some(message) = seq.next_element::<&'a Json>()? {
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
    fn messages_are_returned_in_order_and_unchanged() {
        let batch = br#" [ {"a": 1.0e+5} ,3,
            "x" ] "#;
        assert_eq!(split(batch, 3).unwrap(), [&br#"{"a": 1.0e+5}"#[..], b"3", br#""x""#]);
    }

    #[test]
    fn one_message_too_many_refuses_the_batch() {
        assert_eq!(split(b"[1,2,3]", 2), Err(BatchError::TooMany { limit: 2 }));
        assert_eq!(split(b"[1,2]", 2).unwrap().len(), 2);
    }

    #[test]
    fn each_way_to_be_no_batch_has_its_error() {
        assert_eq!(split(b" [ ] ", 9), Err(BatchError::Empty));
        assert_eq!(split(b"{}", 9), Err(BatchError::NotArray));
        assert_eq!(split(b"[1,]", 9), Err(BatchError::NotJson { line: 1, column: 4 }));
        assert_eq!(split(b"[1", 9), Err(BatchError::NotJson { line: 1, column: 2 }));
        assert_eq!(split(b"[1] 2", 9), Err(BatchError::NotJson { line: 1, column: 5 }));
        assert!(matches!(split(b"", 9), Err(BatchError::NotJson { .. })));
    }

    #[test]
    fn joined_answers_can_be_split_and_no_answers_give_none() {
        let answers = [b"{\"id\":1}".to_vec(), b"{\"id\":2}".to_vec()];
        let joined = join(answers.to_vec()).unwrap();
        assert_eq!(split(&joined, 9).unwrap(), answers);
        assert_eq!(join::<Vec<u8>>(Vec::new()), None);
    }
}

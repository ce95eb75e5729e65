//! JSON of which only the meaning counts: one form for all spellings (RFC 8785), and its digest.

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The SHA-256 digest of a text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of what a JSON text means, however it is spelled; `None` if it is not JSON.
    pub fn of_meaning(json: &str) -> Option<Self> {
        Some(Self::of(canonical(&serde_json::from_str(json).ok()?)?.as_bytes()))
    }

    /// Its digits, for those who write text by hand.
    pub(crate) fn hex(self) -> [u8; 64] {
        // From a table: every call has one, and formatting byte by byte takes longer than digesting.
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        text
    }
}

/// A JSON text that every reader reads in the same way. `None` if it is not JSON, is nested more deeply than
/// readers go, or has a key twice, of which some readers take the first and others the last.
pub fn unambiguous(json: &str) -> Option<Value> {
    serde_json::from_str::<Unambiguous>(json).ok().map(|read| read.0)
}

struct Unambiguous(Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReadOnce).map(Self)
    }
}

struct ReadOnce;

impl<'de> Visitor<'de> for ReadOnce {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without repeated keys")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unambiguous(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = serde_json::Map::new();
        while let Some((key, Unambiguous(member))) = members.next_entry::<String, Unambiguous>()? {
            if object.insert(key, member).is_some() {
                return Err(serde::de::Error::custom("a key appears twice"));
            }
        }
        Ok(object.into())
    }
}

/// The one form of a value. `None` for numbers that the form cannot hold.
pub fn canonical(value: &Value) -> Option<String> {
    serde_json_canonicalizer::to_string(value).ok()
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.hex()).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const WRONG: &str = "not a digest of 64 hexadecimal digits";
        if text.len() != 64 || !text.is_ascii() {
            return Err(WRONG);
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| WRONG)?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn g04_order_of_keys_spelling_and_space_do_not_matter_but_meaning_does() {
        let same = [r#"{"b":1,"a":[1.0,"\u0041"]}"#, r#"{ "a" : [1, "A"], "b": 1e0 }"#];
        let digests = same.map(|json| Digest::of_meaning(json).unwrap());
        assert_eq!(digests[0], digests[1]);
        for other in [r#"{"b":1,"a":[1,"a"]}"#, r#"{"b":2,"a":[1,"A"]}"#, r#"{"b":1,"a":["A",1]}"#] {
            assert_ne!(Digest::of_meaning(other).unwrap(), digests[0], "{other}");
        }
        assert_eq!(Digest::of_meaning("{"), None);
    }

    #[test]
    fn what_readers_could_read_differently_is_not_read_at_all() {
        let plain = r#"{"a":[1,-2,0.5,null,true,"x"],"b":{"c":{}}}"#;
        assert_eq!(unambiguous(plain), serde_json::from_str(plain).ok());
        for odd in [r#"{"a":1,"a":2}"#, r#"{"a":1,"\u0061":2}"#, r#"[{"b":{"a":1,"a":1}}]"#, "{", ""] {
            assert_eq!(unambiguous(odd), None, "{odd}");
        }
        assert_eq!(unambiguous(&format!("{}{}", "[".repeat(10_000), "]".repeat(10_000))), None);
    }

    proptest! {
        #[test]
        fn a_digest_reads_back(bytes: Vec<u8>) {
            let digest = Digest::of(&bytes);
            prop_assert_eq!(Digest::try_from(digest.to_string()), Ok(digest));
        }

        #[test]
        fn no_text_panics(text in ".{0,80}") {
            let _ = (Digest::try_from(text.clone()), Digest::of_meaning(&text));
        }
    }
}

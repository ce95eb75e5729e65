//! Canonical JSON (RFC 8785) and SHA-256 digests of it.

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

    /// The digest of the canonical form of a JSON text; `None` if it is not JSON.
    pub fn of_canonical_json(json: &str) -> Option<Self> {
        Some(Self::of(canonical(&serde_json::from_str(json).ok()?)?.as_bytes()))
    }

    /// The hexadecimal digits, for writers that append bytes.
    pub(crate) fn hex(self) -> [u8; 64] {
        // By arithmetic, which the compiler turns into vector instructions: every call needs this.
        let digit = |value: u8| value + b'0' + u8::from(value > 9) * (b'a' - b'0' - 10);
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = digit(byte >> 4);
            pair[1] = digit(byte & 15);
        }
        text
    }
}

impl From<[u8; 32]> for Digest {
    /// A SHA-256 digest that was made elsewhere.
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Parses JSON that every parser reads in the same way. `None` if it is not JSON, is nested too deeply, or contains a
/// key twice, of which some parsers take the first and others the last.
pub fn parse_strict(json: &str) -> Option<Value> {
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

/// The canonical form of a value. `None` for numbers that it cannot represent.
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
    fn g04_canonical_json_ignores_key_order_escapes_and_white_space() {
        let same = [r#"{"b":1,"a":[1.0,"\u0041"]}"#, r#"{ "a" : [1, "A"], "b": 1e0 }"#];
        let digests = same.map(|json| Digest::of_canonical_json(json).unwrap());
        assert_eq!(digests[0], digests[1]);
        for other in [r#"{"b":1,"a":[1,"a"]}"#, r#"{"b":2,"a":[1,"A"]}"#, r#"{"b":1,"a":["A",1]}"#] {
            assert_ne!(Digest::of_canonical_json(other).unwrap(), digests[0], "{other}");
        }
        assert_eq!(Digest::of_canonical_json("{"), None);
    }

    #[test]
    fn ambiguous_json_is_rejected() {
        let plain = r#"{"a":[1,-2,0.5,null,true,"x"],"b":{"c":{}}}"#;
        assert_eq!(parse_strict(plain), serde_json::from_str(plain).ok());
        for odd in [r#"{"a":1,"a":2}"#, r#"{"a":1,"\u0061":2}"#, r#"[{"b":{"a":1,"a":1}}]"#, "{", ""] {
            assert_eq!(parse_strict(odd), None, "{odd}");
        }
        assert_eq!(parse_strict(&format!("{}{}", "[".repeat(10_000), "]".repeat(10_000))), None);
    }

    proptest! {
        #[test]
        fn a_digest_round_trips(bytes: Vec<u8>) {
            let digest = Digest::of(&bytes);
            prop_assert_eq!(Digest::try_from(digest.to_string()), Ok(digest));
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in ".{0,80}") {
            let _ = (Digest::try_from(text.clone()), Digest::of_canonical_json(&text));
        }
    }
}

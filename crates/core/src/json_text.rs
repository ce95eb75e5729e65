//! JSON values that are kept as text. The text is checked once, where it enters; every later reader may rely on it.
//!
//! The types differ from `serde_json`'s `RawValue` in one point: code that assembles a value from checked parts need not
//! check the whole again.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use ref_cast::{RefCastCustom, ref_cast_custom};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// One JSON value, as text.
#[derive(RefCastCustom, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Json(str);

/// An owned [`Json`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct JsonText(Box<str>);

/// A [`Json`] that many share. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SharedJson(Arc<str>);

impl Json {
    /// Checks that a text is one JSON value. Whitespace around it is left out.
    ///
    /// # Errors
    /// The text is not JSON.
    pub fn parse(text: &str) -> Result<&Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Takes a text that the caller knows to be one JSON value without whitespace around it, such as a part of a checked
    /// one. Only `gripfast-wire` uses it.
    #[ref_cast_custom]
    pub const fn assume_valid(text: &str) -> &Self;

    /// The text of the value.
    pub const fn get(&self) -> &str {
        &self.0
    }
}

impl JsonText {
    /// Checks that a text is one JSON value. Whitespace around it is left out.
    ///
    /// # Errors
    /// The text is not JSON.
    pub fn parse(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(Self::from)
    }

    /// Writes a value as JSON.
    ///
    /// # Errors
    /// The value has no JSON form: a map whose keys are not texts, or a number that is not finite.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(|text| Self(text.into()))
    }

    /// Takes a text that the caller knows to be one JSON value, because it consists of checked parts. Only
    /// `gripfast-wire` uses it.
    pub fn assume_valid(text: String) -> Self {
        debug_assert!(Json::parse(&text).is_ok(), "values put together give a value");
        Self(text.into())
    }
}

impl Deref for JsonText {
    type Target = Json;

    fn deref(&self) -> &Json {
        Json::assume_valid(&self.0)
    }
}

impl Deref for SharedJson {
    type Target = Json;

    fn deref(&self) -> &Json {
        Json::assume_valid(&self.0)
    }
}

impl From<&Json> for SharedJson {
    fn from(json: &Json) -> Self {
        Self(json.get().into())
    }
}

impl fmt::Debug for SharedJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<Json> for JsonText {
    fn as_ref(&self) -> &Json {
        self
    }
}

impl Borrow<Json> for JsonText {
    fn borrow(&self) -> &Json {
        self
    }
}

impl ToOwned for Json {
    type Owned = JsonText;

    fn to_owned(&self) -> JsonText {
        JsonText(self.0.into())
    }
}

impl From<Box<RawValue>> for JsonText {
    fn from(value: Box<RawValue>) -> Self {
        Self(value.into())
    }
}

impl<'a> From<&'a RawValue> for &'a Json {
    fn from(value: &'a RawValue) -> Self {
        Json::assume_valid(value.get())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Json").field(&format_args!("{}", &self.0)).finish()
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As the value itself, not as a text. `serde_json` checks it once more.
impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(&self.0).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for &'a Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(Self::from)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Outer<'a> {
        #[serde(borrow)]
        lent: &'a Json,
        owned: JsonText,
        missing: Option<JsonText>,
    }

    #[test]
    fn values_keep_their_spelling_inside_other_values() {
        let text = r#"{"lent":{"b": 1.0,"a":[]},"owned":"x\u0041","missing":null}"#;
        let outer: Outer<'_> = serde_json::from_str(text).unwrap();
        assert_eq!((outer.lent.get(), outer.owned.get()), (r#"{"b": 1.0,"a":[]}"#, r#""x\u0041""#));
        assert_eq!(serde_json::to_string(&outer).unwrap(), text);
    }

    #[test]
    fn only_json_is_accepted() {
        for text in ["", "{", "{}x", "nul", "'a'", "[1,]"] {
            assert!(Json::parse(text).is_err(), "{text}");
            assert!(JsonText::parse(text).is_err(), "{text}");
        }
        assert_eq!(JsonText::parse(" [1, 2]\n").unwrap().get(), "[1, 2]");
        assert_eq!(Json::parse("\t{} ").unwrap().get(), "{}");
        assert_eq!(JsonText::of("a\"b").unwrap().get(), r#""a\"b""#);
    }
}

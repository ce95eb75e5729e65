//! Types that a key can have, each with its way from and to a config file.

use super::{KeyValue, Section, ValueKind, table};
use crate::config::fields::{Field, Problems};
use crate::config::template::Template;
use crate::config::units::{self, DurationRange};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// The way of a value from and to a config file. Most types are their own codec; a separate type is one for values that
/// are written in another form.
pub(in crate::config) trait Codec {
    /// The decoded value.
    type Value;
    /// The allowed values; `()` if the type itself says it all.
    type Range;

    /// The kind of value in the file.
    fn kind(range: Self::Range) -> ValueKind;

    /// Reads a value, or reports the mistake.
    fn read(field: &Field<'_>, range: Self::Range, problems: &mut Problems) -> Option<Self::Value>;

    /// Reads a value into `into`, which keeps its value if there is a mistake.
    fn read_into(field: &Field<'_>, range: Self::Range, into: &mut Self::Value, problems: &mut Problems) {
        if let Some(value) = Self::read(field, range, problems) {
            *into = value;
        }
    }

    /// The value as a config file would write it; `None` if it is not set or must not be shown.
    fn written(_: &Self::Value) -> Option<String> {
        None
    }

    /// The value for the effective config. `words` describe a key that is not set.
    fn settings(value: &Self::Value, key: &str, words: Option<&str>) -> Vec<KeyValue> {
        let shown = Self::written(value).or_else(|| words.map(str::to_owned));
        shown.map(|shown| (key.to_owned(), shown)).into_iter().collect()
    }
}

/// A table.
impl<S: Section> Codec for S {
    type Value = S;
    type Range = ();

    fn kind((): ()) -> ValueKind {
        ValueKind::Table(table::<S>)
    }

    fn read(field: &Field<'_>, (): (), problems: &mut Problems) -> Option<S> {
        let mut section = S::defaults();
        section.read_section(field, problems);
        Some(section)
    }

    fn read_into(field: &Field<'_>, (): (), into: &mut S, problems: &mut Problems) {
        into.read_section(field, problems);
    }

    fn settings(section: &S, name: &str, _: Option<&str>) -> Vec<KeyValue> {
        let settings = section.settings().into_iter();
        settings.map(|(key, value)| (format!("{name}.{key}"), value)).collect()
    }
}

/// A key that may have no value.
impl<C: Codec> Codec for Option<C> {
    type Value = Option<C::Value>;
    type Range = C::Range;

    fn kind(range: C::Range) -> ValueKind {
        C::kind(range)
    }

    fn read(field: &Field<'_>, range: C::Range, problems: &mut Problems) -> Option<Self::Value> {
        C::read(field, range, problems).map(Some)
    }

    fn written(value: &Self::Value) -> Option<String> {
        value.as_ref().and_then(C::written)
    }
}

/// A type with a word for each value, implemented by [`words!`].
pub(in crate::config) trait Words: Copy + PartialEq + 'static {
    /// The words and their values.
    const WORDS: &'static [(&'static str, Self)];

    /// The words alone.
    fn words() -> Vec<&'static str> {
        Self::WORDS.iter().map(|(word, _)| *word).collect()
    }

    /// The word for this value.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }
}

/// Implements [`Words`] and [`Codec`] for an enum: `words!(Color { Red = "red", Blue = "blue" })`.
macro_rules! words {
    ($name:ty { $($value:ident = $word:literal),+ $(,)? }) => {
        impl $crate::config::keys::Words for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value)),+];
        }

        impl $crate::config::keys::Codec for $name {
            type Value = Self;
            type Range = ();

            fn kind((): ()) -> $crate::config::keys::ValueKind {
                $crate::config::keys::ValueKind::Choice(<Self as $crate::config::keys::Words>::words())
            }

            fn read(
                field: &$crate::config::fields::Field<'_>,
                (): (),
                problems: &mut $crate::config::fields::Problems,
            ) -> Option<Self> {
                field.choice(<Self as $crate::config::keys::Words>::WORDS, problems)
            }

            fn written(value: &Self) -> Option<String> {
                Some($crate::config::keys::Words::word(*value).to_owned())
            }
        }
    };
}
pub(in crate::config) use words;

impl Codec for bool {
    type Value = Self;
    type Range = ();

    fn kind((): ()) -> ValueKind {
        ValueKind::Flag
    }

    fn read(field: &Field<'_>, (): (), problems: &mut Problems) -> Option<Self> {
        field.flag(problems)
    }

    fn written(value: &Self) -> Option<String> {
        Some(value.to_string())
    }
}

impl Codec for u32 {
    type Value = Self;
    type Range = RangeInclusive<Self>;

    fn kind(range: Self::Range) -> ValueKind {
        ValueKind::Number(range)
    }

    fn read(field: &Field<'_>, range: Self::Range, problems: &mut Problems) -> Option<Self> {
        field.whole_number(range, problems)
    }

    fn written(value: &Self) -> Option<String> {
        Some(value.to_string())
    }
}

impl Codec for u16 {
    type Value = Self;
    type Range = RangeInclusive<Self>;

    fn kind(range: Self::Range) -> ValueKind {
        ValueKind::Number((*range.start()).into()..=(*range.end()).into())
    }

    fn read(field: &Field<'_>, range: Self::Range, problems: &mut Problems) -> Option<Self> {
        let number = field.whole_number((*range.start()).into()..=(*range.end()).into(), problems)?;
        Self::try_from(number).ok()
    }

    fn written(value: &Self) -> Option<String> {
        Some(value.to_string())
    }
}

/// A number of bytes.
impl Codec for u64 {
    type Value = Self;
    type Range = RangeInclusive<Self>;

    fn kind(range: Self::Range) -> ValueKind {
        ValueKind::Size(range)
    }

    fn read(field: &Field<'_>, range: Self::Range, problems: &mut Problems) -> Option<Self> {
        field.size(range, problems)
    }

    fn written(value: &Self) -> Option<String> {
        Some(units::format_size(*value))
    }
}

/// A number of bytes in memory.
impl Codec for usize {
    type Value = Self;
    type Range = RangeInclusive<u64>;

    fn kind(range: Self::Range) -> ValueKind {
        ValueKind::Size(range)
    }

    fn read(field: &Field<'_>, range: Self::Range, problems: &mut Problems) -> Option<Self> {
        field.size(range, problems).map(|size| Self::try_from(size).unwrap_or(Self::MAX))
    }

    fn written(value: &Self) -> Option<String> {
        Some(units::format_size(*value as u64))
    }
}

impl Codec for Duration {
    type Value = Self;
    type Range = DurationRange;

    fn kind(range: DurationRange) -> ValueKind {
        ValueKind::Duration(range)
    }

    fn read(field: &Field<'_>, range: DurationRange, problems: &mut Problems) -> Option<Self> {
        field.duration(range, problems)
    }

    fn written(value: &Self) -> Option<String> {
        Some(units::format_duration(*value))
    }
}

impl Codec for String {
    type Value = Self;
    type Range = ();

    fn kind((): ()) -> ValueKind {
        ValueKind::Text
    }

    fn read(field: &Field<'_>, (): (), problems: &mut Problems) -> Option<Self> {
        field.text(problems).map(str::to_owned)
    }

    fn written(value: &Self) -> Option<String> {
        Some(value.clone())
    }
}

/// Codec of a string that is not empty.
pub(in crate::config) struct NonEmpty;

impl Codec for NonEmpty {
    type Value = String;
    type Range = ();

    fn kind((): ()) -> ValueKind {
        ValueKind::Text
    }

    fn read(field: &Field<'_>, (): (), problems: &mut Problems) -> Option<String> {
        field.nonempty_text(problems).map(str::to_owned)
    }

    fn written(value: &String) -> Option<String> {
        Some(value.clone())
    }
}

impl Codec for PathBuf {
    type Value = Self;
    type Range = ();

    fn kind((): ()) -> ValueKind {
        ValueKind::Text
    }

    fn read(field: &Field<'_>, (): (), problems: &mut Problems) -> Option<Self> {
        field.nonempty_text(problems).map(Self::from)
    }

    fn written(value: &Self) -> Option<String> {
        Some(value.display().to_string())
    }
}

/// A string that is not empty. It is not shown, because it may hold a secret.
impl Codec for Template {
    type Value = Self;
    type Range = ();

    fn kind((): ()) -> ValueKind {
        ValueKind::Text
    }

    fn read(field: &Field<'_>, (): (), problems: &mut Problems) -> Option<Self> {
        field.nonempty_template(problems)
    }
}

/// A list of names or patterns. It is shown only as the file writes it.
impl Codec for Vec<String> {
    type Value = Self;
    type Range = ();

    fn kind((): ()) -> ValueKind {
        ValueKind::TextList
    }

    fn read(field: &Field<'_>, (): (), problems: &mut Problems) -> Option<Self> {
        field.words(problems)
    }

    fn written(value: &Self) -> Option<String> {
        let words: Self = value.iter().map(|word| format!("\"{word}\"")).collect();
        Some(format!("[{}]", words.join(", ")))
    }

    fn settings(_: &Self, _: &str, _: Option<&str>) -> Vec<KeyValue> {
        Vec::new()
    }
}

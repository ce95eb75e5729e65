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

/// Implements [`Codec`] by functions: the kind of value, the reader, and the writer of a value that may be shown. A type
/// with a range names it: `impl_codec!(u32 => u32 [RangeInclusive<u32>], …)`; its functions then get the range too.
macro_rules! impl_codec {
    ($name:ty => $value:ty, $kind:expr, $read:expr $(, $written:expr)?) => {
        $crate::config::keys::impl_codec!(
            $name => $value [()],
            |()| $kind,
            |field, (), problems| {
                let read: fn(&$crate::config::fields::Field<'_>, &mut $crate::config::fields::Problems) -> _ = $read;
                read(field, problems)
            }
            $(, $written)?
        );
    };
    ($name:ty => $value:ty [$range:ty], $kind:expr, $read:expr $(, $written:expr)?) => {
        impl $crate::config::keys::Codec for $name {
            type Value = $value;
            type Range = $range;

            fn kind(range: $range) -> $crate::config::keys::ValueKind {
                let kind: fn($range) -> $crate::config::keys::ValueKind = $kind;
                kind(range)
            }

            fn read(
                field: &$crate::config::fields::Field<'_>,
                range: $range,
                problems: &mut $crate::config::fields::Problems,
            ) -> Option<$value> {
                let read: fn(
                    &$crate::config::fields::Field<'_>,
                    $range,
                    &mut $crate::config::fields::Problems,
                ) -> Option<$value> = $read;
                read(field, range, problems)
            }

            $(fn written(value: &$value) -> Option<String> {
                let written: fn(&$value) -> String = $written;
                Some(written(value))
            })?
        }
    };
}
pub(in crate::config) use impl_codec;

/// Implements [`Words`] and [`Codec`] for an enum: `words!(Color { Red = "red", Blue = "blue" })`.
macro_rules! words {
    ($name:ty { $($value:ident = $word:literal),+ $(,)? }) => {
        impl $crate::config::keys::Words for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value)),+];
        }

        $crate::config::keys::impl_codec!(
            $name => $name,
            $crate::config::keys::ValueKind::Choice(<Self as $crate::config::keys::Words>::words()),
            |field, problems| field.choice(<Self as $crate::config::keys::Words>::WORDS, problems),
            |value| $crate::config::keys::Words::word(*value).to_owned()
        );
    };
}
pub(in crate::config) use words;

impl_codec!(bool => bool, ValueKind::Flag, |field, problems| field.flag(problems), |value| value.to_string());

impl_codec!(
    u32 => u32 [RangeInclusive<u32>],
    ValueKind::Number,
    |field, range, problems| field.whole_number(range, problems),
    |value| value.to_string()
);

impl_codec!(
    u16 => u16 [RangeInclusive<u16>],
    |range| ValueKind::Number((*range.start()).into()..=(*range.end()).into()),
    |field, range, problems| {
        let number = field.whole_number((*range.start()).into()..=(*range.end()).into(), problems)?;
        Self::try_from(number).ok()
    },
    |value| value.to_string()
);

// A number of bytes.
impl_codec!(
    u64 => u64 [RangeInclusive<u64>],
    ValueKind::Size,
    |field, range, problems| field.size(range, problems),
    |value| units::format_size(*value)
);

// A number of bytes in memory.
impl_codec!(
    usize => usize [RangeInclusive<u64>],
    ValueKind::Size,
    |field, range, problems| field.size(range, problems).map(|size| Self::try_from(size).unwrap_or(Self::MAX)),
    |value| units::format_size(*value as u64)
);

impl_codec!(
    Duration => Duration [DurationRange],
    ValueKind::Duration,
    |field, range, problems| field.duration(range, problems),
    |value| units::format_duration(*value)
);

impl_codec!(
    String => String,
    ValueKind::Text,
    |field, problems| field.text(problems).map(str::to_owned),
    |value| value.clone()
);

/// Codec of a string that is not empty.
pub(in crate::config) struct NonEmpty;

impl_codec!(
    NonEmpty => String,
    ValueKind::Text,
    |field, problems| field.nonempty_text(problems).map(str::to_owned),
    |value| value.clone()
);

impl_codec!(
    PathBuf => PathBuf,
    ValueKind::Text,
    |field, problems| field.nonempty_text(problems).map(Self::from),
    |value| value.display().to_string()
);

// A string that is not empty. It is not shown, because it may hold a secret.
impl_codec!(Template => Template, ValueKind::Text, |field, problems| field.nonempty_template(problems));

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

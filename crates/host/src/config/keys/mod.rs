//! Declaration of config keys. [`keys!`] declares a table once: each key with its type, range, default and manual entry.
//! The decoder, the suggestions for misspelt keys, the JSON Schema, the reference and the effective config are all made
//! from it. The tables themselves are in `config::sections`.

mod codec;
mod manual;
mod schema;

pub(super) use codec::{Codec, NonEmpty, Words, impl_codec, words};
pub use manual::manual;
pub use schema::schema;

use super::fields::{Field, Fields, Problems};
use super::units::DurationRange;
use std::ops::RangeInclusive;

/// A key and its value, as a config file would write it.
pub(super) type KeyValue = (String, String);

/// A table of the config, as [`keys!`] declares it.
pub(super) trait Section: Sized {
    /// Manual entry of the table, in a sentence or two.
    const DOC: &'static str;

    /// The value of a table that sets nothing.
    fn defaults() -> Self;

    /// The keys in the order of the manual.
    fn rows() -> Vec<Row>;

    /// Takes the keys that have a codec out of a table.
    fn read_keys(&mut self, fields: &mut Fields<'_>, problems: &mut Problems);

    /// Checks that involve several keys. `is_clean` is false if a key of the table has an error.
    fn check(&mut self, _: &Field<'_>, _is_clean: bool, _: &mut Problems) {}

    /// The keys with a value that can be shown, with those of inner tables.
    fn settings(&self) -> Vec<KeyValue>;

    /// Reads a whole table.
    fn read_section(&mut self, field: &Field<'_>, problems: &mut Problems) {
        let Some(mut fields) = Fields::open(field, Self::rows, problems) else { return };
        let before = problems.errors.len();
        self.read_keys(&mut fields, problems);
        let is_clean = problems.errors.len() == before;
        fields.finish(problems);
        self.check(field, is_clean, problems);
    }
}

/// A table for the reference and the schema.
#[derive(Debug)]
pub(super) struct Table {
    doc: &'static str,
    rows: Vec<Row>,
}

/// The table that a section declares.
pub(super) fn table<S: Section>() -> Table {
    Table { doc: S::DOC.trim_start(), rows: S::rows() }
}

/// One key.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    kind: ValueKind,
    default: DefaultValue,
    /// Manual entry: what the key does, when to change it, what goes wrong if the value is too small or too large.
    doc: &'static str,
}

impl Row {
    pub(super) fn new(name: &'static str, kind: ValueKind, default: DefaultValue, doc: &'static str) -> Self {
        Self { name, kind, default, doc: doc.trim_start() }
    }
}

/// Kind of value that a key takes.
#[derive(Debug)]
pub(super) enum ValueKind {
    /// True or false.
    Flag,
    /// A whole number.
    Number(RangeInclusive<u32>),
    /// A string such as `"30s"`.
    Duration(DurationRange),
    /// A duration, or this one word.
    DurationOr(DurationRange, &'static str),
    /// A number of bytes, or a string such as `"16MiB"`.
    Size(RangeInclusive<u64>),
    /// One of a few words.
    Choice(Vec<&'static str>),
    /// A string. The manual entry describes its form.
    Text,
    /// A list of strings that are not empty.
    TextList,
    /// A list of words from a fixed set.
    Choices(&'static [&'static str]),
    /// A list of strings that may refer to variables and files.
    Templates,
    /// Such a string, or a list of them.
    TemplateOrList,
    /// Any JSON value. Its strings may refer to variables and files.
    AnyJson,
    /// A table with known keys.
    Table(fn() -> Table),
    /// A list of such tables.
    Tables(fn() -> Table),
    /// A table with the server keys that are allowed in `[defaults]`.
    ServerKeys,
    /// A table whose keys the user chooses.
    Map(Box<Self>),
}

impl ValueKind {
    /// A table whose keys the user chooses.
    pub(super) fn map(inner: Self) -> Self {
        Self::Map(Box::new(inner))
    }
}

/// Value of a key that the config does not set.
#[derive(Debug)]
pub(super) enum DefaultValue {
    /// The key must be set.
    Required,
    /// No value.
    Absent,
    /// A default that depends on the platform or on other keys, described in words.
    Described(&'static str),
    /// A value, as a config file would write it.
    Written(String),
}

impl DefaultValue {
    pub(super) fn new(written: Option<String>) -> Self {
        written.map_or(Self::Absent, Self::Written)
    }
}

/// Declares a table of the config. There are two forms. `struct NAME { … }` also declares the struct that holds the
/// decoded table; with `struct NAME: Default` the struct has the declared defaults. `impl NAME { … }` is for a struct
/// that is declared elsewhere and implements `Default`. `, check FUNCTION` after the name adds [`Section::check`].
///
/// The doc comment of a table or key is its manual entry. The entries are:
///
/// | entry | meaning |
/// |---|---|
/// | `pub KEY: TYPE [RANGE] = DEFAULT;` | a key and its field |
/// | `KEY: TYPE [RANGE];` | a key for the field of the same name, in an `impl` |
/// | `KEY => PATH.TO.FIELD: TYPE [RANGE];` | a key for another field |
/// | `key KEY: KIND;` or `key KEY: KIND => "DEFAULT";` | a key that other code takes out of the table |
/// | `field pub NAME: TYPE = DEFAULT;` | a field without a key of its own |
///
/// The type is a [`Codec`] and determines the type of the range; types without a range leave it out. After a field's
/// type, `as CODEC` names another codec than the type itself. A key may be followed by the names that other clients use
/// for it: `client_id | "clientId"`. Before the semicolon, `, required` marks a key that must be set, and `, "WORDS"`
/// describes the default of a key that has no fixed one.
macro_rules! keys {
    ($(#[doc = $doc:literal])+ $(#[derive($($derive:ident),+)])? $vis:vis struct $name:ident: Default
        $(, check $check:path)? { $($entries:tt)* }
    ) => {
        keys!($(#[doc = $doc])+ $(#[derive($($derive),+)])? $vis struct $name $(, check $check)? { $($entries)* });

        impl Default for $name {
            fn default() -> Self {
                <Self as $crate::config::keys::Section>::defaults()
            }
        }
    };
    ($(#[doc = $doc:literal])+ $(#[derive($($derive:ident),+)])? $vis:vis struct $name:ident
        $(, check $check:path)? { $($entries:tt)* }
    ) => {
        keys!(@ { {$(#[doc = $doc])+ $(#[derive($($derive),+)])? $vis struct} $name {$($doc),+} {$($check)?} }
            {} {} {} {} $($entries)*);
    };
    ($(#[doc = $doc:literal])+ impl $name:ident $(, check $check:path)? { $($entries:tt)* }) => {
        keys!(@ { {} $name {$($doc),+} {$($check)?} } {} {} {} {} $($entries)*);
    };

    // A key and its field.
    (@ $head:tt {$($fields:tt)*} {$($defaults:tt)*} {$($rows:tt)*} {$($bound:tt)*}
        $(#[doc = $doc:literal])+ $vis:vis $key:ident $(| $alias:literal)* : $ty:ty $(as $codec:ty)?
            $([$range:expr])? = $default:expr $(, $unset:tt)?;
        $($rest:tt)*
    ) => {
        keys!(@ $head {$($fields)* $(#[doc = $doc])+ $vis $key: $ty,} {$($defaults)* $key: $default,}
            {$($rows)*} {$($bound)*}
            $(#[doc = $doc])+ $key $(| $alias)* => $key: keys!(@codec $ty $(, $codec)?) $([$range])? $(, $unset)?;
            $($rest)*);
    };
    // A field without a key of its own.
    (@ $head:tt {$($fields:tt)*} {$($defaults:tt)*} $rows:tt $bound:tt
        $(#[doc = $doc:literal])+ field $vis:vis $name:ident : $ty:ty = $default:expr;
        $($rest:tt)*
    ) => {
        keys!(@ $head {$($fields)* $(#[doc = $doc])+ $vis $name: $ty,} {$($defaults)* $name: $default,}
            $rows $bound $($rest)*);
    };
    // A key that other code takes out of the table.
    (@ $head:tt $fields:tt $defaults:tt {$($rows:tt)*} $bound:tt
        $(#[doc = $doc:literal])+ key $key:ident : $kind:expr $(=> $written:literal)? $(, $unset:tt)?;
        $($rest:tt)*
    ) => {
        keys!(@ $head $fields $defaults
            {$($rows)* {$key {$kind} {keys!(@default [$($unset)?] keys!(@written $($written)?))} {$($doc),+}}}
            $bound $($rest)*);
    };
    // A key for another field.
    (@ $head:tt $fields:tt $defaults:tt {$($rows:tt)*} {$($bound:tt)*}
        $(#[doc = $doc:literal])+ $key:ident $(| $alias:literal)* => $($path:ident).+ : $codec:ty
            $([$range:expr])? $(, $unset:tt)?;
        $($rest:tt)*
    ) => {
        keys!(@ $head $fields $defaults
            {$($rows)* {
                $key
                {<$codec as $crate::config::keys::Codec>::kind(keys!(@range $($range)?))}
                {keys!(@default [$($unset)?] <$codec as $crate::config::keys::Codec>::written(
                    &<Self as $crate::config::keys::Section>::defaults().$($path).+
                ))}
                {$($doc),+}
            }}
            {$($bound)* {
                $key [$($alias)*] [$($path).+] [$codec] [keys!(@range $($range)?)] [keys!(@words $($unset)?)]
            }}
            $($rest)*);
    };
    // A key for the field of the same name.
    (@ $head:tt $fields:tt $defaults:tt $rows:tt $bound:tt
        $(#[doc = $doc:literal])+ $key:ident $(| $alias:literal)* : $codec:ty $([$range:expr])? $(, $unset:tt)?;
        $($rest:tt)*
    ) => {
        keys!(@ $head $fields $defaults $rows $bound
            $(#[doc = $doc])+ $key $(| $alias)* => $key: $codec $([$range])? $(, $unset)?;
            $($rest)*);
    };

    // The end of the entries.
    (@ { {$($declare:tt)+} $name:ident $doc:tt $check:tt } {$($fields:tt)*} {$($defaults:tt)*} $rows:tt $bound:tt) => {
        $($declare)+ $name { $($fields)* }

        keys!(@impls $name $doc $check { Self { $($defaults)* } } $rows $bound);
    };
    (@ { {} $name:ident $doc:tt $check:tt } {} {} $rows:tt $bound:tt) => {
        keys!(@impls $name $doc $check { Self::default() } $rows $bound);
    };
    (@impls $name:ident {$($doc:literal),+} {$($check:path)?} $defaults:block
        {$({$row:ident {$kind:expr} {$default:expr} {$($row_doc:literal),+}})*}
        {$({$key:ident [$($alias:literal)*] [$($path:ident).+] [$codec:ty] [$range:expr] [$words:expr]})*}
    ) => {
        impl $crate::config::keys::Section for $name {
            const DOC: &'static str = concat!($($doc),+);

            fn defaults() -> Self $defaults

            fn rows() -> Vec<$crate::config::keys::Row> {
                use $crate::config::keys::Row;
                vec![$(Row::new(stringify!($row), $kind, $default, concat!($($row_doc),+)),)*]
            }

            fn read_keys(
                &mut self,
                fields: &mut $crate::config::fields::Fields<'_>,
                problems: &mut $crate::config::fields::Problems,
            ) {
                $(if let Some(field) = fields.take_or_alias(stringify!($key), &[$($alias),*], problems) {
                    let into = &mut self.$($path).+;
                    <$codec as $crate::config::keys::Codec>::read_into(&field, $range, into, problems);
                })*
                let _ = (fields, problems);
            }

            $(fn check(
                &mut self,
                field: &$crate::config::fields::Field<'_>,
                is_clean: bool,
                problems: &mut $crate::config::fields::Problems,
            ) {
                $check(self, field, is_clean, problems);
            })?

            fn settings(&self) -> Vec<$crate::config::keys::KeyValue> {
                let settings: [Vec<_>; _] = [$(
                    <$codec as $crate::config::keys::Codec>::settings(
                        &self.$($path).+, stringify!($key), $words,
                    ),
                )*];
                settings.concat()
            }
        }
    };

    (@codec $ty:ty) => { $ty };
    (@codec $ty:ty, $codec:ty) => { $codec };
    (@range) => { () };
    (@range $range:expr) => { $range };
    (@written) => { None };
    (@written $written:literal) => { Some(String::from($written)) };
    (@default [] $written:expr) => { $crate::config::keys::DefaultValue::new($written) };
    (@default [required] $written:expr) => { $crate::config::keys::DefaultValue::Required };
    (@default [$words:literal] $written:expr) => { $crate::config::keys::DefaultValue::Described($words) };
    (@words) => { None };
    (@words required) => { None };
    (@words $words:literal) => { Some($words) };
}
pub(super) use keys;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::formats::Format;
    use crate::config::node::KeyNode;
    use crate::config::sections::FileKeys;
    use crate::config::{Config, GatewayConfig};
    use std::collections::BTreeSet;

    /// Collects every key of a table and of the tables inside it, with its full path.
    fn all(path: &str, table: Table, found: &mut Vec<(String, Row)>) {
        for row in table.rows {
            let path = if path.is_empty() { row.name.to_owned() } else { format!("{path}.{}", row.name) };
            match &row.kind {
                ValueKind::Table(inner) => all(&path, inner(), found),
                ValueKind::Map(inner) => {
                    if let ValueKind::Table(inner) = &**inner {
                        all(&format!("{path}.x"), inner(), found);
                    }
                }
                _ => {}
            }
            found.push((path, row));
        }
    }

    fn everything() -> Vec<(String, Row)> {
        let mut found = Vec::new();
        all("", table::<FileKeys>(), &mut found);
        found
    }

    fn parse(text: &str) -> Config {
        Config::parse(text, "gripfast.toml".as_ref()).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// The keys that each table needs to be valid.
    const AROUND: &[(&str, &str)] = &[
        ("servers.x.oauth", "servers.x.url = \"https://h.example\"\nservers.x.oauth.client_id = \"c\"\n"),
        ("servers.x", "servers.x.command = \"true\"\n"),
        ("cluster", "cluster.store = \"redis://h\"\ncluster.key = \"${env:K}\"\n"),
        (
            "gateway.auth.jwt",
            "gateway.auth.jwt.issuer = \"i\"\ngateway.auth.jwt.audience = \"a\"\ngateway.auth.jwt.jwks = \"f\"\n",
        ),
        (
            "gateway.search.embeddings",
            "gateway.search.embeddings.url = \"https://h.example\"\ngateway.search.embeddings.model = \"m\"\n",
        ),
        ("budgets.x", "budgets.x.in_flight = 1\nservers.y.command = \"true\"\n"),
        ("clients.x", "clients.x.resources.deny = [\"y/no\"]\nservers.y.command = \"true\"\n"),
        ("", "servers.y.command = \"true\"\n"),
    ];

    keys! {
        /// A sample.
        #[derive(Debug, PartialEq)]
        struct Sample {
            /// Number of samples. Too small: too
            /// few.
            samples: u32 [1..=9] = 3;
        }
    }

    #[test]
    fn one_entry_declares_field_default_range_manual_entry_and_decoder() {
        let [row] = Sample::rows().try_into().unwrap();
        assert_eq!((row.name, row.doc), ("samples", "Number of samples. Too small: too few."));
        assert!(matches!(row.kind, ValueKind::Number(range) if range == (1..=9)));
        assert!(matches!(row.default, DefaultValue::Written(written) if written == "3"));
        assert_eq!(Sample { samples: 5 }.settings(), [("samples".to_owned(), "5".to_owned())]);
        for (text, samples, error) in [
            ("", 3, None),
            ("samples = 9", 9, None),
            ("samples = 10", 3, Some("`10` is out of range; allowed: 1 to 9")),
            ("sampels = 9", 3, Some("unknown key `sampels`")),
        ] {
            let node = Format::Toml.parse(text).unwrap().unwrap();
            let key = KeyNode { name: "sample".to_owned(), at: node.at };
            let mut problems = Problems::default();
            let sample = Sample::read(&Field::top(&key, &node), (), &mut problems);
            assert_eq!(sample, Some(Sample { samples }), "{text}");
            assert_eq!(problems.errors.first().map(|found| found.message.as_str()), error, "{text}");
        }
    }

    #[test]
    fn a_config_that_sets_every_default_equals_one_that_sets_nothing() {
        let mut checked = 0;
        for (path, row) in everything() {
            // `AROUND` already sets the patterns for resources.
            let DefaultValue::Written(default) = &row.default else { continue };
            if path == "clients.x.resources.deny" {
                continue;
            }
            let (_, around) = AROUND.iter().find(|(table, _)| path.starts_with(table)).unwrap();
            let default = row.kind.quoted(default);
            let [without, with] =
                ["", &format!("{path} = {default}\n")].map(|line| parse(&format!("{around}{line}")));
            assert!(
                with.servers.iter().all(|server| server.spec.is_ok()),
                "{path} = {default}: {:?}",
                with.servers
            );
            assert_eq!(with, without, "{path} = {default}");
            checked += 1;
        }
        assert!(checked > 50, "{checked}");
    }

    #[test]
    fn every_key_has_a_manual_entry_and_no_path_occurs_twice() {
        let mut paths = BTreeSet::new();
        for (path, row) in everything() {
            assert!(row.doc.ends_with('.') && row.doc.len() > 8, "{path}: {}", row.doc);
            assert!(
                !row.doc.contains('|') && !row.doc.contains('\n'),
                "{path}: the text is a cell of a Markdown table"
            );
            assert!(paths.insert(path.clone()), "{path} occurs twice");
        }
    }

    #[test]
    fn the_schema_has_every_key_with_its_default() {
        let schema = schema();
        let server = &schema["properties"]["servers"]["additionalProperties"];
        assert_eq!(server["properties"]["max_in_flight"]["default"], 64);
        assert_eq!(server["properties"]["timeouts"]["properties"]["call"]["default"], "5m");
        assert_eq!(server["properties"]["lazy"]["default"], false);
        assert_eq!(server["properties"]["when_down"]["enum"], serde_json::json!(["keep", "withdraw"]));
        assert_eq!(server["additionalProperties"], false);
        for Row { name, .. } in GatewayConfig::rows() {
            assert!(schema["properties"]["gateway"]["properties"][name]["description"].is_string(), "{name}");
        }
    }
}

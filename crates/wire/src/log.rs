//! How severe a log message is, and how severe it has to be to be wanted. The words are those of both eras; where a
//! message goes is decided elsewhere.

use crate::patch::Object;
use serde_json::value::RawValue;

/// `notifications/message`: a server says something about what it does.
pub const MESSAGE: &str = "notifications/message";
/// `logging/setLevel` of the legacy era: what is wanted from now on.
pub const SET_LEVEL: &str = "logging/setLevel";

/// The severity of a log message, the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the words are those of syslog")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    /// All of them, the mildest first.
    pub const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// The level of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }

    /// The `level` in the parameters of [`SET_LEVEL`] and of [`MESSAGE`].
    pub fn in_params(params: Option<&RawValue>) -> Option<Self> {
        Self::named(&Object::parse(params?).ok()?.text("level")?)
    }

    /// The word on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_known_by_its_name_and_more_severe_than_the_one_before() {
        assert!(LogLevel::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        for level in LogLevel::ALL {
            let params = RawValue::from_string(format!(r#"{{"level":"{}"}}"#, level.name())).unwrap();
            assert_eq!(LogLevel::in_params(Some(&params)), Some(level));
        }
        assert_eq!(LogLevel::named("loud"), None);
        assert_eq!(LogLevel::in_params(None), None);
    }
}

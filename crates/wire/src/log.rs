//! Log levels of MCP, the same in both eras. Routing of log messages is left to the gateway.

use crate::patch::Object;
use crate::raw;
use gripfast_core::json_text::Json;

/// `notifications/message`: a log message of a server.
pub const MESSAGE: &str = "notifications/message";
/// `logging/setLevel` of the legacy era: the least severe level that the client wants from now on.
pub const SET_LEVEL: &str = "logging/setLevel";

/// Severity of a log message, least severe first.
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
    /// All levels, least severe first.
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
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }

    /// The `level` in the parameters of [`SET_LEVEL`] and of [`MESSAGE`].
    pub fn from_params(params: Option<&Json>) -> Option<Self> {
        Self::from_name(&Object::parse(params?).ok()?.text("level")?)
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

    /// The name as JSON.
    pub fn to_json(self) -> &'static Json {
        raw::part(match self {
            Self::Debug => r#""debug""#,
            Self::Info => r#""info""#,
            Self::Notice => r#""notice""#,
            Self::Warning => r#""warning""#,
            Self::Error => r#""error""#,
            Self::Critical => r#""critical""#,
            Self::Alert => r#""alert""#,
            Self::Emergency => r#""emergency""#,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast_core::json_text::JsonText;

    #[test]
    fn every_level_has_its_name_and_is_more_severe_than_the_previous_one() {
        assert!(LogLevel::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        for level in LogLevel::ALL {
            let params = JsonText::parse(format!(r#"{{"level":"{}"}}"#, level.name())).unwrap();
            assert_eq!(LogLevel::from_params(Some(&params)), Some(level));
            assert_eq!(raw::text(level.to_json()).as_deref(), Some(level.name()));
        }
        assert_eq!(LogLevel::from_name("loud"), None);
        assert_eq!(LogLevel::from_params(None), None);
    }
}

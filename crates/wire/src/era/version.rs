//! Protocol versions: dates that compare as text. Gives the era and the rules of a version; does not choose one.

use std::borrow::Cow;
use std::fmt;

/// Protocol generation, which differs in where the client's context is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Era {
    /// Once per connection, in `initialize`.
    Legacy,
    /// In every request.
    Modern,
}

/// A protocol version, known or unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProtocolVersion(Cow<'static, str>);

impl ProtocolVersion {
    /// stdio, and HTTP with a separate SSE endpoint.
    pub const V2024_11_05: Self = Self(Cow::Borrowed("2024-11-05"));
    /// Streamable HTTP with sessions; JSON-RPC batches.
    pub const V2025_03_26: Self = Self(Cow::Borrowed("2025-03-26"));
    /// No batches; the version header; elicitation.
    pub const V2025_06_18: Self = Self(Cow::Borrowed("2025-06-18"));
    /// URL elicitation, experimental tasks, resumable polling.
    pub const V2025_11_25: Self = Self(Cow::Borrowed("2025-11-25"));
    /// Stateless requests.
    pub const V2026_07_28: Self = Self(Cow::Borrowed("2026-07-28"));
    /// The newest version with `initialize`.
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;
    /// The newest version.
    pub const MODERN: Self = Self::V2026_07_28;
    /// All versions that this crate knows, oldest first.
    pub const KNOWN: [Self; 5] =
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];

    /// Accepts any text; a known version does not allocate.
    pub fn new(text: &str) -> Self {
        let known = Self::KNOWN.into_iter().find(|version| version.as_str() == text);
        known.unwrap_or_else(|| Self(Cow::Owned(text.to_owned())))
    }

    /// The version as sent in messages.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The era. A version that is not a date comes from an old server, and is legacy.
    pub fn era(&self) -> Era {
        if self.is_date() && *self >= Self::MODERN { Era::Modern } else { Era::Legacy }
    }

    /// Returns whether this crate knows the version.
    pub fn is_known(&self) -> bool {
        Self::KNOWN.contains(self)
    }

    /// Returns whether HTTP requests must carry the version in a header (legacy: all but the first).
    pub fn needs_version_header(&self) -> bool {
        self.is_date() && *self >= Self::V2025_06_18
    }

    /// Returns whether a receiver must accept JSON-RPC batches.
    pub fn allows_batches(&self) -> bool {
        *self == Self::V2025_03_26
    }

    /// Returns whether clients understand an event without data, which gives them an id to resume from. Older clients
    /// may take it for an invalid message; newer ones do not resume streams.
    pub fn primes_streams(&self) -> bool {
        *self == Self::LATEST_LEGACY
    }

    /// Returns whether legacy clients of this version know tasks. Modern clients declare them with each request.
    pub fn has_tasks(&self) -> bool {
        *self == Self::V2025_11_25
    }

    /// `dddd-dd-dd`; without this check text such as `draft` would compare as newer than every date.
    fn is_date(&self) -> bool {
        self.0.len() == 10
            && self.0.bytes().enumerate().all(|(index, byte)| match index {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            })
    }
}

impl From<&str> for ProtocolVersion {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_from_2026_07_28_on_are_modern() {
        let eras = ProtocolVersion::KNOWN.map(|version| version.era());
        assert_eq!(eras, [Era::Legacy, Era::Legacy, Era::Legacy, Era::Legacy, Era::Modern]);
        assert_eq!(ProtocolVersion::new("2027-01-01").era(), Era::Modern);
    }

    #[test]
    fn a_version_that_is_not_a_date_is_legacy() {
        for odd in ["draft", "DRAFT-2026-v1", "1.0", "", "2026-07-2x", "9999"] {
            assert_eq!(ProtocolVersion::new(odd).era(), Era::Legacy, "{odd}");
        }
    }

    #[test]
    fn batches_version_header_and_priming_events_belong_to_their_versions() {
        let batches = ProtocolVersion::KNOWN.map(|version| version.allows_batches());
        let header = ProtocolVersion::KNOWN.map(|version| version.needs_version_header());
        assert_eq!(batches, [false, true, false, false, false]);
        assert_eq!(header, [false, false, true, true, true]);
        let primed = ProtocolVersion::KNOWN.map(|version| version.primes_streams());
        assert_eq!(primed, [false, false, false, true, false]);
    }
}

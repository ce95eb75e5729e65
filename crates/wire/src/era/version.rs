//! Protocol versions: dates that compare as text. Which era one belongs to and which duties come with it; not
//! which one to offer to whom.

use std::borrow::Cow;
use std::fmt;

/// How a peer keeps its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Era {
    /// Once per connection, in `initialize`.
    Legacy,
    /// In every request.
    Modern,
}

/// A protocol version, known to us or not.
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
    /// The newest version that begins with `initialize`.
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;
    /// The newest version there is.
    pub const MODERN: Self = Self::V2026_07_28;
    /// What a legacy HTTP request without the version header is taken for.
    pub const WITHOUT_HEADER: Self = Self::V2025_03_26;
    /// Every version this crate knows, oldest first.
    pub const KNOWN: [Self; 5] =
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];

    /// Takes any text; a known version does not allocate.
    pub fn new(text: &str) -> Self {
        let known = Self::KNOWN.into_iter().find(|version| version.as_str() == text);
        known.unwrap_or_else(|| Self(Cow::Owned(text.to_owned())))
    }

    /// As it is written on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The era. What is not a date is some old server's own idea of a version, and legacy.
    pub fn era(&self) -> Era {
        if self.is_date() && *self >= Self::MODERN { Era::Modern } else { Era::Legacy }
    }

    /// Whether this crate was written with this version in hand.
    pub fn is_known(&self) -> bool {
        Self::KNOWN.contains(self)
    }

    /// Whether HTTP requests must say the version in a header (legacy: all but the first).
    pub fn needs_version_header(&self) -> bool {
        self.is_date() && *self >= Self::V2025_06_18
    }

    /// Whether a receiver must take JSON-RPC batches.
    pub fn allows_batches(&self) -> bool {
        *self == Self::V2025_03_26
    }

    /// Whether a client takes an event without data as a place to come back to. Older ones may take it for a message
    /// that they cannot read; newer ones have no streams to come back to.
    pub fn primes_streams(&self) -> bool {
        *self == Self::LATEST_LEGACY
    }

    /// Whether a client of the legacy era knows what a task is. In the modern one it says so with each request.
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
    fn the_era_changes_with_2026_07_28_and_stays_changed() {
        let eras = ProtocolVersion::KNOWN.map(|version| version.era());
        assert_eq!(eras, [Era::Legacy, Era::Legacy, Era::Legacy, Era::Legacy, Era::Modern]);
        assert_eq!(ProtocolVersion::new("2027-01-01").era(), Era::Modern);
    }

    #[test]
    fn what_is_not_a_date_is_legacy_although_letters_sort_after_digits() {
        for odd in ["draft", "DRAFT-2026-v1", "1.0", "", "2026-07-2x", "9999"] {
            assert_eq!(ProtocolVersion::new(odd).era(), Era::Legacy, "{odd}");
        }
    }

    #[test]
    fn only_2025_03_26_takes_batches_the_header_came_after_it_and_events_without_data_later_still() {
        let batches = ProtocolVersion::KNOWN.map(|version| version.allows_batches());
        let header = ProtocolVersion::KNOWN.map(|version| version.needs_version_header());
        assert_eq!(batches, [false, true, false, false, false]);
        assert_eq!(header, [false, false, true, true, true]);
        let primed = ProtocolVersion::KNOWN.map(|version| version.primes_streams());
        assert_eq!(primed, [false, false, false, true, false]);
    }
}

//! Parsing and formatting of durations and sizes, and ranges of durations.

use std::time::Duration;

/// Longest duration of a key without a smaller limit; short enough that adding it to a clock cannot overflow.
pub(in crate::config) const MAX_DURATION: Duration = Duration::from_secs(30 * 24 * 3600);

/// An inclusive range of durations.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct DurationRange {
    shortest: Duration,
    longest: Duration,
    /// Zero lies outside the range but means "off".
    zero_is_off: bool,
}

impl DurationRange {
    pub(in crate::config) const fn between(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest, zero_is_off: false }
    }

    pub(in crate::config) const fn at_least(shortest: Duration) -> Self {
        Self::between(shortest, MAX_DURATION)
    }

    pub(in crate::config) const fn or_off(self) -> Self {
        Self { zero_is_off: true, ..self }
    }

    pub(in crate::config) fn contains(&self, duration: Duration) -> bool {
        (self.shortest..=self.longest).contains(&duration) || (self.zero_is_off && duration.is_zero())
    }

    pub(in crate::config) fn describe(&self) -> String {
        let off = if self.zero_is_off { ", or 0s for off" } else { "" };
        format!("{} to {}{off}", format_duration(self.shortest), format_duration(self.longest))
    }
}

/// The shortest time that a clock of milliseconds can wait.
pub(in crate::config) const AT_LEAST_1_MS: DurationRange = DurationRange::at_least(Duration::from_millis(1));

/// Long enough that repeated attempts do not become a storm.
pub(in crate::config) const AT_LEAST_100_MS: DurationRange =
    DurationRange::at_least(Duration::from_millis(100));

/// Long enough for people and processes to react.
pub(in crate::config) const AT_LEAST_1_S: DurationRange = DurationRange::at_least(Duration::from_secs(1));

const UNITS: &[(&str, u64)] =
    &[("d", 24 * 3600 * 1000), ("h", 3600 * 1000), ("m", 60 * 1000), ("s", 1000), ("ms", 1)];

/// Parses `30s`, `1h30m`, `100ms`. A bare number, a fraction or a space is refused.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if text.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit())?);
        let (unit, after) =
            after.split_at(after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len()));
        let (_, worth) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(*worth)?)?;
        rest = after;
    }
    Some(Duration::from_millis(total))
}

/// The shortest way to write a duration of whole milliseconds.
pub(in crate::config) fn format_duration(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut shown = String::new();
    for (unit, worth) in UNITS {
        if left >= *worth {
            shown += &format!("{}{unit}", left / worth);
            left %= worth;
        }
    }
    if shown.is_empty() { "0s".to_owned() } else { shown }
}

const SIZES: &[(&str, u64)] = &[
    ("b", 1),
    ("kb", 1000),
    ("kib", 1 << 10),
    ("mb", 1_000_000),
    ("mib", 1 << 20),
    ("gb", 1_000_000_000),
    ("gib", 1 << 30),
];

/// Parses `16MiB`, `512 KiB` or `1000000` into bytes.
pub(in crate::config) fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, unit) =
        text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let unit = unit.trim_start().to_ascii_lowercase();
    let worth = match unit.as_str() {
        "" => 1,
        unit => SIZES.iter().find(|(name, _)| *name == unit)?.1,
    };
    number.parse::<u64>().ok()?.checked_mul(worth)
}

/// Formats a size as a whole number of the largest binary unit that fits.
pub(in crate::config) fn format_size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(worth, _)| bytes >= *worth && bytes.is_multiple_of(*worth)) {
        Some((worth, unit)) => format!("{}{unit}", bytes / worth),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_with_units_are_parsed() {
        assert_eq!(parse_duration("30s"), Some(Duration::from_secs(30)));
        assert_eq!(parse_duration("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(parse_duration("100ms"), Some(Duration::from_millis(100)));
        for wrong in
            ["", "30", "s", "1.5s", "30 s", "-1s", "1y", "99999999999999999999d", "300000000000d", "1s "]
        {
            assert_eq!(parse_duration(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn sizes_with_units_are_parsed() {
        assert_eq!(parse_size("16MiB"), Some(16 << 20));
        assert_eq!(parse_size("2 kb"), Some(2000));
        assert_eq!(parse_size("77"), Some(77));
        for wrong in ["", "MiB", "1.5MiB", "1 XB", "99999999999GiB"] {
            assert_eq!(parse_size(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn a_formatted_duration_parses_back(millis in 0..u64::MAX / 2) {
            let whole = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&format_duration(whole)), Some(whole));
        }

        #[test]
        fn a_formatted_size_parses_back(bytes: u64) {
            prop_assert_eq!(parse_size(&format_size(bytes)), Some(bytes));
        }

        #[test]
        fn no_text_panics(text in ".{0,30}") {
            let _ = (parse_duration(&text), parse_size(&text));
        }
    }
}

//! Formats timestamps: in UTC, or as the time that has passed since.

use crate::cli::status::short_duration;

/// The time in milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    u64::try_from(gripfast::unix_time().as_millis()).unwrap_or(u64::MAX)
}

/// The time that has passed since a time in milliseconds since the Unix epoch: `3s ago`.
pub(crate) fn ago(millis: u64) -> String {
    format!("{} ago", short_duration(now_ms().saturating_sub(millis)))
}

/// A time in milliseconds since the Unix epoch as UTC: `2026-11-16T03:24:15Z`.
pub(crate) fn utc(millis: u64) -> String {
    let (days, rest) = (millis / 86_400_000, millis / 1000 % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The year, month and day of a day number since the Unix epoch. The calendar repeats every 400 years; years are
/// counted from March, so that the leap day is the last day of its year.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // Counted from 1 March of year 0.
    let days = days + 719_468;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, of_next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + of_next, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_converted_to_calendar_dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(utc(4_107_542_399_999), "2100-02-28T23:59:59Z");
        assert_eq!(utc(4_107_542_400_000), "2100-03-01T00:00:00Z", "2100 is no leap year");
        assert_eq!(utc(1_794_799_455_123), "2026-11-16T03:24:15Z");
    }
}

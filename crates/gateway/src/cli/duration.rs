//! Durations on the command line, written as in the config: `1500ms`, `2s`, `1m30s`.

use std::time::Duration;

const UNITS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1000), ("m", 60 * 1000), ("h", 3600 * 1000), ("d", 24 * 3600 * 1000)];

/// Parses a duration. clap prints the error after "invalid value …:".
pub(crate) fn parse(text: &str) -> Result<Duration, &'static str> {
    read(text).ok_or("expected a duration such as 1500ms, 2s or 1m30s")
}

fn read(text: &str) -> Option<Duration> {
    let mut millis: u64 = 0;
    let mut rest = text;
    loop {
        let (number, after) = rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit())?);
        let (unit, after) =
            after.split_at(after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len()));
        let (_, worth) = UNITS.iter().find(|(name, _)| *name == unit)?;
        millis = number.parse::<u64>().ok()?.checked_mul(*worth)?.checked_add(millis)?;
        if after.is_empty() {
            return Some(Duration::from_millis(millis));
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_in_the_config() {
        for (text, millis) in
            [("1500ms", 1500), ("2s", 2000), ("0s", 0), ("1m30s", 90_000), ("2h", 7_200_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        for wrong in [
            "",
            "2",
            "s",
            "1.5s",
            "-1s",
            "2 s",
            "2y",
            "2s3",
            "é",
            "99999999999999999999s",
            "9999999999999999h",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}

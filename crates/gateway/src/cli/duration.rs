//! Durations on the command line, written as in the config: `1500ms`, `2s`, `1m30s`.

use std::time::Duration;

/// Parses a duration. clap prints the error after "invalid value …:".
pub(crate) fn parse(text: &str) -> Result<Duration, &'static str> {
    gripfast::config::parse_duration(text).ok_or("expected a duration such as 1500ms, 2s or 1m30s")
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

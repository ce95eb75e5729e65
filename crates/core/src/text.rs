//! Small phrases that people read, spelled the same everywhere.

use std::time::Duration;

/// A duration as a person would say it: `250 ms`, `1.5 s`, `42 s`, `5 min`, `3 h 20 min`.
pub fn duration(span: Duration) -> String {
    let millis = span.as_millis();
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{millis} ms"),
        1..10 if millis % 1000 >= 100 => format!("{:.1} s", span.as_secs_f64()),
        1..120 => format!("{seconds} s"),
        120..7200 => match (seconds / 60, seconds % 60) {
            (minutes, 0) => format!("{minutes} min"),
            (minutes, rest) => format!("{minutes} min {rest} s"),
        },
        _ => match (seconds / 3600, seconds % 3600 / 60) {
            (hours, 0) => format!("{hours} h"),
            (hours, minutes) => format!("{hours} h {minutes} min"),
        },
    }
}

/// A count as a person would say it: `once`, `twice`, `3 times`.
pub fn times(count: impl Into<u64>) -> String {
    match count.into() {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

/// Names as a person would list them: "`a`, `b` and 3 more".
pub fn names(names: &[&str]) -> String {
    const MOST: usize = 5;
    let named: Vec<String> = names.iter().take(MOST).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(MOST) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_say_them() {
        let said = |millis| duration(Duration::from_millis(millis));
        assert_eq!(said(0), "0 ms");
        assert_eq!(said(250), "250 ms");
        assert_eq!(said(1500), "1.5 s");
        assert_eq!(said(42_000), "42 s");
        assert_eq!(said(300_000), "5 min");
        assert_eq!(said(12_000_000), "3 h 20 min");
    }
}

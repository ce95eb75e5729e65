//! Text helpers for messages: durations, counts, name lists and escaping.

use std::borrow::Cow;
use std::time::Duration;

/// A readable duration: `250 ms`, `1.5 s`, `42 s`, `5 min`, `3 h 20 min`.
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

/// Escapes external text for one line: control characters, and characters that hide or reorder others, are written as
/// escapes (`\\n`, `\\u{1b}`), so that no text can start its own line or control a terminal.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, is_unsafe)
}

/// The same for text of several lines: line breaks and tabs stay.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    let is_unsafe = |letter| is_unsafe(letter) && !matches!(letter, '\n' | '\t');
    match text.contains("\r\n") {
        true => Cow::Owned(escape(&text.replace("\r\n", "\n"), is_unsafe).into_owned()),
        false => escape(text, is_unsafe),
    }
}

/// Returns whether a character can control a terminal, start a line, is invisible, or changes the direction of writing.
pub fn is_unsafe(letter: char) -> bool {
    // Most characters are ASCII, and the text of every failure comes here.
    if letter.is_ascii() {
        return letter.is_ascii_control();
    }
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

fn escape(text: &str, is_unsafe: impl Fn(char) -> bool + Copy) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_unsafe(letter) { safe.extend(letter.escape_default()) } else { safe.push(letter) }
    }
    Cow::Owned(safe)
}

/// A readable count: `once`, `twice`, `3 times`.
pub fn times(count: impl Into<u64>) -> String {
    match count.into() {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

/// A readable list of names: "`a`, `b` and 3 more".
pub fn name_list(names: &[&str]) -> String {
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
    fn durations_are_readable() {
        let said = |millis| duration(Duration::from_millis(millis));
        assert_eq!(said(0), "0 ms");
        assert_eq!(said(250), "250 ms");
        assert_eq!(said(1500), "1.5 s");
        assert_eq!(said(42_000), "42 s");
        assert_eq!(said(300_000), "5 min");
        assert_eq!(said(12_000_000), "3 h 20 min");
    }

    #[test]
    fn g07_external_text_starts_no_line_and_controls_no_terminal() {
        let said = "a\u{1b}]0;title\u{7}\tb\r\nWARN forged\u{9b}2J\u{7f}";
        assert_eq!(escaped(said), "a\\u{1b}]0;title\\u{7}\\tb\\r\\nWARN forged\\u{9b}2J\\u{7f}");
        assert_eq!(escaped_lines(said), "a\\u{1b}]0;title\\u{7}\tb\nWARN forged\\u{9b}2J\\u{7f}");
        assert_eq!(escaped("safe\u{202e}evil\u{2069}\u{200b}"), "safe\\u{202e}evil\\u{2069}\\u{200b}");
        assert!(matches!(escaped("plain é 検索 👩\u{200d}🔧"), Cow::Borrowed(_)), "what joins a sign stays");
        assert!(matches!(escaped_lines("two\nlines\t"), Cow::Borrowed(_)));
    }
}

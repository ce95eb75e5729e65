//! Colours of state symbols on a terminal. Each symbol stands beside its word, so no information is lost without
//! colours.

use clap::builder::styling::{AnsiColor, Style};

/// The text with its symbols in colour.
pub(super) fn coloured(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    for letter in text.chars() {
        match style(letter) {
            Some(style) => out += &format!("{style}{letter}{style:#}"),
            None => out.push(letter),
        }
    }
    out
}

fn style(sign: char) -> Option<Style> {
    let colour = match sign {
        '●' | '✓' => AnsiColor::Green,
        '◐' | '◍' | '↻' | '‖' => AnsiColor::Yellow,
        '✗' => AnsiColor::Red,
        _ => return None,
    };
    Some(colour.on_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_coloured_and_words_are_not() {
        assert_eq!(coloured("a ● ready"), "a \u{1b}[32m●\u{1b}[0m ready");
        assert_eq!(coloured("✗"), "\u{1b}[31m✗\u{1b}[0m");
        assert_eq!(coloured("○ idle"), "○ idle");
    }
}

//! What is wrong with a config, where, and what to do about it; and how that is shown: as compilers show
//! it, in plain text. Colour is the business of whoever owns the terminal.

use super::node::Position;
use super::redact::mask_line;
use gripfast_core::redact::KnownSecrets;
use std::fmt;
use std::path::{Path, PathBuf};

/// Whether a diagnostic stops what it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file, or the one server, cannot be used.
    Error,
    /// Worth knowing; nothing stops.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// One finding about a config file. Never holds an expanded value, nor a literal of `env` or `headers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether it stops anything.
    pub severity: Severity,
    /// The file, as it was named to us.
    pub file: PathBuf,
    /// Where in the file.
    pub at: Position,
    /// The key it is about, such as `servers.github.timeouts.call`; empty for the file as a whole.
    pub path: String,
    /// What is wrong: lower case, no full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The source line, secrets starred out.
    excerpt: Option<Excerpt>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Excerpt {
    line: String,
    /// Characters before the caret, and carets.
    indent: usize,
    width: usize,
}

/// Longer lines are shown as a window around the place: a minified JSON file is one line.
const WIDEST: usize = 100;

/// Even looking through a line this long for secrets costs too much to do for each finding.
const LONGEST_LINE: usize = 64 << 10;

impl Diagnostic {
    pub(super) fn error(path: impl Into<String>, at: Position, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, path.into(), at, message.into())
    }

    pub(super) fn warning(path: impl Into<String>, at: Position, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, path.into(), at, message.into())
    }

    fn new(severity: Severity, path: String, at: Position, message: String) -> Self {
        let [path, message] = [path, message].map(|text| on_one_line(&text));
        Self { severity, file: PathBuf::new(), at, path, message, hint: None, excerpt: None }
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(on_one_line(&hint.into()));
        self
    }

    /// The finding as several lines, the way compilers show theirs. Ends without a newline.
    ///
    /// ```text
    /// error: unknown key `comand`
    ///  --> gripfast.toml:3:1 (servers.github.comand)
    ///   |
    /// 3 | comand = "npx"
    ///   | ^^^^^^
    ///   hint: did you mean `command`?
    /// ```
    #[must_use]
    pub fn render(&self) -> String {
        let mut shown = format!("{}: {}", self.severity, self.message);
        let number = self.at.line.to_string();
        let margin = " ".repeat(number.len());
        shown += &format!("\n{margin}--> {}:{}", self.file.display(), self.at);
        if !self.path.is_empty() {
            shown += &format!(" ({})", self.path);
        }
        if let Some(Excerpt { line, indent, width }) = &self.excerpt {
            let carets = " ".repeat(*indent) + &"^".repeat(*width);
            shown += &format!("\n{margin} |\n{number} | {line}\n{margin} | {carets}");
        }
        if let Some(hint) = &self.hint {
            shown += &format!("\n{margin} hint: {hint}");
        }
        shown
    }
}

/// One line: for a log, or for the cause in a status.
impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(out, "{}: ", self.path)?;
        }
        out.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(out, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// A file's name and lines, to complete diagnostics with; they are made where neither is at hand.
pub(super) struct Source<'t> {
    file: &'t Path,
    lines: Vec<&'t str>,
    secrets: Option<KnownSecrets>,
}

impl<'t> Source<'t> {
    /// `secrets` are texts that no excerpt may show; `None` if the file cannot be read.
    pub(super) fn new(file: &'t Path, text: &'t str, secrets: Option<KnownSecrets>) -> Self {
        Self { file, lines: text.lines().collect(), secrets }
    }

    pub(super) fn complete(&self, diagnostic: &mut Diagnostic) {
        diagnostic.file = self.file.to_owned();
        let Position { line, column } = diagnostic.at;
        let Some(line) = self.lines.get(line - 1) else { return };
        if line.trim().is_empty() || line.len() > LONGEST_LINE {
            return;
        }
        let from = column.saturating_sub(WIDEST / 2);
        // A secret that begins left of the window must still be recognised, so masking comes first.
        let masked = mask_line(line, self.secrets.as_ref());
        let from = if masked.chars().count() <= WIDEST { 0 } else { from };
        let window: String = masked.chars().skip(from).take(WIDEST).collect();
        let before = (column - 1 - from).min(window.chars().count());
        let raw: String = line.chars().skip(from + before).take(WIDEST - before).collect();
        let width = token_width(&raw);
        let line = window.trim_end().to_owned();
        diagnostic.excerpt = Some(Excerpt { line, indent: before, width });
    }
}

/// How many characters to underline: a quoted string, or a run of what keys and bare values are made of.
fn token_width(text: &str) -> usize {
    let quoted = |quote: char| {
        let inside = text.strip_prefix(quote)?;
        inside.find(quote).map(|end| inside[..end].chars().count() + 2)
    };
    let bare =
        || text.chars().take_while(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.'));
    quoted('"').or_else(|| quoted('\'')).unwrap_or_else(|| bare().count().max(1))
}

/// Names and values out of a file may hold anything; in a message they stay on its line.
fn on_one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// A piece of the file inside a message: quoted, and cut to a readable length.
pub(super) fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, line: usize, column: usize, secrets: &[&str]) -> String {
        let secrets = Some(secrets.iter().copied().collect());
        let mut diagnostic = Diagnostic::error("a.b", Position { line, column }, "bad").with_hint("mend it");
        Source::new(Path::new("f.json"), text, secrets).complete(&mut diagnostic);
        diagnostic.render()
    }

    #[test]
    fn the_caret_stands_under_the_place() {
        insta::assert_snapshot!(shown("\n\n  \"a é\" : x", 3, 3, &[]), @r#"
        error: bad
         --> f.json:3:3 (a.b)
          |
        3 |   "a é" : x
          |   ^^^^^
          hint: mend it
        "#);
    }

    #[test]
    fn a_very_long_line_is_shown_as_a_window() {
        let line = format!("{{{} oops {}}}", "\"a\":1,".repeat(1000), "\"b\":2,".repeat(1000));
        let rendered = shown(&line, 1, 6003, &[]);
        assert!(rendered.lines().all(|line| line.chars().count() < 120), "{rendered}");
        let [.., source, caret, _hint] = rendered.lines().collect::<Vec<_>>()[..] else {
            panic!("{rendered}")
        };
        assert_eq!(source.find("oops"), caret.find('^'));
    }

    #[test]
    fn an_excerpt_hides_secrets_and_control_characters() {
        let rendered = shown("hunter2hunter2 \u{1b}[31m x ghp_aaaaaaaaaaaa", 1, 22, &["hunter2hunter2"]);
        assert!(!rendered.contains("hunter2") && !rendered.contains("ghp_") && !rendered.contains('\u{1b}'));
    }

    #[test]
    fn a_place_beyond_the_text_is_named_without_an_excerpt() {
        assert_eq!(shown("a", 9, 9, &[]), "error: bad\n --> f.json:9:9 (a.b)\n  hint: mend it");
        assert!(shown("a", 1, 9, &[]).ends_with("1 | a\n  |  ^\n  hint: mend it"));
    }
}

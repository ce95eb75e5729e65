//! Diagnostics about a config file: the mistake, its position and a hint, rendered as plain text in the style of
//! compilers. Colour is added by the CLI.

use super::node::Position;
use super::redact::mask_line;
use gripfast_core::redact::KnownSecrets;
use std::fmt;
use std::path::{Path, PathBuf};

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file, or the server, cannot be used.
    Error,
    /// Stops nothing.
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
    /// Error or warning.
    pub severity: Severity,
    /// Path of the file, as the caller named it.
    pub file: PathBuf,
    /// Position in the file.
    pub position: Position,
    /// Full path of the key, such as `servers.github.timeouts.call`; empty for the file as a whole.
    pub path: String,
    /// Description of the mistake: lower case, no full stop.
    pub message: String,
    /// Suggested correction.
    pub hint: Option<String>,
    /// The source line, with secrets masked.
    excerpt: Option<Excerpt>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Excerpt {
    line: String,
    /// Number of characters before the carets; `width` is the number of carets.
    indent: usize,
    width: usize,
}

/// Longer lines are shown as a window around the position: a minified JSON file is one line.
const MAX_EXCERPT_WIDTH: usize = 100;

/// Longer lines get no excerpt: searching them for secrets would cost too much for each diagnostic.
const MAX_LINE_BYTES: usize = 64 << 10;

impl Diagnostic {
    pub(super) fn error(path: impl Into<String>, at: Position, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, path.into(), at, message.into())
    }

    pub(super) fn warning(path: impl Into<String>, at: Position, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, path.into(), at, message.into())
    }

    fn new(severity: Severity, path: String, at: Position, message: String) -> Self {
        let [path, message] = [path, message].map(|text| on_one_line(&text));
        Self { severity, file: PathBuf::new(), position: at, path, message, hint: None, excerpt: None }
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(on_one_line(&hint.into()));
        self
    }

    /// Adds a hint if there is one.
    pub(super) fn with_any_hint(self, hint: Option<impl Into<String>>) -> Self {
        match hint {
            Some(hint) => self.with_hint(hint),
            None => self,
        }
    }

    /// Renders the diagnostic over several lines, as compilers do. Ends without a newline.
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
        let number = self.position.line.to_string();
        let margin = " ".repeat(number.len());
        shown += &format!("\n{margin}--> {}:{}", self.file.display(), self.position);
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

/// One line, for a log or for the cause in `status`.
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

/// Name and lines of a file. Adds the file name and the excerpt to diagnostics, which are created without them.
pub(super) struct Source<'t> {
    file: &'t Path,
    lines: Vec<&'t str>,
    secrets: Option<KnownSecrets>,
}

impl<'t> Source<'t> {
    /// `secrets` are texts that no excerpt may show; `None` if the file could not be parsed.
    pub(super) fn new(file: &'t Path, text: &'t str, secrets: Option<KnownSecrets>) -> Self {
        Self { file, lines: text.lines().collect(), secrets }
    }

    pub(super) fn complete(&self, diagnostic: &mut Diagnostic) {
        diagnostic.file = self.file.to_owned();
        let Position { line, column } = diagnostic.position;
        let Some(line) = self.lines.get(line - 1) else { return };
        if line.trim().is_empty() || line.len() > MAX_LINE_BYTES {
            return;
        }
        let from = column.saturating_sub(MAX_EXCERPT_WIDTH / 2);
        // A secret that begins left of the window must still be recognised, so masking comes first.
        let masked = mask_line(line, self.secrets.as_ref());
        let from = if masked.chars().count() <= MAX_EXCERPT_WIDTH { 0 } else { from };
        let window: String = masked.chars().skip(from).take(MAX_EXCERPT_WIDTH).collect();
        let before = (column - 1 - from).min(window.chars().count());
        let raw: String = line.chars().skip(from + before).take(MAX_EXCERPT_WIDTH - before).collect();
        let width = token_width(&raw);
        let line = window.trim_end().to_owned();
        diagnostic.excerpt = Some(Excerpt { line, indent: before, width });
    }
}

/// Number of characters to underline: a quoted string, or a run of characters of keys and bare values.
fn token_width(text: &str) -> usize {
    let quoted = |quote: char| {
        let inside = text.strip_prefix(quote)?;
        inside.find(quote).map(|end| inside[..end].chars().count() + 2)
    };
    let bare =
        || text.chars().take_while(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.'));
    quoted('"').or_else(|| quoted('\'')).unwrap_or_else(|| bare().count().max(1))
}

/// Replaces control characters, so that names and values from a file cannot break the line of a message.
fn on_one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// Quotes a piece of the file for a message, cut to a readable length.
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
    fn the_caret_is_under_the_position() {
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
    fn a_position_beyond_the_text_has_no_excerpt() {
        assert_eq!(shown("a", 9, 9, &[]), "error: bad\n --> f.json:9:9 (a.b)\n  hint: mend it");
        assert!(shown("a", 1, 9, &[]).ends_with("1 | a\n  |  ^\n  hint: mend it"));
    }
}

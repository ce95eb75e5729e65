//! Output of commands: data on stdout, messages on stderr, labels in colour. The only module that knows about
//! terminals; it escapes control sequences in text from servers.

mod content;
mod json;
mod progress;
mod symbols;
mod table;
mod time;

pub(crate) use content::Content;
pub(crate) use json::pretty;
pub(crate) use progress::with_progress;
pub(crate) use table::Table;
pub(crate) use time::{ago, now_ms, utc};

use super::error::FailureReport;
use clap::builder::styling::{AnsiColor, Style};
use gripfast::text::{escaped_lines, is_unsafe};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Version of the JSON output, which `docs/reference/json.md` describes. It grows when a field is removed or changes
/// its meaning, not when one is added.
const SCHEMA_VERSION: u32 = 1;

/// Both output streams of the process. Data is buffered until [`Screen::flush`]; messages are not. No lock is held
/// between writes, because other threads write log lines.
pub(crate) struct Screen {
    stdout: Box<dyn Write>,
    stderr: Box<dyn Write>,
    stderr_is_terminal: bool,
    /// True if the user can answer a question.
    can_ask: bool,
    /// True if the terminal can be redrawn, which a dumb terminal cannot.
    can_draw: bool,
    /// True if data has been written.
    has_data: bool,
    /// True if state symbols are coloured; not with `NO_COLOR` or on a dumb terminal.
    in_colour: bool,
    /// The columns of the terminal on stdout; `None` for a file or a pipe.
    columns: Option<usize>,
    /// Set while a prompt is on the terminal.
    asking: Arc<AtomicBool>,
}

/// Standard output that is flushed only after a write: another thread may hold its lock while a slow reader blocks it.
struct Stdout {
    out: BufWriter<io::Stdout>,
    has_unflushed: bool,
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.has_unflushed = true;
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.has_unflushed) { self.out.flush() } else { Ok(()) }
    }
}

impl Screen {
    pub(crate) fn for_process() -> Self {
        Self {
            stdout: Box::new(Stdout { out: BufWriter::new(io::stdout()), has_unflushed: false }),
            stderr: Box::new(anstream::stderr()),
            stderr_is_terminal: io::stderr().is_terminal(),
            can_ask: io::stdin().is_terminal() && io::stderr().is_terminal(),
            can_draw: io::stdout().is_terminal()
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
            has_data: false,
            columns: columns(),
            asking: Arc::default(),
            in_colour: io::stdout().is_terminal()
                && anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never,
        }
    }

    /// Writes a line of data. Control characters are escaped for pipes too, because their content often ends up on a
    /// terminal. Programs that need the exact text of a server ask for JSON.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        self.has_data = true;
        writeln!(self.stdout, "{}", escaped_lines(text))
    }

    /// Writes a table, no wider than the terminal.
    pub(crate) fn table<const N: usize>(&mut self, table: Table<N>) -> io::Result<()> {
        let table = table.with_max_width(self.columns);
        self.line(&table.to_string())
    }

    /// The columns of the terminal; `None` for a file or a pipe.
    pub(crate) fn columns(&self) -> Option<usize> {
        self.columns
    }

    /// Writes a JSON object, with its schema version as the first field.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.json_text(&serde_json::to_string(value)?)
    }

    /// The same for a serialized object, which is not parsed again.
    pub(crate) fn json_text(&mut self, object: &str) -> io::Result<()> {
        self.has_data = true;
        let object = &*escaped_json(object);
        match object.trim_end().strip_prefix('{') {
            Some("}") => writeln!(self.stdout, "{{\"schema_version\":{SCHEMA_VERSION}}}"),
            Some(rest) => writeln!(self.stdout, "{{\"schema_version\":{SCHEMA_VERSION},{rest}"),
            None => writeln!(self.stdout, "{object}"),
        }
    }

    /// Writes the result of a server as JSON, in the server's own shape and without a schema version.
    pub(crate) fn raw_json(&mut self, json: &str) -> io::Result<()> {
        self.has_data = true;
        writeln!(self.stdout, "{}", escaped_json(json))
    }

    /// Returns true if stdin and stderr are terminals, so that the user can answer a question.
    pub(crate) fn can_ask(&self) -> bool {
        self.can_ask
    }

    /// A flag for other modules to set while they prompt, so that no progress line overwrites the prompt.
    pub(crate) fn asking(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asking)
    }

    /// Asks a yes-or-no question. An empty line, or any answer but yes, means no.
    pub(crate) fn confirm(&mut self, question: &str) -> io::Result<bool> {
        write!(self.stderr, "{} [y/N] ", escaped_lines(question))?;
        self.stderr.flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    }

    /// Returns true if stdout is a terminal on which a page can be redrawn.
    pub(crate) fn can_draw(&self) -> bool {
        self.can_draw
    }

    /// Returns true if data has been written.
    pub(crate) fn has_data(&self) -> bool {
        self.has_data
    }

    /// Writes lines of data with state symbols in colour.
    pub(crate) fn line_with_symbols(&mut self, text: &str) -> io::Result<()> {
        if !self.in_colour {
            return self.line(text);
        }
        writeln!(self.stdout, "{}", symbols::coloured(&escaped_lines(text)))
    }

    /// Clears the terminal and writes a page.
    pub(crate) fn page(&mut self, text: &str) -> io::Result<()> {
        const CLEARED: &str = "\u{1b}[H\u{1b}[J";
        write!(self.stdout, "{CLEARED}")?;
        self.line_with_symbols(text)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush()?;
        self.stderr.flush()
    }

    /// Writes a message to stderr.
    pub(crate) fn message(&mut self, text: &str) -> io::Result<()> {
        if Self::log_instead("", text) {
            return Ok(());
        }
        writeln!(self.stderr, "{}", escaped_lines(text))
    }

    pub(crate) fn failure(&mut self, failure: &FailureReport) -> io::Result<()> {
        self.labelled("error", &failure.text)?;
        match &failure.hint {
            Some(hint) => self.hint(hint),
            None => Ok(()),
        }
    }

    /// Writes a message as a log line if logs are JSON, so that all of stderr is JSON. Returns whether it did.
    fn log_instead(label: &str, text: &str) -> bool {
        if super::log::is_json() {
            match label {
                "error" => tracing::error!("{text}"),
                "warning" | "hint" => tracing::warn!("{text}"),
                _ => tracing::info!(target: "gripfast::observe", "{text}"),
            }
        }
        super::log::is_json()
    }

    pub(crate) fn warning(&mut self, text: &str) -> io::Result<()> {
        self.labelled("warning", text)
    }

    pub(crate) fn hint(&mut self, text: &str) -> io::Result<()> {
        if !super::log::is_json() {
            write!(self.stderr, "  ")?;
        }
        self.labelled("hint", text)
    }

    /// Writes a rendered finding, which begins with its label.
    pub(crate) fn finding(&mut self, rendered: &str) -> io::Result<()> {
        match rendered.split_once(": ") {
            Some((label, text)) => self.labelled(label, text)?,
            None => self.message(rendered)?,
        }
        if super::log::is_json() { Ok(()) } else { writeln!(self.stderr) }
    }

    fn labelled(&mut self, label: &str, text: &str) -> io::Result<()> {
        if Self::log_instead(label, text) {
            return Ok(());
        }
        let style = match label {
            "error" => AnsiColor::Red.on_default().bold(),
            "warning" => AnsiColor::Yellow.on_default().bold(),
            "hint" => AnsiColor::Cyan.on_default().bold(),
            _ => Style::new(),
        };
        // anstream removes the colour if stderr does not support it.
        writeln!(self.stderr, "{style}{label}:{style:#} {}", escaped_lines(text))
    }
}

/// The columns of the terminal on stdout.
fn columns() -> Option<usize> {
    #[cfg(unix)]
    if io::stdout().is_terminal() {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        return Some(usize::from(size.ws_col)).filter(|columns| *columns > 0);
    }
    None
}

/// JSON without control sequences: escapes characters that JSON allows in strings, such as U+009B.
pub(crate) fn escaped_json(json: &str) -> Cow<'_, str> {
    let is_unsafe = |letter: char| is_unsafe(letter) && !matches!(letter, '\n' | '\r' | '\t');
    if !json.contains(is_unsafe) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for letter in json.chars() {
        match letter {
            // All of these fit into four hex digits.
            letter if is_unsafe(letter) => safe.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => safe.push(letter),
        }
    }
    Cow::Owned(safe)
}

/// `1 server`, `2 servers`.
pub(crate) fn plural<N: fmt::Display + PartialEq + From<u8>>(count: N, what: &str) -> String {
    format!("{count} {what}{}", if count == N::from(1) { "" } else { "s" })
}

/// A terminal that tests read.
#[cfg(test)]
#[derive(Clone, Default)]
pub(crate) struct CapturedTerminal(Arc<std::sync::Mutex<Vec<u8>>>);

#[cfg(test)]
impl CapturedTerminal {
    /// Everything written so far, to stdout and stderr.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

#[cfg(test)]
impl Write for CapturedTerminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
impl Screen {
    pub(crate) fn captured(terminal: &CapturedTerminal) -> Self {
        Self {
            stdout: Box::new(terminal.clone()),
            stderr: Box::new(terminal.clone()),
            stderr_is_terminal: true,
            can_ask: false,
            can_draw: true,
            has_data: false,
            in_colour: false,
            columns: None,
            asking: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g07_control_sequences_reach_neither_terminals_nor_pipes() {
        let input = "a\u{1b}]0;title\u{7}\u{9b}2J\r\nb";
        for seen in [true, false] {
            let terminal = CapturedTerminal::default();
            let mut screen = Screen { stderr_is_terminal: seen, ..Screen::captured(&terminal) };
            screen.line(input).unwrap();
            screen.message(input).unwrap();
            screen.json(&serde_json::json!({ "said": input })).unwrap();
            let text = terminal.text();
            assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'), "{text:?}");
            assert!(text.starts_with("a\\u{1b}]0;title\\u{7}\\u{9b}2J\nb\n"), "{text:?}");
            let json: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
            assert_eq!(json["said"], input, "unchanged");
        }
    }
}

//! The only place that knows about terminals: what goes to stdout and what to stderr, labels in colour, and
//! nothing that a server says reaching a terminal as a control sequence.

mod content;
mod json;
mod progress;
mod signs;
mod table;
mod time;

pub(crate) use content::Content;
pub(crate) use json::laid_out;
pub(crate) use progress::with_progress;
pub(crate) use table::Table;
pub(crate) use time::utc;

use super::stop::Failure;
use clap::builder::styling::{AnsiColor, Style};
use gripfast::text::{escaped_lines, is_unsafe};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The version of what `-o json` prints, which `docs/reference/json.md` describes. It grows when something that was
/// there is gone or means something else; what is new does not count.
const SCHEMA_VERSION: u32 = 1;

/// Both output streams of the process. Data is buffered until [`Screen::flush`]; talk is not. Neither lock is
/// held in between: log lines come from other threads.
pub(crate) struct Screen {
    data: Box<dyn Write>,
    talk: Box<dyn Write>,
    talk_is_seen: bool,
    /// Whether a person can answer a question.
    can_ask: bool,
    /// Whether what stands there can be drawn over, which a dumb terminal cannot.
    can_draw: bool,
    /// Whether there was any data.
    has_data: bool,
    /// Whether signs among the data may be in colour: `NO_COLOR` and a dumb terminal say no.
    in_colour: bool,
    /// The columns of the terminal that data goes to; `None` for a file or a pipe.
    columns: Option<usize>,
    /// Set while a question stands on the terminal.
    asking: Arc<AtomicBool>,
}

/// Standard output, which is left alone as long as there is nothing to write: somebody else may be stuck in writing to it,
/// for a reader that does not read.
struct Stdout {
    out: BufWriter<io::Stdout>,
    is_written_to: bool,
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_written_to = true;
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_written_to) { self.out.flush() } else { Ok(()) }
    }
}

impl Screen {
    pub(crate) fn of_this_process() -> Self {
        Self {
            data: Box::new(Stdout { out: BufWriter::new(io::stdout()), is_written_to: false }),
            talk: Box::new(anstream::stderr()),
            talk_is_seen: io::stderr().is_terminal(),
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

    /// A line of data. Also for a pipe: what is read there is often shown by a terminal in the end. Programs that want
    /// what a server has sent to the letter ask for JSON.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        self.has_data = true;
        writeln!(self.data, "{}", escaped_lines(text))
    }

    /// A table, no wider than the terminal.
    pub(crate) fn table<const N: usize>(&mut self, table: Table<N>) -> io::Result<()> {
        let table = table.within(self.columns);
        self.line(&table.to_string())
    }

    /// The columns of the terminal; `None` for a file or a pipe.
    pub(crate) fn columns(&self) -> Option<usize> {
        self.columns
    }

    /// Data for programs: an object, which says the version of its shape first.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.json_text(&serde_json::to_string(value)?)
    }

    /// The same for an object that is written already, which is not read again.
    pub(crate) fn json_text(&mut self, object: &str) -> io::Result<()> {
        self.has_data = true;
        let object = &*escaped_json(object);
        match object.trim_end().strip_prefix('{') {
            Some("}") => writeln!(self.data, "{{\"schema_version\":{SCHEMA_VERSION}}}"),
            Some(rest) => writeln!(self.data, "{{\"schema_version\":{SCHEMA_VERSION},{rest}"),
            None => writeln!(self.data, "{object}"),
        }
    }

    /// The result of a server as JSON, whose shape is the server's own.
    pub(crate) fn result(&mut self, json: &str) -> io::Result<()> {
        self.has_data = true;
        writeln!(self.data, "{}", escaped_json(json))
    }

    /// Whether there is a person who reads what is asked and can type an answer.
    pub(crate) fn can_ask(&self) -> bool {
        self.can_ask
    }

    /// To be set while somebody else asks: no sign of life is written over a question.
    pub(crate) fn asking(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asking)
    }

    /// Asks a question; no is what an empty line and anything but yes mean.
    pub(crate) fn confirm(&mut self, question: &str) -> io::Result<bool> {
        write!(self.talk, "{} [y/N] ", escaped_lines(question))?;
        self.talk.flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    }

    /// Whether that is on a terminal on which a page can be drawn.
    pub(crate) fn can_draw(&self) -> bool {
        self.can_draw
    }

    /// Whether a program that reads the data has got any.
    pub(crate) fn has_data(&self) -> bool {
        self.has_data
    }

    /// Lines of data with signs of ours in them.
    pub(crate) fn signs(&mut self, text: &str) -> io::Result<()> {
        if !self.in_colour {
            return self.line(text);
        }
        writeln!(self.data, "{}", signs::coloured(&escaped_lines(text)))
    }

    /// A page in the place of what was on the terminal before.
    pub(crate) fn page(&mut self, text: &str) -> io::Result<()> {
        const CLEARED: &str = "\u{1b}[H\u{1b}[J";
        write!(self.data, "{CLEARED}")?;
        self.signs(text)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.data.flush()?;
        self.talk.flush()
    }

    /// A line for the person.
    pub(crate) fn talk(&mut self, text: &str) -> io::Result<()> {
        if Self::log_instead("", text) {
            return Ok(());
        }
        writeln!(self.talk, "{}", escaped_lines(text))
    }

    pub(crate) fn failure(&mut self, failure: &Failure) -> io::Result<()> {
        self.labelled("error", &failure.text)?;
        match &failure.hint {
            Some(hint) => self.hint(hint),
            None => Ok(()),
        }
    }

    /// With JSON log lines, what is said on stderr beside them is a log line too, so that whoever reads the log
    /// as JSON can read all of it.
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
            write!(self.talk, "  ")?;
        }
        self.labelled("hint", text)
    }

    /// A finding that is laid out already and begins with its label.
    pub(crate) fn finding(&mut self, rendered: &str) -> io::Result<()> {
        match rendered.split_once(": ") {
            Some((label, text)) => self.labelled(label, text)?,
            None => self.talk(rendered)?,
        }
        if super::log::is_json() { Ok(()) } else { writeln!(self.talk) }
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
        // anstream takes the colour out again where nobody wants it.
        writeln!(self.talk, "{style}{label}:{style:#} {}", escaped_lines(text))
    }
}

/// The columns of the terminal that stdout is.
fn columns() -> Option<usize> {
    #[cfg(unix)]
    if io::stdout().is_terminal() {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        return Some(usize::from(size.ws_col)).filter(|columns| *columns > 0);
    }
    None
}

/// JSON whose strings operate no terminal: what JSON itself leaves as it is, such as U+009B, is escaped as JSON does it.
pub(crate) fn escaped_json(json: &str) -> Cow<'_, str> {
    let is_unsafe = |letter: char| is_unsafe(letter) && !matches!(letter, '\n' | '\r' | '\t');
    if !json.contains(is_unsafe) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for letter in json.chars() {
        match letter {
            // All of these are in the first plane.
            letter if is_unsafe(letter) => safe.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => safe.push(letter),
        }
    }
    Cow::Owned(safe)
}

/// `1 server`, `2 servers`.
pub(crate) fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A terminal that tests read.
#[cfg(test)]
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<std::sync::Mutex<Vec<u8>>>);

#[cfg(test)]
impl Heard {
    /// What was said so far, data and talk.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

#[cfg(test)]
impl Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
impl Screen {
    pub(crate) fn heard_by(heard: &Heard) -> Self {
        let (data, talk) = (Box::new(heard.clone()), Box::new(heard.clone()));
        Self {
            data,
            talk,
            talk_is_seen: true,
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
        let said = "a\u{1b}]0;title\u{7}\u{9b}2J\r\nb";
        for seen in [true, false] {
            let heard = Heard::default();
            let mut screen = Screen { talk_is_seen: seen, ..Screen::heard_by(&heard) };
            screen.line(said).unwrap();
            screen.talk(said).unwrap();
            screen.json(&serde_json::json!({ "said": said })).unwrap();
            let text = heard.text();
            assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'), "{text:?}");
            assert!(text.starts_with("a\\u{1b}]0;title\\u{7}\\u{9b}2J\nb\n"), "{text:?}");
            let json: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
            assert_eq!(json["said"], said, "to the letter");
        }
    }
}

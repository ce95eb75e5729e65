//! Log lines on stderr: level filter (`GRIPFAST_LOG`) and format (`GRIPFAST_LOG_FORMAT`, `gateway.log_format`).

use super::args::Verb;
use super::error::FailureReport;
use super::exit::Exit;
use super::render::escaped_json;
use gripfast::config::LogFormat;
use gripfast::text::escaped;
use serde_json::{Map, Value};
use std::fmt::{self, Debug, Write};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

const VARIABLE: &str = "GRIPFAST_LOG";
const FORMAT_VARIABLE: &str = "GRIPFAST_LOG_FORMAT";
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// True if log lines are JSON objects. The config may set it after logging has started.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// The filter without `GRIPFAST_LOG`. A gateway logs the state changes of servers. `stdio` logs only warnings, because
/// clients show stderr as errors. Other commands, and the demo, report failures themselves.
fn default_filter(verb: &Verb) -> &'static str {
    match verb {
        Verb::Serve(args) if !args.demo => {
            "warn,gripfast::observe=info,gripfast_gateway::reload=info,gripfast_gateway::mcp::shutdown=info"
        }
        Verb::Stdio(_) => "warn",
        _ => "warn,gripfast::observe=error",
    }
}

/// Starts logging.
///
/// # Errors
/// One of the variables has an invalid level or format.
pub(crate) fn start(verb: &Verb) -> Result<(), FailureReport> {
    let wanted = variable(VARIABLE);
    if let Some(wanted) = &wanted {
        check_filter(wanted)?;
    }
    let format = format_from_env()?;
    // Other commands have no log: their stderr is for people.
    if matches!(verb, Verb::Serve(_) | Verb::Stdio(_)) {
        IS_JSON.store(format == Some(LogFormat::Json), Ordering::Relaxed);
    }
    let filter = EnvFilter::try_new(wanted.as_deref().unwrap_or(default_filter(verb)));
    let filter =
        filter.map_err(|error| bad_filter(wanted.as_deref().unwrap_or_default(), &error.to_string()))?;
    // Detailed log lines of the SDK about a login contain the authorization code.
    let filter = filter.add_directive("rmcp=warn".parse().expect("it is a directive"));
    let at_a_terminal = std::io::stderr().is_terminal();
    let started = tracing_subscriber::fmt()
        .with_ansi(at_a_terminal)
        .event_format(Lines { at_a_terminal })
        .with_env_filter(filter)
        .with_writer(anstream::stderr)
        .try_init();
    debug_assert!(started.is_ok(), "logging starts once");
    Ok(())
}

/// Sets the format from the config, unless `GRIPFAST_LOG_FORMAT` is set.
pub(crate) fn use_format(format: LogFormat) {
    if variable(FORMAT_VARIABLE).is_none() {
        IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
    }
}

/// Returns true if everything on stderr has to be JSON.
pub(crate) fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn format_from_env() -> Result<Option<LogFormat>, FailureReport> {
    let Some(text) = variable(FORMAT_VARIABLE) else { return Ok(None) };
    let found = LogFormat::from_word(&text);
    found.map(Some).ok_or_else(|| {
        let text = format!("${FORMAT_VARIABLE}: `{}` is not a log format", escaped(&text));
        FailureReport::new(Exit::General, text).with_hint("use `text` or `json`".to_owned())
    })
}

/// Refuses a misspelt level, which the filter would read as the name of a module and so log nothing.
fn check_filter(filter: &str) -> Result<(), FailureReport> {
    for part in filter.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (module, level) = match part.rsplit_once('=') {
            Some((module, level)) => (Some(module), Some(level)),
            None if part.contains("::") || part.starts_with("gripfast") => (Some(part), None),
            None => (None, Some(part)),
        };
        let is_level = |level: &str| LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level));
        if module == Some("") || level.is_some_and(|level| !is_level(level)) {
            return Err(bad_filter(part, "not a log level"));
        }
    }
    Ok(())
}

fn bad_filter(part: &str, why: &str) -> FailureReport {
    let text = format!("${VARIABLE}: `{}`: {why}", escaped(part));
    let hint = format!("use one of {}, or for one module: `gripfast::observe=debug`", LEVELS.join(", "));
    FailureReport::new(Exit::General, text).with_hint(hint)
}

/// The layout of a log line.
struct Lines {
    /// True if stderr is a terminal; lines on a terminal have no timestamp.
    at_a_terminal: bool,
}

/// The fields of an event. They are escaped when written, so that text from servers, clients and files cannot forge a
/// log line.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            name => self.others.push((name, Value::String(text))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            name => self.others.push((name, Value::String(value.to_owned()))),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.others.push((field.name(), value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.others.push((field.name(), value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.others.push((field.name(), value.into()));
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        if is_json() {
            let mut time = String::new();
            SystemTime.format_time(&mut Writer::new(&mut time))?;
            return writeln!(writer, "{}", fields.json(time, *metadata.level(), metadata.target()));
        }
        if !self.at_a_terminal {
            SystemTime.format_time(&mut writer)?;
            writer.write_char(' ')?;
        }
        write_level(&mut writer, *metadata.level())?;
        writeln!(writer, " {}", fields.text(metadata.target()))
    }
}

impl Fields {
    /// The message, followed by the fields whose values it does not contain.
    fn text(&self, target: &str) -> String {
        let mut line = escaped(&self.message).into_owned();
        // The text of a server event contains all its fields.
        if target.starts_with("gripfast::observe") {
            return line;
        }
        for (name, value) in &self.others {
            let text = match value {
                Value::String(text) => escaped(text).into_owned(),
                other => other.to_string(),
            };
            if !text.is_empty() && !contains_word(&line, &text) {
                let _ = write!(line, " {name}={text}");
            }
        }
        line
    }

    /// One JSON object with all fields.
    fn json(self, time: String, level: Level, target: &str) -> String {
        let mut object = Map::new();
        object.insert("timestamp".to_owned(), time.into());
        object.insert("level".to_owned(), level.as_str().to_ascii_lowercase().into());
        object.insert("target".to_owned(), target.into());
        object.insert("message".to_owned(), self.message.into());
        for (name, value) in self.others {
            object.entry(name).or_insert(value);
        }
        // Control characters that JSON does not escape, but that a terminal interprets.
        escaped_json(&Value::Object(object).to_string()).into_owned()
    }
}

/// Returns true if a text contains this word, and not only as a part of another word.
fn contains_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let part = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
        !part(before) && !part(after)
    })
}

fn write_level(writer: &mut Writer<'_>, level: Level) -> fmt::Result {
    use clap::builder::styling::AnsiColor;
    let colour = match level {
        Level::ERROR => AnsiColor::Red,
        Level::WARN => AnsiColor::Yellow,
        Level::INFO => AnsiColor::Green,
        Level::DEBUG => AnsiColor::Blue,
        Level::TRACE => AnsiColor::Magenta,
    };
    let style = colour.on_default();
    if writer.has_ansi_escapes() {
        return write!(writer, "{style}{level:>5}{style:#}");
    }
    write!(writer, "{level:>5}")
}

#[cfg(test)]
mod tests {
    use super::super::render::CapturedTerminal;
    use super::*;

    fn logged(emit: impl FnOnce()) -> String {
        let terminal = CapturedTerminal::default();
        let log = tracing_subscriber::fmt()
            .with_ansi(false)
            .event_format(Lines { at_a_terminal: true })
            .with_writer(std::sync::Mutex::new(terminal.clone()));
        tracing::subscriber::with_default(log.finish(), emit);
        terminal.text()
    }

    #[test]
    fn g07_text_from_outside_cannot_forge_a_log_line() {
        let said = "x\nWARN forged\u{1b}[2J\u{9b}";
        let text = logged(|| tracing::warn!(cause = %said, name = said, number = 7, "`demo` says {said}"));
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.trim_end().contains(char::is_control), "{text:?}");
        assert!(
            text.contains("`demo` says x\\nWARN forged\\u{1b}[2J") && text.contains("number=7"),
            "{text}"
        );
    }

    #[test]
    fn a_log_line_contains_each_value_once() {
        let text = logged(|| {
            tracing::warn!(server = "demo", cause = "", count = 3, lost = 1, "`demo` lost 13 of 3")
        });
        assert_eq!(text, " WARN `demo` lost 13 of 3 lost=1\n");
        let text = logged(
            || tracing::warn!(target: "gripfast::observe::log", away_ms = 1200, "`demo`: is back after 1.2 s"),
        );
        assert_eq!(text, " WARN `demo`: is back after 1.2 s\n");
    }

    #[test]
    fn a_json_log_line_has_all_fields_and_no_control_characters() {
        let mut fields = Fields { message: "`a` fell\u{9b}".to_owned(), others: Vec::new() };
        fields.others = vec![("server", "a".into()), ("count", 3.into()), ("message", "forged".into())];
        let line = fields.json("2026-01-01T00:00:00Z".to_owned(), Level::WARN, "gripfast::observe");
        assert!(!line.contains(char::is_control), "{line:?}");
        let object: Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "timestamp": "2026-01-01T00:00:00Z", "level": "warn", "target": "gripfast::observe",
            "message": "`a` fell\u{9b}", "server": "a", "count": 3,
        });
        assert_eq!(object, expected);
    }

    #[test]
    fn levels_and_modules_are_told_apart() {
        for good in [
            "info",
            "DEBUG",
            "off",
            "warn,gripfast::observe=info",
            "gripfast",
            "hyper::client=trace",
            "h2=warn",
        ] {
            assert!(check_filter(good).is_ok(), "{good}");
        }
        for bad in ["loud", "verbose", "warn,lod", "gripfast=loud", "=info", "3x"] {
            assert!(check_filter(bad).is_err(), "{bad}");
        }
    }
}

//! Where logs go: to stderr, as many as `GRIPFAST_LOG` asks for.

use super::args::Verb;
use super::render::Screen;
use gripfast::text::escaped;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;

const VARIABLE: &str = "GRIPFAST_LOG";

/// What is logged unless somebody says otherwise. The state changes of servers are the news of a gateway; a client
/// that has started us by itself shows stderr as complaints; and a verb that ends with its answer tells what is
/// wrong by itself, as the demo does.
fn usual(verb: &Verb) -> &'static str {
    match verb {
        Verb::Serve(args) if !args.demo => {
            "warn,gripfast::observe=info,gripfast_gateway::reload=info,gripfast_gateway::downstream::shutdown=info"
        }
        Verb::Stdio => "warn",
        _ => "warn,gripfast::observe=error",
    }
}

/// The fields of a log line, on one line: what servers, clients and files say in them is escaped, so that nobody writes
/// lines of their own into the log.
fn escaped_fields() -> impl for<'w> FormatFields<'w> + 'static {
    debug_fn(|writer, field, value| {
        let text = format!("{value:?}");
        match field.name() {
            "message" => write!(writer, "{}", escaped(&text)),
            name => write!(writer, "{name}={}", escaped(&text)),
        }
    })
    .delimited(" ")
}

/// Begins logging. A filter that makes no sense is said aloud and done without: logs are not worth failing for.
pub(crate) fn start(verb: &Verb, screen: &mut Screen) {
    let wanted = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let filter = match EnvFilter::try_new(wanted.as_deref().unwrap_or(usual(verb))) {
        Ok(filter) => filter,
        Err(error) => {
            let _ = screen.warning(&format!("${VARIABLE} is ignored: {error}"));
            EnvFilter::new(usual(verb))
        }
    };
    // What the SDK says about a login in detail holds the code that the browser brought.
    let filter = filter.add_directive("rmcp=warn".parse().expect("it is a directive"));
    let at_a_terminal = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt()
        .fmt_fields(escaped_fields())
        .with_env_filter(filter)
        .with_writer(anstream::stderr)
        .with_ansi(at_a_terminal)
        .with_target(false);
    // Somebody who reads along knows what time it is; a file does not.
    let begun = if at_a_terminal { log.without_time().try_init() } else { log.try_init() };
    debug_assert!(begun.is_ok(), "logging begins once");
}

#[cfg(test)]
mod tests {
    use super::super::render::Heard;
    use super::*;

    #[test]
    fn g07_text_from_outside_writes_no_log_line_of_its_own() {
        let heard = Heard::default();
        let log = tracing_subscriber::fmt()
            .fmt_fields(escaped_fields())
            .with_writer(std::sync::Mutex::new(heard.clone()))
            .with_ansi(false)
            .without_time()
            .with_target(false);
        let said = "x\nWARN forged\u{1b}[2J\u{9b}";
        tracing::subscriber::with_default(log.finish(), || {
            tracing::warn!(cause = %said, name = said, number = 7, "`demo` says {said}");
        });
        let text = heard.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.trim_end().contains(char::is_control), "{text:?}");
        assert!(
            text.contains("`demo` says x\\nWARN forged\\u{1b}[2J") && text.contains("number=7"),
            "{text}"
        );
    }
}

//! Settings of the sample server: [`Options`] and [`Faults`]. They are the flags of `gripfast demo-server`, and tests set
//! them directly. The enums parse from the words that the flags use.

use clap::Args;
use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

/// General settings of the server: name, eras, tools and files.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Server name in `serverInfo`
    #[arg(long, default_value = NAME)]
    pub name: String,
    /// Supported protocol eras: both, legacy or modern
    #[arg(long, default_value = "both")]
    pub era: EraChoice,
    /// Newest protocol revision that `initialize` accepts
    #[arg(long, value_name = "DATE", default_value = LEGACY_VERSION)]
    pub legacy_version: String,
    /// Items per page of a list; 0 puts everything on one page
    #[arg(long, value_name = "N", value_parser = whole::<usize>, default_value_t = PAGE_SIZE)]
    pub page_size: usize,
    /// Offer this many additional tools: extra_1, extra_2, …
    #[arg(long = "tools", value_name = "N", value_parser = whole::<usize>, default_value_t = 0)]
    pub extra_tools: usize,
    /// Offer the tool `route`, one argument of which modern clients mirror in a header
    #[arg(long)]
    pub param_headers: bool,
    /// Offer examples of less common features: list output, apps, tasks, URL elicitation
    // `words` returns a list, the result of `panel` is shown by an app, `job` is a task, `visit` requires a person to
    // visit a page, and `finish` ends the last two.
    #[arg(long)]
    pub showcase: bool,
    /// Offer `echo` with another description and schema, as an upgraded server would
    #[arg(long)]
    pub changed_schema: bool,
    /// Answer every POST with an event stream
    #[arg(long)]
    pub sse_answers: bool,
    /// Issue no session ids
    #[arg(long)]
    pub sessionless: bool,
    /// Serve legacy HTTP+SSE only, nothing at /mcp
    #[arg(long)]
    pub sse_only: bool,
    /// Append a line `KEY VALUE PID` for every `counter` call
    // The count continues from the existing lines, so that side effects can be counted across restarts.
    #[arg(long, value_name = "FILE")]
    pub counter_file: Option<PathBuf>,
    /// Write the process id to this file
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// Append a line `UNIX_MILLIS PID` at every start
    #[arg(long, value_name = "FILE")]
    pub starts_file: Option<PathBuf>,
    /// Faults; none by default.
    #[command(flatten)]
    pub faults: Faults,
}

const NAME: &str = "gripfast-demo";
const LEGACY_VERSION: &str = "2025-11-25";
const PAGE_SIZE: usize = 50;

impl Default for Options {
    fn default() -> Self {
        Self {
            name: NAME.to_owned(),
            era: EraChoice::Both,
            legacy_version: LEGACY_VERSION.to_owned(),
            page_size: PAGE_SIZE,
            extra_tools: 0,
            param_headers: false,
            showcase: false,
            changed_schema: false,
            sse_answers: false,
            sessionless: false,
            sse_only: false,
            counter_file: None,
            pid_file: None,
            starts_file: None,
            faults: Faults::default(),
        }
    }
}

/// Faults that the server shows without a tool call. The default is a well-behaved server.
///
/// The first group applies to every transport, the second to the process (`serve_stdio`, `serve_http`), the third to
/// stdio, the fourth to HTTP. Fields of a group that does not apply are ignored.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Faults")]
pub struct Faults {
    /// Wait before every answer
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub answer_delay: Option<Duration>,
    /// Never answer `initialize` nor `server/discover`
    #[arg(long)]
    pub never_answer_initialize: bool,
    /// Never answer `server/discover`
    #[arg(long)]
    pub ignore_discover: bool,
    /// Answer `ping` with -32601
    #[arg(long)]
    pub no_ping: bool,
    /// Exit after answering this many calls
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub exit_after: Option<u64>,
    /// Exit in the middle of this call, counted from 1
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub exit_in_call: Option<u64>,

    /// Wait before reading or listening
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub start_delay: Option<Duration>,
    /// Exit at start: always, the first 3 times (3x), or within a time of the first start (60s); the latter
    /// two count in --starts-file
    #[arg(long, value_name = "WHEN")]
    pub exit_at_start: Option<ExitAtStart>,
    /// Exit after this time, busy or not
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub live_for: Option<Duration>,
    /// Exit code for all of these exits
    // 0 is a clean but unexpected exit.
    #[arg(long, value_name = "CODE", value_parser = whole::<i32>, default_value = "1")]
    pub exit_code: Option<i32>,
    /// Write this much to stderr at start
    #[arg(long, value_name = "BYTES", value_parser = whole::<usize>, default_value_t = 0)]
    pub fill_stderr: usize,
    /// Leave a child process behind that holds the pipes open
    #[arg(long)]
    pub fork_grandchild: bool,
    /// Ignore SIGTERM
    #[arg(long)]
    pub ignore_sigterm: bool,

    /// Keep running when stdin closes
    #[arg(long)]
    pub ignore_stdin_close: bool,
    /// Write lines that are not JSON between the messages
    #[arg(long)]
    pub junk_on_stdout: bool,
    /// Exit on any request before `initialize`
    // Some legacy servers do. `server/discover` is such a request, so this disables the modern era.
    #[arg(long)]
    pub exit_on_discover: bool,

    /// Answer to an expired session: 404, 404-text, 400-no-id, 400-server-error, 400-plain or 200-error
    #[arg(long = "session-expiry-form", value_name = "FORM", default_value = "404")]
    pub session_expiry: SessionExpiry,
    /// Expire sessions at this age
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub session_ttl: Option<Duration>,
    /// Expire sessions after this many requests
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub session_requests: Option<u64>,
    /// Refuse requests with a status: always (503), for a time (503:2s), a number of times (503:3x)
    #[arg(long = "status-for-a-while", value_name = "STATUS[:HOW_LONG]")]
    pub refuse: Option<Refusal>,
    /// The `Retry-After` of these refusals, in whole seconds
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub retry_after: Option<Duration>,
    /// Refuse every request without this bearer token with 401
    #[arg(long, value_name = "TOKEN")]
    pub require_bearer: Option<String>,
    /// Leave `WWW-Authenticate` off the 401
    #[arg(long = "no-challenge")]
    pub bare_unauthorized: bool,
    /// Close every connection right after accepting it
    #[arg(long)]
    pub drop_after_accept: bool,
    /// The form of the `endpoint` event: relative, absolute, query or foreign
    #[arg(long = "sse-endpoint", value_name = "FORM", default_value = "relative")]
    pub endpoint: EndpointForm,
    /// Never answer a POST to an expired HTTP+SSE session
    #[arg(long)]
    pub silent_dead_sse_post: bool,
}

impl Faults {
    pub(crate) fn exit_code(&self) -> i32 {
        self.exit_code.unwrap_or(1)
    }
}

/// Protocol eras that the server supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EraChoice {
    /// Both on one endpoint and one pipe, decided per request.
    #[default]
    Both,
    /// Revisions with `initialize`, up to 2025-11-25.
    Legacy,
    /// 2026-07-28 only.
    Modern,
}

/// Starts at which the process exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitAtStart {
    /// Every start.
    Always,
    /// The first starts, up to this number, counted in [`Options::starts_file`].
    Starts(u64),
    /// Every start within this time after the first line of [`Options::starts_file`].
    For(Duration),
}

/// Forms in which real servers refuse an expired session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionExpiry {
    /// 404 with a JSON-RPC error, as in the specification and most SDKs (`404`).
    #[default]
    NotFound,
    /// 404 with plain text (`404-text`).
    NotFoundText,
    /// 400 with a JSON-RPC error without an id (`400-no-id`).
    BadRequestWithoutId,
    /// 400 with a JSON-RPC error whose id is the text `server-error` (`400-server-error`).
    BadRequestServerError,
    /// 400 with plain text (`400-plain`).
    BadRequestText,
    /// 200 with a JSON-RPC error for the request's own id (`200-error`).
    OkWithError,
}

/// Refusal of requests: a status and its duration. Parses from `503` (forever), `503:2s`, `503:250ms` and `503:3x` (the
/// first three requests).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// Duration, from start or from [`crate::RunningServer::set_faults`].
    pub lasts: RefusalDuration,
}

/// Duration of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalDuration {
    /// Until the faults are changed.
    Forever,
    /// For this time.
    For(Duration),
    /// For this many requests.
    Requests(u64),
}

/// Forms of the `endpoint` event of HTTP+SSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EndpointForm {
    /// `/message?sessionId=…` (`relative`).
    #[default]
    Relative,
    /// `http://HOST/message?sessionId=…` (`absolute`).
    Absolute,
    /// `?sessionId=…`, relative to `/sse` itself (`query`).
    Query,
    /// An absolute URL on another host, which a client must not follow (`foreign`).
    ForeignOrigin,
}

/// An unknown value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseOptionError {
    given: String,
    known: String,
}

impl fmt::Display for ParseOptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not one of {}", self.given, self.known)
    }
}

impl std::error::Error for ParseOptionError {}

// The parse errors of the standard library ("invalid digit found in string") are for programmers.
fn whole<N: FromStr>(text: &str) -> Result<N, &'static str> {
    text.parse().map_err(|_| "expected a whole number")
}

/// Parses a duration such as `1500ms`, `2s` or `1m30s`.
fn duration(text: &str) -> Result<Duration, &'static str> {
    const UNITS: [(&str, u64); 5] =
        [("ms", 1), ("s", 1000), ("m", 60 * 1000), ("h", 3600 * 1000), ("d", 24 * 3600 * 1000)];
    let read = || {
        let (mut millis, mut rest) = (0_u64, text);
        loop {
            let (number, after) = rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit())?);
            let end = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
            let (_, worth) = UNITS.into_iter().find(|(name, _)| *name == &after[..end])?;
            millis = number.parse::<u64>().ok()?.checked_mul(worth)?.checked_add(millis)?;
            rest = &after[end..];
            if rest.is_empty() {
                return Some(Duration::from_millis(millis));
            }
        }
    };
    read().ok_or("expected a duration such as 1500ms, 2s or 1m30s")
}

fn unknown(given: &str, known: &str) -> ParseOptionError {
    ParseOptionError { given: given.to_owned(), known: known.to_owned() }
}

/// The value that stands beside a word.
fn one_of<T: Copy>(given: &str, known: &[(&str, T)]) -> Result<T, ParseOptionError> {
    let found = known.iter().find(|(word, _)| *word == given);
    let words = || known.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    found.map(|(_, value)| *value).ok_or_else(|| unknown(given, &words()))
}

impl FromStr for EraChoice {
    type Err = ParseOptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        one_of(text, &[("both", Self::Both), ("legacy", Self::Legacy), ("modern", Self::Modern)])
    }
}

impl FromStr for SessionExpiry {
    type Err = ParseOptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = [
            ("404", Self::NotFound),
            ("404-text", Self::NotFoundText),
            ("400-no-id", Self::BadRequestWithoutId),
            ("400-server-error", Self::BadRequestServerError),
            ("400-plain", Self::BadRequestText),
            ("200-error", Self::OkWithError),
        ];
        one_of(text, &known)
    }
}

impl FromStr for EndpointForm {
    type Err = ParseOptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = [
            ("relative", Self::Relative),
            ("absolute", Self::Absolute),
            ("query", Self::Query),
            ("foreign", Self::ForeignOrigin),
        ];
        one_of(text, &known)
    }
}

impl FromStr for ExitAtStart {
    type Err = ParseOptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "always" {
            return Ok(Self::Always);
        }
        match RefusalDuration::from_str(text) {
            Ok(RefusalDuration::Requests(starts)) => Ok(Self::Starts(starts)),
            Ok(RefusalDuration::For(time)) => Ok(Self::For(time)),
            Ok(RefusalDuration::Forever) | Err(_) => {
                Err(unknown(text, "always, a number of starts (3x), a time (60s)"))
            }
        }
    }
}

impl FromStr for Refusal {
    type Err = ParseOptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (status, lasts) = match text.split_once(':') {
            Some((status, lasts)) => (status, lasts.parse()?),
            None => (text, RefusalDuration::Forever),
        };
        match status.parse() {
            Ok(status) if (400..600).contains(&status) => Ok(Self { status, lasts }),
            Ok(_) | Err(_) => Err(unknown(status, "the HTTP statuses 400 to 599")),
        }
    }
}

impl FromStr for RefusalDuration {
    type Err = ParseOptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = match (text, text.strip_suffix('x'), text.parse()) {
            ("ever", _, _) => Some(Self::Forever),
            (_, Some(count), _) => count.parse().ok().map(Self::Requests),
            (_, None, Ok(seconds)) => Some(Self::For(Duration::from_secs(seconds))),
            (_, None, Err(_)) => duration(text).ok().map(Self::For),
        };
        parsed.ok_or_else(|| unknown(text, "ever, a number of times (3x), a time (2s, 250ms)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_lasts_forever_for_a_time_or_for_a_number_of_requests() {
        let second = Duration::from_secs(1);
        assert_eq!("503".parse(), Ok(Refusal { status: 503, lasts: RefusalDuration::Forever }));
        assert_eq!("503:2".parse(), Ok(Refusal { status: 503, lasts: RefusalDuration::For(2 * second) }));
        assert_eq!("429:250ms".parse(), Ok(Refusal { status: 429, lasts: RefusalDuration::For(second / 4) }));
        assert_eq!("500:3x".parse(), Ok(Refusal { status: 500, lasts: RefusalDuration::Requests(3) }));
        assert!("200".parse::<Refusal>().is_err(), "a refusal is an error status");
        assert!("503:soon".parse::<Refusal>().is_err());
    }

    #[test]
    fn the_error_for_an_unknown_value_lists_the_known_ones() {
        let error = "medieval".parse::<EraChoice>().unwrap_err();
        assert_eq!(error.to_string(), "`medieval` is not one of both, legacy, modern");
    }

    #[test]
    fn durations_have_units() {
        for (text, millis) in
            [("1500ms", 1500), ("2s", 2000), ("0s", 0), ("1m30s", 90_000), ("2h", 7_200_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for wrong in ["", "2", "s", "1.5s", "-1s", "2 s", "2y", "2s3", "é", "99999999999999999999s"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn exit_at_start_counts_starts_or_time() {
        assert_eq!("always".parse(), Ok(ExitAtStart::Always));
        assert_eq!("3x".parse(), Ok(ExitAtStart::Starts(3)));
        assert_eq!("60s".parse(), Ok(ExitAtStart::For(Duration::from_secs(60))));
        assert!("ever".parse::<ExitAtStart>().is_err());
    }
}

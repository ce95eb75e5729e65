//! Settings of the sample server: [`Options`] and [`Faults`].
//!
//! Plain data without a command line: the CLI maps its flags to these fields one to one, tests set them directly. The
//! enums parse from the words that the flags use.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

/// General settings of the server: name, eras, tools and files.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name in `serverInfo`. Default `gripfast-demo`.
    pub name: String,
    /// Protocol eras to support. Default both, decided per request.
    pub era: EraChoice,
    /// The newest legacy revision that `initialize` accepts. Default `2025-11-25`.
    pub legacy_version: String,
    /// Items per page of every list; 0 puts everything on one page. Default 50.
    pub page_size: usize,
    /// Additional tools `extra_1` … `extra_N`, each an `echo` under another name. Default 0.
    pub extra_tools: usize,
    /// Offers the tool `route`, whose schema requires modern HTTP clients to mirror an argument in the header
    /// `Mcp-Param-Region`. Default off.
    pub param_headers: bool,
    /// Offers tools with features that only some servers have: `words`, whose output is a list, `panel`, whose result
    /// is shown by an app, `job`, which is a task, and `visit`, which requires a person to visit a page; `finish` ends
    /// the last two. Default off.
    pub showcase: bool,
    /// Offers `echo` with another description and schema, as an upgraded server would. Default off.
    pub changed_schema: bool,
    /// Answers every POST to `/mcp` with an event stream, even if one JSON body would be enough. Default off.
    pub sse_answers: bool,
    /// Issues no session ids in the legacy era, as stateless legacy servers do. Default off.
    pub sessionless: bool,
    /// Serves Streamable HTTP at `/mcp`. Off leaves only HTTP+SSE. Default on.
    pub streamable_http: bool,
    /// File to which every `counter` call appends one line, `KEY VALUE PID`, so that side effects can be counted from
    /// outside and across restarts. The count continues from the existing lines.
    pub counter_file: Option<PathBuf>,
    /// File for the process id; written at start, not removed by a crash.
    pub pid_file: Option<PathBuf>,
    /// File to which every start appends one line, `UNIX_MILLIS PID`. [`ExitAtStart`] counts these lines.
    pub starts_file: Option<PathBuf>,
    /// Faults. Default none.
    pub faults: Faults,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "gripfast-demo".to_owned(),
            era: EraChoice::Both,
            legacy_version: "2025-11-25".to_owned(),
            page_size: 50,
            extra_tools: 0,
            param_headers: false,
            showcase: false,
            changed_schema: false,
            sse_answers: false,
            sessionless: false,
            streamable_http: true,
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
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Waits this long before every answer.
    pub answer_delay: Duration,
    /// Reads `initialize` and `server/discover` and never answers them.
    pub never_answer_initialize: bool,
    /// Reads `server/discover` and never answers it; `initialize` works.
    pub ignore_discover: bool,
    /// Answers `ping` with -32601.
    pub no_ping: bool,
    /// Exits right after answering this many `tools/call`.
    pub exit_after: Option<u64>,
    /// Exits during the `tools/call` with this number, counted from 1, without answering it.
    pub exit_in_call: Option<u64>,

    /// Waits this long before it reads or listens.
    pub start_delay: Duration,
    /// Exits at start, always or only the first times.
    pub exit_at_start: Option<ExitAtStart>,
    /// Exits after this time, even during calls.
    pub live_for: Option<Duration>,
    /// Exit code of all these exits; 0 is a clean but unexpected exit. Default 1 if `None`.
    pub exit_code: Option<i32>,
    /// Writes this many bytes to stderr at start, before it serves.
    pub fill_stderr: usize,
    /// Starts a `sleep` process that inherits stdin, stdout and stderr and outlives the server.
    pub fork_grandchild: bool,
    /// Ignores SIGTERM.
    pub ignore_sigterm: bool,

    /// Keeps running when stdin closes.
    pub ignore_stdin_close: bool,
    /// Writes a line that is not JSON before every message, and one at start.
    pub junk_on_stdout: bool,
    /// Exits on any request before `initialize`, as some legacy servers do. In practice this disables the modern era,
    /// because `server/discover` is such a request.
    pub exit_on_discover: bool,

    /// Form in which a request with an expired session id is refused.
    pub session_expiry: SessionExpiry,
    /// Sessions expire at this age.
    pub session_ttl: Option<Duration>,
    /// Sessions expire after this many requests, `initialize` not counted.
    pub session_requests: Option<u64>,
    /// Refuses requests with a status, for a time or for a number of requests.
    pub refuse: Option<Refusal>,
    /// The `Retry-After` header of refusals, in whole seconds.
    pub retry_after: Option<Duration>,
    /// Requires `Authorization: Bearer` with this token; anything else gets a 401.
    pub require_bearer: Option<String>,
    /// Sends the 401 without a `WWW-Authenticate` header.
    pub bare_unauthorized: bool,
    /// Closes every connection right after accepting it.
    pub drop_after_accept: bool,
    /// Form of the `endpoint` event at `/sse`.
    pub endpoint: EndpointForm,
    /// Never answers a POST to the HTTP+SSE endpoint with an expired session. Otherwise it gets a 404.
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
    known: &'static str,
}

impl fmt::Display for ParseOptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not one of {}", self.given, self.known)
    }
}

impl std::error::Error for ParseOptionError {}

fn unknown(given: &str, known: &'static str) -> ParseOptionError {
    ParseOptionError { given: given.to_owned(), known }
}

impl FromStr for EraChoice {
    type Err = ParseOptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "both" => Self::Both,
            "legacy" => Self::Legacy,
            "modern" => Self::Modern,
            other => return Err(unknown(other, "both, legacy, modern")),
        })
    }
}

impl FromStr for SessionExpiry {
    type Err = ParseOptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "404" => Self::NotFound,
            "404-text" => Self::NotFoundText,
            "400-no-id" => Self::BadRequestWithoutId,
            "400-server-error" => Self::BadRequestServerError,
            "400-plain" => Self::BadRequestText,
            "200-error" => Self::OkWithError,
            other => {
                let known = "404, 404-text, 400-no-id, 400-server-error, 400-plain, 200-error";
                return Err(unknown(other, known));
            }
        })
    }
}

impl FromStr for EndpointForm {
    type Err = ParseOptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "relative" => Self::Relative,
            "absolute" => Self::Absolute,
            "query" => Self::Query,
            "foreign" => Self::ForeignOrigin,
            other => return Err(unknown(other, "relative, absolute, query, foreign")),
        })
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
        let parsed = if text == "ever" {
            Some(Self::Forever)
        } else if let Some(count) = text.strip_suffix('x') {
            count.parse().ok().map(Self::Requests)
        } else if let Some(millis) = text.strip_suffix("ms") {
            millis.parse().ok().map(|millis| Self::For(Duration::from_millis(millis)))
        } else {
            let seconds = text.strip_suffix('s').unwrap_or(text);
            seconds.parse().ok().map(|seconds| Self::For(Duration::from_secs(seconds)))
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
    fn exit_at_start_counts_starts_or_time() {
        assert_eq!("always".parse(), Ok(ExitAtStart::Always));
        assert_eq!("3x".parse(), Ok(ExitAtStart::Starts(3)));
        assert_eq!("60s".parse(), Ok(ExitAtStart::For(Duration::from_secs(60))));
        assert!("ever".parse::<ExitAtStart>().is_err());
    }
}

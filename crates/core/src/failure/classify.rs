//! Classification of evidence into failures. The only file that decides on error text, HTTP status and JSON-RPC code.

use super::session_forms;
use super::{
    BlockCause, ConnectStepFailed, During, Evidence, Failure, HttpAnswer, Observed, RpcError, Sent,
    ServerAnswer,
};
use crate::redact::KnownSecrets;
use crate::text;

/// Classifies `evidence`.
pub fn classify(evidence: &Evidence) -> Failure {
    classify_with_secrets(evidence, &KnownSecrets::default())
}

/// Classifies `evidence` and redacts known secrets in the resulting text. The evidence itself is not redacted: a secret
/// that equals a word of a server's message must not change the decision.
pub fn classify_with_secrets(evidence: &Evidence, known: &KnownSecrets) -> Failure {
    // Servers and proxies may repeat the credential that they refuse in their error text.
    failure_of(evidence).redacted(known)
}

fn failure_of(evidence: &Evidence) -> Failure {
    if is_session_gone(evidence.during, &evidence.observed)
        && let Some(text) = answer_text(&evidence.observed)
    {
        return Failure::SessionExpired(text);
    }
    match &evidence.observed {
        Observed::NoExecutable(text) => Failure::Blocked(BlockCause::MissingExecutable(text.clone())),
        Observed::UnsetVariable(name) => {
            Failure::Blocked(BlockCause::UnsetVariable(format!("variable `{name}` is not set")))
        }
        Observed::BadConfig(text) => Failure::Blocked(BlockCause::BadConfig(text.clone())),
        Observed::SpawnFailed(text) => Failure::Unreachable(format!("could not be started: {text}")),
        // As for lack of resources: the attempt was not made, so it says nothing about the server.
        Observed::Unplaced(text)
        | Observed::OutOfResources(text)
        | Observed::Connect { step: ConnectStepFailed::OutOfResources, text } => {
            Failure::OutOfResources(text.clone())
        }
        Observed::NoToken(text) => Failure::Unreachable(format!("its login could not be renewed: {text}")),
        Observed::Connect { step, text } => Failure::Unreachable(connect_failure(*step, text)),
        Observed::Closed(text) => lost(evidence, text.clone()),
        Observed::RefusedByPeer(text) => Failure::Busy { retry_after: None, text: text.clone() },
        Observed::Exited { code, signal, stderr_line } => {
            lost(evidence, exit(*code, *signal, stderr_line.as_deref()))
        }
        Observed::NoAnswer(after) => Failure::TimedOut(*after),
        Observed::Http(answer) => http(evidence.during, answer),
        Observed::Rpc { error, .. } => Failure::Declined(format!("{} ({})", error.message, error.code)),
        Observed::Malformed(text) => match evidence.during {
            During::Handshake => Failure::Blocked(BlockCause::NotMcp(format!("does not speak MCP: {text}"))),
            During::Call | During::Probe => Failure::InvalidResponse(text.clone()),
        },
        Observed::TooLarge(limit) => Failure::InvalidResponse(format!(
            "sent a message over the limit of {limit} bytes; if it is wanted, raise `max_message`"
        )),
        Observed::NoMemory { why, .. } => {
            Failure::InvalidResponse(format!("its answer exceeds a memory limit: {why}"))
        }
    }
}

fn connect_failure(step: ConnectStepFailed, text: &str) -> String {
    match step {
        ConnectStepFailed::Dns => format!("its name does not resolve: {text}"),
        ConnectStepFailed::Refused => "connection refused".to_owned(),
        ConnectStepFailed::Tls => format!("TLS failed: {text}"),
        ConnectStepFailed::TimedOut => "no connection in time".to_owned(),
        ConnectStepFailed::OutOfResources | ConnectStepFailed::Other => text.to_owned(),
    }
}

fn lost(evidence: &Evidence, text: String) -> Failure {
    match (evidence.during, evidence.sent) {
        // A link that breaks during the handshake means that the server could not be reached, and so does a link that
        // nothing can be written to: it is dead as a whole.
        (During::Handshake, _) | (_, Sent::No) => Failure::Unreachable(text),
        (During::Call | During::Probe, Sent::Yes) => Failure::Lost(text),
    }
}

/// Separator between the exit status of a process and its stderr line.
const STDERR_SEPARATOR: &str = "; stderr: ";

/// The cause of a failure without the server's stderr line, for clients that may not see it.
pub fn without_stderr(cause: &str) -> &str {
    cause.split_once(STDERR_SEPARATOR).map_or(cause, |(how, _)| how)
}

fn exit(code: Option<i32>, signal: Option<i32>, stderr_line: Option<&str>) -> String {
    let how = match (code, signal) {
        (_, Some(9)) => "was killed (signal 9)".to_owned(),
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        (Some(0), None) => "exited (code 0)".to_owned(),
        (Some(code), None) => format!("exited with code {code}"),
        (None, None) => "ended".to_owned(),
    };
    match stderr_line {
        Some(words) => format!("{how}{STDERR_SEPARATOR}{words}"),
        None => how,
    }
}

fn http(during: During, answer: &HttpAnswer) -> Failure {
    if is_header_mismatch(during, answer) {
        return Failure::HeaderMismatch(answer_summary(answer));
    }
    match answer.status {
        401 => Failure::CredentialRefused(answer_summary(answer)),
        // Only proxies send this status, and only the operator who sets the proxy variable can add the credential.
        407 => Failure::Blocked(BlockCause::BadConfig(format!(
            "{} wants a user and a password (407): set them in the proxy variable, as in \
             `http://USER:PASSWORD@HOST:PORT`",
            answer
                .proxy
                .as_ref()
                .map_or_else(|| "a proxy".to_owned(), |proxy| format!("the proxy `{proxy}`")),
        ))),
        403 => match (during, &answer.challenge) {
            (During::Handshake, Some(_)) => Failure::CredentialRefused(answer_summary(answer)),
            (During::Handshake, None) => refused_or_foreign(during, answer),
            // One tool may need more than the credential allows; the others work.
            (During::Call, Some(challenge)) if asks_for_scope(challenge) => {
                Failure::InsufficientScope(answer_summary(answer))
            }
            (During::Call | During::Probe, _) => Failure::Declined(answer_summary(answer)),
        },
        429 => Failure::Busy { retry_after: answer.retry_after, text: answer_summary(answer) },
        503 if answer.retry_after.is_some() => {
            Failure::Busy { retry_after: answer.retry_after, text: answer_summary(answer) }
        }
        408 | 425 | 500..=599 => Failure::ServerFault(answer_summary(answer)),
        _ => refused_or_foreign(during, answer),
    }
}

/// Returns whether a challenge asks for a wider scope (RFC 6750).
fn asks_for_scope(challenge: &str) -> bool {
    challenge.to_lowercase().contains("insufficient_scope")
}

/// A 3xx or 4xx without a special meaning: with a JSON-RPC error the server declined the request, without one it is not
/// an MCP server.
fn refused_or_foreign(during: During, answer: &HttpAnswer) -> Failure {
    match (&answer.rpc, during) {
        (Some(_), _) => Failure::Declined(answer_summary(answer)),
        (None, During::Handshake) if speaks_tls(answer) => Failure::Blocked(BlockCause::NotMcp(format!(
            "this port speaks TLS, so `url` begins with `https://`: {}",
            answer_summary(answer)
        ))),
        (None, During::Handshake) => Failure::Blocked(BlockCause::NotMcp(format!(
            "no MCP server at this URL: {}",
            answer_summary(answer)
        ))),
        (None, During::Call | During::Probe) => Failure::InvalidResponse(answer_summary(answer)),
    }
}

/// Returns whether an https port rejects plain http.
fn speaks_tls(answer: &HttpAnswer) -> bool {
    let words = answer.body.to_lowercase();
    // nginx; Go's net/http; Tomcat and Spring.
    let forms = [
        "plain http request was sent to https port",
        "client sent an http request to an https server",
        "combination of host and port requires tls",
    ];
    answer.status == 400 && forms.iter().any(|form| words.contains(form))
}

/// Verdict of an error about the session of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionVerdict {
    /// The server does not know the session, so it did not act on the request.
    Gone,
    /// The session may be gone. The server may have acted nevertheless.
    Doubtful,
    /// The error says nothing about the session.
    Untouched,
}

/// Returns whether an error raises doubt about the session. The caller gets the server's own error, and the session is
/// probed.
pub fn doubts_session(evidence: &Evidence) -> bool {
    evidence.during == During::Call && session_verdict(&evidence.observed) == SessionVerdict::Doubtful
}

/// Returns whether a failed request means that the session is gone. A probe has no side effects, so a doubt is enough
/// there. A handshake carries no session.
fn is_session_gone(during: During, observed: &Observed) -> bool {
    match (during, session_verdict(observed)) {
        (During::Handshake, _) | (_, SessionVerdict::Untouched) => false,
        (During::Call, verdict) => verdict == SessionVerdict::Gone,
        (During::Probe, SessionVerdict::Gone | SessionVerdict::Doubtful) => true,
    }
}

fn session_verdict(observed: &Observed) -> SessionVerdict {
    match observed.server_answer() {
        Some(ServerAnswer::Http(answer)) => session_in_http(answer),
        Some(ServerAnswer::Rpc { error, had_session: true }) if says_gone(error) => SessionVerdict::Gone,
        Some(ServerAnswer::Rpc { error, .. }) => doubt_if(session_forms::mentions_session(&error.message)),
        None => SessionVerdict::Untouched,
    }
}

fn session_in_http(answer: &HttpAnswer) -> SessionVerdict {
    const INVALID_REQUEST: i64 = -32600;
    let has_code = |rpc: &RpcError| session_forms::CODES.contains(&rpc.code);
    let certain = match (answer.status, &answer.rpc) {
        (401 | 403, _) => return SessionVerdict::Untouched,
        (400, Some(rpc)) if is_of_another_era(answer, rpc) => return SessionVerdict::Gone,
        (404, None) => true,
        (404, Some(rpc)) => rpc.code == INVALID_REQUEST || has_code(rpc) || says_gone(rpc),
        (400, Some(rpc)) => says_gone(rpc),
        (400, None) => session_forms::says_session_gone(&answer.body),
        _ => false,
    };
    if certain && answer.had_session {
        return SessionVerdict::Gone;
    }
    let text = answer.rpc.as_ref().map_or(&answer.body, |rpc| &rpc.message);
    let by_code = answer.status == 400 && answer.rpc.as_ref().is_some_and(has_code);
    doubt_if(answer.status == 410 || by_code || session_forms::mentions_session(text))
}

/// Returns whether the whole message of an error says that the session is gone.
fn says_gone(error: &RpcError) -> bool {
    const METHOD_NOT_FOUND: i64 = -32601;
    error.code != METHOD_NOT_FOUND && session_forms::says_session_gone(&error.message)
}

fn doubt_if(doubtful: bool) -> SessionVerdict {
    if doubtful { SessionVerdict::Doubtful } else { SessionVerdict::Untouched }
}

/// Message of a legacy server that got a request before its handshake.
const UNINITIALIZED: &str = "server not initialized";

/// Returns whether the answer comes from a server of the other era: the server was replaced since the handshake, and a
/// new handshake is needed.
fn is_of_another_era(answer: &HttpAnswer, error: &RpcError) -> bool {
    const INVALID_PARAMS: i64 = -32602;
    let had_session = answer.had_session;
    let message = || error.message.to_lowercase();
    match error.code {
        // The modern era has no sessions. These codes are reserved for it; a missing envelope is reported by its key.
        -32022..=-32020 => had_session,
        INVALID_PARAMS => had_session && error.message.contains("io.modelcontextprotocol/protocolVersion"),
        // A legacy server that got a modern request, in the words of the TypeScript SDK.
        _ if had_session => false,
        _ if message().contains("unsupported protocol version") => true,
        // The modern era has no initialization, so this is a legacy server that waits for its handshake.
        _ => {
            answer.modern
                && message().ends_with(UNINITIALIZED)
                && session_forms::says_session_gone(&error.message)
        }
    }
}

/// Returns whether the server wants other headers than it got. In the modern era the code means that, and that the
/// server did not act; a legacy server may use the code for anything.
fn is_header_mismatch(during: During, answer: &HttpAnswer) -> bool {
    const HEADER_MISMATCH: i64 = -32020;
    let has_mismatch_code = answer.rpc.as_ref().is_some_and(|rpc| rpc.code == HEADER_MISMATCH);
    during == During::Call && answer.modern && answer.status == 400 && has_mismatch_code
}

/// The text of a server's answer.
fn answer_text(observed: &Observed) -> Option<String> {
    match observed.server_answer()? {
        ServerAnswer::Http(answer) => Some(answer_summary(answer)),
        ServerAnswer::Rpc { error, .. } => Some(error.message.clone()),
    }
}

fn answer_summary(answer: &HttpAnswer) -> String {
    let words = match &answer.rpc {
        Some(rpc) => rpc.message.trim(),
        None => answer.body.trim(),
    };
    let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    let wait = match answer.retry_after {
        Some(wait) => format!(", asks to wait {}", text::duration(wait)),
        None => String::new(),
    };
    let proxy = match &answer.proxy {
        Some(proxy) => format!(" through the proxy `{proxy}`"),
        None => String::new(),
    };
    if words.is_empty() {
        format!("HTTP {}{proxy}{wait}", answer.status)
    } else {
        format!("HTTP {}{proxy}{wait}: {words}", answer.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn greeted(status: u16, body: &str, proxy: Option<&str>) -> Failure {
        let (body, proxy) = (body.to_owned(), proxy.map(Into::into));
        let answer = HttpAnswer { status, body, proxy, ..HttpAnswer::default() };
        classify(&Evidence::sent(During::Handshake, Observed::Http(answer)))
    }

    #[test]
    fn b09_a_proxy_that_wants_a_password_is_a_config_error() {
        let Failure::Blocked(BlockCause::BadConfig(text)) = greeted(407, "<html>", Some("http://proxy:3128"))
        else {
            panic!("a person has to give it one")
        };
        assert!(text.starts_with("the proxy `http://proxy:3128` wants a user and a password"), "{text}");
        let text = greeted(502, "Bad Gateway", Some("http://proxy:3128")).to_string();
        assert!(text.contains("HTTP 502 through the proxy `http://proxy:3128`"), "{text}");
    }

    #[test]
    fn b09_plain_http_to_an_https_port_is_recognised() {
        for said in [
            "<center>The plain HTTP request was sent to HTTPS port</center>",
            "Client sent an HTTP request to an HTTPS server.",
            "Bad Request\nThis combination of host and port requires TLS.",
        ] {
            let text = greeted(400, said, None).to_string();
            assert!(text.contains("`url` begins with `https://`"), "{text}");
        }
        for (status, said) in
            [(400, "https is fine"), (404, "Client sent an HTTP request to an HTTPS server.")]
        {
            let text = greeted(status, said, None).to_string();
            assert!(text.contains("no MCP server at this URL"), "{text}");
        }
    }

    fn call(observed: Observed) -> Failure {
        classify(&Evidence::sent(During::Call, observed))
    }

    fn answered(status: u16, rpc: Option<(i64, &str)>, body: &str, had_session: bool) -> Observed {
        Observed::Http(HttpAnswer {
            status,
            body: body.to_owned(),
            rpc: rpc.map(|(code, message)| RpcError { code, message: message.to_owned() }),
            had_session,
            ..HttpAnswer::default()
        })
    }

    fn is_expiry(failure: &Failure) -> bool {
        matches!(failure, Failure::SessionExpired(_))
    }

    #[test]
    fn a_credential_repeated_in_an_error_is_redacted() {
        let said = "bad key ghp_0123456789abcdef";
        let http = |status| answered(status, None, said, false);
        let rpc = error(-32000, said, false);
        for observed in [http(400), http(401), http(500), rpc, Observed::Closed(said.to_owned())] {
            let told = format!("{:?}", call(observed));
            assert!(!told.contains("ghp_"), "{told}");
        }
    }

    #[test]
    fn known_secrets_are_redacted_and_do_not_change_the_classification() {
        let mut known = KnownSecrets::default();
        known.add_lines("Session");
        known.add_lines("correct-h0rse");
        let said =
            Evidence::sent(During::Call, answered(400, None, "Session not found: correct-h0rse", true));
        let failure = classify_with_secrets(&said, &known);
        assert_eq!(failure, Failure::SessionExpired("HTTP 400: ******* not found: *************".to_owned()));
    }

    #[test]
    fn g07_control_characters_are_escaped_in_failures() {
        let said = "gone\u{1b}[2J\nERROR forged";
        let exited = Observed::Exited { code: Some(1), signal: None, stderr_line: Some(said.to_owned()) };
        for observed in [
            exited,
            error(-32000, said, false),
            Observed::Closed(said.to_owned()),
            Observed::Malformed(said.to_owned()),
        ] {
            let told = call(observed).to_string();
            assert!(!told.contains(char::is_control) && told.contains("\\nERROR forged"), "{told:?}");
        }
    }

    fn doubts(observed: Observed) -> bool {
        doubts_session(&Evidence::sent(During::Call, observed))
    }

    fn error(code: i64, message: &str, had_session: bool) -> Observed {
        Observed::Rpc { error: RpcError { code, message: message.to_owned() }, had_session }
    }

    /// D01 (a): these are certain, and the refused request is sent again.
    #[test]
    fn d01_certain_forms_of_an_expired_session_are_recognised() {
        for (status, rpc, body) in [
            (404, None, ""),
            (404, None, "<html>nothing here</html>"),
            (404, Some((-32001, "Session not found")), ""),
            (404, Some((-32015, "gone")), ""),
            (404, Some((-32600, "Session terminated")), ""),
            (404, Some((-32602, "Not Found: Session not found")), ""),
            (400, Some((-32000, "Bad Request: No valid session ID provided")), ""),
            (400, Some((-32602, "Invalid params: Invalid or expired session")), ""),
            (400, None, "Session not found"),
        ] {
            assert!(is_expiry(&call(answered(status, rpc, body, true))), "{status} {rpc:?} {body}");
            assert!(
                !is_expiry(&call(answered(status, rpc, body, false))),
                "without a session: {status} {rpc:?}"
            );
        }
        assert!(is_expiry(&call(error(-32602, "Invalid params: Invalid or expired session", true))));
        assert!(is_expiry(&call(error(-32001, "Session not found", true))));
        assert!(!is_expiry(&call(error(-32001, "Session not found", false))));
    }

    /// D01 (b): the caller gets the server's own error, nothing is sent again, and the session is probed.
    #[test]
    fn d01_ordinary_refusals_that_mention_a_session_are_doubts_and_never_replayed() {
        for (status, rpc, body, had_session) in [
            (503, None, "session terminated", true),
            (409, Some((-32000, "expired session records were not deleted")), "", true),
            (409, None, "expired session", true),
            (400, Some((-32602, "Invalid session length")), "", true),
            (400, Some((-32001, "no such row")), "", false),
            (400, Some((-32001, "no such row")), "", true),
            (400, Some((-32015, "gone")), "", true),
            (400, None, "<html>400: unknown session</html>", true),
            (400, Some((-32000, "Bad Request: Mcp-Session-Id header is required")), "", false),
            (404, Some((-32601, "Session not found")), "", true),
            (410, None, "", true),
            (410, Some((-32000, "Session expired")), "", true),
            (500, Some((-32603, "Session expired")), "", true),
        ] {
            let observed = || answered(status, rpc, body, had_session);
            assert!(!is_expiry(&call(observed())), "{status} {rpc:?} {body}");
            assert!(doubts(observed()), "{status} {rpc:?} {body}");
            let probed = classify(&Evidence::sent(During::Probe, observed()));
            assert!(is_expiry(&probed), "a probe needs no more than a doubt: {status} {rpc:?} {body}");
        }
        assert!(doubts(error(-32000, "your session with the bank has ended", true)));
    }

    #[test]
    fn d01_errors_that_do_not_mention_a_session_raise_no_doubt() {
        for (status, rpc, body) in [
            (404, Some((-32602, "no such customer")), ""),
            (404, Some((-32601, "Method not found")), ""),
            (400, Some((-32602, "`text` is missing")), ""),
            (400, None, ""),
            (409, None, "conflict"),
            (500, None, "oops"),
        ] {
            let observed = || answered(status, rpc, body, true);
            assert!(!is_expiry(&call(observed())) && !doubts(observed()), "{status} {rpc:?} {body}");
        }
        assert!(!doubts(error(-32001, "Request timed out", true)));
        assert!(!is_expiry(&call(error(-32001, "Request timed out", true))));
    }

    #[test]
    fn d08_a_server_of_the_other_era_needs_a_new_handshake() {
        let envelope = "`params._meta[\"io.modelcontextprotocol/protocolVersion\"]` is missing";
        assert!(is_expiry(&call(answered(400, Some((-32602, envelope)), "", true))));
        assert!(is_expiry(&call(answered(400, Some((-32022, "Unsupported protocol version")), "", true))));
        assert!(!is_expiry(&call(answered(400, Some((-32602, envelope)), "", false))));
        assert!(!is_expiry(&call(answered(400, Some((-32020, "headers and body disagree")), "", false))));
        assert!(!is_expiry(&call(answered(400, Some((-32602, "`text` is missing")), "", true))));
        let legacy = Some((-32000, "Bad Request: Unsupported protocol version: 2026-07-28"));
        assert!(is_expiry(&call(answered(400, legacy, "", false))));
        assert!(!is_expiry(&call(answered(400, legacy, "", true))));
        for (message, modern, expired) in [
            ("Bad Request: Server not initialized", true, true),
            ("Bad Request: Server not initialized", false, false),
            ("language server not initialized", true, false),
        ] {
            let rpc = Some(RpcError { code: -32000, message: message.to_owned() });
            let answer = HttpAnswer { status: 400, rpc, modern, ..HttpAnswer::default() };
            assert_eq!(is_expiry(&call(Observed::Http(answer))), expired, "{message}, modern: {modern}");
        }
    }

    #[test]
    fn d01_ordinary_failures_and_401_never_match() {
        assert!(!is_expiry(&call(answered(401, None, "session expired", true))));
        assert!(!is_expiry(&call(answered(403, None, "session expired", true))));
        assert!(!is_expiry(&call(answered(500, None, "session expired", true))));
        assert!(!is_expiry(&call(Observed::Closed("session expired".to_owned()))));
        assert!(!is_expiry(&call(Observed::NoAnswer(Duration::from_secs(1)))));
        assert!(!is_expiry(&call(Observed::Malformed("unknown session".to_owned()))));
    }

    #[test]
    fn a_forbidden_tool_does_not_invalidate_the_login_of_the_server() {
        let forbidden = || {
            Observed::Http(HttpAnswer {
                status: 403,
                challenge: Some("Bearer".into()),
                ..HttpAnswer::default()
            })
        };
        assert!(matches!(call(forbidden()), Failure::Declined(_)));
        let wider = Some(r#"Bearer error="insufficient_scope", scope="write""#.into());
        let wider = HttpAnswer { status: 403, challenge: wider, ..HttpAnswer::default() };
        assert!(matches!(call(Observed::Http(wider)), Failure::InsufficientScope(_)));
        let handshake = classify(&Evidence::sent(During::Handshake, forbidden()));
        assert!(matches!(handshake, Failure::CredentialRefused(_)));
    }

    #[test]
    fn d02_a_handshake_never_reports_an_expired_session() {
        let refused = answered(404, Some((-32001, "Session not found")), "", true);
        let failure = classify(&Evidence::sent(During::Handshake, refused));
        assert!(!is_expiry(&failure), "{failure:?}");
    }

    #[test]
    fn b09_permanent_failures_block_with_their_cause() {
        let handshake = |observed| classify(&Evidence::unsent(During::Handshake, observed));
        assert!(matches!(
            handshake(Observed::NoExecutable("`npx` was not found on PATH".to_owned())),
            Failure::Blocked(BlockCause::MissingExecutable(_))
        ));
        assert!(matches!(
            handshake(Observed::UnsetVariable("TOKEN".to_owned())),
            Failure::Blocked(BlockCause::UnsetVariable(_))
        ));
        assert!(matches!(
            handshake(answered(404, None, "<html>", false)),
            Failure::Blocked(BlockCause::NotMcp(_))
        ));
        assert!(matches!(handshake(answered(401, None, "", false)), Failure::CredentialRefused(_)));
    }

    #[test]
    fn c05_only_429_and_503_with_retry_after_and_a_refused_stream_count_as_refused() {
        let wait = Some(Duration::from_secs(7));
        let with_wait =
            |status| Observed::Http(HttpAnswer { status, retry_after: wait, ..HttpAnswer::default() });
        assert!(matches!(call(with_wait(429)), Failure::Busy { retry_after, .. } if retry_after == wait));
        assert!(matches!(call(with_wait(503)), Failure::Busy { .. }));
        assert!(matches!(call(answered(429, None, "", false)), Failure::Busy { retry_after: None, .. }));
        let turned_away = Observed::RefusedByPeer("refused stream".to_owned());
        assert!(matches!(call(turned_away), Failure::Busy { retry_after: None, .. }));
        assert!(matches!(call(answered(503, None, "", false)), Failure::ServerFault(_)));
        assert!(matches!(call(with_wait(500)), Failure::ServerFault(_)));
    }

    #[test]
    fn b12_an_application_error_is_classified_as_declined() {
        assert!(matches!(call(error(-32602, "unknown tool", true)), Failure::Declined(_)));
        assert!(matches!(
            call(answered(404, Some((-32601, "no such method")), "", false)),
            Failure::Declined(_)
        ));
    }

    #[test]
    fn a_broken_link_is_unreachable_before_and_lost_after_sending() {
        let closed = || Observed::Closed("its stdin is closed".to_owned());
        assert!(matches!(classify(&Evidence::unsent(During::Call, closed())), Failure::Unreachable(_)));
        assert!(matches!(classify(&Evidence::sent(During::Call, closed())), Failure::Lost(_)));
    }

    #[test]
    fn the_exit_of_a_child_process_is_described() {
        let told = |code, signal, words: Option<&str>| {
            let observed = Observed::Exited { code, signal, stderr_line: words.map(str::to_owned) };
            call(observed).to_string()
        };
        assert_eq!(told(None, Some(9), None), "was killed (signal 9)");
        assert_eq!(
            told(Some(1), None, Some("Error: Cannot find module")),
            "exited with code 1; stderr: Error: Cannot find module"
        );
    }

    #[test]
    fn c05_header_mismatch_is_recognised_only_from_modern_servers() {
        let refused = |during, status, modern| {
            let rpc = Some(RpcError { code: -32020, message: "Mcp-Param-Region is missing".to_owned() });
            let answer = HttpAnswer { status, rpc, modern, ..HttpAnswer::default() };
            classify(&Evidence::sent(during, Observed::Http(answer)))
        };
        assert!(matches!(refused(During::Call, 400, true), Failure::HeaderMismatch(_)));
        assert!(matches!(refused(During::Call, 400, false), Failure::Declined(_)));
        assert!(matches!(refused(During::Probe, 400, true), Failure::Declined(_)));
        assert!(matches!(refused(During::Call, 500, true), Failure::ServerFault(_)));
    }
}

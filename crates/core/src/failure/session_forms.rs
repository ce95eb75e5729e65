//! Messages with which servers report that a session is gone.
//!
//! The specification requires HTTP 404; servers in use send many other messages. Each form names the server that sends
//! it, and has a look-alike: a similar message of a healthy server that must not match.

/// One form of the message that a session is gone.
#[derive(Debug)]
pub struct SessionForm {
    /// The phrase that identifies it, in lower case.
    pub phrase: &'static str,
    /// A message as it was seen.
    pub example: &'static str,
    /// The servers that send it.
    pub source: &'static str,
    /// A similar message that means something else.
    pub look_alike: &'static str,
}

/// The known forms. A new form needs the server that sends it and a look-alike.
pub const FORMS: &[SessionForm] = &[
    SessionForm {
        phrase: "invalid or expired session",
        example: "Invalid params: Invalid or expired session",
        source: "WordPress.com MCP (hermes-agent reports)",
        look_alike: "the cookie jar holds an invalid or expired session of example.com",
    },
    SessionForm {
        phrase: "session expired",
        example: "Session expired",
        source: "gateways with an idle limit, mcphub",
        look_alike: "your bank says: session expired",
    },
    SessionForm {
        phrase: "session has expired",
        example: "Session has expired, please reinitialize",
        source: "hosted servers behind API gateways",
        look_alike: "the training session has expired and cannot be booked",
    },
    SessionForm {
        phrase: "expired session",
        example: "Expired session",
        source: "community servers on older TypeScript SDKs",
        look_alike: "deleted 3 rows: expired session records",
    },
    SessionForm {
        phrase: "session not found",
        example: "Session not found",
        source: "TypeScript SDK transport (-32001), Python SDK 2.x, rmcp",
        look_alike: "Session not found in the conference programme",
    },
    SessionForm {
        phrase: "session id not found",
        example: "Session ID not found",
        source: "mcp-go based servers",
        look_alike: "column session id not found in table visits",
    },
    SessionForm {
        phrase: "could not find session",
        example: "Could not find session",
        source: "Python SDK's legacy SSE endpoint",
        look_alike: "could not find session recordings for that date",
    },
    SessionForm {
        phrase: "unknown session",
        example: "Unknown session: 4f2a",
        source: "community servers, some Java SDK versions",
        look_alike: "Unknown session type `yoga`",
    },
    SessionForm {
        phrase: "no valid session id",
        example: "Bad Request: No valid session ID provided",
        source: "server-everything and the TypeScript SDK examples (HTTP 400, no id)",
        look_alike: "the log line holds no valid session id",
    },
    SessionForm {
        phrase: "invalid session",
        example: "Invalid session ID",
        source: "mcp-go, apify",
        look_alike: "Invalid session length: at most 90 minutes",
    },
    SessionForm {
        phrase: "session terminated",
        example: "Session terminated",
        source: "Python SDK (-32600)",
        look_alike: "Session terminated by the therapist after 50 minutes",
    },
    SessionForm {
        phrase: "session has been terminated",
        example: "Not Found: Session has been terminated",
        source: "Python SDK's streamable HTTP manager",
        look_alike: "the parliamentary session has been terminated",
    },
    SessionForm {
        phrase: "missing session",
        example: "Bad Request: Missing session ID",
        source: "Python SDK 1.x (id \"server-error\"), agentgateway upstreams",
        look_alike: "Missing session notes for week 12",
    },
    SessionForm {
        phrase: "server not initialized",
        example: "Bad Request: Server not initialized",
        source: "TypeScript SDK transport after a restart of its process",
        look_alike: "language server not initialized for rust",
    },
];

/// Codes with which SDKs report that a session is gone. With HTTP 404 they are certain; with 400 they raise a doubt;
/// alone they mean nothing, because some SDKs use -32001 for a timeout.
pub const CODES: &[i64] = &[-32001, -32015];

/// Returns whether the whole message of a JSON-RPC error says that the session is gone.
///
/// The match is strict, because tools talk about sessions too: the phrase must start the message (after a common prefix
/// such as `Bad Request:`), and only an id, punctuation or a known tail may follow.
pub fn says_session_gone(message: &str) -> bool {
    let message = message.trim().to_lowercase();
    let head = strip_prefixes(&message);
    FORMS.iter().any(|form| head.strip_prefix(form.phrase).is_some_and(is_harmless_tail))
}

/// Returns whether a text mentions a session, as `session`, `sessionId` or `Mcp-Session-Id`. That is a reason to probe
/// the session, and no more.
pub fn mentions_session(text: &str) -> bool {
    let text = text.to_lowercase();
    text.match_indices("session")
        .any(|(at, _)| !text[..at].chars().next_back().is_some_and(char::is_alphabetic))
}

fn strip_prefixes(message: &str) -> &str {
    const PREFIXES: &[&str] = &[
        "bad request",
        "not found",
        "invalid params",
        "invalid request",
        "error",
        "mcp error",
        "unauthorized",
    ];
    let mut rest = message;
    while let Some((prefix, tail)) = rest.split_once(':') {
        // A code in front, as in `MCP error -32000: …`, repeats the code of the error.
        let words = prefix.trim().trim_end_matches(|c: char| c.is_ascii_digit() || c == '-').trim();
        if !words.is_empty() && !PREFIXES.contains(&words) {
            break;
        }
        rest = tail.trim_start();
    }
    rest
}

fn is_harmless_tail(tail: &str) -> bool {
    const TAILS: &[&str] = &[
        "id",
        "provided",
        "id provided",
        "header",
        "id header",
        "or not an initialize request",
        "provided or not an initialize request",
        "please reinitialize",
        "please re-initialize",
        "please reconnect",
        "reinitialize required",
    ];
    let words = tail.trim_matches(|c: char| !c.is_alphanumeric());
    if words.is_empty() || TAILS.contains(&words) {
        return true;
    }
    // `: 4f2a-…` or `(4f2a)` is a session id: one token that contains a digit.
    let names_one = tail.trim_start().starts_with([':', '(', '"', '\'', '`']);
    names_one && !words.contains(char::is_whitespace) && words.contains(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d01_every_known_form_is_recognised_in_any_case() {
        for form in FORMS {
            assert!(says_session_gone(form.example), "`{}` of {}", form.example, form.source);
            assert!(says_session_gone(&form.example.to_uppercase()), "`{}` in capitals", form.example);
            assert!(says_session_gone(form.phrase), "the bare phrase `{}`", form.phrase);
            assert!(
                form.phrase == "server not initialized" || mentions_session(form.example),
                "`{}`",
                form.example
            );
        }
    }

    #[test]
    fn d01_no_look_alike_is_taken_for_an_expired_session() {
        for form in FORMS {
            assert!(!says_session_gone(form.look_alike), "`{}`", form.look_alike);
        }
    }

    #[test]
    fn d01_empty_text_never_matches() {
        assert!(!says_session_gone("") && !says_session_gone("   ") && !mentions_session(""));
    }

    #[test]
    fn d01_forms_seen_in_public_reports_match() {
        for seen in [
            "Bad Request: No valid session ID provided or not an initialize request",
            "MCP error -32000: Bad Request: No valid session ID provided",
            "Not Found: Session not found",
            "session not found: 1195d8fb-7c2e",
            "Session expired. Please reconnect.",
        ] {
            assert!(says_session_gone(seen), "`{seen}`");
        }
    }

    #[test]
    fn a_session_is_mentioned_by_a_word_that_starts_with_session() {
        for text in [
            "<html>400: unknown session</html>",
            "mcp-session-id header is required",
            "sessionId",
            "Sessions",
        ] {
            assert!(mentions_session(text), "`{text}`");
        }
        assert!(!mentions_session("an obsession with possessions"));
    }
}

//! How servers say that they do not know our session any more.
//!
//! The specification says HTTP 404. The field says many things. Each form below names who says it, and
//! has a look-alike, something a healthy server may say in nearly the same words, that must not match.

/// One way of saying that a session is gone.
#[derive(Debug)]
pub struct SessionForm {
    /// The telling words, in lower case.
    pub phrase: &'static str,
    /// A message as it was seen.
    pub seen: &'static str,
    /// Who says it.
    pub said_by: &'static str,
    /// A message in nearly the same words that means something else.
    pub look_alike: &'static str,
}

/// The known forms. A new one comes with the server that said it and with a look-alike.
pub const FORMS: &[SessionForm] = &[
    SessionForm {
        phrase: "invalid or expired session",
        seen: "Invalid params: Invalid or expired session",
        said_by: "WordPress.com MCP (hermes-agent reports)",
        look_alike: "the cookie jar holds an invalid or expired session of example.com",
    },
    SessionForm {
        phrase: "session expired",
        seen: "Session expired",
        said_by: "gateways with an idle limit, mcphub",
        look_alike: "your bank says: session expired",
    },
    SessionForm {
        phrase: "session has expired",
        seen: "Session has expired, please reinitialize",
        said_by: "hosted servers behind API gateways",
        look_alike: "the training session has expired and cannot be booked",
    },
    SessionForm {
        phrase: "expired session",
        seen: "Expired session",
        said_by: "community servers on older TypeScript SDKs",
        look_alike: "deleted 3 rows: expired session records",
    },
    SessionForm {
        phrase: "session not found",
        seen: "Session not found",
        said_by: "TypeScript SDK transport (-32001), Python SDK 2.x, rmcp",
        look_alike: "Session not found in the conference programme",
    },
    SessionForm {
        phrase: "session id not found",
        seen: "Session ID not found",
        said_by: "mcp-go based servers",
        look_alike: "column session id not found in table visits",
    },
    SessionForm {
        phrase: "could not find session",
        seen: "Could not find session",
        said_by: "Python SDK's legacy SSE endpoint",
        look_alike: "could not find session recordings for that date",
    },
    SessionForm {
        phrase: "unknown session",
        seen: "Unknown session: 4f2a",
        said_by: "community servers, some Java SDK versions",
        look_alike: "Unknown session type `yoga`",
    },
    SessionForm {
        phrase: "no valid session id",
        seen: "Bad Request: No valid session ID provided",
        said_by: "server-everything and the TypeScript SDK examples (HTTP 400, no id)",
        look_alike: "the log line holds no valid session id",
    },
    SessionForm {
        phrase: "invalid session",
        seen: "Invalid session ID",
        said_by: "mcp-go, apify",
        look_alike: "Invalid session length: at most 90 minutes",
    },
    SessionForm {
        phrase: "session terminated",
        seen: "Session terminated",
        said_by: "Python SDK (-32600)",
        look_alike: "Session terminated by the therapist after 50 minutes",
    },
    SessionForm {
        phrase: "session has been terminated",
        seen: "Not Found: Session has been terminated",
        said_by: "Python SDK's streamable HTTP manager",
        look_alike: "the parliamentary session has been terminated",
    },
    SessionForm {
        phrase: "missing session",
        seen: "Bad Request: Missing session ID",
        said_by: "Python SDK 1.x (id \"server-error\"), agentgateway upstreams",
        look_alike: "Missing session notes for week 12",
    },
    SessionForm {
        phrase: "server not initialized",
        seen: "Bad Request: Server not initialized",
        said_by: "TypeScript SDK transport after a restart of its process",
        look_alike: "language server not initialized for rust",
    },
];

/// Codes by which SDKs say that a session is gone. With an HTTP 404 they are certain; with a 400 they raise a doubt; alone
/// they mean nothing, for some SDKs use -32001 for a timeout.
pub const CODES: &[i64] = &[-32001, -32015];

/// Whether a JSON-RPC error message, as a whole, says that the session is gone.
///
/// It is read strictly, for tools speak of sessions too: the phrase must open the message (after a common
/// prefix such as `Bad Request:`), and what follows may only be an id, punctuation or one of the known tails.
pub fn message_says_so(message: &str) -> bool {
    let message = message.trim().to_lowercase();
    let head = strip_prefixes(&message);
    FORMS.iter().any(|form| head.strip_prefix(form.phrase).is_some_and(is_harmless_tail))
}

/// Whether a text mentions a session at all, as `session`, `sessionId` or `Mcp-Session-Id`. That is a reason to ask the
/// server whether it still knows ours, and no more.
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
        // Codes in front, as in `MCP error -32000: …`, carry nothing that the code does not.
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
    // `: 4f2a-…` or `(4f2a)` names the session: one token that holds a digit.
    let names_one = tail.trim_start().starts_with([':', '(', '"', '\'', '`']);
    names_one && !words.contains(char::is_whitespace) && words.contains(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d01_every_known_form_is_recognised_in_any_case() {
        for form in FORMS {
            assert!(message_says_so(form.seen), "`{}` of {}", form.seen, form.said_by);
            assert!(message_says_so(&form.seen.to_uppercase()), "`{}` in capitals", form.seen);
            assert!(message_says_so(form.phrase), "the bare phrase `{}`", form.phrase);
            assert!(
                form.phrase == "server not initialized" || mentions_session(form.seen),
                "`{}`",
                form.seen
            );
        }
    }

    #[test]
    fn d01_no_look_alike_is_taken_for_an_expired_session() {
        for form in FORMS {
            assert!(!message_says_so(form.look_alike), "`{}`", form.look_alike);
        }
    }

    #[test]
    fn d01_empty_text_never_matches() {
        assert!(!message_says_so("") && !message_says_so("   ") && !mentions_session(""));
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
            assert!(message_says_so(seen), "`{seen}`");
        }
    }

    #[test]
    fn a_session_is_mentioned_by_its_word_and_not_by_another_that_holds_it() {
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

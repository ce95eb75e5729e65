//! Which era a server belongs to, judged by its answer to `server/discover` or to any modern request. Pure
//! judgement of one answer: whom to ask, when to ask again and how long to trust a verdict are the host's
//! business.
//!
//! Two answers prove nothing and must not be mistaken for proof: a server that refuses us for want of a
//! login, and one that is broken at the moment. Remembering "legacy" after either would send a modern server
//! `initialize` for ever.

use super::{DiscoverResult, Era, ProtocolVersion};
use crate::envelope::Outcome;
use crate::patch::Object;
use crate::{codes, raw};

/// The answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// A result of `server/discover` with the versions it lists.
    Discovered(Vec<ProtocolVersion>),
    /// A result, but not one that `server/discover` gives.
    OtherResult,
    /// A JSON-RPC error; over HTTP with the status it came with.
    Error {
        /// HTTP only.
        status: Option<u16>,
        /// The error's code.
        code: i64,
        /// The versions it says are supported instead; empty when it does not say.
        supported: Vec<ProtocolVersion>,
    },
    /// An HTTP status with nothing in the body that we can read.
    Status(u16),
    /// Nothing in time, or the server hung up without an answer.
    Silence(Over),
}

impl ProbeAnswer {
    /// The answer in a JSON-RPC response; `status` is the HTTP status it came with.
    pub fn from_outcome(outcome: &Outcome<'_>, status: Option<u16>) -> Self {
        match outcome {
            Outcome::Result(result) => DiscoverResult::read(result)
                .map_or(Self::OtherResult, |discovered| Self::Discovered(discovered.supported)),
            Outcome::Error(error) => {
                let data = error.data.and_then(|data| Object::parse(data).ok());
                let listed =
                    data.and_then(|data| data.get("supported")).and_then(raw::items).unwrap_or_default();
                let supported =
                    listed.into_iter().filter_map(raw::text).map(|text| ProtocolVersion::new(&text));
                Self::Error { status, code: error.code, supported: supported.collect() }
            }
        }
    }
}

/// How the server was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Through the pipes of a child process.
    Stdio,
    /// Through HTTP.
    Http,
}

/// What an answer proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server is modern. `versions` is what it said it speaks; empty when it did not say.
    Modern {
        /// In the server's order.
        versions: Vec<ProtocolVersion>,
    },
    /// The server wants `initialize`.
    Legacy,
    /// Nothing; ask again later.
    NoVerdict,
}

/// Judges one answer.
pub fn verdict(answer: ProbeAnswer) -> Verdict {
    match answer {
        // A server may know discovery, or this error, and yet speak only versions that begin with
        // `initialize`.
        ProbeAnswer::Discovered(versions) if !any_modern(&versions) => Verdict::Legacy,
        ProbeAnswer::Discovered(versions) => Verdict::Modern { versions },
        ProbeAnswer::OtherResult => Verdict::Legacy,
        ProbeAnswer::Error { code, supported, .. } if codes::is_modern(code) => {
            if supported.is_empty() || any_modern(&supported) {
                Verdict::Modern { versions: supported }
            } else {
                Verdict::Legacy
            }
        }
        ProbeAnswer::Error { status: Some(status), .. } => by_status(status),
        ProbeAnswer::Error { status: None, .. } => Verdict::Legacy,
        ProbeAnswer::Status(status) => by_status(status),
        // Some legacy servers ignore what comes before `initialize`, others exit on it. A silent network says
        // nothing.
        ProbeAnswer::Silence(Over::Stdio) => Verdict::Legacy,
        ProbeAnswer::Silence(Over::Http) => Verdict::NoVerdict,
    }
}

fn any_modern(versions: &[ProtocolVersion]) -> bool {
    versions.iter().any(|version| version.era() == Era::Modern)
}

fn by_status(status: u16) -> Verdict {
    match status {
        // Authentication comes before any protocol; a request timeout or a rate limit comes from anybody on
        // the way.
        401 | 403 | 407 | 408 | 425 | 429 => Verdict::NoVerdict,
        // A legacy server answers an unknown method with 200 and an error.
        200..=299 | 400..=499 => Verdict::Legacy,
        _ => Verdict::NoVerdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Message;

    #[test]
    fn a_discover_result_proves_modern_only_with_a_modern_version() {
        let modern = vec![ProtocolVersion::V2025_11_25, ProtocolVersion::MODERN];
        assert_eq!(verdict(ProbeAnswer::Discovered(modern.clone())), Verdict::Modern { versions: modern });
        assert_eq!(verdict(ProbeAnswer::Discovered(vec![ProtocolVersion::V2025_11_25])), Verdict::Legacy);
    }

    #[test]
    fn modern_codes_prove_modern_whatever_the_status() {
        for code in [-32020, -32021, -32022] {
            for status in [None, Some(400), Some(200), Some(500)] {
                assert_eq!(
                    verdict(error(status, code)),
                    Verdict::Modern { versions: vec![] },
                    "{status:?} {code}"
                );
            }
        }
    }

    #[test]
    fn a_login_wall_or_a_broken_server_proves_nothing() {
        for status in [401, 403, 408, 429, 500, 502, 503, 504, 301] {
            assert_eq!(verdict(ProbeAnswer::Status(status)), Verdict::NoVerdict, "{status}");
            assert_eq!(verdict(error(Some(status), -32000)), Verdict::NoVerdict, "{status}");
        }
        assert_eq!(verdict(ProbeAnswer::Silence(Over::Http)), Verdict::NoVerdict);
    }

    #[test]
    fn the_ways_legacy_servers_refuse_a_modern_request() {
        for answer in [
            error(Some(400), -32000),
            error(Some(200), -32601),
            error(None, -32601),
            error(None, -32602),
            ProbeAnswer::Status(404),
            ProbeAnswer::Status(405),
            ProbeAnswer::OtherResult,
            ProbeAnswer::Silence(Over::Stdio),
        ] {
            assert_eq!(verdict(answer.clone()), Verdict::Legacy, "{answer:?}");
        }
    }

    #[test]
    fn the_versions_in_a_version_error_are_heard() {
        let verdict_on = |message: &str| {
            let Ok(Message::Response(response)) = Message::parse(message.as_bytes()) else {
                panic!("no response")
            };
            verdict(ProbeAnswer::from_outcome(&response.outcome, Some(400)))
        };
        let refused = |supported| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32022,"message":"","data":{{"supported":{supported}}}}}}}"#
            )
        };
        let later = ProtocolVersion::new("2027-01-01");
        assert_eq!(verdict_on(&refused(r#"["2027-01-01"]"#)), Verdict::Modern { versions: vec![later] });
        assert_eq!(verdict_on(&refused(r#"["2025-11-25"]"#)), Verdict::Legacy);
        assert_eq!(verdict_on(r#"{"jsonrpc":"2.0","id":1,"result":{"ok":true}}"#), Verdict::Legacy);
    }

    fn error(status: Option<u16>, code: i64) -> ProbeAnswer {
        ProbeAnswer::Error { status, code, supported: Vec::new() }
    }
}

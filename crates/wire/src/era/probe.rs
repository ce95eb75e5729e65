//! Determines the era of a server from its answer to `server/discover` or to any modern request. Judges one answer; the
//! host decides when to probe and how long to trust a verdict.
//!
//! Two answers prove nothing: a refusal because a login is missing, and a failure of the server. Storing "legacy" after
//! either would send a modern server `initialize` forever.

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
        /// Supported versions that the error lists; empty if it lists none.
        supported: Vec<ProtocolVersion>,
    },
    /// An HTTP status without a readable body.
    Status(u16),
    /// No answer in time, or the server closed the connection without an answer.
    Silence(ProbeTransport),
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

/// Transport of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeTransport {
    /// Through the pipes of a child process.
    Stdio,
    /// Through HTTP.
    Http,
}

/// Conclusion from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeVerdict {
    /// The server is modern. `versions` are those that it supports; empty if it lists none.
    Modern {
        /// In the server's order.
        versions: Vec<ProtocolVersion>,
    },
    /// The server expects `initialize`.
    Legacy,
    /// No conclusion; probe again later.
    NoVerdict,
}

/// Judges one answer.
pub fn verdict(answer: ProbeAnswer) -> ProbeVerdict {
    match answer {
        // A server may know discovery, or this error, and yet support only versions with `initialize`.
        ProbeAnswer::Discovered(versions) if !any_modern(&versions) => ProbeVerdict::Legacy,
        ProbeAnswer::Discovered(versions) => ProbeVerdict::Modern { versions },
        ProbeAnswer::OtherResult => ProbeVerdict::Legacy,
        ProbeAnswer::Error { code, supported, .. } if codes::is_modern(code) => {
            if supported.is_empty() || any_modern(&supported) {
                ProbeVerdict::Modern { versions: supported }
            } else {
                ProbeVerdict::Legacy
            }
        }
        ProbeAnswer::Error { status: Some(status), .. } => by_status(status),
        ProbeAnswer::Error { status: None, .. } => ProbeVerdict::Legacy,
        ProbeAnswer::Status(status) => by_status(status),
        // Some legacy servers ignore requests before `initialize`, others exit. A silent network proves nothing.
        ProbeAnswer::Silence(ProbeTransport::Stdio) => ProbeVerdict::Legacy,
        ProbeAnswer::Silence(ProbeTransport::Http) => ProbeVerdict::NoVerdict,
    }
}

fn any_modern(versions: &[ProtocolVersion]) -> bool {
    versions.iter().any(|version| version.era() == Era::Modern)
}

fn by_status(status: u16) -> ProbeVerdict {
    match status {
        // Authentication comes before the protocol; a request timeout or a rate limit may come from a proxy.
        401 | 403 | 407 | 408 | 425 | 429 => ProbeVerdict::NoVerdict,
        // A legacy server answers an unknown method with 200 and an error.
        200..=299 | 400..=499 => ProbeVerdict::Legacy,
        _ => ProbeVerdict::NoVerdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Message;

    #[test]
    fn a_discover_result_proves_modern_only_with_a_modern_version() {
        let modern = vec![ProtocolVersion::V2025_11_25, ProtocolVersion::MODERN];
        assert_eq!(
            verdict(ProbeAnswer::Discovered(modern.clone())),
            ProbeVerdict::Modern { versions: modern }
        );
        assert_eq!(
            verdict(ProbeAnswer::Discovered(vec![ProtocolVersion::V2025_11_25])),
            ProbeVerdict::Legacy
        );
    }

    #[test]
    fn modern_codes_prove_modern_whatever_the_status() {
        for code in [-32020, -32021, -32022] {
            for status in [None, Some(400), Some(200), Some(500)] {
                assert_eq!(
                    verdict(error(status, code)),
                    ProbeVerdict::Modern { versions: vec![] },
                    "{status:?} {code}"
                );
            }
        }
    }

    #[test]
    fn a_missing_login_or_a_failing_server_proves_nothing() {
        for status in [401, 403, 408, 429, 500, 502, 503, 504, 301] {
            assert_eq!(verdict(ProbeAnswer::Status(status)), ProbeVerdict::NoVerdict, "{status}");
            assert_eq!(verdict(error(Some(status), -32000)), ProbeVerdict::NoVerdict, "{status}");
        }
        assert_eq!(verdict(ProbeAnswer::Silence(ProbeTransport::Http)), ProbeVerdict::NoVerdict);
    }

    #[test]
    fn refusals_of_legacy_servers_prove_legacy() {
        for answer in [
            error(Some(400), -32000),
            error(Some(200), -32601),
            error(None, -32601),
            error(None, -32602),
            ProbeAnswer::Status(404),
            ProbeAnswer::Status(405),
            ProbeAnswer::OtherResult,
            ProbeAnswer::Silence(ProbeTransport::Stdio),
        ] {
            assert_eq!(verdict(answer.clone()), ProbeVerdict::Legacy, "{answer:?}");
        }
    }

    #[test]
    fn the_versions_in_a_version_error_are_used() {
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
        assert_eq!(verdict_on(&refused(r#"["2027-01-01"]"#)), ProbeVerdict::Modern { versions: vec![later] });
        assert_eq!(verdict_on(&refused(r#"["2025-11-25"]"#)), ProbeVerdict::Legacy);
        assert_eq!(verdict_on(r#"{"jsonrpc":"2.0","id":1,"result":{"ok":true}}"#), ProbeVerdict::Legacy);
    }

    fn error(status: Option<u16>, code: i64) -> ProbeAnswer {
        ProbeAnswer::Error { status, code, supported: Vec::new() }
    }
}

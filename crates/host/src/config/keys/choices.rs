//! The words that some keys choose from, and what each means.

use crate::audit::AuditKeeps;
use crate::config::access::TokenTypes;
use crate::config::spec::{Grant, Isolation, LogFormat, LoginKey, PinMode, ProtocolChoice};
use crate::ledger::Keeps;
use gripfast_core::supervise::spec::WhenDown;

/// How `transport` may be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Transport {
    Auto,
    Stdio,
    Http,
    Sse,
}

/// How calls are counted within a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Counting {
    Sliding,
    Fixed,
}

pub(in crate::config) const TRANSPORTS: &[(&str, Transport)] = &[
    ("auto", Transport::Auto),
    ("stdio", Transport::Stdio),
    ("http", Transport::Http),
    ("sse", Transport::Sse),
];

pub(in crate::config) const PROTOCOLS: &[(&str, ProtocolChoice)] =
    &[("auto", ProtocolChoice::Auto), ("legacy", ProtocolChoice::Legacy), ("modern", ProtocolChoice::Modern)];

pub(in crate::config) const ISOLATIONS: &[(&str, Isolation)] =
    &[("auto", Isolation::Auto), ("shared", Isolation::Shared), ("per_client", Isolation::PerClient)];

pub(in crate::config) const PIN_MODES: &[(&str, PinMode)] = &[
    ("enforce", PinMode::Enforce),
    ("strict", PinMode::Strict),
    ("warn", PinMode::Warn),
    ("off", PinMode::Off),
];

pub(in crate::config) const WHEN_DOWN: &[(&str, WhenDown)] =
    &[("keep", WhenDown::Keep), ("withdraw", WhenDown::Withdraw)];

pub(in crate::config) const GRANTS: &[(&str, Grant)] =
    &[("authorization_code", Grant::AuthorizationCode), ("client_credentials", Grant::ClientCredentials)];

pub(in crate::config) const TOKEN_TYPES: &[(&str, TokenTypes)] =
    &[("any", TokenTypes::Any), ("at+jwt", TokenTypes::AccessToken)];

pub(in crate::config) const COUNTINGS: &[(&str, Counting)] =
    &[("sliding", Counting::Sliding), ("fixed", Counting::Fixed)];

pub(in crate::config) const SUBJECTS: &[&str] = &["client", "server", "tool"];

pub(in crate::config) fn ledgers() -> [(&'static str, Keeps); 3] {
    [Keeps::Nothing, Keeps::Digest, Keeps::Arguments].map(|keeps| (keeps.word(), keeps))
}

pub(in crate::config) fn audits() -> [(&'static str, AuditKeeps); 3] {
    [AuditKeeps::Nothing, AuditKeeps::Digest, AuditKeeps::Arguments].map(|keeps| (keeps.word(), keeps))
}

pub(in crate::config) fn log_formats() -> [(&'static str, LogFormat); 2] {
    LogFormat::ALL.map(|format| (format.word(), format))
}

pub(in crate::config) fn login_keys() -> [(&'static str, LoginKey); 2] {
    LoginKey::ALL.map(|key| (key.word(), key))
}

/// The words alone.
pub(super) fn of<T>(choices: &[(&'static str, T)]) -> Vec<&'static str> {
    choices.iter().map(|(word, _)| *word).collect()
}

/// The word for a meaning.
pub(super) fn for_meaning<T: PartialEq>(choices: &[(&'static str, T)], meant: &T) -> String {
    choices
        .iter()
        .find(|(_, meaning)| meaning == meant)
        .map(|(word, _)| (*word).to_owned())
        .unwrap_or_default()
}

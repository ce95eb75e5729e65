//! The words that keys with a fixed set of values accept, and their meanings.

use crate::config::access::TokenTypes;
use crate::config::spec::{Grant, Isolation, LogFormat, LoginKey, PinMode, ProtocolChoice};
use crate::records::RecordDetail;
use gripfast_core::supervise::spec::WhenDown;

/// Values of the key `transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum TransportChoice {
    Auto,
    Stdio,
    Http,
    Sse,
}

/// Values of the key `window` of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum WindowChoice {
    Sliding,
    Fixed,
}

pub(in crate::config) const TRANSPORTS: &[(&str, TransportChoice)] = &[
    ("auto", TransportChoice::Auto),
    ("stdio", TransportChoice::Stdio),
    ("http", TransportChoice::Http),
    ("sse", TransportChoice::Sse),
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

pub(in crate::config) const WINDOWS: &[(&str, WindowChoice)] =
    &[("sliding", WindowChoice::Sliding), ("fixed", WindowChoice::Fixed)];

pub(in crate::config) const BUDGET_SCOPES: &[&str] = &["client", "server", "tool"];

pub(in crate::config) fn ledgers() -> [(&'static str, RecordDetail); 3] {
    [RecordDetail::Nothing, RecordDetail::Digest, RecordDetail::Arguments].map(|keeps| (keeps.word(), keeps))
}

pub(in crate::config) fn audits() -> [(&'static str, RecordDetail); 3] {
    [RecordDetail::Nothing, RecordDetail::Digest, RecordDetail::Arguments].map(|keeps| (keeps.word(), keeps))
}

pub(in crate::config) fn log_formats() -> [(&'static str, LogFormat); 2] {
    LogFormat::ALL.map(|format| (format.as_str(), format))
}

pub(in crate::config) fn login_keys() -> [(&'static str, LoginKey); 2] {
    LoginKey::ALL.map(|key| (key.as_str(), key))
}

/// The words alone.
pub(super) fn names<T>(choices: &[(&'static str, T)]) -> Vec<&'static str> {
    choices.iter().map(|(word, _)| *word).collect()
}

/// The word for a meaning.
pub(super) fn name_of<T: PartialEq>(choices: &[(&'static str, T)], wanted: &T) -> String {
    choices
        .iter()
        .find(|(_, meaning)| meaning == wanted)
        .map(|(word, _)| (*word).to_owned())
        .unwrap_or_default()
}

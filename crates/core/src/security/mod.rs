//! Security events: failed authentications, actions of operators, and changes of keys and trust. They concern the gateway
//! as a whole and not one server. `throttle` decides how failed authentications are reported and when they are answered,
//! `sign_in` which sign-in codes and dashboard sessions are valid.

mod sign_in;
mod throttle;

pub use sign_in::{SecretDigest, SignIns};
pub use throttle::{AuthThrottle, Decision, network};

use crate::text::names;
use std::fmt;
use std::net::IpAddr;

/// Something that an operator wants to find when an attack is looked into. It never holds a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecurityEvent {
    /// Requests that did not authenticate.
    AuthFailed(AuthFailures),
    /// An operator acted through the admin API.
    AdminAction {
        /// What was done.
        action: AdminAction,
        /// The server that it was done to, as the request named it.
        server: Option<String>,
        /// The tool that it was about.
        tool: Option<String>,
        /// Where the request came from.
        source: Source,
        /// The HTTP status of the answer; `None` if the client did not wait for it.
        status: Option<u16>,
    },
    /// Keys of clients, or the admin token, changed.
    KeysChanged {
        /// How.
        change: KeyChange,
        /// The names of the keys; empty for the admin token.
        names: Vec<String>,
        /// The user who did it; `None` if a gateway noticed it in the state directory.
        actor: Option<String>,
    },
    /// A config file was trusted, or is not trusted any more.
    TrustChanged {
        /// Which of the two.
        decision: TrustDecision,
        /// The file.
        path: String,
        /// The user or request that decided; `None` if a gateway noticed it in the list of trusted files.
        actor: Option<String>,
    },
}

/// Failed authentications: one, or several that are told together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthFailures {
    /// What the last of them asked for.
    pub target: AuthTarget,
    /// Why the last of them failed.
    pub reason: AuthFailure,
    /// The principal of the credential that the last of them showed, if it was one of ours.
    pub principal: Option<String>,
    /// Where they came from.
    pub source: Source,
    /// How many there are.
    pub count: u64,
}

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A TCP connection from this address.
    Address(IpAddr),
    /// The control socket in the state directory.
    ControlSocket,
    /// More addresses than are told one by one.
    Several,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::ControlSocket => f.write_str("control socket"),
            Self::Several => f.write_str("several addresses"),
        }
    }
}

/// What a request has to authenticate for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuthTarget {
    /// The endpoint of MCP clients.
    Mcp,
    /// Reading through the admin API.
    AdminRead,
    /// Acting through the admin API.
    AdminAction,
    /// The control socket.
    ControlSocket,
}

impl AuthTarget {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Mcp, Self::AdminRead, Self::AdminAction, Self::ControlSocket];

    /// The word in metrics, events and the audit log.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::AdminRead => "admin_read",
            Self::AdminAction => "admin_action",
            Self::ControlSocket => "control_socket",
        }
    }
}

/// Why a request did not authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuthFailure {
    /// It has no credential. Clients that look for the way to log in begin like this.
    NoCredential,
    /// Its `Authorization` is not one bearer token.
    Malformed,
    /// Its key is not known.
    UnknownKey,
    /// Its key or token has expired.
    Expired,
    /// Its token is not one of the issuer for this gateway.
    InvalidToken,
    /// Its token lacks a scope.
    InsufficientScope,
    /// It shows something else than the admin token.
    WrongAdminToken,
    /// It shows a sign-in code that was used, has expired or never existed.
    InvalidSignInCode,
    /// It comes from a web page of another origin.
    ForeignOrigin,
    /// It comes from a process of another user.
    OtherUser,
    /// The issuer's keys cannot be had, so no token can be checked. This says nothing against the client.
    CannotCheck,
}

impl AuthFailure {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::NoCredential,
        Self::Malformed,
        Self::UnknownKey,
        Self::Expired,
        Self::InvalidToken,
        Self::InsufficientScope,
        Self::WrongAdminToken,
        Self::InvalidSignInCode,
        Self::ForeignOrigin,
        Self::OtherUser,
        Self::CannotCheck,
    ];

    /// The word in metrics, events and the audit log.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NoCredential => "no_credential",
            Self::Malformed => "malformed",
            Self::UnknownKey => "unknown_key",
            Self::Expired => "expired",
            Self::InvalidToken => "invalid_token",
            Self::InsufficientScope => "insufficient_scope",
            Self::WrongAdminToken => "wrong_admin_token",
            Self::InvalidSignInCode => "invalid_sign_in_code",
            Self::ForeignOrigin => "foreign_origin",
            Self::OtherUser => "other_user",
            Self::CannotCheck => "cannot_check",
        }
    }
}

/// An action of the admin API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminAction {
    /// Replaces the link of a server.
    Reconnect,
    /// Forgets the failures of a server and replaces its link.
    Reload,
    /// Stops a server.
    Stop,
    /// Starts a server.
    Start,
    /// Approves what tools of a server say.
    Approve,
    /// Calls a tool.
    Call,
    /// Begins a login to a server.
    Login,
    /// Takes the config file as it is now.
    ReloadConfig,
    /// Makes a sign-in link for the dashboard.
    SignInLink,
    /// Signs a browser in to the dashboard.
    SignIn,
    /// An action that does not exist.
    Unknown,
}

impl AdminAction {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Reconnect,
        Self::Reload,
        Self::Stop,
        Self::Start,
        Self::Approve,
        Self::Call,
        Self::Login,
        Self::ReloadConfig,
        Self::SignInLink,
        Self::SignIn,
        Self::Unknown,
    ];

    /// The word in metrics, events and the audit log.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reconnect => "reconnect",
            Self::Reload => "reload",
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Approve => "approve",
            Self::Call => "call",
            Self::Login => "login",
            Self::ReloadConfig => "reload_config",
            Self::SignInLink => "sign_in_link",
            Self::SignIn => "sign_in",
            Self::Unknown => "unknown",
        }
    }
}

/// A change of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyChange {
    /// Keys of clients were added.
    Added,
    /// Keys of clients were removed.
    Removed,
    /// Keys of clients end at another time than before.
    ExpiryChanged,
    /// The admin token was replaced.
    AdminToken,
}

impl KeyChange {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Added, Self::Removed, Self::ExpiryChanged, Self::AdminToken];

    /// The word in metrics, events and the audit log.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::ExpiryChanged => "expiry_changed",
            Self::AdminToken => "admin_token",
        }
    }
}

/// A decision about a config file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrustDecision {
    /// It is used for what it says.
    Trusted,
    /// It is not used.
    Untrusted,
}

impl TrustDecision {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Trusted, Self::Untrusted];

    /// The word in metrics, events and the audit log.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Untrusted => "untrusted",
        }
    }
}

impl SecurityEvent {
    /// The word for this kind of event in logs, events and the audit log.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::AuthFailed(_) => "auth_failed",
            Self::AdminAction { .. } => "admin_action",
            Self::KeysChanged { .. } => "keys_changed",
            Self::TrustChanged { .. } => "trust_changed",
        }
    }
}

/// The event as a sentence. The only wording there is.
impl fmt::Display for SecurityEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AuthFailed(failures) => write!(f, "{failures}"),
            Self::AdminAction { action, server, tool, source, status } => {
                write!(f, "admin action `{}`", action.word())?;
                if let Some(tool) = tool {
                    write!(f, " of tool `{tool}`")?;
                }
                if let Some(server) = server {
                    write!(f, " on server `{server}`")?;
                }
                write!(f, " from {source}: ")?;
                match status {
                    Some(status) => write!(f, "HTTP {status}"),
                    None => f.write_str("the client left before the answer"),
                }
            }
            Self::KeysChanged { change, names: all, actor } => {
                let all: Vec<&str> = all.iter().map(String::as_str).collect();
                match change {
                    KeyChange::Added => write!(f, "client keys added: {}", names(&all))?,
                    KeyChange::Removed => write!(f, "client keys removed: {}", names(&all))?,
                    KeyChange::ExpiryChanged => {
                        write!(f, "client keys with another expiry: {}", names(&all))?;
                    }
                    KeyChange::AdminToken => f.write_str("admin token replaced")?,
                }
                by(f, actor.as_deref())
            }
            Self::TrustChanged { decision, path, actor } => {
                match decision {
                    TrustDecision::Trusted => write!(f, "config `{path}` is trusted")?,
                    TrustDecision::Untrusted => write!(f, "config `{path}` is not trusted any more")?,
                }
                by(f, actor.as_deref())
            }
        }
    }
}

impl fmt::Display for AuthFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, reason, principal, source, count } = self;
        match count {
            1 => write!(f, "failed authentication from {source}")?,
            many => write!(f, "{many} failed authentications from {source}, the last one")?,
        }
        f.write_str(match target {
            AuthTarget::Mcp => " at the MCP endpoint",
            AuthTarget::AdminRead => " to read from the admin API",
            AuthTarget::AdminAction => " to act through the admin API",
            AuthTarget::ControlSocket => " at the control socket",
        })?;
        if let Some(principal) = principal {
            write!(f, " as `{principal}`")?;
        }
        f.write_str(match reason {
            AuthFailure::NoCredential => ": no credential",
            AuthFailure::Malformed => ": `Authorization` is not one bearer token",
            AuthFailure::UnknownKey => ": unknown key",
            AuthFailure::Expired => ": expired key or token",
            AuthFailure::InvalidToken => ": invalid token",
            AuthFailure::InsufficientScope => ": the token lacks a scope",
            AuthFailure::WrongAdminToken => ": wrong admin token",
            AuthFailure::InvalidSignInCode => ": invalid sign-in code",
            AuthFailure::ForeignOrigin => ": a web page of another origin",
            AuthFailure::OtherUser => ": a process of another user",
            AuthFailure::CannotCheck => ": tokens cannot be checked at the moment",
        })
    }
}

fn by(f: &mut fmt::Formatter<'_>, actor: Option<&str>) -> fmt::Result {
    actor.map_or(Ok(()), |actor| write!(f, " (by {actor})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn security_events_read_as_sentences() {
        let source = Source::Address([192, 0, 2, 7].into());
        let failed = |count, principal: Option<&str>| {
            let principal = principal.map(str::to_owned);
            let (target, reason) = (AuthTarget::Mcp, AuthFailure::Expired);
            SecurityEvent::AuthFailed(AuthFailures { target, reason, principal, source, count }).to_string()
        };
        assert_eq!(
            failed(1, Some("laptop")),
            "failed authentication from 192.0.2.7 at the MCP endpoint as `laptop`: expired key or token"
        );
        assert_eq!(
            failed(40, None),
            "40 failed authentications from 192.0.2.7, the last one at the MCP endpoint: expired key or token"
        );
        let acted = SecurityEvent::AdminAction {
            action: AdminAction::Stop,
            server: Some("demo".to_owned()),
            tool: None,
            source: Source::ControlSocket,
            status: Some(202),
        };
        assert_eq!(acted.to_string(), "admin action `stop` on server `demo` from control socket: HTTP 202");
        let keys = SecurityEvent::KeysChanged {
            change: KeyChange::Removed,
            names: vec!["laptop".to_owned()],
            actor: Some("uid 1000".to_owned()),
        };
        assert_eq!(keys.to_string(), "client keys removed: `laptop` (by uid 1000)");
    }
}

//! Security events: failed authentications, actions of operators, and changes of keys and trust. They concern the whole
//! gateway and not one server. `throttle` decides how failed authentications are reported and delayed, `sign_in` which
//! sign-in codes and dashboard sessions are valid.

mod sign_in;
mod throttle;

pub use sign_in::{SecretDigest, SignIns};
pub use throttle::{AuthThrottle, ThrottleDecision, network};

use crate::text::name_list;
use std::fmt;
use std::net::IpAddr;

/// A security event, for the investigation of attacks. It never contains a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecurityEvent {
    /// Requests that did not authenticate.
    AuthFailed(AuthFailures),
    /// An operator acted through the admin API.
    AdminAction {
        /// The action.
        action: AdminAction,
        /// The server, as named in the request.
        server: Option<String>,
        /// The tool.
        tool: Option<String>,
        /// The source of the request.
        source: RequestSource,
        /// The HTTP status of the answer; `None` if the client did not wait for it.
        status: Option<u16>,
    },
    /// Client keys or the admin token changed.
    KeysChanged {
        /// The change.
        change: KeyChange,
        /// The names of the keys; empty for the admin token.
        names: Vec<String>,
        /// The user who did it; `None` if a gateway noticed it in the state directory.
        actor: Option<String>,
    },
    /// A config file was trusted, or is not trusted any more.
    TrustChanged {
        /// The decision.
        decision: TrustDecision,
        /// The file.
        path: String,
        /// The user or request that decided; `None` if a gateway noticed it in the list of trusted files.
        actor: Option<String>,
    },
}

/// One failed authentication, or several that are reported together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthFailures {
    /// The target of the last one.
    pub target: AuthTarget,
    /// The reason of the last one.
    pub reason: AuthFailure,
    /// The principal of the last one, if its credential was recognised.
    pub principal: Option<String>,
    /// The source.
    pub source: RequestSource,
    /// The number of failures.
    pub count: u64,
}

/// Source of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSource {
    /// A TCP connection from this address.
    Address(IpAddr),
    /// The control socket in the state directory.
    ControlSocket,
    /// More addresses than are reported individually.
    Several,
}

impl fmt::Display for RequestSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::ControlSocket => f.write_str("control socket"),
            Self::Several => f.write_str("several addresses"),
        }
    }
}

word_enum! {
    /// Target that a request has to authenticate for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum AuthTarget {
        /// The MCP endpoint.
        Mcp = "mcp",
        /// Reading through the admin API.
        AdminRead = "admin_read",
        /// Acting through the admin API.
        AdminAction = "admin_action",
        /// The control socket.
        ControlSocket = "control_socket",
    }
}

word_enum! {
    /// Reason for a failed authentication.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum AuthFailure {
        /// It has no credential. Clients that discover the login start like this.
        NoCredential = "no_credential",
        /// Its `Authorization` is not one bearer token.
        Malformed = "malformed",
        /// Its key is unknown.
        UnknownKey = "unknown_key",
        /// Its key or token has expired.
        Expired = "expired",
        /// Its token was not issued by the issuer for this gateway.
        InvalidToken = "invalid_token",
        /// Its token lacks a scope.
        InsufficientScope = "insufficient_scope",
        /// It has another token than the admin token.
        WrongAdminToken = "wrong_admin_token",
        /// Its sign-in code was used, has expired or never existed.
        InvalidSignInCode = "invalid_sign_in_code",
        /// It comes from a web page of another origin.
        ForeignOrigin = "foreign_origin",
        /// It comes from a process of another user.
        OtherUser = "other_user",
        /// The issuer's keys cannot be fetched, so no token can be checked. The client is not at fault.
        CannotCheck = "cannot_check",
    }
}

word_enum! {
    /// An action of the admin API.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum AdminAction {
        /// Replaces the link of a server.
        Reconnect = "reconnect",
        /// Resets the failures of a server and replaces its link.
        Reload = "reload",
        /// Stops a server.
        Stop = "stop",
        /// Starts a server.
        Start = "start",
        /// Approves changed tools of a server.
        Approve = "approve",
        /// Calls a tool.
        Call = "call",
        /// Starts a login to a server.
        Login = "login",
        /// Applies the config file as it is now.
        ReloadConfig = "reload_config",
        /// Creates a sign-in link for the dashboard.
        SignInLink = "sign_in_link",
        /// Signs a browser in to the dashboard.
        SignIn = "sign_in",
        /// An action that does not exist.
        Unknown = "unknown",
    }
}

word_enum! {
    /// A change of keys.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum KeyChange {
        /// Client keys were added.
        Added = "added",
        /// Client keys were removed.
        Removed = "removed",
        /// The expiry of client keys changed.
        ExpiryChanged = "expiry_changed",
        /// The admin token was replaced.
        AdminToken = "admin_token",
    }
}

word_enum! {
    /// A decision about a config file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum TrustDecision {
        /// Its content is applied.
        Trusted = "trusted",
        /// It is not used.
        Untrusted = "untrusted",
    }
}

impl SecurityEvent {
    /// The kind of event in logs, events and the audit log.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::AuthFailed(_) => "auth_failed",
            Self::AdminAction { .. } => "admin_action",
            Self::KeysChanged { .. } => "keys_changed",
            Self::TrustChanged { .. } => "trust_changed",
        }
    }
}

/// The text of the event. The only place with these texts.
impl fmt::Display for SecurityEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AuthFailed(failures) => write!(f, "{failures}"),
            Self::AdminAction { action, server, tool, source, status } => {
                write!(f, "admin action `{}`", action.as_str())?;
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
                    KeyChange::Added => write!(f, "client keys added: {}", name_list(&all))?,
                    KeyChange::Removed => write!(f, "client keys removed: {}", name_list(&all))?,
                    KeyChange::ExpiryChanged => {
                        write!(f, "expiry of client keys changed: {}", name_list(&all))?;
                    }
                    KeyChange::AdminToken => f.write_str("admin token replaced")?,
                }
                by(f, actor.as_deref())
            }
            Self::TrustChanged { decision, path, actor } => {
                match decision {
                    TrustDecision::Trusted => write!(f, "config `{path}` is trusted")?,
                    TrustDecision::Untrusted => write!(f, "config `{path}` is no longer trusted")?,
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
            AuthTarget::AdminRead => " at the admin API (read)",
            AuthTarget::AdminAction => " at the admin API (action)",
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
    fn security_events_have_readable_texts() {
        let source = RequestSource::Address([192, 0, 2, 7].into());
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
            source: RequestSource::ControlSocket,
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

//! Credentials that a command sends to a gateway, and the channels through which each may be sent.
//!
//! The admin token of a state directory is sent through the control socket in that directory, and never over TCP.
//! Credentials in the environment are sent to the gateway that the user named: the token over https, a client's key
//! also to a loopback address, as other MCP clients send theirs.

use super::address::GatewayUrl;
use super::error::FailureReport;
use super::exit::Exit;
#[cfg(unix)]
use gripfast::private_files;
use gripfast_gateway::api::TOKEN_FILE;
#[cfg(unix)]
use std::io::{self, Read};
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;

/// Environment variable with the admin token of a gateway on another machine.
pub(super) const TOKEN: &str = "GRIPFAST_TOKEN";
/// Environment variable with the credential of a client: an API key, or a token of the gateway's issuer.
pub(super) const KEY: &str = "GRIPFAST_KEY";
/// Environment variable with the host and port of the one gateway that may be sent a client's key without TLS.
pub(super) const CLEARTEXT: &str = "GRIPFAST_CLEARTEXT";

/// Largest token file that is read.
#[cfg(unix)]
const MAX_TOKEN: u64 = 1024;

/// The admin token for one gateway, or the reason for which none is sent.
#[derive(Debug)]
pub(crate) struct AdminToken {
    source: Source,
    sent: Result<String, WithheldReason>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// The file in the state directory of the gateway.
    File(PathBuf),
    /// `$GRIPFAST_TOKEN`.
    Variable,
}

/// The reason for which no token is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WithheldReason {
    /// There is no token at its source.
    Missing(String),
    /// The gateway is on this machine and has no control socket in the state directory.
    NoSocket(SocketError),
    /// The token would cross a network without TLS.
    Cleartext,
}

/// The reason for which a gateway on this machine cannot be reached through its control socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SocketError {
    /// No gateway that uses this state directory listens at the address.
    NotThere(PathBuf),
    /// The sockets in the state directory cannot be used.
    #[cfg(unix)]
    Unusable {
        /// The folder of the sockets.
        folder: PathBuf,
        /// The objection to the folder, or to the process that listens there.
        why: String,
    },
    /// There is no home directory, and so no state directory.
    NoStateDir,
}

impl AdminToken {
    /// The token in the state directory, which must belong to user `owner`, for the gateway behind the control socket.
    #[cfg(unix)]
    pub(crate) fn from_state_dir(state_dir: &Path, owner: u32) -> Self {
        let path = state_dir.join(TOKEN_FILE);
        let sent = read_token(&path, owner).map_err(|error| WithheldReason::Missing(error.to_string()));
        Self { source: Source::File(path), sent }
    }

    /// No token, for a gateway on this machine without a control socket.
    pub(crate) fn without_socket(reason: SocketError) -> Self {
        Self { source: Source::Variable, sent: Err(WithheldReason::NoSocket(reason)) }
    }

    /// The token for a gateway on another machine.
    pub(crate) fn from_env(url: &GatewayUrl) -> Self {
        Self { source: Source::Variable, sent: token_for_network(url, variable(TOKEN)) }
    }

    pub(crate) fn value(&self) -> Option<&str> {
        self.sent.as_deref().ok()
    }

    /// The failure of a command that the gateway at `url` refused because the token was missing or wrong.
    pub(crate) fn refused(&self, url: &GatewayUrl, hint: Option<String>) -> FailureReport {
        let place = hint.map(|hint| format!("{hint}; ")).unwrap_or_default();
        let (text, hint) = match (&self.sent, &self.source) {
            (Ok(_), Source::File(path)) => (
                format!("the gateway at {url} refused the admin token in `{}`", path.display()),
                format!("{place}`--state-dir` names the state directory of that gateway"),
            ),
            (Ok(_), Source::Variable) => (
                format!("the gateway at {url} refused the admin token in ${TOKEN}"),
                format!("{place}set ${TOKEN} to the admin token of this gateway"),
            ),
            (Err(WithheldReason::Missing(why)), Source::File(path)) => (
                format!(
                    "the gateway at {url} needs its admin token, which cannot be read from `{}`: {why}",
                    path.display()
                ),
                format!("{place}`gripfast token rotate` creates a new one"),
            ),
            (Err(WithheldReason::Missing(why)), Source::Variable) => (
                format!("the gateway at {url} needs its admin token: {why}"),
                format!(
                    "{place}set ${TOKEN} to the content of `{TOKEN_FILE}` in the gateway's state directory"
                ),
            ),
            (Err(WithheldReason::NoSocket(reason)), _) => (
                format!("the gateway at {url} needs its admin token, but {}", reason.text()),
                format!("{place}{}", reason.hint()),
            ),
            (Err(WithheldReason::Cleartext), _) => (cleartext_refusal(url, TOKEN), USE_HTTPS.to_owned()),
        };
        FailureReport::new(Exit::Denied, text).with_hint(hint)
    }

    /// The failure of an action that was not sent to the gateway at `url`, because the token may not be sent there.
    pub(crate) fn not_sent(&self, url: &GatewayUrl) -> FailureReport {
        match &self.sent {
            Err(WithheldReason::NoSocket(reason)) => {
                let text = format!("the admin token was not sent to {url}: {}", reason.text());
                FailureReport::new(Exit::Unreachable, text).with_hint(reason.hint())
            }
            Ok(_) | Err(WithheldReason::Missing(_) | WithheldReason::Cleartext) => self.refused(url, None),
        }
    }
}

impl SocketError {
    fn text(&self) -> String {
        match self {
            Self::NotThere(state_dir) => {
                format!("no gateway with the state directory `{}` listens there", state_dir.display())
            }
            #[cfg(unix)]
            Self::Unusable { why, .. } => format!("its control socket cannot be used: {why}"),
            Self::NoStateDir => {
                "there is no home directory, and so no state directory with a token".to_owned()
            }
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::NotThere(_) | Self::NoStateDir => {
                "`--state-dir` names the state directory of the gateway that listens there".to_owned()
            }
            #[cfg(unix)]
            Self::Unusable { folder, .. } => format!(
                "run the command as the user of the gateway; only that user may have access to `{}`",
                folder.display()
            ),
        }
    }
}

/// The key of a client for one gateway.
#[derive(Debug)]
pub(crate) struct ClientKey {
    /// `None` if the key may not be sent to this gateway.
    sent: Option<String>,
}

impl ClientKey {
    /// Returns true if `$GRIPFAST_KEY` is set.
    pub(crate) fn is_set() -> bool {
        variable(KEY).is_some()
    }

    /// The key in `$GRIPFAST_KEY` for the gateway at `url`; `by_socket` if that is reached through its control socket.
    /// `None` without a key.
    pub(crate) fn from_env(url: &GatewayUrl, by_socket: bool) -> Option<Self> {
        let key = variable(KEY)?;
        let may_go = by_socket || may_send_key(url, variable(CLEARTEXT).as_deref());
        Some(Self { sent: may_go.then_some(key) })
    }

    pub(crate) fn value(&self) -> Option<&str> {
        self.sent.as_deref()
    }

    /// The failure of a command that the gateway at `url` refused because the key was missing or wrong.
    pub(crate) fn refused(key: Option<&Self>, url: &GatewayUrl) -> FailureReport {
        let (text, hint) = match key {
            Some(Self { sent: None }) if !url.is_named() => (
                format!(
                    "${KEY} was not sent to the gateway at {url}, because neither `--url` nor `$GRIPFAST_URL` names \
                     this gateway"
                ),
                format!("`--url {url}` names it"),
            ),
            Some(Self { sent: None }) => (
                cleartext_refusal(url, KEY),
                format!("{USE_HTTPS}; or set {CLEARTEXT}={} if the network is trusted", url.authority()),
            ),
            Some(Self { sent: Some(_) }) | None => (
                format!("the gateway at {url} needs a valid key"),
                format!("`gripfast keys add NAME` creates one; set ${KEY} to it"),
            ),
        };
        FailureReport::new(Exit::Denied, text).with_hint(hint)
    }
}

/// The token of the environment, if it may be sent to the gateway at `url` on another machine.
fn token_for_network(url: &GatewayUrl, token: Option<String>) -> Result<String, WithheldReason> {
    match token {
        Some(token) if url.is_encrypted() => Ok(token),
        Some(_) => Err(WithheldReason::Cleartext),
        None => Err(WithheldReason::Missing(format!("${TOKEN} is not set"))),
    }
}

/// Returns true if a client's key may be sent over the network to `url`.
fn may_send_key(url: &GatewayUrl, in_clear: Option<&str>) -> bool {
    url.is_named() && (url.is_encrypted() || url.is_loopback() || in_clear == Some(url.authority()))
}

/// Reads the token from a file that must belong to `owner`. Does not follow symlinks.
#[cfg(unix)]
fn read_token(path: &Path, owner: u32) -> io::Result<String> {
    use std::os::unix::fs::MetadataExt;
    let file = private_files::open(path, |how| how.read(true))?;
    if file.metadata()?.uid() != owner {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    let mut text = String::new();
    file.take(MAX_TOKEN).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

const USE_HTTPS: &str = "use https, or run the command on the gateway's machine";

fn cleartext_refusal(url: &GatewayUrl, name: &str) -> String {
    format!("${name} was not sent to the gateway at {url}: without TLS it could be read on the network")
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(typed: &str) -> GatewayUrl {
        typed.parse().unwrap()
    }

    #[test]
    fn g05_the_admin_token_of_the_environment_is_sent_over_https_only() {
        let sent = |typed: &str| token_for_network(&url(typed), Some("secret".to_owned()));
        assert_eq!(sent("https://mcp.example.com"), Ok("secret".to_owned()));
        for seen in ["http://mcp.example.com", "http://10.0.0.5:7331", "http://127.0.0.1@10.0.0.5:7331"] {
            assert_eq!(sent(seen), Err(WithheldReason::Cleartext), "{seen}");
        }
        assert!(matches!(
            token_for_network(&url("https://mcp.example.com"), None),
            Err(WithheldReason::Missing(_))
        ));
    }

    #[test]
    fn a_key_is_sent_over_tls_or_loopback_or_if_the_user_allows_cleartext() {
        for safe in [
            "https://mcp.example.com",
            "http://127.0.0.1:7331",
            "http://[::1]:7331",
            "http://localhost:7331",
            "127.0.0.2:80",
        ] {
            assert!(may_send_key(&url(safe), None), "{safe}");
        }
        for seen in [
            "http://mcp.example.com",
            "http://10.0.0.5:7331",
            "http://localhost.example.com",
            "http://127.0.0.1@10.0.0.5:7331",
        ] {
            assert!(!may_send_key(&url(seen), None), "{seen}");
            assert!(!may_send_key(&url(seen), Some("10.0.0.6:7331")), "{seen}");
        }
        assert!(may_send_key(&url("http://10.0.0.5:7331"), Some("10.0.0.5:7331")));
        assert!(!may_send_key(&GatewayUrl::default(), None), "the user has not named it");
    }

    #[test]
    fn the_error_for_a_withheld_key_tells_how_to_send_it() {
        let elsewhere = url("http://10.0.0.5:7331");
        let failure = ClientKey::refused(Some(&ClientKey { sent: None }), &elsewhere);
        let hint = failure.hint.unwrap();
        assert!(failure.text.contains("$GRIPFAST_KEY was not sent"), "{}", failure.text);
        assert!(hint.contains("GRIPFAST_CLEARTEXT=10.0.0.5:7331"), "{hint}");
        let failure = ClientKey::refused(Some(&ClientKey { sent: None }), &GatewayUrl::default());
        assert!(failure.hint.unwrap().contains("`--url http://127.0.0.1:7331`"));
    }

    #[cfg(unix)]
    #[test]
    fn the_token_of_another_user_is_not_read() {
        use std::os::unix::fs::MetadataExt;
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join(TOKEN_FILE), "mine\n").unwrap();
        let owner = state.path().metadata().unwrap().uid();
        assert_eq!(AdminToken::from_state_dir(state.path(), owner).value(), Some("mine"));
        let other = AdminToken::from_state_dir(state.path(), owner + 1);
        assert_eq!(other.sent, Err(WithheldReason::Missing("it belongs to another user".to_owned())));
    }
}

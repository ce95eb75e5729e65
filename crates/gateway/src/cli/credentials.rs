//! The credentials that a command sends to a gateway, and where each of them may go.
//!
//! The admin token of a state directory goes through the control socket in that directory, and never over TCP. What the
//! environment holds goes to the gateway that the user has named: the token over https, a client's key also to a
//! loopback address, as other MCP clients send theirs.

use super::address::GatewayUrl;
use super::exit::Exit;
use super::gateway::Refusal;
use super::stop::Failure;
#[cfg(unix)]
use gripfast::private_files;
use gripfast_gateway::admin::TOKEN_FILE;
#[cfg(unix)]
use std::io::{self, Read};
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;

/// Holds the admin token of a gateway on another machine.
pub(super) const TOKEN: &str = "GRIPFAST_TOKEN";
/// Holds what a client shows: an API key, or a token of the issuer that the gateway asks.
pub(super) const KEY: &str = "GRIPFAST_KEY";
/// Names the one gateway, by host and port, that is sent a client's key without TLS.
pub(super) const CLEARTEXT: &str = "GRIPFAST_CLEARTEXT";

/// A longer file holds something else.
#[cfg(unix)]
const LONGEST_TOKEN: u64 = 1024;

/// The admin token for one gateway, or why none is sent.
#[derive(Debug)]
pub(crate) struct AdminToken {
    source: Source,
    sent: Result<String, Withheld>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// The file in the state directory of the gateway.
    File(PathBuf),
    /// `$GRIPFAST_TOKEN`.
    Variable,
}

/// Why no token is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Withheld {
    /// There is none where it was looked for.
    Missing(String),
    /// It is a gateway of this machine, and has no control socket in the state directory.
    NoSocket(NoSocket),
    /// It would cross a network for everybody to read.
    InClear,
}

/// Why a gateway of this machine cannot be reached through its control socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoSocket {
    /// No gateway that uses this state directory listens at the address.
    NotThere(PathBuf),
    /// Whether one does cannot be told.
    #[cfg(unix)]
    Unusable {
        /// The folder of its sockets.
        folder: PathBuf,
        /// The objection to it, or to the process that listens there.
        why: String,
    },
    /// Without a home there is no state directory.
    NoStateDir,
}

impl AdminToken {
    /// The token in the state directory of user `owner`, for the gateway behind the control socket there.
    #[cfg(unix)]
    pub(crate) fn of_state_dir(state_dir: &Path, owner: u32) -> Self {
        let path = state_dir.join(TOKEN_FILE);
        let sent = read_token(&path, owner).map_err(|error| Withheld::Missing(error.to_string()));
        Self { source: Source::File(path), sent }
    }

    /// The token for a gateway of this machine that has no control socket: none.
    pub(crate) fn without_socket(reason: NoSocket) -> Self {
        Self { source: Source::Variable, sent: Err(Withheld::NoSocket(reason)) }
    }

    /// The token for a gateway on another machine.
    pub(crate) fn of_environment(url: &GatewayUrl) -> Self {
        Self { source: Source::Variable, sent: over_network(url, variable(TOKEN)) }
    }

    pub(crate) fn value(&self) -> Option<&str> {
        self.sent.as_deref().ok()
    }

    /// The failure of a command that the gateway at `url` has refused for want of the token.
    pub(crate) fn refused(&self, url: &GatewayUrl, refusal: Option<Refusal>) -> Failure {
        let place =
            refusal.and_then(|refusal| refusal.hint).map(|hint| format!("{hint}; ")).unwrap_or_default();
        let (text, hint) = match (&self.sent, &self.source) {
            (Ok(_), Source::File(path)) => (
                format!("the gateway at {url} has another admin token than the one in `{}`", path.display()),
                format!("{place}`--state-dir` names its directory"),
            ),
            (Ok(_), Source::Variable) => (
                format!("the gateway at {url} has another admin token than ${TOKEN}"),
                format!("{place}${TOKEN} has to hold that of this gateway"),
            ),
            (Err(Withheld::Missing(why)), Source::File(path)) => (
                format!(
                    "the gateway at {url} wants its admin token; looked for it in `{}`: {why}",
                    path.display()
                ),
                format!("{place}`gripfast token rotate` makes a new one"),
            ),
            (Err(Withheld::Missing(why)), Source::Variable) => (
                format!("the gateway at {url} wants its admin token: {why}"),
                format!(
                    "{place}${TOKEN} has to hold it; it is in `{TOKEN_FILE}` of the gateway's state directory"
                ),
            ),
            (Err(Withheld::NoSocket(reason)), _) => (
                format!("the gateway at {url} wants its admin token, and {}", reason.text()),
                format!("{place}{}", reason.hint()),
            ),
            (Err(Withheld::InClear), _) => (in_clear(url, TOKEN), USE_HTTPS.to_owned()),
        };
        Failure::new(Exit::Denied, text).with_hint(hint)
    }

    /// The failure of a command that acts, for the gateway at `url`, which was not asked to: no token can be sent there.
    pub(crate) fn not_sent(&self, url: &GatewayUrl) -> Failure {
        match &self.sent {
            Err(Withheld::NoSocket(reason)) => {
                let text = format!("the admin token was not sent to {url}: {}", reason.text());
                Failure::new(Exit::Unreachable, text).with_hint(reason.hint())
            }
            Ok(_) | Err(Withheld::Missing(_) | Withheld::InClear) => self.refused(url, None),
        }
    }
}

impl NoSocket {
    fn text(&self) -> String {
        match self {
            Self::NotThere(state_dir) => {
                format!("no gateway with the state directory `{}` listens there", state_dir.display())
            }
            #[cfg(unix)]
            Self::Unusable { why, .. } => format!("its control socket cannot be used: {why}"),
            Self::NoStateDir => "without a home there is no state directory that holds one".to_owned(),
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::NotThere(_) | Self::NoStateDir => {
                "`--state-dir` names the state directory of the gateway that listens there".to_owned()
            }
            #[cfg(unix)]
            Self::Unusable { folder, .. } => format!(
                "run the command as the user of the gateway, to whom alone `{}` has to be open",
                folder.display()
            ),
        }
    }
}

/// The key of a client for one gateway.
#[derive(Debug)]
pub(crate) struct ClientKey {
    /// `None` if it may not go there.
    sent: Option<String>,
}

impl ClientKey {
    /// Whether the user has one.
    pub(crate) fn is_set() -> bool {
        variable(KEY).is_some()
    }

    /// The key in `$GRIPFAST_KEY` for the gateway at `url`, which is reached through its control socket or not. `None`
    /// if there is none.
    pub(crate) fn of_environment(url: &GatewayUrl, by_socket: bool) -> Option<Self> {
        let key = variable(KEY)?;
        let may_go = by_socket || may_send_key(url, variable(CLEARTEXT).as_deref());
        Some(Self { sent: may_go.then_some(key) })
    }

    pub(crate) fn value(&self) -> Option<&str> {
        self.sent.as_deref()
    }

    /// The failure of a command that the gateway at `url` has refused for want of a key.
    pub(crate) fn refused(key: Option<&Self>, url: &GatewayUrl) -> Failure {
        let (text, hint) = match key {
            Some(Self { sent: None }) if !url.is_named() => (
                format!(
                    "${KEY} was not sent to the gateway at {url}, which only a config or the default names"
                ),
                format!("`--url {url}` says that it is meant"),
            ),
            Some(Self { sent: None }) => (
                in_clear(url, KEY),
                format!("{USE_HTTPS}; {CLEARTEXT}={} says that nobody listens on the way", url.authority()),
            ),
            Some(Self { sent: Some(_) }) | None => (
                format!("the gateway at {url} wants a key, or another one"),
                format!("`gripfast keys add NAME` makes one; ${KEY} is sent"),
            ),
        };
        Failure::new(Exit::Denied, text).with_hint(hint)
    }
}

/// The token of the environment, if it may go to the gateway at `url`, which is on another machine.
fn over_network(url: &GatewayUrl, token: Option<String>) -> Result<String, Withheld> {
    match token {
        Some(token) if url.is_encrypted() => Ok(token),
        Some(_) => Err(Withheld::InClear),
        None => Err(Withheld::Missing(format!("${TOKEN} is not set"))),
    }
}

/// Whether a client's key may go over the network to `url`.
fn may_send_key(url: &GatewayUrl, in_clear: Option<&str>) -> bool {
    url.is_named() && (url.is_encrypted() || url.is_loopback() || in_clear == Some(url.authority()))
}

/// The token of a file that belongs to `owner`. No symlink is followed.
#[cfg(unix)]
fn read_token(path: &Path, owner: u32) -> io::Result<String> {
    use std::os::unix::fs::MetadataExt;
    let file = private_files::open(path, |how| how.read(true))?;
    if file.metadata()?.uid() != owner {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    let mut text = String::new();
    file.take(LONGEST_TOKEN).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

const USE_HTTPS: &str = "have it speak https, or run the command on its machine";

fn in_clear(url: &GatewayUrl, name: &str) -> String {
    format!("${name} was not sent to the gateway at {url}: without TLS everybody on the way could read it")
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
    fn g05_the_admin_token_of_the_environment_crosses_a_network_over_https_only() {
        let sent = |typed: &str| over_network(&url(typed), Some("secret".to_owned()));
        assert_eq!(sent("https://mcp.example.com"), Ok("secret".to_owned()));
        for seen in ["http://mcp.example.com", "http://10.0.0.5:7331", "http://127.0.0.1@10.0.0.5:7331"] {
            assert_eq!(sent(seen), Err(Withheld::InClear), "{seen}");
        }
        assert!(matches!(over_network(&url("https://mcp.example.com"), None), Err(Withheld::Missing(_))));
    }

    #[test]
    fn a_key_goes_to_the_gateway_that_the_user_names_over_tls_or_where_the_user_says_so() {
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
    fn what_was_not_sent_is_said_with_the_way_to_send_it() {
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
        assert_eq!(AdminToken::of_state_dir(state.path(), owner).value(), Some("mine"));
        let other = AdminToken::of_state_dir(state.path(), owner + 1);
        assert_eq!(other.sent, Err(Withheld::Missing("it belongs to another user".to_owned())));
    }
}

//! What a gateway is shown: the admin token by who looks at it from elsewhere or acts on it, and its key by a client.
//!
//! Nothing secret goes to anybody but the gateway that is meant, nor over a network where it could be read on the
//! way, unless the user says that nobody listens there.

use super::address::GatewayUrl;
use super::args::Global;
use super::config;
use super::exit::Exit;
use super::gateway::Refusal;
use super::stop::Failure;
use gripfast_gateway::admin::TOKEN_FILE;
use std::fmt;
use std::path::PathBuf;

/// Holds the admin token of a gateway elsewhere.
pub(super) const TOKEN: &str = "GRIPFAST_TOKEN";
/// Holds what a client shows: an API key, or a token of the issuer that the gateway asks.
pub(super) const KEY: &str = "GRIPFAST_KEY";
/// Names the one gateway, by host and port, that is shown secrets without TLS.
pub(super) const CLEARTEXT: &str = "GRIPFAST_CLEARTEXT";

/// Something to show, or why there is nothing.
#[derive(Debug)]
pub(crate) struct Proof {
    source: Source,
    shown: Result<String, Withheld>,
}

/// Where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Variable(&'static str),
    File(PathBuf),
    /// There is no such place for want of a home.
    Nowhere,
}

/// Why there is nothing to show.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Withheld {
    Missing(String),
    /// What was found is that of this machine, and another one was named.
    NotIts,
    /// It would cross a network for everybody to read.
    InClear,
}

impl Proof {
    /// The admin token for the gateway at `url`: the one in the state directory that was typed, that of the environment,
    /// or the one that is kept where the config says.
    pub(crate) fn token(global: &Global, url: &GatewayUrl) -> Result<Self, Failure> {
        let in_clear = said(CLEARTEXT);
        // What was typed counts for more than what was said to every command.
        if let Some(token) = said(TOKEN).filter(|_| global.state_dir.is_none()) {
            return Ok(Self::of(Source::Variable(TOKEN), Ok(token), url, in_clear.as_deref()));
        }
        let Some(directory) = config::state_dir_of_gateway(global)? else {
            let missing = Withheld::Missing("there is no state directory without a home".to_owned());
            return Ok(Self { source: Source::Nowhere, shown: Err(missing) });
        };
        let path = directory.join(TOKEN_FILE);
        let found = if url.is_here() || global.state_dir.is_some() {
            let read = std::fs::read_to_string(&path).map(|text| text.trim().to_owned());
            read.map_err(|error| Withheld::Missing(error.to_string()))
        } else {
            Err(Withheld::NotIts)
        };
        Ok(Self::of(Source::File(path), found, url, in_clear.as_deref()))
    }

    /// What a client shows to the gateway at `url`; `None` if it was given nothing to show.
    pub(crate) fn key(url: &GatewayUrl) -> Option<Self> {
        said(KEY).map(|key| Self::of(Source::Variable(KEY), Ok(key), url, said(CLEARTEXT).as_deref()))
    }

    fn of(source: Source, found: Result<String, Withheld>, url: &GatewayUrl, in_clear: Option<&str>) -> Self {
        let is_safe = url.is_encrypted() || url.is_here() || in_clear == Some(url.authority());
        let shown = found.and_then(|secret| if is_safe { Ok(secret) } else { Err(Withheld::InClear) });
        Self { source, shown }
    }

    pub(crate) fn value(&self) -> Option<&str> {
        self.shown.as_deref().ok()
    }

    /// Why the admin token did not help.
    pub(crate) fn refused(&self, url: &GatewayUrl, refusal: Option<Refusal>) -> Failure {
        let where_it_is = refusal.and_then(|refusal| refusal.hint).map(|hint| format!("{hint}; "));
        let where_it_is = where_it_is.unwrap_or_default();
        let other =
            format!("{where_it_is}`--state-dir` names its directory, ${TOKEN} holds the token itself");
        let (text, hint) = match (&self.shown, &self.source) {
            (Ok(_), source) => (format!("the gateway at {url} has another admin token than {source}"), other),
            (Err(Withheld::Missing(why)), Source::File(path)) => {
                let path = path.display();
                (
                    format!("the gateway at {url} wants its admin token; looked for it in `{path}`: {why}"),
                    other,
                )
            }
            (Err(Withheld::Missing(why)), Source::Variable(_) | Source::Nowhere) => {
                (format!("the gateway at {url} wants its admin token: {why}"), other)
            }
            (Err(Withheld::NotIts), _) => (format!("the gateway at {url} wants its admin token"), other),
            (Err(Withheld::InClear), source) => (in_clear(url, &source.to_string()), use_tls(url)),
        };
        Failure::new(Exit::Denied, text).with_hint(hint)
    }

    /// Why a client's key did not help.
    pub(crate) fn key_refused(key: Option<&Self>, url: &GatewayUrl) -> Failure {
        let (text, hint) = match key.map(|key| &key.shown) {
            Some(Err(_)) => (in_clear(url, &format!("${KEY}")), use_tls(url)),
            Some(Ok(_)) | None => (
                format!("the gateway at {url} wants a key, or another one"),
                format!("`gripfast keys add NAME` makes one; ${KEY} is sent"),
            ),
        };
        Failure::new(Exit::Denied, text).with_hint(hint)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "${name}"),
            Self::File(path) => write!(f, "the one in `{}`", path.display()),
            Self::Nowhere => f.write_str("none"),
        }
    }
}

fn in_clear(url: &GatewayUrl, what: &str) -> String {
    format!("{what} was not sent to the gateway at {url}: without TLS everybody on the way could read it")
}

fn use_tls(url: &GatewayUrl) -> String {
    format!(
        "have it speak https, or reach it through a tunnel; {CLEARTEXT}={} says that nobody listens on the way",
        url.authority()
    )
}

/// What the environment says.
fn said(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str, in_clear: Option<&str>) -> Option<String> {
        let url: GatewayUrl = url.parse().unwrap();
        let proof = Proof::of(Source::Variable(TOKEN), Ok("secret".to_owned()), &url, in_clear);
        proof.value().map(str::to_owned)
    }

    #[test]
    fn a_secret_crosses_a_network_with_tls_or_where_the_user_says_so() {
        for safe in [
            "https://mcp.example.com",
            "http://127.0.0.1:7331",
            "http://[::1]:7331",
            "http://localhost:7331",
            "127.0.0.2:80",
        ] {
            assert_eq!(shown(safe, None).as_deref(), Some("secret"), "{safe}");
        }
        for seen in [
            "http://mcp.example.com",
            "http://10.0.0.5:7331",
            "http://localhost.example.com",
            "http://127.0.0.1@10.0.0.5:7331",
        ] {
            assert_eq!(shown(seen, None), None, "{seen}");
            assert_eq!(shown(seen, Some("10.0.0.6:7331")), None, "{seen}");
        }
        assert_eq!(shown("http://10.0.0.5:7331", Some("10.0.0.5:7331")).as_deref(), Some("secret"));
    }

    #[test]
    fn what_was_not_sent_is_said_with_the_way_to_send_it() {
        let url: GatewayUrl = "http://10.0.0.5:7331".parse().unwrap();
        let key = Proof::of(Source::Variable(KEY), Ok("secret".to_owned()), &url, None);
        let failure = Proof::key_refused(Some(&key), &url);
        let hint = failure.hint.unwrap();
        assert!(failure.text.contains("$GRIPFAST_KEY was not sent"), "{}", failure.text);
        assert!(hint.contains("GRIPFAST_CLEARTEXT=10.0.0.5:7331"), "{hint}");
        assert!(!format!("{}{hint}", failure.text).contains("secret"));
    }

    #[test]
    fn the_token_of_this_machine_is_not_shown_to_another() {
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join(TOKEN_FILE), "mine\n").unwrap();
        let config = state.path().join("gripfast.toml");
        std::fs::write(&config, format!("[gateway]\nstate_dir = {:?}\n", state.path())).unwrap();
        let global = Global { config: Some(config), state_dir: None };
        let token = |url: &str, global: &Global| {
            let url: GatewayUrl = url.parse().unwrap();
            Proof::token(global, &url).unwrap().value().map(str::to_owned)
        };
        assert_eq!(token("http://127.0.0.1:7331", &global).as_deref(), Some("mine"));
        assert_eq!(token("https://mcp.example.com", &global), None);
        let named = Global { state_dir: Some(state.path().to_owned()), ..global };
        assert_eq!(token("https://mcp.example.com", &named).as_deref(), Some("mine"));
        assert_eq!(token("http://mcp.example.com", &named), None);
    }
}

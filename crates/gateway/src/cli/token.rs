//! The admin token of a gateway on this machine, found where the gateway keeps its state.

use super::address::GatewayUrl;
use super::args::Global;
use super::config;
use super::exit::Exit;
use super::gateway::Refusal;
use super::stop::Failure;
use gripfast_gateway::admin::TOKEN_FILE;
use std::io;
use std::path::{Path, PathBuf};

/// The gateway's token, or where it was looked for in vain.
pub(crate) struct Token {
    place: Option<PathBuf>,
    read: io::Result<String>,
}

impl Token {
    /// The token of the gateway that keeps its state where these words and the config say.
    pub(crate) fn of(global: &Global) -> Result<Self, Failure> {
        let place = config::state_dir_of_gateway(global)?.map(|directory| directory.join(TOKEN_FILE));
        let read = match &place {
            Some(path) => std::fs::read_to_string(path).map(|text| text.trim().to_owned()),
            None => Err(io::Error::other("there is no state directory without a home")),
        };
        Ok(Self { place, read })
    }

    pub(crate) fn value(&self) -> Option<&str> {
        self.read.as_deref().ok()
    }

    /// Why it did not help.
    pub(crate) fn refused(&self, url: &GatewayUrl, refusal: Refusal) -> Failure {
        let place = self.place.as_deref().map_or_else(|| Path::new(TOKEN_FILE).display(), Path::display);
        let text = match &self.read {
            Ok(_) => format!("the gateway at {url} has another admin token than the one in `{place}`"),
            Err(error) => {
                format!("the gateway at {url} wants its admin token; looked for it in `{place}`: {error}")
            }
        };
        let hint = refusal.hint.map(|hint| format!("{hint}; "));
        Failure::new(Exit::Denied, text)
            .with_hint(format!("{}`--state-dir` names its directory", hint.unwrap_or_default()))
    }
}

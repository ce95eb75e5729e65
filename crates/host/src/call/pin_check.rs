//! Whether a tool still says what was approved.

use crate::client::Client;
use crate::host::{Entry, Host};
use crate::pins::PinnedTool;
use gripfast_core::failure::{CallError, Code, Outcome as Fate};

impl Entry {
    /// Refuses a call of a tool that is held back, unless somebody has approved it meanwhile, here or elsewhere. The
    /// own instance of a client has its own say, when it is about to be called.
    pub(super) fn is_approved(&self, tool: &str, client: Option<&Client>) -> Result<(), CallError> {
        let upstream = self.upstream()?;
        if !upstream.pins.holds(tool) || client.is_some_and(|client| self.serves_apart(client)) {
            return Ok(());
        }
        upstream.screen_again();
        if upstream.pins.holds(tool) { Err(upstream.pins.refusal(&self.name, tool)) } else { Ok(()) }
    }

    /// Whether calls of `client` are for an instance of its own.
    pub(super) fn serves_apart(&self, client: &Client) -> bool {
        self.instances().is_ok_and(|instances| instances.are_apart(client))
    }
}

impl Host {
    /// The pinned tools of a server, with what changed about those that did.
    ///
    /// # Errors
    /// There is no server of this name, or its config is unusable.
    pub fn pins(&self, server: &str) -> Result<Vec<PinnedTool>, CallError> {
        let entry = self.entry(server)?;
        Ok(entry.instances()?.pins())
    }

    /// Somebody has looked: what `tool` says now is approved, or what all changed tools of the server say.
    /// Answers with the names of those that are approved by this.
    ///
    /// # Errors
    /// There is no server of this name, or no such tool of it has changed.
    pub fn approve(&self, server: &str, tool: Option<&str>) -> Result<Vec<String>, CallError> {
        let entry = self.entry(server)?;
        let approved = entry.instances()?.approve(tool);
        if approved.is_empty() {
            let what = tool.map_or_else(|| "nothing".to_owned(), |tool| format!("no tool `{tool}`"));
            let text = format!("{what} of upstream `{server}` waits for approval");
            let error = CallError::new(Code::InvalidRequest, server, Fate::NotSent, text);
            return Err(error.hint("`gripfast pins ls` shows what does"));
        }
        self.audit().approved(server, &approved);
        Ok(approved)
    }
}

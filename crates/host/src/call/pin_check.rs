//! Pin check: refuses calls of tools that changed since they were approved.

use crate::client::Client;
use crate::host::{Host, HostEntry};
use crate::pins::PinnedTool;
use gripfast_core::failure::{CallError, CallOutcome, Code};

impl HostEntry {
    /// Refuses a call of a tool that is held back, unless it has been approved meanwhile, here or by another process.
    /// A dedicated instance does its own check when it is called.
    pub(super) fn check_approved(&self, tool: &str, client: Option<&Client>) -> Result<(), CallError> {
        let upstream = self.upstream()?;
        if !upstream.pins.is_held(tool) || client.is_some_and(|client| self.uses_dedicated_instance(client)) {
            return Ok(());
        }
        upstream.screen_again();
        if upstream.pins.is_held(tool) { Err(upstream.pins.refusal(&self.name, tool)) } else { Ok(()) }
    }

    /// Returns true if calls of `client` use a dedicated instance.
    pub(super) fn uses_dedicated_instance(&self, client: &Client) -> bool {
        self.instances().is_ok_and(|instances| instances.uses_dedicated(client))
    }
}

impl Host {
    /// The pinned tools of a server, with their changes.
    ///
    /// # Errors
    /// There is no server with this name, or its config is unusable.
    pub fn pins(&self, server: &str) -> Result<Vec<PinnedTool>, CallError> {
        let entry = self.entry(server)?;
        Ok(entry.instances()?.pins())
    }

    /// Approves the present description of `tool`, or of all changed tools of the server. Returns the names of the
    /// approved tools.
    ///
    /// # Errors
    /// There is no server with this name, or no such tool waits for approval.
    pub fn approve(&self, server: &str, tool: Option<&str>) -> Result<Vec<String>, CallError> {
        let entry = self.entry(server)?;
        let approved = entry.instances()?.approve(tool);
        if approved.is_empty() {
            let what = tool.map_or_else(|| "nothing".to_owned(), |tool| format!("no tool `{tool}`"));
            let text = format!("{what} of server `{server}` waits for approval");
            let error = CallError::new(Code::InvalidRequest, server, CallOutcome::NotSent, text);
            return Err(error.with_hint("`gripfast pins ls` lists the pending changes"));
        }
        self.inner.audit.record_approval(server, &approved);
        Ok(approved)
    }
}

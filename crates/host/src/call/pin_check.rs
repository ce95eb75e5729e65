//! Pin check: refuses calls of tools that changed since they were approved.

use crate::client::Client;
use crate::host::{Host, HostEntry};
use crate::pins::PinnedTool;
use crate::shared_state::{StateError, StateTable};
use gripfast_core::failure::{CallError, CallOutcome, Code};
use std::sync::Arc;

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
        self.finish_approval(server, tool, approved)
    }

    /// The same for all hosts of a service, if there is a [shared state](crate::HostBuilder::shared_state).
    ///
    /// # Errors
    /// As [`Self::approve`], or the approval cannot be stored.
    pub async fn approve_shared(&self, server: &str, tool: Option<&str>) -> Result<Vec<String>, CallError> {
        let Some(shared) = &self.inner.shared else { return self.approve(server, tool) };
        let entry = self.entry(server)?;
        let not_stored = |error: StateError| {
            let text = format!("the approval for server `{server}` is not stored: {error}");
            CallError::new(Code::Unreachable, server, CallOutcome::NotSent, text)
                .with_hint("approve it again when the store is reachable; `gripfast doctor` checks it")
        };
        shared.refresh(StateTable::Pins).await.map_err(not_stored)?;
        let approved = entry.instances()?.approve_shared(&**shared, tool).await.map_err(not_stored)?;
        self.finish_approval(server, tool, approved)
    }

    /// Follows changes of the shared state, as long as the host lives.
    pub(crate) fn follow_shared_state(&self) {
        let Some(shared) = &self.inner.shared else { return };
        let (mut changes, inner) = (shared.changes(), Arc::downgrade(&self.inner));
        tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                let Some(inner) = inner.upgrade() else { return };
                for entry in (Self { inner }).entries() {
                    // Each on its own: a store that refuses changes for a while is waited for.
                    tokio::spawn(async move {
                        if let Ok(instances) = entry.instances() {
                            instances.shared_pins_changed().await;
                        }
                    });
                }
            }
        });
    }

    fn finish_approval(
        &self,
        server: &str,
        tool: Option<&str>,
        approved: Vec<String>,
    ) -> Result<Vec<String>, CallError> {
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

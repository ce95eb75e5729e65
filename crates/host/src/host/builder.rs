//! What a host is made of: every part has a default, and a program says what it wants otherwise.

use super::{Host, Inner};
use crate::audit::{Audit, AuditOptions};
use crate::auth::Logins;
use crate::cache::{AnswerCache, CacheLimits};
use crate::call::{BudgetSpec, Purse};
use crate::clock::{self, Clock};
use crate::config::{ClientLimits, LoginKey};
use crate::ledger::{Ledger, LedgerOptions};
use crate::menu::{Bell, Kitchen};
use crate::observe::Feed;
use crate::overheard::Ears;
use crate::policy::{ClientLists, ClientPolicy, Guard, Verdict};
use crate::private_files::{self, StrictModes};
use crate::security::Security;
use crate::store::{ApprovalWitness, LocalStore, MemoryStore, Store};
use gripfast_wire::RawValue;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use tokio_util::task::TaskTracker;

/// Builds a [`Host`].
#[derive(Default)]
pub struct HostBuilder {
    state_dir: Option<PathBuf>,
    strict_modes: StrictModes,
    store: Option<Arc<dyn Store>>,
    ledger: LedgerOptions,
    logins: Option<Logins>,
    client: Option<(String, String)>,
    capabilities: Option<serde_json::Value>,
    guard: Option<Guard>,
    clients: Vec<ClientPolicy>,
    budgets: Vec<BudgetSpec>,
    cache: CacheLimits,
    audit: AuditOptions,
    nesting: Option<usize>,
}

impl HostBuilder {
    /// Where catalogs and the like are kept between runs. Without it nothing is kept, and neither is anything in a
    /// directory that another user could have changed.
    #[must_use]
    pub fn state_dir(mut self, directory: Option<PathBuf>) -> Self {
        self.state_dir = directory;
        self
    }

    /// Whether a state directory that another user could have changed is done without, as it is by default.
    #[must_use]
    pub fn strict_modes(mut self, strict: StrictModes) -> Self {
        self.strict_modes = strict;
        self
    }

    /// A store of the program's own, instead of a directory.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// The logins that are used, if they are others than those in [`HostBuilder::state_dir`], or have another key than
    /// the file there or other leases ([`Logins::leased_by`]).
    #[must_use]
    pub fn logins(mut self, logins: Option<Logins>) -> Self {
        self.logins = logins;
        self
    }

    /// What is noted down of tool calls, in the state directory. Without one, nothing is.
    #[must_use]
    pub fn ledger(mut self, options: LedgerOptions) -> Self {
        self.ledger = options;
        self
    }

    /// How the host introduces itself to servers.
    #[must_use]
    pub fn client_info(mut self, name: &str, version: &str) -> Self {
        self.client = Some((name.to_owned(), version.to_owned()));
        self
    }

    /// What servers may ask for on the way to an answer (`elicitation`, `sampling`, `roots`), as the
    /// capabilities of an MCP client. Whoever says more than nothing answers with
    /// [`Listener::asked`](crate::transport::Listener::asked).
    #[must_use]
    pub fn capabilities(mut self, capabilities: serde_json::Value) -> Self {
        self.capabilities = Some(capabilities);
        self
    }

    /// A rule of the program's own over the tools of all servers: it is asked with the server and the
    /// server's own name of the tool, whenever tools are listed or called. What it denies is as good as not
    /// there; what it allows must be allowed by the lists as well.
    #[must_use]
    pub fn guard(mut self, guard: impl Fn(&str, &str) -> Verdict + Send + Sync + 'static) -> Self {
        self.guard = Some(Arc::new(guard));
        self
    }

    /// What clients may see and use, besides what the lists of the servers say.
    #[must_use]
    pub fn clients(mut self, policies: Vec<ClientPolicy>) -> Self {
        self.clients = policies;
        self
    }

    /// How many calls there may be, of whom, to what.
    #[must_use]
    pub fn budgets(mut self, budgets: Vec<BudgetSpec>) -> Self {
        self.budgets = budgets;
        self
    }

    /// How many answers are kept at the most, to be given again.
    #[must_use]
    pub fn cache(mut self, limits: CacheLimits) -> Self {
        self.cache = limits;
        self
    }

    /// What is written down of requests and decisions, in the state directory.
    #[must_use]
    pub fn audit(mut self, options: AuditOptions) -> Self {
        self.audit = options;
        self
    }

    /// How many levels of arrays and objects a result, or a member of what a server asks or says, may have. By default
    /// 128. Deeper results end their calls with [`Code::UpstreamProtocol`](crate::Code::UpstreamProtocol).
    #[must_use]
    pub fn nesting(mut self, levels: usize) -> Self {
        self.nesting = Some(levels);
        self
    }

    /// Makes the host. It runs on the tokio runtime that this is called on.
    #[must_use]
    pub fn build(self) -> Host {
        let clock = Clock::new();
        let state_dir = self.state_dir.filter(|directory| is_safe(directory, self.strict_modes));
        let state_dir = state_dir.as_deref();
        let kept_here = || Logins::of(state_dir, LoginKey::default());
        let logins = self.logins.unwrap_or_else(kept_here);
        let audit = Audit::open(state_dir, self.audit, clock);
        let ledger = Arc::new(Ledger::open(state_dir, self.ledger, clock));
        let store = self.store.unwrap_or_else(|| state_dir.map_or_else(in_memory, on_disk));
        let (name, version) = self
            .client
            .unwrap_or_else(|| (env!("CARGO_PKG_NAME").to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        let capabilities = self.capabilities.unwrap_or_else(|| serde_json::json!({})).to_string();
        let capabilities = RawValue::from_string(capabilities).expect("a JSON value prints as JSON");
        let introduction = serde_json::json!({ "name": name, "version": version });
        let client_info =
            RawValue::from_string(introduction.to_string()).expect("a JSON value prints as JSON");
        Host {
            inner: Arc::new(Inner {
                clock,
                id: host_id(),
                feed: Feed::new(),
                store,
                witness: ApprovalWitness::of(state_dir),
                ledger,
                logins,
                client_info: client_info.into(),
                capabilities: capabilities.into(),
                entries: RwLock::default(),
                replacing: Mutex::default(),
                bell: Bell::new(),
                kitchen: Kitchen::default(),
                guard: self.guard,
                purse: Purse::new(self.budgets),
                audit,
                security: Security::default(),
                cache: Arc::new(AnswerCache::new(self.cache, clock)),
                clients: RwLock::new(Arc::new(ClientLists::new(self.clients))),
                ears: Ears::default(),
                leaving: TaskTracker::new(),
                nesting: self.nesting.unwrap_or(ClientLimits::default().nesting as usize),
            }),
        }
    }
}

/// A name that no other host has.
fn host_id() -> Arc<str> {
    let bytes: [u8; 16] = clock::secret_bytes().unwrap_or_default();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

/// Whether a state directory is used.
fn is_safe(directory: &Path, strict: StrictModes) -> bool {
    match (private_files::judge_state_directory(directory), strict) {
        (Ok(()), _) => true,
        (Err(found), StrictModes::Off) => {
            tracing::warn!("{found}; it is used because `strict_modes` is off");
            true
        }
        (Err(found), StrictModes::On) => {
            tracing::error!("{found}; no state is kept in this run; {}", found.remedy());
            false
        }
    }
}

fn in_memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// A store on disk; one that cannot be used is said aloud and done without.
fn on_disk(directory: &Path) -> Arc<dyn Store> {
    match LocalStore::open(directory) {
        Ok((store, None)) => Arc::new(store),
        Ok((store, Some(aside))) => {
            tracing::warn!(moved_to = %aside.display(), "the state file was corrupt; a new one was begun");
            Arc::new(store)
        }
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%error, cause, "no state is kept in this run");
            in_memory()
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn g05_nothing_is_kept_in_a_directory_that_others_can_write_unless_modes_do_not_count() {
        for (strict, kept) in [(StrictModes::On, false), (StrictModes::Off, true)] {
            let directory = tempfile::tempdir().unwrap();
            std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o770)).unwrap();
            let state_dir = Some(directory.path().to_owned());
            let host = Host::builder().state_dir(state_dir).strict_modes(strict).build();
            host.shutdown().await;
            let files = std::fs::read_dir(directory.path()).unwrap().count();
            assert_eq!(files > 0, kept, "{strict:?}: {files}");
        }
    }
}

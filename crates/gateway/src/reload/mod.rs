//! Config reload. The file is checked periodically, on request and on a signal; it is validated and compared with the
//! active config, and only differences are applied. An unreadable config is rejected and the active one stays; a
//! mistake in the table of a server affects that server only.

mod difference;

use crate::trust_list::{TrustList, TrustState};
use difference::{ConfigDiff, ConfigMistakes, keep_working_servers, mistake_text};
use gripfast::config::{Config, ConfigError, ConfigOrigin, ConfigText, ServerEntry, Setting};
use gripfast::private_files::StrictModes;
use gripfast::sync::Mutex;
use gripfast::{Host, SecurityEvent, TrustDecision};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Applies changes of the config file to a host.
pub struct Reloader {
    host: Host,
    path: PathBuf,
    origin: ConfigOrigin,
    /// Trust list, for a file in the current directory.
    trusted: Option<TrustList>,
    /// Trust in the file at the last check.
    last_trust: Mutex<Option<TrustState>>,
    /// The file at the last attempt to apply it, accepted or rejected, by any trigger.
    last_checked: Mutex<Option<FileCheck>>,
    /// Active config. Locked while a config is applied, so that two reloads do not mix.
    active: tokio::sync::Mutex<Config>,
    last_error: Mutex<Option<String>>,
    /// Time and outcome of the last reload after a file change, until the next requested reload reports it.
    unreported: Mutex<Option<(Instant, ReloadOutcome)>>,
}

/// Text of the file, and the trust in it if the file needs trust.
type FileCheck = (ConfigText, Option<TrustState>);

/// Detects when the content of one or more files has changed and settled.
pub(crate) struct FileChecks<T> {
    accepted: T,
    before: T,
}

impl<T: PartialEq + Clone> FileChecks<T> {
    pub(crate) fn new(text: T) -> Self {
        Self { accepted: text.clone(), before: text }
    }

    /// True if the content is new and was the same at the previous check.
    pub(crate) fn has_settled(&mut self, now: T) -> bool {
        let is_new = now == self.before && now != self.accepted;
        if is_new {
            self.accepted = now.clone();
        }
        self.before = now;
        is_new
    }
}

/// Result of a config reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadOutcome {
    /// New servers.
    pub added: Vec<String>,
    /// Removed servers.
    pub removed: Vec<String>,
    /// Servers with changed settings.
    pub changed: Vec<String>,
    /// Number of unchanged servers.
    pub unchanged: usize,
    /// True if the order of the remaining servers changed.
    #[serde(default)]
    pub reordered: bool,
    /// Changed tables other than servers that are in force now.
    #[serde(default)]
    pub in_force: Vec<String>,
    /// Changed tables that take effect at the next start.
    pub at_next_start: Vec<String>,
    /// Servers with a mistake in their table that keep their previous config.
    #[serde(default)]
    pub kept: Vec<String>,
    /// Servers with a mistake and without a valid previous config; their state is `config_error`.
    #[serde(default)]
    pub unusable: Vec<String>,
    /// The mistakes.
    #[serde(default)]
    pub mistakes: Vec<String>,
}

/// Cause of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReloadTrigger {
    /// Request of the operator.
    Request,
    /// Signal, possibly sent while the file was being written. The reload waits until the file has settled.
    Signal,
    /// Detected change of the file.
    FileChange,
}

impl Reloader {
    /// Interval of file checks. A change is applied when two checks in a row found the same content, because editors
    /// write files in pieces.
    pub const CHECK_INTERVAL: Duration = Duration::from_secs(1);

    /// A requested reload reports the outcome of a detected change up to this age: the watcher may have applied the
    /// operator's change before the request.
    const REPORT_FOR: Duration = Duration::from_secs(60);

    /// For a host with the config `active`, which was read from `path`.
    pub fn new(host: Host, path: PathBuf, active: Config) -> Self {
        Self {
            host,
            path,
            origin: ConfigOrigin::Named,
            trusted: None,
            last_trust: Mutex::default(),
            last_checked: Mutex::default(),
            active: tokio::sync::Mutex::new(active),
            last_error: Mutex::default(),
            unreported: Mutex::default(),
        }
    }

    /// Sets the origin of the file. Changes of a file in the current directory are applied without a request only while
    /// its content is `trusted`; a requested reload trusts the content and lists it.
    #[must_use]
    pub fn with_origin(mut self, origin: ConfigOrigin, trusted: Option<TrustList>) -> Self {
        self.origin = origin;
        self.trusted = trusted;
        self
    }

    /// Path of the config file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All active settings without secrets, with their source.
    pub async fn settings(&self) -> Vec<Setting> {
        self.active.lock().await.settings()
    }

    /// Reason why the current content of the file is not active.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    /// Checks the file while this future is polled. Applies the content when it has settled and differs from the
    /// content of the last attempt, whatever triggered that.
    pub async fn watch(&self) {
        let mut before = self.check_file().await;
        // Applies changes that were written since the active config was read.
        self.apply_detected().await;
        let mut tick = tokio::time::interval(Self::CHECK_INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let now = self.check_file().await;
            if now == before && now != self.last_checked() {
                self.apply_detected().await;
            }
            before = now;
        }
    }

    /// Current content of the file; `None` if it cannot be read.
    async fn check_file(&self) -> Option<FileCheck> {
        self.read().await.ok()
    }

    fn last_checked(&self) -> Option<FileCheck> {
        self.last_checked.lock().clone()
    }

    async fn read(&self) -> Result<FileCheck, String> {
        let (path, trusted, origin) = (self.path.clone(), self.trusted.clone(), self.origin);
        let read = move || {
            let text = ConfigText::read(&path)?;
            // With a missing or unreadable list, no file is trusted.
            let trust_in =
                |list: TrustList| list.state_of(&path, text.bytes()).unwrap_or(TrustState::Unknown);
            let trust = match origin {
                ConfigOrigin::CurrentDirectory => Some(trusted.map_or(TrustState::Unknown, trust_in)),
                ConfigOrigin::Named | ConfigOrigin::PlatformDirectory => None,
            };
            Ok((text, trust))
        };
        let read = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
        let read: FileCheck = read.map_err(|error: ConfigError| describe_error(&error))?;
        if let Some(trust) = read.1 {
            self.record_trust(trust, None);
        }
        Ok(read)
    }

    /// Records a decision to trust or untrust the file since the last check. `actor` is known if the decision was made
    /// here. An edit of the file is no decision.
    fn record_trust(&self, trust: TrustState, actor: Option<&str>) {
        let before = self.last_trust.lock().replace(trust);
        let decision = match (before, trust) {
            (Some(TrustState::Changed | TrustState::Unknown), TrustState::Trusted) => TrustDecision::Trusted,
            (Some(TrustState::Trusted | TrustState::Changed), TrustState::Unknown) => {
                TrustDecision::Untrusted
            }
            (None, _)
            | (Some(_), TrustState::Changed)
            | (Some(TrustState::Trusted), TrustState::Trusted)
            | (Some(TrustState::Unknown), TrustState::Unknown) => return,
        };
        let (path, actor) = (self.path.display().to_string(), actor.map(str::to_owned));
        self.host.record_security_event(SecurityEvent::TrustChanged { decision, path, actor });
    }

    /// Parses the config, unless this trigger may not apply it.
    fn parse_if_trusted(
        &self,
        trigger: ReloadTrigger,
        active: &Config,
        text: &ConfigText,
        trust: Option<TrustState>,
    ) -> Result<Config, String> {
        if trigger == ReloadTrigger::FileChange {
            match trust {
                None | Some(TrustState::Trusted) => {}
                Some(TrustState::Changed) => {
                    return Err("it has changed since it was trusted; `gripfast reload` or `gripfast trust` accepts the \
                                change"
                        .to_owned());
                }
                Some(TrustState::Unknown) => {
                    return Err("it is no longer trusted; `gripfast trust` trusts it again".to_owned());
                }
            }
            // The check follows the active config: a user who can write the file could switch it off there.
            if let (Some(found), StrictModes::On) = (text.unsafe_file(), active.gateway.access.strict_modes) {
                return Err(describe_error(&ConfigError::Unsafe(found.clone())));
            }
        }
        text.config(self.origin).map_err(|error| describe_error(&error))
    }

    /// Adds the file to the trust list after a requested reload.
    async fn trust(&self, trigger: ReloadTrigger, text: ConfigText) {
        let (ConfigOrigin::CurrentDirectory, Some(list)) = (self.origin, self.trusted.clone()) else {
            return;
        };
        let path = self.path.clone();
        let listing = move || list.trust(&path, text.bytes());
        let actor = match trigger {
            ReloadTrigger::Request => Some("admin"),
            ReloadTrigger::Signal => Some("signal"),
            ReloadTrigger::FileChange => None,
        };
        match tokio::task::spawn_blocking(listing).await {
            Ok(Err(error)) => {
                tracing::warn!(%error, "the config is applied, but could not be added to the trust list");
            }
            Ok(Ok(())) => self.record_trust(TrustState::Trusted, actor),
            Err(_) => {}
        }
    }

    /// Reads the file and applies it. Dropping the future does not stop a reload that has started.
    ///
    /// # Errors
    /// The config is invalid; the active config stays.
    pub async fn reload(self: &Arc<Self>) -> Result<ReloadOutcome, String> {
        let reloader = Arc::clone(self);
        let reloading = tokio::spawn(async move { reloader.apply_requested(ReloadTrigger::Request).await });
        reloading.await.map_err(|error| error.to_string())?
    }

    /// Reloads after a signal, which may arrive while the file is being written: waits until two checks found the same
    /// content.
    ///
    /// # Errors
    /// The config is invalid or lists no server any more; the active config stays.
    pub async fn reload_on_signal(self: &Arc<Self>) -> Result<ReloadOutcome, String> {
        let mut before = self.check_file().await;
        loop {
            tokio::time::sleep(Self::CHECK_INTERVAL).await;
            let now = self.check_file().await;
            if now == before {
                break;
            }
            before = now;
        }
        let reloader = Arc::clone(self);
        let reloading = tokio::spawn(async move { reloader.apply_requested(ReloadTrigger::Signal).await });
        reloading.await.map_err(|error| error.to_string())?
    }

    async fn apply_requested(&self, trigger: ReloadTrigger) -> Result<ReloadOutcome, String> {
        let outcome = self.apply(trigger).await;
        self.log_outcome(&outcome);
        let unreported = self.unreported.lock().take();
        match (outcome, unreported) {
            (Ok(now), Some((at, earlier))) if now.has_no_changes() && at.elapsed() < Self::REPORT_FOR => {
                // The mistakes are those of the current check.
                let ReloadOutcome { kept, unusable, mistakes, .. } = now;
                Ok(ReloadOutcome { kept, unusable, mistakes, ..earlier })
            }
            (outcome, _) => outcome,
        }
    }

    /// Applies a detected change and reports it in the log and the status.
    async fn apply_detected(&self) {
        let outcome = self.apply(ReloadTrigger::FileChange).await;
        if outcome.as_ref().is_ok_and(ReloadOutcome::is_noop) && self.last_error().is_none() {
            return;
        }
        self.log_outcome(&outcome);
        let unreported = outcome.ok().map(|outcome| (Instant::now(), outcome));
        *self.unreported.lock() = unreported;
    }

    fn log_outcome(&self, outcome: &Result<ReloadOutcome, String>) {
        let error = match outcome {
            Ok(reloaded) if reloaded.kept.is_empty() => None,
            Ok(reloaded) => Some(reloaded.mistakes.join("; ")),
            Err(error) => Some(error.clone()),
        };
        match outcome {
            Ok(reloaded) if !reloaded.mistakes.is_empty() => {
                tracing::warn!(path = %self.path.display(), "{}", reloaded.summary());
            }
            Ok(reloaded) => tracing::info!(path = %self.path.display(), "{}", reloaded.summary()),
            Err(error) => {
                let path = self.path.display();
                tracing::warn!(%path, %error, "the config was rejected; the previous config stays in use");
            }
        }
        *self.last_error.lock() = error;
    }

    /// Reads the file and applies it to the host. It waits only for the file: new rules and new servers are in effect
    /// before removed servers have ended.
    async fn apply(&self, trigger: ReloadTrigger) -> Result<ReloadOutcome, String> {
        let mut active = self.active.lock().await;
        let read = self.read().await;
        *self.last_checked.lock() = read.clone().ok();
        let (text, trust) = read?;
        let mut new = self.parse_if_trusted(trigger, &active, &text, trust)?;
        // An editor or a full disk may leave the file empty for longer than two checks.
        match trigger {
            ReloadTrigger::FileChange | ReloadTrigger::Signal
                if new.servers.is_empty() && !active.servers.is_empty() =>
            {
                return Err(
                    "it lists no servers any more; if that is intended, `gripfast reload` applies it"
                        .to_owned(),
                );
            }
            ReloadTrigger::Request | ReloadTrigger::Signal => self.trust(trigger, text).await,
            ReloadTrigger::FileChange => {}
        }
        let mistakes = keep_working_servers(&active, &mut new);
        let difference = ConfigDiff::between(&active, &new);
        // Rules for all servers come first, so that no call is admitted by an old rule.
        let mut in_force = Vec::new();
        if active.clients != new.clients {
            self.host.set_client_policies(new.clients.clone());
            in_force.push("clients".to_owned());
        }
        if active.budgets != new.budgets {
            self.host.set_budgets(new.budgets.clone());
            in_force.push("budgets".to_owned());
        }
        if active.gateway.exposure != new.gateway.exposure {
            self.host.set_exposure(new.gateway.exposure.clone());
            in_force.push("exposure".to_owned());
        }
        for name in &difference.removed {
            // The program that embeds the host may have removed it already.
            let _ = self.host.remove_server_in_background(name);
        }
        for name in difference.changed.iter().chain(&difference.added) {
            if let Some(entry) = new.servers.iter().find(|entry| entry.name == *name) {
                self.put_server(entry);
            }
        }
        let order: Vec<&str> = new.servers.iter().map(|entry| entry.name.as_str()).collect();
        self.host.set_server_order(&order);
        *active = new;
        let ConfigDiff { added, removed, changed, unchanged, reordered, at_next_start } = difference;
        let ConfigMistakes { kept, unusable } = mistakes;
        Ok(ReloadOutcome {
            added,
            removed,
            changed,
            unchanged,
            reordered,
            in_force,
            at_next_start,
            mistakes: kept.iter().chain(&unusable).map(|(_, why)| why.clone()).collect(),
            kept: kept.into_iter().map(|(name, _)| name).collect(),
            unusable: unusable.into_iter().map(|(name, _)| name).collect(),
        })
    }

    /// Adds or replaces a server.
    fn put_server(&self, entry: &ServerEntry) {
        let name = &entry.name;
        match &entry.spec {
            Ok(spec) => {
                if self.host.replace_server(name, spec.clone()).is_err() {
                    let _ = self.host.spawn(name, spec.clone());
                }
            }
            Err(_) => {
                let _ = self.host.remove_server_in_background(name);
                let _ = self.host.spawn_broken(name, &mistake_text(entry));
            }
        }
    }
}

impl ReloadOutcome {
    /// True if nothing changed and there are no mistakes.
    fn is_noop(&self) -> bool {
        self.has_no_changes() && self.mistakes.is_empty()
    }

    /// True if nothing changed, mistakes aside.
    fn has_no_changes(&self) -> bool {
        let Self { added, removed, changed, unchanged: _, reordered, in_force, at_next_start, .. } = self;
        let changes = [added, removed, changed, in_force, at_next_start];
        !reordered && changes.into_iter().all(Vec::is_empty)
    }

    /// One-line summary for the operator.
    pub fn summary(&self) -> String {
        let count = |names: &[String], what: &str| match names {
            [] => None,
            names => Some(format!("{what} {}", names.join(", "))),
        };
        let parts = [
            count(&self.added, "added"),
            count(&self.changed, "changed"),
            count(&self.removed, "removed"),
            self.reordered.then(|| "server order changed".to_owned()),
            (!self.in_force.is_empty()).then(|| format!("`{}` changed", self.in_force.join("`, `"))),
            (!self.at_next_start.is_empty()).then(|| {
                format!("`{}` changed, effective at the next start", self.at_next_start.join("`, `"))
            }),
            count(&self.kept, "not changed because of mistakes:"),
            count(&self.unusable, "not usable because of mistakes:"),
            (!self.mistakes.is_empty()).then(|| self.mistakes.join("; ")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        match parts.as_slice() {
            [] => "the config has not changed".to_owned(),
            parts => format!("config applied: {}", parts.join("; ")),
        }
    }
}

fn describe_error(error: &ConfigError) -> String {
    match (error, error.source()) {
        // One line, without the excerpts of the file.
        (ConfigError::Invalid { diagnostics }, _) => {
            diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
        (ConfigError::Unsafe(found), _) => format!("{error}; {}", found.remedy()),
        (_, Some(cause)) => format!("{error}: {cause}"),
        (_, None) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::SpawnOptions;
    use gripfast::config::ServerSpec;
    use gripfast::transport::{
        BoxFuture, CloseMode, Dialer, Evidence, Link, LinkContext, LinkInfo, LinkKind, Outgoing, Reply,
        Route, SendError, Session, UnsolicitedStream,
    };

    #[test]
    fn a_content_is_accepted_once_and_only_after_two_equal_checks() {
        let mut checks = FileChecks::new("a");
        let seen =
            ["a", "ha", "half", "whole", "whole", "whole", "a", "a"].map(|text| checks.has_settled(text));
        assert_eq!(seen, [false, false, false, false, true, false, false, true]);
    }

    /// A reloader with an empty config.
    fn reloader() -> (tempfile::TempDir, Arc<Reloader>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gripfast.toml");
        std::fs::write(&path, "").expect("written");
        let active = Config::load(&path).expect("an empty config");
        (folder, Arc::new(Reloader::new(Host::builder().build(), path, active)))
    }

    #[tokio::test(start_paused = true)]
    async fn g05_trust_decisions_about_the_config_are_recorded_and_edits_are_not() {
        let (folder, _) = reloader();
        let path = folder.path().join("gripfast.toml");
        let list = TrustList::in_directory(folder.path().join("state"));
        list.trust(&path, b"").expect("listed");
        let host = Host::builder().build();
        let active = Config::load(&path).expect("an empty config");
        let reloader = Reloader::new(host.clone(), path.clone(), active);
        let reloader = reloader.with_origin(ConfigOrigin::CurrentDirectory, Some(list.clone()));
        let recorded = async || {
            reloader.check_file().await;
            let recorded = host.security_events().into_iter().map(|recorded| recorded.event.to_string());
            recorded.map(|text| text.replace(&path.display().to_string(), "FILE")).collect::<Vec<_>>()
        };
        assert!(recorded().await.is_empty(), "the state at the start is no decision");
        std::fs::write(&path, "# changed\n").expect("written");
        assert!(recorded().await.is_empty(), "an edit is no decision");
        list.trust(&path, b"# changed\n").expect("listed");
        let trusted = "config `FILE` is trusted";
        assert_eq!(recorded().await, [trusted]);
        list.remove(&path).expect("removed");
        let untrusted = "config `FILE` is no longer trusted";
        assert_eq!(recorded().await, [trusted, untrusted]);
        Arc::new(reloader).reload().await.expect("applied");
        let recorded: Vec<String> =
            host.security_events().iter().map(|recorded| recorded.event.to_string()).collect();
        assert!(recorded.len() == 3 && recorded[2].ends_with("is trusted (by admin)"), "{recorded:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_between_the_first_read_and_the_watch_are_applied() {
        let (_folder, reloader) = reloader();
        let new = "[servers.new]\ncommand = \"true\"\ndisabled = true\n";
        std::fs::write(reloader.path(), new).expect("written");
        let outcome = async {
            while reloader.host.server_names().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = reloader.watch() => {}
            outcome = tokio::time::timeout(Duration::from_secs(60), outcome) => outcome.expect("it is applied"),
        }
        assert_eq!(reloader.host.server_names(), ["new"]);
        assert_eq!(
            reloader.reload().await.expect("nothing is wrong with it").added,
            ["new"],
            "reported once"
        );
        assert!(reloader.reload().await.expect("nothing is wrong with it").is_noop());
    }

    #[tokio::test(start_paused = true)]
    async fn a_mistake_in_one_table_keeps_its_server_and_delays_nothing_else() {
        let (_folder, reloader) = reloader();
        let write = |text: &str| std::fs::write(reloader.path(), text).expect("written");
        write("[servers.a]\nurl = 'http://127.0.0.1:1/'\ndisabled = true\n");
        reloader.reload().await.expect("nothing is wrong with it");
        write(
            "[servers.a]\nurl = 'http://127.0.0.1:1/'\nlasy = true\n[servers.b]\nurl = 'nonsense'\n\
             [servers.c]\nurl = 'http://127.0.0.1:1/'\ndisabled = true\n",
        );
        let reloaded = reloader.reload().await.expect("most of it holds");
        assert_eq!((reloaded.kept, reloaded.unusable), (vec!["a".to_owned()], vec!["b".to_owned()]));
        assert_eq!(reloaded.added, ["b", "c"]);
        let state =
            |name: &str| reloader.host.server_status(name).expect("it is there").supervision.state.as_str();
        assert_eq!([state("a"), state("b"), state("c")], ["disabled", "config_error", "disabled"]);
        let error = reloader.last_error().expect("the error is reported until it is corrected");
        assert!(error.contains("did you mean `lazy`"), "{error}");
        write("[servers.a]\nurl = 'http://127.0.0.1:1/'\ndisabled = true\n");
        let corrected = reloader.reload().await.expect("nothing is wrong with it");
        assert_eq!((corrected.unchanged, corrected.removed.len(), reloader.last_error()), (1, 2, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reload_reports_current_mistakes_and_changes_already_applied() {
        let (_folder, reloader) = reloader();
        let server = |name: &str, more: &str| {
            format!("[servers.{name}]\nurl = 'http://127.0.0.1:1/'\ndisabled = true\n{more}")
        };
        let write = |text: String| std::fs::write(reloader.path(), text).expect("written");
        write(server("a", ""));
        reloader.reload().await.expect("nothing is wrong with it");
        write(server("a", "lasy = true\n") + &server("b", "") + &server("c", "lasy = true\n"));
        reloader.apply_detected().await;
        let recorded = reloader.reload().await.expect("most of it holds");
        assert_eq!((recorded.added, recorded.kept, recorded.unusable), (list("b c"), list("a"), list("c")));
        let again = reloader.reload().await.expect("as it did");
        assert_eq!((again.kept, again.unusable, again.mistakes.len()), (list("a"), list("c"), 2));
        write(server("a", "") + &server("b", ""));
        reloader.apply_detected().await;
        write(server("a", "lasy = true\n") + &server("b", ""));
        reloader.apply_detected().await;
        write(server("a", "") + &server("b", ""));
        let corrected = reloader.reload().await.expect("nothing is wrong with it");
        assert_eq!(
            (corrected.kept, corrected.mistakes),
            (list(""), list("")),
            "corrected mistakes are not reported"
        );
    }

    fn list(names: &str) -> Vec<String> {
        names.split_whitespace().map(str::to_owned).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_file_removes_servers_only_on_request() {
        let (_folder, reloader) = reloader();
        std::fs::write(reloader.path(), "[servers.a]\ncommand = 'a'\ndisabled = true\n").expect("written");
        reloader.apply_detected().await;
        std::fs::write(reloader.path(), "").expect("written");
        reloader.apply_detected().await;
        assert_eq!(reloader.host.server_names(), ["a"]);
        let error = reloader.last_error().expect("the error is reported");
        assert!(error.contains("`gripfast reload` applies it"), "{error}");
        assert_eq!(reloader.reload().await.expect("it was requested").removed, ["a"]);
        assert_eq!((reloader.host.server_names().len(), reloader.last_error()), (0, None));
    }

    /// Watches the file while `story` runs.
    async fn while_watched<T>(reloader: &Reloader, story: impl Future<Output = T>) -> T {
        tokio::select! {
            () = reloader.watch() => unreachable!("it watches for ever"),
            recorded = tokio::time::timeout(Duration::from_secs(600), story) => recorded.expect("it ends in time"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn b08_a_config_restored_right_after_a_reload_is_applied_again() {
        let (_folder, reloader) = reloader();
        let write = |text: &str| std::fs::write(reloader.path(), text).expect("written");
        let open = "[servers.a]\ncommand = 'a'\nlazy = true\n";
        let strict = format!("{open}tools = {{ deny = ['echo'] }}\n");
        let is_strict = || reloader.host.server_spec("a").is_ok_and(|spec| !spec.policy.is_unrestricted());
        write(&strict);
        reloader.reload().await.expect("a good config");
        assert!(is_strict());
        let watching = Arc::clone(&reloader);
        while_watched(&watching, async {
            tokio::time::sleep(Reloader::CHECK_INTERVAL * 3).await;
            for signal in [false, true] {
                write(open);
                if signal { reloader.reload_on_signal().await } else { reloader.reload().await }
                    .expect("a good config");
                assert!(!is_strict());
                write(&strict);
                while !is_strict() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn b08_a_signal_waits_for_a_file_that_is_being_written() {
        let (_folder, reloader) = reloader();
        let write = |text: &str| std::fs::write(reloader.path(), text).expect("written");
        let (a, b) = (
            "[servers.a]\ncommand = 'a'\ndisabled = true\n",
            "[servers.b]\ncommand = 'b'\ndisabled = true\n",
        );
        write(a);
        reloader.reload().await.expect("a good config");
        write("");
        let mut reloading = Box::pin(reloader.reload_on_signal());
        // The file is checked at the start and after each second; the writes happen in between.
        for (pause, half) in
            [(Reloader::CHECK_INTERVAL / 3, "[serv"), (Reloader::CHECK_INTERVAL, "[servers.b]")]
        {
            let waits = tokio::time::timeout(pause, &mut reloading).await;
            assert!(waits.is_err(), "{waits:?}");
            write(half);
        }
        let waits = tokio::time::timeout(Reloader::CHECK_INTERVAL, &mut reloading).await;
        assert!(waits.is_err(), "{waits:?}");
        write(b);
        let outcome = reloading.await.expect("a good config");
        assert_eq!((outcome.added, outcome.removed), (list("b"), list("a")));
        write("");
        let error = reloader.reload_on_signal().await.expect_err("an empty file may be a mistake");
        assert!(error.contains("`gripfast reload` applies it"), "{error}");
        assert_eq!(reloader.host.server_names(), ["b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_corrected_mistake_is_no_longer_reported() {
        let (_folder, reloader) = reloader();
        std::fs::write(reloader.path(), "[servers").expect("written");
        reloader.apply_detected().await;
        assert!(reloader.last_error().is_some());
        std::fs::write(reloader.path(), "").expect("written");
        reloader.apply_detected().await;
        assert_eq!(reloader.last_error(), None);
    }

    /// A server whose links never close.
    struct NeverCloses;

    impl Dialer for NeverCloses {
        fn kind(&self) -> LinkKind {
            LinkKind::Process
        }

        fn routes(&self) -> Vec<Route> {
            vec![Route::Stdio]
        }

        fn connect(&self, _: Route, _: LinkContext) -> BoxFuture<'_, Result<Arc<dyn Link>, Evidence>> {
            Box::pin(async { Ok(Arc::new(Self) as Arc<dyn Link>) })
        }
    }

    impl Link for NeverCloses {
        fn request<'a>(
            &'a self,
            _: &'a Session,
            _: Outgoing<'a>,
        ) -> BoxFuture<'a, Result<Reply, Box<SendError>>> {
            Box::pin(std::future::pending())
        }

        fn send<'a>(&'a self, _: &'a Session, _: Vec<u8>) -> BoxFuture<'a, Result<(), Box<SendError>>> {
            Box::pin(async { Ok(()) })
        }

        fn listen(self: Arc<Self>, _: Arc<Session>) -> Option<UnsolicitedStream> {
            None
        }

        fn close<'a>(&'a self, _: Option<&'a Session>, _: CloseMode) -> BoxFuture<'a, ()> {
            Box::pin(std::future::pending())
        }

        fn info(&self) -> LinkInfo {
            LinkInfo::default()
        }
    }

    /// Two servers to remove that do not end, one to disable and one with changed rules.
    const CLINGING: &str = "[servers.a]\ncommand = \"x\"\n[servers.b]\ncommand = \"x\"\n\
                            [servers.off]\ncommand = \"x\"\n[servers.keep]\ncommand = \"x\"\n";
    const STRICT: &str = "[servers.off]\ncommand = \"x\"\ndisabled = true\n\
                          [servers.keep]\ncommand = \"x\"\ntools = { deny = [\"echo\"] }\n\
                          [servers.fresh]\ncommand = \"x\"\ndisabled = true\n";

    /// A reloader with links that never close, and a changed file.
    async fn with_links_that_never_close() -> (tempfile::TempDir, Arc<Reloader>) {
        let (folder, empty) = reloader();
        std::fs::write(&empty.path, CLINGING).expect("written");
        let active = Config::load(&empty.path).expect("a config");
        let host = Host::builder().build();
        for entry in &active.servers {
            let options = SpawnOptions { dialer: Some(Arc::new(NeverCloses)), ..SpawnOptions::default() };
            host.spawn_with(&entry.name, entry.spec.clone().expect("a good one"), options)
                .expect("a free name");
        }
        // Long enough for all of them to connect, and too short for a handshake timeout.
        tokio::time::sleep(Duration::from_millis(100)).await;
        std::fs::write(&empty.path, STRICT).expect("written");
        (folder, Arc::new(Reloader::new(host, empty.path.clone(), active)))
    }

    fn is_strict(host: &Host) -> bool {
        let denies = |spec: ServerSpec| !spec.policy.is_unrestricted();
        host.server_names() == ["off", "keep", "fresh"] && host.server_spec("keep").is_ok_and(denies)
    }

    #[tokio::test(start_paused = true)]
    async fn b08_new_rules_and_servers_are_in_effect_before_removed_servers_end() {
        let (_folder, reloader) = with_links_that_never_close().await;
        let outcome = tokio::time::timeout(Duration::from_secs(3600), reloader.reload()).await;
        let outcome = outcome.expect("removed servers are not waited for").expect("a good config");
        assert_eq!((outcome.removed.len(), outcome.changed.len(), outcome.added.len()), (2, 2, 1));
        assert!(is_strict(&reloader.host), "{:?}", reloader.host.server_names());
        let left = tokio::time::timeout(Duration::from_secs(1), reloader.host.shutdown()).await;
        assert!(left.is_err(), "an orderly shutdown waits for them");
    }

    #[tokio::test(start_paused = true)]
    async fn b08_a_reload_completes_after_its_caller_has_gone() {
        let (_folder, reloader) = with_links_that_never_close().await;
        let mut reloading = Box::pin(reloader.reload());
        assert!(futures_util::poll!(&mut reloading).is_pending());
        drop(reloading);
        let outcome = async {
            while !is_strict(&reloader.host) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), outcome).await.expect("it is applied");
    }

    #[test]
    fn the_summary_lists_all_changes_in_one_line() {
        let nothing = ReloadOutcome {
            added: Vec::new(),
            removed: Vec::new(),
            changed: Vec::new(),
            unchanged: 2,
            reordered: false,
            in_force: Vec::new(),
            at_next_start: Vec::new(),
            kept: Vec::new(),
            unusable: Vec::new(),
            mistakes: Vec::new(),
        };
        assert_eq!(nothing.summary(), "the config has not changed");
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let much = ReloadOutcome {
            added: names(&["a", "b"]),
            removed: names(&["c"]),
            reordered: true,
            in_force: names(&["clients", "budgets"]),
            at_next_start: names(&["gateway"]),
            ..nothing
        };
        assert_eq!(
            much.summary(),
            "config applied: added a, b; removed c; server order changed; `clients`, `budgets` changed; \
             `gateway` changed, effective at the next start"
        );
    }
}

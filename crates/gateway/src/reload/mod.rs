//! A config that changes while the gateway runs. The file is looked at now and then, and whenever somebody asks;
//! what it says is checked, compared with what is in use, and only what differs is touched. A config that
//! cannot be read is refused, and the one in use stays; a mistake in the table of a server concerns that server only.

mod difference;

use crate::trust_list::{Standing, TrustList};
use difference::{Difference, Mistakes, cause, keep_what_works};
use gripfast::config::{Config, ConfigError, ConfigOrigin, ConfigText, ServerEntry, Setting};
use gripfast::private_files::StrictModes;
use gripfast::{Host, SecurityEvent, TrustDecision};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Keeps a host in step with a config file.
pub struct Reloader {
    host: Host,
    path: PathBuf,
    origin: ConfigOrigin,
    /// The list that vouches for a file in the current directory.
    trusted: Option<TrustList>,
    /// What the list said about the file when it was last looked at.
    listed: Mutex<Option<Standing>>,
    /// What the file said when it was last judged, whether it was taken then or refused; whoever had it judged.
    judged: Mutex<Option<Look>>,
    /// What is in use. Held while a config is taken, so that two do not mix.
    used: tokio::sync::Mutex<Config>,
    refused: Mutex<Option<String>>,
    /// What was taken because the file was seen to have changed, and when, until somebody asks.
    untold: Mutex<Option<(Instant, Reloaded)>>,
}

/// The text of the file, and what the list says about it if that matters.
type Look = (ConfigText, Option<Standing>);

/// What was seen of a file, or of several, look by look.
pub(crate) struct Looks<T> {
    taken: T,
    before: T,
}

impl<T: PartialEq + Clone> Looks<T> {
    pub(crate) fn beginning_with(text: T) -> Self {
        Self { taken: text.clone(), before: text }
    }

    /// Whether what the file says is news, and was the same at the look before.
    pub(crate) fn has_settled(&mut self, now: T) -> bool {
        let news = now == self.before && now != self.taken;
        if news {
            self.taken = now.clone();
        }
        self.before = now;
        news
    }
}

/// What came of looking at the config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reloaded {
    /// Servers that are new.
    pub added: Vec<String>,
    /// Servers that are gone.
    pub removed: Vec<String>,
    /// Servers that something else was said about.
    pub changed: Vec<String>,
    /// How many were left alone.
    pub unchanged: usize,
    /// Whether servers that stayed are listed in another order.
    #[serde(default)]
    pub reordered: bool,
    /// The tables beside the servers that something else is said in, and that is in force.
    #[serde(default)]
    pub in_force: Vec<String>,
    /// The tables of which a difference waits for the next start.
    pub at_next_start: Vec<String>,
    /// Servers whose tables have a mistake and that go on as they were before.
    #[serde(default)]
    pub kept: Vec<String>,
    /// New servers whose tables have a mistake; they are listed with the state `config_error`.
    #[serde(default)]
    pub unusable: Vec<String>,
    /// The mistakes.
    #[serde(default)]
    pub mistakes: Vec<String>,
}

/// Who asks for a config to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// Somebody, who means what the file says.
    Request,
    /// Somebody's program, perhaps while the file was being written: what it says has settled since.
    Signal,
    /// Nobody: the file was seen to have changed.
    Look,
}

impl Reloader {
    /// How often the file is looked at. What it says is taken when it was the same twice in a row: editors
    /// write files in pieces.
    pub const LOOKS_EVERY: Duration = Duration::from_secs(1);

    /// Whoever changes the file and then asks may come second: for so long they are told what was done already.
    const NEWS_FOR: Duration = Duration::from_secs(60);

    /// For a host that goes by `used`, which was read from `path`.
    pub fn new(host: Host, path: PathBuf, used: Config) -> Self {
        Self {
            host,
            path,
            origin: ConfigOrigin::Named,
            trusted: None,
            listed: Mutex::default(),
            judged: Mutex::default(),
            used: tokio::sync::Mutex::new(used),
            refused: Mutex::default(),
            untold: Mutex::default(),
        }
    }

    /// The same for a file that was chosen in this way. One in the current directory is taken unasked only while `trusted`
    /// has what it says; whoever asks for it vouches for it, and it is listed.
    #[must_use]
    pub fn chosen_by(mut self, origin: ConfigOrigin, trusted: Option<TrustList>) -> Self {
        self.origin = origin;
        self.trusted = trusted;
        self
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every setting in use, without anything secret, and where it comes from.
    pub async fn settings(&self) -> Vec<Setting> {
        self.used.lock().await.settings()
    }

    /// Why the config that is in the file at present is not the one in use.
    pub fn refused(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks at the file for as long as it is polled, and takes what it says when that has settled and is something
    /// else than what was judged last, be it by a look, a signal or a request.
    pub async fn watch(&self) {
        let mut before = self.look().await;
        // What was written since the config in use was read counts as seen from here on.
        self.take_unasked().await;
        let mut tick = tokio::time::interval(Self::LOOKS_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let now = self.look().await;
            if now == before && now != self.judged() {
                self.take_unasked().await;
            }
            before = now;
        }
    }

    /// The file as it is now; `None` if there is none that can be read.
    async fn look(&self) -> Option<Look> {
        self.read().await.ok()
    }

    fn judged(&self) -> Option<Look> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn read(&self) -> Result<Look, String> {
        let (path, trusted, origin) = (self.path.clone(), self.trusted.clone(), self.origin);
        let read = move || {
            let text = ConfigText::read(&path)?;
            // A list that is not there, or cannot be read, vouches for nothing.
            let listed = |list: TrustList| list.standing(&path, text.bytes()).unwrap_or(Standing::Unknown);
            let standing = match origin {
                ConfigOrigin::CurrentDirectory => Some(trusted.map_or(Standing::Unknown, listed)),
                ConfigOrigin::Named | ConfigOrigin::PlatformDirectory => None,
            };
            Ok((text, standing))
        };
        let read = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
        let read: Look = read.map_err(|error: ConfigError| told(&error))?;
        if let Some(standing) = read.1 {
            self.note_standing(standing, None);
        }
        Ok(read)
    }

    /// Records that the file was trusted, or taken off the list, since it was last looked at. `actor` is known if it was
    /// decided here. An edit of the file is no decision.
    fn note_standing(&self, standing: Standing, actor: Option<&str>) {
        let before = self.listed.lock().unwrap_or_else(PoisonError::into_inner).replace(standing);
        let decision = match (before, standing) {
            (Some(Standing::Changed | Standing::Unknown), Standing::Trusted) => TrustDecision::Trusted,
            (Some(Standing::Trusted | Standing::Changed), Standing::Unknown) => TrustDecision::Untrusted,
            (None, _)
            | (Some(_), Standing::Changed)
            | (Some(Standing::Trusted), Standing::Trusted)
            | (Some(Standing::Unknown), Standing::Unknown) => return,
        };
        let (path, actor) = (self.path.display().to_string(), actor.map(str::to_owned));
        self.host.record(SecurityEvent::TrustChanged { decision, path, actor });
    }

    /// Whether what was read may be taken on this occasion.
    fn vouched(
        &self,
        by: By,
        used: &Config,
        text: &ConfigText,
        standing: Option<Standing>,
    ) -> Result<Config, String> {
        if by == By::Look {
            match standing {
                None | Some(Standing::Trusted) => {}
                Some(Standing::Changed) => {
                    return Err("it has changed since it was trusted; `gripfast reload` takes it, and so does `gripfast \
                                trust`"
                        .to_owned());
                }
                Some(Standing::Unknown) => {
                    return Err("it is not trusted any more; `gripfast trust` trusts it".to_owned());
                }
            }
            // Whoever could write the file could also write that it may be written.
            if let (Some(found), StrictModes::On) = (text.problem(), used.gateway.access.strict_modes) {
                return Err(told(&ConfigError::Unsafe(found.clone())));
            }
        }
        text.config(self.origin).map_err(|error| told(&error))
    }

    /// Lists what a person has asked for.
    async fn trust(&self, by: By, text: ConfigText) {
        let (ConfigOrigin::CurrentDirectory, Some(list)) = (self.origin, self.trusted.clone()) else {
            return;
        };
        let path = self.path.clone();
        let listing = move || list.trust(&path, text.bytes());
        let actor = match by {
            By::Request => Some("admin"),
            By::Signal => Some("signal"),
            By::Look => None,
        };
        match tokio::task::spawn_blocking(listing).await {
            Ok(Err(error)) => {
                tracing::warn!(%error, "the config was taken, and could not be listed as trusted");
            }
            Ok(Ok(())) => self.note_standing(Standing::Trusted, actor),
            Err(_) => {}
        }
    }

    /// Reads the file and has the host do what it says. Whoever gives up on waiting does not stop it half-way.
    ///
    /// # Errors
    /// It cannot be used; the host goes on with the config it has.
    pub async fn reload(self: &Arc<Self>) -> Result<Reloaded, String> {
        let reloader = Arc::clone(self);
        let asked = tokio::spawn(async move { reloader.take_asked(By::Request).await });
        asked.await.map_err(|error| error.to_string())?
    }

    /// The same on a signal, which may come while the file is being written: waits until two looks were the same.
    ///
    /// # Errors
    /// It cannot be used, or names no server any more; the host goes on with the config it has.
    pub async fn reload_on_signal(self: &Arc<Self>) -> Result<Reloaded, String> {
        let mut before = self.look().await;
        loop {
            tokio::time::sleep(Self::LOOKS_EVERY).await;
            let now = self.look().await;
            if now == before {
                break;
            }
            before = now;
        }
        let reloader = Arc::clone(self);
        let asked = tokio::spawn(async move { reloader.take_asked(By::Signal).await });
        asked.await.map_err(|error| error.to_string())?
    }

    async fn take_asked(&self, by: By) -> Result<Reloaded, String> {
        let taken = self.take(by).await;
        self.tell(&taken);
        let untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (taken, untold) {
            (Ok(now), Some((at, news))) if now.changed_nothing() && at.elapsed() < Self::NEWS_FOR => {
                // Which mistakes there are is known now.
                let Reloaded { kept, unusable, mistakes, .. } = now;
                Ok(Reloaded { kept, unusable, mistakes, ..news })
            }
            (taken, _) => taken,
        }
    }

    /// The same for nobody in particular: the log and status tell what comes of it, if there is anything new.
    async fn take_unasked(&self) {
        let taken = self.take(By::Look).await;
        if taken.as_ref().is_ok_and(Reloaded::is_nothing) && self.refused().is_none() {
            return;
        }
        self.tell(&taken);
        let news = taken.ok().map(|news| (Instant::now(), news));
        *self.untold.lock().unwrap_or_else(PoisonError::into_inner) = news;
    }

    fn tell(&self, taken: &Result<Reloaded, String>) {
        let refused = match taken {
            Ok(reloaded) if reloaded.kept.is_empty() => None,
            Ok(reloaded) => Some(reloaded.mistakes.join("; ")),
            Err(error) => Some(error.clone()),
        };
        match taken {
            Ok(reloaded) if !reloaded.mistakes.is_empty() => {
                tracing::warn!(path = %self.path.display(), "{}", reloaded.summary());
            }
            Ok(reloaded) => tracing::info!(path = %self.path.display(), "{}", reloaded.summary()),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the config was refused; the one in use stays");
            }
        }
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }

    /// Has the host do what the file says. Nothing is waited for but the file: what is forbidden from now on, and
    /// what is new, holds before the last of what is gone has ended.
    async fn take(&self, by: By) -> Result<Reloaded, String> {
        let mut used = self.used.lock().await;
        let read = self.read().await;
        *self.judged.lock().unwrap_or_else(PoisonError::into_inner) = read.clone().ok();
        let (text, standing) = read?;
        let mut new = self.vouched(by, &used, &text, standing)?;
        // An editor, or a disk that is full, may leave a file empty for longer than two looks.
        match by {
            By::Look | By::Signal if new.servers.is_empty() && !used.servers.is_empty() => {
                return Err(
                    "it names no server any more; if that is meant, `gripfast reload` takes it".to_owned()
                );
            }
            By::Request | By::Signal => self.trust(by, text).await,
            By::Look => {}
        }
        let mistakes = keep_what_works(&used, &mut new);
        let difference = Difference::between(&used, &new);
        // What applies to all servers comes first, so that none is ever used by rules that are gone.
        let mut in_force = Vec::new();
        if used.clients != new.clients {
            self.host.set_clients(new.clients.clone());
            in_force.push("clients".to_owned());
        }
        if used.budgets != new.budgets {
            self.host.set_budgets(new.budgets.clone());
            in_force.push("budgets".to_owned());
        }
        for name in &difference.removed {
            // It may have been removed by the program around the host.
            let _ = self.host.let_go(name);
        }
        for name in difference.changed.iter().chain(&difference.added) {
            if let Some(entry) = new.servers.iter().find(|entry| entry.name == *name) {
                self.put(entry);
            }
        }
        let order: Vec<&str> = new.servers.iter().map(|entry| entry.name.as_str()).collect();
        self.host.arrange(&order);
        *used = new;
        let Difference { added, removed, changed, unchanged, reordered, at_next_start } = difference;
        let Mistakes { kept, unusable } = mistakes;
        Ok(Reloaded {
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

    /// Has the host keep a server as this entry says.
    fn put(&self, entry: &ServerEntry) {
        let name = &entry.name;
        match &entry.spec {
            Ok(spec) => {
                if self.host.replace(name, spec.clone()).is_err() {
                    let _ = self.host.spawn(name, spec.clone());
                }
            }
            Err(_) => {
                let _ = self.host.let_go(name);
                let _ = self.host.spawn_broken(name, &cause(entry));
            }
        }
    }
}

impl Reloaded {
    /// Whether the config says what it said before, and all of it can be used.
    fn is_nothing(&self) -> bool {
        self.changed_nothing() && self.mistakes.is_empty()
    }

    /// Whether everything is as it was, mistakes aside.
    fn changed_nothing(&self) -> bool {
        let Self { added, removed, changed, unchanged: _, reordered, in_force, at_next_start, .. } = self;
        let changes = [added, removed, changed, in_force, at_next_start];
        !reordered && changes.into_iter().all(Vec::is_empty)
    }

    /// What was done, in a line.
    pub fn summary(&self) -> String {
        let count = |names: &[String], what: &str| match names {
            [] => None,
            names => Some(format!("{what} {}", names.join(", "))),
        };
        let said = [
            count(&self.added, "added"),
            count(&self.changed, "changed"),
            count(&self.removed, "removed"),
            self.reordered.then(|| "servers are listed in the new order".to_owned()),
            (!self.in_force.is_empty())
                .then(|| format!("what `{}` says is in force", self.in_force.join("`, `"))),
            (!self.at_next_start.is_empty()).then(|| {
                format!("what `{}` says takes effect at the next start", self.at_next_start.join("`, `"))
            }),
            count(&self.kept, "kept as before, for its table has a mistake:"),
            count(&self.unusable, "not usable, for its table has a mistake:"),
            (!self.mistakes.is_empty()).then(|| self.mistakes.join("; ")),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        match said.as_slice() {
            [] => "the config says what it said before".to_owned(),
            said => format!("the config was taken: {}", said.join("; ")),
        }
    }
}

fn told(error: &ConfigError) -> String {
    match (error, error.source()) {
        // As compilers show it would be many lines.
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
        BoxFuture, Dialer, Evidence, Link, LinkFacts, LinkKind, Listening, Manner, Outgoing, Reply, Route,
        Session, Surroundings, Trouble,
    };

    #[test]
    fn a_text_is_taken_once_and_only_when_it_was_seen_twice() {
        let mut looks = Looks::beginning_with("a");
        let seen =
            ["a", "ha", "half", "whole", "whole", "whole", "a", "a"].map(|text| looks.has_settled(text));
        assert_eq!(seen, [false, false, false, false, true, false, false, true]);
    }

    /// One that goes by an empty config.
    fn reloader() -> (tempfile::TempDir, Arc<Reloader>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gripfast.toml");
        std::fs::write(&path, "").expect("written");
        let used = Config::load(&path).expect("an empty config");
        (folder, Arc::new(Reloader::new(Host::builder().build(), path, used)))
    }

    #[tokio::test(start_paused = true)]
    async fn g05_decisions_about_the_config_are_told_and_edits_of_it_are_not() {
        let (folder, _) = reloader();
        let path = folder.path().join("gripfast.toml");
        let list = TrustList::in_directory(folder.path().join("state"));
        list.trust(&path, b"").expect("listed");
        let host = Host::builder().build();
        let used = Config::load(&path).expect("an empty config");
        let reloader = Reloader::new(host.clone(), path.clone(), used);
        let reloader = reloader.chosen_by(ConfigOrigin::CurrentDirectory, Some(list.clone()));
        let told = async || {
            reloader.look().await;
            let told = host.security_events().into_iter().map(|told| told.event.to_string());
            told.map(|text| text.replace(&path.display().to_string(), "FILE")).collect::<Vec<_>>()
        };
        assert!(told().await.is_empty(), "what is so at the start is no decision");
        std::fs::write(&path, "# changed\n").expect("written");
        assert!(told().await.is_empty(), "an edit is no decision");
        list.trust(&path, b"# changed\n").expect("listed");
        let trusted = "config `FILE` is trusted";
        assert_eq!(told().await, [trusted]);
        list.remove(&path).expect("removed");
        let untrusted = "config `FILE` is not trusted any more";
        assert_eq!(told().await, [trusted, untrusted]);
        Arc::new(reloader).reload().await.expect("taken");
        let told: Vec<String> = host.security_events().iter().map(|told| told.event.to_string()).collect();
        assert!(told.len() == 3 && told[2].ends_with("is trusted (by admin)"), "{told:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_written_between_the_reading_and_the_watching_is_taken() {
        let (_folder, reloader) = reloader();
        let new = "[servers.new]\ncommand = \"true\"\ndisabled = true\n";
        std::fs::write(reloader.path(), new).expect("written");
        let taken = async {
            while reloader.host.names().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = reloader.watch() => {}
            taken = tokio::time::timeout(Duration::from_secs(60), taken) => taken.expect("it is taken"),
        }
        assert_eq!(reloader.host.names(), ["new"]);
        assert_eq!(reloader.reload().await.expect("nothing is wrong with it").added, ["new"], "told once");
        assert!(reloader.reload().await.expect("nothing is wrong with it").is_nothing());
    }

    #[tokio::test(start_paused = true)]
    async fn a_mistake_in_one_table_keeps_its_server_and_holds_up_nothing_else() {
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
        let state = |name: &str| reloader.host.status_of(name).expect("it is there").supervision.state.word();
        assert_eq!([state("a"), state("b"), state("c")], ["disabled", "config_error", "disabled"]);
        let refused = reloader.refused().expect("it is said for as long as it is so");
        assert!(refused.contains("did you mean `lazy`"), "{refused}");
        write("[servers.a]\nurl = 'http://127.0.0.1:1/'\ndisabled = true\n");
        let mended = reloader.reload().await.expect("nothing is wrong with it");
        assert_eq!((mended.unchanged, mended.removed.len(), reloader.refused()), (1, 2, None));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_hears_of_the_mistakes_that_there_are_and_of_what_was_done_unasked() {
        let (_folder, reloader) = reloader();
        let server = |name: &str, more: &str| {
            format!("[servers.{name}]\nurl = 'http://127.0.0.1:1/'\ndisabled = true\n{more}")
        };
        let write = |text: String| std::fs::write(reloader.path(), text).expect("written");
        write(server("a", ""));
        reloader.reload().await.expect("nothing is wrong with it");
        write(server("a", "lasy = true\n") + &server("b", "") + &server("c", "lasy = true\n"));
        reloader.take_unasked().await;
        let told = reloader.reload().await.expect("most of it holds");
        assert_eq!((told.added, told.kept, told.unusable), (list("b c"), list("a"), list("c")));
        let again = reloader.reload().await.expect("as it did");
        assert_eq!((again.kept, again.unusable, again.mistakes.len()), (list("a"), list("c"), 2));
        write(server("a", "") + &server("b", ""));
        reloader.take_unasked().await;
        write(server("a", "lasy = true\n") + &server("b", ""));
        reloader.take_unasked().await;
        write(server("a", "") + &server("b", ""));
        let mended = reloader.reload().await.expect("nothing is wrong with it");
        assert_eq!(
            (mended.kept, mended.mistakes),
            (list(""), list("")),
            "what was mended is not told any more"
        );
    }

    fn list(names: &str) -> Vec<String> {
        names.split_whitespace().map(str::to_owned).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_suddenly_empty_takes_no_server_away_unless_somebody_asks() {
        let (_folder, reloader) = reloader();
        std::fs::write(reloader.path(), "[servers.a]\ncommand = 'a'\ndisabled = true\n").expect("written");
        reloader.take_unasked().await;
        std::fs::write(reloader.path(), "").expect("written");
        reloader.take_unasked().await;
        assert_eq!(reloader.host.names(), ["a"]);
        let refused = reloader.refused().expect("it is told");
        assert!(refused.contains("`gripfast reload` takes it"), "{refused}");
        assert_eq!(reloader.reload().await.expect("somebody means it").removed, ["a"]);
        assert_eq!((reloader.host.names().len(), reloader.refused()), (0, None));
    }

    /// Watches while `story` is told.
    async fn while_watched<T>(reloader: &Reloader, story: impl Future<Output = T>) -> T {
        tokio::select! {
            () = reloader.watch() => unreachable!("it watches for ever"),
            told = tokio::time::timeout(Duration::from_secs(600), story) => told.expect("it comes to its end"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn b08_a_config_that_is_put_back_right_after_a_reload_is_in_force_again() {
        let (_folder, reloader) = reloader();
        let write = |text: &str| std::fs::write(reloader.path(), text).expect("written");
        let open = "[servers.a]\ncommand = 'a'\nlazy = true\n";
        let strict = format!("{open}tools = {{ deny = ['echo'] }}\n");
        let is_strict = || reloader.host.spec_of("a").is_ok_and(|spec| !spec.policy.is_open());
        write(&strict);
        reloader.reload().await.expect("a good config");
        assert!(is_strict());
        let watching = Arc::clone(&reloader);
        while_watched(&watching, async {
            tokio::time::sleep(Reloader::LOOKS_EVERY * 3).await;
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
        let mut asked = Box::pin(reloader.reload_on_signal());
        // It looks at the beginning and after each second; what is written is there in between.
        for (pause, half) in [(Reloader::LOOKS_EVERY / 3, "[serv"), (Reloader::LOOKS_EVERY, "[servers.b]")] {
            let waits = tokio::time::timeout(pause, &mut asked).await;
            assert!(waits.is_err(), "{waits:?}");
            write(half);
        }
        let waits = tokio::time::timeout(Reloader::LOOKS_EVERY, &mut asked).await;
        assert!(waits.is_err(), "{waits:?}");
        write(b);
        let taken = asked.await.expect("a good config");
        assert_eq!((taken.added, taken.removed), (list("b"), list("a")));
        write("");
        let refused = reloader.reload_on_signal().await.expect_err("it may not be meant");
        assert!(refused.contains("`gripfast reload` takes it"), "{refused}");
        assert_eq!(reloader.host.names(), ["b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_mistake_that_was_taken_back_is_forgotten() {
        let (_folder, reloader) = reloader();
        std::fs::write(reloader.path(), "[servers").expect("written");
        reloader.take_unasked().await;
        assert!(reloader.refused().is_some());
        std::fs::write(reloader.path(), "").expect("written");
        reloader.take_unasked().await;
        assert_eq!(reloader.refused(), None);
    }

    /// A server whose links never end.
    struct Clinging;

    impl Dialer for Clinging {
        fn kind(&self) -> LinkKind {
            LinkKind::Process
        }

        fn routes(&self) -> Vec<Route> {
            vec![Route::Stdio]
        }

        fn open(&self, _: Route, _: Surroundings) -> BoxFuture<'_, Result<Arc<dyn Link>, Evidence>> {
            Box::pin(async { Ok(Arc::new(Self) as Arc<dyn Link>) })
        }
    }

    impl Link for Clinging {
        fn request<'a>(&'a self, _: &'a Session, _: Outgoing) -> BoxFuture<'a, Result<Reply, Box<Trouble>>> {
            Box::pin(std::future::pending())
        }

        fn send<'a>(&'a self, _: &'a Session, _: Vec<u8>) -> BoxFuture<'a, Result<(), Box<Trouble>>> {
            Box::pin(async { Ok(()) })
        }

        fn listen(self: Arc<Self>, _: Arc<Session>) -> Option<Listening> {
            None
        }

        fn close<'a>(&'a self, _: Option<&'a Session>, _: Manner) -> BoxFuture<'a, ()> {
            Box::pin(std::future::pending())
        }

        fn facts(&self) -> LinkFacts {
            LinkFacts::default()
        }
    }

    /// Two that are to go and do not, one that is to be switched off and one whose rules change.
    const CLINGING: &str = "[servers.a]\ncommand = \"x\"\n[servers.b]\ncommand = \"x\"\n\
                            [servers.off]\ncommand = \"x\"\n[servers.keep]\ncommand = \"x\"\n";
    const STRICT: &str = "[servers.off]\ncommand = \"x\"\ndisabled = true\n\
                          [servers.keep]\ncommand = \"x\"\ntools = { deny = [\"echo\"] }\n\
                          [servers.fresh]\ncommand = \"x\"\ndisabled = true\n";

    /// One whose host has links to servers that cling to them, and a file that says something else.
    async fn clinging() -> (tempfile::TempDir, Arc<Reloader>) {
        let (folder, empty) = reloader();
        std::fs::write(&empty.path, CLINGING).expect("written");
        let used = Config::load(&empty.path).expect("a config");
        let host = Host::builder().build();
        for entry in &used.servers {
            let options = SpawnOptions { dialer: Some(Arc::new(Clinging)), ..SpawnOptions::default() };
            host.spawn_with(&entry.name, entry.spec.clone().expect("a good one"), options)
                .expect("a free name");
        }
        // Long enough for all of them to be dialled, and for no handshake to be given up.
        tokio::time::sleep(Duration::from_millis(100)).await;
        std::fs::write(&empty.path, STRICT).expect("written");
        (folder, Arc::new(Reloader::new(host, empty.path.clone(), used)))
    }

    fn is_strict(host: &Host) -> bool {
        let denies = |spec: ServerSpec| !spec.policy.is_open();
        host.names() == ["off", "keep", "fresh"] && host.spec_of("keep").is_ok_and(denies)
    }

    #[tokio::test(start_paused = true)]
    async fn b08_what_is_denied_or_new_holds_before_what_is_gone_has_ended() {
        let (_folder, reloader) = clinging().await;
        let taken = tokio::time::timeout(Duration::from_secs(3600), reloader.reload()).await;
        let taken = taken.expect("nothing that is gone is waited for").expect("a good config");
        assert_eq!((taken.removed.len(), taken.changed.len(), taken.added.len()), (2, 2, 1));
        assert!(is_strict(&reloader.host), "{:?}", reloader.host.names());
        let left = tokio::time::timeout(Duration::from_secs(1), reloader.host.shutdown()).await;
        assert!(left.is_err(), "whoever leaves in order waits for them");
    }

    #[tokio::test(start_paused = true)]
    async fn b08_a_config_is_taken_to_its_end_though_whoever_asked_has_left() {
        let (_folder, reloader) = clinging().await;
        let mut asked = Box::pin(reloader.reload());
        assert!(futures_util::poll!(&mut asked).is_pending());
        drop(asked);
        let taken = async {
            while !is_strict(&reloader.host) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), taken).await.expect("it is taken");
    }

    #[test]
    fn what_was_done_is_said_in_a_line() {
        let nothing = Reloaded {
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
        assert_eq!(nothing.summary(), "the config says what it said before");
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let much = Reloaded {
            added: names(&["a", "b"]),
            removed: names(&["c"]),
            reordered: true,
            in_force: names(&["clients", "budgets"]),
            at_next_start: names(&["gateway"]),
            ..nothing
        };
        assert_eq!(
            much.summary(),
            "the config was taken: added a, b; removed c; servers are listed in the new order; what `clients`, `budgets` says is in force; what `gateway` says \
             takes effect at the next start"
        );
    }
}

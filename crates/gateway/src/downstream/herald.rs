//! Tells clients that lists have changed: once per change, however many servers changed at once, and also
//! to those who were not listening when it happened.

use gripfast::{Host, Principal, Served};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// How often each list has changed. What a client was last told is such a value too; the difference is
/// what it has to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Marks {
    pub(crate) tools: u64,
    pub(crate) resources: u64,
    pub(crate) prompts: u64,
}

impl Marks {
    /// A mark that no list ever has.
    pub(crate) const UNKNOWN: u64 = u64::MAX;

    /// The notifications that lead from these marks to `newer`.
    pub(crate) fn news(self, newer: Self) -> impl Iterator<Item = &'static str> {
        let changed = [
            (self.tools != newer.tools).then_some("notifications/tools/list_changed"),
            (self.resources != newer.resources).then_some("notifications/resources/list_changed"),
            (self.prompts != newer.prompts).then_some("notifications/prompts/list_changed"),
        ];
        changed.into_iter().flatten()
    }

    /// The marks as the id of an event, from which a stream can be picked up.
    pub(crate) fn to_event_id(self) -> String {
        format!("m-{}-{}-{}", self.tools, self.resources, self.prompts)
    }

    pub(crate) fn from_event_id(id: &str) -> Option<Self> {
        let mut parts = id.strip_prefix("m-")?.split('-').map(|part| part.parse().ok());
        let marks = Self { tools: parts.next()??, resources: parts.next()??, prompts: parts.next()?? };
        parts.next().is_none().then_some(marks)
    }
}

/// Watches the menu on behalf of all clients. Clients of one principal see the same of it, so they are told of
/// the same changes: of those of its servers, and of those of what it may see.
pub(crate) struct Herald {
    posts: Arc<Posts>,
    watcher: AbortHandle,
}

/// What each principal is told of.
struct Posts {
    host: Host,
    by_principal: Mutex<BTreeMap<Principal, Arc<Post>>>,
}

/// The marks of one principal, and the menu that they stand for.
struct Post {
    principal: Principal,
    /// Where its marks began. Another post's, and another process's, began elsewhere.
    origin: u64,
    marks: watch::Sender<Marks>,
    known: Mutex<Arc<Served>>,
}

impl Herald {
    /// Servers that change together are told of together.
    const DEBOUNCE: Duration = Duration::from_millis(50);

    pub(crate) fn of(host: &Host) -> Self {
        let changes = host.menu_changes();
        let posts = Arc::new(Posts { host: host.clone(), by_principal: Mutex::default() });
        let watcher = tokio::spawn(watch_menu(changes, Arc::clone(&posts))).abort_handle();
        Self { posts, watcher }
    }

    /// The present marks of a principal.
    pub(crate) fn marks(&self, principal: &Principal) -> Marks {
        *self.posts.of(principal).marks.borrow()
    }

    /// Whether these were marks of the principal in this process.
    pub(crate) fn gave(&self, principal: &Principal, marks: Marks) -> bool {
        let post = self.posts.of(principal);
        let now = *post.marks.borrow();
        let between = |mark: u64, now: u64| (post.origin..=now).contains(&mark);
        between(marks.tools, now.tools)
            && between(marks.resources, now.resources)
            && between(marks.prompts, now.prompts)
    }

    /// Takes note of the menu as it is, at once: who is shown it now need not be told of it in a moment.
    pub(crate) fn catch_up(&self, principal: &Principal) {
        self.posts.of(principal).take_note(&self.posts.host);
    }

    /// Follows the marks of a principal.
    pub(crate) fn follow(&self, principal: &Principal) -> watch::Receiver<Marks> {
        self.posts.of(principal).marks.subscribe()
    }
}

impl Drop for Herald {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl Posts {
    /// Principals that are remembered without anybody listening for them. Clients of one that was forgotten are
    /// told once to look again.
    const MOST: usize = 4096;

    fn of(&self, principal: &Principal) -> Arc<Post> {
        let mut posts = self.lock();
        if let Some(post) = posts.get(principal) {
            return Arc::clone(post);
        }
        if posts.len() >= Self::MOST {
            posts.retain(|_, post| post.marks.receiver_count() > 0);
        }
        let post = Arc::new(Post::new(principal.clone(), &self.host));
        posts.insert(principal.clone(), Arc::clone(&post));
        post
    }

    fn take_note(&self) {
        let posts: Vec<Arc<Post>> = self.lock().values().cloned().collect();
        for post in posts {
            post.take_note(&self.host);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Principal, Arc<Post>>> {
        self.by_principal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Post {
    fn new(principal: Principal, host: &Host) -> Self {
        // Far enough from any other's, and from the mark that no list ever has.
        let origin = RandomState::new().build_hasher().finish() >> 1;
        let marks = Marks { tools: origin, resources: origin, prompts: origin };
        let known = Mutex::new(host.menu_for(&principal));
        Self { principal, origin, marks: watch::Sender::new(marks), known }
    }

    fn take_note(&self, host: &Host) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let menu = host.menu_for(&self.principal);
        if Arc::ptr_eq(&known, &menu) {
            return;
        }
        self.marks.send_if_modified(|marks| {
            let before = *marks;
            advance(marks, &known, &menu);
            *marks != before
        });
        *known = menu;
    }
}

async fn watch_menu(mut changes: watch::Receiver<u64>, posts: Arc<Posts>) {
    while changes.changed().await.is_ok() {
        tokio::time::sleep(Herald::DEBOUNCE).await;
        changes.borrow_and_update();
        posts.take_note();
    }
}

fn advance(marks: &mut Marks, before: &Arc<Served>, after: &Arc<Served>) {
    marks.tools += u64::from(before.tools != after.tools || before.legacy_tools != after.legacy_tools);
    marks.resources += u64::from(before.resources != after.resources || before.templates != after.templates);
    marks.prompts += u64::from(before.prompts != after.prompts);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_exactly_what_changed_since_it_was_last_told() {
        let told = Marks { tools: 3, resources: 1, prompts: 0 };
        let now = Marks { tools: 9, resources: 1, prompts: 1 };
        let news: Vec<_> = told.news(now).collect();
        assert_eq!(news, ["notifications/tools/list_changed", "notifications/prompts/list_changed"]);
        assert_eq!(now.news(now).count(), 0);
    }

    #[test]
    fn marks_go_through_an_event_id_and_nonsense_does_not() {
        let marks = Marks { tools: 3, resources: 1, prompts: 7 };
        assert_eq!(Marks::from_event_id(&marks.to_event_id()), Some(marks));
        for nonsense in ["", "m-", "m-1-2", "m-1-2-3-4", "m-a-b-c", "s-1-2-3"] {
            assert_eq!(Marks::from_event_id(nonsense), None, "{nonsense}");
        }
    }
}

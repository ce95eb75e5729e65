//! Tells clients that lists have changed: once per change, however many servers changed at once, and also
//! to those who were not listening when it happened.

use gripfast::{Host, Served};
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

/// Watches the menu on behalf of all clients.
pub(crate) struct Herald {
    post: Arc<Post>,
    watcher: AbortHandle,
}

/// The marks, and the menu that they stand for.
struct Post {
    marks: watch::Sender<Marks>,
    known: Mutex<Arc<Served>>,
}

impl Herald {
    /// Servers that change together are told of together.
    const DEBOUNCE: Duration = Duration::from_millis(50);

    pub(crate) fn of(host: &Host) -> Self {
        let changes = host.menu_changes();
        let known = Mutex::new(host.menu());
        let post = Arc::new(Post { marks: watch::Sender::new(Marks::default()), known });
        let watcher = tokio::spawn(watch_menu(host.clone(), changes, Arc::clone(&post))).abort_handle();
        Self { post, watcher }
    }

    /// The present marks.
    pub(crate) fn marks(&self) -> Marks {
        *self.post.marks.borrow()
    }

    /// Takes note of the menu as it is, at once: who is shown it now need not be told of it in a moment.
    pub(crate) fn catch_up(&self, host: &Host) {
        self.post.take_note(host);
    }

    /// Follows the marks.
    pub(crate) fn follow(&self) -> watch::Receiver<Marks> {
        self.post.marks.subscribe()
    }
}

impl Drop for Herald {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl Post {
    fn take_note(&self, host: &Host) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let menu = host.menu();
        self.marks.send_if_modified(|marks| {
            let before = *marks;
            advance(marks, &known, &menu);
            *marks != before
        });
        *known = menu;
    }
}

async fn watch_menu(host: Host, mut changes: watch::Receiver<u64>, post: Arc<Post>) {
    while changes.changed().await.is_ok() {
        tokio::time::sleep(Herald::DEBOUNCE).await;
        changes.borrow_and_update();
        post.take_note(&host);
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

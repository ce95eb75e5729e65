//! Bounded waits of tests, for conditions that hold sooner or later.

use std::time::{Duration, Instant};

/// Time limit of a wait that ends much sooner unless something is broken.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two looks at a condition that has no event.
const INTERVAL: Duration = Duration::from_millis(5);

/// Waits for `work`.
///
/// # Panics
/// After [`PATIENCE`].
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

/// Polls until there is a value; `None` after [`PATIENCE`].
pub async fn poll<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let found = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.ok()
}

/// Polls until a condition holds.
///
/// # Panics
/// After [`PATIENCE`].
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    until_async(what, async || holds()).await;
}

/// Polls until a condition holds that takes a request to check.
///
/// # Panics
/// After [`PATIENCE`].
pub async fn until_async(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    within(what, async {
        while !holds().await {
            tokio::time::sleep(INTERVAL).await;
        }
    })
    .await;
}

/// Polls until there is a value, in a test without a runtime.
///
/// # Panics
/// After [`PATIENCE`].
pub fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(INTERVAL);
    }
    panic!("never: {what}");
}

//! Roots: the directories that a client lets servers work in. What they are is between the two.

/// The question for them.
pub const LIST: &str = "roots/list";
/// A legacy client says that they have changed.
pub const CHANGED: &str = "notifications/roots/list_changed";

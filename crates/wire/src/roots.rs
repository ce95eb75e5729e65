//! Methods of roots: the directories that a client lets servers work in.

/// Request for the client's roots.
pub const LIST: &str = "roots/list";
/// Notification of a legacy client that its roots have changed.
pub const CHANGED: &str = "notifications/roots/list_changed";

//! Notifications to clients: changed lists, updated resources and tasks, and messages that belong to no call.

pub(crate) mod change_feed;
pub(crate) mod delivered;
pub(crate) mod list_changes;
pub(crate) mod listen;
pub(crate) mod log_level;
pub(crate) mod push;
pub(crate) mod subscriptions;

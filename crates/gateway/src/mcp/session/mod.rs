//! Sessions of legacy clients: their state in memory, their tokens, and what the store keeps of them across restarts.

pub(crate) mod claims;
pub(crate) mod preferences;
pub(crate) mod registry;
pub(crate) mod retention;
pub(crate) mod state;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod token;

//! Handlers of the admin API, one file per resource.

pub(crate) mod calls;
pub(crate) mod config;
pub(crate) mod login;
pub(crate) mod pins;
pub(crate) mod replicas;
pub(crate) mod sessions;
pub(crate) mod sign_in;
pub(crate) mod tools;

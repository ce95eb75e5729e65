//! What the tests of gripfast share: real servers and clients, a browser, a keyring, the official conformance suite, and how to
//! start them.

pub mod authority;
pub mod browser;
pub mod clients;
pub mod conformance;
pub mod keyring;
pub mod packages;
pub mod peers;

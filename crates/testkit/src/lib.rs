//! What the tests of gripfast share: real peers, the official conformance suite, and how to start them.

pub mod conformance;
pub mod packages;
pub mod peers;

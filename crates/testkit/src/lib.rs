//! What the tests of gripfast share: real peers and how to start them.

pub mod packages;
pub mod peers;

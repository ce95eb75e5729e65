//! What the tests of gripfast share: real peers and how to start them.

pub mod peers;

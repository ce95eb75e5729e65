//! Pure decisions of gripfast.

pub mod supervise;

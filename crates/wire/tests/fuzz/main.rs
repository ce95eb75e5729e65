//! Property tests for any input. `PROPTEST_CASES=100000 cargo nextest run -p gripfast-wire --test fuzz` makes a long
//! run; a failing case prints its seed and is stored.

mod foreign_input;
mod patch;
mod sse;
mod text;

//! Properties that hold for any input. `PROPTEST_CASES=100000 cargo nextest run -p gripfast-wire --test fuzz`
//! makes a long run of them; a failing case prints its seed and is kept.

mod patch;
mod sse;
mod strangers;
mod text;

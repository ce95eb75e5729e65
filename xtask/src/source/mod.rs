//! Names in Rust source, read with `syn`: test functions, and the paths that a file names. Macros are not expanded;
//! their tokens are searched.

pub(crate) mod paths;
pub(crate) mod production;
pub(crate) mod tests_in;

use syn::Attribute;

/// Recognizes `test`, `tokio::test`, `tokio::test(start_paused = true)` and the like.
fn marks_a_test(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == "test")
}

//! Names in Rust source: tokens, test functions, paths.
//!
//! This is not a parser. It recognizes comments, strings and identifiers, the items that are test code, and the paths
//! that a file names; macros are not expanded. The checks need no more, and code that does not compile is no problem.

pub(crate) mod paths;
pub(crate) mod tests_in;
mod tokens;

pub(crate) use tokens::{Kind, Token, tokens};

/// The index after the bracket that closes the one at `open`, or the end.
fn past_group(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, token) in tokens[open..].iter().enumerate() {
        match token.text {
            _ if token.kind != Kind::Punct => {}
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return open + offset + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// The attribute at `at`: the tokens between its brackets, and the index after it.
fn attribute<'t, 's>(tokens: &'t [Token<'s>], at: usize) -> Option<(&'t [Token<'s>], usize)> {
    let open = match tokens.get(at..)? {
        [hash, bracket, ..] if hash.is("#") && bracket.is("[") => at + 1,
        [hash, bang, bracket, ..] if hash.is("#") && bang.is("!") && bracket.is("[") => at + 2,
        _ => return None,
    };
    let end = past_group(tokens, open);
    Some((&tokens[open + 1..end.saturating_sub(1).max(open + 1)], end))
}

/// Recognizes `test`, `tokio::test`, `tokio::test(start_paused = true)` and the like.
fn marks_a_test(attribute: &[Token<'_>]) -> bool {
    let path = attribute.iter().take_while(|token| token.kind == Kind::Ident || token.is("::"));
    path.last().is_some_and(|last| last.is("test"))
}

/// Recognizes `cfg(test)` and `cfg(all(test, unix))`, but not `cfg(not(test))`.
fn is_cfg_test(attribute: &[Token<'_>]) -> bool {
    let contains = |word| attribute.iter().any(|token| token.kind == Kind::Ident && token.text == word);
    attribute.first().is_some_and(|first| first.is("cfg")) && contains("test") && !contains("not")
}

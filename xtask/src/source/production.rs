//! The tokens of a file without its test code.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::iter::Peekable;

/// A file without its test code.
#[derive(Default)]
pub(crate) struct Production {
    pub(crate) tokens: TokenStream,
    /// Modules declared as `#[cfg(test)] mod name;`. Their files are test code too.
    pub(crate) test_modules: Vec<String>,
    pub(crate) whole_file_is_test: bool,
}

impl Production {
    pub(crate) fn of(source: &str) -> Self {
        let mut left = Self::default();
        left.tokens = left.without_tests(source.parse().unwrap_or_default());
        if left.whole_file_is_test { Self { tokens: TokenStream::new(), ..left } } else { left }
    }

    /// Removes everything with an attribute such as `#[cfg(test)]` or `#[test]`, at every depth.
    fn without_tests(&mut self, stream: TokenStream) -> TokenStream {
        let mut kept = Vec::new();
        let mut trees = stream.into_iter().peekable();
        while let Some(tree) = trees.next() {
            if !is(&tree, "#") {
                kept.push(self.inside(tree));
                continue;
            }
            let bang = trees.next_if(|next| is(next, "!"));
            let is_test = matches!(trees.peek(), Some(TokenTree::Group(content)) if is_test(content));
            if !is_test {
                kept.extend([tree].into_iter().chain(bang));
            } else if bang.is_some() {
                self.whole_file_is_test = true;
            } else {
                trees.next();
                remove_attributes(&mut kept);
                self.skip_item(&mut trees);
            }
        }
        kept.into_iter().collect()
    }

    fn inside(&mut self, tree: TokenTree) -> TokenTree {
        let TokenTree::Group(group) = tree else { return tree };
        let mut inside = Group::new(group.delimiter(), self.without_tests(group.stream()));
        inside.set_span(group.span());
        inside.into()
    }

    /// Skips the item, statement, field or match arm that an attribute applies to.
    fn skip_item(&mut self, trees: &mut Peekable<impl Iterator<Item = TokenTree>>) {
        const ITEMS: [&str; 14] = [
            "pub", "mod", "fn", "struct", "enum", "union", "impl", "trait", "const", "static", "type",
            "async", "unsafe", "extern",
        ];
        while trees.next_if(|next| is(next, "#")).is_some() {
            trees.next();
        }
        let is_item = trees.peek().is_some_and(|first| ITEMS.iter().any(|word| is(first, word)));
        let mut skipped: Vec<TokenTree> = Vec::new();
        while let Some(tree) = trees.next() {
            let is_body = matches!(&tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
            let is_arm = skipped.last().is_some_and(|last| is(last, ">"));
            if is_body && (is_item || is_arm) {
                trees.next_if(|next| is(next, ";") || is(next, ","));
                return;
            }
            if is(&tree, ";") || (is(&tree, ",") && !is_item) {
                break;
            }
            skipped.push(tree);
        }
        if let [module, TokenTree::Ident(name)] = skipped.as_slice()
            && is(module, "mod")
        {
            self.test_modules.push(name.to_string());
        }
    }
}

/// Removes the attributes at the end, which belong to the item that is skipped. Doc comments are attributes too.
fn remove_attributes(kept: &mut Vec<TokenTree>) {
    let is_brackets =
        |tree: &TokenTree| matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket);
    while let [.., hash, brackets] = kept.as_slice()
        && is(hash, "#")
        && is_brackets(brackets)
    {
        kept.truncate(kept.len() - 2);
    }
}

fn is(tree: &TokenTree, text: &str) -> bool {
    match tree {
        TokenTree::Ident(ident) => ident == text,
        TokenTree::Punct(punct) => text.chars().eq([punct.as_char()]),
        TokenTree::Group(_) | TokenTree::Literal(_) => false,
    }
}

/// Recognizes `[cfg(test)]`, `[cfg(all(test, unix))]` and `[tokio::test]`, but not `[cfg(not(test))]`.
fn is_test(content: &Group) -> bool {
    let trees: Vec<TokenTree> = content.stream().into_iter().collect();
    let path = trees.iter().take_while(|tree| matches!(tree, TokenTree::Ident(_)) || is(tree, ":"));
    let words = |group: &Group| {
        group.to_string().split(|letter: char| !letter.is_alphanumeric()).map(str::to_owned).collect()
    };
    match trees.as_slice() {
        [first, TokenTree::Group(condition)] if is(first, "cfg") => {
            let words: Vec<String> = words(condition);
            words.iter().any(|word| word == "test") && words.iter().all(|word| word != "not")
        }
        _ => path.last().is_some_and(|last| is(last, "test")),
    }
}
